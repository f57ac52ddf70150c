"""Tasks of ours: calls whose clients were told of a task, and do not wait.

A call becomes one when its client wants that, when its server does, or when it takes long; from then on it goes on with
no request of a client behind it. Its answer becomes the task's outcome, what its server asks becomes the task's
questions, and everything that would have gone to its client on the way waits, is told, or is dropped.

A handle is told once the task's record lasts, and an outcome once that does: what a client has heard of, a restart does
not take away.

What clients ask of their tasks is in `taskverbs`.

Source: 2025-11-25 basic/utilities/tasks; the tasks extension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

import msgspec

from ..base.errors import INTERNAL_ERROR, RemoteProtocolError
from ..base.ids import ChannelId
from ..base.timestamps import format_time
from ..bridge import related_task, tasks
from ..bridge.discovery import server_info_of
from ..bridge.results import named
from ..downstream.responder import Courier
from ..input_required.suspended_calls import Parking, detached
from ..jsonrpc import envelope
from ..state.context import Desk
from ..state.exchange import Exchange, ExchangeKey, Reply
from ..state.session import Session
from ..state.session import State as SessionState
from ..state.task import Input, Outcome, State, Task
from .notifications import TaskTelling
from .questions import TaskAsking
from .quota import TaskRoom
from .record import StoredTask, TaskStatus
from .store import TaskStore, record_of, restored
from .table import Run, TaskTable

MESSAGE_MAX_CHARS: Final = 400
"""Of what is said of a state: the whole is in the outcome."""

OF_NOBODY: Final = ChannelId(0)
"""Where calls come in that no client made."""

STOPPED: Final = "the proxy was stopped while the call ran: what became of it is not known"
CANCELLED: Final = "the task was cancelled"


class Remotes(Protocol):
    """What servers have to do with it."""

    def is_http(self, server: str) -> bool: ...

    def session_with(self, session: Session) -> tuple[str, str]:
        """The name of the session with the server, and its revision; "" where there is none."""

    def leave(self, session: Session, exchange: Exchange) -> None:
        """The server goes on with a call, though its session ends."""


class Tasking:
    """All tasks.

    Attributes:
        room: where there is place for more.
        telling: how they are shown.
        asking: what is asked in their course.
    """

    def __init__(self, desk: Desk, courier: Courier, store: TaskStore, table: TaskTable) -> None:
        self.parking: Parking
        self.remotes: Remotes
        self.tell_waiters: Callable[[Task], None]
        self.forget_waiter: Callable[[Exchange], None]
        self.telling = TaskTelling(desk, courier, table)
        self.asking = TaskAsking(desk, courier, table, self.telling)
        self.room = TaskRoom(desk, table)
        self.room.expire = self._expire
        self._desk = desk
        self._courier = courier
        self._store = store
        self._table = table
        self._tasks = table.tasks
        self._runs = table.runs

    def __len__(self) -> int:
        return len(self._tasks) + len(self._runs) + len(self._table.waiters) + len(self.room) + len(self._store)

    # --- Queries ----------------------------------------------------------------------------------------------------

    def report(self) -> tuple[TaskStatus, ...]:
        return tuple(self._status(task) for task in self._tasks.values())

    def _status(self, task: Task) -> TaskStatus:
        run = self._runs.get(task.id)
        return TaskStatus(
            id=task.id,
            server=task.server,
            tool=task.tool,
            kind="proxied" if task.upstream_task else "local",
            era="handshake" if task.is_legacy else "stateless",
            principal=task.principal,
            session="" if run is None else run.session.sid,
            status=task.state.value,
            message=task.message,
            created_at_unix=task.created_at_unix,
            updated_at_unix=task.updated_at_unix,
            expires_at_unix=task.expires_at_unix,
            size_bytes=task.size_bytes,
        )

    # --- A call is to become one ------------------------------------------------------------------------------------

    def adopt(self, session: Session, exchange: Exchange) -> bool:
        """A call becomes a task: its client is told so, once that lasts. False if there is no room for it.

        A client that is away for answers cannot be told anything: its call goes on as one.
        """
        if exchange.task is not None or exchange.is_over:
            return exchange.task is not None
        if _is_asked(exchange):
            return False
        try:
            self.room.reserve(session, exchange)
        except RemoteProtocolError as fault:
            self._desk.note("warning", f"a call goes on as one: {fault.message}", session.server)
            return False
        task = self.room.take(exchange)
        task.begin(format_time(self._desk.now_unix), self._desk.now_unix)
        run = Run(session, exchange)
        self._tasks[task.id], self._runs[task.id] = task, run
        exchange.task = task
        exchange.reply, exchange.id_key = detached(), ("task", task.id)
        session.adopted += 1
        self.parking.release(exchange)
        self._desk.timers.cancel(("adopt", (session.sid, exchange.key)))
        self._desk.timers.cancel(("reply", (session.sid, exchange.key)))
        self._expect_end(task)
        self._save_first(task, run)
        return True

    def _save_first(self, task: Task, run: Run) -> None:
        """All that is known of it must last before its client is told."""
        run.saves += 1
        self._store.save(record_of(task), lambda fault: self._receive_saved(task, fault))

    def receive_answer(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """A call whose client wants a task is over before it became one: a result is one's, an error is the call's."""
        if envelope.decode(message).error is None:
            self.adopt(session, exchange)

    def adopt_later(self, session: Session, exchange: Exchange, pause_s: float) -> None:
        """Unless it is over by then."""
        at = self._desk.now + pause_s
        self._desk.timers.set(("adopt", (session.sid, exchange.key)), at, "call that becomes a task")

    def handle_adopt(self, session: Session, key: ExchangeKey) -> None:
        exchange = session.exchanges.get(key)
        if exchange is None or exchange.task is not None:
            return
        if _is_asked(exchange):
            self.adopt_later(session, exchange, self._desk.limits.task_after_s)
        else:
            self.adopt(session, exchange)

    def _expect_end(self, task: Task) -> None:
        at = task.expires_at_unix - self._desk.unix_at_zero
        self._desk.timers.set(("task", task.id), max(at, self._desk.now), "end of a task")

    def _receive_saved(self, task: Task, fault: str) -> None:
        """The record of a new task lasts, or cannot be made to."""
        run = self._runs.get(task.id)
        if run is None or run.leg is None:
            return
        run.saves -= 1
        if run.saves and not fault:
            return
        if fault:
            text = f"no task could be made of the call: {fault}"
            self._cancel(task, text, said=text)
            return
        leg, run.leg = run.leg, None
        shown = self.telling.shape(task, state=State.WORKING)
        if task.is_legacy:
            result = tasks.legacy_created(shown)
            if run.created is not None:
                result = run.created[:-1] + b"," + result[1:]
        else:
            result = named(tasks.modern_created(shown), server_info_of(run.session.greeting))
        self._courier.close(run.session, leg, envelope.encode_result(run.id_raw, result))
        if run.outcome is not None:
            self._keep(task, run)
        elif task.state is not State.WORKING:
            self.telling.tell(task)

    def owes(self, channel: ChannelId) -> bool:
        """Whether somebody on that channel is still to be told that a call has become a task."""
        return any(run.leg is not None and run.leg.stream.channel == channel for run in self._runs.values())

    def hang_up(self, session: Session, exchange: Exchange, reply: Reply) -> None:
        """The client of a call is gone. If it was not told of the task yet, it never will be."""
        task = exchange.task
        run = None if task is None else self._runs.get(task.id)
        if task is not None and run is not None and run.leg is reply:
            self._cancel(task, "its client was gone before it was told")

    # --- From the server --------------------------------------------------------------------------------------------

    def receive_handle(self, session: Session, exchange: Exchange, created: tasks.Task, result: bytes) -> None:
        """The server made a task of a call."""
        wish = exchange.wish
        if wish.is_asked or wish.knows_tasks:
            self.adopt(session, exchange)
        task = exchange.task
        if task is None:
            return
        ttl_max_ms = int(self._desk.limits.task_ttl_max_s * 1000)
        elapsed_ms = int((self._desk.now_unix - task.created_at_unix) * 1000)  # for which it was no task there
        task.ttl_ms = ttl_max_ms if created.ttl_ms is None else min(elapsed_ms + created.ttl_ms, ttl_max_ms)
        task.expires_at_unix = task.created_at_unix + task.ttl_ms / 1000
        self._expect_end(task)
        task.upstream_task, task.is_remote = created.id, self.remotes.is_http(session.server)
        if task.is_remote:
            task.upstream_session = self.remotes.session_with(session)
        if created.poll_ms is not None:
            task.poll_ms = created.poll_ms
        task.message = "" if created.status in tasks.TERMINAL else created.message or ""
        run = self._runs[task.id]
        if task.is_legacy and run.leg is not None:
            meta = envelope.member_of(related_task.without_related(result), "_meta")
            if meta is not None and meta.startswith(b"{") and b"model-immediate-response" in meta:
                run.created = b'{"_meta":' + meta + b"}"
        if run.leg is not None:
            self._save_first(task, run)
        else:
            self._store.save(record_of(task), lambda fault: None)

    def receive_status(self, session: Session, exchange: Exchange, seen: tasks.Task) -> None:
        """The server said how it fares: what that is in our words is known by its questions and its outcome."""
        task = exchange.task
        if task is None or task.is_over:
            return
        if seen.poll_ms is not None:
            task.poll_ms = seen.poll_ms
        if (seen.message or "") == task.message or seen.status in tasks.TERMINAL:
            return
        task.message = seen.message or ""
        self.telling.touch(task)
        self.telling.tell(task)

    def receive_progress(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """Progress of a call that its client wants to hear of, while the task is under way."""
        task = exchange.task
        assert task is not None
        if not task.is_legacy or session.state is not SessionState.READY:
            return
        params = related_task.with_related(related_task.without_related(envelope.decode(message).params), task.id)
        method = "notifications/progress"
        self._courier.deliver(
            session, method, envelope.encode_notification(method, params), self._table.waiter_of(task)
        )

    def is_awaited(self, exchange: Exchange) -> bool:
        task = exchange.task
        return task is not None and (bool(self._table.waiters.get(task.id)) or self.telling.watched.is_watched(task.id))

    def receive_look(self, exchange: Exchange) -> None:
        if exchange.task is not None:
            self.tell_waiters(exchange.task)

    # --- The outcome ------------------------------------------------------------------------------------------------

    def receive_settled(self, session: Session, exchange: Exchange, message: bytes | None) -> None:
        """A call is over; `message` is its answer, if it has one."""
        task = exchange.task
        assert task is not None
        session.adopted -= 1
        self.asking.drop_all(session, exchange, task)
        run = self._runs.get(task.id)
        if run is None or message is None or task.is_over:
            return
        frame = envelope.decode(message)
        if frame.error is not None:
            run.outcome = Outcome(frame.error, is_error=True)
        else:
            assert frame.result is not None
            run.outcome = Outcome(frame.result, is_error=False)
        remote = exchange.remote
        run.message = "" if remote is None or remote.status not in tasks.TERMINAL else remote.message
        run.is_cancelled = remote is not None and remote.status == "cancelled" and run.outcome.is_error
        if run.leg is None:
            self._keep(task, run)

    def _keep(self, task: Task, run: Run) -> None:
        """Store the outcome; then it is told."""
        outcome = run.outcome
        assert outcome is not None
        task.message = run.message
        if run.is_cancelled:
            self._end(task, Input.CANCEL, task.message or "the server cancelled it")
            return
        if len(outcome.data) <= self._desk.limits.task_inline_max_bytes:
            self._save_outcome(task, outcome, None)
            return

        def stored(blob: str | None, fault: str) -> None:
            if task.is_over or self._tasks.get(task.id) is not task:
                if blob is not None:
                    self._store.drop(blob)
            elif blob is None:
                text = f"the call ended, but what it came to could not be stored: {fault}"
                self._save_outcome(task, Outcome(envelope.error_object(INTERNAL_ERROR, text), is_error=True), None)
            else:
                self._save_outcome(task, outcome, blob)

        self._store.put(task, outcome, stored)

    def _save_outcome(self, task: Task, outcome: Outcome, blob: str | None) -> None:
        how = self._how(task, outcome)
        state = {Input.RETURN: State.COMPLETED, Input.FAIL: State.FAILED}[how]

        def saved(fault: str) -> None:
            if task.is_over or self._tasks.get(task.id) is not task:
                if blob is not None:
                    self._store.drop(blob)
                return
            if fault:
                self._desk.note("warning", f"what a task came to is lost with this process: {fault}", task.server)
            task.outcome, task.is_error = outcome, outcome.is_error
            task.blob, task.size_bytes = blob, len(outcome.data)
            self._end(task, how, task.message)
            if task.sid != record.sid:  # it was passed on meanwhile
                self._store.save(record_of(task, outcome=outcome), lambda fault: None)

        self.telling.touch(task)
        if how is Input.FAIL:
            task.message = task.message or _summary(outcome)
        record = record_of(task, state=state, outcome=outcome, blob=blob)
        self._store.save(record, saved)

    def _how(self, task: Task, outcome: Outcome) -> Input:
        """2025-11-25: a tool's own error makes the task fail. The extension: only an error of the protocol does."""
        if outcome.is_error:
            return Input.FAIL
        try:
            has_failed = task.is_legacy and envelope.member_of(outcome.data, "isError") == b"true"
        except RemoteProtocolError:
            has_failed = False
        return Input.FAIL if has_failed else Input.RETURN

    def _end(self, task: Task, how: Input, message: str) -> None:
        """It is over, and whoever waits hears of it."""
        is_told = self._table.is_told(task)
        task.end(how)
        task.message = message
        self.telling.touch(task)
        self._runs.pop(task.id, None)
        if how is Input.CANCEL:
            self._store.save(record_of(task), lambda fault: None)
        self._desk.timers.cancel(("task-tick", task.id))
        if is_told:
            self.telling.tell(task)
        self.tell_waiters(task)
        if task.blob is not None:
            task.outcome = None

    # --- They end ---------------------------------------------------------------------------------------------------

    def cancel(self, task: Task, why: str) -> None:
        """Nobody wants it any more: the server hears of that, and everybody else that it is cancelled."""
        assert not task.is_over
        self._cancel(task, why)

    def _cancel(self, task: Task, why: str, *, said: str = "") -> None:
        """One that its client was not told of is no task then: its call is refused.

        Args:
            said: why that is.
        """
        if task.is_over:
            return
        run = self._runs.get(task.id)
        self._end(task, Input.CANCEL, why)
        if run is not None and not run.exchange.is_over:
            reason = msgspec.json.encode({"requestId": 0, "reason": why})
            self.asking.drop_all(run.session, run.exchange, task)
            self._courier.cancel(run.session, run.exchange, reason, run.session.headers)
        if run is not None and run.leg is not None:
            message = envelope.encode_error(run.id_raw, INTERNAL_ERROR, said or f"{CANCELLED}: {why}")
            leg, run.leg = run.leg, None
            self._courier.close(run.session, leg, message)
            self._remove(task)

    def handle_end(self, id: str) -> None:
        """Its time is over."""
        self._expire(self._tasks[id])

    def _expire(self, task: Task) -> None:
        self._cancel(task, "its time was over before the call was")
        self._remove(task)

    def _remove(self, task: Task) -> None:
        """It is as if it had never been."""
        if self._tasks.pop(task.id, None) is None:
            return
        self.room.count(task, task.counted_for, -1)
        for purpose in ("task", "task-tick"):
            self._desk.timers.cancel((purpose, task.id))
        self.tell_waiters(task)
        self._store.forget(task)

    def release(self, session: Session, exchange: Exchange) -> None:
        """A request is over: a call that became no task, or one that waited for one's."""
        if exchange.awaits is not None:
            self.forget_waiter(exchange)
        self._desk.timers.cancel(("adopt", (session.sid, exchange.key)))
        self.room.release(exchange)

    def close_session(self, session: Session) -> None:
        """What runs in it is not wanted any more."""
        if not session.adopted:
            return
        for exchange in list(session.exchanges.values()):
            if exchange.task is not None:
                self._cancel(exchange.task, "its session is over")

    def stop(self) -> None:
        """The proxy is about to go. What servers do without it goes on; of the rest nobody will hear any more."""
        for task in list(self._tasks.values()):
            run = self._runs.get(task.id)
            if run is None or task.is_over:
                continue
            if run.leg is not None:
                self._cancel(task, STOPPED, said=STOPPED)
                continue
            if run.exchange.is_over:
                continue  # what it came to is being stored
            if task.is_remote and run.exchange.remote is not None:
                self.remotes.leave(run.session, run.exchange)
                del self._runs[task.id]
                self.asking.leave_all(run.session, run.exchange)
                self._courier.cancel(run.session, run.exchange, b'{"requestId":0}', run.session.headers)
                continue
            error = envelope.error_object(INTERNAL_ERROR, STOPPED)
            task.outcome, task.is_error, task.size_bytes = Outcome(error, is_error=True), True, len(error)
            task.message = STOPPED
            self.telling.touch(task)
            self._store.save(record_of(task, state=State.FAILED, outcome=task.outcome), lambda fault: None)
            self._end(task, Input.FAIL, STOPPED)
            reason = msgspec.json.encode({"requestId": 0, "reason": STOPPED})
            self._courier.cancel(run.session, run.exchange, reason, run.session.headers)

    # --- Of earlier runs --------------------------------------------------------------------------------------------

    def restore(self, records: Iterable[StoredTask], servers: Iterable[str]) -> None:
        """The tasks of earlier runs. What ran in those is lost; what servers do by themselves is asked for when its
        client comes."""
        known = set(servers)
        for record in sorted(records, key=lambda each: (each.expires_at_unix - each.ttl_ms / 1000, each.id)):
            self.room.last_ordinal += 1
            task = restored(record, ordinal=self.room.last_ordinal, now_unix=self._desk.unix_at_zero)
            self._tasks[task.id] = task
            self.room.count(task, "", 1)
            at = task.expires_at_unix - self._desk.unix_at_zero
            self._desk.timers.set(("task", task.id), at, "end of a task")
            if not task.is_over and not (task.is_remote and task.server in known):
                text = STOPPED
                error = envelope.error_object(INTERNAL_ERROR, text)
                task.outcome, task.is_error, task.size_bytes = Outcome(error, is_error=True), True, len(error)
                task.end(Input.FAIL)
                task.message = text
                self.telling.touch(task, at_unix=self._desk.unix_at_zero)

    def take_up(self, session: Session, task: Task) -> Exchange:
        """A task that an earlier run began, and whose client is there: the exchange that it goes on as."""
        self.room.last_ordinal += 1
        exchange = Exchange(
            ExchangeKey(OF_NOBODY, self.room.last_ordinal),
            detached(),
            sid=session.sid,
            id_raw=b"0",
            id_key=("task", task.id),
            method="tools/call",
            params=msgspec.json.encode({"name": task.tool}),
            token_raw=None,
            headers=session.headers,
        )
        self.room.count(task, task.counted_for, -1)
        self.room.count(task, session.sid, 1)
        exchange.task, exchange.is_augmented = task, True
        exchange.leg = session.client if session.is_stateless else None
        session.exchanges[exchange.key] = exchange
        session.adopted += 1
        run = self._runs[task.id] = Run(session, exchange)
        run.leg = None
        return exchange

    def pass_to(self, session: Session, task: Task) -> None:
        """Its session is over: it is this one's from now on."""
        self.room.count(task, task.counted_for, -1)
        self.room.count(task, session.sid, 1)
        task.sid = session.sid
        run = self._runs.get(task.id)
        if run is None or run.outcome is None:  # else that is on its way to the storage, and must stay the last word
            self._store.save(record_of(task), lambda fault: None)


def _is_asked(exchange: Exchange) -> bool:
    """Whether its client is, or is about to be, away for answers."""
    return exchange.waits_for_client or (exchange.park is not None and bool(exchange.park.open))


def _summary(outcome: Outcome) -> str:
    """What is said of a failure beside the failure itself."""
    try:
        if outcome.is_error:
            said = envelope.text_of(envelope.member_of(outcome.data, "message")) or ""
            return said[:MESSAGE_MAX_CHARS]
    except RemoteProtocolError:
        pass
    return "the tool reported an error"
