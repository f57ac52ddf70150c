"""Tests of the requests and notifications about tasks: which ones clients get, and when."""

from __future__ import annotations

from typing import Any

import pytest
from driving import UNIX_AT_ZERO, SentMessage
from isthmus.core.base.effects import Note
from isthmus.core.base.events import Headers
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from isthmus.core.base.timestamps import format_time
from stateless_driving import ACCEPT, K
from task_clients import Party
from task_scenes import GRACE_S, Scene, scene
from task_servers import TASKS, DuplicateKey, Work, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
ERAS = [LEGACY, MODERN]
UNKNOWN = "Task not found: there is none of that id, or its time is over"


def at(now: float) -> str:
    return format_time(UNIX_AT_ZERO + now)


def silence(world: Scene, ignored: str = "tasks/get") -> list[SentMessage]:
    """Makes the server leave this method unanswered. Returns the requests that it gets."""
    receive, found = world.server._receive_task_request, []

    def note(received: SentMessage, method: str, params: dict[str, Any]) -> None:
        if method == ignored:
            found.append(received)
        else:
            receive(received, method, params)

    world.server._receive_task_request = note  # type: ignore[method-assign]
    return found


def upstream_task(down: Era = LEGACY, up: Era = MODERN) -> tuple[Scene, Party, str, Work]:
    world = scene(up, Kind.HTTP, has_tasks=True, insists=up is MODERN)
    party = world.party(down)
    id, work = world.begin(party, "a", "must")
    return world, party, id, work


# --- Waiting requests -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ERAS)
def test_tasks_get_is_answered_in_time_even_if_the_server_is_silent(down: Era) -> None:
    """The answer is what is known, `task_look_s` after the last such request. A request for the outcome waits on."""
    world, party, id, _ = upstream_task(down)
    world.wait(30.0)
    held = silence(world)
    first = party.get(id)
    world.run()
    assert len(held) == 1
    waiting = party.result(id) if down is LEGACY else None
    world.wait(2.0)
    second = party.get(id)
    world.run()
    world.wait(4.75)
    assert (first.reply, second.reply) == (None, None)
    world.wait(0.25)
    assert [one.result["status"] for one in (first, second)] == ["working"] * 2
    assert waiting is None or waiting.reply is None


def test_tasks_get_is_answered_in_time_after_another_was_cancelled() -> None:
    """The remaining requests keep their time."""
    world, party, id, _ = upstream_task(MODERN)
    world.wait(30.0)
    silence(world)
    first, second, third = (party.get(id) for _ in range(3))
    world.run()
    world.wait(1.0)
    party.hang_up(first)
    world.wait(4.0)
    assert [one.result["status"] for one in (second, third)] == ["working"] * 2
    assert first.reply is None


def test_the_end_of_a_tasks_time_answers_all_waiting_requests() -> None:
    """Each waiting `tasks/get` and `tasks/result` says that the task was cancelled."""
    limits = Limits(task_ttl_s=60.0, task_ttl_max_s=60.0, task_look_s=600.0)
    world = scene(LEGACY, Kind.HTTP, has_tasks=True, limits=limits)
    party = world.party(LEGACY)
    asked = party.call("a", "must")
    world.run()
    world.server.accept(world.server.work("a"))
    world.run()
    id = asked.result["task"]["taskId"]
    world.wait(20.0)
    silence(world)
    looking, waiting = party.get(id), [party.result(id), party.result(id)]
    world.wait(39.5)
    assert [one.reply for one in (looking, *waiting)] == [None] * 3
    world.wait(0.5)
    why = "its time was over before the call was"
    assert (looking.result["status"], looking.result["statusMessage"]) == ("cancelled", why)
    assert [one.error for one in waiting] == [{"code": -32603, "message": f"the task was cancelled: {why}"}] * 2
    assert world.ask(party.get(id)).error == {"code": -32602, "message": UNKNOWN}
    assert world.engine.tasks() == ()


@pytest.mark.parametrize("down", ERAS)
def test_the_outcome_of_a_task_answers_all_waiting_requests(down: Era) -> None:
    """Each request gets what it asked for. The state is "working" until the outcome is stored."""
    world, party, id, work = upstream_task(down)
    world.wait(30.0)
    held = silence(world)
    looking = [party.get(id), party.get(id)]
    world.run()
    results = [party.result(id), party.result(id)] if down is LEGACY else []
    world.run()
    work.outcome, work.status, work.message = {"result": text("done")}, "completed", "well done"
    (received,) = held
    world.server.answer(received, world.server.shown(work))
    world.run()
    assert [one.result["status"] for one in looking] == ["working"] * 2
    assert [one.result["content"] for one in results] == [text("done")["content"]] * len(results)


