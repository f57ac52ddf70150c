"""Tests of the upstream tasks: at which times a server is polled and asked for the outcome, and with which messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from driving import SentMessage, notification
from isthmus.core.base.errors import OUTCOME_UNKNOWN
from isthmus.core.base.events import Cause, End
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind
from isthmus.core.base.revisions import Era
from task_clients import ClientRequest, Party
from task_scenes import Scene, scene
from task_servers import Work, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
GET, RESULT = "tasks/get", "tasks/result"


def record_requests(
    world: Scene, *, answer: Callable[[SentMessage, str], bool] | None = None
) -> list[tuple[float, str]]:
    """Records the times, from now, and the methods of the task requests that the server gets. `answer` may answer one
    itself, and returns True then."""
    began, receive, found = world.world.now, world.server._receive_task_request, []

    def note(received: SentMessage, method: str, params: dict[str, Any]) -> None:
        found.append((round(world.world.now - began, 3), method))
        if answer is None or not answer(received, method):
            receive(received, method, params)

    world.server._receive_task_request = note  # type: ignore[method-assign]
    return found


def called(world: Scene, *, is_plain: bool = False, token: str | None = None) -> tuple[Party, ClientRequest, Work]:
    """Returns a call that its server is about to make a task of."""
    party = world.party(LEGACY, is_plain=is_plain)
    asked = party.call("a", "must", token=token)
    world.run()
    return party, asked, world.server.work("a")


# --- Polls for clients ------------------------------------------------------------------------------------------------


def test_a_client_causes_a_poll_if_the_last_was_half_an_interval_ago() -> None:
    """The half interval is counted from when the task was made, and from each poll. A client that asks earlier gets
    what is known."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party, asked, work = called(world)
    world.server.accept(work, poll_ms=8000)
    world.run()
    id = asked.result["task"]["taskId"]
    found = record_requests(world)
    for pause_s in (0.0, 3.875, 0.125, 3.875, 0.125):
        world.wait(pause_s)
        assert world.status(party, id) == "working"
    assert found == [(4.0, GET), (8.0, GET)]
    world.wait(24.0)
    assert found[2:] == [(16.0, GET), (28.0, GET)], "the interval begins anew with each, and grows while no client asks"


def test_a_poll_is_shared_by_all_waiting_requests() -> None:
    """Requests of clients during a poll cause no other, and all get its outcome."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party, asked, work = called(world)
    world.server.accept(work, poll_ms=2000)
    world.run()
    id = asked.result["task"]["taskId"]
    held: list[SentMessage] = []

    def keep(received: SentMessage, method: str) -> bool:
        held.append(received)
        return True

    found = record_requests(world, answer=keep)
    world.wait(1.0)
    requests = [party.get(id) for _ in range(3)]
    world.run()
    assert found == [(1.0, GET)]
    assert [one.reply for one in requests] == [None] * 3
    work.message = "nearly"
    (received,) = held
    world.server.answer(received, world.server.shown(work))
    world.run()
    assert [one.result["statusMessage"] for one in requests] == ["nearly"] * 3


# --- Failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (None, [(0.0, RESULT), (2.0, GET), (4.0, GET), (6.0, GET)]),
        ("t", [(0.0, RESULT), (2.0, GET), (4.0, GET), (6.0, GET)]),
    ],
)
def test_a_server_is_polled_after_the_request_for_the_outcome_broke_off(
    token: str | None, expected: list[tuple[float, str]]
) -> None:
    """The server is polled at its interval after the request for the outcome broke off."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    _, asked, work = called(world, is_plain=True, token=token)

    def lose(received: SentMessage, method: str) -> bool:
        if method == RESULT and not work.outcome:
            world.world.end(received.channel, Cause(End.BROKEN))
            return True
        return False

    found = record_requests(world, answer=lose)
    world.server.accept(work, poll_ms=2000)
    world.wait(7.0)
    assert found == expected
    world.server.finish(work, text("done"))
    world.wait(2.0)
    assert asked.result["content"] == text("done")["content"]
    assert found[len(expected) :] == [(8.0, GET), (8.0, RESULT)]


