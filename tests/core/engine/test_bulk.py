"""Tests of inputs in bulk: what they report has the effects of the single inputs that they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.effects import Effect, Pass, Pause, Resume, Send, SendEvents
from isthmus.core.base.events import Connected, GetOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.base.revisions import Era
from isthmus.core.engine import Engine
from pairs import ANSWERS, COMBINATIONS, DONE, LIMITS, METHODS, OPERATIONS, PARAMS, Pair, play

NEWS: Final = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%b"}}'
PROGRESS: Final = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":%d}}'


class Single:
    """An engine that takes bulk inputs one by one."""

    def __init__(self, plan: ServerPlan) -> None:
        plans = Plan(servers=(plan,))
        self.engine = Engine(plans, entropy=Random(1).randbytes, unix_at_zero=1.7e9, has_storage=True, limits=LIMITS)

    def take(self, method: str, *given: Any, **named: Any) -> list[Effect]:
        engine = self.engine
        if method == "receive_messages":
            channel, messages, now = given
            return [effect for each in messages for effect in engine.receive_message(channel, each, now)]
        if method == "receive_pieces":
            channel, pieces, now = given
            return engine.receive_message(channel, b"".join(pieces), now)
        if method == "receive_at_once":
            return list(self._at_once(*given, **named))
        taken: list[Effect] = getattr(engine, method)(*given, **named)
        return taken

    def _at_once(self, channel: ChannelId, now: float, **told: Any) -> Iterator[Effect]:
        if "opening" in told:
            yield from self.engine.receive_open(channel, told["opening"], now)
        if "message" in told:
            yield from self.engine.receive_message(channel, told["message"], now)
        if told.get("size_bytes"):
            yield from self.engine.receive_sent(channel, told["size_bytes"], now)
        if "cause" in told:
            yield from self.engine.receive_close(channel, told["cause"], now)


class BulkPair(Pair):
    """An engine that takes inputs in bulk, and one that takes them singly."""

    def __init__(self, kind: Kind, client: Era, server: Era) -> None:
        self.single = Single(ServerPlan(id="s", kind=kind, era=server))
        super().__init__(kind, client, server)

    def both(self, method: str, *given: Any, **named: Any) -> list[Effect]:
        self.now += 0.001
        bulk, single = self.halves[0].engine, self.single.engine
        effects: list[Effect] = getattr(bulk, method)(*given, self.now, **named)
        singly = self.single.take(method, *given, self.now, **named)
        ended = given[0] if "cause" in named else None
        assert list(told(effects)) == list(told(singly))
        assert list(pauses(effects, ended)) == list(pauses(singly, ended))
        assert bulk.next_timeout() == single.next_timeout()
        assert bulk.exchange_count == single.exchange_count
        self.learn(effects)
        return effects

    def new_channel(self) -> ChannelId:
        channel = self.halves[0].engine.new_channel()
        assert channel == self.single.engine.new_channel()
        return channel

    def answer(self, index: int, template: bytes, *, is_streamed: bool = False) -> None:
        """Sends the response in pieces if it is streamed, and in one otherwise."""
        channel, number, _ = self.dials[index]
        if not is_streamed:
            return super().answer(index, template)
        del self.dials[index]
        message = template % number
        if channel != self.child:
            self.both("receive_open", channel, Connected())
        self.both("receive_pieces", channel, (message[:5], message[5:40], message[40:]))
        if channel != self.child:
            self.both("receive_close", channel, DONE)
        return None

    def row(self, sizes: list[int], steps: int, *, answers: bool) -> None:
        """Lets the server send several messages together: log messages, progress, and its responses to all calls."""
        dials = [dial for dial in self.dials if dial[2] == "tools/call"]
        if not dials:
            return
        channel = self.child if self.child is not None else dials[0][0]
        mine = [dial for dial in dials if dial[0] == channel]
        if not mine:
            return
        if self.child is None:
            self.both("receive_open", channel, Connected())
        messages = [NEWS % (b"x" * size) for size in sizes]
        messages += [PROGRESS % (mine[0][1], step) for step in range(1, steps + 1)]
        if answers or self.child is None:
            messages += [ANSWERS[0] % number for _, number, _ in mine]
            self.dials = [dial for dial in self.dials if dial not in mine]
        self.both("receive_messages", channel, messages)
        if self.child is None:
            self.both("receive_close", channel, DONE)

    def learn(self, effects: list[Effect]) -> None:
        super().learn(list(told(effects)))

    def take(self, channel: ChannelId, size_max: int) -> list[Effect]:
        """Lets a client take some of what was sent to it."""
        taken = min(self.sent_bytes.get(channel, 0), size_max)
        self.sent_bytes[channel] = self.sent_bytes.get(channel, 0) - taken
        return self.both("receive_at_once", channel, size_bytes=taken)

    def listen(self) -> None:
        """Opens the event stream of the client's session."""
        if self.client is Era.HANDSHAKE:
            channel = self.new_channel()
            self.both("receive_at_once", channel, opening=GetOpening("s", session=self.session))
            self.posts.append(channel)


