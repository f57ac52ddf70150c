"""Tests of peers on streams of lines that a driver reads and writes as bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from checked_engine import CheckedEngine
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core import (
    Cause,
    Close,
    Connected,
    Dial,
    Effect,
    End,
    Kind,
    Limits,
    LineChannel,
    Note,
    Pause,
    PipeOpening,
    Plan,
    Resume,
    Send,
    ServerPlan,
)
from isthmus.core.base.errors import LocalProtocolError

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
RESULT = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}


class House:
    """A driver with one client and one server on streams of lines. Neither says anything by itself."""

    def __init__(self, limits: Limits | None = None) -> None:
        plan = Plan(servers=(ServerPlan(id="server", kind=Kind.PIPE),))
        self.engine = CheckedEngine(plan, entropy=bytes, unix_at_zero=0.0, limits=limits)
        self.limits = limits or Limits()
        self.notes: list[str] = []
        self.client = LineChannel(self.engine, self.engine.new_channel(), is_client=True, limits=self.limits)
        self.by_channel = {self.client.channel: self.client}
        self.server = self.client  # until one is dialled
        self.tell(self.engine.receive_open(self.client.channel, PipeOpening("server"), 0.0))

    def tell(self, effects: list[Effect]) -> None:
        while effects:
            order = effects.pop(0)
            if isinstance(order, Dial):
                self.server = LineChannel(self.engine, order.channel, is_client=False, limits=self.limits)
                self.by_channel[order.channel] = self.server
                effects += self.engine.receive_open(order.channel, Connected(), 0.0)
            elif isinstance(order, Note):
                self.notes.append(order.text)
            else:
                self.by_channel[order.channel].receive_order(order)  # type: ignore[attr-defined]

    def read(self, peer: LineChannel) -> list[Any]:
        """Writes what there is for a peer. Returns its messages."""
        data = peer.take()
        assert not peer.has_output
        self.tell(peer.written(0.0))
        assert not data or data.endswith(b"\n")
        return [json.loads(line) for line in data.splitlines()]

    def say(self, method: str, id: int | None = None, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if id is None else {"id": id})
        self.tell(self.client.receive_bytes(json.dumps(message).encode() + b"\n", 0.0))

    def meet(self) -> None:
        self.say("initialize", 1, **HELLO)
        (asked,) = self.read(self.server)
        self.tell(self.server.receive_bytes(answer_to(asked, RESULT), 0.0))
        self.read(self.client)
        self.say("notifications/initialized")
        self.read(self.server)


def answer_to(asked: Any, result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode() + b"\n"


@given(cuts=st.lists(st.integers(0, 120), max_size=6))
def test_lines_may_come_in_any_pieces(cuts: list[int]) -> None:
    house = House()
    house.meet()
    house.say("tools/call", 2, name="a")
    house.say("tools/call", 3, name="b")
    first, second = house.read(house.server)
    text = answer_to(second, {"content": []}) + b"\r\n" + answer_to(first, {"content": []})
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), len(text)], strict=True):
        house.tell(house.server.receive_bytes(text[start:stop], 0.0))
    assert [message["id"] for message in house.read(house.client)] == [3, 2]
    assert house.engine.exchange_count == 0


def test_the_end_is_the_end_of_the_last_line() -> None:
    """A server that exits with its last response may leave out the line end."""
    house = House()
    house.meet()
    house.say("tools/call", 2, name="a")
    (asked,) = house.read(house.server)
    house.tell(house.server.receive_bytes(answer_to(asked, {"content": []}).rstrip(), 0.0))
    assert house.read(house.client) == []
    house.tell(house.server.receive_eof(0.0))
    assert house.read(house.client) == [{"jsonrpc": "2.0", "id": 2, "result": {"content": []}}]
    assert house.server.receive_eof(0.0) == []
    with pytest.raises(LocalProtocolError):
        house.server.receive_bytes(b"more", 0.0)


def test_a_response_that_is_too_long_becomes_an_error_for_its_client() -> None:
    """The id may stand at either end of the line."""
    house = House(Limits(reply_size_max_bytes=300))
    house.meet()
    for id, form in enumerate(
        ('{{"jsonrpc":"2.0","id":{0},"result":{1}}}', '{{"jsonrpc":"2.0","result":{1},"id":{0}}}'), 2
    ):
        house.say("tools/call", id, name="a")
        (asked,) = house.read(house.server)
        line = form.format(json.dumps(asked["id"]), json.dumps({"text": "x" * 1000})).encode() + b"\n"
        house.tell(house.server.receive_bytes(line, 0.0))
        (answer,) = house.read(house.client)
        assert (answer["id"], "error" in answer) == (id, True)
    house.tell(house.server.receive_bytes(b"x" * 301 + b"\n", 0.0))
    assert house.read(house.client) == []
    assert house.notes[-1] == "got a line of 301 bytes, expected at most 300: dropped"


def test_a_request_that_is_too_long_is_refused_and_not_reported_as_sent() -> None:
    """The engine has ordered no response to it. `CheckedEngine` would tell."""
    house = House(Limits(request_size_max_bytes=300))
    house.meet()
    house.say("tools/call", 2, name="x" * 1000)
    data = house.client.take()
    assert house.client.written(0.0) == []
    answer = json.loads(data)
    assert (answer["id"], "error" in answer) == (2, True)
    assert house.read(house.server) == []
    house.say("tools/call", 3, name="a")
    assert len(house.read(house.server)) == 1


def test_what_was_taken_is_reported_once_without_its_framing() -> None:
    """An order that comes while something is written waits for the next `take`."""
    house = House()
    house.meet()
    sent: list[tuple[int, int]] = []
    engine_sent = house.engine.receive_sent

    def receive_sent(channel: int, size_bytes: int, now: float) -> list[Effect]:
        sent.append((channel, size_bytes))
        return engine_sent(channel, size_bytes, now)

    house.engine.receive_sent = receive_sent  # type: ignore[method-assign]
    house.say("tools/call", 2, name="a")
    house.say("tools/call", 3, name="b")
    first = house.server.take()
    house.say("tools/call", 4, name="c")
    house.tell(house.server.written(0.0))
    second = house.server.take()
    house.tell(house.server.written(0.0))
    assert (first.count(b"\n"), second.count(b"\n")) == (2, 1)
    assert sent == [(house.server.channel, len(first) - 2), (house.server.channel, len(second) - 1)]
    assert house.server.written(0.0) == []
    assert len(sent) == 2


def test_orders_pause_and_close_it() -> None:
    house = House()
    house.meet()
    server = house.server
    server.receive_order(Pause(server.channel))
    assert (server.is_paused, server.is_closed) == (True, False)
    server.receive_order(Resume(server.channel))
    assert not server.is_paused
    server.receive_order(Pause(server.channel))
    server.receive_order(Close(server.channel))
    assert (server.is_paused, server.is_closed) == (False, True)
    house.say("tools/call", 2, name="a")
    assert server.has_output  # a client's last responses are still to be written
    assert server.receive_bytes(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n', 0.0) == []
    house.tell(house.engine.receive_close(server.channel, Cause(End.GONE), 0.0))
    with pytest.raises(LocalProtocolError, match=f"for channel 99, expected one for channel {server.channel}"):
        server.receive_order(Send(99, b"{}"))
