"""Plays a conversation on a WebSocket: each text frame is a message, and the subprotocol is `mcp`."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections import deque
from typing import Final

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from ....core.oracle.observations import PIPE_CHANNEL, AnyObservation, Role, Said
from ....core.wire.http.url import parse_url
from ....core.wire.websocket import SUBPROTOCOL
from ...base.errors import Failed
from ..script.steps import Conversation
from ..script.survey import Played
from .duplex import MESSAGE_MAX_BYTES, ScriptedClient, reason_of

READ_BYTES: Final = 65536
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class WebSocketClient:
    """A scripted client on WebSockets, one for each conversation.

    Args:
        url: a ws:// or wss:// URL.
        headers: sent with the request to upgrade.
        timeout_s: timeout of each response.
    """

    def __init__(self, url: str, headers: dict[str, str], timeout_s: float) -> None:
        self._url = url
        self._headers = headers
        self._timeout_s = timeout_s

    def __call__(self, conversation: Conversation) -> Played:
        """Plays a conversation.

        Raises:
            Failed: nothing listens there, or it accepts no WebSocket.
        """
        with _connected(self._url, self._timeout_s) as stream:
            link = _Socket(stream, self._timeout_s)
            link.greet(self._url, self._headers)
            played = ScriptedClient(link, conversation, self._timeout_s).play()
            link.leave()
            return played


def _connected(url: str, timeout_s: float) -> socket.socket:
    address = parse_url(url)
    try:
        stream = socket.create_connection((address.host, address.port), timeout_s)
        try:
            if address.scheme == "wss":
                stream = ssl.create_default_context().wrap_socket(stream, server_hostname=address.host)
        except BaseException:
            stream.close()
            raise
    except OSError as error:
        raise Failed(f"the server cannot be reached: {reason_of(error)}") from error
    stream.setblocking(False)
    return stream


class _Socket:
    """The client's end. One thread reads while it writes, so that two full buffers cannot block both sides."""

    def __init__(self, stream: socket.socket, timeout_s: float) -> None:
        self._stream = stream
        self._timeout_s = timeout_s
        self._wire = WSConnection(ConnectionType.CLIENT)
        self._received: deque[bytes] = deque()
        self._message = bytearray()
        self._pongs = bytearray()
        self._is_accepted = False
        self._is_over = False
        self._refusal = ""

    def greet(self, url: str, headers: dict[str, str]) -> None:
        address = parse_url(url)
        fields = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        upgrade = Request(
            host=address.authority.decode(),
            target=address.target.decode(),
            subprotocols=[SUBPROTOCOL],
            extra_headers=fields,
        )
        self._write(self._wire.send(upgrade))
        until = time.monotonic() + self._timeout_s
        while not self._is_accepted and not self._is_over and (left := until - time.monotonic()) > 0:
            self._wait(left, is_writing=False)
            self._read()
        if not self._is_accepted:
            raise Failed(f"the server takes no WebSocket: {self._refusal or 'no answer in time'}")

    def send(self, text: str) -> list[AnyObservation]:
        said = Said(PIPE_CHANNEL, Role.CLIENT, text.encode(), at=time.monotonic())
        if not self._is_over:
            self._write(self._wire.send(TextMessage(text)))
        return [said]

    def receive(self, patience_s: float) -> AnyObservation:
        until = time.monotonic() + patience_s
        while not self._received and not self._is_over:
            self._wait(max(0.0, until - time.monotonic()), is_writing=False)
            self._read()
            if self._pongs:
                self._write()
            if time.monotonic() >= until:
                break
        if self._received:
            return Said(PIPE_CHANNEL, Role.SERVER, self._received.popleft(), at=time.monotonic())
        raise EOFError if self._is_over else TimeoutError

    def leave(self) -> None:
        if not self._is_over:
            with contextlib.suppress(LocalProtocolError):  # the server closed it first
                self._write(self._wire.send(CloseConnection(1000)))

    def _wait(self, patience_s: float, *, is_writing: bool) -> None:
        if isinstance(self._stream, ssl.SSLSocket) and self._stream.pending():
            return
        select.select([self._stream], [self._stream] if is_writing else [], [], patience_s)

    def _write(self, data: bytes = b"") -> None:
        """Writes as much as the server reads in time, pongs first. What it does not read stays unanswered."""
        until = time.monotonic() + self._timeout_s
        rest = memoryview(bytes(self._pongs) + data)
        self._pongs.clear()
        while rest and not self._is_over and (left := until - time.monotonic()) > 0:
            self._wait(left, is_writing=True)
            self._read()
            try:
                rest = rest[self._stream.send(rest) :]
            except _LATER:
                continue
            except OSError:
                self._is_over = True

    def _read(self) -> None:
        """Reads and parses all that has come."""
        while not self._is_over:
            try:
                data = self._stream.recv(READ_BYTES)
            except _LATER:
                return
            except OSError:
                data = b""
            try:
                self._wire.receive_data(data or None)
                for event in self._wire.events():
                    self._handle(event)
            except RemoteProtocolError as error:
                self._refusal, self._is_over = str(error), True
            self._is_over |= not data

    def _handle(self, event: object) -> None:
        if isinstance(event, AcceptConnection):
            self._is_accepted = True
        elif isinstance(event, RejectConnection):
            self._refusal, self._is_over = f"got HTTP status {event.status_code}, expected 101", True
        elif isinstance(event, Ping):
            self._pongs += self._wire.send(event.response())
        elif isinstance(event, CloseConnection):
            self._is_over = True
        elif isinstance(event, TextMessage | BytesMessage):
            piece = event.data
            self._message += piece.encode() if isinstance(piece, str) else piece
            if event.message_finished or len(self._message) > MESSAGE_MAX_BYTES:
                self._received.append(bytes(self._message))
                self._message.clear()
