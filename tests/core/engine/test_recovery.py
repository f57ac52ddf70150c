"""Tests of recovery in which the bytes, the 202 of a notification or the channel of a stream count. The stories of lost
servers are dialogues."""

from __future__ import annotations

import json

import pytest
from driving import (
    FORGOTTEN,
    NO_STREAM,
    Client,
    Driver,
    connect,
    driver,
    error,
    initialized_client,
    new_client,
    notification,
    result,
)
from isthmus.core.base.effects import Delete, Listen, Post, Spawn
from isthmus.core.base.events import Cause, Connected, End, Queued
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits

DIED = Cause(End.BROKEN, detail="exit 1: out of memory")
RESET = Cause(End.BROKEN, detail="connection reset")
UNREACHABLE = Cause(End.UNREACHABLE, detail="connection refused", unsent=True)


def failure(world: Driver, channel: ChannelId) -> dict[str, object]:
    """Returns the error that ended the request on a channel."""
    seen = json.loads(world.messages(channel)[-1])["error"]
    assert isinstance(seen, dict)
    return seen


def starts(world: Driver) -> int:
    """Returns how often a server was started, or got `initialize` over HTTP."""
    targets = [dial.target for dial in world.dials]
    greetings = [t for t in targets if isinstance(t, Post) and json.loads(t.message).get("method") == "initialize"]
    return len([t for t in targets if isinstance(t, Spawn)]) + len(greetings)


def lose(world: Driver, up: str) -> None:
    """Ends the upstream session with nothing open on it: the process dies, or the GET stream gets 404."""
    if up == "pipe":
        world.end(world.last_dial(Spawn).channel, DIED)
        return
    stream = world.last_dial(Listen).channel
    world.end(stream, RESET)
    world.wait(1.0)
    world.end(world.last_dial(Listen).channel, FORGOTTEN)


# --- The server forgot the session ------------------------------------------------------------------------------------


