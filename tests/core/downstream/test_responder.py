"""Tests of the responder: on which stream a client with a session gets a message, how long messages are kept for it,
which are dropped, and when a question is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, Driver, connect, driver, notification, request, result
from isthmus.core.base.effects import Close, Spawn
from isthmus.core.base.errors import INTERNAL_ERROR, TIMED_OUT
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.methods import CHANGE_NOTIFICATIONS
from isthmus.core.base.plan import Affinity
from stateless_driving import bridge, modern, respond, start_legacy_server, tables

LISTS = ["tools", "prompts", "resources"]
CHANGES = [*(f"notifications/{name}/list_changed" for name in LISTS), "notifications/resources/updated"]
UPDATED = '{"uri":"a:b"}'
ABLE = '{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true}}'


def connected(down: str = "http", limits: Limits | None = None) -> tuple[Driver, Client, ChannelId]:
    """Returns a client without a GET stream, and the channel of its server."""
    world = driver(limits=limits)
    client = connect(world, down, "pipe", capabilities=ABLE)
    return world, client, world.last_dial(Spawn).channel


def timers(world: Driver) -> dict[str, float]:
    live = tables(world.engine)["timers"]
    return {purpose: live[purpose, key][0] - world.now for purpose, key in live}


def methods(world: Driver, channel: ChannelId) -> list[str]:
    return [frame["method"] for frame in world.frames(channel)]


def log(text: str) -> bytes:
    return notification("notifications/message", json.dumps({"level": "info", "data": text}))


def failure(world: Driver) -> dict[str, Any]:
    """The error that the server gets for its question."""
    error = world.take_sent("").frame["error"]
    assert isinstance(error, dict)
    return error


# --- Kept for a client that does not listen ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*CHANGES, "notifications/message", "notifications/vendor"])
def test_a_kept_change_notification_is_kept_once(method: str) -> None:
    """A change notification only says that there is something new, so repeated ones are kept once. Every other
    notification is kept as often as it came."""
    assert set(CHANGES) == CHANGE_NOTIFICATIONS
    world, client, server = connected()
    params = UPDATED if method.endswith("updated") else '{"level":"info","data":1}'
    for _ in range(3):
        world.send(server, notification(method, params))
    stream = client.listen()
    assert methods(world, stream) == [method] * (1 if method in CHANGES else 3)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_no_more_messages_are_kept_than_the_limit(count: int) -> None:
    """The bound itself is within. Beyond it the oldest message that is no change goes, and the log names it."""
    world, client, server = connected(limits=Limits(held_per_session_max=3))
    world.send(server, notification(CHANGES[0]))
    for number in range(count):
        world.send(server, log(str(number)))
    stream = client.listen()
    kept = [frame.get("params", {}).get("data") for frame in world.frames(stream)]
    assert kept == [None, *map(str, range(max(0, count - 2), count))]
    assert world.notes("warning") == ["client has no stream open: notifications/message dropped"] * max(0, count - 2)


@pytest.mark.parametrize(("sizes", "kept"), [([400, 600], 2), ([400, 601], 1), ([2000], 1), ([2000, 100], 1)])
def test_no_more_bytes_are_kept_than_the_limit(sizes: list[int], kept: int) -> None:
    """The bound itself is within, over all kept messages together. A single message may have any size."""
    world, client, server = connected(limits=Limits(held_per_session_max_bytes=1000))
    for size in sizes:
        world.send(server, log("x" * (size - len(log("")))))
    assert len(methods(world, client.listen())) == kept


def test_if_all_kept_messages_are_changes_the_oldest_is_dropped() -> None:
    world, client, server = connected(limits=Limits(held_per_session_max=2))
    for method in CHANGES[:3]:
        world.send(server, notification(method))
    assert methods(world, client.listen()) == CHANGES[1:3]


def test_a_question_that_finds_no_room_is_refused_at_once() -> None:
    """Changes that were kept earlier are not dropped for a question, though it is the newest."""
    world, client, server = connected(limits=Limits(held_per_session_max=1))
    world.send(server, notification(CHANGES[0]))
    world.send(server, request('"q"', "roots/list"))
    text = "the client has no event stream open on which it could be asked"
    assert failure(world) == {"code": INTERNAL_ERROR, "message": text}
    assert methods(world, client.listen()) == [CHANGES[0]]
    assert not {"ask"} & timers(world).keys()


# --- Questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_a_question_that_the_client_does_not_answer_times_out(down: str) -> None:
    """After the timeout the client gets a cancellation, and the server an error with the reason."""
    world, client, server = connected(down, Limits(question_timeout_s=90.0))
    channel = client.pipe or client.listen()
    world.send(server, request('"q"', "roots/list"))
    assert timers(world)["ask"] == 90.0
    (asked,) = world.frames(channel)
    world.wait(89.9)
    assert not world.unread
    world.wait(0.1)
    assert failure(world) == {"code": TIMED_OUT, "message": "the client did not answer within 90 s"}
    (_, withdrawn) = world.frames(channel)
    assert withdrawn["method"] == "notifications/cancelled"
    assert withdrawn["params"] == {"reason": "the client did not answer within 90 s", "requestId": asked["id"]}
    client.send(result(str(asked["id"]), '{"roots":[]}'))
    assert not world.unread


def test_a_client_without_a_stream_has_so_long_to_open_one() -> None:
    world, client, server = connected(limits=Limits(held_timeout_s=20.0, question_timeout_s=90.0))
    world.send(server, request('"q"', "roots/list"))
    assert timers(world)["ask"] == 20.0
    world.wait(19.9)
    stream = client.listen()
    assert methods(world, stream) == ["roots/list"]
    assert timers(world)["ask"] == 90.0
    world.send(server, request('"r"', "roots/list"))
    world.end(stream)
    world.wait(89.9)
    assert not world.unread


def test_a_client_that_never_opens_a_stream_is_not_asked() -> None:
    world, client, server = connected(limits=Limits(held_timeout_s=20.0))
    world.send(server, request('"q"', "roots/list"))
    world.wait(20.0)
    text = "the client has no event stream open on which it could be asked"
    assert failure(world) == {"code": INTERNAL_ERROR, "message": text}
    assert methods(world, client.listen()) == [], "neither asked, nor told that it is not"


@pytest.mark.parametrize("down", ["pipe", "http"])
@pytest.mark.parametrize("when", ["before it was asked", "after it was asked"])
def test_a_question_that_is_withdrawn(when: str, down: str) -> None:
    """A client that was asked gets the cancellation, under the id that it knows. A client that was not asked yet gets
    nothing."""
    world, client, server = connected(down)
    channel = client.pipe or (client.listen() if when.startswith("after") else None)
    world.send(server, request('"q"', "roots/list"))
    world.send(server, notification("notifications/cancelled", '{"requestId":"q","reason":"r","x":1}'))
    if channel is None:
        assert methods(world, client.listen()) == []
    else:
        asked, withdrawn = world.frames(channel)
        assert withdrawn["params"] == {"requestId": asked["id"], "reason": "r", "x": 1}
    assert "ask" not in timers(world)
    assert not world.unread


def test_an_answer_before_the_question_was_asked_is_ignored() -> None:
    """A client that guesses the id of a question that it has not received answers nothing."""
    world, client, server = connected()
    world.send(server, request('"q"', "roots/list"))
    for number in range(5):
        client.send(result(str(number), '{"roots":[]}'))
    assert not world.was_sent("")
    (asked,) = world.frames(client.listen())
    client.send(result(str(asked["id"]), '{"roots":[]}'))
    assert world.take_sent("").frame == {"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}
    client.send(result(str(asked["id"]), '{"roots":[]}'))
    assert not world.was_sent("")


def test_a_token_of_a_question_is_the_id_that_its_client_knows() -> None:
    """The progress token of a question is replaced, because those of two servers might be equal."""
    world, client, server = connected("pipe")
    assert client.pipe is not None
    world.send(server, request('"q"', "roots/list", '{"_meta":{"progressToken":"theirs","x":1}}'))
    (asked,) = world.frames(client.pipe)
    assert asked["params"] == {"_meta": {"progressToken": asked["id"], "x": 1}}
    world.send(server, request('"r"', "roots/list", '{"_meta":{"x":1}}'))
    assert list(world.frames(client.pipe))[1]["params"] == {"_meta": {"x": 1}}


# --- The stream of each message ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("listens", [True, False])
@pytest.mark.parametrize("calls", [0, 1, 2])
@pytest.mark.parametrize("kind", ["change", "log", "question"])
def test_each_message_is_sent_on_one_stream(kind: str, calls: int, listens: bool) -> None:
    """A change is sent on the GET stream only. Every other message goes to the only open call, if there is one; with
    several calls it goes to the GET stream, or, without one, to the latest call."""
    world, client, server = connected()
    stream = client.listen() if listens else None
    channels = [client.request(str(number), "tools/call", '{"name":"t"}') for number in range(calls)]
    message = {"change": notification(CHANGES[0]), "log": log("x"), "question": request('"q"', "roots/list")}[kind]
    world.send(server, message)
    expected = stream
    if kind != "change" and calls and (calls == 1 or stream is None):
        expected = channels[-1]
    for channel in [*([] if stream is None else [stream]), *channels]:
        assert len(methods(world, channel)) == (channel == expected)
    if expected is None:
        assert len(methods(world, client.listen())) == 1, "it was kept"


def test_of_two_get_streams_the_newer_is_used() -> None:
    """The older one takes over when the newer one is over."""
    world, client, server = connected()
    older, newer = client.listen(), client.listen()
    world.send(server, log("1"))
    world.end(newer)
    world.send(server, log("2"))
    assert [frame["params"]["data"] for frame in world.frames(newer)] == ["1"]
    assert [frame["params"]["data"] for frame in world.frames(older)] == ["2"]


# --- Answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
def test_after_its_answer_a_call_leaves_only_the_idle_timer(method: str) -> None:
    """The only timer after the answer is the idle time of the session, which begins anew with it."""
    world, client, _ = connected(limits=Limits(session_idle_ttl_s=100.0))
    channel = client.request("1", method, '{"name":"t"}' if method == "tools/call" else None)
    world.wait(1)
    world.answer(world.take_sent(method), '{"tools":[]}')
    assert world.only_message(channel)["id"] == 1
    assert timers(world)["idle"] == 100.0
    world.wait(10)
    assert channel not in world.primed, "nothing more comes there"
    assert timers(world) == {"idle": 90.0}


@pytest.mark.parametrize("answers", [[], [1], [2], [1, 2], [2, 1]])
def test_a_batch_is_answered_when_all_of_it_is(answers: list[int]) -> None:
    """The responses come in the order in which they were made. A cancelled request has none. A client that accepts only
    JSON gets an error in place of a batch without any response."""
    world = driver()
    client = connect(world, "http", "pipe", revision="2025-03-26")
    calls = [request(str(number), "tools/call", '{"name":"t"}') for number in (1, 2)]
    channel = client.post(b"[" + b",".join(calls) + b"]", takes_events=False)
    received = {number: world.take_sent("tools/call") for number in (1, 2)}
    for number in {1, 2} - set(answers):
        client.notify("notifications/cancelled", json.dumps({"requestId": number}))
    for number in answers:
        assert not world.sent[channel]
        world.answer(received[number], json.dumps({"n": number}))
    if answers:
        (message,) = world.messages(channel)
        expected = [{"jsonrpc": "2.0", "id": number, "result": {"n": number}} for number in answers]
        assert json.loads(message) == expected
    else:
        (message,) = world.messages(channel)
        assert [(each["id"], each["error"]["code"]) for each in json.loads(message)] == [(2, -32800)]


@pytest.mark.parametrize("takes_events", [True, False])
@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_cancelled_request_is_not_answered_202(revision: str, takes_events: bool) -> None:
    """A 202 is for bodies without requests. The reply is an event stream that ends, or an error for a client of JSON
    only."""
    world = driver()
    client = connect(world, "http", "pipe", revision=revision)
    channel = client.post(request("1", "tools/call", '{"name":"t"}'), takes_events=takes_events)
    world.take_sent("tools/call")
    client.notify("notifications/cancelled", '{"requestId":1}')
    if takes_events:
        assert world.closed[channel] == Close(channel, status=200)
        assert not world.sent[channel]
    else:
        assert world.only_message(channel)["error"]["code"] == -32800


@pytest.mark.parametrize("is_modern", [True, False])
def test_a_call_that_its_server_does_not_answer_is_given_up_and_cancelled(is_modern: bool) -> None:
    """The client gets the same error in either era, which says that the outcome is unknown."""
    limits = Limits(reply_timeout_s=12.5, session_idle_ttl_s=1000.0)
    if is_modern:
        world = bridge(limits=limits)
        modern_client = modern(world, "pipe")
        channel = modern_client.call()
        start_legacy_server(world)
    else:
        world, client, _ = connected(limits=limits)
        channel = client.request("1", "tools/call", '{"name":"t"}')
    received = world.take_sent("tools/call")
    world.wait(12.5)
    text = "the server said nothing for 12.5 s: given up; the request may have run"
    error = {"code": TIMED_OUT, "message": text, "data": {"outcome": "unknown"}}
    assert list(world.frames(channel))[-1] == {"jsonrpc": "2.0", "id": 1, "error": error}
    assert world.take_sent("notifications/cancelled").frame["params"]["requestId"] == received.id


@pytest.mark.parametrize("ends", ["answered", "cancelled"])
def test_a_session_for_one_call_ends_with_the_call(ends: str) -> None:
    world = bridge(affinity=Affinity.REQUEST)
    client = modern(world, "pipe")
    channel = client.call()
    start_legacy_server(world)
    received = world.take_sent("tools/call")
    assert world.engine.session_count == 1
    if ends == "answered":
        respond(world, received)
    else:
        client.cancel(channel)
    world.wait(Limits().unclaimed_session_ttl_s if ends == "answered" else Limits().cancel_grace_s)
    assert world.engine.session_count == 0
