"""One HTTP connection to an upstream server: encodes requests, and reports what arrives to the exchange that holds it.

Nothing here waits. A `Driver` carries the bytes: it writes when woken, hands received bytes to `receive`, and follows
the `Step` it gets back. It reads at all times, with or without a request: so a server that closes an idle connection is
noticed at once, and so is a response that comes before the whole body was sent.

What received bytes mean depends on who holds the connection. With an exchange, they are its response. Without one but
within a response, they are the rest of a response that has reported everything: read and dropped, up to
`DRAIN_MAX_BYTES`. On an idle connection, any byte and the end of the stream close it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, Protocol

import h11
import msgspec

from ...core.base.events import Cause, Connected, End
from ...core.wire.http.foreign_reply import explain_foreign
from ...core.wire.http.response import Ended, ReplyEvent, promise_of
from ...core.wire.http1.events import END, NEED_DATA, Data, InformationalHead, ResponseHead
from ..http1.client import ClientCodec
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
        """Writes a request: calls `begin`, then `next_piece` until None, then `receive_written`."""

    def resume(self) -> None:
        """Calls `advance` soon, if the last step was HOLD."""

    def close(self) -> None:
        """Closes, whatever is under way, and calls `settle`."""

    def has_input(self) -> bool:
        """True if something has arrived that was not received yet, as far as that can be known."""

    def rest(self) -> None:
        """Releases what is kept for the next request, because the current response may last. There may be thousands."""


class Connection:
    """One connection, from before it is made until it is closed.

    Attributes:
        driver: set before anything else is done with the connection.
        is_idle: it has no request, and the response to the last one is complete.
    """

    __slots__ = (
        "_body",
        "_drained_size",
        "_exchange",
        "_facts",
        "_given_size",
        "_has_had_turn",
        "_has_head",
        "_has_received",
        "_has_served",
        "_head",
        "_head_size",
        "_head_size_max",
        "_http",
        "_is_at_eof",
        "_is_broken",
        "_is_complete",
        "_is_given_up",
        "_is_written",
        "_pool",
        "_promise",
        "_redirected",
        "_sending",
        "_unsent",
        "driver",
        "is_idle",
    )

    def __init__(self, pool: Pool) -> None:
        client = pool.client
        self.driver: Driver
        self.is_idle = False
        self._pool = pool
        self._head_size_max = client.limits.head_size_max_bytes
        self._http = ClientCodec(head_size_max_bytes=self._head_size_max, only_h11=client.only_h11)
        self._is_given_up = False
        self._is_at_eof = False
        self._has_served = False
        self._exchange: Exchange | None = None
        self._unsent: Exchange | None = None  # the exchange whose request came too late
        self._redirected: Exchange | None = None  # an exchange that was redirected
        # The current request, also after its exchange has let go of the connection.
        self._sending: Exchange | None = None  # until it is written
        self._head = b""
        self._body = b""
        self._given_size = 0  # bytes of the body given to the driver
        self._is_written = False
        # The last head of a response, and its opening if that head promises one document.
        self._promise: tuple[ResponseHead | None, Connected | None] = (None, None)
        # The current response.
        self._has_received = False  # a byte of it has arrived
        self._has_head = False
        self._head_size = 0
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
        self._head_size = 0
        self._drained_size = 0
        self._has_had_turn = False
        self._is_complete = False
        self.driver.wake()

    def begin(self) -> bool:
        """Begins to write the request that was taken. Returns False if there is none, or if it must not be written
        here."""
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
        return True

    def next_piece(self) -> bytes | None:
        """Returns the next bytes to write; None once everything was given out."""
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
        """Records that everything given out was written."""
        self._is_written = True
        self._body = b""
        self._http.note_sent()
        exchange, self._sending = self._sending, None
        if exchange is not None and exchange.when_written is not None:
            exchange.when_written()

    # --- The response -----------------------------------------------------------------------------------------------

    def receive(self, data: bytes | None) -> Step:
        """Takes received bytes: b"" is the end of the stream, None its loss."""
        exchange = self._exchange
        if self.is_idle or self._unsent is not None:
            # For a request that came too late, these bytes were under way before it.
            self._pool.forget(self)  # closing may take a few turns, in which no exchange may be given it
            return Step.CLOSE
        if exchange is not None:
            if exchange.is_unsent:
                # The server closed the connection while it was idle. The request must not be written to it.
                self._unsent, self._exchange = exchange, None
                return Step.CLOSE
            if exchange.is_abandoned:
                return Step.CLOSE  # it arrived before the connection could be closed
        if data is None:
            return self._break_off("")
        if data:
            self._has_received = True
        else:
            self._is_at_eof = True
        if not self._has_head:
            self._head_size += len(data)
        self._http.receive_data(data)
        step = self._receive_repeated(exchange, data)
        return self.advance() if step is None else step

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
        except h11.RemoteProtocolError as error:
            foreign = "" if self._has_head else explain_foreign(self._http.trailing_data[0], self._pool.address.scheme)
            malformed = "" if self._is_at_eof else f"got a malformed HTTP response: {str(error)[:200]}"
            return self._break_off(foreign or malformed)

    def _read_events(self, count: int) -> Step:
        """Parses and reports up to `TURN_EVENTS` events.

        Args:
            count: events reported in this turn already.

        Raises:
            h11.RemoteProtocolError: the response is malformed or broken off.
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
                if self._redirected is not None:
                    self._send_redirected()
                return READ
            elif event is END:
                return self._finish()
            elif isinstance(event, ResponseHead):
                if self._head_size > self._head_size_max:
                    self._check_head_size(len(self._http.trailing_data[0]))
                if self._is_written:
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

    def _receive_document(self, head: ResponseHead) -> Step | None:
        """Reports a response that is one document, or empty, and has arrived in full. Returns None if it is not, and
        nothing has changed.

        This skips the `ResponseReader`. `promise_of` accepts only heads for which that reader comes to the same events;
        `tests/core/wire/http/test_response.py` compares both.
        """
        exchange = self._exchange
        if exchange is None or not exchange.expects_document or exchange.is_paused:
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
        if head is None or opened is None or exchange is None or self._has_head or not self._is_written:
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

    def _receive_head(self, head: ResponseHead) -> list[ReplyEvent] | None:
        """Returns the events of a head; None if the response is a redirect, and the exchange has let go of the
        connection."""
        self._has_head = True
        exchange = self._exchange
        assert exchange is not None
        head_facts = exchange.receive_head(head.status, head.headers)
        if head_facts is None:
            self._redirected, self._exchange, exchange.connection = exchange, None, None
        elif exchange.is_lasting:
            self._promise = (None, None)
            self._http.forget_heads()
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
            self._send_redirected()
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
        # Fails if bytes follow the response, which no request asked for, or if the stream ended with it.
        if not self._is_written or not self._http.go_on():
            return Step.CLOSE
        self.is_idle = self._has_served = True
        return READ if self._pool.take_back(self) else Step.CLOSE

    def _send_redirected(self) -> None:
        """Dispatches a redirected exchange again. It need not wait for the rest of the response that redirected it."""
        exchange, self._redirected = self._redirected, None
        if exchange is not None and exchange.is_abandoned:
            exchange.end(Cause(End.DONE))
        elif exchange is not None:
            self._pool.dispatch(exchange)

    def _check_head_size(self, behind_size: int) -> None:
        """Enforces the limit of a head. Interim responses count too, so that they cannot go on for ever."""
        if self._head_size - behind_size > self._head_size_max:
            raise h11.RemoteProtocolError(f"head over the limit of {self._head_size_max} bytes")

    # --- The end ----------------------------------------------------------------------------------------------------

    def give_up(self) -> None:
        """Closes the connection, whatever is under way."""
        self._is_given_up = True
        self._pool.forget(self)
        self.driver.close()

    def retire(self) -> None:
        """Takes the connection out of the pool, so that no exchange is given it."""
        self._pool.forget(self)

    def fail(self, cause: Cause) -> None:
        """Ends the exchange that holds the connection, because no connection could be made or we failed."""
        exchange = self._exchange or self._unsent
        if exchange is not None:
            self._exchange = self._unsent = exchange.connection = None
            exchange.end(cause)

    def settle(self) -> None:
        """Handles the close of the connection: the exchange that still holds it ends, or is dispatched again if nothing
        of it was written. Call it once."""
        pool = self._pool
        exchange = self._exchange or self._unsent
        pool.forget(self)
        pool.release()
        self._send_redirected()
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
