"""One client's HTTP/1.1 connection: h11 frames, the rules judge, the port hears, and replies go out as they come.

Two tasks live as long as the connection. The *reader* receives, parses, and hands each request over without awaiting
anything; it goes on reading while a reply is due, because that is how a client's departure shows. It also runs the
intake of an upload. The *writer* sends what exchanges queued, all of it in one write, runs downloads, and starts the
next cycle when a reply has left.

What the reader may do next is its `Phase`:

    IDLE -> HEAD -> BODY -> DONE -> IDLE …     an ordinary request
    HEAD -> SKIP -> DONE                       refused, its short body thrown away so that the connection can be kept
    HEAD -> UPLOAD -> DONE                     the body goes to the file service, at its pace
    HEAD -> BODY -> SWITCHED                   the stream is a WebSocket now, and another's to read and write
    HEAD -> FORWARD -> DONE [-> TUNNEL]        the body goes to a transparent server; after a switch, all goes there
    any  -> CLOSING                            no further request; what still arrives is thrown away, within bounds
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import anyio
import h11
from anyio import CancelScope
from anyio.abc import ByteStream, SocketAttribute, TaskGroup
from anyio.lowlevel import checkpoint

from ..core.effects import Cause, End, GetOpening, Serve
from ..core.limits import KIB
from ..core.wire.download import plan_download
from ..core.wire.forwarding import Sender
from ..core.wire.http_headers import Headers, body_size
from ..core.wire.http_refusals import page_error, refusal
from ..core.wire.http_reply import Out, Reply, ReplyEnd, ReplyHead
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
from .clock import loop_clock
from .forwarding_passage import ForwardFailed, Passage
from .http_cut import cut
from .http_files import UploadBody, deliver, refuse_upload
from .http_listening import Listening
from .http_outbox import Gone, Outbox, Silent
from .http_replies import Exchange, FileExchange
from .websocket_server import serve_socket

HELD_MAX_BYTES: Final = 64 * KIB
"""Pipelined requests kept while a reply is due."""
SKIP_MAX_BYTES: Final = 64 * KIB
"""A refused request's body up to this size is read, so that its connection can be used again."""
TURN_EVENTS: Final = 200
"""Pieces of a request that are parsed before others get their turn: some milliseconds of work."""
EMPTY_LINES: Final = b"\r\n"
"""Bytes that may stand before a request line, where old clients end their bodies with one line end too many. Source:
RFC 9112, 2.2: "SHOULD ignore at least one empty line (CRLF) received prior to the request-line"."""
LINGER_S: Final = 2.0
"""Closing with unread bytes makes the kernel discard the reply as well, so a refused client may finish for so long."""

_log: Final = logging.getLogger("isthmus.http")
_REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}


class Phase(enum.Enum):
    IDLE = "idle"  # between requests
    HEAD = "head"  # within a request's head
    BODY = "body"  # within a body that is gathered
    SKIP = "skip"  # within a body that nobody wants
    UPLOAD = "upload"  # the reader is busy with the file service
    FORWARD = "forward"  # the reader is busy with a transparent server
    TUNNEL = "tunnel"  # bytes go both ways, and there will be no other request
    DONE = "done"  # the request is complete, its reply is due
    SWITCHED = "switched"  # what follows is not HTTP
    CLOSING = "closing"  # nothing that arrives is looked at


