"""A link whose server has said all for now keeps no room of tables that are empty."""

from __future__ import annotations

import sys

import pytest
from driving import NO_STREAM, Client, Driver, driver, newcomer
from isthmus.core.base.effects import Connected, Listen
from isthmus.core.base.ids import ChannelId
from isthmus.core.state.link import Errand, Link

from tests.core.state.test_link import link

EMPTY = sys.getsizeof({})
HELLO = '{"protocolVersion":"2025-11-25","capabilities":{}}'


def only(world: Driver) -> Link:
    (found,) = world.engine._servers.links.values()
    return found


def sizes(target: Link) -> list[bool]:
    """Of which tables no more is kept than of those that were never used."""
    return [sys.getsizeof(table) == EMPTY for table in (target.posts, target.pending)]


def greeted() -> tuple[Driver, Client, ChannelId]:
    """A client whose server has answered to its handshake, and is asked for its stream."""
    world = driver()
    client = newcomer(world, "http", "http")
    channel = client.initialize()
    world.answer(world.hear("initialize"), HELLO, session="S1")
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    world.acknowledge(world.hear("notifications/initialized"))
    return world, client, world.last_dial(Listen).channel


@pytest.mark.parametrize("is_open", [True, False])
def test_a_link_whose_stream_is_open_or_refused_gives_back_what_the_handshake_took(is_open: bool) -> None:
    """And has what it needs when there is something to say."""
    world, client, stream = greeted()
    target = only(world)
    assert not target.posts and not target.pending
    assert sizes(target) == [False, False]
    if is_open:
        world.open(stream, Connected())
    else:
        world.end(stream, NO_STREAM)
    assert sizes(target) == [True, True]
    channel = client.request("1", "tools/list")
    world.answer(world.hear("tools/list"), '{"tools":[]}')
    assert world.said(channel)["result"] == {"tools": []}


def test_what_is_in_a_table_stays_there() -> None:
    target = link()
    post, errand = ChannelId(3), Errand("replay", 1)
    target.posts[post], target.pending[7] = None, errand
    target.rest()
    assert (target.posts, target.pending) == ({post: None}, {7: errand})
    del target.posts[post]
    target.rest()
    assert (sizes(target), target.pending) == ([True, False], {7: errand})
