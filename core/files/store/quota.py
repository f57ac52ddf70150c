"""What each session has stored and what is on its way to be, and the same over all, against their bounds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Literal, overload

from ...base.limits import Limits
from .entry import Kept, Shelved, Upload
from .records import FileKind, StoredArtifact


class Hold:
    """Room that is taken for files which are not stored yet. Whoever has it releases it, once.

    Attributes:
        is_sure: what it is for will come, as far as anybody knows.
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
    """One session's."""

    __slots__ = ("artifacts", "held_artifacts", "held_bytes", "held_uploads", "size_bytes", "uploads")

    def __init__(self) -> None:
        self.uploads: dict[str, Upload] = {}
        self.artifacts: dict[str, Kept] = {}
        self.size_bytes = 0
        self.held_bytes = 0
        self.held_uploads = 0
        self.held_artifacts = 0

    @property
    def is_empty(self) -> bool:
        return not (self.uploads or self.artifacts or self.held_uploads or self.held_artifacts or self.held_bytes)


class Accounts:
    """The sums are kept, and no rule but that nothing is counted twice."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._accounts: dict[str, _Account] = {}
        self._total_bytes = 0
        self._total_files = 0
        self._unsure: dict[Hold, None] = {}  # oldest first

    # --- Room -----------------------------------------------------------------------------------------------------

    def free(self, sid: str) -> tuple[int, int]:
        """Bytes that a session, and all together, are below their bounds; negative if they are above."""
        account = self._accounts.get(sid)
        used = 0 if account is None else account.size_bytes + account.held_bytes
        return self._limits.session_storage_max_bytes - used, self._limits.storage_max_bytes - self._total_bytes

    def unsure(self, sid: str | None = None) -> list[Hold]:
        """Holds that are not sure, of one session or of all, newest first."""
        return [hold for hold in reversed(self._unsure) if sid in (None, hold.sid)]

    @property
    def sids(self) -> list[str]:
        """Sessions that have anything here."""
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

    def count(self, hold: Hold, sign: int) -> None:
        """Take a hold, or with -1 give it back."""
        account = self._accounts.setdefault(hold.sid, _Account())
        account.held_bytes += sign * hold.size_bytes
        account.held_uploads += sign * hold.uploads
        account.held_artifacts += sign * hold.artifacts
        self._total_bytes += sign * hold.size_bytes
        self._total_files += sign * (hold.uploads + hold.artifacts)
        if not hold.is_sure and sign > 0:
            self._unsure[hold] = None
        elif not hold.is_sure:
            del self._unsure[hold]
        self._tidy(hold.sid, account)

    # --- Entries --------------------------------------------------------------------------------------------------

    def add(self, entry: Shelved) -> None:
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

    def remove(self, entry: Shelved) -> None:
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
    def find(self, kind: Literal["upload"], sid: str, id: str) -> Upload | None: ...
    @overload
    def find(self, kind: Literal["artifact"], sid: str, id: str) -> Kept | None: ...
    @overload
    def find(self, kind: FileKind, sid: str, id: str) -> Shelved | None: ...
    def find(self, kind: FileKind, sid: str, id: str) -> Shelved | None:
        account = self._accounts.get(sid)
        if account is None:
            return None
        return account.uploads.get(id) if kind == "upload" else account.artifacts.get(id)

    def uploads_of(self, sid: str) -> list[Upload]:
        account = self._accounts.get(sid)
        return [] if account is None else list(account.uploads.values())

    def artifacts_of(self, sid: str) -> list[Kept]:
        """Oldest first."""
        account = self._accounts.get(sid)
        return [] if account is None else list(account.artifacts.values())

    def entries_of(self, sid: str) -> Iterator[Shelved]:
        account = self._accounts.get(sid)
        return iter(()) if account is None else chain(account.uploads.values(), account.artifacts.values())

    def all_entries(self) -> Iterator[Shelved]:
        return chain.from_iterable(map(self.entries_of, self._accounts))
