"""Tests of the file store: which sessions may use a file, when files are dropped, and which files make room for
others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from each_row import each_row
from isthmus.core.base.effects import Effect
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Eviction, FileScope, Kind, Plan, ServerPlan
from isthmus.core.base.replica import ReplicaName
from isthmus.core.base.storage import Discard, Forget, Load, Save
from isthmus.core.files.store.entry import StoredEntry
from isthmus.core.files.store.owners import Account, FileUser
from isthmus.core.files.store.store import FileStore
from isthmus.core.state.context import Context
from isthmus.core.state.records import StoredArtifact, StoredUpload
from isthmus.core.state.storage_orders import StorageOrders
from versioned_records import VersionedRecords

UNIX_AT_ZERO = 1000.0
LIMITS = Limits(
    session_storage_max_bytes=500,
    storage_max_bytes=800,
    upload_ttl_s=10.0,
    uploads_per_session_max=100,
    artifacts_per_session_max=100,
    stored_files_max=150,
    tombstones_max=50,
    tombstone_ttl_s=60.0,
)
LIVE = {"one", "two", "three"}


def find_upload(file_store: FileStore, server: str, uid: str) -> object:
    """The upload of session `one`, as a client of that session finds it."""
    return file_store.find(FileUser(frozenset({server}), "one", ""), of_sid="one", id=uid, kind="upload")


def of(sid: str) -> Account:
    """The account of a session."""
    return Account("", sid)


def made(eviction: Eviction = Eviction.UPLOADS_FIRST, live: set[str] | None = None) -> tuple[Context, FileStore]:
    """A store whose uploads end with their session."""
    plan = Plan(servers=(ServerPlan(id="files", kind=Kind.PIPE),), eviction=eviction, file_scope=FileScope.SESSION)
    context = Context(plan, entropy=bytes, unix_at_zero=UNIX_AT_ZERO, limits=LIMITS)
    context.now = 0.0
    alive = LIVE if live is None else live
    return context, FileStore(context, lambda sid: sid in alive)


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
        is_exposed=more.pop("is_exposed", False),
        expires_at_unix=expires_at_unix,
        **more,
    )


def take_effects(context: Context) -> list[Effect]:
    out, context.out = context.out, []
    return out


def expire(context: Context, file_store: FileStore, now: float) -> None:
    """Advances the clock and handles the timers that are due, as the engine does."""
    context.now = now
    while (due := context.timers.take_due(now)) is not None:
        purpose, whose = due
        if isinstance(whose, tuple):
            file_store.handle_timeout("upload" if purpose == "upload" else "artifact", *whose)


def removed(*records: StoredUpload | StoredArtifact) -> list[Effect]:
    """The effects that remove records and their blobs. Each record goes first: a blob without one is swept, never
    served."""
    return [effect for record in records for effect in (Forget(key=record.key), Discard(blob=record.blob))]


def found(
    file_store: FileStore, record: StoredUpload | StoredArtifact, sid: str = "one", **other: str
) -> StoredEntry | None:
    server, principal = other.get("server", "files"), other.get("principal", "")
    return file_store.find(
        FileUser(frozenset({server}), sid, principal), of_sid=record.sid, id=record.id, kind=record.kind
    )


def gone(file_store: FileStore, record: StoredUpload | StoredArtifact, sid: str = "one", **other: str) -> str | None:
    server, principal = other.get("server", "files"), other.get("principal", "")
    return file_store.gone(
        FileUser(frozenset({server}), sid, principal), of_sid=record.sid, id=record.id, kind=record.kind
    )


# --- Lifetimes --------------------------------------------------------------------------------------------------------


def test_each_use_of_an_upload_begins_its_time_anew() -> None:
    """Each use begins its time anew, and at its end the record and the bytes go."""
    context, file_store = made()
    record = upload("one", "u", 100)
    file_store.add_upload(record)
    for now in (9.0, 18.0, 27.0):
        expire(context, file_store, now)
        assert find_upload(file_store, "files", "u") is not None
    take_effects(context)
    expire(context, file_store, 36.9)
    assert take_effects(context) == []
    expire(context, file_store, 37.0)
    assert take_effects(context) == removed(record)
    assert find_upload(file_store, "files", "u") is None
    assert context.timers.next_timeout() is None


def test_use_is_saved_when_it_makes_a_difference() -> None:
    """A restart must know the lifetime of an upload, but not every use costs a write."""
    context, file_store = made()
    file_store.add_upload(upload("one", "u", 100))
    for now in (0.5, 1.0, 2.0, 2.5):
        context.now = now
        find_upload(file_store, "files", "u")
    assert take_effects(context) == []
    context.now = 2.6
    find_upload(file_store, "files", "u")
    (save,) = take_effects(context)
    assert isinstance(save, Save)
    assert save.expires_at_unix == UNIX_AT_ZERO + 12.6
    assert msgspec.json.decode(save.value, type=StoredUpload) == upload("one", "u", 100, UNIX_AT_ZERO + 12.6)
    find_upload(file_store, "files", "u")
    assert take_effects(context) == []


@pytest.mark.parametrize("kind", ["upload", "artifact"])
def test_an_expired_file_in_use_is_dropped_after_the_use(kind: str) -> None:
    """The file is not dropped before, and others can still find it."""
    context, file_store = made()
    record = upload("one", "u", 100) if kind == "upload" else artifact("one", "u", 100, UNIX_AT_ZERO + 10)
    entry = file_store.add_upload(record) if isinstance(record, StoredUpload) else file_store.add_artifact(record)
    file_store.pin(entry)
    file_store.pin(entry)
    expire(context, file_store, 30.0)
    file_store.unpin(entry)
    assert take_effects(context) == []
    assert [file.pins for file in file_store.report()] == [1]
    file_store.unpin(entry)
    assert take_effects(context) == removed(record)
    assert gone(file_store, record) == "it expired just now"


def test_the_end_of_the_session_drops_an_upload_in_use() -> None:
    context, file_store = made()
    record = upload("one", "u", 100)
    entry = file_store.add_upload(record)
    file_store.pin(entry)
    file_store.close_session("", "one")
    assert take_effects(context) == removed(record)
    file_store.unpin(entry)
    assert take_effects(context) == []


def test_an_artifact_lives_until_its_deadline_used_or_not() -> None:
    """The wall time of the record and the monotonic time of the timer are the same moment."""
    context, file_store = made()
    context.now = 5.0
    record = artifact("one", "a", 100, UNIX_AT_ZERO + 12.0)
    file_store.add_artifact(record)
    expire(context, file_store, 11.9)
    assert file_store.find_artifact("one", "a") is record
    assert take_effects(context) == []
    expire(context, file_store, 12.0)
    assert file_store.find_artifact("one", "a") is None
    assert take_effects(context) == removed(record)


def test_an_expired_file_is_not_served() -> None:
    """An expired file is not found even before its timer is handled."""
    context, file_store = made()
    context.now = 5.0
    late = artifact("one", "a", 100, UNIX_AT_ZERO)
    file_store.add_artifact(late)
    assert file_store.artifacts_of(of("one"), "one") == []
    assert found(file_store, late) is None
    assert gone(file_store, late) == "it expired just now"
    file_store.add_upload(upload("one", "u", 1))
    context.now = 15.0
    assert find_upload(file_store, "files", "u") is None
    assert file_store.find_any("one", "u") is None
    assert take_effects(context) == removed(late, upload("one", "u", 1))


def test_uploads_end_with_their_session_and_artifacts_do_not() -> None:
    """Download links that were handed out stay valid. Files of a client without sessions outlive all sessions."""
    context, file_store = made()
    ended, other, kept = upload("one", "u", 10), upload("two", "v", 20), artifact("one", "a", 30, UNIX_AT_ZERO + 99)
    loose = upload("one", "w", 40, is_bearer=True)
    for record in (ended, other, loose):
        file_store.add_upload(record)
    file_store.add_artifact(kept)
    file_store.close_session("", "one")
    assert take_effects(context) == removed(ended)
    assert file_store.find_artifact("one", "a") is kept
    assert find_upload(file_store, "files", "w") is not None
    file_store.close_session("", "one")
    assert take_effects(context) == []


def test_sessions_that_end_with_the_process_leave_their_uploads() -> None:
    """After a restart a client finds its session gone, but still has the handles."""
    context, file_store = made()
    record = upload("one", "u", 10)
    file_store.add_upload(record)
    file_store.stop()
    file_store.close_session("", "one")
    assert take_effects(context) == []
    context, file_store = made(live={"new"})
    file_store.restore([record], [])
    assert found(file_store, record, "new") is not None


def test_a_use_does_not_shorten_a_saved_expiry() -> None:
    """The expiry that an earlier run saved is kept, even if it is far ahead by the clock of now."""
    context, file_store = made(live={"new"})
    record = upload("one", "u", 100, UNIX_AT_ZERO + 3600)
    file_store.restore([record], [])
    context.now = 5.0
    assert found(file_store, record, "new") is not None
    assert take_effects(context) == []
    context.now = 3599.0
    assert found(file_store, record, "new") is not None
    context.now = 3599.0 + LIMITS.upload_ttl_s
    assert found(file_store, record, "new") is None


# --- Owners -----------------------------------------------------------------------------------------------------------


@each_row("kind", ["upload", "artifact"])
@each_row("is_restored", [False, True])
@each_row("is_live", [False, True])
@each_row("is_bearer", [False, True])
@each_row("client", ["own", "other session", "other principal", "other server"])
def test_the_clients_that_may_use_a_file(
    kind: str, is_restored: bool, is_live: bool, is_bearer: bool, client: str
) -> None:
    """The clients that may use a file are those that are told what became of it."""
    live = {"one", "two"} if is_live else {"two"}
    context, file_store = made(live=live)
    record = (
        upload("one", "u", 1, is_bearer=is_bearer)
        if kind == "upload"
        else artifact("one", "u", 1, UNIX_AT_ZERO + 10, is_bearer=is_bearer)
    )
    if is_restored:
        file_store.restore(*([record], []) if isinstance(record, StoredUpload) else ([], [record]))
    elif isinstance(record, StoredUpload):
        file_store.add_upload(record)
    else:
        file_store.add_artifact(record)
    sid = "one" if client == "own" else "two"
    other = {"other principal": {"principal": "eve"}, "other server": {"server": "else"}}.get(client, {})
    is_loose = is_bearer or (is_restored and not is_live)
    may = client == "own" or (client == "other session" and is_loose)
    entry = found(file_store, record, sid, **other)
    assert (entry is not None) == may
    if entry is not None:
        assert entry.record.id == "u"
    assert found(file_store, msgspec.structs.replace(record, sid="two"), sid, **other) is None
    assert gone(file_store, record, sid, **other) is None
    file_store.delete(record.kind, "one", "u")
    assert (gone(file_store, record, sid, **other) is not None) == may
    context.now = 60.0
    assert gone(file_store, record, sid, **other) is None


def test_a_refused_use_does_not_extend_the_lifetime() -> None:
    context, file_store = made()
    record = upload("one", "u", 100)
    file_store.add_upload(record)
    context.now = 9.0
    assert found(file_store, record, "two") is None
    assert found(file_store, record, principal="eve") is None
    assert find_upload(file_store, "other", "u") is None
    expire(context, file_store, 10.0)
    assert take_effects(context) == removed(record)


def test_a_signed_link_finds_files_of_both_kinds() -> None:
    _, file_store = made()
    entry, kept = (
        file_store.add_upload(upload("one", "u", 1)),
        file_store.add_artifact(artifact("one", "a", 1, UNIX_AT_ZERO + 9)),
    )
    assert file_store.find_any("one", "u") is entry
    assert file_store.find_any("one", "a") is kept
    assert file_store.find_any("two", "a") is None


# --- Room -------------------------------------------------------------------------------------------------------------


def test_room_is_what_both_bounds_leave() -> None:
    """The bounds are the session's own and the one for all. Room is never negative."""
    context, file_store = made(Eviction.NONE)
    assert file_store.room(of("one")) == 500
    file_store.add_upload(upload("one", "u", 400))
    assert (file_store.room(of("one")), file_store.room(of("two"))) == (100, 400)
    file_store.add_artifact(artifact("two", "a", 450, UNIX_AT_ZERO + 1))
    assert (file_store.room(of("one")), file_store.room(of("two")), file_store.room(of("three"))) == (0, 0, 0)
    expire(context, file_store, 1.0)
    assert (file_store.room(of("one")), file_store.room(of("two"))) == (100, 400)


