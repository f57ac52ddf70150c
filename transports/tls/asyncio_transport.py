"""TLS over asyncio: a transport for the protocol of a connection, above the transport of its socket.

asyncio's own TLS is not used: it hides how much of what was written has left, and drops the rest when a connection is
aborted. Here nothing is kept between the two transports, so buffers, pauses and time limits are those of the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from typing import Final, cast

from ...core.base.limits import KIB
from ..base.wire import LINGER_S
from .server import ServerTls
from .session import TlsFailed, TlsSession

SESSION: Final = "isthmus_tls_session"
"""The name under which a transport's extra information has its `TlsSession`."""
ANSWERS_MAX_BYTES: Final = 16 * KIB
"""Bytes that TLS itself has answered with and that the client has not read. A client that asks for new keys is answered
with 30 each time. At it: the connection is closed."""


class TlsTransport(asyncio.Protocol, asyncio.Transport):
    """The transport of one connection. It is told of to `protocol` once the handshake is complete.

    Args:
        shaken: done when the handshake is complete, or has failed.
    """

    __slots__ = (
        "_answers_bytes",
        "_is_blocked",
        "_is_lost",
        "_is_made",
        "_linger",
        "_protocol",
        "_session",
        "_shaken",
        "_socket_transport",
    )

    def __init__(self, session: TlsSession, protocol: asyncio.Protocol, shaken: asyncio.Future[None]) -> None:
        super().__init__()
        self._session = session
        self._protocol: asyncio.BaseProtocol = protocol
        self._shaken = shaken
        self._is_made = False
        self._is_blocked = False
        self._is_lost = False
        self._answers_bytes = 0
        self._linger: asyncio.TimerHandle | None = None  # while the last bytes are waited for
        self._socket_transport: asyncio.Transport  # set by `connection_made`

    # --- Callbacks of the socket's transport ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket_transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        self._socket_transport.set_write_buffer_limits(0)

    def data_received(self, data: bytes) -> None:
        session, was_ended = self._session, self._session.is_ended
        try:
            received = session.receive(data)
        except TlsFailed as error:
            self._flush()
            self._fail(str(error))
            return
        self._answer()
        if session.is_open and not self._is_made:
            self._make()
        if not self._is_made:
            return
        if received and not self.is_closing():
            cast(asyncio.Protocol, self._protocol).data_received(received)
        if session.is_ended and not was_ended and not self.is_closing():
            self._end_input()

    def eof_received(self) -> bool:
        if not self._is_made:
            self._fail("it hung up")
        elif not self._session.is_ended:
            self._end_input()
        return True  # keeps the transport open, so that a due reply can still be written

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True  # asyncio fails where a transport that has closed itself is aborted
        if self._linger is not None:
            self._linger.cancel()
        if self._is_made:
            self._protocol.connection_lost(error)
        elif not self._shaken.done():
            self._shaken.set_exception(ConnectionAbortedError("it hung up"))

    def pause_writing(self) -> None:
        self._is_blocked = True
        if self._is_made:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._answers_bytes = 0
        if self._is_made:
            self._protocol.resume_writing()

    def _make(self) -> None:
        if self._shaken.done():  # the time limit is about to close the transport
            return
        self._is_made = True
        self._shaken.set_result(None)
        self._protocol.connection_made(self)
        if self._is_blocked and not self.is_closing():
            self._protocol.pause_writing()

    def _end_input(self) -> None:
        cast(asyncio.Protocol, self._protocol).eof_received()

    def _answer(self) -> None:
        """Sends what TLS itself has to say."""
        answer = self._session.take()
        if not answer or self.is_closing():
            return
        self._socket_transport.write(answer)
        if self._is_blocked and self._is_made:
            self._answers_bytes += len(answer)
            if self._answers_bytes > ANSWERS_MAX_BYTES:
                self._fail("it reads nothing")

    def _flush(self) -> None:
        data = self._session.take()
        if data and not self.is_closing():
            self._socket_transport.write(data)

    def _fail(self, reason: str) -> None:
        self._session.cut()
        if not self._shaken.done():
            self._shaken.set_exception(ConnectionAbortedError(reason))
        self._close_soon()

    def _close_soon(self) -> None:
        """Closes once what was written has left, within `LINGER_S`."""
        transport = self._socket_transport
        if transport.is_closing():
            return
        if transport.get_write_buffer_size():
            transport.close()
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, transport.abort)
        else:
            transport.abort()

    # --- As a transport ---------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._session.send(data)
        self._flush()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self._session.send(data)
        self._flush()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._session.close()
        self._flush()

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        """Closes now. The client learns that nothing is missing, if everything written before has left."""
        if not self.is_closing() and not self.get_write_buffer_size():
            self._session.close()
            self._flush()
            self._close_soon()
        elif not self._is_lost:
            self._socket_transport.abort()

    def is_closing(self) -> bool:
        return self._socket_transport.is_closing()

    def pause_reading(self) -> None:
        self._socket_transport.pause_reading()

    def resume_reading(self) -> None:
        self._socket_transport.resume_reading()

    def is_reading(self) -> bool:
        return self._socket_transport.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket_transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket_transport.get_write_buffer_size()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._session if name == SESSION else self._socket_transport.get_extra_info(name, default)


async def connect_tls(accepted: socket.socket, peer_host: str, tls: ServerTls, protocol: asyncio.Protocol) -> None:
    """Makes an accepted socket a TLS connection of `protocol`, which serves it from the end of the handshake.

    Raises:
        OSError: there is no connection. The reason is logged.
    """
    loop = asyncio.get_running_loop()
    shaken: asyncio.Future[None] = loop.create_future()
    transport: asyncio.Transport | None = None
    try:
        transport, _ = await loop.connect_accepted_socket(
            lambda: TlsTransport(tls.session(), protocol, shaken), accepted
        )
        async with asyncio.timeout(tls.handshake_timeout_s):
            await shaken
    except BaseException as error:
        if transport is None:
            accepted.close()
        elif not transport.is_closing():
            transport.abort()
        if isinstance(error, TimeoutError):
            tls.note_failure(peer_host, f"its handshake took more than {tls.handshake_timeout_s:g} s")
        elif isinstance(error, OSError):
            tls.note_failure(peer_host, str(error))
        raise
    finally:
        with contextlib.suppress(asyncio.CancelledError, OSError):
            if shaken.done() and not shaken.cancelled():
                shaken.exception()  # retrieved, so that asyncio does not complain
