"""Tests of tasks that an earlier run began: what is known of them, how they go on, and against whose quota they
count."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import UNIX_AT_ZERO, SentMessage
from inside import Inside
from isthmus.core.base.effects import Note
from isthmus.core.base.errors import OVERLOADED
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from isthmus.core.base.timestamps import format_time
from stateless_driving import ACCEPT
from task_clients import Party
from task_scenes import GRACE_S, Scene, scene
from task_servers import TASKS, Work, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
ERAS = [LEGACY, MODERN]
NEEDED = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
STOPPED = "the proxy was stopped while the call ran: what became of it is not known"


def record_polls(world: Scene) -> list[float]:
    """Records the times, from now, at which the server gets `tasks/get`."""
    began, verb, found = world.world.now, world.server._receive_task_request, []

    def note(received: SentMessage, method: str, params: dict[str, Any]) -> None:
        if method == "tasks/get":
            found.append(round(world.world.now - began, 3))
        verb(received, method, params)

    world.server._receive_task_request = note  # type: ignore[method-assign]
    return found


def restarted(up: Era, down: Era = LEGACY, *, poll_ms: int | None = 1000) -> tuple[Scene, str, Work]:
    """Returns the task of a server over HTTP after a restart of the proxy. Its client has not come back yet."""
    world = scene(up, Kind.HTTP, has_tasks=True, insists=up is MODERN)
    party = world.party(down, principal="ann")
    asked = party.call("a", "must")
    world.run()
    work = world.server.accept(world.server.work("a"), poll_ms=poll_ms)
    world.wait(GRACE_S)
    shown = asked.result if down is MODERN else asked.result["task"]
    world.restart()
    return world, shown["taskId"], work


# --- Status -----------------------------------------------------------------------------------------------------------


def test_tasks_of_an_earlier_run_are_in_the_order_in_which_they_began() -> None:
    """The order does not depend on their lifetimes. Tasks of this run come after them, also in the pages of a list."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(task_page_max=2))
    party = world.party(LEGACY, principal="ann")
    ids = []
    for tag, ttl in (("a", 100_000), ("b", 20_000), ("c", 50_000), ("d", 10_000)):
        asked = party.call(tag, ttl=ttl)
        world.wait(1.0)
        ids.append(asked.result["task"]["taskId"])
    world.restart()
    party = world.party(LEGACY, principal="ann")
    asked = party.call("e")
    world.wait(1.0)
    ids.append(asked.result["task"]["taskId"])
    assert [task.id for task in world.engine.tasks()] == ids
    seen, cursor = [], None
    while True:
        page = world.ask(party.listing(cursor)).result
        seen.append([task["taskId"] for task in page["tasks"]])
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    assert seen == [ids[:2], ids[2:4], ids[4:]]


