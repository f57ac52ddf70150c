"""Observations of one client, and its unanswered server requests. Threads wait here for the moment to send a line."""

from __future__ import annotations

import threading
import time
from typing import Final

from ....core.oracle.observations import AnyObservation, Role, Said
from ..script.behaviour import Deed, Line, Script, When
from ..script.steps import Json, decoded
from ..script.survey import Played

OBSERVATIONS_MAX: Final = 2_000
"""Observations kept of one conversation, which has some dozens; a client that sends more is stopped."""
QUIET_S: Final = 0.15
"""Seconds of silence of the client before a line with `When.QUIET` is sent."""


class Ledger:
    """The observations of one conversation.

    Args:
        timeout_s: timeout of the client's responses to server requests.
    """

    def __init__(self, timeout_s: float) -> None:
        self.seen: list[tuple[int, AnyObservation]] = []
        self.is_over = False
        self.is_cut = False
        self.vain: set[int] = set()
        """Sessions in which a response of the client never came."""
        self.active_at = time.monotonic()
        """Time of the last observation, of either side."""
        self._timeout_s = timeout_s
        self._client_active_at = self.active_at
        self._owed: dict[int, list[object]] = {}
        self._gone: set[int] = set()
        self._busy = 0
        self._changed = threading.Condition(threading.RLock())

    @property
    def lock(self) -> threading.Condition:
        """The lock, to be held while something is noted and done that belong together."""
        return self._changed

    @property
    def is_idle(self) -> bool:
        """True if no thread waits to send a line."""
        return self._busy == 0

    def see(self, wire: int, observation: AnyObservation) -> None:
        with self._changed:
            if self.is_over:
                return
            if len(self.seen) >= OBSERVATIONS_MAX:
                self.is_cut = True
                self.close()
                return
            self.seen.append((wire, observation))
            self.active_at = time.monotonic()
            if isinstance(observation, Said):
                self._note(wire, observation)
            self._changed.notify_all()

    def _note(self, wire: int, observation: Said) -> None:
        owed = self._owed.setdefault(wire, [])
        if observation.sender is Role.CLIENT:
            self._client_active_at = self.active_at
        for message in decoded(observation.message):
            id = message.get("id")
            if observation.sender is Role.SERVER and "method" in message and isinstance(id, str | int):
                owed.append(id)
            elif observation.sender is Role.CLIENT and "method" not in message and id in owed:
                owed.remove(id)

    def leave(self, wire: int) -> None:
        """Notes that the client has left a session: it owes nothing there any more."""
        with self._changed:
            self._gone.add(wire)
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the conversation, and wakes all threads that wait."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()

    def wait(self, when: When, wire: int) -> bool:
        """Waits until a line may be sent. False if it is not to be sent any more."""
        with self._changed:
            self._busy += 1
            try:
                if when is When.ANSWERED:
                    self._wait_answered(wire)
                elif when is When.QUIET:
                    while (
                        not self._is_closed(wire) and (left := self._client_active_at + QUIET_S - time.monotonic()) > 0
                    ):
                        self._changed.wait(left)
            finally:
                self._busy -= 1
            return not self._is_closed(wire)

    def _wait_answered(self, wire: int) -> None:
        until = time.monotonic() + self._timeout_s
        while not self._is_closed(wire) and self._owed.get(wire):
            left = until - time.monotonic()
            if left <= 0:
                self.vain.add(wire)
                self.close()
                return
            self._changed.wait(left)

    def _is_closed(self, wire: int) -> bool:
        return self.is_over or wire in self._gone

    def wait_over(self, wire: int) -> None:
        """Waits until the conversation is over, or the client has left the session."""
        with self._changed:
            while not self._is_closed(wire):
                self._changed.wait()

    def played(self, *, is_hung: bool) -> Played:
        """Returns the observations. `is_hung`: the client still ran, though nothing was owed to it."""
        return Played(self.seen, self.is_cut, frozenset(self.vain), is_hung)


def lines_of(deed: Deed, message: Json, script: Script) -> list[tuple[Line, str]]:
    """Returns the lines of a deed for a message, each with its text; leaves out those that do not apply."""
    filled = [(line, script.fill(line.body, message)) for line in deed.lines]
    return [(line, text) for line, text in filled if text is not None]
