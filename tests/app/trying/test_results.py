"""Tests of results for people: texts, and files to save."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.app.base.errors import Failed
from isthmus.app.trying.files import put_tool, save, takers
from isthmus.app.trying.results import File, Shown, shown_prompt, shown_resource, shown_result

BYTES = base64.b64encode(b"bytes").decode()
TEXT = {"type": "text", "text": "hello"}
LINK = {"type": "resource_link", "uri": "artifact://s/1/q3.png", "name": "q3.png", "mimeType": "image/png", "size": 7}
ARTIFACT = {"artifact_uri": "artifact://s/1/q3.png", "filename": "q3.png", "mime_type": "image/png", "size_bytes": 7}
KEYS = (
    "content",
    "contents",
    "messages",
    "type",
    "text",
    "data",
    "uri",
    "resource",
    "blob",
    "_meta",
    "artifact",
    "name",
)
JSON = st.recursive(
    st.none() | st.integers() | st.sampled_from(["text", "image", "resource", "resource_link", "http://[", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("result", "texts", "files"),
    [
        ({"content": [TEXT], "structuredContent": {"a": 1}}, ["hello"], []),
        ({"content": [], "structuredContent": {"a": 1}}, ['{\n  "a": 1\n}'], []),
        (
            {"content": [{"type": "image", "data": BYTES, "mimeType": "image/png"}]},
            [],
            [File("draw.png", "image/png", b"bytes", "", 5)],
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "a://b/c%20d.bin", "blob": BYTES}}]},
            [],
            [File("c d.bin", "", b"bytes", "", 5)],
        ),
        (
            {"content": [LINK], "_meta": {"artifact": ARTIFACT}},
            [],
            [File("q3.png", "image/png", None, "artifact://s/1/q3.png", 7)],
        ),
        (
            {"content": [TEXT], "_meta": {"artifact": ARTIFACT}},
            ["hello"],
            [File("q3.png", "image/png", None, "artifact://s/1/q3.png", 7)],
        ),
        ({"content": [{"type": "hologram"}]}, ['{\n  "type": "hologram"\n}'], []),
    ],
)
def test_a_result_is_texts_and_files(result: dict[str, Any], texts: list[str], files: list[File]) -> None:
    assert shown_result(result, "draw") == Shown(texts, files, False)
    assert shown_result({**result, "isError": True}, "draw").is_error


def test_messages_of_a_prompt_stand_under_their_roles() -> None:
    image = {"role": "assistant", "content": {"type": "image", "data": BYTES, "mimeType": "image/png"}}
    shown = shown_prompt({"messages": [{"role": "user", "content": TEXT}, image]}, "ask")
    assert shown.texts == ["user:\nhello\n\nassistant:\n[ask.png (image/png, 5 B)]"]


@given(result=JSON)
def test_any_result_of_a_server_is_shown(result: Any) -> None:
    """No shape of a result ends the command, and no name of a file leaves its folder."""
    result = result if isinstance(result, dict) else {"content": result}
    for shown in (shown_result(result, "../t"), shown_resource(result, "a://b/.."), shown_prompt(result, "p")):
        assert all(file.name and "/" not in file.name and not file.name.startswith(".") for file in shown.files)
        assert all(file.label.isprintable() for file in shown.files)


def test_a_saved_file_replaces_none(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"

    async def save_three() -> list[str]:
        return [Path(await save(str(folder), "a.b.png", data)).name for data in (b"1", b"2", b"3")]

    assert anyio.run(save_three) == ["a.b.png", "a.b-1.png", "a.b-2.png"]
    assert [path.read_bytes() for path in sorted(folder.iterdir())] == [b"2", b"3", b"1"]
    (tmp_path / "file").touch()
    with pytest.raises(Failed, match="cannot be written"):
        anyio.run(save, str(tmp_path / "file"), "a", b"")


PUT = {"properties": {key: {} for key in ("filename", "text", "base64", "more", "append_to")}}
TOOLS = [{"name": "notes_put_file", "inputSchema": PUT}, {"name": "my_put_file", "inputSchema": {}}, {"name": "read"}]
OTHERS = [{"name": f"{alias}__{alias}_put_file", "inputSchema": PUT} for alias in ("a", "b")]


def test_the_tool_that_takes_files_is_that_of_the_same_server() -> None:
    assert put_tool(TOOLS, "read") == "notes_put_file"
    assert put_tool(TOOLS[1:], "read") == ""
    assert [put_tool(OTHERS, f"{alias}__read") for alias in "abc"] == ["a__a_put_file", "b__b_put_file", ""]


@pytest.mark.parametrize(
    ("note", "about", "taken"),
    [
        (
            "Reads.\n\nWhere `path` names a file to read, pass its upload:// handle (get one with x_put_file).",
            "",
            ["path"],
        ),
        ("Where an argument names a file to read, pass … (get one with x_put_file).", "", ["path", "text"]),
        ("To write a new file, pass artifact://new/NAME as `path`.", "", []),
        (
            "Files are passed as upload:// handles: call x_put_file.",
            "Takes handles (get them with x_put_file).",
            ["path"],
        ),
        ("Reads files; see x_put_file.", "", []),
    ],
)
def test_the_arguments_that_take_files_are_those_of_the_notes(note: str, about: str, taken: list[str]) -> None:
    schema = {"properties": {"path": {"type": "string", "description": about}, "text": {"type": "string"}}}
    tool = {"name": "t", "description": note, "inputSchema": schema}
    assert takers(tool, "x_put_file") == taken
    assert takers(tool, "") == []
