"""Tests of the outputs of calls: which files become artifacts, under which names, up to which bounds, and what is
reported of the others."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from driving import UNIX_AT_ZERO
from file_scenes import Scene, artifacts, names, texts
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import (
    ArtifactProducer,
    AutoFiles,
    Kind,
    LocatorMode,
    OutputLocator,
    ServerPlan,
    SharedFolder,
)
from isthmus.core.base.storage import Collect, Discard, Fetch, Forget, Save, Saved, StorageFailed, Survey
from isthmus.core.files.calls.selection import CLOCK_SLACK_S
from stateless_driving import tables

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 20


def scene(
    *modes: LocatorMode, limits: Limits | None = None, shared: tuple[SharedFolder, ...] = (), **more: Any
) -> Scene:
    """Returns a server whose tool `t` writes files, which are located by these modes."""
    locator = OutputLocator(mode=modes, output_path_key="p")
    roots = more.pop("roots", ())
    producer = ArtifactProducer(tools=("t",), output_locator=locator, **more)
    return Scene(ServerPlan(id="s", kind=Kind.PIPE, producers=(producer,), shared=shared), limits=limits, roots=roots)


def problem(result: dict[str, Any]) -> str | None:
    return result.get("_meta", {}).get("artifact_error")


# --- Names ------------------------------------------------------------------------------------------------------------


def test_a_file_from_the_disk_keeps_its_name() -> None:
    """The content does not matter, because the tool has named the file."""
    found = scene(LocatorMode.CHANGED).call("t", writes={"shot": PNG, "b.txt": PNG})
    assert names(found) == ["b.txt", "shot"]


def test_embedded_content_is_named_by_its_type() -> None:
    held = {"uri": "demo://x/shot", "blob": base64.b64encode(PNG).decode()}
    found = scene(LocatorMode.EMBEDDED).call("t", content=[{"type": "resource", "resource": held}])
    (artifact,) = artifacts(found)
    assert artifact["filename"] == "shot.png"
    assert artifact["mime_type"] == "image/png"


def test_a_file_at_its_allocated_place_is_named_by_its_type() -> None:
    """The proxy chose the name of the place."""
    files = scene(LocatorMode.NONE, output_path_argument="out")
    channel, got = files.begin("t", out="shot")
    files.disk.write(got["out"], PNG)
    (artifact,) = artifacts(files.end(channel, "done"))
    assert artifact["filename"] == "shot.png"
    assert artifact["artifact_id"] in got["out"], "and so was its id"


def test_only_the_file_at_the_allocated_place_has_its_id() -> None:
    files = scene(LocatorMode.CHANGED, output_path_argument="out")
    channel, got = files.begin("t", out="a.txt")
    files.disk.write(got["out"], b"a")
    files.disk.write(f"{files.ws}/b.txt", b"b")
    found = {artifact["filename"]: artifact["artifact_id"] for artifact in artifacts(files.end(channel, "done"))}
    assert found["a.txt"] in got["out"]
    assert found["b.txt"] not in got["out"]


# --- Surveys ----------------------------------------------------------------------------------------------------------


def test_an_argument_names_a_file() -> None:
    files = scene(LocatorMode.ARGUMENT)
    found = files.call("t", writes={"a.txt": b"a"}, arguments={"path": "a.txt"})
    assert names(found) == ["a.txt"]
    assert names(files.call("t", writes={"b.txt": b"b"}, arguments={"path": "c.txt"})) == []


def test_paths_of_the_server_are_mapped_to_local_ones() -> None:
    files = scene(LocatorMode.STRUCTURED, shared=(SharedFolder("/w", "/mnt/w"),))
    files.call("t", structuredContent={"p": f"/mnt{files.ws}/a.txt"}, writes={"a.txt": b"a"})
    assert files.world.last(Survey).named == ((f"{files.ws}/a.txt",),)


def test_one_survey_covers_named_files_and_folders() -> None:
    """The order has the named files, the folders where anything may have changed, and the bounds."""
    files = scene(
        LocatorMode.STRUCTURED, LocatorMode.CHANGED, limits=Limits(files_known_max=7, artifacts_per_call_max=3)
    )
    files.call("t", structuredContent={"p": "a.txt"})
    order = files.world.last(Survey)
    assert (order.named, order.areas) == ((("a.txt",),), ("ws", "out", "tmp")) or order.areas
    assert (order.entries_max, order.folder_max) == (7, 3)


def test_no_survey_is_made_if_nothing_can_be_found() -> None:
    files = scene(LocatorMode.REGEX)
    before = len(files.world.every(Survey))
    assert artifacts(files.call("t", "nothing")) == []
    assert len(files.world.every(Survey)) == before


@pytest.mark.parametrize("age_s", [-1.0, 0.0, CLOCK_SLACK_S - 0.1, CLOCK_SLACK_S, CLOCK_SLACK_S + 0.1])
def test_a_file_elsewhere_that_a_call_names_may_be_a_little_older(age_s: float) -> None:
    """Timestamps of file systems are accurate to two seconds. A file that seems older than that was not written by the
    call."""
    files = scene(LocatorMode.ARGUMENT, roots=("/shared",))
    files.world.wait(10)
    channel, _ = files.begin("t", path="/shared/a.txt")
    files.disk.write("/shared/a.txt", b"a")
    files.disk.files["/shared/a.txt"].changed_at_unix = UNIX_AT_ZERO + files.world.now - age_s
    assert names(files.end(channel, "done")) == ["a.txt"] * (age_s <= CLOCK_SLACK_S)


# --- Bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_the_number_of_files_of_one_call_is_bounded(count: int) -> None:
    """The bound itself is within. The others are counted, and the next call takes them."""
    files = scene(LocatorMode.CHANGED, limits=Limits(artifacts_per_call_max=3))
    found = files.call("t", writes={f"{number}.txt": b"x" for number in range(count)})
    assert len(names(found)) == min(count, 3)
    left = count - 3
    assert problem(found) == (f"{left} of {count} files are left for later calls: 3 at most" if left > 0 else None)
    assert len(names(files.call("t"))) == max(0, left)


def test_embedded_content_gets_the_room_that_files_leave() -> None:
    files = scene(LocatorMode.CHANGED, LocatorMode.EMBEDDED, limits=Limits(artifacts_per_call_max=3))
    image = {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}
    channel, _ = files.begin("t")
    for name in ("a.txt", "b.txt"):
        files.disk.write(f"{files.ws}/{name}", b"x")
    files.world.answer(files.received, json.dumps({"content": [image, image, image]}))
    files.disk.settle()
    assert names(files.only_message(channel)) == ["a.txt", "b.txt", "image-1.png"]


@pytest.mark.parametrize(("size", "is_shown"), [(99, True), (100, True), (101, False)])
@pytest.mark.parametrize("raw", [True, False])
def test_a_text_up_to_a_bound_is_put_into_the_result(size: int, is_shown: bool, raw: bool) -> None:
    """The bound is that of the adapter, or that of a message, and is itself within."""
    more: dict[str, Any] = {"allow_raw_output": True} if raw else {"inline_text_bytes": 100}
    files = scene(LocatorMode.CHANGED, limits=Limits(inline_size_max_bytes=100 if raw else 1000), **more)
    found = files.call("t", writes={"a.txt": b"y" * size})
    assert names(found) == ["a.txt"]
    assert ("y" * size in json.dumps(found["content"])) is is_shown


def test_several_texts_share_the_bound_of_a_message() -> None:
    files = scene(LocatorMode.CHANGED, limits=Limits(inline_size_max_bytes=100), inline_text_bytes=80)
    found = files.call("t", writes={"a.txt": b"1" * 60, "b.txt": b"2" * 41, "c.txt": b"3" * 40})
    content = json.dumps(found["content"])
    assert ["1" * 60 in content, "2" * 41 in content, "3" * 40 in content] == [True, False, True]


def test_only_text_is_put_into_the_result() -> None:
    found = scene(LocatorMode.CHANGED, inline_text_bytes=1000).call("t", writes={"a.png": PNG})
    assert names(found) == ["a.png"]
    assert all(block["type"] != "image" for block in found["content"])


# --- Missing files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [mode for mode in LocatorMode if mode is not LocatorMode.RESOURCE_LINK])
def test_a_result_that_should_name_a_file_and_does_not_is_reported(mode: LocatorMode) -> None:
    """A tool whose files are found by arguments or changes may just have written none."""
    found = scene(mode).call("t", "nothing")
    unnamed = mode in (LocatorMode.NONE, LocatorMode.ARGUMENT, LocatorMode.CHANGED)
    assert problem(found) == (None if unnamed else "the result names no file")


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ("nothing", "The tool ran, but its output file was not found: nothing was found."),
        ("a.txt", "The tool ran, but its output file was not found: a.txt: missing."),
    ],
)
def test_a_required_file_that_is_missing_fails_the_call(named: str, text: str) -> None:
    """The call fails without it, and the error says why."""
    files = scene(LocatorMode.STRUCTURED, LocatorMode.CHANGED, required=True)
    found = files.call("t", structuredContent={} if named == "nothing" else {"p": named})
    if named == "nothing":
        text = "The tool ran, but its output file was not found: the result names no file."
    assert found["isError"] is True
    assert texts(found) == text


@pytest.mark.parametrize(
    ("data", "is_busy", "why"), [(b"", False, "it is empty so far"), (b"x", True, "it is not complete yet")]
)
def test_a_file_that_is_not_ready_is_waited_for(data: bytes, is_busy: bool, why: str) -> None:
    """The problem is reported once, and a later call takes the file."""
    files = scene(LocatorMode.STRUCTURED)
    channel, _ = files.begin("t")
    files.disk.write(f"{files.ws}/a.txt", data, is_busy=is_busy)
    found = files.end(channel, "done", structuredContent={"p": "a.txt"})
    assert problem(found) == f"a.txt: {why}"
    files.disk.write(f"{files.ws}/a.txt", b"done")
    assert names(files.call("t", "hm")) == ["a.txt"]


def test_a_file_that_is_not_permitted_is_reported_and_not_looked_for_again() -> None:
    files = scene(LocatorMode.STRUCTURED)
    assert problem(files.call("t", structuredContent={"p": "/etc/passwd"})) == "passwd: not permitted"
    before = len(files.world.every(Survey))
    files.call("t", structuredContent={})
    assert len(files.world.every(Survey)) == before


def test_equal_problems_are_reported_once_and_long_names_cut() -> None:
    files = scene(LocatorMode.STRUCTURED)
    long = "x" * 200 + ".txt"
    found = files.call("t", structuredContent={"p": [f"a/{long}", f"b/{long}", "c.txt"]})
    assert problem(found) == f"{'x' * 160}: missing; c.txt: missing"


def test_a_failed_call_reports_no_missing_file() -> None:
    files = scene(LocatorMode.REGEX, required=True)
    found = files.call("t", "no such thing", isError=True)
    assert (found["isError"], texts(found), problem(found)) == (True, "no such thing", None)


# --- Stored -----------------------------------------------------------------------------------------------------------


def taken(files: Scene) -> tuple[Any, Save]:
    """Returns a call that has written one file, and the order to save its record."""
    channel, _ = files.begin("t")
    files.disk.write(f"{files.ws}/a.txt", b"hello")
    files.world.answer(files.received, '{"content":[]}')
    for kind in (Survey, Collect):
        order = files.world.last(kind)
        answer = files.disk._carry_out(order)
        assert answer is not None
        files.world.store(order.ticket, answer)
    files.disk._read = len(files.world.log)
    return channel, files.world.last(Save)


def test_the_record_of_an_artifact() -> None:
    files = scene(LocatorMode.CHANGED, limits=Limits(artifact_ttl_s=60.0))
    files.world.wait(5)
    _, save = taken(files)
    record = json.loads(save.value)
    collect = files.world.last(Collect)
    at = UNIX_AT_ZERO + files.world.now
    sid = next(iter(tables(files.world.engine)["sessions"].values())).sid
    expected = {
        "server": "s", "sid": sid, "principal": "", "blob": collect.blobs[0], "filename": "a.txt",
        "mime_type": "text/plain", "size_bytes": 5, "tool": "t", "is_exposed": True, "stored_at_unix": at,
        "expires_at_unix": at + 60,
    }  # fmt: skip
    assert expected.items() <= record.items()
    assert save.expires_at_unix == at + 60
    assert not record.get("is_bearer", False)


def test_an_artifact_whose_record_cannot_be_saved_is_undone() -> None:
    """The bytes are discarded, and the problem is reported."""
    files = scene(LocatorMode.CHANGED)
    channel, save = taken(files)
    files.world.log.clear()
    files.world.store(save.ticket, StorageFailed(reason="the disk is full"))
    blob = json.loads(save.value)["blob"]
    assert files.world.every(Forget) == [Forget(key=save.key)]
    assert files.world.every(Discard) == [Discard(blob=blob)]
    found = files.only_message(channel)
    assert artifacts(found) == []
    assert "the disk is full" in (problem(found) or "")


def test_two_calls_with_the_same_file_share_the_first_artifact() -> None:
    """The two results have the first artifact and its content. The second copy is discarded."""
    files = scene(LocatorMode.CHANGED, inline_text_bytes=100)
    first, _ = files.begin("t")
    one = files.received
    second, _ = files.begin("t")
    two = files.received
    files.disk.write(f"{files.ws}/a.txt", b"hello")
    for received in (one, two):
        files.world.answer(received, '{"content":[]}')
    for kind in (Survey, Collect, Fetch):
        for order in files.world.every(kind)[-2:]:
            answer = files.disk._carry_out(order)
            assert answer is not None
            files.world.store(order.ticket, answer)
    files.disk._read = len(files.world.log)
    kept, lost = files.world.every(Save)[-2:]
    for order in (kept, lost):
        files.world.store(order.ticket, Saved())
    assert files.world.every(Forget) == [Forget(key=lost.key)]
    assert files.world.every(Discard) == [Discard(blob=json.loads(lost.value)["blob"])]
    files.disk.blobs[json.loads(kept.value)["blob"]] = b"hello"
    files.disk.settle()
    found = [files.only_message(channel) for channel in (first, second)]
    assert names(found[0]) == ["a.txt"]
    assert artifacts(found[0]) == artifacts(found[1])
    assert [("hello" in json.dumps(each["content"])) for each in found] == [True, True]


def test_without_adapters_each_changed_file_is_an_artifact() -> None:
    files = Scene(ServerPlan(id="s", kind=Kind.PIPE, auto_files=AutoFiles()))
    assert names(files.call("t", writes={"a.txt": b"x"})) == ["a.txt"]


# --- Room -------------------------------------------------------------------------------------------------------------


def test_as_many_files_are_taken_as_a_session_may_have() -> None:
    """The bound itself is within, and the next file makes no artifact."""
    box = scene(LocatorMode.CHANGED, limits=Limits(artifacts_per_session_max=2))
    assert len(artifacts(box.call("t", writes={"a.txt": b"a", "b.txt": b"b", "c.txt": b"c"}))) == 2
    assert artifacts(box.call("t", writes={"d.txt": b"d"})) == []
