"""Telemetry events: sessions of clients that started or ended, and requests that ended, for a log, metrics or an audit.

The engine orders an `Emit` for each, if `Plan.emits_telemetry` is set. No event holds a payload or a secret.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

NAME_MAX_CHARS: Final = 80
"""Characters of a name in an event. Names that people choose are shorter. At it: the rest is left out."""


class TelemetryEvent(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """An event in a session of a client.

    Attributes:
        server: the id of the server or profile that the client uses.
        session: the public name of the session.
        client: the name of the client and its version, as it says them; "" if it does not.
        revision: the protocol revision of the client; "" before it is agreed on.
    """

    server: str
    session: str
    client: str
    revision: str


class SessionStarted(TelemetryEvent, frozen=True):
    """A client has a session."""


class SessionEnded(TelemetryEvent, frozen=True):
    """The session of a client has ended. `reason` is for people."""

    reason: str


class Outcome(enum.Enum):
    """The outcome of a request."""

    RESULT = "result"
    TOOL_ERROR = "tool error"  # a result with isError
    ERROR = "error"
    CANCELLED = "cancelled"


class RequestEnded(TelemetryEvent, frozen=True):
    """A request of a client has ended.

    Attributes:
        method: the method, as the client sent it.
        target: the name of the tool or prompt, as the client knows it; "" for other methods.
        code: the code of an error.
        duration_s: seconds from the request to its response.
    """

    method: str
    target: str
    outcome: Outcome
    duration_s: float
    code: int | None = None
