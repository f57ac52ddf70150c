"""Storage accounts: what each session and all together have stored and reserved, and how far that is below the
limits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Literal, overload

from ...base.limits import Limits
from ...state.records import FileKind, StoredArtifact
from .entry import ArtifactEntry, StoredEntry, UploadEntry


class Reservation:
    """Room reserved for files that are not stored yet. Its owner releases it, once.

    Attributes:
        uploads, artifacts: number of files of each kind.
        is_sure: the files will arrive, as far as is known (see `FileStore.hold`).
    """

    __slots__ = ("artifacts", "is_sure", "sid", "size_bytes", "uploads")

    def __init__(
        self, sid: str, size_bytes: int, *, uploads: int = 0, artifacts: int = 0, is_sure: bool = True
    ) -> None:
        self.sid = sid
        self.size_bytes = size_bytes
        self.uploads = uploads
        self.artifacts = artifacts
        self.is_sure = is_sure


class _Account:
    """The files and reservations of one session."""

    __slots__ = ("artifacts", "held_artifacts", "held_bytes", "held_uploads", "size_bytes", "uploads")

    def __init__(self) -> None:
        self.uploads: dict[str, UploadEntry] = {}
        self.artifacts: dict[str, ArtifactEntry] = {}
        self.size_bytes = 0
        self.held_bytes = 0
        self.held_uploads = 0
        self.held_artifacts = 0

    @property
    def is_empty(self) -> bool:
        return not (self.uploads or self.artifacts or self.held_uploads or self.held_artifacts or self.held_bytes)


class StorageQuota:
    """Counts bytes and files, stored and reserved. Enforces no rule except that nothing is counted twice."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._accounts: dict[str, _Account] = {}
        self._total_bytes = 0
        self._total_files = 0
        self._unsure: dict[Reservation, None] = {}  # oldest first

    # --- Room -----------------------------------------------------------------------------------------------------

    def free(self, sid: str) -> tuple[int, int]:
        """Returns how many bytes a session, and all together, are below their limits; negative if above."""
        account = self._accounts.get(sid)
        used = 0 if account is None else account.size_bytes + account.held_bytes
        return self._limits.session_storage_max_bytes - used, self._limits.storage_max_bytes - self._total_bytes

    def unsure(self, sid: str | None = None) -> list[Reservation]:
        """Returns the reservations that are not sure, of one session or of all, newest first."""
        return [reservation for reservation in reversed(self._unsure) if sid in (None, reservation.sid)]

    @property
    def sids(self) -> list[str]:
        """The sessions that have files or reservations."""
        return list(self._accounts)

    def upload_slots(self, sid: str) -> int:
        account = self._accounts.get(sid)
        used = 0 if account is None else len(account.uploads) + account.held_uploads
        return self._slots(self._limits.uploads_per_session_max - used)

    def artifact_slots(self, sid: str) -> int:
        account = self._accounts.get(sid)
        used = 0 if account is None else len(account.artifacts) + account.held_artifacts
        return self._slots(self._limits.artifacts_per_session_max - used)

    def _slots(self, left: int) -> int:
        return max(0, min(left, self._limits.stored_files_max - self._total_files))

    def count(self, reservation: Reservation, sign: int) -> None:
        """Counts a reservation; with `sign` -1, gives it back."""
        account = self._accounts.setdefault(reservation.sid, _Account())
        account.held_bytes += sign * reservation.size_bytes
        account.held_uploads += sign * reservation.uploads
        account.held_artifacts += sign * reservation.artifacts
        self._total_bytes += sign * reservation.size_bytes
        self._total_files += sign * (reservation.uploads + reservation.artifacts)
        if not reservation.is_sure and sign > 0:
            self._unsure[reservation] = None
        elif not reservation.is_sure:
            del self._unsure[reservation]
        self._tidy(reservation.sid, account)

    # --- Entries --------------------------------------------------------------------------------------------------

    def add(self, entry: StoredEntry) -> None:
        record = entry.record
        account = self._accounts.setdefault(record.sid, _Account())
        assert self.find(record.kind, record.sid, record.id) is None
        if isinstance(record, StoredArtifact):
            account.artifacts[record.id] = entry  # type: ignore[assignment]  # an entry is of its record's kind
        else:
            account.uploads[record.id] = entry  # type: ignore[assignment]
        account.size_bytes += record.size_bytes
        self._total_bytes += record.size_bytes
        self._total_files += 1

    def remove(self, entry: StoredEntry) -> None:
        record = entry.record
        account = self._accounts[record.sid]
        if isinstance(record, StoredArtifact):
            del account.artifacts[record.id]
        else:
            del account.uploads[record.id]
        account.size_bytes -= record.size_bytes
        self._total_bytes -= record.size_bytes
        self._total_files -= 1
        self._tidy(record.sid, account)

    def _tidy(self, sid: str, account: _Account) -> None:
        assert min(account.size_bytes, account.held_bytes, account.held_uploads, account.held_artifacts) >= 0
        assert min(self._total_bytes, self._total_files) >= 0
        if account.is_empty:
            assert account.size_bytes == 0
            del self._accounts[sid]

    @overload
    def find(self, kind: Literal["upload"], sid: str, id: str) -> UploadEntry | None: ...
    @overload
    def find(self, kind: Literal["artifact"], sid: str, id: str) -> ArtifactEntry | None: ...
    @overload
    def find(self, kind: FileKind, sid: str, id: str) -> StoredEntry | None: ...
    def find(self, kind: FileKind, sid: str, id: str) -> StoredEntry | None:
        account = self._accounts.get(sid)
        if account is None:
            return None
        return account.uploads.get(id) if kind == "upload" else account.artifacts.get(id)

    def uploads_of(self, sid: str) -> list[UploadEntry]:
        account = self._accounts.get(sid)
        return [] if account is None else list(account.uploads.values())

    def artifacts_of(self, sid: str) -> list[ArtifactEntry]:
        """Returns the session's artifacts, oldest first."""
        account = self._accounts.get(sid)
        return [] if account is None else list(account.artifacts.values())

    def entries_of(self, sid: str) -> Iterator[StoredEntry]:
        account = self._accounts.get(sid)
        return iter(()) if account is None else chain(account.uploads.values(), account.artifacts.values())

    def all_entries(self) -> Iterator[StoredEntry]:
        return chain.from_iterable(map(self.entries_of, self._accounts))
