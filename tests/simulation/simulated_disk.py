"""A disk that is slow, full or broken for a while, and keeps over a crash what it was told to keep.

It obeys the laws of `storage.interface` and no more. Records are written in the order of their orders, all else at
once. What was answered lasts. Of what was under way when the process died each part is there, whole, or not at all: of
records so many of the first, of files any of them; and of an order for several files, perhaps some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from disk import ORDERS, Disk, File
from isthmus.core.base.effects import (
    Allocate,
    Collect,
    Discard,
    Effect,
    Forget,
    ForgetAll,
    Load,
    Materialize,
    Save,
    StorageAnswer,
    StorageFailed,
    Sweep,
)
from isthmus.core.files.store.records import StoredArtifact, StoredUpload
from isthmus.core.tasks.record import StoredTask

if TYPE_CHECKING:
    from lasting_network import LastingNetwork

WEATHER: Final = ("full", "slow", "broken")
"""What a disk can be for some seconds. full: nothing more is written. slow: orders take long, some longer than they are
waited for. broken: orders fail, and a record that could not be written may have been written all the same."""

OF_RECORDS: Final = (Load, Save, Forget, ForgetAll)
REMOVING: Final = (Forget, ForgetAll, Discard)
WRITING: Final = (Save, Collect, Allocate, Materialize)


LATE_S: Final = 5.0
"""What takes longer may have its reasons seen in what came before it."""


class Left(NamedTuple):
    """What a process finds of those before it."""

    artifacts: list[StoredArtifact]
    uploads: list[StoredUpload]
    tasks: list[StoredTask]


class StormyDisk(Disk):
    """See the module.

    Attributes:
        expiries: of records, on the wall clock; None: never.
        junk: keys of records, blobs and workspaces that could not be removed: the next start does that.
        vanished: what was in blobs that are gone though nobody has ordered it.
        troubles: how many orders failed, or were late, so far.
    """

    def __init__(self, network: LastingNetwork) -> None:
        self.network: LastingNetwork = network
        self.rng = network.rng_of("disk")
        self.has_disk = False
        self.expiries: dict[str, float | None] = {}
        self.junk: set[str] = set()
        self.vanished: set[bytes] = set()
        self.drafts: dict[str, bytes] = {}
        self.troubles = 0
        self._until: dict[str, float] = {}
        self._records_at = 0.0
        self._under_way: dict[int, Effect] = {}
        self._last = 0
        super().__init__(self)  # type: ignore[arg-type]  # which has the time, as a driver of other tests has

    @property
    def now(self) -> float:
        return self.network.now

    @property
    def is_busy(self) -> bool:
        return bool(self._under_way)

    # --- What befalls it --------------------------------------------------------------------------------------------

    def strike(self, number: int) -> None:
        """About once a second: the weather changes, or a file is lost."""
        network, rng = self.network, self.network.rng_of(f"d{number}")
        for kind in WEATHER:
            if network.strikes(kind, 0.1, rng):
                self._until[kind] = network.now + rng.expovariate(0.2)
        if network.strikes("vanishes", 0.05, rng) and self.blobs:
            blob = rng.choice(list(self.blobs))
            self.vanished.add(self.blobs.pop(blob))

    def is_now(self, kind: str) -> bool:
        """Whether an order that is given, or carried out, now meets that."""
        if self.network.now >= self._until.get(kind, 0.0) or self.rng.random() < 0.3:
            return False
        self.troubles += 1
        return True

    def remove_junk(self) -> None:
        """What the next start would do."""
        for table in (self.records, self.blobs, self.drafts):
            for key in self.junk & table.keys():
                del table[key]
        self.files = {path: file for path, file in self.files.items() if path.split("/")[2] not in self.junk}

    # --- Orders -----------------------------------------------------------------------------------------------------

    def carry_out(self, order: Effect) -> bool:
        """Do it in its time; the network passes the answer on. False: it is nothing for a disk."""
        network = self.network
        if not isinstance(order, ORDERS):
            return False
        takes_s = self.rng.expovariate(100.0)
        if self.is_now("slow"):
            takes_s = self.rng.uniform(1.0, 40.0)
        at = network.now + takes_s
        if isinstance(order, OF_RECORDS):
            at = self._records_at = max(at, self._records_at)
        if at > network.now + LATE_S:
            self.troubles += 1
        self._last += 1
        self._under_way[self._last] = order
        network.later(at - network.now, self._do, self._last)
        return True

    def _do(self, number: int) -> None:
        order = self._under_way.pop(number, None)
        answer = None if order is None else self._attempt(order)
        if answer is not None:
            self.network.answer(order.ticket, answer)  # type: ignore[union-attr]

    def _attempt(self, order: Effect) -> StorageAnswer | None:
        if isinstance(order, WRITING) and self.is_now("full"):
            return StorageFailed(reason="the disk is full", is_full=True)
        if not self.is_now("broken"):
            return self._carry_out(order)
        if isinstance(order, Save) and self.rng.random() < 0.5:
            self._carry_out(order)
        self.junk.update(self._named(order))
        return None if not hasattr(order, "ticket") else StorageFailed(reason="the disk is broken")

    def _named(self, order: Effect) -> list[str]:
        """What stays because an order to remove it failed, or a record that may be there though its order failed."""
        if isinstance(order, ForgetAll):
            return [key for key in self.records if key.startswith(order.prefix)]
        if isinstance(order, Discard):
            return [order.blob]
        if isinstance(order, Sweep):
            return [order.workspace]
        return [order.key] if isinstance(order, Forget) else []

    def _carry_out(self, order: Effect) -> StorageAnswer | None:
        if isinstance(order, Save):
            self.expiries[order.key] = order.expires_at_unix
        elif isinstance(order, Discard):
            self.drafts.pop(order.blob, None)
        elif isinstance(order, Load) and self._is_expired(order.key):
            self.records.pop(order.key)
        return super()._carry_out(order)

    def _is_expired(self, key: str) -> bool:
        expires_at_unix = self.expiries.get(key)
        return key in self.records and expires_at_unix is not None and expires_at_unix <= self.network.now_unix

    def write(self, path: str, data: bytes, *, is_busy: bool = False) -> str:
        self._stamps += 1
        self.files[path] = File(data, f"s{self._stamps}", self.network.now_unix, is_busy)
        return path

    # --- Ends and beginnings ----------------------------------------------------------------------------------------

    def crash(self) -> None:
        """The process is gone. Nobody hears what becomes of its orders."""
        rng, under = self.rng, list(self._under_way.values())
        self._under_way.clear()
        self._records_at = 0.0
        records = [order for order in under if isinstance(order, OF_RECORDS)]
        for order in records[: rng.randint(0, len(records))]:
            self._carry_out(order)
        for order in under:
            if isinstance(order, Discard) and rng.random() < 0.5:
                self._carry_out(order)
            elif isinstance(order, Collect):
                count = rng.randint(0, len(order.sources))
                self._carry_out(
                    msgspec.structs.replace(order, sources=order.sources[:count], blobs=order.blobs[:count])
                )
        self.drafts.clear()

    def start(self) -> Left:
        """Another process takes over: expired records, what nothing owns, what owns nothing, events and folders go."""
        self.files.clear()
        self.junk.clear()
        for key in list(self.records):
            if self._is_expired(key) or key.startswith("event/"):
                del self.records[key]
        owned = {key: msgspec.json.decode(value).get("blob") for key, value in self.records.items()}
        self.blobs = {blob: data for blob, data in self.blobs.items() if blob in owned.values()}
        for key, blob in owned.items():
            if blob is not None and blob not in self.blobs:
                del self.records[key]
        tasks = self._of("task/", StoredTask)
        tasks.sort(key=lambda task: task.expires_at_unix - task.ttl_ms / 1000)
        return Left(self._of("artifact/", StoredArtifact), self._of("upload/", StoredUpload), tasks)

    def _of(self, prefix: str, kind: type[Any]) -> list[Any]:
        found = sorted(self.records.items())
        return [msgspec.json.decode(value, type=kind) for key, value in found if key.startswith(prefix)]