def test_a_local_task_of_an_earlier_run_has_failed() -> None:
    """The failure has the error that says why. A finished task stays as it was, and both are dropped when their time is
    over."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(task_ttl_s=60.0, task_ttl_max_s=60.0))
    party = world.party(LEGACY, principal="ann")
    lost, _ = world.begin(party, "a")
    done, work = world.begin(party, "b")
    world.server.finish(work, text("done"))
    world.wait(1.0)
    before = {task.id: task for task in world.engine.tasks()}
    world.restart()
    shown = {task.id: task for task in world.engine.tasks()}
    assert (shown[lost].status, shown[lost].message) == ("failed", STOPPED)
    error = {"code": -32603, "message": STOPPED}
    assert shown[lost].size_bytes == len(json.dumps(error, separators=(",", ":")))
    assert (shown[done].status, shown[done].size_bytes) == ("completed", before[done].size_bytes)
    assert {id: task.expires_at_unix for id, task in shown.items()} == {
        id: task.expires_at_unix for id, task in before.items()
    }
    assert {id: task.created_at_unix for id, task in shown.items()} == {
        id: task.created_at_unix for id, task in before.items()
    }
    assert {(task.principal, task.session, task.kind) for task in shown.values()} == {("", "", "local")}
    party = world.party(LEGACY, principal="ann")
    polled = world.ask(party.get(lost)).result
    assert (polled["status"], polled["statusMessage"]) == ("failed", STOPPED)
    assert polled["lastUpdatedAt"] == format_time(UNIX_AT_ZERO)
    assert world.ask(party.result(lost)).error == error
    assert world.ask(party.result(done)).result["content"] == text("done")["content"]
    world.wait(before[lost].expires_at_unix - UNIX_AT_ZERO - world.world.now + 0.001)
    assert [task.id for task in world.engine.tasks()] == [done]
    world.wait(1.0)
    assert world.engine.tasks() == ()
    assert not world.store.tasks


@pytest.mark.parametrize("up", ERAS)
def test_a_servers_task_goes_on_after_a_restart(up: Era) -> None:
    """The task has not failed, and the server is not asked about it before the client comes back."""
    world, id, work = restarted(up)
    (shown,) = world.engine.tasks()
    assert (shown.id, shown.status, shown.message, shown.kind) == (id, "working", "", "proxied")
    polls = work.polls
    world.wait(60.0)
    assert (work.polls, work.fetches > 1, work.stops) == (polls, False, [])


def test_a_task_of_a_server_that_is_not_in_the_plan_has_failed() -> None:
    """The task has failed, because no server can be asked about it."""
    world, id, _ = restarted(LEGACY)
    (record,) = world.store.tasks.values()
    Inside(world.engine).local_tasks._tasks.clear()
    Inside(world.engine).local_tasks.restore([record], ["other"])
    (shown,) = world.engine.tasks()
    assert (shown.id, shown.status, shown.message) == (id, "failed", STOPPED)


# --- Continuation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ERAS)
@pytest.mark.parametrize("poll_ms", [1500, 2000])
def test_a_task_is_polled_as_often_as_before_the_restart(down: Era, poll_ms: int) -> None:
    """The server is polled at once when the client asks, and then at the server's interval."""
    world, id, work = restarted(MODERN, down, poll_ms=poll_ms)
    party = world.party(down, principal="ann")
    work.poll_ms = None
    found = record_polls(world)
    if down is LEGACY:
        party.result(id)
    else:
        party.ask("subscriptions/listen", notifications={"taskIds": [id]})
        party.get(id)
    world.run()
    world.wait(7.0)
    first = found[0]
    assert first == 0.0
    assert [round(moment - first, 3) for moment in found[:4]] == [n * poll_ms / 1000 for n in range(4)]


OUTCOMES: list[dict[str, Any]] = [
    {"result": text("done")},
    {"result": {"content": [], "structuredContent": {"n": 1}}},
    {"result": {**text("no"), "isError": True}},
    {"error": {"code": -32603, "message": "it broke"}},
    {"error": {"code": -32602, "message": "it does not know that"}},
    {"error": {"code": -32021, "message": "tasks!"}},
    {"error": {"code": -32021, "message": "tasks!", "data": NEEDED}},
    {"error": {"code": -32042, "message": "visit!"}},
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=str)
@pytest.mark.parametrize("up", ERAS)
@pytest.mark.parametrize("down", ERAS)
def test_a_restart_does_not_change_the_outcome(down: Era, up: Era, outcome: dict[str, Any]) -> None:
    """All that the client is shown of the outcome is compared, except times."""

    def shown(*, is_restarted: bool) -> tuple[Any, ...]:
        world = scene(up, Kind.HTTP, has_tasks=True, insists=up is MODERN)
        party = world.party(down, principal="ann")
        id, work = world.begin(party, "a", "must")
        if is_restarted:
            world.restart()
            party = world.party(down, principal="ann")
            world.ask(party.get(id))
        if "result" in outcome:
            world.server.finish(work, outcome["result"])
        else:
            world.server.fail(work, **outcome["error"])
        world.wait(60.0)
        polled = world.ask(party.get(id)).result
        kept = {name: polled[name] for name in ("status", "statusMessage", "result", "error") if name in polled}
        if down is LEGACY:
            reply = world.ask(party.result(id)).reply
            assert reply is not None
            response = {name: reply[name] for name in ("result", "error") if name in reply}
            assert json.dumps(response).count(id) == ("result" in response)
            return kept, json.loads(json.dumps(response).replace(id, "ID"))
        kept.get("result", {}).pop("_meta", None)  # `serverInfo` is not asked for again
        return (kept,)

    assert shown(is_restarted=True) == shown(is_restarted=False)


