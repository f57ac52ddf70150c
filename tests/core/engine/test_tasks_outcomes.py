"""What a server fetches as the outcome of its task is judged by the status: one without content may be no success."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, Driver, connect, driver, notification
from isthmus.core.base.effects import Delete, Dial, Save, Saved
from isthmus.core.base.plan import Kind, Offer, ServerPlan, TaskRules

TASKS = '{"tools":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}'
TOOLS = '{"tools":[{"name":"make","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}'
EMPTY = '{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"up-1"}}}'


def task(status: str, message: str | None = None) -> str:
    said = {"taskId": "up-1", "status": status, "createdAt": "x", "lastUpdatedAt": "x", "ttl": 60000}
    return json.dumps(said | ({} if message is None else {"statusMessage": message}))


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "looked at"])
@pytest.mark.parametrize(
    ("status", "message", "answer"),
    [
        ("failed", "it broke", {"error": {"code": -32603, "message": "it broke"}}),
        ("failed", None, {"error": {"code": -32603, "message": "the task failed, and the server says no more of it"}}),
        ("cancelled", "enough", {"error": {"code": -32603, "message": "the server cancelled the task"}}),
        ("completed", None, {"result": {}}),
    ],
)
def test_an_outcome_without_content_is_what_its_status_says(
    status: str, message: str | None, answer: dict[str, Any], is_told: bool
) -> None:
    """Whether the server told of the status before or has to be asked: its client learns that the call failed."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, tasks=TaskRules(offer=Offer.OWN)))
    client = connect(world, "pipe", "s", capabilities=TASKS)
    channel = client.request("7", "tools/call", '{"name":"make","arguments":{}}')
    world.answer(world.hear("tools/list"), TOOLS)
    world.answer(world.hear("tools/call"), f'{{"task":{task("working")}}}')
    fetch = world.hear("tasks/result")
    if is_told:
        world.say(fetch.channel, notification("notifications/tasks/status", task(status, message)))
    world.answer(fetch, EMPTY)
    if not is_told:
        world.answer(world.hear("tasks/get"), task(status, message))
        if status != "cancelled":
            world.answer(world.hear("tasks/result"), EMPTY)
    (said,) = (frame for frame in world.frames(channel) if frame.get("id") == 7)
    assert said == {"jsonrpc": "2.0", "id": 7, **answer}


def working(kind: Kind) -> tuple[Driver, Client]:
    """A server that makes a task of each call, and a client that has its list of tools."""
    world = driver(ServerPlan(id="s", kind=kind, tasks=TaskRules(offer=Offer.OWN)))
    client = connect(world, "http", "s", capabilities=TASKS)
    client.request("1", "tools/list")
    world.answer(world.hear("tools/list"), TOOLS)
    return world, client


def begin(world: Driver, client: Client, id: str, status: str, **more: Any) -> None:
    """A call becomes a task, `up-<id>`."""
    client.request(id, "tools/call", json.dumps({"name": "make", "arguments": {}, **more}))
    said = {**json.loads(task(status)), "taskId": f"up-{id}", "pollInterval": 1000}
    world.answer(world.hear("tools/call"), json.dumps({"task": said}))


def test_outcomes_are_waited_for_in_a_few_requests_and_asked_for_once_they_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request that waits is one that the server has to keep: beyond some, tasks are looked at."""
    monkeypatch.setattr("isthmus.core.tasks.upstream_tasks.FETCHES_MAX", 1)
    world, client = working(Kind.PIPE)
    begin(world, client, "5", "working")
    assert world.hear("tasks/result").frame["params"]["taskId"] == "up-5"
    begin(world, client, "6", "working")
    assert not world.hears("tasks/result")
    begin(world, client, "7", "completed")
    assert world.hear("tasks/result").frame["params"]["taskId"] == "up-7"
    begin(world, client, "8", "cancelled")
    assert world.hear("tasks/get").frame["params"]["taskId"] == "up-8", "it has no result to ask for"
    assert not world.hears("tasks/")


@pytest.mark.parametrize("is_task", [True, False])
def test_who_stops_leaves_tasks_of_a_server_over_http_to_it(is_task: bool) -> None:
    """The next run asks for them: neither they nor the session that they are of is ended."""
    world, client = working(Kind.HTTP)
    if is_task:
        begin(world, client, "5", "working", task={"ttl": 60000})
        for _ in range(2):  # as a task of ours, and as one of the server's: then the client is told
            world.store(world.last(Save).ticket, Saved())
    world.stop()
    assert not world.hears("tasks/cancel")
    farewells = [dial for dial in world.every(Dial) if isinstance(dial.target, Delete)]
    assert len(farewells) == (0 if is_task else 1)
