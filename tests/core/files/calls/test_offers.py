"""Tests of the offers: lists of tools and resources get the proxy's entries and notes, and all other bytes stay."""

from __future__ import annotations

import json
import shlex
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.plan import ArtifactProducer, AutoFiles, Deliver, Kind, ServerPlan, UploadConsumer
from isthmus.core.files.calls.artifact import Artifact
from isthmus.core.files.calls.offers import (
    WORKFLOW_URI,
    UploadedFile,
    announced_problem,
    extend_capabilities,
    extend_resources,
    extend_tools,
    helper_name,
    put_name,
    resource_contents,
    resource_entry,
    upload_offer,
    upload_reply,
    workflow_entry,
    workflow_text,
)
from isthmus.core.files.calls.upload_tools import UploadTools
from isthmus.core.jsonrpc.splice import elements, members, take

SID, UID = "a" * 32, "b" * 32


def server(*paths: str, tool: str = "up") -> ServerPlan:
    consumers = tuple(UploadConsumer(tools=(tool,), file_path_argument=path) for path in paths)
    return ServerPlan(id="files-1", kind=Kind.PIPE, consumers=consumers)


def tool(name: str, schema: object, **more: object) -> dict[str, object]:
    return {"name": name, "inputSchema": schema, **more}


@pytest.mark.parametrize(
    ("server_id", "name"),
    [
        ("files-1", "files_1_get_upload_url"),
        ("a.- b", "a_b_get_upload_url"),
        ("-x-", "x_get_upload_url"),
        ("файл", "server_get_upload_url"),
        ("", "server_get_upload_url"),
    ],
)
def test_the_helper_is_named_after_its_server(server_id: str, name: str) -> None:
    assert helper_name(server_id) == name
    assert put_name(server_id) == name.replace("get_upload_url", "put_file")


def test_the_helper_comes_first_on_the_first_page() -> None:
    page = json.dumps({"tools": [tool("x", {"type": "object"})], "nextCursor": "c"}).encode()
    extended = json.loads(extend_tools(page, server("p"), str, is_first_page=True, offers_uploads=True))
    helper, other = extended["tools"]
    assert other["name"] == "x"
    assert extended["nextCursor"] == "c"
    assert helper["name"] == "files_1_get_upload_url"
    assert helper["title"]
    assert helper["description"]
    assert helper["outputSchema"]["type"] == "object"
    assert helper["annotations"] == {"readOnlyHint": True, "idempotentHint": False, "openWorldHint": False}
    schema = helper["inputSchema"]
    jsonschema.validate({}, schema)
    jsonschema.validate({"filename": "a", "size_bytes": 1, "sha256": "00"}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"other": 1}, schema)
    assert extend_tools(page, server("p"), str, is_first_page=False, offers_uploads=True) == page


@pytest.mark.parametrize(
    ("path", "schema", "where"),
    [
        ("path", {"properties": {"path": {"type": "string"}}}, ["properties", "path"]),
        ("paths", {"properties": {"paths": {"type": "array", "items": {}}}}, ["properties", "paths"]),
        ("paths[*]", {"properties": {"paths": {"type": "array", "items": {}}}}, ["properties", "paths"]),
        (
            "o.file",
            {"properties": {"o": {"properties": {"file": {"description": "A file."}}}}},
            ["properties", "o", "properties", "file"],
        ),
        (
            "fs[*].p",
            {"properties": {"fs": {"items": {"properties": {"p": {}}}}}},
            ["properties", "fs", "items", "properties", "p"],
        ),
        (
            "all[*][*]",
            {"properties": {"all": {"type": "array", "items": {"type": "array", "items": {}}}}},
            ["properties", "all"],
        ),
        (
            "fs.p",
            {"properties": {"fs": {"items": {"properties": {"p": {}}}}}},
            ["properties", "fs", "items", "properties", "p"],
        ),
    ],
)
def test_tools_that_take_files_get_a_note(path: str, schema: dict[str, object], where: list[str]) -> None:
    page = json.dumps({"tools": [tool("up", schema, description="Uploads.")]}).encode()
    extended = json.loads(extend_tools(page, server(path), str, is_first_page=False, offers_uploads=True))["tools"][0]
    assert extended["description"].startswith("Uploads.\n\n")
    assert "files_1_get_upload_url" in extended["description"]
    noted, plain = extended["inputSchema"], json.loads(json.dumps(schema))
    before = plain
    for step in where:
        noted, before = noted[step], before[step]
    assert noted["description"].startswith(before.get("description", ""))
    assert "upload://" in noted["description"]
    before["description"] = noted["description"]
    assert extended["inputSchema"] == plain  # nothing else of the schema changed, its types least of all


