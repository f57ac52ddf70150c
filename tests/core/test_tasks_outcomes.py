"""What a server fetches as the outcome of its task is judged by the status: one without content may be no success."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import connect, driver, notification
from isthmus.core.plan import Kind, Offer, ServerPlan, TaskRules

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
