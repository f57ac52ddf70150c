"""When a server is asked how its task fares, and for its outcome: to the moment, and with which words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from driving import Heard
from isthmus.core.base.effects import Cause, End
from isthmus.core.base.errors import OUTCOME_UNKNOWN
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind
from isthmus.core.base.revisions import Era
from task_clients import Asked, Party
from task_scenes import Scene, scene
from task_servers import Work, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
GET, RESULT = "tasks/get", "tasks/result"


def verbs(world: Scene, *, answer: Callable[[Heard, str], bool] | None = None) -> list[tuple[float, str]]:
    """When its server hears of tasks from now on. `answer` says what it answers itself, and is True for that."""
    began, verb, found = world.world.now, world.server._receive_verb, []

    def note(heard: Heard, method: str, params: dict[str, Any]) -> None:
        found.append((round(world.world.now - began, 3), method))
        if answer is None or not answer(heard, method):
            verb(heard, method, params)

    world.server._receive_verb = note  # type: ignore[method-assign]
    return found


def called(world: Scene, *, is_plain: bool = False, token: str | None = None) -> tuple[Party, Asked, Work]:
    """A call that its server is about to make a task of."""
    party = world.party(LEGACY, is_plain=is_plain)
    asked = party.call("a", "must", token=token)
    world.run()
    return party, asked, world.server.work("a")


# --- When a client looks ----------------------------------------------------------------------------------------------


def test_a_client_that_looks_has_its_server_looked_at_if_that_was_half_a_pause_ago() -> None:
    """Counted from when the task was made, and from each look; what was seen since is told at once."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party, asked, work = called(world)
    world.server.accept(work, poll_ms=8000)
    world.run()
    id = asked.result["task"]["taskId"]
    found = verbs(world)
    for pause_s in (0.0, 3.875, 0.125, 3.875, 0.125):
        world.wait(pause_s)
        assert world.status(party, id) == "working"
    assert found == [(4.0, GET), (8.0, GET)]
    world.wait(24.0)
    assert found[2:] == [(16.0, GET), (28.0, GET)], "the pause begins anew with each, and grows while nobody looks"


def test_a_look_is_shared_by_all_who_wait_for_it() -> None:
    """While it is under way another client's is no reason for another; all are told what it brings."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party, asked, work = called(world)
    world.server.accept(work, poll_ms=2000)
    world.run()
    id = asked.result["task"]["taskId"]
    held: list[Heard] = []

    def hold(heard: Heard, method: str) -> bool:
        held.append(heard)
        return True

    found = verbs(world, answer=hold)
    world.wait(1.0)
    looking = [party.get(id) for _ in range(3)]
    world.run()
    assert found == [(1.0, GET)]
    assert [one.reply for one in looking] == [None] * 3
    work.message = "nearly"
    (heard,) = held
    world.server.answer(heard, world.server.shown(work))
    world.run()
    assert [one.result["statusMessage"] for one in looking] == ["nearly"] * 3


# --- What was asked for does not come ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (None, [(0.0, RESULT), (2.0, GET), (4.0, GET), (6.0, GET)]),
        ("t", [(0.0, RESULT), (2.0, GET), (4.0, GET), (6.0, GET)]),
    ],
)
def test_a_server_whose_outcome_cannot_be_waited_for_is_looked_at(
    token: str | None, expected: list[tuple[float, str]]
) -> None:
    """As often as it wants to be, where the request for the outcome broke off."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    _, asked, work = called(world, is_plain=True, token=token)

    def lose(heard: Heard, method: str) -> bool:
        if method == RESULT and not work.outcome:
            world.world.end(heard.channel, Cause(End.BROKEN))
            return True
        return False

    found = verbs(world, answer=lose)
    world.server.accept(work, poll_ms=2000)
    world.wait(7.0)
    assert found == expected
    world.server.finish(work, text("done"))
    world.wait(2.0)
    assert asked.result["content"] == text("done")["content"]
    assert found[len(expected) :] == [(8.0, GET), (8.0, RESULT)]


