"""Tests of the feed of changes between processes, over stores in memory and a feed that fails."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from isthmus.app.cluster import changes as changes_module
from isthmus.app.cluster.changes import BATCH_RECORDS, Change, Changes, Interest
from isthmus.storage.interface import Record, StorageError
from isthmus.storage.memory import MemoryRecords
from isthmus.storage.notices import TOPICS_MAX, MemoryNotices

pytestmark = pytest.mark.anyio


class Notices(MemoryNotices):
    """A feed that counts, and that fails as long as `is_away`."""

    is_away = False

    def __init__(self) -> None:
        super().__init__()
        self.published: list[str] = []
        self.failed = anyio.Event()

    async def publish(self, topic: str) -> None:
        if self.is_away:
            self.failed.set()
            raise StorageError("away")
        self.published.append(topic.partition("/")[2])
        await super().publish(topic)


class Records(MemoryRecords):
    """Records that count what is loaded, and whose scans wait for `gate`."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.scans = 0
        self.gate = anyio.Event()
        self.gate.set()

    async def load(self, key: str) -> Record | None:
        self.loaded.append(key)
        return await super().load(key)

    async def scan(self, prefix: str) -> AsyncIterator[tuple[str, Record]]:
        self.scans += 1
        await self.gate.wait()
        async for each in super().scan(prefix):
            yield each


class Replica:
    """A process that keeps what it is told."""

    def __init__(self, records: Records, notices: Notices) -> None:
        self.changes = Changes(records, notices)
        self.told: dict[str, bytes] = {}
        self.batches: list[int] = []
        self.known: set[str] = set()
        self._change = anyio.Event()

    def receive(self, changes: list[Change]) -> None:
        self.batches.append(len(changes))
        for key, value in changes:
            assert value != b"a defect"
            if value is None:
                self.told.pop(key, None)
            else:
                self.told[key] = value
        self._change.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._change = anyio.Event()
            await self._change.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Replica]:
        interest = Interest(frozenset({"task", "upload"}), self.receive, ("task",), lambda: set(self.known))
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.changes.run, [interest])
            yield self
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def two(records: Records, notices: Notices) -> AsyncIterator[tuple[Replica, Replica]]:
    with anyio.fail_after(30):
        async with Replica(records, notices).running() as one, Replica(records, notices).running() as other:
            yield one, other


async def test_others_are_told_of_what_one_has_changed_and_it_loads_nothing_itself() -> None:
    records, notices = Records(), Notices()
    await records.save("task/before", b"0")
    async with two(records, notices) as (one, other):
        assert one.told == other.told == {"task/before": b"0"}  # at the start
        await records.save("task/1", b"1")
        one.changes.announce("task/1")
        await records.save("nonce/1", b"1")
        one.changes.announce("nonce/1")  # of no interest
        await records.save("upload/1", b"2")
        one.changes.announce("upload/1")
        await other.until(lambda: "upload/1" in other.told)
        await records.delete("task/1")
        one.changes.announce("task/1")
        await other.until(lambda: "task/1" not in other.told)
        assert records.loaded == ["task/1", "upload/1", "task/1"]
        assert one.told == {"task/before": b"0"}


async def test_a_burst_becomes_one_look_at_everything_in_batches() -> None:
    """The keys that wait are bounded on both sides, and so are the records that are reported at a time."""
    records, notices = Records(), Notices()
    count = 10 * TOPICS_MAX
    async with two(records, notices) as (one, other):
        scans = records.scans
        for number in range(count):
            await records.save(f"task/{number}", b"x")
            one.changes.announce(f"task/{number}")
        await other.until(lambda: len(other.told) == count)
        assert len(notices.published) <= 2 * TOPICS_MAX
        assert "everything" in notices.published
        assert len(records.loaded) <= 2 * TOPICS_MAX
        assert records.scans <= scans + 2
        assert max(other.batches) == BATCH_RECORDS


async def test_what_could_not_be_published_is_found_once_it_can(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A record that was removed is found gone. The failure is logged once, and so is its end."""
    monkeypatch.setattr(changes_module, "RETRY_S", 0.01)
    logging.getLogger("isthmus").propagate = True
    records, notices = Records(), Notices()
    await records.save("task/gone", b"0")
    async with two(records, notices) as (one, other):
        other.known = set(other.told)
        notices.is_away = True
        await records.save("task/1", b"1")
        one.changes.announce("task/1")
        for _ in range(3):
            notices.failed = anyio.Event()
            await notices.failed.wait()
        await records.delete("task/gone")
        one.changes.announce("task/gone")
        notices.is_away = False
        await other.until(lambda: other.told == {"task/1": b"1"})
    found = [record.getMessage() for record in caplog.records if record.name == "isthmus.cluster"]
    what = "other replicas cannot be told what was changed"
    assert found[:2] == [f"{what}: away", f"no longer: {what}"]


async def test_a_slow_store_does_not_hold_up_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "START_TIMEOUT_S", 0.01)
    records, notices = Records(), Notices()
    await records.save("task/1", b"1")
    records.gate = anyio.Event()
    with anyio.fail_after(30):
        async with Replica(records, notices).running() as one:
            assert one.told == {}
            records.gate.set()
            await one.until(lambda: one.told == {"task/1": b"1"})


async def test_a_defect_met_with_one_record_ends_nothing() -> None:
    records, notices = Records(), Notices()
    async with two(records, notices) as (one, other):
        await records.save("task/1", b"a defect")
        one.changes.announce("task/1")
        await records.save("task/2", b"2")
        one.changes.announce("task/2")
        await other.until(lambda: other.told == {"task/2": b"2"})


async def test_the_end_of_another_replica_is_a_reason_to_look() -> None:
    """The other one may have ended between a change and its notice."""
    records, notices = Records(), Notices()
    async with two(records, notices) as (_, other):
        await records.save("task/1", b"1")
        other.changes.look()
        await other.until(lambda: other.told == {"task/1": b"1"})
