"""Room for files that are about to be stored, where several replicas keep the limits together.

It is asked for before the first byte, and looked after once more before the record is saved. Without replicas all of it
is there at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...base.storage import StorageFailed
from .owners import Account
from .shared import SharedFiles
from .store import FileStore, Reservation, StoredUpload

FULL = "your storage is full, or uploads under way take what is left: let files expire first"


class Room:
    """Gets room from the share of this replica, from what others leave, and from files that may be evicted."""

    def __init__(self, file_store: FileStore, shared_files: SharedFiles) -> None:
        self._file_store = file_store
        self._shared_files = shared_files

    def prepare(
        self, account: Account, size_bytes: int, then: Callable[[str], None], *, uploads: int = 0, artifacts: int = 0
    ) -> None:
        """Gets room for files as far as there is any. Calls `then` with the problem of the storage; "" if there is
        none: `FileStore.room` and `FileStore.slots` tell then what may be stored, until `then` returns."""

        def claimed(problem: str) -> None:
            suspects = [] if problem else self._file_store.suspects(account, size_bytes, uploads, artifacts)
            if suspects:
                self._shared_files.look(suspects, then)
            else:
                then(problem)

        self._file_store.claim(account, size_bytes, uploads, artifacts, claimed)

    def confirm(
        self,
        records: Sequence[StoredUpload],
        reservation: Reservation,
        then: Callable[[StorageFailed | None], None],
    ) -> None:
        """Makes sure that uploads have room, just before their records are saved: the share lasts for long enough, and
        others are evicted for them. Calls `then` with the failure; None if there is none."""
        account = reservation.account

        def prepared(problem: str) -> None:
            if problem:
                then(StorageFailed(problem))
            elif self._file_store.keep_room(account, reservation, "upload", len(records)):
                then(None)
            else:
                then(StorageFailed(FULL, is_full=True))

        self.prepare(account, 0, prepared)
