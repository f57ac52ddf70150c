"""Tests of uses of stored files: finding a file is a use, and checking for it or reporting it is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.files.store.owners import Account, FileUser
from isthmus.core.files.store.store import FileStore
from isthmus.core.state.context import Context
from isthmus.core.state.records import StoredArtifact, StoredUpload

START = 1000.0
SESSION = Account("", "s")


def made() -> tuple[Context, FileStore]:
    """Returns a store with an upload "u", which is dropped after 10 s without use, and an artifact "a", which is
    dropped after 100 s."""
    plan = Plan(servers=(ServerPlan(id="files", kind=Kind.PIPE),))
    context = Context(plan, entropy=bytes, unix_at_zero=START, limits=Limits(upload_ttl_s=10.0))
    context.now = 0.0
    file_store = FileStore(context, lambda sid: True)
    file_store.add_upload(upload("u"))
    file_store.add_artifact(artifact("a"))
    return context, file_store


def upload(uid: str, server: str = "files") -> StoredUpload:
    return StoredUpload(
        server=server,
        sid="s",
        uid=uid,
        principal="",
        blob=f"blob-{uid}",
        filename="u.txt",
        mime_type="text/plain",
        size_bytes=5,
        sha256="",
        expires_at_unix=START + 10,
    )


def artifact(aid: str) -> StoredArtifact:
    return StoredArtifact(
        server="files",
        sid="s",
        aid=aid,
        principal="",
        blob=f"blob-{aid}",
        filename="a.txt",
        mime_type="text/plain",
        size_bytes=5,
        sha256="",
        tool="write",
        is_exposed=False,
        expires_at_unix=START + 100,
    )


USER = FileUser(frozenset({"files"}), "s", "")
FINDERS: dict[str, tuple[str, Callable[[FileStore], object]]] = {
    "find an upload": (
        "u",
        lambda file_store: file_store.find(USER, of_sid="s", id="u", kind="upload"),
    ),
    "find an artifact": (
        "a",
        lambda file_store: file_store.find(
            FileUser(frozenset({"files"}), "s", ""), of_sid="s", id="a", kind="artifact"
        ),
    ),
    "find any, an upload": ("u", lambda file_store: file_store.find_any("s", "u")),
    "find any, an artifact": ("a", lambda file_store: file_store.find_any("s", "a")),
    "find_artifact": ("a", lambda file_store: file_store.find_artifact("s", "a")),
}


@pytest.mark.parametrize("name", FINDERS)
def test_finding_a_file_is_a_use(name: str) -> None:
    """A found file is the last to be evicted, and the lifetime of an upload begins anew."""
    context, file_store = made()
    id, find = FINDERS[name]
    for used, unused in (("u", "a"), ("a", "u")) if id == "a" else (("a", "u"), ("u", "a")):
        file_store.find_any("s", used)
        assert [status.id for status in file_store.report()] == [unused, used]
    context.now = 5.0
    assert find(file_store) is not None
    (before, last) = file_store.report()
    assert (last.id, last.used_at_unix) == (id, START + 5.0)
    assert before.used_at_unix == START
    assert last.expires_at_unix == (START + 15.0 if id == "u" else START + 100.0)


@pytest.mark.parametrize("name", FINDERS)
def test_an_expired_file_is_not_found(name: str) -> None:
    context, file_store = made()
    id, find = FINDERS[name]
    context.now = 10.0 if id == "u" else 100.0
    assert find(file_store) is None
    assert not file_store.has("upload" if id == "u" else "artifact", "s", id)


def test_checking_for_a_file_is_no_use() -> None:
    context, file_store = made()
    context.now = 5.0
    before = file_store.report()
    assert file_store.has("upload", "s", "u") is True
    assert file_store.has("artifact", "s", "a") is True
    for kind, sid, id in (("artifact", "s", "u"), ("upload", "s", "a"), ("upload", "t", "u"), ("upload", "s", "x")):
        assert file_store.has(kind, sid, id) is False  # type: ignore[arg-type]
    assert file_store.artifacts_of(SESSION, "s") == [artifact("a")]
    assert file_store.report() == before


def test_each_kind_has_its_deadline_and_none_is_left_when_it_is_gone() -> None:
    context, file_store = made()
    due = context.timers.next_timeout()
    assert due == (10.0, "upload unused")
    file_store.delete("upload", "s", "u")
    due = context.timers.next_timeout()
    assert due == (100.0, "artifact expired")
    file_store.delete("artifact", "s", "a")
    assert context.timers.next_timeout() is None
    assert [(end.kind, end.why, end.count) for end in file_store.ends()] == [
        ("artifact", "deleted", 1),
        ("upload", "deleted", 1),
    ]


def test_a_file_of_an_unknown_server_is_reported() -> None:
    context, file_store = made()
    file_store.add_upload(upload("v", server="gone"))
    (status,) = [status for status in file_store.report() if status.id == "v"]
    assert (status.uri, status.server, status.tool) == ("upload://sessions/s/v", "gone", "")
    assert next(status.tool for status in file_store.report() if status.id == "a") == "write"
    assert context.now == 0.0


def test_a_reservation_covers_only_the_given_amounts() -> None:
    """A reservation covers bytes, and numbers of files only if they are given."""
    _, file_store = made()
    uploads, artifacts, room = (
        file_store.slots(SESSION, "upload"),
        file_store.slots(SESSION, "artifact"),
        file_store.room(SESSION),
    )
    reservation = file_store.hold(SESSION, 7)
    assert (file_store.slots(SESSION, "upload"), file_store.slots(SESSION, "artifact")) == (uploads, artifacts)
    file_store.release(reservation)
    assert file_store.room(SESSION) == room
    reservation = file_store.hold(SESSION, 7, uploads=2, artifacts=1)
    assert (file_store.slots(SESSION, "upload"), file_store.slots(SESSION, "artifact")) == (uploads - 2, artifacts - 1)
    file_store.release(reservation)
    assert (file_store.slots(SESSION, "upload"), file_store.slots(SESSION, "artifact")) == (uploads, artifacts)
