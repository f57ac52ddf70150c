"""One HTTP connection to an upstream server: reports what arrives to the exchange that holds it.

Nothing here waits. A `Driver` carries the bytes: it writes when woken, hands received bytes to `receive`, and follows
the `Step` it gets back. It reads at all times, with or without a request: so a server that closes an idle connection is
noticed at once, and so is a response that comes before the whole body was sent.

A `Connection` has what all versions of HTTP share. `Http1Connection` and `Http2Connection` write requests and receive
bytes, each with a codec of its own.

What received bytes mean depends on who holds the connection. With an exchange, they are its response. Without one but
within a response, they are the rest of a response that has reported everything: read and dropped, up to
`DRAIN_MAX_BYTES`.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

import h11
import msgspec

from ...core.base.errors import RemoteProtocolError
from ...core.base.events import Cause, End
from ...core.wire.http.foreign_reply import INSTALL_HTTP2
from ...core.wire.http.response import Ended, ReplyEvent
from ...core.wire.http1.events import END, NEED_DATA, ClientEvent, Data, InformationalHead, ResponseHead
from .exchange import Exchange, stopped

if TYPE_CHECKING:
    from .pool import Pool

WRITE_SIZE_BYTES: Final = 256 * 1024
"""Bytes of one write of a large body. A smaller body is written together with the head."""

DRAIN_MAX_BYTES: Final = 64 * 1024
"""Bytes that are read and dropped of a response that has reported everything, to keep its connection. A longer rest
costs more than a new connection."""

TURN_EVENTS: Final = 200
"""Events of a response that are parsed or reported before other connections get their turn: some milliseconds of
work."""


class Step(enum.Enum):
    """The driver's next step."""

    READ = "read"  # receive more
    TURN = "turn"  # call `advance` after others had their turn
    HOLD = "hold"  # read nothing; call `advance` after the next `Driver.resume`
    CLOSE = "close"  # close, and call `settle`


READ: Final = Step.READ


class Driver(Protocol):
    """The carrier of one connection's bytes. No method calls the connection's port before it returns."""

    def wake(self) -> None:
        """Writes what is due: calls `begin`, then `next_piece` until None, then `receive_written`."""

    def resume(self) -> None:
        """Calls `advance` soon, if the last step was HOLD."""

    def close(self) -> None:
        """Closes, whatever is under way, and calls `settle`."""

    def has_input(self) -> bool:
        """True if something has arrived that was not received yet, as far as that can be known."""

    def rest(self) -> None:
        """Releases what is kept for the next request, because the current response may last. There may be thousands."""


class Codec(Protocol):
    """The part of a connection's codec that does not depend on the version of HTTP."""

    def next_event(self) -> ClientEvent:
        """Returns the next event of the response.

        Raises:
            h11.RemoteProtocolError, or RemoteProtocolError: the response is malformed or broken off.
        """

    def go_on(self) -> bool:
        """Goes on to the next request, if the connection can carry one. Returns True if it did."""


