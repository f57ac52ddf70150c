"""Tests of the messages about tasks to servers and clients, and of the pauses between polls."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from driving import SentMessage, request, result
from isthmus.core.base.errors import OUTCOME_UNKNOWN
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from stateless_driving import ACCEPT, FORM, tables
from task_clients import ClientRequest, Party
from task_scenes import GRACE_S, Scene, scene
from task_servers import RELATED, Work, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS


def hidden(world: Scene) -> tuple[Party, ClientRequest, Work]:
    """Returns a call of a client without tasks, which is a task at the server."""
    party = world.party(LEGACY, is_plain=True)
    asked = party.call("a", "must")
    world.run()
    return party, asked, world.server.accept(world.server.work("a"))


# --- To clients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [{}, {"content": []}], ids=["nothing", "something"])
def test_the_outcome_of_a_task_is_the_exact_result(result: dict[str, Any]) -> None:
    """The result may be empty."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party = world.party(MODERN)
    id, work = world.begin(party, "a", "must")
    world.server.finish(work, result)
    world.wait(60.0)
    shown = world.ask(party.get(id)).result
    assert shown["status"] == "completed"
    outcome = dict(shown["result"])
    outcome.pop("_meta", None)
    assert outcome == result


def test_a_status_notification_has_the_reason_of_a_failure() -> None:
    """The reason is the start of a call's own error, or that the tool reported one."""
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


def test_a_withdrawn_question_is_cancelled_with_a_reason() -> None:
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    asked = party.result(id)
    world.server.ask(work, "q")
    world.wait(5.0)
    assert world.status(party, id) == "input_required"
    (question,) = party.received("elicitation/create")
    world.server.withdraw(work, "q")
    world.wait(5.0)
    (cancelled,) = party.received("notifications/cancelled")
    assert cancelled["params"] == {"requestId": question["id"], "reason": "it is not asked any more"}
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


def test_progress_of_questions_is_counted_by_token() -> None:
    """A second question without a token skips no number."""
    world = scene(LEGACY, has_tasks=True)
    party = world.party(MODERN)
    _, work = world.begin(party, "a", "must")
    meta = {RELATED: {"taskId": work.id}}
    signs: list[int] = []

    def note(received: SentMessage, frame: dict[str, Any]) -> None:
        if frame["method"] == "notifications/progress":
            signs.append(frame["params"]["progress"])
        world.world.acknowledge(received)

    world.server._receive_notification = note  # type: ignore[method-assign]
    for key, question_meta in (("q", meta), ("r", {**meta, "progressToken": "t"})):
        params = {**json.loads(FORM), "_meta": question_meta}
        world.world.send(work.received.channel, request(json.dumps(key), "elicitation/create", json.dumps(params)))
    world.wait(3.5 * world.limits.suspended_call_tick_s)
    assert signs == [1, 2, 3]


