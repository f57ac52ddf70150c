"""What servers and clients are told of tasks, word by word, and what is let go with them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from driving import Heard, request, result
from isthmus.core.base.errors import OUTCOME_UNKNOWN
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from stateless_driving import ACCEPT, FORM
from task_clients import Asked, Party
from task_scenes import GRACE_S, Scene, scene
from task_servers import RELATED, Work, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS


def hidden(world: Scene) -> tuple[Party, Asked, Work]:
    """A call of a client that knows no tasks, of which its server has made one."""
    party = world.party(LEGACY, is_plain=True)
    asked = party.call("a", "must")
    world.run()
    return party, asked, world.server.accept(world.server.work("a"))


# --- To clients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [{}, {"content": []}], ids=["nothing", "something"])
def test_a_task_comes_to_the_very_result(said: dict[str, Any]) -> None:
    """Whatever is in it, and if that is nothing."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party = world.party(MODERN)
    id, work = world.begin(party, "a", "must")
    world.server.finish(work, said)
    world.wait(60.0)
    shown = world.ask(party.get(id)).result
    assert shown["status"] == "completed"
    outcome = dict(shown["result"])
    outcome.pop("_meta", None)
    assert outcome == said


def test_a_failure_is_told_with_its_reason() -> None:
    """Of a call's own error as much as fits, of a tool's that there was one."""
    world = scene(offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    ids = {}
    for tag in "abc":
        ids[tag], work = world.begin(party, tag)
        if tag == "a":
            world.server.fail(work, -32000, "out of paper")
        elif tag == "b":
            world.server.fail(work, -32000, "x" * 401)
        else:
            world.server.finish(work, {**text("no"), "isError": True})
    world.wait(1.0)
    shown = {tag: world.ask(party.get(id)).result for tag, id in ids.items()}
    assert {one["status"] for one in shown.values()} == {"failed"}
    messages = {tag: one["statusMessage"] for tag, one in shown.items()}
    assert messages == {"a": "out of paper", "b": "x" * 400, "c": "the tool reported an error"}


def test_who_withdraws_a_question_is_said_to_ask_it_no_more() -> None:
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    asked = party.result(id)
    world.server.ask(work, "q")
    world.wait(5.0)
    assert world.status(party, id) == "input_required"
    (question,) = party.heard("elicitation/create")
    world.server.withdraw(work, "q")
    world.wait(5.0)
    (told,) = party.heard("notifications/cancelled")
    assert told["params"] == {"requestId": question["id"], "reason": "it is not asked any more"}
    assert world.status(party, id) == "working"
    assert asked.reply is None


@pytest.mark.parametrize("down", ["http", "pipe"])
def test_a_question_that_was_withdrawn_is_not_shown(down: str) -> None:
    world = scene(LEGACY, has_tasks=True)
    party = world.party(MODERN, down=down)
    id, work = world.begin(party, "a", "must")
    world.server.ask(work, "q")
    world.server.ask(work, "r")
    world.wait(1.0)
    assert len(world.ask(party.get(id)).result["inputRequests"]) == 2
    world.server.withdraw(work, "q")
    world.run()
    (entry,) = world.ask(party.get(id)).result["inputRequests"].values()
    assert entry["params"]["message"] == "r"
    world.server.withdraw(work, "r")
    world.run()
    assert world.status(party, id) == "working"
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert world.status(party, id) == "completed"


# --- To servers -------------------------------------------------------------------------------------------------------


def test_signs_of_life_are_counted_for_who_wants_them() -> None:
    """A second question, without a token, does not make them skip a number."""
    world = scene(LEGACY, has_tasks=True)
    party = world.party(MODERN)
    _, work = world.begin(party, "a", "must")
    meta = {RELATED: {"taskId": work.id}}
    signs: list[int] = []

    def note(heard: Heard, frame: dict[str, Any]) -> None:
        if frame["method"] == "notifications/progress":
            signs.append(frame["params"]["progress"])
        world.world.acknowledge(heard)

    world.server._receive_notice = note  # type: ignore[method-assign]
    for key, said in (("q", meta), ("r", {**meta, "progressToken": "t"})):
        params = {**json.loads(FORM), "_meta": said}
        world.world.say(work.heard.channel, request(json.dumps(key), "elicitation/create", json.dumps(params)))
    world.wait(3.5 * world.limits.park_tick_s)
    assert signs == [1, 2, 3]


def test_an_answer_reaches_its_server_while_that_is_looked_at() -> None:
    """The answer goes up at once; it is not looked at once more for that."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    party.result(id)
    world.server.ask(work, "q")
    world.wait(5.0)
    (question,) = party.heard("elicitation/create")
    verb, silent = world.server._receive_verb, []

    def slow(heard: Heard, method: str, params: dict[str, Any]) -> None:
        if method == "tasks/get":
            silent.append(heard)
        else:
            verb(heard, method, params)

    world.server._receive_verb = slow  # type: ignore[method-assign]
    world.wait(10.0)
    assert len(silent) == 1
    party.reply(question["id"], ACCEPT)
    world.run()
    assert [said["action"] for said in work.given["q"]] == ["accept"]
    world.wait(10.0)
    assert len(silent) == 1


def test_a_word_of_its_task_is_a_word_of_its_server() -> None:
    """A call is given up after silence, and what is said of its task is none."""
    limits = Limits(reply_timeout_s=12.0, task_poll_max_s=600.0, ask_timeout_s=5.0, notice_timeout_s=600.0)
    world = scene(LEGACY, Kind.HTTP, has_tasks=True, limits=limits)
    _, asked, work = hidden(world)
    world.run()
    world.server._receive_verb = lambda heard, method, params: None  # type: ignore[method-assign]
    for _ in range(3):
        world.wait(10.0)
        assert asked.reply is None
        world.server.announce(work)
    world.wait(13.0)
    assert "said nothing for 12 s" in asked.error["message"]


@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_a_look_that_takes_too_long_is_let_go(up: Era) -> None:
    """The next is another request."""
    world = scene(up, Kind.HTTP, has_tasks=True, insists=True)
    _, asked, work = hidden(world)
    world.wait(0.5)
    verb, silent = world.server._receive_verb, []
    world.server._receive_verb = lambda heard, method, params: silent.append(heard)  # type: ignore[method-assign]
    world.wait(world.limits.task_poll_max_s + world.limits.notice_timeout_s + 1.0)
    looks = [heard for heard in silent if heard.frame["method"] == "tasks/get"]
    assert world.world.closed[looks[0].channel].reason == "it took too long"
    world.server._receive_verb = verb  # type: ignore[method-assign]
    world.server.finish(work, text("done"))
    world.wait(2 * world.limits.task_poll_max_s + world.limits.notice_timeout_s)
    assert asked.result["content"] == text("done")["content"]


def test_who_gives_up_on_a_call_waits_for_no_outcome() -> None:
    """The request for it is let go, and nothing else of the server's."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    party = world.party(LEGACY, is_plain=True)
    calls = {tag: party.call(tag, "must") for tag in "ab"}
    world.run()
    works = {tag: world.server.accept(world.server.work(tag)) for tag in "ab"}
    world.wait(1.0)
    fetching = {tag: work.fetching[0].channel for tag, work in works.items()}
    assert party.legacy is not None
    party.legacy.notify("notifications/cancelled", json.dumps({"requestId": calls["a"].id}))
    world.run()
    assert works["a"].stops == ["tasks/cancel"]
    assert fetching["a"] in world.world.closed
    assert fetching["b"] not in world.world.closed
    world.server.finish(works["b"], text("done"))
    world.wait(1.0)
    assert calls["b"].result["content"] == text("done")["content"]


# --- What is let go ---------------------------------------------------------------------------------------------------


def test_what_was_no_task_in_the_end_has_no_end_of_its_time() -> None:
    """Its client went before it was told of it."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(task_ttl_s=30.0, task_ttl_max_s=30.0))
    party = world.party(MODERN)
    world.store.is_slow = True
    asked = party.call("a")
    world.wait(GRACE_S)
    party.hang_up(asked)
    world.run()
    while world.store.held:
        world.store.deliver(world.world)
        world.run()
    assert not any(purpose == "task" for purpose, _ in world.engine._desk.timers._live)
    world.wait(60.0)
    assert world.engine.tasks() == ()


def test_who_stops_leaves_every_task_to_its_server() -> None:
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    party = world.party(LEGACY)
    works = [world.begin(party, tag, "must")[1] for tag in "abc"]
    world.world.stop()
    world.run()
    assert [work.stops for work in works] == [[], [], []]
    assert {record.status.value for record in world.store.tasks.values()} == {"working"}


def test_who_stops_says_of_every_call_that_it_was_lost() -> None:
    world = scene(offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    works = [world.begin(party, tag)[1] for tag in "abc"]
    world.world.stop()
    world.run()
    assert [work.stops for work in works] == [["notifications/cancelled"]] * 3
    records = world.store.tasks.values()
    assert [record.status.value for record in records] == ["failed"] * 3
    assert {record.message for record in records} == {
        "the proxy was stopped while the call ran: what became of it is not known"
    }


# --- When servers are looked at ---------------------------------------------------------------------------------------


def looks(world: Scene, *, answers: bool = True) -> list[float]:
    """When its server is looked at from now on, in seconds."""
    began, verb, found = world.world.now, world.server._receive_verb, []

    def note(heard: Heard, method: str, params: dict[str, Any]) -> None:
        if method == "tasks/get":
            found.append(round(world.world.now - began, 3))
        if answers:
            verb(heard, method, params)
        else:
            world.server.refuse(heard, -32603, "out of order")

    world.server._receive_verb = note  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize(
    ("poll_ms", "expected"),
    [
        (10_000, [10.0, 20.0, 30.0]),
        (None, [7.0, 14.0, 21.0, 28.0]),
        (60_000, [15.0, 30.0]),
    ],
)
def test_a_task_that_is_waited_for_is_looked_at_as_often_as_its_server_wants(
    poll_ms: int | None, expected: list[float]
) -> None:
    limits = Limits(task_poll_s=7.0, task_poll_max_s=15.0)
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True, limits=limits)
    party = world.party(LEGACY, is_plain=True)
    party.call("a", "must")
    world.run()
    found = looks(world)
    work = world.server.accept(world.server.work("a"), poll_ms=poll_ms)
    world.wait(30.5)
    assert found == expected
    assert work.polls == len(expected)


def test_no_server_is_looked_at_without_a_pause() -> None:
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party = world.party(LEGACY, is_plain=True)
    party.call("a", "must")
    world.run()
    found = looks(world)
    world.server.accept(world.server.work("a"), poll_ms=0)
    world.wait(0.22)
    assert found == [0.05, 0.1, 0.15, 0.2]


def test_a_task_that_nobody_waits_for_is_looked_at_less_and_less() -> None:
    limits = Limits(task_poll_max_s=4.0)
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True, limits=limits)
    party = world.party(LEGACY)
    party.call("a", "must")
    world.run()
    found = looks(world)
    world.server.accept(world.server.work("a"), poll_ms=1000)
    world.wait(17.0)
    assert found == [1.0, 2.5, 4.75, 8.125, 12.125, 16.125]


def test_who_waits_has_it_looked_at_as_often_as_ever() -> None:
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party = world.party(LEGACY)
    id, _ = world.begin(party, "a", "must")
    party.result(id)
    world.wait(60.0)
    found = looks(world)
    world.wait(3.5)
    assert [round(later - earlier, 3) for earlier, later in pairwise(found)] == [1.0, 1.0]


def test_a_server_out_of_order_is_looked_at_less_and_less() -> None:
    """And as before once it is back."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party = world.party(LEGACY)
    party.call("a", "must")
    world.run()
    found = looks(world, answers=False)
    work = world.server.accept(world.server.work("a"), poll_ms=100)
    world.wait(70.0)
    assert found == [0.1, 1.1, 3.1, 7.1, 15.1, 31.1, 61.1]
    assert party.heard("notifications/tasks/status") == []
    del world.server._receive_verb
    world.server.finish(work, text("done"))
    world.wait(30.0)
    assert [frame["params"]["status"] for frame in party.heard("notifications/tasks/status")] == ["completed"]


def test_a_server_that_pushes_is_looked_at_seldom() -> None:
    """It is asked for the outcome, and answers when there is one: looking finds out whether it still knows the task."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    party = world.party(LEGACY, is_plain=True)
    party.call("a", "must")
    world.run()
    found = looks(world)
    world.server.accept(world.server.work("a"), poll_ms=1000)
    world.wait(65.0)
    assert found == [30.0, 60.0]


# --- Answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
def test_an_answer_that_says_twice_what_it_is_about_is_told_as_an_error(kind: Kind) -> None:
    world = scene(LEGACY, kind, has_tasks=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    party.result(id)
    world.server.ask(work, "q")
    world.run()
    (question,) = party.heard("elicitation/create")
    assert party.legacy is not None
    party.legacy.say(result(json.dumps(question["id"]), '{"action":"accept","_meta":{},"_meta":{}}'))
    world.run()
    ((said,),) = (work.given["q"],)
    assert said["error"]["code"] == -32600
    assert "_meta" in said["error"]["message"]


@pytest.mark.parametrize("has_tasks", [True, False])
def test_an_answer_names_the_task_as_its_server_does(has_tasks: bool) -> None:
    """Or none, where it has none."""
    world = scene(LEGACY, has_tasks=has_tasks, offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must" if has_tasks else "work")
    party.result(id)
    world.server.ask(work, "q")
    world.run()
    (question,) = party.heard("elicitation/create")
    assert question["params"]["_meta"][RELATED] == {"taskId": id}
    party.reply(question["id"], {**ACCEPT, "_meta": {RELATED: {"taskId": id}}})
    world.run()
    (said,) = work.given["q"]
    assert said.get("_meta", {}).get(RELATED) == ({"taskId": work.id} if has_tasks else None)
    assert said["action"] == "accept"


@pytest.mark.parametrize("answer", [{"action": "decline"}, {"action": "cancel"}])
def test_what_a_client_declines_is_told_as_that(answer: dict[str, Any]) -> None:
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    party.result(id)
    world.server.ask(work, "q")
    world.wait(5.0)
    (question,) = party.heard("elicitation/create")
    party.reply(question["id"], answer)
    world.run()
    assert work.given["q"] == [answer]


def test_a_process_takes_its_tasks_with_it() -> None:
    """Of a call whose task was there, it is not known what became of it."""
    world = scene(LEGACY, has_tasks=True)
    _, asked, work = hidden(world)
    world.run()
    world.server.die(work)
    world.run()
    assert asked.error["code"] == OUTCOME_UNKNOWN
    assert asked.error["data"] == {"outcome": "unknown"}
    assert "The call may have run; it is not repeated" in asked.error["message"]
