"""An engine that is overheard: an oracle for each of its wires, and no rule that the proxy may break.

Towards clients it is the server, towards servers the client. What its peers break is their own affair: tests make them
do all sorts of things. A proxy passes much of that on, so what a peer has broken before, it may break on the other
side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from isthmus.core.base.effects import Cause, Connected, Effect, Opening
from isthmus.core.base.ids import ChannelId
from isthmus.core.engine import Engine
from isthmus.core.oracle import AnyObservation, Ended, Role, Said, Violation
from isthmus.core.oracle.wires import Wire, Wires
from isthmus.core.state.upstream_session import State

MADE_MAX: Final = 64
"""Engines of one test: a property makes one for each example."""

SAME = {
    "server-info": "initialize-result",
    "initialize-result": "server-info",
    "initialize-params": "client-info",
    "client-info": "initialize-params",
    "progress-stands": "progress-unknown",
    "capability-undeclared": "input-request-undeclared",
    "input-request-undeclared": "capability-undeclared",
    "result-kind-missing": "meta-missing",  # who says nothing of an era is answered as before there were two
    "stream-ended-early": "not-json",  # a large answer that nobody reads is passed on as it is
}
"""What a peer's fault comes out as on the other side, in another era."""

LEFT_OUT = {
    ("cancel-of-task", Role.CLIENT),  # before its server has named a task, nothing else can be said of it
    ("capability-undeclared", Role.CLIENT),  # a server that is asked for what it has not declared may refuse it itself
}

NEVER = {("progress-stands", Role.SERVER), ("progress-stands", Role.CLIENT)}
"""What is not passed on, whatever a peer does."""


class Blame:
    """Tells what the proxy does wrong from what its peers do.

    Attributes:
        by_peers: the rules that peers have broken.
        named: servers that have told who they are.
        left_out: what is not looked at, by rule and who breaks it.
    """

    def __init__(self) -> None:
        self.left_out = set(LEFT_OUT)
        self.by_peers: set[str] = set()
        self.named: set[str] = set()

    def of_proxy(self, wire: Wire, found: list[Violation]) -> list[Violation]:
        """Those of the violations on a wire that nobody else is to blame for."""
        self.by_peers.update(each.rule for each in found if each.who is not wire.proxy)
        return [each for each in found if each.who is wire.proxy and not self._is_excused(wire, each)]

    def _is_excused(self, wire: Wire, found: Violation) -> bool:
        """Whether a peer is to blame: for the same, or for answering under an id that nobody used, which proxies
        forgive and the oracle cannot follow."""
        if (found.rule, found.who) in NEVER:
            return False
        if found.rule == "server-info" and wire.server not in self.named:
            return True  # nobody can say it
        alike = {found.rule, SAME.get(found.rule, ""), "response-unknown"}
        return bool(alike & self.by_peers) or (found.rule, found.who) in self.left_out


