"""The short way of a plain call: from a client's POST to its server, and back, in two steps.

Whatever is unusual about the call, its session or its answer goes the long way, through all who may have a say. Taking
it where the short one will do comes to the same.
"""

from __future__ import annotations

from . import jsonrpc
from .clients import Clients
from .courier import Courier
from .desk import Desk
from .effects import Cause, Connected, End
from .errors import RemoteProtocolError
from .exchange import Exchange, ExchangeKey, Reply
from .exchange import Input as ExchangeInput
from .ids import ChannelId
from .jsonrpc import Frame
from .links import Link, UpPostRole
from .plain import METHODS, may_come_down
from .roles import PostRole
from .servers import Servers
from .session import State as SessionState
from .stream import Stream
from .streams import Streams
from .upstream import State


class ShortWay:
    """Each method returns whether it did all that there is to do; if not, it has done nothing."""

    def __init__(self, desk: Desk, clients: Clients, courier: Courier, streams: Streams, servers: Servers) -> None:
        self._desk = desk
        self._sessions = clients.sessions
        self._courier = courier
        self._streams = streams
        self._uplink = servers.uplink
        self._links = servers.by_sid
        self._health = servers.handshakes.health
        self._passing = servers.passing

    def receive_call(self, role: PostRole, channel: ChannelId, frame: Frame) -> bool:
        """A POST brought this message."""
        opening, params, id_raw = role.opening, frame.params, frame.id_raw
        method = frame.method
        if method not in METHODS or id_raw is None or (params is not None and _wants_more(params)):
            return False
        session = self._sessions.get(opening.session or "")
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
        desk = self._desk
        if (
            link is None
            or not link.is_plain
            or link.upstream.state is not State.READY
            or len(session.exchanges) + session.passing >= desk.limits.exchanges_per_session_max
            or desk.is_draining
            or (link.is_pipe and (link.plan.idle_stop_s is not None or not self._has_room(link)))
        ):
            return False
        id_key = jsonrpc.id_key(id_raw)
        assert id_key is not None and method is not None
        session.receive_headers(opening.headers)
        can_stream = opening.accepts_events
        role.stream = stream = Stream(channel, may_resume=can_stream and features.event_ids)
        reply = Reply(stream, ends_channel=True, can_stream=can_stream)
        self._streams.expect(session, reply)
        key = ExchangeKey(channel, 0)
        exchange = Exchange(
            key,
            reply,
            sid=session.sid,
            id_raw=id_raw,
            id_key=id_key,
            method=method,
            params=params,
            token_raw=None,
            headers=opening.headers,
        )
        exchange.is_plain = True
        session.exchanges[key] = exchange
        exchange.step(ExchangeInput.PREPARED)
        self._uplink.write(link, exchange, params)
        return True

    def _has_room(self, link: Link) -> bool:
        return self._desk.unsent_bytes(link.channel) <= self._desk.limits.outbox_low_bytes

    def receive_reply(self, channel: ChannelId, opening: Connected, message: bytes, cause: Cause) -> bool:
        """A server's response was this, whole, and its channel is gone."""
        desk = self._desk
        role = desk.role_if_open(channel)
        if not isinstance(role, UpPostRole) or cause.end is not End.DONE or cause.cookies or opening.cookies:
            return False
        link, number = role.link, role.number
        exchange = None if number is None else link.pending.get(number)
        if not isinstance(exchange, Exchange) or not exchange.is_plain or link.cut or link.parting or link.queue:
            return False
        if link.upstream.state is not State.READY or link.leaving or len(message) > desk.limits.outbox_low_bytes:
            return False
        assert number is not None
        result: bytes | None = None
        pieces: tuple[bytes, ...] | None = None
        if len(message) < jsonrpc.LARGE_BYTES:
            result = _result_in(message, link, exchange, number)
        else:
            pieces = self._passing.read(link, number, message)
        if result is None and pieces is None:
            return False
        desk.release(channel)
        del link.pending[number]
        link.posts.discard(channel)
        self._uplink.expect_none(exchange)
        link.upstream.receive_proof()
        self._health[link.plan.id].receive_proof()
        exchange.step(ExchangeInput.REPLY)
        session = link.sessions[exchange.sid]
        if result is not None:
            self._courier.answer(session, exchange, jsonrpc.encode_result(exchange.id_raw, result))
        elif pieces is not None:
            self._courier.pass_answer(session, exchange, pieces)
        return True


def _result_in(message: bytes, link: Link, exchange: Exchange, number: int) -> bytes | None:
    """The JSON of the result that answers the call, if that is what the message is, and it may come down as it is."""
    try:
        frame = jsonrpc.decode(message)
    except RemoteProtocolError:
        return None
    if frame.id_raw is None or jsonrpc.number_of(frame.id_raw) != number or not may_come_down(link, exchange, frame):
        return None
    return frame.result


def _wants_more(params: bytes) -> bool:
    """Whether these may hold a token, a wish or what a sender says of itself. Escapes may hide each of them."""
    return b"_meta" in params or b"task" in params or b"\\" in params
