"""What is stored: the accounts equal the sum of the entries, whatever is added, used, expired and closed."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from isthmus.core.desk import Desk
from isthmus.core.effects import Discard, Effect, Forget
from isthmus.core.limits import Limits
from isthmus.core.plan import Kind, Plan, ServerPlan
from isthmus.core.shelf import Shelf, StoredArtifact, StoredUpload

UNIX_AT_ZERO = 1000.0
LIMITS = Limits(
    session_storage_max_bytes=500,
    storage_max_bytes=800,
    upload_ttl_s=10.0,
    uploads_per_session_max=100,
    artifacts_per_session_max=100,
    stored_files_max=150,
)
PLAN = Plan(servers=(ServerPlan(id="files", kind=Kind.PIPE),))
SIDS = ["one", "two", "three"]


def made() -> tuple[Desk, Shelf]:
    desk = Desk(PLAN, entropy=bytes, unix_at_zero=UNIX_AT_ZERO, limits=LIMITS)
    desk.now = 0.0
    return desk, Shelf(desk)


def upload(sid: str, uid: str, size_bytes: int) -> StoredUpload:
    return StoredUpload(
        server="files",
        sid=sid,
        uid=uid,
        principal="",
        blob=f"blob-{uid}",
        filename="a.txt",
        mime_type="text/plain",
        size_bytes=size_bytes,
        sha256="",
    )


def artifact(sid: str, aid: str, size_bytes: int, expires_at_unix: float) -> StoredArtifact:
    return StoredArtifact(
        server="files",
        sid=sid,
        aid=aid,
        principal="",
        blob=f"blob-{aid}",
        filename="b.txt",
        mime_type="text/plain",
        size_bytes=size_bytes,
        sha256="",
        tool="write",
        is_exposed=True,
        expires_at_unix=expires_at_unix,
    )


def taken(desk: Desk) -> list[Effect]:
    out, desk.out = desk.out, []
    return out


def expire(desk: Desk, shelf: Shelf, now: float) -> None:
    """Let the clock run on, as the engine does."""
    desk.now = now
    while (due := desk.timers.take_due(now)) is not None:
        purpose, whose = due
        assert isinstance(whose, tuple)
        (shelf.handle_upload_timeout if purpose == "upload" else shelf.handle_artifact_timeout)(*whose)


def removed(record: StoredUpload | StoredArtifact) -> list[Effect]:
    """An entry goes with its record and its blob, the record first: a blob without one is swept, never served."""
    return [Forget(key=record.key), Discard(blob=record.blob)]


# --- Uploads --------------------------------------------------------------------------------------------------------


def test_an_upload_lives_as_long_as_it_is_used() -> None:
    """Each use starts its time anew; at the end of it the record and the bytes go."""
    desk, shelf = made()
    record = upload("one", "u", 100)
    shelf.add_upload(record)
    for now in (9.0, 18.0, 27.0):
        expire(desk, shelf, now)
        found = shelf.find_upload("files", "one", "u")
        assert found is not None
        assert found.record is record
    expire(desk, shelf, 36.9)
    assert taken(desk) == []
    expire(desk, shelf, 37.0)
    assert taken(desk) == removed(record)
    assert shelf.find_upload("files", "one", "u") is None
    assert desk.timers.next_timeout() is None


def test_an_upload_in_use_does_not_expire() -> None:
    """A pin holds it for a whole further time each time it would have gone."""
    desk, shelf = made()
    shelf.add_upload(upload("one", "u", 100))
    found = shelf.find_upload("files", "one", "u")
    assert found is not None
    found.pins += 1
    for now in (10.0, 20.0, 30.0):
        expire(desk, shelf, now)
    assert taken(desk) == []
    found.pins -= 1
    expire(desk, shelf, 39.9)
    assert taken(desk) == []
    expire(desk, shelf, 40.0)
    assert taken(desk) == removed(found.record)


@pytest.mark.parametrize(
    ("server", "sid", "uid"), [("other", "one", "u"), ("files", "two", "u"), ("files", "one", "v")]
)
def test_an_upload_is_found_by_all_of_its_name(server: str, sid: str, uid: str) -> None:
    """And looking for it elsewhere is no use of it."""
    desk, shelf = made()
    shelf.add_upload(upload("one", "u", 100))
    desk.now = 9.0
    assert shelf.find_upload(server, sid, uid) is None
    expire(desk, shelf, 10.0)
    assert len(taken(desk)) == 2


# --- Artifacts ------------------------------------------------------------------------------------------------------


def test_an_artifact_lives_until_its_deadline_used_or_not() -> None:
    """Wall time in the record, monotonic time in the timer, the same moment."""
    desk, shelf = made()
    desk.now = 5.0
    record = artifact("one", "a", 100, UNIX_AT_ZERO + 12.0)
    shelf.add_artifact(record)
    expire(desk, shelf, 11.9)
    assert shelf.find_artifact("one", "a") is record
    assert taken(desk) == []
    expire(desk, shelf, 12.0)
    assert shelf.find_artifact("one", "a") is None
    assert taken(desk) == removed(record)


def test_an_artifact_that_is_overdue_goes_at_once() -> None:
    desk, shelf = made()
    desk.now = 5.0
    shelf.add_artifact(artifact("one", "a", 100, UNIX_AT_ZERO))
    expire(desk, shelf, 5.0)
    assert shelf.artifacts_of("one") == []


def test_uploads_end_with_their_session_and_artifacts_do_not() -> None:
    """A download link that was handed out keeps working."""
    desk, shelf = made()
    gone, other, kept = upload("one", "u", 10), upload("two", "v", 20), artifact("one", "a", 30, UNIX_AT_ZERO + 99)
    shelf.add_upload(gone)
    shelf.add_upload(other)
    shelf.add_artifact(kept)
    shelf.close_session("one")
    assert taken(desk) == removed(gone)
    assert shelf.find_artifact("one", "a") is kept
    assert shelf.room("one") == 470
    assert shelf.room("two") == 480
    shelf.close_session("one")
    assert taken(desk) == []


def test_room_is_what_both_bounds_leave() -> None:
    """A session's own bound, and the one for all; never less than nothing."""
    desk, shelf = made()
    assert shelf.room("one") == 500
    shelf.add_upload(upload("one", "u", 400))
    assert (shelf.room("one"), shelf.room("two")) == (100, 400)
    shelf.add_artifact(artifact("two", "a", 450, UNIX_AT_ZERO + 1))
    assert (shelf.room("one"), shelf.room("two"), shelf.room("three")) == (0, 0, 0)
    expire(desk, shelf, 1.0)
    assert (shelf.room("one"), shelf.room("two")) == (100, 400)


