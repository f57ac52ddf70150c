"""Tests of tasks whose server, client or storage does two things at once, or fails between two steps."""

from __future__ import annotations

from typing import Any

import pytest
from driving import SentMessage
from isthmus.core.base.events import Cause, End
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from stateless_driving import ANSWERS
from task_scenes import GRACE_S, scene
from task_servers import DuplicateKey, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
ERAS = [LEGACY, MODERN]
LONG = text("a long outcome")


# --- The server -------------------------------------------------------------------------------------------------------


def test_a_task_of_a_server_without_tasks_is_an_error() -> None:
    """The client knows no tasks of this server, and gets an error about its answer."""
    world = scene(MODERN, offer=Offer.NEVER)
    party = world.party(LEGACY, is_plain=True)
    asked = party.call("a")
    world.run()
    work = world.server.work("a")
    work.id, work.is_answered = "up-1", True
    world.server.answer(work.received, {"resultType": "task", **world.server.task(work)})
    world.wait(1.0)
    assert "expected a result" in asked.error["message"]


@pytest.mark.parametrize("up", ERAS)
def test_a_task_that_is_created_ended_is_fetched_at_once(up: Era) -> None:
    world = scene(up, has_tasks=True, insists=True)
    asked = world.party(LEGACY, is_plain=True).call("a", "must")
    world.run()
    work = world.server.work("a")
    work.status, work.outcome = "completed", {"result": text("done")}
    world.server.accept(work, poll_ms=60_000)
    world.wait(GRACE_S)
    assert asked.result["content"] == text("done")["content"]


@pytest.mark.parametrize("up", ERAS)
def test_a_task_that_is_created_cancelled_has_no_result(up: Era) -> None:
    world = scene(up, has_tasks=True, insists=True)
    asked = world.party(LEGACY, is_plain=True).call("a", "must")
    world.run()
    work = world.server.work("a")
    work.status = "cancelled"
    world.server.accept(work, poll_ms=60_000)
    world.wait(GRACE_S)
    assert "cancelled" in asked.error["message"]


def test_a_lost_request_for_an_outcome_is_repeated() -> None:
    """The task has ended, and the first request for its outcome gets no answer."""
    world = scene(LEGACY, has_tasks=True, insists=True)
    server, fetched = world.server, []

    def keep_first(received: SentMessage, method: str, params: dict[str, Any]) -> None:
        if method == "tasks/result":
            fetched.append(received)
        if method != "tasks/result" or len(fetched) > 1:
            type(server)._receive_task_request(server, received, method, params)

    server._receive_task_request = keep_first  # type: ignore[method-assign]
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
def test_a_poll_that_breaks_off_is_repeated(up: Era, verb: str) -> None:
    """Over HTTP the connection is lost, but not the task."""
    world = scene(up, Kind.HTTP, has_tasks=True, insists=True)
    server, lost = world.server, []

    def lose_one(received: SentMessage, method: str, params: dict[str, Any]) -> None:
        if method == verb and not lost:
            lost.append(received)
            world.world.end(received.channel, Cause(End.BROKEN))
        else:
            type(server)._receive_task_request(server, received, method, params)

    server._receive_task_request = lose_one  # type: ignore[method-assign]
    asked = world.party(LEGACY, is_plain=True).call("a", "must")
    world.run()
    work = server.accept(server.work("a"))
    world.wait(30.0)
    assert bool(lost) is (verb == "tasks/get" or up is LEGACY)
    server.finish(work, text("done"))
    world.wait(300.0)
    assert asked.result["content"] == text("done")["content"]


def test_a_question_that_the_client_refuses_is_left_open() -> None:
    """An answer of sampling cannot express a refusal: the server goes on without, or gives up."""
    world = scene(MODERN, has_tasks=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    waiting = party.result(id)
    world.server.ask(work, "s", "sampling/createMessage")
    world.wait(5.0)
    (question,) = party.received("sampling/createMessage")
    party.reply(question["id"], {"role": 7})
    world.wait(5.0)
    assert work.given["s"] == []
    world.server.withdraw(work, "s")
    world.server.finish(work, text("done"))
    world.wait(60.0)
    assert waiting.result["content"] == text("done")["content"]


def test_two_answers_are_each_sent_once() -> None:
    world = scene(MODERN, has_tasks=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    party.result(id)
    for key in ("r", "s"):
        world.server.ask(work, key, "roots/list")
    world.wait(5.0)
    for question in party.received("roots/list"):
        party.reply(question["id"], ANSWERS["roots/list"])
    world.wait(60.0)
    assert [work.given[key] for key in ("r", "s")] == [[ANSWERS["roots/list"]]] * 2


# --- The storage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [LONG, text("done")], ids=["blob", "record"])
@pytest.mark.parametrize("era", ERAS)
def test_a_cancellation_while_the_outcome_is_stored_comes_too_late(era: Era, outcome: dict[str, Any]) -> None:
    """Another replica may have shown the outcome already. A client with a session waits for it, and is refused."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(task_inline_max_bytes=60))
    party = world.party(era)
    id, work = world.begin(party, "a")
    world.store.is_slow = True
    world.server.finish(work, outcome)
    world.run()
    assert world.store.held
    cancelled = party.cancel(id)
    world.run()
    assert (cancelled.reply is not None) == party.is_modern
    world.store.is_slow = False
    world.store.deliver(world.world)
    world.wait(1.0)
    assert world.status(party, id) == "completed"
    if not party.is_modern:
        assert "it is completed already" in cancelled.error["message"]


@pytest.mark.parametrize("limit", [10, 10_000], ids=["blob", "record"])
@pytest.mark.parametrize("era", ERAS)
def test_an_outcome_that_cannot_be_stored(era: Era, limit: int) -> None:
    """A small outcome is kept in memory. The client of a large one gets an error that it is lost."""
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


def test_an_outcome_missing_from_the_storage_is_an_error() -> None:
    """A stateless client reads the outcome with the status, and gets an error for both."""
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
def test_an_ambiguous_outcome_is_not_shown(era: Era, member: str) -> None:
    """The task id is added to the members of an outcome, so they must be distinct."""
    world = scene(LEGACY, offer=Offer.ALWAYS)
    party = world.party(era)
    id, work = world.begin(party, "a")
    world.server.finish(work, {"content": [], "_meta": {}, DuplicateKey(member): {"a": 1}})
    world.wait(1.0)
    asked = world.ask(party.get(id) if party.is_modern else party.result(id))
    assert asked.reply is not None
    assert "twice" in str(asked.reply)


@pytest.mark.parametrize("cursor", ["", "after", "after-", "after-x", "7"])
def test_an_unknown_cursor_is_refused(cursor: str) -> None:
    world = scene(offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    world.begin(party, "a")
    assert "not given out here" in world.ask(party.listing(cursor)).error["message"]


def test_ambiguous_answers_are_refused() -> None:
    """The question stays open."""
    world = scene(LEGACY, has_tasks=True)
    party = world.party(MODERN)
    id, work = world.begin(party, "a", "must")
    world.server.ask(work, "r", "roots/list")
    world.wait(1.0)
    (key,) = world.ask(party.get(id)).result["inputRequests"]
    answer = ANSWERS["roots/list"]
    assert world.ask(party.update(id, {key: answer, DuplicateKey(key): answer})).code is not None
    assert work.given["r"] == []
    assert "error" not in (world.ask(party.update(id, {key: answer})).reply or {})
    world.run()
    assert len(work.given["r"]) == 1
