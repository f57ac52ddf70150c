"""What is stored: who may use it, when it goes, what goes for what; all of it against a plain model."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from isthmus.core.base.effects import Discard, Effect, Forget, Save
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Eviction, Kind, Plan, ServerPlan
from isthmus.core.files.store.entry import Shelved
from isthmus.core.files.store.records import StoredArtifact, StoredUpload
from isthmus.core.files.store.store import Change, Shelf
from isthmus.core.state.context import Desk

UNIX_AT_ZERO = 1000.0
LIMITS = Limits(
    session_storage_max_bytes=500,
    storage_max_bytes=800,
    upload_ttl_s=10.0,
    uploads_per_session_max=100,
    artifacts_per_session_max=100,
    stored_files_max=150,
    tombs_max=50,
    tombstone_ttl_s=60.0,
)
LIVE = {"one", "two", "three"}


def made(eviction: Eviction = Eviction.UPLOADS_FIRST, live: set[str] | None = None) -> tuple[Desk, Shelf]:
    plan = Plan(servers=(ServerPlan(id="files", kind=Kind.PIPE),), eviction=eviction)
    desk = Desk(plan, entropy=bytes, unix_at_zero=UNIX_AT_ZERO, limits=LIMITS)
    desk.now = 0.0
    alive = LIVE if live is None else live
    return desk, Shelf(desk, lambda sid: sid in alive)


def upload(
    sid: str, uid: str, size_bytes: int, expires_at_unix: float = UNIX_AT_ZERO + 10, **more: Any
) -> StoredUpload:
    return StoredUpload(
        server=more.pop("server", "files"),
        sid=sid,
        uid=uid,
        principal=more.pop("principal", ""),
        blob=f"blob-{uid}",
        filename="a.txt",
        mime_type="text/plain",
        size_bytes=size_bytes,
        sha256="",
        expires_at_unix=expires_at_unix,
        **more,
    )


def artifact(sid: str, aid: str, size_bytes: int, expires_at_unix: float, **more: Any) -> StoredArtifact:
    return StoredArtifact(
        server=more.pop("server", "files"),
        sid=sid,
        aid=aid,
        principal=more.pop("principal", ""),
        blob=f"blob-{aid}",
        filename="b.txt",
        mime_type="text/plain",
        size_bytes=size_bytes,
        sha256="",
        tool="write",
        is_exposed=True,
        expires_at_unix=expires_at_unix,
        **more,
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
        shelf.handle_timeout("upload" if purpose == "upload" else "artifact", *whose)


def removed(*records: StoredUpload | StoredArtifact) -> list[Effect]:
    """An entry goes with its record and its blob, the record first: a blob without one is swept, never served."""
    return [effect for record in records for effect in (Forget(key=record.key), Discard(blob=record.blob))]


def found(shelf: Shelf, record: StoredUpload | StoredArtifact, sid: str = "one", **other: str) -> Shelved | None:
    server, principal = other.get("server", "files"), other.get("principal", "")
    return shelf.find(server, sid, principal, of_sid=record.sid, id=record.id, kind=record.kind)


def gone(shelf: Shelf, record: StoredUpload | StoredArtifact, sid: str = "one", **other: str) -> str | None:
    server, principal = other.get("server", "files"), other.get("principal", "")
    return shelf.gone(server, sid, principal, of_sid=record.sid, id=record.id, kind=record.kind)


# --- How long -------------------------------------------------------------------------------------------------------


def test_an_upload_lives_as_long_as_it_is_used() -> None:
    """Each use starts its time anew; at the end of it the record and the bytes go."""
    desk, shelf = made()
    record = upload("one", "u", 100)
    shelf.add_upload(record)
    for now in (9.0, 18.0, 27.0):
        expire(desk, shelf, now)
        assert shelf.find_upload("files", "one", "u") is not None
    taken(desk)
    expire(desk, shelf, 36.9)
    assert taken(desk) == []
    expire(desk, shelf, 37.0)
    assert taken(desk) == removed(record)
    assert shelf.find_upload("files", "one", "u") is None
    assert desk.timers.next_timeout() is None


def test_use_is_saved_when_it_makes_a_difference() -> None:
    """A restart must know how long an upload lives; that need not cost a write a use."""
    desk, shelf = made()
    shelf.add_upload(upload("one", "u", 100))
    for now in (0.5, 1.0, 2.0, 2.5):
        desk.now = now
        shelf.find_upload("files", "one", "u")
    assert taken(desk) == []
    desk.now = 2.6
    shelf.find_upload("files", "one", "u")
    (save,) = taken(desk)
    assert isinstance(save, Save)
    assert save.expires_at_unix == UNIX_AT_ZERO + 12.6
    assert msgspec.json.decode(save.value, type=StoredUpload) == upload("one", "u", 100, UNIX_AT_ZERO + 12.6)
    shelf.find_upload("files", "one", "u")
    assert taken(desk) == []


@pytest.mark.parametrize("kind", ["upload", "artifact"])
def test_what_is_used_goes_when_that_is_over(kind: str) -> None:
    """And not before, nor is it refused to others meanwhile."""
    desk, shelf = made()
    record = upload("one", "u", 100) if kind == "upload" else artifact("one", "u", 100, UNIX_AT_ZERO + 10)
    entry = shelf.add_upload(record) if isinstance(record, StoredUpload) else shelf.add_artifact(record)
    shelf.pin(entry)
    shelf.pin(entry)
    expire(desk, shelf, 30.0)
    shelf.unpin(entry)
    assert taken(desk) == []
    assert [file.pins for file in shelf.report()] == [1]
    shelf.unpin(entry)
    assert taken(desk) == removed(record)
    assert gone(shelf, record) == "it expired just now"


def test_what_ended_with_its_session_while_it_was_used_is_gone() -> None:
    desk, shelf = made()
    record = upload("one", "u", 100)
    entry = shelf.add_upload(record)
    shelf.pin(entry)
    shelf.close_session("one")
    assert taken(desk) == removed(record)
    shelf.unpin(entry)
    assert taken(desk) == []


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


def test_what_is_overdue_is_not_served() -> None:
    """Whatever the alarm clock says."""
    desk, shelf = made()
    desk.now = 5.0
    late = artifact("one", "a", 100, UNIX_AT_ZERO)
    shelf.add_artifact(late)
    assert shelf.artifacts_of("one") == []
    assert found(shelf, late) is None
    assert gone(shelf, late) == "it expired just now"
    shelf.add_upload(upload("one", "u", 1))
    desk.now = 15.0
    assert shelf.find_upload("files", "one", "u") is None
    assert shelf.find_any("one", "u") is None
    assert taken(desk) == removed(late, upload("one", "u", 1))


def test_uploads_end_with_their_session_and_artifacts_do_not() -> None:
    """A download link that was handed out keeps working. What a client without sessions stored outlives them all."""
    desk, shelf = made()
    ended, other, kept = upload("one", "u", 10), upload("two", "v", 20), artifact("one", "a", 30, UNIX_AT_ZERO + 99)
    loose = upload("one", "w", 40, is_bearer=True)
    for record in (ended, other, loose):
        shelf.add_upload(record)
    shelf.add_artifact(kept)
    shelf.close_session("one")
    assert taken(desk) == removed(ended)
    assert shelf.find_artifact("one", "a") is kept
    assert shelf.find_upload("files", "one", "w") is not None
    shelf.close_session("one")
    assert taken(desk) == []


def test_sessions_that_end_with_the_process_leave_their_uploads() -> None:
    """A client that finds its session gone after a restart still has the handles."""
    desk, shelf = made()
    record = upload("one", "u", 10)
    shelf.add_upload(record)
    shelf.stop()
    shelf.close_session("one")
    assert taken(desk) == []
    desk, shelf = made(live={"new"})
    shelf.restore([record], [])
    assert found(shelf, record, "new") is not None


def test_no_use_shortens_what_a_clock_that_was_put_back_has_lengthened() -> None:
    """What an earlier run said of when it goes holds, though that is far on by the clock of now."""
    desk, shelf = made(live={"new"})
    record = upload("one", "u", 100, UNIX_AT_ZERO + 3600)
    shelf.restore([record], [])
    desk.now = 5.0
    assert found(shelf, record, "new") is not None
    assert taken(desk) == []
    desk.now = 3599.0
    assert found(shelf, record, "new") is not None
    desk.now = 3599.0 + LIMITS.upload_ttl_s
    assert found(shelf, record, "new") is None


# --- Whose ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["upload", "artifact"])
@pytest.mark.parametrize("is_restored", [False, True])
@pytest.mark.parametrize("is_live", [False, True])
@pytest.mark.parametrize("is_bearer", [False, True])
@pytest.mark.parametrize("asker", ["own", "other session", "other principal", "other server"])
def test_who_may_use_a_file(kind: str, is_restored: bool, is_live: bool, is_bearer: bool, asker: str) -> None:
    """And who may know what became of it, which is the same."""
    live = {"one", "two"} if is_live else {"two"}
    desk, shelf = made(live=live)
    record = (
        upload("one", "u", 1, is_bearer=is_bearer)
        if kind == "upload"
        else artifact("one", "u", 1, UNIX_AT_ZERO + 10, is_bearer=is_bearer)
    )
    if is_restored:
        shelf.restore(*([record], []) if isinstance(record, StoredUpload) else ([], [record]))
    elif isinstance(record, StoredUpload):
        shelf.add_upload(record)
    else:
        shelf.add_artifact(record)
    sid = "one" if asker == "own" else "two"
    other = {"other principal": {"principal": "eve"}, "other server": {"server": "else"}}.get(asker, {})
    is_loose = is_bearer or (is_restored and not is_live)
    may = asker == "own" or (asker == "other session" and is_loose)
    entry = found(shelf, record, sid, **other)
    assert (entry is not None) == may
    if entry is not None:
        assert entry.record.id == "u"
    assert found(shelf, msgspec.structs.replace(record, sid="two"), sid, **other) is None
    assert gone(shelf, record, sid, **other) is None
    shelf.delete(record.kind, "one", "u")
    assert (gone(shelf, record, sid, **other) is not None) == may
    desk.now = 60.0
    assert gone(shelf, record, sid, **other) is None


def test_a_use_that_is_refused_is_none() -> None:
    desk, shelf = made()
    record = upload("one", "u", 100)
    shelf.add_upload(record)
    desk.now = 9.0
    assert found(shelf, record, "two") is None
    assert found(shelf, record, principal="eve") is None
    assert shelf.find_upload("other", "one", "u") is None
    expire(desk, shelf, 10.0)
    assert taken(desk) == removed(record)


def test_a_signed_link_finds_files_of_both_kinds() -> None:
    _, shelf = made()
    entry, kept = shelf.add_upload(upload("one", "u", 1)), shelf.add_artifact(artifact("one", "a", 1, UNIX_AT_ZERO + 9))
    assert shelf.find_any("one", "u") is entry
    assert shelf.find_any("one", "a") is kept
    assert shelf.find_any("two", "a") is None


# --- Room -----------------------------------------------------------------------------------------------------------


def test_room_is_what_both_bounds_leave() -> None:
    """A session's own bound, and the one for all; never less than nothing."""
    desk, shelf = made(Eviction.NONE)
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
    with pytest.raises(AssertionError):
        shelf.hold("one", 101)
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


