"""Tests of `artifact://new/` URIs in arguments, and of files that a call wrote and nobody can fetch."""

from __future__ import annotations

from typing import Any

import pytest
from driving import UNIX_AT_ZERO
from file_scenes import Scene, artifacts, names, texts
from isthmus.core.base.effects import Note
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import (
    ArtifactProducer,
    AutoFiles,
    Deliver,
    Kind,
    LocatorMode,
    OutputLocator,
    ServerPlan,
    SharedFolder,
    UploadConsumer,
)
from isthmus.core.base.storage import Survey
from isthmus.core.files.store.handles import NEW_FILE_PARTS_MAX, HandleError, parse_new_file

NEW = "artifact://new/"
TOOLS = '{"tools":[{"name":"t"},{"name":"look","annotations":{"readOnlyHint":true}}]}'


def scene(*, limits: Limits | None = None, **plan: Any) -> Scene:
    """Returns a server whose list of tools was read."""
    plan = {"auto_files": AutoFiles(), **plan}
    files = Scene(ServerPlan(id="s", kind=Kind.PIPE, **plan), limits=limits)
    files.client.request('"tools"', "tools/list")
    files.world.answer(files.world.take_sent("tools/list"), TOOLS)
    return files


def tools(*names: str, **more: Any) -> ArtifactProducer:
    return ArtifactProducer(tools=names, **more)


def told(result: dict[str, Any]) -> str:
    """Returns why a file was not transferred, which `_meta` and the content say alike."""
    why: str = result.get("_meta", {}).get("artifact_error", "")
    assert (f"Not transferred: {why}." in texts(result)) == bool(why)
    return why


# --- The URI of a new file ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("book.xlsx", "book.xlsx"),
        ("a/b/c.txt", "a/b/c.txt"),
        ("%C3%BC%20b.md", "ü b.md"),
        ("../../etc/passwd", "etc/passwd"),
        ("/etc/x", "etc/x"),
        ("a//./b", "a/b"),
        ("shots/", "shots/"),
        ("%2e%2e%2fx", "x"),
        ("a\\..\\b:c\0", "b_c_"),
        ("x/" * (NEW_FILE_PARTS_MAX - 1) + "y", "x/" * (NEW_FILE_PARTS_MAX - 1) + "y"),
    ],
)
def test_a_name_stays_below_the_output_folder(name: str, path: str) -> None:
    assert parse_new_file(NEW + name) == path


@pytest.mark.parametrize("uri", [NEW, NEW + "..", NEW + "/", "artifact://old/x", NEW + "x/" * NEW_FILE_PARTS_MAX + "y"])
def test_a_uri_without_a_usable_name_is_refused(uri: str) -> None:
    with pytest.raises(HandleError, match="expected a name"):
        parse_new_file(uri)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"path": f"{NEW}book.xlsx"}, {"path": "OUT/book.xlsx"}),
        ({"path": f"{NEW}my book.xlsx"}, {"path": "OUT/my book.xlsx"}),
        ({"file_uri": f"{NEW}a b.xlsx"}, {"file_uri": "file://OUT/a%20b.xlsx"}),
        ({"uri": f"file://{NEW}a.xlsx"}, {"uri": "file://OUT/a.xlsx"}),
        ({"to": [{"files": [f"{NEW}a/b.txt", "c.txt"]}]}, {"to": [{"files": ["OUT/a/b.txt", "c.txt"]}]}),
        ({"json": f'{{"out":"{NEW}a.txt"}}'}, {"json": '{"out":"OUT/a.txt"}'}),
        ({"sql": f"COPY t TO '{NEW}a.csv' (HEADER)"}, {"sql": "COPY t TO 'OUT/a.csv' (HEADER)"}),
        ({"say": f"Write {NEW}a.txt, then {NEW}b.txt."}, {"say": "Write OUT/a.txt, then OUT/b.txt."}),
        ({"dir": f"{NEW}shots/"}, {"dir": "OUT/shots"}),
        ({"say": f"x{NEW}a.txt and artifact:new"}, {"say": f"x{NEW}a.txt and artifact:new"}),
    ],
)
def test_it_becomes_a_path_in_any_argument(arguments: dict[str, Any], expected: dict[str, Any]) -> None:
    files = scene(stage="ws")
    _, got = files.begin("t", **arguments)
    out = files.ws
    assert str(got).replace(out, "OUT") == str(expected)


def test_a_new_file_crosses_and_is_the_same_in_the_next_call() -> None:
    files = scene()
    channel, got = files.begin("create", path=f"{NEW}a/book.xlsx")
    files.disk.write(got["path"], b"one")
    (first,) = artifacts(result := files.end(channel, f"Created {got['path']}"))
    assert first["filename"] == "book.xlsx"
    assert texts(result).startswith(f"Created {first['artifact_uri']}")

    channel, again = files.begin("append", path=f"{NEW}a/book.xlsx")
    assert again == got
    files.disk.write(got["path"], b"two")
    (second,) = artifacts(files.end(channel, "done"))
    assert second["artifact_uri"] != first["artifact_uri"]

    channel, again = files.begin("read", path=f"{NEW}a/book.xlsx")
    assert again == got
    result = files.end(channel, f"{got['path']} has one sheet")
    assert artifacts(result) == []
    assert second["artifact_uri"] in texts(result)


