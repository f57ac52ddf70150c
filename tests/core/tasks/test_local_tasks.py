"""Tests of calls that become tasks: their messages to client and server, their records, and their status for an
operator."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from deadlines import reasons
from driving import GONE, LATEST, UNIX_AT_ZERO, SentMessage, request
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from isthmus.core.base.timestamps import format_time
from isthmus.core.state.records import StoredTask, TaskStatus
from isthmus.core.state.task import TaskState
from stateless_driving import FORM
from task_clients import ClientRequest, Party
from task_scenes import GRACE_S, Scene, scene
from task_servers import RELATED, Work, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
ERAS = [LEGACY, MODERN]
STOPPED = "the proxy was stopped while the call ran: what became of it is not known"


def at(now: float) -> str:
    return format_time(UNIX_AT_ZERO + now)


def record_cancellations(world: Scene) -> list[dict[str, Any]]:
    """Records each cancellation that the server gets from now on: its params, with the call's tag for the request
    id."""
    found: list[dict[str, Any]] = []
    receive = world.server._receive_notification

    def note(received: SentMessage, frame: dict[str, Any]) -> None:
        if frame["method"] == "notifications/cancelled":
            numbers = {work.received.id: work.tag for work in world.server.works.values()}
            params = dict(frame["params"])
            found.append({**params, "requestId": numbers.get(params.get("requestId"))})
        receive(received, frame)

    world.server._receive_notification = note  # type: ignore[method-assign]
    return found


def deliver_but(world: Scene, kept: set[int]) -> None:
    """Lets the storage answer all its orders but the `kept` ones."""
    while [ticket for ticket, _ in world.store.held if ticket not in kept]:
        held, world.store.held = world.store.held, []
        for ticket, answer in held:
            if ticket in kept:
                world.store.held.append((ticket, answer))
            else:
                world.world.store(ticket, answer)
        world.run()


def held(world: Scene) -> set[int]:
    """The tickets of orders that the storage has not answered."""
    return {ticket for ticket, _ in world.store.held}


# --- Cancellation -----------------------------------------------------------------------------------------------------


def by_client(world: Scene, party: Party, id: str) -> None:
    world.ask(party.cancel(id))


def by_session(world: Scene, party: Party, id: str) -> None:
    party.leave()


def by_time(world: Scene, party: Party, id: str) -> None:
    world.wait(31.0)


def by_operator(world: Scene, party: Party, id: str) -> None:
    world.world._note(world.engine.receive_task_cancel(id, world.world.now))


@pytest.mark.parametrize(
    ("end", "why", "stays"),
    [
        (by_client, "its client cancelled it", True),
        (by_session, "its session is over", True),
        (by_time, "its time was over before the call was", False),
        (by_operator, "cancelled by an operator", True),
    ],
)
def test_a_cancellation_has_its_reason(end: Callable[[Scene, Party, str], None], why: str, stays: bool) -> None:
    """The cancellation has the call's id and the reason, and nothing else. The status of the task has the same
    reason."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(task_ttl_s=30.0, task_ttl_max_s=30.0))
    party = world.party(LEGACY)
    id, work = world.begin(party, "a")
    found = record_cancellations(world)
    began = world.world.now
    end(world, party, id)
    world.run()
    assert found == [{"requestId": "a", "reason": why}]
    assert work.stops == ["notifications/cancelled"]
    assert [(task.status, task.message) for task in world.engine.tasks()] == ([("cancelled", why)] if stays else [])
    records = list(world.store.tasks.values())
    assert [(record.status, record.message) for record in records] == ([(TaskState.CANCELLED, why)] if stays else [])
    assert [record.updated_at for record in records] == ([at(began)] if stays else [])


