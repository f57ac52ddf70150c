"""What a server says of its task, what it does not, and what is left when nobody waits any more."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from driving import Heard, notification
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind
from isthmus.core.base.revisions import Era
from task_clients import Party
from task_scenes import scene
from task_servers import text

from tests.core.tasks.test_upstream_tasks import GET, LEGACY, MODERN, called, verbs

# --- Progress ---------------------------------------------------------------------------------------------------------


def progress(party: Party) -> list[tuple[float, str | None]]:
    return [
        (frame["params"]["progress"], frame["params"].get("message")) for frame in party.heard("notifications/progress")
    ]


def test_what_a_server_says_of_its_task_is_progress_once_for_each_new_word() -> None:
    """Counted from 1, with its words, under the client's token; the same word again is none."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party, _, work = called(world, is_plain=True, token="mine")
    world.server.accept(work, poll_ms=1000)
    for message in ("one", "one", None, "two", "three"):
        work.message = message
        world.wait(1.0)
    assert progress(party) == [(1, "one"), (2, "two"), (3, "three")]
    assert {frame["params"]["progressToken"] for frame in party.heard("notifications/progress")} == {"mine"}


def test_a_server_that_tells_of_progress_itself_is_believed_more_than_its_words() -> None:
    """What its words would count is told only where that is more than it said itself: progress never goes back."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    party, _, work = called(world, is_plain=True, token="mine")
    world.server.accept(work, poll_ms=1000)
    world.wait(0.5)
    world.server.report(work, 2)
    for message in ("one", "two", "three", "four"):
        work.message = message
        world.server.announce(work)
        world.run()
    assert progress(party) == [(2, None), (3, "three"), (4, "four")]


@pytest.mark.parametrize("is_plain", [True, False])
def test_progress_that_nobody_asked_for_is_nobodys(is_plain: bool) -> None:
    """The server tells of a call that named no token, under the number that it knows it by."""
    world = scene(LEGACY, has_tasks=True)
    party, _, work = called(world, is_plain=is_plain)
    world.server.accept(work)
    world.run()
    before = party.heard("notifications/progress")
    for number in (work.heard.id, str(work.heard.id)):
        said = json.dumps({"progressToken": number, "progress": 1})
        world.world.say(work.heard.channel, notification("notifications/progress", said))
    world.run()
    assert party.heard("notifications/progress") == before == []


# --- How long it may be silent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_a_call_is_given_up_when_its_server_has_said_nothing_of_it_for_so_long(up: Era) -> None:
    """Each answer to a question of ours is a word of it; counted from the last."""
    limits = Limits(reply_timeout_s=12.0, task_poll_s=5.0, task_poll_max_s=5.0, notice_timeout_s=100.0)
    world = scene(up, Kind.HTTP, has_tasks=True, insists=up is MODERN, limits=limits)
    _, asked, work = called(world, is_plain=True)
    silent: list[Heard] = []

    def answer(heard: Heard, method: str) -> bool:
        if world.world.now > 151.0:
            silent.append(heard)
            return True
        return False

    found = verbs(world, answer=answer)
    world.server.accept(work, poll_ms=None)
    world.wait(51.0)
    assert [moment for moment, method in found if method == GET][-1] == 50.0
    assert asked.reply is None
    world.wait(10.75)
    assert asked.reply is None
    assert silent
    world.wait(0.25)
    assert asked.error["message"].startswith("the server said nothing for 12 s")


def test_nobody_is_woken_for_a_call_that_was_cancelled() -> None:
    """The server took that it was: there is nothing more to wait for."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True, limits=Limits(reply_timeout_s=60.0))
    party, asked, work = called(world, is_plain=True)
    world.server.accept(work)
    world.wait(0.5)
    assert party.legacy is not None
    party.legacy.notify("notifications/cancelled", json.dumps({"requestId": asked.id}))
    world.run()
    assert work.stops == ["tasks/cancel"]
    whys = set()
    while (deadline := world.engine.next_timeout()) is not None and deadline.at < world.world.now + 600.0:
        whys.add(deadline.why)
        world.wait(deadline.at - world.world.now)
    assert not whys & {"upstream reply", "task of the server's", "cancellation of a task"}


