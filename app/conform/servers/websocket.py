"""A server that is played on WebSockets: each is a wire, and a text frame is a message."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Final

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.events import Request as Asked
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from ....core.oracle.observations import PIPE_CHANNEL
from ....core.wire.websocket import SUBPROTOCOL
from ..script.steps import decoded
from .http_request import BODY_MAX_BYTES
from .lobby import Caller

PATH: Final = "/ws"
READ_BYTES: Final = 65536
OF_OTHERS: Final = "it asks for no WebSocket: then it takes --transport streamable_http or sse"


class SocketChannel(Caller):
    """One connection, which becomes a WebSocket."""

    def do_POST(self) -> None:
        self._refuse(405)

    def do_GET(self) -> None:
        """Until either side hangs up."""
        if self.is_elsewhere(PATH):
            return
        self.close_connection = True
        self._guard = threading.Lock()  # of `_wire`
        self._wire = WSConnection(ConnectionType.SERVER)
        try:
            fields = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
            self._wire.initiate_upgrade_connection(fields, self.path)
            (asked,) = self._wire.events()
        except RemoteProtocolError:
            self._refuse(400)
            return
        assert isinstance(asked, Asked)
        performer = self.lobby.begin(PIPE_CHANNEL, self._write, self._cut)
        if performer is None:
            self.send_error(503)
            return
        with contextlib.suppress(OSError, RemoteProtocolError):
            named = SUBPROTOCOL if SUBPROTOCOL in asked.subprotocols else None
            self.wfile.write(self._wire.send(AcceptConnection(subprotocol=named)))
            for text in self._messages():
                performer.hear(text, PIPE_CHANNEL)
                for message in decoded(text):
                    if (deed := performer.deed_for(message)) is not None:
                        performer.perform(deed, message)
        performer.leave()
        self._cut()

    def _refuse(self, status: int) -> None:
        if self.place == PATH:
            self.lobby.hint = OF_OTHERS
        self.close_connection = True
        self.send_error(status)

    def _messages(self) -> Iterator[bytes]:
        """What the client says, until it hangs up, or says too much at once."""
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
                        return  # RFC 6455, 7.1.1: the server hangs up first, and clients wait for that
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
