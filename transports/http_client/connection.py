"""One connection to an upstream: requests make bytes, and bytes that arrive make news for who asked.

Nothing here waits. A `Driver` carries the bytes: it writes when it is woken, hands what it has received to `receive`,
and does as the `Step` says that it gets for it. It always reads, request or none: so a server that closes an idle
connection is noticed at once, and one that answers before it has taken the whole body is heard.

Whoever holds a connection decides what its bytes mean: an exchange (they are its reply), nobody for the moment (the
rest of a reply that has told all it had to; read and dropped, within bounds), or nobody at all (idle: any byte, and
the end of the stream, ends it).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, Protocol

import h11
import msgspec

from ...core.base.effects import Cause, Connected, End
from ...core.wire.http.response import Ended, ReplyEvent, promise_of
from ...core.wire.http1.events import END, NEED_DATA, Data, InformationalHead, ResponseHead
from ..http1.client import ClientCodec
from .exchange import Exchange, stopped

if TYPE_CHECKING:
    from .pool import Pool

WRITE_SIZE_BYTES: Final = 256 * 1024
"""One write of a large body. Smaller bodies leave in one write together with the head."""

DRAIN_MAX_BYTES: Final = 64 * 1024
"""A reply that has told all it had to is read on for so long, to keep the connection; a longer one is not worth it."""

TURN_EVENTS: Final = 200
"""Pieces of a reply that are read or told before others get their turn: some milliseconds of work."""


class Step(enum.Enum):
    """What a driver is to do next."""

    READ = "read"  # receive more
    TURN = "turn"  # `advance`, after others had their turn
    HOLD = "hold"  # read nothing; `advance` after the next `Driver.resume`
    CLOSE = "close"  # close, and `settle`


READ: Final = Step.READ


class Driver(Protocol):
    """What carries the bytes of one connection. No method calls the connection's port before it returns."""

    def wake(self) -> None:
        """There is a request to be written: `begin`, then every `next_piece`, and `receive_written`."""

    def resume(self) -> None:
        """If it holds: time to `advance`."""

    def close(self) -> None:
        """Close, whatever it does, and `settle`."""

    def has_input(self) -> bool:
        """Whether something has arrived that was not received yet, as far as that can be known."""

    def rest(self) -> None:
        """The response at hand may last, and there may be thousands of those: what is kept for the next may go."""


