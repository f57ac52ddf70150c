"""Tests of tasks among replicas: any of them answers for a task, and of two that think it is theirs one loses."""

from __future__ import annotations

import msgspec
import pytest
from driving import UNIX_AT_ZERO
from isthmus.core.base.effects import Forward
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer
from isthmus.core.base.replica import tag_of
from isthmus.core.base.revisions import Era
from isthmus.core.base.storage import Load, Save
from isthmus.core.state.records import StoredTask
from isthmus.core.tasks import foreign_tasks
from isthmus.core.tasks.foreign_tasks import BUSY, MIRRORS_MAX
from isthmus.core.tasks.local_tasks import LOST, SAVED_LATER_S
from isthmus.core.tasks.store import LOOKS_MAX
from task_clients import ClientRequest, Party
from task_scenes import Scene, scene
from task_servers import Work, text

LEGACY, MODERN = Era.HANDSHAKE, Era.STATELESS


def pair(kind: Kind = Kind.PIPE, up: Era = LEGACY, **more: object) -> tuple[Scene, Scene]:
    """Returns the replicas `a` and `b` over one storage."""
    a = scene(up, kind, has_tasks=kind is Kind.HTTP, insists=up is MODERN, replica="a", offer=Offer.ALWAYS, **more)  # type: ignore[arg-type]
    return a, a.beside("b")


def ann(world: Scene, era: Era = LEGACY) -> Party:
    """Returns a client that no request of which can be passed on: over HTTP with a session, without one on a pipe."""
    return world.party(era, principal="ann", down="http" if era is LEGACY else "pipe")


def begun(world: Scene, era: Era = LEGACY) -> tuple[str, Work]:
    return world.begin(ann(world, era), "t", "must" if world.kind is Kind.HTTP else "work")


def is_completed(world: Scene, party: Party, id: str) -> bool:
    """True if the task is completed at the third look at the latest: with one the replica may notice that it does not
    have the task any more, and with one it begins to poll the server."""
    for _ in range(2):
        world.status(party, id)
        world.wait(5.0)
    return world.status(party, id) == "completed"


def record_of(world: Scene, id: str) -> StoredTask:
    return world.store.tasks[id]


@pytest.mark.parametrize("down", [LEGACY, MODERN])
def test_a_finished_task_is_answered_by_any_replica(down: Era) -> None:
    a, b = pair()
    id, work = begun(a, down)
    assert tag_of(id) == "a"
    a.server.finish(work, text("done"))
    a.wait(1.0)
    party = ann(b, down)
    for _ in range(2):
        assert b.status(party, id) == "completed"
    if down is LEGACY:
        assert b.ask(party.result(id)).result["content"] == text("done")["content"]
    assert len(b.world.every(Load)) == 1
    assert b.ask(b.party(down, principal="eve", down="pipe").get(id)).code == -32602


def test_a_task_that_runs_in_another_replica_is_shown_and_awaited() -> None:
    a, b = pair()
    id, work = begun(a)
    party = ann(b)
    assert b.status(party, id) == "working"
    awaited = b.ask(party.result(id))
    b.wait(10.0)
    assert awaited.reply is None
    a.server.finish(work, text("done"))
    a.wait(1.0)
    b.wait(10.0)
    assert awaited.result["content"] == text("done")["content"]
    looked = len(b.world.every(Load))
    b.wait(60.0)
    assert len(b.world.every(Load)) == looked


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_task_whose_replica_is_gone_has_failed(is_restarted: bool) -> None:
    """The replica may only have been paused. The task has failed for it, too: its own outcome is refused."""
    a, b = pair()
    id, work = begun(a)
    waiting = a.ask(a.parties[0].result(id))
    a.leave()
    if is_restarted:
        a.beside("a").join()
    party = ann(b)
    assert b.status(party, id) == "failed"
    assert b.ask(party.result(id)).error == {"code": -32603, "message": LOST}
    a.server.finish(work, text("late"))
    a.wait(1.0)
    assert waiting.code == -32602
    assert a.engine.tasks() == ()
    assert b.status(party, id) == "failed"
    assert record_of(b, id).message == LOST
    assert a.status(a.parties[0], id) == "failed"


@pytest.mark.parametrize("up", [LEGACY, MODERN])
def test_a_task_of_a_server_over_http_goes_on_wherever_it_is_asked_for(up: Era) -> None:
    a, b = pair(Kind.HTTP, up)
    id, work = begun(a)
    party = ann(b)
    assert b.status(party, id) == "working"
    assert tag_of(record_of(b, id).replica) == "b"
    a.server.finish(work, text("done"))
    a.wait(5.0)
    assert a.engine.tasks() == (), "what it knew itself is dropped"
    assert is_completed(b, party, id)
    assert b.ask(party.result(id)).result["content"] == text("done")["content"]
    assert a.status(a.parties[0], id) == "completed"
    assert tag_of(record_of(b, id).replica) == "b"