@pytest.mark.parametrize(
    "schema", [{}, {"properties": {"other": {}}}, {"properties": {"path": True}}, {"properties": 5}, True, {"items": 5}]
)
def test_a_schema_without_the_argument_stays(schema: object) -> None:
    page = json.dumps({"tools": [tool("up", schema)]}).encode()
    extended = json.loads(extend_tools(page, server("path"), str, is_first_page=False, offers_uploads=True))["tools"][0]
    assert extended["inputSchema"] == schema
    assert "files_1_get_upload_url" in extended["description"]


def listed(server: ServerPlan, *tools: object) -> list[dict[str, Any]]:
    page = json.dumps({"tools": tools}).encode()
    extended = json.loads(extend_tools(page, server, str, is_first_page=False, offers_uploads=True))["tools"]
    assert isinstance(extended, list)
    return extended


def adapted(*consumers: UploadConsumer) -> ServerPlan:
    return ServerPlan(id="files-1", kind=Kind.PIPE, consumers=consumers)


def consumer(*paths: str, **more: Any) -> UploadConsumer:
    return UploadConsumer(tools=("up*",), file_path_argument=paths, **more)


STRINGS = {name: {"type": "string"} for name in ("a", "b", "c")}


def test_each_argument_that_takes_files_gets_one_note() -> None:
    plan = adapted(consumer("a", "b", "b[*]"), consumer("b", uri_scheme="other://"))
    (noted,) = listed(plan, tool("up_1", {"properties": STRINGS}, description="Uploads."))
    properties = noted["inputSchema"]["properties"]
    for name in "ab":
        assert properties[name]["description"].count("files_1_get_upload_url") == 1
        assert "upload://" in properties[name]["description"]
        assert "artifact://" in properties[name]["description"]
    assert properties["c"] == STRINGS["c"]
    assert noted["description"].count("files_1_get_upload_url") == 1


@pytest.mark.parametrize("deliver", Deliver)
def test_notes_tell_whether_the_tool_gets_content(deliver: Deliver) -> None:
    (noted,) = listed(adapted(consumer("a", deliver=deliver)), tool("up", {"properties": STRINGS}))
    gets_content = deliver in (Deliver.DATA_URI, Deliver.BASE64, Deliver.TEXT)
    assert ("content" in noted["inputSchema"]["properties"]["a"]["description"]) is gets_content


def test_notes_say_where_other_values_pass() -> None:
    strict, lax = consumer("a"), consumer("b", accept_other=True)
    (noted,) = listed(adapted(strict, lax), tool("up", {"properties": STRINGS}))
    properties = noted["inputSchema"]["properties"]
    assert properties["a"]["description"].startswith("Takes ")
    assert properties["b"]["description"].startswith("Also takes ")
    assert "not as local paths" in noted["description"]
    (noted,) = listed(adapted(lax), tool("up", {"properties": STRINGS}))
    assert "not as local paths" not in noted["description"]
    assert "may be passed" in noted["description"]


def test_without_adapters_tools_that_name_files_get_one_sentence() -> None:
    plan = ServerPlan(id="files-1", kind=Kind.PIPE, auto_files=AutoFiles())
    opening = tool("open", {"properties": {"path": {"type": "string", "n": 1.0}}}, description="Opens.")
    adding = tool("add", {"properties": {"n": {"type": "integer"}, "why": {"type": "string"}}})
    first, second = listed(plan, opening, adding)
    assert second == adding
    description = first.pop("description")
    assert description.startswith("Opens.\n\n")
    for word in ("upload://", "artifact://", "files_1_get_upload_url"):
        assert description.count(word) == 1
    assert description.count(". ") == 0
    assert first == {name: value for name, value in opening.items() if name != "description"}


