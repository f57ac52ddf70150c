"""What a client with a session is told and asked: on which stream, how long it is kept, what is dropped, and when a
question is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, Driver, connect, driver, notification, request, result
from isthmus.core.base.effects import Close, Spawn
from isthmus.core.base.errors import INTERNAL_ERROR, TIMED_OUT
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Affinity
from isthmus.core.downstream.responder import LEVEL_TRIGGERED
from stateless_driving import bridge, give, modern, rise

LISTS = ["tools", "prompts", "resources"]
CHANGES = [*(f"notifications/{name}/list_changed" for name in LISTS), "notifications/resources/updated"]
UPDATED = '{"uri":"a:b"}'
ABLE = '{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true}}'


def connected(down: str = "http", limits: Limits | None = None) -> tuple[Driver, Client, ChannelId]:
    """A client without a GET stream, and where its server speaks."""
    world = driver(limits=limits)
    client = connect(world, down, "pipe", capabilities=ABLE)
    return world, client, world.last_dial(Spawn).channel


def timers(world: Driver) -> dict[str, float]:
    live = world.engine._desk.timers._live
    return {purpose: live[purpose, key][0] - world.now for purpose, key in live}


def methods(world: Driver, channel: ChannelId) -> list[str]:
    return [frame["method"] for frame in world.frames(channel)]


def log(text: str) -> bytes:
    return notification("notifications/message", json.dumps({"level": "info", "data": text}))


def failure(world: Driver) -> dict[str, Any]:
    """What the server hears of its question."""
    error = world.hear("").frame["error"]
    assert isinstance(error, dict)
    return error


# --- Kept for a client that does not listen ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*CHANGES, "notifications/message", "notifications/vendor"])
def test_of_what_is_kept_a_change_is_kept_once(method: str) -> None:
    """It says that there is something new, and once is enough. Whatever else is said is kept as often as it was."""
    assert set(CHANGES) == LEVEL_TRIGGERED
    world, client, server = connected()
    params = UPDATED if method.endswith("updated") else '{"level":"info","data":1}'
    for _ in range(3):
        world.say(server, notification(method, params))
    stream = client.listen()
    assert methods(world, stream) == [method] * (1 if method in CHANGES else 3)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_so_many_messages_are_kept(count: int) -> None:
    """The bound itself is within; then the oldest that is no change goes, and the log says which."""
    world, client, server = connected(limits=Limits(held_per_session_max=3))
    world.say(server, notification(CHANGES[0]))
    for number in range(count):
        world.say(server, log(str(number)))
    stream = client.listen()
    kept = [frame.get("params", {}).get("data") for frame in world.frames(stream)]
    assert kept == [None, *map(str, range(max(0, count - 2), count))]
    assert world.notes("warning") == ["client has no stream open: notifications/message dropped"] * max(0, count - 2)


@pytest.mark.parametrize(("sizes", "kept"), [([400, 600], 2), ([400, 601], 1), ([2000], 1), ([2000, 100], 1)])
def test_so_many_bytes_are_kept(sizes: list[int], kept: int) -> None:
    """Of all together, the bound itself within; one alone may have any size."""
    world, client, server = connected(limits=Limits(held_per_session_max_bytes=1000))
    for size in sizes:
        world.say(server, log("x" * (size - len(log("")))))
    assert len(methods(world, client.listen())) == kept


def test_where_all_are_changes_the_oldest_goes() -> None:
    world, client, server = connected(limits=Limits(held_per_session_max=2))
    for method in CHANGES[:3]:
        world.say(server, notification(method))
    assert methods(world, client.listen()) == CHANGES[1:3]


def test_a_question_that_finds_no_room_is_refused_at_once() -> None:
    """Though it is the newest: the changes before it are not dropped for it."""
    world, client, server = connected(limits=Limits(held_per_session_max=1))
    world.say(server, notification(CHANGES[0]))
    world.say(server, request('"q"', "roots/list"))
    text = "the client has no event stream open on which it could be asked"
    assert failure(world) == {"code": INTERNAL_ERROR, "message": text}
    assert methods(world, client.listen()) == [CHANGES[0]]
    assert not {"ask"} & timers(world).keys()


# --- Questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_a_client_that_does_not_answer_is_asked_in_vain_for_so_long(down: str) -> None:
    """It is told that nobody wants to know any more, and the server why."""
    world, client, server = connected(down, Limits(ask_timeout_s=90.0))
    channel = client.pipe or client.listen()
    world.say(server, request('"q"', "roots/list"))
    assert timers(world)["ask"] == 90.0
    (asked,) = world.frames(channel)
    world.wait(89.9)
    assert not world.heard
    world.wait(0.1)
    assert failure(world) == {"code": TIMED_OUT, "message": "the client did not answer within 90 s"}
    (_, withdrawn) = world.frames(channel)
    assert withdrawn["method"] == "notifications/cancelled"
    assert withdrawn["params"] == {"reason": "the client did not answer within 90 s", "requestId": asked["id"]}
    client.say(result(str(asked["id"]), '{"roots":[]}'))
    assert not world.heard


def test_a_client_that_cannot_be_asked_has_so_long_to_listen() -> None:
    world, client, server = connected(limits=Limits(held_timeout_s=20.0, ask_timeout_s=90.0))
    world.say(server, request('"q"', "roots/list"))
    assert timers(world)["ask"] == 20.0
    world.wait(19.9)
    stream = client.listen()
    assert methods(world, stream) == ["roots/list"]
    assert timers(world)["ask"] == 90.0
    world.say(server, request('"r"', "roots/list"))
    world.end(stream)
    world.wait(89.9)
    assert not world.heard


def test_one_that_never_listens_is_not_asked() -> None:
    world, client, server = connected(limits=Limits(held_timeout_s=20.0))
    world.say(server, request('"q"', "roots/list"))
    world.wait(20.0)
    text = "the client has no event stream open on which it could be asked"
    assert failure(world) == {"code": INTERNAL_ERROR, "message": text}
    assert methods(world, client.listen()) == [], "neither asked, nor told that it is not"


@pytest.mark.parametrize("down", ["pipe", "http"])
@pytest.mark.parametrize("when", ["before it was asked", "after it was asked"])
def test_a_question_that_is_withdrawn(when: str, down: str) -> None:
    """Who was asked is told, under the id that it knows; who was not hears nothing at all."""
    world, client, server = connected(down)
    channel = client.pipe or (client.listen() if when.startswith("after") else None)
    world.say(server, request('"q"', "roots/list"))
    world.say(server, notification("notifications/cancelled", '{"requestId":"q","reason":"r","x":1}'))
    if channel is None:
        assert methods(world, client.listen()) == []
    else:
        asked, withdrawn = world.frames(channel)
        assert withdrawn["params"] == {"requestId": asked["id"], "reason": "r", "x": 1}
    assert "ask" not in timers(world)
    assert not world.heard


def test_an_answer_before_the_question_was_asked_is_none() -> None:
    """A client that guesses an id answers nothing."""
    world, client, server = connected()
    world.say(server, request('"q"', "roots/list"))
    for number in range(5):
        client.say(result(str(number), '{"roots":[]}'))
    assert not world.hears("")
    (asked,) = world.frames(client.listen())
    client.say(result(str(asked["id"]), '{"roots":[]}'))
    assert world.hear("").frame == {"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}
    client.say(result(str(asked["id"]), '{"roots":[]}'))
    assert not world.hears("")


def test_a_token_of_a_question_is_the_id_that_its_client_knows() -> None:
    """Else two servers' tokens might be one."""
    world, client, server = connected("pipe")
    assert client.pipe is not None
    world.say(server, request('"q"', "roots/list", '{"_meta":{"progressToken":"theirs","x":1}}'))
    (asked,) = world.frames(client.pipe)
    assert asked["params"] == {"_meta": {"progressToken": asked["id"], "x": 1}}
    world.say(server, request('"r"', "roots/list", '{"_meta":{"x":1}}'))
    assert list(world.frames(client.pipe))[1]["params"] == {"_meta": {"x": 1}}