def test_a_task_of_a_server_over_http_can_be_cancelled_elsewhere() -> None:
    a, b = pair(Kind.HTTP, MODERN)
    id, work = begun(a)
    assert b.ask(ann(b).cancel(id)).result["status"] == "cancelled"
    assert work.stops == ["tasks/cancel"]
    a.wait(5.0)
    assert a.status(a.parties[0], id) == "cancelled"


def test_a_request_over_http_without_a_session_is_passed_on() -> None:
    a, b = pair()
    id, _ = begun(a, MODERN)
    party = b.party(MODERN, principal="ann")

    def listen(id: str) -> ClientRequest:
        return party.ask("subscriptions/listen", notifications={"toolsListChanged": True, "taskIds": [id]})

    for make in (party.get, party.cancel, listen):
        asked = make(id)
        b.run()
        assert b.world.every(Forward)[-1] == Forward(asked.channel, "a")
        assert asked.reply is None
    assert not b.world.every(Load)


def test_a_save_whose_answer_was_lost_is_no_conflict() -> None:
    """The record is the replica's own, and has another version than it knows."""
    a, _ = pair()
    id, work = begun(a)
    key = "task/" + id
    a.store.records[key] = a.store.records[key]
    a.server.finish(work, text("done"))
    a.wait(1.0)
    assert record_of(a, id).status.value == "completed"
    assert a.status(a.parties[0], id) == "completed"
    assert [type(order).__name__ for order in a.store.orders[-3:]] == ["Save", "Load", "Save"]


def test_replicas_that_take_a_task_at_once_agree() -> None:
    """One has it. The other sees that, and takes it again, as its client is asked there."""
    a, b = pair(Kind.HTTP, MODERN)
    c = a.beside("c")
    id, work = begun(a)
    at_b, at_c = ann(b), ann(c)
    b.store.is_slow = c.store.is_slow = True
    one, two = at_b.get(id), at_c.get(id)
    for world in (b, c):
        world.run()
    for world in (b, c):
        world.store.is_slow = False
        world.store.deliver(world.world)
        world.run()
    assert one.result["status"] == two.result["status"] == "working"
    a.server.finish(work, text("done"))
    for world, party in ((b, at_b), (c, at_c)):
        assert is_completed(world, party, id)
    assert [len(world.engine.tasks()) for world in (b, c)] == [1, 1]


def test_a_storage_that_fails_is_said_and_asked_again() -> None:
    a, b = pair()
    id, _ = begun(a)
    party = ann(b)
    b.store.is_failing = True
    assert "the task could not be looked up: the disk is on fire" in b.ask(party.get(id)).error["message"]
    b.store.is_failing = False
    assert b.status(party, id) == "working"


@pytest.mark.parametrize("value", [b"", b"{}", b'{"id":"x"}', b"[" * 100_000])
def test_a_record_of_another_release_is_unknown_and_stays(value: bytes) -> None:
    a, b = pair()
    id, _ = begun(a)
    b.store.records["task/" + id] = value
    assert b.ask(ann(b).get(id)).code == -32602
    assert b.store.records["task/" + id] == value


def test_a_task_of_another_replica_is_forgotten_and_its_record_left_when_its_time_is_over() -> None:
    a, b = pair(limits=Limits(task_ttl_s=60.0, task_ttl_max_s=60.0))
    id, work = begun(a)
    a.server.finish(work, text("done"))
    a.wait(1.0)
    assert b.status(ann(b), id) == "completed"
    b.wait(record_of(b, id).expires_at_unix - UNIX_AT_ZERO - b.world.now + 1)
    assert b.engine.tasks() == ()
    assert id in b.store.tasks
    a.wait(60.0)
    assert id not in a.store.tasks