def test_an_outcome_that_breaks_off_for_a_task_that_nobody_waits_for_costs_few_looks() -> None:
    """The next is after one pause of its server's, then they grow."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    _, _, work = called(world)

    def lose(heard: Heard, method: str) -> bool:
        if method == RESULT:
            world.world.end(heard.channel, Cause(End.BROKEN))
        return method == RESULT

    found = verbs(world, answer=lose)
    world.server.accept(work, poll_ms=2000)
    world.wait(20.0)
    assert found == [(0.0, RESULT), (2.0, GET), (5.0, GET), (9.5, GET), (16.25, GET)]


@pytest.mark.parametrize("is_looked_at", [True, False])
def test_an_error_for_an_outcome_is_told_by_one_look(is_looked_at: bool) -> None:
    """It may be the call's own, or say that it was asked too early: a look that is under way will tell."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    _, asked, work = called(world, is_plain=True, token="t")
    held: list[Heard] = []

    def hold(heard: Heard, method: str) -> bool:
        held.append(heard)
        return True

    found = verbs(world, answer=hold)
    world.server.accept(work, poll_ms=2000)
    world.wait(2.5 if is_looked_at else 1.5)
    expected = [(0.0, RESULT), (2.0, GET)] if is_looked_at else [(0.0, RESULT)]
    assert found == expected
    world.server.refuse(held[0], -32000, "the call's own")
    world.run()
    assert found == (expected if is_looked_at else [*expected, (1.5, GET)])
    work.status = "failed"
    work.outcome = {"error": {"code": -32000, "message": "the call's own"}}
    world.server.answer(held[1], world.server.shown(work))
    world.run()
    assert found[2:] == [(2.5 if is_looked_at else 1.5, RESULT)]
    world.server.refuse(held[2], -32000, "the call's own")
    world.run()
    assert asked.error == {"code": -32000, "message": "the call's own"}


def test_a_server_that_knows_nothing_of_its_task_has_said_why_before() -> None:
    """Its task went with the error that it fetched: that is the outcome, and not that the task is unknown."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    _, asked, work = called(world, is_plain=True)

    def refuse(heard: Heard, method: str) -> bool:
        error = (-32000, "out of paper") if method == RESULT else (-32602, "Task not found")
        world.server.refuse(heard, *error)
        return True

    found = verbs(world, answer=refuse)
    world.server.accept(work)
    world.run()
    assert found == [(0.0, RESULT), (0.0, GET)]
    assert asked.error == {"code": -32000, "message": "out of paper"}


def test_a_server_that_knows_its_task_no_more_ends_the_call() -> None:
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    _, asked, work = called(world, is_plain=True)
    world.server.accept(work, poll_ms=1000)
    world.server.lose(work)
    world.wait(1.0)
    assert asked.error == {
        "code": OUTCOME_UNKNOWN,
        "message": "the server does not know the task any more: what became of it cannot be told",
    }


def test_what_a_server_says_instead_of_how_its_task_fares_is_noted_and_told_at_last() -> None:
    """Three times in a row it may; who waits is told the error itself, and the pauses double from the usual one."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True, limits=Limits(resume_failures_max=3))
    _, asked, work = called(world, is_plain=True)

    def refuse(heard: Heard, method: str) -> bool:
        world.server.refuse(heard, -32000, "out of order")
        return True

    found = verbs(world, answer=refuse)
    world.server.accept(work, poll_ms=500)
    world.wait(20.0)
    assert found == [(0.5, GET), (1.5, GET), (3.5, GET), (7.5, GET)]
    said = "a task could not be looked at: it says of its task: out of order"
    assert world.world.notes("info").count(said) == 3
    assert asked.error == {"code": -32000, "message": "out of order"}


