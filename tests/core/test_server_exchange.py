"""Tests of requests of clients over HTTP that a driver's own server library reads and writes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from checked_engine import CheckedEngine
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core import Close, Connected, Dial, Effect, Kind, Limits, Note, Plan, Send, ServerExchange, ServerPlan
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.wire.http.reply import ReplyBody, ReplyCut, ReplyEnd, ReplyHead
from isthmus.core.wire.http.routes import Head, Surface

HOST = (b"host", b"localhost")
POSTED = (HOST, (b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream"))
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
ANSWER = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
SURFACE = Surface(("server",), frozenset({"localhost"}), frozenset(), areas=frozenset({"mcp", "sse", "messages"}))


def asked(id: int, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


class House:
    """A driver with one server on a pipe, which answers what it is asked at once."""

    def __init__(self, limits: Limits | None = None, surface: Surface = SURFACE) -> None:
        plan = Plan(servers=(ServerPlan(id="server", kind=Kind.PIPE),))
        self.engine = CheckedEngine(plan, entropy=bytes, unix_at_zero=0.0, limits=limits)
        self.limits, self.surface = limits or Limits(), surface
        self.open: dict[int, ServerExchange] = {}
        self.calls: list[tuple[int, Any]] = []
        self.closed: set[int] = set()

    def tell(self, effects: list[Effect]) -> None:
        while effects:
            order = effects.pop(0)
            number = getattr(order, "channel", None)
            if isinstance(order, Dial):
                effects += self.engine.receive_open(order.channel, Connected(), 0.0)
            elif number in self.open:
                self.open[number].receive_order(order)
            elif isinstance(order, Send):
                said = json.loads(order.message)
                if said["method"] == "initialize":
                    self.answer(effects, order.channel, said["id"], ANSWER)
                elif "id" in said:
                    self.calls.append((order.channel, said["id"]))
            elif isinstance(order, Close):
                self.closed.add(order.channel)

    def answer(self, effects: list[Effect], channel: int, id: Any, result: Any) -> None:
        message = json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()
        effects += self.engine.receive_message(channel, message, 0.0)

    def exchange(self, method: str, path: str, *headers: tuple[bytes, bytes], root: str = "") -> ServerExchange:
        head = Head(method, path, headers or (HOST,), root=root)
        exchange = ServerExchange(self.engine, self.surface, head, limits=self.limits)
        self.open[exchange.channel] = exchange
        return exchange

    def post(self, message: bytes, *headers: tuple[bytes, bytes], path: str = "/mcp", cut: int = 0) -> ServerExchange:
        exchange = self.exchange("POST", path, *POSTED, *headers)
        exchange.receive_body(message[:cut], is_last=False)
        exchange.receive_body(message[cut:], is_last=True)
        self.tell(exchange.begin(0.0))
        return exchange

    def read(self, exchange: ServerExchange) -> tuple[int, dict[bytes, bytes], bytes, str]:
        """Writes the reply. Returns status, headers, body, and how it ended so far."""
        status, headers, body, end = 0, {}, b"", "open"
        for out in exchange.take():
            if isinstance(out, ReplyHead):
                status, headers = out.status, dict(out.headers)
            elif isinstance(out, ReplyBody):
                body += out.data
            else:
                end = {ReplyEnd: "whole", ReplyCut: "cut"}[type(out)]
        self.tell(exchange.written(0.0))
        return status, headers, body, end

    def begin(self, revision: str = "2025-11-25") -> tuple[bytes, bytes]:
        """Opens a session. Returns its header."""
        exchange = self.post(asked(1, "initialize", **HELLO | {"protocolVersion": revision}))
        status, headers, body, end = self.read(exchange)
        assert (status, end, json.loads(body)["id"]) == (200, "whole", 1)
        assert exchange.is_over
        self.tell(exchange.end(0.0))
        session = (b"mcp-session-id", headers[b"mcp-session-id"])
        self.read(self.post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', session))
        return session


@pytest.mark.parametrize("cut", [0, 1, 20])
def test_a_post_is_answered_by_a_document(cut: int) -> None:
    house = House()
    session = house.begin()
    exchange = house.post(asked(2, "tools/list"), session, cut=cut)
    assert exchange.take() == []
    assert not exchange.is_over
    effects: list[Effect] = []
    house.answer(effects, *house.calls.pop(), {"tools": []})
    house.tell(effects)
    status, headers, body, end = house.read(exchange)
    assert (status, end, json.loads(body)) == (200, "whole", {"jsonrpc": "2.0", "id": 2, "result": {"tools": []}})
    assert headers[b"content-length"] == b"%d" % len(body)
    house.tell(exchange.end(0.0))
    assert house.engine.exchange_count == 0


def test_a_reply_that_ends_while_parts_of_it_are_written_is_not_over() -> None:
    """A driver that looks at `is_over` after each `written` writes the rest of it."""
    house = House()
    session = house.begin()
    exchange = house.post(asked(2, "tools/list"), session)
    channel, id = house.calls.pop()
    progress = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'
    house.tell(house.engine.receive_message(channel, progress, 0.0))
    exchange.keep_alive()
    began = exchange.take()
    effects: list[Effect] = []
    house.answer(effects, channel, id, {"tools": []})
    house.tell(effects)
    house.tell(exchange.written(0.0))
    assert began
    assert not exchange.is_over
    assert house.read(exchange)[3] == "whole"
    assert exchange.is_over


def test_a_client_that_leaves_before_all_was_written_is_gone() -> None:
    """A stateless request is cancelled so; in a session, the response is kept for a client that comes back."""
    house = House()
    session = house.begin()
    exchange = house.post(asked(2, "tools/list"), session)
    effects: list[Effect] = []
    house.answer(effects, *house.calls.pop(), {"tools": []})
    house.tell(effects)
    assert not exchange.is_over
    assert exchange.take()
    assert exchange.is_over
    house.tell(exchange.end(0.0))  # nothing says that it was written
    assert exchange.end(0.0) == []


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
def test_a_get_opens_its_stream_at_once_and_comments_keep_it_alive(revision: str) -> None:
    """The later revision begins it with an event to resume from."""
    house = House()
    session = house.begin(revision)
    exchange = house.exchange("GET", "/mcp", HOST, (b"accept", b"text/event-stream"), session)
    assert exchange.wants_body
    exchange.receive_body(b"", is_last=True)
    house.tell(exchange.begin(0.0))
    status, headers, body, end = house.read(exchange)
    assert (status, headers[b"content-type"], end) == (200, b"text/event-stream", "open")
    assert body.startswith(b"event: message") if revision == "2025-11-25" else not body
    exchange.keep_alive()
    assert house.read(exchange)[2].startswith(b":")
    house.tell(exchange.end(0.0))
    assert exchange.take() == []


def test_a_get_that_is_refused_opens_no_stream() -> None:
    house = House()
    exchange = house.exchange("GET", "/mcp", HOST, (b"accept", b"text/event-stream"), (b"mcp-session-id", b"unknown"))
    exchange.receive_body(b"", is_last=True)
    house.tell(exchange.begin(0.0))
    assert house.read(exchange)[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/elsewhere", (HOST,), 404),
        ("GET", "/healthz", (HOST,), 404),
        ("GET", "/ws", (HOST,), 404),
        ("POST", "/mcp", ((b"host", b"evil.example"),), 403),
        ("POST", "/mcp", (HOST, (b"content-type", b"text/plain")), 415),
        ("BREW", "/mcp", (HOST,), 405),
        ("OPTIONS", "/mcp", (HOST, (b"origin", b"http://localhost"), (b"access-control-request-method", b"POST")), 204),
    ],
)
def test_requests_that_are_refused_open_no_channel(
    method: str, path: str, headers: tuple[tuple[bytes, bytes], ...], status: int
) -> None:
    house = House()
    exchange = house.exchange(method, path, *headers)
    assert not exchange.wants_body
    exchange.receive_body(b"dropped", is_last=False)
    assert exchange.begin(0.0) == []
    found, fields, body, end = house.read(exchange)
    assert (found, end, exchange.is_over) == (status, "whole", True)
    assert fields.get(b"content-length", b"%d" % len(body)) == b"%d" % len(body)
    assert exchange.end(0.0) == []
    if status == 404:
        assert b"/mcp" in body
        assert b"/ws" not in body.replace(b"'/ws'", b"")
        assert b"/upload" not in body
        assert b"/healthz" not in body.replace(b"'/healthz'", b"")


def test_a_body_over_the_limit_is_refused() -> None:
    house = House(Limits(request_size_max_bytes=10))
    exchange = house.exchange("POST", "/mcp", *POSTED)
    exchange.receive_body(b"x" * 10, is_last=False)
    assert exchange.wants_body
    exchange.receive_body(b"x", is_last=False)
    assert not exchange.wants_body
    status, _, body, end = house.read(exchange)
    assert (status, end) == (413, "whole")
    assert b"expected at most 10" in body
    assert exchange.end(0.0) == []


@pytest.mark.parametrize("target", ["/tools/mcp", "/mcp", "/tools/mcp/server"])
def test_an_application_may_be_mounted(target: str) -> None:
    """The target has the path of the mount in some servers, and in others not."""
    house = House()
    exchange = house.exchange("POST", target, *POSTED, root="/tools")
    exchange.receive_body(asked(1, "initialize", **HELLO), is_last=True)
    house.tell(exchange.begin(0.0))
    assert house.read(exchange)[0] == 200
    assert not house.exchange("POST", "/toolsmcp", *POSTED, root="/tools").wants_body


def test_a_mounted_event_stream_names_the_mounted_path() -> None:
    house = House()
    exchange = house.exchange("GET", "/tools/sse", HOST, root="/tools")
    exchange.receive_body(b"", is_last=True)
    house.tell(exchange.begin(0.0))
    assert b"data: /tools/messages?sessionId=" in house.read(exchange)[2]


def test_errors_of_a_mounted_application_have_the_paths_and_the_form_of_its_clients() -> None:
    house = House(Limits(request_size_max_bytes=10))
    missing = house.read(house.exchange("POST", "/tools/nothing?key=1", *POSTED, root="/tools/"))
    wanted = "got path '/tools/nothing', expected /tools/mcp"
    assert (missing[0], json.loads(missing[2])["detail"]) == (404, wanted)
    for target in ("/tools/mcp/other", "/mcp/other"):
        other = house.read(house.exchange("POST", target, *POSTED, root="/tools"))
        assert "got path '/tools/mcp/other'" in json.loads(other[2])["error"]["message"]
    page = house.exchange("GET", "/tools/healthz?key=1", HOST, root="/tools")
    assert "got path '/tools/healthz'" in json.loads(house.read(page)[2])["detail"]
    large = house.exchange("POST", "/tools/mcp", *POSTED, root="/tools")
    large.receive_body(b"x" * 11, is_last=False)
    status, _, body, _ = house.read(large)
    assert (status, json.loads(body)["jsonrpc"]) == (413, "2.0")


@pytest.mark.parametrize(("name", "status"), [("ann", 200), ("bob", 404), ("", 404)])
def test_a_session_belongs_to_the_principal_that_the_driver_names(name: str, status: int) -> None:
    house = House()
    exchange = ServerExchange(house.engine, SURFACE, Head("POST", "/mcp", POSTED), principal="ann")
    house.open[exchange.channel] = exchange
    exchange.receive_body(asked(1, "initialize", **HELLO), is_last=True)
    house.tell(exchange.begin(0.0))
    session = (b"mcp-session-id", house.read(exchange)[1][b"mcp-session-id"])
    other = ServerExchange(house.engine, SURFACE, Head("DELETE", "/mcp", (HOST, session)), principal=name)
    house.open[other.channel] = other
    other.receive_body(b"", is_last=True)
    house.tell(other.begin(0.0))
    found, _, body, _ = house.read(other)
    assert found == status or (status, found, body) == (200, 204, b"")


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ((("host", "localhost"),), "got the header 'host' with a value of type str, expected name and value as bytes"),
        (((b"host", "localhost"),), "got the header b'host' with a value of type str"),
        (((b"Host", b"localhost"),), "got the header name b'Host', expected it in lower case"),
        ({b"host": b"localhost"}, "got a header of type bytes, expected a pair of bytes"),
    ],
)
def test_headers_in_another_form_are_errors_of_the_driver(headers: Any, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words):
        ServerExchange(House().engine, SURFACE, Head("POST", "/mcp", headers))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"servers": "server"}, "got the text 'server' as servers, expected several texts"),
        ({"hosts": "localhost"}, "got the text 'localhost' as hosts"),
        (
            {"hosts": frozenset({"localhost:80"})},
            "got the host 'localhost:80', expected it in lower case, without port",
        ),
        ({"hosts": frozenset({"Localhost"})}, "got the host 'Localhost'"),
        ({"hosts": frozenset({"::1"})}, "got the host '::1'"),
        (
            {"areas": frozenset({"/mcp"})},
            "got the area '/mcp', expected some of artifacts, mcp, messages, pages, sse, ",
        ),
    ],
)
def test_a_surface_in_another_form_is_an_error_of_the_driver(changed: dict[str, Any], words: str) -> None:
    given = {"servers": ("server",), "hosts": frozenset({"localhost", "[::1]"}), "origins": frozenset()}
    Surface(**given)
    with pytest.raises(LocalProtocolError, match=re.escape(words)):
        Surface(**given | changed)


def test_an_order_for_another_channel_is_not_written_to_this_client() -> None:
    house = House()
    exchange = house.post(asked(1, "initialize", **HELLO))
    seen = exchange.take()
    for order, words in ((Send(99, b"{}", True), "for channel 99"), (Note("info", "hi"), "for no channel")):
        with pytest.raises(LocalProtocolError, match=f"{words}, expected one for channel {exchange.channel}"):
            exchange.receive_order(order)
    assert seen
    assert exchange.take() == []


def test_steps_out_of_order_are_errors_of_the_driver() -> None:
    house = House()
    exchange = house.exchange("POST", "/mcp", *POSTED)
    with pytest.raises(LocalProtocolError, match="before the whole body"):
        exchange.begin(0.0)
    exchange.receive_body(asked(1, "initialize", **HELLO), is_last=True)
    with pytest.raises(LocalProtocolError, match="got a piece of a body after its last one"):
        exchange.receive_body(b"", is_last=True)
    house.tell(exchange.begin(0.0))
    assert exchange.begin(0.0) == []  # the reply has ended


@given(
    cuts=st.lists(st.integers(0, 200), max_size=4),
    answered=st.booleans(),
    leaves=st.integers(0, 3),
)
def test_a_channel_is_closed_once_wherever_the_client_leaves(cuts: list[int], answered: bool, leaves: int) -> None:
    house = House()
    session = house.begin()
    message = asked(2, "tools/list")
    exchange = house.exchange("POST", "/mcp", *POSTED, session)
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), len(message)], strict=True):
        exchange.receive_body(message[start:stop], is_last=False)
    if leaves:
        exchange.receive_body(b"", is_last=True)
        house.tell(exchange.begin(0.0))
        if answered and leaves > 1:
            effects: list[Effect] = []
            house.answer(effects, *house.calls.pop(), {"tools": []})
            house.tell(effects)
            if leaves > 2:
                assert house.read(exchange)[3] == "whole"
    house.tell(exchange.end(0.0))
    assert exchange.end(0.0) == []
    assert house.engine.session_count == 1