class Connection(ABC):
    """One connection, from before it is made until it is closed.

    Attributes:
        alpn: the name of its version of HTTP in TLS.
        driver: set before anything else is done with the connection.
        is_idle: it has no request, and the response to the last one is complete.
    """

    __slots__ = (
        "_again",
        "_drained_size",
        "_exchange",
        "_facts",
        "_has_had_turn",
        "_has_head",
        "_has_received",
        "_has_served",
        "_http",
        "_is_at_eof",
        "_is_broken",
        "_is_complete",
        "_is_given_up",
        "_is_written",
        "_pool",
        "_sending",
        "_unsent",
        "driver",
        "is_idle",
    )

    alpn: ClassVar[str]

    def __init__(self, pool: Pool, http: Codec) -> None:
        self.driver: Driver
        self.is_idle = False
        self._pool = pool
        self._http = http
        self._is_given_up = False
        self._is_at_eof = False
        self._has_served = False
        self._exchange: Exchange | None = None
        self._unsent: Exchange | None = None  # the exchange whose request came too late
        self._again: Exchange | None = None  # an exchange that was redirected, or is to be sent on another connection
        # The current request, also after its exchange has let go of the connection.
        self._sending: Exchange | None = None  # until it is written
        self._is_written = False
        # The current response.
        self._has_received = False  # a byte of it has arrived
        self._has_head = False
        self._drained_size = 0
        self._has_had_turn = False
        self._facts: list[ReplyEvent] = []  # not reported yet
        self._is_complete = False
        self._is_broken = False  # nothing follows after what is not reported yet

    # --- The request ------------------------------------------------------------------------------------------------

    def take(self, exchange: Exchange) -> None:
        """Begins `exchange`. Call it only on a new or idle connection."""
        assert self._exchange is None
        self._exchange = exchange
        exchange.connection = self
        self.is_idle = False
        self._is_written = False
        self._has_received = False
        self._has_head = False
        self._drained_size = 0
        self._has_had_turn = False
        self._is_complete = False
        self.driver.wake()

    @abstractmethod
    def begin(self) -> bool:
        """Begins to write. Returns False if there is nothing to write, or if the request that was taken must not be
        written here."""

    @abstractmethod
    def next_piece(self) -> bytes | None:
        """Returns the next bytes to write; None once everything that may be written now was given out."""

    @abstractmethod
    def receive_written(self) -> None:
        """Records that everything given out was written."""

    # --- The response -----------------------------------------------------------------------------------------------

    @abstractmethod
    def receive(self, data: bytes | None) -> Step:
        """Takes received bytes: b"" is the end of the stream, None its loss."""

    def advance(self) -> Step:
        """Reports what has arrived, as far as the port wants it now."""
        count = len(self._facts)
        if count:
            facts, self._facts = self._facts, []
            step = self._report(facts)
            if step is not None:
                return step
        if self._is_broken:
            return Step.CLOSE
        if self._is_complete:
            return self._finish()
        try:
            return self._read_events(count)
        except (h11.RemoteProtocolError, RemoteProtocolError) as error:
            return self._receive_failure(str(error))

    def _read_events(self, count: int) -> Step:
        """Parses and reports up to `TURN_EVENTS` events.

        Args:
            count: events reported in this turn already.

        Raises:
            h11.RemoteProtocolError, or RemoteProtocolError: the response is malformed or broken off.
        """
        coded = None if self._exchange is None else self._exchange.coded
        if coded is not None and coded.is_behind:
            facts = coded.receive_body(b"")
            return (self._report(facts) if facts else None) or Step.TURN
        next_event = self._http.next_event
        while count < TURN_EVENTS:  # one read can hold thousands of them
            event = next_event()
            count += 1
            if isinstance(event, Data):
                exchange = self._exchange
                if exchange is None:
                    self._drained_size += len(event.data)
                    if self._drained_size > DRAIN_MAX_BYTES:
                        return Step.CLOSE
                    continue
                facts = exchange.reader.receive_body(event.data)
                if exchange.coded is not None:
                    # Few bytes may stand for many: one slice of them is decoded in a turn, or four that are not full.
                    count = TURN_EVENTS if exchange.coded.is_behind else count + TURN_EVENTS // 4
            elif event is NEED_DATA:
                if not self._has_head:
                    self._check_head_size(0)
                if self._again is not None:
                    self._send_again()
                return READ
            elif event is END:
                return self._finish()
            elif isinstance(event, ResponseHead):
                step = self._receive_document(event)
                if step is not None:
                    return step
                refusal = self._pool.dialer.explain_refusal(event.status, event.headers)
                if refusal:
                    self.fail(Cause(End.UNREACHABLE, refusal, unsent=True))
                    return Step.CLOSE
                head_facts = self._receive_head(event)
                if head_facts is None:
                    if not self._is_written:
                        return Step.CLOSE  # the rest of the request need not be sent
                    self._pool.client.note_unheld(self)
                    continue
                facts = head_facts
            elif isinstance(event, InformationalHead):
                continue
            else:
                return Step.CLOSE  # the stream has ended, or the protocol was switched
            if facts:
                count += len(facts)
                step = self._report(facts)
                if step is not None:
                    return step
        return Step.TURN

    @abstractmethod
    def _receive_failure(self, problem: str) -> Step:
        """Handles a response that is malformed or broken off."""

    @abstractmethod
    def _check_head_size(self, behind_size: int) -> None:
        """Enforces the limit of a head, of which `behind_size` of the received bytes are not a part."""

    @abstractmethod
    def _receive_document(self, head: ResponseHead) -> Step | None:
        """Reports a response that is one document, or empty, and has arrived in full. Returns None if it is not, or if
        there is no such short cut, and nothing has changed."""

    @abstractmethod
    def _forget_heads(self) -> None:
        """Drops what is kept of heads, because the current response is a stream that may last."""

    def _receive_head(self, head: ResponseHead) -> list[ReplyEvent] | None:
        """Returns the events of a head; None if the response is a redirect, and the exchange has let go of the
        connection."""
        self._has_head = True
        exchange = self._exchange
        assert exchange is not None
        head_facts = exchange.receive_head(head.status, head.headers)
        if head_facts is None:
            self._again, self._exchange, exchange.connection = exchange, None, None
        elif exchange.is_lasting:
            self._forget_heads()
            exchange.forget_request()
            self.driver.rest()
        return head_facts

    def _report(self, facts: list[ReplyEvent]) -> Step | None:
        """Reports to the exchange, as far as its port wants more. Returns None if more may follow."""
        exchange = self._exchange
        assert exchange is not None
        facts, later = facts[:TURN_EVENTS], facts[TURN_EVENTS:]
        if not exchange.report_messages(facts):
            for index, fact in enumerate(facts):
                if exchange.is_paused:
                    self._facts = facts[index:] + later
                    return Step.HOLD
                exchange.report(fact)
        if later:
            self._facts = later
            return Step.HOLD if exchange.is_paused else Step.TURN
        if exchange.is_abandoned or self._is_broken:
            return Step.CLOSE
        if exchange.is_over:
            self._exchange = exchange.connection = None
            self._pool.client.note_unheld(self)
        elif exchange.is_paused:
            return Step.HOLD
        return None

    def _finish(self) -> Step:
        """Ends a complete response. The connection is recycled before the end is reported, because that may bring a new
        request."""
        if not self._is_written and not self._has_had_turn:
            # The whole request may have left, and only the writer's turn may still be due.
            self._is_complete = self._has_had_turn = True
            return Step.TURN
        exchange = self._exchange
        if exchange is None:
            step = self._recycle()
            self._send_again()
            return step
        if exchange.is_paused:
            self._is_complete = True
            return Step.HOLD
        facts = exchange.reader.receive_eof(is_complete=True)
        self._exchange = exchange.connection = None
        if exchange.is_lasting:
            exchange.give_up_place()
        step = self._recycle()
        for fact in facts:
            exchange.report(fact)
        return step

    def _recycle(self) -> Step:
        # Fails if the stream ended with the response, or if bytes follow that no request asked for.
        if not self._is_written or not self._http.go_on():
            return Step.CLOSE
        self.is_idle = self._has_served = True
        return READ if self._pool.take_back(self) else Step.CLOSE

    def _send_again(self) -> None:
        """Dispatches an exchange again. One that was redirected need not wait for the rest of that response."""
        exchange, self._again = self._again, None
        if exchange is not None and exchange.is_abandoned:
            exchange.end(Cause(End.DONE))
        elif exchange is not None:
            self._pool.dispatch(exchange)

    # --- The end ----------------------------------------------------------------------------------------------------

    def give_up(self) -> None:
        """Closes the connection, whatever is under way."""
        self._is_given_up = True
        self._pool.forget(self)
        self.driver.close()

    def let_go(self) -> None:
        """Records that the exchange has its whole response: the rest of it is dropped."""
        exchange = self._exchange
        assert exchange is not None
        self._exchange = exchange.connection = None

    def retire(self) -> None:
        """Takes the connection out of the pool, so that no exchange is given it."""
        self._pool.forget(self)

    def fail(self, cause: Cause) -> None:
        """Ends the exchange that holds the connection, because no connection could be made or we failed."""
        exchange = self._exchange or self._unsent
        if exchange is not None:
            self._exchange = self._unsent = exchange.connection = None
            exchange.end(cause)

    def receive_unreachable(self, detail: str, *, is_version_refused: bool) -> None:
        """Ends the exchange, because no connection could be made, or has it sent with the other version of HTTP, if the
        server refused this one."""
        if is_version_refused:
            if self._change_version():
                return
            if not self._pool.has_http2:
                detail += f"; or have it reached over HTTP/2: {INSTALL_HTTP2}"
        self.fail(Cause(End.UNREACHABLE, detail, unsent=True))

    def _change_version(self) -> bool:
        """Has the exchange sent again with the other version of HTTP, once this connection is closed. Call it only if
        the server cannot have run the request. Returns False if there is no other, or if the exchange had it already.
        """
        exchange = self._exchange
        if exchange is None or exchange.has_changed_version or not self._pool.leave(type(self)):
            return False
        exchange.has_changed_version = True
        self._dispatch_again(exchange)
        return True

    def _dispatch_again(self, exchange: Exchange) -> None:
        """Has the exchange sent on another connection once this one is closed: the server did not run the request."""
        self._again, self._exchange, exchange.connection = exchange, None, None
        exchange.start_over()

    def settle(self) -> None:
        """Handles the close of the connection: the exchange that still holds it ends, or is dispatched again if nothing
        of it was written. Call it once."""
        pool = self._pool
        exchange = self._exchange or self._unsent
        pool.forget(self)
        pool.release()
        self._send_again()
        if exchange is not None and not exchange.is_over:
            exchange.connection = None
            where = pool.address.authority.decode()
            if exchange is self._unsent and self._has_served and not exchange.is_abandoned:
                pool.dispatch(exchange)
            elif exchange is self._unsent:
                exchange.end(Cause(End.BROKEN, f"{where} closed the connection at once", unsent=True))
            elif self._is_given_up:
                cause = Cause(End.BROKEN, f"{where} took no more of the request")
                exchange.report(self._with_loss_details(exchange, Ended(cause)))
            else:
                exchange.end(stopped(exchange.is_unsent))
        pool.dispatch_waiting()

    def _break_off(self, problem: str) -> Step:
        """Ends a response that was broken off. `problem` explains it; empty if the connection just ended."""
        exchange = self._exchange
        if exchange is None:
            return Step.CLOSE
        self._is_broken = True
        facts = exchange.reader.receive_eof(is_complete=False, problem=problem)
        return self._report([self._with_loss_details(exchange, fact) for fact in facts]) or Step.CLOSE

    def _with_loss_details(self, exchange: Exchange, fact: ReplyEvent) -> ReplyEvent:
        """Adds to the end of `exchange`, if no byte of a response arrived: `unsent` unless the whole request may have
        reached the server, and `stale` if the connection had served a request before."""
        if not isinstance(fact, Ended) or self._has_received or exchange.is_abandoned:
            return fact
        if self._has_served:
            self._pool.forget_idle()  # most likely they are dead too, and the request may be sent again
        cause = msgspec.structs.replace(fact.cause, unsent=not exchange.may_be_whole, stale=self._has_served)
        if self._is_at_eof and not self._has_served and self._pool.address.scheme == "http":
            # Many servers that want TLS send no alert.
            detail = f"{cause.detail}; if the server wants TLS, write https:// in its URL"
            cause = msgspec.structs.replace(cause, detail=detail)
        return Ended(cause)
