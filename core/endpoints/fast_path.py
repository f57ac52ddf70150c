"""The fast path of plain calls: from a client's POST to its server in one step, and back in another.

A plain call is one that `fast_path_rules` or `fast_path_eras` can send without consulting the other parts. The steps
here skip the routing of sessions, the era adapter, the task rules, the dispatcher and the responder's bookkeeping.
Anything unusual about the call, its session, its headers or its response makes a method return False before it has
changed anything, and the message goes the ordinary way. Both ways have the same effects in the same order;
`tests/core/engine/test_fast_path.py` compares them.
"""

from __future__ import annotations

from typing import Final

from ..base.budget import UNCOUNTED_MAX_BYTES
from ..base.errors import RemoteProtocolError
from ..base.events import Cause, Connected, End, PostOpening
from ..base.ids import ChannelId
from ..bridge.content import TRACE
from ..bridge.request_meta import RequestMeta
from ..downstream.downstream import Downstream
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import Outlined, compact_members
from ..routing.fast_path_rules import METHODS
from ..routing.router import Router
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeKey, Reply
from ..state.link import Link, StatelessParams
from ..state.ports import PlainWay
from ..state.session import REQUEST_BYTES, Session, SessionState
from ..state.stream import Stream
from ..state.upstream_channels import DuplexRole, UpstreamPostRole
from ..state.upstream_session import UpstreamSessionState
from ..upstream.upstream import Upstream
from ..wire.http.mcp_headers import named
from .channels import PostRole
from .known_clients import KnownClient, KnownClients

ANSWERING_ROLES: Final = (DuplexRole, UpstreamPostRole)
"""Roles of the channels that responses to calls come on."""
_METHOD: Final = b'"method"'
_METHOD_WITHIN: Final = 80
"""Bytes within which nearly all requests and notifications name their `method`. They are no responses, so the fast path
does not parse them."""