@pytest.mark.parametrize("order", [Eviction.UPLOADS_FIRST, Eviction.ARTIFACTS_FIRST])
def test_the_least_recently_used_makes_room(order: Eviction) -> None:
    """Of one kind before the other, and no more than is needed."""
    desk, shelf = made(order)
    records = {name: upload("one", name, 100) for name in ("u1", "u2")}
    for record in records.values():
        shelf.add_upload(record)
    shelf.add_artifact(artifact("one", "a1", 100, UNIX_AT_ZERO + 99))
    shelf.add_artifact(artifact("one", "a2", 100, UNIX_AT_ZERO + 99))
    desk.now = 1.0
    shelf.find_upload("files", "one", "u1")
    shelf.find_artifact("one", "a1")
    assert shelf.room("one") == 500
    ends = ["u2", "u1", "a2", "a1"] if order is Eviction.UPLOADS_FIRST else ["a2", "a1", "u2", "u1"]
    shelf.hold("one", 100)
    assert taken(desk) == []
    for name in ends:
        shelf.hold("one", 100)
        assert [effect.blob for effect in taken(desk) if isinstance(effect, Discard)] == [f"blob-{name}"]
    assert shelf.room("one") == 0


def test_what_would_go_in_vain_stays() -> None:
    desk, shelf = made()
    small, large = upload("one", "u", 1), upload("one", "v", 400)
    shelf.add_upload(small)
    shelf.add_upload(large)
    desk.now = 1.0
    shelf.hold("one", 200)
    assert taken(desk) == removed(large)


