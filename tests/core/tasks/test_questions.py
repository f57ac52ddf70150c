"""Questions in the course of tasks: who is told of them, in which words, and what a task is meanwhile."""

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
WAYS = [(LEGACY, False), (LEGACY, True), (MODERN, True)]


def asked(down: Era, up: Era, has_tasks: bool, *, limits: Limits | None = None) -> tuple[Scene, Party, str, Work]:
    """A task whose server has asked `q`, of a client that waits for its outcome if it has a session."""
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
    return [frame["params"]["status"] for frame in party.heard("notifications/tasks/status")]


@pytest.mark.parametrize(("up", "has_tasks"), WAYS)
def test_a_client_is_told_of_each_turn_of_its_task(up: Era, has_tasks: bool) -> None:
    """That it is asked, that the task works again, and that it is over: each once."""
    world, party, id, work = asked(LEGACY, up, has_tasks)
    assert statuses(party) == ["input_required"]
    (question,) = party.heard("elicitation/create")
    assert question["params"]["_meta"] == {RELATED: {"taskId": id}}
    party.reply(question["id"], ACCEPT)
    world.run()
    assert statuses(party) == ["input_required", "working"]
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert statuses(party) == ["input_required", "working", "completed"]
    assert party.heard("notifications/cancelled") == []


@pytest.mark.parametrize("end", ["finished", "cancelled"])
@pytest.mark.parametrize(("up", "has_tasks"), WAYS)
def test_a_question_of_a_task_that_is_over_is_withdrawn(up: Era, has_tasks: bool, end: str) -> None:
    """Whoever is asked hears why; a server that asked by itself hears what closes the form, another nothing."""
    world, party, id, work = asked(LEGACY, up, has_tasks)
    (question,) = party.heard("elicitation/create")
    if end == "finished":
        world.server.finish(work, text("done"))
    else:
        world.ask(party.cancel(id))
    world.wait(5.0)
    (told,) = party.heard("notifications/cancelled")
    assert told["params"] == {"requestId": question["id"], "reason": "the task is over"}
    assert [said["action"] for said in work.given["q"]] == (["cancel"] if up is LEGACY else [])


@pytest.mark.parametrize("method", list(QUESTIONS))
@pytest.mark.parametrize(("up", "has_tasks"), WAYS)
@pytest.mark.parametrize("down", ERAS)
def test_a_question_is_answered_once_and_as_it_was(down: Era, up: Era, has_tasks: bool, method: str) -> None:
    """Each kind, on each way: the answer is the client's, and another for the same question is nobody's."""
    world = scene(up, Kind.HTTP, has_tasks=has_tasks, insists=up is MODERN, offer=Offer.ALWAYS)
    party = world.party(down)
    id, work = world.begin(party, "a", "must" if has_tasks else "work")
    if down is LEGACY:
        party.result(id)
    world.server.ask(work, "q", method)
    world.wait(5.0)
    if down is LEGACY:
        (question,) = party.heard(method)
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
    assert [{name: said[name] for name in ANSWERS[method]} for said in work.given["q"]] == [ANSWERS[method]]
    assert world.status(party, id) == "working"


def test_some_of_several_questions_may_be_answered() -> None:
    """The task waits for the rest, under their own keys; what is nobody's key is no answer, and does no harm."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    party = world.party(MODERN)
    id, work = world.begin(party, "a", "must")
    for key in ("q", "r", "s"):
        world.server.ask(work, key)
    world.run()
    shown = world.ask(party.get(id)).result["inputRequests"]
    by_text = {entry["params"]["message"]: key for key, entry in shown.items()}
    assert list(by_text) == ["q", "r", "s"]
    world.ask(party.update(id, {by_text["r"]: {"action": "decline"}, "nobody's": ACCEPT}))
    given = {key: [one["action"] for one in said] for key, said in work.given.items()}
    assert given == {"q": [], "r": ["decline"], "s": []}
    left = world.ask(party.get(id)).result
    assert (left["status"], set(left["inputRequests"])) == ("input_required", {by_text["q"], by_text["s"]})
    error = world.ask(party.update(id, {by_text["q"]: ACCEPT, by_text["s"]: {"action": 7}}))
    assert error.code == -32602
    assert {key: len(said) for key, said in work.given.items()} == {"q": 0, "r": 1, "s": 0}, "none was taken"
    world.ask(party.update(id, {by_text["q"]: ACCEPT, by_text["s"]: ACCEPT}))
    assert {key: len(said) for key, said in work.given.items()} == {"q": 1, "r": 1, "s": 1}
    assert world.status(party, id) == "working"


def told_the_server(world: Scene, work: Work, count: int, **params: Any) -> list[dict[str, Any]]:
    """What the server hears for so many questions under ids of its own."""
    heard: list[dict[str, Any]] = []
    world.server._receive_answer = lambda one, frame: (  # type: ignore[method-assign]
        heard.append(frame),
        world.world.acknowledge(one),
    )
    for number in range(count):
        said = {**json.loads(QUESTIONS["elicitation/create"]), "_meta": {RELATED: {"taskId": work.id}}, **params}
        world.world.say(work.heard.channel, request(json.dumps(f"x{number}"), "elicitation/create", json.dumps(said)))
    world.run()
    return heard


@pytest.mark.parametrize("count", [3, 4])
def test_a_question_too_many_is_refused(count: int) -> None:
    """Its server is told how many there are; the others are open."""
    world = scene(LEGACY, has_tasks=True, limits=Limits(task_questions_max=3))
    party = world.party(MODERN)
    id, work = world.begin(party, "a", "must")
    heard = told_the_server(world, work, count)
    assert len(world.ask(party.get(id)).result["inputRequests"]) == 3
    text = "3 questions of one task are open, the most allowed"
    expected = {"jsonrpc": "2.0", "id": "x3", "error": {"code": -32603, "message": text}}
    assert heard == ([expected] if count == 4 else [])


def test_a_question_that_its_client_cannot_be_asked_is_refused_in_its_stead() -> None:
    """With what a client says that has not declared it; the task works on."""
    world = scene(LEGACY, has_tasks=True, offer=Offer.ALWAYS)
    party = world.party(MODERN)
    assert party.modern is not None
    party.modern.capabilities = {"extensions": party.modern.capabilities["extensions"]}
    id, work = world.begin(party, "a", "must")
    (said,) = told_the_server(world, work, 1)
    assert (said["id"], said["error"]["code"]) == ("x0", -32602)
    assert world.status(party, id) == "working"


@pytest.mark.parametrize(("up", "has_tasks"), WAYS)
@pytest.mark.parametrize("down", ERAS)
def test_each_turn_of_a_task_is_dated(down: Era, up: Era, has_tasks: bool) -> None:
    """By our own clock, as of the moment that it came; what changes nothing leaves the date as it is."""
    world, party, id, work = asked(down, up, has_tasks)

    def updated() -> tuple[str, float]:
        (shown,) = world.engine.tasks()
        return shown.status, round(shown.updated_at_unix - UNIX_AT_ZERO, 3)

    status, first = updated()
    assert status == "input_required"
    world.wait(3.0)
    assert updated() == (status, first)
    if down is LEGACY:
        (question,) = party.heard("elicitation/create")
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
