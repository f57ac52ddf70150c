"""The health of a server over all its sessions: ends crash loops, and feeds status reports.

A link pauses by itself before it starts its process again. But a client whose session failed opens another one, with a
link of its own. So failures are counted for each server as well: after `Limits.crash_loop_failures` in a row nothing is
started for a pause, which doubles each time up to `Limits.crash_loop_pause_max_s`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import Final

from ..base.limits import Limits

TOOLS_COUNTED_MAX: Final = 100
"""Tools of a server whose refused calls are counted by their names, which callers choose. At it: those of further tools
count together."""
TOOL_MAX_CHARS: Final = 128
"""The longest name of a tool that is counted so (2025-11-25 server/tools, "Tool Names"). At it: calls of one with a
longer name count with those of the further tools."""
FURTHER: Final = "(further)"
"""The name under which the further tools count."""


class Health:
    """The failures of one server.

    Attributes:
        starts: processes or connections that were begun.
        failures: processes or connections that failed or died young, in all.
        in_a_row: processes that failed so since the last one that proved itself.
        is_failing: the last attempt failed.
        last_error: how the last process or connection ended.
        is_stopped: an operator has stopped the server; nothing is started before it is started again.
        differences: what is wrong with definitions that it lists, by kind and name: those that differ from the approved
            ones, say.
        differences_seen: the number of times that such a difference was new.
        cache_hits: requests that were answered with a result that was kept (`core/caching`).
        cache_misses: requests that were not, though they could have been.
        noise: the number of things it sent that are no messages, by their kind.
        limited: the number of calls that a rate limit has refused, by the name of the tool.
    """

    __slots__ = (
        "_closed_until",
        "_limits",
        "cache_hits",
        "cache_misses",
        "differences",
        "differences_seen",
        "failures",
        "in_a_row",
        "is_failing",
        "is_stopped",
        "last_error",
        "limited",
        "noise",
        "starts",
    )

    def __init__(self, limits: Limits) -> None:
        self.starts = 0
        self.failures = 0
        self.in_a_row = 0
        self.is_failing = False
        self.last_error = ""
        self.is_stopped = False
        self.differences: dict[tuple[str, str], str] = {}
        self.differences_seen = 0
        self.cache_hits = 0
        self.cache_misses = 0
        self.noise: Counter[str] = Counter()
        self.limited: Counter[str] = Counter()
        self._limits = limits
        self._closed_until = float("-inf")

    def why_not(self, now: float) -> str | None:
        """Returns why nothing may be started now; None if it may."""
        if self.is_stopped:
            return "it is stopped; start it first"
        left = self.pause_left(now)
        if left > 0:
            return f"it failed {self.in_a_row} times in a row, and is left alone for {left:.0f} s: {self.last_error}"
        return None

    def pause_left(self, now: float) -> float:
        """Returns the seconds until the server is tried again; 0 if it may be now."""
        return max(0.0, self._closed_until - now)

    def receive_start(self) -> None:
        self.starts += 1

    def receive_cache_hit(self) -> None:
        self.cache_hits += 1

    def receive_cache_miss(self) -> None:
        self.cache_misses += 1

    def receive_noise(self, kind: str) -> int:
        """Counts what the server sent and is no message. Returns the number of its kind."""
        self.noise[kind] += 1
        return self.noise[kind]

    def receive_limited(self, tool: str) -> None:
        """Counts a call that a rate limit has refused."""
        is_counted = tool in self.limited or len(self.limited) < TOOLS_COUNTED_MAX
        self.limited[tool if is_counted and len(tool) <= TOOL_MAX_CHARS else FURTHER] += 1

    def receive_definition(self, kind: str, name: str, fault: str) -> bool:
        """Records what is wrong with a definition; an empty text: nothing is. True if that is worth a note.

        Where there is no room for it (`Limits.tools_known_max`), it is not recorded, and every time is the first.
        """
        if not fault:
            self.differences.pop((kind, name), None)
            return False
        if self.differences.get((kind, name)) == fault:
            return False
        self.differences_seen += 1
        if (kind, name) in self.differences or len(self.differences) < self._limits.tools_known_max:
            self.differences[kind, name] = fault
        return True

    def receive_definitions(self, kind: str, names: Container[str]) -> None:
        """Records the names of a whole list: of others, nothing is wrong any more."""
        for known in [known for known in self.differences if known[0] == kind and known[1] not in names]:
            del self.differences[known]

    def receive_loss(self, reason: str) -> None:
        """Records how a session ended that had worked, or that this machine had no room for. It counts as no
        failure."""
        self.last_error = reason

    def receive_ready(self) -> None:
        """Records that the server came up."""
        self.is_failing = False

    def receive_proof(self) -> None:
        """Records that the server stood for long, or answered a request."""
        self.in_a_row = 0

    def receive_refusal(self, reason: str) -> None:
        """Records that a server which is not a process of the proxy did not come up."""
        self.failures += 1
        self.is_failing = True
        self.last_error = reason

    def receive_failure(self, reason: str, now: float) -> None:
        """Records that a process did not come up, or ended before it had answered anything."""
        self.receive_refusal(reason)
        self.in_a_row += 1
        beyond = self.in_a_row - self._limits.crash_loop_failures
        if beyond >= 0:
            pause = self._limits.crash_loop_pause_s * 2.0 ** min(beyond, 16)
            self._closed_until = now + min(pause, self._limits.crash_loop_pause_max_s)

    def receive_order(self, *, is_stopped: bool) -> None:
        """Stops the server, or starts it again, for an operator: earlier failures are forgotten."""
        self.is_stopped = is_stopped
        self.is_failing = False
        self.in_a_row = 0
        self._closed_until = float("-inf")
