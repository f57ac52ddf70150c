"""Tests of gateways that share real stores: one uses what another has stored, and none harms another."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
from file_world import AUTO, Agent, artifacts, puppet
from isthmus.app.config.settings import ServerTasks
from isthmus.storage.interface import Record, Records
from isthmus.storage.postgres import PostgresRecords
from record_servers import SECRET, RecordServer
from s3_server import S3Server, relay
from shared_gateways import ADMIN, SharedStores, alice, content, replica

pytestmark = pytest.mark.real

T = TypeVar("T")


@pytest.fixture
def stores(postgres_server: RecordServer, s3_server: S3Server) -> SharedStores:
    return SharedStores(postgres_server, s3_server)


def with_records(stores: SharedStores, use: Callable[[Records], Awaitable[T]]) -> T:
    """Uses the records as another process does."""

    async def opened() -> T:
        records = PostgresRecords(stores.records)
        try:
            return await use(records)
        finally:
            await records.aclose()

    return anyio.run(opened)


async def everything(records: Records) -> dict[str, Record]:
    return {key: record async for key, record in records.scan("")}


def test_a_file_uploaded_at_one_is_used_at_another(stores: SharedStores, tmp_path: Path) -> None:
    """An upload, and an artifact by its link. Also after the one that stored them has ended."""
    with replica(stores.settings(tmp_path / "b")) as b:
        with replica(stores.settings(tmp_path / "a")) as a:
            caller = alice(a)
            handle = caller.upload("notes.txt", b"of alice")
            (artifact,) = artifacts(caller.call("save", path="saved.txt"))
            assert content(alice(b), handle) == "of alice"
            link = artifact["download_url"]
            path = link.removeprefix(a.url)
            assert b.fetch(path).body == b"saved"
            stranger = Agent(b, "auto", headers={"authorization": f"Bearer {ADMIN}"})
            assert stranger.call("act", steps=[["read", handle]])["isError"]
        assert content(alice(b), handle) == "of alice"
        assert b.fetch(path).body == b"saved"
    with replica(stores.settings(tmp_path / "a")) as a:
        assert content(alice(a), handle) == "of alice"
        assert a.fetch(path).body == b"saved"


def test_a_start_removes_nothing_of_another(postgres_server: RecordServer, s3_server: S3Server, tmp_path: Path) -> None:
    """A file between its blob and its record is not removed by a gateway that starts, and neither is a record of a form
    that nobody here knows. The link works once, wherever it is used."""
    with relay(s3_server) as way:
        slow = SharedStores(postgres_server, s3_server, blobs_port=way.port)
        with replica(slow.settings(tmp_path / "a")) as a:
            caller = alice(a)
            link = caller.link()
            first = caller.put("one.txt", b"one", link=link)
            assert first.status == 200
            blob = next(name for name in s3_server.names(slow.prefix) if name.startswith("blobs/"))
            keys = with_records(slow, everything)
            (key,) = (key for key in keys if key.startswith("upload/"))
            with_records(slow, lambda records: records.delete(key))  # so a file is stored, and its record is not yet
            with replica(slow.settings(tmp_path / "b")) as b:
                assert blob in s3_server.names(slow.prefix)
                assert set(with_records(slow, everything)) >= set(keys) - {key}
                assert b.fetch(link.removeprefix(a.url), method="PUT", body=b"two").status == 403
            with_records(slow, lambda records: records.save(key, keys[key].value))
            with replica(slow.settings(tmp_path / "b")) as b:
                assert content(alice(b), first.json["upload_handle"]) == "one"


def test_events_of_sessions_stay_on_the_own_disk(stores: SharedStores, tmp_path: Path) -> None:
    settings = stores.settings(tmp_path / "a", event_store="sqlite")
    with replica(settings) as a:
        assert a.gateway.plan.stores_events and a.gateway.plan.shares_storage
        assert alice(a).text("act", text="hello") == "hello"
        assert not any(key.startswith("event/") for key in with_records(stores, everything))
    assert (tmp_path / "a" / "state" / "own.sqlite").exists()
    assert not (tmp_path / "a" / "state" / "records.sqlite").exists()
    assert not (tmp_path / "a" / "blobs").exists()


def test_the_wall_time_is_that_of_the_store(
    stores: SharedStores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two replicas whose clocks disagree by a minute agree on when a link expires, so that none is used twice."""
    true_time = time.time
    with replica(stores.settings(tmp_path / "a")) as a, monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: true_time() + 60.0)
        with replica(stores.settings(tmp_path / "b")) as b:
            assert abs(a.gateway.hub.now_unix() - b.gateway.hub.now_unix()) < 30.0


