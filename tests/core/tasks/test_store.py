"""Tests of the task store: records of one task are written one after the other, and large outcomes beside them."""

from __future__ import annotations

import msgspec
import pytest
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.base.storage import (
    Collect,
    Collected,
    CollectedFile,
    Discard,
    Fetch,
    Fetched,
    Forget,
    Save,
    Saved,
    StorageAnswer,
    StorageFailed,
)
from isthmus.core.state.context import Context
from isthmus.core.state.records import StoredTask
from isthmus.core.state.storage_orders import StorageOrders
from isthmus.core.state.task import Outcome, Task, TaskInput, TaskState
from isthmus.core.tasks.store import TaskStore, record_of, restored

PLAN = Plan(servers=(ServerPlan(id="s", kind=Kind.PIPE),), link_keys=(b"k" * 16,), workspaces_path="/w")
FAILED = StorageFailed(reason="full")


class StoreScene:
    """A store, the orders that it gives, and a record of the completed saves."""

    def __init__(self) -> None:
        self.context = Context(PLAN, entropy=lambda size: b"e" * size, unix_at_zero=0.0, limits=Limits())
        self.context.now = 0.0
        self.waiting = StorageOrders(self.context)
        self.store = TaskStore(self.context, self.waiting)
        self.completed: list[tuple[str, str]] = []

    def save(self, task: Task, name: str) -> None:
        task.message = name
        self.store.save(record_of(task), lambda fault: self.completed.append((name, fault)))

    @property
    def saves(self) -> list[Save]:
        return [order for order in self.context.out if isinstance(order, Save)]

    def answer(self, answer: StorageAnswer) -> None:
        """Answers the latest order."""
        order = self.context.out[-1]
        assert isinstance(order, Save | Fetch | Collect)
        self.waiting.receive_answer(order.ticket, answer)


def task(id: str = "t", *, is_legacy: bool = True) -> Task:
    return Task(
        id,
        ordinal=3,
        server="s",
        tool="dig",
        owner="o",
        payer="p",
        sid="S",
        principal="ann",
        is_legacy=is_legacy,
        created_at="then",
        created_at_unix=1000.0,
        ttl_ms=5000,
        poll_ms=700,
    )


def test_records_of_one_task_are_written_one_after_the_other() -> None:
    scene, one, other = StoreScene(), task(), task("u")
    for name in ("first", "second", "third"):
        scene.save(one, name)
    assert len(scene.saves) == 1
    assert len(scene.store) == 1
    scene.answer(Saved())
    assert scene.completed == [("first", "")]
    assert [b'"second"' in order.value for order in scene.saves] == [False, True]
    scene.answer(FAILED)
    scene.answer(Saved())
    assert scene.completed == [("first", ""), ("second", "full"), ("third", "")]
    assert len(scene.store) == 0
    scene.save(other, "other")
    scene.save(one, "fourth")
    assert len(scene.saves) == 5
    assert scene.saves[-1].expires_at_unix == 1005.0
    assert scene.saves[-1].key == StoredTask.key_of("t")


def test_a_record_that_is_forgotten_while_it_is_written_is_removed_then() -> None:
    """A record that waited is not written any more, and its callback gets the reason."""
    scene, one = StoreScene(), task()
    scene.save(one, "first")
    scene.save(one, "second")
    scene.store.forget(one, lambda: scene.completed.append(("forgotten", "")))
    assert not [order for order in scene.context.out if isinstance(order, Forget)]
    ticket = scene.saves[0].ticket
    scene.waiting.receive_answer(ticket, Saved())
    assert scene.completed == [("forgotten", ""), ("first", ""), ("second", "the task is gone")]
    assert [order.key for order in scene.context.out if isinstance(order, Forget)] == [StoredTask.key_of("t")]
    assert len(scene.saves) == 1
    assert len(scene.store) == 0
    scene.save(one, "again")
    scene.answer(Saved())
    assert len([order for order in scene.context.out if isinstance(order, Forget)]) == 1


@pytest.mark.parametrize("blob", [None, "b"])
def test_forgetting_a_task_discards_its_outcome(blob: str | None) -> None:
    scene, one = StoreScene(), task()
    one.blob = blob
    scene.store.forget(one)
    assert [type(order) for order in scene.context.out] == ([Forget] if blob is None else [Forget, Discard])


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Collected((CollectedFile(size_bytes=2, sha256="", filename="f"),)), ""),
        (Collected((CollectedFile(size_bytes=0, sha256="", filename="f", problem="too large"),)), "too large"),
        (Collected(()), "got an answer of another kind: Collected"),
        (
            Collected((CollectedFile(size_bytes=2, sha256="", filename="f"),) * 2),
            "got an answer of another kind: Collected",
        ),
        (FAILED, "full"),
        (Saved(), "got an answer of another kind: Saved"),
    ],
)
def test_an_outcome_is_stored_or_the_callback_gets_the_reason(answer: StorageAnswer, why: str) -> None:
    scene = StoreScene()
    got: list[tuple[str | None, str]] = []
    scene.store.put(task(), Outcome(b"{}", is_error=False), lambda blob, fault: got.append((blob, fault)))
    order = scene.context.out[-1]
    assert isinstance(order, Collect)
    assert (order.server, order.workspace) == ("s", "")
    assert (order.size_max_bytes, order.total_size_max_bytes) == (2, 2)
    (source,) = order.sources
    assert source.data == b"{}"  # type: ignore[union-attr]
    assert (source.filename, source.mime_type) == ("outcome.json", "application/json")  # type: ignore[union-attr]
    scene.answer(answer)
    assert got == [(None if why else order.blobs[0], why)]


