"""Tests of pipes and event pipes: the outcome of each message, before there is a session, in one, and after it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import GONE, LATEST, Driver, connect, driver, new_client, notification, request, result
from inside import Inside
from isthmus.core.base.effects import Send, Spawn
from isthmus.core.base.errors import OVERLOADED
from isthmus.core.base.events import Connected, EventPipeOpening, MessageOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan
from stateless_driving import meta, tables

INVALID, PARSE, INTERNAL = -32600, -32700, -32603
HELLO = request("0", "initialize", f'{{"protocolVersion":"{LATEST}","capabilities":{{}}}}')
CALL = request("7", "tools/call", '{"name":"t"}')
MODERN = request("8", "server/discover", json.dumps({"_meta": meta()}))


class EventPipe:
    """A client of HTTP+SSE."""

    def __init__(self, world: Driver, principal: str = "") -> None:
        self.world = world
        self.channel = world.engine.new_channel()
        effects = world.open(self.channel, EventPipeOpening("pipe", principal, endpoint="/m"))
        (first,) = [effect for effect in effects if isinstance(effect, Send)]
        assert first.event == "endpoint"
        path, _, self.token = first.message.decode().partition("?sessionId=")
        assert path == "/m"
        world.sent[self.channel].clear()

    def post(self, message: bytes, **other: str) -> ChannelId:
        channel = self.world.engine.new_channel()
        opening = {"server": "pipe", "token": self.token, "principal": "", **other}
        self.world.open(channel, MessageOpening(**opening))
        if channel not in self.world.over:
            self.world.send(channel, message)
        return channel

    def begin(self, revision: str = LATEST) -> None:
        self.post(HELLO.replace(LATEST.encode(), revision.encode()))
        self.world.start_server(revision=revision)
        self.post(notification("notifications/initialized"))
        self.world.sent[self.channel].clear()


def answered(world: Driver, channel: ChannelId) -> Any:
    """The status of a POST, with the code of its error if there is one."""
    if channel in world.closed:
        return world.closed[channel].status
    (sent,) = world.sent[channel]
    return sent.status, json.loads(sent.message)["error"]["code"]


def plans() -> tuple[ServerPlan, ServerPlan]:
    return ServerPlan(id="pipe", kind=Kind.PIPE), ServerPlan(id="other", kind=Kind.PIPE)


def due(world: Driver) -> dict[str, float]:
    live = tables(world.engine)["timers"]
    return {purpose: at - world.now for (purpose, _), (at, *_) in live.items()}


# --- Before there is a session ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (request("1", "ping"), {"id": 1, "result": {}}),
        (CALL, {"id": 7, "error": INVALID}),
        (notification("notifications/vendor"), None),
        (notification("initialize"), None),
        (result("1"), None),
        (b"[" + CALL + b"]", {"id": 7, "error": INVALID}),
        (b"{", {"id": None, "error": PARSE}),
        (b'{"jsonrpc":"1.0","id":4,"method":"x"}', {"id": None, "error": INVALID}),
        (b'{"jsonrpc":"2.0","id":4,"result":{},"error":{}}', None),
    ],
)
@pytest.mark.parametrize("down", ["pipe", "event pipe"])
def test_before_initialize_only_ping_is_known(message: bytes, expected: Any, down: str) -> None:
    """A request gets an error and other messages get nothing. A session can begin all the same."""
    world = driver()
    if down == "pipe":
        client = new_client(world, "pipe", "pipe")
        assert client.pipe is not None
        where = client.pipe
        world.send(where, message)
    else:
        event_pipe = EventPipe(world)
        where = event_pipe.channel
        event_pipe.post(message)
    frames = [
        {**frame, "error": frame["error"]["code"]} if "error" in frame else frame for frame in world.frames(where)
    ]
    if down == "event pipe" and (message == b"{" or b'"1.0"' in message):
        expected = None  # the response to the POST has the error
    assert frames == ([] if expected is None else [{"jsonrpc": "2.0", **expected}])
    assert world.engine.session_count == 0
    if down == "pipe":
        world.send(where, HELLO)
    else:
        event_pipe.post(HELLO)
    assert world.engine.session_count == 1


@pytest.mark.parametrize("down", ["pipe", "event pipe"])
def test_a_session_refused_for_lack_of_room_may_begin_later(down: str) -> None:
    world = driver(limits=Limits(sessions_max=1))
    first = connect(world, "http", "pipe")
    if down == "pipe":
        client = new_client(world, "pipe", "pipe")
        assert client.pipe is not None
        where = client.pipe
        world.send(where, HELLO)
    else:
        event_pipe = EventPipe(world)
        where = event_pipe.channel
        event_pipe.post(HELLO)
    (frame,) = world.frames(where)
    assert (frame["id"], frame["error"]["code"]) == (0, OVERLOADED)
    first.delete()
    if down == "pipe":
        world.send(where, HELLO)
    else:
        event_pipe.post(HELLO)
    assert world.engine.session_count == 1


def test_an_event_pipe_without_initialize_is_closed_in_time() -> None:
    """An event pipe with only a ping is closed too. Its timeout ends with `initialize` or a request without a
    session."""
    world = driver(limits=Limits(greeting_timeout_s=10.0))
    pipe = EventPipe(world)
    assert due(world) == {"greeting": 10.0}
    world.wait(6)
    pipe.post(request("1", "ping"))
    assert due(world) == {"greeting": 4.0}
    world.wait(4)
    assert world.closed[pipe.channel].reason == "nobody said initialize"
    assert answered(world, pipe.post(HELLO)) == (404, INVALID), "it is over"
    world.end(pipe.channel)
    assert answered(world, pipe.post(HELLO)) == (404, INVALID)
    assert due(world) == {}


@pytest.mark.parametrize("message", [HELLO, MODERN])
def test_a_message_restarts_the_timeout_of_an_event_pipe(message: bytes) -> None:
    """The timeout begins anew with such a message, with a session or without."""
    world = driver(limits=Limits(greeting_timeout_s=10.0))
    pipe = EventPipe(world)
    world.wait(6)
    pipe.post(message)
    assert due(world)["greeting"] == 10.0
    if message == HELLO:
        world.start_server()
        pipe.post(notification("notifications/initialized"))
        world.wait(35)
        assert pipe.channel not in world.closed, "it has a session"
        assert due(world)["greeting"] == 5.0


# --- Tokens -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "is_its"),
    [({}, True), ({"token": "x"}, False), ({"principal": "bob"}, False), ({"server": "other"}, False)],
)
@pytest.mark.parametrize("state", ["new", "begun", "closed", "gone"])
def test_a_message_needs_the_token_of_a_pipe_of_its_principal_and_server(
    state: str, other: dict[str, str], is_its: bool
) -> None:
    """A foreign token is answered like an unknown one, before the body is read."""
    world = driver(*plans())
    pipe = EventPipe(world)
    if state != "new":
        pipe.begin()
    if state == "closed":
        world.stop()
    elif state == "gone":
        world.end(pipe.channel, GONE)
    world.unread.clear()
    channel = world.engine.new_channel()
    fields = {"server": "pipe", "token": pipe.token, "principal": "", **other}
    world.open(channel, MessageOpening(**fields))
    if not is_its or state in ("closed", "gone"):
        assert answered(world, channel) == (404, INVALID)
        return
    assert not world.sent[channel]
    world.send(channel, CALL)
    assert answered(world, channel) == 202
    assert len(world.unread) == (state == "begun")


def test_a_pipe_that_ends_between_the_head_and_the_body_of_a_message() -> None:
    world = driver()
    pipe = EventPipe(world)
    pipe.begin()
    channel = world.engine.new_channel()
    world.open(channel, MessageOpening("pipe", pipe.token))
    world.end(pipe.channel, GONE)
    world.send(channel, CALL)
    assert answered(world, channel) == (404, INVALID)


# --- In a session -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("down", ["pipe", "event pipe"])
def test_a_batch_is_accepted_if_the_revision_has_batches(down: str, revision: str) -> None:
    """The answers come as one array. A batch in another revision is refused as a whole."""
    world = driver()
    calls = b"[" + CALL + b"," + request("8", "tools/call", '{"name":"u"}') + b"]"
    if down == "pipe":
        client = connect(world, "pipe", "pipe", revision=revision)
        assert client.pipe is not None
        where = client.pipe
        world.send(where, calls)
    else:
        pipe = EventPipe(world)
        pipe.begin(revision)
        where = pipe.channel
        assert answered(world, pipe.post(calls)) == 202
    if revision in ("2025-06-18", "2025-11-25"):
        assert [(frame["id"], frame["error"]["code"]) for frame in world.frames(where)] == [(7, INVALID), (8, INVALID)]
        assert not world.unread
        return
    for number in (1, 2):
        assert not world.sent[where]
        world.answer(world.take_sent("tools/call"), f'{{"n":{number}}}')
    (message,) = world.messages(where)
    assert [(frame["id"], frame["result"]["n"]) for frame in json.loads(message)] == [(7, 1), (8, 2)]


@pytest.mark.parametrize("id_raw", ["its", '"other"', "null"])
def test_an_unreadable_answer_becomes_an_error_for_the_server(id_raw: str) -> None:
    """The server gets an error. The client gets none, because it asked nothing."""
    world = driver()
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    world.send(world.last_dial(Spawn).channel, request('"q"', "roots/list"))
    (asked,) = world.frames(client.pipe)
    number = str(asked["id"]) if id_raw == "its" else id_raw
    world.send(
        client.pipe, f'{{"jsonrpc":"2.0","id":{number},"result":{{}},"error":{{"code":1,"message":"m"}}}}'.encode()
    )
    assert len(world.sent[client.pipe]) == 1
    if id_raw == "its":
        error = world.take_sent("").frame["error"]
        assert error["code"] == INTERNAL
        assert error["message"].startswith("the client's answer could not be read: ")
    assert not world.unread
    assert world.notes("warning")


@pytest.mark.parametrize("size", [999, 1000, 1001])
def test_requests_of_a_client_that_does_not_read_are_refused(size: int) -> None:
    """Requests are refused at once while the unsent bytes exceed the bound, which itself is within. Messages without an
    answer pass."""
    world = driver(limits=Limits(outbox_max_bytes=1000, outbox_high_bytes=1000, outbox_low_bytes=1000))
    pipe = EventPipe(world)
    pipe.begin()
    world.take(pipe.channel, Inside(world.engine).context.unsent_bytes(pipe.channel))
    pipe.post(CALL)
    text = '{"jsonrpc":"2.0","id":7,"result":{"x":"%s"}}'
    world.answer(world.take_sent("tools/call"), json.dumps({"x": "y" * (size - len(text % ""))}, separators=(",", ":")))
    assert Inside(world.engine).context.unsent_bytes(pipe.channel) == size
    channel = pipe.post(request("8", "tools/call", '{"name":"t"}'))
    assert answered(world, channel) == (202 if size <= 1000 else (503, OVERLOADED))
    assert answered(world, pipe.post(notification("notifications/vendor"))) == 202


def test_a_pipe_may_have_another_session_after_a_failed_one() -> None:
    """A second `initialize` begins a session after the first has failed."""
    world = driver()
    client = new_client(world, "pipe", "pipe")
    assert client.pipe is not None
    world.send(client.pipe, HELLO)
    world.open(world.dials[-1].channel, Connected())
    for method in ("initialize", "server/discover"):
        received = world.take_sent(method)
        world.reply(received, b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"no"}}' % received.id)
        world.open(world.dials[-1].channel, Connected())
    assert [("error" in frame) for frame in world.frames(client.pipe)] == [True]
    world.send(client.pipe, HELLO)
    assert world.engine.session_count == 1