def test_what_is_on_its_way_counts_as_if_it_were_there() -> None:
    """Two that each fit, and do not together, cannot both be let in."""
    _, shelf = made()
    hold = shelf.hold("one", 400, uploads=2)
    assert (shelf.room("one"), shelf.room("two")) == (100, 400)
    assert shelf.upload_slots("one") == LIMITS.uploads_per_session_max - 2
    assert shelf.artifact_slots("one") == LIMITS.artifacts_per_session_max
    shelf.release(hold)
    shelf.add_upload(upload("one", "u", 400))
    assert (shelf.room("one"), shelf.room("two")) == (100, 400)
    assert shelf.upload_slots("one") == LIMITS.uploads_per_session_max - 1
    shelf.close_session("one")
    assert (shelf.room("one"), shelf.upload_slots("one")) == (500, LIMITS.uploads_per_session_max)


def test_files_of_no_size_are_counted_too() -> None:
    """For a session, each kind by itself, and over all, also when the session is gone."""
    desk, shelf = made()
    for number in range(LIMITS.uploads_per_session_max):
        assert shelf.upload_slots("one") > 0
        shelf.add_upload(upload("one", f"u{number}", 0))
    assert shelf.upload_slots("one") == 0
    assert shelf.upload_slots("two") > 0
    assert shelf.artifact_slots("one") > 0
    added = 0
    while shelf.artifact_slots(sid := f"s{added}"):
        shelf.add_artifact(artifact(sid, "a", 0, UNIX_AT_ZERO + 5))
        shelf.close_session(sid)
        added += 1
    assert added == LIMITS.stored_files_max - LIMITS.uploads_per_session_max
    assert shelf.upload_slots("two") == 0
    expire(desk, shelf, 5.0)
    assert shelf.upload_slots("two") == LIMITS.stored_files_max - LIMITS.uploads_per_session_max


