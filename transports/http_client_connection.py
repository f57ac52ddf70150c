"""One connection to an upstream: two tasks that live as long as it does.

The reader always reads, request or none: so a server that closes an idle connection is noticed at once, and one that
answers before it has taken the whole body is heard. The writer waits for a request to be put into its hands. A request
therefore costs no task, no cancel scope and no timer.

Whoever holds a connection decides what its bytes mean: an exchange (they are its reply), nobody for the moment (the
rest of a reply that has told all it had to; read and dropped, within bounds), or nobody at all (idle: any byte, and
the end of the stream, ends it).
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Final

import anyio
import h11
import msgspec
from anyio.abc import ByteStream
from anyio.lowlevel import checkpoint

from ..core.effects import Cause, End
from ..core.wire.http_client import Ended, ReplyEvent
from .dialling import LOST, Unreachable
from .http_client_exchange import Exchange, stopped
from .input_probe import InputProbe

if TYPE_CHECKING:
    from .http_pool import Pool

WRITE_SIZE_BYTES: Final = 256 * 1024
"""One write of a large body. Smaller bodies leave in one write together with the head."""

DRAIN_MAX_BYTES: Final = 64 * 1024
"""A reply that has told all it had to is read on for so long, to keep the connection; a longer one is not worth it."""

TURN_EVENTS: Final = 200
"""Pieces of a reply that are told before others get their turn: some milliseconds of work."""

LINGER_S: Final = 1.0
"""How long a connection that takes no more bytes may still deliver the response that says why."""


class Connection:
    """One connection, from before it is made until it is closed."""

    def __init__(self, pool: Pool) -> None:
        limits = pool.client.limits
        self._pool = pool
        self._read_size = limits.read_size_bytes
        self._head_size_max = limits.head_size_max_bytes
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=limits.head_size_max_bytes)
        self._scope = anyio.CancelScope()
        self._stream: ByteStream | None = None
        self._probe: InputProbe | None = None
        self.is_idle = False
        self._has_served = False
        self._has_failed = False  # by our own mistake
        self._exchange: Exchange | None = None
        self._unsent: Exchange | None = None  # one that came too late
        self._moved: Exchange | None = None  # one that is to be asked elsewhere
        # The request at hand, also after its exchange has let go.
        self._has_request = anyio.Event()
        self._is_written = False
        self._has_heard = False  # a byte of its response
        self._has_head = False
        self._head_size = 0
        self._drained_size = 0

    def take(self, exchange: Exchange) -> None:
        """Begin with `exchange`. Only for a connection that is new or idle."""
        assert self._exchange is None
        self._exchange = exchange
        exchange.connection = self
        self.is_idle = False
        self._is_written = False
        self._has_heard = False
        self._has_head = False
        self._head_size = 0
        self._drained_size = 0
        self._has_request.set()

    def give_up(self) -> None:
        """Close the connection, whatever it does."""
        self._pool.forget(self)
        self._scope.cancel()

    async def run(self) -> None:
        try:
            with self._scope:
                if await self._connect():
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._write)
                        await self._read()
                        tasks.cancel_scope.cancel()
        except Exception:
            self._has_failed = True
            raise
        finally:
            self._pool.forget(self)
            if self._stream is not None:
                with anyio.CancelScope(shield=True), contextlib.suppress(*LOST):
                    await self._stream.aclose()
            self._settle()

    async def _connect(self) -> bool:
        """Connect; if that fails, say why and return False."""
        assert self._exchange is not None
        try:
            self._stream = await self._pool.dialler.connect()
        except Unreachable as error:
            self._exchange.end(Cause(End.UNREACHABLE, str(error), unsent=True))
            return False
        self._probe = InputProbe(self._stream)
        return True

    async def _write(self) -> None:
        assert self._stream is not None and self._probe is not None
        while True:
            await self._has_request.wait()
            self._has_request = anyio.Event()
            exchange = self._exchange
            if exchange is None:
                return
            if self._has_served and self._probe.has_input():
                # Nothing was asked for yet: it is the end, or the connection is of no use anyway.
                self._unsent, self._exchange = exchange, None
                self.give_up()
                return
            exchange.is_unsent = False
            body = exchange.body
            request = h11.Request(method=exchange.method, target=exchange.target, headers=exchange.headers)
            head = self._http.send(request) or b""
            if body:
                self._http.send_with_data_passthrough(h11.Data(data=body))
            self._http.send(h11.EndOfMessage())
            try:
                if len(body) <= WRITE_SIZE_BYTES:
                    exchange.may_be_whole = True
                    await self._stream.send(head + body)
                else:
                    await self._stream.send(head)
                    for start in range(0, len(body), WRITE_SIZE_BYTES):
                        exchange.may_be_whole = start + WRITE_SIZE_BYTES >= len(body)
                        await self._stream.send(body[start : start + WRITE_SIZE_BYTES])
            except LOST:
                # The reader learns of it too, after whatever the server may have said before.
                await anyio.sleep(LINGER_S)
                self.give_up()
                return
            self._is_written = True
            if exchange.when_written is not None:
                exchange.when_written()

    async def _read(self) -> None:
        """Read until the connection is of no more use."""
        assert self._stream is not None
        while True:
            data: bytes | None
            try:
                data = await self._stream.receive(self._read_size)
            except anyio.EndOfStream:
                data = b""
            except LOST:
                data = None
            if self.is_idle:
                self._pool.forget(self)  # closing takes a few turns, in which nobody may be given it
                return
            if self._exchange is not None and self._exchange.is_unsent:
                # The server had closed while there was nothing to do. The writer must not come to it any more.
                self._unsent, self._exchange = self._exchange, None
                return
            try:
                if not await self._take_in(data):
                    return
            except h11.RemoteProtocolError as error:
                if (exchange := self._exchange) is None:
                    return
                problem = f"got a malformed HTTP response: {str(error)[:200]}" if data else ""
                facts = exchange.reader.receive_eof(is_complete=False, problem=problem)
                await exchange.report([self._doubt(exchange, fact) for fact in facts])
                return

    async def _take_in(self, data: bytes | None) -> bool:
        """Take what was received: b"" is the stream's end, None its loss. False: the connection is of no more use.

        Raises:
            h11.RemoteProtocolError: the response cannot go on like this.
        """
        if self._exchange is not None and self._exchange.is_abandoned:
            return False  # it arrived before the connection could be closed
        if data is None:
            raise h11.RemoteProtocolError("connection lost")
        self._http.receive_data(data)
        self._has_heard = self._has_heard or bool(data)
        if not self._has_head:
            self._head_size += len(data)
        for count in itertools.count(1):
            if count % TURN_EVENTS == 0:  # one read can hold thousands of tiny chunks
                await checkpoint()
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                break
            exchange = self._exchange
            if isinstance(event, h11.Response):
                self._has_head = True
                if self._head_size > self._head_size_max:
                    self._check_head_size(len(self._http.trailing_data[0]))
                assert exchange is not None
                told = exchange.receive_head(event.status_code, event.headers)
                if told is None:
                    self._moved, self._exchange, exchange.connection = exchange, None, None
                    if not self._is_written:
                        return False  # what is left of the request is for nobody
                    self._pool.client.note_unheld(self)
                    continue
                facts = told
            elif isinstance(event, h11.Data):
                if exchange is None:
                    self._drained_size += len(event.data)
                    if self._drained_size > DRAIN_MAX_BYTES:
                        return False
                    continue
                facts = exchange.reader.receive_body(event.data)
            elif isinstance(event, h11.EndOfMessage):
                is_usable = await self._finish()
                self._send_on()
                return is_usable
            else:
                continue  # an interim response
            await exchange.report(facts)
            if exchange.is_abandoned:
                return False
            if exchange.is_over:
                self._exchange = exchange.connection = None
                self._pool.client.note_unheld(self)
        if not self._has_head:
            self._check_head_size(0)
        self._send_on()
        return True

    def _send_on(self) -> None:
        """Who is to be asked elsewhere need not wait for the rest of the response that said so."""
        exchange, self._moved = self._moved, None
        if exchange is not None and exchange.is_abandoned:
            exchange.end(Cause(End.DONE))
        elif exchange is not None:
            self._pool.dispatch(exchange)

    def _check_head_size(self, behind_size: int) -> None:
        """Interim responses count as well, so that they cannot go on for ever."""
        if self._head_size - behind_size > self._head_size_max:
            raise h11.RemoteProtocolError(f"head over the limit of {self._head_size_max} bytes")

    async def _finish(self) -> bool:
        """The response is complete. The connection is free before that is told, as the news may bring a request."""
        exchange = self._exchange
        if exchange is None:
            return self._recycle()
        await exchange.wait_resumed()
        facts = exchange.reader.receive_eof(is_complete=True)
        self._exchange = exchange.connection = None
        is_usable = self._recycle()
        for fact in facts:
            exchange.report_one(fact)
        return is_usable

    def _recycle(self) -> bool:
        http = self._http
        is_reusable = http.our_state is h11.DONE and http.their_state is h11.DONE
        # Bytes behind the response were never asked for; its end may have been the stream's.
        if not is_reusable or not self._is_written or http.trailing_data != (b"", False):
            return False
        http.start_next_cycle()
        self.is_idle = self._has_served = True
        return self._pool.take_back(self)

    def _doubt(self, exchange: Exchange, fact: ReplyEvent) -> ReplyEvent:
        """The connection broke: the end of `exchange`, with what speaks for it not having been looked at."""
        if not isinstance(fact, Ended) or self._has_heard or exchange.is_abandoned:
            return fact
        if self._has_served:
            self._pool.forget_idle()  # they are most likely no better, and the request may be sent again
        cause = msgspec.structs.replace(fact.cause, unsent=not exchange.may_be_whole, stale=self._has_served)
        return Ended(cause)

    def _settle(self) -> None:
        """The connection is closed: whoever still held it is told, or tries another."""
        exchange = self._exchange or self._unsent
        self._pool.release()
        self._send_on()
        if exchange is not None and not exchange.is_over:
            exchange.connection = None
            where = self._pool.dialler.address.authority.decode()
            if self._has_failed:
                exchange.end(Cause(End.BROKEN, "internal error"))
            elif exchange is self._unsent and self._has_served and not exchange.is_abandoned:
                self._pool.dispatch(exchange)
            elif exchange is self._unsent:
                exchange.end(Cause(End.BROKEN, f"{where} closed the connection at once", unsent=True))
            elif self._scope.cancel_called:
                cause = Cause(End.BROKEN, f"{where} took no more of the request")
                exchange.report_one(self._doubt(exchange, Ended(cause)))
            else:
                exchange.end(stopped(exchange.is_unsent))
        self._pool.dispatch_waiting()
