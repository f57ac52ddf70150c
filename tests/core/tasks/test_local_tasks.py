"""What becomes of a call that is a task: each word that its client, its server, the storage and an operator get."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from driving import GONE, LATEST, UNIX_AT_ZERO, Heard
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.revisions import Era
from isthmus.core.base.timestamps import format_time
from isthmus.core.state.task import State
from isthmus.core.tasks.record import StoredTask, TaskStatus
from task_clients import Asked, Party
from task_scenes import GRACE_S, Scene, scene
from task_servers import text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS
ERAS = [LEGACY, MODERN]
STOPPED = "the proxy was stopped while the call ran: what became of it is not known"


def at(now: float) -> str:
    return format_time(UNIX_AT_ZERO + now)


def notices(world: Scene) -> list[dict[str, Any]]:
    """The params of each cancellation that its server is told of from now on, with the call's id as its tag."""
    found: list[dict[str, Any]] = []
    receive = world.server._receive_notice

    def note(heard: Heard, frame: dict[str, Any]) -> None:
        if frame["method"] == "notifications/cancelled":
            numbers = {work.heard.id: work.tag for work in world.server.works.values()}
            params = dict(frame["params"])
            found.append({**params, "requestId": numbers.get(params.get("requestId"))})
        receive(heard, frame)

    world.server._receive_notice = note  # type: ignore[method-assign]
    return found


def deliver_but(world: Scene, kept: set[int]) -> None:
    """Let the storage answer all that it was ordered, but for these orders."""
    while [ticket for ticket, _ in world.store.held if ticket not in kept]:
        held, world.store.held = world.store.held, []
        for ticket, answer in held:
            if ticket in kept:
                world.store.held.append((ticket, answer))
            else:
                world.world.store(ticket, answer)
        world.run()


def held(world: Scene) -> set[int]:
    return {ticket for ticket, _ in world.store.held}


# --- Why it is cancelled ----------------------------------------------------------------------------------------------


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
def test_a_server_hears_why_its_call_is_not_wanted_any_more(
    end: Callable[[Scene, Party, str], None], why: str, stays: bool
) -> None:
    """Under the call's own id and with the reason, and nothing else; so does whoever looks at the task afterwards."""
    world = scene(offer=Offer.ALWAYS, limits=Limits(task_ttl_s=30.0, task_ttl_max_s=30.0))
    party = world.party(LEGACY)
    id, work = world.begin(party, "a")
    found = notices(world)
    began = world.world.now
    end(world, party, id)
    world.run()
    assert found == [{"requestId": "a", "reason": why}]
    assert work.stops == ["notifications/cancelled"]
    assert [(task.status, task.message) for task in world.engine.tasks()] == ([("cancelled", why)] if stays else [])
    records = list(world.store.tasks.values())
    assert [(record.status, record.message) for record in records] == ([(State.CANCELLED, why)] if stays else [])
    assert [record.updated_at for record in records] == ([at(began)] if stays else [])