def test_uploads_to_two_at_once_keep_the_limit_together(stores: SharedStores, tmp_path: Path) -> None:
    """The gateways store as many as there is room for, and not one more."""
    more = {"max_total_session_size": 10_000, "eviction_policy": "none"}
    with replica(stores.settings(tmp_path / "a", **more)) as a, replica(stores.settings(tmp_path / "b", **more)) as b:
        callers = [alice(world) for world in (a, b) for _ in range(8)]
        links = [caller.link() for caller in callers]

        def put(number: int) -> int:
            return callers[number].put(f"{number}.txt", bytes(1000), link=links[number]).status

        with ThreadPoolExecutor(len(callers)) as pool:
            statuses = sorted(pool.map(put, range(len(callers))))
        found = with_records(stores, everything)
    assert statuses == [200] * 10 + [507] * 6
    assert sum(key.startswith("upload/") for key in found) == 10


def test_records_that_go_away_while_it_runs(
    stores: SharedStores, postgres_server: RecordServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls go on. New files and tasks are refused with a reason that names no machine, and all works again once the
    store is back."""
    logging.getLogger("isthmus").propagate = True
    tasked = puppet("tasked", tasks=ServerTasks(offer="always"))
    with replica(stores.settings(tmp_path / "a", AUTO, tasked)) as a:
        caller, other = alice(a), alice(a, "tasked")
        handle = caller.upload("before.txt", b"before")
        link = caller.link()
        postgres_server.kill()
        try:
            assert caller.text("act", text="goes on") == "goes on"
            assert content(caller, handle) == "before"
            reply = caller.put("new.txt", b"new", link=link)
            assert (reply.status, reply.json["code"]) == (503, "storage_failed")
            assert reply.json["detail"] == "the storage cannot be used; try again later"
            failed = other.exchange("tools/call", {"name": "act", "arguments": {"text": "x"}, "task": {}})["error"]
            assert "no task could be made of the call: the storage cannot be used; try again later" in failed["message"]
        finally:
            postgres_server.start()
        assert caller.put("new.txt", b"new", link=link).status == 200
        created = other.request("tools/call", {"name": "act", "arguments": {"text": "x"}, "task": {}})
        assert created["task"]["status"] == "working"
        answer = other.request("tasks/result", {"taskId": created["task"]["taskId"]})
        assert answer["content"][0]["text"] == "x"
        assert content(alice(a), handle) == "before"
    assert "Save could not be carried out: the records cannot be used" in caplog.text
    assert SECRET not in caplog.text


def test_a_bucket_that_goes_away_while_it_runs(
    postgres_server: RecordServer, s3_server: S3Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls go on. What needs a file says that the storage cannot be used, and works again once the bucket is back."""
    logging.getLogger("isthmus").propagate = True
    with relay(s3_server) as way:
        stores = SharedStores(postgres_server, s3_server, blobs_port=way.port)
        with replica(stores.settings(tmp_path / "a")) as a:
            caller = alice(a)
            handle = caller.upload("before.txt", b"before")
            way.close()
            reply = caller.put("new.txt", b"new")
            assert (reply.status, reply.json["code"]) == (503, "storage_failed")
            written = caller.call("act", steps=[["write", "out.txt", "out"]], text="wrote {0}")
            assert "Not transferred: the storage cannot be used" in written["content"][1]["text"]
            unread = caller.call("act", steps=[["read", handle]], text="{0}")
            assert unread["isError"] and "cannot be handed to the tool" in unread["content"][0]["text"]
            assert caller.text("act", text="goes on") == "goes on"
            way.reopen()
            assert content(alice(a), caller.upload("new.txt", b"new")) == "new"
    assert "an upload could not be stored: the object store cannot be used: " in caplog.text
