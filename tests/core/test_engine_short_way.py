"""A plain call comes to the same by the short way and by the long one: equal inputs, equal effects, equal deadlines."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.effects import Cause, Connected, DeleteOpening, Dial, Effect, End, Post, PostOpening, Send, Spawn
from isthmus.core.engine import Engine
from isthmus.core.ids import ChannelId
from isthmus.core.limits import Limits
from isthmus.core.plan import Kind, Plan, ServerPlan

DONE: Final = Cause(End.DONE)
REVISION: Final = "2025-11-25"
HELLO: Final = {"protocolVersion": REVISION, "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
INITIALIZE: Final = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
SAID: Final = b'"result":%b}' % json.dumps(HELLO).encode()
UNKNOWN: Final = b'"error":{"code":-32601,"message":"Method not found"}}'
LIMITS: Final = Limits(exchanges_per_session_max=3, reply_timeout_s=30.0, outbox_low_bytes=2000, outbox_high_bytes=4000)

PARAMS: Final = (
    b'{"name":"echo","arguments":{"text":"a"}}',
    b'{"name":"echo","_meta":{"progressToken":7}}',
    b'{"name":"echo","task":{"ttl":1000}}',
    b'{"name":"\\u0065cho"}',
    b'{"name":"a multitask"}',
    b"[1]",
)
ANSWERS: Final = (
    b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}',
    b'{"jsonrpc":"2.0", "id":"%d","result":{"content":[]}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"_meta":{"traceparent":"00-0-0-00"},"content":[]}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{"text":"' + b"x" * 5000 + b'"}}',
    b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32602,"message":"no"}}',
    b'\xef\xbb\xbf{"jsonrpc":"2.0","id":%d,"result":{}}',
    b'[{"jsonrpc":"2.0","id":%d,"result":{}}]',
    b'{"jsonrpc":"2.0","id":99%d,"result":{}}',
    b'{"jsonrpc":"2.0","id":%d,"result":{}',
    b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%d}}',
)
METHODS: Final = ("tools/call", "tools/list", "prompts/get", "ping", "notifications/tools/list_changed")


class Half:
    """One of two engines that hear the same."""

    def __init__(self, kind: Kind, *, is_short: bool) -> None:
        random = Random(1)
        plan = Plan(servers=(ServerPlan(id="s", kind=kind),))
        self.engine = Engine(plan, entropy=random.randbytes, unix_at_zero=1.7e9, limits=LIMITS)
        self.taken = 0
        short: Any = self.engine._short
        for name in ("receive_call", "receive_reply"):
            way = getattr(short, name)

            def take(*given: Any, way: Any = way) -> bool:
                went = is_short and way(*given)
                self.taken += went
                return bool(went)

            setattr(short, name, take)


class Pair:
    """Both, and what is open: clients' POSTs by their channels, and requests to the server."""

    def __init__(self, kind: Kind = Kind.HTTP) -> None:
        self.halves = (Half(kind, is_short=True), Half(kind, is_short=False))
        self.now = 0.0
        self.session: str | None = None
        self.posts: list[ChannelId] = []
        self.dials: list[tuple[ChannelId, int, str]] = []  # with number and method of the request
        self.child: ChannelId | None = None
        self.sent_bytes: dict[ChannelId, int] = {}
        self.open()

    def both(self, method: str, *given: Any, **named: Any) -> list[Effect]:
        self.now += 0.001
        short, long = [getattr(half.engine, method)(*given, self.now, **named) for half in self.halves]
        assert short == long
        engines = [half.engine for half in self.halves]
        assert engines[0].next_timeout() == engines[1].next_timeout()
        assert engines[0].exchange_count == engines[1].exchange_count
        self.learn(short)
        return short  # type: ignore[no-any-return]

    def learn(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.sent_bytes[effect.channel] = self.sent_bytes.get(effect.channel, 0) + len(effect.message)
                self.session = effect.session or self.session
                if effect.channel == self.child:
                    self.note_request(effect.channel, effect.message)
            elif isinstance(effect, Dial) and isinstance(effect.target, Spawn):
                self.child = effect.channel
            elif isinstance(effect, Dial) and isinstance(effect.target, Post):
                if not self.note_request(effect.channel, effect.target.message):
                    self.both("receive_close", effect.channel, DONE)
            elif isinstance(effect, Dial):
                self.both("receive_close", effect.channel, Cause(End.REFUSED, status=405))

    def note_request(self, channel: ChannelId, message: bytes) -> bool:
        said = json.loads(message)
        is_request = "id" in said and "method" in said
        if is_request:
            self.dials.append((channel, said["id"], said["method"]))
        return is_request

    def new_channel(self) -> ChannelId:
        first, second = (half.engine.new_channel() for half in self.halves)
        assert first == second
        return first

    def post(self, said: bytes, **extra: Any) -> ChannelId:
        channel = self.new_channel()
        opening = PostOpening("s", session=self.session, revision=REVISION if self.session else None, **extra)
        self.both("receive_at_once", channel, opening=opening, message=said)
        self.posts.append(channel)
        return channel

    def answer(self, index: int, said: bytes) -> None:
        channel, number, _ = self.dials.pop(index)
        message = said % number
        if channel == self.child:
            self.both("receive_message", channel, message)
        else:
            self.both("receive_at_once", channel, opening=Connected(), message=message, cause=DONE)

    def open(self) -> None:
        self.post(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}).encode())
        while self.session is None:
            if self.child is not None and not self.dials:
                self.both("receive_open", self.child, Connected())
            is_known = self.dials[-1][2] == "initialize"
            self.answer(-1, b'{"jsonrpc":"2.0","id":%d,' + (SAID if is_known else UNKNOWN))
        self.post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        play(self, "call", "tools/call", PARAMS[0], 1)  # with which it is found out what is asked of this server
        play(self, "answer", 0, ANSWERS[0])


