"""Tests of the HTTP rules for clients: one test for each rule of sessions, batches, versions and ids.

Source: 2025-03-26, 2025-06-18 and 2025-11-25, basic/transports; JSON-RPC 2.0.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, Driver, connect, driver, new_client, notification, request, result
from isthmus.core.base.effects import Note, Post
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import GetOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits

INITIALIZE = request("1", "initialize", '{"protocolVersion":"2025-11-25","capabilities":{}}')
LIST = request("1", "tools/list")


def refusal(world: Driver, channel: ChannelId) -> tuple[int, int, object]:
    """Status, error code and id of a request that was refused at once."""
    (send,) = world.sent[channel]
    assert send.is_last
    assert send.session is None
    frame = json.loads(send.message)
    return send.status, frame["error"]["code"], frame["id"]


def test_a_post_has_one_body() -> None:
    """A second body is a mistake of the transport, and changes nothing."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/list")
    call = world.take_sent("tools/list")
    with pytest.raises(LocalProtocolError, match="one body"):
        world.send(channel, LIST)
    world.answer(call, '{"tools":[]}')
    assert world.only_message(channel)["result"] == {"tools": []}


# --- Sessions ---------------------------------------------------------------------------------------------------------


def test_a_request_without_a_session_is_refused_with_400() -> None:
    world = driver()
    client = new_client(world, "http", "http")
    assert refusal(world, client.post(LIST)) == (400, -32600, None)
    assert refusal(world, client.listen()) == (400, -32600, None)
    assert refusal(world, client.delete()) == (400, -32600, None)
    assert not world.dials


def test_unknown_foreign_and_misplaced_sessions_get_the_same_404() -> None:
    """The answer does not show whether a session exists."""
    world = driver()
    mine = connect(world, "http", "http", principal="me")
    intruders = [
        Client(world, "http", session="f" * 32, principal="me"),  # does not exist
        Client(world, "http", session=mine.session, principal="you"),  # of another principal
        Client(world, "pipe", session=mine.session, principal="me"),  # of another server
    ]
    for kind in ("post", "get", "delete", "initialize"):
        answers = set()
        for intruder in intruders:
            channel = {
                "post": lambda who: who.post(LIST),
                "get": lambda who: who.listen(),
                "delete": lambda who: who.delete(),
                "initialize": lambda who: who.post(INITIALIZE),
            }[kind](intruder)
            assert refusal(world, channel)[0] == 404
            answers.add((world.sent[channel][0].message, channel in world.closed))
        assert len(answers) == 1, kind
    mine.post(LIST)
    assert world.was_sent("tools/list"), "the session itself is as it was"


def test_a_second_initialize_is_refused_with_400() -> None:
    world = driver()
    client = connect(world, "http", "http")
    assert refusal(world, client.post(INITIALIZE))[0] == 400
    assert not world.unread
    assert world.engine.session_count == 1


@pytest.mark.parametrize("size", [1, 2])
def test_initialize_within_a_batch_is_refused_with_400(size: int) -> None:
    """2025-03-26 lifecycle: it "MUST NOT be part of a JSON-RPC batch"; a batch of one is a batch."""
    world = driver()
    client = new_client(world, "http", "http")
    batch = b"[" + b",".join([INITIALIZE, request("2", "ping")][:size]) + b"]"
    assert refusal(world, client.post(batch))[:2] == (400, -32600)
    assert not world.dials


def test_initialize_within_a_batch_is_refused_on_a_pipe() -> None:
    world = driver()
    client = new_client(world, "pipe", "http")
    channel = client.send(b"[" + INITIALIZE + b"," + INITIALIZE + b"]")
    assert world.only_message(channel)["error"]["code"] == -32600
    assert world.engine.session_count == 0
    client.initialize()
    assert world.was_sent("initialize"), "alone it is accepted"


def test_the_newest_event_stream_has_the_messages_and_the_older_ones_stay_for_later() -> None:
    """An older one may be dead without a sign of it."""
    world = driver()
    client = connect(world, "http", "pipe")
    first, second = client.listen(), client.listen()
    world.send(world.dials[0].channel, notification("notifications/tools/list_changed"))
    assert (len(world.messages(first)), len(world.messages(second))) == (0, 1)
    world.end(second)
    world.send(world.dials[0].channel, notification("notifications/tools/list_changed"))
    assert (len(world.messages(first)), len(world.messages(second))) == (1, 1)