def test_a_replica_makes_room_for_an_artifact_before_that_is_saved() -> None:
    """The number of all files may be the limit, too, of which other replicas count some."""
    plan = Plan(servers=(ServerPlan(id="files", kind=Kind.PIPE),), replica=ReplicaName("a", "0" * 32))
    limits = msgspec.structs.replace(LIMITS, stored_files_max=1)
    context = Context(plan, entropy=bytes, unix_at_zero=UNIX_AT_ZERO, limits=limits)
    context.now = 0.0
    orders, records = StorageOrders(context), VersionedRecords()
    file_store = FileStore(context, lambda sid: False, orders)
    first = artifact("one", "a", 10, UNIX_AT_ZERO + 100)

    def claim(then: Callable[[str], None]) -> None:
        file_store.claim(of("one"), 10, 0, 1, then)
        while context.out:
            order = context.out.pop(0)
            assert isinstance(order, Load | Save)
            orders.receive_answer(order.ticket, records.answer(order))

    def hold(_: str) -> None:
        file_store.hold(of("one"), 10, artifacts=1)
        assert take_effects(context) == removed(first)
        held.append(first)

    held: list[StoredArtifact] = []
    claim(lambda _: held.append(file_store.add_artifact(first).record))
    context.now = 1.0
    claim(hold)
    assert held == [first, first]


