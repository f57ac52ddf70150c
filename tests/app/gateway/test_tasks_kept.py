"""Tests of tasks over real sockets, processes and folders: created, found, read again after a restart, and gone when
they expire."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from http_caller import PATIENCE_S, Caller, Json, fetch, operator
from isthmus.app.config.settings import Core, Server, ServerTasks, Settings, Storage, Tasks, Upstream
from isthmus.app.gateway import Gateway, running
from isthmus.core.base.limits import Limits

TOOLBOX = (sys.executable, str(Path(__file__).parents[1] / "peers" / "toolbox.py"))
RELATED = "io.modelcontextprotocol/related-task"
LARGE = "x" * (2 * Limits().task_inline_max_bytes)

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def proxy(root: Path, tasks: Tasks | None = None, offer: Any = "auto") -> AsyncIterator[Gateway]:
    server = Server(id="a", upstream=Upstream(command=TOOLBOX), tasks=ServerTasks(offer=offer))
    core, storage = Core(port=0, drain_seconds=0.2), Storage(root=str(root))
    settings = Settings(core=core, storage=storage, servers=(server,), tasks=tasks or Tasks())
    with anyio.fail_after(4 * PATIENCE_S):
        async with running(settings, listen=True, is_lasting=True) as gateway:
            yield gateway


async def client(gateway: Gateway) -> Caller:
    caller = Caller(f"{gateway.base_url}/mcp/a")
    info = {"name": "caller", "version": "0"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    assert "result" in await caller.request("initialize", params)
    caller.headers["mcp-protocol-version"] = "2025-11-25"
    await caller.send(method="notifications/initialized")
    return caller


async def begin(caller: Caller, tool: str, ttl_ms: int | None = None, **arguments: str) -> Json:
    task = {} if ttl_ms is None else {"ttl": ttl_ms}
    answer = await caller.request("tools/call", {"name": tool, "arguments": arguments, "task": task})
    created: Json = answer["result"]["task"]
    return created


async def result(caller: Caller, id: str) -> Json:
    return await caller.request("tasks/result", {"taskId": id})


async def listed(gateway: Gateway) -> list[Json]:
    status, body = await fetch(f"{gateway.base_url}/tasks", headers=operator(gateway))
    assert status == 200
    tasks: list[Json] = body["tasks"]
    return tasks


def files(root: Path) -> list[Path]:
    return [path for path in (root / "blobs").rglob("*") if path.is_file()]


async def test_what_was_finished_is_read_again_after_a_restart(tmp_path: Path) -> None:
    """The small result comes out of its record, the large one out of a file; both are unchanged."""
    results = {}
    async with proxy(tmp_path) as gateway:
        caller = await client(gateway)
        for text in ("small", LARGE):
            task = await begin(caller, "echo", text=text)
            assert task["status"] == "working"
            results[task["taskId"]] = await result(caller, task["taskId"])
            assert results[task["taskId"]]["result"]["content"][0]["text"] == f"toolbox says {text}"
            assert results[task["taskId"]]["result"]["_meta"][RELATED] == {"taskId": task["taskId"]}
        assert [(task["id"], task["status"]) for task in await listed(gateway)] == [(id, "completed") for id in results]
        sizes = [task["size_bytes"] for task in await listed(gateway)]
        assert sizes[0] < Limits().task_inline_max_bytes < len(LARGE) < sizes[1]
        assert len(files(tmp_path)) == 1
    assert len(files(tmp_path)) == 1
    async with proxy(tmp_path) as gateway:
        assert [(task["id"], task["size_bytes"]) for task in await listed(gateway)] == list(
            zip(results, sizes, strict=True)
        )
        caller = await client(gateway)
        for id, before in results.items():
            assert (await result(caller, id))["result"] == before["result"]


async def test_an_operator_sees_a_task_and_cancels_it(tmp_path: Path) -> None:
    started, until = tmp_path / "started", tmp_path / "until"
    async with proxy(tmp_path / "root") as gateway:
        caller = await client(gateway)
        id = (await begin(caller, "wait", started=str(started), until=str(until)))["taskId"]
        (shown,) = await listed(gateway)
        assert (shown["id"], shown["server"], shown["tool"], shown["kind"]) == (id, "a", "wait", "local")
        assert (shown["status"], shown["era"], shown["session"] != "") == ("working", "handshake", True)
        assert (await fetch(f"{gateway.base_url}/tasks/{id}/cancel", "POST", operator(gateway)))[0] == 200
        assert "cancelled" in (await result(caller, id))["error"]["message"]  # once that end is stored
        assert (await fetch(f"{gateway.base_url}/tasks/{id}", headers=operator(gateway)))[1]["status"] == "cancelled"
        assert (await fetch(f"{gateway.base_url}/tasks/{id}/cancel", "POST", operator(gateway)))[0] == 409
        assert (await caller.request("tasks/get", {"taskId": id}))["result"]["status"] == "cancelled"
        await gateway.hub.wait_idle()
        until.touch()


async def test_what_was_at_work_has_failed_after_a_restart(tmp_path: Path) -> None:
    started, until = tmp_path / "started", tmp_path / "until"
    async with proxy(tmp_path / "root") as gateway:
        id = (await begin(await client(gateway), "wait", started=str(started), until=str(until)))["taskId"]
    async with proxy(tmp_path / "root") as gateway:
        (shown,) = await listed(gateway)
        assert (shown["id"], shown["status"], shown["session"]) == (id, "failed", "")
        assert "stopped while the call ran" in shown["message"]
        assert (await fetch(f"{gateway.base_url}/tasks/{id}/cancel", "POST", operator(gateway)))[0] == 409
        caller = await client(gateway)
        assert (await caller.request("tasks/get", {"taskId": id}))["result"]["status"] == "failed"
        assert "stopped while the call ran" in (await result(caller, id))["error"]["message"]


async def test_what_expired_leaves_nothing(tmp_path: Path) -> None:
    """A client that fetched the result in time got it from a file. After the expiry neither file nor record is
    there."""
    async with proxy(tmp_path) as gateway:
        caller = await client(gateway)
        for ttl_ms in (1000, 2000, 4000, 8000):
            id = (await begin(caller, "echo", ttl_ms=ttl_ms, text=LARGE))["taskId"]
            if "result" in await result(caller, id):
                break
        else:
            raise AssertionError("no result within eight seconds")
        await gateway.hub.wait_until(lambda: not gateway.hub.tasks() and not files(tmp_path))
        assert (await result(caller, id))["error"]["code"] == -32602
    async with proxy(tmp_path) as gateway:
        assert await listed(gateway) == []


async def test_a_limit_of_the_configuration_holds(tmp_path: Path) -> None:
    async with proxy(tmp_path, Tasks(max_total=1, max_ttl_seconds=3600.0)) as gateway:
        caller = await client(gateway)
        assert (await begin(caller, "echo", ttl_ms=86_400_000, text="x"))["ttl"] == 3_600_000
        answer = await caller.request("tools/call", {"name": "echo", "arguments": {"text": "y"}, "task": {}})
        assert "tasks_max" in answer["error"]["message"]
        plain = await caller.request("tools/call", {"name": "echo", "arguments": {"text": "y"}})
        assert plain["result"]["content"][0]["text"] == "toolbox says y"


@pytest.mark.parametrize("offer", ["own", "never"])
async def test_where_none_are_offered_there_are_none(offer: str, tmp_path: Path) -> None:
    async with proxy(tmp_path, offer=offer) as gateway:
        caller = await client(gateway)
        (echo, *_) = (await caller.request("tools/list"))["result"]["tools"]
        assert "execution" not in echo
        assert (await caller.request("tasks/list"))["error"]["code"] == -32601
        answer = await caller.request("tools/call", {"name": "echo", "arguments": {"text": "y"}, "task": {}})
        assert answer["result"]["content"][0]["text"] == "toolbox says y"
        assert await listed(gateway) == []
