"""The limits on the number of tasks, and the places reserved for calls that may become tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from ..base.errors import OVERLOADED, RemoteProtocolError
from ..base.shares import Limit
from ..base.timestamps import format_time
from ..bridge import tasks
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeKey
from ..state.session import Session
from ..state.shared_limits import SharedLimits
from ..state.storage_orders import StorageOrders
from ..state.task import Task
from ..upstream.task_offers import tool_of
from . import ownership

TTL_MIN_MS: Final = 1000
"""The shortest time to live: a task that expires before its client can poll it is of no use."""


SHARE_TIMER: Final = "task-share"
PREFIX: Final = "quota/tasks"
"""The record of all tasks, and the beginning of the keys of the others."""
BLOCKS: Final = 64
"""Blocks of each limit: a replica changes the record once for so many tasks, and for most calls not at all."""


class Bound(NamedTuple):
    """One of the limits: its name, and the payer or session that it is for; "" for all tasks."""

    name: str
    payer_or_sid: str


class TaskQuota:
    """Counts tasks against `Limits.tasks_max`, `Limits.tasks_per_principal_max` and `Limits.tasks_per_session_max`.

    A reserved place counts as a task. Replicas keep the limits together (`base.shares`), except those of sessions that
    only one of them has. Each counts the tasks that it made, until they are over, also those that another replica has
    taken over since.
    """

    def __init__(self, context: Context, storage_orders: StorageOrders) -> None:
        self._last_ordinal = 0
        self._context = context
        self._reserved: dict[ExchangeKey, Task] = {}
        self._total = 0
        self._made: dict[str, Task] = {}  # those that are counted, where there are replicas
        self._left: dict[str, Task] = {}  # those of them that another replica has
        self._problem = ""  # of the storage, when a place was asked for last
        self._shares: SharedLimits[Bound] | None = None
        if context.plan.replica is not None:
            self._shares = SharedLimits(
                context, storage_orders, SHARE_TIMER, self._describe, lambda bound: (self._used(bound),)
            )
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
        self._prune()
        for bound in self._bounds(ownership.payer_of(session.principal), session.sid):
            limit = self._limit(bound)
            is_full = self._used(bound) >= limit
            if self._is_shared(bound, is_stateless=session.is_stateless) and not is_full:
                assert self._shares is not None
                is_full = self._used(bound) >= self._shares.share(bound)[0]
            if is_full and self._problem:
                return f"no task could be made of the call: {self._problem}"
            if is_full:
                count = limit if self._shares is not None else self._used(bound)
                return f"there are {count} tasks, the most allowed ({bound.name}): wait until some are over their time"
        return None

    def _bounds(self, payer: str, sid: str) -> tuple[Bound, ...]:
        return Bound("tasks_max", ""), Bound("tasks_per_principal_max", payer), Bound("tasks_per_session_max", sid)

    def _limit(self, bound: Bound) -> int:
        limit: int = getattr(self._context.limits, bound.name)
        return limit

    def _used(self, bound: Bound) -> int:
        if bound.name == "tasks_max":
            return self._total
        by = self._by_payer if bound.name == "tasks_per_principal_max" else self._by_sid
        return by[bound.payer_or_sid]

    # --- Replicas ---------------------------------------------------------------------------------------------------

    def _is_shared(self, bound: Bound, *, is_stateless: bool) -> bool:
        """True if other replicas count against the limit, too. They may have a session of the same name, and thus of
        the same client, only if that has no sessions itself."""
        return self._shares is not None and (is_stateless or bound.name != "tasks_per_session_max")

    def _describe(self, bound: Bound) -> tuple[str, Limit]:
        key = f"{PREFIX}/{bound.payer_or_sid}" if bound.payer_or_sid else PREFIX
        return key, Limit((self._limit(bound),), BLOCKS)

    def prepare(self, session: Session, then: Callable[[str], None]) -> bool:
        """Gets shares with a place for one more task of the session, as far as the limits allow. Calls `then` with the
        problem of the storage; "" if there is none. A place that it reserves is counted. True if it was called already.
        """
        is_over = False

        def claimed(problem: str) -> None:
            nonlocal is_over
            is_over, self._problem = True, problem
            then(problem)

        bounds = self._bounds(ownership.payer_of(session.principal), session.sid)
        until_unix = self._context.now_unix + self._context.limits.task_ttl_s
        shared = [bound for bound in bounds if self._is_shared(bound, is_stateless=session.is_stateless)]
        self._claim(shared, 1, until_unix, claimed)
        return is_over

    def confirm(self, task: Task, then: Callable[[str], None]) -> None:
        """Makes sure that the shares last until a task is over its time, before that is saved. Calls `then` with the
        problem; "" if there is none."""
        bounds = self._bounds(task.payer, task.counted_for) if task.id in self._made else ()
        shared = [bound for bound in bounds if self._is_shared(bound, is_stateless=not task.is_legacy)]

        def claimed(problem: str) -> None:
            assert self._shares is not None
            is_over = any(self._used(bound) > self._shares.share(bound)[0] for bound in shared)
            then(problem or ("there are too many tasks: wait until some are over their time" if is_over else ""))

        self._claim(shared, 0, task.expires_at_unix, claimed if shared else then)

    def _claim(self, bounds: list[Bound], count: int, until_unix: float, then: Callable[[str], None]) -> None:
        if not bounds:
            then("")
            return
        self._prune()
        assert self._shares is not None
        self._shares.claim_each([(bound, (count,)) for bound in bounds], until_unix, then)

    def leave(self, task: Task) -> None:
        """Counts a task that another replica has taken over until it is over its time: that one does not count it."""
        if task.id in self._made:
            self._left[task.id] = task
        else:
            self.forget(task)

    def _prune(self) -> None:
        for task in [task for task in self._left.values() if task.expires_at_unix <= self._context.now_unix]:
            self.forget(task)

    def handle_share(self, bound: Bound) -> None:
        """Gives back what is no longer used of a share."""
        assert self._shares is not None
        self._prune()
        self._shares.handle_timeout(bound)

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
        if self._shares is not None:
            self._made[task.id] = task
        self.count(task, session.sid, 1)
        return task

    def count(self, task: Task, sid: str, change: int) -> None:
        """Counts a task, unless another replica does, or did in an earlier run."""
        task.count_for(sid)
        if (self._shares is not None and task.id not in self._made) or (change > 0 and task.id in self._left):
            return
        self._total += change
        for counter, name in ((self._by_payer, task.payer), (self._by_sid, sid)):
            counter[name] += change
            if not counter[name]:
                del counter[name]
        if self._shares is not None and change < 0:
            for bound in self._bounds(task.payer, sid):
                self._shares.receive_less(bound)

    def forget(self, task: Task) -> None:
        """Counts a task no more: it is gone."""
        self.count(task, task.counted_for, -1)
        self._made.pop(task.id, None)
        self._left.pop(task.id, None)

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
            self.forget(task)
