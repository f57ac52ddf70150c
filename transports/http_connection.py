"""One client's HTTP/1.1 connection: h11 frames, the rules judge, the port hears, and replies go out as they come.

Two tasks live as long as the connection. The *reader*, here, receives, parses, and hands each request over without
awaiting anything; it goes on reading while a reply is due, because that is how a client's departure shows. It also runs
the intake of an upload. The *writer* (`http_writer`) sends what exchanges queued, runs downloads, and starts the next
cycle when a reply has left. Where they are within a request, and how long that may last, both know from the `Framing`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import anyio
import h11
from anyio import CancelScope
from anyio.abc import ByteStream, SocketAttribute, TaskGroup
from anyio.lowlevel import checkpoint

from ..core.effects import Append, Cause, DraftOpening, End, GetOpening, Serve, Verb
from ..core.wire.forwarding import Sender
from ..core.wire.http_refusals import page_error, refusal
from ..core.wire.http_reply import Reply
from ..core.wire.http_routes import (
    DownloadRoute,
    ForwardRoute,
    Head,
    McpRoute,
    PageRoute,
    Refused,
    Route,
    SocketRoute,
    UploadRoute,
)
from ..core.wire.http_server import reply_to
from .forwarding_client import ForwardedRequest
from .http_files import UploadBody, refuse_upload
from .http_framing import SKIP_MAX_BYTES, TURN_EVENTS, Framing, Phase
from .http_listening import Listening
from .http_outbox import Gone, Outbox, Silent
from .http_replies import Exchange, FileExchange
from .http_writer import LINGER_S, Writer
from .traffic import Direction, Traffic, Way
from .websocket_server import serve_socket

_log: Final = logging.getLogger("isthmus.http")


class Connection:
    """Serves one stream until either side is through with it. `run` is called once."""

    def __init__(self, stream: ByteStream, listening: Listening) -> None:
        self._stream = stream
        self._on = listening
        self._limits = listening.limits
        outbox = Outbox(stream, write_timeout_s=self._limits.write_timeout_s)
        self._scope = CancelScope()
        self._framing = Framing(stream, outbox, self._limits)
        self._writer = Writer(stream, self._framing, outbox, listening, self._scope)
        self._tasks: TaskGroup  # set when they run
        self._route: Route | None = None
        self._body = bytearray()
        self._body_size_max = 0
        self._forwarded: ForwardedRequest | None = None

    async def run(self) -> None:
        try:
            with self._scope:
                async with anyio.create_task_group() as self._tasks:
                    self._tasks.start_soon(self._writer.run)
                    await self._read()
                    self._writer.end()
        finally:
            self._writer.close_channel()
            with anyio.move_on_after(LINGER_S, shield=True):
                try:
                    await self._stream.aclose()
                except (anyio.BrokenResourceError, OSError):
                    pass

    def drain(self) -> None:
        """Serve what has begun, and nothing after it."""
        self._framing.wake()

    def keep_alive(self) -> None:
        """Called every so often, for an open event stream that is silent."""
        self._writer.keep_alive()

    # --- Bytes ------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        framing = self._framing
        thrown_away = 0
        while True:
            while self._advance():
                await checkpoint()
            match framing.phase:
                case Phase.IDLE if self._on.is_draining:
                    return
                case Phase.UPLOAD:
                    await self._take_in()
                    continue
                case Phase.SWITCHED:
                    await self._serve_socket()
                    return
                case Phase.FORWARD:
                    assert self._forwarded is not None
                    await self._forwarded.pass_on()
                    continue
                case Phase.TUNNEL:
                    assert self._forwarded is not None
                    await self._forwarded.pass_bytes()
                    return
                case Phase.DONE if framing.is_full:
                    await framing.wait_turn()
                    continue
            try:
                data = await framing.receive()
            except Gone:
                exchange = self._writer.exchange
                if exchange is not None and not exchange.is_ended:
                    self._writer.stop(Cause(End.GONE, "the client hung up"))
                return
            except Silent:
                if framing.phase not in (Phase.HEAD, Phase.BODY):
                    return
                self._refuse(408, f"got no complete {framing.phase.value} in time, expected it sooner")
                continue
            if framing.phase is Phase.CLOSING:
                thrown_away += len(data)
                if thrown_away > self._limits.request_size_max_bytes:
                    return
            elif data:
                framing.take(data)

    def _advance(self) -> bool:
        """Parse what has arrived, as far as the reply that is due allows.

        Returns:
            Whether there may be more: one read can hold thousands of tiny chunks, and others want their turn.
        """
        framing = self._framing
        for _ in range(TURN_EVENTS):
            if framing.phase not in (Phase.IDLE, Phase.HEAD, Phase.BODY, Phase.SKIP):
                return False
            try:
                event = framing.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse_malformed(error)
                return False
            if isinstance(event, h11.Request):
                self._begin(framing.begin(event))
            elif isinstance(event, h11.Data):
                self._gather(event)
            elif isinstance(event, h11.EndOfMessage):
                self._complete()
            else:
                return False
        return True

    # --- Requests ---------------------------------------------------------------------------------------------------

    def _begin(self, head: Head) -> None:
        framing = self._framing
        self._body = bytearray()
        self._writer.shared_headers = self._on.shared_headers(head)
        self._route = route = self._on.admit(head)
        if isinstance(route, Refused):
            if route.status in (414, 431, 505):
                framing.enter(Phase.CLOSING)
            self._writer.answer(route)
            return
        if isinstance(route, ForwardRoute):
            self._forward(route, head)
            return
        is_posted = isinstance(route, McpRoute | PageRoute) and route.is_posted
        self._body_size_max = self._limits.request_size_max_bytes if is_posted else SKIP_MAX_BYTES
        if isinstance(route, UploadRoute):
            framing.phase = Phase.UPLOAD
            traffic = Traffic(self._on.counts, _way_in(route))
            exchange = FileExchange(self._writer, traffic, head_only=framing.head_only)
            self._writer.exchange = exchange
            exchange.channel = self._on.port.open(route.opening, exchange)
        elif framing.body_left is not None and framing.body_left > self._body_size_max:
            self._refuse_size()
        else:
            framing.ask_body()

    def _forward(self, route: ForwardRoute, head: Head) -> None:
        assert self._on.forwarder is not None
        self._framing.phase = Phase.FORWARD
        self._writer.exchange = Exchange(self._writer, Reply(), head_only=self._framing.head_only)
        address = self._stream.extra(SocketAttribute.remote_address, None)
        sender = Sender(address[0] if isinstance(address, tuple) else "", route.host, self._on.scheme)
        self._forwarded = ForwardedRequest(
            self._on.forwarder,
            route,
            head,
            sender,
            framing=self._framing,
            writer=self._writer,
            limits=self._limits,
        )
        self._writer.fetch(self._forwarded.bring_back)

    def _gather(self, event: h11.Data) -> None:
        self._framing.note_given(len(event.data))
        if self._framing.phase is not Phase.BODY:
            return
        if len(self._body) + len(event.data) > self._body_size_max:
            self._body = bytearray()
            self._refuse_size()
        else:
            self._body += event.data

    def _complete(self) -> None:
        """The request is there in full: tell of it, unless it is answered already."""
        was_skipped = self._framing.phase is Phase.SKIP
        self._framing.enter(Phase.DONE)
        if was_skipped:
            if self._writer.exchange is None:
                self._writer.next_cycle()
            return
        body, self._body = bytes(self._body), bytearray()
        match self._route:
            case McpRoute() as route:
                self._tell(route, body)
            case DownloadRoute() as route:
                traffic = Traffic(self._on.counts, Way(route.opening.server, Direction.OUT))
                download = FileExchange(self._writer, traffic, head_only=route.head_only)
                self._writer.exchange = download
                download.channel = self._on.port.open(route.opening, download)
            case SocketRoute():
                self._switch()
            case PageRoute() as route:
                page = Exchange(self._writer, Reply(accepts_events=False), head_only=self._framing.head_only)
                self._writer.exchange = page
                self._tasks.start_soon(self._answer_page, page, route, body)
            case _:
                raise AssertionError(self._route)

    def _tell(self, route: McpRoute, body: bytes) -> None:
        exchange = Exchange(self._writer, reply_to(route.opening))
        self._writer.exchange = exchange
        exchange.channel = channel = self._on.port.open(route.opening, exchange)
        if route.is_posted and not exchange.is_ended:
            self._on.port.message(channel, body)
        elif isinstance(route.opening, GetOpening):
            exchange.open_stream()

    async def _answer_page(self, exchange: Exchange, route: PageRoute, body: bytes) -> None:
        answer: Refused | Serve
        try:
            answer = await self._on.pages(route, body)
        except Exception:  # a page that fails must not take its connection with it
            _log.exception("a page failed")
            answer = page_error(500, "internal error")
        if isinstance(answer, Refused):
            exchange.answer(answer)
        elif self._writer.exchange is exchange:  # its client is still there
            uncounted = Traffic(self._on.counts, None)  # what operators read is no use by clients
            download = FileExchange(self._writer, uncounted, head_only=exchange.head_only)
            self._writer.exchange = download
            download.serve(answer)

    def _switch(self) -> None:
        """A WebSocket was granted: the reader goes on with it, unless it may not begin after all."""
        if self._framing.is_1_0:  # RFC 9110, 7.8: Upgrade is to be ignored there
            self._writer.answer(refusal(426, "got an upgrade in HTTP/1.0, expected HTTP/1.1"))
        elif self._on.is_draining:
            self._writer.answer(refusal(503, "shutting down: no new sessions"))
        else:
            self._framing.phase = Phase.SWITCHED

    async def _serve_socket(self) -> None:
        route = self._route
        assert isinstance(route, SocketRoute)
        greeting = self._framing.switch([*route.upgrade.headers, (b"date", self._on.date())])
        received = self._framing.held
        await serve_socket(self._on.port, route, self._limits, self._stream, greeting=greeting, received=received)

    # --- Refusals ---------------------------------------------------------------------------------------------------

    def _refuse_size(self) -> None:
        message = f"got a body over the limit, expected at most {self._body_size_max} bytes"
        self._writer.answer(refusal(413, message, is_mcp=isinstance(self._route, McpRoute)))

    def _refuse_malformed(self, error: h11.RemoteProtocolError) -> None:
        status, message = error.error_status_hint, f"got a malformed request ({error}), expected HTTP/1.1"
        if status == 431 and self._framing.phase is Phase.HEAD:
            line_size = self._framing.held.find(b"\n")
            self._refuse_with(self._on.refuse_head(is_in_target=not 0 <= line_size <= self._limits.head_size_max_bytes))
        else:
            self._refuse(status, message)

    def _refuse(self, status: int, message: str) -> None:
        """Look at nothing more of this client, and say why unless another answer is on its way."""
        is_mcp = self._framing.phase is Phase.BODY and isinstance(self._route, McpRoute)
        self._refuse_with(refusal(status, message, is_mcp=is_mcp))

    def _refuse_with(self, refused: Refused) -> None:
        self._framing.enter(Phase.CLOSING)
        if self._writer.exchange is None:
            self._writer.answer(refused)

    # --- Uploads ----------------------------------------------------------------------------------------------------

    async def _take_in(self) -> None:
        """Wait for the engine's decision, then let the file service read the body at its own pace."""
        exchange, route = self._writer.exchange, self._route
        assert isinstance(exchange, FileExchange) and isinstance(route, UploadRoute)
        await exchange.decided.wait()
        order = exchange.receiving
        if order is None or exchange.is_ended:
            return
        self._framing.ask_body()
        exchange.traffic.begin()
        body = UploadBody(self._framing, exchange.traffic)
        with CancelScope() as self._framing.intake:
            try:
                if isinstance(order, Append):
                    await self._on.files.append(order, body, partial(self._on.port.message, order.channel))
                    self._skip_rest()
                else:
                    manifest = await self._on.files.take_in(order, route.content_type, body)
                    self._skip_rest()
                    if exchange.channel is not None and not exchange.is_ended:
                        self._on.port.message(exchange.channel, manifest)
            except Exception as error:  # a storage backend's failure must not end the listener
                self._refuse_upload(exchange, body.failure or error)
        self._framing.intake = None

    def _refuse_upload(self, exchange: FileExchange, error: Exception) -> None:
        self._framing.intake = None
        if isinstance(error, Gone):
            self._writer.stop(Cause(End.GONE, "the client hung up during its upload"))
        elif not exchange.is_ended:
            refused, cause = refuse_upload(error)
            if isinstance(error, Silent | h11.RemoteProtocolError):
                self._framing.enter(Phase.CLOSING)
            exchange.answer(refused)
            self._writer.close_channel(cause)

    def _skip_rest(self) -> None:
        """Nobody wants what follows of an upload; usually that is no more than the end of its framing."""
        if self._framing.phase is Phase.UPLOAD:
            self._framing.enter(Phase.SKIP, self._limits.body_timeout_s)
            self._advance()


def _way_in(route: UploadRoute) -> Way | None:
    """What its traffic is counted as. Questions about an upload are none."""
    opening = route.opening
    if isinstance(opening, DraftOpening) and opening.verb not in (Verb.CREATE, Verb.APPEND):
        return None
    return Way(opening.server, Direction.IN)
