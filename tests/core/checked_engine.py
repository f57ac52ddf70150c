"""An engine that is checked by the protocol oracle: one oracle for each wire to a client or a server. Its orders are
checked against the table of the driver's contract.

The proxy must break no rule of the oracle: towards clients it is the server, towards servers the client. Its peers may
break any rule, since tests make them do so. A proxy passes many faults on, so a rule that a peer has broken before is
excused on the other side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from isthmus.core.base.effects import Dial, Effect
from isthmus.core.base.events import Cause, Connected, Opening
from isthmus.core.base.ids import ChannelId
from isthmus.core.bulk import BulkEngine
from isthmus.core.oracle import AnyObservation, Ended, Role, Said, Violation
from isthmus.core.oracle.wires import Wire, Wires
from isthmus.core.state.upstream_session import UpstreamSessionState
from isthmus.core.testing.contract import OPENINGS, ORDERS, TARGETS, WITHOUT_CHANNEL, Kind

MADE_MAX: Final = 64
"""The engines of one test that are kept for the check at its end. A property test makes one for each example."""

SAME = {
    "server-info": "initialize-result",
    "initialize-result": "server-info",
    "initialize-params": "client-info",
    "client-info": "initialize-params",
    "progress-stands": "progress-unknown",
    "capability-undeclared": "input-request-undeclared",
    "input-request-undeclared": "capability-undeclared",
    "result-kind-missing": "meta-missing",  # a result without an era is passed on as one of the handshake era
    "progress-late": "response-shape",  # a call that is answered unreadably is over, and its progress is passed on
    "stream-ended-early": "not-json",  # a large answer is passed on unread
}
"""Maps a rule that a peer has broken to the rule that the proxy breaks in another era, by passing the fault on."""

LEFT_OUT = {
    # A call has no other cancellation before its server names a task, which some servers never do for it.
    ("cancel-of-task", Role.CLIENT),
    ("capability-undeclared", Role.CLIENT),  # a server that is asked for what it has not declared may refuse it itself
}


class Blame:
    """Tells the faults of the proxy from those of its peers.

    Attributes:
        by_peers: rules that peers have broken.
        named: servers that have sent their `serverInfo`.
        left_out: pairs of a rule and who breaks it that are not checked.
    """

    def __init__(self) -> None:
        self.left_out = set(LEFT_OUT)
        self.by_peers: set[str] = set()
        self.named: set[str] = set()

    def of_proxy(self, wire: Wire, found: list[Violation]) -> list[Violation]:
        """Returns the violations on a wire that are the proxy's own."""
        self.by_peers.update(each.rule for each in found if each.who is not wire.proxy)
        return [each for each in found if each.who is wire.proxy and not self._is_excused(wire, each)]

    def _is_excused(self, wire: Wire, found: Violation) -> bool:
        """True if a peer is to blame: it broke the same rule, or responded under an unknown id. The proxy ignores such
        a response, and the oracle cannot follow it."""
        if found.rule == "server-info" and wire.server not in self.named:
            return True  # its `serverInfo` is unknown
        alike = {found.rule, SAME.get(found.rule, ""), "response-unknown"}
        return bool(alike & self.by_peers) or (found.rule, found.who) in self.left_out


