"""What clients without sessions are told of, and on which of their requests."""

from __future__ import annotations

import json

import pytest
from driving import error, notification
from isthmus.core.base.effects import Note, Spawn
from isthmus.core.bridge import errors
from stateless_driving import K, give, served, speak


@pytest.mark.parametrize("method", ["vendor/notice", "notifications/progressive"])
def test_what_belongs_to_no_request_is_noted_and_dropped(method: str) -> None:
    """On a server's own stream nobody is meant; in the course of a call its client is."""
    world, client, _ = served("pipe")
    before = len(world.log)
    world.say(world.last_dial(Spawn).channel, notification(method, '{"n":1}'))
    (note,) = [effect for effect in world.log[before:] if isinstance(effect, Note)]
    assert note == Note("debug", f"{method} dropped: no request of the client is it about", "pipe")
    world, client, _ = served("http")
    channel = client.call()
    heard = world.hear("tools/call")
    speak(world, heard, notification(method, '{"n":1}'))
    assert [frame["method"] for frame in client.told(channel)] == [method]


@pytest.mark.parametrize("method", ["tools", "prompts", "resources"])
def test_a_change_of_a_list_is_told_to_subscriptions_alone(method: str) -> None:
    """And to no call, though it came in the course of one."""
    world, client, _ = served("http")
    call = client.call()
    heard = world.hear("tools/call")
    listen = client.request("subscriptions/listen", notifications={f"{method}ListChanged": True})
    speak(world, heard, notification(f"notifications/{method}/list_changed"))
    assert client.told(call) == []
    assert [frame["method"] for frame in client.told(listen)][1:] == [f"notifications/{method}/list_changed"]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("notifications/message", '{"level":"info","level":"error","data":1}'),
        ("notifications/elicitation/complete", '{"elicitationId":"a","elicitationId":"b"}'),
        ("notifications/resources/updated", '{"uri":"a:b","uri":"a:c"}'),
    ],
)
def test_what_cannot_be_read_is_noted_and_told_to_nobody(method: str, params: str) -> None:
    world, client, _ = served("http")
    listen = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:b"]})
    world.answer(world.hear("resources/subscribe"))
    call = client.call(level="debug")
    if world.hears("logging/setLevel"):
        world.answer(world.hear("logging/setLevel"))
    heard = world.hear("tools/call")
    before, told = len(world.log), len(client.told(listen))
    speak(world, heard, notification(method, params))
    texts = [effect.text for effect in world.log[before:] if isinstance(effect, Note) and effect.level == "warning"]
    assert len(texts) == 1
    assert texts[0].startswith(f"server sent a broken {method}: ")
    assert client.told(call) == []
    assert len(client.told(listen)) == told


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_log_message_goes_to_those_that_want_so_much_of_it(up: str) -> None:
    """To the call it came in the course of; one that came beside them to each that its server has."""
    world, client, stream = served(up)
    channels, calls = [], []
    for level in ("debug", "error", None):
        channels.append(client.call(level=level))
        if world.hears("logging/setLevel"):
            world.answer(world.hear("logging/setLevel"))
        calls.append(world.hear("tools/call"))
    where = world.last_dial(Spawn).channel if stream is None else stream
    world.say(where, notification("notifications/message", '{"level":"warning","data":"w"}'))
    world.say(where, notification("notifications/message", '{"level":"critical","data":"c"}'))
    told = [[frame["params"]["data"] for frame in client.told(channel)] for channel in channels]
    assert told == [["w", "c"], ["c"], []]
    if up == "http":
        speak(world, calls[1], notification("notifications/message", '{"level":"emergency","data":"e"}'))
        assert len(client.told(channels[0])) == 2
        assert [frame["params"]["data"] for frame in client.told(channels[1])] == ["c", "e"]


def test_an_answer_that_cannot_be_read_is_refused_in_its_place() -> None:
    world, client, _ = served("pipe")
    channel = client.request("resources/read", uri="a:b")
    give(world, world.hear("resources/read"), '{"contents":[],"_meta":{"a":1},"_meta":{}}')
    said = client.answered(channel)["error"]
    assert said["code"] == -32603
    assert "could not be read" in said["message"]


def test_an_answer_says_whose_it_is() -> None:
    """As its server named itself when it was greeted."""
    world, client, _ = served("pipe")
    channel = client.call()
    give(world, world.hear("tools/call"), '{"content":[]}')
    result = client.answered(channel)["result"]
    assert result["_meta"][K + "serverInfo"] == {"name": "s", "version": "1"}
    assert result["resultType"] == "complete"
    assert json.dumps(result["content"]) == "[]"


@pytest.mark.parametrize("code", [-32700, -32600, -32601, -32602, -32603, -32002, -32050])
@pytest.mark.parametrize("down", ["http", "pipe"])
def test_an_error_has_the_status_of_its_kind(code: int, down: str) -> None:
    """Over HTTP; on a pipe there is none."""
    world, client, _ = served("pipe", down)
    channel = client.call()
    heard = world.hear("tools/call")
    world.reply(heard, error(str(heard.id), json.dumps({"code": code, "message": "no"})))
    said = client.answered(channel)["error"]
    status = errors.http_status(json.dumps(said).encode()) if down == "http" else 200
    assert world.sent[channel][-1].status == status
    assert said["message"] == "no"


def test_a_call_that_waits_hides_the_log_from_none_that_runs() -> None:
    """It has not been sent, so that nothing the server says is about it."""
    world, client, _ = served("pipe")
    waiting = client.call(level="info")
    assert world.hears("logging/setLevel")
    running = client.request("prompts/list")
    world.say(world.last_dial(Spawn).channel, notification("notifications/message", '{"level":"error","data":"e"}'))
    assert client.told(waiting) == []
    assert client.told(running) == [], "it wants no log"
    world.answer(world.hear("logging/setLevel"))
    both = client.call(level="info")
    late = client.call(level="emergency")
    for _ in range(2):
        if world.hears("logging/setLevel"):
            world.answer(world.hear("logging/setLevel"))
    world.say(world.last_dial(Spawn).channel, notification("notifications/message", '{"level":"error","data":"e"}'))
    assert [len(client.told(channel)) for channel in (waiting, both, late)] == [1, 1, 0]
