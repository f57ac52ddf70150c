"""A server that is played on two-way streams of messages, whatever carries them: each is a wire of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final

from ....core.oracle.observations import Role, Said
from ..script.behaviour import Behaviour, Deed, Line, Script, acknowledgement
from ..script.steps import Json
from .ledger import Ledger, lines_of

CONNECTIONS_MAX: Final = 8
"""Servers that a client starts, or connections that it opens, in one conversation; those that probe have two."""


class Company:
    """Everybody on whom the server is played in one conversation."""

    def __init__(self, behaviour: Behaviour, ledger: Ledger) -> None:
        self.behaviour = behaviour
        self.ledger = ledger
        self._scripts: list[Script] = []

    @property
    def is_full(self) -> bool:
        """There are as many as there may be in one conversation."""
        return len(self._scripts) >= CONNECTIONS_MAX

    def begin(self, channel: int, write: Callable[[str], None], cut: Callable[[], None]) -> Performer | None:
        """One more; None: there are too many.

        Args:
            channel: on which the server says all that it says.
            write: has the client read one message, after all that were written before; raises OSError if it has gone.
            cut: hangs up.
        """
        with self.ledger.lock:
            if self.is_full:
                return None
            self._scripts.append(Script(self.behaviour, before=self._scripts[-1] if self._scripts else None))
            return Performer(len(self._scripts) - 1, self._scripts[-1], self.ledger, channel, write, cut)


class Performer:
    """One of them. See `Company.begin`."""

    def __init__(
        self,
        wire: int,
        script: Script,
        ledger: Ledger,
        channel: int,
        write: Callable[[str], None],
        cut: Callable[[], None],
    ) -> None:
        self.wire = wire
        self._script = script
        self._ledger = ledger
        self._channel = channel
        self._write = write
        self._cut = cut
        self._threads: list[threading.Thread] = []
        self._saying = threading.Lock()

    def hear(self, text: bytes, channel: int) -> None:
        """The client has said this."""
        self._ledger.see(self.wire, Said(channel, Role.CLIENT, text, at=time.monotonic()))

    def deed_for(self, message: Json) -> Deed | None:
        """What is to be done about a message; None for an answer."""
        if "method" not in message:
            return None
        if message["method"] == "subscriptions/listen" and self._script.behaviour.is_stateless:
            return Deed("subscriptions/listen", (Line(acknowledgement(message)),))
        with self._ledger.lock:
            return self._script.deed_for(message)

    def lines_of(self, deed: Deed, message: Json) -> list[tuple[Line, str]]:
        return lines_of(deed, message, self._script)

    def perform(self, deed: Deed, message: Json) -> None:
        """Do it, in a thread of its own."""
        thread = threading.Thread(target=self._perform, args=(deed, message), daemon=True)
        self._threads.append(thread)
        thread.start()

    def say(self, text: str) -> None:
        with self._saying, contextlib.suppress(OSError):  # what is said is seen in the order in which it is said
            if not self._ledger.is_over:
                self._ledger.see(self.wire, Said(self._channel, Role.SERVER, text.encode(), at=time.monotonic()))
                self._write(text)

    def leave(self) -> None:
        """The client has gone."""
        self._ledger.leave(self.wire)

    def join(self) -> None:
        """When it has gone, and all is cut: until nothing is left."""
        for thread in self._threads:
            thread.join()

    def _perform(self, deed: Deed, message: Json) -> None:
        for number, (line, text) in enumerate(self.lines_of(deed, message)):
            if number == deed.cut_after or not self._ledger.wait(line.when, self.wire):
                break
            self.say(text)
        if deed.cut_after is not None:
            self._cut()