def test_a_task_that_no_client_waits_for_is_polled_rarely() -> None:
    """The first poll is after one interval of the server, and then the intervals grow."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    _, _, work = called(world)

    def lose(received: SentMessage, method: str) -> bool:
        if method == RESULT:
            world.world.end(received.channel, Cause(End.BROKEN))
        return method == RESULT

    found = record_requests(world, answer=lose)
    world.server.accept(work, poll_ms=2000)
    world.wait(20.0)
    assert found == [(0.0, RESULT), (2.0, GET), (5.0, GET), (9.5, GET), (16.25, GET)]


@pytest.mark.parametrize("is_polled", [True, False])
def test_an_error_for_the_outcome_is_checked_by_one_poll(is_polled: bool) -> None:
    """The error may be the call's own, or say that the request was too early. A single poll decides, which may be under
    way already."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    _, asked, work = called(world, is_plain=True, token="t")
    held: list[SentMessage] = []

    def keep(received: SentMessage, method: str) -> bool:
        held.append(received)
        return True

    found = record_requests(world, answer=keep)
    world.server.accept(work, poll_ms=2000)
    world.wait(2.5 if is_polled else 1.5)
    expected = [(0.0, RESULT), (2.0, GET)] if is_polled else [(0.0, RESULT)]
    assert found == expected
    world.server.refuse(held[0], -32000, "the call's own")
    world.run()
    assert found == (expected if is_polled else [*expected, (1.5, GET)])
    work.status = "failed"
    work.outcome = {"error": {"code": -32000, "message": "the call's own"}}
    world.server.answer(held[1], world.server.shown(work))
    world.run()
    assert found[2:] == [(2.5 if is_polled else 1.5, RESULT)]
    world.server.refuse(held[2], -32000, "the call's own")
    world.run()
    assert asked.error == {"code": -32000, "message": "the call's own"}


def test_the_fetched_error_of_a_dropped_task_is_the_outcome() -> None:
    """The server dropped the task with the error that was fetched: that error is the outcome, not "task not found"."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    _, asked, work = called(world, is_plain=True)

    def refuse(received: SentMessage, method: str) -> bool:
        error = (-32000, "out of paper") if method == RESULT else (-32602, "Task not found")
        world.server.refuse(received, *error)
        return True

    found = record_requests(world, answer=refuse)
    world.server.accept(work)
    world.run()
    assert found == [(0.0, RESULT), (0.0, GET)]
    assert asked.error == {"code": -32000, "message": "out of paper"}


def test_a_task_that_its_server_does_not_know_any_more_ends_the_call() -> None:
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    _, asked, work = called(world, is_plain=True)
    world.server.accept(work, poll_ms=1000)
    world.server.lose(work)
    world.wait(1.0)
    assert asked.error == {
        "code": OUTCOME_UNKNOWN,
        "message": "the server does not know the task any more: what became of it cannot be told",
    }


def test_errors_of_polls_are_noted_and_end_the_call_at_last() -> None:
    """Three failed polls in a row are noted, and the intervals double. After the next one the client gets the error
    itself."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True, limits=Limits(resume_failures_max=3))
    _, asked, work = called(world, is_plain=True)

    def refuse(received: SentMessage, method: str) -> bool:
        world.server.refuse(received, -32000, "out of order")
        return True

    found = record_requests(world, answer=refuse)
    world.server.accept(work, poll_ms=500)
    world.wait(20.0)
    assert found == [(0.5, GET), (1.5, GET), (3.5, GET), (7.5, GET)]
    text_of_note = "a task could not be looked at: it says of its task: out of order"
    assert world.world.notes("info").count(text_of_note) == 3
    assert asked.error == {"code": -32000, "message": "out of order"}


@pytest.mark.parametrize("is_task", [False, True])
def test_a_poll_whose_connection_breaks_is_repeated_after_a_pause(is_task: bool) -> None:
    """Each pause is twice the last. A plain call ends with the reason, while a task of the client goes on."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True, limits=Limits(resume_failures_max=2))
    _, asked, work = called(world, is_plain=not is_task)

    def lose(received: SentMessage, method: str) -> bool:
        world.world.end(received.channel, Cause(End.BROKEN, "cut off"))
        return True

    found = record_requests(world, answer=lose)
    world.server.accept(work, poll_ms=500)
    world.wait(12.0)
    schedule = [(0.5, GET), (1.5, GET), (3.5, GET), (7.5, GET)]
    assert found == (schedule if is_task else schedule[:3])
    if not is_task:
        assert asked.error["code"] == OUTCOME_UNKNOWN
        assert asked.error["message"].startswith("the server was lost before its task was over: ")
        assert asked.error["message"].endswith(". The call may have run")


def test_a_cancellation_that_does_not_arrive_is_noted() -> None:
    """The client that cancelled gets no response."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party, asked, work = called(world, is_plain=True)

    def lose(received: SentMessage, method: str) -> bool:
        if method == "tasks/cancel":
            world.world.end(received.channel, Cause(End.BROKEN, "cut off"))
        return method == "tasks/cancel"

    found = record_requests(world, answer=lose)
    world.server.accept(work, poll_ms=500)
    world.wait(0.25)
    assert party.legacy is not None
    party.legacy.notify("notifications/cancelled", json.dumps({"requestId": asked.id}))
    world.wait(30.0)
    assert found == [(0.25, "tasks/cancel")]
    notes = [note for note in world.world.notes("warning") if note.startswith("a task could not be cancelled: ")]
    assert len(notes) == 1
    assert asked.reply is None


