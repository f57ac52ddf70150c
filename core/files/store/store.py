"""The file store: the uploads and artifacts of every session, their sizes, who may use them, and when they go.

Each entry is a blob and a record that owns it. An upload lives as long as it is used. An artifact lives until its
deadline. A file that a call uses stays until that call is over. An id of 128 random bits, named by the right principal,
is proof enough: files do not end with their session (`FileScope.PRINCIPAL`). Where a session keeps its files to itself
(`FileScope.SESSION`), its uploads end with it, except those of clients without sessions and of an earlier run.

Room is reserved before a byte is stored. If a file does not fit, others are evicted (`eviction`): files of the same
account (`owners.account_of`), and where the limit for all is reached, also files of the same principal whose session is
over. No principal's files give way for those of another. If there are too many files, those go whose session is over.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, TypeVar, overload

import msgspec

from ...base.plan import Eviction, FileScope
from ...base.storage import Discard, Forget, Save
from ...state.context import Context
from ...state.records import FileEnds, FileKind, FileStatus, StoredArtifact, StoredUpload, artifact_key
from ...state.storage_orders import StorageOrders
from . import handles
from .entry import ArtifactEntry, Entry, StoredEntry, UploadEntry
from .eviction import choose
from .owners import ALL, Account, FileUser, Owner, account_of
from .quota import Reservation, StorageQuota
from .shares import SAVED_ANEW_AFTER, FileShares
from .statuses import status_of
from .subscribers import Subscribers
from .tombstones import Ending, Tombstones

__all__ = [
    "FileStore",
    "ArtifactEntry",
    "Reservation",
    "StoredEntry",
    "StoredArtifact",
    "StoredUpload",
    "UploadEntry",
    "artifact_key",
]

LOOKS_MAX: Final = 32
"""Uploads that are looked at for one file, to find out whether another replica uses them. At it: the others are not
evicted for it."""

R = TypeVar("R", StoredUpload, StoredArtifact)


class FileStore:
    """All stored files. Bounded in bytes and in files, for each account and over all; reservations count like stored
    files.

    Args:
        is_live: returns True if a session of that public name is open.
        storage_orders: given if this process is one of several replicas: they keep the limits together.
    """

    def __init__(
        self, context: Context, is_live: Callable[[str], bool], storage_orders: StorageOrders | None = None
    ) -> None:
        self._context = context
        self._is_live = is_live
        self._shares: FileShares | None = None
        if context.plan.replica is not None and storage_orders is not None:
            self._shares = FileShares(context, storage_orders, lambda account: self._quota.used(account))
        self._quota = StorageQuota(context.limits, None if self._shares is None else self._shares.share)
        self._foreign: dict[tuple[FileKind, str, str], StoredEntry] = {}  # oldest first
        self._loose: dict[tuple[FileKind, str, str], StoredEntry] = {}  # files that may be used without a live session
        self._tombstones = Tombstones(
            tombstones_max=context.limits.tombstones_max, ttl_s=context.limits.tombstone_ttl_s
        )
        self._ends: Tally[tuple[str, FileKind, str]] = Tally()
        self.subscribers = Subscribers()
        self._gone: dict[str, list[StoredArtifact]] = {}  # artifacts yet to be announced as gone, by session
        self._changed: set[str] = set()  # sessions whose own artifacts have changed, which is yet to be announced
        self._uses = 0
        self._is_stopping = False

    # --- Room -----------------------------------------------------------------------------------------------------

    def account(self, principal: str, sid: str) -> Account:
        """Returns the account of files that a session of the principal stores."""
        return account_of(self._context.plan.file_scope, principal, sid)

    def room(self, account: Account) -> int:
        """Returns how many more bytes may be stored for an account, counting what can be evicted for them."""
        own_bytes, all_bytes = self._quota.free(account)
        own = sum(entry.record.size_bytes for entry in self._evictable(account))
        room = min(own_bytes, all_bytes) + own
        if all_bytes < own_bytes:  # the limit for all is nearer: files of sessions that are over may go as well
            room = min(own_bytes + own, room + sum(entry.record.size_bytes for entry in self._ownerless(account)))
        return max(0, room)

    def slots(self, account: Account, kind: FileKind) -> int:
        """Returns how many more files of that kind an account may have, counting those of sessions that are over, which
        can be evicted for them."""
        own, all_files = self._quota.slots(account, kind)
        slots = own + len(self._closed(account, kind))
        if all_files < own:
            slots = min(slots, all_files + len(self._closed(account)))
        return max(0, slots)

    def hold(
        self, account: Account, size_bytes: int, *, uploads: int = 0, artifacts: int = 0, is_sure: bool = True
    ) -> Reservation:
        """Reserves room. The caller has checked with `room` that there is enough.

        Args:
            is_sure: True: so many bytes will arrive, and other files are evicted for them now. False: others are
                evicted only for what has arrived, when it is added; until then the store may exceed its limits by such
                reservations. Files are evicted for the number of files only then, too.
        """
        assert size_bytes <= self.room(account)
        reservation = Reservation(account, size_bytes, uploads=uploads, artifacts=artifacts, is_sure=is_sure)
        self._quota.count(reservation, 1)
        if is_sure:
            self._make_room(account)
        if self._shares is not None and artifacts:  # uploads: in `keep_room`
            self._evict(self._closed(account, "artifact")[: max(0, -self._quota.slots(account, "artifact")[0])])
            self._evict(self._closed(account)[: max(0, -self._quota.slots(account, "artifact")[1])])
        return reservation

    def claim(
        self, account: Account, size_bytes: int, uploads: int, artifacts: int, then: Callable[[str], None]
    ) -> None:
        """Gets a share of the limits for files that may come (`FileShares.claim`). `room` and `slots` count what was
        got. Without replicas it calls `then` at once."""
        if self._shares is None:
            then("")
        else:
            self._shares.claim(account, size_bytes, uploads, artifacts, then)

    def suspects(self, account: Account, size_bytes: int, uploads: int, artifacts: int) -> list[StoredEntry]:
        """Returns uploads that might be evicted for such files, and that another replica might use: whoever stores the
        files looks at their records first (`looked`). There are none while there is room without eviction."""
        if self._shares is None or self._context.plan.eviction is Eviction.NONE:
            return []
        has_room = min(self._quota.free(account)) >= size_bytes
        has_slots = min(self._quota.slots(account, "upload")) >= uploads
        if has_room and has_slots and min(self._quota.slots(account, "artifact")) >= artifacts:
            return []
        entries = [*self._quota.entries_of(account, "upload"), *self._loose.values()]
        found = {
            entry.record.key: entry
            for entry in entries
            if entry.account.principal == account.principal and entry.record.kind == "upload"
            if not (entry.pins or entry.is_foreign or entry.is_used_elsewhere)
        }
        oldest = sorted(found.values(), key=lambda entry: (self._is_live(entry.record.sid), entry.used))
        return oldest[:LOOKS_MAX]

    def looked(self, entry: StoredEntry, record: StoredUpload | StoredArtifact | None) -> None:
        """Takes over what the record of one of `suspects` says; None: there is none any more."""
        if self._quota.find(entry.record.kind, entry.record.sid, entry.record.id) is not entry:
            return
        if record is None and not entry.pins:
            self._take_out(entry, Ending.REMOVED)
        elif record is not None:
            self.adopt(record)
            entry.look(self._context.now)

    def keep_room(self, account: Account, reservation: Reservation, kind: FileKind, count: int) -> bool:
        """Evicts others for files that are about to be saved, and for which there is a reservation. True if they fit
        into the share of this replica. Without replicas others are evicted once the files are added."""
        if self._shares is None:
            return True
        self._make_room(account)
        self._make_slots(account, kind, count)
        own_bytes, all_bytes = self._quota.free(account)
        own_bytes += sum(other.size_bytes for other in self._quota.unsure(account) if other is not reservation)
        all_bytes += sum(other.size_bytes for other in self._quota.unsure() if other is not reservation)
        return min(own_bytes, all_bytes) >= 0 and min(self._quota.stored_slots(account, kind)) >= count

    def release(self, reservation: Reservation) -> None:
        """Releases a reservation: its files are stored now, or never will be."""
        self._quota.count(reservation, -1)
        if self._shares is not None:
            self._shares.receive_less(reservation.account)

    def handle_share(self, account: Account) -> None:
        """Gives back what is no longer used of a share."""
        assert self._shares is not None
        self._shares.handle_timeout(account)

    def _make_room(self, account: Account) -> None:
        """Evicts files until the limits are kept. If calls use too much for that, none is evicted until such a call is
        over (`unpin`)."""
        self._make_own_room(account)
        _, all_bytes = self._quota.free(account)
        if all_bytes < 0:
            self._evict_for(-all_bytes, [*self._evictable(account), *self._ownerless(account)], self._quota.unsure())

    def _make_own_room(self, account: Account) -> None:
        own_bytes, _ = self._quota.free(account)
        if own_bytes < 0:
            self._evict_for(-own_bytes, list(self._evictable(account)), self._quota.unsure(account))

    def _make_slots(self, account: Account, kind: FileKind, count: int = 0) -> None:
        """Evicts files of sessions that are over until `count` more may be stored."""
        own, all_files = self._quota.stored_slots(account, kind)
        if own < count:
            self._evict(self._closed(account, kind)[: count - own])
            _, all_files = self._quota.stored_slots(account, kind)
        if all_files < count:
            self._evict(self._closed(account)[: count - all_files])

    def _closed(self, account: Account, kind: FileKind | None = None) -> list[StoredEntry]:
        """Returns the files of sessions that are over, the least recently used first, which may be evicted for another
        file of the account. With `kind`, only those of that kind which are of the account itself."""
        entries = list(self._evictable(account, kind))
        if kind is None:
            entries += self._ownerless(account)
        closed = [entry for entry in entries if not self._is_live(entry.record.sid)]
        return sorted(closed, key=lambda entry: entry.used)

    def _evict_for(self, missing_bytes: int, entries: list[StoredEntry], unsure: list[Reservation]) -> None:
        """Evicts some of the entries for `missing_bytes`, of which unsure reservations are a part.

        If all entries together have less, these reservations are left out of the sum, the newest first. Each was
        granted against files that could be evicted for it and for those before it; when its own files arrive, files of
        others may be evicted.
        """
        newest_first = iter(unsure)
        while missing_bytes > 0:
            if chosen := choose(entries, missing_bytes, self._context.plan.eviction, self._is_live):
                self._evict(chosen)
                return
            reservation = next(newest_first, None)
            if reservation is None:
                return
            missing_bytes -= reservation.size_bytes

    def make_room(self) -> None:
        """Enforces the limits without a new file: earlier runs may have left more than the limits allow now. Expired
        files go first."""
        for entry in [entry for entry in self._quota.all_entries() if entry.is_over(self._context.now)]:
            self._expire(entry)
        for account in self._quota.accounts:
            self._make_own_room(account)
        _, all_bytes = self._quota.free(ALL)
        if all_bytes < 0:
            loose = filter(self._may_evict, self._loose.values())
            closed = [entry for entry in loose if not self._is_live(entry.record.sid)]
            self._evict_for(-all_bytes, closed, self._quota.unsure())

    def _evict(self, entries: Iterable[StoredEntry]) -> None:
        for entry in entries:
            self._drop(entry, Ending.EVICTED)

    def _evictable(self, account: Account, kind: FileKind | None = None) -> Iterator[StoredEntry]:
        """Yields files of an account that may be evicted."""
        return filter(self._may_evict, self._quota.entries_of(account, kind))

    def _ownerless(self, account: Account) -> Iterator[StoredEntry]:
        """Yields files of other accounts of the same principal that may be evicted: their session is over."""
        for entry in self._loose.values():
            is_of_principal = entry.account != account and entry.account.principal == account.principal
            if is_of_principal and self._may_evict(entry) and not self._is_live(entry.record.sid):
                yield entry

    def _may_evict(self, entry: StoredEntry) -> bool:
        """True if the file may be evicted. A file that was added at this very moment never makes room."""
        is_on = self._context.plan.eviction is not Eviction.NONE
        is_free = is_on and not entry.pins and entry.added_at != self._context.now
        return is_free and (self._shares is None or self._is_unused_elsewhere(entry))

    def _is_unused_elsewhere(self, entry: StoredEntry) -> bool:
        """True if no other replica is known to use the file. An upload that one has extended stays for as long as that
        asked for. An artifact lives until its deadline, used or not: no replica tells others that it reads one."""
        if entry.record.kind == "artifact":
            return not entry.is_foreign
        return not (entry.is_foreign or entry.is_used_elsewhere) and entry.looked_at == self._context.now

    # --- In and out -----------------------------------------------------------------------------------------------

    def add_upload(self, record: StoredUpload) -> UploadEntry:
        """Adds an upload that is stored and whose record is saved."""
        entry = self._entry(record, self._context.now, self._context.now + self._context.limits.upload_ttl_s)
        self._add(entry)
        return entry

    def add_artifact(self, record: StoredArtifact) -> ArtifactEntry:
        """Adds an artifact that is stored and whose record is saved."""
        entry = self._entry(record, self._context.now, record.expires_at_unix - self._context.unix_at_zero)
        self._add(entry)
        return entry

    def restore(self, uploads: Iterable[StoredUpload], artifacts: Iterable[StoredArtifact]) -> None:
        """Adds what earlier runs left. Files that expired meanwhile are not served; they go with the first deadlines,
        and so does what exceeds the limits."""
        records: list[StoredUpload | StoredArtifact] = [*uploads, *artifacts]
        for record in sorted(records, key=lambda record: (record.stored_at_unix, record.id)):
            self._put_stored(record)
        if any(min(self._quota.free(account)) < 0 for account in self._quota.accounts):
            self._context.timers.set(("room", ""), 0.0, "stored files beyond their bounds")

    def adopt(self, record: StoredUpload | StoredArtifact) -> None:
        """Adds a file that another process has stored in the storage they share, or learns that it lives longer.

        Where files are of their session, that session is open in the other process, for all that is known here. So
        only links lead to the file.
        """
        entry = self._quota.find(record.kind, record.sid, record.id)
        if entry is not None:
            if record.expires_at_unix > entry.record.expires_at_unix:
                entry.receive_use_elsewhere()
            entry.extend(record.expires_at_unix - self._context.unix_at_zero)
            self._set_deadline(entry)
        elif record.expires_at_unix > self._context.now_unix:
            is_of_session = self._ends_with_sessions and not record.is_bearer
            self._put_stored(record, self._context.now if is_of_session else float("-inf"))
            if isinstance(record, StoredArtifact):
                self._announce(record, is_there=True)

    def lose(self, kind: FileKind, sid: str, id: str) -> None:
        """Drops a file that another process has removed, unless a call uses it here."""
        entry = self._quota.find(kind, sid, id)
        if entry is not None and not entry.pins:
            self._take_out(entry, Ending.REMOVED)

    def _put_stored(self, record: StoredUpload | StoredArtifact, added_at: float = float("-inf")) -> None:
        expires_at, is_foreign = record.expires_at_unix - self._context.unix_at_zero, self._shares is not None
        if isinstance(record, StoredUpload):  # both branches do the same: the type checker needs them apart
            self._put(self._entry(record, added_at, expires_at, is_foreign=is_foreign))
        else:
            self._put(self._entry(record, added_at, expires_at, is_foreign=is_foreign))

    def _entry(self, record: R, added_at: float, expires_at: float, *, is_foreign: bool = False) -> Entry[R]:
        self._uses += 1
        at_unix = record.stored_at_unix if added_at == float("-inf") else self._context.now_unix
        account = self.account(record.principal, record.sid)
        return Entry(
            record,
            account,
            added_at=added_at,
            expires_at=expires_at,
            used=self._uses,
            used_at_unix=at_unix,
            is_foreign=is_foreign,
        )

    def _add(self, entry: StoredEntry) -> None:
        self._put(entry)
        self._make_room(entry.account)
        self._make_slots(entry.account, entry.record.kind)
        if isinstance(entry.record, StoredArtifact):
            self._announce(entry.record, is_there=True)

    def _put(self, entry: StoredEntry) -> None:
        record = entry.record
        if entry.is_foreign:
            self._make_foreign_slot()
            self._foreign[record.kind, record.sid, record.id] = entry
        self._quota.add(entry)
        if record.is_bearer or entry.is_restored or not self._ends_with_sessions:
            self._loose[record.kind, record.sid, record.id] = entry
        self._set_deadline(entry)

    def _make_foreign_slot(self) -> None:
        """Forgets the file of another replica that is known for longest, if so many are known as may be stored. It is
        found again when it is named."""
        if len(self._foreign) < self._context.limits.stored_files_max:
            return
        oldest = next((entry for entry in self._foreign.values() if not entry.pins), None)
        if oldest is not None:
            self._remove(oldest)

    def _set_deadline(self, entry: StoredEntry) -> None:
        record = entry.record
        why = "upload unused" if record.kind == "upload" else "artifact expired"
        self._context.timers.set((record.kind, (record.sid, record.id)), entry.expires_at, why)

    def is_over(self, kind: FileKind, sid: str, id: str) -> bool:
        """True if there is such a file, it has expired, and no call uses it."""
        entry = self._quota.find(kind, sid, id)
        return entry is not None and entry.is_over(self._context.now)

    def handle_timeout(self, kind: FileKind, sid: str, id: str) -> None:
        """Drops a file that has expired. A file in use goes when its last call is over."""
        entry = self._quota.find(kind, sid, id)
        if entry is not None and entry.is_over(self._context.now):
            self._drop(entry, Ending.EXPIRED)

    def _expire(self, entry: StoredEntry) -> None:
        """Drops a file that has expired. Where another process may have extended it, that is looked up first
        (`SharedFiles.handle_timeout`)."""
        if self._context.plan.shares_storage and entry.record.kind == "upload":
            self._set_deadline(entry)
        else:
            self._drop(entry, Ending.EXPIRED)

    def delete(self, kind: FileKind, sid: str, id: str) -> None:
        """Deletes a file by an operator's order. The file exists, and no call uses it."""
        entry = self._quota.find(kind, sid, id)
        assert entry is not None
        assert not entry.pins
        self._drop(entry, Ending.DELETED)

    def _drop(self, entry: StoredEntry, why: Ending) -> None:
        self._take_out(entry, why)
        self._context.order(Forget(key=entry.record.key))
        self._context.order(Discard(blob=entry.record.blob))

    def _remove(self, entry: StoredEntry) -> None:
        record = entry.record
        self._quota.remove(entry)
        self._loose.pop((record.kind, record.sid, record.id), None)
        self._foreign.pop((record.kind, record.sid, record.id), None)
        self._context.timers.cancel((record.kind, (record.sid, record.id)))
        if self._shares is not None and not entry.is_foreign:
            self._shares.receive_less(entry.account)

    def _take_out(self, entry: StoredEntry, why: Ending) -> None:
        record = entry.record
        self._remove(entry)
        self._tombstones.bury(record.kind, record.id, _owner(entry), why, self._context.now)
        self._ends[record.server, record.kind, why.value] += 1
        if isinstance(record, StoredArtifact):
            self._announce(record, is_there=False)

    # --- Changes ----------------------------------------------------------------------------------------------------

    def _announce(self, record: StoredArtifact, *, is_there: bool) -> None:
        """Schedules the notification of its session about an artifact that came or went, and of all that have
        subscribed to one that went."""
        if not record.is_exposed or not self._context.plan.expose_as_resources:
            return
        uri = handles.format_artifact(record.sid, record.id, record.filename)
        told = set() if is_there else set(self.subscribers.of(uri))
        if self._is_live(record.sid):
            self._changed.add(record.sid)
            told.add(record.sid)
        for sid in sorted(told):
            if not is_there:
                self._gone.setdefault(sid, []).append(record)
            self._context.timers.set(("resources", sid), self._context.now, "change of resources")

    def take_changes(self, sid: str) -> tuple[list[StoredArtifact], bool]:
        """Forgets the changes that a session was not told of yet. Returns the artifacts that went, and True if its own
        list has changed."""
        has_changed = sid in self._changed
        self._changed.discard(sid)
        return self._gone.pop(sid, []), has_changed

    # --- Use ------------------------------------------------------------------------------------------------------

    @overload
    def find(self, user: FileUser, *, of_sid: str, id: str, kind: Literal["upload"]) -> UploadEntry | None: ...
    @overload
    def find(self, user: FileUser, *, of_sid: str, id: str, kind: Literal["artifact"]) -> ArtifactEntry | None: ...
    @overload
    def find(self, user: FileUser, *, of_sid: str, id: str, kind: FileKind) -> StoredEntry | None: ...
    def find(self, user: FileUser, *, of_sid: str, id: str, kind: FileKind) -> StoredEntry | None:
        """Returns the file `id` that was stored in session `of_sid`, if `user` may use it (`FileUser.may_use`). Finding
        a file counts as use: an upload's lifetime starts anew."""
        entry = self._alive(kind, of_sid, id)
        if entry is None or not self._may_use(user, _owner(entry)):
            return None
        self._use(entry)
        return entry

    def find_any(self, sid: str, id: str) -> StoredEntry | None:
        """Returns a file for the holder of a signed link to it. Finding it counts as use."""
        entry = self._alive("artifact", sid, id) or self._alive("upload", sid, id)
        if entry is not None:
            self._use(entry)
        return entry

    def gone(self, user: FileUser, *, of_sid: str, id: str, kind: FileKind) -> str | None:
        """Returns what became of a file that `find` would have found, such as "it expired 3 minutes ago". None if there
        never was one, or this client may not know."""
        found = self._tombstones.find(kind, of_sid, id, self._context.now)
        if found is None or not self._may_use(user, found[0]):
            return None
        return found[1]

    def _may_use(self, user: FileUser, owner: Owner) -> bool:
        return user.may_use(owner, self._context.plan.file_scope, self._is_live)

    def find_artifact(self, sid: str, aid: str) -> StoredArtifact | None:
        """Returns the record of an artifact of session `sid`. Finding it counts as use."""
        entry = self._alive("artifact", sid, aid)
        if entry is None:
            return None
        self._use(entry)
        return entry.record

    def has(self, kind: FileKind, sid: str, id: str) -> bool:
        """True if there is such a file, of any owner. Does not count as use."""
        entry = self._quota.find(kind, sid, id)
        return entry is not None and not entry.is_over(self._context.now)

    def artifacts_of(self, account: Account, sid: str) -> list[StoredArtifact]:
        """Returns the records of the session's artifacts, oldest first. They are of that account."""
        kept = [entry for entry in self._quota.entries_of(account, "artifact") if entry.record.sid == sid]
        records = [entry.record for entry in kept if not entry.is_over(self._context.now)]
        return [record for record in records if isinstance(record, StoredArtifact)]

    def pin(self, entry: StoredEntry) -> None:
        """Marks the file as used by one more call."""
        entry.pin()

    def unpin(self, entry: StoredEntry) -> None:
        """Marks one call that used the file as over, and catches up on the expiry or eviction that it held up."""
        entry.unpin()
        record = entry.record
        if self._quota.find(record.kind, record.sid, record.id) is not entry:
            return  # it was dropped with its session meanwhile
        if entry.is_over(self._context.now):
            self._expire(entry)
        elif not entry.pins:
            self._make_room(entry.account)
            self._make_slots(entry.account, record.kind)

    @overload
    def _alive(self, kind: Literal["upload"], sid: str, id: str) -> UploadEntry | None: ...
    @overload
    def _alive(self, kind: Literal["artifact"], sid: str, id: str) -> ArtifactEntry | None: ...
    @overload
    def _alive(self, kind: FileKind, sid: str, id: str) -> StoredEntry | None: ...
    def _alive(self, kind: FileKind, sid: str, id: str) -> StoredEntry | None:
        entry = self._quota.find(kind, sid, id)
        if entry is not None and entry.is_over(self._context.now):
            self._expire(entry)
            return None
        return entry

    def _use(self, entry: StoredEntry) -> None:
        self._uses += 1
        entry.use(self._uses, self._context.now_unix)
        if isinstance(entry.record, StoredArtifact):
            return
        ttl_s = self._context.limits.upload_ttl_s
        entry.extend(self._context.now + ttl_s)  # a restored deadline is later if the wall clock was put back since
        self._set_deadline(entry)
        expires_at_unix, lag_s = self._context.now_unix + ttl_s, ttl_s * SAVED_ANEW_AFTER
        if self._context.plan.shares_storage:  # others go by the record, which may not fall behind
            expires_at_unix += lag_s
        if expires_at_unix - entry.record.expires_at_unix > lag_s:
            record = msgspec.structs.replace(entry.record, expires_at_unix=expires_at_unix)
            entry.replace_record(record)
            if self._shares is None or record.counted_by is msgspec.UNSET:
                self._save_anew(record)
                return

            def extended(problem: str) -> None:
                if not problem and self._quota.find(record.kind, record.sid, record.id) is entry:
                    self._save_anew(record)

            self._shares.extend(entry.account, record.counted_by, expires_at_unix, extended)

    def _save_anew(self, record: StoredUpload) -> None:
        """Saves a later deadline. The answer is not awaited: if saving fails, a restart takes the upload for unused."""
        value = msgspec.json.encode(record)
        ticket, expires_at_unix = self._context.new_ticket(), record.expires_at_unix
        self._context.order(Save(ticket, key=record.key, value=value, expires_at_unix=expires_at_unix))

    # --- Sessions -------------------------------------------------------------------------------------------------

    @property
    def _ends_with_sessions(self) -> bool:
        return self._context.plan.file_scope is FileScope.SESSION

    def close_session(self, principal: str, sid: str) -> None:
        """Drops the session's uploads if they are to end with it, except those of a client without sessions. Artifacts
        live until their deadline."""
        if self._is_stopping or not self._ends_with_sessions:
            return
        for entry in list(self._quota.entries_of(self.account(principal, sid), "upload")):
            if not entry.record.is_bearer:
                self._drop(entry, Ending.CLOSED)

    def stop(self) -> None:
        """Keeps the uploads of sessions that close from now on: the process ends, and clients will name their uploads
        to the next one."""
        self._is_stopping = True

    # --- For operators --------------------------------------------------------------------------------------------

    def report(self) -> tuple[FileStatus, ...]:
        """Returns the status of all files, least recently used first."""
        entries = sorted(self._quota.all_entries(), key=lambda entry: entry.used)
        is_bearer = not self._ends_with_sessions
        return tuple(status_of(self._context, entry, self._is_live, is_bearer=is_bearer) for entry in entries)

    def ends(self) -> tuple[FileEnds, ...]:
        """Returns how many files went, and why."""
        return tuple(
            FileEnds(server=server, kind=kind, why=why, count=count)
            for (server, kind, why), count in sorted(self._ends.items())
        )


def _owner(entry: StoredEntry) -> Owner:
    record = entry.record
    return Owner(record.server, record.principal, record.sid, record.is_bearer, entry.is_restored)
