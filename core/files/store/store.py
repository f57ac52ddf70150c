"""What is stored: the uploads and artifacts of every session, their sizes, who may use them, and when they go.

Each entry is a blob and a record that owns it. An upload lives as long as it is used, an artifact until its deadline,
so that a download link that was handed out keeps working; what a call uses stays until that is over. A session's
uploads end with it. Those of clients without sessions do not, nor does what an earlier run stored: for these, a name
of 128 random bits, said by the right principal, is proof enough.

Room is taken before a byte is stored. What does not fit makes others go (`eviction`): files of the same session, and
where the bound for all is reached, also files that no session owns any more.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, NamedTuple, TypeVar, overload

import msgspec

from ...base.effects import Discard, Forget, Save
from ...base.plan import UPLOAD_SCHEME, Eviction
from ...state.context import Desk
from . import handles
from .entry import Entry, Kept, Shelved, Upload
from .eviction import choose
from .quota import Accounts, Hold
from .records import FileEnds, FileKind, FileStatus, StoredArtifact, StoredUpload, artifact_key
from .tombstones import Ending, Owner, Tombs

__all__ = ["Change", "Hold", "Kept", "Shelf", "Shelved", "StoredArtifact", "StoredUpload", "Upload", "artifact_key"]

SAVED_ANEW_AFTER: Final = 0.25
"""Of an upload's time: as much as it may live less after a restart than it would have."""

R = TypeVar("R", StoredUpload, StoredArtifact)


class Change(NamedTuple):
    """An artifact appeared, or went."""

    record: StoredArtifact
    is_there: bool