# --- Outcomes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [None, "enough of that"])
@pytest.mark.parametrize("up", ERAS)
@pytest.mark.parametrize("down", ERAS)
def test_a_task_that_its_server_cancels_has_the_servers_message(down: Era, up: Era, message: str | None) -> None:
    """All waiting requests, notifications and the record have the server's message, and the server gets nothing."""
    world, party, id, work = upstream_task(down, up)
    waiting = party.result(id) if down is LEGACY else None
    world.run()
    work.message = message
    world.server.stop(work)
    world.wait(60.0)
    why = message or "the server cancelled it"
    polled = world.ask(party.get(id)).result
    assert (polled["status"], polled["statusMessage"]) == ("cancelled", why)
    assert waiting is None or waiting.error == {"code": -32603, "message": f"the task was cancelled: {why}"}
    (record,) = world.store.tasks.values()
    assert (record.status.value, record.message, record.outcome) == ("cancelled", why, "")
    if down is LEGACY:
        (notified,) = [
            f["params"] for f in party.received("notifications/tasks/status") if f["params"]["status"] == "cancelled"
        ]
        assert notified["statusMessage"] == why
    assert work.stops == []


@pytest.mark.parametrize("up", ERAS)
@pytest.mark.parametrize("down", ERAS)
def test_the_final_message_of_a_server_replaces_earlier_ones(down: Era, up: Era) -> None:
    """An earlier message is not shown with the outcome."""
    world, party, id, work = upstream_task(down, up)
    work.message = "halfway"
    world.wait(60.0)
    assert world.ask(party.get(id)).result["statusMessage"] == "halfway"
    work.message = "all of it"
    world.server.finish(work, text("done"))
    world.wait(60.0)
    polled = world.ask(party.get(id)).result
    assert polled["status"] == "completed"
    assert polled.get("statusMessage") in ("all of it", None)
    (record,) = world.store.tasks.values()
    assert record.message == polled.get("statusMessage", "")


# --- Subscriptions ----------------------------------------------------------------------------------------------------


def listened(party: Party, world: Scene, id: str) -> list[dict[str, Any]]:
    asked = party.ask("subscriptions/listen", notifications={"taskIds": [id]})
    world.run()
    return [frame["params"] for frame in world.world.frames(asked.channel) if frame["method"] == "notifications/tasks"]


def test_a_new_subscription_gets_the_state_it_may_have_missed() -> None:
    """A new subscription gets nothing of a working task, because the handle said that."""
    world = scene(LEGACY, offer=Offer.ALWAYS)
    party = world.party(MODERN)
    id, work = world.begin(party, "a")
    assert listened(party, world, id) == []
    world.server.ask(work, "q")
    world.run()
    (state,) = listened(party, world, id)
    assert (state["taskId"], state["status"], len(state["inputRequests"])) == (id, "input_required", 1)
    (key,) = state["inputRequests"]
    world.ask(party.update(id, {key: ACCEPT}))
    assert listened(party, world, id) == []
    world.server.finish(work, text("done"))
    world.wait(1.0)
    (state,) = listened(party, world, id)
    assert (state["status"], state["result"]["content"]) == ("completed", text("done")["content"])


