"""The asyncio driver of upstream HTTP connections: a protocol, without a task of its own.

Received bytes are handed to the connection in the callback that brings them, and a request is written in the call that
makes it. So no turn of the event loop passes between a byte and its event. The tests of `http_client` run over this
driver and over `anyio_driver`, and expect the same of both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ...core.base.events import Cause, End
from ..base.input_probe import InputProbe
from .connection import Connection, Step

_log: Final = logging.getLogger("isthmus.http")

READ: Final = Step.READ


class ProtocolDriver(asyncio.Protocol):
    """Carries the bytes of one connection that has been made.

    Args:
        when_lost: called once, with this driver, when its transport is closed.
    """

    __slots__ = (
        "_connection",
        "_is_blocked",
        "_is_due",
        "_is_lost",
        "_is_reading",
        "_is_settled",
        "_loop",
        "_probe",
        "_step",
        "_transport",
        "_when_lost",
    )

    def __init__(
        self,
        connection: Connection,
        transport: asyncio.Transport,
        when_lost: Callable[[ProtocolDriver], None],
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._when_lost = when_lost
        self._loop = asyncio.get_running_loop()
        self._probe: InputProbe | None = None
        self._step = READ
        self._is_reading = False
        self._is_due = False  # a call of `_advance` is scheduled
        self._is_blocked = False  # the transport still holds written bytes
        self._is_lost = False  # nothing more will arrive
        self._is_settled = False
        # With limits of 0, any buffered byte pauses writing, so `resume_writing` means that everything has left.
        transport.set_write_buffer_limits(0)
        transport.set_protocol(self)

    def start(self) -> None:
        """Writes the first request, and reads."""
        self._resume_reading()
        self.wake()

    def stop(self) -> None:
        """Closes now, and settles the connection."""
        self._transport.abort()
        self._settle()

    # --- From the connection ----------------------------------------------------------------------------------------

    def wake(self) -> None:
        try:
            if self._connection.begin():
                self._write()
        except Exception as error:
            self._loop.call_soon(self._fail, error)

    def resume(self) -> None:
        if self._step is Step.HOLD and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._advance)

    def close(self) -> None:
        self._transport.abort()
        self._loop.call_soon(self._settle)

    def has_input(self) -> bool:
        if self._probe is None:
            self._probe = InputProbe(self._transport.get_extra_info("socket"))
        return self._probe.has_input()

    def rest(self) -> None:
        self._probe = None

    # --- From the transport -----------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        try:
            step = self._connection.receive(data)
            if step is not READ:
                self._follow(step)
        except Exception as error:
            self._fail(error)

    def eof_received(self) -> bool:
        self._is_lost = True
        self._receive_end(b"")
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._when_lost(self)
        if not self._is_lost:
            self._is_lost = True
            self._receive_end(None)

    def pause_writing(self) -> None:
        self._is_blocked = True

    def resume_writing(self) -> None:
        self._is_blocked = False
        try:
            self._write()
        except Exception as error:
            self._fail(error)

    def _write(self) -> None:
        connection, transport = self._connection, self._transport
        while not self._is_blocked and not transport.is_closing():
            piece = connection.next_piece()
            if piece is None:
                connection.receive_written()
                return
            transport.write(piece)

    def _receive_end(self, data: bytes | None) -> None:
        """Handles the end of the stream, b"", or its loss, None. Events that the port has not yet accepted come
        first."""
        if self._is_settled or self._step is not READ:
            return
        try:
            self._follow(self._connection.receive(data))
        except Exception as error:
            self._fail(error)

    def _advance(self) -> None:
        self._is_due = False
        if self._is_settled:
            return
        try:
            self._follow(self._connection.advance())
        except Exception as error:
            self._fail(error)

    def _follow(self, step: Step) -> None:
        if step is READ and self._is_lost:
            step = self._connection.receive(None)
        self._step = step
        if step is READ:
            self._resume_reading()
        elif step is Step.CLOSE:
            self.stop()
        else:
            if self._is_reading and not self._transport.is_closing():
                self._is_reading = False
                self._transport.pause_reading()
            if step is Step.TURN:
                self._is_due = True
                self._loop.call_soon(self._advance)

    def _resume_reading(self) -> None:
        if not self._is_reading and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()

    def _fail(self, error: Exception) -> None:
        """Ends this connection after an error of our own, which must not end the others."""
        _log.error("a connection to a server failed", exc_info=error)
        self._connection.fail(Cause(End.BROKEN, "internal error"))
        self.stop()

    def _settle(self) -> None:
        if not self._is_settled:
            self._is_settled = True
            self._connection.settle()
