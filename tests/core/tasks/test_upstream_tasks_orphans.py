"""Calls that nobody wants any more, and that their server makes tasks of: how many are remembered, and until when."""

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
class Orphanage:
    """A server that makes tasks, and a client that knows none, and wants no answer to what it calls."""

    world: Scene = field(default_factory=lambda: scene(LEGACY, has_tasks=True))

    def __post_init__(self) -> None:
        self.party: Party = self.world.party(LEGACY, down="pipe", is_plain=True)

    def leave(self, tag: str) -> Work:
        """A call that is cancelled at once."""
        asked = self.party.call(tag, "must")
        self.world.run()
        self.party.hang_up(asked)
        self.world.run()
        work = self.world.server.work(tag)
        work.stops.clear()
        return work

    def adopted(self, work: Work) -> bool:
        """Its server makes a task of it after all. Whether it is told that nobody wants that."""
        self.world.server.accept(work)
        self.world.run()
        assert work.stops in ([], ["tasks/cancel"])
        return bool(work.stops)


@pytest.mark.parametrize("over", [0, 1, 3])
def test_of_too_many_the_oldest_are_forgotten(over: int) -> None:
    """The bound itself is within, and all that came later are known."""
    home = Orphanage()
    works = [home.leave(str(number)) for number in range(ORPHANS_MAX + over)]
    picked = [*range(over + 2), ORPHANS_MAX // 2, ORPHANS_MAX + over - 2, ORPHANS_MAX + over - 1]
    assert [home.adopted(works[number]) for number in picked] == [number >= over for number in picked]


@pytest.mark.parametrize("how", ["task", "result", "error"])
def test_what_was_answered_takes_no_place(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the answer was. Those that stay keep their order: the oldest goes first."""
    monkeypatch.setattr("isthmus.core.tasks.upstream_tasks.ORPHANS_MAX", 3)
    home = Orphanage()
    first, second, third = (home.leave(tag) for tag in "abc")
    if how == "task":
        assert home.adopted(second)
    elif how == "result":
        home.world.server.answer(second.heard, text("done"))
    else:
        home.world.server.refuse(second.heard, -32000, "no")
    fourth, fifth = home.leave("d"), home.leave("e")
    assert [home.adopted(work) for work in (first, third, fourth, fifth)] == [False, True, True, True]


def test_a_process_that_is_lost_leaves_none() -> None:
    """Numbers of the next are others: nothing that it says is taken for an answer to those."""
    home = Orphanage()
    work = home.leave("a")
    home.world.server.die(work)
    home.world.run()
    asked = home.party.call("b", "must")
    home.world.run()
    later = home.world.server.work("b")
    assert later.heard.id != work.heard.id
    home.world.server.count += 1
    work.id, work.began = "up-9", "2020-01-01T00:00:00Z"
    said = json.dumps({"task": home.world.server.task(work)})
    home.world.world.say(later.heard.channel, result(str(work.heard.id), said))
    home.world.run()
    assert "tasks/cancel" not in home.world.server.heard
    home.world.server.answer(later.heard, text("done"))
    assert asked.result["content"] == text("done")["content"]


def test_orphans_of_one_process_are_not_those_of_another() -> None:
    """Each link has its own, though they begin as one empty table."""
    world = scene(LEGACY, Kind.PIPE, has_tasks=True)
    one, other = Orphanage(world), Orphanage(world)
    left = one.leave("a")
    asked = other.party.call("b", "must")
    world.run()
    kept = world.server.work("b")
    assert kept.heard.id == left.heard.id, "numbers of two processes meet"
    world.server.answer(kept.heard, text("done"))
    world.run()
    assert asked.result["content"] == text("done")["content"]
    assert one.adopted(left)
