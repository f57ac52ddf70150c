"""One HTTP/1.1 connection to an upstream server.

On an idle connection, any byte and the end of the stream close it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import h11

from ...core.base.events import Cause, Connected, End
from ...core.wire.http.foreign_reply import explain_foreign, is_http2, may_become_http2
from ...core.wire.http.response import promise_of
from ...core.wire.http1.events import ResponseHead
from ..base.dialer import HTTP1
from ..http1.client import ClientCodec
from .connection import READ, WRITE_SIZE_BYTES, Connection, Step
from .exchange import Exchange

if TYPE_CHECKING:
    from .pool import Pool


class Http1Connection(Connection):
    """See `Connection`."""

    __slots__ = ("_body", "_given_size", "_head", "_head_size", "_head_size_max", "_promise")

    alpn = HTTP1

    _http: ClientCodec

    def __init__(self, pool: Pool) -> None:
        client = pool.client
        self._head_size_max = client.limits.head_size_max_bytes
        super().__init__(pool, ClientCodec(head_size_max_bytes=self._head_size_max, only_h11=client.only_h11))
        # The current request.
        self._head = b""
        self._body = b""
        self._given_size = 0  # bytes of the body given to the driver
        # The last head of a response, and its opening if that head promises one document.
        self._promise: tuple[ResponseHead | None, Connected | None] = (None, None)
        self._head_size = 0  # bytes received before the current response's head was complete

    # --- The request ------------------------------------------------------------------------------------------------

    def begin(self) -> bool:
        exchange = self._exchange
        if exchange is None:
            return False
        if self._has_served and self.driver.has_input():
            # Input before the request is written: the server closed the connection, or sends what was not requested.
            self._unsent, self._exchange = exchange, None
            self.give_up()
            return False
        exchange.is_unsent = False
        self._sending = exchange
        self._body = body = exchange.body
        target = self._pool.dialer.target_prefix + exchange.target
        if exchange.post is not None:
            self._head = self._http.encode_post(exchange.post, target, len(body))
        else:
            self._head = self._http.encode_request(exchange.method, target, exchange.headers)
        self._given_size = 0
        self._head_size = 0
        return True

    def next_piece(self) -> bytes | None:
        body = self._body
        if self._head:
            head, self._head = self._head, b""
            if len(body) > WRITE_SIZE_BYTES:
                return head
            piece = head + body
            self._given_size = len(body)
        elif self._given_size < len(body):
            piece = body[self._given_size : self._given_size + WRITE_SIZE_BYTES]
            self._given_size += len(piece)
        else:
            return None
        if self._given_size == len(body):
            assert self._sending is not None
            self._sending.may_be_whole = True
        return piece

    def receive_written(self) -> None:
        self._body = b""
        self._http.note_sent()
        self._is_written = True
        exchange, self._sending = self._sending, None
        if exchange is not None and exchange.when_written is not None:
            exchange.when_written()

    # --- The response -----------------------------------------------------------------------------------------------

    def receive(self, data: bytes | None) -> Step:
        exchange = self._exchange
        if self.is_idle or self._unsent is not None:
            # For a request that came too late, these bytes were under way before it.
            self._pool.forget(self)  # closing may take a few turns, in which no exchange may be given it
            return Step.CLOSE
        if exchange is not None:
            if exchange.is_unsent:
                return self._receive_early(exchange, data or b"")
            if exchange.is_abandoned:
                return Step.CLOSE  # it arrived before the connection could be closed
        if data is None:
            self._is_at_eof = True  # servers that want TLS often reset the connection
            return self._break_off("")
        if data:
            self._has_received = True
        else:
            self._is_at_eof = True
        if not self._has_head:
            self._head_size += len(data)
        self._http.receive_data(data)
        if self._promise[1] is not None and not self._has_head:
            step = self._receive_repeated(exchange, data)
            if step is not None:
                return step
        return self.advance()

    def _receive_early(self, exchange: Exchange, data: bytes) -> Step:
        """Handles what arrives before the request is written: it must not be written any more."""
        if not is_http2(data):  # the server closed the connection while it was idle
            self._unsent, self._exchange = exchange, None
        elif not self._change_version():
            self.fail(Cause(End.BROKEN, self._explain_foreign(data), unsent=True))
        return Step.CLOSE

    def _explain_foreign(self, data: bytes) -> str:
        has_http2 = is_http2(data) and self._pool.has_http2  # which imports the package
        return explain_foreign(data, self._pool.address.scheme, has_http2=has_http2)

    def _receive_document(self, head: ResponseHead) -> Step | None:
        """Enforces the limit of a head, then reports a response that is one document and has arrived in full.

        This skips the `ResponseReader`. `promise_of` accepts only heads for which that reader comes to the same events;
        `tests/core/wire/http/test_response.py` compares both.
        """
        if self._head_size > self._head_size_max:
            self._check_head_size(len(self._http.trailing_data[0]))
        exchange = self._exchange
        if exchange is None or not self._is_written or not exchange.expects_document or exchange.is_paused:
            return None
        known, opened = self._promise
        if known is not head:  # else the codec recognised the last head
            opened = promise_of(head.status, head.headers, size_max_bytes=self._pool.client.limits.reply_size_max_bytes)
            self._promise = head, opened
        body = None if opened is None else self._http.take_rest()
        if opened is None or body is None:
            return None
        return self._report_document(exchange, opened, body)

    def _receive_repeated(self, exchange: Exchange | None, data: bytes) -> Step | None:
        """Reports a response as `_receive_document` does, if its head repeats the last one and all of it came in this
        one read, however large."""
        head, opened = self._promise
        if head is None or opened is None or exchange is None or not self._is_written:
            return None
        if not exchange.expects_document or exchange.is_paused or self._head_size != len(data):
            return None
        body = self._http.take_repeated(head)
        return None if body is None else self._report_document(exchange, opened, body)

    def _report_document(self, exchange: Exchange, opened: Connected, body: bytes) -> Step:
        self._exchange = exchange.connection = None
        if exchange.is_lasting:
            exchange.give_up_place()
        step = self._recycle()  # before the report, as in `_finish`
        exchange.report_document(opened, body)
        return step

    def _receive_failure(self, problem: str) -> Step:
        foreign = b"" if self._has_head else self._http.trailing_data[0]
        if is_http2(foreign) and self._change_version():
            return Step.CLOSE
        if may_become_http2(foreign) and not self._is_at_eof:
            return READ
        malformed = "" if self._is_at_eof else f"got a malformed HTTP response: {problem[:200]}"
        return self._break_off(self._explain_foreign(foreign) or malformed)

    def _forget_heads(self) -> None:
        self._promise = (None, None)
        self._http.forget_heads()

    def _check_head_size(self, behind_size: int) -> None:
        # Interim responses count too, so that they cannot go on for ever.
        if self._head_size - behind_size > self._head_size_max:
            raise h11.RemoteProtocolError(f"head over the limit of {self._head_size_max} bytes")
