"""Tests of the inputs of calls: each file is laid out once, in the form that its place needs, or its absence is an
error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from file_scenes import Scene, texts
from isthmus.core.base.plan import AutoFiles, Deliver, Kind, ServerPlan, UploadConsumer
from isthmus.core.base.storage import Fetch, Materialize

AUTO = ServerPlan(id="s", kind=Kind.PIPE, auto_files=AutoFiles())
SID, ID = "a" * 32, "b" * 32


def consuming(deliver: Deliver) -> ServerPlan:
    return ServerPlan(
        id="s",
        kind=Kind.PIPE,
        consumers=(UploadConsumer(tools=("t",), file_path_argument="data", deliver=deliver),),
    )


def scene_of(*tools: dict[str, Any]) -> Scene:
    """Returns a client that has listed the server's tools."""
    scene = Scene(AUTO)
    channel = scene.client.request('"tools"', "tools/list")
    listed = [{"inputSchema": {}, **tool} for tool in tools]
    scene.world.answer(scene.world.take_sent("tools/list"), json.dumps({"tools": listed}))
    assert scene.only_message(channel)
    return scene


def refuse(scene: Scene, channel: Any, got: dict[str, Any], key: str = "p") -> None:
    """Answers as a tool that wanted a URI and got a path."""
    text = f"Unsupported URI scheme: {got[key]}. Supported: file:"
    content = {"content": [{"type": "text", "text": text}], "isError": True}
    scene.world.answer(scene.received, json.dumps(content))
    scene.disk.settle()


def is_uri(scene: Scene, handle: str, tool: str = "t", key: str = "p") -> bool:
    """True if the argument gets a URI now."""
    channel, got = scene.begin(tool, **{key: handle})
    scene.end(channel, "fine")
    assert str(got[key]).endswith("/a.txt")
    return str(got[key]).startswith("file:///")


# --- Refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_learned"),
    [("{}", True), ("see {}", False), ("file://{}", False), ("file://{} and more", False)],
)
def test_only_the_refusal_of_a_whole_argument_teaches_its_form(text: str, is_learned: bool) -> None:
    """The refusal of a path within a text, or of a URI, teaches nothing."""
    scene = scene_of({"name": "t"})
    handle = scene.upload("a.txt", b"hello")
    channel, got = scene.begin("t", p=text.format(handle))
    refuse(scene, channel, got)
    assert scene.only_message(channel)["isError"] is True
    assert is_uri(scene, handle) is is_learned


def test_the_learnt_form_is_of_one_argument_of_one_tool() -> None:
    scene = scene_of({"name": "t"}, {"name": "u"})
    handle = scene.upload("a.txt", b"hello")
    channel, got = scene.begin("t", p=handle, q="x")
    refuse(scene, channel, got)
    assert is_uri(scene, handle)
    assert not is_uri(scene, handle, tool="u")
    assert not is_uri(scene, handle, key="q")


@pytest.mark.parametrize("hint", ["readOnlyHint", "idempotentHint"])
def test_a_harmless_call_is_repeated_once_with_the_learnt_form(hint: str) -> None:
    scene = scene_of({"name": "t", "annotations": {hint: True}})
    handle = scene.upload("a.txt", b"hello")
    channel, got = scene.begin("t", p=handle)
    assert got["p"].startswith("/")
    refuse(scene, channel, got)
    assert not scene.world.messages(channel)
    scene.received = scene.world.take_sent("tools/call")
    again = scene.received.frame["params"]["arguments"]
    assert again["p"] == "file://" + got["p"]
    refuse(scene, channel, again)
    assert scene.only_message(channel)["isError"] is True
    assert not scene.world.was_sent("tools/call")


def test_a_schema_gives_the_form_without_a_refusal() -> None:
    properties = {"p": {"type": "string", "format": "uri"}, "q": {"type": "string"}}
    scene = scene_of({"name": "t", "inputSchema": {"properties": properties}})
    handle = scene.upload("a.txt", b"hello")
    assert is_uri(scene, handle)
    assert not is_uri(scene, handle, key="q")
    channel, got = scene.begin("t", p=f"see {handle}")
    assert got["p"].startswith("see /")
    scene.end(channel, "fine")


# --- Forms ------------------------------------------------------------------------------------------------------------


def test_a_file_that_is_named_often_is_laid_out_once() -> None:
    scene = scene_of({"name": "t"})
    one, two = scene.upload("a.txt", b"1"), scene.upload("b.txt", b"2")
    _, got = scene.begin("t", p=[one, two, one], q=f"{two} and {one}")
    a, b = got["p"][:2]
    assert (got["p"], got["q"]) == ([a, b, a], f"{b} and {a}")
    assert a.endswith("/a.txt")
    assert b.endswith("/b.txt")
    orders = scene.world.every(Materialize)
    assert [order.filename for order in orders] == ["a.txt", "b.txt"]
    assert [order.upload for order in orders] == [handle.split("/")[4] for handle in (one, two)]
    assert not scene.world.every(Fetch)


@pytest.mark.parametrize("deliver", Deliver)
def test_a_file_is_laid_out_or_read_or_neither_as_its_place_wants_it(deliver: Deliver) -> None:
    scene = Scene(consuming(deliver))
    handle = scene.upload("a.txt", b"hello")
    _, got = scene.begin("t", data=handle)
    counts = len(scene.world.every(Materialize)), len(scene.world.every(Fetch))
    expected = {
        Deliver.PATH: ((1, 0), "/w/"),
        Deliver.FILE_URI: ((1, 0), "file:///w/"),
        Deliver.DATA_URI: ((0, 1), "data:"),
        Deliver.BASE64: ((0, 1), "aGVsbG8="),
        Deliver.TEXT: ((0, 1), "hello"),
        Deliver.URL: ((0, 0), "http://here/artifacts/s/"),
    }[deliver]
    assert (counts, got["data"][: len(expected[1])]) == expected


# --- Missing files ----------------------------------------------------------------------------------------------------


def complaint(scene: Scene, **arguments: object) -> str:
    channel, got = scene.begin("t", **arguments)
    assert not got
    result = scene.only_message(channel)
    assert result["isError"] is True
    return texts(result)


@pytest.mark.parametrize("name", ["", "/" + "n" * 200])
def test_the_error_of_an_unknown_upload_names_it(name: str) -> None:
    """The error quotes the beginning of the handle, and says what to do."""
    handle = f"upload://sessions/{SID}/{ID}{name}"
    assert complaint(Scene(AUTO), p=handle) == (
        f"Unknown upload handle {handle[:160]}: it has expired, or belongs to another client. "
        "Upload the file again: call s_put_file with its content, or s_get_upload_url and POST the file to the "
        "upload_url it gives, and pass the upload handle from the response."
    )


@pytest.mark.parametrize("name", ["/a", "/" + "n" * 200])
def test_the_error_of_an_unknown_artifact_names_it(name: str) -> None:
    handle = f"artifact://sessions/{SID}/{ID}{name}"
    assert complaint(Scene(AUTO), p=handle) == (
        f"Unknown artifact {handle[:160]}: it has expired, or belongs to another client. "
        "Call the tool that made it again, or upload the file."
    )


def test_the_error_of_an_unreadable_upload_names_it() -> None:
    scene = Scene(AUTO)
    handle = scene.upload("a.txt", b"hello")
    scene.disk.blobs.clear()
    text = complaint(scene, p=handle)
    assert text.startswith("The uploaded file a.txt cannot be handed to the tool: ")
