"""The short way of a plain call: from a client's POST to its server, and back, in two steps.

Whatever is unusual about the call, its session or its answer goes the long way, through all who may have a say. Taking
it where the short one will do comes to the same.
"""

from __future__ import annotations

from typing import Final

from ..base.effects import Cause, Connected, End, PostOpening
from ..base.errors import RemoteProtocolError
from ..base.ids import ChannelId
from ..bridge.content import TRACE
from ..downstream.event_streams import Streams
from ..downstream.responder import Courier
from ..downstream.sessions import Clients
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import compact_members
from ..routing.fast_path_rules import METHODS
from ..routing.router import Servers
from ..state.context import Desk
from ..state.exchange import NO_WISH, Exchange, ExchangeKey, Reply
from ..state.exchange import Input as ExchangeInput
from ..state.link import ChildRole, Crossed, Link, Said, UpPostRole
from ..state.session import Session
from ..state.session import State as SessionState
from ..state.stream import Stream
from ..state.upstream_session import State
from ..wire.http.mcp_headers import named
from .channels import PostRole
from .known_clients import Acquaintance, Acquaintances

UP_ROLES: Final = (ChildRole, UpPostRole)
_METHOD: Final = b'"method"'
_METHOD_WITHIN: Final = 80
"""Where it stands in nearly all messages that have one: they are no answers, and need not be read to know."""


class ShortWay:
    """Each method returns whether it did all that there is to do; if not, it has done nothing."""

    def __init__(
        self, desk: Desk, clients: Clients, courier: Courier, streams: Streams, known: Acquaintances, servers: Servers
    ) -> None:
        self._desk = desk
        self._sessions = clients.sessions
        self._courier = courier
        self._streams = streams
        self._known = known
        self._uplink = servers.uplink
        self._links = servers.by_sid
        self._health = servers.handshakes.health
        self._passing = servers.passing

    # --- Up ---------------------------------------------------------------------------------------------------------

    def receive_call(self, role: PostRole, channel: ChannelId, frame: Frame) -> bool:
        """A POST brought this message."""
        if frame.method not in METHODS or frame.id_raw is None:
            return False
        opening, params = role.opening, frame.params
        if opening.session is None:
            return params is not None and self._receive_stateless(role, channel, frame, params)
        if params is not None and _wants_more(params):
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
        link = self._links.get(session.sid)
        if link is None or not self._may_go_up(link, session):
            return False
        crossed = Crossed(params) if link.is_plain else _cross(link, session, frame, None)
        if crossed is None:
            return False
        can_stream = opening.accepts_events
        role.stream = stream = Stream(channel, may_resume=can_stream and features.event_ids)
        reply = Reply(stream, ends_channel=True, can_stream=can_stream)
        self._streams.expect(session, reply)
        self._go_up(link, session, channel, reply, frame, opening, crossed)
        return True

    def _receive_stateless(self, role: PostRole, channel: ChannelId, frame: Frame, params: bytes) -> bool:
        opening = role.opening
        known, said = self._look_at(opening, frame, params)
        if known is None or said is None:
            return False
        session = known.session
        link = self._links.get(session.sid)
        if link is None or not self._may_go_up(link, session):
            return False
        crossed = _cross(link, session, frame, said)
        if crossed is None:
            return False
        reply = Reply(Stream(channel), ends_channel=True, can_stream=opening.accepts_events)
        self._courier.touch(session)
        exchange = self._go_up(link, session, channel, reply, frame, opening, crossed)
        exchange.leg = known.leg
        role.leg = session, exchange, reply
        return True

    def _look_at(
        self, opening: PostOpening, frame: Frame, params: bytes
    ) -> tuple[Acquaintance, Said] | tuple[None, None]:
        """Who says this, and what, if it is somebody known, and its headers say the same."""
        spans = None if _goes_on(params) else compact_members(params)
        if spans is None or "_meta" not in spans:
            return None, None
        known = self._known.find(opening, params[spans["_meta"]])
        if known is None or opening.revision != known.leg.revision:
            return None, None
        assert frame.method is not None
        what = named(frame.method, params, spans)
        if what is None or opening.mirrored != what.headers or self._known.has_mirrors(known, what.name):
            return None, None
        return known, Said(params, spans, what, known.rest)

    def _may_go_up(self, link: Link, session: Session) -> bool:
        desk = self._desk
        if link.upstream.state is not State.READY or desk.is_draining:
            return False
        if len(session.exchanges) - session.adopted + session.passing >= desk.limits.exchanges_per_session_max:
            return False
        return not link.is_pipe or (link.plan.idle_stop_s is None and self._has_room(link))

    def _has_room(self, link: Link) -> bool:
        return self._desk.unsent_bytes(link.channel) <= self._desk.limits.outbox_low_bytes

    def _go_up(
        self,
        link: Link,
        session: Session,
        channel: ChannelId,
        reply: Reply,
        frame: Frame,
        opening: PostOpening,
        crossed: Crossed,
    ) -> Exchange:
        assert frame.id_raw is not None
        assert frame.method is not None
        id_key = envelope.id_key(frame.id_raw)
        assert id_key is not None
        session.receive_headers(opening.headers)
        key = ExchangeKey(channel, 0)
        exchange = session.exchanges[key] = Exchange(
            key,
            reply,
            sid=session.sid,
            id_raw=frame.id_raw,
            id_key=id_key,
            method=frame.method,
            params=frame.params,
            token_raw=None,
            headers=opening.headers,
        )
        if link.is_plain:
            exchange.is_plain = True
        else:
            exchange.is_ferried = True
        exchange.step(ExchangeInput.PREPARED)
        self._uplink.write(link, exchange, crossed.params, crossed.mirrored)
        return exchange

    # --- Down -------------------------------------------------------------------------------------------------------

    def receive_reply(self, channel: ChannelId, opening: Connected, message: bytes, cause: Cause) -> bool:
        """A server's response was this, whole, and its channel is gone."""
        desk = self._desk
        role = desk.role_if_open(channel)
        if not isinstance(role, UpPostRole) or cause.end is not End.DONE or cause.cookies or opening.cookies:
            return False
        link, number = role.link, role.number
        exchange = None if number is None else link.pending.get(number)
        if number is None or not isinstance(exchange, Exchange) or not _may_come_down(link, exchange):
            return False
        if len(message) > desk.limits.outbox_low_bytes:
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
        desk.release(channel)
        link.posts.pop(channel, None)
        self._take_in(link, exchange, number)
        if pieces is not None:
            self._courier.pass_answer(session, exchange, pieces)
        elif result is not None:
            self._courier.answer_plainly(session, exchange, envelope.encode_result(exchange.id_raw, result))
        return True

    def receive_answer(self, channel: ChannelId, message: bytes) -> bool:
        """One message came on a channel to a server, which goes on."""
        if len(message) >= envelope.LARGE_BYTES or _METHOD in message[:_METHOD_WITHIN]:
            return False
        role = self._desk.role_if_open(channel)
        if not isinstance(role, UP_ROLES) or (isinstance(role, ChildRole) and role.link.channel != channel):
            return False
        link = role.link
        try:
            frame = envelope.decode(message)
        except RemoteProtocolError:
            return False
        number = None if frame.id_raw is None else envelope.number_of(frame.id_raw)
        exchange = None if number is None else link.pending.get(number)
        if number is None or not isinstance(exchange, Exchange) or not _may_come_down(link, exchange):
            return False
        if isinstance(role, UpPostRole) and (role.number != number or role.passage is not None):
            return False
        session = link.sessions[exchange.sid]
        result = _result_in(frame, link, session, exchange)
        if result is None:
            return False
        if isinstance(role, UpPostRole):
            role.has_spoken = True
            self._uplink.receive_settled(role)
        self._take_in(link, exchange, number)
        self._courier.answer_plainly(session, exchange, envelope.encode_result(exchange.id_raw, result))
        return True

    def _take_in(self, link: Link, exchange: Exchange, number: int) -> None:
        """The server has answered."""
        del link.pending[number]
        self._uplink.expect_none(exchange)
        link.upstream.receive_proof()
        self._health[link.plan.id].receive_proof()
        exchange.step(ExchangeInput.REPLY)


