"""Tests of upstream sessions of Streamable HTTP: which session each message belongs to.

Source: 2025-11-25 basic/transports, "Session Management".
"""

from __future__ import annotations

import json

import pytest
from driving import LATEST, Driver, SentMessage, connect, driver, error, new_client, request
from isthmus.core.base.effects import Delete, Dial, Send
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.limits import Limits

CAPABLE = f'{{"protocolVersion":"{LATEST}","capabilities":{{"roots":{{}},"sampling":{{}}}}}}'


def begun(world: Driver, session: str | None) -> SentMessage:
    """Returns a server whose response to `initialize` has begun and names its session, without an answer yet."""
    new_client(world, "pipe", "http").initialize(CAPABLE)
    received = world.take_sent("initialize")
    world.open(received.channel, Connected(session=session))
    return received


@pytest.mark.parametrize("question", [request('"q"', "ping"), b'{"jsonrpc":"2.0","id":"q","method":7}'])
def test_a_question_before_the_answer_to_initialize_is_answered_in_its_session(question: bytes) -> None:
    """The response head has named the session: all messages have it from then on, without a revision yet."""
    world = driver()
    received = begun(world, "S1")
    world.send(received.channel, question)
    post = world.take_sent("").post
    assert post is not None
    assert (post.session, post.revision) == ("S1", None)
    world.answer(received, f'{{"protocolVersion":"{LATEST}","capabilities":{{}}}}', session="S1")
    confirmed = world.take_sent("notifications/initialized").post
    assert confirmed is not None
    assert (confirmed.session, confirmed.revision) == ("S1", LATEST)


def test_a_session_without_an_answer_to_initialize_is_deleted() -> None:
    """The DELETE has no revision."""
    world = driver()
    received = begun(world, "S1")
    world.end(received.channel, Cause(End.BROKEN))
    delete = world.last(Dial).target
    assert isinstance(delete, Delete)
    assert (delete.session, delete.revision) == ("S1", None)


def test_a_session_begun_in_one_era_is_not_named_in_the_other() -> None:
    """A server that refuses the handshake is asked again in the stateless era, without a session."""
    world = driver()
    received = begun(world, "S1")
    refusal = '{"code":-32022,"message":"no","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}'
    world.reply(received, error(str(received.id), refusal), session="S1")
    post = world.take_sent("server/discover").post
    assert post is not None
    assert post.session is None


def test_404_before_the_answer_to_initialize_ends_the_session() -> None:
    """No further message has the session, and the client gets an error."""
    world = driver()
    received = begun(world, "S1")
    world.send(received.channel, request('"q"', "ping"))
    world.end(world.take_sent("").channel, Cause(End.REFUSED, status=404))
    (answer,) = [send for send in world.every(Send) if send.channel not in world.children]
    assert json.loads(answer.message)["error"]["data"]["outcome"] == "not_executed"
    assert "it forgot the session" in json.loads(answer.message)["error"]["message"]
    assert received.channel in world.closed
    assert not isinstance(world.last(Dial).target, Delete)


def test_a_call_of_a_session_that_is_lost_is_not_cancelled_in_the_next() -> None:
    """One of two open calls meets 404. The other is cancelled by its client later: the new session gets no
    cancellation, since its id would mean nothing there. A call of the new session is cancelled there."""
    world = driver()
    client = connect(world, "pipe", "http")
    client.request("1", "tools/call", '{"name":"slow"}')
    client.request("2", "tools/call", '{"name":"unlucky"}')
    slow, unlucky = world.take_sent("tools/call"), world.take_sent("tools/call")
    world.open(slow.channel, Connected())
    world.end(unlucky.channel, Cause(End.REFUSED, status=404))
    world.start_server(session="S2")
    again = world.take_sent("tools/call")
    assert again.post is not None
    assert again.post.session == "S2"
    client.notify("notifications/cancelled", '{"requestId":1}')
    assert not world.was_sent("notifications/cancelled")
    client.notify("notifications/cancelled", '{"requestId":2}')
    assert world.take_sent("notifications/cancelled").frame["params"]["requestId"] == again.id
    world.wait(Limits().cancel_grace_s)
    assert slow.channel in world.closed
