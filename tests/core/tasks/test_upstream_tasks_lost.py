"""Servers that are lost while they work on tasks, and those that cannot be told that a task is not wanted any more."""

from __future__ import annotations

import json
from typing import Any

import pytest
import task_servers
from driving import FORGOTTEN, Heard
from isthmus.core.base.effects import Note
from isthmus.core.base.errors import OUTCOME_UNKNOWN
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind
from isthmus.core.base.revisions import Era
from task_clients import Asked, Party
from task_scenes import Scene, scene
from task_servers import Work, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS


def hidden(world: Scene, party: Party, tag: str = "a") -> tuple[Asked, Work]:
    """A call of a client that knows no tasks, of which its server has made one."""
    asked = party.call(tag, "must")
    world.run()
    work = world.server.accept(world.server.work(tag))
    world.run()
    return asked, work


def give_up(world: Scene, party: Party, asked: Asked) -> None:
    assert party.legacy is not None
    party.legacy.notify("notifications/cancelled", json.dumps({"requestId": asked.id}))
    world.run()


def notes(world: Scene, word: str) -> list[tuple[str, str, str]]:
    return [(note.level, note.text, note.server) for note in world.world.every(Note) if word in note.text]


# --- Cancelling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cancels", [True, False])
def test_a_server_that_cannot_cancel_is_not_told_to(monkeypatch: pytest.MonkeyPatch, cancels: bool) -> None:
    """It is noted that the task goes on; nobody asks for it any more."""
    ability = {name: said for name, said in task_servers.ABILITY.items() if cancels or name != "cancel"}
    monkeypatch.setattr(task_servers, "ABILITY", ability)
    world = scene(LEGACY, has_tasks=True)
    party = world.party(LEGACY, is_plain=True)
    asked, work = hidden(world, party)
    give_up(world, party, asked)
    heard = list(world.server.heard)
    world.wait(100.0)
    assert world.server.heard == heard
    assert work.stops == (["tasks/cancel"] if cancels else [])
    text_ = "a task goes on though nobody wants it: its server cannot cancel"
    assert notes(world, "nobody wants it") == ([] if cancels else [("info", text_, "s")])


def test_a_server_that_cannot_be_reached_is_not_told_either() -> None:
    """It has forgotten the session, and has not greeted again yet."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    party = world.party(LEGACY, is_plain=True)
    asked, work = hidden(world, party)
    receive, greetings = world.server._receive, []

    def greet_late(heard: Heard) -> None:
        if heard.frame.get("method") == "initialize":
            greetings.append(heard)
        else:
            receive(heard)

    world.server._receive = greet_late  # type: ignore[method-assign]
    other = party.call("b", "silent")
    world.world.end(world.world.hear("tools/call").channel, FORGOTTEN)
    world.run()
    assert len(greetings) == 1
    assert other.reply is None
    give_up(world, party, asked)
    assert work.stops == []
    text_ = "a task could not be cancelled: its server cannot be reached"
    assert notes(world, "could not be cancelled") == [("warning", text_, "s")]


ORPHANS: list[tuple[dict[str, Any], bool]] = [
    ({"status": "working"}, True),
    ({"status": "input_required"}, True),
    ({"status": "completed"}, False),
    ({"status": "failed"}, False),
    ({"status": "cancelled"}, False),
    ({"status": 7}, False),
    ({"taskId": 7}, False),
]


@pytest.mark.parametrize(("said", "is_cancelled"), ORPHANS, ids=str)
@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_a_task_that_nobody_knows_of_is_cancelled_if_it_runs(up: Era, said: dict[str, Any], is_cancelled: bool) -> None:
    """Its call was cancelled before the server made one of it."""
    world = scene(up, has_tasks=True, insists=up is MODERN)
    party = world.party(LEGACY, is_plain=True)
    asked = party.call("a", "must")
    world.run()
    work = world.server.work("a")
    give_up(world, party, asked)
    world.server.count += 1
    work.id, work.began = "up-9", "2020-01-01T00:00:00Z"
    shown = {**world.server.task(work), **said}
    world.server.answer(work.heard, {"resultType": "task", **shown} if up is MODERN else {"task": shown})
    world.run()
    assert ("tasks/cancel" in world.server.heard) is is_cancelled


def test_an_orphan_is_cancelled_once() -> None:
    """A second answer is nobody's; and what is no task, or an error, is nothing to cancel."""
    for answer in ("task", "result", "error"):
        world = scene(LEGACY, has_tasks=True)
        party = world.party(LEGACY, is_plain=True)
        asked = party.call("a", "must")
        world.run()
        work = world.server.work("a")
        give_up(world, party, asked)
        for _ in range(2):
            if answer == "task":
                work.id, work.began = "up-9", "2020-01-01T00:00:00Z"
                world.server.answer(work.heard, {"task": world.server.task(work)})
            elif answer == "result":
                world.server.answer(work.heard, text("done"))
            else:
                world.server.refuse(work.heard, -32000, "no")
            world.run()
        assert world.server.heard.count("tasks/cancel") == (1 if answer == "task" else 0)
        assert asked.reply is None


# --- Lost -------------------------------------------------------------------------------------------------------------


def test_a_process_that_dies_ends_every_call_that_it_worked_on() -> None:
    """Each with the reason, and with what is known of it; those of another process go on."""
    world = scene(LEGACY, has_tasks=True)
    party, other = (world.party(LEGACY, is_plain=True) for _ in range(2))
    calls = [hidden(world, party, tag) for tag in ("a", "b")]
    going, _ = hidden(world, other, "c")
    world.server.die(calls[0][1])
    world.run()
    for asked, work in calls:
        error = asked.error
        assert error["code"] == OUTCOME_UNKNOWN
        assert error["data"] == {"outcome": "unknown"}
        assert error["message"].startswith("the server was lost before its task was over: ")
        assert "exited with code 1" in error["message"]
        assert error["message"].endswith(". The call may have run; it is not repeated")
        assert work.stops == []
    assert going.reply is None


@pytest.mark.parametrize("poll_ms", [500, 4000])
def test_tasks_of_a_server_that_forgot_its_session_go_on(poll_ms: int) -> None:
    """They are looked at as soon as it has greeted again, and their outcome is asked for anew."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True, limits=Limits(restart_backoff_s=1.0))
    party = world.party(LEGACY, is_plain=True)
    asked = party.call("a", "must")
    world.run()
    work = world.server.accept(world.server.work("a"), poll_ms=poll_ms)
    world.run()
    assert work.fetches == 1
    verbs: list[tuple[float, str]] = []
    began, receive = world.world.now, world.server._receive_verb

    def note(heard: Heard, method: str, params: dict[str, Any]) -> None:
        verbs.append((round(world.world.now - began, 3), method))
        receive(heard, method, params)

    world.server._receive_verb = note  # type: ignore[method-assign]
    other = party.call("b", "silent")
    world.world.end(world.world.hear("tools/call").channel, FORGOTTEN)
    world.run()
    assert verbs[0] == (0.0, "tasks/get")
    assert asked.reply is None
    world.server.finish(work, text("done"))
    world.wait(40.0)
    assert asked.result["content"] == text("done")["content"]
    assert other.reply is None
