"""The lines of the log about clients: each request that is over, and each session that begins and ends."""

from __future__ import annotations

import logging
from typing import Final

from ...core.base.telemetry import Detail, Outcome, RequestEnded, SessionEnded, SessionStarted, TelemetryEvent
from ..base.listeners import Listener
from ..base.logs import REQUESTS, write_later
from ..base.output import short
from ..base.tags import tag_of

_OUTCOMES: Final = {
    Outcome.RESULT: "ok",
    Outcome.TOOL_ERROR: "tool error",
    Outcome.UNREAD: "ok, unread",
    Outcome.ERROR: "error",
    Outcome.CANCELLED: "cancelled",
}
_SILENT: Final = frozenset({"initialize", "ping"})
"""Methods without a line of their own, unless they fail: a session has a line, and pings are many."""


def listeners() -> list[Listener]:
    """Returns the listener that writes these lines; none if they are not logged."""
    return [Listener(Detail.ENDS, write)] if logging.getLogger(REQUESTS).isEnabledFor(logging.INFO) else []


def write(event: TelemetryEvent) -> None:
    """Writes the line of an event, if it has one."""
    if not isinstance(event, RequestEnded | SessionStarted | SessionEnded):
        return
    if isinstance(event, RequestEnded) and event.outcome is Outcome.RESULT and event.method in _SILENT:
        return
    write_later(REQUESTS, _line, event)


def _line(event: RequestEnded | SessionStarted | SessionEnded) -> str:
    match event:
        case RequestEnded():
            what = f"{event.method} {event.target}" if event.target else event.method
            outcome = _OUTCOMES[event.outcome] if event.code is None else f"error {event.code}"
            what = f"{what} {outcome} in {_duration(event.duration_s)}"
        case SessionEnded():
            what = f"session ended: {event.reason}"
        case _:
            what = f"session started, revision {event.revision}"
    client = short(event.client) or "a client without a name"
    return f"{event.server}: {what} ({client}, {tag_of(event.session)})"


def _duration(seconds: float) -> str:
    if seconds >= 10:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else "<1 ms"
