"""The endpoint for clients without sessions: every request describes its client, its revision and the client's
capabilities.

Behind each request there is a session of ours all the same, since servers may need one or many. Requests share a
session if their principal, capabilities and origin are equal. It begins with the first of them and ends when it has
been idle; no client knows of it.

Source: 2026-07-28 basic/versioning, basic/transports, basic/patterns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ..base.errors import METHOD_NOT_FOUND, OVERLOADED, UPSTREAM_UNAVAILABLE, RemoteProtocolError
from ..base.events import EventPipeOpening, Headers, PipeOpening, PostOpening
from ..base.ids import ChannelId
from ..base.methods import MAY_ASK
from ..base.plan import Affinity
from ..base.revisions import Era
from ..bridge import input_requests, request_meta
from ..bridge.capabilities import fingerprint
from ..bridge.content import tool_error
from ..bridge.discovery import server_info_of
from ..bridge.request_meta import RequestMeta
from ..bridge.request_name import name_in
from ..bridge.request_state import Claims, ClaimsKind, InvalidRequestState, is_ours
from ..bridge.results import named
from ..bridge.tasks import task_id
from ..downstream.downstream import Downstream
from ..downstream.sessions import NO_MEMORY
from ..input_required.questions import Questions
from ..input_required.replay import answers
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.outline import outline_of
from ..jsonrpc.splice import remove_members
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeKey, Reply
from ..state.listen_filter import parse_filter
from ..state.ports import RouterOf
from ..state.session import Affinities, Session
from ..subscriptions.subscriptions import Subscriptions
from ..upstream.access_filter import refuse_forbidden
from ..upstream.presentation import raw_params
from ..upstream.upstream import Upstream
from ..wire.http.param_headers import Mirror
from .affinity_handles import NEW, AffinityHandles, InvalidAffinity, affinity_of_handle
from .affinity_table import AffinityTable, merged_affinity
from .known_clients import KnownClients, audience_of
from .pipe_requests import PipeRequests
from .revisions import read_request
from .stateless_responder import StatelessResponder
from .undecided_requests import UndecidedRequests

Opening = PostOpening | PipeOpening | EventPipeOpening

SHUTTING_DOWN: Final = "shutting down: no new requests"

REMOVED: Final = frozenset(
    {
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
    }
)
"""Requests that 2026-07-28 has removed (changelog). Their replacements are no requests, or have other names."""


class Stateless:
    """All requests of clients without sessions.

    Attributes:
        known: the clients that have sent requests before.
    """

    def __init__(
        self,
        context: Context,
        downstream: Downstream,
        upstream: Upstream,
        subscriptions: Subscriptions,
        questions: Questions,
        router_of: RouterOf,
    ) -> None:
        self._context = context
        self._responder = downstream.responder
        self._sessions = downstream.sessions
        self._router_of = router_of
        self._signer = questions.signer
        self._replays = questions.replays
        self._suspended_calls = questions.suspended_calls
        self._url_elicitation = questions.url_elicitation
        self._deferred_questions = questions.deferred_questions
        self._server_eras = upstream.handshaker.server_eras
        self._advertised = upstream.tool_discovery.advertised
        self._by_affinity = by_affinity = AffinityTable()
        self._handles = handles = AffinityHandles(context, downstream.sessions, by_affinity)
        self._replies = StatelessResponder(
            context, downstream, subscriptions.client_listens, questions, by_affinity, handles
        )
        self._undecided = UndecidedRequests(context, downstream)
        self.known = KnownClients(
            context, self._server_eras, self._advertised, questions.deferred_questions, self._by_affinity
        )

    # --- Requests ---------------------------------------------------------------------------------------------------

    def receive_request(
        self,
        opening: Opening,
        key: ExchangeKey,
        frame: Frame,
        reply: Reply,
        headers: Headers,
        *,
        mirrored: Headers = (),
        pipe_requests: PipeRequests | None = None,
        is_allowed: bool = False,
    ) -> tuple[Session, Exchange] | None:
        """Handles one request.

        Args:
            opening: the event that opened its channel.
            key: the identity of the exchange, if the request begins one.
            reply: carries its response.
            headers: the client's HTTP headers that go on to the server.
            mirrored: the `Mcp-Param-…` headers of the request, which agree with it.
            pipe_requests: the other requests of its pipe.
            is_allowed: the driver has allowed it, if the plan of its server wants that.

        Returns:
            The session and the call that the request begins or continues, or the exchange that waits for the driver's
            decision; None if it is answered already.

        Raises:
            RemoteProtocolError: it is refused, with the HTTP status to answer. Nothing has changed.
        """
        assert frame.id_raw is not None
        assert frame.method is not None
        request = read_request(frame)
        if frame.method in REMOVED:
            raise RemoteProtocolError(
                f"Method not found: {frame.method} is not in {request.revision}",
                rpc_code=METHOD_NOT_FOUND,
                http_status=404,
            )
        id_key = envelope.id_key(frame.id_raw)
        if pipe_requests is not None and pipe_requests.find(id_key) is not None:
            raise RemoteProtocolError("got the id of a request that is still open, expected another")
        if self._context.plan.replica is not None and isinstance(opening, PostOpening):
            for id in self._named_tasks(frame):
                if self._context.forward(key.channel, id, is_returned=opening.is_returned):
                    return None
        token_raw = envelope.progress_token(frame.params)
        claims = self._read_state(opening, frame)
        is_retry = claims is not None and claims.kind is ClaimsKind.PARK
        if claims is not None and isinstance(opening, PostOpening) and claims.kind is not ClaimsKind.REPLAY:
            if self._context.forward(key.channel, claims.owner, is_returned=opening.is_returned):
                return None
        found = None if claims is None or not is_retry else self._suspended_calls.find(claims)
        plan = self._context.servers.get(opening.server)  # None: it is a profile
        raw = frame.params
        if plan is not None and plan.shown.overrides:
            raw = raw_params(plan, frame.method, frame.params)
        if plan is not None and plan.decides and not is_allowed:

            def go_on() -> tuple[Session, Exchange] | None:
                return self.receive_request(
                    opening, key, frame, reply, headers, mirrored=mirrored, pipe_requests=pipe_requests, is_allowed=True
                )

            name_in(frame.method, frame.params)  # for its exception: no session is opened for a request that is refused
            if found is None and self._context.is_draining:
                raise RemoteProtocolError(SHUTTING_DOWN, rpc_code=OVERLOADED, http_status=503)
            session = self._session_for(opening, key, request, frame.params) if found is None else found[0]
            self._check_room(session, opening)
            told = msgspec.structs.replace(frame, params=raw)
            found = session, self._undecided.ask(session, key, told, request, reply, headers, go_on)
        elif found is not None:
            assert claims is not None
            if plan is None:
                server, raw = found[0].router.server_of(*found)
                plan = self._context.servers.get(server)
            if plan is not None:
                refuse_forbidden(plan, frame.method, raw, opening.grants)
            if self._responder.telemetry is not None:
                self._responder.telemetry.begin_again(found[1], frame.params, key.channel)
            self._resume(*found, claims, frame, request, reply, token_raw, headers)
        elif is_retry and not self._replays.may_repeat(audience_of(opening), frame.method, raw):
            if plan is not None:
                refuse_forbidden(plan, frame.method, raw, opening.grants)
            known = self._find_session(self._affinity_of(opening, key, request, None)[0], opening.server)
            self._answer_lost(frame, reply, None if known is None else known.greeting)
            return None
        else:
            found = self._begin(opening, key, frame, request, reply, token_raw, headers, mirrored, claims, is_allowed)
        session, exchange = found
        if pipe_requests is not None and not exchange.is_over:
            assert id_key is not None
            pipe_requests.add(id_key, session, exchange)
        return session, exchange

    def _named_tasks(self, frame: Frame) -> Iterable[str]:
        """Returns the tasks that a request is about. The replica of one of them is to answer it.

        Raises:
            RemoteProtocolError: what it listens to cannot be read.
        """
        if frame.method == "subscriptions/listen":
            limit = self._context.limits.subscriptions_per_session_max
            return sorted(parse_filter(frame.params, names_max=limit).tasks)
        assert frame.method is not None
        return [task_id(frame.params) or ""] if frame.method.startswith("tasks/") else ()

    def _read_state(self, opening: Opening, frame: Frame) -> Claims | None:
        """Returns the content of a `requestState` of ours; None if there is none, or if it is the server's own.

        Raises:
            InvalidRequestState: it is ours and not valid for this request.
        """
        if frame.method not in MAY_ASK or frame.params is None or b"requestState" not in outline_of(frame.params):
            return None
        text = envelope.text_of(envelope.member_of(frame.params, "requestState"))
        if text is None or not is_ours(text):
            return None
        try:
            return self._signer.open(
                text,
                now_unix=self._context.now_unix,
                server=opening.server,
                principal=opening.principal,
                method=frame.method,
                params=frame.params,
            )
        except InvalidRequestState as error:
            server_era = self._server_eras.get(opening.server)
            if server_era is None or server_era.speaks(Era.STATELESS, self._context.now):
                return None  # the server may run behind a proxy of this kind, whose state it is
            self._context.note("info", f"requestState refused: {error.reason.value}", opening.server)
            raise

    def _answer_lost(self, frame: Frame, reply: Reply, greeting: bytes | None) -> None:
        """Answers a retry whose call is lost. It is not called a second time, since it may have had effects. Of the
        calls that can be suspended, only those of tools have effects."""
        assert frame.id_raw is not None
        assert frame.method == "tools/call"
        text = "the call was lost while it waited for answers. It is not repeated, for it may have had effects"
        result = named(complete(tool_error(text)), server_info_of(greeting))
        self._responder.answer_at_once(reply, envelope.encode_result(frame.id_raw, result))

    def _resume(
        self,
        session: Session,
        exchange: Exchange,
        claims: Claims,
        frame: Frame,
        request: RequestMeta,
        reply: Reply,
        token_raw: bytes | None,
        headers: Headers,
    ) -> None:
        assert frame.id_raw is not None
        id_key = envelope.id_key(frame.id_raw)
        assert id_key is not None
        responses = input_requests.read_responses(frame.params)
        fingerprint(request.capabilities)  # for its exception: capabilities with a member twice are refused
        if exchange.suspended_call is not None:
            exchange.suspended_call.check_round(claims.round)
        before = exchange.continue_in(reply, frame.id_raw, id_key)
        reply.expect()
        try:
            outcome = self._suspended_calls.resume(
                session, exchange, claims.round, responses, request, token_raw, headers or session.headers
            )
        except RemoteProtocolError:
            exchange.continue_in(*before)
            raise
        self._responder.touch(session)
        if outcome is not None:
            self._replies.answer_request(session, exchange, outcome)
            self._replies.receive_settled(session)
            return
        session.router.expect_reply(session, exchange)
        self._suspended_calls.go_on(session, exchange)

    def _begin(
        self,
        opening: Opening,
        key: ExchangeKey,
        frame: Frame,
        request: RequestMeta,
        reply: Reply,
        token_raw: bytes | None,
        headers: Headers,
        mirrored: Headers,
        claims: Claims | None,
        is_allowed: bool,
    ) -> tuple[Session, Exchange]:
        assert frame.id_raw is not None
        assert frame.method is not None
        id_key = envelope.id_key(frame.id_raw)
        assert id_key is not None
        if self._context.is_draining and not is_allowed:
            raise RemoteProtocolError(SHUTTING_DOWN, rpc_code=OVERLOADED, http_status=503)
        params = frame.params
        responses: Mapping[str, bytes] = {}
        if claims is not None:
            assert params is not None
            responses = input_requests.read_responses(params)
            params = remove_members(params, input_requests.RETRIED)
        session = self._session_for(opening, key, request, params)
        params = self._handles.strip(session, params)
        self._check_room(session, opening)
        exchange = Exchange(
            key,
            reply,
            sid=session.sid,
            id_raw=frame.id_raw,
            id_key=id_key,
            method=frame.method,
            params=params,
            token_raw=token_raw,
            headers=headers,
            request=request,
            mirrored=mirrored,
            known=answers(claims, responses) if claims is not None and claims.kind is ClaimsKind.PARK else None,
        )
        if not session.has_room_for(exchange):
            raise RemoteProtocolError(NO_MEMORY, rpc_code=OVERLOADED, http_status=503)
        telemetry = self._responder.telemetry
        if telemetry is not None:
            telemetry.begin(session, exchange)
        session.add(exchange)
        session.receive_headers(headers)
        self._responder.touch(session)
        try:
            self._send_on(session, exchange, claims, responses)
        except RemoteProtocolError as error:  # refused: the exchange must leave no trace
            session.remove(exchange)
            if telemetry is not None:
                telemetry.end_with_error(session, exchange, error.rpc_code)
            self._replies.receive_settled(session)
            raise
        if isinstance(opening, PostOpening) and claims is None:
            self.known.add(opening, session, request, frame.params)
        return session, exchange

    def _check_room(self, session: Session, opening: Opening) -> None:
        limit = self._context.limits.exchanges_per_session_max
        if session.in_flight >= limit:
            text = f"{limit} requests are open, the most a client may have"
            raise RemoteProtocolError(text, rpc_code=OVERLOADED, http_status=503)
        most = self._context.limits.calls_per_owner_max
        fault = self._sessions.no_room_for_call(session.use) if session.use.calls >= most else None
        if fault is not None:
            raise RemoteProtocolError(fault, rpc_code=OVERLOADED, http_status=503)
        if isinstance(opening, PostOpening) and not session.router.has_room(session):
            text = "too much was sent that is not taken yet: wait, and try again"
            raise RemoteProtocolError(text, rpc_code=OVERLOADED, http_status=503)

    def _send_on(
        self, session: Session, exchange: Exchange, claims: Claims | None, responses: Mapping[str, bytes]
    ) -> None:
        if claims is not None and claims.kind is ClaimsKind.URL:
            self._url_elicitation.resume(session, exchange, claims, responses)
            return
        if claims is not None and claims.kind is ClaimsKind.DEFER:
            self._deferred_questions.resume(session, claims, responses)
        elif self._deferred_questions.ask_first(session, exchange):
            return
        session.router.request(session, exchange)

    def mirrors_for(self, opening: PostOpening, frame: Frame) -> Sequence[Mirror] | None:
        """Returns the arguments of the called tool that must be repeated in headers; None if the client was not told of
        the tool."""
        if frame.method != "tools/call":
            return ()
        plan, raw = self._context.servers.get(opening.server), frame.params  # None: it is a profile
        if plan is not None and plan.shown.overrides:
            raw = raw_params(plan, frame.method, frame.params)
        tool = envelope.text_of(envelope.member_of(raw, "name"))
        known = self._advertised.of(audience_of(opening))
        return None if known is None or tool is None else known.get(tool, ())

    # --- Cancellation -----------------------------------------------------------------------------------------------

    def hang_up(self, session: Session, exchange: Exchange, reply: Reply) -> None:
        """Handles the loss of the connection of a request: that cancels it (2026-07-28 basic/patterns/cancellation)."""
        if exchange.reply is reply and not exchange.is_over:
            reason = b'{"requestId":0,"reason":"the client closed the stream"}'
            self._responder.cancel(session, exchange, reason, session.headers)
        elif exchange.keeper is not None:
            exchange.keeper.hang_up(session, exchange, reply)

    def receive_cancel(self, pipe_requests: PipeRequests, frame: Frame, headers: Headers) -> None:
        """Handles `notifications/cancelled` on a pipe. Unknown and ended requests are ignored."""
        try:
            id_raw = envelope.member_of(frame.params, "requestId")
        except RemoteProtocolError:
            return
        found = pipe_requests.find(None if id_raw is None else envelope.id_key(id_raw))
        if found is not None and frame.params is not None:
            session, exchange = found
            params = request_meta.strip(frame.params)
            assert params is not None
            self._responder.cancel(session, exchange, params, headers)

    def receive_notification(self, channel: ChannelId, frame: Frame, headers: Headers) -> None:
        """Passes a vendor's notification on a pipe on to the servers of its client."""
        assert frame.method is not None
        for session in self._by_affinity.of_group(channel):
            session.router.notify(session, frame.method, request_meta.strip(frame.params), headers)

    def close_pipe(self, channel: ChannelId, pipe_requests: PipeRequests) -> None:
        """Handles the end of a pipe and of all clients on it.

        The calls whose current request came on the pipe are cancelled, wherever they began. Calls that began on the
        pipe and continue elsewhere fail with an error.
        """
        for session, exchange in pipe_requests.take_all():
            if exchange.reply.stream.channel == channel:
                self.hang_up(session, exchange, exchange.reply)
        for session in self._by_affinity.of_group(channel):
            why = "the connection that the call began on is gone"
            self._sessions.close_session(session, why, cut_off_code=UPSTREAM_UNAVAILABLE)

    # --- Sessions ---------------------------------------------------------------------------------------------------

    def _session_for(self, opening: Opening, key: ExchangeKey, request: RequestMeta, params: bytes | None) -> Session:
        affinity, handle = self._affinity_of(opening, key, request, params)
        session = self._find_session(affinity, opening.server)
        if session is None and handle not in (None, NEW):
            raise InvalidAffinity
        session = session or self._open_session(opening, affinity, request)
        if handle is not None:
            self._handles.claim(session)
        return session

    def _open_session(self, opening: Opening, affinity: Affinities, request: RequestMeta) -> Session:
        fault = self._sessions.no_room(opening.owner)
        if fault is not None:
            raise RemoteProtocolError(fault, rpc_code=OVERLOADED, http_status=503)
        affinity = merged_affinity(affinity) if self.known.says_all(opening.server) else affinity
        router = self._router_of(opening.server)
        session = self._sessions.open_stateless(opening, affinity, request, router=router, replies=self._replies)
        self._by_affinity.add(session)
        router.begin_stateless(session)
        return session

    def _find_session(self, affinity: Affinities, server: str) -> Session | None:
        if self.known.says_all(server):
            return self._by_affinity.find_merged(affinity)
        return self._by_affinity.find(affinity)

    def _affinity_of(
        self, opening: Opening, key: ExchangeKey, request: RequestMeta, params: bytes | None
    ) -> tuple[Affinities, str | None]:
        """Returns the properties by which the session of a request is found, and what `AffinityHandles.read` found."""
        group = 0 if isinstance(opening, PostOpening) else key.channel
        abilities = fingerprint(request.capabilities)  # raises if no handshake could be made with them
        audience = audience_of(opening)
        affinity = Affinities(opening.server, opening.principal, abilities, group, audience.headers)
        if not isinstance(opening, PostOpening) or self._context.plan.affinity is not Affinity.REQUEST:
            return affinity, None
        handle = self._handles.read(opening, params, is_stateless=self.known.says_all(opening.server))
        if handle in (None, NEW):
            return affinity._replace(group=key.channel, is_for_one=True), handle
        return affinity_of_handle(affinity, handle), handle


def complete(result: bytes) -> bytes:
    """Returns a result of ours with the `resultType` that clients without sessions expect."""
    return b'{"resultType":"complete",' + result.lstrip()[1:]