def test_a_server_that_asks_is_answered_before_it_hears_that_nobody_waits() -> None:
    """What closes the form comes first, once; then it may stop."""
    world = scene(LEGACY, offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    id, work = world.begin(party, "a")
    world.server.ask(work, "q")
    world.run()
    world.server.heard.clear()
    world.ask(party.cancel(id))
    assert world.server.heard == ["", "notifications/cancelled"]
    assert work.given["q"] == [{"action": "cancel"}]


def test_a_task_that_cannot_be_saved_is_a_call_that_is_refused() -> None:
    """Its client and its server hear the same."""
    world = scene(offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    found = notices(world)
    world.store.is_failing = True
    asked = party.call("a")
    world.wait(GRACE_S)
    why = "no task could be made of the call: the disk is on fire"
    assert asked.error == {"code": -32603, "message": why}
    assert found == [{"requestId": "a", "reason": why}]
    assert world.engine.tasks() == ()
    assert party.heard("notifications/tasks/status") == []


def test_who_goes_before_it_was_told_is_why_its_call_is_cancelled() -> None:
    world = scene(offer=Offer.ALWAYS)
    party = world.party(MODERN)
    found = notices(world)
    world.store.is_slow = True
    asked = party.call("a")
    world.wait(GRACE_S)
    party.hang_up(asked)
    world.run()
    assert found == [{"requestId": "a", "reason": "its client was gone before it was told"}]


def test_who_goes_after_it_was_told_goes_without_the_task() -> None:
    """It has the handle, and may come back for it: its connection broke while that was on its way, or later."""
    world = scene(offer=Offer.ALWAYS)
    party = world.party(MODERN)
    found = notices(world)
    id, work = world.begin(party, "a")
    world.world.end(party.places[-1], GONE)
    world.wait(5.0)
    assert found == []
    assert work.stops == []
    assert [(task.id, task.status) for task in world.engine.tasks()] == [(id, "working")]


# --- The proxy stops --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_a_stop_treats_each_task_as_it_stands(order: str) -> None:
    """One that is over, one whose client was not told of it, one whose outcome is being stored, one that goes on at its
    server, and one that ends: none of them keeps another from its due."""
    world = scene(LEGACY, Kind.HTTP, has_tasks=True, offer=Offer.ALWAYS)
    party = world.party(LEGACY)
    kept: set[int] = set()
    ids: dict[str, str] = {}
    asked: dict[str, Asked] = {}
    world.store.is_slow = True

    def begin(tag: str) -> None:
        tool = "work" if tag in ("remote", "other remote") else "forbidden"
        world.server.support["forbidden"] = "optional"
        asked[tag] = party.call(tag, tool)
        world.run()
        work = world.server.work(tag)
        if tool == "work":
            world.server.accept(work)
        else:
            work.as_task = False
        world.wait(GRACE_S)
        if tag == "untold":
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

    tags = ["over", "untold", "ending", "remote", "local", "other remote", "last"]
    for tag in tags if order == "forwards" else reversed(tags):
        begin(tag)
    found = notices(world)
    stopped_at = world.world.now
    world.world.stop()
    world.run()
    assert asked["untold"].error == {"code": -32603, "message": STOPPED}
    assert sorted(found, key=lambda params: str(params["requestId"])) == [
        {"requestId": tag, "reason": STOPPED} for tag in ("last", "local", "untold")
    ]
    stops = {tag: work.stops for tag, work in world.server.works.items() if work.stops}
    assert stops == {tag: ["notifications/cancelled"] for tag in ("untold", "local", "last")}
    deliver_but(world, set())
    records = world.store.tasks
    assert set(records) == set(ids.values())
    assert {tag: records[id].status.value for tag, id in ids.items()} == {
        "over": "completed",
        "ending": "completed",
        "remote": "working",
        "local": "failed",
        "other remote": "working",
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


# --- What is stored of it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
@pytest.mark.parametrize("up", ERAS)
@pytest.mark.parametrize("down", ERAS)
def test_a_record_holds_all_of_a_servers_task(down: Era, up: Era, kind: Kind) -> None:
    """Every member: its server's time is counted from when that made it, its words and pauses are the server's."""
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
    # Told at once with a session, it began when its server said so; else, too.
    assert record == StoredTask(
        id=record.id,
        server="s",
        tool="must",
        era="handshake" if down is LEGACY else "stateless",
        owner=record.owner,
        payer=record.payer,
        status=State.WORKING,
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
    said = asked.result if down is MODERN else asked.result["task"]
    assert (said["taskId"], said["status"], said["statusMessage"]) == (record.id, "working", "warming up")
    assert (said["createdAt"], said["lastUpdatedAt"]) == (record.created_at, record.updated_at)
    assert said["ttlMs" if down is MODERN else "ttl"] == 60_000
    assert said["pollIntervalMs" if down is MODERN else "pollInterval"] == 1500


@pytest.mark.parametrize(
    ("ttl_ms", "expected_ms"), [(None, 90_000), (89_999, 89_999), (90_000, 90_000), (90_001, 90_000), (1, 1)]
)
def test_a_servers_task_lives_as_long_as_its_server_says_and_no_longer_than_it_may(
    ttl_ms: int | None, expected_ms: int
) -> None:
    """Its end is due then: not a moment earlier or later."""
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
def test_what_a_server_says_of_a_task_that_is_over_is_not_said_of_one_that_works(status: str) -> None:
    """It made the task and ended it in one: its client is told of it as working, without those words."""
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
    assert (first.status, first.message) == (State.WORKING, "")
    world.store.is_slow = False
    world.store.deliver(world.world)
    world.run()
    shown = asked.result["task"]
    assert shown["status"] == "working"
    assert "statusMessage" not in shown


# --- What an operator sees --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_tasks", [True, False])
@pytest.mark.parametrize("down", ERAS)
def test_an_operator_sees_all_of_a_task(down: Era, has_tasks: bool) -> None:
    """As it runs, and when it is over: then it is run in no session."""
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
