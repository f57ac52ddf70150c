"""Pages that a server wants visited before it answers: whose they are, when they are done, and what is asked again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import GONE, Driver, Heard, error, notification
from isthmus.core.base.effects import Note, Spawn
from isthmus.core.base.ids import ChannelId
from stateless_driving import ABLE, ACCEPT, Modern, assert_idle, give, modern, rise, served

COMPLETE = "notifications/elicitation/complete"


def page(name: str) -> dict[str, Any]:
    return {"mode": "url", "elicitationId": name, "url": f"http://h/{name}", "message": "m"}


def refuse(world: Driver, heard: Heard, *names: str) -> None:
    data = {"elicitations": [page(name) for name in names]}
    world.reply(heard, error(str(heard.id), json.dumps({"code": -32042, "message": "visit", "data": data})))


def agreed(world: Driver, client: Modern, *names: str, tool: str = "t") -> tuple[ChannelId, ChannelId]:
    """A call whose client has agreed to visit pages, which the server wants visited all the same. Returns where the
    answer is to come, and the server."""
    channel = client.request("tools/call", name=tool)
    refuse(world, world.hear("tools/call"), *names)
    said = client.answered(channel, client.last_id)["result"]
    assert said["resultType"] == "input_required"
    answers = dict.fromkeys(said["inputRequests"], ACCEPT)
    channel = client.request("tools/call", name=tool, requestState=said["requestState"], inputResponses=answers)
    heard = world.hear("tools/call")
    refuse(world, heard, *names)
    return channel, heard.channel


def done(world: Driver, child: ChannelId, name: str) -> None:
    world.say(child, notification(COMPLETE, json.dumps({"elicitationId": name})))


def test_each_page_is_asked_for_by_itself() -> None:
    world, client, _ = served()
    channel = client.request("tools/call", name="t")
    refuse(world, world.hear("tools/call"), "a", "b")
    said = client.answered(channel, client.last_id)["result"]
    entries = said["inputRequests"]
    assert list(entries) == ["r1", "r2"]
    assert [entry["method"] for entry in entries.values()] == ["elicitation/create"] * 2
    assert [entry["params"]["url"] for entry in entries.values()] == ["http://h/a", "http://h/b"]
    one = {"r1": ACCEPT, "r2": {"action": "decline"}}
    channel = client.request("tools/call", name="t", requestState=said["requestState"], inputResponses=one)
    assert "declined" in client.answered(channel, client.last_id)["result"]["content"][0]["text"]


def test_a_client_that_cannot_visit_is_told_what_it_lacks() -> None:
    world, client, _ = served()
    channel = client.request("tools/call", name="t", capabilities={"elicitation": {"form": {}}})
    if not world.hears("tools/call"):
        rise(world)
    refuse(world, world.hear("tools/call"), "a")
    said = client.answered(channel, client.last_id)["error"]
    assert said["code"] == -32021
    assert said["data"] == {"requiredCapabilities": {"elicitation": {"url": {}}}}


def test_a_call_goes_up_when_every_page_was_visited() -> None:
    world, client, _ = served()
    channel, child = agreed(world, client, "a", "b")
    for name in ("x", "a", "a"):
        done(world, child, name)
        assert not world.hears("tools/call")
    done(world, child, "b")
    give(world, world.hear("tools/call"))
    assert "result" in client.answered(channel, client.last_id)
    before = len(world.log)
    world.wait(world.engine._desk.limits.visit_wait_s + 1)
    assert not [effect for effect in world.log[before:] if not isinstance(effect, Note)]
    assert_idle(world)


def test_a_third_refusal_is_asked_of_the_client_again() -> None:
    """It is waited for once only."""
    world, client, _ = served()
    channel, child = agreed(world, client, "a")
    done(world, child, "a")
    refuse(world, world.hear("tools/call"), "a")
    assert client.answered(channel, client.last_id)["result"]["resultType"] == "input_required"


def test_other_pages_are_asked_of_the_client_too() -> None:
    world, client, _ = served()
    channel = client.request("tools/call", name="t")
    refuse(world, world.hear("tools/call"), "a")
    said = client.answered(channel, client.last_id)["result"]
    answers = {"r1": ACCEPT}
    channel = client.request("tools/call", name="t", requestState=said["requestState"], inputResponses=answers)
    refuse(world, world.hear("tools/call"), "a", "b")
    said = client.answered(channel, client.last_id)["result"]
    assert len(said["inputRequests"]) == 2


def both() -> tuple[Driver, list[tuple[Modern, ChannelId, ChannelId]]]:
    """Two clients, each with a process of its own, that wait for the same page."""
    world, ann, _ = served()
    bob = modern(world, "pipe", principal="bob", capabilities=ABLE)
    found = [(ann, *agreed(world, ann, "a"))]
    channel = bob.request("server/discover")
    if not world.messages(channel):
        rise(world)
    world.sent[channel].clear()
    found.append((bob, *agreed(world, bob, "a")))
    assert found[0][2] != found[1][2]
    return world, found


def test_a_visit_is_one_of_its_own_session() -> None:
    """Another's server says nothing about it."""
    world, parties = both()
    for client, channel, child in reversed(parties):
        done(world, child, "a")
        heard = world.hear("tools/call")
        assert heard.channel == child
        assert not world.hears("tools/call")
        give(world, heard)
        assert "result" in client.answered(channel, client.last_id)


def test_the_end_of_one_session_ends_nobody_elses_wait() -> None:
    world, parties = both()
    (_, gone, _), (client, channel, child) = parties
    world.end(gone, GONE)
    assert not world.hears("tools/call")
    done(world, child, "a")
    give(world, world.hear("tools/call"))
    assert "result" in client.answered(channel, client.last_id)
    world.wait(world.engine._desk.limits.visit_wait_s + 1)
    assert not world.hears("tools/call")


@pytest.mark.parametrize("is_pipe", [False, True])
def test_who_gives_up_is_not_waited_for(is_pipe: bool) -> None:
    world, client, _ = served(down="pipe" if is_pipe else "http")
    channel, _ = agreed(world, client, "a")
    client.cancel(channel, str(client.last_id))
    world.wait(world.engine._desk.limits.visit_wait_s + 1)
    assert not world.hears("tools/call")
    assert_idle(world)
    assert world.last_dial(Spawn).channel not in world.closed
