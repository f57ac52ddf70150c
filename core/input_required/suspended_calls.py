"""Questions of servers with sessions for clients that have none: the call they belong to is parked until its client
comes back with the answers.

The client's request is answered with the questions and a sealed note (`requestState`) that says which call they are
for. It names nothing but that: whoever holds it still has to be the same principal, asking for the same thing.

Source: 2026-07-28 basic/patterns/mrtr.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from ..base.effects import Headers
from ..base.errors import INTERNAL_ERROR, METHOD_NOT_FOUND, OVERLOADED, RemoteProtocolError
from ..base.log_levels import LEVELS
from ..base.methods import MAY_ASK
from ..bridge import input_requests
from ..bridge.capabilities import missing
from ..bridge.discovery import server_info_of
from ..bridge.input_shapes import METHODS
from ..bridge.request_meta import Envelope
from ..bridge.request_state import Claims, Kind
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import set_member
from ..state.context import Desk
from ..state.exchange import Exchange, Reply
from ..state.exchange import State as ExchangeState
from ..state.session import Ask, Session
from ..state.stream import Stream
from ..state.suspended_call import Park, State, Wanted, invalid_state
from .call_state import Stating
from .replay import digests, take_answer

NOT_ASKED: Final = msgspec.json.encode(
    {"code": METHOD_NOT_FOUND, "message": "the client cannot be asked: it does not offer that"}
)


class Upward(Protocol):
    """Where answers go."""

    def reply(self, session: Session, ask: Ask, answer: Frame, headers: Headers) -> None: ...

    def tick(self, session: Session, ask: Ask, count: int) -> None:
        """Tell the server that its question is still being answered."""


class Deferral(Protocol):
    """What can wait for a call."""

    def take(self, session: Session, ask: Ask, params: bytes | None) -> bool:
        """Raises RemoteProtocolError where the question cannot be read."""


class Legs(Protocol):
    """How the requests of clients are answered."""

    def end_leg(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """Answer the request that a call goes on with; the call itself goes on."""

    def tell(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """Send a notification on the stream of a call's leg."""


class Cancelling(Protocol):
    """How calls end that nobody wants any more, and who must know that one is over."""

    over: Callable[[Session], None]

    def cancel(self, session: Session, exchange: Exchange, params: bytes, headers: Headers) -> None:
        """Nobody wants the call any more."""


