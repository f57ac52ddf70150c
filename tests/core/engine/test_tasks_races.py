"""Tasks whose server, client or storage does two things at once, or fails between two steps."""

from __future__ import annotations

from typing import Any

import pytest
from driving import Heard
from isthmus.core.base.effects import Cause, End
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from stateless_driving import ANSWERS
from task_scenes import GRACE_S, scene
from task_servers import Twin, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
ERAS = [LEGACY, MODERN]
LONG = text("a long outcome")


# --- The server -------------------------------------------------------------------------------------------------------


def test_a_task_of_a_server_that_declares_none_is_no_answer() -> None:
    """Its client knows of no tasks there, and is told that the server is wrong."""
    world = scene(MODERN, offer=Offer.NEVER)
    party = world.party(LEGACY, is_plain=True)
    asked = party.call("a")
    world.run()
    work = world.server.work("a")
    work.id, work.is_answered = "up-1", True
    world.server.answer(work.heard, {"resultType": "task", **world.server.task(work)})
    world.wait(1.0)
    assert "expected a result" in asked.error["message"]


@pytest.mark.parametrize("up", ERAS)
def test_a_task_that_is_over_when_it_is_made_is_looked_at_at_once(up: Era) -> None:
    world = scene(up, has_tasks=True, insists=True)
    asked = world.party(LEGACY, is_plain=True).call("a", "must")
    world.run()
    work = world.server.work("a")
    work.status, work.outcome = "completed", {"result": text("done")}
    world.server.accept(work, poll_ms=60_000)
    world.wait(GRACE_S)
    assert asked.result["content"] == text("done")["content"]


@pytest.mark.parametrize("up", ERAS)
def test_a_task_that_is_cancelled_when_it_is_made_is_no_result(up: Era) -> None:
    world = scene(up, has_tasks=True, insists=True)
    asked = world.party(LEGACY, is_plain=True).call("a", "must")
    world.run()
    work = world.server.work("a")
    work.status = "cancelled"
    world.server.accept(work, poll_ms=60_000)
    world.wait(GRACE_S)
    assert "cancelled" in asked.error["message"]


def test_an_outcome_that_does_not_come_is_asked_for_again() -> None:
    """The task is over, and the first request for what it came to stays without an answer."""
    world = scene(LEGACY, has_tasks=True, insists=True)
    server, fetched = world.server, []

    def keep_first(heard: Heard, method: str, params: dict[str, Any]) -> None:
        if method == "tasks/result":
            fetched.append(heard)
        if method != "tasks/result" or len(fetched) > 1:
            type(server)._receive_verb(server, heard, method, params)

    server._receive_verb = keep_first  # type: ignore[method-assign]
    asked = world.party(LEGACY, is_plain=True).call("a", "must")
    world.run()
    work = server.accept(server.work("a"))
    world.wait(1.0)
    assert len(fetched) == 1
    server.finish(work, text("done"))
    world.wait(300.0)
    assert asked.result["content"] == text("done")["content"]


@pytest.mark.parametrize("verb", ["tasks/get", "tasks/result"])
@pytest.mark.parametrize("up", ERAS)
def test_a_look_that_breaks_off_is_made_again(up: Era, verb: str) -> None:
    """Over HTTP: the connection is lost, and not the task."""
    world = scene(up, Kind.HTTP, has_tasks=True, insists=True)
    server, lost = world.server, []

    def lose_one(heard: Heard, method: str, params: dict[str, Any]) -> None:
        if method == verb and not lost:
            lost.append(heard)
            world.world.end(heard.channel, Cause(End.BROKEN))
        else:
            type(server)._receive_verb(server, heard, method, params)

    server._receive_verb = lose_one  # type: ignore[method-assign]
    asked = world.party(LEGACY, is_plain=True).call("a", "must")
    world.run()
    work = server.accept(server.work("a"))
    world.wait(30.0)
    assert bool(lost) is (verb == "tasks/get" or up is LEGACY)
    server.finish(work, text("done"))
    world.wait(300.0)
    assert asked.result["content"] == text("done")["content"]


