"""One request to a transparent server, and its response.

Two tasks of the client's connection carry it. Its reader runs `pass_on`, which takes the request's body from the client
as fast as the server takes it. Its writer runs `run`, which connects, and brings the response back as fast as the
client takes it. Neither holds more than one read at a time, so backpressure acts through both directions.

An exchange ends in one of three ways: the response is complete; nothing of it was written yet, and the client gets an
error; or the client's connection is cut, so that a part of the response is not taken for the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import h11
from anyio import CancelScope
from anyio.lowlevel import checkpoint

from ...core.base.errors import RemoteProtocolError
from ...core.base.limits import Limits
from ...core.wire.headers import EVENTS, Headers, body_size
from ...core.wire.http.codings import BodyDecoder, codings_for, describe_unread, without_codings
from ...core.wire.http.endpoint_rewrite import EndpointRewriter
from ...core.wire.http.foreign_reply import explain_foreign
from ...core.wire.http.reply import Out, ReplyBody, ReplyEnd, ReplyHead
from ...core.wire.http.reverse_proxy import HeaderRules, Sender, is_upgrade, request_headers, response_headers
from ...core.wire.http.reverse_proxy_target import ForwardTarget
from ...core.wire.http.routes import ForwardRoute, Head
from ..base.clock import loop_clock
from ..base.decompressors import added_coding
from ..base.dialer import LOST, Dialer
from ..base.port import BodySource
from .connection import UpstreamConnection

if TYPE_CHECKING:
    from .forwarder import Forwarder

TURN_OUTS: Final = 200
"""Pieces of a response that are queued before other connections get their turn."""
INTERIM_MAX: Final = 100
"""Interim responses to one request that are skipped. A server that sends more is taken for one that never ends. At it:
502."""
LINGER_S: Final = 1.0
"""Seconds a server that takes no more of a request may still explain why, and one side of a WebSocket may still send
after the other has left."""

_REPEATABLE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class ForwardFailed(Exception):
    """Raised when the server cannot be reached or its response breaks off. `status` and `code` are for a client that
    has received nothing yet."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


class ClientSide(Protocol):
    """The client's connection, as a `ForwardedExchange` uses it, always from its writer task."""

    def put(self, outs: Sequence[Out]) -> None:
        """Queues what follows of the response."""

    def put_bytes(self, data: bytes) -> None:
        """Queues bytes that are not HTTP."""

    async def flush(self) -> None:
        """Returns when the client has taken everything queued."""

    def ask_body(self) -> None:
        """Tells a client that waits for a 100 to send the body, because the server is connected."""

    def switch(self, headers: Headers) -> None:
        """Queues a 101 with these headers. The bytes that follow in both directions are not HTTP."""