def test_a_reservation_counts_like_a_stored_file() -> None:
    """Two reservations that each fit, but not together, are not both granted."""
    _, file_store = made()
    reservation = file_store.hold(of("one"), 400, uploads=2)
    assert (file_store.room(of("one")), file_store.room(of("two"))) == (100, 400)
    assert file_store.slots(of("one"), "upload") == LIMITS.uploads_per_session_max - 2
    assert file_store.slots(of("one"), "artifact") == LIMITS.artifacts_per_session_max
    with pytest.raises(AssertionError):
        file_store.hold(of("one"), 101)
    file_store.release(reservation)
    file_store.add_upload(upload("one", "u", 400))
    assert (file_store.room(of("one")), file_store.room(of("two"))) == (100, 400)
    assert file_store.slots(of("one"), "upload") == LIMITS.uploads_per_session_max - 1
    file_store.close_session("", "one")
    assert (file_store.room(of("one")), file_store.slots(of("one"), "upload")) == (500, LIMITS.uploads_per_session_max)


def test_files_of_no_size_are_counted_too() -> None:
    """Each kind has a bound for a session, and all have a bound together, which covers ended sessions."""
    context, file_store = made()
    for number in range(LIMITS.uploads_per_session_max):
        assert file_store.slots(of("one"), "upload") > 0
        file_store.add_upload(upload("one", f"u{number}", 0))
    assert file_store.slots(of("one"), "upload") == 0
    assert file_store.slots(of("two"), "upload") > 0
    assert file_store.slots(of("one"), "artifact") > 0
    added = 0
    while file_store.slots(of(sid := f"s{added}"), "artifact"):
        file_store.add_artifact(artifact(sid, "a", 0, UNIX_AT_ZERO + 5))
        file_store.close_session("", sid)
        added += 1
    assert added == LIMITS.stored_files_max - LIMITS.uploads_per_session_max
    assert file_store.slots(of("two"), "upload") == 0
    expire(context, file_store, 5.0)
    assert file_store.slots(of("two"), "upload") == LIMITS.stored_files_max - LIMITS.uploads_per_session_max