OPERATIONS = st.one_of(
    st.tuples(st.just("call"), st.sampled_from(METHODS), st.sampled_from(PARAMS), st.integers(1, 3)),
    st.tuples(st.just("call"), st.just("tools/call"), st.sampled_from(PARAMS), st.integers(1, 3)),
    st.tuples(st.just("answer"), st.integers(0, 3), st.sampled_from(ANSWERS)),
    st.tuples(st.just("answer"), st.integers(0, 3), st.just(ANSWERS[0])),
    st.tuples(st.just("cancel"), st.integers(1, 3)),
    st.tuples(st.just("hang up"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("break"), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 29.0, 31.0])),
    st.tuples(st.sampled_from(["end", "drain"])),
)


@pytest.mark.parametrize("kind", [Kind.HTTP, Kind.PIPE])
@settings(deadline=None)
@given(operations=st.lists(OPERATIONS, max_size=14))
def test_the_short_way_leads_where_the_long_one_does(kind: Kind, operations: list[tuple[Any, ...]]) -> None:
    pair = Pair(kind)
    for name, *given_ in operations:
        play(pair, name, *given_)


def play(pair: Pair, name: str, *given: Any) -> None:
    match name:
        case "call":
            method, params, id = given
            head = b'{"jsonrpc":"2.0","method":"%b","params":%b' % (method.encode(), params)
            pair.post(head + (b"}" if method.startswith("notifications") else b',"id":%d}' % id))
        case "answer" if given[0] < len(pair.dials):
            pair.answer(*given)
        case "cancel":
            said = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}'
            pair.post(said % given[0])
        case "hang up" if given[0] < len(pair.posts):
            channel = pair.posts.pop(given[0])
            left = pair.sent_bytes.pop(channel, 0)
            cause = DONE if given[1] else Cause(End.GONE)
            pair.both("receive_at_once", channel, size_bytes=left if given[1] else 0, cause=cause)
        case "break" if given[0] < len(pair.dials):
            channel, *_ = pair.dials.pop(given[0])
            pair.both("receive_close", channel, Cause(End.BROKEN, "cut"))
            if channel == pair.child:
                pair.child = None
        case "wait":
            pair.now += given[0]
            pair.both("handle_timeout")
        case "end":
            pair.both("receive_open", pair.new_channel(), DeleteOpening("s", session="x"))
        case "drain":
            pair.both("receive_drain")


@pytest.mark.parametrize("kind", [Kind.HTTP, Kind.PIPE])
def test_plain_calls_take_it(kind: Kind) -> None:
    """Else the test above compares the long way with itself."""
    pair = Pair(kind)
    play(pair, "call", "tools/call", PARAMS[0], 2)
    play(pair, "answer", 0, ANSWERS[0])
    assert [half.taken for half in pair.halves] == [3 if kind is Kind.HTTP else 1, 0]
