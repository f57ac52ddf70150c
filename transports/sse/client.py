"""Upstream servers of the HTTP+SSE transport (2024-11-05): an event stream and POSTs as one two-way channel.

Messages are POSTed in the order in which they were sent: the next one is sent once the one before was accepted. A
server that accepts a message only when it has answered it could wait for our next message meanwhile, so no message is
held back for longer than `Limits.post_wait_s` after the one before it was written in full.
`core.wire.http.legacy_sse_client` decides what is refused and what ends the session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import anyio

from ...core.base.effects import Close, Join, Listen, Post, Send
from ...core.base.errors import LocalProtocolError
from ...core.base.events import Cause, Connected, CookieChanges, End, Opening, PostOpening
from ...core.base.ids import ChannelId
from ...core.base.limits import Limits
from ...core.wire.http.cookies import CookieStore
from ...core.wire.http.legacy_sse_client import SendAgain, SseSession
from ...core.wire.http.response import Arrived, Ended, ResponseReader
from ..base.endpoint import Endpoint
from ..base.port import Outlet, Port
from ..base.tokens import UpstreamTokens
from ..http_client.client import HttpClient
from ..http_client.exchange import Exchange

FLUSH_GRACE_S: Final = 1.0
"""Seconds that queued messages may still take to reach the server when the session is closed."""


class SseUpstream:
    """One session with a server, from the GET of its event stream to its end, as the `Outlet` of its channel.

    Orders may be given from the beginning; messages sent before the session is joined are queued. Run it as a task:
    `tasks.start_soon(upstream.run)`. The task must end before the HTTP client's context is left.

    Args:
        endpoint: the URL of the event stream.
        log: called with lines for people, without line ends.
        tokens: the tokens for the server; None: it wants none.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        target: Join,
        channel: ChannelId,
        port: Port,
        limits: Limits,
        client: HttpClient,
        *,
        log: Callable[[str], None],
        tokens: UpstreamTokens | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._target = target
        self._channel = channel
        self._port = port
        self._limits = limits
        self._client = client
        self._log = log
        self._tokens = tokens
        self._session = SseSession(endpoint.url, limits)
        self._cookies = CookieStore(limits)
        self._stream: Exchange | None = None
        self._queue: deque[bytes] = deque()
        self._to_repeat: deque[bytes] = deque()  # messages to send again, before the queue
        self._posts: set[_Posting] = set()
        self._change = anyio.Event()
        self._scope = anyio.CancelScope()  # round the session
        self._is_joined = False
        self._is_paused = False
        self._is_closing = False
        self._is_over = False

    def send(self, order: Send) -> None:
        if not self._is_closing and not self._is_over:
            self._queue.append(order.message)
            self._change.set()

    def close(self, order: Close) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._scope.deadline = anyio.current_time() + FLUSH_GRACE_S
            self._change.set()

    def pause(self) -> None:
        self._is_paused = True
        if self._stream is not None:
            self._stream.pause()

    def resume(self) -> None:
        self._is_paused = False
        if self._stream is not None:
            self._stream.resume()

    async def run(self) -> None:
        """Joins the session and runs until it is over."""
        try:
            with self._scope:
                if not self._is_closing:
                    await self._live()
        except LocalProtocolError as error:  # the headers of this session cannot be sent
            self.receive_end(Cause(End.UNREACHABLE, str(error), unsent=True))
        except Exception:  # an error of our own: it goes to the caller, but the channel has to end too
            self.receive_end(Cause(End.BROKEN, "internal error"))
            raise
        finally:
            self.receive_end(Cause(End.DONE))
            order = Close(self._channel)
            for exchange in (self._stream, *(posting.exchange for posting in self._posts)):
                if exchange is not None:
                    exchange.close(order)

    # --- From the exchanges -----------------------------------------------------------------------------------------

    def receive_cookies(self, changes: CookieChanges) -> None:
        """Stores the cookies that the response to the GET or a POST has set."""
        self._cookies.receive(changes)

    def receive_joined(self) -> None:
        self._is_joined = True
        if not self._is_closing:
            self._port.opened(self._channel, Connected())
        self._change.set()

    def receive_message(self, message: bytes) -> None:
        if not self._is_closing and not self._is_over:
            self._port.message(self._channel, message)

    def receive_messages(self, messages: Sequence[bytes]) -> None:
        if not self._is_closing and not self._is_over:
            self._port.arrived(self._channel, messages)

    def receive_end(self, cause: Cause) -> None:
        """Ends the session. Only the first cause counts."""
        if not self._is_over:
            self._is_over = True
            self._scope.cancel()
            if self._stream is not None:
                self._stream.close(Close(self._channel))  # at once: nothing that still arrives there is reported
            self._port.closed(self._channel, Cause(End.DONE) if self._is_closing else cause)

    def receive_posted(self, posting: _Posting, cause: Cause) -> None:
        """Handles the end of a POST."""
        self._posts.discard(posting)
        self._change.set()
        if cause.end is End.DONE or self._is_over:
            return
        for fact in self._session.receive_untaken(posting.body, cause, is_repeated=posting.is_repeated):
            if isinstance(fact, Arrived):
                self.receive_message(fact.message)
            elif isinstance(fact, SendAgain):
                self._to_repeat.append(posting.body)
            elif isinstance(fact, Ended):
                self.receive_end(fact.cause)
            else:
                self._log(fact.reason)

    # --- The session ------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        target = Listen(self._target.server, headers=self._target.headers)
        self._stream = self._client.dial(
            self._endpoint, target, self._channel, _Stream(self), reader=self._session, tokens=self._tokens
        )
        if self._is_paused:
            self._stream.pause()
        while not self._is_over:  # the event may wake this task before the cancellation set together with it
            is_free = len(self._posts) < self._limits.exchanges_per_session_max
            if self._to_repeat and is_free:
                await self._post(self._to_repeat.popleft(), is_repeated=True)
            elif self._is_joined and self._queue and is_free:
                await self._post(self._queue.popleft())
            elif self._is_closing and not (self._is_joined and self._queue):
                return
            else:
                self._change = anyio.Event()
                await self._change.wait()

    async def _post(self, message: bytes, *, is_repeated: bool = False) -> None:
        """POSTs a message. Returns when it was accepted or refused, or when the next one need not wait for that any
        longer."""
        target = Post(self._target.server, message, headers=self._target.headers, cookies=self._cookies.pairs)
        posting = _Posting(self, message, is_repeated=is_repeated)
        reader = ResponseReader(target, self._limits, has_messages=False)
        posting.exchange = self._client.dial(
            self._endpoint,
            target,
            self._channel,
            posting,
            reader=reader,
            path=self._session.endpoint,
            when_written=posting.has_left.set,
            tokens=self._tokens,
        )
        self._posts.add(posting)
        await posting.has_left.wait()
        with anyio.move_on_after(self._limits.post_wait_s):
            await posting.is_over.wait()
        if not self._is_closing and not self._is_over and not is_repeated:
            self._port.sent(self._channel, len(message))


