"""Plays a server that a client starts: the command line that it is given leads back here, by way of `relay`."""

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
from .client_process import Client, Stage, for_server
from .duplex import Company
from .ledger import Ledger
from .relay import HOST

LINE_MAX_BYTES: Final = 16 * 1024 * 1024
"""Far above what a client says; what is longer ends the conversation."""
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
            gate = Gate(listener, token, Company(behaviour, ledger))
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
    """Takes what the client's servers connect."""

    def __init__(self, listener: socket.socket, token: str, company: Company) -> None:
        self._listener = listener
        self._token = token
        self._company = company
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
        while not self._company.is_full:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            peer.settimeout(TOKEN_WAIT_S)
            with contextlib.suppress(OSError):
                if _first_line(peer) == self._token:
                    peer.settimeout(None)
                    self._pipes.append(_Pipe(peer, self._company))
                    continue
            peer.close()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # whoever comes now is refused, and waits for nothing


def _first_line(peer: socket.socket) -> str:
    """Byte by byte, so that nothing after it is taken."""
    line = b""
    while (byte := peer.recv(1)) not in (b"", b"\n") and len(line) < 64:
        line += byte
    return line.decode(errors="replace")


class _Pipe:
    """One connection."""

    def __init__(self, peer: socket.socket, company: Company) -> None:
        self._peer = peer
        performer = company.begin(PIPE_CHANNEL, self._write, self.cut)
        assert performer is not None  # the gate looks before, and nobody else begins
        self._performer = performer
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def close(self) -> None:
        self.cut()
        self._reader.join()
        self._performer.join()
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
                    self._hear(line.rstrip(b"\r\n"))
        self._performer.leave()
        self.cut()

    def _hear(self, line: bytes) -> None:
        self._performer.hear(line, PIPE_CHANNEL)
        for message in decoded(line):
            deed = self._performer.deed_for(message)
            if deed is not None:
                self._performer.perform(deed, message)
