"""Operator pages of the tasks: list all, show one, cancel it.

The id of a task is a bearer secret: a client without a principal gets the task by naming it. So only operators may
see these pages; `core.wire.http.admin_routes` decides who is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import anyio
import msgspec

from ...core.state.records import TaskStatus
from ...core.state.task import TRANSITIONS, TaskState
from ...core.wire.http.error_responses import page_answer, page_error
from ...core.wire.http.routes import Refused
from ..runtime.hub import Hub

STATUSES: Final = tuple(state.value for state in TaskState)
OVER: Final = tuple(state.value for state, row in TRANSITIONS.items() if not row)

FILTERS: Final = ("server", "status", "session")
STORED_WITHIN_S: Final = 5.0
"""Seconds that the answer to a cancellation waits until that is stored, which takes milliseconds while the storage is
well. Then it is answered with the task as it is."""


class TaskPages:
    """The pages under `/tasks`.

    Args:
        servers: the ids of all servers.
    """

    def __init__(self, hub: Hub, servers: Sequence[str]) -> None:
        self._hub = hub
        self._servers = servers

    def show_all(self, query: Mapping[str, str]) -> Refused:
        tasks = self._hub.tasks()
        choices = {"server": {*self._servers, *(task.server for task in tasks)}, "status": STATUSES}
        for name, value in query.items():
            if name not in FILTERS:
                return page_error(400, f"got the filter {name[:80]!r}, expected one of {', '.join(FILTERS)}")
            if name in choices and value not in choices[name]:
                known = ", ".join(choices[name] if name == "status" else sorted(choices[name]))
                return page_error(400, f"got the {name} {value[:80]!r}, expected one of {known}")
        chosen = (task for task in tasks if all(getattr(task, name) == value for name, value in query.items()))
        return _answer({"tasks": [self._describe(task) for task in chosen]})

    def show(self, id: str) -> Refused:
        task = self._hub.task(id)
        return _unknown(id) if task is None else _answer(self._describe(task))

    async def cancel(self, id: str) -> Refused:
        task = self._hub.task(id)
        if task is None:
            return _unknown(id)
        if task.status in OVER:
            return page_error(409, f"the task {id} is over already: {task.status}")
        self._hub.cancel_task(id)
        with anyio.move_on_after(STORED_WITHIN_S):
            await self._hub.wait_until(lambda: self._is_over(id))
        task = self._hub.task(id)
        left = None if task is None else self._describe(task)
        return _answer({"id": id, "action": "cancel", "status": "success", "task": left})

    def _is_over(self, id: str) -> bool:
        task = self._hub.task(id)
        return task is None or task.status in OVER

    def _describe(self, task: TaskStatus) -> dict[str, object]:
        now_unix = self._hub.now_unix()
        return {
            **msgspec.structs.asdict(task),
            "age_s": round(max(0.0, now_unix - task.created_at_unix), 3),
            "expires_in_s": round(max(0.0, task.expires_at_unix - now_unix), 3),
        }


def _unknown(id: str) -> Refused:
    return page_error(404, f"got the task {id[:80]!r}, expected one that is kept: it may have expired")


def _answer(body: Mapping[str, object]) -> Refused:
    return page_answer(200, msgspec.json.encode(body))