@pytest.mark.parametrize(
    ("names", "reads", "writes"),
    [
        (["path", "n"], "`path`", None),
        (["a_path", "b_file"], "`a_path` or `b_file`", None),
        (["output_path", "n"], None, "`output_path`"),
        (["path", "save_path", "png_output_path"], "`path`", "`save_path` or `png_output_path`"),
        (["a_path", "b_path", "c_path"], "`a_path` or `b_path` or `c_path`", None),
        (["a_path", "b_path", "c_path", "d_path"], "an argument", None),
        (["my `quoted` path"], "an argument", None),
        (["x" * 60 + "_path"], "an argument", None),
        (["n"], None, None),
    ],
)
def test_a_note_names_the_arguments_if_they_are_few_and_plain(
    names: list[str], reads: str | None, writes: str | None
) -> None:
    plan = ServerPlan(id="files-1", kind=Kind.PIPE, auto_files=AutoFiles())
    (noted,) = listed(plan, tool("t", {"properties": {name: {"type": "string"} for name in names}}, description="T."))
    description = noted["description"]
    assert (f"Where {reads} names a file to read, pass its upload:// handle" in description) is (reads is not None)
    assert ("names a file to read" in description) is (reads is not None)
    expected = f"To write a new file, pass artifact://new/NAME as {writes}."
    assert description.endswith(expected) is (writes is not None)
    assert ("artifact://new" in description) is (writes is not None)


def test_with_adapters_alone_no_other_tool_is_noted() -> None:
    other = tool("open", {"properties": {"path": {"type": "string"}}})
    assert listed(adapted(consumer("a")), other) == [other]


def test_without_adapters_the_helper_is_offered() -> None:
    plan = ServerPlan(id="files-1", kind=Kind.PIPE, auto_files=AutoFiles())
    page = b'{"tools":[{"name":"x"}]}'
    extended = json.loads(extend_tools(page, plan, str, is_first_page=True, offers_uploads=True))["tools"]
    assert [entry["name"] for entry in extended] == ["files_1_get_upload_url", "x"]
    assert extend_tools(page, plan, str, is_first_page=True, offers_uploads=False) == page


def test_an_adapter_comes_before_automatic_notes() -> None:
    plan = ServerPlan(id="files-1", kind=Kind.PIPE, auto_files=AutoFiles(), consumers=(consumer("a"),))
    up, other = listed(plan, *(tool(name, {"properties": {"a": {"type": "string"}, "path": {"type": "string"}}})
                               for name in ("up", "other")))  # fmt: skip
    assert "description" in up["inputSchema"]["properties"]["a"]
    assert up["description"].startswith("Files are passed as ")
    assert "description" not in other["inputSchema"]["properties"]["a"]
    assert other["description"].startswith("Where `path` names a file")


ODD_TOOL = st.sampled_from(
    [
        b'{"name":"x", "n":1.0,"u":"\\u00e9\\ud800"}',
        b'{ "name" : "y" , "inputSchema":{"type":"object","a":1,"a":2}}',
        b"5",
        b"{}",
        b'{"name":"up","name":"up"}',
        b'{"name":5}',
    ]
)


@given(before=st.lists(ODD_TOOL, max_size=3), after=st.lists(ODD_TOOL, max_size=3), is_first_page=st.booleans())
def test_other_tools_keep_their_bytes(before: list[bytes], after: list[bytes], is_first_page: bool) -> None:
    taking = b'{"x":1.0,"name":"up","inputSchema":{"y":1e0,"properties":{"p":{"z":-0}}}}'
    page = b'{"tools":[%b],"nextCursor": "\\u0041"}' % b" , ".join([*before, taking, *after])
    extended = extend_tools(page, server("p"), str, is_first_page=is_first_page, offers_uploads=True)
    array = take(extended, members(extended)["tools"])
    assert array is not None
    tools = [array[start:stop] for start, stop in elements(array)][is_first_page:]
    assert tools[: len(before)] == before
    assert tools[len(before) + 1 :] == after
    assert tools[len(before)].startswith(b'{"x":1.0,"name":"up","inputSchema":{"y":1e0,"properties":{"p":{"z":-0,')
    assert extended.endswith(b'"nextCursor": "\\u0041"}')


