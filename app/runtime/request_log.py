"""The lines of the log about clients: each request that is over, and each session that begins and ends."""

from __future__ import annotations

import logging
from typing import Final

from ...core.base.happenings import Happening, Outcome, RequestOver, SessionBegun, SessionOver
from ..base.logs import REQUESTS, FrequentLog
from ..base.output import short

_log: Final = FrequentLog(REQUESTS)
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
    return _log.logger.isEnabledFor(logging.INFO)


def write(happening: Happening) -> None:
    match happening:
        case RequestOver():
            if happening.method not in _SILENT or happening.outcome is not Outcome.RESULT:
                _log.write(_request(happening))
        case SessionBegun():
            _log.write(f"{happening.server}: session begun, revision {happening.revision}{_by(happening)}")
        case SessionOver():
            _log.write(f"{happening.server}: session over: {happening.reason}{_by(happening)}")


def _request(over: RequestOver) -> str:
    what = f"{over.method} {over.target}" if over.target else over.method
    outcome = _OUTCOMES[over.outcome] if over.code is None else f"error {over.code}"
    return f"{over.server}: {what} {outcome} in {_duration(over.took_s)}{_by(over)}"


def _duration(seconds: float) -> str:
    if seconds >= 10:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else "<1 ms"


def _by(happening: Happening) -> str:
    client = short(happening.client) or "a client without a name"
    return f" ({client}, {happening.session[:_SESSION_CHARS]})"
