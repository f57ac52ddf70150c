"""Tests of files of upstream and local tasks: uploads become paths, and written files become artifacts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, Driver, connect, driver, upload
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import (
    ArtifactProducer,
    Kind,
    LocatorMode,
    Offer,
    OutputLocator,
    ServerPlan,
    TaskRules,
    UploadConsumer,
)
from isthmus.core.base.storage import Collect, Collected, CollectedFile, Discard, Materialize, Materialized, Save, Saved

OWN = '{"tools":{},"resources":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}'
NONE = '{"tools":{},"resources":{}}'
TOOLS = '{"tools":[{"name":"make","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}]}'
TASK = '{"taskId":"up-1","status":"working","createdAt":"x","lastUpdatedAt":"x","ttl":60000}'
RESULT = '{"content":[],"structuredContent":{"file":"/out/a.txt"}}'
HELPER = "f_get_upload_url"

PLAN = ServerPlan(
    id="f",
    kind=Kind.PIPE,
    consumers=(UploadConsumer(tools=("make",), file_path_argument="path"),),
    producers=(
        ArtifactProducer(
            tools=("make",), output_locator=OutputLocator(mode=LocatorMode.STRUCTURED, output_path_key="file")
        ),
    ),
    tasks=TaskRules(offer=Offer.AUTO),
)


def begin(*, has_tasks: bool) -> tuple[Driver, Client]:
    world = driver(PLAN, limits=Limits(upload_ttl_s=10.0))
    return world, connect(world, "pipe", "f", capabilities=OWN if has_tasks else NONE)


def answered(world: Driver, channel: ChannelId, id: int) -> list[dict[str, Any]]:
    return [frame for frame in world.frames(channel) if frame.get("id") == id and "method" not in frame]


def save_all(world: Driver, done: set[int]) -> None:
    """Answers every open order to save a record."""
    while waiting := [order for order in world.every(Save) if order.ticket not in done]:
        for order in waiting:
            done.add(order.ticket)
            world.store(order.ticket, Saved())


def call(world: Driver, client: Client, arguments: str, done: set[int]) -> tuple[str, dict[str, Any], Any]:
    """Calls the tool as a task. Returns the task id, the arguments that the server got, and the message."""
    channel = client.request("7", "tools/call", f'{{"name":"make","arguments":{arguments},"task":{{"ttl":60000}}}}')
    for order in world.every(Materialize):
        world.store(order.ticket, Materialized(path="/in/b.txt"))
    if world.was_sent("tools/list"):
        world.answer(world.take_sent("tools/list"), TOOLS)
    received = world.take_sent("tools/call")
    params = received.frame["params"]
    if "task" in params:
        world.answer(received, f'{{"task":{TASK}}}')
        received = world.take_sent("tasks/result")
    else:
        world.wait(0.3)
    save_all(world, done)
    (answer,) = answered(world, channel, 7)
    return answer["result"]["task"]["taskId"], params, received


@pytest.mark.parametrize("has_tasks", [True, False])
def test_a_file_written_by_a_task_is_an_artifact_of_its_outcome(has_tasks: bool) -> None:
    """The file is collected before the outcome is sent, and named in it as in a plain result."""
    world, client = begin(has_tasks=has_tasks)
    done: set[int] = set()
    id, params, received = call(world, client, "{}", done)
    assert ("task" in params) is has_tasks
    waiting = client.request("8", "tasks/result", json.dumps({"taskId": id}))
    world.answer(received, RESULT)
    order = world.last(Collect)
    assert not answered(world, waiting, 8), "its file is on its way"
    file = CollectedFile(path="/out/a.txt", filename="a.txt", size_bytes=5, sha256="ab" * 32, head=b"hello")
    world.store(order.ticket, Collected((file,)))
    save_all(world, done)
    (outcome,) = answered(world, waiting, 8)
    assert outcome["result"]["_meta"]["artifact"]["filename"] == "a.txt"
    assert outcome["result"]["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": id}
    again = client.request("9", "tasks/result", json.dumps({"taskId": id}))
    assert answered(world, again, 9)[0]["result"] == outcome["result"]


@pytest.mark.parametrize("has_tasks", [True, False])
def test_an_uploaded_file_is_a_path_for_the_task_and_kept_as_long_as_it_runs(has_tasks: bool) -> None:
    """The file is pinned until the task ends, not only until its client has the handle."""
    world, client = begin(has_tasks=has_tasks)
    (handle,) = upload(client, HELPER, ("b.txt", 3))
    done = {order.ticket for order in world.every(Save)}
    id, params, _ = call(world, client, json.dumps({"path": handle}), done)
    assert params["arguments"]["path"] == "/in/b.txt"
    world.wait(30.0)
    assert not world.every(Discard)
    client.request("8", "tasks/cancel", json.dumps({"taskId": id}))
    world.wait(30.0)
    assert len(world.every(Discard)) == 1


@pytest.mark.parametrize("has_tasks", [True, False])
def test_an_unknown_upload_handle_fails_the_task(has_tasks: bool) -> None:
    """The call is a task already, so the error is its outcome."""
    world, client = begin(has_tasks=has_tasks)
    done: set[int] = set()
    channel = client.request(
        "7", "tools/call", '{"name":"make","arguments":{"path":"upload://sessions/x/y"},"task":{}}'
    )
    save_all(world, done)
    (answer,) = answered(world, channel, 7)
    id = answer["result"]["task"]["taskId"]
    assert answer["result"]["task"]["status"] == "working"
    outcome = client.request("8", "tasks/result", json.dumps({"taskId": id}))
    assert answered(world, outcome, 8)[0]["result"]["isError"] is True
    assert not world.was_sent("tools/call")
