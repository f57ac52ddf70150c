"""Telemetry events: what happens to the sessions and requests of clients, for a log, metrics, spans and an audit.

The engine orders an `Emit` for each event that `Plan.telemetry` asks for. Events of `Detail.ENDS` hold no payload and
no secret. `RequestStarted`, of `Detail.STEPS`, has the params of the request.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from .ids import ChannelId

NAME_MAX_CHARS: Final = 80
"""Characters of a name in an event. Names that people choose are shorter. At it: the rest is left out."""
TOOLS_MAX: Final = 200
"""Names of tools in one event. A page of a list has fewer. At it: the rest is left out."""


class Detail(enum.IntEnum):
    """The events that are emitted. Each level has those of the levels before it."""

    NONE = 0
    ENDS = 1  # sessions that start and end, requests that end, answers of servers, names of tools that they list
    STEPS = 2  # also requests that start and are sent to servers, tasks that clients get, and questions of servers


class Outcome(enum.Enum):
    """The outcome of a request."""

    RESULT = "result"
    TOOL_ERROR = "tool error"  # a result with isError
    UNREAD = "unread"  # a result of a tool that is too large to be searched for isError
    ERROR = "error"
    CANCELLED = "cancelled"


class Tracing(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rules for trace contexts of clients, and for spans.

    Attributes:
        is_recorded: some requests have spans: their events are emitted, whatever `Plan.telemetry` says.
        ratio: the share of these among the requests whose clients send no context.
        spans_per_second_max: spans that are made in a second. At it: further requests have none.
        bridges: the contexts of clients go on to servers, also from HTTP headers into `_meta` and from there into
            headers.
        passes_baggage: so does their baggage. Else no server gets it.
    """

    is_recorded: bool = False
    ratio: float = 0.0
    spans_per_second_max: int = 100
    bridges: bool = True
    passes_baggage: bool = True


class SpanIds(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ids of a span, as hexadecimal digits in lower case.

    Attributes:
        parent_id: the span above it in the same trace; "" if there is none.
        state: its `tracestate`.
        links: (trace id, span id) of spans that belong to it, too.
    """

    trace_id: str
    span_id: str
    parent_id: str = ""
    state: str = ""
    links: tuple[tuple[str, str], ...] = ()


RequestKey = tuple[int, int]
"""The identity of a client's request in all its events: its channel, and its ordinal among the requests there."""


class TelemetryEvent(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, gc=False):
    """An event."""


class ClientEvent(TelemetryEvent, frozen=True):
    """An event in a session of a client.

    Attributes:
        server: the id of the server or profile that the client uses.
        session: the public name of the session.
        client: the name of the client and its version, as it says them; "" if it does not.
        revision: the protocol revision of the client; "" before it is agreed on.
        principal: the authenticated caller, such as `token:ci`; "" is anonymous.
        is_pipe: the client is on a two-way stream: stdio, a WebSocket, or HTTP+SSE. Else it uses Streamable HTTP.
    """

    server: str
    session: str
    client: str
    revision: str
    principal: str
    is_pipe: bool


class SessionStarted(ClientEvent, frozen=True):
    """A client has a session."""


class SessionEnded(ClientEvent, frozen=True):
    """The session of a client has ended. `reason` is for people."""

    reason: str


class RequestStarted(ClientEvent, frozen=True):
    """A client has sent a request.

    Attributes:
        id_raw: the JSON of its id.
        method: the method, as the client sent it.
        target: the name of the tool or prompt, or the URI of the resource, as the client knows it; "" for others.
        params: the JSON of its params, as the client sent them; None if there are none.
        span: the ids of its span; None if it has none.
        address: the address that the client's channel came from, as its opening has it.
    """

    request: RequestKey
    id_raw: bytes
    method: str
    target: str
    params: bytes | None = None
    span: SpanIds | None = None
    address: str = ""


class RequestSent(TelemetryEvent, frozen=True):
    """A request was sent to a server: for a profile, to the one that its name leads to. A retry is sent again.

    Attributes:
        server: the id of the server.
        number: the JSON-RPC id under which it was sent.
        channel: the pipe, or the POST that carries it; None if the connection is gone.
        attempt: 1 for the first, 2 for the first retry.
        revision: the protocol revision of the server.
        is_pipe: the server is on a pipe. Else it is on HTTP.
        span: the ids of the span of this attempt, under that of the request; None if it has none.
    """

    request: RequestKey
    server: str
    number: int
    channel: ChannelId | None
    attempt: int
    revision: str
    is_pipe: bool
    span: SpanIds | None = None


class RequestAnswered(TelemetryEvent, frozen=True):
    """A server has answered a request. Of a large result that is passed on unread, the first bytes are there.

    Attributes:
        server: the id of the server.
        duration_s: seconds since it was sent.
        code: the code of an error.
    """

    request: RequestKey
    server: str
    method: str
    duration_s: float
    code: int | None = None


class ToolsListed(TelemetryEvent, frozen=True):
    """A server has listed its tools, or a page of them, for a client or for the gateway.

    Attributes:
        server: the id of the server.
        names: the names of the tools, in the server's own words.
    """

    server: str
    names: tuple[str, ...]


class TaskGiven(TelemetryEvent, frozen=True):
    """A client got the handle of a task in response to a request. `RequestEnded` follows with the end of the task."""

    request: RequestKey


class QuestionAsked(TelemetryEvent, frozen=True):
    """A server asks a client: for roots, a completion of a model, or input of the user.

    Attributes:
        request: the request in whose course it asks; None if that is not known.
        server: the id of the server.
        session: the public name of the session.
    """

    request: RequestKey | None
    server: str
    session: str
    method: str


class RequestEnded(ClientEvent, frozen=True):
    """A request of a client has ended.

    Attributes:
        method: the method, as the client sent it.
        target: as in `RequestStarted`.
        code: the code of an error.
        duration_s: seconds from the request to its response.
        params_bytes: bytes of its params.
        result_bytes: bytes of its result; 0 if it has none.
        links: (trace id, span id) of spans that were found to belong to it, too: that of the call whose task it is
            about, or that under which its client came back with answers. Only if it has a span.
    """

    request: RequestKey
    method: str
    target: str
    outcome: Outcome
    duration_s: float
    params_bytes: int = 0
    result_bytes: int = 0
    code: int | None = None
    links: tuple[tuple[str, str], ...] = ()


AnyEvent = (
    SessionStarted
    | SessionEnded
    | RequestStarted
    | RequestSent
    | RequestAnswered
    | ToolsListed
    | TaskGiven
    | QuestionAsked
    | RequestEnded
)
"""Every event."""
STEPS: Final = frozenset({RequestStarted, RequestSent, TaskGiven, QuestionAsked})
"""The events that are of `Detail.STEPS`."""
