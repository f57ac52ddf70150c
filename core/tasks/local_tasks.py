"""Tasks of the proxy: calls whose clients were given a task instead of a result, and do not wait.

A call becomes a task when its client wants that, when its server does, or when it takes long. From then on no request
of the client waits for it. Its response becomes the task's outcome, its server's questions become the task's questions,
and its other notifications are kept, sent as task notifications, or dropped.

The client gets the handle once the task's record is stored, and the outcome once that is stored: a restart takes away
nothing that a client knows of.

A task expires when its TTL is over: a timer calls `handle_expiry`, which removes the task and its record. `quota`
chooses the TTL, within `Limits.task_ttl_max_s`.

The requests about tasks (`tasks/get`, `tasks/result` and so on) are in `requests`.

Source: 2025-11-25 basic/utilities/tasks; the tasks extension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ..base.errors import INTERNAL_ERROR, INVALID_PARAMS, RemoteProtocolError
from ..base.ids import ChannelId
from ..base.plan import Kind
from ..base.timestamps import format_time
from ..bridge import related_task, tasks
from ..bridge.discovery import server_info_of
from ..bridge.results import named
from ..downstream.responder import Responder
from ..jsonrpc import envelope
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeKey, Reply
from ..state.records import StoredTask, TaskStatus
from ..state.session import PendingQuestion, Session, SessionState
from ..state.storage_orders import StorageOrders
from ..state.task import Outcome, Task, TaskInput, TaskState
from .answers import CANCELLED, TaskAnswers
from .notifications import TaskNotifications
from .questions import TaskQuestions
from .quota import TaskQuota
from .store import GONE, MOVED, TaskStore, record_of, restored
from .table import Run, TaskTable

MESSAGE_MAX_CHARS: Final = 400
"""The length of a task's `statusMessage` on failure. The outcome holds the whole error."""

SAVED_LATER_S: Final = 10.0
"""Time after which the end of a task that the storage did not take is saved again. Outages take seconds to minutes."""

NO_CHANNEL: Final = ChannelId(0)
"""The channel of exchanges that no client request began."""

BY_CLIENT: Final = "its client cancelled it"
NOT_CANCELLED: Final = "Cannot cancel task"
LOST: Final = "the replica that ran the call was lost: what became of it is not known"
STOPPED: Final = "the proxy was stopped while the call ran: what became of it is not known"


