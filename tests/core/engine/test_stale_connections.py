"""Tests of the retry rules of stale connections, which a server had closed before it read the message.

A tool call is written once, unless it is certain that it did not run.
"""

from __future__ import annotations

import json

import pytest
from driving import NO_STREAM, Driver, connect, driver, new_client, notification, request, result
from isthmus.core.base.effects import Delete, Dial, Effect, Join, Listen
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.methods import SAFE_TO_REPEAT
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.wire.http.retry import SAFE_NOTIFICATIONS, may_send_again

STALE = Cause(End.BROKEN, "the connection ended before a response", stale=True)
UNSENT = Cause(End.BROKEN, "the connection ended before a response", stale=True, unsent=True)
FRESH = Cause(End.BROKEN, "the connection ended before a response")


# --- The rule ---------------------------------------------------------------------------------------------------------

METHODS = sorted(SAFE_TO_REPEAT | SAFE_NOTIFICATIONS | {"initialize", "ping", "tools/call", "vendor/unheard"})
MESSAGES = [
    *((request("1", method), method in SAFE_TO_REPEAT) for method in METHODS),
    *((notification(method), method in SAFE_NOTIFICATIONS) for method in [*METHODS, "notifications/progress"]),
    (result("1"), True),
    (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}', True),
    (b"nonsense", False),
]


@pytest.mark.parametrize(("message", "is_safe"), MESSAGES)
def test_the_messages_that_may_be_sent_again(message: bytes, is_safe: bool) -> None:
    """A message that did not arrive whole may be sent again, and otherwise only one that is safe to repeat. The
    connection must have been used before, except for an answer that did not arrive."""
    is_answer = b'"result"' in message or b'"error"' in message
    assert may_send_again(STALE, message) is is_safe
    assert may_send_again(UNSENT, message)
    for cause in (Cause(End.BROKEN, unsent=True), Cause(End.UNREACHABLE)):
        assert may_send_again(cause, message) is is_answer
    for cause in (FRESH, Cause(End.DONE), Cause(End.REFUSED, status=503)):
        assert not may_send_again(cause, message)


def test_initialize_may_be_sent_again_without_a_session() -> None:
    assert may_send_again(STALE, request("1", "initialize"), has_session=False)
    assert not may_send_again(STALE, notification("initialize"), has_session=False)


# --- The handshake ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", [STALE, UNSENT])
def test_each_step_of_a_handshake_is_sent_again_once(cause: Cause) -> None:
    """The repetition makes no pause and no second session."""
    world = driver()
    client = new_client(world, "http", "http")
    channel = client.initialize()
    first = world.take_sent("initialize")
    world.end(first.channel, cause)
    second = world.take_sent("initialize")
    assert second.frame["params"] == first.frame["params"]
    assert second.id != first.id
    world.answer(second, '{"protocolVersion":"2025-11-25","capabilities":{}}', session="S1")
    assert world.only_message(channel)["result"]["protocolVersion"] == "2025-11-25"
    client.session = world.sent[channel][-1].session
    world.end(world.take_sent("notifications/initialized").channel, cause)
    again = world.take_sent("notifications/initialized")
    assert again.post is not None and again.post.session == "S1"
    call = client.request("1", "tools/call", "{}")
    world.acknowledge(again)
    stream = world.last_dial(Listen)
    world.end(stream.channel, cause)
    assert world.last_dial(Listen).target == stream.target
    assert world.last_dial(Listen).channel != stream.channel
    assert not world.was_sent("tools/call"), "it still waits for the stream"
    world.end(world.last_dial(Listen).channel, NO_STREAM)
    world.answer(world.take_sent("tools/call"))
    assert "result" in world.only_message(call)
    assert not world.unread


def test_a_handshake_that_breaks_again_fails() -> None:
    world = driver()
    channel = new_client(world, "http", "http").initialize()
    world.end(world.take_sent("initialize").channel, STALE)
    world.end(world.take_sent("initialize").channel, STALE)
    assert world.only_message(channel)["error"]["code"] == -31004
    assert not world.unread


def test_a_handshake_on_a_new_connection_is_not_repeated() -> None:
    world = driver()
    channel = new_client(world, "http", "http").initialize()
    world.end(world.take_sent("initialize").channel, FRESH)
    assert world.only_message(channel)["error"]["code"] == -31004
    assert not world.unread