def test_a_question_that_the_client_refuses_is_left_open() -> None:
    """For a model's answer there is no word that says so: the server goes on without, or gives up."""
    world = scene(MODERN, has_tasks=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    waiting = party.result(id)
    world.server.ask(work, "s", "sampling/createMessage")
    world.wait(5.0)
    (question,) = party.heard("sampling/createMessage")
    party.reply(question["id"], {"role": 7})
    world.wait(5.0)
    assert work.given["s"] == []
    world.server.withdraw(work, "s")
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert waiting.result["content"] == text("done")["content"]


def test_two_answers_are_each_given_once() -> None:
    world = scene(MODERN, has_tasks=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    party.result(id)
    for key in ("r", "s"):
        world.server.ask(work, key, "roots/list")
    world.wait(5.0)
    for question in party.heard("roots/list"):
        party.reply(question["id"], ANSWERS["roots/list"])
    world.wait(60.0)
    assert [work.given[key] for key in ("r", "s")] == [[ANSWERS["roots/list"]]] * 2


# --- The storage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [LONG, text("done")], ids=["blob", "record"])
@pytest.mark.parametrize("era", ERAS)
def test_who_cancels_while_the_outcome_is_stored_has_cancelled(era: Era, said: dict[str, Any]) -> None:
    """Nothing of the outcome is left in the storage."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(task_inline_max_bytes=60))
    party = world.party(era)
    id, work = world.begin(party, "a")
    world.store.is_slow = True
    world.server.finish(work, said)
    world.run()
    assert world.store.held
    party.cancel(id)
    world.run()
    world.store.is_slow = False
    world.store.deliver(world.world)
    world.wait(1.0)
    assert world.status(party, id) == "cancelled"
    assert world.store.blobs == {}


@pytest.mark.parametrize("limit", [10, 10_000], ids=["blob", "record"])
@pytest.mark.parametrize("era", ERAS)
def test_an_outcome_that_cannot_be_stored(era: Era, limit: int) -> None:
    """One that is small is kept in memory and given all the same; of a large one the client learns that it is lost."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(task_inline_max_bytes=limit))
    party = world.party(era)
    id, work = world.begin(party, "a")
    world.store.is_failing = True
    world.server.finish(work, LONG)
    world.wait(1.0)
    if limit == 10_000:
        assert world.status(party, id) == "completed"
        assert any("is lost with this process" in note for note in world.world.notes("warning"))
    else:
        assert world.status(party, id) == "failed"
        asked = world.ask(party.get(id) if party.is_modern else party.result(id))
        assert "could not be stored" in str(asked.result["error"] if party.is_modern else asked.error)


def test_an_outcome_that_is_gone_from_the_storage_is_said_to_be() -> None:
    """A client without sessions reads it with the state, which it cannot then be told."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(task_inline_max_bytes=10))
    party = world.party(MODERN)
    id, work = world.begin(party, "a")
    world.server.finish(work, LONG)
    world.wait(1.0)
    world.store.blobs.clear()
    assert "cannot be read" in world.ask(party.get(id)).error["message"]


# --- The client -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("member", ["content", "_meta"])
@pytest.mark.parametrize("era", ERAS)
def test_an_outcome_that_says_two_things_is_shown_to_nobody(era: Era, member: str) -> None:
    """Each member of it has to be told from the others, to say beside them which task it is of."""
    world = scene(LEGACY, offer=Offer.ALWAYS)
    party = world.party(era)
    id, work = world.begin(party, "a")
    world.server.finish(work, {"content": [], "_meta": {}, Twin(member): {"a": 1}})
    world.wait(1.0)
    asked = world.ask(party.get(id) if party.is_modern else party.result(id))
    assert asked.reply is not None
    assert "twice" in str(asked.reply)


@pytest.mark.parametrize("cursor", ["", "after", "after-", "after-x", "7"])
def test_a_cursor_that_was_not_given_is_refused(cursor: str) -> None:
    world = scene(offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    world.begin(party, "a")
    assert "not given out here" in world.ask(party.listing(cursor)).error["message"]


def test_answers_that_say_two_things_are_refused() -> None:
    """The question stays open."""
    world = scene(LEGACY, has_tasks=True)
    party = world.party(MODERN)
    id, work = world.begin(party, "a", "must")
    world.server.ask(work, "r", "roots/list")
    world.wait(1.0)
    (key,) = world.ask(party.get(id)).result["inputRequests"]
    answer = ANSWERS["roots/list"]
    assert world.ask(party.update(id, {key: answer, Twin(key): answer})).code is not None
    assert work.given["r"] == []
    assert "error" not in (world.ask(party.update(id, {key: answer})).reply or {})
    world.run()
    assert len(work.given["r"]) == 1