class FastPath:
    """The fast path. Each method returns True if it handled the message completely; else it has changed nothing."""

    def __init__(
        self,
        context: Context,
        downstream: Downstream,
        upstream: Upstream,
        router: Router,
        known: KnownClients | None,
    ) -> None:
        self._context = context
        self._sessions = downstream.sessions.sessions
        self._responder = downstream.responder
        self._telemetry = downstream.responder.telemetry
        self._streams = downstream.streams
        self._known = known
        self._sampler = None if context.tracer is None else context.tracer.sampler
        self._writer = upstream.writer
        self._health = upstream.handshaker.health
        self._passing = router.passthrough

    # --- Up ---------------------------------------------------------------------------------------------------------

    def receive_call(self, role: PostRole, channel: ChannelId, frame: Frame) -> bool:
        """Handles a message that a POST brought."""
        if frame.method not in METHODS or frame.id_raw is None:
            return False
        opening, params = role.opening, frame.params
        sampler = self._sampler
        if sampler is not None and (
            opening.trace_context or (not sampler.skip and sampler.takes_next(self._context.now))
        ):
            return False
        if opening.session is None:
            return params is not None and self._receive_stateless(role, channel, frame, params)
        # The params may hold a progress token, an instruction about tasks or the client's description of itself. JSON
        # escapes could hide each of them, so they count as well.
        if params is not None:
            words = params.outline if isinstance(params, Outlined) else params
            if b"_meta" in words or b"task" in words or b"\\" in words:
                return False
        session = self._sessions.get(opening.session)
        if session is None or session.state is not SessionState.READY or session.affinity is not None:
            return False
        features = session.features
        if (
            opening.revision != features.revision
            or opening.server != session.server
            or opening.principal != session.principal
        ):
            return False
        way = session.router.plain_way(session, frame.method, params, None) if self._has_room(session, params) else None
        if way is None:
            return False
        can_stream = opening.accepts_events
        stream = Stream(channel, may_resume=can_stream and features.event_ids)
        role.answer_on(stream)
        reply = Reply(stream, ends_channel=True, can_stream=can_stream)
        self._streams.expect(session, reply)
        self._go_up(way, session, channel, reply, frame, opening)
        return True

    def _receive_stateless(self, role: PostRole, channel: ChannelId, frame: Frame, params: bytes) -> bool:
        opening = role.opening
        known, said = (None, None) if self._known is None else self._look_at(self._known, opening, frame, params)
        if known is None or said is None:
            return False
        session = known.session
        assert frame.method is not None
        way = session.router.plain_way(session, frame.method, params, said) if self._has_room(session, params) else None
        if way is None:
            return False
        reply = Reply(Stream(channel), ends_channel=True, can_stream=opening.accepts_events)
        self._responder.touch(session)
        exchange = self._go_up(way, session, channel, reply, frame, opening, known.request)
        role.receive_request(session, exchange, reply)
        return True

    def _look_at(
        self, clients: KnownClients, opening: PostOpening, frame: Frame, params: bytes
    ) -> tuple[KnownClient, StatelessParams] | tuple[None, None]:
        """Returns the known client that sent a request, and its parsed params; (None, None) if the client is not known,
        the request is unusual, or its headers do not agree with it."""
        spans = None if _goes_on(params) else compact_members(params)
        if spans is None or "_meta" not in spans:
            return None, None
        known = clients.find(opening, params[spans["_meta"]])
        if known is None or opening.revision != known.request.revision:
            return None, None
        assert frame.method is not None
        what = named(frame.method, params, spans)
        if what is None or opening.mirrored != what.headers or clients.has_mirrors(known, what.name):
            return None, None
        return known, StatelessParams(params, spans, what, known.rest)

    def _has_room(self, session: Session, params: bytes | None) -> bool:
        context = self._context
        if context.is_draining:
            return False
        if len(session.exchanges) - session.adopted + session.passing >= context.limits.exchanges_per_session_max:
            return False
        if session.use.is_bounded and session.use.calls >= context.limits.calls_per_owner_max:
            return False
        return (
            params is None or len(params) <= UNCOUNTED_MAX_BYTES or session.room.has_room(len(params) + REQUEST_BYTES)
        )

    def _go_up(
        self,
        way: PlainWay,
        session: Session,
        channel: ChannelId,
        reply: Reply,
        frame: Frame,
        opening: PostOpening,
        request: RequestMeta | None = None,
    ) -> Exchange:
        assert frame.id_raw is not None
        assert frame.method is not None
        id_key = envelope.id_key(frame.id_raw)
        assert id_key is not None
        exchange = Exchange(
            ExchangeKey(channel, 0),
            reply,
            sid=session.sid,
            id_raw=frame.id_raw,
            id_key=id_key,
            method=frame.method,
            params=frame.params,
            headers=opening.headers,
            request=request,
            plain=way.plain,
        )
        if self._telemetry is not None:
            self._telemetry.begin(session, exchange, is_plain=True)
        session.add(exchange, opening.headers)
        way.send(exchange)
        return exchange

    # --- Down -------------------------------------------------------------------------------------------------------

    def receive_reply(self, channel: ChannelId, opening: Connected, message: bytes, cause: Cause) -> bool:
        """Handles a server's whole response to a POST, whose channel ends with it."""
        context = self._context
        role = context.role_if_open(channel)
        if not isinstance(role, UpstreamPostRole) or cause.end is not End.DONE or cause.cookies or opening.cookies:
            return False
        link, number = role.link, role.number
        exchange = None if number is None else link.pending.get(number)
        if number is None or not isinstance(exchange, Exchange) or not _may_come_down(link, exchange):
            return False
        if len(message) > context.limits.outbox_low_bytes:
            return False
        session = link.sessions[exchange.sid]
        result: bytes | None = None
        pieces: tuple[bytes, ...] | None = None
        if len(message) < envelope.LARGE_BYTES:
            try:
                frame = envelope.decode(message)
            except RemoteProtocolError:
                return False
            if frame.id_raw is None or envelope.number_of(frame.id_raw) != number:
                return False
            result = _result_in(frame, link, session, exchange)
        elif exchange.is_plain:
            pieces = self._passing.read(link, number, message)
        if result is None and pieces is None:
            return False
        context.release(channel)
        self._take_in(link, session, exchange, number, channel)
        if self._telemetry is not None:
            if pieces is not None:
                self._telemetry.end_unread(session, exchange, sum(map(len, pieces)) - 1)
            elif result is not None:
                self._telemetry.end_with_result(
                    session, exchange, result if session.replies is None else frame.result or result
                )
        if pieces is not None:
            self._responder.pass_answer(exchange, pieces)
        elif result is not None:
            self._responder.close(session, exchange.reply, envelope.encode_result(exchange.id_raw, result))
        return True

    def receive_answer(self, role: DuplexRole | UpstreamPostRole, channel: ChannelId, message: bytes) -> bool:
        """Handles one message on a channel to a server that goes on."""
        if role.is_ending or len(message) >= envelope.LARGE_BYTES or _METHOD in message[:_METHOD_WITHIN]:
            return False
        link = role.link
        if isinstance(role, DuplexRole) and link.channel != channel:
            return False
        try:
            frame = envelope.decode(message)
        except RemoteProtocolError:
            return False
        number = None if frame.id_raw is None else envelope.number_of(frame.id_raw)
        exchange = None if number is None else link.pending.get(number)
        if number is None or not isinstance(exchange, Exchange) or not _may_come_down(link, exchange):
            return False
        if isinstance(role, UpstreamPostRole) and (role.number != number or role.partial_answer is not None):
            return False
        session = link.sessions[exchange.sid]
        result = _result_in(frame, link, session, exchange)
        if result is None:
            return False
        if isinstance(role, UpstreamPostRole):
            role.receive_message()
            self._writer.receive_settled(role)
        self._take_in(link, session, exchange, number)
        if self._telemetry is not None:
            self._telemetry.end_with_result(
                session, exchange, result if session.replies is None else frame.result or result
            )
        self._responder.close(session, exchange.reply, envelope.encode_result(exchange.id_raw, result))
        return True

    def _take_in(
        self, link: Link, session: Session, exchange: Exchange, number: int, post: ChannelId | None = None
    ) -> None:
        """Ends the call, whose response is here, with the end of its `post` if that ended too."""
        if self._telemetry is not None:
            self._telemetry.receive_answer(link.plan.id, exchange)
        link.receive_answer(number, post)
        if exchange.token_raw is not None:
            link.remember_token(number, exchange)
        self._context.timers.cancel(("reply", (exchange.sid, exchange.key)))
        health = self._health[link.plan.id]
        if health.in_a_row:
            health.receive_proof()
        exchange.settle()
        session.remove(exchange)
        self._responder.touch(session)


