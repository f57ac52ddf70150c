"""Tests of `WatchedEngine`: each breach of the driver's contract is reported, and a driver that keeps it is not."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest
from isthmus.core import (
    Cause,
    Connected,
    Dial,
    Effect,
    End,
    Engine,
    Kind,
    LocalProtocolError,
    Plan,
    PostOpening,
    Saved,
    Send,
    ServerPlan,
    Ticket,
)
from isthmus.core.base.ids import ChannelId
from isthmus.core.testing import WatchedEngine
from isthmus.core.testing.watched_engine import Orders
from isthmus.core.trace import INPUTS

HELLO = b"""{"jsonrpc":"2.0","id":"hello","method":"initialize","params":
  {"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"me","version":"1"}}}"""
WELCOME = b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}'


def made(kind: Kind = Kind.PIPE) -> WatchedEngine:
    plan = Plan(servers=(ServerPlan(id="s", kind=kind),))
    entropy = itertools.count(1)
    return WatchedEngine(
        plan,
        entropy=lambda size: next(entropy).to_bytes(size, "big"),
        unix_at_zero=0.0,
        report=lambda _: None,
        grace_s=5.0,
        lock=threading.RLock(),
    )


def begin(engine: WatchedEngine) -> tuple[ChannelId, ChannelId]:
    """Begins a session. Returns the channels of the client and of the server, whose `Dial` is not answered yet."""
    client = engine.new_channel()
    list(engine.receive_open(client, PostOpening("s"), 0.0))
    (dial,) = [each for each in engine.receive_message(client, HELLO, 0.0) if isinstance(each, Dial)]
    return client, dial.channel


def connected(engine: WatchedEngine) -> tuple[ChannelId, ChannelId, int]:
    """Begins a session whose server is open. Returns the size of what the server was sent, too."""
    client, server = begin(engine)
    (sent,) = [each for each in engine.receive_open(server, Connected(), 0.1) if isinstance(each, Send)]
    return client, server, len(sent.message)


def test_a_driver_that_keeps_the_contract_is_not_reported() -> None:
    engine = made()
    client, server, size_bytes = connected(engine)
    list(engine.receive_sent(server, size_bytes, 0.2))
    queue = engine.receive_message(server, WELCOME, 0.3)
    while queue:  # the list itself may be the queue of the driver
        order = queue.pop(0)
        if isinstance(order, Send):
            queue += engine.receive_sent(order.channel, len(order.message), 0.3)
    list(engine.receive_close(client, Cause(End.DONE), 0.4))
    list(engine.receive_stop(0.5))
    list(engine.receive_close(server, Cause(End.DONE), 0.6))
    assert engine.finish() == []


def loop(engine: WatchedEngine) -> None:
    client, server, _ = connected(engine)
    for order in engine.receive_message(server, WELCOME, 0.3):
        if isinstance(order, Send) and order.channel == client:
            engine.receive_sent(client, len(order.message), 0.3)


def orders_dropped(engine: WatchedEngine) -> None:
    _, server = begin(engine)
    engine.receive_open(server, Connected(), 0.1)


def part_of_the_orders_dropped(engine: WatchedEngine) -> None:
    _, server, _ = connected(engine)
    for _ in engine.receive_message(server, WELCOME, 0.3):
        break


def unknown_channel(engine: WatchedEngine) -> None:
    with pytest.raises(LocalProtocolError):
        engine.receive_message(ChannelId(99), HELLO, 0.0)


def message_before_open(engine: WatchedEngine) -> None:
    with pytest.raises(LocalProtocolError):
        engine.receive_message(engine.new_channel(), HELLO, 0.0)


def time_backwards(engine: WatchedEngine) -> None:
    engine.handle_timeout(5.0)
    with pytest.raises(LocalProtocolError):
        engine.handle_timeout(4.0)


def too_much_sent(engine: WatchedEngine) -> None:
    _, server, size_bytes = connected(engine)
    with pytest.raises(LocalProtocolError):
        engine.receive_sent(server, size_bytes + 1, 0.2)


def closed_twice(engine: WatchedEngine) -> None:
    client, _, _ = connected(engine)
    list(engine.receive_close(client, Cause(End.GONE), 0.2))
    engine.receive_close(client, Cause(End.GONE), 0.3)


def dial_unanswered(engine: WatchedEngine) -> None:
    begin(engine)
    engine.finish()


def close_never_reported(engine: WatchedEngine) -> None:
    connected(engine)
    list(engine.receive_stop(1.0))
    engine.finish()


def close_late(engine: WatchedEngine) -> None:
    connected(engine)
    list(engine.receive_stop(1.0))
    engine.handle_timeout(7.0)


def time_limit_late(engine: WatchedEngine) -> None:
    client, _, _ = connected(engine)
    list(engine.receive_close(client, Cause(End.GONE), 100.0))


def foreign_ticket(engine: WatchedEngine) -> None:
    engine.receive_answer(Ticket(7), Saved(), 0.0)


BREACHES: list[tuple[Callable[[WatchedEngine], None], str]] = [
    (loop, "`receive_sent` was called within the loop over the orders of `receive_message`: queue all of them first"),
    (orders_dropped, "the orders of `receive_open` were dropped, or not all of them were taken"),
    (part_of_the_orders_dropped, "the orders of `receive_message` were dropped, or not all of them were taken"),
    (unknown_channel, "`receive_message` names channel 99, which neither `new_channel` nor a `Dial` has numbered"),
    (message_before_open, "`receive_message` comes before `receive_open` of its channel"),
    (time_backwards, "`handle_timeout` raised: time runs backwards: 4.0 after 5.0"),
    (too_much_sent, "`receive_sent` reports more than was ordered for a dialled pipe: "),
    (closed_twice, "`receive_close` comes twice for a client POST"),
    (dial_unanswered, "the `Dial` of a dialled pipe was never answered"),
    (close_never_reported, "a dialled pipe was never reported closed"),
    (close_late, "a dialled pipe is not closed 5 s after its end was ordered"),
    (time_limit_late, "`handle_timeout` is overdue by more than 5 s"),
    (foreign_ticket, "`receive_answer` answers ticket 7, which was never ordered"),
]


@pytest.mark.parametrize("act, expected", BREACHES, ids=lambda value: getattr(value, "__name__", ""))
def test_each_breach_is_reported(act: Callable[[WatchedEngine], None], expected: str) -> None:
    engine = made()
    act(engine)
    assert [each for each in engine.contract.breaches if each.startswith(expected)]


def test_sent_is_not_for_a_request() -> None:
    engine = made(Kind.HTTP)
    _, post = begin(engine)
    list(engine.receive_open(post, Connected(), 0.1))
    with pytest.raises(LocalProtocolError):
        engine.receive_sent(post, 10, 0.2)
    assert "`receive_sent` is not for a dialled request" in engine.contract.breaches


def test_two_threads_at_once_are_reported() -> None:
    engine = made()
    within, may_end = threading.Event(), threading.Event()

    def entropy(size: int) -> bytes:
        within.set()
        assert may_end.wait(30)
        return bytes(size)

    engine._context.entropy = entropy
    client = engine.new_channel()
    list(engine.receive_open(client, PostOpening("s"), 0.0))
    one = threading.Thread(target=lambda: list(engine.receive_message(client, HELLO, 0.0)))
    one.start()
    assert within.wait(30)
    other = threading.Thread(target=lambda: list(engine.handle_timeout(0.0)))
    other.start()
    while not engine.contract.breaches and other.is_alive():
        other.join(0.01)
    may_end.set()
    one.join(30)
    other.join(30)
    assert engine.contract.breaches == ["`handle_timeout` was called while another thread was within an input"]


def test_each_ticket_is_answered_once() -> None:
    contract = made().contract

    class Asked:
        ticket = 1

    contract.take_orders("receive_message", [Asked()], 0.0).clear()  # type: ignore[list-item]
    assert contract.finish() == ["ticket 1 was never answered"]
    contract.judge("receive_answer", {"ticket": 1})
    contract.judge("receive_answer", {"ticket": 1})
    assert contract.breaches[1:] == ["`receive_answer` answers ticket 1, which has its answer"]


def test_lists_may_be_joined_and_looked_through() -> None:
    """A driver may join the orders of two inputs, and look through some of them, if it takes all in the end."""
    engine = made()
    client = engine.new_channel()
    orders = engine.receive_open(client, PostOpening("s"), 0.0) + engine.receive_message(client, HELLO, 0.0)
    assert isinstance(orders, Orders)
    assert any(isinstance(each, Dial) for each in orders)
    queue: list[Effect] = []
    queue = queue + orders
    assert isinstance(queue, Orders)
    assert len([*queue]) == len(orders)
    del orders, queue
    assert engine.contract.breaches == []


def test_every_input_is_watched() -> None:
    assert {name for name in INPUTS if getattr(WatchedEngine, name) is getattr(Engine, name, None)} == set()
    assert {name for name in dir(Engine) if name.startswith(("receive_", "handle_"))} <= set(INPUTS)