# --- Where it is said -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listens", [True, False])
@pytest.mark.parametrize("calls", [0, 1, 2])
@pytest.mark.parametrize("kind", ["change", "log", "question"])
def test_each_message_is_said_on_one_stream(kind: str, calls: int, listens: bool) -> None:
    """A change on the GET stream only. What else is said while one call is open is most likely about that; of several,
    nobody knows, and it is said on the GET stream, or, without one, on the latest call's."""
    world, client, server = connected()
    stream = client.listen() if listens else None
    channels = [client.request(str(number), "tools/call", '{"name":"t"}') for number in range(calls)]
    message = {"change": notification(CHANGES[0]), "log": log("x"), "question": request('"q"', "roots/list")}[kind]
    world.say(server, message)
    expected = stream
    if kind != "change" and calls and (calls == 1 or stream is None):
        expected = channels[-1]
    for channel in [*([] if stream is None else [stream]), *channels]:
        assert len(methods(world, channel)) == (channel == expected)
    if expected is None:
        assert len(methods(world, client.listen())) == 1, "it was kept"


def test_of_two_get_streams_the_newer_is_listened_to() -> None:
    """Unless it is over: then the older one."""
    world, client, server = connected()
    older, newer = client.listen(), client.listen()
    world.say(server, log("1"))
    world.end(newer)
    world.say(server, log("2"))
    assert [frame["params"]["data"] for frame in world.frames(newer)] == ["1"]
    assert [frame["params"]["data"] for frame in world.frames(older)] == ["2"]


