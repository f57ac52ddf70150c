"""Tests of replicas that keep the limits of tasks together."""

from __future__ import annotations

import pytest
from isthmus.core.base.errors import OVERLOADED
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from isthmus.core.base.shares import SKEW_S
from isthmus.core.base.storage import Load, Save
from isthmus.core.state.shared_limits import RESERVE_S, RETURNED_AFTER_S
from isthmus.core.tasks.quota import PREFIX
from task_clients import ClientRequest, Party
from task_scenes import GRACE_S, Scene, scene
from task_servers import text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
TTL_S = 64.0


def pair(offer: Offer = Offer.AUTO, **limits: int) -> tuple[Scene, Scene]:
    """Returns the replicas `a` and `b` over one storage."""
    all_limits = Limits(task_ttl_s=TTL_S, task_ttl_max_s=TTL_S, **limits)
    a = scene(LEGACY, Kind.PIPE, replica="a", offer=offer, limits=all_limits)
    return a, a.beside("b")


def ann(world: Scene, era: Era = LEGACY) -> Party:
    return world.party(era, principal="ann", down="http" if era is LEGACY else "pipe")


def called(world: Scene, party: Party, tag: str = "t") -> ClientRequest:
    asked = party.call(tag)
    world.wait(GRACE_S)
    return asked


def orders(world: Scene) -> int:
    """The number of orders for shares."""
    found = [*world.world.every(Load), *world.world.every(Save)]
    return sum(order.key.startswith(PREFIX) for order in found)


@pytest.mark.parametrize("name", ["tasks_max", "tasks_per_principal_max"])
def test_the_tasks_of_all_replicas_are_not_more_than_the_limit(name: str) -> None:
    """The client of a call that is to become one more is refused. When one is over its time, there is a place."""
    a, b = pair(Offer.ALWAYS, **{name: 3})
    one, two = ann(a), ann(b)
    assert [called(a, one, tag).result["task"]["status"] for tag in "xy"] == ["working"] * 2
    assert called(b, two).result["task"]["status"] == "working"
    refused = called(b, two, "u")
    assert refused.code == OVERLOADED
    assert name in refused.error["message"]
    assert len(a.store.tasks) == 3
    a.wait(TTL_S + RETURNED_AFTER_S)
    b.wait(TTL_S + RETURNED_AFTER_S)
    assert called(b, two, "v").result["task"]["status"] == "working"


def test_replicas_that_race_for_the_last_task_agree() -> None:
    a, b = pair(Offer.ALWAYS, tasks_max=1)
    parties = [(world, ann(world)) for world in (a, b)]
    asked = [party.call("t") for _, party in parties]
    for _ in range(20):
        for world, _ in parties:
            world.store.attend(world.world)
    for world, _ in parties:
        world.wait(GRACE_S)
    assert sorted(str(each.code) for each in asked) == sorted([str(OVERLOADED), "None"])
    assert len(a.store.tasks) == 1


def test_the_place_of_a_task_whose_replica_was_killed_is_free_when_its_time_is_over() -> None:
    a, b = pair(Offer.ALWAYS, tasks_max=1)
    called(a, ann(a))
    two = ann(b)
    b.wait(TTL_S)
    assert called(b, two, "u").code == OVERLOADED
    b.wait(RESERVE_S + SKEW_S)
    assert called(b, two, "v").result["task"]["status"] == "working"


def test_a_call_without_a_task_costs_nothing_and_a_task_less_than_one_order() -> None:
    a, _ = pair()
    plain, party = a.party(LEGACY, is_plain=True), ann(a, MODERN)
    asked = called(a, plain)
    a.server.finish(a.server.work("t"), text("done"))
    a.run()
    assert asked.result["content"] == text("done")["content"]
    assert orders(a) == 0
    for number in range(10):
        asked = party.call(str(number))
        a.wait(a.limits.task_after_s + 1.0)
        assert asked.result["resultType"] == "task"
    assert orders(a) <= 10


def test_a_call_that_need_not_be_a_task_stays_a_call_if_there_is_no_place() -> None:
    a, b = pair(tasks_max=1)
    first = ann(a, MODERN).call("t")
    a.wait(a.limits.task_after_s + 1.0)
    assert first.result["resultType"] == "task"
    second = ann(b, MODERN).call("u")
    b.wait(b.limits.task_after_s + 1.0)
    b.server.finish(b.server.work("u"), text("done"))
    b.run()
    assert second.result["content"] == text("done")["content"]


def test_a_storage_that_is_away_refuses_tasks_alone() -> None:
    a, _ = pair(Offer.ALWAYS)
    party, plain = ann(a), a.party(LEGACY, is_plain=True)
    a.store.is_failing = True
    refused = called(a, party)
    assert refused.code == OVERLOADED
    assert "no task could be made of the call: " in refused.error["message"]
    asked = called(a, plain, "p")
    a.server.finish(a.server.work("p"), text("done"))
    a.run()
    assert asked.result["content"] == text("done")["content"]
    a.store.is_failing = False
    assert called(a, party, "u").result["task"]["status"] == "working"
