"""Tests of a lease that several processes want: one holds it, and another takes it once it is left."""

from __future__ import annotations

import anyio
import pytest
from isthmus.app.stores import lease as module
from isthmus.app.stores.lease import LEASE_S, LOOK_S, Lease
from isthmus.storage.interface import Record, StorageError
from isthmus.storage.memory import MemoryRecords

pytestmark = pytest.mark.anyio


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class AwayRecords(MemoryRecords):
    is_away = False

    async def load(self, key: str) -> Record | None:
        if self.is_away:
            raise StorageError("the store is away")
        return await super().load(key)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "current_time", clock)
    return clock


async def test_a_lease_that_is_left_is_taken_by_one(clock: Clock) -> None:
    """A held lease is never taken. One that is not renewed is taken after `LEASE_S`, by one of those who wait, and its
    former holder notices when it comes back."""
    records = AwayRecords()
    first, *others = (Lease(records, "lease/job") for _ in range(4))
    assert await first.look()
    for _ in range(20):
        clock.now += LOOK_S
        assert [await one.look() for one in others] == [False] * 3
        assert await first.look()
    looks = 0
    taken = [False] * 3
    while not any(taken):
        clock.now += LOOK_S
        looks += 1
        taken = [await one.look() for one in others]
    assert LEASE_S <= looks * LOOK_S < LEASE_S + 2 * LOOK_S
    assert sum(taken) == 1
    assert not await first.look()
    assert [await one.look() for one in others] == taken


async def test_of_several_that_take_it_at_once_one_succeeds(clock: Clock) -> None:
    records = AwayRecords()
    found: list[bool] = []

    async def look(one: Lease) -> None:
        found.append(await one.look())

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(look, Lease(records, "lease/job"))
    assert sorted(found) == [False] * 4 + [True]


async def test_an_outage_is_no_sign_that_the_holder_is_gone(clock: Clock) -> None:
    """A process that could not look begins to count anew, so the holder comes first once the store is back."""
    records = AwayRecords()
    holder, other = Lease(records, "lease/job"), Lease(records, "lease/job")
    assert await holder.look()
    assert not await other.look()
    records.is_away = True
    clock.now += LEASE_S + LOOK_S
    assert not await other.look()
    records.is_away = False
    assert not await other.look()
    assert await holder.look()