@pytest.mark.parametrize("order", [Eviction.UPLOADS_FIRST, Eviction.ARTIFACTS_FIRST])
def test_the_least_recently_used_makes_room(order: Eviction) -> None:
    """One kind goes before the other, and no more than is needed."""
    context, file_store = made(order)
    records = {name: upload("one", name, 100) for name in ("u1", "u2")}
    for record in records.values():
        file_store.add_upload(record)
    file_store.add_artifact(artifact("one", "a1", 100, UNIX_AT_ZERO + 99))
    file_store.add_artifact(artifact("one", "a2", 100, UNIX_AT_ZERO + 99))
    context.now = 1.0
    find_upload(file_store, "files", "u1")
    file_store.find_artifact("one", "a1")
    assert file_store.room(of("one")) == 500
    ends = ["u2", "u1", "a2", "a1"] if order is Eviction.UPLOADS_FIRST else ["a2", "a1", "u2", "u1"]
    file_store.hold(of("one"), 100)
    assert take_effects(context) == []
    for name in ends:
        file_store.hold(of("one"), 100)
        assert [effect.blob for effect in take_effects(context) if isinstance(effect, Discard)] == [f"blob-{name}"]
    assert file_store.room(of("one")) == 0


def test_a_file_whose_removal_is_not_needed_stays() -> None:
    context, file_store = made()
    small, large = upload("one", "u", 1), upload("one", "v", 400)
    file_store.add_upload(small)
    file_store.add_upload(large)
    context.now = 1.0
    file_store.hold(of("one"), 200)
    assert take_effects(context) == removed(large)


