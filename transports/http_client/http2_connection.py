"""One HTTP/2 connection to an upstream server, for one request after another.

An idle connection is kept while the server sends nothing but SETTINGS, PING and the like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ...core.base.errors import RemoteProtocolError
from ...core.wire.http.response import Ended, ReplyEvent
from ...core.wire.http1.events import NEED_DATA, ResponseHead
from ..base.dialer import HTTP2
from ..http2.client import Http2Codec
from .connection import READ, WRITE_SIZE_BYTES, Connection, Step
from .exchange import Exchange

if TYPE_CHECKING:
    from .pool import Pool


class Http2Connection(Connection):
    """See `Connection`."""

    __slots__ = ()

    alpn = HTTP2

    _http: Http2Codec

    def __init__(self, pool: Pool) -> None:
        limits = pool.client.limits
        http = Http2Codec(scheme=pool.address.scheme, head_size_max_bytes=limits.head_size_max_bytes)
        super().__init__(pool, http)

    # --- The request ------------------------------------------------------------------------------------------------

    def begin(self) -> bool:
        exchange = self._exchange
        if exchange is None or not exchange.is_unsent:
            return not self._is_given_up  # answers to the server, or more of the body
        is_closed = self._has_served and self.driver.has_input()
        if is_closed or not self._begin_request(exchange):
            self._unsent, self._exchange = exchange, None
            self.give_up()
            return False
        exchange.is_unsent = False
        self._sending = exchange
        return True

    def _begin_request(self, exchange: Exchange) -> bool:
        body = exchange.body
        if exchange.post is not None:
            return self._http.begin_request("POST", exchange.target, exchange.post.sized(len(body)), body)
        return self._http.begin_request(exchange.method, exchange.target, tuple(exchange.headers), body)

    def next_piece(self) -> bytes | None:
        piece = self._http.next_piece(WRITE_SIZE_BYTES)
        if self._http.is_sent and self._sending is not None:
            self._sending.may_be_whole = True
        return piece

    def receive_written(self) -> None:
        if not self._http.is_sent:
            return
        self._is_written = True
        exchange, self._sending = self._sending, None
        if exchange is not None and exchange.when_written is not None:
            exchange.when_written()

    # --- The response -----------------------------------------------------------------------------------------------

    def receive(self, data: bytes | None) -> Step:
        exchange = self._exchange
        if self._unsent is not None or (exchange is not None and exchange.is_abandoned):
            return Step.CLOSE
        self._http.receive_data(data or b"")
        return self.advance()

    def advance(self) -> Step:
        http = self._http
        http.begin_turn()
        exchange = self._exchange
        if self.is_idle or (exchange is not None and exchange.is_unsent):
            step = self._read_unasked()
        else:
            step = super().advance()
        if step is Step.CLOSE:
            return step
        if http.has_output:
            self.driver.wake()
        return Step.TURN if step is READ and http.has_frames else step

    def _read_unasked(self) -> Step:
        """Reads what the server sends without a request."""
        try:
            if self._http.next_event() is NEED_DATA:
                return READ
        except RemoteProtocolError:
            pass
        self._pool.forget(self)  # closing may take a few turns, in which no exchange may be given it
        self._unsent, self._exchange = self._exchange, None
        return Step.CLOSE

    def _receive_failure(self, problem: str) -> Step:
        http, exchange = self._http, self._exchange
        if http.wants_http1 and self._change_version():
            return Step.CLOSE
        if http.is_unprocessed and exchange is not None and self._has_served:
            # A server that stops, or has had enough of this connection: another one is no surprise.
            self._dispatch_again(exchange)
            return Step.CLOSE
        return self._break_off(problem)

    def _check_head_size(self, behind_size: int) -> None:
        pass  # the codec does

    def _receive_document(self, head: ResponseHead) -> Step | None:
        return None

    def _forget_heads(self) -> None:
        pass  # none are kept

    # --- The end ----------------------------------------------------------------------------------------------------

    def _with_loss_details(self, exchange: Exchange, fact: ReplyEvent) -> ReplyEvent:
        """Adds to the end of `exchange` what is known of whether the server ran the request."""
        self._has_received = self._http.has_begun
        if isinstance(fact, Ended) and self._http.is_unprocessed and not exchange.is_abandoned:
            return Ended(msgspec.structs.replace(fact.cause, unsent=True))
        return super()._with_loss_details(exchange, fact)