@pytest.mark.parametrize("how", ["breaks", "is refused"])
def test_a_failed_poll_answers_the_waiting_request_at_once(how: str) -> None:
    """The response has what was known before."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party, asked, work = called(world)
    world.server.accept(work, poll_ms=2000)
    world.run()

    def lose(received: SentMessage, method: str) -> bool:
        if how == "breaks":
            world.world.end(received.channel, Cause(End.BROKEN, "cut off"))
        else:
            world.server.refuse(received, -32000, "out of order")
        return True

    found = record_requests(world, answer=lose)
    world.wait(1.5)
    requests = party.get(asked.result["task"]["taskId"])
    world.run()
    assert found == [(1.5, GET)]
    assert requests.result["status"] == "working"


def test_cancelled_calls_that_become_tasks_are_cancelled_up_to_a_bound() -> None:
    """Only the last 256 cancelled calls are remembered."""
    world = scene(LEGACY, has_tasks=True)
    party = world.party(LEGACY, is_plain=True)
    assert party.legacy is not None
    for number in range(257):
        asked = party.call(f"t{number}", "must")
        world.run()
        party.legacy.notify("notifications/cancelled", json.dumps({"requestId": asked.id}))
    world.run()
    stops = []
    for number in (0, 1, 256):
        work = world.server.work(f"t{number}")
        world.server.accept(work)
        world.run()
        stops.append(work.stops)
    sent = "notifications/cancelled"
    assert stops == [[sent], [sent, "tasks/cancel"], [sent, "tasks/cancel"]]


def test_a_successful_poll_resets_the_failures() -> None:
    """Only failures in a row count."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True, limits=Limits(resume_failures_max=2))
    _, asked, work = called(world, is_plain=True)
    count = 0

    def refuse(received: SentMessage, method: str) -> bool:
        nonlocal count
        count += 1
        if count % 3 == 0:
            return False
        world.server.refuse(received, -32000, "out of order")
        return True

    record_requests(world, answer=refuse)
    world.server.accept(work, poll_ms=1000)
    world.wait(60.0)
    assert count > 6
    assert asked.reply is None


# --- Progress ---------------------------------------------------------------------------------------------------------


def progress(party: Party) -> list[tuple[float, str | None]]:
    return [
        (frame["params"]["progress"], frame["params"].get("message"))
        for frame in party.received("notifications/progress")
    ]


def test_each_new_status_message_is_progress() -> None:
    """Progress counts from 1, with the status message and the client's token. A repeated message is no progress."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party, _, work = called(world, is_plain=True, token="mine")
    world.server.accept(work, poll_ms=1000)
    for message in ("one", "one", None, "two", "three"):
        work.message = message
        world.wait(1.0)
    assert progress(party) == [(1, "one"), (2, "two"), (3, "three")]
    assert {frame["params"]["progressToken"] for frame in party.received("notifications/progress")} == {"mine"}


def test_progress_of_the_server_itself_comes_before_status_messages() -> None:
    """A status message is passed on only if its count exceeds the server's own progress, which must increase."""
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
def test_progress_without_a_token_is_dropped(is_plain: bool) -> None:
    """The server sends progress for a call without a token, under the id of its request."""
    world = scene(LEGACY, has_tasks=True)
    party, _, work = called(world, is_plain=is_plain)
    world.server.accept(work)
    world.run()
    before = party.received("notifications/progress")
    for number in (work.received.id, str(work.received.id)):
        params = json.dumps({"progressToken": number, "progress": 1})
        world.world.send(work.received.channel, notification("notifications/progress", params))
    world.run()
    assert party.received("notifications/progress") == before == []


# --- Timeouts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_a_call_is_given_up_after_silence_about_its_task(up: Era) -> None:
    """The time is counted from the last response to a request about the task."""
    limits = Limits(reply_timeout_s=12.0, task_poll_s=5.0, task_poll_max_s=5.0, notification_timeout_s=100.0)
    world = scene(up, Kind.HTTP, has_tasks=True, insists=up is MODERN, limits=limits)
    _, asked, work = called(world, is_plain=True)
    silent: list[SentMessage] = []

    def answer(received: SentMessage, method: str) -> bool:
        if world.world.now > 151.0:
            silent.append(received)
            return True
        return False

    found = record_requests(world, answer=answer)
    world.server.accept(work, poll_ms=None)
    world.wait(51.0)
    assert [moment for moment, method in found if method == GET][-1] == 50.0
    assert asked.reply is None
    world.wait(10.75)
    assert asked.reply is None
    assert silent
    world.wait(0.25)
    assert asked.error["message"].startswith("the server said nothing for 12 s")


