"""The file plane as clients see it: the upload helper tool and its result, notes on other tools, resources,
capabilities.

Every entry of the server keeps its bytes, except that a tool which takes uploaded files gets one sentence added to its
description and, where an adapter names the arguments, to theirs. A list of a shape that cannot be added to is returned
unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ...base.plan import UPLOAD_SCHEME, Deliver, ServerPlan, UploadConsumer
from ...jsonrpc.append import add_items, add_members, readable_elements, readable_members, readable_text
from ...jsonrpc.paths import EACH, parse_path
from ...jsonrpc.splice import Edit, Span, set_member, splice, take
from ...state.context import Context
from ...state.session import Session
from ..store.handles import ARTIFACT_SCHEME, NEW_FILE_PREFIX, format_upload
from ..store.store import StoredUpload
from .arguments import tool_named
from .artifact import Artifact, resource_item
from .file_arguments import FileArguments, file_arguments
from .upload_tools import UploadTools
from .uris import base_url

_NUMBER: Final = re.compile(rb"[0-9]{1,300}")
_SHA256: Final = re.compile(r"[0-9A-Fa-f]{64}")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]{1,60}")
NAMED_MAX: Final = 3
"""Arguments that a note names. The sentence stays short."""

WORKFLOW_URI: Final = "doc://upload_workflow.md"


def helper_name(server_id: str) -> str:
    """Returns the name of the tool that offers uploads: `files-1` has `files_1_get_upload_url`."""
    return f"{_prefix(server_id)}_get_upload_url"


def put_name(server_id: str) -> str:
    """Returns the name of the tool that takes the content of a file: `files-1` has `files_1_put_file`."""
    return f"{_prefix(server_id)}_put_file"


def _prefix(server_id: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", server_id).strip("_") or "server"


def upload_tools(context: Context, session: Session, server_id: str) -> UploadTools:
    """Returns the tools by which the client of a session uploads files for a server."""
    link = session.tool_shown(helper_name(server_id)) if base_url(context, session) else ""
    return UploadTools(session.tool_shown(put_name(server_id)), link)


# --- tools/list -----------------------------------------------------------------------------------------------------


def extend_tools(
    result: bytes,
    server: ServerPlan,
    shown: Callable[[str], str],
    *,
    is_first_page: bool,
    offers_uploads: bool,
    has_links: bool = True,
    takes_in: bool = True,
) -> bytes:
    """Returns a page of `tools/list` with the helper tool first (on the first page) and notes on the tools that take
    files.

    A tool of the server that has the helper's name is left out: calls by that name would not reach it.

    Args:
        shown: returns the name that clients have for a tool of the server.
        has_links: upload links can be used. Without, there is no helper tool, and the notes name the tool that takes
            the content (`put_name`).
        takes_in: files that tools write are taken in.
    """
    array = take(result, readable_members(result).get("tools"))
    if not (offers_uploads and server.takes_uploads) or array is None or not array.startswith(b"["):
        return result
    helper = helper_name(server.id)
    named = UploadTools(shown(put_name(server.id)), shown(helper) if has_links else "")
    tools = readable_elements(array)
    kept = [_noted(tool, server, named, takes_in=takes_in) for tool in tools if _name(tool) != helper]
    if is_first_page and has_links:
        kept.insert(0, _helper_entry(helper, server.id, named.put))
    return result if kept == tools else set_member(result, "tools", b"[" + b",".join(kept) + b"]")


def _helper_entry(name: str, server_id: str, put: str) -> bytes:
    return msgspec.json.encode(
        {
            "name": name,
            "title": "Get an upload link",
            "description": (
                f"Gives a signed link for sending local files to {server_id}, also large ones. Call this before any "
                "tool of this server that takes a file: POST the files to upload_url as multipart/form-data "
                "(example_curl shows how), then pass the upload_handles of the response where the tool asks for a "
                "path. A link works for one successful request and expires after a short while; ask for a new one each "
                f"time. If you cannot make HTTP requests, or have the content as text, call {put} instead."
            ),
            "inputSchema": {
                "type": "object",
                "properties": {
                    "filename": {"type": "string", "description": "Name of the file to be sent."},
                    "size_bytes": {"type": "integer", "minimum": 0, "description": "Its size, to be checked early."},
                    "sha256": {"type": "string", "description": "Its SHA-256 as 64 hexadecimal digits."},
                },
                "additionalProperties": False,
            },
            "outputSchema": {"type": "object", "additionalProperties": True},
            "annotations": {"readOnlyHint": True, "idempotentHint": False, "openWorldHint": False},
        }
    )


def _noted(tool: bytes, server: ServerPlan, named: UploadTools, *, takes_in: bool) -> bytes:
    name = _name(tool)
    consumers = [consumer for consumer in server.consumers if name is not None and tool_named(consumer.tools, name)]
    if not consumers:
        if not server.auto_files:
            return tool
        files = file_arguments(tool)
        note = _auto_note(server, named.either, files if takes_in else files._replace(writes=()))
        return _with_note(tool, note) if note else tool
    takers: dict[str, UploadConsumer] = {}
    for consumer in consumers:
        for argument in consumer.arguments:
            takers.setdefault(argument.removesuffix(EACH), consumer)  # the note goes on the list, not on its items
    for argument, consumer in takers.items():
        schema = take(tool, readable_members(tool).get("inputSchema"))
        if schema is not None:
            noted = _described(schema, parse_path(argument), _argument_note(consumer, named.either))
            tool = set_member(tool, "inputSchema", noted)
    scheme = consumers[0].uri_scheme
    verb, instead = ("may be", "as well as") if all(c.accept_other for c in consumers) else ("are", "not")
    return _with_note(
        tool,
        f"Files {verb} passed as {scheme} handles, {instead} as local paths or content: {named.how}.",
    )


def _argument_note(consumer: UploadConsumer, helper: str) -> str:
    """Returns the sentence for an argument that takes handles."""
    what = f"{consumer.uri_scheme} handles (get them with {helper}) and {ARTIFACT_SCHEME} URIs"
    if consumer.deliver in (Deliver.DATA_URI, Deliver.BASE64, Deliver.TEXT):
        what += ", in whose place the tool gets the file's content"
    return f"Also takes {what}." if consumer.accept_other else f"Takes {what}."


def _auto_note(server: ServerPlan, helper: str, files: FileArguments) -> str:
    """Returns what a tool is noted with whose arguments name files; an empty text if none does."""
    sentences = []
    if files.reads:
        sentences.append(
            f"Where {_named(files.reads)} names a file to read, pass its {server.upload_scheme} handle (get one with "
            f"{helper}) or its {ARTIFACT_SCHEME} URI."
        )
    if files.writes:
        sentences.append(f"To write a new file, pass {NEW_FILE_PREFIX}NAME as {_named(files.writes)}.")
    return " ".join(sentences)


def _named(labels: Sequence[str]) -> str:
    """Returns how a sentence speaks of arguments: by their names if these are few and plain."""
    if len(labels) > NAMED_MAX or not all(_PLAIN.fullmatch(label) for label in labels):
        return "an argument"
    return " or ".join(f"`{label}`" for label in labels)


def _described(schema: bytes, steps: tuple[str, ...], note: str) -> bytes:
    """Returns the schema with `note` on the property the steps lead to; unchanged where they lead nowhere."""
    if not steps:
        return _with_note(schema, note)
    spans = readable_members(schema)
    items = spans.get("items")
    if steps[0] == EACH and len(steps) == 1:
        return _with_note(schema, note)  # on the list rather than on its items: that is what people read
    if steps[0] == EACH:
        return schema if items is None else _replaced(schema, items, _described(schema[slice(*items)], steps[1:], note))
    properties = spans.get("properties")
    if properties is None:
        return schema if items is None else _replaced(schema, items, _described(schema[slice(*items)], steps, note))
    inner = schema[slice(*properties)]
    span = readable_members(inner).get(steps[0])
    if span is None:
        return schema
    return _replaced(schema, properties, _replaced(inner, span, _described(inner[slice(*span)], steps[1:], note)))


def _replaced(data: bytes, span: Span, text: bytes) -> bytes:
    return splice(data, [Edit(span.start, span.stop, text)])


def _with_note(described: bytes, note: str) -> bytes:
    """Returns the object with `note` as the last paragraph of its `description`."""
    spans = readable_members(described)
    if not spans and described != b"{}":
        return described  # a schema may also be `true`
    raw = take(described, spans.get("description"))
    text = readable_text(raw)
    if raw is not None and text is None:
        return described
    return set_member(described, "description", msgspec.json.encode(f"{text}\n\n{note}" if text else note))


def _name(tool: bytes) -> str | None:
    return readable_text(take(tool, readable_members(tool).get("name")))


# --- Uploads: the result of the helper tool, and the HTTP response -------------------------------------------------


class UploadedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A stored file of an upload; `upload_id` is the last part of its handle."""

    upload_id: str
    filename: str
    mime_type: str
    size_bytes: int
    sha256: str


