"""Happenings: requests and sessions of clients that began or are over, for a log, metrics or an audit.

The engine orders a `Tell` for each, if `Plan.tells` says that somebody wants it. None holds a payload or a secret.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

NAME_MAX_CHARS: Final = 80
"""Characters of a name that is told. Names that people choose are shorter. At it: the rest is left out."""


class Happening(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Something that happened in a session of a client.

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


class SessionBegun(Happening, frozen=True):
    """A client has a session."""


class SessionOver(Happening, frozen=True):
    """The session of a client is over. `reason` is for people."""

    reason: str


class Outcome(enum.Enum):
    """The outcome of a request."""

    RESULT = "result"
    TOOL_ERROR = "tool error"  # a result with isError
    ERROR = "error"
    CANCELLED = "cancelled"


class RequestOver(Happening, frozen=True):
    """A request of a client is over.

    Attributes:
        method: the method, as the client sent it.
        target: the name of the tool or prompt, as the client knows it; "" for other methods.
        code: the code of an error.
        took_s: seconds from the request to its response.
    """

    method: str
    target: str
    outcome: Outcome
    took_s: float
    code: int | None = None
