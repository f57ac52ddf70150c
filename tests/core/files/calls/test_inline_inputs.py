"""Content in arguments where a handle belongs: stored as an upload, and given to the tool as its adapter says."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from each_row import each_row
from file_scenes import Scene, texts
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import AutoFiles, Deliver, Kind, ServerPlan, UploadConsumer
from isthmus.core.base.storage import Extend, Materialize, StorageFailed
from isthmus.core.files.calls.inline_content import is_inline, read_inline

AUTO = ServerPlan(id="s", kind=Kind.PIPE, auto_files=AutoFiles())


def adapted(argument: str = "p", **more: Any) -> ServerPlan:
    consumer = UploadConsumer(tools=("t",), file_path_argument=argument, **more)
    return ServerPlan(id="s", kind=Kind.PIPE, consumers=(consumer,))


def refusal(scene: Scene, **arguments: object) -> str:
    channel, got = scene.begin("t", **arguments)
    assert not got, "the server got the call"
    result = scene.only_message(channel)
    assert result["isError"] is True
    return texts(result)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


ROWS: list[tuple[object, bytes, str, str | None]] = [
    ("data:,a%20b%C3%A9", "a bé".encode(), "file.txt", "text/plain"),
    ("data:;base64,YWI=", b"ab", "file.txt", "text/plain"),
    ("DATA:text/csv;charset=utf-8,a,b", b"a,b", "file.csv", "text/csv"),
    ("data:image/png;base64,YW\nI=", b"ab", "file.png", "image/png"),
    ("data:image/png;base64,YWI%3D", b"ab", "file.png", "image/png"),
    ("data:application/pdf;name=a%20b.pdf;base64,YWI=", b"ab", "a b.pdf", "application/pdf"),
    ('data:text/plain;filename="../../x.md",hi', b"hi", "x.md", "text/plain"),
    ({"uri": "file:///C:/a%20b.txt", "text": "é"}, "é".encode(), "a b.txt", None),
    ({"uri": "x://h/p?q", "blob": "YWI=", "mimeType": "image/gif"}, b"ab", "p.gif", "image/gif"),
    ({"uri": "", "text": ""}, b"", "file", None),
    ({"type": "resource", "resource": {"uri": "a:/n.json", "text": "{}"}}, b"{}", "n.json", None),
]


@each_row(("value", "data", "filename", "mime_type"), ROWS)
def test_content_is_read(value: object, data: bytes, filename: str, mime_type: str | None) -> None:
    raw = json.dumps(value).encode()
    assert is_inline(raw)
    assert read_inline(raw) == (data, filename, mime_type)


@each_row(
    "value", ["data:text/plain", "data:;base64,!", "data:;base64,YWI", {"uri": "a", "blob": "!"}, {"uri": 1, "text": 2}]
)
def test_content_that_cannot_be_decoded(value: object) -> None:
    raw = json.dumps(value).encode()
    assert is_inline(raw) and read_inline(raw) is None


@each_row(
    "value", ["database", "x data:,a", 5, None, {}, {"uri": "a"}, {"text": "a"}, {"uri": "a", "text": "", "blob": ""}]
)
def test_what_is_no_content(value: object) -> None:
    assert not is_inline(json.dumps(value).encode())


# --- Adapters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["data:text/csv;base64,YSxi", {"uri": "x:/file.csv", "text": "a,b"}])
def test_content_is_placed_like_an_upload(value: object) -> None:
    scene = Scene(adapted())
    _, got = scene.begin("t", p=value, q="data:,left alone")
    assert got["p"].startswith(f"{scene.base}/in/") and got["p"].endswith("/file.csv")
    assert scene.disk.files[got["p"]].data == b"a,b"
    assert got["q"] == "data:,left alone"
    (record,) = (value for key, value in scene.disk.records.items() if key.startswith("upload/"))
    assert json.loads(record)["mime_type"] == "text/csv"


def test_a_list_may_hold_handles_and_content() -> None:
    scene = Scene(adapted("p[*]"))
    handle = scene.upload("a.txt", b"one")
    _, got = scene.begin("t", p=[handle, "data:,two", {"uri": "x:/b.txt", "text": "three"}, "data:,two"])
    assert [scene.disk.files[path].data for path in got["p"]] == [b"one", b"two", b"three", b"two"]


@pytest.mark.parametrize(
    ("deliver", "given"),
    [
        (Deliver.TEXT, "a,b"),
        (Deliver.BASE64, "YSxi"),
        (Deliver.DATA_URI, "data:text/csv;base64,YSxi"),
    ],
)
def test_content_is_delivered_as_the_adapter_says(deliver: Deliver, given: str) -> None:
    _, got = Scene(adapted(deliver=deliver)).begin("t", p="data:text/csv,a%2Cb")
    assert got["p"] == given


def test_where_other_values_pass_content_does() -> None:
    _, got = Scene(adapted(accept_other=True)).begin("t", p="data:,a")
    assert got["p"] == "data:,a"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("data:;base64,!", "Argument p: got content that cannot be decoded"),
        ("data:,123456789", "Argument p: the content has 9 bytes, and at most 8 are taken in an argument"),
        ({"uri": "a", "text": "123456789"}, "at most 8 are taken"),
    ],
)
def test_bad_content_is_refused_with_what_to_do(value: object, text: str) -> None:
    scene = Scene(adapted(), limits=Limits(upload_part_max_bytes=8))
    told = refusal(scene, p=value)
    assert text in told and "call s_put_file with its content, or s_get_upload_url" in told
    assert not scene.disk.blobs and not scene.disk.drafts


def test_a_file_within_the_content_of_another_is_refused() -> None:
    consumers = tuple(UploadConsumer(tools=("t",), file_path_argument=path) for path in ("p", "p.q"))
    scene = Scene(ServerPlan(id="s", kind=Kind.PIPE, consumers=consumers))
    told = refusal(scene, p={"uri": "a", "text": "b", "q": "data:,c"})
    assert told == "Argument p.q: got a file within the content of another, p."


def test_content_counts_as_uploads_do() -> None:
    scene = Scene(adapted("p[*]"), limits=Limits(session_storage_max_bytes=5))
    assert "storage is full" in refusal(scene, p=["data:,abc", "data:,def", "data:,g"])
    assert len([key for key in scene.disk.records if key.startswith("upload/")]) == 1, "the rest is not tried"
    assert not [order for order in scene.disk.orders if isinstance(order, Materialize)]


def test_without_uploads_there_is_no_content() -> None:
    scene = Scene(adapted(), uploads_enabled=False)
    assert "uploads are switched off" in refusal(scene, p="data:,a")


def test_content_that_cannot_be_stored_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(adapted())
    monkeypatch.setattr(
        scene.disk, "_carry_out", lambda order: StorageFailed("no disk") if isinstance(order, Extend) else None
    )
    assert "Argument p: The content could not be stored: no disk" in refusal(scene, p="data:,a")


def test_a_call_that_is_cancelled_meanwhile_is_not_sent() -> None:
    scene = Scene(adapted())
    channel = scene.client.request("7", "tools/call", json.dumps({"name": "t", "arguments": {"p": "data:,a"}}))
    scene.world.end(channel)
    scene.client.notify("notifications/cancelled", '{"requestId":7}')
    scene.disk.settle()
    assert not scene.world.was_sent("tools/call")


# --- files: auto ------------------------------------------------------------------------------------------------------


def auto(schema: dict[str, object]) -> Scene:
    scene = Scene(AUTO)
    channel = scene.client.request('"tools"', "tools/list")
    tool = {"name": "t", "inputSchema": {"type": "object", "properties": schema}}
    scene.world.answer(scene.world.take_sent("tools/list"), json.dumps({"tools": [tool]}))
    assert scene.only_message(channel)
    return scene


STRING: dict[str, object] = {"type": "string"}


@each_row(
    ("key", "schema", "is_file"),
    [
        ("path", STRING, True),
        ("filePath", STRING, True),
        ("input_file", STRING, True),
        ("source", STRING | {"description": "Path of the image."}, True),
        ("files", {"type": "array", "items": STRING}, True),
        ("uri", STRING, False),
        ("url", STRING | {"description": "The path or URL of an image."}, True),
        ("image", STRING | {"description": "An image, as a URL."}, False),
        ("path", STRING | {"format": "uri"}, False),
        ("content", STRING, False),
        ("profile", STRING, False),
    ],
)
def test_a_data_uri_becomes_a_file_where_the_tool_takes_paths(
    key: str, schema: dict[str, object], is_file: bool
) -> None:
    scene, uri = auto({key: schema}), "data:text/plain;base64,aGVsbG8="
    value: object = [uri] if schema["type"] == "array" else uri
    _, got = scene.begin("t", **{key: value})
    (found,) = got[key] if isinstance(value, list) else [got[key]]
    assert (found != uri) is is_file
    assert not is_file or scene.disk.files[found].data == b"hello"


@each_row("value", ["see data:,a", {"path": "data:,a"}, ["x", 5], {"uri": "a:/b", "text": "c"}])
def test_anything_else_is_left_to_the_tool(value: object) -> None:
    _, got = auto({"path": STRING}).begin("t", path=value)
    assert got["path"] == value


def test_before_the_tools_were_listed_nothing_is_known_of_them() -> None:
    _, got = Scene(AUTO).begin("t", path="data:,a")
    assert got["path"] == "data:,a"
