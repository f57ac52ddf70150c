"""Random decisions, cancellations and losses: no request reaches a server undecided, and each is answered once."""

from __future__ import annotations

import json
from collections import Counter, deque
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core import (
    Allowed,
    Cause,
    ChannelId,
    Connected,
    Decide,
    Denied,
    Dial,
    Effect,
    End,
    Era,
    EventPipeOpening,
    Kind,
    Limits,
    MessageOpening,
    PipeOpening,
    Plan,
    PostOpening,
    Recorder,
    Send,
    ServerPlan,
    Spawn,
    StorageFailed,
    replay,
)
from isthmus.core.wire.http.mcp_headers import headers_for

META = "io.modelcontextprotocol/"
STATELESS = {
    "_meta": {
        META + "protocolVersion": "2026-07-28",
        META + "clientInfo": {"name": "c", "version": "1"},
        META + "clientCapabilities": {},
    }
}
HELLO = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
CLIENTS = [(down, era) for down in ("pipe", "http", "sse") for era in Era]


class World:
    """An engine, its clients and one server that answers nothing but the handshake on its own.

    Attributes:
        asked: the channel and the id of each request.
        reached: the tools whose calls the server was sent.
        answered: the number of responses, by id.
    """

    def __init__(self) -> None:
        plan = Plan(servers=(ServerPlan(id="s", kind=Kind.PIPE, era=Era.HANDSHAKE, decides=True),))
        self.lines: list[bytes] = []
        self.engine = Recorder(
            plan,
            entropy=Random(1).randbytes,
            unix_at_zero=1e9,
            limits=Limits(decision_timeout_s=5.0),
            write=self.lines.append,
        )
        self.now = 0.0
        self.ends: dict[ChannelId, str] = {}
        self.servers: list[ChannelId] = []
        self.undecided: list[Decide] = []
        self.decided: list[Decide] = []
        self.allowed: set[str] = set()
        self.calls: list[tuple[ChannelId, Any]] = []
        self.reached: list[str] = []
        self.answered: Counter[Any] = Counter()
        self.errors: dict[Any, int] = {}
        self.ids = 0
        self.asked: dict[Any, int] = {}
        self.channels: dict[Any, ChannelId] = {}
        self.forgiven: set[Any] = set()
        self.endpoints: dict[int, str] = {}
        self.sessions: dict[int, str] = {}
        self.pipes: dict[int, ChannelId] = {}
        for index in range(len(CLIENTS)):
            self.begin(index)

    def begin(self, index: int) -> None:
        down, era = CLIENTS[index]
        if down != "http":
            opening: Any = PipeOpening("s") if down == "pipe" else EventPipeOpening("s", endpoint="/messages")
            self.pipes[index] = self.engine.new_channel()
            self.ends[self.pipes[index]] = "client"
            self.feed(self.engine.receive_open(self.pipes[index], opening, self.now))
        self.sessions.pop(index, None)
        if era is Era.HANDSHAKE:
            hello = self.say(index, "initialize", HELLO)
            assert self.answered[hello] == 1

    def feed(self, effects: list[Effect]) -> None:
        orders = deque(effects)
        while orders:
            orders.extend(self.carry_out(orders.popleft()))

    def carry_out(self, order: Effect) -> list[Effect]:
        if isinstance(order, Dial):
            assert isinstance(order.target, Spawn)
            self.ends[order.channel] = "server"
            self.servers.append(order.channel)
            return self.engine.receive_open(order.channel, Connected(), self.now)
        if isinstance(order, Decide):
            self.undecided.append(order)
        if isinstance(order, Send):
            sent = self.engine.receive_sent(order.channel, len(order.message), self.now)
            if self.ends[order.channel] == "server":
                return sent + self.serve(order.channel, json.loads(order.message))
            self.hear(order)
            return sent
        return []

    def serve(self, channel: ChannelId, frame: dict[str, Any]) -> list[Effect]:
        if frame.get("method") == "tools/call":
            self.reached.append(frame["params"]["name"])
            self.calls.append((channel, frame["id"]))
        if frame.get("method") != "initialize":
            return []
        result = {"protocolVersion": "2025-03-26", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        return self.answer(channel, frame["id"], result)

    def answer(self, channel: ChannelId, id: Any, result: Any) -> list[Effect]:
        message = json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()
        return self.engine.receive_message(channel, message, self.now)

    def hear(self, send: Send) -> None:
        if send.event == "endpoint":
            index = next(index for index, pipe in self.pipes.items() if pipe == send.channel)
            self.endpoints[index] = send.message.decode().partition("sessionId=")[2]
            return
        if not send.message:
            return
        if send.session:
            self.sessions[self.asked[json.loads(send.message)["id"]]] = send.session
        heard = json.loads(send.message)
        for frame in heard if isinstance(heard, list) else [heard]:
            if "method" not in frame:
                self.answered[frame["id"]] += 1
                if "error" in frame:
                    self.errors[frame["id"]] = frame["error"]["code"]

    def write(self, index: int, body: Any, params: dict[str, Any] | None = None, method: str = "") -> ChannelId:
        """Sends a body as a client does. Returns the channel on which the answer comes."""
        down, era = CLIENTS[index]
        message = json.dumps(body).encode()
        if down == "pipe":
            self.feed(self.engine.receive_message(self.pipes[index], message, self.now))
            return self.pipes[index]
        channel = self.engine.new_channel()
        self.ends[channel] = "client"
        opening: Any
        if down == "sse":
            opening = MessageOpening("s", token=self.endpoints[index])
        elif era is Era.STATELESS:
            mirrored = headers_for(method, json.dumps(params).encode())
            opening = PostOpening("s", revision="2026-07-28", accepts_events=True, mirrored=mirrored)
        else:
            opening = PostOpening("s", session=self.sessions.get(index), accepts_events=True)
        self.feed(self.engine.receive_open(channel, opening, self.now))
        self.feed(self.engine.receive_message(channel, message, self.now))
        return self.pipes[index] if down == "sse" else channel

    def request(self, index: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.ids += 1
        self.asked[self.ids] = index
        params = params | STATELESS if CLIENTS[index][1] is Era.STATELESS else params
        return {"jsonrpc": "2.0", "id": self.ids, "method": method, "params": params}

    def say(self, index: int, method: str, params: dict[str, Any]) -> int:
        body = self.request(index, method, params)
        self.channels[body["id"]] = self.write(index, body, body["params"], method)
        return int(body["id"])

    def call(self, index: int, size: int) -> None:
        if size == 1 or CLIENTS[index][1] is Era.STATELESS:
            self.say(index, "tools/call", {"name": f"t{self.ids + 1}"})
            return
        batch = [self.request(index, "tools/call", {"name": f"t{self.ids + 1}"}) for _ in range(size)]
        channel = self.write(index, batch)
        self.channels.update({body["id"]: channel for body in batch})

    def decide(self, at: int, answer: Any) -> None:
        """Answers an order, perhaps one that is over or was answered before."""
        orders = self.undecided + self.decided[-2:]
        if not orders:
            return
        order = orders[at % len(orders)]
        if order in self.undecided:
            self.undecided.remove(order)
            self.decided.append(order)
            if isinstance(answer, Allowed):
                assert order.name is not None
                self.allowed.add(order.name)
        self.feed(self.engine.receive_answer(order.ticket, answer, self.now))

    def cancel(self, at: int) -> None:
        open_ids = [id for id in self.asked if not self.answered[id] and id not in self.forgiven]
        if not open_ids:
            return
        id = open_ids[at % len(open_ids)]
        self.forgiven.add(id)
        index = self.asked[id]
        if CLIENTS[index] == ("http", Era.STATELESS):
            self.feed(self.engine.receive_close(self.channels[id], Cause(End.GONE), self.now))
        else:
            params = {"requestId": id} | (STATELESS if CLIENTS[index][1] is Era.STATELESS else {})
            self.write(index, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    def lose_client(self, index: int) -> None:
        """Ends the pipe of a client, which begins anew."""
        if index in self.pipes:
            self.forgiven.update(id for id, each in self.asked.items() if each == index)
            self.feed(self.engine.receive_close(self.pipes[index], Cause(End.GONE), self.now))
            self.begin(index)

    def lose_server(self, at: int) -> None:
        if self.servers:
            channel = self.servers.pop(at % len(self.servers))
            self.calls = [call for call in self.calls if call[0] != channel]
            self.feed(self.engine.receive_close(channel, Cause(End.GONE), self.now))

    def settle(self, at: int) -> None:
        if self.calls:
            self.feed(self.answer(*self.calls.pop(at % len(self.calls)), {"content": []}))

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.engine.next_timeout()) is not None and due.at <= end:
            self.now = max(self.now, due.at)
            self.feed(self.engine.handle_timeout(self.now))
        self.now = end


NUMBER = st.integers(0, 99)
STEP = st.one_of(
    st.tuples(st.just("call"), st.integers(0, len(CLIENTS) - 1), st.integers(1, 3)),
    st.tuples(st.just("decide"), NUMBER, st.sampled_from([Allowed(), Denied("no"), StorageFailed("broken")])),
    st.tuples(st.just("cancel"), NUMBER),
    st.tuples(st.just("lose_client"), st.integers(0, len(CLIENTS) - 1)),
    st.tuples(st.just("lose_server"), NUMBER),
    st.tuples(st.just("settle"), NUMBER),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 3.0])),
)