def test_a_file_in_use_makes_no_room() -> None:
    context, file_store = made()
    entry = file_store.add_upload(upload("one", "u", 400))
    context.now = 1.0
    assert file_store.room(of("one")) == 500
    file_store.pin(entry)
    assert file_store.room(of("one")) == 100
    file_store.hold(of("one"), 100)
    assert take_effects(context) == []


def test_a_file_that_was_just_stored_makes_no_room() -> None:
    """Files of one request must not evict one another."""
    context, file_store = made()
    file_store.add_upload(upload("one", "u", 400))
    assert file_store.room(of("one")) == 100
    context.now = 1.0
    assert file_store.room(of("one")) == 500


def test_an_unsure_reservation_evicts_nothing() -> None:
    """An unsure reservation is for an upload of unknown length, or one whose hash may be wrong."""
    context, file_store = made()
    old = [upload("one", f"u{number}", 100) for number in range(4)]
    for record in old:
        file_store.add_upload(record)
    context.now = 1.0
    reservation = file_store.hold(of("one"), 450, is_sure=False)
    assert file_store.room(of("one")) == 50
    assert take_effects(context) == []
    file_store.release(reservation)
    file_store.add_upload(upload("one", "new", 180))
    assert take_effects(context) == removed(old[0])


@pytest.mark.parametrize("first", ["one", "two"])
@pytest.mark.parametrize("comes", [True, False])
def test_uploads_of_two_sessions_at_once_keep_the_bound_of_all(first: str, comes: bool) -> None:
    """The later reservation counts on the eviction of its own session's files. The earlier upload must not wait for
    that, because it may never come, and the later one must leave it what it counts on."""
    context, file_store = made()
    file_store.add_upload(upload("one", "own", 200))
    file_store.add_upload(upload("two", "own", 300))
    file_store.add_upload(upload("two", "more", 200))
    context.now = 1.0
    reservations = {
        "one": file_store.hold(of("one"), 300, is_sure=False),
        "two": file_store.hold(of("two"), 300, is_sure=False),
    }
    assert take_effects(context) == []
    coming = sorted(reservations, key=lambda sid: sid != first)[: 2 if comes else 1]
    for sid in coming:
        context.now += 1.0
        file_store.release(reservations.pop(sid))
        file_store.add_upload(upload(sid, "new", 300))
        assert sum(status.size_bytes for status in file_store.report()) <= LIMITS.storage_max_bytes
    for reservation in reservations.values():
        file_store.release(reservation)
    assert [status.session for status in file_store.report() if status.id == "new"] == coming


