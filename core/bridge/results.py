"""Results, as the other era may see them.

Since 2026-07-28 a result says what kind it is, for how long it may be kept, and who made it; before, none of that has
a name. So towards a client of the new era a result is completed, and towards one of the old era it is stripped. What
neither side has a rule for travels byte for byte.

Both functions judge the result's own members, its `_meta`, listed tools and content blocks. A member that is judged
must not stand there twice.
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
from ..jsonrpc.object_editor import Draft, each
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
"""The member of `_meta` that holds, by name, what a legacy server put where the new era has members of its own."""

ENVELOPE: Final = (
    SERVER_INFO,
    "io.modelcontextprotocol/subscriptionId",
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/logLevel",
)
"""Members of `_meta` that mean something without sessions only (2026-07-28 basic, "General fields")."""

_Change = Callable[[bytes], bytes]

_TTL: Final = re.compile(rb"(0|[1-9][0-9]*)(\.0+)?")

_NEEDED: Final[dict[str, tuple[bytes, re.Pattern[bytes]]]] = {
    "resultType": (b'"complete"', re.compile(rb'"complete"')),
    "ttlMs": (b"0", _TTL),
    "cacheScope": (b'"private"', re.compile(rb'"(private|public)"')),
}
"""Members the new era requires: what stands for an absent one, and what a legacy server may have sent that serves."""


# --- Towards a client without a session -----------------------------------------------------------------------------


def to_modern(method: str, result: bytes, *, server_info: bytes | None) -> bytes:
    """A complete result of a server with sessions (or of the proxy itself), for a client of 2026-07-28.

    Args:
        method: the request's. For the result inside a finished task, that of the request which made the task.
        server_info: the JSON of an `Implementation`; None leaves the server unnamed.

    A value that a legacy server gave a member of the new era, and that would mislead there, moves to
    `_meta["dev.isthmus/shadowed"]`. A `structuredContent` of null is none: legacy servers write every member their
    types have, and may not send null for a value.

    Raises:
        RemoteProtocolError: the result is no object, or a member that is judged stands there twice.
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
        _say(draft, is_needed=_is_no_object(draft.get("structuredContent")))
    elif method == "tools/list" and (b"execution" in result or b"\\u" in result):
        _change(draft, "tools", _without_execution)
    if TRACE in result:
        _change_blocks(draft, method, restored)
    _set_meta(draft, server_info, shadowed)
    return draft.json()


def named(result: bytes, server_info: bytes | None) -> bytes:
    """A result of our own for a client of 2026-07-28, with the name of the server that it is given for.

    Args:
        server_info: the JSON of an `Implementation`; None leaves the server unnamed.

    Raises:
        RemoteProtocolError: the result is no object, or has a member twice, or its `_meta` is such.
    """
    if server_info is None:
        return result
    draft = _open(result)
    meta = Draft(draft.get("_meta") or b"{}")
    meta.set(SERVER_INFO, server_info)
    draft.set("_meta", meta.json())
    return draft.json()


def _set_meta(draft: Draft, server_info: bytes | None, shadowed: dict[str, bytes]) -> None:
    old = draft.get("_meta")
    if old is not None and not old.startswith(b"{"):
        if old != b"null":
            shadowed["_meta"] = old
        draft.remove("_meta")
        old = None
    meta = Draft(old or b"{}")
    had_members = bool(meta)
    meta.remove(RELATED_TASK)
    if server_info is not None and SERVER_INFO not in meta:
        meta.set(SERVER_INFO, server_info)
    if shadowed:
        kept = Draft(b"{}")
        for name, value in shadowed.items():
            kept.set(name, value)
        meta.set(SHADOWED, kept.json())
    if meta:
        draft.set("_meta", meta.json())
    elif had_members:
        draft.remove("_meta")