# --- Answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
def test_with_its_answer_a_call_leaves_nothing_but_the_time_of_its_session(method: str) -> None:
    """Which begins anew with it."""
    world, client, _ = connected(limits=Limits(session_idle_ttl_s=100.0))
    channel = client.request("1", method, '{"name":"t"}' if method == "tools/call" else None)
    world.wait(1)
    world.answer(world.hear(method), '{"tools":[]}')
    assert world.said(channel)["id"] == 1
    assert timers(world)["idle"] == 100.0
    world.wait(10)
    assert channel not in world.primed, "nothing more comes there"
    assert timers(world) == {"idle": 90.0}


@pytest.mark.parametrize("answers", [[], [1], [2], [1, 2], [2, 1]])
def test_a_batch_is_answered_when_all_of_it_is(answers: list[int]) -> None:
    """In the order of the answers; a request that was cancelled has none, and of none at all there is just an end."""
    world = driver()
    client = connect(world, "http", "pipe", revision="2025-03-26")
    calls = [request(str(number), "tools/call", '{"name":"t"}') for number in (1, 2)]
    channel = client.post(b"[" + b",".join(calls) + b"]", takes_events=False)
    heard = {number: world.hear("tools/call") for number in (1, 2)}
    for number in {1, 2} - set(answers):
        client.notify("notifications/cancelled", json.dumps({"requestId": number}))
    for number in answers:
        assert not world.sent[channel]
        world.answer(heard[number], json.dumps({"n": number}))
    if answers:
        (message,) = world.messages(channel)
        said = [{"jsonrpc": "2.0", "id": number, "result": {"n": number}} for number in answers]
        assert json.loads(message) == said
    else:
        assert world.closed[channel] == Close(channel, status=202)


@pytest.mark.parametrize("is_modern", [True, False])
def test_a_server_that_says_nothing_is_given_up_and_told_so(is_modern: bool) -> None:
    """Its client hears, in the same words in either era, that the outcome is unknown."""
    limits = Limits(reply_timeout_s=12.5, session_idle_ttl_s=1000.0)
    if is_modern:
        world = bridge(limits=limits)
        modern_client = modern(world, "pipe")
        channel = modern_client.call()
        rise(world)
    else:
        world, client, _ = connected(limits=limits)
        channel = client.request("1", "tools/call", '{"name":"t"}')
    heard = world.hear("tools/call")
    world.wait(12.5)
    text = "the server said nothing for 12.5 s: given up; the request may have run"
    error = {"code": TIMED_OUT, "message": text, "data": {"outcome": "unknown"}}
    assert list(world.frames(channel))[-1] == {"jsonrpc": "2.0", "id": 1, "error": error}
    assert world.hear("notifications/cancelled").frame["params"]["requestId"] == heard.id


@pytest.mark.parametrize("ends", ["answered", "cancelled"])
def test_a_session_for_one_call_is_over_with_it(ends: str) -> None:
    world = bridge(affinity=Affinity.REQUEST)
    client = modern(world, "pipe")
    channel = client.call()
    rise(world)
    heard = world.hear("tools/call")
    assert world.engine.session_count == 1
    if ends == "answered":
        give(world, heard)
    else:
        client.cancel(channel)
    world.wait(world.engine._desk.limits.cancel_grace_s)
    assert world.engine.session_count == 0
