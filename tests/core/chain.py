"""Two engines in a row, in one process and on one clock: a dial of the first is a request to the second."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from driving import Driver, driver, new_client
from isthmus.core.base.effects import Close, Delete, Dial, Effect, Join, Listen, Post, Send, Spawn
from isthmus.core.base.events import Cause, Connected, DeleteOpening, End, GetOpening, PipeOpening, PostOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.base.revisions import Era


@dataclass
class Chain:
    """The engine `front` serves the client and speaks to the engine `back` in the era of the hop.

    The server of `back` is a process; the hop is a pipe, or HTTP with one POST per message.
    """

    front: Driver
    back: Driver
    down: dict[ChannelId, ChannelId] = field(default_factory=dict)  # channels of the front to channels of the back
    up: dict[ChannelId, ChannelId] = field(default_factory=dict)
    begun: set[ChannelId] = field(default_factory=set)
    _seen: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})

    def pump(self) -> None:
        """Carries messages between the two engines until none is left."""
        while self._turn(0) or self._turn(1):
            pass

    def wait(self, seconds: float) -> None:
        """Advances the clock of both engines."""
        end = self.front.now + seconds
        while True:
            self.pump()
            deadlines = [each.engine.next_timeout() for each in (self.front, self.back)]
            due = min((deadline.at for deadline in deadlines if deadline is not None), default=end)
            at = min(max(due, self.front.now), end)
            for each in (self.front, self.back):
                each.wait(at - each.now)
            if at >= end:
                self.pump()
                return

    def _turn(self, which: int) -> bool:
        """Carries out the new effects of one engine. True if there were any."""
        world = (self.front, self.back)[which]
        todo = deque(world.log[self._seen[which] :])
        self._seen[which] = len(world.log)
        for effect in todo:
            (self._carry_up if which == 0 else self._carry_down)(effect)
        return bool(todo)

    def _carry_up(self, effect: Effect) -> None:
        front, back = self.front, self.back
        if isinstance(effect, Dial):
            self._dial(effect)
        elif isinstance(effect, Send) and effect.channel in self.down and effect.message:
            back.send(self.down[effect.channel], effect.message)
        elif isinstance(effect, Close) and effect.channel in self.down:
            here = self.down.pop(effect.channel)
            self.up.pop(here, None)
            front.end(effect.channel)
            if here not in back.over:
                back.end(here, Cause(End.GONE))

    def _dial(self, dial: Dial) -> None:
        front, back, target = self.front, self.back, dial.target
        here = back.engine.new_channel()
        self.down[dial.channel], self.up[here] = here, dial.channel
        if isinstance(target, Spawn | Join):
            back.open(here, PipeOpening("s", "", "http://here"))
            front.open(dial.channel, Connected())
        elif isinstance(target, Post):
            opening = PostOpening("s", "", target.session, target.revision, mirrored=target.mirrored)
            back.open(here, opening)
            if here not in back.over:
                back.send(here, target.message)
        elif isinstance(target, Listen):
            back.open(here, GetOpening("s", "", target.session, target.revision, target.last_event_id))
            if here not in back.over:
                self._begin(here, None)
        else:
            assert isinstance(target, Delete)
            back.open(here, DeleteOpening("s", "", target.session, target.revision))

    def _carry_down(self, effect: Effect) -> None:
        front = self.front
        if isinstance(effect, Send) and effect.channel in self.up:
            there = self.up[effect.channel]
            if effect.status >= 400 and effect.channel not in self.begun:
                self._end(effect.channel, Cause(End.REFUSED, status=effect.status, body=effect.message))
                return
            self._begin(effect.channel, effect.session)
            if effect.message:
                front.send(there, effect.message)
            if effect.is_last:
                self._end(effect.channel, Cause(End.DONE))
        elif isinstance(effect, Close) and effect.channel in self.up:
            is_refused = effect.status >= 400 and effect.channel not in self.begun
            self._end(effect.channel, Cause(End.REFUSED, status=effect.status) if is_refused else Cause(End.DONE))

    def _begin(self, here: ChannelId, session: str | None) -> None:
        there = self.up[here]
        if here not in self.begun and there not in self.front.children and there not in self.front.over:
            self.begun.add(here)
            self.front.open(there, Connected(session=session))

    def _end(self, here: ChannelId, cause: Cause) -> None:
        there = self.up.pop(here, None)
        if there is not None and self.down.pop(there, None) is not None and there not in self.front.over:
            self.front.end(there, cause)
        self.back.end(here)


def chain(hop: Era, kind: Kind) -> tuple[Chain, Any]:
    """Returns both engines and a client of the front. The server of the back speaks the era that the hop does not."""
    other = Era.HANDSHAKE if hop is Era.STATELESS else Era.STATELESS
    front = driver(ServerPlan(id="s", kind=kind, era=hop), seed=1)
    back = driver(ServerPlan(id="s", kind=Kind.PIPE, era=other), seed=2)
    return Chain(front, back), new_client(front, "pipe", "s")


def loads(messages: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(message) for message in messages]
