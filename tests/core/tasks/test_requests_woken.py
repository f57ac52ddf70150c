"""Tests of requests that wait for a poll of an upstream task: no timer is left when they are answered or cancelled."""

from __future__ import annotations

import pytest
from deadlines import reasons
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind
from isthmus.core.base.revisions import Era
from stateless_driving import tables
from task_scenes import scene

LEGACY = Era.HANDSHAKE
POLL = "look at a task"


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
@pytest.mark.parametrize("how", ["answered", "cancelled"])
@pytest.mark.parametrize("waits", [0, 1, 2])
def test_the_timer_of_a_poll_ends_with_the_requests_for_it(waits: int, how: str, kind: Kind) -> None:
    """The timer of `tasks/get` ends when that request is answered or cancelled, though requests for the outcome wait
    on."""
    world = scene(LEGACY, kind, has_tasks=True, limits=Limits(task_look_s=3.25))
    party = world.party(LEGACY)
    id, _ = world.begin(party, "a", "must")
    world.wait(10.0)
    results = [party.result(id) for _ in range(waits)]
    asked = party.get(id)
    assert asked.reply is None
    timers = tables(world.engine)["timers"]
    assert [at - world.world.now for (purpose, _), (at, *_) in timers.items() if purpose == "task-look"] == [3.25]
    if how == "cancelled":
        assert party.legacy is not None
        party.legacy.notify("notifications/cancelled", f'{{"requestId":{asked.id}}}')
    world.run()
    assert how == "cancelled" or asked.result["status"] == "working"
    assert POLL not in reasons(world, 6.0)
    assert all(result.reply is None for result in results)


def test_a_cancelled_request_does_not_end_the_timer_of_another() -> None:
    """One of two requests is cancelled. The other gets what is known when the server takes too long."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True, limits=Limits(task_look_s=3.25))
    party = world.party(LEGACY)
    id, _ = world.begin(party, "a", "must")
    world.wait(10.0)
    world.server._receive_task_request = lambda received, method, params: None  # type: ignore[method-assign]
    first, second = party.get(id), party.get(id)
    assert party.legacy is not None
    party.legacy.notify("notifications/cancelled", f'{{"requestId":{first.id}}}')
    world.wait(3.2)
    assert second.reply is None
    world.wait(0.1)
    assert second.result["status"] == "working"
