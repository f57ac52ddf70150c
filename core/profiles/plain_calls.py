"""Plain calls of sessions with a profile: the fast path to a leg, and back.

A plain call of a client goes on a leg in one step if the leg can take it so (`SessionRouter.plain_way`). The exchanges
of client and leg, their states and their effects are those that `ProfileRouter.request` leads to. Skipped is what the
request does not need: the kind of its client and the names that servers have listed, as the configuration alone decides
about its name; and the rules of access, as a call to a server with such rules is never plain. The routes of names are
kept. The response goes to the client as the leg has it, if no word in it may belong to a place that is rewritten.
`tests/core/profiles/test_plain_calls.py` compares both ways. They differ in one thing: that another server of the
client takes too little (`ProfileRouter.has_room`) does not hold up a plain call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import ClassVar, Final

import msgspec

from ..bridge.request_name import NAMED_BY
from ..downstream.responder import Responder
from ..jsonrpc.envelope import begin_result, text_of
from ..state.exchange import Exchange, Plain
from ..state.link import StatelessParams
from ..state.ports import PlainWay
from ..state.session import Session
from .legs import Front, Leg, LegReply
from .rewriting import Rewriter

ROUTES_MAX: Final = 1024
"""Names whose routes are kept, for all clients of a profile. At it: the one that was used least lately is read anew."""
NAME_MAX_BYTES: Final = 512
"""The longest name whose route is kept, as JSON."""
_ARGUMENTS_BYTES: Final = len(b',"arguments":')


class _Use(msgspec.Struct):
    """The params of a plain call. There is no other member: it could be the name once more, in the eyes of a server
    that reads members without regard to case."""

    name: msgspec.Raw
    arguments: msgspec.Raw = msgspec.Raw()


class _Read(msgspec.Struct):
    """The params of a plain call that reads a resource."""

    name: msgspec.Raw = msgspec.field(name="uri")
    arguments: msgspec.Raw = msgspec.Raw()


_USES: Final = b'{"name":', msgspec.json.Decoder(_Use)
_READS: Final = b'{"uri":', msgspec.json.Decoder(_Read)
_SHAPES: Final[Mapping[str, tuple[bytes, msgspec.json.Decoder[_Use] | msgspec.json.Decoder[_Read]]]] = {
    "tools/call": _USES,
    "prompts/get": _USES,
    "resources/read": _READS,
}
"""The beginning of the params of plain calls, and what they hold, by method."""

Receive = Callable[[Front, Leg, Exchange, LegReply, bytes], None]
"""Handles the response that came on a leg for a request of a client."""


class _PlainReply(LegReply):
    """The reply to a plain call on a leg. A result with nothing to rewrite passes as it is."""

    def __init__(self, way: LegWay, exchange: Exchange) -> None:
        self.remaining = 0
        self._way = way
        self._exchange = exchange

    def take(self, message: bytes | None) -> tuple[bytes | None, bool]:
        self.remaining -= 1
        way, exchange = self._way, self._exchange
        front, calls = way.front, way.calls
        sent = None if message is None else front.take_sent(exchange)
        if message is None or sent is None:
            return None, False
        leg, inner = sent
        if (
            not inner.is_native
            or exchange.suspended_call is not None
            or exchange.lacking is not None
            or not message.startswith(begin_result(exchange.id_raw))
            or calls.rewriter.may_change(exchange.method, message)
        ):
            front.send_on(exchange, leg, inner)
            calls.receive(front, leg, exchange, self, message)
            return None, False
        session, responder = front.session, calls.responder
        exchange.settle()
        session.remove(exchange)
        if responder.telemetry is not None:
            responder.telemetry.end_with_result(session, exchange, message)
        responder.touch(session)
        responder.close(session, exchange.reply, message)
        return None, False


class LegWay(msgspec.Struct, frozen=True):
    """The way of a plain call on a leg.

    Attributes:
        params: the params in the words of the leg's server.
        way: the way from the leg to the server.
    """

    plain: ClassVar[Plain | None] = None
    calls: PlainCalls
    front: Front
    leg: Leg
    params: bytes
    way: PlainWay

    def send(self, exchange: Exchange) -> None:
        leg, session = self.leg, self.leg.session
        inner = Exchange(
            exchange.key,
            _PlainReply(self, exchange),
            sid=session.sid,
            id_raw=exchange.id_raw,
            id_key=exchange.id_key,
            method=exchange.method,
            params=self.params,
            headers=exchange.headers and leg.passed(exchange.headers),
            request=exchange.request,
            plain=self.way.plain,
        )
        exchange.receive_written(0, None)
        self.front.send_on(exchange, leg, inner)
        session.add(inner, inner.headers)
        self.way.send(inner)


class PlainCalls:
    """The plain calls of one profile.

    Args:
        fronts: the sessions with the profile, by their public names.
        receive: handles the responses that are not passed as they are.
    """

    def __init__(self, responder: Responder, rewriter: Rewriter, fronts: Mapping[str, Front], receive: Receive) -> None:
        self.responder = responder
        self.rewriter = rewriter
        self.receive = receive
        self._fronts = fronts
        self._route = lru_cache(maxsize=ROUTES_MAX)(self._find_route)

    def way_of(
        self, session: Session, method: str, params: bytes | None, stateless_params: StatelessParams | None
    ) -> LegWay | None:
        """Returns the way of a call; None if it is not plain, or there is no leg yet that can take it."""
        front, said = self._fronts.get(session.sid), stateless_params
        if front is None or params is None:
            return None
        found = _named(method, params) if said is None else _named_beside(method, said)
        if found is None:
            return None
        name, start = found
        route = self._route(method, name)
        leg = None if route is None else front.legs.get(route[0])
        if route is None or leg is None or leg.needs_headers:
            return None
        if route[1] != name:
            params = b"%b%b%b" % (params[:start], route[1], params[start + len(name) :])
            if said is not None:
                said = said.with_params(method, params)
                if said is None:
                    return None
        way = leg.session.router.plain_way(leg.session, method, params, said)
        return None if way is None else LegWay(self, front, leg, params, way)

    def _find_route(self, method: str, name: bytes) -> tuple[str, bytes] | None:
        """Returns the server of a name that is JSON, and the name there."""
        text = text_of(name)
        found = None if text is None else self.rewriter.fixed_route(method, text)
        return None if found is None else (found.server, msgspec.json.encode(found.raw))


def _named(method: str, params: bytes) -> tuple[bytes, int] | None:
    """Returns the JSON of the name in the params of a call, and where it begins; None for params that are no `_SHAPES`,
    or hold anything besides the members: a space, an escape, a member twice. Their length shows it."""
    beginning, decoder = _SHAPES.get(method, (b"", None))
    if decoder is None or not params.startswith(beginning):
        return None
    try:
        members = decoder.decode(params)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    name, arguments_bytes = bytes(members.name), memoryview(members.arguments).nbytes
    size_bytes = len(beginning) + len(name) + (arguments_bytes and arguments_bytes + _ARGUMENTS_BYTES) + 1
    return (name, len(beginning)) if size_bytes == len(params) and len(name) <= NAME_MAX_BYTES else None


def _named_beside(method: str, said: StatelessParams) -> tuple[bytes, int] | None:
    """Returns the same for params with the description of a client."""
    member, spans = NAMED_BY.get(method, ""), said.spans
    span = spans.get(member)
    if span is None or not spans.keys() <= {member, "arguments", "_meta"} or span.stop - span.start > NAME_MAX_BYTES:
        return None
    return said.params[span], span.start
