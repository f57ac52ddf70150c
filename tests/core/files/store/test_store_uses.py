"""Finding a stored file is using it; asking whether there is one, or looking after it, is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.files.store.records import StoredArtifact, StoredUpload
from isthmus.core.files.store.store import Shelf
from isthmus.core.state.context import Desk

START = 1000.0


def made() -> tuple[Desk, Shelf]:
    """With an upload "u", whose time is 10 s without use, and an artifact "a", which goes after 100 s."""
    plan = Plan(servers=(ServerPlan(id="files", kind=Kind.PIPE),))
    desk = Desk(plan, entropy=bytes, unix_at_zero=START, limits=Limits(upload_ttl_s=10.0))
    desk.now = 0.0
    shelf = Shelf(desk, lambda sid: True)
    shelf.add_upload(upload("u"))
    shelf.add_artifact(artifact("a"))
    return desk, shelf


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
        is_exposed=True,
        expires_at_unix=START + 100,
    )


FINDERS: dict[str, tuple[str, Callable[[Shelf], object]]] = {
    "find an upload": ("u", lambda shelf: shelf.find("files", "s", "", of_sid="s", id="u", kind="upload")),
    "find an artifact": ("a", lambda shelf: shelf.find("files", "s", "", of_sid="s", id="a", kind="artifact")),
    "find any, an upload": ("u", lambda shelf: shelf.find_any("s", "u")),
    "find any, an artifact": ("a", lambda shelf: shelf.find_any("s", "a")),
    "find_upload": ("u", lambda shelf: shelf.find_upload("files", "s", "u")),
    "find_artifact": ("a", lambda shelf: shelf.find_artifact("s", "a")),
}


@pytest.mark.parametrize("name", FINDERS)
def test_who_finds_a_file_uses_it(name: str) -> None:
    """It is the last to go then, and an upload's time begins anew."""
    desk, shelf = made()
    id, find = FINDERS[name]
    for used, unused in (("u", "a"), ("a", "u")) if id == "a" else (("a", "u"), ("u", "a")):
        shelf.find_any("s", used)
        assert [status.id for status in shelf.report()] == [unused, used]
    desk.now = 5.0
    assert find(shelf) is not None
    (before, last) = shelf.report()
    assert (last.id, last.used_at_unix) == (id, START + 5.0)
    assert before.used_at_unix == START
    assert last.expires_at_unix == (START + 15.0 if id == "u" else START + 100.0)


@pytest.mark.parametrize("name", FINDERS)
def test_what_is_over_is_not_found(name: str) -> None:
    desk, shelf = made()
    id, find = FINDERS[name]
    desk.now = 10.0 if id == "u" else 100.0
    assert find(shelf) is None
    assert not shelf.has("upload" if id == "u" else "artifact", "s", id)


def test_asking_whether_there_is_one_is_no_use() -> None:
    desk, shelf = made()
    desk.now = 5.0
    before = shelf.report()
    assert shelf.has("upload", "s", "u") is True
    assert shelf.has("artifact", "s", "a") is True
    for kind, sid, id in (("artifact", "s", "u"), ("upload", "s", "a"), ("upload", "t", "u"), ("upload", "s", "x")):
        assert shelf.has(kind, sid, id) is False  # type: ignore[arg-type]
    assert shelf.artifacts_of("s") == [artifact("a")]
    assert shelf.report() == before


def test_each_kind_has_its_deadline_and_none_is_left_when_it_is_gone() -> None:
    desk, shelf = made()
    due = desk.timers.next_timeout()
    assert due == (10.0, "upload unused")
    shelf.delete("upload", "s", "u")
    due = desk.timers.next_timeout()
    assert due == (100.0, "artifact expired")
    shelf.delete("artifact", "s", "a")
    assert desk.timers.next_timeout() is None
    assert [(end.kind, end.why, end.count) for end in shelf.ends()] == [
        ("artifact", "deleted", 1),
        ("upload", "deleted", 1),
    ]


def test_a_file_of_a_server_that_is_not_there_any_more_is_named_all_the_same() -> None:
    desk, shelf = made()
    shelf.add_upload(upload("v", server="gone"))
    (status,) = [status for status in shelf.report() if status.id == "v"]
    assert (status.uri, status.server, status.tool) == ("upload://sessions/s/v", "gone", "")
    assert next(status.tool for status in shelf.report() if status.id == "a") == "write"
    assert desk.now == 0.0


def test_a_hold_takes_room_only_for_what_is_said() -> None:
    """Bytes, and nothing of the numbers of files, unless that is said as well."""
    _, shelf = made()
    uploads, artifacts, room = shelf.upload_slots("s"), shelf.artifact_slots("s"), shelf.room("s")
    hold = shelf.hold("s", 7)
    assert (shelf.upload_slots("s"), shelf.artifact_slots("s")) == (uploads, artifacts)
    shelf.release(hold)
    assert shelf.room("s") == room
    hold = shelf.hold("s", 7, uploads=2, artifacts=1)
    assert (shelf.upload_slots("s"), shelf.artifact_slots("s")) == (uploads - 2, artifacts - 1)
    shelf.release(hold)
    assert (shelf.upload_slots("s"), shelf.artifact_slots("s")) == (uploads, artifacts)
