"""The lines of the log about clients: each request that is over, and each session that begins and ends."""

from __future__ import annotations

import logging
from typing import Final

from ...core.base.happenings import Happening, Outcome, RequestOver, SessionOver
from ..base.logs import REQUESTS, write_later
from ..base.output import short

_SESSION_CHARS: Final = 6
"""Characters of a session's public name, to tell two sessions of one client apart."""
_OUTCOMES: Final = {
    Outcome.RESULT: "ok",
    Outcome.TOOL_ERROR: "tool error",
    Outcome.ERROR: "error",
    Outcome.CANCELLED: "cancelled",
}
_SILENT: Final = frozenset({"initialize", "ping"})
"""Methods without a line of their own, unless they fail: a session has a line, and pings are many."""


def is_wanted() -> bool:
    """True if these lines are logged."""
    return logging.getLogger(REQUESTS).isEnabledFor(logging.INFO)


def write(happening: Happening) -> None:
    if isinstance(happening, RequestOver) and happening.outcome is Outcome.RESULT and happening.method in _SILENT:
        return
    write_later(REQUESTS, _line, happening)


def _line(happening: Happening) -> str:
    match happening:
        case RequestOver():
            what = f"{happening.method} {happening.target}" if happening.target else happening.method
            outcome = _OUTCOMES[happening.outcome] if happening.code is None else f"error {happening.code}"
            what = f"{what} {outcome} in {_duration(happening.took_s)}"
        case SessionOver():
            what = f"session over: {happening.reason}"
        case _:
            what = f"session begun, revision {happening.revision}"
    client = short(happening.client) or "a client without a name"
    return f"{happening.server}: {what} ({client}, {happening.session[:_SESSION_CHARS]})"


def _duration(seconds: float) -> str:
    if seconds >= 10:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else "<1 ms"
