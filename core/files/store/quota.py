"""Storage accounts: what each account and all together have stored and reserved, and how far that is below the
limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Literal, overload

from ...base.limits import Limits
from ...state.records import FileKind
from .entry import ArtifactEntry, StoredEntry, UploadEntry
from .owners import ALL, Account


class Reservation:
    """Room reserved for files that are not stored yet. Its owner releases it, once.

    Attributes:
        uploads, artifacts: number of files of each kind.
        is_sure: the files will arrive, as far as is known (see `FileStore.hold`).
    """

    __slots__ = ("account", "artifacts", "is_sure", "size_bytes", "uploads")

    def __init__(
        self, account: Account, size_bytes: int, *, uploads: int = 0, artifacts: int = 0, is_sure: bool = True
    ) -> None:
        self.account = account
        self.size_bytes = size_bytes
        self.uploads = uploads
        self.artifacts = artifacts
        self.is_sure = is_sure


class _Balance:
    """The files and reservations of one account."""

    __slots__ = ("artifacts", "counted", "held_artifacts", "held_bytes", "held_uploads", "size_bytes", "uploads")

    def __init__(self) -> None:
        self.uploads: dict[tuple[str, str], StoredEntry] = {}  # by session and id
        self.artifacts: dict[tuple[str, str], StoredEntry] = {}
        self.counted: dict[FileKind, int] = {"upload": 0, "artifact": 0}
        self.size_bytes = 0
        self.held_bytes = 0
        self.held_uploads = 0
        self.held_artifacts = 0

    @property
    def is_empty(self) -> bool:
        return not (self.uploads or self.artifacts or self.held_uploads or self.held_artifacts or self.held_bytes)

    @property
    def used(self) -> tuple[int, int, int]:
        """The bytes, uploads and artifacts, stored and reserved."""
        return (
            self.size_bytes + self.held_bytes,
            self.counted["upload"] + self.held_uploads,
            self.counted["artifact"] + self.held_artifacts,
        )

    def of_kind(self, kind: FileKind) -> dict[tuple[str, str], StoredEntry]:
        return self.uploads if kind == "upload" else self.artifacts


Share = Callable[[Account], tuple[int, ...]]
"""Returns the part of the limits that is this process's own: (bytes, uploads, artifacts) of an account, (bytes, files)
of `ALL`."""


class StorageQuota:
    """Counts bytes and files, stored and reserved. Enforces no rule except that nothing is counted twice. Files that
    another replica counts are kept here, and not counted.

    Args:
        share: None: the limits are this process's alone.
    """

    def __init__(self, limits: Limits, share: Share | None = None) -> None:
        self._share = share or _whole(limits)
        self._counted_files = 0
        self._accounts: dict[Account, _Balance] = {}
        self._entries: dict[tuple[FileKind, str, str], StoredEntry] = {}
        self._total_bytes = 0
        self._held_files = 0
        self._unsure: dict[Reservation, None] = {}  # oldest first

    # --- Room -----------------------------------------------------------------------------------------------------

    def free(self, account: Account) -> tuple[int, int]:
        """Returns how many bytes an account, and all together, are below their limits; negative if above."""
        used = self.used(account)[0]
        return self._share(account)[0] - used, self._share(ALL)[0] - self._total_bytes

    def used(self, account: Account) -> tuple[int, ...]:
        """Returns what is stored and reserved, in the form of `Share`."""
        if account == ALL:
            return self._total_bytes, self._counted_files + self._held_files
        balance = self._accounts.get(account)
        return (0, 0, 0) if balance is None else balance.used

    def unsure(self, account: Account | None = None) -> list[Reservation]:
        """Returns the reservations that are not sure, of one account or of all, newest first."""
        return [reservation for reservation in reversed(self._unsure) if account in (None, reservation.account)]

    @property
    def accounts(self) -> list[Account]:
        """The accounts that have files or reservations."""
        return list(self._accounts)

    def slots(self, account: Account, kind: FileKind) -> tuple[int, int]:
        """Returns how many files of that kind an account, and how many files all together, are below their limits."""
        balance = self._accounts.get(account)
        held = 0 if balance is None else balance.held_uploads if kind == "upload" else balance.held_artifacts
        own, all_files = self.stored_slots(account, kind)
        return own - held, all_files - self._held_files

    def stored_slots(self, account: Account, kind: FileKind) -> tuple[int, int]:
        """Returns the same, of files that are stored: reservations are left out."""
        balance = self._accounts.get(account)
        _, uploads_max, artifacts_max = self._share(account)
        used = 0 if balance is None else balance.counted[kind]
        own_max = uploads_max if kind == "upload" else artifacts_max
        return own_max - used, self._share(ALL)[1] - self._counted_files

    def count(self, reservation: Reservation, sign: int) -> None:
        """Counts a reservation; with `sign` -1, gives it back."""
        balance = self._accounts.setdefault(reservation.account, _Balance())
        balance.held_bytes += sign * reservation.size_bytes
        balance.held_uploads += sign * reservation.uploads
        balance.held_artifacts += sign * reservation.artifacts
        self._total_bytes += sign * reservation.size_bytes
        self._held_files += sign * (reservation.uploads + reservation.artifacts)
        if not reservation.is_sure and sign > 0:
            self._unsure[reservation] = None
        elif not reservation.is_sure:
            del self._unsure[reservation]
        self._tidy(reservation.account, balance)

    # --- Entries --------------------------------------------------------------------------------------------------

    def add(self, entry: StoredEntry) -> None:
        record = entry.record
        balance = self._accounts.setdefault(entry.account, _Balance())
        key = (record.kind, record.sid, record.id)
        assert key not in self._entries
        self._entries[key] = entry
        balance.of_kind(record.kind)[record.sid, record.id] = entry
        if not entry.is_foreign:
            self._count_stored(entry, balance, 1)

    def _count_stored(self, entry: StoredEntry, balance: _Balance, sign: int) -> None:
        size_bytes = sign * entry.record.size_bytes
        balance.size_bytes += size_bytes
        balance.counted[entry.record.kind] += sign
        self._total_bytes += size_bytes
        self._counted_files += sign

    def remove(self, entry: StoredEntry) -> None:
        record = entry.record
        balance = self._accounts[entry.account]
        del self._entries[record.kind, record.sid, record.id]
        del balance.of_kind(record.kind)[record.sid, record.id]
        if not entry.is_foreign:
            self._count_stored(entry, balance, -1)
        self._tidy(entry.account, balance)

    def _tidy(self, account: Account, balance: _Balance) -> None:
        assert min(balance.size_bytes, balance.held_bytes, balance.held_uploads, balance.held_artifacts) >= 0
        assert min(self._total_bytes, self._held_files) >= 0
        if balance.is_empty:
            assert balance.size_bytes == 0
            del self._accounts[account]

    @overload
    def find(self, kind: Literal["upload"], sid: str, id: str) -> UploadEntry | None: ...
    @overload
    def find(self, kind: Literal["artifact"], sid: str, id: str) -> ArtifactEntry | None: ...
    @overload
    def find(self, kind: FileKind, sid: str, id: str) -> StoredEntry | None: ...
    def find(self, kind: FileKind, sid: str, id: str) -> StoredEntry | None:
        return self._entries.get((kind, sid, id))

    def entries_of(self, account: Account, kind: FileKind | None = None) -> Iterator[StoredEntry]:
        """Yields the files of an account, of one kind or of both, oldest first."""
        balance = self._accounts.get(account)
        if balance is None:
            return iter(())
        if kind is not None:
            return iter(balance.of_kind(kind).values())
        return chain(balance.uploads.values(), balance.artifacts.values())

    def all_entries(self) -> Iterator[StoredEntry]:
        return chain.from_iterable(map(self.entries_of, self._accounts))


def _whole(limits: Limits) -> Share:
    own = limits.session_storage_max_bytes, limits.uploads_per_session_max, limits.artifacts_per_session_max
    all_accounts = limits.storage_max_bytes, limits.stored_files_max

    def share(account: Account) -> tuple[int, ...]:
        return all_accounts if account == ALL else own

    return share