def test_an_answer_is_sent_during_a_poll() -> None:
    """The answer is sent at once, and makes no further poll."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    party.result(id)
    world.server.ask(work, "q")
    world.wait(5.0)
    (question,) = party.received("elicitation/create")
    verb, silent = world.server._receive_task_request, []

    def slow(received: SentMessage, method: str, params: dict[str, Any]) -> None:
        if method == "tasks/get":
            silent.append(received)
        else:
            verb(received, method, params)

    world.server._receive_task_request = slow  # type: ignore[method-assign]
    world.wait(10.0)
    assert len(silent) == 1
    party.reply(question["id"], ACCEPT)
    world.run()
    assert [answer["action"] for answer in work.given["q"]] == ["accept"]
    world.wait(10.0)
    assert len(silent) == 1


def test_a_status_notification_resets_the_reply_timeout() -> None:
    """A call is given up after a silence of its server, and such a notification ends the silence."""
    limits = Limits(reply_timeout_s=12.0, task_poll_max_s=600.0, question_timeout_s=5.0, notification_timeout_s=600.0)
    world = scene(LEGACY, Kind.HTTP, has_tasks=True, limits=limits)
    _, asked, work = hidden(world)
    world.run()
    world.server._receive_task_request = lambda received, method, params: None  # type: ignore[method-assign]
    for _ in range(3):
        world.wait(10.0)
        assert asked.reply is None
        world.server.announce(work)
    world.wait(13.0)
    assert "said nothing for 12 s" in asked.error["message"]


@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_a_poll_that_takes_too_long_is_given_up(up: Era) -> None:
    """The next poll is another request."""
    world = scene(up, Kind.HTTP, has_tasks=True, insists=True)
    _, asked, work = hidden(world)
    world.wait(0.5)
    verb, silent = world.server._receive_task_request, []
    world.server._receive_task_request = lambda received, method, params: silent.append(received)  # type: ignore[method-assign]
    world.wait(world.limits.task_poll_max_s + world.limits.notification_timeout_s + 1.0)
    poll_times = [received for received in silent if received.frame["method"] == "tasks/get"]
    assert world.world.closed[poll_times[0].channel].reason == "it took too long"
    world.server._receive_task_request = verb  # type: ignore[method-assign]
    world.server.finish(work, text("done"))
    world.wait(2 * world.limits.task_poll_max_s + world.limits.notification_timeout_s)
    assert asked.result["content"] == text("done")["content"]


def test_a_cancelled_call_ends_its_request_for_the_outcome() -> None:
    """Other requests to the server go on."""
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


# --- Released requests ------------------------------------------------------------------------------------------------


def test_a_call_that_never_became_a_task_has_no_expiry() -> None:
    """The client left before it had a handle."""
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
    assert not any(purpose == "task" for purpose, _ in tables(world.engine)["timers"])
    world.wait(60.0)
    assert world.engine.tasks() == ()


def test_a_stop_leaves_every_task_to_its_server() -> None:
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    party = world.party(LEGACY)
    works = [world.begin(party, tag, "must")[1] for tag in "abc"]
    world.world.stop()
    world.run()
    assert [work.stops for work in works] == [[], [], []]
    assert {record.status.value for record in world.store.tasks.values()} == {"working"}


def test_a_stop_reports_every_call_as_lost() -> None:
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


def poll_times(world: Scene, *, answers: bool = True) -> list[float]:
    """Returns the times of the next polls of the server, in seconds."""
    began, verb, found = world.world.now, world.server._receive_task_request, []

    def note(received: SentMessage, method: str, params: dict[str, Any]) -> None:
        if method == "tasks/get":
            found.append(round(world.world.now - began, 3))
        if answers:
            verb(received, method, params)
        else:
            world.server.refuse(received, -32603, "out of order")

    world.server._receive_task_request = note  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize(
    ("poll_ms", "expected"),
    [
        (10_000, [10.0, 20.0, 30.0]),
        (None, [7.0, 14.0, 21.0, 28.0]),
        (60_000, [15.0, 30.0]),
    ],
)
def test_a_task_with_a_waiting_client_is_polled_at_the_server_s_interval(
    poll_ms: int | None, expected: list[float]
) -> None:
    limits = Limits(task_poll_s=7.0, task_poll_max_s=15.0)
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True, limits=limits)
    party = world.party(LEGACY, is_plain=True)
    party.call("a", "must")
    world.run()
    found = poll_times(world)
    work = world.server.accept(world.server.work("a"), poll_ms=poll_ms)
    world.wait(30.5)
    assert found == expected
    assert work.polls == len(expected)


def test_polls_have_a_least_pause() -> None:
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party = world.party(LEGACY, is_plain=True)
    party.call("a", "must")
    world.run()
    found = poll_times(world)
    world.server.accept(world.server.work("a"), poll_ms=0)
    world.wait(0.22)
    assert found == [0.05, 0.1, 0.15, 0.2]


def test_pauses_grow_for_a_task_without_waiting_clients() -> None:
    limits = Limits(task_poll_max_s=4.0)
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True, limits=limits)
    party = world.party(LEGACY)
    party.call("a", "must")
    world.run()
    found = poll_times(world)
    world.server.accept(world.server.work("a"), poll_ms=1000)
    world.wait(17.0)
    assert found == [1.0, 2.5, 4.75, 8.125, 12.125, 16.125]


def test_a_waiting_client_resets_the_pauses() -> None:
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party = world.party(LEGACY)
    id, _ = world.begin(party, "a", "must")
    party.result(id)
    world.wait(60.0)
    found = poll_times(world)
    world.wait(3.5)
    assert [round(later - earlier, 3) for earlier, later in pairwise(found)] == [1.0, 1.0]


def test_pauses_grow_while_polls_fail() -> None:
    """The first success resets the pauses."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party = world.party(LEGACY)
    party.call("a", "must")
    world.run()
    found = poll_times(world, answers=False)
    work = world.server.accept(world.server.work("a"), poll_ms=100)
    world.wait(70.0)
    assert found == [0.1, 1.1, 3.1, 7.1, 15.1, 31.1, 61.1]
    assert party.received("notifications/tasks/status") == []
    del world.server._receive_task_request
    world.server.finish(work, text("done"))
    world.wait(30.0)
    assert [frame["params"]["status"] for frame in party.received("notifications/tasks/status")] == ["completed"]