class _Stream:
    """The `Port` of the event stream, which reports to its `SseUpstream`."""

    def __init__(self, upstream: SseUpstream) -> None:
        self._upstream = upstream

    def open(self, opening: Opening, outlet: Outlet) -> ChannelId:
        raise LocalProtocolError("got a client's channel, expected none of a server")

    def opened(self, channel: ChannelId, opening: Opening) -> None:
        assert isinstance(opening, Connected)
        self._upstream.receive_cookies(opening.cookies)
        self._upstream.receive_joined()

    def message(self, channel: ChannelId, message: bytes) -> None:
        self._upstream.receive_message(message)

    def arrived(self, channel: ChannelId, messages: Sequence[bytes]) -> None:
        self._upstream.receive_messages(messages)

    def pieces(self, channel: ChannelId, pieces: tuple[bytes, ...]) -> None:
        self.message(channel, b"".join(pieces))

    def passes(self, channel: ChannelId, beginning: bytes, size_bytes: int) -> bool:
        return False

    def part(
        self,
        channel: ChannelId,
        pieces: tuple[bytes, ...],
        *,
        opening: Connected | None = None,
        size_bytes: int = 0,
        is_last: bool = False,
    ) -> None:
        raise AssertionError("nothing passes")

    def posted(self, opening: PostOpening, message: bytes, outlet: Outlet) -> ChannelId:
        raise AssertionError("nobody posts here")

    def replied(self, channel: ChannelId, opening: Connected, message: bytes | None) -> None:
        self.opened(channel, opening)
        if message is not None:
            self.message(channel, message)
        self.closed(channel, Cause(End.DONE))

    def delivered(self, channel: ChannelId, size_bytes: int) -> None:
        """Does nothing: a request is sent whole."""

    def sent(self, channel: ChannelId, size_bytes: int) -> None:
        """Does nothing: a request is sent whole."""

    def closed(self, channel: ChannelId, cause: Cause) -> None:
        self._upstream.receive_end(cause)


class _Posting(_Stream):
    """The `Port` of one POST of an `SseUpstream`."""

    def __init__(self, upstream: SseUpstream, message: bytes, *, is_repeated: bool) -> None:
        super().__init__(upstream)
        self.body = message
        self.is_repeated = is_repeated
        self.exchange: Exchange | None = None
        self.has_left = anyio.Event()
        self.is_over = anyio.Event()

    def opened(self, channel: ChannelId, opening: Opening) -> None:
        """Stores cookies. Acceptance is reported by `closed`, which follows at once."""
        assert isinstance(opening, Connected)
        self._upstream.receive_cookies(opening.cookies)

    def closed(self, channel: ChannelId, cause: Cause) -> None:
        self.has_left.set()
        self.is_over.set()
        self._upstream.receive_cookies(cause.cookies)
        self._upstream.receive_posted(self, cause)
