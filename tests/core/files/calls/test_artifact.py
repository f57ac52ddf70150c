"""Tests of artifacts in results: outputs are located in the forms of real servers, and what is added to a result
changes nothing else in it."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.plan import ArtifactProducer, LocatorMode, OutputLocator
from isthmus.core.base.storage import FileSource, InlineSource
from isthmus.core.bridge.content import tool_error
from isthmus.core.files.calls.artifact import Artifact, attach, attach_error, locate, raw_block
from isthmus.core.jsonrpc.splice import members, take

NONE, REGEX, STRUCTURED, EMBEDDED = LocatorMode.NONE, LocatorMode.REGEX, LocatorMode.STRUCTURED, LocatorMode.EMBEDDED


def producer(mode: LocatorMode, key: str | None = None, *regexes: str) -> ArtifactProducer:
    locator = OutputLocator(mode=mode, output_path_key=key, output_path_regexes=regexes)
    return ArtifactProducer(tools=("t",), output_locator=locator)


def result_of(*texts: str, **more: object) -> bytes:
    return json.dumps({"content": [{"type": "text", "text": text} for text in texts], **more}).encode()


# --- Sources ----------------------------------------------------------------------------------------------------------


def test_all_text_blocks_make_one_source() -> None:
    result = result_of("saved /a/1.txt", "and /a/2.txt")
    assert locate(result, producer(REGEX, None, r"/a/\S+"), None, 8) == [FileSource(("/a/1.txt", "/a/2.txt"))]


def test_structured_values_are_a_source_each() -> None:
    structured = {"files": [{"path": "/a/my 1.png"}, {"path": 5}, {"path": "file:///a/2%20b.png"}, {}], "one": "/x"}
    result = result_of(structuredContent=structured)
    found = locate(result, producer(STRUCTURED, "files[*].path"), None, 8)
    assert [source.candidates[0] for source in found if isinstance(source, FileSource)] == ["/a/my 1.png", "/a/2 b.png"]
    assert locate(result, producer(STRUCTURED, "files[*].path"), None, 1) == found[:1]
    assert locate(result, producer(STRUCTURED, "one"), None, 8) == [FileSource(("/x",))]
    assert locate(result, producer(STRUCTURED, "one.deeper"), None, 8) == []


def block(kind: str, data: bytes, mime: str) -> dict[str, object]:
    return {"type": kind, "data": base64.b64encode(data).decode(), "mimeType": mime}


def test_every_embedded_block_is_a_source() -> None:
    content = [
        {"type": "text", "text": "two images, a sound, resources"},
        block("image", b"one", "image/png"),
        block("audio", b"sound", "audio/wav"),
        block("image", b"two", "image/jpeg"),
        {"type": "image", "data": "not base64!", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "demo://x/a%20b.csv?v=1", "mimeType": "text/csv", "text": "é"}},
        {"type": "resource", "resource": {"uri": "memo://insights", "text": ""}},
        {"type": "resource", "resource": {"uri": "demo://x/..", "blob": "AA\nA=\n"}},
        {"type": "resource"},
        {"type": "resource_link", "uri": "demo://x/y", "name": "y"},
        block("image", b"three", "image/unheard-of"),
    ]
    assert locate(json.dumps({"content": content}).encode(), producer(EMBEDDED), None, 64) == [
        InlineSource(b"one", "image-1.png", "image/png"),
        InlineSource(b"sound", "audio-1.wav", "audio/wav"),
        InlineSource(b"two", "image-2.jpg", "image/jpeg"),
        InlineSource("é".encode(), "a b.csv", "text/csv"),
        InlineSource(b"", "resource-2.txt", None),
        InlineSource(b"\0\0", "resource-3.bin", None),
        InlineSource(b"three", "image-3.bin", "image/unheard-of"),
    ]


def test_an_allocated_path_is_tried_before_what_the_result_names() -> None:
    result = result_of("saved to /a/out.png not /o/x.png", structuredContent={"p": ["/a/1", "/a/2"]})
    assert locate(result, producer(NONE), "/o/x.png", 8) == [FileSource(("/o/x.png",))]
    assert locate(result, producer(REGEX, None, r"/\S+\.png"), "/o/x.png", 8) == [
        FileSource(("/o/x.png", "/a/out.png"))
    ]
    found = locate(result, producer(STRUCTURED, "p[*]"), "/o/x.png", 8)
    assert found == [FileSource(("/o/x.png", "/a/1")), FileSource(("/a/2",))]
    assert locate(result, producer(EMBEDDED), "/o/x.png", 8) == [FileSource(("/o/x.png",))]


@each_row("mode", list(LocatorMode))
@each_row(
    "result",
    [
        b"{}",
        b'{"content":[]}',
        b'{"content":null}',
        b'{"content":{"type":"text"}}',
        b'{"content":[5,null,[],{"type":"text"},{"type":5,"text":"/a"},{"text":"/a/b.png"}]}',
        b'{"content":[{"type":"image","data":"","data":"AAAA"}]}',
        b'{"content":[],"content":[{"type":"text","text":"/a/b.png"}]}',
        b"5",
        b"[]",
        b'"/a/b.png"',
        b"",
    ],
)
def test_a_result_of_any_shape_without_a_path_has_no_outputs(mode: LocatorMode, result: bytes) -> None:
    assert locate(result, producer(mode, "p"), None, 8) == []


def test_a_failed_call_has_no_outputs() -> None:
    result = result_of("Access denied: /etc/hostname", isError=True)
    assert locate(result, producer(REGEX), "/o/x.png", 8) == []


def test_half_a_surrogate_pair_hides_no_path() -> None:
    result = b'{"content":[{"type":"text","text":"cut \\ud83d and /a/b.png"}]}'
    assert locate(result, producer(REGEX, None, r"/a/\S+"), None, 8) == [FileSource(("/a/b.png",))]


# --- Additions --------------------------------------------------------------------------------------------------------

ARTIFACT = Artifact(
    artifact_uri="artifact://sessions/s/a/%C3%A9.png",
    artifact_id="a",
    filename="é.png",
    mime_type="image/png",
    size_bytes=3,
    sha256="00",
    expose_as_resource=True,
    expires_at_unix=1795292747.9,
    download_url="http://h/é",
)
HIDDEN = Artifact(
    artifact_uri="artifact://sessions/s/b/b",
    artifact_id="b",
    filename="b",
    mime_type="text/plain",
    size_bytes=1,
    sha256="11",
    expose_as_resource=False,
)


NEWER = msgspec.structs.replace(ARTIFACT, version=3, replaces="artifact://sessions/s/0/a.png")
URI, HIDDEN_URI = ARTIFACT.artifact_uri, HIDDEN.artifact_uri
OLD = "(version 3; replaces artifact://sessions/s/0/a.png)"


def test_an_artifact_is_described_linked_and_offered() -> None:
    attached = json.loads(attach(result_of("done"), [ARTIFACT, HIDDEN], resource_links=True))
    described = {
        "artifact_uri": "artifact://sessions/s/a/%C3%A9.png",
        "artifact_id": "a",
        "filename": "é.png",
        "mime_type": "image/png",
        "size_bytes": 3,
        "sha256": "00",
        "expose_as_resource": True,
        "expires_at": "2026-11-21T20:25:47Z",
        "download_url": "http://h/é",
        "version": 1,
    }
    assert attached["_meta"]["artifact"] == described
    assert [entry["artifact_id"] for entry in attached["_meta"]["artifacts"]] == ["a", "b"]
    assert set(attached["_meta"]["artifacts"][1]) == set(described) - {"expires_at", "download_url"}
    text, link, download, hidden = attached["content"]
    assert text == {"type": "text", "text": "done"}
    assert link == {"type": "resource_link", "uri": URI, "name": "é.png", "mimeType": "image/png", "size": 3}
    assert download == {"type": "text", "text": f"{URI}, download: http://h/é"}
    assert hidden == {"type": "text", "text": HIDDEN_URI}


def test_a_later_version_says_what_it_replaces() -> None:
    attached = json.loads(attach(b"{}", [NEWER], resource_links=True))
    assert (attached["_meta"]["artifact"]["version"], attached["_meta"]["artifact"]["replaces"]) == (3, NEWER.replaces)
    assert attached["content"][-1]["text"] == f"{URI} {OLD}, download: http://h/é"


def told(text: str | None, *artifacts: Artifact, **options: Any) -> list[str]:
    """Returns the texts of a result with one text, or none, and these artifacts."""
    result = b'{"content":[{"type":"image"}]}' if text is None else result_of(text)
    content = json.loads(attach(result, artifacts, **({"resource_links": True, "may_extend": True} | options)))[
        "content"
    ]
    return [block["text"] for block in content if block["type"] == "text"]


SILENT = msgspec.structs.replace(ARTIFACT, download_url=None)
SILENT_NEWER = msgspec.structs.replace(NEWER, download_url=None)


@each_row(
    ("text", "artifact", "texts"),
    [
        ("done", ARTIFACT, [f"done\nFile: {URI}", "Download: http://h/é"]),
        ("done\n", SILENT, [f"done\nFile: {URI}"]),
        ("", SILENT, [f"File: {URI}"]),
        (f"at {URI}.", ARTIFACT, [f"at {URI}.", "Download: http://h/é"]),
        (f"at {URI}.", SILENT, [f"at {URI}."]),
        (f"at {URI}.", NEWER, [f"at {URI}.", f"Download {OLD}: http://h/é"]),
        (f"at {URI}.", SILENT_NEWER, [f"at {URI}.\nFile: {URI} {OLD}"]),
        ("done", NEWER, [f"done\nFile: {URI} {OLD}", "Download: http://h/é"]),
        ('{"a":1}', SILENT, ['{"a":1}', URI]),
        (" [1]\n", ARTIFACT, [" [1]\n", f"{URI}, download: http://h/é"]),
        (f'{{"a":"{URI}"}}', SILENT_NEWER, [f'{{"a":"{URI}"}}', f"{URI} {OLD}"]),
        ("x" * 1000, SILENT, ["x" * 1000 + f"\nFile: {URI}"]),
        ("x" * 1001, SILENT, ["x" * 1001, URI]),
        ("[x] done", SILENT, [f"[x] done\nFile: {URI}"]),
        (None, SILENT, [URI]),
        (None, NEWER, [f"{URI} {OLD}, download: http://h/é"]),
    ],
)
def test_a_text_has_the_uri_and_one_the_link(text: str | None, artifact: Artifact, texts: list[str]) -> None:
    assert told(text, artifact) == texts


def test_without_leave_to_extend_it_the_first_text_stays() -> None:
    assert told("done", ARTIFACT, may_extend=False) == ["done", f"{URI}, download: http://h/é"]


def test_texts_may_be_left_out_where_there_are_links() -> None:
    """An artifact without a link, and a client that knows none, gets a text all the same."""
    assert told("done", ARTIFACT, has_texts=False) == ["done"]
    assert told("done", ARTIFACT, HIDDEN, has_texts=False) == [f"done\nFile: {HIDDEN_URI}"]
    assert told("done", SILENT, has_texts=False, resource_links=False) == [f"done\nFile: {URI}"]


def test_without_links_everything_is_text() -> None:
    attached = json.loads(attach(b"{}", [ARTIFACT], resource_links=False, inline=[(ARTIFACT, "x")]))
    assert set(attached["_meta"]) == {"artifact"}
    texts = [f"{URI}:\nx", "Download: http://h/é"]
    assert attached["content"] == [{"type": "text", "text": text} for text in texts]


def test_the_text_of_small_artifacts_is_put_into_the_result() -> None:
    """The block is a resource if the revision has resource links, else a text that names the artifact."""
    for resource_links in (True, False):
        attached = attach(b"{}", [HIDDEN], resource_links=resource_links, inline=[(HIDDEN, "é\n")])
        held = {"uri": HIDDEN_URI, "mimeType": "text/plain", "text": "é\n"}
        text = {"type": "text", "text": f"{HIDDEN_URI}:\né\n"}
        expected = {"type": "resource", "resource": held} if resource_links else text
        assert json.loads(attached)["content"][0] == expected


def test_added_blocks_have_a_fixed_order() -> None:
    """The order is the content itself, texts, links, downloads."""
    attached = attach(
        result_of("done"), [ARTIFACT], resource_links=True, raw=[b'{"type":"image"}'], inline=[(ARTIFACT, "t")]
    )
    kinds = [block["type"] for block in json.loads(attached)["content"]]
    assert kinds == ["text", "image", "resource", "resource_link", "text"]


@given(
    text=st.text(st.characters(codec="utf-8")) | st.just('a"\\\n\u2028') | st.just("[1]"),
    before=st.lists(st.sampled_from([b"5", b'{"type":"text","text":7}', b'{"type":"image","data":"x"}']), max_size=2),
)
def test_a_line_is_added_to_the_first_text_and_nothing_else_changes(text: str, before: list[bytes]) -> None:
    first, last = (b'{"n":1.0, "type":"text","text": %b,"z":[ ]}' % json.dumps(each).encode() for each in (text, "b"))
    result = b'{ "content":[%b] ,"x":0}' % b",".join([*before, first, last])
    attached = attach(result, [SILENT], resource_links=False, may_extend=True)
    content = json.loads(attached)["content"]
    if (made := content[len(before)]["text"]) == text:
        assert text.strip().startswith(("{", "["))
        assert content[-1] == {"type": "text", "text": URI}
        return
    assert made == (text if text.endswith("\n") or not text else text + "\n") + f"File: {URI}"
    head, tail = result.split(first)
    assert attached.startswith(head + b'{"n":1.0, "type":"text","text": "')
    assert b',"z":[ ]}' + tail.removesuffix(b"}") in attached
    assert len(content) == len(before) + 2


ODD_JSON = st.sampled_from(
    [b"1.0", b"1e400", b'"\\u00e9\\ud800"', b'{ "a":1, "a":2 }', b"[ ]", b"null", b'{"x":[{"y":-0}]}', b'"\\/"']
)


@given(inner=st.lists(ODD_JSON, max_size=3), other=ODD_JSON, space=st.sampled_from([b"", b" ", b"\n\t"]))
def test_everything_that_was_there_keeps_its_bytes(inner: list[bytes], other: bytes, space: bytes) -> None:
    """The result still contains content, `_meta`, structured content and unknown members byte for byte."""
    listed = (b"," + space).join(inner)
    result = b'{%b"content":[%b%b],"structuredContent":%b,%b"_meta":{"k":%b},"x":%b}' % (
        space, space, listed, other, space, other, other,
    )  # fmt: skip
    attached = attach_error(attach(result, [ARTIFACT, HIDDEN], resource_links=True, raw=[b'{"r":1.0}']), "why")
    spans = members(attached)
    content, meta = take(attached, spans["content"]), take(attached, spans["_meta"])
    assert content is not None
    assert content.startswith(b"[" + space + listed)
    assert b'{"r":1.0}' in content
    assert meta is not None
    assert take(meta, members(meta)["k"]) == other
    assert set(members(meta)) == {"k", "artifact", "artifacts", "artifact_error"}
    assert take(attached, spans["structuredContent"]) == other
    assert take(attached, spans["x"]) == other


@pytest.mark.parametrize("result", [b"5", b"[]", b"null", b'{"a":1,"a":2}', b"", b'{"content":5,"_meta":5}'])
def test_a_result_that_cannot_be_added_to_stays(result: bytes) -> None:
    assert attach(result, [ARTIFACT], resource_links=True) == result
    assert attach_error(result, "why") == result


def test_nothing_to_attach_changes_nothing() -> None:
    result = b'{ "content" : [ ] }'
    assert attach(result, [], resource_links=True) == result


@pytest.mark.parametrize(("at_unix", "shown"), [(0.0, "1970-01-01T00:00:00Z"), (1e300, "9999-12-31T23:59:59Z")])
def test_expiry_is_rfc_3339(at_unix: float, shown: str) -> None:
    artifact = Artifact(
        artifact_uri="u", artifact_id="a", filename="f", mime_type="m", size_bytes=0, sha256="",
        expose_as_resource=False, expires_at_unix=at_unix,
    )  # fmt: skip
    assert json.loads(attach(b"{}", [artifact], resource_links=True))["_meta"]["artifact"]["expires_at"] == shown


def test_a_tool_error_is_a_result() -> None:
    assert json.loads(tool_error('say "é"')) == {"content": [{"type": "text", "text": 'say "é"'}], "isError": True}


@pytest.mark.parametrize(
    ("mime", "data", "kind", "member"),
    [
        ("image/png", b"\x89", "image", "data"),
        ("audio/wav", b"\x89", "audio", "data"),
        ("text/plain", b"hi", "resource", "text"),
        ("image/svg+xml", b"<svg/>", "resource", "text"),
        ("text/plain", b"\xff", "resource", "blob"),
        ("application/pdf", b"%PDF", "resource", "blob"),
    ],
)
def test_raw_content_has_the_block_of_its_type(mime: str, data: bytes, kind: str, member: str) -> None:
    made = json.loads(raw_block("f", mime, data, "artifact://x"))
    assert made["type"] == kind
    assert made["_meta"]["size_bytes"] == len(data)
    held = made["resource"] if kind == "resource" else made
    assert (held[member].encode() if member == "text" else base64.b64decode(held[member])) == data
    assert held["mimeType"] == mime
