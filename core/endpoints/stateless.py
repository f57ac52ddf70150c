"""Clients without sessions: every request says who asks, in what revision, and what it can do.

Behind each there is a session all the same, one of ours, since servers may have none or many: requests that have the
principal, the abilities and the origin in common share it. It begins with the first of them and ends when it has been
idle; no client knows of it.

Source: 2026-07-28 basic/versioning, basic/transports, basic/patterns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from ..base.effects import EventPipeOpening, Headers, PipeOpening, PostOpening
from ..base.errors import METHOD_NOT_FOUND, OVERLOADED, UNSUPPORTED_VERSION, UPSTREAM_UNAVAILABLE, RemoteProtocolError
from ..base.ids import ChannelId
from ..base.methods import MAY_ASK
from ..base.plan import Affinity
from ..base.revisions import MODERN, Era, is_known_modern
from ..bridge import input_requests, request_meta
from ..bridge.capabilities import fingerprint
from ..bridge.content import tool_error
from ..bridge.discovery import server_info_of
from ..bridge.request_meta import Envelope
from ..bridge.request_state import Claims, Kind, Seal, Unsealed, is_ours
from ..bridge.results import named
from ..downstream.responder import Courier
from ..downstream.sessions import Clients
from ..input_required.replay import Replays, answers
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import remove_members
from ..state.context import Desk
from ..state.exchange import Exchange, ExchangeKey, Reply
from ..state.session import Affinities, Audience, Session
from ..upstream.era_detection import Verdict
from ..wire.http.param_headers import Mirror
from .known_clients import Acquaintances, audience_of
from .pipe_requests import Legs
from .stateless_responder import Legwork

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
"""Requests that 2026-07-28 has taken away (changelog); what stands in their place is no request, or another."""

RETRIED: Final = frozenset({"inputResponses", "requestState"})
"""What a request has when it comes again with answers."""


class HungUp(Protocol):
    """Calls that no request waits for any more."""

    def hang_up(self, session: Session, exchange: Exchange, reply: Reply) -> None: ...


class Stateless:
    """All requests of clients without sessions.

    Attributes:
        known: those that have spoken before.
    """

    def __init__(
        self,
        desk: Desk,
        courier: Courier,
        clients: Clients,
        legwork: Legwork,
        seal: Seal,
        verdicts: dict[str, Verdict],
        mirrors: Mapping[Audience, Mapping[str, tuple[Mirror, ...]]],
        replays: Replays,
    ) -> None:
        self._desk = desk
        self._courier = courier
        self._clients = clients
        self._parking = legwork.parking
        self._legwork = legwork
        self._visits = legwork.visits
        self._deferring = legwork.deferring
        self._seal = seal
        self._verdicts = verdicts
        self._mirrors = mirrors
        self._replays = replays
        self.tasks: HungUp
        self._by_affinity: dict[Affinities, Session] = {}
        self.known = Acquaintances(desk, verdicts, mirrors, legwork.deferring, self._by_affinity)

    # --- Requests ---------------------------------------------------------------------------------------------------

    def receive_request(
        self,
        opening: PostOpening | PipeOpening | EventPipeOpening,
        key: ExchangeKey,
        frame: Frame,
        reply: Reply,
        headers: Headers,
        *,
        mirrored: Headers = (),
        legs: Legs | None = None,
    ) -> tuple[Session, Exchange] | None:
        """One request.

        Args:
            opening: of the channel it came on.
            reply: what answers it.
            mirrored: what of it was said in headers, which agree with it.
            legs: the other requests of its pipe.

        Returns:
            The call that it is a leg of, unless it is answered already.

        Raises:
            RemoteProtocolError: it is refused, with the HTTP status to say. Nothing has changed.
        """
        assert frame.id_raw is not None
        assert frame.method is not None
        leg = read_leg(frame)
        if frame.method in REMOVED:
            raise RemoteProtocolError(
                f"Method not found: {frame.method} is not in {leg.revision}",
                rpc_code=METHOD_NOT_FOUND,
                http_status=404,
            )
        id_key = envelope.id_key(frame.id_raw)
        if legs is not None and legs.find(id_key) is not None:
            raise RemoteProtocolError("got the id of a request that is still open, expected another")
        token_raw = envelope.progress_token(frame.params)
        claims = self._read_state(opening, frame)
        if claims is not None and claims.kind is Kind.PARK:
            found = self._parking.find(claims)
            if found is None and not self._replays.may_repeat(audience_of(opening), frame.method, frame.params):
                session = self._by_affinity.get(self._affinity_of(opening, key, leg))
                self._lose(frame, reply, None if session is None else session.greeting)
                return None
        else:
            found = None
        if found is None:
            found = self._begin(opening, key, frame, leg, reply, token_raw, headers, mirrored, claims)
        else:
            assert claims is not None
            self._resume(*found, claims, frame, leg, reply, token_raw, headers)
        session, exchange = found
        if legs is not None and not exchange.is_over:
            assert id_key is not None
            legs.add(id_key, session, exchange)
        return session, exchange

    def _read_state(self, opening: PostOpening | PipeOpening | EventPipeOpening, frame: Frame) -> Claims | None:
        """What a `requestState` of ours says. None if there is none, or it is the server's own."""
        if frame.method not in MAY_ASK or frame.params is None or b"requestState" not in frame.params:
            return None
        text = envelope.text_of(envelope.member_of(frame.params, "requestState"))
        if text is None or not is_ours(text):
            return None
        try:
            return self._seal.open(
                text,
                now_unix=self._desk.now_unix,
                server=opening.server,
                principal=opening.principal,
                method=frame.method,
                params=frame.params,
            )
        except Unsealed as error:
            if self._verdicts[opening.server].speaks(Era.STATELESS, self._desk.now):
                return None  # its server may be such a proxy, too
            self._desk.note("info", f"requestState refused: {error.reason.value}", opening.server)
            raise

    def _lose(self, frame: Frame, reply: Reply, greeting: bytes | None) -> None:
        """The call that a retry is for is not here any more: it is not begun a second time. Of what can be parked, only
        tools have effects."""
        assert frame.id_raw is not None
        assert frame.method == "tools/call"
        text = "the call was lost while it waited for answers. It is not repeated, for it may have had effects"
        result = named(complete(tool_error(text)), server_info_of(greeting))
        self._courier.answer_at_once(reply, envelope.encode_result(frame.id_raw, result))

    def _resume(
        self,
        session: Session,
        exchange: Exchange,
        claims: Claims,
        frame: Frame,
        leg: Envelope,
        reply: Reply,
        token_raw: bytes | None,
        headers: Headers,
    ) -> None:
        assert frame.id_raw is not None
        id_key = envelope.id_key(frame.id_raw)
        assert id_key is not None
        responses = input_requests.read_responses(frame.params)
        fingerprint(leg.capabilities)  # which raises where they cannot be read in one way
        if exchange.park is not None:
            exchange.park.check_round(claims.round)
        before = exchange.reply, exchange.id_raw, exchange.id_key
        exchange.reply, exchange.id_raw, exchange.id_key = reply, frame.id_raw, id_key
        reply.remaining += 1
        try:
            outcome = self._parking.resume(
                session, exchange, claims.round, responses, leg, token_raw, headers or session.headers
            )
        except RemoteProtocolError:
            exchange.reply, exchange.id_raw, exchange.id_key = before
            raise
        self._courier.touch(session)
        if outcome is not None:
            self._legwork.answer_leg(session, exchange, outcome)
            self.receive_settled(session)
            return
        self._courier.up.expect_reply(session, exchange)
        self._parking.go_on(session, exchange)

    def _begin(
        self,
        opening: PostOpening | PipeOpening | EventPipeOpening,
        key: ExchangeKey,
        frame: Frame,
        leg: Envelope,
        reply: Reply,
        token_raw: bytes | None,
        headers: Headers,
        mirrored: Headers,
        claims: Claims | None,
    ) -> tuple[Session, Exchange]:
        assert frame.id_raw is not None
        assert frame.method is not None
        id_key = envelope.id_key(frame.id_raw)
        assert id_key is not None
        if self._desk.is_draining:
            raise RemoteProtocolError("shutting down: no new requests", rpc_code=OVERLOADED, http_status=503)
        params = frame.params
        responses: Mapping[str, bytes] = {}
        if claims is not None:
            assert params is not None
            responses = input_requests.read_responses(params)
            params = remove_members(params, RETRIED)
        session = self._session_for(opening, key, leg)
        limit = self._desk.limits.exchanges_per_session_max
        if session.in_flight >= limit:
            text = f"{limit} requests are open, the most a client may have"
            raise RemoteProtocolError(text, rpc_code=OVERLOADED, http_status=503)
        if isinstance(opening, PostOpening) and not self._courier.up.has_room(session):
            text = "too much was sent that is not taken yet: wait, and try again"
            raise RemoteProtocolError(text, rpc_code=OVERLOADED, http_status=503)
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
        )
        exchange.leg, exchange.mirrored = leg, mirrored
        if claims is not None and claims.kind is Kind.PARK:
            exchange.known = answers(claims, responses)
        session.exchanges[key] = exchange
        session.receive_headers(headers)
        self._courier.touch(session)
        try:
            self._send_on(session, exchange, claims, responses)
        except RemoteProtocolError:  # it is no request after all
            session.exchanges.pop(key, None)
            self.receive_settled(session)
            raise
        if isinstance(opening, PostOpening) and claims is None:
            self.known.add(opening, session, leg, frame.params)
        return session, exchange

    def _send_on(
        self, session: Session, exchange: Exchange, claims: Claims | None, responses: Mapping[str, bytes]
    ) -> None:
        if claims is not None and claims.kind is Kind.URL:
            self._visits.resume(session, exchange, claims, responses)
            return
        if claims is not None and claims.kind is Kind.DEFER:
            self._deferring.resume(session, claims, responses)
        elif self._deferring.ask_first(session, exchange):
            return
        self._courier.up.request(session, exchange)

    def mirrors_for(self, opening: PostOpening, frame: Frame) -> Sequence[Mirror] | None:
        """Which arguments of the tool that a request calls are to be in headers, as far as its server has said."""
        if frame.method != "tools/call":
            return ()
        tool = envelope.text_of(envelope.member_of(frame.params, "name"))
        known = self._mirrors.get(audience_of(opening))
        return None if known is None or tool is None else known.get(tool, ())

    # --- Cancellation -----------------------------------------------------------------------------------------------

    def hang_up(self, session: Session, exchange: Exchange, reply: Reply) -> None:
        """The client closed the stream of a request: that cancels it (2026-07-28 basic/patterns/cancellation)."""
        if exchange.reply is reply and not exchange.is_over:
            reason = b'{"requestId":0,"reason":"the client closed the stream"}'
            self._courier.cancel(session, exchange, reason, session.headers)
        elif exchange.task is not None:
            self.tasks.hang_up(session, exchange, reply)

    def receive_cancel(self, legs: Legs, frame: Frame, headers: Headers) -> None:
        """`notifications/cancelled` on a pipe. What is unknown, or over, is ignored."""
        try:
            id_raw = envelope.member_of(frame.params, "requestId")
        except RemoteProtocolError:
            return
        found = legs.find(None if id_raw is None else envelope.id_key(id_raw))
        if found is not None and frame.params is not None:
            session, exchange = found
            params = request_meta.strip(frame.params)
            assert params is not None
            self._courier.cancel(session, exchange, params, headers)

    def close_pipe(self, channel: ChannelId, legs: Legs) -> None:
        """A pipe is gone, and with it everybody who spoke on it. A call that began elsewhere is cancelled, too, if it
        went on here; whoever waits elsewhere for one that began here had no part in that, and hears what became of
        it."""
        for session, exchange in legs.take_all():
            if exchange.reply.stream.channel == channel:
                self.hang_up(session, exchange, exchange.reply)
        for affinity, session in list(self._by_affinity.items()):
            if affinity.group == channel and session.affinity is affinity:
                why = "the connection that the call began on is gone"
                self._clients.close_session(session, why, cut_off_code=UPSTREAM_UNAVAILABLE)

    # --- Sessions ---------------------------------------------------------------------------------------------------

    def _session_for(
        self, opening: PostOpening | PipeOpening | EventPipeOpening, key: ExchangeKey, leg: Envelope
    ) -> Session:
        affinity = self._affinity_of(opening, key, leg)
        session = self._by_affinity.get(affinity)
        if session is not None:
            return session
        fault = self._clients.no_room()
        if fault is not None:
            raise RemoteProtocolError(fault, rpc_code=OVERLOADED, http_status=503)
        session = self._clients.open_stateless(opening, affinity, leg)
        self._by_affinity[affinity] = session
        self._courier.up.begin_stateless(session)
        return session

    def _affinity_of(
        self, opening: PostOpening | PipeOpening | EventPipeOpening, key: ExchangeKey, leg: Envelope
    ) -> Affinities:
        """Whose session a request belongs to."""
        is_for_one = isinstance(opening, PostOpening) and self._desk.plan.affinity is Affinity.REQUEST
        group = key.channel if is_for_one or not isinstance(opening, PostOpening) else 0
        abilities = fingerprint(leg.capabilities)  # which raises where no handshake could be made with them
        audience = audience_of(opening)
        affinity = Affinities(opening.server, opening.principal, abilities, group, audience.headers, is_for_one)
        return self._merged(affinity) if self.known.says_all(opening.server) else affinity

    def _merged(self, affinity: Affinities) -> Affinities:
        """What stands for clients of any abilities. The first request came before its server was known to be told them
        with each: the session that it began becomes that of all."""
        merged = affinity._replace(fingerprint="")
        if merged not in self._by_affinity and (first := self._by_affinity.pop(affinity, None)) is not None:
            first.affinity = merged
            self._by_affinity[merged] = first
        return merged

    def receive_settled(self, session: Session) -> None:
        """A request is over: a session that was for it alone is, too."""
        affinity = session.affinity
        if affinity is None or not affinity.is_for_one or self._by_affinity.get(affinity) is not session:
            return
        if not session.exchanges and not self._parking.holds(session):
            self._clients.close_session(session, "its request is over")

    def forget(self, session: Session) -> None:
        """The session is over."""
        if session.affinity is not None:
            self._by_affinity.pop(session.affinity, None)
            self._legwork.forget(session)


def read_leg(frame: Frame) -> Envelope:
    """What a request says of its client.

    Raises:
        RemoteProtocolError: something is missing (-32602), or its revision is not served (-32022).
    """
    revision = request_meta.revision_of(frame.params)
    if revision is not None and revision != "" and not is_known_modern(revision):
        raise unsupported(revision)
    return request_meta.read(frame.params)


def unsupported(revision: str) -> RemoteProtocolError:
    """Source: 2026-07-28 basic/versioning, "Protocol Version Negotiation": -32022 with what is supported."""
    return RemoteProtocolError(
        "Unsupported protocol version",
        rpc_code=UNSUPPORTED_VERSION,
        http_status=400,
        data={"supported": list(MODERN), "requested": revision[:64]},
    )


def complete(result: bytes) -> bytes:
    """A result of our own, as these clients know it."""
    return b'{"resultType":"complete",' + result.lstrip()[1:]
