"""Tests of cookies: those that a server sets go back to it in every request of that upstream session, and in no
other's."""

from __future__ import annotations

import pytest
from driving import (
    DONE,
    FORGOTTEN,
    LATEST,
    NO_STREAM,
    Client,
    Driver,
    SentMessage,
    connect,
    driver,
    new_client,
    result,
)
from isthmus.core.base.effects import Delete, Listen, Post
from isthmus.core.base.events import Cause, Connected, CookieChanges, Cookies, End

HELLO = f'{{"protocolVersion":"{LATEST}","capabilities":{{}}}}'


def answer(world: Driver, received: SentMessage, text: str = "{}", cookies: CookieChanges = ()) -> None:
    world.open(received.channel, Connected("S1" if text == HELLO else None, cookies))
    world.send(received.channel, result(str(received.id), text))
    world.end(received.channel)


def sent_back(world: Driver, kind: type[Post | Listen | Delete]) -> list[Cookies]:
    """The cookies of every order of that kind, the oldest first."""
    return [dial.target.cookies for dial in world.dials if isinstance(dial.target, kind)]


def cookies_of(received: SentMessage) -> Cookies:
    assert received.post is not None
    return received.post.cookies


def begin(world: Driver, cookies: CookieChanges = (("lb", "1"),)) -> Client:
    """A session whose server sets cookies with its answer to `initialize`."""
    client = new_client(world, "http", "http")
    channel = client.initialize()
    initialize = world.take_sent("initialize")
    assert cookies_of(initialize) == ()
    answer(world, initialize, HELLO, cookies)
    world.acknowledge(world.take_sent("notifications/initialized"))
    world.end(world.last_dial(Listen).channel, NO_STREAM)
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    return client


def test_cookies_of_the_initialize_response_go_with_all_that_follows() -> None:
    world = driver()
    client = begin(world)
    client.request("1", "tools/call", '{"name":"t"}')
    client.notify("notifications/cancelled", '{"requestId":1}')
    client.delete()
    assert sent_back(world, Post) == [(), *[(("lb", "1"),)] * 3]
    assert sent_back(world, Listen) == sent_back(world, Delete) == [(("lb", "1"),)]


def test_every_response_may_set_and_remove_cookies() -> None:
    """A response that refuses, and that of the event stream, set cookies as well."""
    world = driver()
    client = begin(world, (("lb", "1"), ("gone", "x")))
    client.request("1", "tools/list")
    answer(world, world.take_sent("tools/list"), '{"tools":[]}', (("lb", "2"), ("gone", None)))
    client.request("2", "tools/list")
    listing = world.take_sent("tools/list")
    assert cookies_of(listing) == (("lb", "2"),)
    world.end(listing.channel, Cause(End.REFUSED, status=400, cookies=(("seen", "y"),)))
    client.request("3", "tools/list")
    assert cookies_of(world.take_sent("tools/list")) == (("lb", "2"), ("seen", "y"))


def test_a_stream_sets_cookies_too() -> None:
    world = driver()
    client = connect(world, "http", "http", listens=True)
    stream = world.last_dial(Listen).channel
    world.end(stream, DONE)
    world.wait(2)
    world.open(world.last_dial(Listen).channel, Connected(None, (("lb", "9"),)))
    client.request("1", "tools/list")
    assert cookies_of(world.take_sent("tools/list")) == (("lb", "9"),)


def test_a_reply_is_resumed_with_cookies() -> None:
    world = driver()
    client = begin(world)
    client.request("1", "tools/call", '{"name":"t"}')
    call = world.take_sent("tools/call")
    world.open(call.channel, Connected(None, (("lb", "2"),)))
    world.end(call.channel, Cause(End.BROKEN, last_event_id="7"))
    world.wait(2)
    assert sent_back(world, Listen)[-1] == (("lb", "2"),)


def test_no_session_gets_cookies_of_another() -> None:
    world = driver()
    one, other = begin(world, (("lb", "one"),)), begin(world, (("lb", "other"),))
    for client, name in ((one, "one"), (other, "other"), (one, "one")):
        client.request("1", "tools/list")
        listing = world.take_sent("tools/list")
        assert cookies_of(listing) == (("lb", name),)
        answer(world, listing, '{"tools":[]}')


def test_a_new_upstream_session_begins_without_cookies() -> None:
    """A new upstream session may be on another machine: it has no old cookies, and late responses of the old one add
    none."""
    world = driver()
    client = begin(world)
    client.request("0", "tools/call", '{"name":"t"}')
    late = world.take_sent("tools/call")
    client.request("1", "tools/list")
    world.end(world.take_sent("tools/list").channel, FORGOTTEN)
    initialize = world.take_sent("initialize")
    assert cookies_of(initialize) == ()
    world.open(late.channel, Connected(None, (("lb", "late"),)))
    answer(world, initialize, HELLO, (("lb", "2"),))
    assert cookies_of(world.take_sent("notifications/initialized")) == (("lb", "2"),)


@pytest.mark.parametrize("down", ["http", "pipe"])
def test_no_client_and_no_note_shows_cookies(down: str) -> None:
    world = driver()
    client = new_client(world, down, "http")
    client.initialize()
    answer(world, world.take_sent("initialize"), HELLO, (("lb", "4711"),))
    world.acknowledge(world.take_sent("notifications/initialized"))
    world.end(world.last_dial(Listen).channel, Cause(End.REFUSED, status=405, cookies=(("x", "4711"),)))
    assert "4711" not in repr(list(world.sent.values()))
    assert all("4711" not in text for level in ("debug", "info", "warning", "error") for text in world.notes(level))