def _without_execution(tool: bytes) -> bytes:
    """Whether a tool runs as a task is no longer announced (2026-07-28 changelog)."""
    if not tool.startswith(b"{"):
        return tool
    draft = Draft(tool)
    draft.remove("execution")
    return draft.json()


# --- Towards a client with a session --------------------------------------------------------------------------------


def to_legacy(method: str, result: bytes, *, client: Features, server: Features, is_wrapped: bool = False) -> bytes:
    """A complete result of a server that speaks `server`, for a client with a session that speaks `client`.

    Where both have the same features and nothing is marked, that is the very same object.

    Args:
        method: the request's. For the result inside a finished task, that of the request which made the task.
        is_wrapped: the tool's `outputSchema` had to be wrapped (`wrapped_tools` says which those are), so an object
            that fits it has to be, too.

    Raises:
        RemoteProtocolError: the result is no object; or not complete (2026-07-28 basic, "ResultType"), which only a
            client without a session could continue; or a member that is judged stands there twice.
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
    """The names of those tools in a `tools/list` result of 2026-07-28 whose output a legacy client gets wrapped."""
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
    """Whether the server's results may hold what the client has not heard of."""
    return any(
        getattr(server, name) and not getattr(client, name)
        for name in ("audio", "resource_links", "structured", "any_structure")
    )


def _strip(draft: Draft, method: str) -> None:
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
    """A result's `_meta` without what means something without sessions only; None: then it holds nothing.

    Raises:
        RemoteProtocolError: it has a member twice.
    """
    if not meta.startswith(b"{"):
        return meta
    draft = Draft(meta)
    had_envelope = False
    for name in ENVELOPE:
        had_envelope = draft.remove(name) is not None or had_envelope
    return None if had_envelope and not draft else draft.json()


def _restructure(draft: Draft, client: Features, server: Features, *, is_wrapped: bool) -> None:
    value = draft.get("structuredContent")
    if value is None or (value == b"null" and not server.any_structure):  # null: as in `to_modern`
        return
    if client.structured == server.structured and client.any_structure == server.any_structure:
        return
    _say(draft, is_needed=not client.structured or _is_no_object(value))
    if server.any_structure and not client.any_structure and (is_wrapped or _is_no_object(value)):
        draft.set("structuredContent", wrap_value(value))


def _with_wrapped_schema(tool: bytes) -> bytes:
    if not tool.startswith(b"{"):
        return tool
    draft = Draft(tool)
    schema = draft.get("outputSchema")
    if schema is not None and needs_wrap(schema):
        draft.set("outputSchema", wrap_schema(schema))
    return draft.json()


# --- Both -----------------------------------------------------------------------------------------------------------


def _open(result: bytes) -> Draft:
    if not result.startswith(b"{"):
        raise RemoteProtocolError("got a result that is no object, expected an object", rpc_code=INTERNAL_ERROR)
    return Draft(result)


def _change_blocks(draft: Draft, method: str, change: _Change) -> None:
    """Change each content block of the results that have some."""
    if method == "tools/call":
        _change(draft, "content", change)
    elif method == "prompts/get":
        _change(draft, "messages", functools.partial(_with_content, change=change))


def _with_content(message: bytes, change: _Change) -> bytes:
    if not message.startswith(b"{"):
        return message
    draft = Draft(message)
    content = draft.get("content")
    if content is not None:
        draft.set("content", change(content))
    return draft.json()


def _change(draft: Draft, key: str, change: _Change) -> None:
    array = draft.get(key)
    if array is not None:
        draft.set(key, each(array, change))


def _is_no_object(value: bytes | None) -> bool:
    return value is not None and not value.startswith(b"{")


def _say(draft: Draft, *, is_needed: bool) -> None:
    """Have a text block say what `structuredContent` holds, for whoever reads only text: its very JSON, if none does.

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
    twin = b'{"type":"text","text":%b}' % msgspec.json.encode(value.decode())
    draft.set("content", extend_array(content, [twin]))