def test_delete_ends_the_session_with_204_and_is_404_afterwards() -> None:
    world = driver()
    client = connect(world, "http", "http")
    stream = client.listen()
    channel = client.delete()
    assert world.closed[channel].status == 204
    assert stream in world.closed
    assert world.engine.session_count == 0
    assert refusal(world, client.delete())[0] == 404
    assert refusal(world, client.post(LIST))[0] == 404
    assert refusal(world, client.listen())[0] == 404


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_delete_answers_the_calls_that_are_open(up: str) -> None:
    world = driver()
    client = connect(world, "http", up)
    calls = [client.request(str(n), "tools/call", "{}") for n in range(3)]
    client.delete()
    for n, channel in enumerate(calls):
        assert refusal(world, channel) == (200, -32600, n)
        assert world.only_message(channel)["error"]["message"] == "session terminated"
    for n in range(3):
        call = world.take_sent("tools/call")
        assert world.take_sent("notifications/cancelled").frame["params"] == {"requestId": call.id}, n


def test_the_session_id_is_handed_out_with_the_initialize_reply_only() -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/list")
    world.answer(world.take_sent("tools/list"))
    ping = client.request("2", "ping")
    assert [send.session for send in world.sent[channel] + world.sent[ping]] == [None, None]
    assert client.session is not None
    sends_with_id = [send for sends in world.sent.values() for send in sends if client.session in (send.session or "")]
    assert len(sends_with_id) == 1
    assert client.session.encode() not in b"".join(m for c in world.sent for m in world.messages(c))
    assert not any(client.session in note.text for note in world.every(Note))


def test_each_session_id_is_fresh() -> None:
    world = driver()
    ids = {connect(world, "http", "http").session for _ in range(20)}
    assert len(ids) == 20
    assert all(id is not None and len(id) == 32 for id in ids)


def test_a_refused_handshake_hands_out_no_session_id() -> None:
    world = driver()
    client = new_client(world, "http", "http")
    channel = client.initialize()
    init = world.take_sent("initialize")
    refusal = '{{"jsonrpc":"2.0","id":{},"error":{{"code":-32602,"message":"no"}}}}'
    world.reply(init, refusal.format(init.id).encode())
    probe = world.take_sent("server/discover")
    world.reply(probe, refusal.format(probe.id).encode())
    (send,) = world.sent[channel]
    assert send.session is None
    assert json.loads(send.message)["error"] == {"code": -32602, "message": "no"}


# --- Batches ----------------------------------------------------------------------------------------------------------


def batch(*messages: bytes) -> bytes:
    return b"[" + b" , ".join(messages) + b"]"


@pytest.mark.parametrize("takes_events", [True, False])
def test_a_batch_of_one_is_answered_with_an_array_of_one(takes_events: bool) -> None:
    world = driver()
    client = connect(world, "http", "http", revision="2025-03-26")
    channel = client.post(batch(request("1", "tools/list"), notification("x")), takes_events=takes_events)
    world.answer(world.take_sent("tools/list"))
    assert world.messages(channel) == [b"[" + result("1") + b"]"]


@pytest.mark.parametrize("takes_events", [True, False])
def test_a_batch_is_answered_with_one_array(takes_events: bool) -> None:
    world = driver()
    client = connect(world, "http", "http", revision="2025-03-26")
    channel = client.post(batch(request("1", "tools/list"), request("2", "prompts/list")), takes_events=takes_events)
    first, second = world.take_sent("tools/list"), world.take_sent("prompts/list")
    world.answer(second, '{"which":"prompts"}')
    assert not world.sent[channel]
    world.answer(first, '{"which":"tools"}')
    (send,) = world.sent[channel]
    assert send.is_last
    assert send.message == b"[" + result("2", '{"which":"prompts"}') + b"," + result("1", '{"which":"tools"}') + b"]"


def test_a_batch_on_a_pipe_is_answered_with_one_array() -> None:
    world = driver()
    client = connect(world, "pipe", "http", revision="2025-03-26")
    channel = client.send(batch(request("1", "tools/list"), request("2", "ping")))
    world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    assert world.messages(channel) == [b"[" + result("2") + b"," + result("1", '{"tools":[]}') + b"]"]
    assert not world.sent[channel][0].is_last


