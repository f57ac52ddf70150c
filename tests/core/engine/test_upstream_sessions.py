"""Sessions that servers of Streamable HTTP begin and forget: what is said in which of them, and what in none.

Source: 2025-11-25 basic/transports, "Session Management".
"""

from __future__ import annotations

import json

import pytest
from driving import LATEST, Driver, Heard, connect, driver, error, newcomer, request
from isthmus.core.base.effects import Cause, Connected, Delete, Dial, End, Send
from isthmus.core.base.limits import Limits

CAPABLE = f'{{"protocolVersion":"{LATEST}","capabilities":{{"roots":{{}},"sampling":{{}}}}}}'


def begun(world: Driver, session: str | None) -> Heard:
    """A server whose response to `initialize` has begun, and names its session; it has not answered."""
    newcomer(world, "pipe", "http").initialize(CAPABLE)
    heard = world.hear("initialize")
    world.open(heard.channel, Connected(session=session))
    return heard


@pytest.mark.parametrize("question", [request('"q"', "ping"), b'{"jsonrpc":"2.0","id":"q","method":7}'])
def test_what_is_asked_before_initialize_is_answered_is_answered_in_the_session_it_began(question: bytes) -> None:
    """The head of the response has named the session: from then on all is said in it, in no revision yet."""
    world = driver()
    heard = begun(world, "S1")
    world.say(heard.channel, question)
    post = world.hear("").post
    assert post is not None
    assert (post.session, post.revision) == ("S1", None)
    world.answer(heard, f'{{"protocolVersion":"{LATEST}","capabilities":{{}}}}', session="S1")
    confirmed = world.hear("notifications/initialized").post
    assert confirmed is not None
    assert (confirmed.session, confirmed.revision) == ("S1", LATEST)


def test_a_session_whose_initialize_is_not_answered_is_ended() -> None:
    """It was begun, and nobody needs it: its server is told so, in no revision."""
    world = driver()
    heard = begun(world, "S1")
    world.end(heard.channel, Cause(End.BROKEN))
    farewell = world.last(Dial).target
    assert isinstance(farewell, Delete)
    assert (farewell.session, farewell.revision) == ("S1", None)


def test_a_session_begun_in_one_era_is_not_named_in_the_other() -> None:
    """A server that refuses the handshake is asked again without one, and told of no session."""
    world = driver()
    heard = begun(world, "S1")
    said = '{"code":-32022,"message":"no","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}'
    world.reply(heard, error(str(heard.id), said), session="S1")
    post = world.hear("server/discover").post
    assert post is not None
    assert post.session is None


def test_a_session_that_is_denied_before_initialize_is_answered_is_lost() -> None:
    """What is said in it meets 404: it is over, nothing more is said in it, and the client learns that."""
    world = driver()
    heard = begun(world, "S1")
    world.say(heard.channel, request('"q"', "ping"))
    world.end(world.hear("").channel, Cause(End.REFUSED, status=404))
    (told,) = [send for send in world.every(Send) if send.channel not in world.children]
    assert json.loads(told.message)["error"]["data"]["outcome"] == "not_executed"
    assert "it forgot the session" in json.loads(told.message)["error"]["message"]
    assert heard.channel in world.closed
    assert not isinstance(world.last(Dial).target, Delete)


def test_a_call_of_a_session_that_is_lost_is_not_cancelled_in_the_next() -> None:
    """Two calls are open when one meets 404; the other's server may still work on it, and the client gives it up. The
    new session does not hear of that: its server would not know what is meant. A call of its own it does hear of."""
    world = driver()
    client = connect(world, "pipe", "http")
    client.request("1", "tools/call", '{"name":"slow"}')
    client.request("2", "tools/call", '{"name":"unlucky"}')
    slow, unlucky = world.hear("tools/call"), world.hear("tools/call")
    world.open(slow.channel, Connected())
    world.end(unlucky.channel, Cause(End.REFUSED, status=404))
    world.shake_hands(session="S2")
    again = world.hear("tools/call")
    assert again.post is not None
    assert again.post.session == "S2"
    client.notify("notifications/cancelled", '{"requestId":1}')
    assert not world.hears("notifications/cancelled")
    client.notify("notifications/cancelled", '{"requestId":2}')
    assert world.hear("notifications/cancelled").frame["params"]["requestId"] == again.id
    world.wait(Limits().cancel_grace_s)
    assert slow.channel in world.closed