# --- All of it, against a model -------------------------------------------------------------------------------------


class AgainstAModel(RuleBasedStateMachine):
    """The model is two lists of what was added, with the moment each goes."""

    def __init__(self) -> None:
        super().__init__()
        self.desk, self.shelf = made()
        self.uploads: dict[str, tuple[StoredUpload, float]] = {}
        self.artifacts: dict[str, tuple[StoredArtifact, float]] = {}
        self.pinned: set[str] = set()
        self.gone: list[Effect] = []
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"{self.count:04}"

    @rule(sid=st.sampled_from(SIDS), size=st.integers(0, 300))
    def add_upload(self, sid: str, size: int) -> None:
        record = upload(sid, self.name(), size)
        self.shelf.add_upload(record)
        self.uploads[record.uid] = (record, self.desk.now + LIMITS.upload_ttl_s)

    @rule(sid=st.sampled_from(SIDS), size=st.integers(0, 300), ttl=st.integers(-3, 30))
    def add_artifact(self, sid: str, size: int, ttl: int) -> None:
        record = artifact(sid, self.name(), size, UNIX_AT_ZERO + self.desk.now + ttl)
        self.shelf.add_artifact(record)
        self.artifacts[record.aid] = (record, self.desk.now + max(0, ttl))

    @precondition(lambda self: self.uploads)
    @rule(data=st.data(), pin=st.sampled_from([-1, 0, 1]))
    def use_upload(self, data: st.DataObject, pin: int) -> None:
        record, _ = self.uploads[uid := data.draw(st.sampled_from(sorted(self.uploads)))]
        found = self.shelf.find_upload("files", record.sid, uid)
        assert found is not None
        assert found.record is record
        self.uploads[uid] = (record, self.desk.now + LIMITS.upload_ttl_s)
        if pin > 0:
            found.pins = 1
            self.pinned.add(uid)
        elif pin < 0:
            found.pins = 0
            self.pinned.discard(uid)

    @rule(sid=st.sampled_from(SIDS))
    def close_session(self, sid: str) -> None:
        self.shelf.close_session(sid)
        for uid, (record, _) in list(self.uploads.items()):
            if record.sid == sid:
                del self.uploads[uid]
                self.pinned.discard(uid)
                self.gone += removed(record)

    @rule()
    def tick(self) -> None:
        """One second: whole seconds keep the model's arithmetic exact."""
        now = self.desk.now + 1
        for uid, (record, at) in list(self.uploads.items()):
            if at <= now and uid in self.pinned:
                self.uploads[uid] = (record, now + LIMITS.upload_ttl_s)
            elif at <= now:
                del self.uploads[uid]
                self.gone += removed(record)
        for aid, (made, at) in list(self.artifacts.items()):
            if at <= now:
                del self.artifacts[aid]
                self.gone += removed(made)
        expire(self.desk, self.shelf, now)

    @invariant()
    def what_is_gone_was_ordered_away(self) -> None:
        ordered = taken(self.desk)
        assert sorted(map(repr, ordered)) == sorted(map(repr, self.gone))
        self.gone = []

    @invariant()
    def the_accounts_are_the_sum(self) -> None:
        entries = [record for record, _ in [*self.uploads.values(), *self.artifacts.values()]]
        total = sum(record.size_bytes for record in entries)
        for sid in SIDS:
            own = sum(record.size_bytes for record in entries if record.sid == sid)
            assert self.shelf.room(sid) == max(0, min(500 - own, 800 - total))

    @invariant()
    def artifacts_are_listed_oldest_first(self) -> None:
        for sid in SIDS:
            expected = [record for record, _ in self.artifacts.values() if record.sid == sid]
            assert self.shelf.artifacts_of(sid) == expected

    @invariant()
    def every_entry_has_one_deadline(self) -> None:
        assert len(self.desk.timers) == len(self.uploads) + len(self.artifacts)


TestAgainstAModel = AgainstAModel.TestCase
TestAgainstAModel.settings = settings(max_examples=50, stateful_step_count=40)
