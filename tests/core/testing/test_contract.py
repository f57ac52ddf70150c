"""Tests of the driver's contract: its table has each order that there is, and the page explains each row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from isthmus.core import Cause, Connected, DeleteOpening, Effect, End, Engine, GetOpening, Limits, Plan
from isthmus.core import Kind as ServerKind
from isthmus.core.base import effects, storage
from isthmus.core.base.decisions import Decide
from isthmus.core.base.effects import Close, Dial, Send
from isthmus.core.base.events import EventPipeOpening, Opening, PipeOpening, PostOpening
from isthmus.core.base.plan import ServerPlan
from isthmus.core.testing.contract import INPUTS, OPENINGS, ORDERS, TARGETS, WITHOUT_CHANNEL, Kind

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8").partition("### Orders by kind of channel")[2]
HELLO = b"""{"jsonrpc":"2.0","id":"hello","method":"initialize","params":
  {"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"me","version":"1"}}}"""


def rows() -> list[list[str]]:
    """The cells of the rows of the page's two tables."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line[:2] == "| "]


def orders_of(module: object) -> set[type[Effect]]:
    found = {each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Effect)}
    return found - {Effect}


def test_each_order_that_there_is_has_a_place() -> None:
    placed = {order for orders in ORDERS.values() for order in orders}
    assert not placed & WITHOUT_CHANNEL
    assert placed | WITHOUT_CHANNEL == orders_of(effects) | orders_of(storage) | {Decide}
    on_channels = {order for order in placed | WITHOUT_CHANNEL if "channel" in order.__struct_fields__}
    assert on_channels - {Decide} == placed, "a decision only tells where its request came from"


def test_each_opening_and_each_target_has_a_kind() -> None:
    assert set(OPENINGS) | {Connected, effects_of("Primed"), effects_of("Queued")} == set(Opening.__args__)
    assert set(TARGETS) == set(effects.Target.__args__)
    assert {*OPENINGS.values(), *TARGETS.values()} == set(Kind) == set(ORDERS) == set(INPUTS)


def effects_of(name: str) -> type:
    from isthmus.core.base import events

    found = getattr(events, name)
    assert isinstance(found, type)
    return found


def test_the_page_has_each_row_of_the_table() -> None:
    """The page names each order with the kinds of channels that it comes to, and says what a driver must do."""
    found: dict[Kind, set[str]] = {kind: set() for kind in Kind}
    without: set[str] = set()
    for cells in rows():
        names, kinds = re.findall(r"`(\w+)`", cells[0]), cells[1]
        if len(cells) != 4 or not names:
            continue
        assert len(cells[2]) > 5, names
        if kinds == "none":
            without |= set(names)
        else:
            for kind in [each.value for each in Kind] if kinds == "any" else kinds.split(", "):
                assert not found[Kind(kind)] & set(names), f"{kind} has two rows for {names}"
                found[Kind(kind)] |= set(names)
    assert found == {kind: {order.__name__ for order in orders} for kind, orders in ORDERS.items()}
    assert without == {order.__name__ for order in WITHOUT_CHANNEL}


def test_the_page_has_the_inputs_of_each_kind() -> None:
    found = {}
    for cells in rows():
        if len(cells) == 3 and cells[0] in {kind.value for kind in Kind}:
            names = zip(("receive_message", "receive_sent"), cells[1:], strict=True)
            found[Kind(cells[0])] = {name for name, cell in names if cell}
    assert found == INPUTS


# --- What the page promises of the end of a channel -----------------------------------------------------------------


class World:
    """An engine with a client, and its orders."""

    def __init__(self, opening: Opening, kind: ServerKind) -> None:
        plan = Plan(servers=(ServerPlan(id="s", kind=kind),))
        self.engine = Engine(plan, entropy=bytes, unix_at_zero=0.0, limits=Limits(greeting_timeout_s=5.0))
        self.client = self.engine.new_channel()
        self.orders = self.engine.receive_open(self.client, opening, 0.0)
        if isinstance(opening, PostOpening | PipeOpening):
            self.orders += self.engine.receive_message(self.client, HELLO, 0.0)

    def find(self, order: type[Effect]) -> list[Effect]:
        return [each for each in self.orders if isinstance(each, order)]


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("kind", [ServerKind.PIPE, ServerKind.HTTP])
def test_what_crosses_the_close_of_a_dialled_channel_is_legal(kind: ServerKind, is_open: bool) -> None:
    """`receive_open`, `receive_message` and `receive_sent` may come between a `Close` and `receive_close`."""
    world = World(PostOpening("s"), kind)
    (dial,) = world.find(Dial)
    assert isinstance(dial, Dial)
    channel, engine = dial.channel, world.engine
    opened = engine.receive_open(channel, Connected(), 0.1) if is_open else []
    stopped = engine.receive_stop(0.2)
    assert channel in [each.channel for each in stopped if isinstance(each, Close)]
    if not is_open:
        engine.receive_open(channel, Connected(), 0.3)
    engine.receive_message(channel, b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}', 0.3)
    for sent in opened:
        if isinstance(sent, Send) and sent.channel == channel:
            engine.receive_sent(channel, len(sent.message), 0.3)
    engine.receive_close(channel, Cause(End.DONE), 0.4)
    assert engine.receive_close(channel, Cause(End.DONE), 0.5) == []


@pytest.mark.parametrize("opening", [PipeOpening("s"), GetOpening("s", session="x"), DeleteOpening("s", session="x")])
def test_what_crosses_the_end_of_a_client_s_channel_is_legal(opening: Opening) -> None:
    world = World(opening, ServerKind.PIPE)
    orders = world.orders + world.engine.receive_stop(0.1)
    ended = [each for each in orders if isinstance(each, Close) or (isinstance(each, Send) and each.is_last)]
    assert world.client in [getattr(each, "channel", None) for each in ended]
    world.engine.receive_message(world.client, b'{"jsonrpc":"2.0","id":2,"method":"ping"}', 0.2)
    for sent in orders:
        if isinstance(sent, Send) and sent.channel == world.client:
            world.engine.receive_sent(world.client, len(sent.message), 0.2)
    world.engine.receive_close(world.client, Cause(End.DONE), 0.3)


def test_an_event_pipe_is_closed_after_its_greeting_timeout() -> None:
    world = World(EventPipeOpening("s", endpoint="/messages"), ServerKind.PIPE)
    closed = world.engine.handle_timeout(5.0)
    assert [each.channel for each in closed if isinstance(each, Close)] == [world.client]