def test_a_second_failure_of_initialized_loses_the_session() -> None:
    world = driver()
    channel = new_client(world, "http", "http").initialize()
    world.answer(world.take_sent("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}', session="S1")
    for _ in range(2):
        world.end(world.take_sent("notifications/initialized").channel, STALE)
    assert "result" in world.only_message(channel)
    assert not world.unread
    assert [type(dial.target) for dial in world.dials][-1] is Delete


def test_restored_state_is_sent_again() -> None:
    world = driver()
    client = connect(world, "http", "http")
    client.request("1", "resources/subscribe", '{"uri":"file:///a"}')
    world.answer(world.take_sent("resources/subscribe"))
    client.request("2", "tools/list")
    world.end(world.take_sent("tools/list").channel, Cause(End.REFUSED, status=404))
    world.start_server(session="S2")
    world.end(world.take_sent("resources/subscribe").channel, STALE)
    again = world.take_sent("resources/subscribe")
    assert again.frame["params"] == {"uri": "file:///a"}
    assert not world.was_sent("tools/list")
    world.end(again.channel, STALE)
    assert world.was_sent("tools/list"), "state that cannot be restored holds up no request"


def test_a_request_answered_on_another_stream_is_not_sent_again() -> None:
    """The connection of an answered request may end without a response."""
    world = driver()
    client = connect(world, "http", "http")
    client.request("1", "resources/subscribe", '{"uri":"file:///a"}')
    world.answer(world.take_sent("resources/subscribe"))
    client.request("2", "tools/list")
    world.end(world.take_sent("tools/list").channel, Cause(End.REFUSED, status=404))
    stream = world.start_server(session="S2", listens=True)
    assert stream is not None
    again = world.take_sent("resources/subscribe")
    world.send(stream, result(str(again.id)))
    world.take_sent("tools/list")
    world.end(again.channel, STALE)
    assert not world.unread


# --- Requests, notifications and answers ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
@pytest.mark.parametrize("cause", [STALE, UNSENT])
def test_a_request_is_sent_again_if_it_only_reads_or_did_not_arrive(method: str, cause: Cause) -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", method, "{}")
    world.end(world.take_sent(method).channel, cause)
    if method == "tools/call" and not cause.unsent:
        assert world.only_message(channel)["error"]["code"] == -31001
        assert not world.unread
        return
    world.end(world.take_sent(method).channel, cause)
    assert not world.unread
    assert world.only_message(channel)["error"]["code"] == (-31004 if cause.unsent else -31001)


def test_safe_notifications_are_sent_again_once() -> None:
    world = driver()
    client = connect(world, "http", "http")
    for method in ("notifications/roots/list_changed", "vendor/notice"):
        client.notify(method)
        world.end(world.take_sent(method).channel, STALE)
    assert not world.was_sent("vendor/notice")
    again = world.take_sent("notifications/roots/list_changed")
    world.end(again.channel, STALE)
    assert not world.unread
    assert len(world.notes("warning")) == 2
    client.notify("vendor/notice", '{"n":1}')
    world.end(world.take_sent("vendor/notice").channel, UNSENT)
    assert world.take_sent("vendor/notice").frame["params"] == {"n": 1}


@pytest.mark.parametrize("cause", [STALE, Cause(End.UNREACHABLE, "connection refused")], ids=["stale", "unreachable"])
def test_an_answer_is_sent_again_once_with_the_headers_of_its_client(cause: Cause) -> None:
    world = driver()
    client = connect(world, "http", "http", listens=True, headers=(("x-a", "1"),))
    listening = client.listen()
    world.send(world.last_dial(Listen).channel, request('"q"', "elicitation/create", "{}"))
    (asked,) = world.frames(listening)
    client.send(result(json.dumps(asked["id"]), '{"action":"accept"}'))
    first = world.take_sent("")
    world.end(first.channel, cause)
    second = world.take_sent("")
    assert second.raw == first.raw
    assert second.post == first.post
    world.end(second.channel, cause)
    assert not world.unread


def test_messages_of_a_lost_session_are_not_sent_again() -> None:
    world = driver()
    client = connect(world, "http", "http")
    client.notify("notifications/roots/list_changed")
    change = world.take_sent("notifications/roots/list_changed")
    client.request("1", "tools/list")
    world.end(world.take_sent("tools/list").channel, Cause(End.REFUSED, status=404))
    world.end(change.channel, STALE)
    assert not world.was_sent("notifications/roots/list_changed")


# --- Streams and DELETE -----------------------------------------------------------------------------------------------


def test_a_stream_that_breaks_again_is_opened_again_after_a_pause() -> None:
    world = driver()
    connect(world, "http", "http", listens=True)
    world.end(world.last_dial(Listen).channel, STALE)
    world.end(world.last_dial(Listen).channel, STALE)
    count = len(world.dials)
    world.wait(0.9)
    assert len(world.dials) == count
    world.wait(0.2)
    assert len(world.dials) == count + 1


def test_a_delete_is_sent_again_once() -> None:
    world = driver()
    client = connect(world, "http", "http")
    client.delete()
    for count in (1, 2):
        deletes = [dial for dial in world.dials if isinstance(dial.target, Delete)]
        assert len(deletes) == count
        world.end(deletes[-1].channel, STALE)
    assert len([dial for dial in world.dials if isinstance(dial.target, Delete)]) == 2
    assert deletes[0].target == deletes[1].target


def test_an_event_pipe_is_joined_again_once() -> None:
    world = driver(ServerPlan(id="sse", kind=Kind.SOCKET))
    client = new_client(world, "http", "sse")
    channel = client.initialize()
    world.end(world.last_dial(Join).channel, STALE)
    assert not world.sent[channel]
    assert len(joins(world)) == 2
    world.open(world.last_dial(Join).channel, Connected())
    assert world.was_sent("initialize")
    world.end(world.last_dial(Join).channel, STALE)
    assert len(joins(world)) == 2
    assert world.only_message(channel)["error"]["code"] == -31004
    world.wait(2.0)
    client = new_client(world, "http", "sse")
    channel = client.initialize()
    for _ in range(2):
        world.end(world.last_dial(Join).channel, STALE)
    assert len(joins(world)) == 4
    assert world.only_message(channel)["error"]["code"] == -31004


def joins(world: Driver) -> list[Effect]:
    return [dial for dial in world.every(Dial) if isinstance(dial.target, Join)]