@pytest.mark.parametrize("takes_events", [True, False])
def test_a_batch_of_notifications_and_answers_is_accepted_with_202(takes_events: bool) -> None:
    world = driver()
    client = connect(world, "http", "http", revision="2025-03-26")
    channel = client.post(batch(notification("a/b"), result("7")), takes_events=takes_events)
    assert not world.sent[channel]
    assert world.closed[channel].status == 202
    assert world.was_sent("a/b")


def test_an_id_twice_in_one_batch_is_refused_and_nothing_of_it_runs() -> None:
    world = driver()
    client = connect(world, "http", "http", revision="2025-03-26")
    channel = client.post(batch(request("1", "tools/list"), request("1", "prompts/list")))
    assert refusal(world, channel) == (400, -32600, None)
    assert not world.unread
    assert world.engine.exchange_count == 0


@pytest.mark.parametrize("count", [0, 4])
def test_a_batch_that_is_empty_or_too_long_is_refused(count: int) -> None:
    world = driver(limits=Limits(batch_max=3))
    client = connect(world, "http", "http", revision="2025-03-26")
    channel = client.send(batch(*(request(str(n), "tools/list") for n in range(count))))
    (send,) = world.sent[channel]
    assert (send.status, send.is_last) == (400, True)
    assert json.loads(send.message)["error"]["code"] == -32600
    assert not world.unread