class LocalTasks:
    """The tasks of all clients. It is the `TaskKeeper` of their calls.

    Attributes:
        task_quota: counts tasks, and reserves room for more.
        task_notifications: formats tasks, and sends their status.
        task_questions: the questions of servers in the course of tasks.
        answers: answers requests about tasks.
    """

    def __init__(
        self,
        context: Context,
        storage_orders: StorageOrders,
        responder: Responder,
        store: TaskStore,
        table: TaskTable,
        task_notifications: TaskNotifications,
    ) -> None:
        self.task_notifications = task_notifications
        self.task_questions = TaskQuestions(context, responder, table, task_notifications)
        self.task_quota = TaskQuota(context, storage_orders)
        self.answers = TaskAnswers(context, responder, store, table, task_notifications)
        self._context = context
        self._responder = responder
        self._store = store
        self._table = table
        self._tasks = table.tasks
        self._runs = table.runs
        self._unsaved: dict[str, tuple[StoredTask, Callable[[str], None]]] = {}  # ends that the storage has not taken

    def __len__(self) -> int:
        held = len(self._table.waiters) + len(self.task_quota) + len(self._store) + len(self._unsaved)
        return len(self._tasks) + len(self._runs) + held

    # --- Queries ----------------------------------------------------------------------------------------------------

    def report(self) -> tuple[TaskStatus, ...]:
        return tuple(self._status(task) for task in self._tasks.values())

    def status_of(self, id: str) -> TaskStatus | None:
        task = self._tasks.get(id)
        return None if task is None else self._status(task)

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

    # --- Calls become tasks -------------------------------------------------------------------------------------------

    def reserve(self, session: Session, exchange: Exchange) -> None:
        """Reserves a place for the task that a call may become. If none is left, tasks whose time is over make room.

        Raises:
            RemoteProtocolError: no place is left (OVERLOADED).
        """
        if not self.task_quota.holds(exchange) and self.task_quota.full(session) is not None:
            for task in [task for task in self._tasks.values() if task.expires_at_unix <= self._context.now_unix]:
                self._expire(task)
        self.task_quota.reserve(session, exchange)

    def adopt(self, session: Session, exchange: Exchange) -> bool:
        """Makes a call a task. Its client gets the handle once the record is stored. False if it stays a call.

        It stays a call if there is no room, or if it is suspended: its client then has no request open to get the
        handle with. A call that is a task already is left as it is (True).
        """
        if exchange.task is not None or exchange.is_over:
            return exchange.task is not None
        if _waits_for_client(exchange):
            return False
        try:
            self.reserve(session, exchange)
        except RemoteProtocolError as fault:
            self._context.note("warning", f"a call goes on as one: {fault.message}", session.server)
            return False
        task = self.task_quota.take(exchange)
        task.begin(format_time(self._context.now_unix), self._context.now_unix)
        task.receive_trace(exchange.trace)
        run = Run(session, exchange)
        self._tasks[task.id], self._runs[task.id] = task, run
        exchange.become_task(task, self)
        session.count_adopted(1)
        if session.replies is not None:
            session.replies.release(exchange)
        self._context.timers.cancel(("adopt", (session.sid, exchange.key)))
        self._context.timers.cancel(("reply", (session.sid, exchange.key)))
        self._expect_end(task)
        self._save_first(task, run)
        return True

    def _save_first(self, task: Task, run: Run) -> None:
        """Stores the record of a task whose client has no handle yet: it gets that after the last such save."""
        run.begin_save()
        self._save_counted(task, lambda fault: self._receive_saved(task, fault))

    def _save_counted(self, task: Task, then: Callable[[str], None]) -> None:
        """Saves the record of a task that may live longer than it was counted for."""

        def confirmed(problem: str) -> None:
            if problem or self._tasks.get(task.id) is not task:
                then(problem or GONE)
            else:
                self._save(task, record_of(task), then)

        self.task_quota.confirm(task, confirmed)

    def receive_answer(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """Handles the response to a call that was to become a task and has not: a result makes it one, an error answers
        the call."""
        if exchange.task_options.is_asked and exchange.task is None and envelope.decode(message).error is None:
            self.adopt(session, exchange)

    def adopt_later(self, session: Session, exchange: Exchange, pause_s: float) -> None:
        """Makes a call a task in `pause_s` seconds, unless it is over by then."""
        at = self._context.now + pause_s
        self._context.timers.set(("adopt", (session.sid, exchange.key)), at, "call that becomes a task")

    def handle_adopt(self, session: Session, key: ExchangeKey) -> None:
        exchange = session.exchanges.get(key)
        if exchange is None or exchange.task is not None:
            return
        if _waits_for_client(exchange):
            self.adopt_later(session, exchange, self._context.limits.task_after_s)
        else:
            self.adopt(session, exchange)

    def _expect_end(self, task: Task) -> None:
        at = task.expires_at_unix - self._context.unix_at_zero
        self._context.timers.set(("task", task.id), max(at, self._context.now), "end of a task")

    def _receive_saved(self, task: Task, fault: str) -> None:
        """Answers the client's request with the handle, now that the record is stored. If it could not be (`fault`),
        the call is cancelled."""
        run = self._runs.get(task.id)
        if run is None or run.request is None:
            return
        if not run.end_save() and not fault:
            return
        if fault:
            text = f"no task could be made of the call: {fault}"
            self._cancel(task, text, error_text=text)
            return
        request = run.take_request()
        shown = self.task_notifications.shape(task, state=TaskState.WORKING)
        if task.is_legacy:
            result = tasks.legacy_created(shown)
            if run.created is not None:
                result = run.created[:-1] + b"," + result[1:]
        else:
            result = named(tasks.modern_created(shown), server_info_of(run.session.greeting))
        if self._responder.telemetry is not None:
            self._responder.telemetry.receive_task(run.exchange)
        self._responder.close(run.session, request, envelope.encode_result(run.id_raw, result))
        if run.outcome is not None:
            self._keep(task, run)
        elif task.state is not TaskState.WORKING:
            self.task_notifications.tell(task)

    def owes(self, channel: ChannelId) -> bool:
        """True if a request on that channel is still to be answered with the handle of a task."""
        return any(run.request is not None and run.request.stream.channel == channel for run in self._runs.values())

    def hang_up(self, session: Session, exchange: Exchange, reply: Reply) -> None:
        """Handles a client that closed its request. If it has not got the handle of the task yet, the task is
        cancelled."""
        task = exchange.task
        run = None if task is None else self._runs.get(task.id)
        if task is not None and run is not None and run.request is reply:
            self._cancel(task, "its client was gone before it was told")

    # --- From the server --------------------------------------------------------------------------------------------

    def receive_handle(self, session: Session, exchange: Exchange, created: tasks.TaskFields, result: bytes) -> None:
        """Handles a server's `CreateTaskResult` for a call: the call becomes a task here too, if its client knows
        tasks."""
        task_options = exchange.task_options
        if task_options.is_asked or task_options.knows_tasks:
            self.adopt(session, exchange)
        task = exchange.task
        if task is None:
            return
        is_remote = self._context.servers[session.server].kind is Kind.HTTP
        upstream_session = session.router.session_with(session) if is_remote else None
        ttl_max_ms = int(self._context.limits.task_ttl_max_s * 1000)
        task.receive_handle(created, upstream_session, ttl_max_ms=ttl_max_ms, now_unix=self._context.now_unix)
        self._expect_end(task)
        run = self._runs[task.id]
        if task.is_legacy and run.request is not None:
            meta = envelope.member_of(related_task.without_related(result), "_meta")
            if meta is not None and meta.startswith(b"{") and b"model-immediate-response" in meta:
                run.receive_meta(meta)
        if run.request is not None:
            self._save_first(task, run)
        else:
            self._save_counted(task, lambda fault: None)

    def receive_status(self, session: Session, exchange: Exchange, seen: tasks.TaskFields) -> None:
        """Takes over the status message and the poll interval of the server's task. The status itself follows from its
        questions and its outcome."""
        task = exchange.task
        if task is not None and not task.is_over and task.receive_status(seen):
            task.touch(self._context.now_unix)
            self.task_notifications.tell(task)

    def receive_progress(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """Sends progress of a task to a client with a session. The tasks extension has no progress."""
        task = exchange.task
        assert task is not None
        if not task.is_legacy or session.state is not SessionState.READY:
            return
        params = related_task.with_related(related_task.without_related(envelope.decode(message).params), task.id)
        method = "notifications/progress"
        self._responder.deliver(
            session, method, envelope.encode_notification(method, params), self._table.waiter_of(task)
        )

    def is_awaited(self, exchange: Exchange) -> bool:
        """True if a request or a subscription of a client waits for a change of the task."""
        task = exchange.task
        return task is not None and (bool(self._table.waiters.get(task.id)) or self.task_notifications.is_watched(task))

    def receive_look(self, exchange: Exchange) -> None:
        """Answers the requests that waited for a poll of the task's server: it had a response, or failed."""
        if exchange.task is not None:
            self.answer_waiting(exchange.task)

    def _save(self, task: Task, record: StoredTask, then: Callable[[str], None] | None = None) -> None:
        """Saves a record of a task, and calls `then` with the reason of a failure. If the task turns out to be at
        another replica, it is dropped here instead."""

        def saved(fault: str) -> None:
            if fault == MOVED:
                self._leave(task)
            elif then is not None:
                then(fault)

        self._store.save(record, saved)

    # --- The outcome ------------------------------------------------------------------------------------------------

    def receive_settled(self, session: Session, exchange: Exchange, message: bytes | None) -> None:
        """Handles the end of a call that is a task.

        Args:
            message: the response; None: it was cancelled.
        """
        task = exchange.task
        assert task is not None
        session.count_adopted(-1)
        self.task_questions.drop_all(session, exchange, task)
        run = self._runs.get(task.id)
        if run is None or message is None or task.is_over:
            return
        frame = envelope.decode(message)
        if frame.error is not None:
            run.receive_outcome(Outcome(frame.error, is_error=True))
        else:
            assert frame.result is not None
            run.receive_outcome(Outcome(frame.result, is_error=False))
        if run.request is None:
            self._keep(task, run)

    def _keep(self, task: Task, run: Run) -> None:
        """Stores the outcome, and ends the task once that is done."""
        outcome = run.outcome
        assert outcome is not None
        task.describe(run.message)
        if run.is_cancelled:
            self._save_cancelled(task, run, task.message or "the server cancelled it")
            return
        run.end()
        if len(outcome.data) <= self._context.limits.task_inline_max_bytes:
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
        ending = self._ending_of(task, outcome)
        state = {TaskInput.RETURN: TaskState.COMPLETED, TaskInput.FAIL: TaskState.FAILED}[ending]

        def saved(fault: str) -> None:
            if task.is_over or self._tasks.get(task.id) is not task:
                if blob is not None:
                    self._store.drop(blob)
                return
            if fault:
                self._context.note("warning", f"what a task came to is lost with this process: {fault}", task.server)
            task.receive_outcome(outcome, blob)
            self._end(task, ending, task.message, is_saved=True)
            if task.sid != record.sid:  # it moved to another session meanwhile
                self._save(task, record_of(task, outcome=outcome))

        task.touch(self._context.now_unix)
        if ending is TaskInput.FAIL:
            task.describe(task.message or _summary(outcome))
        record = record_of(task, state=state, outcome=outcome, blob=blob)
        self._save_end(task, record, saved)

    def _save_end(self, task: Task, record: StoredTask, then: Callable[[str], None]) -> None:
        """Saves the end of a task, and calls `then` with the reason of a failure. With several replicas it is saved
        again until the storage takes it: the others show what the record says."""
        if self._context.plan.replica is None:
            self._save(task, record, then)
        else:
            self._unsaved[task.id] = record, then
            self._try_end(task)

    def _try_end(self, task: Task) -> None:
        end = record, then = self._unsaved[task.id]

        def saved(fault: str) -> None:
            if self._unsaved.get(task.id) is not end:
                return  # the task is gone, or its end was found in the storage
            if fault:
                text = f"the end of a task is not stored yet, and is stored later: {fault}"
                self._context.note("warning", text, task.server)
                at = self._context.now + SAVED_LATER_S
                self._context.timers.set(("task-save", task.id), at, "end of a task that could not be saved")
            else:
                del self._unsaved[task.id]
                then("")

        self._save(task, record, saved)

    def handle_unsaved(self, id: str) -> None:
        """Saves the end of a task again."""
        self._try_end(self._tasks[id])

    def is_unsaved(self, task: Task) -> bool:
        """True if the task is at its end, and it is not known here whether that is stored."""
        return not task.is_over and task.id in self._unsaved

    def receive_stored_end(self, id: str) -> None:
        """Handles an end that is in the storage, though the answer to the save has not come."""
        self._leave_unsaved(id, "")

    def _leave_unsaved(self, id: str, fault: str) -> None:
        """Waits no more for the save of an end, and reports `fault` as its result."""
        _, then = self._unsaved.pop(id, (None, None))
        self._context.timers.cancel(("task-save", id))
        if then is not None:
            then(fault)

    def _ending_of(self, task: Task, outcome: Outcome) -> TaskInput:
        """Returns RETURN or FAIL. A result with `isError` fails a task of 2025-11-25; in the extension only a JSON-RPC
        error does."""
        if outcome.is_error:
            return TaskInput.FAIL
        try:
            has_failed = task.is_legacy and envelope.member_of(outcome.data, "isError") == b"true"
        except RemoteProtocolError:
            has_failed = False
        return TaskInput.FAIL if has_failed else TaskInput.RETURN

    def _end(self, task: Task, ending: TaskInput, message: str, *, is_saved: bool = False) -> None:
        """Ends a task: notifies its client, and answers the requests that wait for it. Its record is stored unless
        that is done."""
        is_told = self._table.is_told(task)
        task.end(ending, message, self._context.now_unix)
        self._runs.pop(task.id, None)
        if not is_saved:
            self._save_end(task, record_of(task), lambda fault: None)
        self._context.timers.cancel(("task-tick", task.id))
        if is_told:
            self.task_notifications.tell(task)
        self.answer_waiting(task)
        task.release_outcome()

    # --- Ends ---------------------------------------------------------------------------------------------------------

    def cancel(self, task: Task, why: str) -> None:
        """Cancels a task: the call is cancelled upstream at once, and the client is notified once that end is stored. A
        task whose end is being stored already goes on to it, since another replica may have shown that."""
        assert not task.is_over
        run = self._runs.get(task.id)
        if run is None or run.request is not None:
            self._cancel(task, why)
        elif not run.is_ending:
            self._cancel_call(task, run, why)
            self._save_cancelled(task, run, why)

    def _save_cancelled(self, task: Task, run: Run, why: str) -> None:
        """Stores that a task is cancelled, and ends it once that is done."""

        def saved(fault: str) -> None:
            if not task.is_over and self._tasks.get(task.id) is task:
                self._end(task, TaskInput.CANCEL, why, is_saved=True)

        run.end()
        task.touch(self._context.now_unix)
        task.describe(why)
        self._save_end(task, record_of(task, state=TaskState.CANCELLED), saved)

    def _cancel_call(self, task: Task, run: Run, why: str) -> None:
        """Cancels the call of a task upstream, unless that is over."""
        if not run.exchange.is_over:
            reason = msgspec.json.encode({"requestId": 0, "reason": why})
            self.task_questions.drop_all(run.session, run.exchange, task)
            self._responder.cancel(run.session, run.exchange, reason, run.session.headers)

    def _cancel(self, task: Task, why: str, *, error_text: str = "") -> None:
        """Cancels a task that is not over. If its client has no handle yet, its call is answered with an error, and the
        task is removed.

        Args:
            error_text: the message of that error, in place of `why`.
        """
        if task.is_over:
            return
        run = self._runs.get(task.id)
        self._end(task, TaskInput.CANCEL, why)
        if run is None:
            return
        self._cancel_call(task, run, why)
        if run.request is not None:
            message = envelope.encode_error(run.id_raw, INTERNAL_ERROR, error_text or f"{CANCELLED}: {why}")
            self._responder.close(run.session, run.take_request(), message)
            self._remove(task)

    def handle_expiry(self, id: str) -> None:
        """Removes a task whose time to live is over."""
        self._expire(self._tasks[id])

    def _expire(self, task: Task) -> None:
        if not self.is_own(task):
            self.drop(task)
            return
        self._cancel(task, "its time was over before the call was")
        self._remove(task)

    def _remove(self, task: Task) -> None:
        """Removes a task and its record: from now on it is unknown."""
        if self._tasks.pop(task.id, None) is None:
            return
        self._leave_unsaved(task.id, GONE)
        for purpose in ("task", "task-tick"):
            self._context.timers.cancel((purpose, task.id))
        self.answer_waiting(task)
        if task.expires_at_unix <= self._context.now_unix:
            self.task_quota.forget(task)
            self._store.forget(task)
        else:  # its record counts until then: the save that is under way may still take effect
            self._store.forget(task, lambda: self.task_quota.forget(task))

    def cancel_for(self, session: Session, exchange: Exchange, task: Task) -> None:
        """Carries out a `tasks/cancel`."""
        if task.is_over and not session.is_stateless:
            text = f"{NOT_CANCELLED}: it is {task.state.value} already"
            self.answers.refuse(session, exchange, INVALID_PARAMS, text)
            return
        if not task.is_over:
            self.cancel(task, BY_CLIENT)
        if task.is_over or session.is_stateless:
            self.answers.acknowledge_cancel(session, exchange, task)
        else:
            self.answers.wait(session, exchange, task)

    def answer_waiting(self, task: Task) -> None:
        """Answers the requests that wait for a task: its state is known, or it is over, or it was removed."""
        for session, exchange in self.answers.waiting(task):
            if exchange.is_over:
                continue
            self.answers.forget(exchange)
            if exchange.method == "tasks/cancel" and self._tasks.get(task.id) is task:
                if self.is_own(task) and not task.is_over:
                    self.cancel_for(session, exchange, task)
                else:
                    self._answer_cancel(session, exchange, task)
            else:
                self.answers.answer(session, exchange, task)

    def _answer_cancel(self, session: Session, exchange: Exchange, task: Task) -> None:
        """Answers a `tasks/cancel` that has waited for the end of the task, or for another replica."""
        if task.state is TaskState.CANCELLED or (task.is_over and session.is_stateless):
            self.answers.acknowledge_cancel(session, exchange, task)
            return
        end = f"it is {task.state.value} already" if task.is_over else "its replica has not answered: try again"
        self.answers.refuse(session, exchange, INVALID_PARAMS, f"{NOT_CANCELLED}: {end}")

    # --- Questions --------------------------------------------------------------------------------------------------

    def ask(self, session: Session, question: PendingQuestion, params: bytes | None, exchange: Exchange) -> None:
        """Handles a question of the server in the course of a task."""
        self.task_questions.ask(session, question, params, exchange)

    def receive_settled_question(self, exchange: Exchange, number: int) -> None:
        """Handles the end of such a question: it was answered or withdrawn."""
        self.task_questions.receive_settled_question(exchange, number)

    # --- Ends of requests -------------------------------------------------------------------------------------------

    def release(self, session: Session, exchange: Exchange) -> None:
        """Handles the end of a request: a call that did not become a task, or a request that waited for one."""
        if exchange.awaits is not None:
            self.answers.forget(exchange)
        self._context.timers.cancel(("adopt", (session.sid, exchange.key)))
        self.task_quota.release(exchange)

    def close_session(self, session: Session) -> None:
        """Cancels the tasks that run in a session that ends."""
        if not session.adopted:
            return
        for exchange in list(session.exchanges.values()):
            if exchange.task is not None and not exchange.task.is_over:
                self.cancel(exchange.task, "its session is over")

    def stop(self) -> None:
        """Ends what runs, as the proxy is shutting down. A task that its server can run without the proxy goes on
        there. Any other task fails, and a call without a handle is answered with an error."""
        for task in list(self._tasks.values()):
            run = self._runs.get(task.id)
            if run is None or task.is_over:
                continue
            if run.request is not None:
                self._cancel(task, STOPPED, error_text=STOPPED)
                continue
            if run.exchange.is_over:
                continue  # its outcome is being stored
            if task.is_remote and run.exchange.upstream_task is not None:
                self._leave_run(task, run)
                continue
            task.receive_outcome(_stopped())
            self._end(task, TaskInput.FAIL, STOPPED)
            reason = msgspec.json.encode({"requestId": 0, "reason": STOPPED})
            self._responder.cancel(run.session, run.exchange, reason, run.session.headers)

    def _leave_run(self, task: Task, run: Run) -> None:
        """Leaves a task to its server, which goes on with it."""
        run.session.router.leave(run.session, run.exchange)
        del self._runs[task.id]
        self.task_questions.leave_all(run.session, run.exchange)
        self._responder.cancel(run.session, run.exchange, b'{"requestId":0}', run.session.headers)

    # --- Tasks of other replicas ------------------------------------------------------------------------------------

    def is_own(self, task: Task) -> bool:
        """True if this replica runs the task, or has ended it."""
        own = self._context.plan.replica
        return own is None or task.replica == own.owner

    def receive_record(self, record: StoredTask) -> None:
        """Takes a task as its record shows it, in place of what was known of it."""
        known = self._tasks.get(record.id)
        if known is not None and self.is_own(known):
            self.task_quota.leave(known)
        ordinal = self.task_quota.next_ordinal() if known is None else known.ordinal
        task = self._tasks[record.id] = restored(record, ordinal=ordinal, now_unix=self._context.now_unix)
        if self.is_own(task):
            self.task_quota.count(task, "", 1)
        self._expect_end(task)

    def drop(self, task: Task) -> None:
        """Forgets a task that another replica has. Its record stays."""
        if self._tasks.pop(task.id, None) is None:
            return
        if self.is_own(task):
            self.task_quota.leave(task)
        self._leave_unsaved(task.id, GONE)
        for purpose in ("task", "task-tick", "task-elsewhere"):
            self._context.timers.cancel((purpose, task.id))
        self._store.leave(task)
        self.answer_waiting(task)

    def _leave(self, task: Task) -> None:
        """Leaves a task to the replica that has taken it over while this one was paused, or cut off from the
        storage."""
        run = self._runs.get(task.id)
        if run is not None and run.exchange.is_over:
            del self._runs[task.id]
        elif run is not None and run.exchange.upstream_task is not None:
            self._leave_run(task, run)
        elif run is not None:
            del self._runs[task.id]
            self.task_questions.drop_all(run.session, run.exchange, task)
            self._responder.cancel(run.session, run.exchange, b'{"requestId":0}', run.session.headers)
        if run is not None and run.request is not None:
            message = envelope.encode_error(run.id_raw, INTERNAL_ERROR, MOVED)
            self._responder.close(run.session, run.take_request(), message)
        self.drop(task)

    # --- Tasks of earlier runs ----------------------------------------------------------------------------------------

    def restore(self, records: Iterable[StoredTask], servers: Iterable[str]) -> None:
        """Restores the tasks of earlier runs. A call that ran in the proxy is lost: its task fails. A task that its
        server runs without the proxy is polled again once its client asks for it."""
        known = set(servers)
        for record in sorted(records, key=lambda each: (each.expires_at_unix - each.ttl_ms / 1000, each.id)):
            task = restored(record, ordinal=self.task_quota.next_ordinal(), now_unix=self._context.unix_at_zero)
            self._tasks[task.id] = task
            self.task_quota.count(task, "", 1)
            at = task.expires_at_unix - self._context.unix_at_zero
            self._context.timers.set(("task", task.id), at, "end of a task")
            if not task.is_over and not (task.is_remote and task.server in known):
                task.receive_outcome(_stopped())
                task.end(TaskInput.FAIL, STOPPED, self._context.unix_at_zero)

    def take_up(self, session: Session, task: Task) -> Exchange:
        """Returns a new exchange for a task that an earlier run began, in the session of the client that asked for
        it."""
        exchange = Exchange(
            ExchangeKey(NO_CHANNEL, self.task_quota.next_ordinal()),
            Reply.detached(),
            sid=session.sid,
            id_raw=b"0",
            id_key=("task", task.id),
            method="tools/call",
            params=msgspec.json.encode({"name": task.tool}),
            headers=session.headers,
            request=session.client if session.is_stateless else None,
        )
        self.task_quota.move(task, session.sid)
        exchange.become_task(task, self)
        exchange.augment(True)
        session.add(exchange)
        session.count_adopted(1)
        run = self._runs[task.id] = Run(session, exchange)
        run.take_request()  # the client has the handle
        return exchange

    def pass_to(self, session: Session, task: Task) -> None:
        """Moves a task whose session is over to another session of its owner."""
        self.task_quota.move(task, session.sid)
        task.move(session.sid)
        run = self._runs.get(task.id)
        # An end that is being stored must stay the last record: `_save_outcome` saves the new session after it.
        if run is None or not run.is_ending:
            self._save(task, record_of(task))


def _waits_for_client(exchange: Exchange) -> bool:
    """True if its client has been, or is about to be, sent away with questions."""
    return exchange.waits_for_client or (exchange.suspended_call is not None and bool(exchange.suspended_call.open))


def lost(record: StoredTask, replica: str, now_unix: float) -> StoredTask:
    """Returns the record of a task that has failed because the replica that ran it is gone.

    Args:
        replica: the one that says so.
    """
    outcome = envelope.error_object(INTERNAL_ERROR, LOST)
    return msgspec.structs.replace(
        record,
        status=TaskState.FAILED,
        message=LOST,
        updated_at=format_time(now_unix),
        outcome=outcome.decode(),
        is_error=True,
        size_bytes=len(outcome),
        replica=replica,
    )


def _stopped() -> Outcome:
    return Outcome(envelope.error_object(INTERNAL_ERROR, STOPPED), is_error=True)


def _summary(outcome: Outcome) -> str:
    """Returns the status message of a task that failed."""
    try:
        if outcome.is_error:
            message = envelope.text_of(envelope.member_of(outcome.data, "message")) or ""
            return message[:MESSAGE_MAX_CHARS]
    except RemoteProtocolError:
        pass
    return "the tool reported an error"