class CheckedEngine(BulkEngine):
    """An engine whose inputs and effects are given to the oracles.

    Attributes:
        made: the engines that were made last.
        cells: the orders that came, each with the kind of its channel.
        broken: violations by the proxy, with the server and the role; each is raised once, at the input that shows it.
    """

    made: ClassVar[deque[CheckedEngine]] = deque(maxlen=MADE_MAX)

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.wires = Wires(self._observe, self._origin)
        self.broken: list[tuple[str, Role, Violation]] = []
        self._depth = 0
        self._kinds: dict[int, Kind] = {}
        self.cells: set[tuple[Kind, type[Effect]]] = set()
        self.blame = Blame()
        self._faults: dict[Wire, set[str]] = {}  # of peers, by wire
        self.made.append(self)

    def receive_open(self, channel: ChannelId, opening: Opening, now: float) -> list[Effect]:
        self._receive_kind(channel, opening)
        with self._outermost() as is_outermost:
            effects = super().receive_open(channel, opening, now)
            if is_outermost:
                self.wires.receive_open(channel, opening)
        return self._checked(effects)

    def receive_message(self, channel: ChannelId, message: bytes, now: float) -> list[Effect]:
        with self._outermost() as is_outermost:
            effects = super().receive_message(channel, message, now)
            if is_outermost:
                self.wires.receive_message(channel, message)
        return self._checked(effects)

    def receive_messages(self, channel: ChannelId, messages: Sequence[bytes], now: float) -> list[Effect]:
        with self._outermost() as is_outermost:
            effects = super().receive_messages(channel, messages, now)
            if is_outermost:
                for message in messages:
                    self.wires.receive_message(channel, message)
        return self._checked(effects)

    def receive_pieces(self, channel: ChannelId, pieces: tuple[bytes, ...], now: float) -> list[Effect]:
        with self._outermost() as is_outermost:
            effects = super().receive_pieces(channel, pieces, now)
            if is_outermost:
                self.wires.receive_message(channel, b"".join(pieces))
        return self._checked(effects)

    def receive_part(
        self,
        channel: ChannelId,
        pieces: tuple[bytes, ...],
        now: float,
        *,
        opening: Connected | None = None,
        size_bytes: int = 0,
        cause: Cause | None = None,
    ) -> list[Effect]:
        with self._outermost():
            effects = super().receive_part(channel, pieces, now, opening=opening, size_bytes=size_bytes, cause=cause)
            if opening is not None:
                self.wires.receive_open(channel, opening)
            self.wires.receive_part(channel, pieces, size_bytes)
            if cause is not None:
                self.wires.receive_close(channel, cause)
        return self._checked(effects)

    def receive_close(self, channel: ChannelId, cause: Cause, now: float) -> list[Effect]:
        with self._outermost() as is_outermost:
            effects = super().receive_close(channel, cause, now)
            if is_outermost:
                self.wires.receive_close(channel, cause)
        return self._checked(effects)

    def receive_at_once(
        self,
        channel: ChannelId,
        now: float,
        *,
        opening: Opening | None = None,
        message: bytes | None = None,
        size_bytes: int = 0,
        cause: Cause | None = None,
    ) -> list[Effect]:
        self._receive_kind(channel, opening)
        with self._outermost():
            effects = super().receive_at_once(
                channel, now, opening=opening, message=message, size_bytes=size_bytes, cause=cause
            )
            if opening is not None:
                self.wires.receive_open(channel, opening)
            if message is not None:
                self.wires.receive_message(channel, message)
            if cause is not None:
                self.wires.receive_close(channel, cause)
        return self._checked(effects)

    def receive_sent(self, channel: ChannelId, size_bytes: int, now: float) -> list[Effect]:
        return self._checked(super().receive_sent(channel, size_bytes, now))

    def receive_answer(self, ticket: Any, answer: Any, now: float) -> list[Effect]:
        return self._checked(super().receive_answer(ticket, answer, now))

    def receive_drain(self, now: float) -> list[Effect]:
        return self._checked(super().receive_drain(now))

    def receive_stop(self, now: float) -> list[Effect]:
        return self._checked(super().receive_stop(now))

    def receive_command(self, server: str, command: Any, now: float) -> list[Effect]:
        return self._checked(super().receive_command(server, command, now))

    def receive_task_cancel(self, id: str, now: float) -> list[Effect]:
        return self._checked(super().receive_task_cancel(id, now))

    def handle_timeout(self, now: float) -> list[Effect]:
        return self._checked(super().handle_timeout(now))

    @property
    def is_at_rest(self) -> bool:
        """True if no request, question or storage order is open, in either direction."""
        links = self._router.links.links.values()
        return not (
            self.exchange_count
            or self._storage_orders._thens
            or any(session.questions for session in self._downstream.sessions.sessions.values())
            or any(link.pending or link.queue for link in links)
        )

    def finish(self) -> None:
        """Checks that the proxy owes nothing when both sides are at rest.

        Left out are wires on which a peer has broken a rule or sent an ambiguous message, since its requests cannot be
        known, and servers that cannot be reached any more or have not finished the handshake.
        """
        assert self.is_at_rest
        there = self._servers_there()
        for wire, faults in self._faults.items():
            if not faults and (wire.proxy is Role.SERVER or wire in there):
                self._note(wire, wire.oracle.finish())
        self._checked([])

    def _servers_there(self) -> set[Wire]:
        """Returns the wires to servers that can still be reached."""
        links = [
            link for link in self._router.links.links.values() if link.upstream.state is UpstreamSessionState.READY
        ]
        found = [self.wires._wires.get(("up", link.plan.id, link.id, link.upstream.session or "")) for link in links]
        pipes = [self.wires._channels.get(link.channel) for link in links if link.channel is not None]
        return {wire for wire in found if wire is not None} | {pipe.wire for pipe in pipes if pipe is not None}

    @contextmanager
    def _outermost(self) -> Iterator[bool]:
        """Yields True in an outermost input. One input may call others, which are not observed on their own."""
        self._depth += 1
        try:
            yield self._depth == 1
        finally:
            self._depth -= 1

    def _checked(self, effects: list[Effect]) -> list[Effect]:
        if not self._depth:
            self._check_orders(effects)
            self.wires.receive_effects(effects)
            broken, self.broken = self.broken, []
            assert not broken, "\n".join(f"{server}, as the {role.value}: {each}" for server, role, each in broken)
        return effects

    def _receive_kind(self, channel: int, opening: Opening | None) -> None:
        if opening is not None and channel not in self._kinds and type(opening) in OPENINGS:
            self._kinds[channel] = OPENINGS[type(opening)]

    def _check_orders(self, effects: list[Effect]) -> None:
        """Checks that each order is one that the driver's contract names for its channel."""
        for order in effects:
            if isinstance(order, Dial):
                self._kinds[order.channel] = TARGETS[type(order.target)]
            if type(order) in WITHOUT_CHANNEL:
                continue
            channel = order.channel  # type: ignore[union-attr]
            if channel in self._kinds:
                cell = (self._kinds[channel], type(order))
                assert cell[1] in ORDERS[cell[0]], f"{cell[1].__name__} comes to a {cell[0].value}"
                self.cells.add(cell)

    def _origin(self, channel: int) -> str:
        link = getattr(self._context.role_of(ChannelId(channel)), "link", None)
        return "" if link is None else str(link.id)

    def _observe(self, wire: Wire, observation: AnyObservation, found: list[Violation]) -> None:
        faults = self._faults.setdefault(wire, set())
        if wire.oracle._book.garbled[wire.proxy.other]:
            faults.add("garbled")
        if isinstance(observation, Ended) and observation.by is wire.proxy is Role.CLIENT:
            faults.add("no response")  # it is unknown whether the request has arrived
        if wire.proxy is Role.CLIENT and isinstance(observation, Said) and b'erverInfo"' in observation.message:
            self.blame.named.add(wire.server)
        self._note(wire, found)

    def _note(self, wire: Wire, found: list[Violation]) -> None:
        self._faults[wire].update(each.rule for each in found if each.who is not wire.proxy)
        self.broken += [(wire.server, wire.proxy, each) for each in self.blame.of_proxy(wire, found)]
