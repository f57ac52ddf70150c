"""Observations on the wire of one connection or session, and violations that the oracle reports.

An observation is a fact: a channel opened, a response's head came, a message was sent, a channel ended. Observations
are frozen, tagged structs, so a wire log is JSON Lines without further code: `msgspec.json.encode(observation)` writes
a line, and `decode_observation` reads it.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

PIPE_CHANNEL: Final = 0
"""The only channel of `Transport.PIPE`; it is open from the beginning."""

Headers = tuple[tuple[str, str], ...]


class Role(enum.Enum):
    """The two ends of the wire."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def other(self) -> Role:
        return Role.SERVER if self is Role.CLIENT else Role.CLIENT


class Transport(enum.Enum):
    """The carrier of the messages."""

    PIPE = "pipe"  # stdio, WebSocket, or any other two-way stream of messages
    HTTP = "http"  # Streamable HTTP
    EVENTS = "events"  # HTTP+SSE of 2024-11-05: one event stream, and POSTs


class Verb(enum.Enum):
    """The method of the HTTP request that a channel is."""

    POST = "POST"
    GET = "GET"
    DELETE = "DELETE"


class Severity(enum.Enum):
    """The wording of the clause: MUST (or MUST NOT), or SHOULD (or SHOULD NOT)."""

    MUST = "must"
    SHOULD = "should"


class Observation(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """One fact that was observed. `channel` is a number of the caller's, never used twice."""

    channel: int


class Opened(Observation, frozen=True):
    """The client sent the head of an HTTP request; a POST's body follows as `Said`.

    Attributes:
        session: the `Mcp-Session-Id` header.
        revision: the `MCP-Protocol-Version` header.
        accept: the `Accept` header; None: not observed.
        last_event_id: the `Last-Event-ID` header.
        mirrored: the headers `Mcp-Method`, `Mcp-Name` and `Mcp-Param-…` as they came; None: not observed.
    """

    verb: Verb
    session: str | None = None
    revision: str | None = None
    accept: str | None = None
    last_event_id: str | None = None
    mirrored: Headers | None = None


class Head(Observation, frozen=True):
    """The server sent the head of an HTTP response.

    Attributes:
        content_type: without parameters, in lower case; "" for none; None: not observed.
        session: the `Mcp-Session-Id` header.
    """

    status: int
    content_type: str | None = None
    session: str | None = None


class Said(Observation, frozen=True):
    """One message: a line of a pipe, the body of a POST, a JSON body, or an event's data.

    Attributes:
        message: its bytes, without framing.
        event: the type of the event it came in.
        event_id: the id of the event it came in.
        at: seconds on any clock that does not run backwards; None: not observed.
    """

    sender: Role
    message: bytes
    event: str = "message"
    event_id: str | None = None
    at: float | None = None


class Ended(Observation, frozen=True):
    """A channel ended.

    Attributes:
        by: the role that ended it; None: the connection was lost.
    """

    by: Role | None = None


AnyObservation = Opened | Head | Said | Ended

_decoder: Final[msgspec.json.Decoder[AnyObservation]] = msgspec.json.Decoder(AnyObservation)


def decode_observation(line: bytes) -> AnyObservation:
    """Reads one line of JSON.

    Raises:
        ValueError: the line is no observation.
    """
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"this is no observation: {error}") from None


class Violation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A clause that was broken.

    Attributes:
        rule: the id of the rule, a key of `RULES`; it stays the same from version to version.
        who: the role that broke it.
        text: what was observed, and what would have been right. It has names, ids and codes, and no other payload.
        clause: revision, page and section, such as '2025-11-25 basic/transports, "Session Management"'.
        observations: numbers of the observations that show it, counted from 0 in the order they were received.
    """

    rule: str
    who: Role
    severity: Severity
    text: str
    clause: str
    observations: tuple[int, ...]
