"""Tests of servers that are lost while they work on tasks, and of servers that cannot get a cancellation."""

from __future__ import annotations

import json
from typing import Any

import pytest
import task_servers
from driving import FORGOTTEN, SentMessage
from isthmus.core.base.effects import Note
from isthmus.core.base.errors import OUTCOME_UNKNOWN
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind
from isthmus.core.base.revisions import Era
from task_clients import ClientRequest, Party
from task_scenes import Scene, scene
from task_servers import Work, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS


def hidden(world: Scene, party: Party, tag: str = "a") -> tuple[ClientRequest, Work]:
    """Returns a call of a client that knows no tasks, of which the server has made one."""
    asked = party.call(tag, "must")
    world.run()
    work = world.server.accept(world.server.work(tag))
    world.run()
    return asked, work


def give_up(world: Scene, party: Party, asked: ClientRequest) -> None:
    assert party.legacy is not None
    party.legacy.notify("notifications/cancelled", json.dumps({"requestId": asked.id}))
    world.run()


def notes(world: Scene, word: str) -> list[tuple[str, str, str]]:
    return [(note.level, note.text, note.server) for note in world.world.every(Note) if word in note.text]


# --- Cancelling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cancels", [True, False])
def test_a_server_that_cannot_cancel_gets_no_cancellation(monkeypatch: pytest.MonkeyPatch, cancels: bool) -> None:
    """A note says that the task goes on, and the server is not polled any more."""
    ability = {name: value for name, value in task_servers.ABILITY.items() if cancels or name != "cancel"}
    monkeypatch.setattr(task_servers, "ABILITY", ability)
    world = scene(LEGACY, has_tasks=True)
    party = world.party(LEGACY, is_plain=True)
    asked, work = hidden(world, party)
    give_up(world, party, asked)
    received = list(world.server.received)
    world.wait(100.0)
    assert world.server.received == received
    assert work.stops == (["tasks/cancel"] if cancels else [])
    text_ = "a task goes on though nobody wants it: its server cannot cancel"
    assert notes(world, "nobody wants it") == ([] if cancels else [("info", text_, "s")])


def test_an_unreachable_server_gets_no_cancellation() -> None:
    """The server has forgotten the session, and has not answered the new `initialize` yet."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    party = world.party(LEGACY, is_plain=True)
    asked, work = hidden(world, party)
    receive, initializes = world.server._receive, []

    def keep_initialize(received: SentMessage) -> None:
        if received.frame.get("method") == "initialize":
            initializes.append(received)
        else:
            receive(received)

    world.server._receive = keep_initialize  # type: ignore[method-assign]
    other = party.call("b", "silent")
    world.world.end(world.world.take_sent("tools/call").channel, FORGOTTEN)
    world.run()
    assert len(initializes) == 1
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


@pytest.mark.parametrize(("members", "is_cancelled"), ORPHANS, ids=str)
@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_the_task_of_a_cancelled_call_is_cancelled_if_it_runs(
    up: Era, members: dict[str, Any], is_cancelled: bool
) -> None:
    """The call was cancelled before the server made a task of it."""
    world = scene(up, has_tasks=True, insists=up is MODERN)
    party = world.party(LEGACY, is_plain=True)
    asked = party.call("a", "must")
    world.run()
    work = world.server.work("a")
    give_up(world, party, asked)
    world.server.count += 1
    work.id, work.began = "up-9", "2020-01-01T00:00:00Z"
    shown = {**world.server.task(work), **members}
    world.server.answer(work.received, {"resultType": "task", **shown} if up is MODERN else {"task": shown})
    world.run()
    assert ("tasks/cancel" in world.server.received) is is_cancelled


def test_an_orphan_is_cancelled_once() -> None:
    """A second answer is dropped. An answer that is no task, or an error, needs no cancellation."""
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
                world.server.answer(work.received, {"task": world.server.task(work)})
            elif answer == "result":
                world.server.answer(work.received, text("done"))
            else:
                world.server.refuse(work.received, -32000, "no")
            world.run()
        assert world.server.received.count("tasks/cancel") == (1 if answer == "task" else 0)
        assert asked.reply is None


# --- Lost servers -----------------------------------------------------------------------------------------------------


def test_a_process_that_dies_ends_every_call_that_it_worked_on() -> None:
    """Each call gets the reason and an unknown outcome. Calls of another process go on."""
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
    """The tasks are polled as soon as there is a new session, and their outcome is requested again."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True, limits=Limits(restart_backoff_s=1.0))
    party = world.party(LEGACY, is_plain=True)
    asked = party.call("a", "must")
    world.run()
    work = world.server.accept(world.server.work("a"), poll_ms=poll_ms)
    world.run()
    assert work.fetches == 1
    requests: list[tuple[float, str]] = []
    began, receive = world.world.now, world.server._receive_task_request

    def note(received: SentMessage, method: str, params: dict[str, Any]) -> None:
        requests.append((round(world.world.now - began, 3), method))
        receive(received, method, params)

    world.server._receive_task_request = note  # type: ignore[method-assign]
    other = party.call("b", "silent")
    world.world.end(world.world.take_sent("tools/call").channel, FORGOTTEN)
    world.run()
    assert requests[0] == (0.0, "tasks/get")
    assert asked.reply is None
    world.server.finish(work, text("done"))
    world.wait(40.0)
    assert asked.result["content"] == text("done")["content"]
    assert other.reply is None
