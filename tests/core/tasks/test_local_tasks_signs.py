"""Signs of life for a server whose question waits: they end with the task, however that does."""

from __future__ import annotations

import json

import pytest
from driving import request
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Offer
from isthmus.core.base.revisions import Era
from stateless_driving import FORM
from task_clients import Party
from task_scenes import Scene, scene
from task_servers import RELATED, Work, text

from tests.core.tasks.test_local_tasks import ERAS, LEGACY
from tests.core.tasks.test_local_tasks_when import whys

SIGN = "sign of life"


def ask(world: Scene, work: Work) -> None:
    """A question in the course of a call, which wants to hear that it is still waited for."""
    said = {"progressToken": "t"} if work.id is None else {"progressToken": "t", RELATED: {"taskId": work.id}}
    params = {**json.loads(FORM), "_meta": said}
    work.given["q"] = []
    world.world.say(work.heard.channel, request('"q"', "elicitation/create", json.dumps(params)))


def end(world: Scene, party: Party, id: str, work: Work, how: str) -> None:
    match how:
        case "finished":
            world.server.finish(work, text("done"))
        case "failed":
            world.server.fail(work, -32000, "no")
        case "cancelled":
            party.cancel(id)
        case "left":
            party.leave()
        case "lost":
            world.server.die(work)
        case "over its time":
            world.wait(60.0)


WAYS = [
    (down, how)
    for down in ERAS
    for how in ("finished", "failed", "cancelled", "left", "lost", "over its time")
    if down is LEGACY or how != "left"  # a client without a session has none to leave
]


@pytest.mark.parametrize("has_tasks", [False, True])
@pytest.mark.parametrize(("down", "how"), WAYS)
def test_nobody_is_woken_for_a_question_of_a_task_that_is_over(down: Era, how: str, has_tasks: bool) -> None:
    """Be it the server's task or one of ours alone."""
    limits = Limits(task_ttl_s=60.0, task_ttl_max_s=60.0, park_tick_s=5.0)
    world = scene(LEGACY, has_tasks=has_tasks, offer=Offer.ALWAYS, limits=limits)
    party = world.party(down)
    id, work = world.begin(party, "a", "must" if has_tasks else "work")
    ask(world, work)
    assert world.status(party, id) == "input_required"
    assert whys(world, 11.0).count(SIGN) == 2
    end(world, party, id, work, how)
    world.run()
    assert SIGN not in whys(world, 20.0)
    (before,) = world.engine.tasks() or (None,)
    assert before is None or before.status not in ("working", "input_required")
