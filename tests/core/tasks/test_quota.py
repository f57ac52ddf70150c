"""Tests of the task quota: how many tasks there may be, for how long, and against whom they count."""

from __future__ import annotations

from typing import Any

import pytest
from driving import UNIX_AT_ZERO
from isthmus.core.base.errors import INVALID_PARAMS, OVERLOADED
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from task_scenes import GRACE_S, scene
from task_servers import text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
ERAS = [LEGACY, MODERN]


@pytest.mark.parametrize(
    ("wanted_ms", "given_ms"),
    [
        (None, 50_000),
        (1, 1000),
        (999, 1000),
        (1000, 1000),
        (1001, 1001),
        (50_000, 50_000),
        (90_000, 90_000),
        (90_001, 90_000),
        (10**15, 90_000),
    ],
)
def test_a_task_lives_as_long_as_its_client_wants_within_bounds(wanted_ms: int | None, given_ms: int) -> None:
    """The task is dropped exactly at the end of the `ttl` that the client gets."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(task_ttl_s=50.0, task_ttl_max_s=90.0, task_poll_s=2.5))
    party = world.party(LEGACY)
    asked = party.call("a", ttl=wanted_ms)
    world.wait(GRACE_S)
    shown = asked.result["task"]
    assert (shown["ttl"], shown["pollInterval"]) == (given_ms, 2500)
    (task,) = world.engine.tasks()
    assert task.expires_at_unix == task.created_at_unix + given_ms / 1000
    world.wait(task.expires_at_unix - UNIX_AT_ZERO - world.world.now - 0.001)
    assert len(world.engine.tasks()) == 1
    world.wait(0.002)
    assert world.engine.tasks() == ()


@pytest.mark.parametrize("principal", ["", "ann"])
@pytest.mark.parametrize("down", ERAS)
def test_a_record_has_the_owner_of_the_task(down: Era, principal: str) -> None:
    """Owner and payer are those of the principal. A session is recorded only if nothing else identifies the client."""
    world = scene(offer=Offer.ALWAYS)
    for tag in "ab":
        world.begin(world.party(down, principal=principal), tag)
    one, two = world.store.tasks.values()
    assert (one.owner, one.payer) == (two.owner, two.payer)
    is_of_session = down is LEGACY and not principal
    assert (bool(one.sid), bool(two.sid)) == (is_of_session, is_of_session)
    assert (one.sid == two.sid) is not is_of_session
    assert (one.era, one.tool, one.server) == ("handshake" if down is LEGACY else "stateless", "work", "s")


def test_the_owner_depends_on_era_and_principal() -> None:
    """The payer depends on the principal alone."""
    world = scene(offer=Offer.ALWAYS)
    for down in ERAS:
        for principal in ("", "ann", "bob"):
            world.begin(world.party(down, principal=principal), f"{down}{principal}")
    records = list(world.store.tasks.values())
    assert len({record.owner for record in records}) == 6
    assert len({record.payer for record in records}) == 3
    assert all(len(record.owner) == len(record.payer) == 32 for record in records)


BOUNDS: list[tuple[str, dict[str, Any], bool, bool]] = [
    # The last two: whether there is room for a second session of the principal, and for another principal.
    ("tasks_per_session_max", {"tasks_per_session_max": 2}, True, True),
    ("tasks_per_principal_max", {"tasks_per_principal_max": 2}, False, True),
    ("tasks_max", {"tasks_max": 2}, False, False),
]


@pytest.mark.parametrize(("name", "limits", "for_second", "for_other"), BOUNDS)
def test_each_bound_counts_as_its_name_says(
    name: str, limits: dict[str, Any], for_second: bool, for_other: bool
) -> None:
    """A call that is not to be a task is sent all the same. Room comes back when the time of a task is over, not when
    it ends."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(task_ttl_s=60.0, task_ttl_max_s=60.0, **limits))
    party = world.party(LEGACY, principal="ann")
    works = [world.begin(party, tag)[1] for tag in "ab"]
    refused = party.call("c")
    world.run()
    text_ = f"there are 2 tasks, the most allowed ({name}): wait until some are over their time"
    assert refused.error == {"code": OVERLOADED, "message": text_}
    plain = party.call("d", as_task=False)
    world.run()
    assert plain.reply is None
    world.server.finish(world.server.work("d"), text("done"))
    world.run()
    assert plain.result["content"] == text("done")["content"]
    for who, is_taken, tag in (("ann", for_second, "e"), ("bob", for_other, "f")):
        asked = world.party(LEGACY, principal=who).call(tag)
        world.wait(GRACE_S)
        assert (asked.code is None) is is_taken, who
    world.server.finish(works[0], text("done"))
    world.wait(1.0)
    assert party.call("g").code == OVERLOADED
    world.wait(60.0)
    again = party.call("h")
    world.wait(GRACE_S)
    assert "task" in again.result


def test_a_place_is_kept_for_a_call_until_it_is_over() -> None:
    """A running call may still become a task. One that did not frees its place."""
    world = scene(kind=Kind.PIPE, limits=Limits(tasks_max=1))
    party = world.party(MODERN)
    first = party.call("a")
    world.run()
    second = party.call("b")
    world.run()
    world.wait(world.limits.task_after_s + 1.0)
    assert first.result["resultType"] == "task"
    assert second.reply is None, "it goes on as a call"
    world.server.finish(world.server.work("b"), text("done"))
    world.run()
    assert second.result["content"] == text("done")["content"]
    world = scene(kind=Kind.PIPE, limits=Limits(tasks_max=1))
    party = world.party(MODERN)
    for tag in "ab":
        asked = party.call(tag)
        world.run()
        world.server.finish(world.server.work(tag), text("done"))
        world.run()
        assert asked.result["resultType"] == "complete"
    last = party.call("c")
    world.wait(world.limits.task_after_s + 1.0)
    assert last.result["resultType"] == "task"


def test_the_place_of_a_task_is_kept_until_its_record_is_gone() -> None:
    """The task is given up before anybody is told of it, while its record is being saved."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(tasks_max=1))
    leaving, staying = world.party(MODERN), world.party(LEGACY)
    world.store.is_slow = True
    asked = leaving.call("a")
    world.wait(GRACE_S)
    leaving.hang_up(asked)
    assert world.engine.tasks() == ()
    assert staying.call("b").code == OVERLOADED
    world.store.is_slow = False
    world.store.deliver(world.world)
    world.run()
    assert not world.store.tasks
    again = staying.call("c")
    world.wait(GRACE_S)
    assert again.result["task"]["status"] == "working"


@pytest.mark.parametrize(("later_s", "has_room"), [(-0.25, False), (0.0, True), (0.25, True)])
@pytest.mark.parametrize("name", [name for name, *_ in BOUNDS])
def test_a_task_whose_time_is_over_makes_room_before_its_timer_is_handled(
    name: str, later_s: float, has_room: bool
) -> None:
    """A request for the task says from that very moment on that it is unknown."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(task_ttl_s=64.0, task_ttl_max_s=64.0, **{name: 1}))
    party = world.party(LEGACY, principal="ann")
    id, _ = world.begin(party, "a")
    (task,) = world.engine.tasks()
    world.world.now = task.expires_at_unix - UNIX_AT_ZERO + later_s
    asked = party.call("b")
    assert (asked.reply is None) is has_room
    assert party.get(id).code == (INVALID_PARAMS if has_room else None)
    if not has_room:
        assert asked.code == OVERLOADED
        return
    world.wait(GRACE_S)
    (other,) = world.engine.tasks()
    assert other.id == asked.result["task"]["taskId"] != id
