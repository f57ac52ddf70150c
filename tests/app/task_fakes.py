"""An engine that always reports the same tasks, for tests of what is shown of them and of orders about them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, ClassVar

from isthmus.core.base.effects import Effect
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.bulk import BulkEngine
from isthmus.core.state.records import StoredTask, TaskStatus

OVER = ("completed", "failed", "cancelled")


class TaskEngine(BulkEngine):
    """An engine with given tasks.

    Attributes:
        kept: its tasks.
        began_with: the tasks of earlier runs that the last engine was given.
        cancelled: the ids of cancelled tasks, in order.
    """

    kept: ClassVar[list[TaskStatus]] = []
    began_with: ClassVar[tuple[StoredTask, ...]] = ()
    cancelled: ClassVar[list[str]] = []

    def __init__(self, *arguments: Any, stored_tasks: Iterable[StoredTask] = (), **options: Any) -> None:
        TaskEngine.began_with = tuple(stored_tasks)
        super().__init__(*arguments, stored_tasks=TaskEngine.began_with, **options)

    def tasks(self) -> tuple[TaskStatus, ...]:
        return tuple(self.kept)

    def task(self, id: str) -> TaskStatus | None:
        return next((task for task in self.kept if task.id == id), None)

    def receive_task_cancel(self, id: str, now: float) -> list[Effect]:
        for i, task in enumerate(self.kept):
            if task.id == id and task.status not in OVER:
                self.kept[i] = task_status(id, status="cancelled")
                self.cancelled.append(id)
                return []
        raise LocalProtocolError(f"there is no task {id}, or it is over")


def task_status(id: str, *, age_s: float = 10.0, left_s: float = 3590.0, **members: Any) -> TaskStatus:
    now_unix = time.time()
    usual: dict[str, Any] = {
        "server": "a",
        "tool": "dig",
        "kind": "local",
        "era": "handshake",
        "principal": "",
        "session": "",
        "status": "working",
        "message": "",
        "created_at_unix": now_unix - age_s,
        "updated_at_unix": now_unix - age_s,
        "expires_at_unix": now_unix + left_s,
        "size_bytes": 0,
    }
    return TaskStatus(id=id, **(usual | members))