def test_uploads_of_one_session_at_once_keep_its_bound() -> None:
    """A call uses a file that the later reservation counted on."""
    context, file_store = made()
    file_store.add_upload(upload("one", "small", 100))
    large = file_store.add_upload(upload("one", "large", 300))
    context.now = 1.0
    earlier, _ = file_store.hold(of("one"), 200, is_sure=False), file_store.hold(of("one"), 300, is_sure=False)
    file_store.pin(large)
    file_store.release(earlier)
    context.now = 2.0
    file_store.add_upload(upload("one", "new", 200))
    assert [status.id for status in file_store.report()] == ["large", "new"]


def test_a_file_in_use_makes_room_after_the_use() -> None:
    """A call may begin to use a file that a reservation counts on."""
    context, file_store = made()
    record = upload("one", "u", 400)
    entry = file_store.add_upload(record)
    context.now = 1.0
    reservation = file_store.hold(of("one"), 300, is_sure=False)
    file_store.pin(entry)
    file_store.release(reservation)
    file_store.add_upload(upload("one", "new", 300))
    assert take_effects(context) == []
    assert file_store.room(of("one")) == 0
    context.now = 2.0
    file_store.unpin(entry)
    assert take_effects(context) == removed(record)
    assert file_store.room(of("one")) == 500


def test_files_of_other_sessions_make_room_only_if_no_client_can_miss_them() -> None:
    """Files of a live session do not go for another session, nor do files with a link that may still be valid."""
    context, file_store = made(live={"one", "two"})
    file_store.add_upload(upload("two", "u", 100))
    file_store.add_artifact(artifact("dead", "a", 100, UNIX_AT_ZERO + 99))
    file_store.add_upload(upload("two", "bearer", 100, is_bearer=True))
    loose = upload("dead", "loose", 100, is_bearer=True)
    file_store.add_upload(loose)
    restored = artifact("older", "b", 300, UNIX_AT_ZERO + 99)
    file_store.restore([], [restored])
    context.now = 1.0
    assert file_store.room(of("one")) == 500
    file_store.hold(of("one"), 150)
    assert take_effects(context) == removed(loose)
    file_store.hold(of("one"), 350)
    assert take_effects(context) == removed(restored)
    assert (file_store.room(of("one")), file_store.room(of("three"))) == (0, 0)


def test_files_of_other_principals_make_no_room() -> None:
    context, file_store = made(live={"one"})
    theirs = [artifact("older", name, 350, UNIX_AT_ZERO + 99, principal="somebody") for name in "ab"]
    file_store.restore([], theirs)
    context.now = 1.0
    assert file_store.room(of("one")) == LIMITS.storage_max_bytes - 700


@pytest.mark.parametrize("eviction", [Eviction.UPLOADS_FIRST, Eviction.NONE])
def test_restored_files_beyond_the_bounds_are_evicted(eviction: Eviction) -> None:
    """An earlier run may have had wider bounds. In each session the file stored first is evicted, then over all
    sessions; without eviction none is."""
    context, file_store = made(eviction)
    records = [upload("one", f"u{n}", 200, UNIX_AT_ZERO + 99, stored_at_unix=900.0 + n) for n in range(3)]
    others = [artifact(f"s{n}", "a", 300, UNIX_AT_ZERO + 99, stored_at_unix=800.0 + n) for n in range(3)]
    expired = artifact("s3", "old", 100, UNIX_AT_ZERO + 1)
    file_store.restore(records, [*others, expired])
    context.now = 2.0
    assert context.timers.take_due(context.now) == ("room", "")
    file_store.make_room()
    gone = [] if eviction is Eviction.NONE else [records[0], others[0], others[1]]
    assert take_effects(context) == removed(expired, *gone)


def test_restored_files_within_the_bounds_stay() -> None:
    context, file_store = made()
    file_store.restore([upload("one", "u", 500, UNIX_AT_ZERO + 99)], [artifact("two", "a", 300, UNIX_AT_ZERO + 99)])
    assert context.timers.take_due(0.0) is None


def test_without_eviction_there_is_only_free_room() -> None:
    context, file_store = made(Eviction.NONE)
    file_store.add_upload(upload("one", "u", 400))
    context.now = 1.0
    assert file_store.room(of("one")) == 100


# --- Reports ----------------------------------------------------------------------------------------------------------