def test_a_server_with_a_waiting_request_is_polled_seldom() -> None:
    """The server answers `tasks/result` on its own. Polls only find out whether it still knows the task."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    party = world.party(LEGACY, is_plain=True)
    party.call("a", "must")
    world.run()
    found = poll_times(world)
    world.server.accept(world.server.work("a"), poll_ms=1000)
    world.wait(65.0)
    assert found == [30.0, 60.0]


# --- Answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
def test_an_answer_with_duplicate_meta_is_an_error(kind: Kind) -> None:
    world = scene(LEGACY, kind, has_tasks=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    party.result(id)
    world.server.ask(work, "q")
    world.run()
    (question,) = party.received("elicitation/create")
    assert party.legacy is not None
    party.legacy.send(result(json.dumps(question["id"]), '{"action":"accept","_meta":{},"_meta":{}}'))
    world.run()
    ((answer,),) = (work.given["q"],)
    assert answer["error"]["code"] == -32600
    assert "_meta" in answer["error"]["message"]


@pytest.mark.parametrize("has_tasks", [True, False])
def test_an_answer_names_the_server_s_task(has_tasks: bool) -> None:
    """A server without tasks gets no name."""
    world = scene(LEGACY, has_tasks=has_tasks, offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must" if has_tasks else "work")
    party.result(id)
    world.server.ask(work, "q")
    world.run()
    (question,) = party.received("elicitation/create")
    assert question["params"]["_meta"][RELATED] == {"taskId": id}
    party.reply(question["id"], {**ACCEPT, "_meta": {RELATED: {"taskId": id}}})
    world.run()
    (answer,) = work.given["q"]
    assert answer.get("_meta", {}).get(RELATED) == ({"taskId": work.id} if has_tasks else None)
    assert answer["action"] == "accept"


@pytest.mark.parametrize("answer", [{"action": "decline"}, {"action": "cancel"}])
def test_a_declined_question_is_passed_on_as_declined(answer: dict[str, Any]) -> None:
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    party.result(id)
    world.server.ask(work, "q")
    world.wait(5.0)
    (question,) = party.received("elicitation/create")
    party.reply(question["id"], answer)
    world.run()
    assert work.given["q"] == [answer]


def test_the_tasks_of_a_process_end_with_it() -> None:
    """The outcome of a call that was a task there is unknown."""
    world = scene(LEGACY, has_tasks=True)
    _, asked, work = hidden(world)
    world.run()
    world.server.die(work)
    world.run()
    assert asked.error["code"] == OUTCOME_UNKNOWN
    assert asked.error["data"] == {"outcome": "unknown"}
    assert "The call may have run; it is not repeated" in asked.error["message"]