def test_what_a_call_uses_makes_no_room() -> None:
    desk, shelf = made()
    entry = shelf.add_upload(upload("one", "u", 400))
    desk.now = 1.0
    assert shelf.room("one") == 500
    shelf.pin(entry)
    assert shelf.room("one") == 100
    shelf.hold("one", 100)
    assert taken(desk) == []


def test_what_was_just_accepted_makes_no_room() -> None:
    """Files of one request must not push one another out."""
    desk, shelf = made()
    shelf.add_upload(upload("one", "u", 400))
    assert shelf.room("one") == 100
    desk.now = 1.0
    assert shelf.room("one") == 500


def test_what_may_be_refused_yet_pushes_nobody_out_before_it_is_there() -> None:
    """An upload whose length is not known, or whose hash is wrong."""
    desk, shelf = made()
    old = [upload("one", f"u{number}", 100) for number in range(4)]
    for record in old:
        shelf.add_upload(record)
    desk.now = 1.0
    hold = shelf.hold("one", 450, is_sure=False)
    assert shelf.room("one") == 50
    assert taken(desk) == []
    shelf.release(hold)
    shelf.add_upload(upload("one", "new", 180))
    assert taken(desk) == removed(old[0])


@pytest.mark.parametrize("first", ["one", "two"])
@pytest.mark.parametrize("comes", [True, False])
def test_uploads_of_two_sessions_at_once_keep_the_bound_of_all(first: str, comes: bool) -> None:
    """The later one counts on what its own session has to give: the earlier must not wait for that, which may never
    come, and the later must leave it what it counts on."""
    desk, shelf = made()
    shelf.add_upload(upload("one", "own", 200))
    shelf.add_upload(upload("two", "own", 300))
    shelf.add_upload(upload("two", "more", 200))
    desk.now = 1.0
    holds = {"one": shelf.hold("one", 300, is_sure=False), "two": shelf.hold("two", 300, is_sure=False)}
    assert taken(desk) == []
    coming = sorted(holds, key=lambda sid: sid != first)[: 2 if comes else 1]
    for sid in coming:
        desk.now += 1.0
        shelf.release(holds.pop(sid))
        shelf.add_upload(upload(sid, "new", 300))
        assert sum(status.size_bytes for status in shelf.report()) <= LIMITS.storage_max_bytes
    for hold in holds.values():
        shelf.release(hold)
    assert [status.session for status in shelf.report() if status.id == "new"] == coming


