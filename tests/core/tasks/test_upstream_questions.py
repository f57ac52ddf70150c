"""Tests of questions that a server without sessions asks during a task: who answers them, and how many there may be."""

from __future__ import annotations

import random
from typing import Any

import pytest
from driving import LINK_KEY, UNIX_AT_ZERO, Driver
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, Kind, LocatorMode, OutputLocator, Plan, ServerPlan
from isthmus.core.base.revisions import Era
from isthmus.core.bulk import BulkEngine
from stateless_driving import ANSWERS
from task_clients import Party
from task_scenes import Scene, scene
from task_servers import TaskServer, Work

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
FORM, ROOTS, SAMPLE = "elicitation/create", "roots/list", "sampling/createMessage"


class SceneWithFiles(Scene):
    """A scene whose server has files, so that its roots are folders of the proxy."""

    def _begin(self) -> None:
        producer = ArtifactProducer(tools=("w",), output_locator=OutputLocator(mode=LocatorMode.NONE))
        plan = Plan(
            servers=(ServerPlan(id="s", kind=self.kind, era=self.up, tasks=self.rules, producers=(producer,)),),
            link_keys=(LINK_KEY,),
            workspaces_path="/w",
        )
        self.store.begin()
        entropy = random.Random(self.seed).randbytes
        engine = BulkEngine(plan, entropy=entropy, unix_at_zero=UNIX_AT_ZERO, has_storage=True, limits=self.limits)
        self.world = Driver(engine, now=self.now)
        self.server = TaskServer(self.world, "s", self.up, has_tasks=self.has_tasks)


def begun(*, has_files: bool = False, kind: Kind = Kind.PIPE, **limits: Any) -> tuple[Scene, Party, Work]:
    """Returns a client that waits for the outcome of a task of such a server."""
    world = scene(MODERN, kind, has_tasks=True, limits=Limits(**limits))
    if has_files:
        world = SceneWithFiles(kind, MODERN, True, world.rules, world.limits)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    party.result(id)
    return world, party, work


@pytest.mark.parametrize("has_files", [False, True])
def test_roots_of_the_proxy_are_answered_without_the_client(has_files: bool) -> None:
    """The proxy answers with its own folders at once. Without files the question goes to the client, as other questions
    always do."""
    world, party, work = begun(has_files=has_files)
    world.server.ask(work, "r", ROOTS)
    world.server.ask(work, "q", FORM)
    world.wait(5.0)
    assert len(party.received(ROOTS)) == (not has_files)
    assert len(party.received(FORM)) == 1
    if has_files:
        (answer,) = work.given["r"]
        assert answer["roots"]
        assert all(root["uri"].startswith("file:///w/") for root in answer["roots"])
    else:
        assert work.given["r"] == []
    assert work.given["q"] == []
    party.reply(party.received(FORM)[0]["id"], ANSWERS[FORM])
    world.wait(5.0)
    assert work.given["q"] == [ANSWERS[FORM]]


@pytest.mark.parametrize("method", [FORM, ROOTS, SAMPLE])
def test_an_invalid_answer_is_not_passed_on(method: str) -> None:
    """The protocol has no refusal here: a form gets "cancel", and any other question gets no answer."""
    world, party, work = begun()
    world.server.ask(work, "q", method)
    world.wait(5.0)
    (question,) = party.received(method)
    party.reply(question["id"], {"none": "of it"})
    world.wait(5.0)
    refusal_notes = [
        note for note in world.world.notes("info") if note.startswith("a client's answer cannot be given on: ")
    ]
    assert work.given["q"] == ([{"action": "cancel"}] if method == FORM else [])
    assert len(refusal_notes) == 1
    before = len(party.received(method))
    world.wait(30.0)
    assert len(party.received(method)) == before, "it is asked once"


def test_a_question_for_an_undeclared_capability_is_noted() -> None:
    world = scene(MODERN, has_tasks=True)
    party = world.party(MODERN)
    assert party.modern is not None
    party.modern.capabilities = {name: can for name, can in party.modern.capabilities.items() if name != "sampling"}
    _, work = world.begin(party, "a", "must")
    world.server.ask(work, "s", SAMPLE)
    world.wait(30.0)
    noted = "a task asks for sampling/createMessage, which its client does not offer"
    assert [note for note in world.world.notes("info") if "a task asks" in note] == [noted]


@pytest.mark.parametrize("most", [1, 2])
def test_so_many_questions_are_asked_in_all(most: int) -> None:
    """The bound is the number of open questions times the number of rounds, whether questions were answered or not."""
    world, party, work = begun(task_questions_max=most, rounds_max=2)
    for number in range(6):
        world.server.ask(work, f"q{number}")
        world.wait(5.0)
        asked = party.received(FORM)
        if len(asked) == number + 1:
            party.reply(asked[-1]["id"], ANSWERS[FORM])
            world.wait(5.0)
    assert [question["params"]["message"] for question in party.received(FORM)] == [f"q{n}" for n in range(2 * most)]
    assert "a task asks more than can be asked: left unanswered" in world.world.notes("warning")


def test_a_withdrawn_question_has_its_reason() -> None:
    world, party, work = begun()
    world.server.ask(work, "q")
    world.wait(5.0)
    (question,) = party.received(FORM)
    world.server.withdraw(work, "q")
    world.wait(5.0)
    (cancelled,) = party.received("notifications/cancelled")
    assert cancelled["params"] == {"requestId": question["id"], "reason": "it is not asked any more"}


def test_an_answer_resets_the_poll_interval() -> None:
    """The pauses that grew before do not count any more."""
    world, party, work = begun()
    world.wait(300.0)
    world.server.ask(work, "q")
    world.wait(120.0)
    (question,) = party.received(FORM)
    party.reply(question["id"], ANSWERS[FORM])
    world.run()
    before = work.polls
    world.wait(1.5)
    assert work.given["q"] == [ANSWERS[FORM]]
    assert work.polls > before


def test_an_answer_is_passed_on_at_once() -> None:
    world, party, work = begun()
    world.server.ask(work, "q")
    world.wait(5.0)
    (question,) = party.received(FORM)
    party.reply(question["id"], ANSWERS[FORM])
    world.run()
    assert work.given["q"] == [ANSWERS[FORM]]


def test_a_question_that_was_withdrawn_leaves_its_place_to_another() -> None:
    world, party, work = begun(task_questions_max=1, rounds_max=4)
    world.server.ask(work, "q1")
    world.wait(5.0)
    world.server.withdraw(work, "q1")
    world.wait(5.0)
    world.server.ask(work, "q2")
    world.wait(5.0)
    assert [question["params"]["message"] for question in party.received(FORM)] == ["q1", "q2"]