def test_404_of_a_server_without_sessions_is_an_ordinary_refusal() -> None:
    world = driver()
    client = new_client(world, "http", "http")
    init = client.initialize()
    world.answer(world.take_sent("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}', session=None)
    world.end(world.take_sent("server/discover").channel, FORGOTTEN)
    world.acknowledge(world.take_sent("notifications/initialized"))
    world.end(world.last_dial(Listen).channel, NO_STREAM)
    client.session = world.sent[init][-1].session
    channel = client.request("1", "tools/list")
    world.end(world.take_sent("tools/list").channel, FORGOTTEN)
    assert failure(world, channel)["code"] == -31004
    assert starts(world) == 1


def test_a_notification_that_finds_the_session_forgotten_makes_the_next_request_start_anew() -> None:
    world = driver()
    client = connect(world, "http", "http")
    client.notify("vendor/notice")
    world.end(world.take_sent("vendor/notice").channel, FORGOTTEN)
    assert starts(world) == 1
    client.request("1", "tools/list")
    assert starts(world) == 2
    world.start_server(session="S2")
    assert world.was_sent("tools/list")


# --- Restored state ---------------------------------------------------------------------------------------------------


def settle(world: Driver, client: Client, method: str, params: str, *, fails: bool = False) -> None:
    client.request("9", method, params)
    received = world.take_sent(method)
    if fails:
        world.reply(received, error(str(received.id), '{"code":-1,"message":"no"}'))
    else:
        world.answer(received)


def test_a_new_session_has_the_same_handshake() -> None:
    world = driver()
    client = new_client(world, "http", "pipe")
    params = '{"protocolVersion":"2025-06-18", "capabilities":{"roots":{}},"clientInfo":{"name":"\\u00e9"}}'
    init = client.initialize(params)
    first = world.last_dial(Spawn).target
    world.start_server()
    client.session = world.sent[init][-1].session
    world.end(world.last_dial(Spawn).channel, DIED)
    channel = client.request("1", "tools/list")
    assert world.last_dial(Spawn).target == first, "the same folders"
    world.open(world.last_dial(Spawn).channel, Connected())
    assert world.unread[0].raw.endswith(b'"params":' + params.encode() + b"}")
    world.start_server()
    world.answer(world.take_sent("tools/list"))
    assert world.messages(channel) == [result("1")], "the result of the second handshake reaches no client"
    assert len(world.sent[init]) == 1


# --- Refusals ---------------------------------------------------------------------------------------------------------


def test_the_text_of_a_long_refusal_is_cut() -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/list", "{}")
    world.end(world.take_sent("tools/list").channel, Cause(End.REFUSED, status=500, body=b"x" * 60_000))
    assert len(world.messages(channel)[0]) < 1000


@pytest.mark.parametrize("id", ["null", '"server-error"', "1"])
def test_a_json_rpc_error_in_a_refusal_is_passed(id: str) -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", "{}")
    text = '{"code":-32602, "message":"Bad","data":1.0}'
    world.end(world.take_sent("tools/call").channel, Cause(End.REFUSED, status=400, body=error(id, text) + b"\n"))
    world.answer(world.take_sent("ping"))
    assert world.messages(channel) == [error("1", text)]


# --- Starting ---------------------------------------------------------------------------------------------------------


def test_an_error_in_a_refused_initialize_is_passed() -> None:
    world = driver()
    client = new_client(world, "http", "http")
    channel = client.initialize()
    text = '{"code":-32000,"message":"Unauthorized"}'
    for method in ("initialize", "server/discover"):
        world.end(world.take_sent(method).channel, Cause(End.REFUSED, status=400, body=error("null", text)))
    assert world.messages(channel) == [error("0", text)]


@pytest.mark.parametrize("text", ["[]", "1", '{"protocolVersion":"a","protocolVersion":"b"}'])
def test_an_unusable_answer_to_initialize_is_a_failed_start(text: str) -> None:
    world = driver()
    client = new_client(world, "http", "pipe")
    channel = client.initialize()
    world.open(world.dials[0].channel, Connected())
    world.answer(world.take_sent("initialize"), text)
    assert failure(world, channel)["code"] == -31004
    assert world.engine.session_count == 0


@pytest.mark.parametrize("up", ["pipe", "http"])
@pytest.mark.parametrize("stage", ["dialled", "initializing", "confirming"])
def test_a_server_that_is_silent_while_starting_is_given_up_and_closed(up: str, stage: str) -> None:
    world = driver(limits=Limits(start_timeout_s=7.0))
    client = connect(world, "http", up)
    lose(world, "pipe") if up == "pipe" else client.notify("vendor/notice")
    if up == "http":
        world.end(world.take_sent("vendor/notice").channel, FORGOTTEN)
    channel = client.request("1", "tools/call", "{}")
    silent = world.dials[-1].channel
    if stage != "dialled" and up == "pipe":
        world.open(silent, Connected())
    if stage == "confirming" and up == "http":
        world.answer(world.take_sent("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}', session="S2")
        silent = world.take_sent("notifications/initialized").channel
    world.wait(6.9)
    assert not world.sent[channel]
    world.wait(0.2)
    assert failure(world, channel)["code"] == -31004
    assert "7 s" in str(failure(world, channel)["message"])
    assert silent in world.closed, "what was dialled is not left hanging"


# --- The server's event stream ----------------------------------------------------------------------------------------


def test_nothing_is_sent_before_initialized_was_accepted() -> None:
    world = driver()
    client = new_client(world, "http", "http")
    init = client.initialize()
    world.answer(world.take_sent("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}', session="S1")
    client.session = world.sent[init][-1].session
    confirmation = world.take_sent("notifications/initialized")
    client.request("1", "tools/call", "{}")
    assert not world.unread
    assert not [dial for dial in world.dials if isinstance(dial.target, Listen)]
    world.acknowledge(confirmation)
    world.end(world.last_dial(Listen).channel, NO_STREAM)
    assert world.was_sent("tools/call")


@pytest.mark.parametrize(("cause", "is_ended"), [(FORGOTTEN, False), (RESET, True)])
def test_a_session_that_its_server_has_forgotten_is_not_deleted(cause: Cause, is_ended: bool) -> None:
    """A client does not name a session again after a 404 (2025-11-25 basic/transports, "Session Management")."""
    world = driver()
    new_client(world, "http", "http").initialize()
    world.answer(world.take_sent("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}', session="S1")
    world.end(world.take_sent("notifications/initialized").channel, cause)
    assert [dial.target.session for dial in world.dials if isinstance(dial.target, Delete)] == ["S1"] * is_ended


def test_a_stream_that_broke_while_state_is_restored_is_opened_again() -> None:
    world = driver()
    client = connect(world, "http", "http", listens=True)
    settle(world, client, "resources/subscribe", '{"uri":"a"}')
    lose(world, "http")
    stream = world.start_server(session="S2", listens=True)
    assert stream is not None
    slow = world.take_sent("resources/subscribe")
    world.end(stream, RESET)
    world.wait(3.0)
    again = world.last_dial(Listen)
    assert again.channel != stream
    world.answer(slow)
    world.open(again.channel, Connected())
    world.send(again.channel, notification("notifications/tools/list_changed"))
    assert len(world.messages(client.listen())) == 1


@pytest.mark.parametrize("is_queued", [False, True])
def test_a_stream_that_is_not_open_yet_is_closed(is_queued: bool) -> None:
    """A GET without a response has no connection to keep."""
    world = driver()
    client, stream = initialized_client(world)
    if is_queued:
        world.open(stream, Queued())
    client.delete()
    assert stream in world.closed


@pytest.mark.parametrize("noise", [b"[", b'[{"jsonrpc":"2.0","id":7,"method":"roots/list"}', b"[\xff]"])
def test_invalid_messages_of_a_deleted_session_are_ignored(noise: bytes) -> None:
    world = driver()
    client = connect(world, "http", "http", listens=True)
    stream = world.last_dial(Listen).channel
    client.delete()
    before = len(world.log)
    world.send(stream, noise)
    assert world.log[before:] == []


def test_streams_left_open_are_bounded_by_kept_connections() -> None:
    world = driver(limits=Limits(pool_idle_max=2))
    clients, streams = [], []
    for session in ("S1", "S2", "S3", "S4"):
        clients.append(connect(world, "http", "http", session=session, listens=True))
        streams.append(world.last_dial(Listen).channel)
    for client in clients[:3]:
        client.delete()
    assert [stream in world.closed for stream in streams] == [False, False, True, False]
    world.end(streams[0])
    clients[3].delete()
    assert streams[3] not in world.closed, "there is room again"


def test_without_a_session_the_stream_is_closed_at_once() -> None:
    """A server without sessions gets no DELETE, so it does not end the stream."""
    world = driver()
    client = connect(world, "http", "http", session=None, listens=True)
    stream = world.last_dial(Listen).channel
    client.delete()
    assert stream in world.closed


def test_an_unanswered_delete_is_given_up() -> None:
    world = driver(limits=Limits(notification_timeout_s=5.0))
    client = connect(world, "http", "http")
    client.delete()
    (delete,) = [dial for dial in world.dials if isinstance(dial.target, Delete)]
    world.wait(4.9)
    assert delete.channel not in world.closed
    world.wait(0.2)
    assert delete.channel in world.closed
    world.end(delete.channel)
    assert world.engine.next_timeout() is None