def test_a_server_has_its_time_to_take_that_a_call_was_cancelled() -> None:
    """And no more: then the request that says so is let go."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True, limits=Limits(notice_timeout_s=20.0))
    party, asked, work = called(world, is_plain=True)
    silent: list[Heard] = []

    def hold(heard: Heard, method: str) -> bool:
        silent.append(heard)
        return True

    verbs(world, answer=hold)
    world.server.accept(work)
    world.wait(0.5)
    assert party.legacy is not None
    party.legacy.notify("notifications/cancelled", json.dumps({"requestId": asked.id}))
    world.run()
    (cancel,) = silent
    assert cancel.frame["method"] == "tasks/cancel"
    world.wait(19.75)
    assert cancel.channel not in world.world.closed
    world.wait(0.25)
    assert world.world.closed[cancel.channel].reason == "nobody waits for it any more"


# --- Who waits --------------------------------------------------------------------------------------------------------


def test_a_task_is_looked_at_less_and_less_once_nobody_waits_any_more() -> None:
    """The one who waited for its outcome has gone: the pauses grow from there on."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party, asked, work = called(world)
    world.server.accept(work, poll_ms=2000)
    world.run()
    waiting = [party.result(asked.result["task"]["taskId"]) for _ in range(2)]
    found = verbs(world)
    world.wait(5.0)
    assert party.legacy is not None
    party.legacy.notify("notifications/cancelled", json.dumps({"requestId": waiting[0].id}))
    world.wait(3.5)
    party.legacy.notify("notifications/cancelled", json.dumps({"requestId": waiting[1].id}))
    assert [moment for moment, _ in found] == [2.0, 4.0, 6.0, 8.0]
    world.wait(22.0)
    pauses = [later - earlier for (earlier, _), (later, _) in pairwise(found[3:])]
    assert pauses == [2.0, 3.0, 4.5, 6.75]


# --- What is said unasked ---------------------------------------------------------------------------------------------


def test_a_server_without_sessions_may_say_by_itself_that_its_task_is_over() -> None:
    """Who waits for the call has its answer at once, before the server would be looked at; nobody else hears of it."""
    world = scene(MODERN, Kind.PIPE, has_tasks=True, insists=True)
    party, asked, work = called(world, is_plain=True)
    world.server.accept(work, poll_ms=20_000)
    world.wait(1.0)
    found = verbs(world)
    world.server.finish(work, text("done"))
    world.world.say(work.heard.channel, notification("notifications/tasks", json.dumps(world.server.shown(work))))
    world.run()
    assert asked.result["content"] == text("done")["content"]
    world.wait(60.0)
    assert found == [], "it is not looked at any more"
    assert party.heard("notifications/tasks") == []


# --- What a call leaves -----------------------------------------------------------------------------------------------


def test_a_question_of_a_call_that_is_over_goes_with_it() -> None:
    """It is not one of a task that goes on: whoever is asked is told, once, that nobody waits for the answer."""
    world = scene(MODERN, Kind.PIPE, has_tasks=True, insists=True)
    party, asked, work = called(world, is_plain=True)
    world.server.accept(work, poll_ms=1000)
    world.server.ask(work, "q")
    world.wait(2.0)
    (question,) = party.heard("elicitation/create")
    world.server.finish(work, text("done"))
    world.wait(2.0)
    assert asked.result["content"] == text("done")["content"]
    world.server.die(work)
    world.run()
    withdrawn = [{"requestId": question["id"], "reason": "what asked is over"}]
    assert [frame["params"] for frame in party.heard("notifications/cancelled")] == withdrawn


# --- What is asked ----------------------------------------------------------------------------------------------------


def test_a_server_is_asked_about_its_task_by_its_own_name_for_it_and_nothing_else() -> None:
    """With a session the id is all; without one, who asks is said as with each request."""
    for up in (LEGACY, MODERN):
        world = scene(up, Kind.HTTP, has_tasks=True, insists=up is MODERN)
        _, _, work = called(world, is_plain=True)
        heard: list[Heard] = []

        def hold(one: Heard, method: str, heard: list[Heard] = heard) -> bool:
            heard.append(one)
            return False

        verbs(world, answer=hold)
        world.server.accept(work, poll_ms=1000)
        world.wait(31.0)
        for one in heard:
            params = dict(one.frame["params"])
            meta = params.pop("_meta", None)
            assert params == {"taskId": work.id}
            assert (meta is None) is (up is LEGACY)
            if meta is not None:
                assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
                assert "io.modelcontextprotocol/logLevel" not in meta
                able = meta["io.modelcontextprotocol/clientCapabilities"]
                assert "io.modelcontextprotocol/tasks" in json.dumps(able)
