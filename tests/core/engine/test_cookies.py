"""The cookies that a server sets go back to it in every request of that upstream session, and in no other's."""

from __future__ import annotations

import pytest
from driving import (
    DONE,
    FORGOTTEN,
    LATEST,
    NO_STREAM,
    Client,
    Driver,
    Heard,
    connect,
    driver,
    newcomer,
    result,
)
from isthmus.core.base.effects import Cause, Connected, CookieChanges, Cookies, Delete, End, Listen, Post

HELLO = f'{{"protocolVersion":"{LATEST}","capabilities":{{}}}}'


def answer(world: Driver, heard: Heard, text: str = "{}", cookies: CookieChanges = ()) -> None:
    world.open(heard.channel, Connected("S1" if text == HELLO else None, cookies))
    world.say(heard.channel, result(str(heard.id), text))
    world.end(heard.channel)


def sent_back(world: Driver, kind: type[Post | Listen | Delete]) -> list[Cookies]:
    """With every order of that kind, the oldest first."""
    return [dial.target.cookies for dial in world.dials if isinstance(dial.target, kind)]


def cookies_of(heard: Heard) -> Cookies:
    assert heard.post is not None
    return heard.post.cookies


def begin(world: Driver, cookies: CookieChanges = (("lb", "1"),)) -> Client:
    """A session whose server sets cookies with its greeting."""
    client = newcomer(world, "http", "http")
    channel = client.initialize()
    greeting = world.hear("initialize")
    assert cookies_of(greeting) == ()
    answer(world, greeting, HELLO, cookies)
    world.acknowledge(world.hear("notifications/initialized"))
    world.end(world.last_dial(Listen).channel, NO_STREAM)
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    return client


def test_what_comes_with_the_greeting_goes_with_all_that_follows() -> None:
    world = driver()
    client = begin(world)
    client.request("1", "tools/call", '{"name":"t"}')
    client.notify("notifications/cancelled", '{"requestId":1}')
    client.delete()
    assert sent_back(world, Post) == [(), *[(("lb", "1"),)] * 3]
    assert sent_back(world, Listen) == sent_back(world, Delete) == [(("lb", "1"),)]


def test_every_response_may_set_and_remove() -> None:
    """Also one that refuses, and that of the event stream."""
    world = driver()
    client = begin(world, (("lb", "1"), ("gone", "x")))
    client.request("1", "tools/list")
    answer(world, world.hear("tools/list"), '{"tools":[]}', (("lb", "2"), ("gone", None)))
    client.request("2", "tools/list")
    listing = world.hear("tools/list")
    assert cookies_of(listing) == (("lb", "2"),)
    world.end(listing.channel, Cause(End.REFUSED, status=400, cookies=(("seen", "y"),)))
    client.request("3", "tools/list")
    assert cookies_of(world.hear("tools/list")) == (("lb", "2"), ("seen", "y"))


def test_a_stream_sets_them_too() -> None:
    world = driver()
    client = connect(world, "http", "http", listens=True)
    stream = world.last_dial(Listen).channel
    world.end(stream, DONE)
    world.wait(2)
    world.open(world.last_dial(Listen).channel, Connected(None, (("lb", "9"),)))
    client.request("1", "tools/list")
    assert cookies_of(world.hear("tools/list")) == (("lb", "9"),)


def test_a_reply_is_taken_up_again_with_them() -> None:
    world = driver()
    client = begin(world)
    client.request("1", "tools/call", '{"name":"t"}')
    call = world.hear("tools/call")
    world.open(call.channel, Connected(None, (("lb", "2"),)))
    world.end(call.channel, Cause(End.BROKEN, last_event_id="7"))
    world.wait(2)
    assert sent_back(world, Listen)[-1] == (("lb", "2"),)


def test_no_session_sees_anothers() -> None:
    world = driver()
    one, other = begin(world, (("lb", "one"),)), begin(world, (("lb", "other"),))
    for client, name in ((one, "one"), (other, "other"), (one, "one")):
        client.request("1", "tools/list")
        listing = world.hear("tools/list")
        assert cookies_of(listing) == (("lb", name),)
        answer(world, listing, '{"tools":[]}')


def test_a_new_upstream_session_begins_without_them() -> None:
    """Where the old one was need not be where the new one is; and what the old one still says changes nothing."""
    world = driver()
    client = begin(world)
    client.request("0", "tools/call", '{"name":"t"}')
    late = world.hear("tools/call")
    client.request("1", "tools/list")
    world.end(world.hear("tools/list").channel, FORGOTTEN)
    greeting = world.hear("initialize")
    assert cookies_of(greeting) == ()
    world.open(late.channel, Connected(None, (("lb", "late"),)))
    answer(world, greeting, HELLO, (("lb", "2"),))
    assert cookies_of(world.hear("notifications/initialized")) == (("lb", "2"),)


@pytest.mark.parametrize("down", ["http", "pipe"])
def test_no_client_and_no_note_shows_them(down: str) -> None:
    world = driver()
    client = newcomer(world, down, "http")
    client.initialize()
    answer(world, world.hear("initialize"), HELLO, (("lb", "4711"),))
    world.acknowledge(world.hear("notifications/initialized"))
    world.end(world.last_dial(Listen).channel, Cause(End.REFUSED, status=405, cookies=(("x", "4711"),)))
    assert "4711" not in repr(list(world.sent.values()))
    assert all("4711" not in text for level in ("debug", "info", "warning", "error") for text in world.notes(level))