class Overheard(Engine):
    """The engine itself, and what of its inputs and effects is on a wire.

    Attributes:
        made: those that were made last.
        broken: what the proxy did wrong, with the wire's server; each is raised once, at the input that shows it.
    """

    made: ClassVar[deque[Overheard]] = deque(maxlen=MADE_MAX)

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.wires = Wires(self._told, self._origin)
        self.broken: list[tuple[str, Role, Violation]] = []
        self._depth = 0
        self.blame = Blame()
        self._faults: dict[Wire, set[str]] = {}  # of peers, by wire
        self.made.append(self)

    def receive_open(self, channel: ChannelId, opening: Opening, now: float) -> list[Effect]:
        with self._outermost() as is_outermost:
            effects = super().receive_open(channel, opening, now)
            if is_outermost:
                self.wires.receive_open(channel, opening)
        return self._judged(effects)

    def receive_message(self, channel: ChannelId, message: bytes, now: float) -> list[Effect]:
        with self._outermost() as is_outermost:
            effects = super().receive_message(channel, message, now)
            if is_outermost:
                self.wires.receive_message(channel, message)
        return self._judged(effects)

    def receive_messages(self, channel: ChannelId, messages: Sequence[bytes], now: float) -> list[Effect]:
        with self._outermost() as is_outermost:
            effects = super().receive_messages(channel, messages, now)
            if is_outermost:
                for message in messages:
                    self.wires.receive_message(channel, message)
        return self._judged(effects)

    def receive_pieces(self, channel: ChannelId, pieces: tuple[bytes, ...], now: float) -> list[Effect]:
        with self._outermost() as is_outermost:
            effects = super().receive_pieces(channel, pieces, now)
            if is_outermost:
                self.wires.receive_message(channel, b"".join(pieces))
        return self._judged(effects)

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
        return self._judged(effects)

    def receive_close(self, channel: ChannelId, cause: Cause, now: float) -> list[Effect]:
        with self._outermost() as is_outermost:
            effects = super().receive_close(channel, cause, now)
            if is_outermost:
                self.wires.receive_close(channel, cause)
        return self._judged(effects)

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
        return self._judged(effects)

    def receive_sent(self, channel: ChannelId, size_bytes: int, now: float) -> list[Effect]:
        return self._judged(super().receive_sent(channel, size_bytes, now))

    def receive_answer(self, ticket: Any, answer: Any, now: float) -> list[Effect]:
        return self._judged(super().receive_answer(ticket, answer, now))

    def receive_drain(self, now: float) -> list[Effect]:
        return self._judged(super().receive_drain(now))

    def receive_stop(self, now: float) -> list[Effect]:
        return self._judged(super().receive_stop(now))

    def receive_command(self, server: str, command: Any, now: float) -> list[Effect]:
        return self._judged(super().receive_command(server, command, now))

    def receive_task_cancel(self, id: str, now: float) -> list[Effect]:
        return self._judged(super().receive_task_cancel(id, now))

    def handle_timeout(self, now: float) -> list[Effect]:
        return self._judged(super().handle_timeout(now))

    @property
    def is_at_rest(self) -> bool:
        """Whether it owes nobody anything, and waits for nobody."""
        links = self._servers.links.values()
        return not (
            self.exchange_count
            or self._waiting._thens
            or any(session.asks for session in self._clients.sessions.values())
            or any(link.pending or link.queue for link in links)
        )

    def finish(self) -> None:
        """Both sides are at rest: nothing is owed by the proxy.

        Left out are wires on which a peer has broken a rule, or has said what can be read in two ways, since nobody can
        tell what it has asked for; and servers that nothing can be said to any more, or that have not confirmed what
        was.
        """
        assert self.is_at_rest
        there = self._servers_there()
        for wire, faults in self._faults.items():
            if not faults and (wire.proxy is Role.SERVER or wire in there):
                self._note(wire, wire.oracle.finish())
        self._judged([])

    def _servers_there(self) -> set[Wire]:
        """The wires to servers on which something can still be said."""
        links = [link for link in self._servers.links.values() if link.upstream.state is State.READY]
        found = [self.wires._wires.get(("up", link.plan.id, link.id, link.upstream.session or "")) for link in links]
        pipes = [self.wires._channels.get(link.channel) for link in links if link.channel is not None]
        return {wire for wire in found if wire is not None} | {pipe.wire for pipe in pipes if pipe is not None}

    @contextmanager
    def _outermost(self) -> Iterator[bool]:
        """One input may be made of others, which are not seen by themselves."""
        self._depth += 1
        try:
            yield self._depth == 1
        finally:
            self._depth -= 1

    def _judged(self, effects: list[Effect]) -> list[Effect]:
        if not self._depth:
            self.wires.receive_effects(effects)
            broken, self.broken = self.broken, []
            assert not broken, "\n".join(f"{server}, as the {role.value}: {each}" for server, role, each in broken)
        return effects

    def _origin(self, channel: int) -> str:
        link = getattr(self._desk.role_of(ChannelId(channel)), "link", None)
        return "" if link is None else str(link.id)

    def _told(self, wire: Wire, observation: AnyObservation, found: list[Violation]) -> None:
        faults = self._faults.setdefault(wire, set())
        if wire.oracle._book.garbled[wire.proxy.other]:
            faults.add("garbled")
        if isinstance(observation, Ended) and observation.by is wire.proxy is Role.CLIENT:
            faults.add("no response")  # whether what was said has arrived, nobody knows
        if wire.proxy is Role.CLIENT and isinstance(observation, Said) and b'erverInfo"' in observation.message:
            self.blame.named.add(wire.server)
        self._note(wire, found)

    def _note(self, wire: Wire, found: list[Violation]) -> None:
        self._faults[wire].update(each.rule for each in found if each.who is not wire.proxy)
        self.broken += [(wire.server, wire.proxy, each) for each in self.blame.of_proxy(wire, found)]