@pytest.mark.parametrize("down", ERAS)
def test_questions_after_a_restart_reach_the_client(down: Era) -> None:
    """The capabilities that the client declares in this run count. The answer reaches the server."""
    world, id, work = restarted(MODERN, down)
    party = world.party(down, principal="ann")
    assert world.status(party, id) == "working"
    if down is LEGACY:
        party.result(id)
    world.server.ask(work, "Who?")
    world.wait(60.0)
    polled = world.ask(party.get(id)).result
    assert polled["status"] == "input_required"
    if down is LEGACY:
        (question,) = party.received("elicitation/create")
        party.reply(question["id"], ACCEPT)
    else:
        ((key, question),) = polled["inputRequests"].items()
        party.update(id, {key: ACCEPT})
    assert question["params"]["message"] == "Who?"
    world.run()
    assert work.given["Who?"] == [ACCEPT]


@pytest.mark.parametrize("up", ERAS)
@pytest.mark.parametrize("down", ERAS)
def test_a_task_is_cancelled_though_its_server_has_to_be_reached_first(down: Era, up: Era) -> None:
    """The client gets its response after the server has the cancellation. The client names the task for the first
    time."""
    world, id, work = restarted(up, down)
    party = world.party(down, principal="ann")
    asked = party.cancel(id)
    world.wait(5.0)
    if down is LEGACY:
        assert (asked.result["status"], asked.result["taskId"]) == ("cancelled", id)
        assert asked.result["statusMessage"] == "its client cancelled it"
    else:
        assert asked.result["resultType"] == "complete"
        assert world.status(party, id) == "cancelled"
    assert work.stops == ["tasks/cancel"]
    (record,) = world.store.tasks.values()
    assert (record.status.value, record.message) == ("cancelled", "its client cancelled it")


# --- Quota ------------------------------------------------------------------------------------------------------------


def test_a_restored_task_counts_in_the_session_that_names_it() -> None:
    """The task counts from when the client first names it, in that session only, until its time is over."""
    limits = Limits(tasks_per_session_max=2, task_ttl_s=60.0, task_ttl_max_s=60.0)
    world = scene(LEGACY, Kind.HTTP, has_tasks=True, limits=limits)
    party = world.party(LEGACY, principal="ann")
    ids = []
    for tag in "ab":
        asked = party.call(tag, "must", ttl=60_000)
        world.run()
        world.server.accept(world.server.work(tag), ttl_ms=None)
        world.wait(GRACE_S)
        ids.append(asked.result["task"]["taskId"])
    world.restart()
    first, second = (world.party(LEGACY, principal="ann") for _ in range(2))

    def may_begin(party: Party, tag: str) -> bool:
        """True if there is room for another task, which is then made."""
        asked = party.call(tag, "must")
        world.run()
        if asked.reply is None:
            world.server.accept(world.server.work(tag), ttl_ms=None)
            world.wait(GRACE_S)
            return "task" in asked.result
        assert asked.code == OVERLOADED
        assert "tasks_per_session_max" in asked.error["message"]
        return False

    assert world.status(first, ids[0]) == "working"
    assert may_begin(first, "c")
    assert not may_begin(first, "d")
    assert may_begin(second, "e")
    assert world.status(second, ids[1]) == "working"
    assert not may_begin(second, "f")
    world.wait(59.0)
    assert may_begin(first, "g")