@pytest.mark.parametrize("is_told", [False, True])
def test_a_look_whose_connection_breaks_is_made_again_after_a_pause(is_told: bool) -> None:
    """Each look is a request, and each pause is twice the last; who waits is told why in the end, if it is a call."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True, limits=Limits(resume_failures_max=2))
    _, asked, work = called(world, is_plain=not is_told)

    def lose(heard: Heard, method: str) -> bool:
        world.world.end(heard.channel, Cause(End.BROKEN, "cut off"))
        return True

    found = verbs(world, answer=lose)
    world.server.accept(work, poll_ms=500)
    world.wait(12.0)
    schedule = [(0.5, GET), (1.5, GET), (3.5, GET), (7.5, GET)]
    assert found == (schedule if is_told else schedule[:3])
    if not is_told:
        assert asked.error["code"] == OUTCOME_UNKNOWN
        assert asked.error["message"].startswith("the server was lost before its task was over: ")
        assert asked.error["message"].endswith(". The call may have run")


def test_a_cancellation_that_does_not_arrive_is_noted() -> None:
    """Nobody is told: who cancelled has its answer already."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party, asked, work = called(world, is_plain=True)

    def lose(heard: Heard, method: str) -> bool:
        if method == "tasks/cancel":
            world.world.end(heard.channel, Cause(End.BROKEN, "cut off"))
        return method == "tasks/cancel"

    found = verbs(world, answer=lose)
    world.server.accept(work, poll_ms=500)
    world.wait(0.25)
    assert party.legacy is not None
    party.legacy.notify("notifications/cancelled", json.dumps({"requestId": asked.id}))
    world.wait(30.0)
    assert found == [(0.25, "tasks/cancel")]
    notes = [note for note in world.world.notes("warning") if note.startswith("a task could not be cancelled: ")]
    assert len(notes) == 1
    assert asked.reply is None


@pytest.mark.parametrize("how", ["breaks", "is refused"])
def test_who_looks_is_answered_as_soon_as_the_look_has_failed(how: str) -> None:
    """With what was known before."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party, asked, work = called(world)
    world.server.accept(work, poll_ms=2000)
    world.run()

    def lose(heard: Heard, method: str) -> bool:
        if how == "breaks":
            world.world.end(heard.channel, Cause(End.BROKEN, "cut off"))
        else:
            world.server.refuse(heard, -32000, "out of order")
        return True

    found = verbs(world, answer=lose)
    world.wait(1.5)
    looking = party.get(asked.result["task"]["taskId"])
    world.run()
    assert found == [(1.5, GET)]
    assert looking.result["status"] == "working"


def test_so_many_cancelled_calls_may_become_tasks_yet_and_are_cancelled_then() -> None:
    """Of more than 256, those that were cancelled first are not looked at any more."""
    world = scene(LEGACY, has_tasks=True)
    party = world.party(LEGACY, is_plain=True)
    assert party.legacy is not None
    for number in range(257):
        asked = party.call(f"t{number}", "must")
        world.run()
        party.legacy.notify("notifications/cancelled", json.dumps({"requestId": asked.id}))
    world.run()
    stops = []
    for number in (0, 1, 256):
        work = world.server.work(f"t{number}")
        world.server.accept(work)
        world.run()
        stops.append(work.stops)
    told = "notifications/cancelled"
    assert stops == [[told], [told, "tasks/cancel"], [told, "tasks/cancel"]]


def test_one_good_look_makes_up_for_those_that_failed() -> None:
    """It is failures in a row that count."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True, limits=Limits(resume_failures_max=2))
    _, asked, work = called(world, is_plain=True)
    count = 0

    def refuse(heard: Heard, method: str) -> bool:
        nonlocal count
        count += 1
        if count % 3 == 0:
            return False
        world.server.refuse(heard, -32000, "out of order")
        return True

    verbs(world, answer=refuse)
    world.server.accept(work, poll_ms=1000)
    world.wait(60.0)
    assert count > 6
    assert asked.reply is None
