"""Tests of the file store whose files are of a principal: they outlive their session, and count for the principal."""

from __future__ import annotations

import pytest
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Eviction, Kind, Plan, ServerPlan
from isthmus.core.files.store.owners import Account, FileUser
from isthmus.core.files.store.store import FileStore
from isthmus.core.state.context import Context
from isthmus.core.state.records import StoredArtifact, StoredUpload

LIMITS = Limits(
    session_storage_max_bytes=100,
    storage_max_bytes=150,
    upload_ttl_s=60.0,
    uploads_per_session_max=3,
    artifacts_per_session_max=3,
    stored_files_max=5,
)
ANN = Account("ann", "")


class Store:
    """A store, and the sessions that are open."""

    def __init__(self, eviction: Eviction = Eviction.UPLOADS_FIRST) -> None:
        plan = Plan(servers=(ServerPlan(id="files", kind=Kind.PIPE),), eviction=eviction)
        self.context = Context(plan, entropy=bytes, unix_at_zero=0.0, limits=LIMITS)
        self.context.now = 0.0
        self.live: set[str] = set()
        self.files = FileStore(self.context, lambda sid: sid in self.live)

    def add(self, sid: str, id: str, size_bytes: int, principal: str = "ann", kind: str = "upload") -> None:
        """Adds a file of a session, a second before whatever comes next: a file never makes room when it is added."""
        common = {"server": "files", "sid": sid, "principal": principal, "blob": id, "filename": "a"}
        more = {"mime_type": "text/plain", "size_bytes": size_bytes, "sha256": "", "expires_at_unix": 1000.0}
        if kind == "upload":
            self.files.add_upload(StoredUpload(uid=id, **common, **more))  # type: ignore[arg-type]
        else:
            self.files.add_artifact(
                StoredArtifact(aid=id, tool="t", is_exposed=True, **common, **more)  # type: ignore[arg-type]
            )
        self.context.now += 1.0

    def end(self, principal: str, sid: str) -> None:
        self.live.discard(sid)
        self.files.close_session(principal, sid)

    def ids(self) -> set[str]:
        return {status.id for status in self.files.report()}

    def finds(self, principal: str, sid: str, id: str) -> bool:
        """True if a later session of the principal may use the file."""
        user = FileUser(frozenset({"files"}), "later", principal)
        return self.files.find(user, of_sid=sid, id=id, kind="upload") is not None


def test_an_upload_outlives_its_session_for_its_principal_alone() -> None:
    store = Store()
    store.live = {"one"}
    store.add("one", "u", 1)
    store.end("ann", "one")
    assert store.finds("ann", "one", "u")
    for principal in ("bob", ""):
        assert not store.finds(principal, "one", "u")
    store.files.delete("upload", "one", "u")
    told = [
        store.files.gone(FileUser(frozenset({"files"}), "later", who), of_sid="one", id="u", kind="upload")
        for who in ("ann", "bob")
    ]
    assert told == ["an operator deleted it just now", None]


def test_all_sessions_of_a_principal_have_one_account_and_anonymous_ones_have_their_own() -> None:
    store = Store()
    store.add("one", "u", 60)
    assert store.files.account("ann", "two") == ANN
    assert store.files.room(ANN) == 100, "what is there can make room"
    store.files.pin(store.files._quota._entries["upload", "one", "u"])
    assert store.files.room(ANN) == 40
    assert store.files.room(Account("bob", "")) == 90
    store.add("three", "v", 30, principal="")
    assert store.files.account("", "three") == Account("", "three")
    store.live = {"three"}
    assert store.files.room(Account("", "three")) == 90
    assert store.files.room(Account("", "four")) == 60


def test_files_of_ended_sessions_make_room_before_those_of_open_ones() -> None:
    """The least recently used of them first; the kind comes after that."""
    store = Store()
    store.live = {"open"}
    store.add("open", "a", 30)
    store.add("over", "b", 30, kind="artifact")
    store.add("over", "c", 30, kind="artifact")
    store.add("open", "d", 35)
    assert store.ids() == {"a", "c", "d"}
    store.add("open", "e", 35)
    assert store.ids() == {"a", "d", "e"}
    store.add("open", "f", 35)
    assert store.ids() == {"a", "e", "f"}, "only now one of the open session: the one that is enough"


def test_no_file_makes_room_for_one_of_another_principal() -> None:
    store = Store()
    store.add("one", "a", 90)
    store.add("two", "b", 50, principal="")
    assert store.files.room(Account("bob", "")) == 10
    assert store.files.room(Account("", "three")) == 60
    store.add("three", "c", 40, principal="")
    assert store.ids() == {"a", "c"}, "of anonymous clients, the session that is over"


def test_a_file_too_many_takes_the_place_of_one_of_an_ended_session() -> None:
    """The least recently used of the same kind goes. Those of open sessions stay, and then there is no place."""
    store = Store()
    store.live = {"open"}
    for id in ("a", "b", "c"):
        store.add("over", id, 0)
    assert store.files.slots(ANN, "upload") == 3
    assert store.finds("ann", "over", "a")
    store.add("open", "d", 0)
    assert store.ids() == {"a", "c", "d"}
    store.add("open", "e", 0)
    store.add("open", "f", 0)
    assert store.ids() == {"d", "e", "f"}
    assert store.files.slots(ANN, "upload") == 0
    assert store.files.slots(ANN, "artifact") == 2


def test_too_many_files_of_all_make_room_within_their_principal() -> None:
    store = Store()
    store.add("one", "a", 0)
    for number in range(4):
        store.add(f"s{number}", f"u{number}", 0, principal="")
    assert store.files.slots(Account("bob", ""), "upload") == 0
    assert store.files.slots(Account("", "new"), "upload") == 3, "the bound of one session"
    store.live = {"s0"}
    store.add("new", "v", 0, principal="")
    assert store.ids() == {"a", "u0", "u2", "u3", "v"}


def test_without_eviction_nothing_gives_way() -> None:
    store = Store(Eviction.NONE)
    for id in ("a", "b", "c"):
        store.add("over", id, 20)
    assert (store.files.slots(ANN, "upload"), store.files.room(ANN)) == (0, 40)


@pytest.mark.parametrize("is_open", [True, False])
def test_every_subscriber_is_told_when_an_artifact_is_gone(is_open: bool) -> None:
    """The list of its own session has changed, if that is open. The list of others has not."""
    store = Store()
    store.live = {"one", "two"} if is_open else {"two"}
    store.add("one", "a", 1, kind="artifact")
    assert store.files.take_changes("one") == ([], is_open)
    store.files.subscribers.add("two", "artifact://sessions/one/a/a")
    store.files.delete("artifact", "one", "a")
    gone, has_changed = store.files.take_changes("two")
    assert ([record.id for record in gone], has_changed) == (["a"], False)
    gone, has_changed = store.files.take_changes("one")
    assert ([record.id for record in gone], has_changed) == (["a"] if is_open else [], is_open)
