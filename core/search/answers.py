"""The meta-tools through which a client uses a catalogue that it does not list: their definitions, and what a search
answers.

The definitions depend on the configuration alone, so a list that has them stays the same. They are the same in each
revision: clients of older ones ignore the members that they do not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from ..base.revisions import Features
from .documents import clip, read_definition
from .index import Found, Hit, Index

HITS_USUAL: Final = 8
"""The hits of an answer to a request without a limit: of a wanted tool, nine in ten are among them."""
DEFINITIONS_MAX: Final = 5
"""The hits of an answer that are shown with their definition. At it: the others get a line each."""
DEFINITIONS_MAX_BYTES: Final = 16 * 1024
"""The size of those definitions together; five of usual tools have four thousand bytes. At it: a definition that does
not fit gets a line."""
DEFINITION_MAX_BYTES: Final = 64 * 1024
"""The size of the first one, which is shown though it has more than all may have: without it, the tool could not be
called. At it: it gets a line."""
LINE_MAX_CHARS: Final = 160
"""The characters of a description, a purpose or a query that are shown in a line. At it: it is cut off."""

SEARCH_TOOLS: Final = "search_tools"
CALL_TOOL: Final = "call_tool"
CALL_READ_ONLY_TOOL: Final = "call_read_only_tool"
SURFACE: Final = (SEARCH_TOOLS, CALL_TOOL, CALL_READ_ONLY_TOOL)

_SEARCH: Final = b"""{
"name": "search_tools", "title": "Search tools", "description": "",
"inputSchema": {"type": "object", "required": ["query"], "additionalProperties": false, "properties": {
"query": {"type": "string", "description": "Key words with synonyms for what to do and with what, or the name of a \
tool. An empty text lists all tools."},
"server": {"type": "string", "description": "Only tools of this server."},
"limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 8},
"offset": {"type": "integer", "minimum": 0, "default": 0, "description": "The next_offset of the page before."}}},
"annotations": {"readOnlyHint": true, "openWorldHint": false}}"""
_CALL: Final = b"""{
"name": "call_tool", "title": "Call a tool",
"description": "Calls a tool that search_tools found, and returns its result.",
"inputSchema": {"type": "object", "required": ["name"], "additionalProperties": false, "properties": {
"name": {"type": "string", "description": "The name of the tool, as search_tools shows it."},
"arguments": {"type": "object", "description": "The arguments, as the inputSchema of the tool has them."}}},
"annotations": {"readOnlyHint": false, "destructiveHint": true, "openWorldHint": true}}"""
_READ_ONLY: Final[dict[str, object]] = {
    "name": CALL_READ_ONLY_TOOL,
    "title": "Call a read-only tool",
    "description": "Calls a tool that search_tools found, provided that it changes nothing (readOnlyHint).",
    "annotations": {"readOnlyHint": True, "openWorldHint": True},
}


class _Arguments(msgspec.Struct):
    query: str
    server: str | None = None
    limit: int | None = None
    offset: int | None = None


def definitions(servers: Iterable[str], *, has_read_only: bool = False, has_tasks: bool = False) -> list[bytes]:
    """Returns the entries of `search_tools`, `call_tool` and, if asked for, `call_read_only_tool` for `tools/list`.

    Args:
        servers: the aliases that the first one names.
        has_tasks: they may be called as tasks of 2025-11-25.
    """
    about = (
        f"Finds tools of these servers: {', '.join(servers)}. Say in key words, with synonyms, what is to be done. The "
        "answer has the best tools with their inputSchema, and the names of further ones. Then call one with call_tool."
    )
    call = msgspec.json.decode(_CALL)
    tools = [{**msgspec.json.decode(_SEARCH), "description": about}, call]
    tools += [{**call, **_READ_ONLY}] if has_read_only else []
    execution = {"execution": {"taskSupport": "optional"}} if has_tasks else {}
    return [msgspec.json.encode(tool | execution) for tool in tools]


def answer_search(
    index: Index,
    arguments: bytes,
    servers: Mapping[str, str],
    features: Features,
    *,
    allowed: Callable[[str], bool] | None = None,
    missing: Mapping[str, str] = {},
) -> bytes:
    """Returns the result of a call of `search_tools`, a JSON object: text, and the same as `structuredContent` where
    the client's revision has that.

    Args:
        index: the tools of the catalogue.
        arguments: those of the call, JSON.
        servers: what each server is for, by its alias: those that the caller may know.
        features: those of the client's revision.
        allowed: True for the name of a tool that the caller may know.
        missing: why servers are missing in the index, by their aliases.
    """
    try:
        asked = msgspec.json.decode(arguments, type=_Arguments, strict=False)  # models write numbers as texts
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return error_result(
            f"{error}. Expected a text as query, and at will server (text), limit and offset (integers)."
        )
    if asked.server is not None and asked.server not in servers:
        return error_result(f"There is no server {_line(asked.server)!r}. Servers:\n{_lines(servers.items())}")
    found = index.search(
        asked.query,
        server=asked.server,
        limit=HITS_USUAL if asked.limit is None else asked.limit,
        offset=asked.offset or 0,
        allowed=allowed,
    )
    text, structured = _told(found, asked, servers)
    if missing:
        told = {alias: _line(why) for alias, why in missing.items()}
        structured["missing"] = told
        text += f"\n\nTools of these servers are missing, search again later:\n{_lines(told.items())}"
    return _result(text, structured if features.structured else None)


def _told(found: Found, asked: _Arguments, servers: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Returns the text and the structured content of an answer."""
    whole = [] if asked.query.strip() in ("", "*") else _shown(found.hits)
    more = {hit.name: _sentence(hit) for hit in found.hits if hit not in whole}
    structured: dict[str, Any] = {
        "tools": [msgspec.Raw(hit.definition) for hit in whole],
        "more": [{"name": name, "description": about} for name, about in more.items()],
    }
    parts = []
    if not found.hits and asked.offset:
        parts.append("There are no further tools.")
    elif not found.hits:
        structured["servers"] = {alias: _line(purpose) for alias, purpose in servers.items()}
        parts += [
            f"No tool is found for {_line(asked.query)!r}. Servers:\n{_lines(servers.items())}",
            "Ask again with other words for what to do and with what, or list all tools of a server: its alias as "
            "server, and an empty query.",
        ]
    if whole:
        parts.append("Call one of these tools with call_tool(name, arguments):")
        parts += [hit.definition.decode(errors="replace") for hit in whole]
    if more:
        parts.append(f"More tools; a search for the name of one shows its inputSchema:\n{_lines(more.items())}")
    if found.next_offset is not None:
        structured["next_offset"] = found.next_offset
        parts.append(f"There are more, from offset {found.next_offset} on.")
    return "\n\n".join(parts), structured