def test_tasks_of_an_earlier_run_count_against_their_principal() -> None:
    """The quota of a principal covers all runs, whether its client has come back or not."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(tasks_per_principal_max=2))
    for principal in ("ann", "ann", "bob"):
        world.begin(world.party(LEGACY, principal=principal), f"t{world.world.now}")
    world.restart()
    refused = world.party(LEGACY, principal="ann").call("x")
    allowed = world.party(LEGACY, principal="bob").call("y")
    world.wait(1.0)
    assert refused.code == OVERLOADED
    assert "tasks_per_principal_max" in refused.error["message"]
    assert "task" in allowed.result


@pytest.mark.parametrize("is_restarted", [False, True])
def test_tasks_do_not_count_against_open_requests(is_restarted: bool) -> None:
    """The number of calls that may wait is equal without tasks, while they run, and when they are over."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True, limits=Limits(exchanges_per_session_max=2))
    party = world.party(LEGACY, principal="ann")
    begun = [world.begin(party, tag, "must") for tag in "abc"]
    if is_restarted:
        world.restart()
        party = world.party(LEGACY, principal="ann")
        for id, _ in begun:
            assert world.status(party, id) == "working"

    def waiting(tag: str) -> int:
        """The number of calls that may wait."""
        asked = [party.call(f"{tag}{number}", "silent", as_task=False) for number in range(4)]
        world.run()
        count = sum(one.reply is None for one in asked)
        assert {one.code for one in asked if one.reply is not None} == {OVERLOADED}
        for number in range(count):
            world.server.finish(world.server.work(f"{tag}{number}"), text("done"))
        world.run()
        return count

    assert waiting("x") == 2
    for _, work in begun[:2]:
        world.server.finish(work, text("done"))
    world.wait(60.0)
    assert waiting("y") == 2
    world.server.finish(begun[2][1], text("done"))
    world.wait(60.0)
    assert waiting("z") == 2


@pytest.mark.parametrize("is_over", [False, True])
def test_a_task_of_an_ended_session_goes_to_the_session_that_names_it(is_over: bool) -> None:
    """The client has no principal. The record gets the session that names the task, and the task is in no other
    session's list."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a", "must")
    if is_over:
        world.server.finish(work, text("done"))
        world.wait(60.0)
    (before,) = world.store.tasks.values()
    assert before.sid
    world.restart()
    heir, other = world.party(LEGACY), world.party(LEGACY)
    assert world.ask(heir.listing()).result["tasks"] == []
    assert world.status(heir, id) == ("completed" if is_over else "working")
    (after,) = world.store.tasks.values()
    assert after.sid not in ("", before.sid)
    assert [task["taskId"] for task in world.ask(heir.listing()).result["tasks"]] == [id]
    assert world.ask(other.listing()).result["tasks"] == []
    assert world.ask(other.get(id)).code == -32602
    assert world.status(heir, id) == ("completed" if is_over else "working")
    (again,) = world.store.tasks.values()
    assert again == after


# --- Unreadable outcomes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ERAS)
def test_an_unreadable_stored_outcome_becomes_an_error(down: Era) -> None:
    """The outcome has duplicate members. A request for it gets an error, a subscription gets nothing, and a note is
    written."""
    world = scene(offer=Offer.ALWAYS)
    party = world.party(down, principal="ann")
    id, work = world.begin(party, "a")
    world.server.finish(work, text("done"))
    world.wait(1.0)
    ((key, value),) = world.store.records.items()
    record = json.loads(value) | {"outcome": '{"content":[],"_meta":{},"content":[],"_meta":{}}'}
    world.store.records[key] = json.dumps(record).encode()
    world.restart()
    party = world.party(down, principal="ann")
    if down is LEGACY:
        assert world.status(party, id) == "completed"
        error = world.ask(party.result(id)).error
        assert error["message"].startswith(f"the result of task {id} cannot be shown: ")
    else:
        error = world.ask(party.get(id)).error
        assert error["message"].startswith("the result cannot be shown: ")
        asked = party.ask("subscriptions/listen", notifications={"taskIds": [id]})
        world.run()
        assert "notifications/tasks" not in [frame.get("method") for frame in world.world.frames(asked.channel)]
        notes = [note for note in world.world.every(Note) if note.text.startswith("how a task ended cannot be told: ")]
        assert [(note.level, note.server) for note in notes] == [("warning", "s")]
    assert error["code"] == -32603


def test_a_restored_task_is_not_called_again() -> None:
    """A plain call with this error would be repeated as a task. This call was a task, and may have run."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True, names_era=False)
    party = world.party(LEGACY, principal="ann")
    id, work = world.begin(party, "a", "must")
    world.restart()
    party = world.party(LEGACY, principal="ann")
    waiting = world.ask(party.result(id))
    world.server.fail(work, -32021, "tasks!", NEEDED)
    world.wait(5.0)
    assert waiting.error == {"code": -32021, "message": "tasks!", "data": NEEDED}
    assert world.status(party, id) == "failed"
    assert world.server.received.count("tools/call") == 0