def test_uploads_of_one_session_at_once_keep_its_bound() -> None:
    """Also where a call uses what the later one counted on."""
    desk, shelf = made()
    shelf.add_upload(upload("one", "small", 100))
    large = shelf.add_upload(upload("one", "large", 300))
    desk.now = 1.0
    earlier, _ = shelf.hold("one", 200, is_sure=False), shelf.hold("one", 300, is_sure=False)
    shelf.pin(large)
    shelf.release(earlier)
    desk.now = 2.0
    shelf.add_upload(upload("one", "new", 200))
    assert [status.id for status in shelf.report()] == ["large", "new"]


def test_what_could_make_no_room_then_does_so_when_it_is_free() -> None:
    """A call may begin to use a file that room was promised from."""
    desk, shelf = made()
    record = upload("one", "u", 400)
    entry = shelf.add_upload(record)
    desk.now = 1.0
    hold = shelf.hold("one", 300, is_sure=False)
    shelf.pin(entry)
    shelf.release(hold)
    shelf.add_upload(upload("one", "new", 300))
    assert taken(desk) == []
    assert shelf.room("one") == 0
    desk.now = 2.0
    shelf.unpin(entry)
    assert taken(desk) == removed(record)
    assert shelf.room("one") == 500


def test_others_make_room_only_if_nobody_is_left_to_miss_them() -> None:
    """Neither a live session's files go for another's, nor those that a link may still be out for."""
    desk, shelf = made(live={"one", "two"})
    shelf.add_upload(upload("two", "u", 100))
    shelf.add_artifact(artifact("dead", "a", 100, UNIX_AT_ZERO + 99))
    shelf.add_upload(upload("two", "bearer", 100, is_bearer=True))
    loose = upload("dead", "loose", 100, is_bearer=True)
    shelf.add_upload(loose)
    restored = artifact("older", "b", 300, UNIX_AT_ZERO + 99)
    shelf.restore([], [restored])
    desk.now = 1.0
    assert shelf.room("one") == 500
    shelf.hold("one", 150)
    assert taken(desk) == removed(loose)
    shelf.hold("one", 350)
    assert taken(desk) == removed(restored)
    assert (shelf.room("one"), shelf.room("three")) == (0, 0)


