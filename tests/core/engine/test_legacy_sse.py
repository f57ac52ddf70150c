"""Tests of clients of HTTP+SSE: one event stream for all messages to them, and POSTs for all their messages.

Source: 2024-11-05 basic/transports, "HTTP with SSE".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from driving import DONE, GONE, Driver, connect, driver, notification, request, result
from isthmus.core.base.effects import Close, Delete, Listen, Note, Send, Spawn
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import Cause, EventPipeOpening, MessageOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits

INITIALIZE = request("0", "initialize", '{"protocolVersion":"2024-11-05","capabilities":{}}')
LIST = request("1", "tools/list")


@dataclass
class EventPipe:
    """A client with an open stream; `token` is that of its `endpoint` event."""

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
        self.world.send(channel, body)
        return channel

    def send(self, body: bytes) -> None:
        """Sends a message that is accepted."""
        channel = self.post(body)
        assert self.world.closed[channel].status == 202
        assert not self.world.sent[channel]

    @property
    def received(self) -> list[Any]:
        """The messages on its stream since the last look."""
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


def initialized(
    world: Driver, server: str = "http", *, revision: str = "2024-11-05", listens: bool = False
) -> EventPipe:
    """A client after its handshake."""
    pipe = opened(world, server)
    pipe.send(INITIALIZE.replace(b"2024-11-05", revision.encode()))
    world.start_server(revision=revision, listens=listens)
    pipe.send(notification("notifications/initialized"))
    assert [frame["result"]["protocolVersion"] for frame in pipe.received] == [revision]
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


def test_each_stream_has_a_token_of_its_own_that_cannot_be_guessed() -> None:
    world = driver()
    tokens = {opened(world).token for _ in range(20)}
    assert len(tokens) == 20
    assert {len(token) for token in tokens} == {32}


def test_the_token_is_sent_once_and_is_not_the_session_id() -> None:
    world = driver()
    pipe = initialized(world)
    pipe.send(LIST)
    world.answer(world.take_sent("tools/list"))
    world.end(pipe.stream, GONE)
    effects_with_token = [effect for effect in world.log if pipe.token in str(effect)]
    assert len(effects_with_token) == 1
    assert not any(pipe.token in note.text for note in world.every(Note))


@pytest.mark.parametrize("server", ["pipe", "http"])
def test_requests_are_answered_on_the_stream(server: str) -> None:
    world = driver()
    pipe = initialized(world, server)
    pipe.send(LIST)
    assert not pipe.received
    world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    assert pipe.received == [json.loads(result("1", '{"tools":[]}'))]


def test_notifications_and_questions_come_on_the_stream() -> None:
    world = driver()
    pipe = initialized(world, "pipe")
    child = world.last_dial(Spawn).channel
    world.send(child, notification("notifications/tools/list_changed"))
    world.send(child, request('"q"', "roots/list"))
    changed, asked = pipe.received
    assert changed["method"] == "notifications/tools/list_changed"
    pipe.send(result(str(asked["id"]), '{"roots":[]}'))
    assert world.take_sent("").raw == result('"q"', '{"roots":[]}')


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25"])
def test_a_silent_reply_is_not_primed(revision: str) -> None:
    """Streams of this transport cannot be resumed, whatever revision was negotiated over it."""
    world = driver()
    pipe = initialized(world, "pipe", revision=revision)
    pipe.send(request("1", "tools/call", '{"_meta":{"progressToken":7}}'))
    call = world.take_sent("tools/call")
    world.wait(60.0)
    number = call.frame["params"]["_meta"]["progressToken"]
    world.send(call.channel, notification("notifications/progress", f'{{"progressToken":{number},"progress":1}}'))
    assert not world.primed
    assert [frame["params"]["progressToken"] for frame in pipe.received] == [7]


# --- Tokens -----------------------------------------------------------------------------------------------------------


def test_unknown_foreign_and_misplaced_tokens_get_the_same_404() -> None:
    """The answer does not show whether a stream exists."""
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
    assert not pipe.received, "its stream gets nothing of that"
    assert pipe.post(INITIALIZE, token=pipe.token.upper()) not in world.closed


def test_a_session_id_is_no_token_and_a_token_is_no_session_id() -> None:
    world = driver()
    pipe = initialized(world)
    streaming = connect(world, "http", "http", session="S2")
    assert streaming.session is not None
    assert refusal(world, pipe.post(LIST, token=streaming.session))[0] == 404
    streaming.session = pipe.token
    channel = streaming.post(LIST)
    assert refusal(world, channel)[0] == 404


def test_a_stream_that_ended_between_the_head_and_the_body_of_a_message_is_404() -> None:
    world = driver()
    pipe = initialized(world)
    channel = world.engine.new_channel()
    world.open(channel, MessageOpening(server="http", token=pipe.token))
    world.end(pipe.stream, GONE)
    world.send(channel, LIST)
    assert refusal(world, channel)[0] == 404
    assert not world.was_sent("tools/list")


def test_a_stream_that_is_being_ended_takes_no_message_any_more() -> None:
    world = driver(limits=Limits(greeting_timeout_s=60.0))
    pipe = opened(world)
    channel = world.engine.new_channel()
    world.open(channel, MessageOpening(server="http", token=pipe.token))
    world.wait(61.0)
    world.send(channel, INITIALIZE)
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
def test_every_message_is_accepted_with_202_and_no_body(body: bytes) -> None:
    initialized(driver()).send(body)


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
def test_a_body_that_is_no_message_and_has_no_id_is_refused_on_its_post(body: bytes) -> None:
    world = driver()
    pipe = initialized(world)
    status, code, id = refusal(world, pipe.post(body))
    assert (status, id) == (400, None)
    assert code in (-32700, -32600)
    assert not pipe.received
    pipe.send(LIST)
    assert world.was_sent("tools/list")


def test_a_broken_request_is_answered_under_its_id_on_the_stream() -> None:
    """The client waits for the response on its stream."""
    pipe = initialized(driver())
    pipe.send(b'{"jsonrpc":"2.0","id":9,"method":7}')
    assert [(frame["id"], frame["error"]["code"]) for frame in pipe.received] == [(9, -32600)]


def test_a_broken_answer_ends_the_question() -> None:
    world = driver()
    pipe = initialized(world, "pipe")
    world.send(world.last_dial(Spawn).channel, request('"q"', "roots/list"))
    (asked,) = pipe.received
    pipe.send(b'{"jsonrpc":"2.0","id":%d,"result":{},"error":{}}' % asked["id"])
    assert world.take_sent("").frame["error"]["code"] == -32603
    assert not pipe.received


def test_an_id_in_use_is_refused_on_the_stream() -> None:
    world = driver()
    pipe = initialized(world)
    pipe.send(LIST)
    pipe.send(request("1", "tools/call", "{}"))
    assert [(frame["id"], frame["error"]["code"]) for frame in pipe.received] == [(1, -32600)]
    world.answer(world.take_sent("tools/list"))
    assert pipe.received == [json.loads(result("1"))]


def test_a_message_has_one_body() -> None:
    """A second body is ignored: it has crossed the end of its channel."""
    world = driver()
    pipe = initialized(world)
    channel = pipe.post(LIST)
    assert world.send(channel, request("2", "tools/list")) == []
    assert len([received for received in world.unread if received.frame["method"] == "tools/list"]) == 1


BATCH = b"[" + LIST + b"," + request("2", "ping") + b"]"


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26"])
def test_a_batch_is_answered_with_one_array_where_the_revision_has_them(revision: str) -> None:
    world = driver()
    pipe = initialized(world, revision=revision)
    pipe.send(BATCH)
    assert not pipe.received
    world.answer(world.take_sent("tools/list"))
    assert pipe.received == [[json.loads(result("2")), json.loads(result("1"))]]


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
def test_a_batch_is_refused_on_the_stream_where_the_revision_has_none(revision: str) -> None:
    world = driver()
    pipe = initialized(world, revision=revision)
    pipe.send(BATCH)
    assert [frame["error"]["code"] for frame in pipe.received] == [-32600, -32600]
    assert not world.unread


# --- The handshake ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
def test_requests_before_initialize_are_refused_on_the_stream_and_ping_is_not(method: str) -> None:
    world = driver()
    pipe = opened(world)
    pipe.send(request("1", method))
    pipe.send(request("2", "ping"))
    refused, pong = pipe.received
    assert (refused["id"], refused["error"]["code"]) == (1, -32600)
    assert pong == json.loads(result("2"))
    assert not world.dials


def test_a_second_initialize_is_refused_on_the_stream() -> None:
    world = driver()
    pipe = initialized(world)
    pipe.send(request("5", "initialize", "{}"))
    assert [(frame["id"], frame["error"]["code"]) for frame in pipe.received] == [(5, -32600)]
    assert world.engine.session_count == 1
    assert not world.unread


def test_sessions_max_refuses_the_handshake_on_the_stream() -> None:
    world = driver(limits=Limits(sessions_max=1))
    first, second = initialized(world), opened(world)
    second.send(INITIALIZE)
    assert [(frame["id"], frame["error"]["code"]) for frame in second.received] == [(0, -31007)]
    world.end(first.stream, GONE)
    second.send(INITIALIZE)
    assert world.was_sent("initialize")


def test_greeting_timeout_ends_a_stream_without_initialize() -> None:
    world = driver(limits=Limits(greeting_timeout_s=60.0))
    pipe = opened(world)
    world.wait(59.0)
    pipe.send(request("1", "ping"))
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
    pipe = initialized(world)
    world.wait(10_000.0)
    assert pipe.stream not in world.closed
    pipe.send(LIST)
    assert world.was_sent("tools/list")


def test_greeting_timeout_begins_anew_with_a_handshake_that_failed() -> None:
    """The client may try again on the same stream, within the timeout."""
    world = driver(limits=Limits(greeting_timeout_s=60.0))
    pipe = opened(world)
    for _ in range(2):
        pipe.send(INITIALIZE)
        for method in ("initialize", "server/discover"):
            asked = world.take_sent(method)
            world.reply(asked, f'{{"jsonrpc":"2.0","id":{asked.id},"error":{{"code":-32602,"message":"no"}}}}'.encode())
        assert [frame["error"]["code"] for frame in pipe.received] == [-32602]
        assert world.engine.session_count == 0
        world.wait(59.0)
        assert pipe.stream not in world.closed
    world.wait(1.1)
    assert pipe.stream in world.closed


def test_greeting_timeout_ends_a_stream_whose_handshake_took_longer_and_failed() -> None:
    world = driver(limits=Limits(greeting_timeout_s=10.0, start_timeout_s=25.0))
    pipe = opened(world)
    pipe.send(INITIALIZE)
    world.wait(24.9)
    assert pipe.stream not in world.closed, "the handshake is under way"
    world.wait(0.2)
    assert [frame["error"]["code"] for frame in pipe.received] == [-31004]
    world.wait(10.0)
    assert pipe.stream in world.closed


# --- Ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["pipe", "http"])
def test_the_session_and_its_upstream_end_with_the_stream(server: str) -> None:
    world = driver()
    pipe = initialized(world, server)
    pipe.send(LIST)
    call = world.take_sent("tools/list")
    assert world.engine.exchange_count == 1
    world.end(pipe.stream, GONE)
    assert (world.engine.session_count, world.engine.exchange_count) == (0, 0)
    cancelled = world.take_sent("notifications/cancelled")
    assert cancelled.frame["params"] == {"requestId": call.id}
    if server == "pipe":
        assert call.channel in world.closed
    else:
        assert any(isinstance(dial.target, Delete) for dial in world.dials)
    assert refusal(world, pipe.post(LIST))[0] == 404
    assert world.engine.receive_close(pipe.stream, DONE, world.now) == [], "a second close does nothing"


def test_a_pipe_that_hangs_up_during_the_handshake_leaves_nothing() -> None:
    world = driver()
    pipe = opened(world, "pipe")
    pipe.send(INITIALIZE)
    world.end(pipe.stream, GONE)
    assert world.engine.session_count == 0
    child = world.last_dial(Spawn).channel
    assert child in world.closed
    world.end(child)
    assert world.engine.next_timeout() is None


def test_shutdown_ends_all_of_them() -> None:
    world = driver()
    pipe, fresh = initialized(world), opened(world)
    pipe.send(LIST)
    world.stop()
    assert [frame["error"]["code"] for frame in pipe.received] == [-31001]
    assert {pipe.stream, fresh.stream} <= set(world.closed)
    assert refusal(world, fresh.post(INITIALIZE))[0] == 404


def test_a_message_that_is_broken_off_harms_nothing() -> None:
    world = driver()
    pipe = initialized(world)
    channel = world.engine.new_channel()
    world.open(channel, MessageOpening(server="http", token=pipe.token))
    assert world.end(channel, GONE) == []
    pipe.send(LIST)
    assert world.was_sent("tools/list")


# --- Flow control -----------------------------------------------------------------------------------------------------

FLOOD = notification("x", '{"a":"' + "y" * 300 + '"}')


def fill(world: Driver, pipe: EventPipe, body: bytes) -> ChannelId:
    """Sends the message until it is refused. Returns the channel of the refusal."""
    for _ in range(1000):
        channel = pipe.post(body)
        if world.sent[channel]:
            return channel
    raise AssertionError("it is never refused")


def test_a_server_that_takes_nothing_stops_its_clients_messages() -> None:
    """POSTs cannot be paused, so they are refused."""
    world = driver(limits=Limits(outbox_high_bytes=500, outbox_low_bytes=10, outbox_max_bytes=2000))
    pipe = initialized(world, "pipe")
    assert refusal(world, fill(world, pipe, FLOOD)) == (503, -31007, None)
    assert refusal(world, pipe.post(LIST)) == (503, -31007, 1)
    for welcome in (request("2", "ping"), result("9"), notification("notifications/cancelled", '{"requestId":1}')):
        pipe.send(welcome)
    child = world.last_dial(Spawn).channel
    world.engine.receive_sent(child, sum(len(message) for message in world.messages(child)), world.now)
    pipe.send(LIST)
    assert world.was_sent("tools/list")


def test_a_server_that_takes_nothing_stops_batches_too() -> None:
    world = driver(limits=Limits(outbox_high_bytes=500, outbox_low_bytes=10, outbox_max_bytes=2000))
    pipe = initialized(world, "pipe")
    assert refusal(world, fill(world, pipe, b"[" + FLOOD + b"]")) == (503, -31007, None)
    pipe.send(b"[" + result("9") + b"]")


@pytest.mark.parametrize(
    "body", [request('"' + "x" * 300 + '"', "ping"), b'{"jsonrpc":"2.0","id":"' + b"x" * 300 + b'","method":7}']
)
def test_a_client_that_takes_no_answers_is_refused(body: bytes) -> None:
    """Responses go to a stream that the client does not read, so its messages are refused."""
    world = driver(limits=Limits(outbox_high_bytes=500, outbox_low_bytes=10, outbox_max_bytes=2000))
    pipe = initialized(world, "pipe")
    endpoint_bytes = sum(len(message) for message in [f"/messages/x?sessionId={pipe.token}".encode()])
    assert refusal(world, fill(world, pipe, body))[0] == 503
    assert sum(len(message) for message in world.messages(pipe.stream)) < 2000 + 2 * len(body) + endpoint_bytes
    pipe.send(result("9"))


def test_an_ended_stream_is_ended_once() -> None:
    world = driver(limits=Limits(greeting_timeout_s=60.0))
    pipe = opened(world)
    world.wait(61.0)
    world.stop()
    assert [effect.channel for effect in world.every(Close)] == [pipe.stream]
    assert world.engine.receive_close(pipe.stream, Cause(DONE.end), world.now) == []


def test_notifications_of_an_http_server_come_on_the_stream() -> None:
    world = driver()
    pipe = initialized(world, "http", listens=True)
    stream = world.last_dial(Listen).channel
    world.send(stream, notification("notifications/message", '{"n":1}'))
    assert [frame["params"] for frame in pipe.received] == [{"n": 1}]