def test_an_open_question_is_answered_before_the_cancellation() -> None:
    """The question gets "cancel" first and once, and then the call is cancelled."""
    world = scene(LEGACY, offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a")
    world.server.ask(work, "q")
    world.run()
    world.server.received.clear()
    world.ask(party.cancel(id))
    assert world.server.received == ["", "notifications/cancelled"]
    assert work.given["q"] == [{"action": "cancel"}]


def test_a_task_that_cannot_be_saved_is_a_call_that_is_refused() -> None:
    """The client and the server get the same reason."""
    world = scene(offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    found = record_cancellations(world)
    world.store.is_failing = True
    asked = party.call("a")
    world.wait(GRACE_S)
    why = "no task could be made of the call: the disk is on fire"
    assert asked.error == {"code": -32603, "message": why}
    assert found == [{"requestId": "a", "reason": why}]
    assert world.engine.tasks() == ()
    assert party.received("notifications/tasks/status") == []


def test_a_client_that_leaves_before_it_has_the_handle_cancels_the_call() -> None:
    world = scene(offer=Offer.ALWAYS)
    party = world.party(MODERN)
    found = record_cancellations(world)
    world.store.is_slow = True
    asked = party.call("a")
    world.wait(GRACE_S)
    party.hang_up(asked)
    world.run()
    assert found == [{"requestId": "a", "reason": "its client was gone before it was told"}]


def test_a_client_that_leaves_with_the_handle_does_not_cancel_the_task() -> None:
    """The client has the handle and may come back for the task: its connection may have broken while the handle was
    under way, or later."""
    world = scene(offer=Offer.ALWAYS)
    party = world.party(MODERN)
    found = record_cancellations(world)
    id, work = world.begin(party, "a")
    world.world.end(party.places[-1], GONE)
    world.wait(5.0)
    assert found == []
    assert work.stops == []
    assert [(task.id, task.status) for task in world.engine.tasks()] == [(id, "working")]


# --- The proxy stops --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_a_stop_treats_each_task_as_it_stands(order: str) -> None:
    """The tasks are one that is over, one whose client has no handle yet, one whose outcome is being stored, one that
    goes on at its server, and one that ends. None of them affects another."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True, offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    kept: set[int] = set()
    ids: dict[str, str] = {}
    asked: dict[str, ClientRequest] = {}
    world.store.is_slow = True

    def begin(tag: str) -> None:
        tool = "work" if tag in ("upstream", "other upstream") else "forbidden"
        world.server.support["forbidden"] = "optional"
        asked[tag] = party.call(tag, tool)
        world.run()
        work = world.server.work(tag)
        if tool == "work":
            world.server.accept(work)
        else:
            work.as_task = False
        world.wait(GRACE_S)
        if tag == "unnamed":
            kept.update(held(world) - kept)
            return
        deliver_but(world, kept)
        ids[tag] = asked[tag].result["task"]["taskId"]
        if tag in ("over", "ending"):
            world.server.finish(work, text(tag))
            world.run()
        if tag == "ending":
            kept.update(held(world) - kept)
        deliver_but(world, kept)

    tags = ["over", "unnamed", "ending", "upstream", "local", "other upstream", "last"]
    for tag in tags if order == "forwards" else reversed(tags):
        begin(tag)
    found = record_cancellations(world)
    stopped_at = world.world.now
    world.world.stop()
    world.run()
    assert asked["unnamed"].error == {"code": -32603, "message": STOPPED}
    assert sorted(found, key=lambda params: str(params["requestId"])) == [
        {"requestId": tag, "reason": STOPPED} for tag in ("last", "local", "unnamed")
    ]
    stops = {tag: work.stops for tag, work in world.server.works.items() if work.stops}
    assert stops == {tag: ["notifications/cancelled"] for tag in ("unnamed", "local", "last")}
    deliver_but(world, set())
    records = world.store.tasks
    assert set(records) == set(ids.values())
    assert {tag: records[id].status.value for tag, id in ids.items()} == {
        "over": "completed",
        "ending": "completed",
        "upstream": "working",
        "local": "failed",
        "other upstream": "working",
        "last": "failed",
    }
    error = msgspec.json.encode({"code": -32603, "message": STOPPED}).decode()
    for tag in ("local", "last"):
        record = records[ids[tag]]
        assert record.message == STOPPED
        assert json.loads(record.outcome) == json.loads(error)
        assert record.is_error
        assert record.size_bytes == len(record.outcome)
        assert record.updated_at == at(stopped_at)
        shown = next(task for task in world.engine.tasks() if task.id == ids[tag])
        assert (shown.status, shown.message, shown.size_bytes) == ("failed", STOPPED, len(record.outcome))


# --- Records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
@pytest.mark.parametrize("up", ERAS)
@pytest.mark.parametrize("down", ERAS)
def test_the_record_of_a_servers_task(down: Era, up: Era, kind: Kind) -> None:
    """Each field is compared. The times are counted from when the server made the task, and message and poll interval
    are the server's."""
    limits = Limits(task_poll_s=3.0)
    world = scene(up, kind, has_tasks=True, insists=up is MODERN, limits=limits)
    party = world.party(down, principal="mo")
    began = world.world.now
    asked = party.call("a", "must")
    world.run()
    world.wait(0.125)
    work = world.server.work("a")
    work.message = "warming up"
    world.server.accept(work, ttl_ms=60_000, poll_ms=1500)
    world.run()
    (record,) = world.store.tasks.values()
    is_session = kind is Kind.HTTP and up is LEGACY
    session = f"S{world.server.count - 1}" if is_session else ""
    # In either era the task began when its server said so.
    assert record == StoredTask(
        id=record.id,
        server="s",
        tool="must",
        era="handshake" if down is LEGACY else "stateless",
        owner=record.owner,
        payer=record.payer,
        status=TaskState.WORKING,
        message="warming up",
        created_at=at(began + 0.125),
        updated_at=at(began + 0.125),
        expires_at_unix=UNIX_AT_ZERO + began + 0.125 + 60.0,
        ttl_ms=60_000,
        poll_ms=1500,
        upstream_task=work.id or "",
        is_remote=kind is Kind.HTTP,
        upstream_session=session,
        upstream_revision=(LATEST if up is LEGACY else record.upstream_revision) if kind is Kind.HTTP else "",
    )
    world.run()
    shown = asked.result if down is MODERN else asked.result["task"]
    assert (shown["taskId"], shown["status"], shown["statusMessage"]) == (record.id, "working", "warming up")
    assert (shown["createdAt"], shown["lastUpdatedAt"]) == (record.created_at, record.updated_at)
    assert shown["ttlMs" if down is MODERN else "ttl"] == 60_000
    assert shown["pollIntervalMs" if down is MODERN else "pollInterval"] == 1500


@pytest.mark.parametrize(
    ("ttl_ms", "expected_ms"), [(None, 90_000), (89_999, 89_999), (90_000, 90_000), (90_001, 90_000), (1, 1)]
)
def test_a_servers_task_lives_as_long_as_its_server_says_up_to_a_bound(ttl_ms: int | None, expected_ms: int) -> None:
    """The task ends exactly then."""
    world = scene(LEGACY, has_tasks=True, limits=Limits(task_ttl_s=50.0, task_ttl_max_s=90.0))
    party = world.party(LEGACY)
    party.call("a", "must")
    world.run()
    began = world.world.now
    world.server.accept(world.server.work("a"), ttl_ms=ttl_ms, poll_ms=None)
    world.run()
    (task,) = world.engine.tasks()
    assert task.expires_at_unix == UNIX_AT_ZERO + began + expected_ms / 1000
    (record,) = world.store.tasks.values()
    assert (record.ttl_ms, record.poll_ms) == (expected_ms, int(world.limits.task_poll_s * 1000))
    world.wait(expected_ms / 1000 - 0.0005)
    assert len(world.engine.tasks()) == 1
    world.wait(0.001)
    assert world.engine.tasks() == ()


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_the_final_message_is_not_shown_while_the_task_works(status: str) -> None:
    """The server made the task and ended it at once. The client first gets it as working, without that message."""
    world = scene(LEGACY, has_tasks=True)
    party = world.party(LEGACY)
    asked = party.call("a", "must")
    world.run()
    work = world.server.work("a")
    work.status, work.message = status, "all over"
    if status != "cancelled":
        work.outcome = {"result": text("done")}
    world.store.is_slow = True
    world.server.accept(work)
    world.run()
    first = msgspec.json.decode(next(iter(world.store.records.values())), type=StoredTask)
    assert (first.status, first.message) == (TaskState.WORKING, "")
    world.store.is_slow = False
    world.store.deliver(world.world)
    world.run()
    shown = asked.result["task"]
    assert shown["status"] == "working"
    assert "statusMessage" not in shown


# --- Status for operators ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_tasks", [True, False])
@pytest.mark.parametrize("down", ERAS)
def test_the_status_of_a_task_for_an_operator(down: Era, has_tasks: bool) -> None:
    """The task is compared while it runs, and when it is over: then it has no session."""
    world = scene(LEGACY, has_tasks=has_tasks, offer=Offer.ALWAYS)
    party = world.party(down, principal="mo")
    id, work = world.begin(party, "a", "must" if has_tasks else "work")
    (shown,) = world.engine.tasks()
    assert shown == TaskStatus(
        id=id,
        server="s",
        tool="must" if has_tasks else "work",
        kind="proxied" if has_tasks else "local",
        era="handshake" if down is LEGACY else "stateless",
        principal="mo",
        session=shown.session,
        status="working",
        message="",
        created_at_unix=shown.created_at_unix,
        updated_at_unix=shown.created_at_unix,
        expires_at_unix=shown.created_at_unix + 3600.0,
        size_bytes=0,
    )
    assert shown.session
    world.wait(7.0)
    ended = UNIX_AT_ZERO + world.world.now
    world.server.finish(work, text("done"))
    world.wait(1.0)
    (after,) = world.engine.tasks()
    (record,) = world.store.tasks.values()
    assert after == msgspec.structs.replace(
        shown, session="", status="completed", updated_at_unix=ended, size_bytes=record.size_bytes
    )
    assert record.size_bytes == len(record.outcome) > 0


# --- Times ------------------------------------------------------------------------------------------------------------


BECOMING = "call that becomes a task"


@pytest.mark.parametrize("down", ERAS)
def test_a_call_becomes_a_task_when_it_is_time_unless_it_is_over(down: Era) -> None:
    """A call that failed before that leaves no timer."""
    world = scene()
    party = world.party(down)
    for tag, fails in (("a", True), ("b", False)):
        asked = party.call(tag)
        world.run()
        if fails:
            world.server.fail(world.server.work(tag), -32000, "no")
            world.run()
            assert asked.code == -32000
        began = world.world.now
        found = reasons(world, 6.0)
        assert found.count(BECOMING) == (0 if fails else 1)
        if not fails:
            (task,) = world.engine.tasks()
            due_s = world.limits.task_grace_s if down is LEGACY else world.limits.task_after_s
            assert task.created_at_unix == UNIX_AT_ZERO + began + due_s


@pytest.mark.parametrize("how", ["adopted early", "over in time"])
def test_a_call_becomes_a_task_only_once(how: str) -> None:
    """A result within the grace time makes the call a task at once, and no timer is left."""
    world = scene()
    party = world.party(LEGACY)
    asked = party.call("a")
    world.run()
    if how == "over in time":
        world.server.finish(world.server.work("a"), text("done"))
        world.run()
        assert asked.result["task"]["status"] == "working"
        assert BECOMING not in reasons(world, 6.0)
    else:
        assert reasons(world, 6.0).count(BECOMING) == 1
    assert len(world.engine.tasks()) == 1


def test_a_task_has_no_time_limit_but_its_own() -> None:
    """The reply timeout is for requests whose client waits."""
    limits = Limits(reply_timeout_s=5.0, task_ttl_s=60.0, task_ttl_max_s=60.0)
    world = scene(offer=Offer.ALWAYS, limits=limits)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a")
    found = reasons(world, 50.0)
    assert "upstream reply" not in found
    assert world.status(party, id) == "working"
    world.server.report(work, 1) if work.token is not None else None
    assert reasons(world, 15.0).count("end of a task") == 1
    assert world.engine.tasks() == ()


def test_the_time_to_become_a_task_begins_anew_after_an_answer() -> None:
    """The client was told to send the call again, and could get no handle meanwhile: the time begins anew with its
    answer."""
    world = scene(limits=Limits(task_after_s=5.0))
    party = world.party(MODERN)
    began = world.world.now
    asked = party.call("a")
    world.run()
    world.wait(1.0)
    world.server.ask(world.server.work("a"), "q")
    world.wait(1.0)
    result = asked.result
    assert result["resultType"] == "input_required"
    world.wait(9.0)
    assert world.engine.tasks() == ()
    (key,) = result["inputRequests"]
    again = party.call("a", requestState=result["requestState"], inputResponses={key: {"action": "decline"}})
    world.run()
    assert again.reply is None
    world.wait(5.0)
    (task,) = world.engine.tasks()
    assert task.created_at_unix == UNIX_AT_ZERO + began + 15.0
    assert again.result["taskId"] == task.id


@pytest.mark.parametrize("length", [0, 399, 400, 401])
def test_the_message_of_a_failure_is_cut_to_a_bound(length: int) -> None:
    """The error itself is not cut."""
    world = scene(offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a")
    world.server.fail(work, -32000, "x" * length)
    world.run()
    polled = world.ask(party.get(id)).result
    assert polled.get("statusMessage", "") == "x" * min(length, 400)
    assert world.ask(party.result(id)).error == {"code": -32000, "message": "x" * length}


# --- Ticks of questions -----------------------------------------------------------------------------------------------


TICK = "sign of life"


def ask_with_token(world: Scene, work: Work) -> None:
    """Asks a question during a call, with a progress token."""
    meta = {"progressToken": "t"} if work.id is None else {"progressToken": "t", RELATED: {"taskId": work.id}}
    params = {**json.loads(FORM), "_meta": meta}
    work.given["q"] = []
    world.world.send(work.received.channel, request('"q"', "elicitation/create", json.dumps(params)))


def end_task(world: Scene, party: Party, id: str, work: Work, how: str) -> None:
    match how:
        case "finished":
            world.server.finish(work, text("done"))
        case "failed":
            world.server.fail(work, -32000, "no")
        case "cancelled":
            party.cancel(id)
        case "left":
            party.leave()
        case "lost":
            world.server.die(work)
        case "over its time":
            world.wait(60.0)


ENDS = [
    (down, how)
    for down in ERAS
    for how in ("finished", "failed", "cancelled", "left", "lost", "over its time")
    if down is LEGACY or how != "left"  # a client without a session has none to leave
]


@pytest.mark.parametrize("has_tasks", [False, True])
@pytest.mark.parametrize(("down", "how"), ENDS)
def test_the_ticks_of_a_question_end_with_the_task(down: Era, how: str, has_tasks: bool) -> None:
    """The task is the server's, or only ours."""
    limits = Limits(task_ttl_s=60.0, task_ttl_max_s=60.0, suspended_call_tick_s=5.0)
    world = scene(LEGACY, has_tasks=has_tasks, offer=Offer.ALWAYS, limits=limits)
    party = world.party(down)
    id, work = world.begin(party, "a", "must" if has_tasks else "work")
    ask_with_token(world, work)
    assert world.status(party, id) == "input_required"
    assert reasons(world, 11.0).count(TICK) == 2
    end_task(world, party, id, work, how)
    world.run()
    assert TICK not in reasons(world, 20.0)
    (before,) = world.engine.tasks() or (None,)
    assert before is None or before.status not in ("working", "input_required")