@pytest.mark.parametrize("eviction", [Eviction.UPLOADS_FIRST, Eviction.NONE])
def test_what_earlier_runs_left_is_within_the_bounds_at_once(eviction: Eviction) -> None:
    """They may have had wider ones. In each session what was stored first goes, then of all; never without leave."""
    desk, shelf = made(eviction)
    records = [upload("one", f"u{n}", 200, UNIX_AT_ZERO + 99, stored_at_unix=900.0 + n) for n in range(3)]
    others = [artifact(f"s{n}", "a", 300, UNIX_AT_ZERO + 99, stored_at_unix=800.0 + n) for n in range(3)]
    expired = artifact("s3", "old", 100, UNIX_AT_ZERO + 1)
    shelf.restore(records, [*others, expired])
    desk.now = 2.0
    assert desk.timers.take_due(desk.now) == ("room", "")
    shelf.make_room()
    gone = [] if eviction is Eviction.NONE else [records[0], others[0], others[1]]
    assert taken(desk) == removed(expired, *gone)


def test_what_earlier_runs_left_within_the_bounds_stays() -> None:
    desk, shelf = made()
    shelf.restore([upload("one", "u", 500, UNIX_AT_ZERO + 99)], [artifact("two", "a", 300, UNIX_AT_ZERO + 99)])
    assert desk.timers.take_due(0.0) is None


def test_without_eviction_what_does_not_fit_is_refused() -> None:
    desk, shelf = made(Eviction.NONE)
    shelf.add_upload(upload("one", "u", 400))
    desk.now = 1.0
    assert shelf.room("one") == 100


# --- What is told ---------------------------------------------------------------------------------------------------


