"""What comes of each message on a pipe and on an event pipe, before there is a session, in one, and after it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import GONE, LATEST, Driver, connect, driver, newcomer, notification, request, result
from isthmus.core.base.effects import Connected, EventPipeOpening, MessageOpening, Send, Spawn
from isthmus.core.base.errors import OVERLOADED
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan
from stateless_driving import meta

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
        said = {"server": "pipe", "token": self.token, "principal": "", **other}
        self.world.open(channel, MessageOpening(**said))
        if channel not in self.world.over:
            self.world.say(channel, message)
        return channel

    def begin(self, revision: str = LATEST) -> None:
        self.post(HELLO.replace(LATEST.encode(), revision.encode()))
        self.world.shake_hands(revision=revision)
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
    live = world.engine._desk.timers._live
    return {purpose: at - world.now for (purpose, _), (at, *_) in live.items()}


# --- Before there is a session ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (request("1", "ping"), {"id": 1, "result": {}}),
        (CALL, {"id": 7, "error": INVALID}),
        (notification("notifications/vendor"), None),
        (notification("initialize"), None),
        (result("1"), None),
        (b"[" + CALL + b"]", {"id": None, "error": INVALID}),
        (b"{", {"id": None, "error": PARSE}),
        (b'{"jsonrpc":"1.0","id":4,"method":"x"}', {"id": 4, "error": INVALID}),
        (b'{"jsonrpc":"2.0","id":4,"result":{},"error":{}}', None),
    ],
)
@pytest.mark.parametrize("down", ["pipe", "event pipe"])
def test_before_it_was_greeted_a_proxy_knows_nothing_but_ping(message: bytes, said: Any, down: str) -> None:
    """A request is answered with an error, and nothing else is; a session can begin all the same."""
    world = driver()
    if down == "pipe":
        client = newcomer(world, "pipe", "pipe")
        assert client.pipe is not None
        where = client.pipe
        world.say(where, message)
    else:
        event_pipe = EventPipe(world)
        where = event_pipe.channel
        event_pipe.post(message)
    frames = [
        {**frame, "error": frame["error"]["code"]} if "error" in frame else frame for frame in world.frames(where)
    ]
    if down == "event pipe" and message == b"{":
        said = None  # it is said to who sent it
    assert frames == ([] if said is None else [{"jsonrpc": "2.0", **said}])
    assert world.engine.session_count == 0
    if down == "pipe":
        world.say(where, HELLO)
    else:
        event_pipe.post(HELLO)
    assert world.engine.session_count == 1


@pytest.mark.parametrize("down", ["pipe", "event pipe"])
def test_where_there_is_no_room_for_a_session_there_may_be_later(down: str) -> None:
    world = driver(limits=Limits(sessions_max=1))
    first = connect(world, "http", "pipe")
    if down == "pipe":
        client = newcomer(world, "pipe", "pipe")
        assert client.pipe is not None
        where = client.pipe
        world.say(where, HELLO)
    else:
        event_pipe = EventPipe(world)
        where = event_pipe.channel
        event_pipe.post(HELLO)
    (frame,) = world.frames(where)
    assert (frame["id"], frame["error"]["code"]) == (0, OVERLOADED)
    first.delete()
    if down == "pipe":
        world.say(where, HELLO)
    else:
        event_pipe.post(HELLO)
    assert world.engine.session_count == 1


def test_who_opens_an_event_pipe_and_says_nothing_is_not_waited_for() -> None:
    """Nor is one that says only what needs no session, unless that says whom it is for."""
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
def test_who_speaks_is_waited_for_anew(message: bytes) -> None:
    """With a session, or without."""
    world = driver(limits=Limits(greeting_timeout_s=10.0))
    pipe = EventPipe(world)
    world.wait(6)
    pipe.post(message)
    assert due(world)["greeting"] == 10.0
    if message == HELLO:
        world.shake_hands()
        pipe.post(notification("notifications/initialized"))
        world.wait(35)
        assert pipe.channel not in world.closed, "it has a session"
        assert due(world)["greeting"] == 5.0


# --- Whose pipe it is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "is_its"),
    [({}, True), ({"token": "x"}, False), ({"principal": "bob"}, False), ({"server": "other"}, False)],
)
@pytest.mark.parametrize("state", ["new", "begun", "closed", "gone"])
def test_a_message_is_for_a_pipe_of_its_own(state: str, other: dict[str, str], is_its: bool) -> None:
    """A foreign one is answered as one that there is not, and before it has said a word."""
    world = driver(*plans())
    pipe = EventPipe(world)
    if state != "new":
        pipe.begin()
    if state == "closed":
        world.stop()
    elif state == "gone":
        world.end(pipe.channel, GONE)
    world.heard.clear()
    channel = world.engine.new_channel()
    said = {"server": "pipe", "token": pipe.token, "principal": "", **other}
    world.open(channel, MessageOpening(**said))
    if not is_its or state in ("closed", "gone"):
        assert answered(world, channel) == (404, INVALID)
        return
    assert not world.sent[channel]
    world.say(channel, CALL)
    assert answered(world, channel) == 202
    assert len(world.heard) == (state == "begun")


def test_a_pipe_that_ends_between_the_head_and_the_body_of_a_message() -> None:
    world = driver()
    pipe = EventPipe(world)
    pipe.begin()
    channel = world.engine.new_channel()
    world.open(channel, MessageOpening("pipe", pipe.token))
    world.end(pipe.channel, GONE)
    world.say(channel, CALL)
    assert answered(world, channel) == (404, INVALID)


# --- In a session -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("down", ["pipe", "event pipe"])
def test_a_batch_is_one_where_the_revision_has_them(down: str, revision: str) -> None:
    """Its answers come together; elsewhere it is refused as a whole."""
    world = driver()
    calls = b"[" + CALL + b"," + request("8", "tools/call", '{"name":"u"}') + b"]"
    if down == "pipe":
        client = connect(world, "pipe", "pipe", revision=revision)
        assert client.pipe is not None
        where = client.pipe
        world.say(where, calls)
    else:
        pipe = EventPipe(world)
        pipe.begin(revision)
        where = pipe.channel
        assert answered(world, pipe.post(calls)) == 202
    if revision in ("2025-06-18", "2025-11-25"):
        (frame,) = world.frames(where)
        assert (frame["id"], frame["error"]["code"]) == (None, INVALID)
        assert not world.heard
        return
    for number in (1, 2):
        assert not world.sent[where]
        world.answer(world.hear("tools/call"), f'{{"n":{number}}}')
    (message,) = world.messages(where)
    assert [(frame["id"], frame["result"]["n"]) for frame in json.loads(message)] == [(7, 1), (8, 2)]


@pytest.mark.parametrize("id_raw", ["its", '"other"', "null"])
def test_of_an_answer_that_cannot_be_read_the_one_who_asked_is_told(id_raw: str) -> None:
    """Not the client: it has asked nothing."""
    world = driver()
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    world.say(world.last_dial(Spawn).channel, request('"q"', "roots/list"))
    (asked,) = world.frames(client.pipe)
    number = str(asked["id"]) if id_raw == "its" else id_raw
    world.say(
        client.pipe, f'{{"jsonrpc":"2.0","id":{number},"result":{{}},"error":{{"code":1,"message":"m"}}}}'.encode()
    )
    assert len(world.sent[client.pipe]) == 1
    if id_raw == "its":
        error = world.hear("").frame["error"]
        assert error["code"] == INTERNAL
        assert error["message"].startswith("the client's answer could not be read: ")
    assert not world.heard
    assert world.notes("warning")


@pytest.mark.parametrize("size", [999, 1000, 1001])
def test_who_does_not_read_is_told_nothing_more(size: int) -> None:
    """Over the bound, what would be answered is refused at once; the bound itself is within. What needs no answer
    passes."""
    world = driver(limits=Limits(outbox_max_bytes=1000, outbox_high_bytes=1000, outbox_low_bytes=1000))
    pipe = EventPipe(world)
    pipe.begin()
    world.take(pipe.channel, world.engine._desk.unsent_bytes(pipe.channel))
    pipe.post(CALL)
    text = '{"jsonrpc":"2.0","id":7,"result":{"x":"%s"}}'
    world.answer(world.hear("tools/call"), json.dumps({"x": "y" * (size - len(text % ""))}, separators=(",", ":")))
    assert world.engine._desk.unsent_bytes(pipe.channel) == size
    channel = pipe.post(request("8", "tools/call", '{"name":"t"}'))
    assert answered(world, channel) == (202 if size <= 1000 else (503, OVERLOADED))
    assert answered(world, pipe.post(notification("notifications/vendor"))) == 202


def test_after_its_session_a_pipe_may_have_another() -> None:
    """Where the first one could not begin."""
    world = driver()
    client = newcomer(world, "pipe", "pipe")
    assert client.pipe is not None
    world.say(client.pipe, HELLO)
    world.open(world.dials[-1].channel, Connected())
    heard = world.hear("initialize")
    world.reply(heard, b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"no"}}' % heard.id)
    assert [("error" in frame) for frame in world.frames(client.pipe)] == [True]
    world.say(client.pipe, HELLO)
    assert world.engine.session_count == 1