@pytest.mark.parametrize("page", [b"5", b"{}", b'{"tools":5}', b'{"tools":[],"tools":[]}', b""])
def test_a_page_that_cannot_be_added_to_stays(page: bytes) -> None:
    assert extend_tools(page, server("p"), str, is_first_page=True, offers_uploads=True) == page
    assert extend_resources(b'{"resources":5}', [b"{}"]) == b'{"resources":5}'


def test_without_uploads_tools_stay_as_they_are() -> None:
    page = b'{"tools":[{"name":"up"}]}'
    assert extend_tools(page, server("p"), str, is_first_page=True, offers_uploads=False) == page
    assert extend_tools(page, server(), str, is_first_page=True, offers_uploads=True) == page


def test_an_upstream_tool_of_the_helpers_name_is_not_listed_twice() -> None:
    page = b'{"tools":[{"name":"files_1_get_upload_url","x":1},{"name":"a"}]}'
    extended = json.loads(extend_tools(page, server("p"), str, is_first_page=True, offers_uploads=True))
    assert [entry["name"] for entry in extended["tools"]] == ["files_1_get_upload_url", "a"]
    assert "x" not in extended["tools"][0]


# --- Uploading --------------------------------------------------------------------------------------------------------


def offer(url: str = "http://127.0.0.1:8932/upload/files-1?a=1&b=2", *, sha256_required: bool = False) -> bytes:
    return upload_offer(
        server_id="files-1",
        tool=helper_name("files-1"), upload_url=url, sid=SID, ttl_seconds=120, max_file_bytes=52428800,
        sha256_required=sha256_required, max_files=32,
    )  # fmt: skip


def test_the_offer_has_the_established_keys() -> None:
    result = json.loads(offer())
    structured = result["structuredContent"]
    assert json.loads(result["content"][0]["text"]) == structured
    assert result["isError"] is False
    fixed = {
        "server_id": "files-1",
        "tool_name": "files_1_get_upload_url",
        "upload_url": "http://127.0.0.1:8932/upload/files-1?a=1&b=2",
        "method": "POST",
        "headers": {"Mcp-Session-Id": SID},
        "auth_mode": "signed_upload_credentials",
        "credential_ttl_seconds": 120,
        "field_name": "file",
        "supports_multiple_files": True,
        "sha256_required": False,
        "sha256_field_name": "sha256",
        "sha256_per_file": True,
        "session_id": SID,
        "max_file_bytes": 52428800,
    }
    assert {key: structured[key] for key in fixed} == fixed
    assert set(structured) - set(fixed) == {"example_curl", "example_curl_multiple", "note", "integrity_note"}


def test_the_examples_are_commands_that_send_to_the_link() -> None:
    structured = json.loads(offer(sha256_required=True))["structuredContent"]
    words = shlex.split(structured["example_curl_multiple"])
    assert structured["upload_url"] in words
    assert [word for word in words if word.startswith("file=@")] == ["file=@/path/to/file1", "file=@/path/to/file2"]
    assert sum(word.startswith("sha256=") for word in words) == 2
    assert sum(word.startswith("sha256=") for word in shlex.split(structured["example_curl"])) == 1


def test_a_hostile_host_name_cannot_leave_its_quotes() -> None:
    structured = json.loads(offer('http://h"; rm -rf $(x) `y` \\ !z'))["structuredContent"]
    quoted = structured["example_curl"].split('"')[1]
    assert not set(quoted) & set('$`"\\! ')
    assert len(structured["example_curl"].split('"')) == 7


def stored(name: str) -> UploadedFile:
    return UploadedFile(upload_id=UID, filename=name, mime_type="text/plain", size_bytes=11, sha256="00")


