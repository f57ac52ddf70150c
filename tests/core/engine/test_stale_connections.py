"""Connections that a server had closed before it looked at what they brought: what is sent again once, and what not.

The rule above all: a tool call is written once, unless it is proved that it did not run.
"""

from __future__ import annotations

import json

import pytest
from driving import NO_STREAM, Driver, connect, driver, newcomer, notification, request, result
from isthmus.core.base.effects import Cause, Connected, Delete, Dial, Effect, End, Join, Listen
from isthmus.core.base.methods import SAFE_TO_REPEAT
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.wire.http.retry import SAFE_NOTICES, may_send_again

STALE = Cause(End.BROKEN, "the connection ended before a response", stale=True)
UNSENT = Cause(End.BROKEN, "the connection ended before a response", stale=True, unsent=True)
FRESH = Cause(End.BROKEN, "the connection ended before a response")


# --- The rule ---------------------------------------------------------------------------------------------------------

METHODS = sorted(SAFE_TO_REPEAT | SAFE_NOTICES | {"initialize", "ping", "tools/call", "vendor/unheard"})
MESSAGES = [
    *((request("1", method), method in SAFE_TO_REPEAT) for method in METHODS),
    *((notification(method), method in SAFE_NOTICES) for method in [*METHODS, "notifications/progress"]),
    (result("1"), True),
    (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}', True),
    (b"nonsense", False),
]


@pytest.mark.parametrize(("message", "is_safe"), MESSAGES)
def test_what_may_be_sent_again(message: bytes, is_safe: bool) -> None:
    """What did not arrive whole may be; else what means the same twice. Only of connections that were used before; but
    an answer that did not arrive on a new one, too, for nobody would ask for it again."""
    is_answer = b'"result"' in message or b'"error"' in message
    assert may_send_again(STALE, message) is is_safe
    assert may_send_again(UNSENT, message)
    for cause in (Cause(End.BROKEN, unsent=True), Cause(End.UNREACHABLE)):
        assert may_send_again(cause, message) is is_answer
    for cause in (FRESH, Cause(End.DONE), Cause(End.REFUSED, status=503)):
        assert not may_send_again(cause, message)


def test_initialize_may_be_while_there_is_no_session() -> None:
    assert may_send_again(STALE, request("1", "initialize"), has_session=False)
    assert not may_send_again(STALE, notification("initialize"), has_session=False)


# --- The handshake ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", [STALE, UNSENT])
def test_each_step_of_a_handshake_is_sent_again_once(cause: Cause) -> None:
    """And nothing else happens: no pause, and one session."""
    world = driver()
    client = newcomer(world, "http", "http")
    channel = client.initialize()
    first = world.hear("initialize")
    world.end(first.channel, cause)
    second = world.hear("initialize")
    assert second.frame["params"] == first.frame["params"]
    assert second.id != first.id
    world.answer(second, '{"protocolVersion":"2025-11-25","capabilities":{}}', session="S1")
    assert world.said(channel)["result"]["protocolVersion"] == "2025-11-25"
    client.session = world.sent[channel][-1].session
    world.end(world.hear("notifications/initialized").channel, cause)
    again = world.hear("notifications/initialized")
    assert again.post is not None and again.post.session == "S1"
    call = client.request("1", "tools/call", "{}")
    world.acknowledge(again)
    stream = world.last_dial(Listen)
    world.end(stream.channel, cause)
    assert world.last_dial(Listen).target == stream.target
    assert world.last_dial(Listen).channel != stream.channel
    assert not world.hears("tools/call"), "it still waits for the stream"
    world.end(world.last_dial(Listen).channel, NO_STREAM)
    world.answer(world.hear("tools/call"))
    assert "result" in world.said(call)
    assert not world.heard


def test_a_handshake_that_breaks_again_fails() -> None:
    world = driver()
    channel = newcomer(world, "http", "http").initialize()
    world.end(world.hear("initialize").channel, STALE)
    world.end(world.hear("initialize").channel, STALE)
    assert world.said(channel)["error"]["code"] == -31004
    assert not world.heard


def test_a_handshake_on_a_new_connection_is_not_repeated() -> None:
    world = driver()
    channel = newcomer(world, "http", "http").initialize()
    world.end(world.hear("initialize").channel, FRESH)
    assert world.said(channel)["error"]["code"] == -31004
    assert not world.heard