def announced_problem(arguments: bytes | None, max_file_bytes: int) -> str | None:
    """Returns why the file that the helper tool's arguments announce cannot be sent, for people; None if it can."""
    if arguments is None:
        return None
    spans = readable_members(arguments)
    size, digits = take(arguments, spans.get("size_bytes")), readable_text(take(arguments, spans.get("sha256")))
    if size is not None and _NUMBER.fullmatch(size) and int(size) > max_file_bytes:
        return f"Argument size_bytes: got {int(size)}, expected at most {max_file_bytes}."
    if digits is not None and _SHA256.fullmatch(digits) is None:
        return f"Argument sha256: got {digits[:80]!r}, expected 64 hexadecimal digits."
    return None


def upload_offer(
    *,
    server_id: str,
    tool: str,
    upload_url: str,
    sid: str,
    ttl_seconds: int,
    max_file_bytes: int,
    sha256_required: bool,
    max_files: int,
) -> bytes:
    """Returns the result of the helper tool, its structured content also as text.

    Args:
        tool: the name that the client has for it.
        upload_url: signed already.
    """
    hashes = (' -F "sha256=<hex of file 1>"', ' -F "sha256=<hex of file 2>"') if sha256_required else ("", "")
    command = f'curl -sS -X POST "{_quotable(upload_url)}" -H "Mcp-Session-Id: {sid}"'
    first, second = (f' -F "file=@/path/to/file{n}"{digest}' for n, digest in zip("12", hashes, strict=True))
    offer = {
        "server_id": server_id,
        "tool_name": tool,
        "upload_url": upload_url,
        "method": "POST",
        "headers": {"Mcp-Session-Id": sid},
        "auth_mode": "signed_upload_credentials",
        "credential_ttl_seconds": ttl_seconds,
        "field_name": "file",
        "supports_multiple_files": max_files > 1,
        "sha256_required": sha256_required,
        "sha256_field_name": "sha256",
        "sha256_per_file": True,
        "session_id": sid,
        "example_curl": command + first,
        "example_curl_multiple": command + first + second,
        "note": (
            f"Send up to {max_files} files in one request within {ttl_seconds} seconds, each in a field named file; "
            "then pass the upload_handles of the response as the tool's file argument."
        ),
        "integrity_note": (
            f"A SHA-256 for each file is {'required' if sha256_required else 'optional'}: fields named sha256, one a "
            "file and in the same order. A file that does not match is refused."
        ),
        "max_file_bytes": max_file_bytes,
    }
    text = msgspec.json.encode(msgspec.json.encode(offer).decode())
    return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b,"isError":false}' % (
        text,
        msgspec.json.encode(offer),
    )


