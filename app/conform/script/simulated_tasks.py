"""The tasks of a scripted server: each begins with a tool call, and ends as the deed for that call says."""

from __future__ import annotations

import enum
from typing import Any, Final

import msgspec

from ....core.base.errors import INTERNAL_ERROR, INVALID_PARAMS, MISSING_CAPABILITY
from ....core.base.revisions import is_known_modern
from ....core.oracle.methods import TASKS_EXTENSION, V4, V5
from .steps import META, Json, encode

OFFERED: Final[dict[str, Json]] = {
    V4: {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}},
    V5: {"extensions": {TASKS_EXTENSION: {}}},
}
"""Revision → the capabilities of a server with tasks; the other revisions have no tasks."""
POLL_MS: Final = 20
TTL_MS: Final = 60_000
BEGUN: Final = "2026-01-02T03:04:05Z"
RELATED: Final = META + "related-task"


class Fate(enum.Enum):
    """The status with which a task ends."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Task(msgspec.Struct):
    """One task.

    Attributes:
        polls_left: how many more times it is reported as working.
        questions: what it asks before it ends, in the form of `inputRequests` of 2026-07-28.
    """

    id: str
    fate: Fate
    polls_left: int
    questions: Json


class SimulatedTasks:
    """The tasks of one conversation.

    Args:
        polls: how many times each task is reported as working; None: there are no tasks.
    """

    def __init__(self, revision: str, polls: int | None) -> None:
        self._revision = revision
        self._polls = polls if revision in OFFERED else None
        self._tasks: dict[str, Task] = {}
        self._by_request: dict[str, Task] = {}

    def begin(self, message: Json, fate: Fate, questions: Json) -> None:
        """Turns a request into a task, if it is a tool call that may become one."""
        if self._polls is None or message.get("method") != "tools/call" or not _is_wanted(message, self._revision):
            return
        task = Task(f"task-{len(self._tasks)}", fate, self._polls, dict(questions))
        self._tasks[task.id] = self._by_request[encode(message.get("id"))] = task

    def of(self, message: Json) -> Task | None:
        """Returns the task that a request became, or names."""
        named = self._tasks.get(str(_params(message).get("taskId")))
        return self._by_request.get(encode(message.get("id"))) if message.get("method") == "tools/call" else named

    def told(self, task: Task) -> Json:
        """Returns the task in its present state, in the form of the revision."""
        times: Json = {"taskId": task.id, "status": _status(task), "createdAt": BEGUN, "lastUpdatedAt": BEGUN}
        if not is_known_modern(self._revision):
            return {**times, "ttl": TTL_MS, "pollInterval": POLL_MS}
        return {**times, "ttlMs": TTL_MS, "pollIntervalMs": POLL_MS}

    def result_of(self, message: Json, outcome: Json) -> Json | None:
        """Returns `{"result": …}` or `{"error": …}`; None if the request is not about a task, or there are no tasks.

        Args:
            outcome: the result of every tool call.
        """
        method, is_modern = str(message.get("method")), is_known_modern(self._revision)
        if self._polls is None or not (method.startswith("tasks/") or method == "tools/call"):
            return None
        task = self.of(message)
        if method == "tools/call":
            if task is None:
                return None
            begun = {**self.told(task), "status": "working"}  # 2025-11-25: each task begins as working
            return {"result": {"resultType": "task", **begun} if is_modern else {"task": begun}}
        if is_modern and not _is_wanted(message, self._revision):
            needed = {"requiredCapabilities": OFFERED[V5]}
            return {"error": {"code": MISSING_CAPABILITY, "message": "tasks are not declared", "data": needed}}
        if method == "tasks/list" and not is_modern:
            return {"result": {"tasks": [self.told(each) for each in self._tasks.values()]}}
        if task is None:
            return {"error": {"code": INVALID_PARAMS, "message": "there is no such task"}}
        return (
            self._modern(method, task, _params(message), outcome) if is_modern else _legacy(self, method, task, outcome)
        )

    def _modern(self, method: str, task: Task, params: Json, outcome: Json) -> Json | None:
        if method == "tasks/get":
            told, status = self.told(task), _status(task)
            task.polls_left = max(0, task.polls_left - 1)
            details: dict[str, Json] = {
                "input_required": {"inputRequests": task.questions},
                "completed": {"result": outcome},
                "failed": {"error": {"code": INTERNAL_ERROR, "message": "it failed"}},
            }
            return {"result": {**told, **details.get(status, {})}}
        if method == "tasks/update":
            answers: Any = params.get("inputResponses")
            for key in answers if isinstance(answers, dict) else ():
                task.questions.pop(key, None)
        elif method == "tasks/cancel":
            _cancel(task)
        else:
            return None
        return {"result": {}}


def _legacy(tasks: SimulatedTasks, method: str, task: Task, outcome: Json) -> Json | None:
    """Returns the response to a task request of 2025-11-25."""
    if method == "tasks/get":
        told = tasks.told(task)
        task.polls_left = max(0, task.polls_left - 1)
        return {"result": told}
    if method == "tasks/cancel":
        if _status(task) in ("completed", "failed", "cancelled"):
            return {"error": {"code": INVALID_PARAMS, "message": "the task is over"}}
        _cancel(task)
        return {"result": tasks.told(task)}
    if method != "tasks/result":
        return None
    task.polls_left = 0  # `tasks/result` waits for the end of the task
    task.questions.clear()
    if task.fate is not Fate.COMPLETED:
        return {"error": {"code": INTERNAL_ERROR, "message": f"the task is {task.fate.value}"}}
    return {"result": {**outcome, "_meta": {RELATED: {"taskId": task.id}}}}


def _cancel(task: Task) -> None:
    if _status(task) in ("working", "input_required"):
        task.fate, task.polls_left = Fate.CANCELLED, 0
        task.questions.clear()


def _status(task: Task) -> str:
    if task.polls_left > 0:
        return "working"
    return "input_required" if task.questions else task.fate.value


def _is_wanted(message: Json, revision: str) -> bool:
    """True if the client asks for a task (2025-11-25), or declares that it accepts them (2026-07-28)."""
    params = _params(message)
    if revision == V4:
        return isinstance(params.get("task"), dict)
    meta = params.get("_meta")
    declared: Any = meta.get(META + "clientCapabilities") if isinstance(meta, dict) else None
    extensions = declared.get("extensions") if isinstance(declared, dict) else None
    return isinstance(extensions, dict) and TASKS_EXTENSION in extensions


def _params(message: Json) -> Json:
    params = message.get("params")
    return params if isinstance(params, dict) else {}