def test_a_confirmation_that_breaks_again_loses_the_session() -> None:
    world = driver()
    channel = newcomer(world, "http", "http").initialize()
    world.answer(world.hear("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}', session="S1")
    for _ in range(2):
        world.end(world.hear("notifications/initialized").channel, STALE)
    assert "result" in world.said(channel)
    assert not world.heard
    assert [type(dial.target) for dial in world.dials][-1] is Delete


def test_what_is_set_again_is_sent_again() -> None:
    world = driver()
    client = connect(world, "http", "http")
    client.request("1", "resources/subscribe", '{"uri":"file:///a"}')
    world.answer(world.hear("resources/subscribe"))
    client.request("2", "tools/list")
    world.end(world.hear("tools/list").channel, Cause(End.REFUSED, status=404))
    world.shake_hands(session="S2")
    world.end(world.hear("resources/subscribe").channel, STALE)
    again = world.hear("resources/subscribe")
    assert again.frame["params"] == {"uri": "file:///a"}
    assert not world.hears("tools/list")
    world.end(again.channel, STALE)
    assert world.hears("tools/list"), "what cannot be set again keeps nobody waiting"


def test_what_was_answered_on_another_stream_is_not_sent_again() -> None:
    """Its own connection may end without a word then."""
    world = driver()
    client = connect(world, "http", "http")
    client.request("1", "resources/subscribe", '{"uri":"file:///a"}')
    world.answer(world.hear("resources/subscribe"))
    client.request("2", "tools/list")
    world.end(world.hear("tools/list").channel, Cause(End.REFUSED, status=404))
    stream = world.shake_hands(session="S2", listens=True)
    assert stream is not None
    again = world.hear("resources/subscribe")
    world.say(stream, result(str(again.id)))
    world.hear("tools/list")
    world.end(again.channel, STALE)
    assert not world.heard


# --- Requests, notifications and answers ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
@pytest.mark.parametrize("cause", [STALE, UNSENT])
def test_a_clients_request_is_sent_again_if_it_only_reads_or_did_not_arrive(method: str, cause: Cause) -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", method, "{}")
    world.end(world.hear(method).channel, cause)
    if method == "tools/call" and not cause.unsent:
        assert world.said(channel)["error"]["code"] == -31001
        assert not world.heard
        return
    world.end(world.hear(method).channel, cause)
    assert not world.heard
    assert world.said(channel)["error"]["code"] == (-31004 if cause.unsent else -31001)


def test_notifications_that_may_be_are_sent_again_once() -> None:
    world = driver()
    client = connect(world, "http", "http")
    for method in ("notifications/roots/list_changed", "vendor/notice"):
        client.notify(method)
        world.end(world.hear(method).channel, STALE)
    assert not world.hears("vendor/notice")
    again = world.hear("notifications/roots/list_changed")
    world.end(again.channel, STALE)
    assert not world.heard
    assert len(world.notes("warning")) == 2
    client.notify("vendor/notice", '{"n":1}')
    world.end(world.hear("vendor/notice").channel, UNSENT)
    assert world.hear("vendor/notice").frame["params"] == {"n": 1}


@pytest.mark.parametrize("cause", [STALE, Cause(End.UNREACHABLE, "connection refused")], ids=["stale", "unreachable"])
def test_an_answer_is_sent_again_once_with_the_headers_of_who_gave_it(cause: Cause) -> None:
    world = driver()
    client = connect(world, "http", "http", listens=True, headers=(("x-a", "1"),))
    listening = client.listen()
    world.say(world.last_dial(Listen).channel, request('"q"', "elicitation/create", "{}"))
    (asked,) = world.frames(listening)
    client.say(result(json.dumps(asked["id"]), '{"action":"accept"}'))
    first = world.hear("")
    world.end(first.channel, cause)
    second = world.hear("")
    assert second.raw == first.raw
    assert second.post == first.post
    world.end(second.channel, cause)
    assert not world.heard


def test_what_belongs_to_a_lost_session_is_not_sent_again() -> None:
    world = driver()
    client = connect(world, "http", "http")
    client.notify("notifications/roots/list_changed")
    notice = world.hear("notifications/roots/list_changed")
    client.request("1", "tools/list")
    world.end(world.hear("tools/list").channel, Cause(End.REFUSED, status=404))
    world.end(notice.channel, STALE)
    assert not world.hears("notifications/roots/list_changed")


# --- Streams and farewells --------------------------------------------------------------------------------------------


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


def test_a_farewell_is_said_again_once() -> None:
    world = driver()
    client = connect(world, "http", "http")
    client.delete()
    for count in (1, 2):
        farewells = [dial for dial in world.dials if isinstance(dial.target, Delete)]
        assert len(farewells) == count
        world.end(farewells[-1].channel, STALE)
    assert len([dial for dial in world.dials if isinstance(dial.target, Delete)]) == 2
    assert farewells[0].target == farewells[1].target


def test_an_event_pipe_is_joined_again_once() -> None:
    world = driver(ServerPlan(id="sse", kind=Kind.SOCKET))
    client = newcomer(world, "http", "sse")
    channel = client.initialize()
    world.end(world.last_dial(Join).channel, STALE)
    assert not world.sent[channel]
    assert len(joins(world)) == 2
    world.open(world.last_dial(Join).channel, Connected())
    assert world.hears("initialize")
    world.end(world.last_dial(Join).channel, STALE)
    assert len(joins(world)) == 2
    assert world.said(channel)["error"]["code"] == -31004
    world.wait(2.0)
    client = newcomer(world, "http", "sse")
    channel = client.initialize()
    for _ in range(2):
        world.end(world.last_dial(Join).channel, STALE)
    assert len(joins(world)) == 4
    assert world.said(channel)["error"]["code"] == -31004


def joins(world: Driver) -> list[Effect]:
    return [dial for dial in world.every(Dial) if isinstance(dial.target, Join)]
