"""The limits on the number of tasks, and the places reserved for calls that may become tasks."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ..base.errors import OVERLOADED, RemoteProtocolError
from ..base.timestamps import format_time
from ..bridge import tasks
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeKey
from ..state.session import Session
from ..state.task import Task
from ..upstream.task_offers import tool_of
from . import ownership
from .table import TaskTable

TTL_MIN_MS: Final = 1000
"""The shortest time to live: a task that expires before its client can poll it is of no use."""


class TaskQuota:
    """Counts tasks against `Limits.tasks_max`, `Limits.tasks_per_principal_max` and `Limits.tasks_per_session_max`.

    A reserved place counts as a task.
    """

    def __init__(self, context: Context, table: TaskTable) -> None:
        self._last_ordinal = 0
        self._context = context
        self._table = table
        self._reserved: dict[ExchangeKey, Task] = {}
        self._by_payer: Counter[str] = Counter()
        self._by_sid: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._reserved) + len(self._by_payer) + len(self._by_sid)

    def next_ordinal(self) -> int:
        """Returns a number greater than those of all tasks before."""
        self._last_ordinal += 1
        return self._last_ordinal

    def reserve(self, session: Session, exchange: Exchange) -> None:
        """Reserves a place for the task that a call may become, unless it has one.

        Raises:
            RemoteProtocolError: no place is left (OVERLOADED). Nothing has changed.
        """
        if self.holds(exchange):
            return
        fault = self.full(session)
        if fault is not None:
            raise RemoteProtocolError(fault, rpc_code=OVERLOADED)
        self._reserved[exchange.key] = self._new(session, exchange)

    def holds(self, exchange: Exchange) -> bool:
        """True if a call has a reserved place."""
        return exchange.key in self._reserved

    def full(self, session: Session) -> str | None:
        """Returns why a call of the session can become no task; None if it can."""
        limits = self._context.limits
        payer = ownership.payer_of(session.principal)
        for name, limit in (
            ("tasks_max", limits.tasks_max),
            ("tasks_per_principal_max", limits.tasks_per_principal_max),
            ("tasks_per_session_max", limits.tasks_per_session_max),
        ):
            if (count := self._used(name, payer, session.sid)) >= limit:
                return f"there are {count} tasks, the most allowed ({name}): wait until some are over their time"
        return None

    def _used(self, name: str, payer: str, sid: str) -> int:
        if name == "tasks_max":
            return len(self._table.tasks) + len(self._reserved)
        return self._by_payer[payer] if name == "tasks_per_principal_max" else self._by_sid[sid]

    def _new(self, session: Session, exchange: Exchange) -> Task:
        limits = self._context.limits
        ttl_ms = tasks.clamp_ttl(
            exchange.task_options.ttl_ms, int(limits.task_ttl_s * 1000), int(limits.task_ttl_max_s * 1000)
        )
        ttl_ms = max(ttl_ms, TTL_MIN_MS)
        task = Task(
            self._context.mint_tagged(),
            ordinal=self.next_ordinal(),
            server=session.server,
            tool=tool_of(exchange),
            owner=ownership.owner_of(session),
            payer=ownership.payer_of(session.principal),
            sid="" if session.is_stateless or session.principal else session.sid,
            principal=session.principal,
            is_legacy=not session.is_stateless,
            created_at=format_time(self._context.now_unix),
            created_at_unix=self._context.now_unix,
            ttl_ms=ttl_ms,
            poll_ms=int(limits.task_poll_s * 1000),
            replica="" if self._context.plan.replica is None else self._context.plan.replica.owner,
        )
        self.count(task, session.sid, 1)
        return task

    def count(self, task: Task, sid: str, change: int) -> None:
        for counter, name in ((self._by_payer, task.payer), (self._by_sid, sid)):
            counter[name] += change
            if not counter[name]:
                del counter[name]
        task.count_for(sid)

    def move(self, task: Task, sid: str) -> None:
        """Counts a task for another session from now on."""
        self.count(task, task.counted_for, -1)
        self.count(task, sid, 1)

    def take(self, exchange: Exchange) -> Task:
        """Removes and returns the task that a place was reserved for. It stays counted."""
        return self._reserved.pop(exchange.key)

    def release(self, exchange: Exchange) -> None:
        """Gives back the reserved place of a call, if it has one: it becomes no task."""
        task = self._reserved.pop(exchange.key, None)
        if task is not None:
            self.count(task, task.counted_for, -1)
