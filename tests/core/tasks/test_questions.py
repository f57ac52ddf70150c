"""Tests of questions during tasks: which clients get them, with which messages, and the state of the task meanwhile."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import UNIX_AT_ZERO, request
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from stateless_driving import ACCEPT, ANSWERS, QUESTIONS
from task_clients import Party
from task_scenes import Scene, scene
from task_servers import RELATED, Work, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
ERAS = [LEGACY, MODERN]
SERVERS = [(LEGACY, False), (LEGACY, True), (MODERN, True)]


def asked(down: Era, up: Era, has_tasks: bool, *, limits: Limits | None = None) -> tuple[Scene, Party, str, Work]:
    """Returns a task whose server has asked `q`. A client with a session waits for its outcome."""
    world = scene(
        up, Kind.HTTP, has_tasks=has_tasks, insists=up is MODERN, offer=Offer.ALWAYS, limits=limits or Limits()
    )
    party = world.party(down)
    id, work = world.begin(party, "a", "must" if has_tasks else "work")
    if down is LEGACY:
        party.result(id)
    world.server.ask(work, "q")
    world.wait(5.0)
    return world, party, id, work


def statuses(party: Party) -> list[str]:
    return [frame["params"]["status"] for frame in party.received("notifications/tasks/status")]


@pytest.mark.parametrize(("up", "has_tasks"), SERVERS)
def test_each_change_of_state_is_notified_once(up: Era, has_tasks: bool) -> None:
    """The status is notified once for each: the question, the answer, and the end."""
    world, party, id, work = asked(LEGACY, up, has_tasks)
    assert statuses(party) == ["input_required"]
    (question,) = party.received("elicitation/create")
    assert question["params"]["_meta"] == {RELATED: {"taskId": id}}
    party.reply(question["id"], ACCEPT)
    world.run()
    assert statuses(party) == ["input_required", "working"]
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert statuses(party) == ["input_required", "working", "completed"]
    assert party.received("notifications/cancelled") == []


@pytest.mark.parametrize("end", ["finished", "cancelled"])
@pytest.mark.parametrize(("up", "has_tasks"), SERVERS)
def test_a_question_of_a_task_that_is_over_is_withdrawn(up: Era, has_tasks: bool, end: str) -> None:
    """The client gets the reason. A server with sessions gets the answer "cancel", and one without sessions gets
    none."""
    world, party, id, work = asked(LEGACY, up, has_tasks)
    (question,) = party.received("elicitation/create")
    if end == "finished":
        world.server.finish(work, text("done"))
    else:
        world.ask(party.cancel(id))
    world.wait(5.0)
    (cancelled,) = party.received("notifications/cancelled")
    assert cancelled["params"] == {"requestId": question["id"], "reason": "the task is over"}
    assert [answer["action"] for answer in work.given["q"]] == (["cancel"] if up is LEGACY else [])


@pytest.mark.parametrize("method", list(QUESTIONS))
@pytest.mark.parametrize(("up", "has_tasks"), SERVERS)
@pytest.mark.parametrize("down", ERAS)
def test_the_first_answer_to_a_question_counts(down: Era, up: Era, has_tasks: bool, method: str) -> None:
    """A second answer to the same question is dropped. Each kind of question is tried across each pair of eras."""
    world = scene(up, Kind.HTTP, has_tasks=has_tasks, insists=up is MODERN, offer=Offer.ALWAYS)
    party = world.party(down)
    id, work = world.begin(party, "a", "must" if has_tasks else "work")
    if down is LEGACY:
        party.result(id)
    world.server.ask(work, "q", method)
    world.wait(5.0)
    if down is LEGACY:
        (question,) = party.received(method)
        for _ in range(2):
            party.reply(question["id"], ANSWERS[method])
            world.wait(2.0)
    else:
        shown = world.ask(party.get(id)).result
        assert shown["status"] == "input_required"
        ((key, entry),) = shown["inputRequests"].items()
        assert entry["method"] == method
        for _ in range(2):
            world.ask(party.update(id, {key: ANSWERS[method]}))
            world.wait(2.0)
    assert [{name: answer[name] for name in ANSWERS[method]} for answer in work.given["q"]] == [ANSWERS[method]]
    assert world.status(party, id) == "working"


def test_some_of_several_questions_may_be_answered() -> None:
    """The task waits for the rest, under their own keys. An unknown key is ignored."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    party = world.party(MODERN)
    id, work = world.begin(party, "a", "must")
    for key in ("q", "r", "s"):
        world.server.ask(work, key)
    world.run()
    shown = world.ask(party.get(id)).result["inputRequests"]
    by_text = {entry["params"]["message"]: key for key, entry in shown.items()}
    assert list(by_text) == ["q", "r", "s"]
    world.ask(party.update(id, {by_text["r"]: {"action": "decline"}, "unknown": ACCEPT}))
    given = {key: [one["action"] for one in answers] for key, answers in work.given.items()}
    assert given == {"q": [], "r": ["decline"], "s": []}
    left = world.ask(party.get(id)).result
    assert (left["status"], set(left["inputRequests"])) == ("input_required", {by_text["q"], by_text["s"]})
    error = world.ask(party.update(id, {by_text["q"]: ACCEPT, by_text["s"]: {"action": 7}}))
    assert error.code == -32602
    assert {key: len(answers) for key, answers in work.given.items()} == {"q": 0, "r": 1, "s": 0}, "none was taken"
    world.ask(party.update(id, {by_text["q"]: ACCEPT, by_text["s"]: ACCEPT}))
    assert {key: len(answers) for key, answers in work.given.items()} == {"q": 1, "r": 1, "s": 1}
    assert world.status(party, id) == "working"


