"""Memberships on real stores: replicas that are killed, paused and started twice, and a store that stops."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator

import anyio
import pytest
from anyio import to_thread
from isthmus.app.base.errors import Failed, StartError
from isthmus.app.cluster import membership as module
from isthmus.core.replicas.leases import Peer
from isthmus.storage.interface import Record, Records, StorageError
from isthmus.storage.memory import MemoryRecords
from members import LEASE_S, Events, Store, member, membership
from record_servers import RecordServer

pytestmark = pytest.mark.anyio

WAIT_S = 60
EACH_KIND = pytest.mark.parametrize(
    ("record_server", "anyio_backend"), [("postgres", "asyncio"), ("redis", "trio")], indirect=["record_server"]
)
"""A server of each kind, and each event loop. Which with which makes no difference to leases."""


async def renewed(records: Records, *tags: str) -> None:
    """Waits until the leases are renewed."""
    for tag in tags:
        before = await records.load(f"replica/{tag}")
        while await records.load(f"replica/{tag}") == before:
            pass


@EACH_KIND
async def test_a_replica_that_is_killed_is_gone(record_server: RecordServer) -> None:
    store, events = Store(record_server), Events()
    with anyio.fail_after(WAIT_S):
        async with store.process("a") as other, member(store.open(), "b", events) as one:
            assert other.first_line == "held"
            found = await one.find("a")
            assert found is not None
            assert found.address == "http://a:1"
            assert (one.replica_count, one.is_first()) == (2, False)
            other.process.kill()
            await events.of("a").wait()
            assert await one.find("a") is None
            assert (one.replica_count, one.is_first()) == (1, True)


@EACH_KIND
async def test_a_replica_that_was_paused_ends(record_server: RecordServer) -> None:
    store, events = Store(record_server), Events()
    with anyio.fail_after(WAIT_S):
        async with store.process("a") as other, member(store.open(), "b", events):
            other.process.send_signal(signal.SIGSTOP)
            await events.of("a").wait()
            async with member(store.open(), "a") as successor:
                other.process.send_signal(signal.SIGCONT)
                said = await to_thread.run_sync(other.ended)
                assert not successor.is_lost
    assert said == (
        "the lease of replica a was lost to http://a:1: this process had been paused or cut off for longer than "
        f"{LEASE_S:g} s, and ends so that nothing is done twice: start it again"
    )


@EACH_KIND
async def test_a_second_replica_of_one_tag_does_not_start(record_server: RecordServer) -> None:
    store = Store(record_server)
    with anyio.fail_after(WAIT_S):
        async with member(store.open(), "a"), store.process("a") as other:
            said = await to_thread.run_sync(other.ended)
            assert other.first_line.startswith("replica a has a lease already: waiting")
            assert said == "replica a runs already at http://a:1: give this one another cluster.replica"


@EACH_KIND
async def test_a_store_that_stops_for_longer_than_a_lease_costs_nobody_a_lease(record_server: RecordServer) -> None:
    store = Store(record_server)
    records = store.open()
    with anyio.fail_after(3 * WAIT_S):
        async with member(store.open(), "a") as one, member(store.open(), "b") as other:
            await to_thread.run_sync(record_server.stop)
            await anyio.sleep(LEASE_S + 1)  # the length of the outage is what is tested
            await to_thread.run_sync(record_server.start)
            await renewed(records, "a", "b")
            await renewed(records, "a", "b")
            assert (one.is_lost, other.is_lost) == (False, False)
            assert (one.replica_count, other.replica_count) == (2, 2)
    await records.aclose()


@EACH_KIND
async def test_clocks_that_differ_by_a_minute_change_nothing(record_server: RecordServer) -> None:
    store, events = Store(record_server), Events()
    early = record_server.records(store.name, now_unix=lambda: time.time() - 60)
    late = record_server.records(store.name, now_unix=lambda: time.time() + 60)
    with anyio.fail_after(WAIT_S):
        async with store.process("c") as dead, member(early, "a", events) as one, member(late, "b") as other:
            dead.process.kill()
            await events.of("c").wait()
            await renewed(early, "a", "b")
            assert (one.is_lost, other.is_lost) == (False, False)


# --- Without a server -----------------------------------------------------------------------------------------------


class CountingRecords(MemoryRecords):
    """Records that count how often they are scanned, and fail to be if they are away."""

    scans = 0
    is_away = False

    async def scan(self, prefix: str) -> AsyncIterator[tuple[str, Record]]:
        self.scans += 1
        if self.is_away:
            raise StorageError("the records are away")
        async for each in super().scan(prefix):
            yield each


async def test_all_that_ask_for_an_unknown_tag_wait_for_one_scan() -> None:
    records = CountingRecords()
    one = membership(records, "b", Events(), lease_s=1000.0, renew_s=300.0)
    await one.take()
    found: list[Peer | None] = []

    async def ask(tag: str) -> None:
        found.append(await one.find(tag))

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.run)
            async with member(records, "a"):
                before = records.scans
                async with anyio.create_task_group() as asking:
                    for tag in "a" * 50 + "z" * 50:
                        asking.start_soon(ask, tag)
                # Those that "a" makes itself are among them.
                assert records.scans - before <= 10
            tasks.cancel_scope.cancel()
    assert [peer and peer.tag for peer in found].count("a") == 50
    assert found.count(None) == 50


async def test_one_read_says_for_some_time_who_is_gone() -> None:
    records = CountingRecords()
    one = membership(records, "b", Events(), lease_s=1000.0, renew_s=300.0, gone_s=600.0)
    await one.take()
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.run)
            assert await one.find("a") is None
            before = records.scans
            assert {await one.find(tag) for tag in "acde"} == {None}
            assert records.scans == before
            tasks.cancel_scope.cancel()


async def test_a_replica_that_joins_others_waits_until_nobody_takes_it_for_one_that_is_gone() -> None:
    records = MemoryRecords()
    first = membership(records, "a", Events(), gone_s=3600.0)
    second = membership(records, "b", Events(), gone_s=3600.0)
    await first.take()
    await second.take()
    with anyio.fail_after(WAIT_S):
        await first.wait_seen()
    with anyio.move_on_after(0.05) as waiting:
        await second.wait_seen()
    assert waiting.cancelled_caught


async def test_a_replica_that_was_not_met_is_looked_up_again() -> None:
    records = MemoryRecords()
    one = membership(records, "b", Events(), lease_s=1000.0, renew_s=300.0, gone_s=600.0)
    await one.take()
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.run)
            async with member(records, "a"):
                known = await one.find("a")
                assert known is not None
                assert await one.find("a", known) == known
            async with member(records, "a"):
                assert one.known("a") == known
                assert await one.find("a", known) == known, "what was read lately counts"
                later = await one.find("a", known, is_replaced=True)
                assert later is not None and later.run != known.run
            tasks.cancel_scope.cancel()


async def test_nobody_is_called_gone_while_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIND_TIMEOUT_S", 0.1)
    records = CountingRecords()
    with anyio.fail_after(WAIT_S):
        async with member(records, "b") as one:
            records.is_away = True
            assert await one.find("a") == Peer("a", "", "")


async def test_what_replicas_share_is_closed_before_a_lost_lease_ends_the_process() -> None:
    records, events = MemoryRecords(), Events()
    one = membership(records, "a", events)
    await one.take()
    await records.delete("replica/a")
    with anyio.fail_after(WAIT_S), pytest.raises(Failed, match="the lease of replica a was lost: this process"):
        await one.run()
    assert events.is_fenced
    await one.leave()
    assert await one.find("b") == Peer("b", "", "")


async def test_a_replica_that_nobody_can_pass_requests_on_to_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    records, events = MemoryRecords(), Events()
    one = membership(records, "b", events, address="", lease_s=1.0, renew_s=0.1)
    other = membership(records, "a", events, lease_s=1.0, renew_s=0.1)
    await one.take()
    await other.take()

    def warnings() -> list[str]:
        return [each.message for each in caplog.records if each.message.startswith("other replicas use these stores")]

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.run)
            tasks.start_soon(other.run)
            while not warnings():
                await one.find("z")
            await one.find("z")
            tasks.cancel_scope.cancel()
    assert len(warnings()) == 1


async def test_the_end_of_a_run_is_told_also_if_its_address_goes_on() -> None:
    records, events = MemoryRecords(), Events()
    one = membership(records, "b", events, lease_s=5.0, renew_s=0.1)
    await one.take()
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.run)
            first = membership(records, "a", Events(), lease_s=5.0, renew_s=0.1)
            await first.take()
            while one.replica_count < 2:  # noqa: ASYNC110 (the other membership looks at intervals)
                await anyio.sleep(0.01)
            assert not events.ended.is_set()
            await first.leave()
            await membership(records, "a", Events(), lease_s=5.0, renew_s=0.1).take()  # with the same address
            await events.ended.wait()
            tasks.cancel_scope.cancel()


async def test_a_lease_is_given_back() -> None:
    records = MemoryRecords()
    async with member(records, "a"):
        assert await records.load("replica/a") is not None
    assert await records.load("replica/a") is None


async def test_a_store_that_cannot_be_used_ends_the_start() -> None:
    records = CountingRecords()
    records.is_away = True
    with pytest.raises(StorageError):
        await membership(records, "a", Events()).take()


async def test_a_lease_that_cannot_be_read_ends_the_start() -> None:
    records = MemoryRecords()
    await records.save("replica/a", b"{}")
    with pytest.raises(StartError, match="another version of Isthmus wrote"):
        await membership(records, "a", Events()).take()