class Parking:
    """The calls of all sessions that are parked, or may be."""

    def __init__(self, desk: Desk, stating: Stating, legs: Legs, calls: Cancelling) -> None:
        self.up: Upward
        self.deferring: Deferral
        self._desk = desk
        self._stating = stating
        self._legs = legs
        self._calls = calls
        self._by_id: dict[str, tuple[Session, Exchange]] = {}

    # --- From the server --------------------------------------------------------------------------------------------

    def ask(self, session: Session, ask: Ask, params: bytes | None, related: Exchange | None) -> None:
        """The server asks: its question belongs to the call on whose stream it came, or to the one most likely.

        One that cannot be read is refused.
        """
        try:
            self._ask(session, ask, params, related)
        except RemoteProtocolError as fault:
            refusal = envelope.error_object(fault.rpc_code, fault.message)
            self.up.reply(session, ask, Frame(error=refusal), session.headers)

    def _ask(self, session: Session, ask: Ask, params: bytes | None, related: Exchange | None) -> None:
        """Raises RemoteProtocolError where the question cannot be read. Nothing has changed then."""
        exchange = self._whose(session, ask, params, related)
        if exchange is None:
            self._answer_nobody(session, ask, params)
            return
        if ask.method not in METHODS:
            self.up.reply(session, ask, Frame(error=NOT_ASKED), session.headers)
            return
        lacking = None if exchange.leg is None else missing(exchange.leg.capabilities, ask.method, params)
        if lacking is not None:
            if related is not None or len(self._askers(session)) == 1:
                exchange.lacking = lacking
            self.up.reply(session, ask, refusal_of(ask.method), session.headers)
            return
        abilities = None if exchange.leg is None else exchange.leg.capabilities
        entry = input_requests.embed(ask.method, params, capabilities=abilities)
        known = take_answer(exchange.known, entry)
        if known is not None:
            self.up.reply(session, ask, Frame(result=known), session.headers)
            return
        park = exchange.park or self._begin(session, exchange)
        if park is None:
            text = "too many calls wait for answers of their clients: try again later"
            self.up.reply(session, ask, Frame(error=envelope.error_object(INTERNAL_ERROR, text)), session.headers)
            return
        number = session.record_ask(ask._replace(exchange=exchange))
        park.receive_question(Wanted(number, ask.method, entry))
        if park.state is State.COLLECT:
            self._desk.timers.set(("collect", park.id), self._desk.now + self._desk.limits.collect_s, "more questions")
        elif park.state is State.PARKED and ask.token_raw is not None:
            self._tick_later(park)

    def _whose(self, session: Session, ask: Ask, params: bytes | None, related: Exchange | None) -> Exchange | None:
        if related is not None:
            return related if related.method in MAY_ASK else None
        calls = self._askers(session)
        able = [e for e in calls if e.leg is None or missing(e.leg.capabilities, ask.method, params) is None]
        return (able or calls)[-1] if calls else None

    def _askers(self, session: Session) -> list[Exchange]:
        calls = [e for e in session.exchanges.values() if e.task is None and e.method in MAY_ASK]
        return [e for e in calls if e.upstream_id is not None or e.state is ExchangeState.TASKED]

    def _answer_nobody(self, session: Session, ask: Ask, params: bytes | None) -> None:
        """No call is open that the question could travel with: the server is told what it would hear of nobody."""
        if self.deferring.take(session, ask, params):
            return
        self._desk.note("info", f"{ask.method} came while the client could not be asked", session.server)
        self.up.reply(session, ask, fallback(ask.method), session.headers)

    def _begin(self, session: Session, exchange: Exchange) -> Park | None:
        limits = self._desk.limits
        own = sum(1 for other, _ in self._by_id.values() if other is session)
        if own >= limits.parks_per_session_max or len(self._by_id) >= limits.parks_max:
            self._desk.note("warning", f"{len(self._by_id)} calls are parked, the most allowed", session.server)
            return None
        park = exchange.park = Park(self._desk.mint())
        self._by_id[park.id] = session, exchange
        return park

    def withdraw(self, session: Session, number: int) -> None:
        """The server does not want to know it any more, or is gone."""
        ask = session.asks.pop(number, None)
        if ask is None or ask.exchange is None or ask.exchange.park is None:
            return
        park = ask.exchange.park
        park.receive_withdrawal(number)
        if park.state is State.RUN:
            self._desk.timers.cancel(("collect", park.id))

    def handle_collect(self, id: str) -> None:
        """Nothing more was asked: the client hears what there is."""
        session, exchange = self._by_id[id]
        assert exchange.park is not None
        self._issue(session, exchange, exchange.park)

    def _issue(self, session: Session, exchange: Exchange, park: Park) -> None:
        self._desk.timers.cancel(("collect", park.id))
        entries = park.issue()
        state = self._stating.state(
            session, exchange, Kind.PARK, park=park.id, round=park.round, questions=digests(entries)
        )
        self._desk.timers.cancel(("reply", (session.sid, exchange.key)))  # the server waits now, not its client
        self._desk.timers.set(("park", park.id), self._desk.now + self._desk.limits.park_ttl_s, "client's answers")
        if any(ask.token_raw is not None for ask in session.asks.values() if ask.exchange is exchange):
            self._tick_later(park)
        self._legs.end_leg(session, exchange, asking(exchange.id_raw, entries, state, server_info_of(session.greeting)))

    # --- From the client --------------------------------------------------------------------------------------------

    def find(self, claims: Claims) -> tuple[Session, Exchange] | None:
        """The call that a token is for; None: it was another run of the proxy that had it.

        Raises:
            RemoteProtocolError: it was here, and has ended.
        """
        if not self._stating.is_own(claims):
            return None
        found = self._by_id.get(claims.park)
        if found is None:
            raise invalid_state()
        return found

    def resume(
        self,
        session: Session,
        exchange: Exchange,
        round: int,
        responses: Mapping[str, bytes],
        leg: Envelope,
        token_raw: bytes | None,
        headers: Headers,
    ) -> bytes | None:
        """The client is back. Returns the message that its call ended with meanwhile, if it did; else the call goes on,
        with the leg that `exchange` has been given by now. `headers` came with the answers, and go on with them.

        Raises:
            RemoteProtocolError: the round was claimed before, or an answer has not the form it must have. Nothing has
                changed, and the round can still be claimed.
        """
        park = exchange.park
        assert park is not None
        park.check_round(round)
        for key, response in responses.items():
            if (wanted := park.open.get(key)) is not None:
                input_requests.check_response(wanted.method, response)
        outcome = park.outcome
        answered = park.claim(round, responses)
        exchange.leg, exchange.token_raw = leg, token_raw
        if park.state is State.GONE:
            self._forget(park)
            self._tell_missed(session, exchange, park)
            return outcome or b""
        self._desk.timers.cancel(("park", park.id))
        for wanted, response in answered:
            self.up.reply(session, session.asks.pop(wanted.number), Frame(result=response), headers)
        return None

    def go_on(self, session: Session, exchange: Exchange) -> None:
        """The leg is attached: what it missed, and what is still to be asked, comes at once."""
        park = exchange.park
        assert park is not None
        self._tell_missed(session, exchange, park)
        for key, wanted in list(park.open.items()):
            if exchange.leg is not None and self._is_unable(exchange.leg, wanted):
                del park.open[key]
                ask = session.asks.pop(wanted.number)
                self.up.reply(session, ask, refusal_of(ask.method), session.headers)
        if park.state is State.COLLECT:
            if park.open:
                self._issue(session, exchange, park)
            else:
                park.receive_withdrawal(0)

    def _tell_missed(self, session: Session, exchange: Exchange, park: Park) -> None:
        """What came for nobody, as far as this leg wants it: it may want less of the log than the one before."""
        missed, park.missed = park.missed, []
        for message in missed:
            if wants(exchange, message):
                self._legs.tell(session, exchange, message)
        progress, park.progress = park.progress, None
        if progress is not None and exchange.token_raw is not None:
            params = set_member(progress, "progressToken", exchange.token_raw)
            self._legs.tell(session, exchange, envelope.encode_notification("notifications/progress", params))

    def _is_unable(self, leg: Envelope, wanted: Wanted) -> bool:
        return missing(leg.capabilities, wanted.method, envelope.member_of(wanted.entry, "params")) is not None

    # --- Meanwhile --------------------------------------------------------------------------------------------------

    def settle(self, session: Session, exchange: Exchange, message: bytes) -> bool:
        """The call is over. True if `message`, its answer, is kept for a client that is away."""
        park = exchange.park
        if park is None or park.is_over:
            return False
        for number, ask in [(n, a) for n, a in session.asks.items() if a.exchange is exchange]:
            del session.asks[number]
            self.up.reply(session, ask, fallback(ask.method), session.headers)  # its server did not wait, and is told
        self._desk.timers.cancel(("collect", park.id))
        held_bytes = sum(len(e.park.outcome or b"") for _, e in self._by_id.values() if e.park is not None)
        if not park.has_leg and held_bytes + len(message) > self._desk.limits.parks_held_max_bytes:
            text = "the answer came while its client was away, and was too large to be kept: the call has run"
            message = envelope.encode_error(exchange.id_raw, OVERLOADED, text, {"outcome": "executed"})
            exchange.is_native = True
        if park.settle(message):
            return True
        self._forget(park)
        return False

    def handle_tick(self, id: str) -> None:
        """Servers give up on a question after a minute or so, unless they hear of progress."""
        session, exchange = self._by_id[id]
        park = exchange.park
        assert park is not None
        if park.state is not State.PARKED:
            return
        park.ticks += 1
        for ask in session.asks.values():
            if ask.exchange is exchange and ask.token_raw is not None:
                self.up.tick(session, ask, park.ticks)
        self._tick_later(park)

    def _tick_later(self, park: Park) -> None:
        self._desk.timers.set(("tick", park.id), self._desk.now + self._desk.limits.park_tick_s, "sign of life")

    def keep(self, exchange: Exchange, method: str, message: bytes) -> None:
        """Something came for a client that is away."""
        park = exchange.park
        assert park is not None
        assert not park.has_leg
        if method == "notifications/progress":
            park.progress = envelope.decode(message).params
        elif self._has_room(park, message):
            park.missed.append(message)

    def _has_room(self, park: Park, message: bytes) -> bool:
        limits = self._desk.limits
        size_bytes = sum(map(len, park.missed)) + len(message)
        return len(park.missed) < limits.park_logs_max and size_bytes <= limits.park_logs_max_bytes

    # --- Ends -------------------------------------------------------------------------------------------------------

    def handle_park(self, id: str) -> None:
        """The client has not come back."""
        session, exchange = self._by_id[id]
        assert exchange.park is not None
        self._desk.note(
            "info", f"{exchange.method} given up: its client did not come back with answers", session.server
        )
        if exchange.park.state is State.HELD:
            exchange.park.end()
            self._forget(exchange.park)
            self._calls.over(session)
        else:
            reason = msgspec.json.encode({"requestId": 0, "reason": "the client did not come back"})
            self._calls.cancel(session, exchange, reason, session.headers)

    def cancel(self, session: Session, exchange: Exchange) -> None:
        """The call is cancelled, or given up: whoever asked hears what a client would say that closes the form."""
        park = exchange.park
        if park is None:
            return
        for number, ask in [(n, a) for n, a in session.asks.items() if a.exchange is exchange]:
            del session.asks[number]
            self.up.reply(session, ask, fallback(ask.method), session.headers)
        park.end()
        self._forget(park)

    def release(self, exchange: Exchange) -> None:
        """The call goes on as a task: its questions take another way."""
        park, exchange.park = exchange.park, None
        if park is not None:
            park.end()
            self._forget(park)

    def holds(self, session: Session) -> bool:
        """Whether a call of the session is parked, or over and not told."""
        return any(other is session for other, _ in self._by_id.values())

    def close_session(self, session: Session) -> None:
        """What its calls came to is not waited for any more."""
        for other, exchange in list(self._by_id.values()):
            if other is session and exchange.park is not None:
                exchange.park.end()
                self._forget(exchange.park)

    def _forget(self, park: Park) -> None:
        self._by_id.pop(park.id, None)
        for purpose in ("collect", "park", "tick"):
            self._desk.timers.cancel((purpose, park.id))


