"""Words for inputs that only a driver can have got wrong. The engine itself compares types, which costs no call."""

from __future__ import annotations

from .errors import LocalProtocolError
from .events import Cause, End


def no_message(given: object) -> LocalProtocolError:
    """Returns the error for a message, or a piece of one, that is not `bytes`."""
    instead = "encode it" if isinstance(given, str) else "pass bytes(…) of it"
    return LocalProtocolError(f"got a message of type {type(given).__name__}, expected bytes: {instead}")


def no_cause(given: object) -> LocalProtocolError:
    """Returns the error for what is no `Cause`, or one whose `end` is no `End`."""
    if isinstance(given, Cause):
        return no_member(given.end, End, "Cause.end")
    return LocalProtocolError(f"got a cause of type {type(given).__name__}, expected a Cause")


def no_opening(given: object) -> LocalProtocolError:
    """Returns the error for what opens no channel."""
    return LocalProtocolError(f"got an opening of type {type(given).__name__}, expected one such as PipeOpening")


def no_member(given: object, kind: type, name: str) -> LocalProtocolError:
    """Returns the error for a value that is no member of an enumeration. `name` is where it was given."""
    members = ", ".join(map(str, kind))  # type: ignore[call-overload]
    return LocalProtocolError(f"{name}: got {given!r:.60}, expected one of {members}")
