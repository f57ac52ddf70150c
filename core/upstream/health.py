"""How a server's processes fare, over all sessions: what stops a crash from becoming a loop, and what is reported.

A link pauses by itself before it starts its process again; but clients whose session failed open another one, with a
link of its own. So failures are counted for each server as well, and after a few in a row nothing is started for a
while, longer each time.
"""

from __future__ import annotations

from ..base.limits import Limits


class Health:
    """Attributes:
    starts: processes, or connections, that were begun.
    failures: those that failed or died young, in all.
    in_a_row: processes that did, since the last that stood.
    is_failing: the last attempt failed.
    last_error: how the last one ended.
    is_stopped: an operator has stopped the server; nothing is started before it is started again.
    """

    __slots__ = ("_closed_until", "_limits", "failures", "in_a_row", "is_failing", "is_stopped", "last_error", "starts")

    def __init__(self, limits: Limits) -> None:
        self.starts = 0
        self.failures = 0
        self.in_a_row = 0
        self.is_failing = False
        self.last_error = ""
        self.is_stopped = False
        self._limits = limits
        self._closed_until = float("-inf")

    def why_not(self, now: float) -> str | None:
        """Why nothing may be started now; None if it may."""
        if self.is_stopped:
            return "it is stopped; start it first"
        left = self.pause_left(now)
        if left > 0:
            return f"it failed {self.in_a_row} times in a row, and is left alone for {left:.0f} s: {self.last_error}"
        return None

    def pause_left(self, now: float) -> float:
        """Seconds until it is tried again; 0 if it may be now."""
        return max(0.0, self._closed_until - now)

    def receive_start(self) -> None:
        self.starts += 1

    def receive_ready(self) -> None:
        """It came up."""
        self.is_failing = False

    def receive_proof(self) -> None:
        """It stood for long, or answered a request."""
        self.in_a_row = 0

    def receive_refusal(self, reason: str) -> None:
        """A server that is not ours to start did not come up."""
        self.failures += 1
        self.is_failing = True
        self.last_error = reason

    def receive_failure(self, reason: str, now: float) -> None:
        """A process did not come up, or was gone before it had answered anything."""
        self.receive_refusal(reason)
        self.in_a_row += 1
        beyond = self.in_a_row - self._limits.crash_loop_failures
        if beyond >= 0:
            pause = self._limits.crash_loop_pause_s * 2.0 ** min(beyond, 16)
            self._closed_until = now + min(pause, self._limits.crash_loop_pause_max_s)

    def receive_order(self, *, is_stopped: bool) -> None:
        """An operator stops it, or starts it again, whatever has been."""
        self.is_stopped = is_stopped
        self.is_failing = False
        self.in_a_row = 0
        self._closed_until = float("-inf")
