"""Parses and formats trace contexts: `traceparent` and `tracestate`.

Source: W3C Trace Context, https://www.w3.org/TR/trace-context/.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

STATE_MAX_CHARS: Final = 512
"""Characters of a `tracestate`. The recommendation asks for no more to be passed on. At it: it is dropped."""
STATE_MAX_MEMBERS: Final = 32
"""Members of a `tracestate`, as the recommendation has it. At it: it is dropped."""
SAMPLED: Final = 1
"""The flag of a request whose client records it."""

_PARENT: Final = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace_id>[0-9a-f]{32})-(?P<span_id>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<rest>-.*)?"
)
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16
_PRINTABLE: Final = r"\x21-\x2b\x2d-\x3c\x3e-\x7e"  # neither a comma nor an equals sign
_MEMBER: Final = re.compile(rf"(?P<key>[a-z0-9][a-z0-9_*/@-]{{0,255}})=[\x20{_PRINTABLE}]{{0,255}}[{_PRINTABLE}]")


class TraceContext(msgspec.Struct, frozen=True):
    """A span of a trace, as a request names it.

    Attributes:
        trace_id: 32 hexadecimal digits in lower case, not all of them 0.
        span_id: 16 hexadecimal digits in lower case, not all of them 0.
        flags: 0 to 255.
        state: a valid `tracestate`; "" if there is none.
    """

    trace_id: str
    span_id: str
    flags: int = 0
    state: str = ""

    @property
    def is_sampled(self) -> bool:
        """True if the sender records the trace."""
        return bool(self.flags & SAMPLED)


def parse_context(parent: str, state: str = "") -> TraceContext | None:
    """Returns the context in a `traceparent` and the `tracestate` beside it; None if the `traceparent` is invalid.

    An invalid `tracestate` counts as missing. Of a version that is not known, the beginning is read, as the
    recommendation asks for.
    """
    found = _PARENT.fullmatch(parent)
    if found is None or found["version"] == "ff" or (found["version"] == "00" and found["rest"] is not None):
        return None
    if found["trace_id"] == _NO_TRACE or found["span_id"] == _NO_SPAN:
        return None
    return TraceContext(found["trace_id"], found["span_id"], int(found["flags"], 16), parse_state(state))


def format_parent(context: TraceContext) -> str:
    """Returns the `traceparent` of a context."""
    return f"00-{context.trace_id}-{context.span_id}-{context.flags:02x}"


def parse_state(state: str) -> str:
    """Returns a `tracestate` without needless spaces; "" if it is invalid, or too long."""
    if not state or len(state) > STATE_MAX_CHARS:
        return ""
    members = [member for part in state.split(",") if (member := part.strip(" \t"))]
    keys = [found["key"] for member in members if (found := _MEMBER.fullmatch(member)) is not None]
    if len(keys) != len(members) or len(set(keys)) != len(keys) or len(keys) > STATE_MAX_MEMBERS:
        return ""
    return ",".join(members)
