"""A disk that is slow, full or broken for a while, and that survives the process.

The disk obeys the rules of `storage.interface` and no more. Records are written in the order of their orders,
everything else at once. An answered order lasts. After a crash, each part of an order under way is there whole or not
at all: of records, a prefix of them; of files, any subset. An order for several files may be carried out in part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from disk import ORDERS, Disk, File
from isthmus.core.base.effects import Effect
from isthmus.core.base.storage import (
    Allocate,
    Collect,
    Discard,
    Forget,
    ForgetAll,
    Load,
    Materialize,
    Save,
    StorageAnswer,
    StorageFailed,
    Sweep,
)
from isthmus.core.state.records import StoredArtifact, StoredTask, StoredUpload

if TYPE_CHECKING:
    from lasting_network import LastingNetwork

WEATHER: Final = ("full", "slow", "broken")
"""The states that a disk can have for some seconds. full: no writes succeed. slow: orders take long, some longer than
their timeout. broken: orders fail, and a record whose write failed may have been written nevertheless."""

OF_RECORDS: Final = (Load, Save, Forget, ForgetAll)
WRITING: Final = (Save, Collect, Allocate, Materialize)


LATE_S: Final = 5.0
"""An order that takes longer than this counts as a trouble: weather of before its due time may affect it."""


class Left(NamedTuple):
    """The entries that a process finds at its start."""

    artifacts: list[StoredArtifact]
    uploads: list[StoredUpload]
    tasks: list[StoredTask]


class StormyDisk(Disk):
    """The disk.

    Attributes:
        expiries: expiry times of records, on the wall clock. None: never.
        junk: keys of records, blobs and workspaces whose removal failed. The next start removes them.
        vanished: contents of blobs that were lost without an order.
        troubles: the number of orders that failed or were late.
    """

    def __init__(self, network: LastingNetwork) -> None:
        self.network: LastingNetwork = network
        self.rng = network.rng_of("disk")
        self.has_disk = False
        self.expiries: dict[str, float | None] = {}
        self.junk: set[str] = set()
        self.vanished: set[bytes] = set()
        self.partial: dict[str, bytes] = {}
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

    # --- Troubles ---------------------------------------------------------------------------------------------------

    def strike(self, number: int) -> None:
        """Changes the weather, or loses a file, about once a second."""
        network, rng = self.network, self.network.rng_of(f"d{number}")
        for kind in WEATHER:
            if network.strikes(kind, 0.1, rng):
                self._until[kind] = network.now + rng.expovariate(0.2)
        if network.strikes("vanishes", 0.05, rng) and self.blobs:
            blob = rng.choice(list(self.blobs))
            self.vanished.add(self.blobs.pop(blob))

    def is_now(self, kind: str) -> bool:
        """True if an order that is given or carried out now meets this weather."""
        if self.network.now >= self._until.get(kind, 0.0) or self.rng.random() < 0.3:
            return False
        self.troubles += 1
        return True

    def remove_junk(self) -> None:
        """Removes what the next start would remove."""
        for table in (self.records, self.blobs, self.partial):
            for key in self.junk & table.keys():
                del table[key]
        self.files = {path: file for path, file in self.files.items() if path.split("/")[2] not in self.junk}

    # --- Orders -----------------------------------------------------------------------------------------------------

    def carry_out(self, order: Effect) -> bool:
        """Carries out an order in its time; the network passes the answer on. Returns False if the order is none for a
        disk."""
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
        """The keys that remain: removals that failed, and records that may exist though their write failed."""
        if isinstance(order, ForgetAll):
            return [key for key in self.records if key.startswith(order.prefix)]
        if isinstance(order, Discard):
            return [order.blob]
        if isinstance(order, Sweep):
            return [order.workspace]
        return [order.key] if isinstance(order, Forget) else []

    def _carry_out(self, order: Effect) -> StorageAnswer | None:
        if isinstance(order, Save):
            if order.if_version == 0 and self._is_expired(order.key):
                self.records.pop(order.key)
            if not (order.if_version == 0 and order.key in self.records):
                self.expiries[order.key] = order.expires_at_unix
        elif isinstance(order, Discard):
            self.partial.pop(order.blob, None)
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
        """Ends the process. The results of its orders are reported to nobody."""
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
        self.partial.clear()

    def start(self) -> Left:
        """Starts another process. Removes expired records, entries without an owner, owners without an entry, events
        and folders."""
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
