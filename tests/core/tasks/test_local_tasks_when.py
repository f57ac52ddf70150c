"""When calls become tasks, when tasks end, and that nobody is woken for nothing."""

from __future__ import annotations

import pytest
from driving import UNIX_AT_ZERO
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Offer
from isthmus.core.base.revisions import Era
from task_scenes import Scene, scene
from task_servers import text

from tests.core.tasks.test_local_tasks import ERAS, LEGACY, MODERN


def whys(world: Scene, seconds: float) -> list[str]:
    """What the engine wants to be woken for in that time."""
    end, found = world.world.now + seconds, []
    while (deadline := world.engine.next_timeout()) is not None and deadline.at <= end:
        found.append(deadline.why)
        world.wait(max(0.0, deadline.at - world.world.now))
    world.wait(end - world.world.now)
    return found


BECOMING = "call that becomes a task"


@pytest.mark.parametrize("down", ERAS)
def test_a_call_becomes_a_task_when_it_is_time_and_not_when_it_is_over(down: Era) -> None:
    """Nobody is woken for one that has failed before."""
    world = scene()
    party = world.party(down)
    for tag, fails in (("a", True), ("b", False)):
        asked = party.call(tag)
        world.run()
        if fails:
            world.server.fail(world.server.work(tag), -32000, "no")
            world.run()
            assert asked.code == -32000
        began = world.world.now
        found = whys(world, 6.0)
        assert found.count(BECOMING) == (0 if fails else 1)
        if not fails:
            (task,) = world.engine.tasks()
            due_s = world.limits.task_grace_s if down is LEGACY else world.limits.task_after_s
            assert task.created_at_unix == UNIX_AT_ZERO + began + due_s


@pytest.mark.parametrize("how", ["adopted early", "over in time"])
def test_a_call_that_became_a_task_early_becomes_none_later(how: str) -> None:
    """A result that comes before its client was told makes it one at once, which is all."""
    world = scene()
    party = world.party(LEGACY)
    asked = party.call("a")
    world.run()
    if how == "over in time":
        world.server.finish(world.server.work("a"), text("done"))
        world.run()
        assert asked.result["task"]["status"] == "working"
        assert BECOMING not in whys(world, 6.0)
    else:
        assert whys(world, 6.0).count(BECOMING) == 1
    assert len(world.engine.tasks()) == 1


def test_a_task_has_no_time_limit_but_its_own() -> None:
    """That of its call is for requests that somebody waits for."""
    limits = Limits(reply_timeout_s=5.0, task_ttl_s=60.0, task_ttl_max_s=60.0)
    world = scene(offer=Offer.ALWAYS, limits=limits)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a")
    found = whys(world, 50.0)
    assert "upstream reply" not in found
    assert world.status(party, id) == "working"
    world.server.report(work, 1) if work.token is not None else None
    assert whys(world, 15.0).count("end of a task") == 1
    assert world.engine.tasks() == ()


def test_a_call_that_is_asked_something_becomes_a_task_when_it_was_answered() -> None:
    """Its client has been told to come back, and could not be told of a task: the time begins anew."""
    world = scene(limits=Limits(task_after_s=5.0))
    party = world.party(MODERN)
    began = world.world.now
    asked = party.call("a")
    world.run()
    world.wait(1.0)
    world.server.ask(world.server.work("a"), "q")
    world.wait(1.0)
    said = asked.result
    assert said["resultType"] == "input_required"
    world.wait(9.0)
    assert world.engine.tasks() == ()
    (key,) = said["inputRequests"]
    again = party.call("a", requestState=said["requestState"], inputResponses={key: {"action": "decline"}})
    world.run()
    assert again.reply is None
    world.wait(5.0)
    (task,) = world.engine.tasks()
    assert task.created_at_unix == UNIX_AT_ZERO + began + 15.0
    assert again.result["taskId"] == task.id


@pytest.mark.parametrize("length", [0, 399, 400, 401])
def test_what_is_said_of_a_failure_is_cut_to_what_fits(length: int) -> None:
    """The error itself is whole."""
    world = scene(offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a")
    world.server.fail(work, -32000, "x" * length)
    world.run()
    said = world.ask(party.get(id)).result
    assert said.get("statusMessage", "") == "x" * min(length, 400)
    assert world.ask(party.result(id)).error == {"code": -32000, "message": "x" * length}