def test_artifacts_that_appear_and_go_are_told() -> None:
    """When it has happened; uploads are nobody's news, and what an earlier run left is there from the beginning."""
    desk, shelf = made()
    told: list[tuple[str, bool, int]] = []

    def watch(change: Change) -> None:
        told.append((change.record.aid, change.is_there, len(shelf.artifacts_of("one"))))

    shelf.watch = watch
    shelf.restore([], [artifact("one", "old", 1, UNIX_AT_ZERO + 5)])
    shelf.add_upload(upload("one", "u", 1))
    shelf.add_artifact(artifact("one", "a", 1, UNIX_AT_ZERO + 9))
    expire(desk, shelf, 5.0)
    expire(desk, shelf, 9.0)
    assert told == [("a", True, 2), ("old", False, 1), ("a", False, 0)]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "just now"),
        (1, "1 second ago"),
        (59, "59 seconds ago"),
        (60, "1 minute ago"),
        (3599, "59 minutes ago"),
        (7200, "2 hours ago"),
        (86_400, "1 day ago"),
    ],
)
def test_how_long_ago_it_was_is_said(seconds: int, said: str) -> None:
    limits = msgspec.structs.replace(LIMITS, tombstone_ttl_s=1e6)
    desk = Desk(Plan(servers=()), entropy=bytes, unix_at_zero=0.0, limits=limits)
    desk.now = 0.0
    shelf = Shelf(desk, lambda sid: True)
    record = upload("one", "u", 1)
    shelf.add_upload(record)
    shelf.close_session("one")
    desk.now = float(seconds)
    assert gone(shelf, record) == f"it ended with its session {said}"


def test_the_oldest_of_too_many_tombs_is_forgotten() -> None:
    _, shelf = made()
    records = [upload("one", f"u{number}", 0) for number in range(LIMITS.tombs_max + 1)]
    for record in records:
        shelf.add_upload(record)
    shelf.close_session("one")
    assert gone(shelf, records[0]) is None
    assert gone(shelf, records[1]) is not None


def test_records_of_earlier_versions_can_be_read() -> None:
    old = b'{"server":"s","sid":"a","%b":"b","principal":"","blob":"c","filename":"f","mime_type":"m","size_bytes":1,'
    old += b'"sha256":"d"%b}'
    found = msgspec.json.decode(old % (b"uid", b""), type=StoredUpload)
    assert (found.is_bearer, found.expires_at_unix, found.stored_at_unix) == (False, 0.0, 0.0)
    more = b',"tool":"t","is_exposed":true,"expires_at_unix":5'
    kept = msgspec.json.decode(old % (b"aid", more), type=StoredArtifact)
    assert (kept.is_bearer, kept.stored_at_unix) == (False, 0.0)


def test_operators_see_files_and_how_many_went() -> None:
    desk, shelf = made(live={"one"})
    shelf.restore([upload("old", "u", 7, UNIX_AT_ZERO + 33, stored_at_unix=900.0)], [])
    desk.now = 2.0
    shelf.add_artifact(artifact("one", "a", 5, UNIX_AT_ZERO + 9, stored_at_unix=UNIX_AT_ZERO + 2, is_bearer=True))
    first, second = shelf.report()
    assert (first.id, first.kind, first.uri, first.is_live) == ("u", "upload", "upload://sessions/old/u", False)
    assert (first.stored_at_unix, first.used_at_unix, first.expires_at_unix) == (900.0, 900.0, UNIX_AT_ZERO + 33)
    assert (second.id, second.uri, second.tool) == ("a", "artifact://sessions/one/a/b.txt", "write")
    assert (second.is_live, second.is_bearer, second.used_at_unix) == (True, True, UNIX_AT_ZERO + 2)
    expire(desk, shelf, 9.0)
    shelf.delete("upload", "old", "u")
    ends = [(end.server, end.kind, end.why, end.count) for end in shelf.ends()]
    assert ends == [("files", "artifact", "expired", 1), ("files", "upload", "deleted", 1)]