def test_the_reply_to_one_file_and_to_several() -> None:
    handle = f"upload://sessions/{SID}/{UID}"
    upload = {"upload_id": UID, "filename": "a b.txt", "mime_type": "text/plain", "size_bytes": 11, "sha256": "00"}
    assert json.loads(upload_reply("files-1", SID, [stored("a b.txt")], "upload://")) == {
        "server_id": "files-1",
        "session_id": SID,
        "count": 1,
        "upload_handles": [handle],
        "uploads": [{"upload_handle": handle, **upload}],
        "upload_handle": handle,
        "upload": upload,
    }
    several = json.loads(upload_reply("files-1", SID, [stored("a"), stored("b")], "upload://"))
    assert several["count"] == 2
    assert [entry["filename"] for entry in several["uploads"]] == ["a", "b"]
    assert not {"upload", "upload_handle"} & set(several)


# --- Capabilities and resources ---------------------------------------------------------------------------------------

DECLARED = {"subscribe": True, "listChanged": True}
"""The capabilities for artifacts, whatever the server itself declares."""


@pytest.mark.parametrize(
    ("declared", "uploads", "artifacts", "expected"),
    [
        (b"{}", True, True, {"tools": {}, "resources": DECLARED}),
        (b"{}", True, False, {"tools": {}, "resources": {}}),
        (b"{}", False, True, {"resources": DECLARED}),
        (b"{}", False, False, {}),
        (b"null", True, False, {"tools": {}, "resources": {}}),
        (
            b'{"tools":{"listChanged":true},"x":1}',
            True,
            True,
            {"tools": {"listChanged": True}, "x": 1, "resources": DECLARED},
        ),
        (b'{"resources":null}', False, True, {"resources": DECLARED}),
        (b'{"resources":{ }}', False, True, {"resources": DECLARED}),
        (b'{"resources":5}', False, True, {"resources": 5}),
        (b'{"resources":{"a":1,"a":2}}', False, True, {"resources": {"a": 2}}),
        (b'{"resources":{"subscribe":false,"x":1.0}}', False, True, {"resources": {**DECLARED, "x": 1}}),
        (
            b'{"resources":{"subscribe":false,"x":1.0}}',
            True,
            False,
            {"tools": {}, "resources": {"subscribe": False, "x": 1}},
        ),
    ],
)
def test_missing_capabilities_are_declared(declared: bytes, uploads: bool, artifacts: bool, expected: object) -> None:
    result = b'{"protocolVersion":"2025-11-25","capabilities":%b,"serverInfo":{"v":1.0}}' % declared
    extended = extend_capabilities(result, server("p"), offers_uploads=uploads, offers_artifacts=artifacts)
    assert json.loads(extended)["capabilities"] == expected
    assert extended.endswith(b',"serverInfo":{"v":1.0}}')


def test_a_server_without_files_declares_what_it_did() -> None:
    result = b'{"capabilities":{}}'
    assert extend_capabilities(result, server(), offers_uploads=True, offers_artifacts=True) == result
    producing = ServerPlan(id="s", kind=Kind.PIPE, producers=(ArtifactProducer(tools=("t",)),))
    extended = extend_capabilities(b"{}", producing, offers_uploads=False, offers_artifacts=True)
    assert json.loads(extended) == {"capabilities": {"resources": DECLARED}}


def test_the_proxys_resources_follow_those_of_the_server() -> None:
    artifact = Artifact(
        artifact_uri="artifact://sessions/s/a/r.txt", artifact_id="a", filename="r.txt", mime_type="text/plain",
        size_bytes=13, sha256="00", expose_as_resource=True,
    )  # fmt: skip
    page = b'{"resources":[{"uri":"x:1","n":1.0}],"nextCursor":null}'
    extended = extend_resources(page, [workflow_entry(), resource_entry(artifact, "write_report")])
    assert extended.startswith(b'{"resources":[{"uri":"x:1","n":1.0},')
    _, guide, entry = json.loads(extended)["resources"]
    assert guide["uri"] == WORKFLOW_URI
    assert guide["mimeType"] == "text/markdown"
    assert entry["uri"] == artifact.artifact_uri
    assert entry["name"] == "r.txt"
    assert entry["mimeType"] == "text/plain"
    assert entry["_meta"] == {"size_bytes": 13}
    assert "write_report" in entry["description"]
    assert json.loads(extend_resources(b"{}", [b'{"a":1}'])) == {"resources": [{"a": 1}]}