def upload_reply(server: str, sid: str, files: Sequence[UploadedFile], scheme: str = UPLOAD_SCHEME) -> bytes:
    """Returns the body of the 200 response to an upload."""
    handles = [format_upload(sid, file.upload_id, scheme) for file in files]
    reply: dict[str, object] = {
        "server_id": server,
        "session_id": sid,
        "count": len(files),
        "upload_handles": handles,
        "uploads": [
            {"upload_handle": handle, **msgspec.structs.asdict(file)}
            for handle, file in zip(handles, files, strict=True)
        ],
    }
    if len(files) == 1:
        reply["upload_handle"] = handles[0]
        reply["upload"] = files[0]
    return msgspec.json.encode(reply)


def reply_of(records: Sequence[StoredUpload], scheme: str) -> bytes:
    """Returns the JSON that describes the uploads of one request. There is at least one."""
    files = [
        UploadedFile(
            upload_id=record.uid,
            filename=record.filename,
            mime_type=record.mime_type,
            size_bytes=record.size_bytes,
            sha256=record.sha256,
        )
        for record in records
    ]
    return upload_reply(records[0].server, records[0].sid, files, scheme)


def _quotable(url: str) -> str:
    """Returns the URL with what a shell reads inside double quotes percent-encoded: parts of it came from a request."""
    return re.sub(r"[\x00-\x20\"$`\\!\x7f]", lambda match: f"%{ord(match[0]):02X}", url)