@pytest.mark.parametrize(
    ("messages", "ids"),
    [
        ([], [None]),
        ([request(str(n), "tools/list") for n in range(4)], [0, 1, 2, 3]),
        ([request(str(n), "tools/list") for n in range(6)], [0, 1, 2, 3, 4, None]),
        ([request('"a"', "ping"), notification("x"), notification("y"), result("7")], ["a"]),
        ([notification("x")] * 4, [None]),
        ([request("1", "ping"), b"[]", notification("x"), b"5"], [1, None]),
    ],
)
def test_each_request_of_a_batch_that_is_refused_on_a_pipe_is_answered(
    messages: list[bytes], ids: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The errors end them, for a pipe has no status. Those beyond a limit have one error, without an id."""
    monkeypatch.setattr("isthmus.core.downstream.sessions.REFUSED_MAX", 5)
    world = driver(limits=Limits(batch_max=3))
    client = connect(world, "pipe", "http", revision="2025-03-26")
    client.send(batch(*messages))
    assert client.pipe is not None
    answers = world.frames(client.pipe)
    assert [(each["id"], each["error"]["code"]) for each in answers] == [(id, -32600) for id in ids]
    assert not world.unread


@pytest.mark.parametrize("down", ["http", "pipe"])
def test_a_batch_may_have_as_many_as_the_limit_says(down: str) -> None:
    world = driver(limits=Limits(batch_max=3))
    client = connect(world, down, "http", revision="2025-03-26")
    client.send(batch(*(request(str(n), "tools/list") for n in range(3))))
    assert [received.frame["method"] for received in world.unread] == ["tools/list"] * 3


@pytest.mark.parametrize("down", ["http", "pipe"])
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
def test_batches_are_refused_where_the_revision_has_none(down: str, revision: str) -> None:
    world = driver()
    client = connect(world, down, "http", revision=revision)
    channel = client.send(batch(request("1", "tools/list")))
    (send,) = world.sent[channel]
    assert json.loads(send.message)["error"]["code"] == -32600
    assert json.loads(send.message)["id"] == (1 if down == "pipe" else None)
    assert (send.status, send.is_last) == ((400, True) if down == "http" else (200, False))
    assert not world.unread


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26"])
def test_batches_are_taken_where_the_revision_has_them(revision: str) -> None:
    world = driver()
    client = connect(world, "http", "http", revision=revision)
    client.post(batch(request("1", "tools/list")))
    assert world.was_sent("tools/list")


# --- The version header -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["2023-01-01", "2099-01-01", "1.0", ""])
def test_an_unknown_version_header_is_refused_with_400(revision: str) -> None:
    world = driver()
    client = connect(world, "http", "http")
    assert refusal(world, client.post(LIST, revision=revision))[:2] == (400, -32600)
    assert not world.unread
    channel = world.engine.new_channel()
    world.open(channel, GetOpening(server="http", session=client.session, revision=revision))
    assert refusal(world, channel)[0] == 400


@pytest.mark.parametrize("revision", [None, "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_known_version_header_and_none_are_accepted(revision: str | None) -> None:
    """Any known revision is accepted: SDKs are known to send their own newest instead of the negotiated one."""
    world = driver()
    client = connect(world, "http", "http")
    client.post(LIST, revision=revision)
    assert world.was_sent("tools/list")


@pytest.mark.parametrize("negotiated", ["2026-01-15", "DRAFT-2026-v1"])
def test_the_negotiated_version_is_accepted_even_if_the_proxy_does_not_know_it(negotiated: str) -> None:
    """Client and server agreed on it; the proxy only stands between them."""
    world = driver()
    client = connect(world, "http", "http", revision=negotiated)
    client.post(LIST, revision=negotiated)
    call = world.take_sent("tools/list")
    assert call.post is not None
    assert call.post.revision == negotiated
    assert refusal(world, client.post(LIST, revision="2026-01-16"))[0] == 400


# --- Bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [b"", b"{", b"nonsense", b'{"jsonrpc":"2.0","id":1,"method":"a"}}', b"\xff", b"[1,", b"[" * 5000]
)
def test_a_body_that_is_not_json_is_refused_with_400_parse_error(body: bytes) -> None:
    world = driver()
    client = connect(world, "http", "http")
    assert refusal(world, client.post(body)) == (400, -32700, None)


@pytest.mark.parametrize(
    ("body", "id"),
    [
        (b"1", None),
        (b'"text"', None),
        (b"{}", None),
        (b'{"id":1,"method":"a"}', None),
        (b'{"jsonrpc":"1.0","id":"x","method":"a"}', None),
        (b'{"jsonrpc":"2.0","id":null,"method":"a"}', None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"a"}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"a"}', None),
        (b'{"jsonrpc":"2.0","id":{},"method":"a"}', None),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"a","params":"b"}', 1),
        (b'{"jsonrpc":"2.0","id":1}', 1),
        (b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}', None),
        (b'{"jsonrpc":"2.0","result":{}}', None),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}', None),
        (b"[1]", None),
    ],
)
def test_json_that_is_no_message_is_refused_with_400_under_its_own_id(body: bytes, id: object) -> None:
    world = driver()
    client = connect(world, "http", "http", revision="2025-03-26")
    assert refusal(world, client.post(body)) == (400, -32600, id)
    assert not world.unread


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b"nonsense", None),
        (b"{", None),
        (b'{"jsonrpc":"2.0","id":9,"method":7}', 9),
        (b'{"jsonrpc":"2.0","id":9,"method":"a","params":"\xff"}', 9),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"a"}', None),
        (b'{"jsonrpc":"2.0","id":9}', 9),
    ],
)
def test_a_broken_line_on_a_pipe_harms_nothing_and_is_answered(line: bytes, id: object) -> None:
    """The error has the id null where the line's own is not known (JSON-RPC 2.0, section 5)."""
    world = driver()
    client = connect(world, "pipe", "http")
    assert client.pipe is not None
    client.send(line)
    assert world.only_message(client.pipe)["id"] == id
    assert world.only_message(client.pipe)["error"]["code"] in (-32700, -32600)
    client.request("1", "tools/list")
    assert world.was_sent("tools/list")


@pytest.mark.parametrize("body", [notification("notifications/unheard"), result("12345"), result('"who"')])
def test_notifications_and_answers_are_accepted_with_202_and_no_body(body: bytes) -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    channel = client.post(body)
    assert world.closed[channel].status == 202
    assert not world.sent[channel]


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
def test_requests_before_initialize_are_refused_on_a_pipe_and_ping_is_not(method: str) -> None:
    world = driver()
    client = new_client(world, "pipe", "http")
    channel = client.request("1", method)
    assert world.only_message(channel)["error"]["code"] == -32600
    world.sent[channel].clear()
    client.request("2", "ping")
    assert world.messages(channel) == [result("2")]
    assert not world.dials


def test_an_id_in_use_is_refused_on_a_pipe_and_the_first_is_unaffected() -> None:
    world = driver()
    client = connect(world, "pipe", "http")
    channel = client.request("1", "tools/call", '{"n":1}')
    client.request("1.0", "tools/call", '{"n":2}')
    assert world.only_message(channel)["error"]["code"] == -32600
    world.sent[channel].clear()
    world.answer(world.take_sent("tools/call"), '{"n":1}')
    assert world.messages(channel) == [result("1", '{"n":1}')]
    assert not world.unread


def test_equal_ids_in_separate_posts_are_separate_requests() -> None:
    """Each POST is its own reply path, and clients do reuse ids."""
    world = driver()
    client = connect(world, "http", "http")
    channels = [client.request("1", "tools/call", f'{{"n":{n}}}') for n in range(3)]
    calls = [world.take_sent("tools/call") for _ in range(3)]
    for n in (1, 2, 0):
        world.answer(calls[n], f'{{"n":{n}}}')
    assert [world.messages(channel) for channel in channels] == [[result("1", f'{{"n":{n}}}')] for n in range(3)]


# --- Ids --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ["http", "pipe"])
@pytest.mark.parametrize("up", ["http", "pipe"])
@pytest.mark.parametrize(
    "id_raw",
    ["0", "-0", "1.0", "-7.000", "9" * 40, '""', '"1"', '"\\u0031"', '"a\\/b\\n"', '"\\ud800"', '"ü😀"', '" 1 "'],
)
def test_ids_are_echoed_byte_for_byte(down: str, up: str, id_raw: str) -> None:
    world = driver()
    client = connect(world, down, up)
    good = client.request(id_raw, "tools/call", "{}")
    world.answer(world.take_sent("tools/call"), '{"a":1}')
    assert world.messages(good) == [result(id_raw, '{"a":1}')]
    world.sent[good].clear()
    bad = client.request(id_raw, "tools/call", "{}")
    call = world.take_sent("tools/call")
    world.reply(call, f'{{"jsonrpc":"2.0","id":{call.id},"error":{{"code":1,"message":"m"}}}}'.encode())
    assert world.messages(bad) == [f'{{"jsonrpc":"2.0","id":{id_raw},"error":{{"code":1,"message":"m"}}}}'.encode()]


def test_upstream_ids_are_integers_of_our_own_and_never_used_twice() -> None:
    world = driver()
    client = connect(world, "http", "http")
    for id_raw in ('"x"', "1", "1", "1.0"):
        client.request(id_raw, "tools/call", "{}")
    numbers = [json.loads(d.target.message).get("id") for d in world.dials if isinstance(d.target, Post)]
    used = [number for number in numbers if number is not None]
    assert len(used) == 5
    assert len(set(used)) == 5
    assert all(type(number) is int for number in used)


def test_initialize_within_a_batch_that_names_an_unknown_session_is_refused_with_404() -> None:
    world = driver()
    client = Client(world, "http", session="f" * 32)
    assert refusal(world, client.post(batch(INITIALIZE))) == (404, -32600, None)
    assert not world.dials


def test_a_batch_is_only_for_the_session_that_it_names_and_its_revision() -> None:
    """No message of a refused batch goes up."""
    world = driver()
    client = connect(world, "http", "http", revision="2025-03-26")
    foreign = Client(world, "http", session=client.session, principal="you")
    assert refusal(world, foreign.post(batch(LIST))) == (404, -32600, None)
    assert refusal(world, new_client(world, "http", "http").post(batch(LIST))) == (400, -32600, None)
    assert refusal(world, client.post(batch(LIST), revision="2099-01-01")) == (400, -32600, None)
    assert not world.unread


@pytest.mark.parametrize(
    ("messages", "id"), [([LIST], 1), ([LIST, request("2", "tools/list")], None), ([notification("a/b")], None)]
)
def test_a_batch_for_which_there_is_no_room_is_refused_with_503(messages: list[bytes], id: object) -> None:
    """A batch of one request is refused under its id; messages that take no room at the server pass."""
    world = driver(limits=Limits(outbox_max_bytes=200, outbox_low_bytes=10, outbox_high_bytes=20))
    client = connect(world, "http", "pipe", revision="2025-03-26")
    while refused_at(world, client) is None:
        pass
    assert refusal(world, client.post(batch(*messages))) == (503, -31007, id)
    assert world.closed[client.post(batch(result("7"), notification("notifications/cancelled", "{}")))].status == 202


def refused_at(world: Driver, client: Client) -> ChannelId | None:
    """Sends a large message. Returns its channel if it was refused."""
    channel = client.post(notification("a/b", '{"x":"' + 100 * "x" + '"}'))
    return channel if world.sent[channel] else None
