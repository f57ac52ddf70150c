"""Servers that have tasks in one era only, and how servers are left while their tasks are being cancelled."""

from __future__ import annotations

import json
from typing import Any

from driving import Client, Driver, connect, driver
from isthmus.core.base.effects import Close, Connected, PipeOpening, Save, Saved, Spawn
from isthmus.core.base.plan import Kind, Offer, ServerPlan, TaskRules

TASKS = "io.modelcontextprotocol/tasks"
DISCOVERED = json.dumps(
    {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}, "extensions": {TASKS: {}}},
        "ttlMs": 0,
        "cacheScope": "private",
    }
)
INSISTS = json.dumps(
    {"code": -32021, "message": "tasks!", "data": {"requiredCapabilities": {"extensions": {TASKS: {}}}}}
)
MADE = '{"resultType":"task","taskId":"t1","status":"working","createdAt":"x","lastUpdatedAt":"x","ttlMs":60000}'
DONE = (
    '{"resultType":"complete","taskId":"t1","status":"completed","createdAt":"x","lastUpdatedAt":"x","ttlMs":60000,'
    '"result":{"content":[{"type":"text","text":"done"}]}}'
)
OWN = '{"tools":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}'
MUST = '{"tools":[{"name":"must","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}'


def plan(**more: Any) -> ServerPlan:
    return ServerPlan(id="s", kind=Kind.PIPE, tasks=TaskRules(offer=Offer.AUTO), **more)


def refuse(world: Driver, error: str) -> None:
    heard = world.hear("tools/call")
    world.say(heard.channel, f'{{"jsonrpc":"2.0","id":{heard.id},"error":{error}}}'.encode())


def save_all(world: Driver) -> None:
    for order in world.every(Save):
        world.store(order.ticket, Saved())


def begin_anew(world: Driver) -> None:
    """The server is started once more, and greets as one without sessions."""
    world.open(world.last_dial(Spawn).channel, Connected())
    world.answer(world.hear("server/discover"), DISCOVERED)


def test_a_server_that_has_tasks_without_a_session_only_is_spoken_to_without_one() -> None:
    """It shakes hands, and refuses the call for want of tasks: the call is made once more, and its client, which knows
    no tasks, has the plain result; the next client's session begins in that way."""
    world = driver(plan())
    client = connect(world, "pipe", "s", capabilities='{"tools":{}}')
    channel = client.request("7", "tools/call", '{"name":"must","arguments":{}}')
    refuse(world, INSISTS)
    begin_anew(world)
    heard = world.hear("tools/call")
    assert TASKS in heard.frame["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"]
    world.answer(heard, MADE)
    world.wait(1.0)
    world.answer(world.hear("tasks/get"), DONE)
    (said,) = [frame for frame in world.frames(channel) if frame.get("id") == 7]
    assert said["result"]["content"] == [{"type": "text", "text": "done"}]
    newcomer = Client(world, "s", pipe=world.engine.new_channel())
    assert newcomer.pipe is not None
    world.open(newcomer.pipe, PipeOpening("s"))
    newcomer.initialize()
    world.open(world.last_dial(Spawn).channel, Connected())
    assert world.hears("server/discover")


def test_a_server_that_refuses_either_way_is_asked_twice_and_no_more() -> None:
    """The refusal reaches the client, and nothing goes round in circles."""
    world = driver(plan())
    client = connect(world, "pipe", "s", capabilities='{"tools":{}}')
    channel = client.request("7", "tools/call", '{"name":"must","arguments":{}}')
    refuse(world, INSISTS)
    begin_anew(world)
    refuse(world, INSISTS)
    (said,) = [frame for frame in world.frames(channel) if frame.get("id") == 7]
    assert "error" in said or said["result"]["isError"]
    assert not world.hears("tools/call")


def test_a_process_is_left_when_it_has_taken_that_its_task_is_cancelled() -> None:
    """Its input stays open until it has answered, or has had its time; its client waits for neither."""
    for answers in (True, False):
        world = driver(plan())
        client = connect(world, "pipe", "s", capabilities=OWN)
        client.request("7", "tools/call", '{"name":"must","arguments":{},"task":{}}')
        world.answer(world.hear("tools/list"), MUST)
        call = world.hear("tools/call")
        world.answer(call, '{"task":{"taskId":"t1","status":"working","createdAt":"x","lastUpdatedAt":"x","ttl":1}}')
        save_all(world)
        assert client.pipe is not None
        world.end(client.pipe)
        cancel = world.hear("tasks/cancel")
        assert not [effect for effect in world.every(Close) if effect.channel == call.channel]
        if answers:
            world.answer(cancel, "{}")
        else:
            world.wait(2.5)
        assert [effect for effect in world.every(Close) if effect.channel == call.channel]
        world.end(call.channel)
        assert world.engine.session_count == 0