def test_a_copy_that_a_tool_has_changed_replaces_its_artifact() -> None:
    files = scene()
    (first,) = artifacts(files.call("t", writes={"a.txt": b"one"}))
    channel, got = files.begin("t", path=first["artifact_uri"])
    files.disk.write(got["path"], b"two")
    (second,) = artifacts(files.end(channel, "done"))
    assert (second["version"], second["replaces"]) == (2, first["artifact_uri"])


def test_a_refusal_shows_the_uri_in_place_of_the_path() -> None:
    files = scene()
    channel, got = files.begin("read", path=f"{NEW}absent.txt")
    assert texts(files.end(channel, f"no such file: {got['path']}", isError=True)) == f"no such file: {NEW}absent.txt"


def test_a_folder_gets_files() -> None:
    files = scene()
    channel, got = files.begin("split", folder=f"{NEW}pages/")
    files.disk.write(f"{got['folder']}/1.png", b"1")
    files.disk.write(f"{got['folder']}/2.png", b"2")
    assert names(files.end(channel, "done")) == ["1.png", "2.png"]


def test_a_file_that_was_not_written_is_told() -> None:
    files = scene()
    assert told(files.call("t", arguments={"path": f"{NEW}a.txt"})) == f"{NEW}a.txt: no file is there"


def test_a_uri_without_a_name_is_refused_before_the_call() -> None:
    files = scene()
    channel, got = files.begin("t", path=f"{NEW}../x/{'y/' * NEW_FILE_PARTS_MAX}z")
    assert got == {}
    assert "expected a name of up to" in texts(files.only_message(channel))


@pytest.mark.parametrize("tool", ["named", "other"])
def test_adapters_know_new_files(tool: str) -> None:
    """An adapter's output argument takes one, and so does a tool that no adapter names."""
    files = scene(auto_files=None, producers=(tools("named", output_path_argument="out"),))
    channel, got = files.begin(tool, out=f"{NEW}a/report")
    assert got["out"] == f"{files.base}/out/a/report"
    files.disk.write(got["out"], b"text")
    assert names(files.end(channel, "done")) == ["report"]
    _, again = files.begin(tool, out=f"{NEW}a/report")
    assert again == got


def test_an_argument_for_uploads_takes_a_new_file_as_a_path() -> None:
    consumers = (
        UploadConsumer(tools=("edit",), file_path_argument="path"),
        UploadConsumer(tools=("send",), file_path_argument="data", deliver=Deliver.BASE64),
    )
    files = scene(auto_files=None, consumers=consumers, producers=(tools("edit"),))
    channel, got = files.begin("edit", path=f"{NEW}a.txt", also=f"{NEW}b.txt")
    out = f"{files.base}/out"
    assert got == {"path": f"{out}/a.txt", "also": f"{out}/b.txt"}
    files.disk.write(got["path"], b"a")
    files.end(channel, "done")
    channel, got = files.begin("send", data=f"{NEW}a.txt")
    assert "a name for a new file, where the tool takes a file's content" in texts(files.only_message(channel))


def test_paths_are_mapped_for_a_server_elsewhere() -> None:
    files = scene(shared=(SharedFolder("/w", "/mnt/w"),))
    channel, got = files.begin("t", path=f"{NEW}a.txt")
    assert got["path"] == f"/mnt{files.base}/out/a.txt"
    files.disk.write(f"{files.base}/out/a.txt", b"a")
    assert names(files.end(channel, "done")) == ["a.txt"]


# --- Files that stay behind -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_auto", [True, False])
def test_a_file_written_outside_of_the_session_is_told(is_auto: bool) -> None:
    locator = OutputLocator(mode=LocatorMode.REGEX)
    files = scene() if is_auto else scene(auto_files=None, producers=(tools("t", output_locator=locator),))
    text = "done" if is_auto else "Saved as /home/me/z.docx"
    result = files.call("t", text, writes={"/home/me/z.docx": b"z"}, arguments={"path": "/home/me/z.docx"})
    assert artifacts(result) == []
    why = told(result)
    assert "z.docx: written to /home/me/z.docx on the server's machine" in why
    assert f"{NEW}z.docx" in why


@pytest.mark.parametrize(
    "arguments",
    [{"command": "echo hi > '/home/me/z.txt' && date"}, {"sql": "COPY t TO '/home/me/z.txt' (HEADER)"}],
)
def test_a_path_within_a_text_is_told(arguments: dict[str, str]) -> None:
    why = told(scene().call("t", writes={"/home/me/z.txt": b"z"}, arguments=arguments))
    assert f"{NEW}z.txt in place of that path" in why