def ask_with_ids(world: Scene, work: Work, count: int, **params: Any) -> list[dict[str, Any]]:
    """Asks so many questions, with the ids x0, x1 … Returns the list of responses that the server gets."""
    received: list[dict[str, Any]] = []
    world.server._receive_answer = lambda one, frame: (  # type: ignore[method-assign]
        received.append(frame),
        world.world.acknowledge(one),
    )
    for number in range(count):
        question = {**json.loads(QUESTIONS["elicitation/create"]), "_meta": {RELATED: {"taskId": work.id}}, **params}
        world.world.send(
            work.received.channel, request(json.dumps(f"x{number}"), "elicitation/create", json.dumps(question))
        )
    world.run()
    return received


@pytest.mark.parametrize("count", [3, 4])
def test_a_question_too_many_is_refused(count: int) -> None:
    """The error says how many are open. The other questions stay open."""
    world = scene(LEGACY, has_tasks=True, limits=Limits(task_questions_max=3))
    party = world.party(MODERN)
    id, work = world.begin(party, "a", "must")
    received = ask_with_ids(world, work, count)
    assert len(world.ask(party.get(id)).result["inputRequests"]) == 3
    text = "3 questions of one task are open, the most allowed"
    expected = {"jsonrpc": "2.0", "id": "x3", "error": {"code": -32603, "message": text}}
    assert received == ([expected] if count == 4 else [])


def test_a_question_for_a_missing_capability_is_refused() -> None:
    """The error is the one for a missing capability, and the task goes on."""
    world = scene(LEGACY, has_tasks=True, offer=Offer.ALWAYS)
    party = world.party(MODERN)
    assert party.modern is not None
    party.modern.capabilities = {"extensions": party.modern.capabilities["extensions"]}
    id, work = world.begin(party, "a", "must")
    (refused,) = ask_with_ids(world, work, 1)
    assert (refused["id"], refused["error"]["code"]) == ("x0", -32602)
    assert world.status(party, id) == "working"


@pytest.mark.parametrize(("up", "has_tasks"), SERVERS)
@pytest.mark.parametrize("down", ERAS)
def test_each_change_of_a_task_is_dated(down: Era, up: Era, has_tasks: bool) -> None:
    """The date is the proxy's time of the change. Without a change it stays."""
    world, party, id, work = asked(down, up, has_tasks)

    def updated() -> tuple[str, float]:
        (shown,) = world.engine.tasks()
        return shown.status, round(shown.updated_at_unix - UNIX_AT_ZERO, 3)

    status, first = updated()
    assert status == "input_required"
    world.wait(3.0)
    assert updated() == (status, first)
    if down is LEGACY:
        (question,) = party.received("elicitation/create")
        party.reply(question["id"], ACCEPT)
    else:
        (key,) = world.ask(party.get(id)).result["inputRequests"]
        party.update(id, {key: ACCEPT})
    world.run()
    answered = round(world.world.now, 3)
    assert updated() == ("working", answered)
    world.wait(3.0)
    assert updated() == ("working", answered)
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert updated()[0] == "completed"
    assert updated()[1] >= answered + 3.0
