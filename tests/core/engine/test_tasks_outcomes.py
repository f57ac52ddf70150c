"""Tests of outcomes of upstream tasks: the status decides about an outcome without content."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, Driver, connect, driver, notification
from isthmus.core.base.effects import Delete, Dial
from isthmus.core.base.plan import Kind, Offer, ServerPlan, TaskRules
from isthmus.core.base.storage import Save, Saved

TASKS = '{"tools":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}'
TOOLS = '{"tools":[{"name":"make","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}'
EMPTY = '{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"up-1"}}}'


def task(status: str, message: str | None = None) -> str:
    found = {"taskId": "up-1", "status": status, "createdAt": "x", "lastUpdatedAt": "x", "ttl": 60000}
    return json.dumps(found | ({} if message is None else {"statusMessage": message}))


@pytest.mark.parametrize("is_notified", [True, False], ids=["notified", "polled"])
@pytest.mark.parametrize(
    ("status", "message", "answer"),
    [
        ("failed", "it broke", {"error": {"code": -32603, "message": "it broke"}}),
        ("failed", None, {"error": {"code": -32603, "message": "the task failed, and the server says no more of it"}}),
        ("cancelled", "enough", {"error": {"code": -32603, "message": "the server cancelled the task"}}),
        ("completed", None, {"result": {}}),
    ],
)
def test_the_status_decides_an_outcome_without_content(
    status: str, message: str | None, answer: dict[str, Any], is_notified: bool
) -> None:
    """The client learns that the call failed, whether the status came in a notification or a poll."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, tasks=TaskRules(offer=Offer.OWN)))
    client = connect(world, "pipe", "s", capabilities=TASKS)
    channel = client.request("7", "tools/call", '{"name":"make","arguments":{}}')
    world.answer(world.take_sent("tools/list"), TOOLS)
    world.answer(world.take_sent("tools/call"), f'{{"task":{task("working")}}}')
    fetch = world.take_sent("tasks/result")
    if is_notified:
        world.send(fetch.channel, notification("notifications/tasks/status", task(status, message)))
    world.answer(fetch, EMPTY)
    if not is_notified:
        world.answer(world.take_sent("tasks/get"), task(status, message))
        if status != "cancelled":
            world.answer(world.take_sent("tasks/result"), EMPTY)
    (frame,) = (frame for frame in world.frames(channel) if frame.get("id") == 7)
    assert frame == {"jsonrpc": "2.0", "id": 7, **answer}


def ready(kind: Kind) -> tuple[Driver, Client]:
    """Returns a server that makes a task of each call, and a client that has its list of tools."""
    world = driver(ServerPlan(id="s", kind=kind, tasks=TaskRules(offer=Offer.OWN)))
    client = connect(world, "http", "s", capabilities=TASKS)
    client.request("1", "tools/list")
    world.answer(world.take_sent("tools/list"), TOOLS)
    return world, client


def begin(world: Driver, client: Client, id: str, status: str, **more: Any) -> None:
    """Makes a call that becomes the task `up-<id>`."""
    client.request(id, "tools/call", json.dumps({"name": "make", "arguments": {}, **more}))
    shown = {**json.loads(task(status)), "taskId": f"up-{id}", "pollInterval": 1000}
    world.answer(world.take_sent("tools/call"), json.dumps({"task": shown}))


def test_waiting_requests_for_outcomes_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server has to keep each waiting request. Beyond the bound tasks are polled, and their outcomes fetched when
    they have ended."""
    monkeypatch.setattr("isthmus.core.tasks.upstream_tasks.FETCHES_MAX", 1)
    world, client = ready(Kind.PIPE)
    begin(world, client, "5", "working")
    assert world.take_sent("tasks/result").frame["params"]["taskId"] == "up-5"
    begin(world, client, "6", "working")
    assert not world.was_sent("tasks/result")
    begin(world, client, "7", "completed")
    assert world.take_sent("tasks/result").frame["params"]["taskId"] == "up-7"
    begin(world, client, "8", "cancelled")
    assert world.take_sent("tasks/get").frame["params"]["taskId"] == "up-8", "it has no result to ask for"
    assert not world.was_sent("tasks/")


@pytest.mark.parametrize("is_task", [True, False])
def test_a_stop_leaves_tasks_to_a_server_over_http(is_task: bool) -> None:
    """The next run asks for the tasks, so neither they nor their session are ended."""
    world, client = ready(Kind.HTTP)
    if is_task:
        begin(world, client, "5", "working", task={"ttl": 60000})
        for _ in range(2):  # the record of the handle, and that of the upstream task
            world.store(world.last(Save).ticket, Saved())
    world.stop()
    assert not world.was_sent("tasks/cancel")
    deletes = [dial for dial in world.every(Dial) if isinstance(dial.target, Delete)]
    assert len(deletes) == (0 if is_task else 1)
