"""The writing half of a client's connection: the reply that is due, and what follows when it has left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import anyio
import h11
from anyio import CancelScope
from anyio.abc import ByteStream

from ..core.effects import Cause, End, Serve
from ..core.wire.download import plan_download
from ..core.wire.http_headers import Headers
from ..core.wire.http_reply import Out, Reply, ReplyEnd, ReplyHead
from ..core.wire.http_routes import Refused
from .http_files import deliver
from .http_framing import Framing, Phase
from .http_listening import Listening
from .http_outbox import Outbox, Silent
from .http_replies import Exchange, FileExchange

LINGER_S: Final = 2.0
"""Closing with unread bytes makes the kernel discard the reply as well, so a refused client may finish for so long."""


class Writer:
    """Sends what exchanges queue, all of it in one write: the `Sink` of each. One of them is due at a time.

    Args:
        scope: cancelled when the connection has nothing more to do.

    Attributes:
        exchange: the request whose reply is due; None between requests, and when its client is gone.
        shared_headers: of every response to this request.
        cause: why the connection ends here, for an engine that is not told yet.
    """

    def __init__(
        self, stream: ByteStream, framing: Framing, outbox: Outbox, listening: Listening, scope: CancelScope
    ) -> None:
        self.exchange: Exchange | None = None
        self.shared_headers: Headers = ()
        self.cause = Cause(End.BROKEN, "the listener was stopped")
        self._stream = stream
        self._framing = framing
        self._outbox = outbox
        self._on = listening
        self._scope = scope
        self._fetch: Callable[[], Awaitable[None]] | None = None
        self._is_ended = False

    async def run(self) -> None:
        """Write until there is nothing more to answer, or nobody to read it."""
        try:
            while True:
                await self.flush()
                if (fetch := self._fetch) is not None:
                    self._fetch = None
                    await fetch()
                elif self.exchange is not None and self.exchange.is_ended:
                    await self._finish()
                elif self._is_ended:
                    return
                else:
                    await self._outbox.wait()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.stop(Cause(End.GONE, "the client hung up"))
        except Silent:
            waited_s = self._on.limits.write_timeout_s
            self.stop(Cause(End.TIMED_OUT, f"the client took nothing for {waited_s:g} s"))

    async def flush(self) -> None:
        """Send all that is queued.

        Raises:
            As `Outbox.flush`.
        """
        while not self._outbox.is_empty:
            size_bytes = await self._outbox.flush()
            if size_bytes and self.exchange is not None and self.exchange.channel is not None:
                self._on.port.sent(self.exchange.channel, size_bytes)

    def fetch(self, fetch: Callable[[], Awaitable[None]]) -> None:
        """Await `fetch` once what is queued has left: it queues the reply piece by piece, at the client's pace."""
        self._fetch = fetch
        self._outbox.wake()

    def answer(self, refused: Refused) -> None:
        """Reply to the request on our own account."""
        self.exchange = Exchange(self, Reply(), head_only=self._framing.head_only)
        self.exchange.answer(refused)

    def keep_alive(self) -> None:
        """Put a comment on an open event stream whose client keeps up."""
        if self.exchange is not None and self._outbox.is_empty:
            self.exchange.keep_alive()

    # --- What exchanges ask -----------------------------------------------------------------------------------------

    def queue(self, exchange: Exchange, outs: Sequence[Out], message_bytes: int) -> None:
        if exchange is not self.exchange:
            return  # its client is gone
        for out in outs:
            if isinstance(out, ReplyHead):
                self._put_head(out)
            elif isinstance(out, ReplyEnd):
                self._framing.put(h11.EndOfMessage())
            elif not exchange.head_only:
                self._framing.put(h11.Data(data=out.data))
        self._outbox.message_bytes += message_bytes

    def _put_head(self, out: ReplyHead) -> None:
        is_passing = self._framing.phase is Phase.FORWARD  # the reader is not through yet
        if not is_passing:
            self._framing.leave_rest()
        headers = [*out.headers, *self.shared_headers]
        if not any(name == b"date" for name, _ in out.headers):
            headers.append((b"date", self._on.date()))
        if self._framing.phase is Phase.CLOSING or self._on.is_draining or is_passing:
            headers.append((b"connection", b"close"))
        self._framing.put_head(out.status, headers)

    def start_download(self, exchange: FileExchange, order: Serve) -> None:
        self.fetch(partial(self._give_out, exchange, order))

    async def _give_out(self, exchange: FileExchange, order: Serve) -> None:
        assert self._framing.head is not None
        plan = plan_download(order, self._framing.head.headers, head_only=exchange.head_only)
        if not plan.parts:
            exchange.put([ReplyHead(plan.status, plan.headers), ReplyEnd()])
            return
        exchange.traffic.begin()
        cause = await deliver(exchange, plan, partial(self._on.files.give_out, order), self.flush)
        if cause is not None and exchange.is_ended:
            self.close_channel(cause)
        elif cause is not None:
            self.stop(cause)

    def stop_intake(self) -> None:
        self._framing.stop_intake()

    # --- Ends -------------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """A reply has left in full."""
        framing = self._framing
        self.close_channel(Cause(End.DONE))
        self.exchange = None
        if framing.phase is Phase.FORWARD:  # answered before the body was there in full
            framing.stop_intake()
            framing.phase = Phase.CLOSING
        if framing.phase is Phase.DONE:
            self.next_cycle()
        elif framing.phase is Phase.CLOSING:
            framing.enter(Phase.CLOSING, LINGER_S)
            try:
                await self._stream.send_eof()
            except NotImplementedError:
                pass  # TLS has no half-close: such a client learns of the end when the reader is through

    def next_cycle(self) -> None:
        """Go on with the next request, or end here if there is to be none."""
        if self._on.is_draining or not self._framing.start_next_cycle():
            self._framing.phase = Phase.CLOSING
            self._scope.cancel()
        self.shared_headers = ()

    def end(self) -> None:
        """There will be no other request: when what is due has left, `run` returns."""
        self._is_ended = True
        self._outbox.wake()

    def stop(self, cause: Cause) -> None:
        """The connection ends here and now, whatever is due. What is being taken in comes to its end first, so that it
        can be told how much that was."""
        self._framing.phase = Phase.CLOSING
        self.cause = cause
        if self._framing.intake is None or not isinstance(self.exchange, FileExchange):
            self.close_channel()
            self.exchange = None
        self._outbox.clear()
        self._scope.cancel()

    def close_channel(self, cause: Cause | None = None) -> None:
        """Tell the engine of the end, once."""
        if self.exchange is not None and self.exchange.channel is not None:
            channel, self.exchange.channel = self.exchange.channel, None
            if isinstance(self.exchange, FileExchange):
                self.exchange.traffic.end(cause or self.cause)
            self._on.port.closed(channel, cause or self.cause)
