"""Tests of the file store against a plain model, in which files are stored, used, pinned, closed, deleted, expired and
restored: the same files are there, may be used, and go."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Eviction, FileScope, Kind, Plan, ServerPlan
from isthmus.core.base.storage import Discard, Forget, Save
from isthmus.core.files.store.entry import StoredEntry
from isthmus.core.files.store.owners import Account, FileUser
from isthmus.core.files.store.store import FileStore, Reservation
from isthmus.core.state.context import Context
from isthmus.core.state.records import FileKind, StoredArtifact, StoredUpload

SESSION_BYTES, ALL_BYTES, TTL_S, TOMBSTONE_S, FILES_EACH, FILES_ALL = 50, 80, 60, 30, 3, 8
LIMITS = Limits(
    session_storage_max_bytes=SESSION_BYTES,
    storage_max_bytes=ALL_BYTES,
    upload_ttl_s=TTL_S,
    uploads_per_session_max=FILES_EACH,
    artifacts_per_session_max=FILES_EACH,
    stored_files_max=FILES_ALL,
    tombstones_max=1000,
    tombstone_ttl_s=TOMBSTONE_S,
)
PRINCIPALS = ["", "eve"]
"""The principals of the sessions in turn. One is anonymous."""


@dataclass
class File:
    """A file in the model."""

    id: str
    kind: FileKind
    sid: str
    principal: str
    size: int
    is_bearer: bool
    ends_at: float
    last_use: int
    stored_at: float = -1
    is_restored: bool = False
    pins: int = 0
    gone: str = ""
    gone_at: float = 0


def principal_of(sid: str) -> str:
    """The principal of a session."""
    return PRINCIPALS[int(sid[1:]) % len(PRINCIPALS)]


class WatchedStore(FileStore):
    """A store that reports each change of an artifact."""

    reported: list[tuple[str, bool]]

    def _announce(self, record: StoredArtifact, *, is_there: bool) -> None:
        self.reported.append((record.aid, is_there))


class AgainstAModel(RuleBasedStateMachine):
    """A state machine that compares the store with the model. Time advances in whole seconds, which keeps the
    arithmetic exact. Wall and monotonic time are the same here."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[File] = []  # oldest first, those that are gone included
        self.live: list[str] = []
        self.sessions: list[str] = []  # those that are over included
        self.now = 0.0
        self.count = 0
        self.over: list[str] = []  # the files that should have gone since the last check
        self.reserved: list[tuple[Reservation, str, int]] = []  # with the session and the bytes
        self.records: dict[str, StoredUpload | StoredArtifact] = {}
        self.entries: dict[str, StoredEntry] = {}
        self.reported: list[tuple[str, bool]] = []
        self.expected: list[tuple[str, bool]] = []

    @initialize(eviction=st.sampled_from(Eviction), scope=st.sampled_from(FileScope))
    def begin(self, eviction: Eviction, scope: FileScope) -> None:
        self.eviction, self.scope = eviction, scope
        self.start()
        self.run_to_now()
        self.open_session()

    def start(self) -> None:
        plan = Plan(servers=(ServerPlan(id="files", kind=Kind.PIPE),), eviction=self.eviction, file_scope=self.scope)
        self.context = Context(plan, entropy=bytes, unix_at_zero=0.0, limits=LIMITS)
        self.file_store = WatchedStore(self.context, lambda sid: sid in self.live)
        self.file_store.reported = self.reported

    # --- The model ----------------------------------------------------------------------------------------------------

    def account(self, sid: str) -> Account:
        return self.file_store.account(principal_of(sid), sid)

    def next(self) -> int:
        self.count += 1
        return self.count

    def there(self) -> list[File]:
        return [file for file in self.files if not file.gone]

    def end(self, file: File, why: str) -> None:
        file.gone, file.gone_at = why, self.now
        self.over.append(file.id)
        if file.kind == "artifact":
            self.expected.append((file.id, False))

    def expire(self) -> None:
        for file in sorted(self.there(), key=lambda file: file.ends_at):
            if file.ends_at <= self.now and not file.pins:
                self.end(file, "it expired")

    def may_go(self, file: File) -> bool:
        return self.eviction is not Eviction.NONE and not file.pins and file.stored_at != self.now

    def shares(self, sid: str) -> frozenset[str]:
        """The sessions whose files count together with those of that one."""
        if self.scope is FileScope.SESSION or not (whose := principal_of(sid)):
            return frozenset({sid})
        return frozenset(each for each in self.sessions if principal_of(each) == whose)

    def is_loose(self, file: File) -> bool:
        """True if the file may be used, and evicted for other sessions, once its session is over."""
        return file.is_bearer or file.is_restored or self.scope is FileScope.PRINCIPAL

    def pools(self, sid: str | None) -> tuple[list[File], list[File]]:
        """The files that may go for the session's own bound, and those for the bound over all. None stands for a
        restart: then all files that are loose may go for that."""
        own = [file for file in self.there() if sid and file.sid in self.shares(sid) and self.may_go(file)]
        loose = [
            file
            for file in self.there()
            if file not in own
            and (sid is None or file.principal == principal_of(sid))
            and file.sid not in self.live
            and self.is_loose(file)
            and self.may_go(file)
        ]
        return own, [*own, *loose]

    def over_by(self, sid: str | None) -> tuple[int, int]:
        held = [(of, size) for _, of, size in self.reserved]
        sizes = [(file.sid, file.size) for file in self.there()] + held
        total = sum(size for _, size in sizes)
        together = self.shares(sid) if sid else frozenset()
        return sum(size for of, size in sizes if of in together) - SESSION_BYTES, total - ALL_BYTES

    def make_room_after_restart(self) -> None:
        self.expire()
        for sids in {self.shares(file.sid) for file in self.there()}:
            self.make_room(min(sids), (0,))
        self.make_room(None, (1,))

    def make_slots(self, sid: str, kind: FileKind) -> None:
        """Files of ended sessions go, the least recently used first, for one more of the kind or one more of all."""
        together = [file for file in self.there() if file.sid in self.shares(sid) and file.kind == kind]
        closed = [file for file in self.pools(sid)[0] if file in together and file.sid not in self.live]
        for file in sorted(closed, key=lambda file: file.last_use)[: max(0, len(together) - FILES_EACH)]:
            self.end(file, "it made room for newer files")
        closed = [file for file in self.pools(sid)[1] if file.sid not in self.live]
        for file in sorted(closed, key=lambda file: file.last_use)[: max(0, len(self.there()) - FILES_ALL)]:
            self.end(file, "it made room for newer files")

    def make_room(self, sid: str | None, bounds: tuple[int, ...] = (0, 1)) -> None:
        first = "artifact" if self.eviction is Eviction.ARTIFACTS_FIRST else "upload"
        for index in bounds:
            over = self.over_by(sid)[index]
            pool_size = sum(file.size for file in self.pools(sid)[index])
            unsure = [
                size
                for reservation, of, size in self.reserved
                if not reservation.is_sure and (index or (sid and of in self.shares(sid)))
            ]
            while over > pool_size and unsure:
                over -= unsure.pop()  # the newest reservation may find other files to evict later
            pool = sorted(
                self.pools(sid)[index],
                key=lambda file: (file.sid in self.live, file.kind != first, file.last_use),
            )
            victims: list[File] = []
            for file in pool:
                if sum(victim.size for victim in victims) < over:
                    victims.append(file)
            if sum(victim.size for victim in victims) < over:
                continue
            for file in victims[::-1]:
                if sum(victim.size for victim in victims) - file.size >= over:
                    victims.remove(file)
            for file in victims:
                self.end(file, "it made room for newer files")

    def may_use(self, file: File, sid: str, principal: str) -> bool:
        is_loose = file.is_bearer or (file.is_restored and file.sid not in self.live)
        return file.principal == principal and (self.scope is FileScope.PRINCIPAL or file.sid == sid or is_loose)

    # --- Rules --------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.live) < 3)
    @rule()
    def open_session(self) -> None:
        self.live.append(f"s{len(self.sessions):03}")
        self.sessions.append(self.live[-1])
        self.next()

    @rule(data=st.data(), kind=st.sampled_from(["upload", "artifact"]), is_bearer=st.booleans())
    def store(self, data: st.DataObject, kind: FileKind, is_bearer: bool) -> None:
        """Stores a file that often fills the room, so that others are evicted."""
        sid = data.draw(st.sampled_from(self.live))
        if not self.file_store.slots(self.account(sid), kind):
            return
        self.tick(1)
        size = min(
            self.file_store.room(self.account(sid)), data.draw(st.sampled_from([0, 5, 10, 15, 30, SESSION_BYTES]))
        )
        reservation = self.take(sid, size, kind, is_sure=data.draw(st.booleans()))
        self.put(reservation, size, kind, is_bearer)

    @precondition(lambda self: len(self.reserved) < 2)
    @rule(data=st.data(), size=st.integers(1, 40), is_sure=st.booleans())
    def reserve(self, data: st.DataObject, size: int, is_sure: bool) -> None:
        sid = data.draw(st.sampled_from(self.live))
        size = min(size, self.file_store.room(self.account(sid)))
        if self.file_store.slots(self.account(sid), "upload"):
            self.take(sid, size, "upload", is_sure=is_sure)

    @precondition(lambda self: self.reserved)
    @rule(data=st.data(), is_bearer=st.booleans())
    def use_reservation(self, data: st.DataObject, is_bearer: bool) -> None:
        reservation, _, size = data.draw(st.sampled_from(self.reserved))
        self.tick(1)
        self.put(reservation, data.draw(st.integers(0, size)), "upload", is_bearer)

    @precondition(lambda self: self.reserved)
    @rule()
    def release_reservation(self) -> None:
        reservation, _, _ = self.reserved.pop()
        self.file_store.release(reservation)

    def take(self, sid: str, size: int, kind: FileKind, *, is_sure: bool) -> Reservation:
        reservation = self.file_store.hold(
            self.account(sid), size, uploads=kind == "upload", artifacts=kind == "artifact", is_sure=is_sure
        )
        self.reserved.append((reservation, sid, size))
        if is_sure:
            self.make_room(sid)
            over = self.over_by(sid)
            assert all(left <= 0 for left in over) or self.eviction is not Eviction.NONE
        return reservation

    def put(self, reservation: Reservation, size: int, kind: FileKind, is_bearer: bool) -> None:
        (sid,) = (of for each, of, _ in self.reserved if each is reservation)
        principal = principal_of(sid)
        self.reserved = [each for each in self.reserved if each[0] is not reservation]
        self.file_store.release(reservation)
        id = f"f{self.next():03}"
        file = File(id, kind, sid, principal, size, is_bearer, self.now + TTL_S, self.next(), self.now)
        self.files.append(file)
        common = {"server": "files", "sid": sid, "principal": principal, "blob": id, "filename": "a.txt"}
        more = {"mime_type": "text/plain", "size_bytes": size, "sha256": "", "is_bearer": is_bearer}
        times = {"expires_at_unix": file.ends_at, "stored_at_unix": self.now}
        if kind == "upload":
            upload = msgspec.convert({**common, **more, **times, "uid": id}, StoredUpload)
            self.records[id], self.entries[id] = upload, self.file_store.add_upload(upload)
        else:
            members = {**common, **more, **times, "aid": id, "tool": "t", "is_exposed": True}
            kept = msgspec.convert(members, StoredArtifact)
            self.records[id], self.entries[id] = kept, self.file_store.add_artifact(kept)
        self.make_room(sid)
        self.make_slots(sid, kind)
        if kind == "artifact":
            self.expected.append((id, True))

    @precondition(lambda self: self.files)
    @rule(data=st.data(), principal=st.sampled_from(PRINCIPALS))
    def use(self, data: st.DataObject, principal: str) -> None:
        file, sid = data.draw(st.sampled_from(self.files[-20:])), data.draw(st.sampled_from(self.live))
        found = self.file_store.find(
            FileUser(frozenset({"files"}), sid, principal), of_sid=file.sid, id=file.id, kind=file.kind
        )
        gone = self.file_store.gone(
            FileUser(frozenset({"files"}), sid, principal), of_sid=file.sid, id=file.id, kind=file.kind
        )
        is_theirs = self.may_use(file, sid, principal)
        assert (found is not None) == (is_theirs and not file.gone)
        is_known = is_theirs and file.gone and file.gone_at + TOMBSTONE_S > self.now
        assert gone is None if not is_known else gone is not None and gone.startswith(file.gone)
        if found is not None:
            assert found.record.id == file.id
            self.used(file)

    def used(self, file: File) -> None:
        file.last_use = self.next()
        if file.kind == "upload":
            file.ends_at = self.now + TTL_S

    @precondition(lambda self: self.there())
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        file = data.draw(st.sampled_from(self.there()))
        entry = self.file_store.find_any(file.sid, file.id)
        assert entry is not None
        self.used(file)
        self.file_store.pin(entry)
        self.entries[file.id] = entry
        file.pins += 1

    @precondition(lambda self: any(file.pins for file in self.files))
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        file = data.draw(st.sampled_from([file for file in self.files if file.pins]))
        self.file_store.unpin(self.entries[file.id])
        file.pins -= 1
        if file.gone or file.pins:
            return
        if file.ends_at <= self.now:
            self.end(file, "it expired")
        else:
            self.make_room(file.sid)
            self.make_slots(file.sid, file.kind)

    @precondition(lambda self: self.there())
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        file = data.draw(st.sampled_from(self.there()))
        if not file.pins:
            self.file_store.delete(file.kind, file.sid, file.id)
            self.end(file, "an operator deleted it")

    @precondition(lambda self: len(self.live) > 1)
    @rule(data=st.data())
    def close_session(self, data: st.DataObject) -> None:
        sid = data.draw(st.sampled_from(self.live))
        self.live.remove(sid)
        self.file_store.close_session(principal_of(sid), sid)
        for file in self.there() if self.scope is FileScope.SESSION else ():
            if file.sid == sid and file.kind == "upload" and not file.is_bearer:
                self.end(file, "it ended with its session")

    @rule(seconds=st.integers(1, 20))
    def wait(self, seconds: int) -> None:
        self.tick(seconds)

    def tick(self, seconds: int) -> None:
        self.now += seconds
        self.run_to_now()

    def run_to_now(self) -> None:
        self.context.now = self.now
        self.expire()
        while (due := self.context.timers.take_due(self.now)) is not None:
            purpose, whose = due
            if purpose == "room":
                self.file_store.make_room()
                self.make_room_after_restart()
                continue
            assert isinstance(whose, tuple)
            self.file_store.handle_timeout("upload" if purpose == "upload" else "artifact", *whose)

    @precondition(lambda self: self.count % 5 == 0)
    @rule(is_graceful=st.booleans(), seconds=st.integers(0, 9))
    def restart(self, is_graceful: bool, seconds: int) -> None:
        """Restores what was saved, with what is known of its lifetime. Pins, reservations and tombstones are lost."""
        self.note_effects()
        if is_graceful:
            self.file_store.stop()
            for sid in self.live:
                self.file_store.close_session(principal_of(sid), sid)
            self.note_effects()
        self.live, self.reserved, self.entries = [], [], {}
        self.start()
        records = [self.records[file.id] for file in self.there()]
        uploads = [record for record in records if isinstance(record, StoredUpload)]
        self.file_store.restore(uploads, [record for record in records if isinstance(record, StoredArtifact)])
        self.files = self.there()
        for file in self.files:
            saved = self.records[file.id].expires_at_unix
            assert file.ends_at - TTL_S / 4 <= saved <= file.ends_at
            file.ends_at, file.stored_at, file.is_restored, file.pins = saved, -1, True, 0
        # Restored files count as used when they were stored; of one moment, the lower id comes first.
        for file in sorted(self.files, key=lambda file: (self.records[file.id].stored_at_unix, file.id)):
            file.last_use = self.next()
        self.now += seconds
        self.run_to_now()
        self.open_session()

    # --- Invariants ---------------------------------------------------------------------------------------------------

    def note_effects(self) -> None:
        """Checks that each record is removed before its blob, and that only files that the model dropped are
        removed."""
        effects, self.context.out = self.context.out, []
        gone: list[str] = []
        for effect in effects:
            if isinstance(effect, Save):
                record = msgspec.json.decode(effect.value, type=StoredUpload)
                assert effect.expires_at_unix == record.expires_at_unix
                self.records[record.uid] = record
            elif isinstance(effect, Forget):
                gone.append(effect.key.rpartition("/")[2])
            else:
                assert isinstance(effect, Discard)
                assert gone[-1] == effect.blob
        assert sorted(gone) == sorted(self.over)
        self.over = []

    @invariant()
    def removed_files_were_ordered_away_and_reported(self) -> None:
        if self.count:
            self.note_effects()
            assert sorted(self.reported) == sorted(self.expected)
            self.reported.clear()
            self.expected.clear()

    @invariant()
    def the_same_files_are_there(self) -> None:
        if not self.count:
            return
        reported = {file.id: (file.size_bytes, file.pins, file.is_live) for file in self.file_store.report()}
        assert reported == {file.id: (file.size, file.pins, file.sid in self.live) for file in self.there()}
        by_use = [file.id for file in self.file_store.report()]
        assert by_use == [file.id for file in sorted(self.there(), key=lambda file: file.last_use)]

    @invariant()
    def room_is_free_space_and_evictable_files(self) -> None:
        files = len(self.there()) + len(self.reserved)
        for sid in self.live:
            own, everybody = (sum(file.size for file in pool) for pool in self.pools(sid))
            over, over_all = self.over_by(sid)
            account = self.account(sid)
            assert self.file_store.room(account) == max(0, min(own - over, everybody - over_all))
            uploads = sum(file.sid in self.shares(sid) and file.kind == "upload" for file in self.there())
            uploads += sum(of in self.shares(sid) for _, of, _ in self.reserved)
            own_closed, all_closed = ([file for file in pool if file.sid not in self.live] for pool in self.pools(sid))
            uploads -= sum(file.kind == "upload" for file in own_closed)
            left = min(FILES_EACH - uploads, FILES_ALL - files + len(all_closed))
            assert self.file_store.slots(account, "upload") == max(0, left)
            listed = [record.aid for record in self.file_store.artifacts_of(account, sid)]
            own_ones = [file for file in self.there() if file.sid == sid and file.kind == "artifact"]
            assert listed == [file.id for file in own_ones]

    @invariant()
    def each_unused_file_has_a_deadline(self) -> None:
        if not self.count:
            return
        due = {file.id for file in self.there() if file.ends_at > self.now}
        assert len(self.context.timers) == len(due)
        assert all(file.pins for file in self.there() if file.id not in due)


TestAgainstAModel = AgainstAModel.TestCase
TestAgainstAModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