def _shown(hits: Iterable[Hit]) -> list[Hit]:
    """Returns the hits that are shown with their definition: the first, and those behind that fit."""
    shown: list[Hit] = []
    left = DEFINITIONS_MAX_BYTES
    for at, hit in enumerate(hits):
        size = len(hit.definition)
        if len(shown) < DEFINITIONS_MAX and size <= (left if at else DEFINITION_MAX_BYTES):
            shown.append(hit)
            left -= size
    return shown


def _sentence(hit: Hit) -> str:
    tool = read_definition(hit.definition)
    return "" if tool is None else _line(tool.sentence_and_rest[0])


def _line(text: str) -> str:
    """Returns a text as one line, cut off if it is long."""
    line = " ".join(clip(text, 2 * LINE_MAX_CHARS).split())
    return line if len(line) <= LINE_MAX_CHARS else line[: LINE_MAX_CHARS - 1] + "…"


def _lines(named: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"- {name}: {_line(about)}" if about else f"- {name}" for name, about in named)


def error_result(text: str) -> bytes:
    """Returns the result of a call that cannot be done, with what is wrong, for the model."""
    return msgspec.json.encode({"content": [{"type": "text", "text": text}], "isError": True})


def _result(text: str, structured: dict[str, Any] | None) -> bytes:
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    if structured is not None:
        result["structuredContent"] = structured
    return msgspec.json.encode(result)