class Shelf:
    """Bounded in bytes and in files, for each session and over all; what is on its way counts as if it were there.

    Args:
        is_live: whether there is a session of that public name.

    Attributes:
        watch: told of each change, when it has happened.
    """

    def __init__(self, desk: Desk, is_live: Callable[[str], bool]) -> None:
        self.watch: Callable[[Change], None] | None = None
        self._desk = desk
        self._is_live = is_live
        self._accounts = Accounts(desk.limits)
        self._loose: dict[tuple[FileKind, str, str], Shelved] = {}  # not bound to a session that lives
        self._tombs = Tombs(tombs_max=desk.limits.tombs_max, ttl_s=desk.limits.tombstone_ttl_s)
        self._ends: Tally[tuple[str, FileKind, str]] = Tally()
        self._uses = 0
        self._is_stopping = False

    # --- Room -----------------------------------------------------------------------------------------------------

    def room(self, sid: str) -> int:
        """Bytes that may still be stored for a session, with what would make room for them."""
        own_bytes, all_bytes = self._accounts.free(sid)
        own = sum(entry.record.size_bytes for entry in self._movable(sid))
        room = min(own_bytes, all_bytes) + own
        if all_bytes < own_bytes:
            room = min(own_bytes + own, room + sum(entry.record.size_bytes for entry in self._ownerless(sid)))
        return max(0, room)

    def upload_slots(self, sid: str) -> int:
        """How many more uploads a session may have. Only bytes are made room for."""
        return self._accounts.upload_slots(sid)

    def artifact_slots(self, sid: str) -> int:
        """How many more artifacts a session may have."""
        return self._accounts.artifact_slots(sid)

    def hold(self, sid: str, size_bytes: int, *, uploads: int = 0, artifacts: int = 0, is_sure: bool = True) -> Hold:
        """Take room that there is.

        Args:
            is_sure: so much will come, and others go for it now. Else they go only for what has come, when it is added:
                until then there may be more than the bounds allow, by what is held so.
        """
        assert size_bytes <= self.room(sid)
        hold = Hold(sid, size_bytes, uploads=uploads, artifacts=artifacts, is_sure=is_sure)
        self._accounts.count(hold, 1)
        if is_sure:
            self._make_room(sid)
        return hold

    def release(self, hold: Hold) -> None:
        """The files are stored now, or never will be."""
        self._accounts.count(hold, -1)

    def _make_room(self, sid: str) -> None:
        """Let files go until the bounds are kept. Where they cannot be, since calls use too much of it, none go, until
        such a call is over (`unpin`)."""
        self._make_own_room(sid)
        self._make_common_room(sid)

    def _make_own_room(self, sid: str) -> None:
        own_bytes, _ = self._accounts.free(sid)
        if own_bytes < 0:
            self._let_go(-own_bytes, list(self._movable(sid)), self._accounts.unsure(sid))

    def _make_common_room(self, sid: str) -> None:
        _, all_bytes = self._accounts.free(sid)
        if all_bytes < 0:
            self._let_go(-all_bytes, [*self._movable(sid), *self._ownerless(sid)], self._accounts.unsure())

    def _let_go(self, missing_bytes: int, entries: list[Shelved], unsure: list[Hold]) -> None:
        """Let some of the entries go for so much, which holds that are not sure are part of. Where all together are
        less, these holds do without, the newest first: each was given what could go for it and for those before it, and
        what goes for it may be others' to let go, when its files come."""
        newest_first = iter(unsure)
        while missing_bytes > 0:
            if chosen := choose(entries, missing_bytes, self._desk.plan.eviction):
                self._evict(chosen)
                return
            hold = next(newest_first, None)
            if hold is None:
                return
            missing_bytes -= hold.size_bytes

    def make_room(self) -> None:
        """For nobody: what earlier runs left may be more than the bounds are now, also without what has expired."""
        for entry in [entry for entry in self._accounts.all_entries() if entry.is_over(self._desk.now)]:
            self._drop(entry, Ending.EXPIRED)
        for sid in self._accounts.sids:
            self._make_own_room(sid)
        self._make_common_room("")

    def _evict(self, entries: Iterable[Shelved]) -> None:
        for entry in entries:
            self._drop(entry, Ending.EVICTED)

    def _movable(self, sid: str) -> Iterator[Shelved]:
        """Files of a session that may go for others."""
        return filter(self._may_go, self._accounts.entries_of(sid))

    def _ownerless(self, sid: str) -> Iterator[Shelved]:
        """Files that may go for those of any other session."""
        for entry in self._loose.values():
            if entry.record.sid != sid and self._may_go(entry) and not self._is_live(entry.record.sid):
                yield entry

    def _may_go(self, entry: Shelved) -> bool:
        """What was accepted in this very moment is not what makes room."""
        is_on = self._desk.plan.eviction is not Eviction.NONE
        return is_on and not entry.pins and entry.added_at != self._desk.now

    # --- In and out -----------------------------------------------------------------------------------------------

    def add_upload(self, record: StoredUpload) -> Upload:
        """It is stored, and its record saved."""
        entry = self._entry(record, self._desk.now, self._desk.now + self._desk.limits.upload_ttl_s)
        self._put(entry)
        return entry

    def add_artifact(self, record: StoredArtifact) -> Kept:
        """It is stored, and its record saved."""
        entry = self._entry(record, self._desk.now, record.expires_at_unix - self._desk.unix_at_zero)
        self._put(entry)
        return entry

    def restore(self, uploads: Iterable[StoredUpload], artifacts: Iterable[StoredArtifact]) -> None:
        """What earlier runs left. What expired meanwhile is not served; that goes with the first deadlines, and so does
        what is beyond the bounds."""
        records: list[StoredUpload | StoredArtifact] = [*uploads, *artifacts]
        for record in sorted(records, key=lambda record: (record.stored_at_unix, record.id)):
            expires_at, added_at = record.expires_at_unix - self._desk.unix_at_zero, float("-inf")
            if isinstance(record, StoredUpload):
                self._shelve(self._entry(record, added_at, expires_at))
            else:
                self._shelve(self._entry(record, added_at, expires_at))
        if any(min(self._accounts.free(sid)) < 0 for sid in self._accounts.sids):
            self._desk.timers.set(("room", ""), 0.0, "stored files beyond their bounds")

    def _entry(self, record: R, added_at: float, expires_at: float) -> Entry[R]:
        self._uses += 1
        at_unix = record.stored_at_unix if added_at == float("-inf") else self._desk.now_unix
        return Entry(record, added_at=added_at, expires_at=expires_at, used=self._uses, used_at_unix=at_unix)

    def _put(self, entry: Shelved) -> None:
        self._shelve(entry)
        self._make_room(entry.record.sid)
        if isinstance(entry.record, StoredArtifact):
            self._tell(Change(entry.record, is_there=True))

    def _shelve(self, entry: Shelved) -> None:
        record = entry.record
        self._accounts.add(entry)
        if record.is_bearer or entry.is_restored:
            self._loose[record.kind, record.sid, record.id] = entry
        self._set_deadline(entry)

    def _set_deadline(self, entry: Shelved) -> None:
        record = entry.record
        why = "upload unused" if record.kind == "upload" else "artifact expired"
        self._desk.timers.set((record.kind, (record.sid, record.id)), entry.expires_at, why)

    def handle_timeout(self, kind: FileKind, sid: str, id: str) -> None:
        """Its time is over. In use, it goes when that is over too."""
        entry = self._accounts.find(kind, sid, id)
        if entry is not None and entry.is_over(self._desk.now):
            self._drop(entry, Ending.EXPIRED)

    def delete(self, kind: FileKind, sid: str, id: str) -> None:
        """An operator's order. There is such a file, and no call uses it."""
        entry = self._accounts.find(kind, sid, id)
        assert entry is not None
        assert not entry.pins
        self._drop(entry, Ending.DELETED)

    def _drop(self, entry: Shelved, why: Ending) -> None:
        record = entry.record
        self._accounts.remove(entry)
        self._loose.pop((record.kind, record.sid, record.id), None)
        self._desk.timers.cancel((record.kind, (record.sid, record.id)))
        self._tombs.bury(record.kind, record.id, _owner(entry), why, self._desk.now)
        self._ends[record.server, record.kind, why.value] += 1
        self._desk.order(Forget(key=record.key))
        self._desk.order(Discard(blob=record.blob))
        if isinstance(record, StoredArtifact):
            self._tell(Change(record, is_there=False))

    def _tell(self, change: Change) -> None:
        if self.watch is not None:
            self.watch(change)

    # --- Use ------------------------------------------------------------------------------------------------------

    @overload
    def find(
        self, server: str, sid: str, principal: str, *, of_sid: str, id: str, kind: Literal["upload"]
    ) -> Upload | None: ...
    @overload
    def find(
        self, server: str, sid: str, principal: str, *, of_sid: str, id: str, kind: Literal["artifact"]
    ) -> Kept | None: ...
    @overload
    def find(
        self, server: str, sid: str, principal: str, *, of_sid: str, id: str, kind: FileKind
    ) -> Shelved | None: ...
    def find(self, server: str, sid: str, principal: str, *, of_sid: str, id: str, kind: FileKind) -> Shelved | None:
        """The file `id` that was stored in session `of_sid`, if the client of session `sid` may use it.

        It may if the file is of the same server and principal, and of the same session, or of none that could still
        tell its clients apart: of a client without sessions, or of an earlier run. Finding it is using it: an upload's
        time starts anew.
        """
        entry = self._alive(kind, of_sid, id)
        if entry is None or not self._may_use(_owner(entry), server, sid, principal):
            return None
        self._use(entry)
        return entry

    def find_any(self, sid: str, id: str) -> Shelved | None:
        """A file for whoever has a signed link to it. Finding it is using it."""
        entry = self._alive("artifact", sid, id) or self._alive("upload", sid, id)
        if entry is not None:
            self._use(entry)
        return entry

    def gone(self, server: str, sid: str, principal: str, *, of_sid: str, id: str, kind: FileKind) -> str | None:
        """What became of a file that `find` would have found, such as "it expired 3 minutes ago". None if there never
        was one, or it is not for this client to know."""
        found = self._tombs.find(kind, of_sid, id, self._desk.now)
        if found is None or not self._may_use(found[0], server, sid, principal):
            return None
        return found[1]

    def find_upload(self, server: str, sid: str, uid: str) -> Upload | None:
        """An upload of the session `sid`. Finding it is using it."""
        entry = self._alive("upload", sid, uid)
        if entry is None or entry.record.server != server:
            return None
        self._use(entry)
        return entry

    def find_artifact(self, sid: str, aid: str) -> StoredArtifact | None:
        entry = self._alive("artifact", sid, aid)
        if entry is None:
            return None
        self._use(entry)
        return entry.record

    def has(self, kind: FileKind, sid: str, id: str) -> bool:
        """Whether there is such a file, of whomever. Asking is not using it."""
        entry = self._accounts.find(kind, sid, id)
        return entry is not None and not entry.is_over(self._desk.now)

    def artifacts_of(self, sid: str) -> list[StoredArtifact]:
        """Oldest first."""
        kept = self._accounts.artifacts_of(sid)
        return [entry.record for entry in kept if not entry.is_over(self._desk.now)]

    def pin(self, entry: Shelved) -> None:
        """A call uses it from now on."""
        entry.pins += 1

    def unpin(self, entry: Shelved) -> None:
        """That call is over. What should have gone meanwhile goes now."""
        assert entry.pins > 0
        entry.pins -= 1
        record = entry.record
        if self._accounts.find(record.kind, record.sid, record.id) is not entry:
            return  # it ended with its session
        if entry.is_over(self._desk.now):
            self._drop(entry, Ending.EXPIRED)
        elif not entry.pins:
            self._make_room(record.sid)

    @overload
    def _alive(self, kind: Literal["upload"], sid: str, id: str) -> Upload | None: ...
    @overload
    def _alive(self, kind: Literal["artifact"], sid: str, id: str) -> Kept | None: ...
    @overload
    def _alive(self, kind: FileKind, sid: str, id: str) -> Shelved | None: ...
    def _alive(self, kind: FileKind, sid: str, id: str) -> Shelved | None:
        entry = self._accounts.find(kind, sid, id)
        if entry is not None and entry.is_over(self._desk.now):
            self._drop(entry, Ending.EXPIRED)
            return None
        return entry

    def _may_use(self, owner: Owner, server: str, sid: str, principal: str) -> bool:
        if owner.server != server or owner.principal != principal:
            return False
        return owner.sid == sid or owner.is_bearer or (owner.is_restored and not self._is_live(owner.sid))

    def _use(self, entry: Shelved) -> None:
        self._uses += 1
        entry.used, entry.used_at_unix = self._uses, self._desk.now_unix
        if isinstance(entry.record, StoredArtifact):
            return
        ttl_s = self._desk.limits.upload_ttl_s
        entry.expires_at = max(entry.expires_at, self._desk.now + ttl_s)  # a clock put back since makes none shorter
        self._set_deadline(entry)
        expires_at_unix = self._desk.now_unix + ttl_s
        if expires_at_unix - entry.record.expires_at_unix > ttl_s * SAVED_ANEW_AFTER:
            record = msgspec.structs.replace(entry.record, expires_at_unix=expires_at_unix)
            entry.record = record
            value = msgspec.json.encode(record)
            # Nobody waits for it: were it to fail, a restart would take the upload for unused.
            order = Save(self._desk.new_ticket(), key=record.key, value=value, expires_at_unix=expires_at_unix)
            self._desk.order(order)

    # --- Sessions -------------------------------------------------------------------------------------------------

    def close_session(self, sid: str) -> None:
        """Its uploads go, unless its client has no sessions; its artifacts live until their deadline."""
        for entry in [] if self._is_stopping else self._accounts.uploads_of(sid):
            if not entry.record.is_bearer:
                self._drop(entry, Ending.CLOSED)

    def stop(self) -> None:
        """Sessions that end from now on end with this process: their clients will name their uploads to the next."""
        self._is_stopping = True

    # --- For operators --------------------------------------------------------------------------------------------

    def report(self) -> tuple[FileStatus, ...]:
        """All files, those that were used last last."""
        entries = sorted(self._accounts.all_entries(), key=lambda entry: entry.used)
        return tuple(map(self._status, entries))

    def ends(self) -> tuple[FileEnds, ...]:
        """How many went, and why."""
        return tuple(
            FileEnds(server=server, kind=kind, why=why, count=count)
            for (server, kind, why), count in sorted(self._ends.items())
        )

    def _status(self, entry: Shelved) -> FileStatus:
        record = entry.record
        if isinstance(record, StoredArtifact):
            uri, tool = handles.format_artifact(record.sid, record.aid, record.filename), record.tool
        else:
            server = self._desk.servers.get(record.server)
            scheme = UPLOAD_SCHEME if server is None else server.upload_scheme
            uri, tool = handles.format_upload(record.sid, record.uid, scheme), ""
        return FileStatus(
            id=record.id,
            kind=record.kind,
            server=record.server,
            session=record.sid,
            uri=uri,
            filename=record.filename,
            mime_type=record.mime_type,
            size_bytes=record.size_bytes,
            sha256=record.sha256,
            tool=tool,
            principal=record.principal,
            stored_at_unix=record.stored_at_unix,
            used_at_unix=entry.used_at_unix,
            expires_at_unix=self._desk.unix_at_zero + entry.expires_at,
            pins=entry.pins,
            is_bearer=record.is_bearer,
            is_live=self._is_live(record.sid),
            blob=record.blob,
        )


def _owner(entry: Shelved) -> Owner:
    record = entry.record
    return Owner(record.server, record.principal, record.sid, record.is_bearer, entry.is_restored)
