"""Results, translated between the eras.

Since 2026-07-28 a result carries its kind, how long it may be cached, and its server's name; before, none of these has
a member. So a result for a stateless-era client is completed, and one for a handshake-era client is stripped of them.
What neither side has a rule for keeps its bytes.

`to_modern` and `to_legacy` read the result's own members, its `_meta`, listed tools and content blocks. A member that
is read must not occur twice.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final

import msgspec

from ..base.errors import INTERNAL_ERROR, RemoteProtocolError
from ..base.revisions import Features
from ..jsonrpc.append import readable_elements, readable_members, readable_text
from ..jsonrpc.envelope import text_of
from ..jsonrpc.equality import is_same
from ..jsonrpc.object_editor import ObjectEditor, each
from ..jsonrpc.splice import extend_array, take
from .content import TRACE, block_to, knows_all, restored
from .output_schema import needs_wrap, wrap_schema, wrap_value

CACHEABLE: Final = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)
"""2026-07-28 server/utilities/caching, "Cacheable Results"."""

SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
SHADOWED: Final = "dev.isthmus/shadowed"
"""The member of `_meta` that holds, by name, a legacy server's values whose names the stateless era uses otherwise."""

ENVELOPE: Final = (
    SERVER_INFO,
    "io.modelcontextprotocol/subscriptionId",
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/logLevel",
)
"""Members of `_meta` that have a meaning only in the stateless era (2026-07-28 basic, "General fields")."""

_Change = Callable[[bytes], bytes]

_TTL: Final = re.compile(rb"(0|[1-9][0-9]*)(\.0+)?")

_NEEDED: Final[dict[str, tuple[bytes, re.Pattern[bytes]]]] = {
    "resultType": (b'"complete"', re.compile(rb'"complete"')),
    "ttlMs": (b"0", _TTL),
    "cacheScope": (b'"private"', re.compile(rb'"(private|public)"')),
}
"""Members that the stateless era requires: the value for an absent one, and the values of a legacy server that are
usable."""


# --- For a stateless-era client -------------------------------------------------------------------------------------


def to_modern(method: str, result: bytes, *, server_info: bytes | None) -> bytes:
    """Translates a complete result of a handshake-era server (or of the proxy itself) for a client of 2026-07-28.

    Args:
        method: the request's. For the result inside a finished task, that of the request which created the task.
        server_info: the JSON of an `Implementation`; None leaves the server unnamed.

    A legacy server's value under a name that means something else in the stateless era moves to
    `_meta["dev.isthmus/shadowed"]`. A `structuredContent` of null counts as absent: legacy servers write every member
    their types have, and may not send null for a value.

    Raises:
        RemoteProtocolError: the result is no object, or a member that is read occurs twice.
    """
    draft = _open(result)
    shadowed: dict[str, bytes] = {}
    for name in _NEEDED if method in CACHEABLE else ("resultType",):
        default, usable = _NEEDED[name]
        value = draft.get(name)
        if value is None or not usable.fullmatch(value):
            draft.set(name, default)
            if value is not None:
                shadowed[name] = value
    if method == "tools/call":
        if draft.get("structuredContent") == b"null":
            draft.remove("structuredContent")
        if draft.get("content") in (None, b"null"):
            draft.set("content", b"[]")
        _ensure_text_block(draft, is_needed=_is_no_object(draft.get("structuredContent")))
    elif method == "tools/list" and (b"execution" in result or b"\\u" in result):
        _change(draft, "tools", _without_execution)
    if TRACE in result:
        _change_blocks(draft, method, restored)
    _set_meta(draft, server_info, shadowed)
    return draft.json()