@pytest.mark.parametrize(
    ("mime", "data", "member", "value"),
    [
        ("application/json", b'{"a":"\xc3\xa9"}', "text", '{"a":"é"}'),
        ("text/plain", b"", "text", ""),
        ("text/plain", b"\xff", "blob", "/w=="),
        ("image/png", b"ab", "blob", "YWI="),
    ],
)
def test_contents_are_text_if_possible(mime: str, data: bytes, member: str, value: str) -> None:
    assert json.loads(resource_contents("artifact://x", mime, data)) == {
        "contents": [{"uri": "artifact://x", "mimeType": mime, member: value, "_meta": {"size_bytes": len(data)}}]
    }


def test_the_guide_names_the_helper() -> None:
    text = workflow_text(UploadTools("files_1_put_file", "files_1_get_upload_url"))
    assert "`files_1_get_upload_url`" in text and "`files_1_put_file`" in text


def test_the_guide_names_no_links_where_nothing_listens() -> None:
    text = workflow_text(UploadTools("files_1_put_file", ""))
    assert "`files_1_put_file`" in text and "upload_url" not in text and "POST" not in text


@pytest.mark.parametrize("described", [5, None, ["x"], {"text": "x"}])
def test_a_description_that_is_no_text_stays(described: object) -> None:
    """A note needs a text that it can follow."""
    schema = {"properties": {"path": {"type": "string", "description": described}}}
    (found,) = listed(server("path"), tool("up", schema))
    assert found["inputSchema"] == schema


DIGITS = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (None, None),
        (b"{}", None),
        (b"[]", None),
        (b'{"size_bytes":10}', None),
        (b'{"size_bytes":11}', "Argument size_bytes: got 11, expected at most 10."),
        (b'{"size_bytes":0}', None),
        (b'{"size_bytes":"11"}', None),
        (b'{"size_bytes":null}', None),
        (b'{"size_bytes":-11}', None),
        (b'{"size_bytes":11.5}', None),
        (b'{"sha256":"%b"}' % DIGITS.encode(), None),
        (b'{"sha256":"%b"}' % DIGITS.upper().encode(), None),
        (b'{"sha256":null}', None),
        (b'{"sha256":5}', None),
        (b'{"sha256":""}', "Argument sha256: got '', expected 64 hexadecimal digits."),
        (
            b'{"sha256":"%b"}' % DIGITS[1:].encode(),
            f"Argument sha256: got '{DIGITS[1:]}', expected 64 hexadecimal digits.",
        ),
        (
            b'{"sha256":"g%b"}' % DIGITS[1:].encode(),
            f"Argument sha256: got 'g{DIGITS[1:]}', expected 64 hexadecimal digits.",
        ),
        (b'{"sha256":"%b"}' % (b"0" * 100), f"Argument sha256: got '{'0' * 80}', expected 64 hexadecimal digits."),
        (b'{"sha256":"x","size_bytes":11}', "Argument size_bytes: got 11, expected at most 10."),
    ],
)
def test_an_announced_file_that_cannot_be_sent_is_a_problem(arguments: bytes | None, problem: str | None) -> None:
    assert announced_problem(arguments, 10) == problem


# --- Exact texts ------------------------------------------------------------------------------------------------------


def test_the_schema_and_description_of_the_helper() -> None:
    page = b'{"tools":[]}'
    (helper,) = json.loads(extend_tools(page, server("p"), str, is_first_page=True, offers_uploads=True))["tools"]
    properties = helper["inputSchema"]["properties"]
    assert all(each.pop("description") for each in properties.values())
    assert helper["inputSchema"] == {
        "type": "object",
        "properties": {
            "filename": {"type": "string"},
            "size_bytes": {"type": "integer", "minimum": 0},
            "sha256": {"type": "string"},
        },
        "additionalProperties": False,
    }
    assert helper["outputSchema"] == {"type": "object", "additionalProperties": True}
    assert helper["description"] == (
        "Gives a signed link for sending local files to files-1, also large ones. Call this before any tool of this "
        "server that takes a file: POST the files to upload_url as multipart/form-data (example_curl shows how), then "
        "pass the upload_handles of the response where the tool asks for a path. A link works for one successful "
        "request and expires after a short while; ask for a new one each time. If you cannot make HTTP requests, or "
        "have the content as text, call files_1_put_file instead."
    )