def test_changes_of_a_sessions_artifacts_are_announced() -> None:
    """Uploads, restored files, and files of sessions that are over cause no announcement."""
    context, file_store = made()

    def shown(sid: str, aid: str, seconds: int) -> StoredArtifact:
        return artifact(sid, aid, 1, UNIX_AT_ZERO + seconds, is_exposed=True)

    def announced() -> list[str] | None:
        is_scheduled = ("resources", "one") in context.timers._live
        context.timers.cancel(("resources", "one"))
        return [record.aid for record in file_store.take_changes("one")[0]] if is_scheduled else None

    file_store.restore([], [shown("one", "old", 5), shown("over", "x", 2)])
    file_store.add_upload(upload("one", "u", 1))
    assert announced() is None
    file_store.add_artifact(shown("one", "a", 9))
    assert announced() == []
    expire(context, file_store, 2.0)
    assert announced() is None
    expire(context, file_store, 5.0)
    expire(context, file_store, 9.0)
    assert [record.aid for record in file_store.take_changes("one")[0]] == ["old", "a"]


@pytest.mark.parametrize(
    ("seconds", "ago"),
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
def test_the_reason_says_how_long_ago_a_file_went(seconds: int, ago: str) -> None:
    limits = msgspec.structs.replace(LIMITS, tombstone_ttl_s=1e6)
    plan = Plan(servers=(), file_scope=FileScope.SESSION)
    context = Context(plan, entropy=bytes, unix_at_zero=0.0, limits=limits)
    context.now = 0.0
    file_store = FileStore(context, lambda sid: True)
    record = upload("one", "u", 1)
    file_store.add_upload(record)
    file_store.close_session("", "one")
    context.now = float(seconds)
    assert gone(file_store, record) == f"it ended with its session {ago}"


def test_the_oldest_of_too_many_tombstones_is_forgotten() -> None:
    _, file_store = made()
    records = [upload("one", f"u{number}", 0) for number in range(LIMITS.tombstones_max + 1)]
    for record in records:
        file_store.add_upload(record)
    file_store.close_session("", "one")
    assert gone(file_store, records[0]) is None
    assert gone(file_store, records[1]) is not None


def test_records_of_earlier_versions_can_be_read() -> None:
    old = b'{"server":"s","sid":"a","%b":"b","principal":"","blob":"c","filename":"f","mime_type":"m","size_bytes":1,'
    old += b'"sha256":"d"%b}'
    found = msgspec.json.decode(old % (b"uid", b""), type=StoredUpload)
    assert (found.is_bearer, found.expires_at_unix, found.stored_at_unix) == (False, 0.0, 0.0)
    more = b',"tool":"t","is_exposed":true,"expires_at_unix":5'
    kept = msgspec.json.decode(old % (b"aid", more), type=StoredArtifact)
    assert (kept.is_bearer, kept.stored_at_unix) == (False, 0.0)


def test_the_report_has_files_and_the_counts_of_ends() -> None:
    context, file_store = made(live={"one"})
    file_store.restore([upload("old", "u", 7, UNIX_AT_ZERO + 33, stored_at_unix=900.0)], [])
    context.now = 2.0
    file_store.add_artifact(artifact("one", "a", 5, UNIX_AT_ZERO + 9, stored_at_unix=UNIX_AT_ZERO + 2, is_bearer=True))
    first, second = file_store.report()
    assert (first.id, first.kind, first.uri, first.is_live) == ("u", "upload", "upload://sessions/old/u", False)
    assert (first.stored_at_unix, first.used_at_unix, first.expires_at_unix) == (900.0, 900.0, UNIX_AT_ZERO + 33)
    assert (second.id, second.uri, second.tool) == ("a", "artifact://sessions/one/a/b.txt", "write")
    assert (second.is_live, second.is_bearer, second.used_at_unix) == (True, True, UNIX_AT_ZERO + 2)
    expire(context, file_store, 9.0)
    file_store.delete("upload", "old", "u")
    ends = [(end.server, end.kind, end.why, end.count) for end in file_store.ends()]
    assert ends == [("files", "artifact", "expired", 1), ("files", "upload", "deleted", 1)]
