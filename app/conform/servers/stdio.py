"""A scripted server that the client under test starts itself. The command for it is `relay`, which connects here."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from typing import Final

from ....core.oracle.observations import PIPE_CHANNEL
from ..script.behaviour import Behaviour
from ..script.steps import decoded
from ..script.survey import Played
from .client_process import Client, ClientRunner, for_server
from .duplex import ServerConnections
from .ledger import Ledger
from .relay import HOST

LINE_MAX_BYTES: Final = 16 * 1024 * 1024
"""Far above the size of a client's message; a longer line ends the conversation."""
TOKEN_WAIT_S: Final = 5.0


class PipeClientRunner(ClientRunner):
    """Runs a client against a scripted server on stdio, a new one for each conversation."""

    def __call__(self, behaviour: Behaviour) -> Played:
        """Starts the client, and plays its server.

        Raises:
            Failed: the client cannot be started.
        """
        ledger, token = Ledger(self._timeout_s), secrets.token_hex(16)
        with socket.create_server((HOST, 0)) as listener:
            port = listener.getsockname()[1]
            client = Client(for_server(self._spec, port, token))
            pipes = PipeListener(listener, token, ServerConnections(behaviour, ledger))
            try:
                is_hung = client.wait(ledger, self._timeout_s)
            finally:
                pipes.cut()  # first: ends writes that are blocked because the client reads nothing
                ledger.close()
                client.end()
                pipes.close()
        self.words = list(client.words)
        return ledger.played(is_hung=is_hung)


class PipeListener:
    """Accepts connections of the relays that the client starts; those without the token are closed."""

    def __init__(self, listener: socket.socket, token: str, connections: ServerConnections) -> None:
        self._listener = listener
        self._token = token
        self._connections = connections
        self._pipes: list[_Pipe] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Closes all connections, and accepts no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for pipe in self._pipes:
            pipe.cut()

    def close(self) -> None:
        """Waits for all threads. Call it after the client has ended."""
        for pipe in self._pipes:
            pipe.close()

    def _accept(self) -> None:
        while not self._connections.is_full:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            peer.settimeout(TOKEN_WAIT_S)
            with contextlib.suppress(OSError):
                if _first_line(peer) == self._token:
                    peer.settimeout(None)
                    self._pipes.append(_Pipe(peer, self._connections))
                    continue
            peer.close()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # refuses further connections, which would wait for nothing


def _first_line(peer: socket.socket) -> str:
    """Reads the first line byte by byte, so that nothing after it is consumed."""
    line = b""
    while (byte := peer.recv(1)) not in (b"", b"\n") and len(line) < 64:
        line += byte
    return line.decode(errors="replace")


class _Pipe:
    """One connection of a relay."""

    def __init__(self, peer: socket.socket, connections: ServerConnections) -> None:
        self._peer = peer
        connection = connections.begin(PIPE_CHANNEL, self._write, self.cut)
        assert connection is not None  # `_accept` checks `is_full` before, and is the only caller
        self._connection = connection
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def close(self) -> None:
        self.cut()
        self._reader.join()
        self._connection.join()
        self._peer.close()

    def cut(self) -> None:
        with contextlib.suppress(OSError):
            self._peer.shutdown(socket.SHUT_RDWR)

    def _write(self, text: str) -> None:
        self._peer.sendall(text.encode() + b"\n")

    def _read(self) -> None:
        with contextlib.suppress(OSError), self._peer.makefile("rb") as lines:
            while (line := lines.readline(LINE_MAX_BYTES)).endswith(b"\n"):
                if line.strip():
                    self._receive(line.rstrip(b"\r\n"))
        self._connection.leave()
        self.cut()

    def _receive(self, line: bytes) -> None:
        self._connection.receive(line, PIPE_CHANNEL)
        for message in decoded(line):
            deed = self._connection.deed_for(message)
            if deed is not None:
                self._connection.carry_out(deed, message)