def test_tasks_of_other_replicas_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was loaded first is dropped, and loaded again."""
    assert MIRRORS_MAX == 1024
    monkeypatch.setattr(foreign_tasks, "MIRRORS_MAX", 2)
    a, b = pair()
    ids = []
    for tag in "xyz":
        id, work = a.begin(ann(a), tag)
        a.server.finish(work, text(tag))
        a.wait(1.0)
        ids.append(id)
    party = ann(b)
    for id in ids:
        assert b.status(party, id) == "completed"
    assert [task.id for task in b.engine.tasks()] == ids[1:]
    assert b.status(party, ids[0]) == "completed"


def test_a_task_that_others_keep_changing_is_refused_in_the_end() -> None:
    a, b = pair(Kind.HTTP, MODERN)
    id, _ = begun(a)
    key = "task/" + id
    party = ann(b)
    b.store.is_slow = True
    asked = party.get(id)
    for _ in range(20):
        b.store.attend(b.world)
        b.store.records[key] = b.store.records[key]  # written again, and so of another version
        b.store.deliver(b.world)
    b.store.is_slow = False
    b.run()
    assert BUSY in asked.error["message"]
    assert foreign_tasks.TRIES_MAX == len(b.world.every(Save)) == 3


@pytest.mark.parametrize("is_heard", [True, False])
def test_the_replica_that_runs_a_task_is_asked_to_cancel_it(is_heard: bool) -> None:
    a, b = pair()
    id, work = begun(a)
    asked = b.ask(ann(b).cancel(id))
    assert asked.reply is None
    (key,) = [key for key in b.store.records if key.startswith("cancel/")]
    for world in (a, b)[: 1 + is_heard]:
        heard = {key: b.store.records[key]} if is_heard else {"cancel/x": b"{}", "cancel/" + id: None}
        world.world._note(world.engine.receive_records(heard.items(), world.world.now))
        world.run()
    b.wait(b.limits.task_look_s + 2)
    if is_heard:
        assert asked.result["status"] == "cancelled"
        assert work.is_over
    else:
        assert "its replica has not answered" in asked.error["message"]
        assert not work.is_over


def test_a_list_has_the_tasks_that_other_replicas_tell_of() -> None:
    a, b = pair()
    id, work = begun(a)
    party = ann(b)
    key = "task/" + id

    def tell(world: Scene, value: bytes | None) -> None:
        world.world._note(world.engine.receive_records([(key, value)], world.world.now))
        world.run()

    def listed() -> list[str]:
        return [task["status"] for task in b.ask(party.listing()).result["tasks"]]

    assert listed() == []
    tell(b, b.store.records[key])
    assert listed() == ["working"]
    awaited = b.ask(party.result(id))
    a.server.finish(work, text("done"))
    a.wait(1.0)
    tell(b, b.store.records[key])
    assert awaited.result["content"] == text("done")["content"]
    assert listed() == ["completed"]
    tell(a, None)
    assert len(a.engine.tasks()) == 1, "a record of its own is no news"
    tell(b, None)
    assert listed() == []


def test_a_cancellation_is_answered_if_the_task_is_told_of_while_it_is_saved() -> None:
    a, b = pair()
    id, _ = begun(a)
    party = ann(b)
    assert b.status(party, id) == "working"
    b.store.is_slow = True
    asked = party.cancel(id)
    b.run()
    b.store.deliver(b.world)  # the task is loaded
    b.run()
    b.world._note(b.world.engine.receive_records([("task/" + id, b.store.records["task/" + id])], b.world.now))
    b.store.is_slow = False
    b.store.deliver(b.world)  # and the record that asks for the end is saved
    b.wait(b.limits.task_look_s + 2)
    assert "its replica has not answered" in asked.error["message"]


def test_an_operator_cancels_a_task_at_any_replica() -> None:
    a, b = pair()
    id, _ = begun(a)
    assert b.status(ann(b), id) == "working"
    b.world._note(b.engine.receive_task_cancel(id, b.world.now))
    b.run()
    assert [task.status for task in b.engine.tasks()] == ["working"]
    (key,) = [key for key in b.store.records if key.startswith("cancel/")]
    a.world._note(a.engine.receive_records([(key, b.store.records[key])], a.world.now))
    a.run()
    (seen,) = a.engine.tasks()
    assert (seen.status, seen.message) == ("cancelled", "cancelled by an operator")


@pytest.mark.parametrize("end", ["completed", "cancelled"])
def test_an_end_that_the_storage_did_not_take_is_saved_later(end: str) -> None:
    """No client is told of it before, since another replica shows what the record says."""
    a, b = pair()
    id, work = begun(a)
    a.store.is_failing = True
    if end == "completed":
        a.server.finish(work, text("done"))
    else:
        cancelled = a.parties[0].cancel(id)
    a.wait(25.0)
    assert record_of(a, id).status.value == "working"
    assert "could not be looked up" in a.ask(a.parties[0].get(id)).error["message"]
    a.store.is_failing = False
    a.wait(SAVED_LATER_S)
    party = ann(b)
    assert a.status(a.parties[0], id) == b.status(party, id) == end
    if end == "completed":
        assert b.ask(party.result(id)).result["content"] == text("done")["content"]
    else:
        assert cancelled.result["status"] == end
    saves = len(a.world.every(Save))
    a.wait(60.0)
    assert len(a.world.every(Save)) == saves


def test_a_task_that_is_over_cannot_be_cancelled_at_another_replica_either() -> None:
    a, b = pair()
    id, _ = begun(a)
    assert a.ask(a.parties[0].cancel(id)).result["status"] == "cancelled"
    refused = [world.ask(party.cancel(id)).error for world, party in ((a, a.parties[0]), (b, ann(b)))]
    assert refused[0] == refused[1]
    assert refused[0]["code"] == -32602


def lost_answers(world: Scene) -> None:
    """The storage carries out what it is told, and no answer of it comes."""
    world.store.is_slow = True
    world.run()
    world.store.held.clear()
    world.store.is_slow = False
    world.wait(world.limits.storage_timeout_s)


@pytest.mark.parametrize("end", ["completed", "cancelled"])
def test_an_end_that_is_stored_is_shown_before_the_answer_of_the_storage(end: str) -> None:
    """Another replica may have shown it. Before it is stored, and afterwards, the replica has nothing to look up."""
    a, b = pair()
    id, work = begun(a)
    party = a.parties[0]
    a.store.is_slow = True
    if end == "completed":
        a.server.finish(work, text("done"))
    else:
        party.cancel(id)
    a.run()
    late = a.store.held.pop()
    a.store.is_slow = False
    assert a.status(party, id) == b.status(ann(b), id) == end
    a.world.store(*late)
    a.wait(60.0)
    loads = len(a.world.every(Load))
    assert a.status(party, id) == end
    assert len(a.world.every(Load)) == loads
    assert len([order for order in a.world.every(Save) if order.key == "task/" + id]) == 2


def test_an_end_whose_answer_was_lost_is_no_end_of_another_replica() -> None:
    """Nor is it taken for one because the record cannot be looked at, when it is found to be changed."""
    a, b = pair()
    id, work = begun(a)
    a.server.finish(work, text("done"))
    lost_answers(a)
    assert record_of(b, id).status.value == "completed"
    a.store.is_slow = True
    a.wait(SAVED_LATER_S)
    a.store.is_failing = True
    a.store.deliver(a.world)  # the save is refused, as the version is another one
    a.run()
    a.store.is_failing = False
    a.store.deliver(a.world)  # and the record cannot be looked at
    a.store.is_slow = False
    a.wait(1.0)
    assert [task.status for task in a.engine.tasks()] == ["working"]
    a.wait(SAVED_LATER_S)
    assert [task.status for task in a.engine.tasks()] == ["completed"]


def test_a_record_that_is_changed_again_and_again_is_saved_later() -> None:
    a, _ = pair()
    id, work = begun(a)
    key = "task/" + id
    a.server.finish(work, text("done"))
    a.store.is_slow = True
    for _look in range(LOOKS_MAX + 1):
        a.store.records[key] = a.store.records[key]  # a save of its own, which was carried out late
        a.run()
        a.store.deliver(a.world)  # the save is refused
        a.run()
        a.store.deliver(a.world)  # the record is its own
    assert [task.status for task in a.engine.tasks()] == ["working"]
    a.store.is_slow = False
    a.wait(SAVED_LATER_S)
    assert [task.status for task in a.engine.tasks()] == ["completed"]


@pytest.mark.parametrize("end", ["completed", "working"])
def test_a_record_with_the_own_name_of_an_unknown_task(end: str) -> None:
    """An end is one that was stored, though its answer did not come. Anything else was given up."""
    a, b = pair()
    id, work = begun(a)
    if end == "completed":
        a.server.finish(work, text("done"))
        a.wait(1.0)
    assert b.name is not None
    b.store.records["task/" + id] = msgspec.json.encode(msgspec.structs.replace(record_of(a, id), replica=b.name.owner))
    party = ann(b)
    if end == "completed":
        assert b.status(party, id) == end
        assert b.ask(party.result(id)).result["content"] == text("done")["content"]
    else:
        assert b.ask(party.get(id)).code == -32602


def test_the_end_of_a_session_cancels_a_task_once_that_is_stored() -> None:
    """The other replicas show what the storage says, and the client may ask any of them."""
    a, _ = pair()
    leaving, staying = (a.party(LEGACY, principal="ann", down="http") for _ in range(2))
    id, _ = a.begin(leaving, "t")
    a.store.is_failing = True
    leaving.leave()
    a.wait(1.0)
    assert "could not be looked up" in a.ask(staying.get(id)).error["message"]
    a.store.is_failing = False
    a.wait(SAVED_LATER_S)
    assert a.status(staying, id) == "cancelled"
    assert [record.status.value for record in a.store.tasks.values()] == ["cancelled"]