@given(st.lists(STEP, max_size=40))
def test_no_request_reaches_a_server_undecided_and_each_is_answered_once(steps: list[tuple[Any, ...]]) -> None:
    world = World()
    for name, *told in steps:
        getattr(world, name)(*told)
        assert set(world.reached) <= world.allowed
    world.wait(6.0)  # nobody decides about the rest
    while world.calls:
        world.settle(0)
    for id in world.asked:
        assert world.answered[id] <= 1, id
        assert world.answered[id] == 1 or id in world.forgiven, id
    assert world.engine.exchange_count == 0
    assert not world.engine._downstream.decisions._waiting
    assert not list(replay(world.lines))


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("index", range(len(CLIENTS)), ids=[f"{down}-{era.value}" for down, era in CLIENTS])
@pytest.mark.parametrize("answer", [Allowed(), Denied("no"), StorageFailed("broken"), None])
def test_each_transport_era_and_shape(index: int, size: int, answer: Any) -> None:
    world = World()
    before = world.ids
    world.call(index, size)
    assert not world.reached
    while answer is not None and world.undecided:
        world.decide(0, answer)
    world.wait(5.0)
    ids = range(before + 1, world.ids + 1)
    assert world.reached == ([f"t{id}" for id in ids] if isinstance(answer, Allowed) else [])
    while world.calls:
        world.settle(0)
    assert all(world.answered[id] == 1 for id in ids)
    expected = {} if isinstance(answer, Allowed) else dict.fromkeys(ids, -31009)
    assert world.errors == expected
