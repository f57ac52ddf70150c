"""One client's HTTP/1.1 connection: requests are parsed, routed and reported to the port, and replies written as they
come.

Nothing here waits. A driver reports what arrived, what was written and when time was up (`receive_*`, `handle_*`), and
is told through its `Wire` what to write, whether to read, and for how long. A request is reported in the call that
brought its last byte, and a reply given within that call is written in it. Reading goes on while a reply is due,
because that is how a client's departure shows.

Work that takes time (uploads, downloads, pages, WebSockets, forwarded requests) runs as a task, one of the connection's
`Jobs`.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Final

import h11
from anyio import CancelScope

from ...core.access.identity import Identity, Peer
from ...core.access.issuers import CHECK_ROUNDS_MAX
from ...core.base.budget import address_owner
from ...core.base.effects import Close
from ...core.base.errors import OUT_OF_MEMORY
from ...core.base.events import Cause, DraftOpening, End, GetOpening, PostOpening, Verb
from ...core.base.storage import Append, Serve
from ...core.wire.http.error_responses import page_error, refusal, refusal_at
from ...core.wire.http.reply import HttpReply
from ...core.wire.http.reverse_proxy import Sender
from ...core.wire.http.reverse_proxy_exchange import ForwardPlan
from ...core.wire.http.routes import (
    DownloadRoute,
    ForwardRoute,
    Head,
    McpRoute,
    PageRoute,
    Refused,
    Route,
    SocketRoute,
    Undecided,
    UploadRoute,
)
from ...core.wire.http.server import lasts, reply_to
from ...core.wire.http1.events import END, Data, RequestHead
from ..base.traffic import Direction, Traffic, TransferKind
from ..base.wire import ClientWire, Gone, Silent
from ..websocket.server import serve_socket
from .files import UploadBody, refuse_upload
from .forwarded_request import ConnectionParts, ForwardedRequest
from .framing import ARRIVING, PARSED, SKIP_MAX_BYTES, TURN_EVENTS, TURN_REQUESTS, Framing, Gathered, Phase
from .jobs import Jobs
from .passed_request import PassedRequest, Passing
from .replies import Exchange, FileExchange
from .shared import RoutedHead, ServerContext
from .writer import Writer

_log: Final = logging.getLogger("isthmus.http")


class Connection:
    """Serves one client until either side ends the connection. Then it closes its wire, once."""

    __slots__ = (
        "_address",
        "_admitted",
        "_body_size_max",
        "_decided",
        "_forwarded",
        "_framing",
        "_is_lost",
        "_jobs",
        "_lasting",
        "_limits",
        "_listening",
        "_passing",
        "_peer",
        "_plan",
        "_repeated",
        "_route",
        "_wire",
        "_writer",
    )

    def __init__(self, wire: ClientWire, listening: ServerContext) -> None:
        self._wire = wire
        self._listening = listening
        self._limits = listening.limits
        self._framing = Framing(wire, self._limits, listening.make_codec, listening.bodies)
        self._jobs = Jobs(wire, self._handle_job)
        self._writer = Writer(wire, self._framing, self._jobs, listening, self._settle)
        self._route: Route | None = None
        self._body_size_max = 0
        self._is_lost = False
        self._peer: Peer | None = None  # once the wire knows it
        self._address = ""  # the peer's, as `budget.address_owner` gives it
        self._lasting: Identity | None = None  # the caller of the event stream that is open, if its identity ends
        self._admitted: RoutedHead | None = None
        self._decided: tuple[RequestHead, RoutedHead] | None = None  # a request whose caller is known at last
        self._repeated: RoutedHead | None = None  # the same, if the last request was a message that arrived in full
        self._forwarded: ForwardedRequest | None = None  # the request to a transparent server that is under way
        self._plan: tuple[RoutedHead, ForwardPlan] | None = None  # of the last such request
        self._passing: Passing | None = None
        if listening.replicas is not None:
            self._passing = Passing(
                listening.replicas,
                self._parts(),
                listening,
                begin=self._begin_passed,
                report=self._report_returned,
            )
        self._framing.tell_wire()

    @property
    def is_arriving(self) -> bool:
        """True if its first request, or the rest of a later one, has still to arrive."""
        phase = self._framing.phase
        return phase in ARRIVING or (phase is Phase.IDLE and self._peer is None)

    # --- Inputs of the driver ---------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Takes received bytes, at least one."""
        self._framing.take(data)
        self._settle()

    def receive_eof(self) -> None:
        """Handles the end of input. A client that closes its sending side counts as gone."""
        if not (self._framing.note_gone() or (self._forwarded is not None and self._forwarded.receive_eof())):
            self._hang_up()

    def receive_lost(self) -> None:
        """Handles the loss of the connection: nothing can be written any more either."""
        self._is_lost = True
        if not self._framing.note_gone():
            self._hang_up()

    def receive_refused(self) -> None:
        """Handles a client that takes no more: it is gone."""
        self.receive_lost()

    def handle_timeout(self) -> None:
        """Handles the timeout that was set with `Wire.set_timeout`: nothing arrived in time."""
        if (self._forwarded is not None and self._forwarded.handle_timeout()) or self._framing.note_late():
            return
        if self._framing.phase in (Phase.HEAD, Phase.BODY):
            self._refuse(408, f"got no complete {self._framing.phase.value} in time, expected it sooner")
        elif self._framing.phase is not Phase.DONE:
            self._framing.is_ending = True
        self._settle()

    def handle_written(self) -> None:
        """Records that everything written has left."""
        self._writer.handle_written()
        self._settle()

    def handle_stalled(self) -> None:
        """Handles a client that took nothing for `Limits.write_timeout_s`."""
        waited_s = self._limits.write_timeout_s
        self._writer.stop(Cause(End.TIMED_OUT, f"the client took nothing for {waited_s:g} s"))

    def handle_wake(self) -> None:
        """Carries on after a call of `Wire.wake`."""
        self._writer.is_woken = False
        self._settle()

    def drain(self) -> None:
        """Serves the request that has begun, and none after it."""
        if self._framing.phase is Phase.IDLE:
            self._writer.end_here()

    def keep_alive(self) -> None:
        """Writes a comment on an open event stream that is silent, or ends it if no token of its caller holds any more.
        Called at intervals."""
        if not self.check_caller():
            self._writer.keep_alive()

    def check_caller(self) -> bool:
        """Ends an open event stream if no token of its caller holds any more. True if it did."""
        lasting, exchange = self._lasting, self._writer.exchange
        if lasting is None or exchange is None or self._holds(lasting):
            return False
        self._lasting = None
        if exchange.channel is None or (self._forwarded is not None and not self._forwarded.is_over):
            self._writer.stop(Cause(End.BROKEN, "no token of the client holds any more"))
        else:
            exchange.close(Close(exchange.channel))
            self._settle()
        return True

    def stop(self) -> None:
        """Ends the connection because the listener ends or failed."""
        self._writer.stop(self._writer.cause)

    def _hang_up(self) -> None:
        exchange = self._writer.exchange
        if self._is_lost or (exchange is not None and not exchange.is_ended):
            self._writer.stop(Cause(End.GONE, "the client hung up"))
        else:
            self._framing.is_ending = True
            self._settle()

    def _handle_job(self, has_failed: bool) -> None:
        if self._decided is not None and not self._writer.is_over:
            (head, admitted), self._decided = self._decided, None
            self._framing.enter(Phase.BODY, self._limits.body_timeout_s)
            self._writer.is_settling = True  # what is answered at once leaves below, when its channel is known
            try:
                self._go_on(head, admitted)
            finally:
                self._writer.is_settling = False
        if has_failed:
            self._writer.stop(Cause(End.BROKEN, "the listener failed"))
        elif self._framing.is_gone:  # the job was woken, but may have been cancelled before it could hang up itself
            self._hang_up()
        self._writer.close_if_over()
        self._settle()

    def _settle(self) -> None:
        """Parses and writes as far as possible, then tells the wire what is wanted of it."""
        framing, writer = self._framing, self._writer
        if writer.is_settling or writer.is_over:
            return
        writer.is_settling = True
        framing.is_behind = False
        try:
            if framing.phase in PARSED and not self._handle_repeated():
                self._advance()
            for _ in range(TURN_REQUESTS):
                if not writer.advance():
                    break
                self._advance()
            else:
                framing.is_behind = True
        except OUT_OF_MEMORY:
            self._end_exhausted()
        finally:
            writer.is_settling = False
        if writer.replica and not writer.is_over:
            self._pass_on()
        elif self._forwarded is not None and not (self._forwarded.is_over or writer.is_over):
            self._forwarded.advance()
        if not writer.is_over:
            if framing.is_behind:
                writer.wake()
            framing.tell_wire()
            if framing.is_crowded:
                writer.stop(Cause(End.BROKEN, "there is no room for what the client has sent ahead"))

    def _advance(self) -> None:
        """Parses what has arrived, as far as the due reply allows, and at most `TURN_EVENTS` events, so that other
        connections get their turn: one read can hold thousands of tiny chunks."""
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

    def _handle_repeated(self) -> bool:
        """Handles a request that arrived in full, if its head repeats the last one. Returns False, and does nothing,
        otherwise.

        This skips routing, header rules and the size limit. They depend on nothing but the head, and equal bytes give
        the same result. `tests/transports/http1/test_repeated_heads.py` compares the codec's one step with many.
        """
        admitted = self._repeated
        if admitted is None or self._framing.phase is not Phase.HEAD or not self._listening.still_holds(admitted):
            return False
        body = self._framing.take_repeated(admitted.head)
        if body is None:
            return False
        self._writer.shared_headers, self._writer.area = admitted.shared_headers, admitted.area
        if isinstance(admitted.route, ForwardRoute):
            self._forward(admitted.route, admitted.head, admitted, body)
        else:
            assert isinstance(admitted.route, McpRoute)
            self._report(admitted.route, body)
        return True

    def _begin(self, head: RequestHead) -> None:
        framing = self._framing
        framing.begin(head)
        self._repeated = None
        admitted = self._admitted
        if admitted is None or not admitted.fits(head) or not self._listening.still_holds(admitted):
            if self._peer is None:
                self._peer = self._wire.peer
                self._address = address_owner(self._peer.host)
            admitted = self._listening.admit(head, self._peer, self._address)
            framing.owner = admitted.owner
            if isinstance(admitted.route, Undecided):
                self._admitted = None
                framing.enter(Phase.HELD)
                self._jobs.start(partial(self._wait_for_caller, head, self._peer, admitted))
                return
        self._go_on(head, admitted)

    async def _wait_for_caller(self, head: RequestHead, peer: Peer, admitted: RoutedHead) -> None:
        """Waits until it is known who a request is from, or that it cannot be known now."""
        for _ in range(CHECK_ROUNDS_MAX):
            if not isinstance(admitted.route, Undecided):
                break
            assert self._listening.wait_for_issuer is not None
            await self._listening.wait_for_issuer(admitted.route.wanted)
            admitted = self._listening.admit(head, peer, self._address)
        self._decided = head, admitted

    def _go_on(self, head: RequestHead, admitted: RoutedHead) -> None:
        """Goes on with a request that is routed."""
        framing, writer = self._framing, self._writer
        self._lasting = None
        self._admitted = admitted if admitted.may_be_kept else None
        writer.shared_headers, writer.area = admitted.shared_headers, admitted.area
        route = admitted.route
        if isinstance(route, Undecided):
            extra = ((b"retry-after", b"5"),)
            route = refusal_at(head.target, 503, "the issuer of the token does not say who the caller is", extra)
        self._route = route
        if isinstance(route, Refused):
            if route.status in (414, 431, 505):
                framing.enter(Phase.CLOSING)
            writer.answer(route)
            return
        if isinstance(route, ForwardRoute):
            self._repeated = self._admitted
            self._forward(route, head, admitted, framing.take_rest())
            return
        is_posted = isinstance(route, (McpRoute, PageRoute)) and route.is_posted
        self._body_size_max = self._limits.request_size_max_bytes if is_posted else SKIP_MAX_BYTES
        if isinstance(route, UploadRoute):
            self._report_upload(route)
        elif framing.body_left is not None and framing.body_left > self._body_size_max:
            self._refuse_size()
        else:
            body = framing.take_rest()
            if body is None:
                framing.ask_body()
            else:
                self._repeated = self._admitted
                self._handle(body)

    def _forward(self, route: ForwardRoute, head: RequestHead, admitted: RoutedHead, body: bytes | None) -> None:
        """Passes a request on to a transparent server. `body` is its whole body; None: it is still to come."""
        assert self._listening.forwarder is not None
        framing, writer = self._framing, self._writer
        if body is None:
            framing.enter(Phase.FORWARD)
        # Nothing is known of what is forwarded, but an event stream is the response to a GET.
        self._lasting = route.identity if head.method == "GET" else None
        writer.exchange = Exchange(writer, HttpReply(), head_only=framing.head_only)
        self._forwarded = ForwardedRequest(
            self._parts(),
            self._listening.forwarder,
            route.server,
            self._plan_for(route, head, admitted),
            head.body_size if body is None else len(body),
        )
        self._forwarded.begin(body)

    def _parts(self) -> ConnectionParts:
        return ConnectionParts(self._framing, self._writer, self._wire, self._jobs, self._limits, self._settle)

    def _plan_for(self, route: ForwardRoute, head: RequestHead, admitted: RoutedHead) -> ForwardPlan:
        assert self._listening.forwarder is not None
        if self._plan is not None and self._plan[0] is admitted:
            return self._plan[1]
        peer = self._wire.peer
        sender = Sender(peer.host, route.host, "https" if peer.is_secure else self._listening.scheme)
        judged = Head(head.method, head.target, head.headers, head.version)
        plan = self._listening.forwarder.plan(route, judged, sender)
        self._plan = (admitted, plan) if admitted.may_be_kept else None
        return plan

    def _gather(self, data: bytes) -> None:
        self._framing.note_given(len(data))
        if self._framing.phase is not Phase.BODY:
            return
        gathered = self._framing.gather(data, self._body_size_max)
        if gathered is Gathered.TOO_LARGE:
            self._refuse_size()
        elif gathered is Gathered.NO_ROOM:
            self._refuse_for_room()

    def _complete(self) -> None:
        """Reports a complete request, unless it was answered already."""
        was_skipped = self._framing.phase is Phase.SKIP
        self._framing.enter(Phase.DONE)
        if was_skipped:
            if self._writer.exchange is None:
                self._writer.next_cycle()
            return
        self._handle(self._framing.take_gathered())

    def _handle(self, body: bytes) -> None:
        """Handles a complete request that was not answered yet."""
        route = self._route
        if isinstance(route, McpRoute):
            self._report(route, body)
        elif isinstance(route, DownloadRoute):
            traffic = Traffic(self._listening.counts, TransferKind(route.opening.server, Direction.OUT))
            download = FileExchange(self._writer, traffic, head_only=route.head_only)
            self._writer.exchange = download
            download.channel = self._listening.port.open(route.opening, download)
        elif isinstance(route, SocketRoute):
            self._switch(route)
        else:
            assert isinstance(route, PageRoute), route
            page = Exchange(self._writer, HttpReply(accepts_events=False), head_only=self._framing.head_only)
            self._writer.exchange = page
            self._jobs.start(partial(self._answer_page, page, route, body))

    def _report(self, route: McpRoute, body: bytes) -> None:
        opening = route.opening
        if self._listening.gate is not None:
            self._lasting = route.identity if lasts(opening) else None
        exchange = Exchange(self._writer, reply_to(opening))
        self._writer.exchange = exchange
        if self._passing is not None:
            exchange.request = route, body
            self._writer.replica = self._passing.replica_of(route)
            if self._writer.replica:
                return
        if isinstance(opening, PostOpening):
            exchange.channel = self._listening.port.posted(opening, body, exchange)
            return
        exchange.channel = channel = self._listening.port.open(opening, exchange)
        if route.is_posted and not (exchange.is_ended or self._writer.replica):
            self._listening.port.message(channel, body)
        elif isinstance(opening, GetOpening) and not self._writer.replica:
            exchange.open_stream()
            self._route = None
            self._framing.rest()

    def _report_upload(self, route: UploadRoute) -> None:
        self._framing.enter(Phase.UPLOAD)
        traffic = Traffic(self._listening.counts, _way_in(route))
        exchange = FileExchange(self._writer, traffic, head_only=self._framing.head_only)
        self._writer.exchange = exchange
        if self._passing is not None:
            exchange.request = route, None
        exchange.channel = self._listening.port.open(route.opening, exchange)
        if not (exchange.is_ended or self._writer.replica):
            self._jobs.start(partial(self._take_in, exchange, route))

    async def _answer_page(self, exchange: Exchange, route: PageRoute, body: bytes) -> None:
        answer: Refused | Serve
        try:
            answer = await self._listening.pages(route, body)
        except Exception:  # a page that fails must not end its connection
            _log.exception("a page failed")
            answer = page_error(500, "internal error")
        if isinstance(answer, Refused):
            exchange.answer(answer)
        elif self._writer.exchange is exchange:  # else the client is gone
            # Operators read pages, so their files are not counted as traffic of clients.
            uncounted = Traffic(self._listening.counts, None)
            download = FileExchange(self._writer, uncounted, head_only=exchange.head_only)
            self._writer.exchange = download
            download.serve(answer)

    def _switch(self, route: SocketRoute) -> None:
        """Starts the task that serves a WebSocket, or refuses it."""
        if self._framing.is_1_0:  # RFC 9110, 7.8: Upgrade is to be ignored there
            self._writer.answer(refusal(426, "got an upgrade in HTTP/1.0, expected HTTP/1.1"))
        elif self._listening.is_draining:
            self._writer.answer(refusal(503, "shutting down: no new sessions"))
        else:
            self._framing.enter(Phase.SWITCHED)
            self._jobs.start(partial(self._serve_socket, route))

    async def _serve_socket(self, route: SocketRoute) -> None:
        await self._writer.flush()
        stream = await self._wire.take_stream()
        self._listening.counts.responses[self._writer.area, 101] += 1
        greeting = self._framing.switch([*route.upgrade.headers, (b"date", self._listening.date())])
        received = self._framing.held
        await serve_socket(
            self._listening.port,
            route,
            self._limits,
            self._listening.bodies,
            stream,
            holds=partial(self._holds, route.identity),
            wait_change=self._listening.wait_change,
            greeting=greeting,
            received=received,
        )
        self._writer.end_here()

    def _holds(self, identity: Identity) -> bool:
        """True if the caller of an event stream or a WebSocket may go on."""
        return self._listening.gate is None or self._listening.gate.still_holds(identity, time.time())

    # --- Other replicas ---------------------------------------------------------------------------------------------

    def _pass_on(self) -> None:
        """Passes the request on to another replica, by order of the engine."""
        tag, self._writer.replica = self._writer.replica, ""
        exchange, head = self._writer.exchange, self._framing.head
        assert exchange is not None and head is not None
        if self._passing is None:
            assert self._listening.hops is not None
            message = (
                f"got a request for replica {tag} that another one has passed on to this one: let cluster.advertise of "
                f"replica {tag} lead to it, without a balancer between"
            )
            exchange.answer(refusal_at(head.target, 508, message))
            self._settle()
        else:
            self._passing.pass_on(tag, exchange, head)

    def _begin_passed(self, request: PassedRequest, body: bytes | None) -> None:
        self._forwarded = request
        if body is None:
            self._framing.enter(Phase.FORWARD)
        request.begin(body)

    def _report_returned(self, route: McpRoute | UploadRoute, body: bytes | None) -> None:
        """Reports a request to the engine again, because the replica that it was for is gone."""
        self._writer.is_settling = True  # what is answered at once leaves below, when its channel is known
        try:
            if isinstance(route, UploadRoute):
                self._report_upload(route)
            else:
                assert body is not None
                self._report(route, body)
        finally:
            self._writer.is_settling = False
        self._settle()

    # --- Refusals ---------------------------------------------------------------------------------------------------

    def _refuse_size(self) -> None:
        message = f"got a body over the limit, expected at most {self._body_size_max} bytes"
        self._writer.answer(refusal(413, message, is_mcp=isinstance(self._route, McpRoute)))

    def _refuse_for_room(self) -> None:
        message = "got a body while others that are arriving have all the room: try again later, or send less at once"
        is_mcp = isinstance(self._route, McpRoute)
        self._writer.answer(refusal(503, message, is_mcp=is_mcp, extra=((b"retry-after", b"1"),)))

    def _end_exhausted(self) -> None:
        """Drops a request for which there is no memory, and ends its connection. The client is told to try again if
        nothing was answered yet."""
        self._framing.drop()
        exchange = self._writer.exchange
        if exchange is None:
            _log.error("a request was refused with 503: there is no memory for it")
            self._framing.enter(Phase.CLOSING)
            message = "there is no memory for the request: try again later"
            self._writer.answer(refusal(503, message, extra=((b"retry-after", b"1"),)))
            self._writer.advance()
        else:
            _log.error("a connection was closed: there is no memory for its request")
            self._writer.stop(Cause(End.BROKEN, "there is no memory for the request"))

    def _refuse_malformed(self, error: h11.RemoteProtocolError) -> None:
        status, message = error.error_status_hint, f"got a malformed request ({error}), expected HTTP/1.1"
        if status == 431 and self._framing.phase is Phase.HEAD:
            line_size = self._framing.held.find(b"\n")
            self._refuse_with(
                self._listening.refuse_head(is_in_target=not 0 <= line_size <= self._limits.head_size_max_bytes)
            )
        else:
            self._refuse(status, message)

    def _refuse(self, status: int, message: str) -> None:
        """Refuses the request and ignores all further input. No reason is sent if another reply has begun."""
        is_mcp = self._framing.phase is Phase.BODY and isinstance(self._route, McpRoute)
        self._refuse_with(refusal(status, message, is_mcp=is_mcp))

    def _refuse_with(self, refused: Refused) -> None:
        self._framing.enter(Phase.CLOSING)
        if self._writer.exchange is None:
            self._writer.answer(refused)

    # --- Uploads ----------------------------------------------------------------------------------------------------

    async def _take_in(self, exchange: FileExchange, route: UploadRoute) -> None:
        """Waits for the engine's decision, then lets the file service read the body at its own pace."""
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
                    await self._listening.files.append(
                        order, body, partial(self._listening.port.message, order.channel)
                    )
                    self._skip_rest()
                else:
                    manifest = await self._listening.files.take_in(order, route.content_type, body)
                    self._skip_rest()
                    if exchange.channel is not None and not exchange.is_ended:
                        self._listening.port.message(exchange.channel, manifest)
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
        """Skips the rest of an upload's body, usually no more than the end of its framing."""
        if self._framing.phase is Phase.UPLOAD:
            self._framing.enter(Phase.SKIP, self._limits.body_timeout_s)
            self._advance()  # so the connection can be kept if the engine answers at once


def _way_in(route: UploadRoute) -> TransferKind | None:
    """Returns how the traffic of an upload is counted. Queries about an upload are not counted."""
    opening = route.opening
    if isinstance(opening, DraftOpening) and opening.verb not in (Verb.CREATE, Verb.APPEND):
        return None
    return TransferKind(opening.server, Direction.IN)
