"""Tests of the removal of expired records while the proxy runs."""

from __future__ import annotations

import logging

import anyio
import pytest
from isthmus.app.stores import purge
from isthmus.storage.interface import StorageError
from isthmus.storage.memory import MemoryRecords

pytestmark = pytest.mark.anyio


class FailsOnce(MemoryRecords):
    def __init__(self) -> None:
        super().__init__(lambda: 5.0)
        self.purged: list[float] = []
        self.has_purged = anyio.Event()

    async def purge(self, now_unix: float) -> int:
        self.purged.append(now_unix)
        if len(self.purged) == 1:
            raise StorageError("the disk is away")
        self.has_purged.set()
        return await super().purge(now_unix)


async def test_expired_records_go_and_a_failure_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("isthmus").propagate = True
    monkeypatch.setattr(purge, "PURGE_EVERY_S", 0.001)
    records = FailsOnce()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(purge.keep_purged, records)
        with anyio.fail_after(10):
            await records.has_purged.wait()
        tasks.cancel_scope.cancel()
    assert set(records.purged) == {5.0}
    assert "expired records could not be removed: the disk is away" in caplog.text
