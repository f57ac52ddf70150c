"""A scripted server on WebSockets: each WebSocket is a session, and each text frame is a message."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Final

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.events import Request as UpgradeRequest
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from ....core.oracle.observations import PIPE_CHANNEL
from ....core.wire.websocket import SUBPROTOCOL
from ..script.steps import decoded
from .http_connections import ConnectionRequest
from .http_request import BODY_MAX_BYTES

PATH: Final = "/ws"
READ_BYTES: Final = 65536
OF_OTHERS: Final = "it asks for no WebSocket: then it takes --transport streamable_http or sse"


class SocketChannel(ConnectionRequest):
    """A connection that becomes a WebSocket."""

    def do_POST(self) -> None:
        self._refuse(405)

    def do_GET(self) -> None:
        """Accepts the WebSocket, and handles messages until either side closes it."""
        if self.is_elsewhere(PATH):
            return
        self.close_connection = True
        self._guard = threading.Lock()  # protects `_wire`
        self._wire = WSConnection(ConnectionType.SERVER)
        try:
            fields = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
            self._wire.initiate_upgrade_connection(fields, self.path)
            (upgrade,) = self._wire.events()
        except RemoteProtocolError:
            self._refuse(400)
            return
        assert isinstance(upgrade, UpgradeRequest)
        connection = self.connections.begin(PIPE_CHANNEL, self._write, self._cut)
        if connection is None:
            self.send_error(503)
            return
        with contextlib.suppress(OSError, RemoteProtocolError):
            named = SUBPROTOCOL if SUBPROTOCOL in upgrade.subprotocols else None
            self.wfile.write(self._wire.send(AcceptConnection(subprotocol=named)))
            for text in self._messages():
                connection.receive(text, PIPE_CHANNEL)
                for message in decoded(text):
                    if (deed := connection.deed_for(message)) is not None:
                        connection.carry_out(deed, message)
        connection.leave()
        self._cut()

    def _refuse(self, status: int) -> None:
        if self.place == PATH:
            self.connections.hint = OF_OTHERS
        self.close_connection = True
        self.send_error(status)

    def _messages(self) -> Iterator[bytes]:
        """Yields the messages of the client, until it closes the WebSocket or a message is too long."""
        message = bytearray()
        while True:
            data = self.rfile.read1(READ_BYTES)
            with self._guard:
                self._wire.receive_data(data or None)
                events = list(self._wire.events())
            for event in events:
                if isinstance(event, TextMessage | BytesMessage):
                    message += event.data.encode() if isinstance(event.data, str) else event.data
                    if len(message) > BODY_MAX_BYTES:
                        return
                    if event.message_finished:
                        yield bytes(message)
                        message.clear()
                elif isinstance(event, Ping | CloseConnection):
                    self._send(event.response())
                    if isinstance(event, CloseConnection):
                        return  # RFC 6455, 7.1.1: the server closes the TCP connection first, and clients wait for that
            if not data:
                return

    def _write(self, text: str) -> None:
        self._send(TextMessage(text))

    def _send(self, event: Event) -> None:
        with self._guard, contextlib.suppress(LocalProtocolError):  # the client has closed it
            self.wfile.write(self._wire.send(event))

    def _cut(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
