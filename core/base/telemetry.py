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


class Detail(enum.IntEnum):
    """The events that are emitted. Each level has those of the levels before it."""

    NONE = 0
    ENDS = 1  # sessions that start and end, requests that end, answers of servers
    STEPS = 2  # also requests that start and are sent to servers, and questions of servers


class Outcome(enum.Enum):
    """The outcome of a request."""

    RESULT = "result"
    TOOL_ERROR = "tool error"  # a result with isError
    UNREAD = "unread"  # a result of a tool that is too large to be searched for isError
    ERROR = "error"
    CANCELLED = "cancelled"


RequestKey = tuple[int, int]
"""The identity of a client's request in all its events: its channel, and its ordinal among the requests there."""


class TelemetryEvent(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
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
        address: the address that the client's channel came from, as its opening has it.
    """

    request: RequestKey
    id_raw: bytes
    method: str
    target: str
    params: bytes | None = None
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
    """

    request: RequestKey
    server: str
    number: int
    channel: ChannelId | None
    attempt: int
    revision: str
    is_pipe: bool


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
    """

    request: RequestKey
    method: str
    target: str
    outcome: Outcome
    duration_s: float
    params_bytes: int = 0
    result_bytes: int = 0
    code: int | None = None


AnyEvent = SessionStarted | SessionEnded | RequestStarted | RequestSent | RequestAnswered | QuestionAsked | RequestEnded
"""Every event."""