# --- initialize -----------------------------------------------------------------------------------------------------


def extend_capabilities(result: bytes, server: ServerPlan, *, offers_uploads: bool, offers_artifacts: bool) -> bytes:
    """Returns an initialize result that declares what the proxy adds.

    That is `tools` and `resources` where the proxy offers some and the server has none. With artifacts, `resources`
    also gets `listChanged` and `subscribe`: clients are notified when the list changes and when a subscribed artifact
    goes.
    """
    if not server.has_files:
        return result
    capabilities = take(result, readable_members(result).get("capabilities"))
    declared = readable_members(capabilities)
    offers_resources = offers_uploads or offers_artifacts
    wanted = [name for name, offered in (("tools", offers_uploads), ("resources", offers_resources)) if offered]
    found = {name: take(capabilities or b"", declared.get(name)) for name in wanted}
    changed = {name: b"{}" for name, value in found.items() if value in (None, b"null")}
    if offers_artifacts:
        changed["resources"] = _with_abilities(changed.get("resources") or found["resources"] or b"{}")
    return add_members(result, "capabilities", changed)


def _with_abilities(resources: bytes) -> bytes:
    """Returns the capability with what the proxy does for artifacts; unchanged if it cannot be added to."""
    spans = readable_members(resources)
    missing = {name: b"true" for name in ("subscribe", "listChanged") if take(resources, spans.get(name)) != b"true"}
    opening = b'{"resources":'
    return add_members(opening + resources + b"}", "resources", missing)[len(opening) : -1]


# --- resources ------------------------------------------------------------------------------------------------------


def resource_entry(artifact: Artifact, tool: str) -> bytes:
    """Returns the entry of an artifact in `resources/list`."""
    return msgspec.json.encode(
        {
            "uri": artifact.artifact_uri,
            "name": artifact.filename,
            "description": f"Written by {tool}",
            "mimeType": artifact.mime_type,
            "size": artifact.size_bytes,
            "_meta": {"size_bytes": artifact.size_bytes},
        }
    )


def extend_resources(result: bytes, entries: Sequence[bytes]) -> bytes:
    """Returns a page of `resources/list` with `entries` after the server's own."""
    return add_items(result, "resources", entries)


def resource_contents(uri: str, mime: str, data: bytes) -> bytes:
    """Returns the result of `resources/read` for one resource: text where type and bytes allow it, else a blob."""
    item = {**resource_item(uri, mime, data), "_meta": {"size_bytes": len(data)}}
    return msgspec.json.encode({"contents": [item]})


def workflow_entry() -> bytes:
    """Returns the entry of the upload guide in `resources/list`."""
    return msgspec.json.encode(
        {
            "uri": WORKFLOW_URI,
            "name": "upload_workflow.md",
            "title": "How to pass files to this server's tools",
            "description": "The three steps from a local file to a tool argument.",
            "mimeType": "text/markdown",
        }
    )


def workflow_text(tools: UploadTools) -> str:
    """Returns the upload guide, in Markdown."""
    link = f"""
## Large files on your disk

1. Call `{tools.link}`. It gives `upload_url`, a signed link for one request, and `example_curl`.
2. POST the file, or several, to that link as `multipart/form-data`, each in a field named `file`. Optional: one field
   `sha256` for each file, in the same order; a file that does not match is refused.
3. Pass the `upload_handle` of the response (or the list `upload_handles`) as the tool's file argument.

A request that was refused does not use the link up: mend it and send it again before the link expires.
"""
    return f"""# Passing files to this server's tools

The server runs elsewhere and cannot see your disk. Tools that take a file take an *upload handle* instead of a path.

## Text, small files, and where you cannot make HTTP requests

1. Call `{tools.put}` with `filename`, and the content as `text` or `base64`.
2. Pass the `upload_handle` of the result as the tool's file argument.

A larger file can be sent in parts: pass `more: true` with each part but the last, and the `upload_id` of each answer as
`append_to` of the next part. The answer to the last part has the `upload_handle`.
{link if tools.link else ""}
Handles may be used several times while they last. The `artifact://` URI of a file that a tool has made can be passed in
place of a handle.

## New files

Where a tool wants the path of a file to write, pass `{NEW_FILE_PREFIX}NAME`, such as `{NEW_FILE_PREFIX}report.docx`.
The result has the URI of the file. Pass the same name again to go on with it. A slash at the end makes it a folder.
"""
