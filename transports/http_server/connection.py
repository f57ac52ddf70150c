"""One client's HTTP/1.1 connection: a codec frames, the rules judge, the port hears, and replies go out as they come.

Nothing here waits. A driver says what arrived, what has left and when time was up (`receive_*`, `handle_*`); it is told
through its `Wire` what to write, whether to read on, and for how long. A request is handed over in the call that
brought its last byte, and a reply that comes within that call leaves in it. Reading goes on while a reply is due,
because that is how a client's departure shows. What takes its time (uploads, downloads, pages, WebSockets, what is
passed on) is a task, one of the connection's `Jobs`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import h11
from anyio import CancelScope

from ...core.base.effects import Append, Cause, DraftOpening, End, GetOpening, PostOpening, Serve, Verb
from ...core.wire.http.error_responses import page_error, refusal
from ...core.wire.http.reply import Reply
from ...core.wire.http.reverse_proxy import Sender
from ...core.wire.http.routes import (
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
from ...core.wire.http.server import reply_to
from ...core.wire.http1.events import END, Data, RequestHead
from ..base.traffic import Direction, Traffic, Way
from ..base.wire import Gone, Silent, Wire
from ..websocket.server import serve_socket
from .files import UploadBody, refuse_upload
from .forwarded_request import ForwardedRequest
from .framing import PARSED, SKIP_MAX_BYTES, TURN_EVENTS, TURN_REQUESTS, Framing, Phase
from .jobs import Jobs
from .replies import Exchange, FileExchange
from .shared import Admitted, Listening
from .writer import Writer

_log: Final = logging.getLogger("isthmus.http")


class Connection:
    """Serves one client until either side is through with it. Then it closes its wire, once."""

    __slots__ = (
        "_admitted",
        "_body",
        "_body_size_max",
        "_framing",
        "_is_lost",
        "_jobs",
        "_limits",
        "_on",
        "_repeated",
        "_route",
        "_wire",
        "_writer",
    )

    def __init__(self, wire: Wire, listening: Listening) -> None:
        self._wire = wire
        self._on = listening
        self._limits = listening.limits
        self._framing = Framing(wire, self._limits, listening.make_codec)
        self._jobs = Jobs(wire, self._handle_job)
        self._writer = Writer(wire, self._framing, self._jobs, listening, self._settle)
        self._route: Route | None = None
        self._body: bytes | bytearray = b""
        self._body_size_max = 0
        self._is_lost = False
        self._admitted: Admitted | None = None
        self._repeated: Admitted | None = None  # the same, if the last request was a message, there in full
        self._framing.tell_wire()

    # --- What the driver says ---------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """These bytes, which are not empty, have arrived."""
        self._framing.take(data)
        self._settle()

    def receive_eof(self) -> None:
        """No more will arrive: who hangs up on one side has hung up."""
        if not self._framing.note_gone():
            self._hang_up()

    def receive_lost(self) -> None:
        """Nothing can be said any more either."""
        self._is_lost = True
        self.receive_eof()

    def handle_timeout(self) -> None:
        """Nothing came for as long as it may take."""
        if self._framing.note_late():
            return
        if self._framing.phase in (Phase.HEAD, Phase.BODY):
            self._refuse(408, f"got no complete {self._framing.phase.value} in time, expected it sooner")
        elif self._framing.phase is not Phase.DONE:
            self._framing.is_ending = True
        self._settle()

    def handle_written(self) -> None:
        """What was written has left."""
        self._writer.handle_written()
        self._settle()

    def handle_stalled(self) -> None:
        """Nothing of what was written has left for `Limits.write_timeout_s`."""
        waited_s = self._limits.write_timeout_s
        self._writer.stop(Cause(End.TIMED_OUT, f"the client took nothing for {waited_s:g} s"))

    def handle_wake(self) -> None:
        """What `Wire.wake` asked for."""
        self._writer.is_woken = False
        self._settle()

    def drain(self) -> None:
        """Serve what has begun, and nothing after it."""
        if self._framing.phase is Phase.IDLE:
            self._writer.end_here()

    def keep_alive(self) -> None:
        """Called every so often, for an open event stream that is silent."""
        self._writer.keep_alive()

    def stop(self) -> None:
        """The listener ends, or failed."""
        self._writer.stop(self._writer.cause)

    def _hang_up(self) -> None:
        exchange = self._writer.exchange
        if self._is_lost or (exchange is not None and not exchange.is_ended):
            self._writer.stop(Cause(End.GONE, "the client hung up"))
        else:
            self._framing.is_ending = True
            self._settle()

    def _handle_job(self, has_failed: bool) -> None:
        if has_failed:
            self._writer.stop(Cause(End.BROKEN, "the listener failed"))
        elif self._framing.is_gone:  # it was told, and may have been made to stop before it could do anything about it
            self._hang_up()
        self._writer.close_if_over()
        self._settle()

    def _settle(self) -> None:
        """Parse and write as far as that goes, then tell the wire what is wanted of it."""
        framing, writer = self._framing, self._writer
        if writer.is_settling or writer.is_over:
            return
        writer.is_settling = True
        framing.is_behind = False
        try:
            if framing.phase in PARSED and not self._repeat():
                self._advance()
            for _ in range(TURN_REQUESTS):
                if not writer.advance():
                    break
                self._advance()
            else:
                framing.is_behind = True
        finally:
            writer.is_settling = False
        if not writer.is_over:
            if framing.is_behind:
                writer.wake()
            framing.tell_wire()

    def _advance(self) -> None:
        """Parse what has arrived, as far as the reply that is due allows, and not for so long that others would wait:
        one read can hold thousands of tiny chunks."""
        framing = self._framing
        framing.is_behind = False
        for _ in range(TURN_EVENTS):
            if framing.phase not in PARSED:
                return
            try:
                event = framing.codec.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse_malformed(error)
                return
            if type(event) is RequestHead:
                self._begin(event)
            elif type(event) is Data:
                self._gather(event.data)
            elif event is END:
                self._complete()
            else:
                return
        framing.is_behind = True

    # --- Requests ---------------------------------------------------------------------------------------------------

    def _repeat(self) -> bool:
        """Handle the request that has arrived, if it is one more like the last: nothing of its head need be judged, nor
        its size. Else nothing is done."""
        admitted = self._repeated
        if admitted is None or self._framing.phase is not Phase.HEAD:
            return False
        body = self._framing.take_repeated(admitted.head)
        if body is None:
            return False
        assert isinstance(admitted.route, McpRoute)
        self._writer.shared_headers = admitted.shared_headers
        self._tell(admitted.route, body)
        return True

    def _begin(self, head: RequestHead) -> None:
        framing, writer = self._framing, self._writer
        framing.begin(head)
        self._body = b""
        self._repeated = None
        admitted = self._admitted
        if admitted is None or not admitted.fits(head):
            admitted = self._on.admit(head)
            self._admitted = admitted if admitted.may_be_kept else None
        writer.shared_headers = admitted.shared_headers
        self._route = route = admitted.route
        if isinstance(route, Refused):
            if route.status in (414, 431, 505):
                framing.enter(Phase.CLOSING)
            writer.answer(route)
            return
        if isinstance(route, ForwardRoute):
            self._forward(route, head)
            return
        is_posted = isinstance(route, (McpRoute, PageRoute)) and route.is_posted
        self._body_size_max = self._limits.request_size_max_bytes if is_posted else SKIP_MAX_BYTES
        if isinstance(route, UploadRoute):
            framing.enter(Phase.UPLOAD)
            traffic = Traffic(self._on.counts, _way_in(route))
            exchange = FileExchange(writer, traffic, head_only=framing.head_only)
            writer.exchange = exchange
            exchange.channel = self._on.port.open(route.opening, exchange)
            if not exchange.is_ended:
                self._jobs.start(partial(self._take_in, exchange, route))
        elif framing.body_left is not None and framing.body_left > self._body_size_max:
            self._refuse_size()
        else:
            body = framing.take_rest()
            if body is None:
                framing.ask_body()
            else:
                self._repeated = self._admitted
                self._handle(body)

    def _forward(self, route: ForwardRoute, head: RequestHead) -> None:
        assert self._on.forwarder is not None
        self._framing.enter(Phase.FORWARD)
        self._writer.exchange = Exchange(self._writer, Reply(), head_only=self._framing.head_only)
        forwarded = ForwardedRequest(
            self._on.forwarder,
            route,
            Head(head.method, head.target, head.headers, head.version),
            Sender(self._wire.peer_host, route.host, self._on.scheme),
            framing=self._framing,
            writer=self._writer,
            wire=self._wire,
            jobs=self._jobs,
            limits=self._limits,
        )
        self._jobs.start(forwarded.pass_on)
        self._writer.fetch(forwarded.bring_back)

    def _gather(self, data: bytes) -> None:
        self._framing.note_given(len(data))
        if self._framing.phase is not Phase.BODY:
            return
        if len(self._body) + len(data) > self._body_size_max:
            self._body = b""
            self._refuse_size()
        elif not self._body:
            self._body = data
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data

    def _complete(self) -> None:
        """The request is there in full: tell of it, unless it is answered already."""
        was_skipped = self._framing.phase is Phase.SKIP
        self._framing.enter(Phase.DONE)
        if was_skipped:
            if self._writer.exchange is None:
                self._writer.next_cycle()
            return
        body, self._body = bytes(self._body), b""
        self._handle(body)

    def _handle(self, body: bytes) -> None:
        """The request is complete, and not answered yet."""
        route = self._route
        if isinstance(route, McpRoute):
            self._tell(route, body)
        elif isinstance(route, DownloadRoute):
            traffic = Traffic(self._on.counts, Way(route.opening.server, Direction.OUT))
            download = FileExchange(self._writer, traffic, head_only=route.head_only)
            self._writer.exchange = download
            download.channel = self._on.port.open(route.opening, download)
        elif isinstance(route, SocketRoute):
            self._switch(route)
        else:
            assert isinstance(route, PageRoute), route
            page = Exchange(self._writer, Reply(accepts_events=False), head_only=self._framing.head_only)
            self._writer.exchange = page
            self._jobs.start(partial(self._answer_page, page, route, body))

    def _tell(self, route: McpRoute, body: bytes) -> None:
        opening = route.opening
        exchange = Exchange(self._writer, reply_to(opening))
        self._writer.exchange = exchange
        if isinstance(opening, PostOpening):
            exchange.channel = self._on.port.posted(opening, body, exchange)
            return
        exchange.channel = channel = self._on.port.open(opening, exchange)
        if route.is_posted and not exchange.is_ended:
            self._on.port.message(channel, body)
        elif isinstance(opening, GetOpening):
            exchange.open_stream()
            self._route = None
            self._framing.rest()

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

    def _switch(self, route: SocketRoute) -> None:
        """A WebSocket was granted: a task goes on with it, unless it may not begin after all."""
        if self._framing.is_1_0:  # RFC 9110, 7.8: Upgrade is to be ignored there
            self._writer.answer(refusal(426, "got an upgrade in HTTP/1.0, expected HTTP/1.1"))
        elif self._on.is_draining:
            self._writer.answer(refusal(503, "shutting down: no new sessions"))
        else:
            self._framing.enter(Phase.SWITCHED)
            self._jobs.start(partial(self._serve_socket, route))

    async def _serve_socket(self, route: SocketRoute) -> None:
        await self._writer.flush()
        stream = await self._wire.take_stream()
        greeting = self._framing.switch([*route.upgrade.headers, (b"date", self._on.date())])
        received = self._framing.held
        await serve_socket(self._on.port, route, self._limits, stream, greeting=greeting, received=received)
        self._writer.end_here()

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

    async def _take_in(self, exchange: FileExchange, route: UploadRoute) -> None:
        """Wait for the engine's decision, then let the file service read the body at its own pace."""
        await exchange.decided.wait()
        order = exchange.receiving
        if order is None or exchange.is_ended or exchange.channel is None:  # the client may have hung up by now
            return
        self._framing.ask_body()
        self._writer.wake()
        exchange.traffic.begin()
        body = UploadBody(self._framing, exchange.traffic)
        with CancelScope() as self._framing.intake:
            if exchange.is_ceased:
                self._framing.stop_intake()
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
            self._advance()  # the engine may answer as soon as it is told, and then the connection can be kept


def _way_in(route: UploadRoute) -> Way | None:
    """What its traffic is counted as. Questions about an upload are none."""
    opening = route.opening
    if isinstance(opening, DraftOpening) and opening.verb not in (Verb.CREATE, Verb.APPEND):
        return None
    return Way(opening.server, Direction.IN)
