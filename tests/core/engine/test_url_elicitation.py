"""Tests of URL elicitation: pages that a server requires before it answers, by session, until they are complete."""

from __future__ import annotations

import pytest
from driving import GONE, Driver
from isthmus.core.base.effects import Note, Spawn
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from stateless_driving import ABLE, ACCEPT, Modern, assert_idle, modern, respond, served, start_legacy_server
from url_pages import agreed, done, refuse


def test_each_page_is_a_question() -> None:
    world, client, _ = served()
    channel = client.request("tools/call", name="t")
    refuse(world, world.take_sent("tools/call"), "a", "b")
    answer = client.answered(channel, client.last_id)["result"]
    entries = answer["inputRequests"]
    assert list(entries) == ["r1", "r2"]
    assert [entry["method"] for entry in entries.values()] == ["elicitation/create"] * 2
    assert [entry["params"]["url"] for entry in entries.values()] == ["http://h/a", "http://h/b"]
    one = {"r1": ACCEPT, "r2": {"action": "decline"}}
    channel = client.request("tools/call", name="t", requestState=answer["requestState"], inputResponses=one)
    assert "declined" in client.answered(channel, client.last_id)["result"]["content"][0]["text"]


def test_a_client_without_url_elicitation_gets_the_missing_capability() -> None:
    world, client, _ = served()
    channel = client.request("tools/call", name="t", capabilities={"elicitation": {"form": {}}})
    if not world.was_sent("tools/call"):
        start_legacy_server(world)
    refuse(world, world.take_sent("tools/call"), "a")
    answer = client.answered(channel, client.last_id)["error"]
    assert answer["code"] == -32021
    assert answer["data"] == {"requiredCapabilities": {"elicitation": {"url": {}}}}


def test_a_call_is_sent_again_when_every_page_is_complete() -> None:
    world, client, _ = served()
    channel, child = agreed(world, client, "a", "b")
    for name in ("x", "a", "a"):
        done(world, child, name)
        assert not world.was_sent("tools/call")
    done(world, child, "b")
    respond(world, world.take_sent("tools/call"))
    assert "result" in client.answered(channel, client.last_id)
    before = len(world.log)
    world.wait(Limits().url_elicitation_wait_s + 1)
    assert not [effect for effect in world.log[before:] if not isinstance(effect, Note)]
    assert_idle(world)


def test_a_third_refusal_is_a_new_question() -> None:
    """The proxy waits only once."""
    world, client, _ = served()
    channel, child = agreed(world, client, "a")
    done(world, child, "a")
    refuse(world, world.take_sent("tools/call"), "a")
    assert client.answered(channel, client.last_id)["result"]["resultType"] == "input_required"


def test_other_pages_are_new_questions() -> None:
    world, client, _ = served()
    channel = client.request("tools/call", name="t")
    refuse(world, world.take_sent("tools/call"), "a")
    answer = client.answered(channel, client.last_id)["result"]
    answers = {"r1": ACCEPT}
    channel = client.request("tools/call", name="t", requestState=answer["requestState"], inputResponses=answers)
    refuse(world, world.take_sent("tools/call"), "a", "b")
    answer = client.answered(channel, client.last_id)["result"]
    assert len(answer["inputRequests"]) == 2


def two_waiting() -> tuple[Driver, list[tuple[Modern, ChannelId, ChannelId]]]:
    """Returns two clients, each with its own process, that wait for the same page."""
    world, ann, _ = served()
    bob = modern(world, "pipe", principal="bob", capabilities=ABLE)
    found = [(ann, *agreed(world, ann, "a"))]
    channel = bob.request("server/discover")
    if not world.messages(channel):
        start_legacy_server(world)
    world.sent[channel].clear()
    found.append((bob, *agreed(world, bob, "a")))
    assert found[0][2] != found[1][2]
    return world, found


def test_a_completion_belongs_to_its_session() -> None:
    """A completion in another session changes nothing."""
    world, parties = two_waiting()
    for client, channel, child in reversed(parties):
        done(world, child, "a")
        received = world.take_sent("tools/call")
        assert received.channel == child
        assert not world.was_sent("tools/call")
        respond(world, received)
        assert "result" in client.answered(channel, client.last_id)


def test_the_end_of_one_session_does_not_end_other_waits() -> None:
    world, parties = two_waiting()
    (_, gone, _), (client, channel, child) = parties
    world.end(gone, GONE)
    assert not world.was_sent("tools/call")
    done(world, child, "a")
    respond(world, world.take_sent("tools/call"))
    assert "result" in client.answered(channel, client.last_id)
    world.wait(Limits().url_elicitation_wait_s + 1)
    assert not world.was_sent("tools/call")


@pytest.mark.parametrize("is_pipe", [False, True])
def test_a_cancelled_call_waits_for_no_page(is_pipe: bool) -> None:
    world, client, _ = served(down="pipe" if is_pipe else "http")
    channel, _ = agreed(world, client, "a")
    client.cancel(channel, str(client.last_id))
    world.wait(Limits().url_elicitation_wait_s + 1)
    assert not world.was_sent("tools/call")
    assert_idle(world)
    assert world.last_dial(Spawn).channel not in world.closed
