"""Clients of HTTP+SSE: one event stream that carries all they are told, and POSTs with all they say.

Source: 2024-11-05 basic/transports, "HTTP with SSE".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from driving import DONE, GONE, Driver, connect, driver, notification, request, result
from isthmus.core.base.effects import (
    Cause,
    Close,
    Delete,
    EventPipeOpening,
    Listen,
    MessageOpening,
    Note,
    Send,
    Spawn,
)
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits

INITIALIZE = request("0", "initialize", '{"protocolVersion":"2024-11-05","capabilities":{}}')
LIST = request("1", "tools/list")


@dataclass
class EventPipe:
    """A client, its stream open; `token` is what the first event told it."""

    world: Driver
    server: str
    principal: str
    stream: ChannelId
    token: str

    def post(
        self, body: bytes, *, token: str | None = None, server: str | None = None, principal: str | None = None
    ) -> ChannelId:
        channel = self.world.engine.new_channel()
        opening = MessageOpening(
            server=self.server if server is None else server,
            token=self.token if token is None else token,
            principal=self.principal if principal is None else principal,
        )
        self.world.open(channel, opening)
        self.world.say(channel, body)
        return channel

    def say(self, body: bytes) -> None:
        """Say what is taken."""
        channel = self.post(body)
        assert self.world.closed[channel].status == 202
        assert not self.world.sent[channel]

    @property
    def told(self) -> list[Any]:
        """What came on its stream since it was looked at last."""
        sends = self.world.sent[self.stream]
        assert {send.event for send in sends} <= {"message"}
        assert not [send for send in sends if send.is_last or send.event_id or send.retry_ms is not None]
        frames = [json.loads(send.message) for send in sends]
        sends.clear()
        return frames


def opened(world: Driver, server: str = "http", principal: str = "") -> EventPipe:
    stream = world.engine.new_channel()
    world.open(stream, EventPipeOpening(server=server, principal=principal, endpoint="/messages/x"))
    (first,) = world.sent[stream]
    assert (first.event, first.is_last, first.event_id) == ("endpoint", False, None)
    (token,) = parse_qs(urlsplit(first.message.decode()).query)["sessionId"]
    world.sent[stream].clear()
    return EventPipe(world, server, principal, stream, token)


def shaken(world: Driver, server: str = "http", *, revision: str = "2024-11-05", listens: bool = False) -> EventPipe:
    """A client that is through with its handshake."""
    pipe = opened(world, server)
    pipe.say(INITIALIZE.replace(b"2024-11-05", revision.encode()))
    world.shake_hands(revision=revision, listens=listens)
    pipe.say(notification("notifications/initialized"))
    assert [frame["result"]["protocolVersion"] for frame in pipe.told] == [revision]
    return pipe


def refusal(world: Driver, channel: ChannelId) -> tuple[int, int, object]:
    (send,) = world.sent[channel]
    assert send.is_last
    frame = json.loads(send.message)
    return send.status, frame["error"]["code"], frame["id"]


# --- The stream -------------------------------------------------------------------------------------------------------


def test_the_first_event_says_where_to_send_messages() -> None:
    world = driver()
    stream = world.engine.new_channel()
    effects = world.open(stream, EventPipeOpening(server="http", endpoint="/base/messages/http"))
    (first,) = effects
    assert isinstance(first, Send)
    path, _, query = first.message.decode().partition("?")
    assert (first.event, path) == ("endpoint", "/base/messages/http")
    assert query.startswith("sessionId=")
    assert not world.dials, "nothing is begun before initialize"


def test_each_stream_has_a_token_of_its_own_that_nobody_can_guess() -> None:
    world = driver()
    tokens = {opened(world).token for _ in range(20)}
    assert len(tokens) == 20
    assert {len(token) for token in tokens} == {32}


def test_the_token_is_said_once_and_is_not_the_sessions_own() -> None:
    world = driver()
    pipe = shaken(world)
    pipe.say(LIST)
    world.answer(world.hear("tools/list"))
    world.end(pipe.stream, GONE)
    told = [effect for effect in world.log if pipe.token in str(effect)]
    assert len(told) == 1
    assert not any(pipe.token in note.text for note in world.every(Note))


@pytest.mark.parametrize("server", ["pipe", "http"])
def test_what_is_asked_is_answered_on_the_stream(server: str) -> None:
    world = driver()
    pipe = shaken(world, server)
    pipe.say(LIST)
    assert not pipe.told
    world.answer(world.hear("tools/list"), '{"tools":[]}')
    assert pipe.told == [json.loads(result("1", '{"tools":[]}'))]


def test_what_the_server_says_of_its_own_accord_comes_on_the_stream_and_can_be_answered() -> None:
    world = driver()
    pipe = shaken(world, "pipe")
    child = world.last_dial(Spawn).channel
    world.say(child, notification("notifications/tools/list_changed"))
    world.say(child, request('"q"', "roots/list"))
    changed, asked = pipe.told
    assert changed["method"] == "notifications/tools/list_changed"
    pipe.say(result(str(asked["id"]), '{"roots":[]}'))
    assert world.hear("").raw == result('"q"', '{"roots":[]}')


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25"])
def test_a_silent_reply_is_not_primed(revision: str) -> None:
    """Nothing on this transport can be resumed, whatever revision was negotiated over it."""
    world = driver()
    pipe = shaken(world, "pipe", revision=revision)
    pipe.say(request("1", "tools/call", '{"_meta":{"progressToken":7}}'))
    call = world.hear("tools/call")
    world.wait(60.0)
    number = call.frame["params"]["_meta"]["progressToken"]
    world.say(call.channel, notification("notifications/progress", f'{{"progressToken":{number},"progress":1}}'))
    assert not world.primed
    assert [frame["params"]["progressToken"] for frame in pipe.told] == [7]


# --- Whose messages ---------------------------------------------------------------------------------------------------


def test_unknown_foreign_and_misplaced_tokens_get_the_same_404() -> None:
    """Nobody learns from the answer whether a stream exists."""
    world = driver()
    pipe, ended = opened(world, principal="me"), opened(world, principal="me")
    world.end(ended.stream, GONE)
    tries = [
        pipe.post(LIST, token="f" * 32),
        pipe.post(LIST, token=""),
        pipe.post(LIST, principal="you"),
        pipe.post(LIST, principal=""),
        pipe.post(LIST, server="pipe"),
        pipe.post(LIST, token=ended.token),
        pipe.post(LIST, token="f" * 32, server="pipe", principal="you"),
    ]
    assert {refusal(world, channel) for channel in tries} == {(404, -32600, None)}
    assert len({message for channel in tries for message in world.messages(channel)}) == 1
    assert not pipe.told, "it hears nothing of that"
    assert pipe.post(INITIALIZE, token=pipe.token.upper()) not in world.closed


def test_a_session_id_is_no_token_and_a_token_is_no_session_id() -> None:
    world = driver()
    pipe = shaken(world)
    streaming = connect(world, "http", "http", session="S2")
    assert streaming.session is not None
    assert refusal(world, pipe.post(LIST, token=streaming.session))[0] == 404
    streaming.session = pipe.token
    channel = streaming.post(LIST)
    assert refusal(world, channel)[0] == 404


def test_a_stream_that_ended_between_the_head_and_the_body_of_a_message_is_404() -> None:
    world = driver()
    pipe = shaken(world)
    channel = world.engine.new_channel()
    world.open(channel, MessageOpening(server="http", token=pipe.token))
    world.end(pipe.stream, GONE)
    world.say(channel, LIST)
    assert refusal(world, channel)[0] == 404
    assert not world.hears("tools/list")


def test_a_stream_that_is_being_ended_takes_no_message_any_more() -> None:
    world = driver(limits=Limits(greeting_timeout_s=60.0))
    pipe = opened(world)
    channel = world.engine.new_channel()
    world.open(channel, MessageOpening(server="http", token=pipe.token))
    world.wait(61.0)
    world.say(channel, INITIALIZE)
    assert refusal(world, channel)[0] == 404
    assert not world.dials


def test_a_server_that_is_not_in_the_plan_is_the_callers_mistake() -> None:
    world = driver()
    for opening in (EventPipeOpening(server="none"), MessageOpening(server="none", token="")):
        with pytest.raises(LocalProtocolError, match="there is no server 'none'"):
            world.open(world.engine.new_channel(), opening)


# --- Messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        LIST,
        request("2", "ping"),
        notification("vendor/notice"),
        result("12345"),
        notification("notifications/cancelled"),
    ],
)
def test_whatever_is_a_message_is_accepted_with_202_and_no_body(body: bytes) -> None:
    shaken(driver()).say(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b"\xff",
        b"1",
        b"{}",
        b'{"jsonrpc":"2.0","id":1.5,"method":"a"}',
        b"[",
        b"[]",
        b"[" + b",".join([result("9")] * 65) + b"]",
    ],
)
def test_what_is_no_message_and_has_no_id_is_refused_where_it_came(body: bytes) -> None:
    world = driver()
    pipe = shaken(world)
    status, code, id = refusal(world, pipe.post(body))
    assert (status, id) == (400, None)
    assert code in (-32700, -32600)
    assert not pipe.told
    pipe.say(LIST)
    assert world.hears("tools/list")


def test_a_broken_request_is_answered_under_its_id_on_the_stream() -> None:
    """Whoever sent it waits there."""
    pipe = shaken(driver())
    pipe.say(b'{"jsonrpc":"2.0","id":9,"method":7}')
    assert [(frame["id"], frame["error"]["code"]) for frame in pipe.told] == [(9, -32600)]


def test_a_broken_answer_ends_the_question() -> None:
    world = driver()
    pipe = shaken(world, "pipe")
    world.say(world.last_dial(Spawn).channel, request('"q"', "roots/list"))
    (asked,) = pipe.told
    pipe.say(b'{"jsonrpc":"2.0","id":%d,"result":{},"error":{}}' % asked["id"])
    assert world.hear("").frame["error"]["code"] == -32603
    assert not pipe.told


def test_an_id_in_use_is_refused_on_the_stream() -> None:
    world = driver()
    pipe = shaken(world)
    pipe.say(LIST)
    pipe.say(request("1", "tools/call", "{}"))
    assert [(frame["id"], frame["error"]["code"]) for frame in pipe.told] == [(1, -32600)]
    world.answer(world.hear("tools/list"))
    assert pipe.told == [json.loads(result("1"))]


def test_a_message_has_one_body() -> None:
    """What comes after it has crossed the end of its channel."""
    world = driver()
    pipe = shaken(world)
    channel = pipe.post(LIST)
    assert world.say(channel, request("2", "tools/list")) == []
    assert len([heard for heard in world.heard if heard.frame["method"] == "tools/list"]) == 1


BATCH = b"[" + LIST + b"," + request("2", "ping") + b"]"


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26"])
def test_a_batch_is_answered_with_one_array_where_the_revision_has_them(revision: str) -> None:
    world = driver()
    pipe = shaken(world, revision=revision)
    pipe.say(BATCH)
    assert not pipe.told
    world.answer(world.hear("tools/list"))
    assert pipe.told == [[json.loads(result("2")), json.loads(result("1"))]]


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
def test_a_batch_is_refused_on_the_stream_where_the_revision_has_none(revision: str) -> None:
    world = driver()
    pipe = shaken(world, revision=revision)
    pipe.say(BATCH)
    assert [frame["error"]["code"] for frame in pipe.told] == [-32600]
    assert not world.heard


# --- The handshake ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
def test_requests_before_initialize_are_refused_on_the_stream_and_ping_is_not(method: str) -> None:
    world = driver()
    pipe = opened(world)
    pipe.say(request("1", method))
    pipe.say(request("2", "ping"))
    refused, pong = pipe.told
    assert (refused["id"], refused["error"]["code"]) == (1, -32600)
    assert pong == json.loads(result("2"))
    assert not world.dials


def test_a_second_initialize_is_refused_on_the_stream() -> None:
    world = driver()
    pipe = shaken(world)
    pipe.say(request("5", "initialize", "{}"))
    assert [(frame["id"], frame["error"]["code"]) for frame in pipe.told] == [(5, -32600)]
    assert world.engine.session_count == 1
    assert not world.heard


def test_sessions_max_refuses_the_handshake_on_the_stream() -> None:
    world = driver(limits=Limits(sessions_max=1))
    first, second = shaken(world), opened(world)
    second.say(INITIALIZE)
    assert [(frame["id"], frame["error"]["code"]) for frame in second.told] == [(0, -31007)]
    world.end(first.stream, GONE)
    second.say(INITIALIZE)
    assert world.hears("initialize")


def test_greeting_timeout_ends_a_stream_on_which_nobody_says_initialize() -> None:
    world = driver(limits=Limits(greeting_timeout_s=60.0))
    pipe = opened(world)
    world.wait(59.0)
    pipe.say(request("1", "ping"))
    world.wait(0.9)
    assert pipe.stream not in world.closed
    world.wait(0.2)
    assert pipe.stream in world.closed
    assert refusal(world, pipe.post(INITIALIZE))[0] == 404
    world.end(pipe.stream)
    assert refusal(world, pipe.post(INITIALIZE))[0] == 404
    assert world.engine.next_timeout() is None


def test_greeting_timeout_is_over_with_initialize() -> None:
    world = driver(limits=Limits(greeting_timeout_s=60.0))
    pipe = shaken(world)
    world.wait(10_000.0)
    assert pipe.stream not in world.closed
    pipe.say(LIST)
    assert world.hears("tools/list")


def test_greeting_timeout_begins_anew_with_a_handshake_that_failed() -> None:
    """The client may try again on the same stream, but not think about it for ever."""
    world = driver(limits=Limits(greeting_timeout_s=60.0))
    pipe = opened(world)
    for _ in range(2):
        pipe.say(INITIALIZE)
        init = world.hear("initialize")
        world.reply(init, f'{{"jsonrpc":"2.0","id":{init.id},"error":{{"code":-32602,"message":"no"}}}}'.encode())
        assert [frame["error"]["code"] for frame in pipe.told] == [-32602]
        assert world.engine.session_count == 0
        world.wait(59.0)
        assert pipe.stream not in world.closed
    world.wait(1.1)
    assert pipe.stream in world.closed


def test_greeting_timeout_ends_a_stream_whose_handshake_took_longer_and_failed() -> None:
    world = driver(limits=Limits(greeting_timeout_s=10.0, start_timeout_s=25.0))
    pipe = opened(world)
    pipe.say(INITIALIZE)
    world.wait(24.9)
    assert pipe.stream not in world.closed, "somebody works at it"
    world.wait(0.2)
    assert [frame["error"]["code"] for frame in pipe.told] == [-31004]
    world.wait(10.0)
    assert pipe.stream in world.closed


# --- Ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["pipe", "http"])
def test_with_its_stream_the_session_ends_and_its_upstream(server: str) -> None:
    world = driver()
    pipe = shaken(world, server)
    pipe.say(LIST)
    call = world.hear("tools/list")
    assert world.engine.exchange_count == 1
    world.end(pipe.stream, GONE)
    assert (world.engine.session_count, world.engine.exchange_count) == (0, 0)
    told = world.hear("notifications/cancelled")
    assert told.frame["params"] == {"requestId": call.id}
    if server == "pipe":
        assert call.channel in world.closed
    else:
        assert any(isinstance(dial.target, Delete) for dial in world.dials)
    assert refusal(world, pipe.post(LIST))[0] == 404
    assert world.engine.receive_close(pipe.stream, DONE, world.now) == [], "said twice"


def test_a_pipe_that_hangs_up_during_the_handshake_leaves_nothing() -> None:
    world = driver()
    pipe = opened(world, "pipe")
    pipe.say(INITIALIZE)
    world.end(pipe.stream, GONE)
    assert world.engine.session_count == 0
    child = world.last_dial(Spawn).channel
    assert child in world.closed
    world.end(child)
    assert world.engine.next_timeout() is None


def test_shutdown_ends_all_of_them() -> None:
    world = driver()
    pipe, fresh = shaken(world), opened(world)
    pipe.say(LIST)
    world.stop()
    assert [frame["error"]["code"] for frame in pipe.told] == [-31001]
    assert {pipe.stream, fresh.stream} <= set(world.closed)
    assert refusal(world, fresh.post(INITIALIZE))[0] == 404


def test_a_message_that_is_broken_off_harms_nothing() -> None:
    world = driver()
    pipe = shaken(world)
    channel = world.engine.new_channel()
    world.open(channel, MessageOpening(server="http", token=pipe.token))
    assert world.end(channel, GONE) == []
    pipe.say(LIST)
    assert world.hears("tools/list")


# --- Flow control -----------------------------------------------------------------------------------------------------

FLOOD = notification("x", '{"a":"' + "y" * 300 + '"}')


def fill(world: Driver, pipe: EventPipe, body: bytes) -> ChannelId:
    """Say it until it is refused."""
    for _ in range(1000):
        channel = pipe.post(body)
        if world.sent[channel]:
            return channel
    raise AssertionError("it is never refused")


def test_a_server_that_takes_nothing_stops_its_clients_messages() -> None:
    """They cannot be paused: each is a request of its own."""
    world = driver(limits=Limits(outbox_high_bytes=500, outbox_low_bytes=10, outbox_max_bytes=2000))
    pipe = shaken(world, "pipe")
    assert refusal(world, fill(world, pipe, FLOOD)) == (503, -31007, None)
    assert refusal(world, pipe.post(LIST)) == (503, -31007, 1)
    for welcome in (request("2", "ping"), result("9"), notification("notifications/cancelled", '{"requestId":1}')):
        pipe.say(welcome)
    child = world.last_dial(Spawn).channel
    world.engine.receive_sent(child, sum(len(message) for message in world.messages(child)), world.now)
    pipe.say(LIST)
    assert world.hears("tools/list")


def test_a_server_that_takes_nothing_stops_batches_too() -> None:
    world = driver(limits=Limits(outbox_high_bytes=500, outbox_low_bytes=10, outbox_max_bytes=2000))
    pipe = shaken(world, "pipe")
    assert refusal(world, fill(world, pipe, b"[" + FLOOD + b"]")) == (503, -31007, None)
    pipe.say(b"[" + result("9") + b"]")


@pytest.mark.parametrize(
    "body", [request('"' + "x" * 300 + '"', "ping"), b'{"jsonrpc":"2.0","id":"' + b"x" * 300 + b'","method":7}']
)
def test_a_client_that_takes_no_answers_is_not_listened_to(body: bytes) -> None:
    """What it says is answered on a stream that it does not read."""
    world = driver(limits=Limits(outbox_high_bytes=500, outbox_low_bytes=10, outbox_max_bytes=2000))
    pipe = shaken(world, "pipe")
    said = sum(len(message) for message in [f"/messages/x?sessionId={pipe.token}".encode()])
    assert refusal(world, fill(world, pipe, body))[0] == 503
    assert sum(len(message) for message in world.messages(pipe.stream)) < 2000 + 2 * len(body) + said
    pipe.say(result("9"))


def test_an_ended_stream_is_ended_once() -> None:
    world = driver(limits=Limits(greeting_timeout_s=60.0))
    pipe = opened(world)
    world.wait(61.0)
    world.stop()
    assert [effect.channel for effect in world.every(Close)] == [pipe.stream]
    assert world.engine.receive_close(pipe.stream, Cause(DONE.end), world.now) == []


def test_the_upstream_of_an_event_pipe_is_listened_to_like_any_other() -> None:
    world = driver()
    pipe = shaken(world, "http", listens=True)
    stream = world.last_dial(Listen).channel
    world.say(stream, notification("notifications/message", '{"n":1}'))
    assert [frame["params"] for frame in pipe.told] == [{"n": 1}]
