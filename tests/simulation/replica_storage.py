"""One storage of several replicas: records with versions, and blobs.

Each replica gives its orders by itself, and each order takes time: to the storage, where it takes effect at one moment,
and back. Orders of one replica for one record arrive in their order, all others in any. While the storage is away, or a
replica is cut off from it, orders fail. A change that failed may have taken effect, or take effect later.

The folders of servers and the drafts of uploads are each replica's own, and end with its process.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from disk import ORDERS
from isthmus.core.base.effects import Effect
from isthmus.core.base.replica import ReplicaName
from isthmus.core.base.storage import (
    Collect,
    Discard,
    Extend,
    Fetch,
    Forget,
    ForgetAll,
    Load,
    Materialize,
    Save,
    Saved,
    StorageAnswer,
    StorageFailed,
    Sweep,
)
from replica_quotas import Quotas
from simulated_disk import LATE_S, OF_RECORDS, StormyDisk
from simulated_network import Wrong
from simulated_works import OVER
from versioned_records import VersionedRecords

if TYPE_CHECKING:
    from replica_network import Replica, ReplicaNetwork

AT_THE_STORAGE: Final = (Load, Save, Forget, ForgetAll, Collect, Extend, Materialize, Fetch, Discard)
CHANGES: Final = (Save, Forget, Discard)
"""Orders that may take effect though they failed."""
LATE_EFFECT_MAX_S: Final = 20.0
"""The time after which a change has taken effect, or never does."""
DUE_S: Final = 10.0
"""The time by which a record may be removed too early: clocks differ, and ages are rounded."""
_URI: Final = re.compile(r"(artifact|upload)://sessions/([^/]+)/([^/]+)")


class SharedStorage(StormyDisk):
    """The storage of all replicas: records, blobs and the weather. It also holds the folders of all servers.

    Attributes:
        writers: the tags of the replicas that have written a record first.
        quotas: checks what is granted and stored.
    """

    quotas: Quotas

    network: ReplicaNetwork  # type: ignore[assignment]
    records: VersionedRecords  # type: ignore[assignment]

    def __init__(self, network: ReplicaNetwork) -> None:
        super().__init__(network)  # type: ignore[arg-type]
        self.records = VersionedRecords()
        self.writers: dict[str, str] = {}

    @property
    def troubles(self) -> int:
        return self._troubles

    @troubles.setter
    def troubles(self, count: int) -> None:
        """Notes a trouble. What waits for the order that met it may be refused later."""
        self._troubles = count
        if count:
            self.network.troubled_until = max(self.network.troubled_until, self.network.now)

    def remove_expired(self) -> None:
        """Removes expired records, and blobs without a record, as a storage does in its own time."""
        for key in [key for key in self.records if self._is_expired(key)]:
            del self.records[key]
        owned = {self.blob_in(value) for value in self.records.values()}
        for blob in [blob for blob in self.blobs if blob not in owned]:
            del self.blobs[blob]

    def is_expired(self, key: str) -> bool:
        return self._is_expired(key)

    def blob_in(self, value: bytes) -> Any:
        """Returns the name of the blob that a record names, or None."""
        return json.loads(value).get("blob")

    def file_at(self, uri: str) -> bytes | None:
        """Returns the content of the file with this URI, as anybody would find it; None if there is none."""
        match = _URI.match(uri)
        key = uri if match is None else "/".join(match.groups())
        value = None if self._is_expired(key) else self.records.get(key)
        return None if value is None else self.blobs.get(self.blob_in(value))


class ReplicaDisk(StormyDisk):
    """The storage and the folders as one replica uses them."""

    network: Replica  # type: ignore[assignment]
    records: VersionedRecords  # type: ignore[assignment]

    def __init__(self, network: Replica, storage: SharedStorage) -> None:
        self.storage = storage
        super().__init__(network)
        self.records, self.blobs, self.files = storage.records, storage.blobs, storage.files
        self.expiries, self.junk, self.vanished = storage.expiries, storage.junk, storage.vanished
        self.workspaces: set[str] = set()
        self._free_at: dict[str, float] = {}  # by key, when its last order has taken effect

    @property
    def troubles(self) -> int:
        return self.storage.troubles

    @troubles.setter
    def troubles(self, count: int) -> None:
        if count:
            self.storage.troubles = count

    def is_now(self, kind: str) -> bool:
        if kind == "broken" and self.network.is_cut_off:
            self.storage.troubles += 1
            return True
        return self.storage.is_now(kind)

    def carry_out(self, order: Effect) -> bool:
        if not isinstance(order, ORDERS):
            return False
        self.storage.quotas.receive_order(order)
        whole = self.network.whole
        takes_s, back_s = self.rng.expovariate(100.0), self.rng.expovariate(100.0)
        if isinstance(order, AT_THE_STORAGE) and self.is_now("slow"):
            takes_s, back_s = (self.rng.uniform(0.0, 20.0) for _ in range(2))
        at = whole.now + takes_s
        if isinstance(order, OF_RECORDS):
            key = getattr(order, "key", "")
            at = self._free_at[key] = max(at, self._free_at.get(key, 0.0))
        if at + back_s > whole.now + LATE_S:
            self.storage.troubles += 1
        if workspace := getattr(order, "workspace", ""):
            self.workspaces.add(workspace)
        self._last += 1
        self._under_way[self._last] = order
        whole.later(at - whole.now, self._reach, self._last, back_s, self.network.run_name)
        return True

    def _reach(self, number: int, back_s: float, run: str) -> None:
        """Lets an order take effect. Its answer comes some time later."""
        order = self._under_way.get(number)
        if order is None:
            return
        answer = self._attempt(order, ReplicaName(self.network.tag, run).owner)
        self.network.later(back_s, self._return, number, order, answer, run)

    def _return(self, number: int, order: Effect, answer: StorageAnswer | None, run: str) -> None:
        self._under_way.pop(number, None)
        if answer is not None and run == self.network.run_name and not self.network.is_down:
            self.network.answer(order.ticket, answer)  # type: ignore[attr-defined]

    def _attempt(self, order: Effect, owner: str = "") -> StorageAnswer | None:
        if not isinstance(order, AT_THE_STORAGE) or not self.is_now("broken"):
            if isinstance(order, (Save, Collect)) and self.is_now("full"):
                return StorageFailed(reason="the storage is full", is_full=True)
            return self._carry_out(order, owner)
        self.junk.update(self._named(order))
        if isinstance(order, Save):
            self.storage.quotas.receive_failed(order.key)
        fate = self.rng.random()
        if isinstance(order, CHANGES) and fate < 0.35:
            self._carry_out(order, owner)
        elif isinstance(order, CHANGES) and fate < 0.7:
            self.network.whole.later(self.rng.uniform(0.0, LATE_EFFECT_MAX_S), self._carry_out, order, owner)
        return StorageFailed(reason="the storage is away") if hasattr(order, "ticket") else None

    def _carry_out(self, order: Effect, owner: str = "") -> StorageAnswer | None:
        """Carries out an order of the replica `owner` at one moment: nobody sees a part of it."""
        if isinstance(order, Load | Save):
            if self._is_expired(order.key):
                del self.records[order.key]
            before = self.records.get(order.key)
            answer = self.records.answer(order)
            if isinstance(answer, Saved):
                assert isinstance(order, Save)
                _check_end(order.key, before, order.value)
                self.storage.writers.setdefault(order.key, self.network.tag)
                self.expiries[order.key] = order.expires_at_unix
                self.storage.quotas.receive_saved(order, owner, self.storage.network.now_unix)
                self.network.whole.tell(order.key, self.network)
            return answer
        if isinstance(order, ForgetAll):
            for key in [key for key in self.records if key.startswith(order.prefix)]:
                del self.records[key]
            return None
        if isinstance(order, Forget):
            self._check_forgotten(order.key)
            self.network.whole.tell(order.key, self.network)
        if isinstance(order, Sweep):
            self._remove_folders({order.workspace})
            return None
        if isinstance(order, Materialize):
            self.workspaces.add(order.workspace)  # a session that is over has it again
        return super()._carry_out(order)

    def _check_forgotten(self, key: str) -> None:
        """Checks that no replica removes an artifact of another one that has not expired."""
        writer, until_unix = self.storage.writers.get(key), self.expiries.get(key)
        is_due = until_unix is not None and until_unix < self.storage.network.now_unix + DUE_S
        if key.startswith("artifact/") and key in self.records and writer != self.network.tag and not is_due:
            raise Wrong(f"{self.network.tag} removes {key}, which {writer} has stored")

    def _remove_folders(self, workspaces: set[str]) -> None:
        for path in [path for path in self.files if path.split("/")[2] in workspaces]:
            del self.files[path]
        self.workspaces -= workspaces

    def write(self, path: str, data: bytes, *, is_busy: bool = False) -> str:
        return self.storage.write(path, data, is_busy=is_busy)

    def _is_expired(self, key: str) -> bool:
        return self.storage.is_expired(key)

    def crash(self) -> None:
        """Ends the process. The changes that it has ordered take effect soon, or never."""
        for number, order in list(self._under_way.items()):
            if not isinstance(order, CHANGES) or self.rng.random() < 0.5:
                del self._under_way[number]
        self._remove_folders(set(self.workspaces))
        self.partial.clear()
        self.drafts.clear()


def _check_end(key: str, before: bytes | None, now: bytes) -> None:
    """Checks that the end of a task stays in its record, whoever writes that."""
    if not key.startswith("task/") or before is None:
        return
    was, is_now = json.loads(before), json.loads(now)
    ends = [(one["status"], one.get("outcome"), one.get("blob")) for one in (was, is_now)]
    if was["status"] in OVER and ends[0] != ends[1]:
        raise Wrong(f"the end of a task is replaced: {was} by {is_now}")
