"""Checks of tasks of both kinds: each begins once, ends once, and has the members that its status requires."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from .book import WireState
from .methods import AUGMENTED, V4, V5
from .observations import Role
from .seen import RELATED_TASK, Finding, Frame, JsonObject, Memory, MessageKind, Request, shown
from .watch import Checker, breach

WORKING: Final = "working"
OVER: Final = ("completed", "failed", "cancelled")
STATUSES: Final = (WORKING, "input_required", *OVER)
_DETAIL: Final = {"input_required": ("inputRequests", dict), "completed": ("result", dict), "failed": ("error", dict)}
_SELF_NAMED: Final = ("tasks/get", "tasks/list", "tasks/cancel")


class Task(msgspec.Struct, eq=False):
    """The known state of one task.

    Attributes:
        owner: the role that runs it.
        request: the request that became the task, if it was seen.
        status: the last one observed.
        index: of the observation with that status.
        questions: its keys, and the question of each.
        next_poll_at: the earliest moment for the next poll.
    """

    owner: Role
    request: Request | None
    status: str
    index: int
    questions: dict[str, str] = {}
    next_poll_at: float | None = None


class TaskChecker(Checker):
    """Checks every task that is mentioned, by its owner and its id."""

    def __init__(self, book: WireState) -> None:
        super().__init__(book)
        self._tasks: Memory[tuple[Role, str], Task] = book.memory()
        self._over_when_cancelled: Memory[Request, int] = book.memory()

    def frame(self, frame: Frame) -> Iterator[Finding]:
        if frame.revision not in (V4, V5):
            return
        if frame.kind is MessageKind.REQUEST:
            yield from self._request(frame)
        elif frame.kind is MessageKind.NOTIFICATION:
            if frame.method in ("notifications/tasks/status", "notifications/tasks"):
                yield from self._update(frame, frame.params, frame.sender)
            if frame.method == "notifications/tasks/status":
                yield from self._needless(frame)
        elif frame.request is not None:
            yield from self._response(frame, frame.request)

    # --- Requests ---------------------------------------------------------------------------------------------------

    def _request(self, frame: Frame) -> Iterator[Finding]:
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

    def _response(self, frame: Frame, request: Request) -> Iterator[Finding]:
        owner = frame.sender
        if request.method == "tasks/cancel" and frame.revision == V4 and frame.kind is MessageKind.RESULT:
            yield from self._cancelled(frame, request)
        if request.method in _SELF_NAMED and frame.kind is MessageKind.RESULT and frame.revision == V4:
            yield from self._needless(frame)
        if request.method == "tasks/result":
            yield from self._outcome(frame, request)
        elif frame.kind is MessageKind.ERROR:
            return
        elif request.method == "tasks/get" or (request.method == "tasks/cancel" and frame.revision == V4):
            yield from self._update(frame, frame.result, owner)
        elif request.method == "tasks/list":
            listed = frame.result.get("tasks")
            for each in listed if isinstance(listed, list) else ():
                yield from self._update(frame, each if isinstance(each, dict) else {}, owner)
        elif frame.revision == V5 and frame.result.get("resultType") == "task":
            yield from self._created(frame, request, frame.result)
        elif frame.revision == V4 and request.method in AUGMENTED:
            yield from self._answered(frame, request)

    def _answered(self, frame: Frame, request: Request) -> Iterator[Finding]:
        found = frame.result.get("task")
        created: JsonObject = found if isinstance(found, dict) else {}
        is_task = "taskId" in created
        if is_task and not request.is_task:
            yield breach(
                frame, "task-unasked", f"{request.method} {shown(request.id)} is answered with a task", request.index
            )
        elif request.is_task and not is_task:
            yield breach(
                frame,
                "task-uncreated",
                f"{request.method} {shown(request.id)} is answered without a task",
                request.index,
            )
        if is_task:
            yield from self._created(frame, request, created)

    def _created(self, frame: Frame, request: Request, fields: JsonObject) -> Iterator[Finding]:
        id, owner = fields.get("taskId"), frame.sender
        if isinstance(id, str) and (owner, id) in self._tasks:
            known = self._tasks[owner, id]
            if known.request is not None:
                yield breach(frame, "task-begins", f"task {shown(id)} was there before", known.index)
            known.request = request
        if frame.revision == V4 and fields.get("status") != WORKING:
            yield breach(frame, "task-begins", f"a task begins as {shown(fields.get('status'))}")
        yield from self._update(frame, fields, owner, request)

    def _cancelled(self, frame: Frame, request: Request) -> Iterator[Finding]:
        if request in self._over_when_cancelled:
            yield breach(
                frame, "task-cancelled", "a task that was over is cancelled", self._over_when_cancelled[request]
            )
        elif frame.result.get("status") != "cancelled":
            yield breach(frame, "task-cancelled", f"a task is {shown(frame.result.get('status'))} after tasks/cancel")

    def _outcome(self, frame: Frame, request: Request) -> Iterator[Finding]:
        """Checks the result of `tasks/result`, which shows that the task is over, but not whether it completed or
        failed."""
        related = frame.meta.get(RELATED_TASK)
        if frame.kind is MessageKind.RESULT and (
            not isinstance(related, dict) or related.get("taskId") != request.name
        ):
            yield breach(
                frame, "related-task", f"the result of task {shown(request.name)} names {shown(related)}", request.index
            )

    # --- The state of a task ----------------------------------------------------------------------------------------

    def _update(
        self, frame: Frame, fields: JsonObject, owner: Role, request: Request | None = None
    ) -> Iterator[Finding]:
        yield from self._shape(frame, fields)
        id, status = fields.get("taskId"), fields.get("status")
        if not isinstance(id, str) or status not in STATUSES:
            return
        task = self._tasks.get((owner, id))
        if task is None:
            task = self._tasks[owner, id] = Task(owner, request, status, frame.index)
        elif task.status in OVER and status != task.status:
            yield breach(frame, "task-status", f"task {shown(id)} was {task.status} and is {status}", task.index)
        task.status, task.index = status, frame.index
        if status in OVER and task.request is not None:
            task.request.end_task()
        interval = fields.get("pollInterval" if frame.revision == V4 else "pollIntervalMs")
        is_polled = frame.said.at is not None and isinstance(interval, int | float)
        task.next_poll_at = (frame.said.at or 0.0) + interval / 1000 if is_polled and interval is not None else None
        if frame.revision == V5:
            yield from self._detail(frame, fields, task)

    def _shape(self, frame: Frame, fields: JsonObject) -> Iterator[Finding]:
        ttl = "ttl" if frame.revision == V4 else "ttlMs"
        wrong = [name for name in ("taskId", "createdAt", "lastUpdatedAt") if not isinstance(fields.get(name), str)]
        if fields.get("status") not in STATUSES:
            wrong.append("status")
        if ttl not in fields or not _is_duration(fields[ttl]):
            wrong.append(ttl)
        if wrong:
            yield breach(frame, "task-shape", f"a task has no good {', '.join(wrong)}")

    def _detail(self, frame: Frame, fields: JsonObject, task: Task) -> Iterator[Finding]:
        if frame.result.get("resultType") == "task":
            return  # a CreateTaskResult has no detail
        name, kind = _DETAIL.get(task.status, ("", object))
        if name and not isinstance(fields.get(name), kind):
            yield breach(frame, "task-detail", f"a task is {task.status} without {name}")
        questions = fields.get("inputRequests")
        for key, question in questions.items() if isinstance(questions, dict) else ():
            text = repr(question)
            if task.questions.setdefault(key, text) != text:
                yield breach(
                    frame, "task-key-reused", f"the key {shown(key)} has another question than before", task.index
                )

    def _needless(self, frame: Frame) -> Iterator[Finding]:
        if RELATED_TASK in frame.meta:
            what = frame.method or (frame.request.method if frame.request is not None else "a response")
            yield breach(frame, "related-task-needless", f"got {RELATED_TASK} with {what}")


def _is_duration(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0)
