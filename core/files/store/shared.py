"""Files that other processes have stored in the storage that they share with this one (`Plan.shares_storage`).

A process knows the files that it stored itself, and learns of others when they are named: it loads their record. From
then on they are files like its own. A file of another process that was removed there is found missing when its content
is read.

An upload lives as long as any process uses it. So before one drops an upload for its age, it looks at the record, which
says until when another one has extended it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from ...base.storage import Load, Loaded, StorageAnswer
from ...state.context import Context
from ...state.records import FileKind, StoredArtifact, StoredUpload, artifact_key, read, upload_key
from ...state.storage_orders import StorageOrders, reason_of
from .store import FileStore, StoredEntry

LOOK_AGAIN_S: Final = 60.0
"""Time until an expired upload is looked at again whose record could not be loaded."""


class FileName(NamedTuple):
    """The name of a file: its kind, the public name of its session, and its id."""

    kind: FileKind
    sid: str
    id: str

    @property
    def key(self) -> str:
        """The key of its record."""
        return artifact_key(self.sid, self.id) if self.kind == "artifact" else upload_key(self.sid, self.id)


class SharedFiles:
    """Loads the records of files that this process does not know."""

    def __init__(self, context: Context, file_store: FileStore, storage_orders: StorageOrders) -> None:
        self._context = context
        self._file_store = file_store
        self._storage_orders = storage_orders
        self._looked_at: set[FileName] = set()  # expired uploads whose records are being loaded

    def load(self, names: Iterable[FileName], then: Callable[[str], None]) -> None:
        """Loads the records of files, and adds those that exist to the store. There is at least one name.

        Calls `then` at the end, with the problem of the storage; "" if there is none.
        """
        left = tuple(dict.fromkeys(names))
        count, problem = len(left), ""

        def loaded(name: FileName, answer: StorageAnswer) -> None:
            nonlocal count, problem
            if isinstance(answer, Loaded):
                record = _record_in(name, answer.value)
                if record is not None:
                    self._file_store.adopt(record)
            else:
                problem = reason_of(answer)
            count -= 1
            if not count:
                then(problem)

        for name in left:
            self._order(name, partial(loaded, name))

    def receive_record(self, key: str, value: bytes | None) -> None:
        """Handles a record that another process has written or removed."""
        kind, _, rest = key.partition("/")
        sid, _, id = rest.partition("/")
        if kind not in _KINDS:
            return
        name = FileName(kind, sid, id)
        record = _record_in(name, value)
        if record is not None:
            self._file_store.adopt(record)
        elif value is None:
            self._file_store.lose(*name)

    def look(self, entries: Sequence[StoredEntry], then: Callable[[str], None]) -> None:
        """Looks whether other replicas use files of this one, or have removed them. There is at least one. Calls `then`
        at the end, with the problem of the storage; "" if there is none."""
        left, problem = len(entries), ""
        found: list[tuple[StoredEntry, StoredUpload | StoredArtifact | None]] = []

        def loaded(name: FileName, entry: StoredEntry, answer: StorageAnswer) -> None:
            nonlocal left, problem
            if isinstance(answer, Loaded):
                found.append((entry, _record_in(name, answer.value)))
            else:
                problem = reason_of(answer)
            left -= 1
            if not left:
                for looked_at, record in found:
                    self._file_store.looked(looked_at, record)
                then(problem)

        for entry in entries:
            name = FileName(entry.record.kind, entry.record.sid, entry.record.id)
            self._order(name, partial(loaded, name, entry))

    def handle_timeout(self, sid: str, id: str) -> None:
        """Drops an upload that has expired, unless another process has extended it."""
        name = FileName("upload", sid, id)
        if name in self._looked_at or not self._file_store.is_over(*name):
            return
        self._looked_at.add(name)

        def loaded(answer: StorageAnswer) -> None:
            self._looked_at.discard(name)
            if not isinstance(answer, Loaded):
                at = self._context.now + LOOK_AGAIN_S
                self._context.timers.set(("upload", (sid, id)), at, "upload unused")
                return
            record = _record_in(name, answer.value)
            if record is not None:
                self._file_store.adopt(record)
            self._file_store.handle_timeout(*name)

        self._order(name, loaded)

    def _order(self, name: FileName, then: Callable[[StorageAnswer], None]) -> None:
        self._storage_orders.order(lambda ticket: Load(ticket=ticket, key=name.key), then)


_KINDS: Final[dict[FileKind, type[StoredUpload | StoredArtifact]]] = {
    "upload": StoredUpload,
    "artifact": StoredArtifact,
}


def _record_in(name: FileName, value: bytes | None) -> StoredUpload | StoredArtifact | None:
    """Returns the record in a stored value; None if there is none, or it is of another release."""
    record = read(value, _KINDS[name.kind])
    return record if record is not None and record.key == name.key else None