def named(result: bytes, server_info: bytes | None) -> bytes:
    """Returns a result of the proxy's own for a client of 2026-07-28, with the name of the server that it is sent for.

    Args:
        server_info: the JSON of an `Implementation`; None leaves the server unnamed.

    Raises:
        RemoteProtocolError: the result or its `_meta` is no object, or has a member twice.
    """
    if server_info is None:
        return result
    draft = _open(result)
    meta = ObjectEditor(draft.get("_meta") or b"{}")
    meta.set(SERVER_INFO, server_info)
    draft.set("_meta", meta.json())
    return draft.json()


def _set_meta(draft: ObjectEditor, server_info: bytes | None, shadowed: dict[str, bytes]) -> None:
    old = draft.get("_meta")
    if old is not None and not old.startswith(b"{"):
        if old != b"null":
            shadowed["_meta"] = old
        draft.remove("_meta")
        old = None
    meta = ObjectEditor(old or b"{}")
    had_members = bool(meta)
    meta.remove(RELATED_TASK)
    if server_info is not None and SERVER_INFO not in meta:
        meta.set(SERVER_INFO, server_info)
    if shadowed:
        kept = ObjectEditor(b"{}")
        for name, value in shadowed.items():
            kept.set(name, value)
        meta.set(SHADOWED, kept.json())
    if meta:
        draft.set("_meta", meta.json())
    elif had_members:
        draft.remove("_meta")


def _without_execution(tool: bytes) -> bytes:
    """Removes `execution`: a tool no longer announces whether it runs as a task (2026-07-28 changelog)."""
    if not tool.startswith(b"{"):
        return tool
    draft = ObjectEditor(tool)
    draft.remove("execution")
    return draft.json()


# --- For a handshake-era client -------------------------------------------------------------------------------------


def to_legacy(method: str, result: bytes, *, client: Features, server: Features, is_wrapped: bool = False) -> bytes:
    """Translates a complete result of a server that speaks `server` for a client with a session that speaks `client`.

    If both have the same features and nothing is marked, the very same object is returned.

    Args:
        method: the request's. For the result inside a finished task, that of the request which created the task.
        is_wrapped: the tool's `outputSchema` had to be wrapped (see `wrapped_tools`), so an object that fits it has to
            be wrapped, too.

    Raises:
        RemoteProtocolError: the result is no object; or not complete (2026-07-28 basic, "ResultType"), so that only a
            stateless-era client could continue it; or a member that is read occurs twice.
    """
    assert client.sessions
    is_newer = client is not server and is_older(client, server)
    if server.sessions and not is_newer and TRACE not in result:
        return result
    draft = _open(result)
    if not server.sessions:
        _strip(draft, method)
    if method == "tools/call":
        _restructure(draft, client, server, is_wrapped=is_wrapped)
    elif method == "tools/list" and server.any_structure and not client.any_structure:
        _change(draft, "tools", _with_wrapped_schema)
    if TRACE in result or (is_newer and not knows_all(client)):
        _change_blocks(draft, method, functools.partial(block_to, client=client))
    return draft.json()


def wrapped_tools(result: bytes) -> frozenset[str]:
    """Returns the names of the tools in a `tools/list` result of 2026-07-28 whose output is wrapped for a legacy
    client."""
    tools = readable_elements(take(result, readable_members(result).get("tools")))
    found = set()
    for tool in tools:
        spans = readable_members(tool)
        name, schema = readable_text(take(tool, spans.get("name"))), take(tool, spans.get("outputSchema"))
        if name is not None and schema is not None and needs_wrap(schema):
            found.add(name)
    return frozenset(found)


@functools.lru_cache(maxsize=64)
def is_older(client: Features, server: Features) -> bool:
    """True if the server's results may hold features that the client's revision does not have."""
    return any(
        getattr(server, name) and not getattr(client, name)
        for name in ("audio", "resource_links", "structured", "any_structure")
    )


