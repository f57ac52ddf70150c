"""The writing half of a client's connection: the reply that is due, what follows once it has left, and the end."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from ...core.base.effects import Forward
from ...core.base.events import Cause, End
from ...core.base.storage import Serve
from ...core.wire.headers import Headers
from ...core.wire.http.download import plan_download
from ...core.wire.http.reply import HttpReply, Out, ReplyBody, ReplyCut, ReplyDocument, ReplyEnd, ReplyHead
from ...core.wire.http.routes import Refused
from ..base.wire import LINGER_S, ClientWire
from .files import deliver
from .framing import Framing, Phase
from .jobs import Jobs
from .replies import Exchange, FileExchange
from .shared import OTHER_AREA, ServerContext

_DONE: Final = Cause(End.DONE)
_STOPPED: Final = Cause(End.BROKEN, "the listener was stopped")
_DATE: Final = b"date"


class Writer:
    """Sends what exchanges queue, all of it in one write: the `Sink` of each. One exchange is due at a time.

    Args:
        settle: writes what is queued, and goes on as far as that allows.

    Attributes:
        area: the area of the request, as responses are counted by (`RoutedHead.area`).
        exchange: the request whose reply is due; None between requests, and when its client is gone.
        replica: the tag of the replica that the request is to be passed on to; "" if there is none.
        shared_headers: carried by every response to this request.
        cause: why the connection ends, for a channel whose end is not reported yet.
        is_held: the exchange goes on though its reply is complete: a server still wants the rest of the request.
        is_over: the connection has nothing more to do.
        is_settling: queued bytes are about to be written in the current call.
        is_woken: the wire will call `handle_wake` soon.
    """

    __slots__ = (
        "_fetch",
        "_flushed",
        "_is_blocked",
        "_is_closed",
        "_is_fetching",
        "_jobs",
        "_leaving_bytes",
        "_listening",
        "_message_bytes",
        "_settle",
        "_wire",
        "area",
        "cause",
        "exchange",
        "framing",
        "is_held",
        "is_over",
        "is_settling",
        "is_woken",
        "replica",
        "shared_headers",
    )

    def __init__(
        self, wire: ClientWire, framing: Framing, jobs: Jobs, listening: ServerContext, settle: Callable[[], None]
    ) -> None:
        self.area = OTHER_AREA
        self.exchange: Exchange | None = None
        self.replica = ""
        self.shared_headers: Headers = ()
        self.cause = _STOPPED
        self.is_held = False
        self.is_over = False
        self.is_settling = False
        self.is_woken = False
        self.framing = framing
        self._wire = wire
        self._jobs = jobs
        self._listening = listening
        self._settle = settle
        self._fetch: Callable[[], Coroutine[object, object, None]] | None = None
        self._is_fetching = False
        self._is_blocked = False  # the last write has not left
        self._is_closed = False
        self._message_bytes = 0  # bytes of messages that are queued
        self._leaving_bytes = 0  # bytes of messages that were written and have not left
        self._flushed: anyio.Event | None = None  # while a task waits until all has left

    # --- Writing ----------------------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """Writes what is queued. Returns True if a reply has left in full and some of the next request has arrived."""
        framing = self.framing
        while framing.queued and not self._is_blocked:
            parts, framing.queued = framing.queued, []
            self._leaving_bytes, self._message_bytes = self._message_bytes, 0
            if self._wire.write(parts):
                self._note_written()
            else:
                self._is_blocked = True
        if self._is_blocked or self.is_over:
            return False
        if self._fetch is not None:
            self._is_fetching = True
            fetch, self._fetch = self._fetch, None
            self._jobs.start(partial(self._run_fetch, fetch))
        if self._is_fetching or self.is_held:
            return False
        if self.exchange is not None and self.exchange.is_ended:
            return self._finish()
        if framing.is_ending and self.exchange is None:
            self.end_here()
        return False

    def handle_written(self) -> None:
        """Records that everything written has left."""
        self._is_blocked = False
        self._note_written()

    def _note_written(self) -> None:
        exchange, is_empty = self.exchange, not self.framing.queued
        if not (is_empty and exchange is not None and exchange.is_ended):  # else `_finish` reports
            size_bytes, self._leaving_bytes = self._leaving_bytes, 0
            if size_bytes and exchange is not None and exchange.channel is not None:
                self._listening.port.sent(exchange.channel, size_bytes)
        if self._flushed is not None and is_empty:
            self._flushed.set()
            self._flushed = None

    @property
    def is_behind(self) -> bool:
        """True if the client has not taken everything that is queued."""
        return self._is_blocked or bool(self.framing.queued)

    async def flush(self) -> None:
        """Returns when everything queued has left. Does not return if the connection ends first. Only for tasks."""
        self._settle()
        if not self.is_behind:
            await checkpoint()
        while self.is_behind:
            self._flushed = self._flushed or anyio.Event()
            await self._flushed.wait()

    def wake(self, *, at_once: bool = False) -> None:
        """Has queued bytes written soon, in one write with whatever else is queued in this turn; with `at_once`,
        without waiting for more."""
        if not (self.is_settling or self.is_woken or self.is_over):
            self.is_woken = True
            self._wire.wake(at_once)

    # --- Replies ----------------------------------------------------------------------------------------------------

    def fetch(self, fetch: Callable[[], Coroutine[object, object, None]]) -> None:
        """Runs `fetch` as a task once what is queued has left. It queues the reply piece by piece, at the client's
        pace."""
        self._fetch = fetch
        self.wake()

    async def _run_fetch(self, fetch: Callable[[], Coroutine[object, object, None]]) -> None:
        try:
            await fetch()
        finally:
            self._is_fetching = False

    def answer(self, refused: Refused) -> None:
        """Replies to the request without the engine."""
        self.exchange = Exchange(self, HttpReply(), head_only=self.framing.head_only)
        self.exchange.answer(refused)

    def keep_alive(self) -> None:
        """Writes a comment on an open event stream whose client keeps up."""
        if self.exchange is not None and not (self._is_blocked or self.framing.queued):
            self.exchange.keep_alive()

    # --- Orders of exchanges ----------------------------------------------------------------------------------------

    def queue(self, exchange: Exchange, outs: Sequence[Out], message_bytes: int) -> None:
        if exchange is not self.exchange:
            return  # the client is gone
        framing = self.framing
        head = outs[0]
        if type(head) is ReplyDocument:
            self._listening.counts.responses[self.area, head.status] += 1
            self._put_document(head, is_head_only=exchange.head_only)
        else:
            for out in outs:
                if type(out) is ReplyBody:
                    if not exchange.head_only:
                        framing.put_data(out.data)
                elif type(out) is ReplyHead:
                    self._listening.counts.responses[self.area, out.status] += 1
                    framing.put_head(out.status, self._headers(out))
                elif type(out) is ReplyCut:
                    self.stop(Cause(End.BROKEN, "the server's answer was cut off"))
                    return
                elif type(out) is ReplyDocument:
                    raise AssertionError("a document is a whole reply")
                else:
                    framing.put_end()
        self._message_bytes += message_bytes
        self.wake(at_once=exchange.is_ended and exchange.leaves_at_once)

    def pass_on(self, outs: Sequence[Out]) -> None:
        """Writes what follows of a forwarded reply, at once. If the exchange goes on after the end of it, `is_held` is
        set before."""
        exchange = self.exchange
        if exchange is not None:  # else the client is gone
            exchange.is_ended = isinstance(outs[-1], (ReplyDocument, ReplyEnd))
            was_woken, self.is_woken = self.is_woken, True  # it is written below, and needs no further turn
            self.queue(exchange, outs, 0)
            self.is_woken = was_woken
            self._settle()

    def forward(self, exchange: Exchange, order: Forward) -> None:
        if exchange is self.exchange:
            self.replica = order.replica
            self.wake()

    def _put_document(self, document: ReplyDocument, *, is_head_only: bool) -> None:
        framing = self.framing
        if framing.phase is Phase.DONE and not (is_head_only or self._listening.ends_connections):  # the usual case
            headers = self._listening.dated(document.headers, self.shared_headers)
            framing.queued += framing.codec.encode_document(document.status, headers, document.pieces)
        else:
            data = document.data
            sized = (*document.headers, (b"content-length", b"%d" % len(data)))
            headers = tuple(self._headers(ReplyHead(document.status, sized)))
            framing.put_whole(document.status, headers, b"" if is_head_only else data)

    def _headers(self, head: ReplyHead) -> list[tuple[bytes, bytes]]:
        framing = self.framing
        is_passing = framing.phase is Phase.FORWARD  # the request's body is still coming
        if not is_passing:
            framing.leave_rest()
        headers = [*head.headers, *self.shared_headers]
        for name, _ in head.headers:
            if name == _DATE:
                break
        else:
            headers.append((_DATE, self._listening.date()))
        if is_passing or framing.phase is Phase.CLOSING or self._listening.ends_connections:
            headers.append((b"connection", b"close"))
        return headers

    def start_download(self, exchange: FileExchange, order: Serve) -> None:
        self.fetch(partial(self._serve_file, exchange, order))

    async def _serve_file(self, exchange: FileExchange, order: Serve) -> None:
        assert self.framing.head is not None
        plan = plan_download(order, self.framing.head.headers, head_only=exchange.head_only)
        if not plan.parts:
            exchange.put([ReplyHead(plan.status, plan.headers), ReplyEnd()])
            return
        exchange.traffic.begin()
        cause = await deliver(exchange, plan, partial(self._listening.files.give_out, order), self.flush)
        if cause is not None and exchange.is_ended:
            self.close_channel(cause)
        elif cause is not None:
            self.stop(cause)

    def stop_intake(self) -> None:
        self.framing.stop_intake()

    # --- Ends -------------------------------------------------------------------------------------------------------

    def _finish(self) -> bool:
        """Ends an exchange whose reply has left in full. Returns True if some of the next request has arrived."""
        framing = self.framing
        delivered_bytes, self._leaving_bytes = self._leaving_bytes, 0
        self.close_channel(_DONE, delivered_bytes)
        self.exchange = None
        if framing.phase is Phase.FORWARD:  # answered before the body had arrived in full
            framing.stop_intake()
            framing.phase = Phase.CLOSING
        if framing.phase is Phase.DONE:
            return self.next_cycle()
        if framing.is_ending:
            self.end_here()
        elif framing.phase is Phase.CLOSING:
            framing.enter(Phase.CLOSING, LINGER_S)
            self._wire.end_sending()
        return False

    def next_cycle(self) -> bool:
        """Goes on to the next request, or ends the connection if there is to be none. Returns True if some of it has
        arrived."""
        self.shared_headers, self.area = (), OTHER_AREA
        if self._listening.ends_connections or self.framing.is_ending or not self.framing.start_next_cycle():
            self.end_here()
            return False
        return self.framing.phase is not Phase.IDLE

    def stop(self, cause: Cause) -> None:
        """Ends the connection now, whatever is due. An upload in progress ends by itself first, so that the engine
        learns how much of it was stored."""
        if self.is_over:
            return
        self.cause = cause
        if self.framing.intake is None or not isinstance(self.exchange, FileExchange):
            self.close_channel()
            self.exchange = None
        self.end_here()

    def cut_off(self, exchange: Exchange, reason: str) -> None:
        if exchange is self.exchange:
            self.stop(Cause(End.BROKEN, reason))

    def end_here(self) -> None:
        """Stops reading and writing. The wire is closed once no task is left."""
        if self.is_over:
            return
        self.is_over = self.framing.is_ending = True
        self.framing.phase = Phase.CLOSING
        self.framing.drop()
        self._jobs.cancel()
        self.close_if_over()

    def close_if_over(self) -> None:
        if self.is_over and not (self._jobs or self._is_closed):
            self._is_closed = True
            self.close_channel()
            self.exchange = None
            self._wire.close()

    def close_channel(self, cause: Cause | None = None, delivered_bytes: int = 0) -> None:
        """Reports the end of the channel to the engine, once, and the bytes that have left before it."""
        exchange = self.exchange
        if exchange is not None and exchange.channel is not None:
            channel, exchange.channel = exchange.channel, None
            if isinstance(exchange, FileExchange):
                exchange.traffic.end(cause or self.cause)
            if delivered_bytes:
                self._listening.port.delivered(channel, delivered_bytes)
            else:
                self._listening.port.closed(channel, cause or self.cause)
