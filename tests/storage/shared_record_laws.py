"""The laws of shared records: what two openers of one store see of each other. `test_shared_records` runs them, and the
laws of `laws` too, for each shared backend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
import pytest
from isthmus.storage.interface import Record, Records, RecordsReport, VersionConflict
from laws import Clock


class OpensShared(Protocol):
    """Opens the same store each time. Any number of them may be open."""

    is_durable: bool

    def __call__(self, now_unix: Callable[[], float] | None) -> Records: ...


class Spread:
    """Two openers that look like one: each call goes to the one that is drawn for it."""

    def __init__(self, openers: tuple[Records, Records], choices: Iterator[bool]) -> None:
        self._openers = openers
        self._choices = choices

    def _one(self) -> Records:
        return self._openers[next(self._choices)]

    async def load(self, key: str) -> Record | None:
        return await self._one().load(key)

    async def save(
        self, key: str, value: bytes, *, expires_at_unix: float | None = None, if_version: int | None = None
    ) -> int:
        return await self._one().save(key, value, expires_at_unix=expires_at_unix, if_version=if_version)

    async def delete(self, key: str) -> bool:
        return await self._one().delete(key)

    async def delete_all(self, prefix: str) -> int:
        return await self._one().delete_all(prefix)

    def scan(self, prefix: str) -> AsyncIterator[tuple[str, Record]]:
        return self._one().scan(prefix)

    async def purge(self, now_unix: float) -> int:
        return await self._one().purge(now_unix)

    async def now_unix(self) -> float:
        return await self._one().now_unix()

    async def examine(self) -> RecordsReport:
        return await self._one().examine()

    async def aclose(self) -> None:
        for opener in self._openers:
            await opener.aclose()


class OpensSpread:
    def __init__(self, opener: OpensShared, choices: Iterator[bool]) -> None:
        self.is_durable = opener.is_durable
        self._opener = opener
        self._choices = choices

    def __call__(self, now_unix: Callable[[], float]) -> Records:
        return Spread((self._opener(now_unix), self._opener(now_unix)), self._choices)


@asynccontextmanager
async def two(opener: OpensShared, now_unix: Callable[[], float] | None) -> AsyncIterator[tuple[Records, Records]]:
    one, other = opener(now_unix), opener(now_unix)
    try:
        yield one, other
    finally:
        await one.aclose()
        await other.aclose()


async def first_of_rivals_wins(opener: OpensShared) -> None:
    """Exactly one of several writers with one `if_version`, in both openers, succeeds: for a new record, a present one,
    one that has expired, and one that was deleted."""
    clock = Clock()
    async with two(opener, clock) as openers:
        for end in ("expire", "delete", "nothing", "nothing", "expire", "nothing"):
            before = await openers[0].load("k")
            won: list[bytes] = []
            lost: list[bytes] = []

            async def rival(number: int, version: int, won: list[bytes] = won, lost: list[bytes] = lost) -> None:
                value = b"%d" % number
                try:
                    await openers[number % 2].save("k", value, expires_at_unix=clock.now + 1, if_version=version)
                    won.append(value)
                except VersionConflict:
                    lost.append(value)

            async with anyio.create_task_group() as tasks:
                for number in range(8):
                    tasks.start_soon(rival, number, 0 if before is None else before.version)
            assert (len(won), len(lost)) == (1, 7)
            for records in openers:
                after = await records.load("k")
                assert after is not None and after.value == won[0]
            if end == "expire":
                clock.now += 1
            elif end == "delete":
                await openers[1].delete("k")


async def versions_grow(opener: OpensShared) -> None:
    """Each version is new, whichever opener saves and deletes, and the one that stays is the greatest."""
    async with two(opener, Clock()) as openers:
        for deletes in (False, True):
            versions: list[int] = []

            async def save(number: int, deletes: bool = deletes, versions: list[int] = versions) -> None:
                before = max(versions, default=0)
                version = await openers[number % 2].save("k", b"v")
                assert version > before
                versions.append(version)
                if deletes and number % 3 == 0:
                    await openers[number // 2 % 2].delete("k")

            async with anyio.create_task_group() as tasks:
                for number in range(60):
                    tasks.start_soon(save, number)
            assert len(set(versions)) == 60
            last = await openers[0].load("k")
            if not deletes:
                assert last is not None and last.version == max(versions)
            assert await openers[1].save("k", b"v") > max(versions)


async def changes_are_seen(opener: OpensShared) -> None:
    """A save, a delete and a purge that have returned are seen by the other opener, in any order of who does what."""
    clock = Clock()
    async with two(opener, clock) as openers:
        for one, other in (openers, openers[::-1]):
            version = await one.save("a/k", b"v", expires_at_unix=clock.now + 5)
            assert await other.load("a/k") == Record(b"v", version, clock.now + 5)
            assert [entry async for entry in other.scan("a/")] == [("a/k", Record(b"v", version, clock.now + 5))]
            assert await other.delete("a/k")
            assert await one.load("a/k") is None
            assert not await one.delete("a/k")
            for number in range(3):
                await one.save(f"a/{number}", b"v")
            assert await other.delete_all("a/") == 3
            assert [entry async for entry in one.scan("")] == []
            await one.save("a/k", b"v", expires_at_unix=clock.now)
            assert await other.purge(clock.now) == 1
            assert await one.purge(clock.now) == 0


async def scans_go_on_while_others_write(opener: OpensShared) -> None:
    """A scan gives each record that stays once, in order, and its current value, while the other opener writes."""
    async with two(opener, Clock()) as (one, other):
        keys = [f"p/{number:03}" for number in range(600)]
        async with anyio.create_task_group() as tasks:
            for key in keys:
                tasks.start_soon(one.save, key, b"old")
        seen: dict[str, bytes] = {}
        async for key, record in one.scan("p/"):
            assert key not in seen
            seen[key] = record.value
            if len(seen) == 100:
                await other.delete("p/000")  # behind
                await other.save("p/001-", b"new")  # behind
                await other.save("p/599", b"new")  # ahead
                await other.delete("p/598")  # ahead, on a page that was not read yet
        assert list(seen) == [key for key in keys if key != "p/598"]
        assert seen["p/599"] == b"new"
        assert [value for key, value in seen.items() if key != "p/599"] == [b"old"] * 598


async def removals_spare_nothing_older(opener: OpensShared) -> None:
    """`delete_all` removes all that was there, while the other opener saves more, and what stays is consistent."""
    async with two(opener, Clock()) as (one, other):
        async with anyio.create_task_group() as tasks:
            for number in range(600):
                tasks.start_soon(one.save, f"p/{number:03}", b"old")
        async with anyio.create_task_group() as tasks:
            for number in range(0, 600, 20):
                tasks.start_soon(other.save, f"p/{number:03}-", b"new")
                tasks.start_soon(other.save, f"q/{number:03}", b"new")
            tasks.start_soon(one.delete_all, "p/")
            tasks.start_soon(other.delete_all, "p/1")
        left = {key: record async for key, record in one.scan("")}
        assert {record.value for record in left.values()} == {b"new"}
        assert len([key for key in left if key.startswith("q/")]) == 30
        for key, record in left.items():
            assert await other.load(key) == record
        assert await other.delete_all("") == len(left)
        assert [entry async for entry in one.scan("")] == []


async def expiry_has_one_clock(opener: OpensShared) -> None:
    """The store's clock is that of both openers, if they are given none: its time does not run backwards between them,
    and what one saves as expired or not is so for the other."""
    async with two(opener, None) as openers:
        times = [await openers[number % 2].now_unix() for number in range(6)]
        assert times == sorted(times)
        for one, other in (openers, openers[::-1]):
            now = await one.now_unix()
            await one.save("gone", b"v", expires_at_unix=now)
            version = await one.save("there", b"v", expires_at_unix=now + 1000)
            for records in (one, other):
                assert await records.load("gone") is None
                assert [key async for key, _ in records.scan("")] == ["there"]
                assert not await records.delete("gone")
            await other.save("gone", b"v", expires_at_unix=now, if_version=0)
            with pytest.raises(VersionConflict):
                await other.save("there", b"v", if_version=version + 1)
            assert await other.purge(now) == 1
            assert await other.delete("there")


async def a_lease_has_one_holder(opener: OpensShared) -> None:
    """A record that expires, saved with compare-and-swap, is a lease: whoever lost it cannot renew it."""
    clock = Clock()
    async with two(opener, clock) as (one, other):
        held = await one.save("lease", b"one", expires_at_unix=await one.now_unix() + 10, if_version=0)
        with pytest.raises(VersionConflict):
            await other.save("lease", b"other", expires_at_unix=await other.now_unix() + 10, if_version=0)
        clock.now += 9
        held = await one.save("lease", b"one", expires_at_unix=await one.now_unix() + 10, if_version=held)
        clock.now += 10
        taken = await other.save("lease", b"other", expires_at_unix=await other.now_unix() + 10, if_version=0)
        with pytest.raises(VersionConflict):
            await one.save("lease", b"one", expires_at_unix=await one.now_unix() + 10, if_version=held)
        assert await one.load("lease") == Record(b"other", taken, clock.now + 10)


async def closing_one_leaves_the_other(opener: OpensShared) -> None:
    one, other = opener(Clock()), opener(Clock())
    version = await one.save("k", b"v")
    await one.aclose()
    assert await other.load("k") == Record(b"v", version, None)
    await other.aclose()


SHARED_RECORD_LAWS = [
    first_of_rivals_wins,
    versions_grow,
    changes_are_seen,
    scans_go_on_while_others_write,
    removals_spare_nothing_older,
    expiry_has_one_clock,
    a_lease_has_one_holder,
    closing_one_leaves_the_other,
]