def _strip(draft: ObjectEditor, method: str) -> None:
    kind = draft.remove("resultType")
    if kind is not None and text_of(kind) != "complete":
        raise RemoteProtocolError(
            f'got a result of type {kind[:40].decode(errors="replace")}, expected "complete"',
            rpc_code=INTERNAL_ERROR,
            clause='2026-07-28 basic, "ResultType"',
        )
    if method in CACHEABLE:
        draft.remove("ttlMs")
        draft.remove("cacheScope")
    old = draft.get("_meta")
    if old is not None:
        kept = meta_to_legacy(old)
        if kept is None:
            draft.remove("_meta")
        else:
            draft.set("_meta", kept)


def meta_to_legacy(meta: bytes) -> bytes | None:
    """Returns a result's `_meta` without the members of the stateless era; None if nothing else is in it.

    Raises:
        RemoteProtocolError: the `_meta` has a member twice.
    """
    if not meta.startswith(b"{"):
        return meta
    draft = ObjectEditor(meta)
    had_envelope = False
    for name in ENVELOPE:
        had_envelope = draft.remove(name) is not None or had_envelope
    return None if had_envelope and not draft else draft.json()


def _restructure(draft: ObjectEditor, client: Features, server: Features, *, is_wrapped: bool) -> None:
    value = draft.get("structuredContent")
    if value is None or (value == b"null" and not server.any_structure):  # null: as in `to_modern`
        return
    if client.structured == server.structured and client.any_structure == server.any_structure:
        return
    _ensure_text_block(draft, is_needed=not client.structured or _is_no_object(value))
    if server.any_structure and not client.any_structure and (is_wrapped or _is_no_object(value)):
        draft.set("structuredContent", wrap_value(value))


def _with_wrapped_schema(tool: bytes) -> bytes:
    if not tool.startswith(b"{"):
        return tool
    draft = ObjectEditor(tool)
    schema = draft.get("outputSchema")
    if schema is not None and needs_wrap(schema):
        draft.set("outputSchema", wrap_schema(schema))
    return draft.json()


# --- Both directions ------------------------------------------------------------------------------------------------


def _open(result: bytes) -> ObjectEditor:
    if not result.startswith(b"{"):
        raise RemoteProtocolError("got a result that is no object, expected an object", rpc_code=INTERNAL_ERROR)
    return ObjectEditor(result)


def _change_blocks(draft: ObjectEditor, method: str, change: _Change) -> None:
    """Changes each content block of a result that has some."""
    if method == "tools/call":
        _change(draft, "content", change)
    elif method == "prompts/get":
        _change(draft, "messages", functools.partial(_with_content, change=change))


def _with_content(message: bytes, change: _Change) -> bytes:
    if not message.startswith(b"{"):
        return message
    draft = ObjectEditor(message)
    content = draft.get("content")
    if content is not None:
        draft.set("content", change(content))
    return draft.json()


def _change(draft: ObjectEditor, key: str, change: _Change) -> None:
    array = draft.get(key)
    if array is not None:
        draft.set(key, each(array, change))


def _is_no_object(value: bytes | None) -> bool:
    return value is not None and not value.startswith(b"{")


def _ensure_text_block(draft: ObjectEditor, *, is_needed: bool) -> None:
    """Adds a text block with the JSON of `structuredContent` for clients that read only text, unless a block has it.

    Source: 2026-07-28 server/tools, "Structured Content": "For backwards compatibility, a tool that returns structured
    content SHOULD also return the serialized JSON in a TextContent block."
    """
    value = draft.get("structuredContent")
    content = draft.get("content")
    if content is None or content == b"null":
        content = b"[]"
    if not is_needed or value is None or not content.startswith(b"["):
        return
    for block in readable_elements(content):
        spans = readable_members(block)
        text = readable_text(take(block, spans.get("text")))
        if text_of(take(block, spans.get("type"))) == "text" and text is not None and is_same(text.encode(), value):
            return
    duplicate = b'{"type":"text","text":%b}' % msgspec.json.encode(value.decode())
    draft.set("content", extend_array(content, [duplicate]))