class Connection:
    """Serves one stream until either side is through with it. `run` is called once."""

    def __init__(self, stream: ByteStream, listening: Listening) -> None:
        self._stream = stream
        self._on = listening
        self._limits = listening.limits
        self._http = self._new_http()
        self._tasks: TaskGroup  # set when they run
        self._now = loop_clock()

        self._phase = Phase.IDLE
        self._deadline = float("inf")
        self._receiving: CancelScope | None = None
        self._is_woken = False
        self._turn: anyio.Event | None = None  # set while too much is held to read on
        self._is_reading = True

        self._exchange: Exchange | None = None
        self._route: Route | None = None
        self._head: Head | None = None
        self._shared_headers: Headers = ()  # of every response to this request
        self._body = bytearray()
        self._body_size_max = 0
        self._body_left: int | None = 0  # None when chunked
        self._intake: CancelScope | None = None
        self._given = 0  # pieces of an upload
        self._passage: Passage | None = None  # until its response is through

        self._outbox = Outbox(stream, write_timeout_s=self._limits.write_timeout_s)
        self._download: tuple[FileExchange, Serve] | None = None

    async def run(self) -> None:
        self._deadline = self._now() + self._limits.idle_connection_timeout_s
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._write)
                await self._read()
                self._is_reading = False
                self._outbox.wake()
        finally:
            self._close_channel(Cause(End.BROKEN, "the listener was stopped"))
            with anyio.move_on_after(LINGER_S, shield=True):
                try:
                    await self._stream.aclose()
                except (anyio.BrokenResourceError, OSError):
                    pass

    def drain(self) -> None:
        """Serve what has begun, and nothing after it."""
        self._wake_reader()

    def keep_alive(self) -> None:
        """Put a comment on an open event stream whose client keeps up."""
        if self._exchange is not None and self._outbox.is_empty:
            self._exchange.keep_alive()

    # --- Reader -----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        thrown_away = 0
        while True:
            while self._advance():
                await checkpoint()
            if self._phase is Phase.IDLE and self._on.is_draining:
                return
            if self._phase is Phase.UPLOAD:
                await self._take_in()
                continue
            if self._phase is Phase.SWITCHED:
                await self._serve_socket()
                return
            if self._phase is Phase.FORWARD:
                await self._pass_on()
                continue
            if self._phase is Phase.TUNNEL:
                await self._pass_bytes()
                return
            if self._phase is Phase.DONE and len(self._http.trailing_data[0]) > HELD_MAX_BYTES:
                self._turn = anyio.Event()
                await self._turn.wait()
                self._turn = None
                continue
            try:
                data = await self._receive()
            except Gone:
                if self._exchange is not None and not self._exchange.is_ended:
                    self._stop(Cause(End.GONE, "the client hung up"))
                return
            except Silent:
                if self._phase not in (Phase.HEAD, Phase.BODY):
                    return
                self._refuse(408, f"got no complete {self._phase.value} in time, expected it sooner")
                continue
            if self._phase is Phase.CLOSING:
                thrown_away += len(data)
                if thrown_away > self._limits.request_size_max_bytes:
                    return
                continue
            if not data:
                continue
            if self._phase is Phase.IDLE:
                data = data.lstrip(EMPTY_LINES)
                if not data:
                    continue
                self._enter(Phase.HEAD, self._limits.head_timeout_s)
            elif self._phase in (Phase.BODY, Phase.SKIP):
                self._enter(self._phase, self._limits.body_timeout_s)
            self._http.receive_data(data)

    async def _receive(self) -> bytes:
        """The next bytes; none when woken for another reason.

        Raises:
            Gone: there are no more.
            Silent: the deadline of this phase has passed.
        """
        self._is_woken = False
        with anyio.CancelScope(deadline=self._deadline) as self._receiving:
            try:
                return await self._stream.receive(self._limits.read_size_bytes)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                raise Gone from None
            finally:
                self._receiving = None
        if self._is_woken:
            return b""
        raise Silent

    def _enter(self, phase: Phase, timeout_s: float) -> None:
        self._phase = phase
        self._deadline = self._now() + timeout_s
        if self._receiving is not None:
            self._receiving.deadline = self._deadline

    def _advance(self) -> bool:
        """Parse what has arrived, as far as the reply that is due allows.

        Returns:
            Whether there may be more: one read can hold thousands of tiny chunks, and others want their turn.
        """
        for _ in range(TURN_EVENTS):
            if self._phase not in (Phase.IDLE, Phase.HEAD, Phase.BODY, Phase.SKIP):
                return False
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse_malformed(error)
                return False
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data):
                self._gather(event)
            elif isinstance(event, h11.EndOfMessage):
                self._complete()
            else:
                return False
        return True

    def _begin(self, request: h11.Request) -> None:
        version = request.http_version.decode()
        head = Head(request.method.decode(), request.target.decode(), tuple(request.headers), version)
        self._head, self._body = head, bytearray()
        self._shared_headers = self._on.shared_headers(head)
        self._enter(Phase.BODY, self._limits.body_timeout_s)
        self._body_left = body_size(head.headers)

        route = self._on.admit(head)
        if isinstance(route, Refused):
            if route.status in (414, 431, 505):
                self._enter(Phase.CLOSING, float("inf"))
            self._answer(route)
            return
        if isinstance(route, ForwardRoute):
            self._begin_forward(route, head)
            return
        self._route = route
        is_posted = isinstance(route, McpRoute | PageRoute) and route.is_posted
        self._body_size_max = self._limits.request_size_max_bytes if is_posted else SKIP_MAX_BYTES
        if isinstance(route, UploadRoute):
            self._phase = Phase.UPLOAD
            exchange = FileExchange(self)
            self._exchange = exchange
            exchange.channel = self._on.port.open(route.opening, exchange)
        elif self._body_left is not None and self._body_left > self._body_size_max:
            self._refuse_size()
        elif self._http.they_are_waiting_for_100_continue:
            self._continue()

    def _refuse_size(self) -> None:
        message = f"got a body over the limit, expected at most {self._body_size_max} bytes"
        self._answer(refusal(413, message, is_mcp=isinstance(self._route, McpRoute)))

    def _gather(self, event: h11.Data) -> None:
        if self._body_left is not None:
            self._body_left -= len(event.data)
        if self._phase is not Phase.BODY:
            return
        if len(self._body) + len(event.data) > self._body_size_max:
            self._body = bytearray()
            self._refuse_size()
        else:
            self._body += event.data

    def _complete(self) -> None:
        """The request is there in full: tell of it, unless it is answered already."""
        was_skipped = self._phase is Phase.SKIP
        self._enter(Phase.DONE, float("inf"))
        if was_skipped:
            if self._exchange is None:
                self._next_cycle()
            return
        body, self._body = bytes(self._body), bytearray()
        route = self._route
        if isinstance(route, DownloadRoute):
            download = FileExchange(self, head_only=route.head_only)
            self._exchange = download
            download.channel = self._on.port.open(route.opening, download)
            return
        if isinstance(route, SocketRoute):
            self._switch()
            return
        if isinstance(route, PageRoute):
            page = Exchange(self, Reply(accepts_events=False), head_only=self._head_only)
            self._exchange = page
            self._tasks.start_soon(self._answer_page, page, route, body)
            return
        assert isinstance(route, McpRoute)
        opening = route.opening
        exchange = Exchange(self, reply_to(opening))
        self._exchange = exchange
        channel = self._on.port.open(opening, exchange)
        exchange.channel = channel
        if route.is_posted and not exchange.is_ended:
            self._on.port.message(channel, body)
        elif isinstance(opening, GetOpening):
            exchange.open_stream()

    def _switch(self) -> None:
        """A WebSocket was granted: the reader goes on with it, unless it may not begin after all."""
        if self._http.their_http_version == b"1.0":  # RFC 9110, 7.8: Upgrade is to be ignored there
            self._answer(refusal(426, "got an upgrade in HTTP/1.0, expected HTTP/1.1"))
        elif self._on.is_draining:
            self._answer(refusal(503, "shutting down: no new sessions"))
        else:
            self._phase = Phase.SWITCHED

    async def _serve_socket(self) -> None:
        route = self._route
        assert isinstance(route, SocketRoute)
        headers = [*route.upgrade.headers, (b"date", self._on.date())]
        switching = h11.InformationalResponse(status_code=101, headers=headers, reason=_REASONS[101])
        greeting = self._http.send(switching) or b""
        received = self._http.trailing_data[0]
        await serve_socket(self._on.port, route, self._limits, self._stream, greeting=greeting, received=received)

    def _refuse_malformed(self, error: h11.RemoteProtocolError) -> None:
        status, message = error.error_status_hint, f"got a malformed request ({error}), expected HTTP/1.1"
        if status == 431 and self._phase is Phase.HEAD:
            line_size = self._http.trailing_data[0].find(b"\n")
            self._refuse_with(self._on.refuse_head(is_in_target=not 0 <= line_size <= self._limits.head_size_max_bytes))
        else:
            self._refuse(status, message)

    def _refuse(self, status: int, message: str) -> None:
        """Look at nothing more of this client, and say why unless another answer is on its way."""
        is_mcp = self._phase is Phase.BODY and isinstance(self._route, McpRoute)
        self._refuse_with(refusal(status, message, is_mcp=is_mcp))

    def _refuse_with(self, refused: Refused) -> None:
        self._enter(Phase.CLOSING, float("inf"))
        if self._exchange is None:
            self._answer(refused)

    def _answer(self, refused: Refused) -> None:
        self._exchange = Exchange(self, Reply(), head_only=self._head_only)
        self._exchange.answer(refused)

    @property
    def _head_only(self) -> bool:
        return self._head is not None and self._head.method == "HEAD"

    async def _answer_page(self, exchange: Exchange, route: PageRoute, body: bytes) -> None:
        try:
            answer = await self._on.pages(route, body)
        except Exception:  # a page that fails must not take its connection with it
            _log.exception("a page failed")
            answer = page_error(500, "internal error")
        exchange.answer(answer)

    def _continue(self) -> None:
        informational = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
        self._outbox.put(self._http.send(informational) or b"")

    # --- Uploads (in the reader) ------------------------------------------------------------------------------------

    async def _take_in(self) -> None:
        """Wait for the engine's decision, then let the file service read the body at its own pace."""
        exchange, route = self._exchange, self._route
        assert isinstance(exchange, FileExchange) and isinstance(route, UploadRoute)
        await exchange.decided.wait()
        order = exchange.receiving
        if order is None or exchange.is_ended:
            return
        if self._http.they_are_waiting_for_100_continue:
            self._continue()
        body = UploadBody(self)
        with anyio.CancelScope() as self._intake:
            try:
                manifest = await self._on.files.take_in(order, route.content_type, body)
            except Exception as error:  # a storage backend's failure must not end the listener
                self._refuse_upload(exchange, body.failure or error)
            else:
                self._skip_rest()
                if exchange.channel is not None and not exchange.is_ended:
                    self._on.port.message(exchange.channel, manifest)
        self._intake = None

    def _refuse_upload(self, exchange: FileExchange, error: Exception) -> None:
        self._intake = None
        if isinstance(error, Gone):
            self._stop(Cause(End.GONE, "the client hung up during its upload"))
        elif not exchange.is_ended:
            refused, cause = refuse_upload(error)
            if isinstance(error, Silent | h11.RemoteProtocolError):
                self._enter(Phase.CLOSING, float("inf"))
            exchange.answer(refused)
            self._close_channel(cause)

    def _skip_rest(self) -> None:
        """Nobody wants what follows of an upload; usually that is no more than the end of its framing."""
        if self._phase is Phase.UPLOAD:
            self._enter(Phase.SKIP, self._limits.body_timeout_s)
            self._advance()

    async def receive_body(self) -> bytes | None:
        """See `BodySource`. The phase is UPLOAD or FORWARD."""
        self._given += 1
        if self._given % TURN_EVENTS == 0:  # else who sends tiny chunks would be served until all are through
            await checkpoint()
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Data):
                data = bytes(event.data)
                if self._body_left is not None:
                    self._body_left -= len(data)
                return data
            if event is not h11.NEED_DATA:
                self._enter(Phase.DONE, float("inf"))
                return None
            self._enter(self._phase, self._limits.body_timeout_s)
            if data := await self._receive():
                self._http.receive_data(data)

    def stop_intake(self) -> None:
        if self._intake is not None:
            self._intake.cancel()

    # --- Writer -----------------------------------------------------------------------------------------------------

    def queue(self, exchange: Exchange, outs: Sequence[Out], message_bytes: int) -> None:
        if exchange is not self._exchange:
            return  # its client is gone
        for out in outs:
            if isinstance(out, ReplyHead):
                self._put_head(out)
            elif isinstance(out, ReplyEnd):
                self._put_event(h11.EndOfMessage())
            elif not exchange.head_only:
                self._put_event(h11.Data(data=out.data))
        self._outbox.message_bytes += message_bytes

    def _put_head(self, out: ReplyHead) -> None:
        is_passing = self._phase is Phase.FORWARD and self._passage is not None  # the reader is not through yet
        if self._phase is not Phase.DONE and not is_passing:
            is_short = self._body_left is not None and self._body_left <= SKIP_MAX_BYTES
            is_coming = not self._http.they_are_waiting_for_100_continue
            if is_short and is_coming and self._phase is not Phase.CLOSING:
                self._enter(Phase.SKIP, self._limits.body_timeout_s)
            else:
                self._enter(Phase.CLOSING, float("inf"))
        headers = [*out.headers, *self._shared_headers]
        if not any(name == b"date" for name, _ in out.headers):
            headers.append((b"date", self._on.date()))
        if self._phase is Phase.CLOSING or self._on.is_draining or is_passing:
            headers.append((b"connection", b"close"))
        self._put_event(h11.Response(status_code=out.status, headers=headers, reason=_REASONS.get(out.status, b"")))

    def _put_event(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        for part in self._http.send_with_data_passthrough(event) or ():
            self._outbox.put(part)

    async def _write(self) -> None:
        try:
            while True:
                await self._flush()
                if self._download is not None:
                    await self._give_out(*self._download)
                    continue
                if self._passage is not None:
                    await self._bring_back(self._passage)
                    continue
                if self._exchange is not None and self._exchange.is_ended:
                    await self._finish()
                    continue
                if not self._is_reading:
                    return
                await self._outbox.wait()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._stop(Cause(End.GONE, "the client hung up"))
        except Silent:
            self._stop(Cause(End.TIMED_OUT, f"the client took nothing for {self._limits.write_timeout_s:g} s"))

    async def _flush(self) -> None:
        while not self._outbox.is_empty:
            size_bytes = await self._outbox.flush()
            if size_bytes and self._exchange is not None and self._exchange.channel is not None:
                self._on.port.sent(self._exchange.channel, size_bytes)

    async def _finish(self) -> None:
        """A reply has left in full."""
        self._close_channel(Cause(End.DONE))
        self._exchange = None
        if self._phase is Phase.FORWARD:  # answered before the body was there in full
            self.stop_intake()
            self._phase = Phase.CLOSING
        if self._phase is Phase.DONE:
            self._next_cycle()
        elif self._phase is Phase.CLOSING:
            self._enter(Phase.CLOSING, LINGER_S)
            try:
                await self._stream.send_eof()
            except NotImplementedError:
                pass  # TLS has no half-close: such a client learns of the end when the reader is through

    def _next_cycle(self) -> None:
        if self._on.is_draining or self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            self._phase = Phase.CLOSING
            self._tasks.cancel_scope.cancel()
            return
        self._http.start_next_cycle()
        self._head = self._route = None
        self._shared_headers = ()
        if self._skip_empty_lines():
            self._enter(Phase.HEAD, self._limits.head_timeout_s)
            self._wake_reader()
        else:
            self._enter(Phase.IDLE, self._limits.idle_connection_timeout_s)

    def _skip_empty_lines(self) -> bool:
        """Drop what h11 would take for a malformed request line. Returns whether anything else is held."""
        held = self._http.trailing_data[0]
        if held.startswith((b"\r", b"\n")):
            self._http = self._new_http()
            held = held.lstrip(EMPTY_LINES)
            if held:
                self._http.receive_data(held)
        return bool(held)

    def _new_http(self) -> h11.Connection:
        return h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.head_size_max_bytes)

    def _wake_reader(self) -> None:
        """Make it look again: bytes of the next request are held already, or no other is wanted."""
        if self._turn is not None:
            self._turn.set()
        elif self._receiving is not None:
            self._is_woken = True
            self._receiving.cancel()

    def _stop(self, cause: Cause) -> None:
        self._phase = Phase.CLOSING
        self._close_channel(cause)
        self._exchange = None
        self._outbox.clear()
        self._tasks.cancel_scope.cancel()

    def _close_channel(self, cause: Cause) -> None:
        if self._exchange is not None and self._exchange.channel is not None:
            channel, self._exchange.channel = self._exchange.channel, None
            self._on.port.closed(channel, cause)

    # --- Downloads (in the writer) ----------------------------------------------------------------------------------

    def start_download(self, exchange: FileExchange, order: Serve) -> None:
        self._download = (exchange, order)
        self._outbox.wake()

    async def _give_out(self, exchange: FileExchange, order: Serve) -> None:
        self._download = None
        assert self._head is not None
        plan = plan_download(order, self._head.headers, head_only=exchange.head_only)
        if plan.start == plan.stop:
            exchange.put([ReplyHead(plan.status, plan.headers), ReplyEnd()])
            return
        chunks = self._on.files.give_out(order, plan.start, plan.stop)
        cause = await deliver(exchange, plan, chunks, self._flush)
        if cause is not None and exchange.is_ended:
            self._close_channel(cause)
        elif cause is not None:
            self._stop(cause)

    # --- Forwarding (the request in the reader, the response in the writer) -------------------------------------------

    def _begin_forward(self, route: ForwardRoute, head: Head) -> None:
        assert self._on.forwarder is not None
        self._phase = Phase.FORWARD
        self._exchange = Exchange(self, Reply(), head_only=head.method == "HEAD")
        address = self._stream.extra(SocketAttribute.remote_address, None)
        sender = Sender(address[0] if isinstance(address, tuple) else "", route.host, self._on.scheme)
        self._passage = self._on.forwarder.begin(route, head, sender, self)
        self._outbox.wake()

    async def _pass_on(self) -> None:
        """Hand on the request's body."""
        passage = self._passage
        if passage is not None:
            with CancelScope() as self._intake:
                try:
                    await passage.pass_on(self)
                except Gone:
                    self._stop(Cause(End.GONE, "the client hung up during its request"))
                except (Silent, h11.RemoteProtocolError) as error:
                    self._enter(Phase.CLOSING, float("inf"))
                    self._break_off(passage, refuse_upload(error)[0])
            self._intake = None
        if self._phase is Phase.FORWARD:  # nobody wants the rest
            self._enter(Phase.CLOSING, float("inf"))

    async def _bring_back(self, passage: Passage) -> None:
        try:
            await passage.run()
        except ForwardFailed as error:
            _log.warning("a request could not be passed on: %s", error.detail)
            self._break_off(passage, refusal(error.status, error.detail, code=error.code))
        self._passage = None
        if self._phase is Phase.TUNNEL:
            self._stop(Cause(End.DONE))

    def _break_off(self, passage: Passage, refused: Refused) -> None:
        """Say why there is no response, or show that there is no more of it."""
        passage.cancel()
        self._passage = None
        self.stop_intake()
        if self._exchange is None:  # the client is gone
            return
        if not passage.has_begun:
            self._exchange.answer(refused)
            return
        if self._http.their_http_version == b"1.0" and not passage.is_complete:
            cut(self._stream)  # to such a client nothing but the connection's end tells the response's
        self._stop(Cause(End.BROKEN, "a part of it is missing"))

    async def _pass_bytes(self) -> None:
        """After a switch: hand on what the client says, until either side leaves or both are silent."""
        passage = self._passage
        data = self._http.trailing_data[0]
        try:
            while passage is not None and await passage.pass_bytes(data):
                self._enter(Phase.TUNNEL, self._limits.forward_idle_timeout_s)
                data = await self._receive()
        except Gone:
            assert passage is not None
            await passage.pass_eof()
        except Silent:
            pass
        self._stop(Cause(End.DONE))

    def put(self, outs: Sequence[Out]) -> None:
        """See `ClientSide`, and so the next four."""
        if self._exchange is not None:  # else the client is gone
            self._exchange.put(outs)

    def put_bytes(self, data: bytes) -> None:
        self._outbox.put(data)
        self._enter(Phase.TUNNEL, self._limits.forward_idle_timeout_s)

    async def flush(self) -> None:
        await self._flush()

    def ask_body(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            self._continue()

    def switch(self, headers: Headers) -> None:
        response = h11.InformationalResponse(status_code=101, headers=list(headers), reason=b"Switching Protocols")
        self._outbox.put(self._http.send(response) or b"")
        self._enter(Phase.TUNNEL, self._limits.forward_idle_timeout_s)
        self._wake_reader()
