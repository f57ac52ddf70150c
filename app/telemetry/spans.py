"""Makes spans of the requests that have some, from telemetry events.

A request has a span of kind SERVER, towards its client. Each attempt at a server has one of kind CLIENT below it. Names
and attributes are those of OpenTelemetry's semantic conventions for MCP, and what these lack begins with `isthmus.`. No
result is ever in a span, and arguments are only where the settings ask for them.

Source: semantic-conventions-genai, "Semantic conventions for Model Context Protocol (MCP)".
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import msgspec

from ...core.base.telemetry import (
    AnyEvent,
    Outcome,
    RequestAnswered,
    RequestEnded,
    RequestKey,
    RequestSent,
    RequestStarted,
    SpanIds,
    TaskGiven,
)
from ..base.tags import tag_of

OPEN_MAX: Final = 4096
"""Spans that are open at once, about a KiB each. A gateway rarely has as many requests open. At it: the oldest is
dropped, and counted."""
ARGUMENTS_MAX_CHARS: Final = 4096
"""Characters of the arguments in a span. Collectors cut longer values off. At it: the rest is left out."""
KEYS_MAX: Final = 64
"""Names of arguments in a span. Tools have fewer. At it: the rest is left out."""
SPAN_BYTES: Final = 1024
"""The memory of a span without arguments, at most."""

_NOT_PRINTED: Final = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029]")
_NAMED: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
_LOST: Final = "lost"

Value = str | int | list[str]
Arguments = Literal["never", "keys", "full"]


class FinishedSpan(NamedTuple):
    """A span that is over. Times are nanoseconds since 1970."""

    ids: SpanIds
    name: str
    is_server: bool
    begun_ns: int
    ended_ns: int
    attributes: dict[str, Value]
    is_error: bool
    links: tuple[tuple[str, str], ...]
    size_bytes: int


class _OpenSpan(NamedTuple):
    ids: SpanIds
    name: str
    begun_ns: int
    attributes: dict[str, Value]
    size_bytes: int


class Spans:
    """A listener that makes spans.

    Args:
        put: takes each span when it is over. It does not block.
        arguments: what spans of tool calls hold of the arguments.
        now_ns: the wall time, in nanoseconds since 1970.

    Attributes:
        lost: spans that were dropped while they were open.
    """

    def __init__(
        self,
        put: Callable[[FinishedSpan], None],
        arguments: Arguments = "never",
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.lost = 0
        self._put = put
        self._arguments = arguments
        self._now_ns = now_ns
        self._requests: dict[RequestKey, _OpenSpan] = {}
        self._attempts: dict[RequestKey, dict[str, _OpenSpan]] = {}  # by the id of the server

    def receive(self, event: AnyEvent) -> None:
        """Handles an event."""
        # The first two come of each request, whether or not it has a span.
        if isinstance(event, RequestEnded):
            if self._requests or self._attempts:
                self._end(event)
        elif isinstance(event, RequestAnswered):
            if self._attempts:
                self._end_attempt(event.request, event.server, "" if event.code is None else str(event.code))
        elif isinstance(event, RequestStarted):
            if event.span is not None:
                self._begin(event, event.span)
        elif isinstance(event, RequestSent):
            if event.span is not None:
                self._begin_attempt(event, event.span)
        elif isinstance(event, TaskGiven) and (found := self._requests.pop(event.request, None)) is not None:
            found.attributes["isthmus.outcome"] = "task"
            self._finish(found, is_server=True)

    def _begin(self, event: RequestStarted, ids: SpanIds) -> None:
        method, target = event.method, event.target
        attributes: dict[str, Value] = {
            "mcp.method.name": method,
            "jsonrpc.request.id": _id_of(event.id_raw),
            "mcp.session.id": tag_of(event.session),
            "isthmus.server": event.server,
            "isthmus.client": event.client,
        }
        attributes |= _transport(is_pipe=event.is_pipe)
        if event.revision:
            attributes["mcp.protocol.version"] = event.revision
        name = _name(method, target, attributes)
        size_bytes = SPAN_BYTES
        if method == "tools/call" and self._arguments != "never":
            size_bytes += _add_arguments(attributes, event.params, self._arguments)
        _make_room(self._requests, self)
        self._requests[event.request] = _OpenSpan(ids, name, self._now_ns(), attributes, size_bytes)

    def _begin_attempt(self, event: RequestSent, ids: SpanIds) -> None:
        self._end_attempt(event.request, event.server, _LOST)
        attributes: dict[str, Value] = {"jsonrpc.request.id": str(event.number), "isthmus.server": event.server}
        attributes |= _transport(is_pipe=event.is_pipe)
        if event.revision:
            attributes["mcp.protocol.version"] = event.revision
        if event.attempt > 1:
            attributes["isthmus.attempt"] = event.attempt
        outer, name = self._requests.get(event.request), "request"
        if outer is not None:
            name = outer.name
            for key in ("mcp.method.name", "gen_ai.operation.name", *_NAMED.values(), "mcp.resource.uri"):
                if key in outer.attributes:
                    attributes[key] = outer.attributes[key]
        _make_room(self._attempts, self)
        self._attempts.setdefault(event.request, {})[event.server] = _OpenSpan(
            ids, name, self._now_ns(), attributes, SPAN_BYTES
        )

    def _end_attempt(self, request: RequestKey, server: str, error: str) -> None:
        servers = self._attempts.get(request)
        found = None if servers is None else servers.pop(server, None)
        if servers is not None and not servers:
            del self._attempts[request]
        if found is not None:
            if error:
                found.attributes["error.type"] = error
                if error is not _LOST:
                    found.attributes["rpc.response.status_code"] = error
            self._finish(found, is_server=False, is_error=bool(error))

    def _end(self, event: RequestEnded) -> None:
        for server in tuple(self._attempts.get(event.request, ())):
            is_cancelled = event.outcome is Outcome.CANCELLED
            self._end_attempt(event.request, server, Outcome.CANCELLED.value if is_cancelled else _LOST)
        found = self._requests.pop(event.request, None)
        if found is None:
            return
        attributes = found.attributes
        if event.method == "initialize":  # only now is known who asked, and in which revision
            attributes |= {"isthmus.client": event.client, "mcp.protocol.version": event.revision}
        match event.outcome:
            case Outcome.ERROR:
                attributes["error.type"] = "_OTHER" if event.code is None else str(event.code)
                if event.code is not None:
                    attributes["rpc.response.status_code"] = str(event.code)
            case Outcome.TOOL_ERROR:
                attributes["error.type"] = "tool_error"
            case Outcome.CANCELLED:
                attributes["error.type"] = "cancelled"
            case Outcome.UNREAD:
                attributes["isthmus.outcome"] = "unread"  # nobody has looked whether it is an error of the tool
        self._finish(found, is_server=True, is_error="error.type" in attributes, links=event.links)

    def _finish(
        self, span: _OpenSpan, *, is_server: bool, is_error: bool = False, links: tuple[tuple[str, str], ...] = ()
    ) -> None:
        ids, name, begun_ns, attributes, size_bytes = span
        links = ids.links + links
        self._put(FinishedSpan(ids, name, is_server, begun_ns, self._now_ns(), attributes, is_error, links, size_bytes))


def _make_room(spans: dict[RequestKey, _OpenSpan] | dict[RequestKey, dict[str, _OpenSpan]], counts: Spans) -> None:
    if len(spans) >= OPEN_MAX:
        del spans[next(iter(spans))]
        counts.lost += 1


def _transport(*, is_pipe: bool) -> dict[str, Value]:
    if is_pipe:
        return {"network.transport": "pipe"}
    return {"network.transport": "tcp", "network.protocol.name": "http"}


def _name(method: str, target: str, attributes: dict[str, Value]) -> str:
    """Returns the name of a span, and adds the attributes that say what it is about."""
    shown = _NOT_PRINTED.sub("\ufffd", target)
    if method == "resources/read":
        # The query of a URI may hold a token, and what stands before the host a password.
        attributes["mcp.resource.uri"] = re.sub(r"//[^/@]*@", "//", re.split(r"[?#]", shown, maxsplit=1)[0])
    elif method in _NAMED and shown:
        attributes[_NAMED[method]] = shown
        if method == "tools/call":
            attributes["gen_ai.operation.name"] = "execute_tool"
        return f"{method} {shown}"
    return _NOT_PRINTED.sub("\ufffd", method)


def _id_of(id_raw: bytes) -> str:
    """Returns the id of a request without the quotes of a text."""
    try:
        found = msgspec.json.decode(id_raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = id_raw.decode(errors="replace")  # it was cut
    return str(found)


class _Call(msgspec.Struct):
    arguments: msgspec.Raw = msgspec.Raw()


def _add_arguments(attributes: dict[str, Value], params: bytes | None, arguments: Arguments) -> int:
    """Adds the arguments of a tool call. Returns their size in bytes."""
    try:
        raw = bytes(msgspec.json.decode(params or b"{}", type=_Call).arguments)
        keys = list(msgspec.json.decode(raw or b"{}", type=dict[str, msgspec.Raw]))[:KEYS_MAX]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    if arguments == "keys":
        shown = [_NOT_PRINTED.sub("\ufffd", key)[:SPAN_BYTES] for key in keys]
        attributes["isthmus.tool.call.argument_names"] = shown
        return sum(map(len, shown)) * 4
    text = raw.decode()[:ARGUMENTS_MAX_CHARS]
    attributes["gen_ai.tool.call.arguments"] = text
    return len(text) * 4
