"""Tests of requests to servers over HTTP that a driver's own client library writes and reads."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from checked_engine import CheckedEngine
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core import (
    ClientExchange,
    Close,
    Dial,
    Effect,
    Kind,
    Limits,
    Pause,
    PipeOpening,
    Plan,
    Post,
    Resume,
    Send,
    ServerPlan,
    Spawn,
)
from isthmus.core.base.errors import LocalProtocolError

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
RESULT = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
JSON, EVENTS = (b"content-type", b"application/json"), (b"content-type", b"text/event-stream")
URL = "https://host.example/mcp?x=1"


class House:
    """A driver with one client on a pipe, and a server at a URL that says nothing by itself."""

    def __init__(self, limits: Limits | None = None) -> None:
        plan = Plan(servers=(ServerPlan(id="server", kind=Kind.HTTP),))
        self.engine = CheckedEngine(plan, entropy=bytes, unix_at_zero=1e9, limits=limits)
        self.limits = limits or Limits()
        self.client = self.engine.new_channel()
        self.dialled: list[ClientExchange] = []
        self.heard: list[Any] = []
        self.by_channel: dict[int, ClientExchange] = {}
        self.tell(self.engine.receive_open(self.client, PipeOpening("server"), 0.0))

    def tell(self, effects: list[Effect]) -> None:
        for order in effects:
            number = getattr(order, "channel", None)
            if isinstance(order, Dial):
                own = [(b"authorization", b"Bearer x")]
                exchange = ClientExchange(self.engine, order, URL, unix_at_zero=1e9, headers=own, limits=self.limits)
                self.by_channel[order.channel] = exchange
                self.dialled.append(exchange)
            elif number == self.client and isinstance(order, Send):
                self.heard.append(json.loads(order.message))
            elif number in self.by_channel:
                self.by_channel[number].receive_order(order)

    def say(self, method: str, id: Any = None, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if id is None else {"id": id})
        self.tell(self.engine.receive_message(self.client, json.dumps(message).encode(), 0.0))

    def greet(self) -> ClientExchange:
        self.say("initialize", 1, **HELLO)
        (exchange,) = self.dialled
        self.dialled.clear()
        return exchange

    def answer(self, exchange: ClientExchange, status: int, *headers: tuple[bytes, bytes], body: bytes = b"") -> None:
        self.tell(exchange.receive_head(status, headers, 0.0))
        self.tell(exchange.receive_body(body, 0.0))
        self.tell(exchange.receive_end(0.0))

    def meet(self) -> None:
        """Finishes the handshake; the event stream is refused."""
        exchange = self.greet()
        self.answer(exchange, 200, JSON, (b"mcp-session-id", b"S1"), body=answer_to(exchange, RESULT))
        while self.dialled:
            each = self.dialled.pop()
            self.answer(each, 202 if each.method == "POST" else 405)
        self.say("notifications/initialized")
        self.dialled.clear()
        assert self.heard.pop()["id"] == 1


def answer_to(exchange: ClientExchange, result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": json.loads(exchange.body)["id"], "result": result}).encode()


def as_events(message: bytes) -> bytes:
    return b": hi\n\nevent: message\nid: 5\ndata: " + message + b"\n\n"


def call(house: House) -> ClientExchange:
    house.say("tools/call", 2, name="t")
    return house.dialled.pop()


def test_the_request_has_what_the_server_is_to_get() -> None:
    house = House()
    exchange = house.greet()
    assert (exchange.method, exchange.url) == ("POST", URL)
    headers = dict(exchange.headers)
    assert headers[b"authorization"] == b"Bearer x"
    assert headers[b"accept"] == b"application/json, text/event-stream"
    assert not {b"host", b"content-length"} & headers.keys()
    assert json.loads(exchange.body)["method"] == "initialize"


@pytest.mark.parametrize("form", ["document", "events", "gzip"])
@given(cuts=st.lists(st.integers(0, 150), max_size=5))
def test_a_response_may_come_in_any_pieces(form: str, cuts: list[int]) -> None:
    house = House()
    house.meet()
    exchange = call(house)
    message = answer_to(exchange, {"content": []})
    body = {"document": message, "events": as_events(message), "gzip": gzip.compress(message)}[form]
    coding = [(b"content-encoding", b"gzip")] if form == "gzip" else []
    house.tell(exchange.receive_head(200, [EVENTS if form == "events" else JSON, *coding], 0.0))
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), len(body)], strict=True):
        house.tell(exchange.receive_body(body[start:stop], 0.0))
    house.tell(exchange.receive_end(0.0))
    assert house.heard == [{"jsonrpc": "2.0", "id": 2, "result": {"content": []}}]
    assert exchange.is_over
    assert exchange.receive_end(0.0) == exchange.receive_failure("late", 0.0, is_unsent=False) == []
    assert house.engine.exchange_count == 0


@pytest.mark.parametrize(("seen", "is_unsent", "code"), [("nobody there", True, -31004), ("reset", False, -31003)])
def test_a_failure_before_the_head_says_if_the_request_may_have_run(seen: str, is_unsent: bool, code: int) -> None:
    house = House()
    house.meet()
    exchange = call(house)
    while True:
        house.tell(exchange.receive_failure(seen, 0.0, is_unsent=is_unsent))
        if not house.dialled:
            break
        exchange = house.dialled.pop()  # what was not sent is tried again
    (error,) = [each["error"] for each in house.heard] or [{"code": None}]
    assert seen in json.dumps(error) or error["code"] is None


def test_a_failure_within_the_body_breaks_the_response_off() -> None:
    house = House()
    house.meet()
    exchange = call(house)
    house.tell(exchange.receive_head(200, [JSON, (b"content-length", b"500")], 0.0))
    house.tell(exchange.receive_body(b'{"jsonrpc"', 0.0))
    house.tell(exchange.receive_failure("reset by peer", 0.0, is_unsent=False))
    (answer,) = house.heard
    assert "reset by peer" in answer["error"]["message"]
    assert exchange.is_over


def test_a_redirect_within_the_origin_is_followed_with_its_cookies() -> None:
    house = House()
    exchange = house.greet()
    moved = (b"location", b"/elsewhere"), (b"set-cookie", b"a=1; Path=/")
    assert exchange.receive_head(307, moved, 0.0) == []
    assert exchange.is_to_be_sent
    assert exchange.receive_body(b"ignored", 0.0) == []
    assert exchange.url == "https://host.example/elsewhere"
    assert dict(exchange.headers)[b"cookie"] == b"a=1"
    house.answer(exchange, 200, JSON, (b"mcp-session-id", b"S1"), body=answer_to(exchange, RESULT))
    assert house.heard[0]["result"]["serverInfo"]["name"] == "s"
    assert dict(house.dialled[0].headers)[b"cookie"] == b"a=1"


@pytest.mark.parametrize(
    ("location", "why"), [(b"https://evil.example/", "leaves https://host.example"), (b"/again", "redirects in a row")]
)
def test_other_redirects_are_refused_in_words(location: bytes, why: str) -> None:
    house = House(Limits(redirects_max=2))
    exchange = house.greet()
    while exchange.is_to_be_sent:
        house.tell(exchange.receive_head(308, [(b"location", location)], 0.0))
    house.tell(exchange.receive_end(0.0))
    assert why in house.heard[0]["error"]["message"]


def test_orders_for_its_channel_pause_and_end_it() -> None:
    house = House()
    house.meet()
    exchange = call(house)
    exchange.receive_order(Pause(exchange.channel))
    assert exchange.is_paused
    exchange.receive_order(Resume(exchange.channel))
    assert not exchange.is_paused
    exchange.receive_order(Pause(exchange.channel))
    exchange.receive_order(Close(exchange.channel))
    assert (exchange.is_paused, exchange.is_over) == (False, True)
    assert exchange.receive_head(200, [JSON], 0.0) == exchange.receive_body(b"{}", 0.0) == []
    house.tell(exchange.receive_end(0.0))
    assert exchange.receive_end(0.0) == []


def test_what_was_accepted_is_over_at_its_head() -> None:
    house = House()
    house.meet()
    house.say("notifications/roots/list_changed")
    exchange = house.dialled.pop()
    house.tell(exchange.receive_head(202, [], 0.0))
    assert exchange.is_over
    assert exchange.receive_body(b"whatever", 0.0) == exchange.receive_end(0.0) == []


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ((("content-type", "application/json"),), "got the header 'content-type' with a value of type str, expected"),
        (((b"Content-Type", b"application/json"),), "got the header name b'Content-Type', expected it in lower case"),
        ({b"content-type": b"x"}, "got a header of type bytes, expected a pair of bytes"),
    ],
)
def test_headers_in_another_form_are_errors_of_the_driver(headers: Any, words: str) -> None:
    """The exchange is as it was before."""
    house = House()
    exchange = house.greet()
    with pytest.raises(LocalProtocolError, match=words):
        exchange.receive_head(200, headers, 0.0)
    with pytest.raises(LocalProtocolError, match=words):
        ClientExchange(house.engine, Dial(99, Post("server", b"{}")), URL, unix_at_zero=0.0, headers=headers)
    house.answer(exchange, 200, JSON, (b"mcp-session-id", b"S1"), body=answer_to(exchange, RESULT))
    assert house.heard[0]["result"]["serverInfo"]["name"] == "s"


def test_an_order_for_another_channel_is_an_error_of_the_driver() -> None:
    house = House()
    exchange = house.greet()
    with pytest.raises(LocalProtocolError, match=f"channel 99, expected one for channel {exchange.channel}"):
        exchange.receive_order(Close(99))
    assert not exchange.is_over


def test_steps_out_of_order_are_errors_of_the_driver() -> None:
    house = House()
    exchange = house.greet()
    with pytest.raises(LocalProtocolError, match="got a piece of a body before the head"):
        exchange.receive_body(b"{}", 0.0)
    with pytest.raises(LocalProtocolError, match="got a URL of another kind"):
        ClientExchange(house.engine, Dial(99, Post("server", b"{}")), "host.example/mcp", unix_at_zero=0.0)
    house.tell(exchange.receive_head(200, [EVENTS], 0.0))
    with pytest.raises(LocalProtocolError, match="got a second head"):
        exchange.receive_head(200, [EVENTS], 0.0)
    with pytest.raises(LocalProtocolError, match="got a dial of a Spawn"):
        ClientExchange(house.engine, Dial(99, Spawn("server", "")), URL, unix_at_zero=0.0)
    assert isinstance(Post("server", b"{}"), Post)
