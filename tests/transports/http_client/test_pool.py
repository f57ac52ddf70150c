"""A stateful test of the connection pool: connections without sockets, in a drawn order of events."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.effects import Close, Listen, Post
from isthmus.core.base.events import Cause, End, Opening, Queued
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.http_client.client import HttpClient
from isthmus.transports.http_client.connection import Connection, Step
from isthmus.transports.http_client.exchange import Exchange

CALLS_MAX: Final = 2
STREAMS_MAX: Final = 3
ENDPOINTS: Final = (Endpoint("http://127.0.0.1:1/mcp"), Endpoint("http://127.0.0.1:2/mcp"))
TARGETS: Final = {
    "call": Post("s", b"{}"),
    "rest": Listen("s", last_event_id="1", is_of_call=True),
    "stream": Listen("s"),
    "subscription": Post("s", b"{}", is_lasting=True),
}
STREAMS: Final = ("stream", "subscription")

REPLY: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
EVENTS: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
CLOSE: Final = Close(ChannelId(1))


class Wire:
    """The driver of a connection that is made at once and takes every write."""

    def __init__(self, connection: Connection, client: Client) -> None:
        self.connection = connection
        self.client = client
        client.wires.append(self)

    def wake(self) -> None:
        if self.connection.begin():
            while self.connection.next_piece() is not None:
                pass
            self.connection.receive_written()

    def resume(self) -> None:
        raise AssertionError("nobody paused")

    def has_input(self) -> bool:
        return False

    def rest(self) -> None:
        """Does nothing, as there is nothing to let go."""

    def close(self) -> None:
        if self in self.client.wires:
            self.client.wires.remove(self)
            self.connection.settle()

    def receive(self, data: bytes | None) -> None:
        if self in self.client.wires and self.connection.receive(data) is Step.CLOSE:
            self.close()


class Port:
    """Knows the exchanges that are over, with their end, and those that were queued."""

    def __init__(self) -> None:
        self.ends: dict[ChannelId, Cause] = {}
        self.queued: list[ChannelId] = []

    def opened(self, channel: ChannelId, opening: Opening) -> None:
        if isinstance(opening, Queued):
            self.queued.append(channel)

    def message(self, channel: ChannelId, message: bytes) -> None:
        pass

    def replied(self, channel: ChannelId, opening: Opening, message: bytes | None) -> None:
        self.closed(channel, Cause(End.DONE))

    def closed(self, channel: ChannelId, cause: Cause) -> None:
        assert channel not in self.ends
        self.ends[channel] = cause


class Client(HttpClient):
    """The client, without an event loop."""

    def __init__(self) -> None:
        super().__init__(Limits(upstream_connections_max=CALLS_MAX, upstream_streams_max=STREAMS_MAX))
        self.wires: list[Wire] = []
        self._now = lambda: 0.0
        self._tasks: Any = self

    def start(self, connection: Connection, dialer: object) -> None:
        connection.driver = Wire(connection, self)

    def end_soon(self, exchange: Exchange, cause: Cause) -> None:
        exchange.end(cause)

    def start_task(self, tell: Callable[[], Coroutine[object, object, None]]) -> None:
        with pytest.raises(StopIteration):
            tell().send(None)


class World:
    def __init__(self) -> None:
        self.client, self.port = Client(), Port()
        self.open: list[tuple[str, int, Exchange]] = []  # kind and origin
        self.queued: list[tuple[int, Exchange]] = []  # with their origins
        self.count = 0

    def dial(self, kind: str, origin: int) -> None:
        self.count += 1
        channel = ChannelId(self.count)
        held = self.held(origin)
        streams = sum(known in STREAMS for known, _, _ in self.open)
        waiting = sum(where == origin for _, where, _ in self.open) - len(held)
        exchange = self.client.dial(ENDPOINTS[origin], TARGETS[kind], channel, self.port)  # type: ignore[arg-type]
        is_refused = channel in self.port.ends
        if kind in STREAMS:
            is_full = streams == STREAMS_MAX
            assert is_refused == (is_full and kind == "subscription")
            assert (exchange in self.client.queued) == (is_full and kind == "stream") == (channel in self.port.queued)
            assert is_full or exchange.connection is not None, "a stream with a place never waits"
            if exchange in self.client.queued:
                self.queued.append((origin, exchange))
                return
        else:
            calls = sum(known not in STREAMS for known in held)
            assert (exchange.connection is None) == (calls == CALLS_MAX), "only calls make calls wait"
            assert is_refused == (calls == CALLS_MAX and waiting == CALLS_MAX)
        if is_refused:
            assert self.port.ends[channel].detail.startswith("overloaded: ") and self.port.ends[channel].unsent
        else:
            self.open.append((kind, origin, exchange))

    def held(self, origin: int) -> list[str]:
        """The kinds of exchanges that hold the connections to an origin."""
        return [kind for kind, where, exchange in self.open if where == origin and exchange.connection is not None]

    def end(self, index: int, way: str) -> None:
        """Ends one of the running exchanges, in a drawn way."""
        _, _, exchange = self.open[index % len(self.open)]
        connection = exchange.connection
        if way == "abandoned" or connection is None:
            exchange.close(CLOSE)
            return
        wire = connection.driver
        assert isinstance(wire, Wire)
        if way == "lost":
            wire.receive(None)
        elif way == "document":
            wire.receive(REPLY)
        else:
            wire.receive(EVENTS)
            wire.receive(LAST_CHUNK)

    def leave(self, index: int) -> None:
        """Closes one of the waiting exchanges."""
        _, exchange = self.queued.pop(index % len(self.queued))
        exchange.close(CLOSE)

    def check(self) -> None:
        self.open = [entry for entry in self.open if not entry[2].is_over]
        admitted = len(self.queued) - len(self.client.queued)
        for origin, exchange in self.queued[:admitted]:  # the waiting order is first come, first served
            assert exchange.connection is not None
            self.open.append(("stream", origin, exchange))
        del self.queued[:admitted]
        assert [exchange for _, exchange in self.queued] == list(self.client.queued)
        assert not self.queued or self.client.lasting == STREAMS_MAX, "a stream waits though it need not"
        assert self.client.lasting == sum(kind in STREAMS for kind, _, _ in self.open)
        for origin in range(len(ENDPOINTS)):
            calls = sum(kind not in STREAMS for kind in self.held(origin))
            waits = sum(where == origin for _, where, _ in self.open) - len(self.held(origin))
            assert calls <= CALLS_MAX
            assert not waits or calls == CALLS_MAX, "a call waits though it need not"
        of_calls = len(self.client.wires) - self.client.lasting
        assert of_calls <= CALLS_MAX * len(ENDPOINTS), "connections that are left over count as those of calls"


ORDERS = st.one_of(
    st.tuples(st.sampled_from(sorted(TARGETS)), st.integers(0, len(ENDPOINTS) - 1)),
    st.tuples(st.sampled_from(["document", "done", "lost", "abandoned", "leaves"]), st.integers(0, 20)),
)


@settings(max_examples=150)
@given(orders=st.lists(ORDERS, max_size=40))
def test_lasting_streams_and_calls_have_quotas_of_their_own(orders: list[tuple[str, int]]) -> None:
    world = World()
    for order, number in orders:
        if order in TARGETS:
            world.dial(order, number)
        elif order == "leaves":
            if world.queued:
                world.leave(number)
        elif world.open:
            world.end(number, order)
        world.check()
    while world.open:
        world.end(0, "abandoned")
        world.check()
    assert not world.queued and world.client.lasting == 0
    assert set(world.port.ends) == set(range(1, world.count + 1)), "each end is reported, once"


def test_waiting_streams_are_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    world, clock = World(), [100.0]
    world.client._now = lambda: clock[0]
    for _ in range(STREAMS_MAX + 5):
        world.dial("stream", 0)
    assert caplog.messages == [
        "overloaded: 3 streams of servers are open, the most there may be; "
        "until some end, further sessions do without what their servers say unasked"
    ]
    clock[0] += 60.0
    world.dial("stream", 1)
    assert len(caplog.messages) == 2