def _cross(link: Link, session: Session, frame: Frame, said: Said | None) -> Crossed | None:
    assert frame.method is not None
    return None if link.ferry is None else link.ferry.up(link, session, frame.method, frame.params, said)


def _may_come_down(link: Link, exchange: Exchange) -> bool:
    """Whether nothing stands between an answer and its client, and nothing has come of the request meanwhile."""
    if link.upstream.state is not State.READY or link.leaving or link.cut or link.parting or link.queue:
        return False
    return exchange.is_plain or (
        exchange.is_ferried
        and exchange.park is None
        and exchange.lacking is None
        and exchange.round is None
        and exchange.task is None
        and exchange.remote is None
        and exchange.awaits is None
        and exchange.wish is NO_WISH
        and not exchange.is_augmented
    )


def _result_in(frame: Frame, link: Link, session: Session, exchange: Exchange) -> bytes | None:
    """The JSON of the result that answers the call, as its client is to read it, if that is what the message is."""
    if frame.result is None:
        return None
    if exchange.is_plain:
        return frame.result if link.is_plain and exchange.lacking is None and TRACE not in frame.result else None
    return None if link.ferry is None else link.ferry.down(link, session, exchange, frame.result)


def _wants_more(params: bytes) -> bool:
    """Whether these may hold a token, a wish or what a sender says of itself. Escapes may hide each of them."""
    return b"_meta" in params or b"task" in params or b"\\" in params


def _goes_on(params: bytes) -> bool:
    """Likewise of a client that says with each request who it is: a token, a wish, or what came before."""
    return (
        b"progressToken" in params
        or b"requestState" in params
        or b"inputResponses" in params
        or b"task" in params
        or b"\\" in params
    )
