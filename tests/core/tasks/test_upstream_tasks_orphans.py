"""Tests of orphans: cancelled calls of which their server makes tasks after all. The last ones are remembered."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from driving import result
from isthmus.core.base.plan import Kind
from isthmus.core.base.revisions import Era
from isthmus.core.tasks.upstream_tasks import ORPHANS_MAX
from task_clients import Party
from task_scenes import Scene, scene
from task_servers import Work, text

LEGACY = Era.HANDSHAKE


@dataclass
class CancellingClient:
    """A server that makes tasks, and a client that knows no tasks and cancels each of its calls."""

    world: Scene = field(default_factory=lambda: scene(LEGACY, has_tasks=True))

    def __post_init__(self) -> None:
        self.party: Party = self.world.party(LEGACY, down="pipe", is_plain=True)

    def cancelled_call(self, tag: str) -> Work:
        """Makes a call and cancels it at once."""
        asked = self.party.call(tag, "must")
        self.world.run()
        self.party.hang_up(asked)
        self.world.run()
        work = self.world.server.work(tag)
        work.stops.clear()
        return work

    def is_task_cancelled(self, work: Work) -> bool:
        """Makes a task of the call. True if the server gets a cancellation of it."""
        self.world.server.accept(work)
        self.world.run()
        assert work.stops in ([], ["tasks/cancel"])
        return bool(work.stops)


@pytest.mark.parametrize("over", [0, 1, 3])
def test_the_oldest_orphans_are_forgotten(over: int) -> None:
    """The bound itself is within, and all later calls are remembered."""
    client = CancellingClient()
    works = [client.cancelled_call(str(number)) for number in range(ORPHANS_MAX + over)]
    picked = [*range(over + 2), ORPHANS_MAX // 2, ORPHANS_MAX + over - 2, ORPHANS_MAX + over - 1]
    assert [client.is_task_cancelled(works[number]) for number in picked] == [number >= over for number in picked]


@pytest.mark.parametrize("how", ["task", "result", "error"])
def test_an_answered_orphan_takes_no_place(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind of answer does not matter. The others keep their order: the oldest is forgotten first."""
    monkeypatch.setattr("isthmus.core.tasks.upstream_tasks.ORPHANS_MAX", 3)
    client = CancellingClient()
    first, second, third = (client.cancelled_call(tag) for tag in "abc")
    if how == "task":
        assert client.is_task_cancelled(second)
    elif how == "result":
        client.world.server.answer(second.received, text("done"))
    else:
        client.world.server.refuse(second.received, -32000, "no")
    fourth, fifth = client.cancelled_call("d"), client.cancelled_call("e")
    assert [client.is_task_cancelled(work) for work in (first, third, fourth, fifth)] == [False, True, True, True]


def test_a_lost_process_leaves_no_orphans() -> None:
    """Request ids of the next process are different, so nothing that it sends is taken for an answer to the earlier
    ones."""
    client = CancellingClient()
    work = client.cancelled_call("a")
    client.world.server.die(work)
    client.world.run()
    asked = client.party.call("b", "must")
    client.world.run()
    later = client.world.server.work("b")
    assert later.received.id != work.received.id
    client.world.server.count += 1
    work.id, work.began = "up-9", "2020-01-01T00:00:00Z"
    task_result = json.dumps({"task": client.world.server.task(work)})
    client.world.world.send(later.received.channel, result(str(work.received.id), task_result))
    client.world.run()
    assert "tasks/cancel" not in client.world.server.received
    client.world.server.answer(later.received, text("done"))
    assert asked.result["content"] == text("done")["content"]


def test_orphans_of_one_process_are_not_those_of_another() -> None:
    """Each link has orphans of its own, though both begin with the same empty table."""
    world = scene(LEGACY, Kind.PIPE, has_tasks=True)
    one, other = CancellingClient(world), CancellingClient(world)
    left = one.cancelled_call("a")
    asked = other.party.call("b", "must")
    world.run()
    kept = world.server.work("b")
    assert kept.received.id == left.received.id, "the request ids of two processes are equal"
    world.server.answer(kept.received, text("done"))
    world.run()
    assert asked.result["content"] == text("done")["content"]
    assert one.is_task_cancelled(left)
