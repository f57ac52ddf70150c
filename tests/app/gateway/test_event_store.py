"""Tests of the event store in memory and in SQLite: a real server that sends many messages, and a client that was
cut off."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import anyio
import pytest
from http_caller import PATIENCE_S, Caller, requested
from isthmus.app.config.settings import Core, Server, Sessions, Settings, Storage, Upstream
from isthmus.app.gateway import running
from isthmus.core.base.limits import Limits

TOOLBOX = str(Path(__file__).parents[1] / "peers" / "toolbox.py")
STEPS, SIZE_BYTES = 600, 12 * 1024


def settings(root: Path, store: Literal["memory", "sqlite"]) -> Settings:
    server = Server(id="a", upstream=Upstream(command=(sys.executable, TOOLBOX)))
    return Settings(
        core=Core(port=0, drain_seconds=5.0),
        storage=Storage(root=str(root)),
        sessions=Sessions(event_store=store),
        servers=(server,),
    )


def stored(root: Path) -> list[str]:
    with sqlite3.connect(root / "state" / "records.sqlite") as db:
        return [key for (key,) in db.execute("SELECT key FROM records WHERE key LIKE 'event/%' ORDER BY key")]


async def until(condition: Callable[[], bool]) -> None:
    """Waits by polling, as writing to the disk takes its time."""
    with anyio.fail_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 (no event is set)
            await anyio.sleep(0.01)


async def missed(caller: Caller) -> str:
    """Calls a tool that sends more than fits into memory, and hangs up after the first event. Returns that event's
    id."""
    params = {
        "name": "progress",
        "arguments": {"steps": STEPS, "size": SIZE_BYTES},
        "_meta": {"progressToken": "t"},
    }
    async with caller.post(id="big", method="tools/call", params=params) as response:
        assert (await anext(response.messages()))["params"]["progress"] == 1
        seen = response.last_event_id
    assert seen is not None
    assert await caller.call("echo", text="x") == "toolbox says x"  # the server does one thing after the other
    return seen


async def rest(caller: Caller, seen: str) -> list[object]:
    assert caller.session is not None
    headers = {"accept": "text/event-stream", "mcp-session-id": caller.session, "last-event-id": seen}
    async with requested(caller.url, "GET", headers) as response:
        assert response.status == 200
        return [m["params"]["progress"] if "method" in m else m["id"] async for m in response.messages()]


@pytest.mark.anyio
async def test_sqlite_keeps_what_memory_has_no_room_for(tmp_path: Path) -> None:
    assert Limits().events_per_session_max_bytes < STEPS * SIZE_BYTES
    async with running(settings(tmp_path, "sqlite"), listen=True, is_lasting=True) as gateway:
        caller = Caller(f"{gateway.base_url}/mcp")
        await caller.initialize()
        seen = await missed(caller)
        await until(lambda: len(stored(tmp_path)) > 100)
        assert await rest(caller, seen) == [*range(2, STEPS + 1), "big"]
        assert await rest(caller, seen) == [*range(2, STEPS + 1), "big"], (
            "once more, as the client may be cut off again"
        )
    # Stored events end with their session. Those written at the very end of a run are removed by the next.
    async with running(settings(tmp_path, "sqlite"), listen=False, is_lasting=True):
        assert stored(tmp_path) == []


@pytest.mark.anyio
async def test_memory_keeps_the_newest(tmp_path: Path) -> None:
    async with running(settings(tmp_path, "memory"), listen=True, is_lasting=True) as gateway:
        caller = Caller(f"{gateway.base_url}/mcp")
        await caller.initialize()
        steps = await rest(caller, await missed(caller))
        assert 1 < len(steps) <= Limits().events_max
        assert steps == [*range(STEPS - len(steps) + 2, STEPS + 1), "big"]
        assert stored(tmp_path) == []


@pytest.mark.anyio
async def test_what_is_stored_goes_with_its_session(tmp_path: Path) -> None:
    async with running(settings(tmp_path, "sqlite"), listen=True, is_lasting=True) as gateway:
        caller = Caller(f"{gateway.base_url}/mcp")
        await caller.initialize()
        await missed(caller)
        await until(lambda: len(stored(tmp_path)) > 100)
        assert caller.session is not None
        async with requested(caller.url, "DELETE", {"mcp-session-id": caller.session}) as response:
            assert response.status == 204
        await until(lambda: not stored(tmp_path))
