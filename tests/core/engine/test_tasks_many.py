"""Tests of thousands of tasks at once, which leave nothing behind, and of the memory of a task."""

from __future__ import annotations

import json

import pytest
from isthmus.core.base.errors import OVERLOADED
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from isthmus.core.base.storage import Collect, Discard, Fetch, Forget, InlineSource, Save
from stateless_driving import assert_empty, tables
from task_clients import Party
from task_scenes import GRACE_S, Scene, scene
from task_servers import text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
COUNT, BATCH = 2_000, 250
LIMITS = Limits(
    tasks_max=COUNT,
    tasks_per_principal_max=COUNT,
    tasks_per_session_max=COUNT,
    exchanges_per_session_max=COUNT,
    task_ttl_s=600.0,
    session_idle_ttl_s=1e9,
    reply_timeout_s=1e9,
)


def handles(world: Scene) -> list[str]:
    """Returns the ids of the tasks that clients got since the last call."""
    found = []
    for sends in world.world.sent.values():
        for send in sends:
            result = json.loads(send.message).get("result", {})
            shown = result.get("task", result)
            if "taskId" in shown:
                found.append(shown["taskId"])
        sends.clear()
    return found


def fill(world: Scene, parties: list[Party]) -> dict[str, str]:
    """Makes as many tasks as the limit allows, evenly over the parties. Returns their ids by tag."""
    ids: dict[str, str] = {}
    for first in range(0, COUNT, BATCH * len(parties)):
        for party in parties:
            tags = [f"{party.principal}{number}" for number in range(first, first + BATCH)]
            for tag in tags:
                party.call(tag)
            world.run()
            world.wait(GRACE_S)
            ids |= zip(tags, handles(world), strict=True)
    return ids


def test_thousands_of_tasks_leave_nothing_behind() -> None:
    """Some finish, some are cancelled, most expire while they work. The server gets one cancellation of each of those,
    and no record, result, timer or request is left."""
    world = scene(LEGACY, Kind.PIPE, offer=Offer.ALWAYS, limits=LIMITS)
    ann, mia = parties = [
        world.party(LEGACY, down="pipe", principal="ann"),
        world.party(MODERN, down="pipe", principal="mia"),
    ]
    ids = fill(world, parties)
    assert len(set(ids.values())) == COUNT
    tags = list(ids)
    finished, cancelled = tags[::10], tags[1::100]
    for tag in finished:
        world.server.finish(world.server.work(tag), text("x" * (5000 if tag.endswith("00") else 10)))
    for tag in cancelled:
        (ann if tag.startswith("ann") else mia).cancel(ids[tag])
    world.run()
    states = [task.status for task in world.engine.tasks()]
    assert len(states) == COUNT
    assert states.count("completed") == len(finished)
    assert states.count("cancelled") == len(cancelled)
    assert len(world.store.tasks) == COUNT
    assert world.store.blobs

    asked = world.ask(ann.call("one more"))
    assert asked.code == OVERLOADED
    assert "tasks_max" in asked.error["message"]
    assert str(COUNT) in asked.error["message"]
    assert "one more" not in world.server.works

    world.wait(LIMITS.task_ttl_s)
    assert world.engine.tasks() == ()
    assert not world.store.tasks
    assert not world.store.blobs
    stops = {tag: work.stops for tag, work in world.server.works.items()}
    assert all(len(stops[tag]) == (tag not in finished) for tag in tags)
    assert not tables(world.engine)["pending"]
    asked = ann.call("after")
    world.wait(GRACE_S)
    assert asked.code is None, "there is room again"
    world.wait(LIMITS.task_ttl_s + 10.0)
    world.world.stop()
    world.run()
    world.wait(LIMITS.task_farewell_s + LIMITS.notification_timeout_s)
    assert_empty(world.world)


@pytest.mark.parametrize("party", [LEGACY, MODERN])
def test_a_large_result_is_beside_the_record_and_not_in_memory(party: Era) -> None:
    """A result changed in the storage is the one that is read, so there is no copy in memory."""
    limits = Limits(task_inline_max_bytes=1000)
    world = scene(offer=Offer.ALWAYS, limits=limits)
    client = world.party(party)
    id, work = world.begin(client, "a")
    world.server.finish(work, text("x" * 1000))
    world.run()
    (collect,) = (order for order in world.store.orders if isinstance(order, Collect))
    (source,) = collect.sources
    assert isinstance(source, InlineSource)
    assert b"x" * 1000 in source.data
    assert all(b"xxx" not in order.value for order in world.store.orders if isinstance(order, Save))
    (task,) = world.engine.tasks()
    assert task.size_bytes == len(source.data)

    (blob,) = world.store.blobs
    world.store.blobs[blob] = source.data.replace(b"x" * 1000, b"y" * 1000)
    read = Party.get if client.is_modern else Party.result
    for count in (1, 2):
        answer = world.ask(read(client, id)).result
        content = (answer["result"] if client.is_modern else answer)["content"]
        assert content[0]["text"] == "y" * 1000
        assert len([order for order in world.store.orders if isinstance(order, Fetch)]) == count

    world.wait(limits.task_ttl_s)
    assert any(effect.blob == blob for effect in world.world.every(Discard))
    assert any(effect.key == f"task/{id}" for effect in world.world.every(Forget))
    assert not world.store.blobs


@pytest.mark.parametrize("party", [LEGACY, MODERN])
def test_a_small_result_is_in_the_record(party: Era) -> None:
    """The limit is exact: one byte more is in a blob."""
    size = 10_000
    for is_inline, short in ((True, 0), (True, 0), (False, 1)):  # the first shows its size
        world = scene(offer=Offer.ALWAYS, limits=Limits(task_inline_max_bytes=size - short))
        client = world.party(party)
        _, work = world.begin(client, "a")
        world.server.finish(work, text("x" * 500))
        world.run()
        (task,) = world.engine.tasks()
        size = task.size_bytes
        assert bool(world.store.blobs) is not is_inline