def test_a_cancelled_call_leaves_no_timer() -> None:
    """The server has accepted the cancellation."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True, limits=Limits(reply_timeout_s=60.0))
    party, asked, work = called(world, is_plain=True)
    world.server.accept(work)
    world.wait(0.5)
    assert party.legacy is not None
    party.legacy.notify("notifications/cancelled", json.dumps({"requestId": asked.id}))
    world.run()
    assert work.stops == ["tasks/cancel"]
    reasons = set()
    while (deadline := world.engine.next_timeout()) is not None and deadline.at < world.world.now + 600.0:
        reasons.add(deadline.why)
        world.wait(deadline.at - world.world.now)
    assert not reasons & {"upstream reply", "task of the server's", "cancellation of a task"}


def test_a_cancellation_has_a_timeout() -> None:
    """After that the request is closed."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True, limits=Limits(notification_timeout_s=20.0))
    party, asked, work = called(world, is_plain=True)
    silent: list[SentMessage] = []

    def keep(received: SentMessage, method: str) -> bool:
        silent.append(received)
        return True

    record_requests(world, answer=keep)
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


# --- Poll intervals ---------------------------------------------------------------------------------------------------


def test_poll_intervals_grow_when_no_client_waits_any_more() -> None:
    """The intervals grow from when the last request for the outcome was cancelled."""
    world = scene(MODERN, Kind.HTTP, has_tasks=True, insists=True)
    party, asked, work = called(world)
    world.server.accept(work, poll_ms=2000)
    world.run()
    waiting = [party.result(asked.result["task"]["taskId"]) for _ in range(2)]
    found = record_requests(world)
    world.wait(5.0)
    assert party.legacy is not None
    party.legacy.notify("notifications/cancelled", json.dumps({"requestId": waiting[0].id}))
    world.wait(3.5)
    party.legacy.notify("notifications/cancelled", json.dumps({"requestId": waiting[1].id}))
    assert [moment for moment, _ in found] == [2.0, 4.0, 6.0, 8.0]
    world.wait(22.0)
    pauses = [later - earlier for (earlier, _), (later, _) in pairwise(found[3:])]
    assert pauses == [2.0, 3.0, 4.5, 6.75]


# --- Notifications ----------------------------------------------------------------------------------------------------


def test_a_notification_of_the_outcome_answers_the_call() -> None:
    """A waiting call is answered at once, before the next poll. The client gets no notification."""
    world = scene(MODERN, Kind.PIPE, has_tasks=True, insists=True)
    party, asked, work = called(world, is_plain=True)
    world.server.accept(work, poll_ms=20_000)
    world.wait(1.0)
    found = record_requests(world)
    world.server.finish(work, text("done"))
    world.world.send(work.received.channel, notification("notifications/tasks", json.dumps(world.server.shown(work))))
    world.run()
    assert asked.result["content"] == text("done")["content"]
    world.wait(60.0)
    assert found == [], "it is not polled any more"
    assert party.received("notifications/tasks") == []


# --- Questions --------------------------------------------------------------------------------------------------------


def test_a_question_ends_with_its_call() -> None:
    """The client does not know of a task. It gets one cancellation of the question."""
    world = scene(MODERN, Kind.PIPE, has_tasks=True, insists=True)
    party, asked, work = called(world, is_plain=True)
    world.server.accept(work, poll_ms=1000)
    world.server.ask(work, "q")
    world.wait(2.0)
    (question,) = party.received("elicitation/create")
    world.server.finish(work, text("done"))
    world.wait(2.0)
    assert asked.result["content"] == text("done")["content"]
    world.server.die(work)
    world.run()
    withdrawn = [{"requestId": question["id"], "reason": "what asked is over"}]
    assert [frame["params"] for frame in party.received("notifications/cancelled")] == withdrawn


# --- Params of polls --------------------------------------------------------------------------------------------------


def test_a_poll_has_only_the_servers_own_id_of_the_task() -> None:
    """A server with sessions gets only its own id of the task. One without sessions also gets the `_meta` of each
    request."""
    for up in (LEGACY, MODERN):
        world = scene(up, Kind.HTTP, has_tasks=True, insists=up is MODERN)
        _, _, work = called(world, is_plain=True)
        received: list[SentMessage] = []

        def keep(one: SentMessage, method: str, received: list[SentMessage] = received) -> bool:
            received.append(one)
            return False

        record_requests(world, answer=keep)
        world.server.accept(work, poll_ms=1000)
        world.wait(31.0)
        for one in received:
            params = dict(one.frame["params"])
            meta = params.pop("_meta", None)
            assert params == {"taskId": work.id}
            assert (meta is None) is (up is LEGACY)
            if meta is not None:
                assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
                assert "io.modelcontextprotocol/logLevel" not in meta
                able = meta["io.modelcontextprotocol/clientCapabilities"]
                assert "io.modelcontextprotocol/tasks" in json.dumps(able)
