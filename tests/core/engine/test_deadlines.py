"""Tests of deadlines: what happens when one of each kind is due, without any input."""

from __future__ import annotations

import json

import pytest
from driving import DONE, connect, driver, error, result
from file_scenes import Scene as FileScene
from file_scenes import names
from isthmus.core.base.events import Connected
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, Kind, LocatorMode, OutputLocator, ServerPlan
from isthmus.core.base.revisions import Era
from task_scenes import scene

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS


@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_a_task_of_a_server_is_polled(up: Era) -> None:
    """A task whose client waits for the result is polled, or its result is being fetched."""
    world = scene(up, has_tasks=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    asked = party.result(id)
    world.wait(10.0)
    seen = work.polls + work.fetches
    world.wait(60.0)
    assert work.polls + work.fetches > seen or work.fetching, "or it waits for the end"
    world.server.finish(work, {"content": []})
    world.wait(60.0)
    assert asked.result


@pytest.mark.parametrize("down", [LEGACY, MODERN])
@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_a_task_whose_time_is_over_is_forgotten(up: Era, down: Era) -> None:
    world = scene(up, has_tasks=True)
    party = world.party(down)
    id, work = world.begin(party, "a", "must")
    world.server.finish(work, {"content": []})
    world.wait(60.0)
    (task,) = world.engine.tasks()
    assert task.id == id
    world.wait(30 * 24 * 3600.0)
    assert world.engine.tasks() == ()
    assert world.ask(party.get(id)).code is not None


def test_a_resource_that_is_not_read_in_time_is_left_out() -> None:
    locator = OutputLocator(mode=(LocatorMode.RESOURCE_LINK,))
    plan = ServerPlan(id="s", kind=Kind.PIPE, producers=(ArtifactProducer(tools=("*",), output_locator=locator),))
    there = FileScene(plan)
    channel, _ = there.begin("t")
    link = {"type": "resource_link", "uri": "x://a", "name": "a"}
    there.world.answer(there.received, json.dumps({"content": [link]}))
    there.world.take_sent("resources/read")
    there.world.wait(Limits().lookup_s + 0.1)
    there.disk.settle()
    answer = there.only_message(channel)
    assert names(answer) == []
    assert answer["_meta"]["artifact_error"] == "x://a could not be read in time"


@pytest.mark.parametrize("is_error", [False, True])
@pytest.mark.parametrize("was_open", [False, True])
def test_a_response_that_arrives_whole_is_over(was_open: bool, is_error: bool) -> None:
    """A response that arrives whole ends its channel, also if its head was known before. Later input on that channel
    does nothing."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", '{"name":"t"}')
    received = world.take_sent("tools/call")
    build, text = (error, '{"code":-1,"message":"no"}') if is_error else (result, '{"n":1}')
    body = build(str(received.id), text)
    if was_open:
        world.open(received.channel, Connected())
    opening = None if was_open else Connected()
    world._note(world.engine.receive_at_once(received.channel, world.now, opening=opening, message=body, cause=DONE))
    assert world.messages(channel) == [build("1", text)]
    before = len(world.log)
    world.send(received.channel, body)
    world.send(received.channel, b"nonsense")
    assert len(world.log) == before


def test_a_response_may_arrive_as_head_and_end_or_as_head_and_message() -> None:
    """A head with an end is no answer; a head with a message may be followed by the end."""
    world = driver()
    client = connect(world, "http", "http")
    first = client.request("1", "tools/call", '{"name":"t"}')
    received = world.take_sent("tools/call")
    world._note(world.engine.receive_at_once(received.channel, world.now, opening=Connected(), cause=DONE))
    assert "its reply ended without an answer" in world.only_message(first)["error"]["message"]
    second = client.request("2", "tools/call", '{"name":"t"}')
    received = world.take_sent("tools/call")
    body = result(str(received.id), '{"n":1}')
    world._note(world.engine.receive_at_once(received.channel, world.now, opening=Connected(), message=body))
    assert world.messages(second) == [result("2", '{"n":1}')]
    world.end(received.channel)
    assert world.engine.exchange_count == 0