@pytest.mark.parametrize("answer", [Collected(()), FAILED])
def test_an_outcome_that_is_stored_too_late_is_discarded(answer: StorageAnswer) -> None:
    scene = StoreScene()
    got: list[str | None] = []
    scene.store.put(task(), Outcome(b"{}", is_error=False), lambda blob, fault: got.append(blob))
    order = scene.context.out[-1]
    assert isinstance(order, Collect)
    scene.waiting.handle_timeout(order.ticket)
    assert got == [None]
    scene.waiting.receive_answer(order.ticket, answer)
    gone = [each.blob for each in scene.context.out if isinstance(each, Discard)]
    assert gone == (list(order.blobs) if isinstance(answer, Collected) else [])


def test_an_outcome_is_read_from_memory_or_storage() -> None:
    scene, one = StoreScene(), task()
    got: list[tuple[Outcome | None, str]] = []
    scene.store.get(one, lambda outcome, fault: got.append((outcome, fault)))
    one.outcome = Outcome(b"1", is_error=False)
    scene.store.get(one, lambda outcome, fault: got.append((outcome, fault)))
    assert not scene.context.out
    one.blob, one.is_error, one.size_bytes = "b", True, 9
    for answer in (Fetched(b"2"), FAILED):
        scene.store.get(one, lambda outcome, fault: got.append((outcome, fault)))
        order = scene.context.out[-1]
        assert isinstance(order, Fetch)
        assert (order.blob, order.size_max_bytes) == ("b", 9)
        scene.answer(answer)
    assert [outcome for outcome, _ in got] == [None, Outcome(b"1", is_error=False), Outcome(b"2", is_error=True), None]
    assert got[-1][1] == "full"


# --- Records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_legacy", [True, False])
@pytest.mark.parametrize("how", [None, TaskInput.RETURN, TaskInput.FAIL])
@pytest.mark.parametrize("blob", [None, "b"])
def test_a_restored_task_equals_the_stored_one(is_legacy: bool, how: TaskInput | None, blob: str | None) -> None:
    """Only ordinal, principal and the time of the last change differ."""
    one = task(is_legacy=is_legacy)
    one.message, one.upstream_task, one.is_remote = "so far", "far/1", True
    one.upstream_session = ("up", "2025-11-25", "https://b")
    if how is not None:
        one.receive_outcome(Outcome(b'{"a":1}', how is TaskInput.FAIL), blob)
        one.end(how, one.message, 0.0)
    one.updated_at = "now"
    record = record_of(one)
    assert record.era == ("handshake" if is_legacy else "stateless")
    assert record.outcome == ("" if how is None or blob is not None else '{"a":1}')
    again = restored(record, ordinal=9, now_unix=1234.0)
    names = [name for name in Task.__slots__ if name not in ("_last_key", "outcome")]
    differ = {name for name in names if getattr(again, name) != getattr(one, name)}
    assert differ <= {"ordinal", "principal", "updated_at_unix"}
    assert (again.ordinal, again.principal, again.updated_at_unix) == (9, "", 1234.0)
    assert again.state is one.state
    assert again.outcome == (one.outcome if how is not None and blob is None else None)


@pytest.mark.parametrize("blob", [None, "b"])
def test_a_record_may_have_a_coming_state(blob: str | None) -> None:
    one = task()
    record = record_of(one, state=TaskState.FAILED, outcome=Outcome(b"{}  ", is_error=True), blob=blob)
    assert (record.status, record.is_error, record.size_bytes, record.blob) == (TaskState.FAILED, True, 4, blob)
    assert record.outcome == ("{}  " if blob is None else "")
    assert one.state is TaskState.WORKING
    plain = record_of(one)
    assert (plain.status, plain.is_error, plain.size_bytes, plain.outcome) == (TaskState.WORKING, False, 0, "")


def test_a_record_without_its_creation_time_derives_it_from_the_end() -> None:
    record = record_of(task())
    again = restored(msgspec.structs.replace(record, created_at=""), ordinal=1, now_unix=0.0)
    assert again.created_at_unix == 1000.0
    assert again.created_at.startswith("1970-01-01T00:16:40")


@pytest.mark.parametrize("status", [TaskState.WORKING, TaskState.INPUT_REQUIRED])
def test_a_restored_task_has_no_open_question(status: TaskState) -> None:
    record = record_of(task(), state=status)
    again = restored(record, ordinal=1, now_unix=0.0)
    assert again.state is TaskState.WORKING
    assert again.outcome is None