def wants(exchange: Exchange, message: bytes) -> bool:
    """Whether the client of a call is to be told: of the log only what it has asked for with this request."""
    frame = envelope.decode(message)
    if frame.method != "notifications/message":
        return True
    wanted = None if exchange.leg is None else exchange.leg.log_level
    if wanted is None:
        return False
    level = envelope.text_of(envelope.member_of(frame.params, "level"))
    return level not in LEVELS or LEVELS.index(level) >= LEVELS.index(wanted)


def asking(id_raw: bytes, entries: Mapping[str, bytes], state: str, server_info: bytes | None) -> bytes:
    """The answer that asks: an `InputRequiredResult`. Like every result it says who the server is, if that is known
    (2026-07-28 basic, "`_meta`")."""
    listed = b",".join(msgspec.json.encode(key) + b":" + entry for key, entry in entries.items())
    result = b'{"resultType":"input_required","inputRequests":{' + listed + b'},"requestState":'
    meta = b"" if server_info is None else b',"_meta":{"io.modelcontextprotocol/serverInfo":' + server_info + b"}"
    return envelope.encode_result(id_raw, result + msgspec.json.encode(state) + meta + b"}")


def fallback(method: str) -> Frame:
    """What a server hears whose question reaches nobody."""
    kind, said = input_requests.FALLBACKS.get(method, ("error", NOT_ASKED))
    return Frame(result=said) if kind == "result" else Frame(error=said)


def refusal_of(method: str) -> Frame:
    """What a server hears whose client does not offer what it takes to be asked."""
    _, said = input_requests.REFUSALS[method]
    return Frame(error=said)


def detached() -> Reply:
    """The reply of a call whose client is away: nothing can be sent there."""
    reply = Reply(Stream(None), ends_channel=True, can_stream=False)
    reply.remaining = 1
    return reply