def test_files_with_numbers_are_told_by_their_folder() -> None:
    files = scene()
    files.disk.write("/home/me/x/", b"1")  # the disk of the tests has folders by their names alone
    arguments = {"to": "/home/me/x/frame_%03d.png"}
    files.call("t", arguments=arguments)
    assert ("/home/me/x",) in files.world.last(Survey).named
    channel, got = files.begin("t", to=f"{NEW}x/frame_%03d.png")
    files.disk.write(got["to"] % 1, b"1")
    assert names(files.end(channel, "done")) == ["frame_001.png"]


def test_a_file_that_nobody_asked_for_there_is_the_operators() -> None:
    files = scene()
    assert "Only the operator of the server" in told(
        files.call("t", "See /home/me/z.pdf", writes={"/home/me/z.pdf": b"z"})
    )
    (note,) = [note for note in files.world.every(Note) if "/home/me/z.pdf" in note.text]
    assert note.server == "s"


@pytest.mark.parametrize(
    ("arguments", "text", "told_uri"),
    [
        ({"to": "/home/me"}, "See /home/me/z.txt", f"{NEW}me/"),
        ({"to": "/home/me", "path": "/home/me/z.txt"}, "done", f"{NEW}z.txt"),
        ({"path": "/home/me/z"}, "See /home/me/z.txt", f"{NEW}z.txt"),
    ],
)
def test_of_a_folder_and_a_file_in_it_one_is_told(arguments: dict[str, str], text: str, told_uri: str) -> None:
    files = scene()
    why = told(files.call("t", text, writes={"/home/me/z.txt": b"z"}, arguments=arguments))
    assert why.count("outside of this session") == 1
    assert f"call the tool again with {told_uri} in place" in why


def test_a_new_file_that_got_another_ending_is_not_missing() -> None:
    files = scene(stage="ws")
    channel, got = files.begin("t", path=f"{NEW}report")
    files.disk.write(f"{got['path']}.docx", b"d")
    result = files.end(channel, "done")
    assert names(result) == ["report.docx"]
    assert not told(result)


def test_a_path_of_the_client_is_told_as_that_whatever_else_names_it() -> None:
    files = scene()
    result = files.call(
        "t", "done", writes={"/home/me/z.txt": b"z"}, arguments={"path": "/home/me/z.txt"},
        structuredContent={"path": "/home/me/z.txt"},
    )  # fmt: skip
    assert f"{NEW}z.txt in place of that path" in told(result)


def test_it_is_told_once_and_again_when_it_changes() -> None:
    files = scene()
    arguments = {"path": "/home/me/z.docx"}
    assert told(files.call("t", writes={"/home/me/z.docx": b"z"}, arguments=arguments))
    assert not told(files.call("t", arguments=arguments))
    assert not told(files.call("t", "It is /home/me/z.docx"))
    assert told(files.call("t", writes={"/home/me/z.docx": b"zz"}, arguments=arguments))


def test_a_file_that_an_adapter_names_is_refused_each_time() -> None:
    locator = OutputLocator(mode=LocatorMode.STRUCTURED, output_path_key="path")
    files = scene(auto_files=None, producers=(tools("t", output_locator=locator),))
    named = {"path": "/home/me/z.docx"}
    first = files.call("t", writes={"/home/me/z.docx": b"z"}, structuredContent=named)
    assert "outside of this session" in told(first)
    again = told(files.call("t", structuredContent=named))
    assert "z.docx" in again and "outside of this session" not in again


def test_it_is_told_when_it_is_named_later_than_it_was_written() -> None:
    files = scene()
    assert not told(files.call("t", writes={"/home/me/z.pdf": b"z"}))
    assert told(files.call("t", "Downloaded to /home/me/z.pdf"))


def test_files_that_the_session_did_not_write_are_not_told() -> None:
    files = scene()
    files.disk.write("/etc/hosts", b"h")
    files.disk.files["/etc/hosts"].changed_at_unix = UNIX_AT_ZERO - 60
    assert not told(files.call("t", "/etc/hosts", arguments={"path": "/etc/hosts"}))


def test_a_tool_that_changes_nothing_has_written_nothing() -> None:
    files = scene()
    assert not told(files.call("look", writes={"/home/me/z.txt": b"z"}, arguments={"path": "/home/me/z.txt"}))


def test_at_the_bound_what_was_told_longest_ago_is_told_again() -> None:
    files = scene(limits=Limits(files_awaited_max=2))
    for name in "abc":
        assert told(files.call("t", writes={f"/x/{name}.txt": b"z"}, arguments={"path": f"/x/{name}.txt"}))
    assert not told(files.call("t", "see /x/c.txt"))
    assert told(files.call("t", "see /x/a.txt"))


def test_an_empty_file_is_told_in_the_text() -> None:
    files = scene()
    assert told(files.call("t", "a.txt", writes={"a.txt": b""})) == "a.txt: it is empty so far"


def test_the_folder_of_the_sessions_folders_is_not_told() -> None:
    files = scene()
    base = files.base
    result = files.call(
        "t", "done", writes={f"{base}/z.txt": b"z"}, structuredContent={"paths": ["..", "../z.txt", "/"]}
    )
    assert "written to /session/z.txt on" in told(result)
    assert base not in str(result)