def pauses(effects: list[Effect], ended: ChannelId | None) -> Iterator[Effect]:
    """Yields the orders to pause and to resume. In bulk they come after all that arrived together, and a channel that
    ends with the input is not paused before."""
    yield from (each for each in effects if isinstance(each, Pause | Resume) and each.channel != ended)


def told(effects: list[Effect]) -> Iterator[Any]:
    """Yields all other effects: events one by one, and a message that is passed on as one piece."""
    for effect in effects:
        if isinstance(effect, SendEvents):
            ids = effect.event_ids or (None,) * len(effect.messages)
            for message, id in zip(effect.messages, ids, strict=True):
                yield Send(effect.channel, message, event_id=id)
        elif isinstance(effect, Pass):
            yield effect.channel, b"".join(effect.pieces), effect.size_bytes
        elif not isinstance(effect, Pause | Resume):
            yield effect


BULK: Final = st.one_of(
    OPERATIONS,
    OPERATIONS,
    st.tuples(st.just("row"), st.lists(st.integers(0, 3000), max_size=3), st.integers(0, 4), st.booleans()),
    st.tuples(st.just("call"), st.just("tools/call"), st.just(PARAMS[1]), st.integers(1, 3), st.just({}), st.none()),
    st.tuples(st.just("listen")),
    st.tuples(st.just("take"), st.integers(0, 3), st.integers(1, 6000)),
)


@pytest.mark.parametrize(("kind", "client", "server"), COMBINATIONS)
@settings(deadline=None, max_examples=20)
@given(operations=st.lists(BULK, max_size=14))
def test_inputs_in_bulk_have_the_effects_of_single_ones(
    kind: Kind, client: Era, server: Era, operations: list[tuple[Any, ...]]
) -> None:
    pair = BulkPair(kind, client, server)
    for name, *given_ in operations:
        if name == "row":
            pair.row(given_[0], given_[1], answers=given_[2])
        elif name == "listen":
            pair.listen()
        elif name == "take" and given_[0] < len(pair.posts):
            pair.take(pair.posts[given_[0]], given_[1])
        elif name != "take":
            play(pair, name, *given_)


@pytest.mark.parametrize("has_message", [True, False])
def test_a_channel_whose_message_fills_an_outbox_is_paused(has_message: bool) -> None:
    """Single inputs and those in bulk name the same channel as the source."""
    pair = BulkPair(Kind.HTTP, Era.HANDSHAKE, Era.HANDSHAKE)
    pair.call(METHODS[0], PARAMS[1], 2, {}, None)
    channel, number, _ = pair.dials[-1]
    pair.both("receive_open", channel, Connected())
    steps = [PROGRESS % (number, step) for step in range(1, 60)]
    if has_message:
        effects = [effect for step in steps for effect in pair.both("receive_at_once", channel, message=step)]
    else:
        effects = pair.both("receive_messages", channel, steps)
    assert Pause(channel) in effects
    assert Resume(channel) in pair.take(pair.posts[-1], 10**6)
