"""Tests of the stateless responder: which notifications clients without sessions get, on which of their requests."""

from __future__ import annotations

import json

import pytest
from driving import error, notification
from isthmus.core.base.effects import Note, Spawn
from isthmus.core.bridge import errors
from stateless_driving import K, respond, send_during, served


@pytest.mark.parametrize("method", ["vendor/notice", "notifications/progressive"])
def test_a_notification_of_no_request_is_noted_and_dropped(method: str) -> None:
    """A notification on a server's own stream belongs to no client. During a call it belongs to the caller."""
    world, client, _ = served("pipe")
    before = len(world.log)
    world.send(world.last_dial(Spawn).channel, notification(method, '{"n":1}'))
    (note,) = [effect for effect in world.log[before:] if isinstance(effect, Note)]
    assert note == Note("debug", f"{method} dropped: no request of the client is it about", "pipe")
    world, client, _ = served("http")
    channel = client.call()
    received = world.take_sent("tools/call")
    send_during(world, received, notification(method, '{"n":1}'))
    assert [frame["method"] for frame in client.notifications(channel)] == [method]


@pytest.mark.parametrize("method", ["tools", "prompts", "resources"])
def test_a_change_of_a_list_goes_to_subscriptions_alone(method: str) -> None:
    """No call gets it, though it came during one."""
    world, client, _ = served("http")
    call = client.call()
    received = world.take_sent("tools/call")
    listen = client.request("subscriptions/listen", notifications={f"{method}ListChanged": True})
    send_during(world, received, notification(f"notifications/{method}/list_changed"))
    assert client.notifications(call) == []
    assert [frame["method"] for frame in client.notifications(listen)][1:] == [f"notifications/{method}/list_changed"]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("notifications/message", '{"level":"info","level":"error","data":1}'),
        ("notifications/elicitation/complete", '{"elicitationId":"a","elicitationId":"b"}'),
        ("notifications/resources/updated", '{"uri":"a:b","uri":"a:c"}'),
    ],
)
def test_an_unreadable_notification_is_noted_and_dropped(method: str, params: str) -> None:
    world, client, _ = served("http")
    listen = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:b"]})
    world.answer(world.take_sent("resources/subscribe"))
    call = client.call(level="debug")
    if world.was_sent("logging/setLevel"):
        world.answer(world.take_sent("logging/setLevel"))
    received = world.take_sent("tools/call")
    before, count = len(world.log), len(client.notifications(listen))
    send_during(world, received, notification(method, params))
    texts = [effect.text for effect in world.log[before:] if isinstance(effect, Note) and effect.level == "warning"]
    assert len(texts) == 1
    assert texts[0].startswith(f"server sent a broken {method}: ")
    assert client.notifications(call) == []
    assert len(client.notifications(listen)) == count


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_log_message_goes_to_calls_that_want_its_level(up: str) -> None:
    """A message during a call goes to that call. A message beside all calls goes to each call of the server that wants
    its level."""
    world, client, stream = served(up)
    channels, calls = [], []
    for level in ("debug", "error", None):
        channels.append(client.call(level=level))
        if world.was_sent("logging/setLevel"):
            world.answer(world.take_sent("logging/setLevel"))
        calls.append(world.take_sent("tools/call"))
    where = world.last_dial(Spawn).channel if stream is None else stream
    world.send(where, notification("notifications/message", '{"level":"warning","data":"w"}'))
    world.send(where, notification("notifications/message", '{"level":"critical","data":"c"}'))
    texts = [[frame["params"]["data"] for frame in client.notifications(channel)] for channel in channels]
    assert texts == [["w", "c"], ["c"], []]
    if up == "http":
        send_during(world, calls[1], notification("notifications/message", '{"level":"emergency","data":"e"}'))
        assert len(client.notifications(channels[0])) == 2
        assert [frame["params"]["data"] for frame in client.notifications(channels[1])] == ["c", "e"]


def test_an_unreadable_answer_becomes_an_error() -> None:
    world, client, _ = served("pipe")
    channel = client.request("resources/read", uri="a:b")
    respond(world, world.take_sent("resources/read"), '{"contents":[],"_meta":{"a":1},"_meta":{}}')
    refused = client.answered(channel)["error"]
    assert refused["code"] == -32603
    assert "could not be read" in refused["message"]


def test_a_result_names_its_server() -> None:
    """The result has the `serverInfo` of the server's handshake."""
    world, client, _ = served("pipe")
    channel = client.call()
    respond(world, world.take_sent("tools/call"), '{"content":[]}')
    result = client.answered(channel)["result"]
    assert result["_meta"][K + "serverInfo"] == {"name": "s", "version": "1"}
    assert result["resultType"] == "complete"
    assert json.dumps(result["content"]) == "[]"


@pytest.mark.parametrize("code", [-32700, -32600, -32601, -32602, -32603, -32002, -32050])
@pytest.mark.parametrize("down", ["http", "pipe"])
def test_an_error_has_the_status_of_its_kind(code: int, down: str) -> None:
    """Only HTTP has a status."""
    world, client, _ = served("pipe", down)
    channel = client.call()
    received = world.take_sent("tools/call")
    world.reply(received, error(str(received.id), json.dumps({"code": code, "message": "no"})))
    answered = client.answered(channel)["error"]
    status = errors.http_status(json.dumps(answered).encode()) if down == "http" else 200
    assert world.sent[channel][-1].status == status
    assert answered["message"] == "no"


def test_a_queued_call_gets_no_log_messages() -> None:
    """A call that has not been sent yet gets no log message, because none can be about it."""
    world, client, _ = served("pipe")
    waiting = client.call(level="info")
    assert world.was_sent("logging/setLevel")
    running = client.request("prompts/list")
    world.send(world.last_dial(Spawn).channel, notification("notifications/message", '{"level":"error","data":"e"}'))
    assert client.notifications(waiting) == []
    assert client.notifications(running) == [], "it wants no log"
    world.answer(world.take_sent("logging/setLevel"))
    both = client.call(level="info")
    late = client.call(level="emergency")
    for _ in range(2):
        if world.was_sent("logging/setLevel"):
            world.answer(world.take_sent("logging/setLevel"))
    world.send(world.last_dial(Spawn).channel, notification("notifications/message", '{"level":"error","data":"e"}'))
    assert [len(client.notifications(channel)) for channel in (waiting, both, late)] == [1, 1, 0]
