"""Tasks of both kinds: they begin once, end once, and have what their status wants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from .book import Book
from .methods import AUGMENTED, V4, V5
from .observations import Role
from .seen import RELATED_TASK, Ask, Breach, Frame, JsonObject, Kind, Memory, shown
from .watch import Watch, breach

WORKING: Final = "working"
OVER: Final = ("completed", "failed", "cancelled")
STATUSES: Final = (WORKING, "input_required", *OVER)
_DETAIL: Final = {"input_required": ("inputRequests", dict), "completed": ("result", dict), "failed": ("error", dict)}
_SELF_NAMED: Final = ("tasks/get", "tasks/list", "tasks/cancel")


class Task(msgspec.Struct, eq=False):
    """What is known of one task.

    Attributes:
        owner: who runs it.
        ask: the request that became it, if that was seen.
        status: the last one heard.
        index: of the observation that said it.
        questions: its keys, and what each asks.
        next_poll_at: earliest moment at which it should be asked for.
    """

    owner: Role
    ask: Ask | None
    status: str
    index: int
    questions: dict[str, str] = {}
    next_poll_at: float | None = None


class Tasks(Watch):
    """Every task that was told of, by who runs it and its id."""

    def __init__(self, book: Book) -> None:
        super().__init__(book)
        self._tasks: Memory[tuple[Role, str], Task] = book.memory()
        self._over_when_cancelled: Memory[Ask, int] = book.memory()

    def frame(self, frame: Frame) -> Iterator[Breach]:
        if frame.revision not in (V4, V5):
            return
        if frame.kind is Kind.REQUEST:
            yield from self._request(frame)
        elif frame.kind is Kind.NOTIFICATION:
            if frame.method in ("notifications/tasks/status", "notifications/tasks"):
                yield from self._heard(frame, frame.params, frame.sender)
            if frame.method == "notifications/tasks/status":
                yield from self._needless(frame)
        elif frame.ask is not None:
            yield from self._response(frame, frame.ask)

    # --- Requests ---------------------------------------------------------------------------------------------------

    def _request(self, frame: Frame) -> Iterator[Breach]:
        task = self._tasks.get((frame.sender.other, str(frame.params.get("taskId"))))
        if frame.method in _SELF_NAMED:
            yield from self._needless(frame)
        if frame.method == "tasks/get" and task is not None and frame.said.at is not None:
            if task.next_poll_at is not None and frame.said.at < task.next_poll_at:
                text = f"asks {task.next_poll_at - frame.said.at:.3f} s before the poll interval is over"
                yield breach(frame, "task-polled-early", text, task.index)
        if frame.method == "tasks/cancel" and task is not None and task.status in OVER:
            assert frame.made is not None
            self._over_when_cancelled[frame.made] = task.index

    # --- Responses --------------------------------------------------------------------------------------------------

    def _response(self, frame: Frame, ask: Ask) -> Iterator[Breach]:
        owner = frame.sender
        if ask.method == "tasks/cancel" and frame.revision == V4 and frame.kind is Kind.RESULT:
            yield from self._cancelled(frame, ask)
        if ask.method in _SELF_NAMED and frame.kind is Kind.RESULT and frame.revision == V4:
            yield from self._needless(frame)
        if ask.method == "tasks/result":
            yield from self._outcome(frame, ask)
        elif frame.kind is Kind.ERROR:
            return
        elif ask.method == "tasks/get" or (ask.method == "tasks/cancel" and frame.revision == V4):
            yield from self._heard(frame, frame.result, owner)
        elif ask.method == "tasks/list":
            listed = frame.result.get("tasks")
            for each in listed if isinstance(listed, list) else ():
                yield from self._heard(frame, each if isinstance(each, dict) else {}, owner)
        elif frame.revision == V5 and frame.result.get("resultType") == "task":
            yield from self._begins(frame, ask, frame.result)
        elif frame.revision == V4 and ask.method in AUGMENTED:
            yield from self._answered(frame, ask)

    def _answered(self, frame: Frame, ask: Ask) -> Iterator[Breach]:
        found = frame.result.get("task")
        created: JsonObject = found if isinstance(found, dict) else {}
        is_task = "taskId" in created
        if is_task and not ask.is_task:
            yield breach(frame, "task-unasked", f"{ask.method} {shown(ask.id)} is answered with a task", ask.index)
        elif ask.is_task and not is_task:
            yield breach(frame, "task-uncreated", f"{ask.method} {shown(ask.id)} is answered without a task", ask.index)
        if is_task:
            yield from self._begins(frame, ask, created)

    def _begins(self, frame: Frame, ask: Ask, said: JsonObject) -> Iterator[Breach]:
        id, owner = said.get("taskId"), frame.sender
        if isinstance(id, str) and (owner, id) in self._tasks:
            known = self._tasks[owner, id]
            if known.ask is not None:
                yield breach(frame, "task-begins", f"task {shown(id)} was there before", known.index)
            known.ask = ask
        if frame.revision == V4 and said.get("status") != WORKING:
            yield breach(frame, "task-begins", f"a task begins as {shown(said.get('status'))}")
        yield from self._heard(frame, said, owner, ask)

    def _cancelled(self, frame: Frame, ask: Ask) -> Iterator[Breach]:
        if ask in self._over_when_cancelled:
            yield breach(frame, "task-cancelled", "a task that was over is cancelled", self._over_when_cancelled[ask])
        elif frame.result.get("status") != "cancelled":
            yield breach(frame, "task-cancelled", f"a task is {shown(frame.result.get('status'))} after tasks/cancel")

    def _outcome(self, frame: Frame, ask: Ask) -> Iterator[Breach]:
        """A task's result is there, so it is over; whether it was completed or failed does not show."""
        related = frame.meta.get(RELATED_TASK)
        if frame.kind is Kind.RESULT and (not isinstance(related, dict) or related.get("taskId") != ask.name):
            yield breach(
                frame, "related-task", f"the result of task {shown(ask.name)} names {shown(related)}", ask.index
            )

    # --- What a task is ---------------------------------------------------------------------------------------------

    def _heard(self, frame: Frame, said: JsonObject, owner: Role, ask: Ask | None = None) -> Iterator[Breach]:
        yield from self._shape(frame, said)
        id, status = said.get("taskId"), said.get("status")
        if not isinstance(id, str) or status not in STATUSES:
            return
        task = self._tasks.get((owner, id))
        if task is None:
            task = self._tasks[owner, id] = Task(owner, ask, status, frame.index)
        elif task.status in OVER and status != task.status:
            yield breach(frame, "task-status", f"task {shown(id)} was {task.status} and is {status}", task.index)
        task.status, task.index = status, frame.index
        if status in OVER and task.ask is not None:
            task.ask.is_task_over = True
        interval = said.get("pollInterval" if frame.revision == V4 else "pollIntervalMs")
        is_polled = frame.said.at is not None and isinstance(interval, int | float)
        task.next_poll_at = (frame.said.at or 0.0) + interval / 1000 if is_polled and interval is not None else None
        if frame.revision == V5:
            yield from self._detail(frame, said, task)

    def _shape(self, frame: Frame, said: JsonObject) -> Iterator[Breach]:
        ttl = "ttl" if frame.revision == V4 else "ttlMs"
        wrong = [name for name in ("taskId", "createdAt", "lastUpdatedAt") if not isinstance(said.get(name), str)]
        if said.get("status") not in STATUSES:
            wrong.append("status")
        if ttl not in said or not _is_duration(said[ttl]):
            wrong.append(ttl)
        if wrong:
            yield breach(frame, "task-shape", f"a task has no good {', '.join(wrong)}")

    def _detail(self, frame: Frame, said: JsonObject, task: Task) -> Iterator[Breach]:
        if frame.result.get("resultType") == "task":
            return  # a handle, without detail
        name, kind = _DETAIL.get(task.status, ("", object))
        if name and not isinstance(said.get(name), kind):
            yield breach(frame, "task-detail", f"a task is {task.status} without {name}")
        questions = said.get("inputRequests")
        for key, question in questions.items() if isinstance(questions, dict) else ():
            text = repr(question)
            if task.questions.setdefault(key, text) != text:
                yield breach(
                    frame, "task-key-reused", f"the key {shown(key)} has another question than before", task.index
                )

    def _needless(self, frame: Frame) -> Iterator[Breach]:
        if RELATED_TASK in frame.meta:
            what = frame.method or (frame.ask.method if frame.ask is not None else "a response")
            yield breach(frame, "related-task-needless", f"got {RELATED_TASK} with {what}")


def _is_duration(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0)
