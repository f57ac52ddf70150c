"""Gateways that share real records: what one has stored or revoked is known at another without being named there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import h11
import msgspec
import pytest
from access_scenes import modern, shown
from anyio import to_thread
from file_world import AUTO, World, puppet
from http_caller import MARK, PATIENCE_S, USUAL, Caller, fetch, requested
from isthmus.app import gateway as gateway_module
from isthmus.app.cluster.changes import Changes
from isthmus.app.config.cluster_settings import Cluster
from isthmus.app.config.settings import Core, ServerTasks, Settings, Storage
from isthmus.app.gateway import Gateway, running
from isthmus.storage import notices
from one_loop import anyio_backend  # noqa: F401 (a fixture)
from record_servers import RecordServer
from s3_server import S3Server
from shared_gateways import ADMIN, ALICE, SharedStores, alice

pytestmark = [pytest.mark.anyio, pytest.mark.real]

TASKED = puppet("tasked", tasks=ServerTasks(offer="always"))
Json = dict[str, Any]


@pytest.fixture
def stores(postgres_server: RecordServer, s3_server: S3Server) -> SharedStores:
    return SharedStores(postgres_server, s3_server)


@asynccontextmanager
async def two(stores: SharedStores, folder: Path) -> AsyncIterator[tuple[Gateway, Gateway]]:
    with anyio.fail_after(120):
        async with contextlib.AsyncExitStack() as stack:
            first, second = [
                await stack.enter_async_context(replica(stores, folder / name)) for name in ("first", "second")
            ]
            yield first, second


def replica(stores: SharedStores, root: Path) -> anyio.abc.AsyncContextManager[Gateway]:
    settings = msgspec.structs.replace(
        stores.settings(root, AUTO, TASKED), cluster=Cluster(replica=root.name, socket=f"{root}.sock")
    )
    return running(settings, listen=True, is_lasting=True, log_server=lambda server, line: None)


async def ask(found: Gateway, method: str, server: str = "auto", **params: object) -> Json:
    """Returns the result for a client without sessions."""
    headers, body = modern(method, **params)
    async with requested(f"{found.base_url}/mcp/{server}", "POST", USUAL | shown(ALICE) | headers, body) as response:
        assert response.status == 200, await response.body()
        async for message in response.messages():
            if message.get("id") == 1:
                result: Json = message["result"]
                return result
    raise AssertionError("no answer")


async def write(found: Gateway, name: str) -> None:
    """Has a tool write a file, which becomes an artifact."""
    steps = [["write", name, "content"]]
    result = await ask(found, "tools/call", name="act", arguments={"steps": steps, "text": "wrote {0}"})
    assert not result.get("isError"), result


async def listed(found: Gateway) -> set[str]:
    found_uris = [each["uri"] for each in (await ask(found, "resources/list"))["resources"]]
    return {uri.rpartition("/")[2] for uri in found_uris if uri.startswith("artifact:")}


async def until_listed(found: Gateway, *names: str) -> None:
    while not set(names) <= await listed(found):  # noqa: ASYNC110 (another process has no event to wait for)
        await anyio.sleep(0.02)


async def test_an_artifact_is_listed_at_another_replica_which_tells_its_subscribers(
    stores: SharedStores, tmp_path: Path
) -> None:
    async with two(stores, tmp_path) as (first, second):
        headers, body = modern("subscriptions/listen", notifications={"resourcesListChanged": True})
        url = f"{second.base_url}/mcp/auto"
        async with requested(url, "POST", USUAL | shown(ALICE) | headers, body) as stream:
            messages = stream.messages()
            assert (await anext(messages))["method"] == "notifications/subscriptions/acknowledged"
            await write(first, "one.txt")
            assert (await anext(messages))["method"] == "notifications/resources/list_changed"
            assert await listed(second) == {"one.txt"}
        async with replica(stores, tmp_path / "third") as third:
            assert await listed(third) == {"one.txt"}  # at once


async def test_a_task_is_listed_and_cancelled_at_another_replica(stores: SharedStores, tmp_path: Path) -> None:
    async with two(stores, tmp_path) as (first, second):
        in_thread = to_thread.run_sync
        caller, other = [await in_thread(alice, World(each, tmp_path), "tasked") for each in (first, second)]
        call = {"name": "act", "arguments": {"text": "done"}, "task": {}}
        id = (await in_thread(caller.request, "tools/call", call))["task"]["taskId"]
        await in_thread(caller.request, "tasks/result", {"taskId": id})

        async def states() -> dict[str, str]:
            tasks = (await in_thread(other.request, "tasks/list"))["tasks"]
            return {each["taskId"]: each["status"] for each in tasks}

        while await states() != {id: "completed"}:  # noqa: ASYNC110 (as above)
            await anyio.sleep(0.02)
        call["arguments"] = {"steps": [["wait", "never"]]}
        running_id = (await in_thread(caller.request, "tools/call", call))["task"]["taskId"]

        async def is_cancelled() -> bool:
            answer = await in_thread(other.exchange, "tasks/cancel", {"taskId": running_id})
            # On a busy machine the first request may be answered before the other replica has heard of it.
            is_over = "error" in answer and "it is cancelled already" in answer["error"]["message"]
            return is_over or ("result" in answer and answer["result"]["status"] == "cancelled")

        while not await is_cancelled():  # noqa: ASYNC110 (as above)
            await anyio.sleep(0.02)
        assert (await in_thread(caller.request, "tasks/get", {"taskId": running_id}))["status"] == "cancelled"


async def test_a_revocation_is_in_force_at_all_replicas(stores: SharedStores, tmp_path: Path) -> None:
    """Streams of the caller end: at the replica that has them, and at the one that has passed them on."""
    async with two(stores, tmp_path) as (first, second), contextlib.AsyncExitStack() as stack:
        headers, body = modern("subscriptions/listen", notifications={"toolsListChanged": True})
        url = f"{second.base_url}/mcp/auto"
        passed = Caller(f"{first.base_url}/mcp/auto", shown(ALICE))
        await passed.initialize()
        assert str(passed.session).startswith("first.")
        own = {"accept": "text/event-stream", "mcp-session-id": str(passed.session)}
        events = await stack.enter_async_context(requested(url, "GET", shown(ALICE) | own))
        assert events.status == 200
        async with requested(url, "POST", USUAL | shown(ALICE) | headers, body) as stream:
            assert (await anext(stream.messages()))["method"] == "notifications/subscriptions/acknowledged"
            status, _ = await fetch(f"{first.base_url}/auth/revoke?name=token:alice", "POST", MARK | shown(ADMIN))
            assert status == 200
            with anyio.fail_after(PATIENCE_S / 2):  # they are looked at every 15 s as well
                await stream.body()
                with contextlib.suppress(h11.RemoteProtocolError):  # one that was passed on may be cut off
                    await events.body()
        async with requested(url, "POST", USUAL | shown(ALICE), b"{}") as refused:
            assert refused.status == 401
            assert b"it was revoked at 20" in await refused.body()


async def test_lists_are_right_again_after_the_records_were_away(
    stores: SharedStores, postgres_server: RecordServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "RECONNECT_S", 0.1)
    async with two(stores, tmp_path) as (first, second):
        await write(first, "before.txt")
        await until_listed(second, "before.txt")
        await to_thread.run_sync(postgres_server.kill)
        try:
            result = await ask(first, "tools/call", name="act", arguments={"text": "goes on"})
            assert result["content"][0]["text"] == "goes on"
        finally:
            await to_thread.run_sync(postgres_server.start)
        await write(first, "after.txt")
        await until_listed(second, "before.txt", "after.txt")
        await write(second, "back.txt")
        await until_listed(first, "before.txt", "after.txt", "back.txt")


async def test_one_process_has_no_feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_module, "opened_changes", None)
    monkeypatch.setattr(Changes, "announce", None)
    settings = Settings(core=Core(port=0), storage=Storage(root=str(tmp_path)), servers=(AUTO,))
    async with running(settings, listen=True, is_lasting=True) as found:
        await write(found, "one.txt")
