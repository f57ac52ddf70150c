"""A scripted server on two-way streams of messages, whatever carries them. Each stream is a session of its own."""

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
"""Servers that a client may start, or connections that it may open, in a conversation; clients that probe need two."""


class ServerConnections:
    """The connections of the client in one conversation."""

    def __init__(self, behaviour: Behaviour, ledger: Ledger) -> None:
        self.behaviour = behaviour
        self.ledger = ledger
        self._scripts: list[Script] = []

    @property
    def is_full(self) -> bool:
        """True if there are as many connections as a conversation may have."""
        return len(self._scripts) >= CONNECTIONS_MAX

    def begin(self, channel: int, write: Callable[[str], None], cut: Callable[[], None]) -> ServerConnection | None:
        """Adds a connection; None if there are too many.

        Args:
            channel: the channel of all messages of the server.
            write: sends one message, in order; raises OSError if the client has closed the connection.
            cut: closes the connection.
        """
        with self.ledger.lock:
            if self.is_full:
                return None
            self._scripts.append(Script(self.behaviour, before=self._scripts[-1] if self._scripts else None))
            return ServerConnection(len(self._scripts) - 1, self._scripts[-1], self.ledger, channel, write, cut)


class ServerConnection:
    """The server's side of one connection. See `ServerConnections.begin`."""

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
        self._send_lock = threading.Lock()

    def receive(self, text: bytes, channel: int) -> None:
        """Notes a message of the client."""
        self._ledger.see(self.wire, Said(channel, Role.CLIENT, text, at=time.monotonic()))

    def deed_for(self, message: Json) -> Deed | None:
        """Returns the reaction to a message; None if it is a response."""
        if "method" not in message:
            return None
        if message["method"] == "subscriptions/listen" and self._script.behaviour.is_stateless:
            return Deed("subscriptions/listen", (Line(acknowledgement(message)),))
        with self._ledger.lock:
            return self._script.deed_for(message)

    def lines_of(self, deed: Deed, message: Json) -> list[tuple[Line, str]]:
        return lines_of(deed, message, self._script)

    def carry_out(self, deed: Deed, message: Json) -> None:
        """Carries out a deed in a thread of its own."""
        thread = threading.Thread(target=self._carry_out, args=(deed, message), daemon=True)
        self._threads.append(thread)
        thread.start()

    def send(self, text: str) -> None:
        # The lock makes the order of observations that of the messages.
        with self._send_lock, contextlib.suppress(OSError):
            if not self._ledger.is_over:
                self._ledger.see(self.wire, Said(self._channel, Role.SERVER, text.encode(), at=time.monotonic()))
                self._write(text)

    def leave(self) -> None:
        """Notes that the client has closed the connection."""
        self._ledger.leave(self.wire)

    def join(self) -> None:
        """Waits for the threads of all deeds. Call it after the connection is closed."""
        for thread in self._threads:
            thread.join()

    def _carry_out(self, deed: Deed, message: Json) -> None:
        for number, (line, text) in enumerate(self.lines_of(deed, message)):
            if number == deed.cut_after or not self._ledger.wait(line.when, self.wire):
                break
            self.send(text)
        if deed.cut_after is not None:
            self._cut()