class Connection:
    """One connection, from before it is made until it is closed.

    Attributes:
        driver: set before anything else is done with it.
        is_idle: it has no request, and the response to the one before is complete.
    """

    __slots__ = (
        "_body",
        "_drained_size",
        "_exchange",
        "_facts",
        "_given_size",
        "_has_had_turn",
        "_has_head",
        "_has_heard",
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
        "_moved",
        "_pool",
        "_promise",
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
        self._unsent: Exchange | None = None  # one that came too late
        self._moved: Exchange | None = None  # one that is to be asked elsewhere
        # The request at hand, also after its exchange has let go.
        self._sending: Exchange | None = None  # until it is written
        self._head = b""
        self._body = b""
        self._given_size = 0  # of the body, to the driver
        self._is_written = False
        # The last head of a response, and what it tells if it promises one document.
        self._promise: tuple[ResponseHead | None, Connected | None] = (None, None)
        # The response at hand.
        self._has_heard = False  # a byte of it
        self._has_head = False
        self._head_size = 0
        self._drained_size = 0
        self._has_had_turn = False
        self._facts: list[ReplyEvent] = []  # not told yet
        self._is_complete = False
        self._is_broken = False  # and nothing follows what is not told yet

    # --- The request ------------------------------------------------------------------------------------------------

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
        self._has_had_turn = False
        self._is_complete = False
        self.driver.wake()

    def begin(self) -> bool:
        """Begin to write the request that was taken. False: there is none, or no more use in writing it here."""
        exchange = self._exchange
        if exchange is None:
            return False
        if self._has_served and self.driver.has_input():
            # Nothing was asked for yet: it is the end, or the connection is of no use anyway.
            self._unsent, self._exchange = exchange, None
            self.give_up()
            return False
        exchange.is_unsent = False
        self._sending = exchange
        self._body = body = exchange.body
        if exchange.post is not None:
            self._head = self._http.encode_post(exchange.post, exchange.target, len(body))
        else:
            self._head = self._http.encode_request(exchange.method, exchange.target, exchange.headers)
        self._given_size = 0
        return True

    def next_piece(self) -> bytes | None:
        """What to write next. None: everything was given out."""
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
        """All that was given out has left."""
        self._is_written = True
        self._body = b""
        self._http.note_sent()
        exchange, self._sending = self._sending, None
        if exchange is not None and exchange.when_written is not None:
            exchange.when_written()

    # --- The response -----------------------------------------------------------------------------------------------

    def receive(self, data: bytes | None) -> Step:
        """Take what was received: b"" is the stream's end, None its loss."""
        exchange = self._exchange
        if self.is_idle or self._unsent is not None:
            # When a request came too late, this was on its way to us by then.
            self._pool.forget(self)  # closing may take a few turns, in which nobody may be given it
            return Step.CLOSE
        if exchange is not None:
            if exchange.is_unsent:
                # The server had closed while there was nothing to do. The request must not be written any more.
                self._unsent, self._exchange = exchange, None
                return Step.CLOSE
            if exchange.is_abandoned:
                return Step.CLOSE  # it arrived before the connection could be closed
        if data is None:
            return self._break_off("")
        if data:
            self._has_heard = True
        else:
            self._is_at_eof = True
        if not self._has_head:
            self._head_size += len(data)
        self._http.receive_data(data)
        step = self._receive_repeated(exchange, data)
        return self.advance() if step is None else step

    def advance(self) -> Step:
        """Tell what has arrived, as far as it is wanted."""
        count = len(self._facts)
        if count:
            facts, self._facts = self._facts, []
            step = self._tell(facts)
            if step is not None:
                return step
        if self._is_broken:
            return Step.CLOSE
        if self._is_complete:
            return self._finish()
        try:
            return self._read_events(count)
        except h11.RemoteProtocolError as error:
            return self._break_off("" if self._is_at_eof else f"got a malformed HTTP response: {str(error)[:200]}")

    def _read_events(self, count: int) -> Step:
        """
        Args:
            count: how much has been told in this turn.

        Raises:
            h11.RemoteProtocolError: the response cannot go on like this.
        """
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
            elif event is NEED_DATA:
                if not self._has_head:
                    self._check_head_size(0)
                if self._moved is not None:
                    self._send_on()
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
                told = self._receive_head(event)
                if told is None:
                    if not self._is_written:
                        return Step.CLOSE  # what is left of the request is for nobody
                    self._pool.client.note_unheld(self)
                    continue
                facts = told
            elif isinstance(event, InformationalHead):
                continue
            else:
                return Step.CLOSE  # the stream has ended, or speaks something else from here on
            if facts:
                count += len(facts)
                step = self._tell(facts)
                if step is not None:
                    return step
        return Step.TURN

    def _receive_document(self, head: ResponseHead) -> Step | None:
        """Tell of a response that is one document, or none, and is there in full. None: it is not, and nothing was
        done."""
        exchange = self._exchange
        if exchange is None or not exchange.expects_document or exchange.is_paused:
            return None
        known, opened = self._promise
        if known is not head:  # else the codec knew it again
            opened = promise_of(head.status, head.headers, size_max_bytes=self._pool.client.limits.reply_size_max_bytes)
            self._promise = head, opened
        body = None if opened is None else self._http.take_rest()
        if opened is None or body is None:
            return None
        return self._tell_document(exchange, opened, body)

    def _receive_repeated(self, exchange: Exchange | None, data: bytes) -> Step | None:
        """`_receive_document`, of one that begins as the last did, and came whole in this one read, however large."""
        head, opened = self._promise
        if head is None or opened is None or exchange is None or self._has_head or not self._is_written:
            return None
        if not exchange.expects_document or exchange.is_paused or self._head_size != len(data):
            return None
        body = self._http.take_repeated(head)
        return None if body is None else self._tell_document(exchange, opened, body)

    def _tell_document(self, exchange: Exchange, opened: Connected, body: bytes) -> Step:
        self._exchange = exchange.connection = None
        if exchange.is_lasting:
            exchange.give_up_place()
        step = self._recycle()  # the connection is free before that is told: see `_finish`
        exchange.report_document(opened, body)
        return step

    def _receive_head(self, head: ResponseHead) -> list[ReplyEvent] | None:
        """What it tells; None: the exchange is to be asked elsewhere, and has let go."""
        self._has_head = True
        exchange = self._exchange
        assert exchange is not None
        told = exchange.receive_head(head.status, head.headers)
        if told is None:
            self._moved, self._exchange, exchange.connection = exchange, None, None
        elif exchange.is_lasting:
            self._promise = (None, None)
            self._http.forget_heads()
            exchange.forget_request()
            self.driver.rest()
        return told

    def _tell(self, facts: list[ReplyEvent]) -> Step | None:
        """Tell the exchange, as far as its port wants to hear. None: there may be more."""
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
        """The response is complete. The connection is free before that is told, as the news may bring a request."""
        if not self._is_written and not self._has_had_turn:
            # All may have left, and only the writer's turn not have come since.
            self._is_complete = self._has_had_turn = True
            return Step.TURN
        exchange = self._exchange
        if exchange is None:
            step = self._recycle()
            self._send_on()
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
        # Bytes behind the response were never asked for; its end may have been the stream's.
        if not self._is_written or not self._http.go_on():
            return Step.CLOSE
        self.is_idle = self._has_served = True
        return READ if self._pool.take_back(self) else Step.CLOSE

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

    # --- The end ----------------------------------------------------------------------------------------------------

    def give_up(self) -> None:
        """Close the connection, whatever it does."""
        self._is_given_up = True
        self._pool.forget(self)
        self.driver.close()

    def retire(self) -> None:
        """From now on it is given to nobody."""
        self._pool.forget(self)

    def fail(self, cause: Cause) -> None:
        """No connection came about, or it cannot go on by our own mistake: whoever holds it is told why."""
        exchange = self._exchange or self._unsent
        if exchange is not None:
            self._exchange = self._unsent = exchange.connection = None
            exchange.end(cause)

    def settle(self) -> None:
        """It is closed, and whoever still held it is told, or tries another. To be called once."""
        pool = self._pool
        exchange = self._exchange or self._unsent
        pool.forget(self)
        pool.release()
        self._send_on()
        if exchange is not None and not exchange.is_over:
            exchange.connection = None
            where = pool.address.authority.decode()
            if exchange is self._unsent and self._has_served and not exchange.is_abandoned:
                pool.dispatch(exchange)
            elif exchange is self._unsent:
                exchange.end(Cause(End.BROKEN, f"{where} closed the connection at once", unsent=True))
            elif self._is_given_up:
                cause = Cause(End.BROKEN, f"{where} took no more of the request")
                exchange.report(self._doubt(exchange, Ended(cause)))
            else:
                exchange.end(stopped(exchange.is_unsent))
        pool.dispatch_waiting()

    def _break_off(self, problem: str) -> Step:
        """There is no more of the response. `problem` is for people, if it is not that the connection ended."""
        exchange = self._exchange
        if exchange is None:
            return Step.CLOSE
        self._is_broken = True
        facts = exchange.reader.receive_eof(is_complete=False, problem=problem)
        return self._tell([self._doubt(exchange, fact) for fact in facts]) or Step.CLOSE

    def _doubt(self, exchange: Exchange, fact: ReplyEvent) -> ReplyEvent:
        """The connection broke: the end of `exchange`, with what speaks for it not having been looked at."""
        if not isinstance(fact, Ended) or self._has_heard or exchange.is_abandoned:
            return fact
        if self._has_served:
            self._pool.forget_idle()  # they are most likely no better, and the request may be sent again
        cause = msgspec.structs.replace(fact.cause, unsent=not exchange.may_be_whole, stale=self._has_served)
        return Ended(cause)