@pytest.mark.parametrize(
    ("accept_other", "deliver", "note"),
    [
        (False, Deliver.PATH, "Takes {}."),
        (False, Deliver.FILE_URI, "Takes {}."),
        (False, Deliver.TEXT, "Takes {}, in whose place the tool gets the file's content."),
        (False, Deliver.BASE64, "Takes {}, in whose place the tool gets the file's content."),
        (True, Deliver.DATA_URI, "Also takes {}, in whose place the tool gets the file's content."),
        (True, Deliver.PATH, "Also takes {}."),
    ],
)
def test_the_exact_notes(accept_other: bool, deliver: Deliver, note: str) -> None:
    adapter = consumer("p", accept_other=accept_other, deliver=deliver)
    (found,) = listed(adapted(adapter), tool("up", {"properties": {"p": {"type": "string", "description": "A."}}}))
    what = "upload:// handles (get them with files_1_put_file or files_1_get_upload_url) and artifact:// URIs"
    assert found["inputSchema"]["properties"]["p"]["description"] == f"A.\n\n{note.format(what)}"
    verb, instead = ("may be", "as well as") if accept_other else ("are", "not")
    assert found["description"] == (
        f"Files {verb} passed as upload:// handles, {instead} as local paths or content: call files_1_put_file with "
        "its content, or files_1_get_upload_url and POST the file to the upload_url it gives, and pass the upload "
        "handle from the response."
    )


@pytest.mark.parametrize(("max_files", "several"), [(1, False), (2, True), (32, True)])
@pytest.mark.parametrize("is_required", [True, False])
def test_the_offer_says_how_many_files_and_whether_hashes_are_required(
    max_files: int, several: bool, is_required: bool
) -> None:
    offered = json.loads(
        upload_offer(
            server_id="s",
        tool=helper_name("s"), upload_url="http://h/u", sid=SID, ttl_seconds=9, max_file_bytes=1,
            sha256_required=is_required, max_files=max_files,
        )
    )["structuredContent"]  # fmt: skip
    assert offered["supports_multiple_files"] is several
    assert offered["sha256_required"] is is_required
    assert offered["note"] == (
        f"Send up to {max_files} files in one request within 9 seconds, each in a field named file; then pass the "
        "upload_handles of the response as the tool's file argument."
    )
    assert offered["integrity_note"] == (
        f"A SHA-256 for each file is {'required' if is_required else 'optional'}: fields named sha256, one a file and "
        "in the same order. A file that does not match is refused."
    )
    command = f'curl -sS -X POST "http://h/u" -H "Mcp-Session-Id: {SID}" -F "file=@/path/to/file1"'
    first, second = (f' -F "sha256=<hex of file {n}>"' if is_required else "" for n in (1, 2))
    assert offered["example_curl"] == command + first
    assert offered["example_curl_multiple"] == command + first + ' -F "file=@/path/to/file2"' + second


def test_the_guide_is_a_resource_of_text() -> None:
    entry = json.loads(workflow_entry())
    assert entry.pop("title") == "How to pass files to this server's tools"
    assert entry.pop("description") == "The three steps from a local file to a tool argument."
    assert entry == {"uri": WORKFLOW_URI, "name": "upload_workflow.md", "mimeType": "text/markdown"}


@pytest.mark.parametrize("takes_in", [True, False])
def test_a_new_file_is_offered_where_files_are_taken_in(takes_in: bool) -> None:
    plan = ServerPlan(id="s", kind=Kind.PIPE, auto_files=AutoFiles())
    tool = {"name": "save", "inputSchema": {"properties": {"output_path": {"type": "string"}}}}
    page = json.dumps({"tools": [tool]}).encode()
    extended = extend_tools(page, plan, str, is_first_page=False, offers_uploads=True, takes_in=takes_in)
    assert ("pass artifact://new/NAME as `output_path`" in extended.decode()) == takes_in
