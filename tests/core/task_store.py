"""A storage that outlives engines and can fail or be slow."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import msgspec
from driving import Driver
from isthmus.core.base.effects import Effect
from isthmus.core.base.ids import Ticket
from isthmus.core.base.storage import (
    Collect,
    Collected,
    CollectedFile,
    Discard,
    Fetch,
    Fetched,
    Forget,
    ForgetAll,
    InlineSource,
    Load,
    Save,
    StorageAnswer,
    StorageFailed,
)
from isthmus.core.state.records import TASK_PREFIX, StoredTask
from versioned_records import VersionedRecords


@dataclass
class Store:
    """The records and blobs of engines.

    Attributes:
        is_failing: every order fails.
        is_slow: answers are kept in `held` until `deliver`.
    """

    records: VersionedRecords = field(default_factory=VersionedRecords)
    blobs: dict[str, bytes] = field(default_factory=dict)
    is_failing: bool = False
    is_slow: bool = False
    held: list[tuple[Ticket, StorageAnswer]] = field(default_factory=list)
    orders: list[Effect] = field(default_factory=list)
    _seen: int = 0

    def attend(self, world: Driver) -> bool:
        """Carries out the new orders. Returns False if there were none."""
        fresh, self._seen = world.log[self._seen :], len(world.log)
        is_busy = False
        for effect in fresh:
            if isinstance(effect, Load | Save | Collect | Fetch):
                is_busy = True
                self.orders.append(effect)
                answer = self._refuse() if self.is_failing else self._answer(effect)
                if self.is_slow:
                    self.held.append((effect.ticket, answer))
                else:
                    world.store(effect.ticket, answer)
            elif isinstance(effect, Forget):
                self.records.pop(effect.key, None)
            elif isinstance(effect, ForgetAll):
                for key in [key for key in self.records if key.startswith(effect.prefix)]:
                    del self.records[key]
            elif isinstance(effect, Discard):
                self.blobs.pop(effect.blob, None)
        return is_busy

    def deliver(self, world: Driver) -> None:
        """Gives the kept answers to the engine."""
        held, self.held = self.held, []
        for ticket, answer in held:
            world.store(ticket, answer)

    def begin(self) -> None:
        """Serves another engine from now on."""
        self._seen = 0
        self.held.clear()

    def _refuse(self) -> StorageAnswer:
        return StorageFailed("the disk is on fire")

    def _answer(self, order: Load | Save | Collect | Fetch) -> StorageAnswer:
        if isinstance(order, Load | Save):
            return self.records.answer(order)
        if isinstance(order, Fetch):
            data = self.blobs.get(order.blob)
            return StorageFailed("there is no such blob", is_missing=True) if data is None else Fetched(data)
        files = []
        for source, blob in zip(order.sources, order.blobs, strict=True):
            assert isinstance(source, InlineSource)
            assert len(source.data) <= order.size_max_bytes
            self.blobs[blob] = source.data
            digest = hashlib.sha256(source.data).hexdigest()
            files.append(CollectedFile(size_bytes=len(source.data), sha256=digest, filename=source.filename))
        return Collected(tuple(files))

    @property
    def tasks(self) -> dict[str, StoredTask]:
        """The stored tasks, by the id that clients know."""
        found = [msgspec.json.decode(v, type=StoredTask) for k, v in self.records.items() if k.startswith(TASK_PREFIX)]
        return {record.id: record for record in found}