def _may_come_down(link: Link, exchange: Exchange) -> bool:
    """True if the call's link has nothing else to do first, and nothing about the call is unusual: no questions, no
    tasks, no missing capability."""
    if link.upstream.state is not UpstreamSessionState.READY or link.leaving or link.cut or link.parting or link.queue:
        return False
    return exchange.is_plain or (
        exchange.is_plainly_translated
        and exchange.suspended_call is None
        and exchange.lacking is None
        and exchange.round is None
        and exchange.keeper is None
        and exchange.upstream_task is None
        and not exchange.is_augmented
    )


def _result_in(frame: Frame, link: Link, session: Session, exchange: Exchange) -> bytes | None:
    """Returns the JSON of the result for the client; None if the message is no result, or needs more than one step."""
    if frame.result is None:
        return None
    if exchange.is_plain:
        return frame.result if link.is_plain and exchange.lacking is None and TRACE not in frame.result else None
    return None if link.translation is None else link.translation.down(link, session, exchange, frame.result)


def _goes_on(params: bytes) -> bool:
    """True if the params of a client without sessions may hold a progress token, an instruction about tasks or the
    state of an earlier round. JSON escapes could hide each of them, so they count as well."""
    words = params.outline if isinstance(params, Outlined) else params
    return (
        b"progressToken" in words
        or b"requestState" in words
        or b"inputResponses" in words
        or b"task" in words
        or b"\\" in words
    )
