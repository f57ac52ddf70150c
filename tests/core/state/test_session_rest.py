"""A session that is about to wait for long keeps no room of tables that are empty."""

from __future__ import annotations

import json
import sys

import pytest
from driving import GONE, Client, Driver, connect, driver, notification
from isthmus.core.base.limits import Limits
from isthmus.core.state.session import Session

from tests.core.state.test_session import add, session

EMPTY = sys.getsizeof({})
WITH_IDS = "2025-06-18"
"""Its streams have event ids, and are told none before there is a message."""


def only(world: Driver) -> Session:
    (found,) = world.engine._clients.sessions.values()
    return found


def sizes(target: Session) -> list[bool]:
    """Of which tables no more is kept than of those that were never used."""
    return [sys.getsizeof(table) == EMPTY for table in (target.exchanges, target.resumable)]


def streamed(world: Driver, client: Client, id: int) -> str:
    """A call whose answer comes on a stream with event ids. Returns the id of the first event."""
    params = '{"name":"t","_meta":{"progressToken":"t"}}'
    channel = client.request(str(id), "tools/call", params)
    heard = world.hear("tools/call")
    token = heard.frame["params"]["_meta"]["progressToken"]
    world.say(
        heard.channel, notification("notifications/progress", json.dumps({"progressToken": token, "progress": 1}))
    )
    world.answer(heard)
    (first, _) = world.event_ids(channel)
    assert first is not None
    return first


def served(limits: Limits | None = None) -> tuple[Driver, Client]:
    world = driver(limits=limits)
    return world, connect(world, "http", "pipe", revision=WITH_IDS)


def test_who_opens_a_stream_gives_back_what_its_calls_took() -> None:
    world, client = served(Limits(stream_ttl_s=10.0))
    streamed(world, client, 1)
    world.wait(20.0)
    target = only(world)
    assert not target.exchanges and not target.resumable
    assert sizes(target) == [False, False]
    stream = client.listen()
    assert sizes(target) == [True, True]
    world.end(stream, GONE)
    for id in (2, 3):  # and can be used as before
        client.request(str(id), "tools/list")
        world.answer(world.hear("tools/list"))
    assert sizes(target) == [False, True]
    client.listen()
    assert sizes(target) == [True, True]


def test_what_is_in_a_table_stays_there() -> None:
    """A call that is open is answered, and a stream that is kept can be had again."""
    world, client = served()
    first = streamed(world, client, 1)
    channel = client.request("2", "tools/list")
    client.listen()
    assert world.engine.exchange_count == 1
    assert sizes(only(world)) == [False, False]
    world.answer(world.hear("tools/list"), '{"tools":[]}')
    assert world.said(channel)["result"] == {"tools": []}
    assert [frame["id"] for frame in world.frames(client.resume(first))] == [1]


@pytest.mark.parametrize("is_open", [False, True])
def test_to_rest_changes_nothing_that_can_be_asked_for(is_open: bool) -> None:
    target = session()
    add(target, 1)
    if not is_open:
        target.exchanges.clear()
    before = dict(target.exchanges), target.is_busy, target.in_flight
    target.rest()
    assert (dict(target.exchanges), target.is_busy, target.in_flight) == before