def test_an_outcome_with_duplicate_members_is_noted() -> None:
    """The outcome has a duplicate member. A subscription gets nothing, and a request gets an error."""
    world = scene(offer=Offer.ALWAYS)
    party = world.party(MODERN)
    id, work = world.begin(party, "a")
    asked = party.ask("subscriptions/listen", notifications={"taskIds": [id]})
    world.run()
    world.server.finish(work, {**text("x"), DuplicateKey("content"): []})
    world.wait(1.0)
    notified = [f["params"] for f in world.world.frames(asked.channel) if f["method"] == "notifications/tasks"]
    notes = [note for note in world.world.every(Note) if note.text.startswith("how a task ended cannot be told")]
    if notes:
        assert {(note.level, note.server) for note in notes} == {("warning", "s")}
        assert notified == []
    else:
        assert [one["status"] for one in notified] == ["failed"]


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_late_handle_is_followed_by_what_happened_meanwhile(is_asked: bool) -> None:
    """The handle says that the task works. A question that came while the task was being stored is notified after
    it."""
    world = scene(LEGACY, offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    world.store.is_slow = True
    asked = party.call("a")
    world.wait(GRACE_S)
    if is_asked:
        world.server.ask(world.server.work("a"), "q")
        world.run()
    assert asked.reply is None
    assert party.received("notifications/tasks/status") == []
    world.store.deliver(world.world)
    world.run()
    assert asked.result["task"]["status"] == "working"
    notified = [frame["params"]["status"] for frame in party.received("notifications/tasks/status")]
    assert notified == (["input_required"] if is_asked else [])


# --- Answers ----------------------------------------------------------------------------------------------------------


OLD, NEW = (("traceparent", "old"),), (("traceparent", "new"),)


@pytest.mark.parametrize(("own", "expected"), [(NEW, NEW), ((), OLD)])
def test_an_answer_is_sent_with_the_headers_of_its_request(own: Headers, expected: Headers) -> None:
    """The headers are those of the request that brings the answer, or else the latest of its session."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    party = world.party(MODERN)
    assert party.modern is not None
    party.modern.headers = OLD
    id, work = world.begin(party, "a", "must")
    world.server.ask(work, "q")
    world.run()
    (key,) = world.ask(party.get(id)).result["inputRequests"]
    posts: list[Headers] = []
    receive = world.server._receive_answer

    def note(received: SentMessage, frame: dict[str, Any]) -> None:
        assert received.post is not None
        posts.append(received.post.headers)
        receive(received, frame)

    world.server._receive_answer = note  # type: ignore[method-assign]
    party.modern.headers = own
    world.ask(party.update(id, {key: ACCEPT}))
    assert posts == [expected]
    assert [one["action"] for one in work.given["q"]] == ["accept"]


# --- Refusals ---------------------------------------------------------------------------------------------------------


def test_a_task_method_of_the_other_era_is_unknown() -> None:
    """The error names the method, up to a length."""
    world = scene(offer=Offer.ALWAYS)
    legacy, modern = world.party(LEGACY), world.party(MODERN)
    for party, methods in ((legacy, ("tasks/update", "tasks/x")), (modern, ("tasks/list", "tasks/result", "tasks/x"))):
        for method in methods:
            error = world.ask(party.ask(method, taskId="x")).error
            assert error["code"] == -32601
            assert error["message"].startswith(f"Method not found: {method}")
    long = "tasks/" + "y" * 200
    assert world.ask(legacy.ask(long)).error["message"] == f"Method not found: {long[:100]}"


def test_a_task_request_without_the_extension_is_refused() -> None:
    """The missing capability is in the data of the error."""
    world = scene(offer=Offer.ALWAYS)
    party = world.party(MODERN, is_plain=True)
    error = world.ask(party.get("x")).error
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    assert error["message"] == (
        "Missing required client capability: tasks are an extension, declare it with each request"
    )


def test_a_task_that_is_over_is_not_cancelled() -> None:
    """A client with a session gets an error that names the state. A client without one gets a success."""
    for end in ("completed", "failed", "cancelled"):
        world = scene(LEGACY, Kind.HTTP, has_tasks=True)
        legacy, modern = world.party(LEGACY), world.party(MODERN)
        for party in (legacy, modern):
            tag = f"{end}{party.is_modern}"
            id, work = world.begin(party, tag, "must")
            if end == "completed":
                world.server.finish(work, text("done"))
            elif end == "failed":
                world.server.fail(work, -32000, "broke")
            else:
                world.server.stop(work)
            world.wait(60.0)
            asked = world.ask(party.cancel(id))
            if party is legacy:
                assert asked.error == {"code": -32602, "message": f"Cannot cancel task: it is {end} already"}
            else:
                result = dict(asked.result)
                assert result.pop("_meta", {}).keys() <= {K + "serverInfo"}
                assert result == {"resultType": "complete"}
            assert world.status(party, id) == end
            assert work.stops == []


@pytest.mark.parametrize(
    "cursor", ["", "after-", "after-x", "after-1x", "xafter-1", "after--1", "after-" + "1" * 19, 7, ["after-1"], "1"]
)
def test_an_invalid_cursor_is_refused(cursor: object) -> None:
    world = scene(offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    world.begin(party, "a")
    error = world.ask(party.ask("tasks/list", cursor=cursor)).error
    assert error == {
        "code": -32602,
        "message": "got a cursor that was not given out here, expected one of an answer to tasks/list",
    }


def test_a_page_has_the_tasks_after_its_cursor() -> None:
    """The cursor `null` is the beginning. The page after the longest valid cursor is empty."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(task_page_max=2))
    party = world.party(LEGACY)
    ids = [world.begin(party, tag)[0] for tag in "abcd"]

    def page(**params: Any) -> tuple[list[str], str | None]:
        found = world.ask(party.ask("tasks/list", **params)).result
        assert found.keys() <= {"tasks", "nextCursor"}
        return [task["taskId"] for task in found["tasks"]], found.get("nextCursor")

    first, cursor = page()
    assert (first, page(cursor=None)) == (ids[:2], (ids[:2], cursor))
    assert page(cursor=cursor) == (ids[2:], None)
    assert page(cursor="after-" + "9" * 18) == ([], None)
    assert page(cursor="after-0") == (ids[:2], cursor)


@pytest.mark.parametrize(("early_s", "is_shown"), [(0.25, True), (0.0, False)])
def test_a_task_is_shown_until_its_time_is_over(early_s: float, is_shown: bool) -> None:
    """The task is neither in the list nor found by its id from that very moment on, even before its timer is
    handled."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(task_ttl_s=60.0, task_ttl_max_s=60.0))
    party = world.party(LEGACY)
    id, _ = world.begin(party, "a")
    (task,) = world.engine.tasks()
    world.world.now = task.expires_at_unix - UNIX_AT_ZERO - early_s
    assert [one["taskId"] for one in world.ask(party.listing()).result["tasks"]] == ([id] if is_shown else [])
    asked = world.ask(party.get(id))
    if is_shown:
        assert asked.result["taskId"] == id
    else:
        assert asked.error == {"code": -32602, "message": UNKNOWN}
