"""What clients are told of their tasks, and when: each answer, each notification, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import UNIX_AT_ZERO, Heard
from isthmus.core.base.effects import Headers, Note
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from isthmus.core.base.timestamps import format_time
from stateless_driving import ACCEPT, K
from task_clients import Party
from task_scenes import GRACE_S, Scene, scene
from task_servers import TASKS, Twin, Work, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
ERAS = [LEGACY, MODERN]
UNKNOWN = "Task not found: there is none of that id, or its time is over"


def at(now: float) -> str:
    return format_time(UNIX_AT_ZERO + now)


def silenced(world: Scene, verb: str = "tasks/get") -> list[Heard]:
    """From now on its server does not answer this."""
    receive, found = world.server._receive_verb, []

    def note(heard: Heard, method: str, params: dict[str, Any]) -> None:
        if method == verb:
            found.append(heard)
        else:
            receive(heard, method, params)

    world.server._receive_verb = note  # type: ignore[method-assign]
    return found


def remote(down: Era = LEGACY, up: Era = MODERN) -> tuple[Scene, Party, str, Work]:
    world = scene(up, Kind.HTTP, has_tasks=True, insists=up is MODERN)
    party = world.party(down)
    id, work = world.begin(party, "a", "must")
    return world, party, id, work


# --- Who waits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ERAS)
def test_who_looks_is_answered_in_time_whatever_the_server_says(down: Era) -> None:
    """With what is known, `task_look_s` after the last that asked; who waits for the outcome waits on."""
    world, party, id, _ = remote(down)
    world.wait(30.0)
    held = silenced(world)
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


def test_who_looks_is_answered_in_time_though_another_went() -> None:
    """The one that is left has its time; with the last that goes nobody is waited for."""
    world, party, id, _ = remote(MODERN)
    world.wait(30.0)
    silenced(world)
    first, second, third = (party.get(id) for _ in range(3))
    world.run()
    world.wait(1.0)
    party.hang_up(first)
    world.wait(4.0)
    assert [one.result["status"] for one in (second, third)] == ["working"] * 2
    assert first.reply is None


def test_all_who_wait_for_a_task_hear_that_it_is_over() -> None:
    """Its time is: for its state or for its outcome, whoever waits hears that it was cancelled."""
    limits = Limits(task_ttl_s=60.0, task_ttl_max_s=60.0, task_look_s=600.0)
    world = scene(LEGACY, Kind.HTTP, has_tasks=True, limits=limits)
    party = world.party(LEGACY)
    asked = party.call("a", "must")
    world.run()
    world.server.accept(world.server.work("a"))
    world.run()
    id = asked.result["task"]["taskId"]
    world.wait(20.0)
    silenced(world)
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
def test_all_who_wait_for_a_task_hear_how_it_ended(down: Era) -> None:
    """Each what it asked for; that it is over is told once it is stored."""
    world, party, id, work = remote(down)
    world.wait(30.0)
    held = silenced(world)
    looking = [party.get(id), party.get(id)]
    world.run()
    results = [party.result(id), party.result(id)] if down is LEGACY else []
    world.run()
    work.outcome, work.status, work.message = {"result": text("done")}, "completed", "well done"
    (heard,) = held
    world.server.answer(heard, world.server.shown(work))
    world.run()
    assert [one.result["status"] for one in looking] == ["working"] * 2
    assert [one.result["content"] for one in results] == [text("done")["content"]] * len(results)


# --- What it came to --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [None, "enough of that"])
@pytest.mark.parametrize("up", ERAS)
@pytest.mark.parametrize("down", ERAS)
def test_a_task_that_its_server_cancels_is_cancelled_in_its_servers_words(
    down: Era, up: Era, message: str | None
) -> None:
    """Told as that to who looks, to who waits, and to who was to be told; stored so; and nothing is said to the
    server."""
    world, party, id, work = remote(down, up)
    waiting = party.result(id) if down is LEGACY else None
    world.run()
    work.message = message
    world.server.stop(work)
    world.wait(60.0)
    why = message or "the server cancelled it"
    said = world.ask(party.get(id)).result
    assert (said["status"], said["statusMessage"]) == ("cancelled", why)
    assert waiting is None or waiting.error == {"code": -32603, "message": f"the task was cancelled: {why}"}
    (record,) = world.store.tasks.values()
    assert (record.status.value, record.message, record.outcome) == ("cancelled", why, "")
    if down is LEGACY:
        (told,) = [
            f["params"] for f in party.heard("notifications/tasks/status") if f["params"]["status"] == "cancelled"
        ]
        assert told["statusMessage"] == why
    assert work.stops == []


@pytest.mark.parametrize("up", ERAS)
@pytest.mark.parametrize("down", ERAS)
def test_what_a_server_says_of_the_end_is_said_of_the_end(down: Era, up: Era) -> None:
    """And what it said before is not."""
    world, party, id, work = remote(down, up)
    work.message = "halfway"
    world.wait(60.0)
    assert world.ask(party.get(id)).result["statusMessage"] == "halfway"
    work.message = "all of it"
    world.server.finish(work, text("done"))
    world.wait(60.0)
    said = world.ask(party.get(id)).result
    assert said["status"] == "completed"
    assert said.get("statusMessage") in ("all of it", None)
    (record,) = world.store.tasks.values()
    assert record.message == said.get("statusMessage", "")


@pytest.mark.parametrize("size", [4096, 4097])
def test_an_outcome_that_is_stored_for_a_task_that_is_over_by_then_is_dropped(size: int) -> None:
    """Its client cancelled meanwhile: what was stored on its own goes, and what the task came to stays."""
    world = scene(offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a")
    base = len(json.dumps(text("")).replace(" ", ""))
    world.store.is_slow = True
    world.server.finish(work, text("x" * (size - base)))
    world.run()
    assert world.ask(party.cancel(id)).result["status"] == "cancelled"
    while world.store.held:
        world.store.deliver(world.world)
        world.run()
    assert world.status(party, id) == "cancelled"
    assert world.store.blobs == {}
    (record,) = world.store.tasks.values()
    assert (record.status.value, record.blob) == ("cancelled", None)


# --- Who listens ------------------------------------------------------------------------------------------------------


def listened(party: Party, world: Scene, id: str) -> list[dict[str, Any]]:
    asked = party.ask("subscriptions/listen", notifications={"taskIds": [id]})
    world.run()
    return [frame["params"] for frame in world.world.frames(asked.channel) if frame["method"] == "notifications/tasks"]


def test_who_begins_to_listen_is_told_what_it_may_have_missed() -> None:
    """Nothing of a task that works: that is what it was told when it was given the handle."""
    world = scene(LEGACY, offer=Offer.ALWAYS)
    party = world.party(MODERN)
    id, work = world.begin(party, "a")
    assert listened(party, world, id) == []
    world.server.ask(work, "q")
    world.run()
    (said,) = listened(party, world, id)
    assert (said["taskId"], said["status"], len(said["inputRequests"])) == (id, "input_required", 1)
    (key,) = said["inputRequests"]
    world.ask(party.update(id, {key: ACCEPT}))
    assert listened(party, world, id) == []
    world.server.finish(work, text("done"))
    world.wait(1.0)
    (said,) = listened(party, world, id)
    assert (said["status"], said["result"]["content"]) == ("completed", text("done")["content"])


def test_an_end_that_cannot_be_told_is_noted() -> None:
    """It says two things of one member: who listens hears nothing, who looks hears why."""
    world = scene(offer=Offer.ALWAYS)
    party = world.party(MODERN)
    id, work = world.begin(party, "a")
    asked = party.ask("subscriptions/listen", notifications={"taskIds": [id]})
    world.run()
    world.server.finish(work, {**text("x"), Twin("content"): []})
    world.wait(1.0)
    told = [f["params"] for f in world.world.frames(asked.channel) if f["method"] == "notifications/tasks"]
    notes = [note for note in world.world.every(Note) if note.text.startswith("how a task ended cannot be told")]
    if notes:
        assert {(note.level, note.server) for note in notes} == {("warning", "s")}
        assert told == []
    else:
        assert [one["status"] for one in told] == ["failed"]


@pytest.mark.parametrize("is_asked", [True, False])
def test_who_is_told_of_a_task_late_is_told_what_happened_meanwhile(is_asked: bool) -> None:
    """The handle says that it works; a question that came while it was being stored is told after it."""
    world = scene(LEGACY, offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    world.store.is_slow = True
    asked = party.call("a")
    world.wait(GRACE_S)
    if is_asked:
        world.server.ask(world.server.work("a"), "q")
        world.run()
    assert asked.reply is None
    assert party.heard("notifications/tasks/status") == []
    world.store.deliver(world.world)
    world.run()
    assert asked.result["task"]["status"] == "working"
    told = [frame["params"]["status"] for frame in party.heard("notifications/tasks/status")]
    assert told == (["input_required"] if is_asked else [])


# --- What is asked ----------------------------------------------------------------------------------------------------


OLD, NEW = (("traceparent", "old"),), (("traceparent", "new"),)


@pytest.mark.parametrize(("own", "expected"), [(NEW, NEW), ((), OLD)])
def test_an_answer_goes_up_with_the_headers_that_it_came_with(own: Headers, expected: Headers) -> None:
    """Those of the request that brings it; where it has none, the latest of its session."""
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

    def note(heard: Heard, frame: dict[str, Any]) -> None:
        assert heard.post is not None
        posts.append(heard.post.headers)
        receive(heard, frame)

    world.server._receive_answer = note  # type: ignore[method-assign]
    party.modern.headers = own
    world.ask(party.update(id, {key: ACCEPT}))
    assert posts == [expected]
    assert [one["action"] for one in work.given["q"]] == ["accept"]


# --- What is refused --------------------------------------------------------------------------------------------------


def test_a_verb_of_the_other_era_is_unknown() -> None:
    """Its name is in the answer, up to a length."""
    world = scene(offer=Offer.ALWAYS)
    legacy, modern = world.party(LEGACY), world.party(MODERN)
    for party, methods in ((legacy, ("tasks/update", "tasks/x")), (modern, ("tasks/list", "tasks/result", "tasks/x"))):
        for method in methods:
            error = world.ask(party.ask(method, taskId="x")).error
            assert error["code"] == -32601
            assert error["message"].startswith(f"Method not found: {method}")
    long = "tasks/" + "y" * 200
    assert world.ask(legacy.ask(long)).error["message"] == f"Method not found: {long[:100]}"


def test_a_client_that_does_not_declare_tasks_is_told_to() -> None:
    """With each request: what it lacks is in the data."""
    world = scene(offer=Offer.ALWAYS)
    party = world.party(MODERN, is_plain=True)
    error = world.ask(party.get("x")).error
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    assert error["message"] == (
        "Missing required client capability: tasks are an extension, declare it with each request"
    )


def test_what_has_ended_is_not_cancelled() -> None:
    """With a session that is an error, which says how it ended; without one it is as good as done."""
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
                said = dict(asked.result)
                assert said.pop("_meta", {}).keys() <= {K + "serverInfo"}
                assert said == {"resultType": "complete"}
            assert world.status(party, id) == end
            assert work.stops == []


@pytest.mark.parametrize(
    "cursor", ["", "after-", "after-x", "after-1x", "xafter-1", "after--1", "after-" + "1" * 19, 7, ["after-1"], "1"]
)
def test_a_cursor_is_one_that_was_given_out(cursor: object) -> None:
    world = scene(offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    world.begin(party, "a")
    error = world.ask(party.ask("tasks/list", cursor=cursor)).error
    assert error == {
        "code": -32602,
        "message": "got a cursor that was not given out here, expected one of an answer to tasks/list",
    }


def test_a_page_holds_what_follows_its_cursor() -> None:
    """`null` is the beginning; the end of the longest that can be given out is nothing."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(task_page_max=2))
    party = world.party(LEGACY)
    ids = [world.begin(party, tag)[0] for tag in "abcd"]

    def page(**said: Any) -> tuple[list[str], str | None]:
        found = world.ask(party.ask("tasks/list", **said)).result
        assert found.keys() <= {"tasks", "nextCursor"}
        return [task["taskId"] for task in found["tasks"]], found.get("nextCursor")

    first, cursor = page()
    assert (first, page(cursor=None)) == (ids[:2], (ids[:2], cursor))
    assert page(cursor=cursor) == (ids[2:], None)
    assert page(cursor="after-" + "9" * 18) == ([], None)
    assert page(cursor="after-0") == (ids[:2], cursor)


@pytest.mark.parametrize(("early_s", "is_shown"), [(0.25, True), (0.0, False)])
def test_a_task_is_shown_until_its_time_is_over(early_s: float, is_shown: bool) -> None:
    """And not at that very moment, though nobody was woken for it yet: not in the list, and not by its name."""
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