class ForwardedExchange:
    """A request that is forwarded, and its response.

    Attributes:
        has_begun: something of the response was queued.
        is_complete: all of the response was queued.
        is_call: it is a request with an answer, rather than an event stream to listen on.
    """

    def __init__(
        self,
        forwarder: Forwarder,
        route: ForwardRoute,
        head: Head,
        sender: Sender,
        client: ClientSide,
        *,
        target: ForwardTarget,
        rules: HeaderRules,
        dialer: Dialer,
        limits: Limits,
        reply_timeout_s: float,
    ) -> None:
        self.has_begun = False
        self.is_complete = False
        self.is_call = head.method != "GET"
        self._forwarder = forwarder
        self._route = route
        self._method = head.method
        self._target = target
        self._rules = rules
        self._client = client
        self._limits = limits
        self._reply_timeout_s = reply_timeout_s
        authority = dialer.address.authority
        self._name = authority.decode()
        self._dialer = dialer
        self._is_upgrade = is_upgrade(head)
        headers = request_headers(head, rules, authority=authority, sender=sender)
        if dialer.proxy_headers:
            headers = [field for field in headers if field[0] != b"proxy-authorization"] + dialer.proxy_headers
        self._request = h11.Request(method=head.method, target=dialer.target_prefix + route.target, headers=headers)
        self._body_left = body_size(headers)
        self._is_repeatable = head.method in _REPEATABLE and self._body_left == 0
        self._now = loop_clock()
        self._scope = CancelScope()
        self._waiting = CancelScope()  # round the wait for the server
        self._link: UpstreamConnection | None = None
        self._is_open = anyio.Event()
        self._is_passed_on = anyio.Event()  # the body was sent, or will not be
        self._is_sent = False
        self._is_refused = False  # the server takes no more of the request
        self._rewriter: EndpointRewriter | None = None
        self._decoder: BodyDecoder | None = None  # of an event stream that is read though its server compresses it

    def cancel(self) -> None:
        """Cancels the exchange because the client's side broke off. `run` returns, and the connection to the server is
        closed."""
        self._scope.cancel()

    # --- Client to server -------------------------------------------------------------------------------------------

    async def pass_on(self, source: BodySource) -> bool:
        """Sends the body. Returns True if all of it was taken from `source`.

        Raises:
            Exception: any that `source` raises.
        """
        try:
            return await self._pass_on(source)
        finally:
            self._is_passed_on.set()

    async def _pass_on(self, source: BodySource) -> bool:
        if self._body_left == 0:
            return await source.receive_body() is None
        await self._is_open.wait()
        while (link := self._link) is not None and not self._is_refused:
            data = await source.receive_body()
            if data is None:
                await self._send(link, h11.EndOfMessage())
                return True
            if self._body_left is not None:
                self._body_left -= len(data)
            if self._body_left == 0 and await source.receive_body() is None:
                await self._send(link, h11.Data(data=data), h11.EndOfMessage())
                return True
            await self._send(link, h11.Data(data=data))
        return False

    async def _send(self, link: UpstreamConnection, *events: h11.Event) -> None:
        try:
            await link.send(*events)
        except (*LOST, h11.LocalProtocolError):  # LocalProtocolError: the server has closed its side
            self._is_refused = True
        else:
            self._is_sent = isinstance(events[-1], h11.EndOfMessage)
        if not self.has_begun:
            self._waiting.deadline = self._now() + self._head_timeout_s

    async def pass_bytes(self, data: bytes) -> bool:
        """Sends the client's bytes after a protocol switch. Returns False if the server takes no more."""
        try:
            if (link := self._link) is not None:
                await link.send_bytes(data)
                return True
        except LOST:
            pass
        return False

    async def pass_eof(self) -> None:
        """Ends the client's side after a protocol switch, and gives the server `LINGER_S` to finish."""
        try:
            if (link := self._link) is not None:
                await link.stream.send_eof()
        except (*LOST, RuntimeError):  # uvloop raises RuntimeError if it is closed already; TLS has no half-close
            pass
        await anyio.sleep(LINGER_S)

    # --- Server to client -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Connects, sends the head, and brings back the response, or the bytes that follow a protocol switch.

        Raises:
            ForwardFailed: the response has failed. What arrived of it is queued, and nothing follows.
            Exception: any that the client's side raises.
        """
        is_reusable = False
        self._forwarder.note_begin(self)
        try:
            with self._scope:
                used = await self._bring_back(await self._open(is_new=False))
                # A server may complete its response first, and still want the rest of the request.
                if used.http.their_state is h11.DONE and not self._is_passed_on.is_set():
                    await self._client.flush()
                    await self._is_passed_on.wait()
                is_reusable = self.is_complete
        finally:
            link, self._link = self._link, None
            self._is_open.set()
            self._forwarder.note_end(self)
            if link is not None and is_reusable:
                await self._forwarder.take_back(self._route.server, link)
            elif link is not None:
                await self._forwarder.drop(self._route.server, link)

    async def _open(self, *, is_new: bool) -> UpstreamConnection:
        self._link = link = await self._forwarder.link(self._route.server, is_call=self.is_call, is_new=is_new)
        events: list[h11.Event] = [self._request]
        if self._body_left == 0:
            events.append(h11.EndOfMessage())
            self._is_sent = True
        try:
            await link.send(*events)
        except LOST:
            self._is_refused = True
        self._client.ask_body()
        await self._client.flush()
        self._is_open.set()
        return link

    async def _bring_back(self, link: UpstreamConnection) -> UpstreamConnection:
        """Brings back the response. Returns the connection that it came on, which may be another than `link`."""
        outs: list[Out] = []
        interim = 0
        while True:
            link, event = await self._next_event(link, outs)
            match event:
                case h11.InformationalResponse(status_code=101):
                    await self._bring_bytes(link, event)
                    return link
                case h11.InformationalResponse():
                    interim += 1
                    if interim > INTERIM_MAX:
                        raise self._broken(f"sent more than {INTERIM_MAX} interim responses")
                case h11.Response():
                    refusal = self._dialer.explain_refusal(event.status_code, tuple(event.headers))
                    if refusal:
                        raise ForwardFailed(502, "upstream_unreachable", refusal)
                    outs.append(self._receive_head(event))
                case h11.Data() if self._decoder is not None:
                    await self._decode(self._decoder, bytes(event.data), outs)
                case h11.Data():
                    self._receive_body(bytes(event.data), outs)
                case h11.EndOfMessage():
                    if self._decoder is not None:
                        await self._decode(self._decoder, None, outs)
                    if self._rewriter is not None and (rest := self._rewriter.receive_eof()):
                        outs.append(ReplyBody(rest))
                    self.has_begun = self.is_complete = True
                    self._client.put([*outs, ReplyEnd()])
                    return link
            if self._rewriter is not None and self._rewriter.failure is not None:
                await self._deliver(outs)
                raise self._broken(self._rewriter.failure.message)
            if len(outs) >= TURN_OUTS:
                await self._deliver(outs)
                await checkpoint()

    async def _next_event(self, link: UpstreamConnection, outs: list[Out]) -> tuple[UpstreamConnection, h11.Event]:
        """Returns the server's next event. Events before it are delivered before waiting for more bytes."""
        while True:
            try:
                event = link.http.next_event()
            except h11.RemoteProtocolError as error:
                await self._deliver(outs)
                foreign = explain_foreign(link.http.trailing_data[0], self._target.base_url.partition(":")[0])
                if foreign and not self.has_begun:
                    raise self._broken(f"cannot be understood: {foreign}") from None
                reason = "closed the connection" if link.http.trailing_data[1] else f"is malformed ({str(error)[:200]})"
                raise self._broken(f"{reason} within its response") from None
            if event is h11.NEED_DATA:
                await self._deliver(outs)
                link = await self._receive(link)
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                raise self._broken("closed the connection before its response")
            else:
                assert isinstance(event, h11.Event)
                return link, event

    async def _receive(self, link: UpstreamConnection) -> UpstreamConnection:
        timeout_s = self._limits.forward_idle_timeout_s if self.has_begun else self._head_timeout_s
        with CancelScope(deadline=self._now() + timeout_s) as self._waiting:
            data = await link.receive()
            if data or link.has_heard:
                link.http.receive_data(data)
                return link
            if link.was_used and self._is_repeatable:
                await self._forwarder.drop(self._route.server, link)  # the server closed it while it was idle
                self._link = None
                return await self._open(is_new=True)
            raise self._broken("closed the connection before its response")
        if self._is_refused:
            raise self._broken("took no more of the request")
        timeout_s = self._limits.forward_idle_timeout_s if self.has_begun else self._reply_timeout_s
        raise ForwardFailed(504, "upstream_timed_out", f"{self._name} said nothing for {timeout_s:g} s")

    @property
    def _head_timeout_s(self) -> float:
        if self._is_refused:
            return LINGER_S
        return self._reply_timeout_s if self._is_sent else float("inf")  # the server may wait for the whole request

    def _receive_head(self, response: h11.Response) -> ReplyHead:
        headers = tuple(response.headers)
        fields = dict(headers)
        media_type = fields.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if self._method == "GET" and media_type == EVENTS.encode() and response.status_code == 200:
            if unread := describe_unread(headers):
                codings = codings_for(headers, added_coding)
                if not codings:
                    raise self._broken(f"sent an event stream that cannot be read: {unread}")
                self._decoder = BodyDecoder(codings, self._limits)
                headers = without_codings(headers)
            self._rewriter = EndpointRewriter(self._replace_endpoint)
        status, keeps_length = response.status_code, self._rewriter is None
        passed = response_headers(headers, self._rules, status=status, keeps_length=keeps_length)
        return ReplyHead(status, self._target.relocate(passed, self._route.target))

    def _replace_endpoint(self, uri: str) -> str:
        return self._target.to_client(uri, self._route.target)

    async def _decode(self, decoder: BodyDecoder, data: bytes | None, outs: list[Out]) -> None:
        """Decodes a piece of an event stream, or ends it (None). Others have their turn after each slice."""
        assert self._rewriter is not None
        try:
            if data is None:
                decoder.finish()
                return
            self._receive_body(decoder.decode(data), outs)
            while decoder.is_behind and self._rewriter.failure is None:
                await self._deliver(outs)
                await checkpoint()
                self._receive_body(decoder.decode(b""), outs)
        except RemoteProtocolError as error:
            await self._deliver(outs)
            raise self._broken(f"sent a malformed response: {error.message}") from None

    def _receive_body(self, data: bytes, outs: list[Out]) -> None:
        if self._rewriter is not None:
            data = self._rewriter.receive_bytes(data)
        if data:
            outs.append(ReplyBody(data))

    async def _deliver(self, outs: list[Out]) -> None:
        if outs:
            self.has_begun = True
            self._client.put(outs)
            outs.clear()
            await self._client.flush()

    async def _bring_bytes(self, link: UpstreamConnection, response: h11.InformationalResponse) -> None:
        """Brings back the server's bytes after a protocol switch, until it closes the connection."""
        assert self._is_upgrade
        self.has_begun = True
        self._client.switch(response_headers(tuple(response.headers), self._rules, status=101))
        data = link.http.trailing_data[0]
        while True:
            if data:
                self._client.put_bytes(data)
            await self._client.flush()
            data = await link.receive()
            if not data:
                return

    def _broken(self, what: str) -> ForwardFailed:
        return ForwardFailed(502, "upstream_broken", f"{self._name} {what}")
