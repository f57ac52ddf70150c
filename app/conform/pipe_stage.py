"""Plays a server that a client starts: the command line that it is given leads back here, by way of `relay`."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from ...core.oracle.observations import PIPE_CHANNEL, Role, Said
from .behaviour import Behaviour, Script, acknowledgement
from .client_process import Client, Stage, for_server
from .ledger import Ledger, lines_of
from .relay import HOST
from .steps import Json, decoded
from .survey import Played

LINE_MAX_BYTES: Final = 16 * 1024 * 1024
"""Far above what a client says; what is longer ends the conversation."""
CONNECTIONS_MAX: Final = 8
"""Servers that a client starts in one conversation; those that probe start two."""
TOKEN_WAIT_S: Final = 5.0


class PipeStage(Stage):
    """One server for each conversation."""

    def __call__(self, behaviour: Behaviour) -> Played:
        """Raises:
        Failed: the client cannot be started.
        """
        ledger, token = Ledger(self._timeout_s), secrets.token_hex(16)
        with socket.create_server((HOST, 0)) as listener:
            port = listener.getsockname()[1]
            client = Client(for_server(self._spec, port, token))
            gate = Gate(listener, token, behaviour, ledger)
            try:
                is_hung = client.wait(ledger, self._timeout_s)
            finally:
                gate.cut()  # first: somebody may be held up by a client that reads nothing
                ledger.close()
                client.end()
                gate.close()
        self.words = list(client.words)
        return ledger.played(is_hung=is_hung)


class Gate:
    """Takes what the client's servers connect, each a wire of its own."""

    def __init__(self, listener: socket.socket, token: str, behaviour: Behaviour, ledger: Ledger) -> None:
        self._listener = listener
        self._token = token
        self._behaviour = behaviour
        self._ledger = ledger
        self._pipes: list[_Pipe] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Hang up on everybody."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for pipe in self._pipes:
            pipe.cut()

    def close(self) -> None:
        """When the client has gone: nothing is left."""
        for pipe in self._pipes:
            pipe.close()

    def _accept(self) -> None:
        while len(self._pipes) < CONNECTIONS_MAX:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            peer.settimeout(TOKEN_WAIT_S)
            with contextlib.suppress(OSError):
                if _first_line(peer) == self._token:
                    peer.settimeout(None)
                    self._pipes.append(_Pipe(peer, len(self._pipes), Script(self._behaviour), self._ledger))
                    continue
            peer.close()


def _first_line(peer: socket.socket) -> str:
    """Byte by byte, so that nothing after it is taken."""
    line = b""
    while (byte := peer.recv(1)) not in (b"", b"\n") and len(line) < 64:
        line += byte
    return line.decode(errors="replace")


class _Pipe:
    """One connection."""

    def __init__(self, peer: socket.socket, wire: int, script: Script, ledger: Ledger) -> None:
        self._peer = peer
        self._wire = wire
        self._script = script
        self._ledger = ledger
        self._threads: list[threading.Thread] = []
        self._begin(self._read)

    def _begin(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        self.cut()
        for thread in self._threads:
            thread.join()
        self._peer.close()

    def cut(self) -> None:
        with contextlib.suppress(OSError):
            self._peer.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        with contextlib.suppress(OSError), self._peer.makefile("rb") as lines:
            while (line := lines.readline(LINE_MAX_BYTES)).endswith(b"\n"):
                if line.strip() and not self._ledger.is_over:
                    self._hear(line.rstrip(b"\r\n"))
        self._ledger.leave(self._wire)
        self.cut()

    def _hear(self, line: bytes) -> None:
        with self._ledger.lock:
            self._ledger.see(self._wire, Said(PIPE_CHANNEL, Role.CLIENT, line, at=time.monotonic()))
        for message in decoded(line):
            if "method" in message:
                self._begin(partial(self._perform, message))

    def _perform(self, message: Json) -> None:
        if message["method"] == "subscriptions/listen" and self._script.behaviour.is_stateless:
            self._say(acknowledgement(message))
            return
        with self._ledger.lock:
            deed = self._script.deed_for(message)
        for number, (line, text) in enumerate(lines_of(deed, message, self._script)):
            if number == deed.cut_after or not self._ledger.wait(line.when, self._wire):
                break
            self._say(text)
        if deed.cut_after is not None:
            self.cut()

    def _say(self, text: str) -> None:
        with self._ledger.lock, contextlib.suppress(OSError):
            if not self._ledger.is_over:
                self._ledger.see(self._wire, Said(PIPE_CHANNEL, Role.SERVER, text.encode(), at=time.monotonic()))
                self._peer.sendall(text.encode() + b"\n")
