"""What is seen of one client, and what it still owes: threads that say lines wait here for the right moment."""

from __future__ import annotations

import threading
import time
from typing import Final

from ....core.oracle.observations import AnyObservation, Role, Said
from ..script.behaviour import Deed, Line, Script, When
from ..script.steps import Json, decoded
from ..script.survey import Played

OBSERVATIONS_MAX: Final = 2_000
"""Kept of one conversation, which has some dozens; a client that says more is stopped."""
QUIET_S: Final = 0.15
"""What a client has to be silent before a line is said that is to come late."""


class Ledger:
    """One conversation. Args: `timeout_s`: how long the client may take to answer a question."""

    def __init__(self, timeout_s: float) -> None:
        self.seen: list[tuple[int, AnyObservation]] = []
        self.is_over = False
        self.is_cut = False
        self.vain: set[int] = set()
        """Wires on which an answer was waited for in vain."""
        self.active_at = time.monotonic()
        """When something was said last, by either side."""
        self._timeout_s = timeout_s
        self._heard_at = self.active_at
        self._owed: dict[int, list[object]] = {}
        self._gone: set[int] = set()
        self._busy = 0
        self._changed = threading.Condition(threading.RLock())

    @property
    def lock(self) -> threading.Condition:
        """Held while something is noted and done, where nothing may come in between."""
        return self._changed

    @property
    def is_idle(self) -> bool:
        """No line waits to be said."""
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

    def _note(self, wire: int, said: Said) -> None:
        owed = self._owed.setdefault(wire, [])
        if said.sender is Role.CLIENT:
            self._heard_at = self.active_at
        for message in decoded(said.message):
            id = message.get("id")
            if said.sender is Role.SERVER and "method" in message and isinstance(id, str | int):
                owed.append(id)
            elif said.sender is Role.CLIENT and "method" not in message and id in owed:
                owed.remove(id)

    def leave(self, wire: int) -> None:
        """The client has gone from a wire: nothing is owed there."""
        with self._changed:
            self._gone.add(wire)
            self._changed.notify_all()

    def close(self) -> None:
        """The conversation is over: nobody waits any more."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()

    def wait(self, when: When, wire: int) -> bool:
        """Until a line may be said. False: it is not to be said any more."""
        with self._changed:
            self._busy += 1
            try:
                if when is When.ANSWERED:
                    self._wait_answered(wire)
                elif when is When.QUIET:
                    while not self._is_left(wire) and (left := self._heard_at + QUIET_S - time.monotonic()) > 0:
                        self._changed.wait(left)
            finally:
                self._busy -= 1
            return not self._is_left(wire)

    def _wait_answered(self, wire: int) -> None:
        until = time.monotonic() + self._timeout_s
        while not self._is_left(wire) and self._owed.get(wire):
            left = until - time.monotonic()
            if left <= 0:
                self.vain.add(wire)
                self.close()
                return
            self._changed.wait(left)

    def _is_left(self, wire: int) -> bool:
        return self.is_over or wire in self._gone

    def wait_over(self, wire: int) -> None:
        """Until the conversation is over, or the client has gone."""
        with self._changed:
            while not self._is_left(wire):
                self._changed.wait()

    def played(self, *, is_hung: bool) -> Played:
        """What was seen. `is_hung`: the client was still there, and nobody owed it anything."""
        return Played(self.seen, self.is_cut, frozenset(self.vain), is_hung)


def lines_of(deed: Deed, message: Json, script: Script) -> list[tuple[Line, str]]:
    """The lines of a deed that are said about a message, each with its text."""
    filled = [(line, script.fill(line.body, message)) for line in deed.lines]
    return [(line, text) for line, text in filled if text is not None]
