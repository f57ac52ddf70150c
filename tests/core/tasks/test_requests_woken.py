"""Requests that wait for what a server says of its task: when there are none, nobody is woken for them."""

from __future__ import annotations

import pytest
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind
from isthmus.core.base.revisions import Era
from task_scenes import scene

from tests.core.tasks.test_local_tasks_when import whys

LEGACY = Era.HANDSHAKE
LOOK = "look at a task"


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
@pytest.mark.parametrize("how", ["answered", "cancelled"])
@pytest.mark.parametrize("waits", [0, 1, 2])
def test_who_waits_for_the_outcome_alone_has_nobody_woken_for_what_is_known_meanwhile(
    waits: int, how: str, kind: Kind
) -> None:
    """A look was waited for, and is not any more: its client has its answer, or wants none."""
    world = scene(LEGACY, kind, has_tasks=True, limits=Limits(task_look_s=3.25))
    party = world.party(LEGACY)
    id, _ = world.begin(party, "a", "must")
    world.wait(10.0)
    results = [party.result(id) for _ in range(waits)]
    asked = party.get(id)
    assert asked.reply is None
    timers = world.engine._desk.timers._live
    assert [at - world.world.now for (purpose, _), (at, *_) in timers.items() if purpose == "task-look"] == [3.25]
    if how == "cancelled":
        assert party.legacy is not None
        party.legacy.notify("notifications/cancelled", f'{{"requestId":{asked.id}}}')
    world.run()
    assert how == "cancelled" or asked.result["status"] == "working"
    assert LOOK not in whys(world, 6.0)
    assert all(result.reply is None for result in results)


def test_a_look_that_is_still_waited_for_is_not_given_up_for_another_that_is_not() -> None:
    """Two wait, and one of them wants no answer: the other has what is known when the server takes too long."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True, limits=Limits(task_look_s=3.25))
    party = world.party(LEGACY)
    id, _ = world.begin(party, "a", "must")
    world.wait(10.0)
    world.server._receive_verb = lambda heard, method, params: None  # type: ignore[method-assign]
    first, second = party.get(id), party.get(id)
    assert party.legacy is not None
    party.legacy.notify("notifications/cancelled", f'{{"requestId":{first.id}}}')
    world.wait(3.2)
    assert second.reply is None
    world.wait(0.1)
    assert second.result["status"] == "working"
