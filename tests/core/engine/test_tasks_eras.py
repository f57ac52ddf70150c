"""Tests of servers that have tasks in one era only, and of the end of processes with cancelled tasks."""

from __future__ import annotations

import json
from typing import Any

from driving import Client, Driver, connect, driver
from isthmus.core.base.effects import Close, Spawn
from isthmus.core.base.events import Connected, PipeOpening
from isthmus.core.base.plan import Kind, Offer, ServerPlan, TaskRules
from isthmus.core.base.storage import Save, Saved

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
    received = world.take_sent("tools/call")
    world.send(received.channel, f'{{"jsonrpc":"2.0","id":{received.id},"error":{error}}}'.encode())


def save_all(world: Driver) -> None:
    for order in world.every(Save):
        world.store(order.ticket, Saved())


def restart_stateless(world: Driver) -> None:
    """Starts the server once more, as one of the stateless era."""
    world.open(world.last_dial(Spawn).channel, Connected())
    world.answer(world.take_sent("server/discover"), DISCOVERED)


def test_a_server_with_tasks_in_the_stateless_era_only_is_used_in_that_era() -> None:
    """After a handshake the server refuses the call for want of tasks. The call is made again in the stateless era, its
    client gets the plain result, and the next session begins in that era."""
    world = driver(plan())
    client = connect(world, "pipe", "s", capabilities='{"tools":{}}')
    channel = client.request("7", "tools/call", '{"name":"must","arguments":{}}')
    refuse(world, INSISTS)
    restart_stateless(world)
    received = world.take_sent("tools/call")
    assert TASKS in received.frame["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"]
    world.answer(received, MADE)
    world.wait(1.0)
    world.answer(world.take_sent("tasks/get"), DONE)
    (answer,) = [frame for frame in world.frames(channel) if frame.get("id") == 7]
    assert answer["result"]["content"] == [{"type": "text", "text": "done"}]
    newcomer = Client(world, "s", pipe=world.engine.new_channel())
    assert newcomer.pipe is not None
    world.open(newcomer.pipe, PipeOpening("s"))
    newcomer.initialize()
    world.open(world.last_dial(Spawn).channel, Connected())
    assert world.was_sent("server/discover")


def test_a_call_refused_in_both_eras_is_not_repeated_again() -> None:
    """The refusal reaches the client, and there is no loop."""
    world = driver(plan())
    client = connect(world, "pipe", "s", capabilities='{"tools":{}}')
    channel = client.request("7", "tools/call", '{"name":"must","arguments":{}}')
    refuse(world, INSISTS)
    restart_stateless(world)
    refuse(world, INSISTS)
    (answer,) = [frame for frame in world.frames(channel) if frame.get("id") == 7]
    assert "error" in answer or answer["result"]["isError"]
    assert not world.was_sent("tools/call")


def test_a_process_is_closed_after_it_has_answered_tasks_cancel() -> None:
    """The input of the process stays open until the answer or the time limit. The client waits for neither."""
    for answers in (True, False):
        world = driver(plan())
        client = connect(world, "pipe", "s", capabilities=OWN)
        client.request("7", "tools/call", '{"name":"must","arguments":{},"task":{}}')
        world.answer(world.take_sent("tools/list"), MUST)
        call = world.take_sent("tools/call")
        world.answer(call, '{"task":{"taskId":"t1","status":"working","createdAt":"x","lastUpdatedAt":"x","ttl":1}}')
        save_all(world)
        assert client.pipe is not None
        world.end(client.pipe)
        cancel = world.take_sent("tasks/cancel")
        assert not [effect for effect in world.every(Close) if effect.channel == call.channel]
        if answers:
            world.answer(cancel, "{}")
        else:
            world.wait(2.5)
        assert [effect for effect in world.every(Close) if effect.channel == call.channel]
        world.end(call.channel)
        assert world.engine.session_count == 0
