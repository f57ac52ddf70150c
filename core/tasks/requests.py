"""Requests of clients about tasks: `tasks/get`, `tasks/result`, `tasks/list`, `tasks/update`, `tasks/cancel`.

A client that may not see a task gets the same error as for a task that never was.

Source: 2025-11-25 basic/utilities/tasks; the tasks extension.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from ..base.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CAPABILITY, RemoteProtocolError
from ..bridge import input_requests, related_task, task_support, tasks
from ..bridge.discovery import server_info_of
from ..bridge.results import named
from ..downstream.responder import Responder
from ..jsonrpc import envelope
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeState
from ..state.link import Link
from ..state.session import Session
from ..state.task import Outcome, Task, TaskState
from ..upstream import task_offers
from ..upstream.task_offers import NEEDED
from .local_tasks import CANCELLED, LocalTasks
from .ownership import is_shown, may_see
from .store import TaskStore
from .table import TaskTable
from .upstream_tasks import UpstreamTasks

UNKNOWN: Final = "Task not found: there is none of that id, or its time is over"

LEGACY_METHODS: Final = frozenset({"tasks/get", "tasks/result", "tasks/list", "tasks/cancel"})
MODERN_METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})

_CURSOR: Final = re.compile(r"after-([0-9]{1,18})")


class LinkFinder(Protocol):
    """Finds the link that an exchange goes over."""

    def is_live(self, sid: str) -> bool:
        """True if a session of that public name still lasts."""

    def link_of(self, exchange: Exchange) -> Link | None: ...

    def earlier_link_of(self, session: Session, exchange: Exchange, upstream: str, revision: str) -> Link:
        """Returns a link to the server of a task that an earlier run began.

        Args:
            upstream: the `Mcp-Session-Id` that the task was begun with; "" if there is none.
            revision: of that session.
        """


class TaskRequests:
    """The requests about tasks of all clients, and those that wait for a change of a task."""

    def __init__(
        self,
        context: Context,
        responder: Responder,
        local_tasks: LocalTasks,
        store: TaskStore,
        table: TaskTable,
        upstream_tasks: UpstreamTasks,
        links: LinkFinder,
    ) -> None:
        self._context = context
        self._responder = responder
        self._local_tasks = local_tasks
        self._store = store
        self._table = table
        self._upstream_tasks = upstream_tasks
        self._links = links
        local_tasks.tell_waiters, local_tasks.forget_waiter = self.tell, self.forget

    def receive_request(self, link: Link, session: Session, exchange: Exchange) -> bool:
        """Handles a request of a client. True if it is about tasks, and is answered here, now or later."""
        method = exchange.method
        if not method.startswith("tasks/"):
            return False
        methods = MODERN_METHODS if session.is_stateless else LEGACY_METHODS
        exchange.is_native = True
        if method not in methods or not self._has_tasks(link, session):
            self._refuse(session, exchange, METHOD_NOT_FOUND, f"Method not found: {method[:100]}")
        elif session.is_stateless and (
            exchange.request is None or not task_support.declares(exchange.request.capabilities)
        ):
            text = "Missing required client capability: tasks are an extension, declare it with each request"
            self._refuse(session, exchange, MISSING_CAPABILITY, text, NEEDED)
        elif method == "tasks/list":
            self._list(session, exchange)
        else:
            self._receive_named(session, exchange)
        return True

    def visible(self, session: Session, ids: frozenset[str]) -> frozenset[str]:
        """Returns those of these task ids that the session's client may see."""
        found = {id: self._table.tasks.get(id) for id in ids}
        return frozenset(
            id for id, task in found.items() if task is not None and may_see(session, task, is_live=self._is_live)
        )

    def tell_state(self, id: str) -> None:
        """Notifies the subscriptions to a task of its state, unless it is still `working`: one of them is new, and the
        task may have changed since its client last saw it."""
        task = self._table.tasks.get(id)
        if task is not None and task.state is not TaskState.WORKING:
            self._store.get(task, lambda outcome, fault: self._local_tasks.task_notifications.tell_now(task, outcome))

    def _has_tasks(self, link: Link, session: Session) -> bool:
        """True if the client was offered tasks. A stateless client was shown no capabilities before its server was ever
        reached: it may use tasks if the plan offers them."""
        if not link.plan.tasks.are_offered:
            return False
        if not session.is_stateless:
            return session.features.tasks and task_offers.are_offered(link)
        return link.handshake is None or task_offers.are_offered(link)

    def _receive_named(self, session: Session, exchange: Exchange) -> None:
        task = self._find(session, exchange)
        if task is None:
            self._refuse(session, exchange, INVALID_PARAMS, UNKNOWN)
            return
        if not task.is_over and self._table.runs.get(task.id) is None:
            self._take_up(session, task)
        if exchange.method == "tasks/get":
            self._get(session, exchange, task)
        elif exchange.method == "tasks/result":
            self._result(session, exchange, task)
        elif exchange.method == "tasks/update":
            self._update(session, exchange, task)
        else:
            self._cancel(session, exchange, task)

    def _find(self, session: Session, exchange: Exchange) -> Task | None:
        task = self._table.tasks.get(tasks.task_id(exchange.params) or "")
        if task is None or not may_see(session, task, is_live=self._is_live):
            return None
        if task.expires_at_unix <= self._context.now_unix:
            return None  # its timer is about to remove it
        if task.sid and task.sid != session.sid:
            self._local_tasks.pass_to(session, task)
        return task

    def _is_live(self, sid: str) -> bool:
        return self._links.is_live(sid)

    def _take_up(self, session: Session, task: Task) -> None:
        exchange = self._local_tasks.take_up(session, task)
        link = self._links.earlier_link_of(session, exchange, *task.upstream_session)
        self._upstream_tasks.revive(link, exchange, task.upstream_task, task.poll_ms / 1000)

    # --- Get --------------------------------------------------------------------------------------------------------

    def _get(self, session: Session, exchange: Exchange, task: Task) -> None:
        if self._poll(task):
            self._wait(session, exchange, task)
        else:
            self._show(session, exchange, task)

    def _poll(self, task: Task) -> bool:
        """Polls the task's server if that is due. True if a poll is under way, for which the client's request then
        waits."""
        run = self._table.runs.get(task.id)
        if task.is_over or run is None or run.exchange.state is not ExchangeState.TASKED or task.questions:
            return False
        link = self._links.link_of(run.exchange)
        return link is not None and self._upstream_tasks.refresh(link, run.exchange)

    def _wait(self, session: Session, exchange: Exchange, task: Task) -> None:
        exchange.awaits = task.id
        self._table.waiters.setdefault(task.id, []).append((session, exchange))
        if exchange.method != "tasks/result":
            at = self._context.now + self._context.limits.task_look_s
            self._context.timers.set(("task-look", task.id), at, "look at a task")

    def handle_look(self, id: str) -> None:
        """Answers the requests that wait for the state of a task: its server did not tell within
        `Limits.task_look_s`."""
        task = self._table.tasks.get(id)
        if task is not None:
            self.tell(task)

    def _show(self, session: Session, exchange: Exchange, task: Task) -> None:
        if not session.is_stateless:
            self._answer(session, exchange, self._local_tasks.task_notifications.shown(task))
            return

        def show(outcome: Outcome | None, fault: str) -> None:
            if exchange.is_over:
                return
            if outcome is None and task.state in (TaskState.COMPLETED, TaskState.FAILED):
                self._refuse(session, exchange, INTERNAL_ERROR, f"what task {task.id} came to cannot be read: {fault}")
                return
            try:
                shown = self._local_tasks.task_notifications.detailed(task, outcome, is_result=True)
            except RemoteProtocolError as error:
                self._refuse(session, exchange, INTERNAL_ERROR, f"the result cannot be shown: {error.message}")
                return
            self._answer(session, exchange, shown)

        self._store.get(task, show)

    # --- Result -----------------------------------------------------------------------------------------------------

    def _result(self, session: Session, exchange: Exchange, task: Task) -> None:
        if task.is_over:
            self._send_outcome(session, exchange, task)
            return
        self._wait(session, exchange, task)
        self._local_tasks.task_questions.put_questions(session, task)

    def _send_outcome(self, session: Session, exchange: Exchange, task: Task) -> None:
        if task.state is TaskState.CANCELLED:
            self._refuse(session, exchange, INTERNAL_ERROR, f"{CANCELLED}: {task.message}")
            return

        def send(outcome: Outcome | None, fault: str) -> None:
            if exchange.is_over:
                return
            if outcome is None:
                self._refuse(session, exchange, INTERNAL_ERROR, f"the result of task {task.id} cannot be had: {fault}")
            elif outcome.is_error:
                self._responder.answer(session, exchange, envelope.encode_error_raw(exchange.id_raw, outcome.data))
            else:
                self._answer_related(session, exchange, task, outcome.data)

        self._store.get(task, send)

    def _answer_related(self, session: Session, exchange: Exchange, task: Task, result: bytes) -> None:
        try:
            self._answer(session, exchange, related_task.with_related(result, task.id))
        except RemoteProtocolError as fault:
            text = f"the result of task {task.id} cannot be shown: {fault.message}"
            self._refuse(session, exchange, INTERNAL_ERROR, text)

    def tell(self, task: Task) -> None:
        """Answers the requests that wait for a task: its state is known, or it is over, or it was removed. A
        `tasks/result` waits until it is over."""
        waiting = self._table.waiters.get(task.id, [])
        is_gone = self._table.tasks.get(task.id) is not task
        for session, exchange in list(waiting):
            if exchange.is_over or (exchange.method == "tasks/result" and not task.is_over and not is_gone):
                continue
            self.forget(exchange)
            if is_gone:
                self._refuse(session, exchange, INVALID_PARAMS, UNKNOWN)
            elif exchange.method == "tasks/result":
                self._send_outcome(session, exchange, task)
            elif exchange.method == "tasks/cancel":
                self._cancel_now(session, exchange, task)
            else:
                self._show(session, exchange, task)

    def forget(self, exchange: Exchange) -> None:
        """Removes a request from those that wait for a task."""
        id, exchange.awaits = exchange.awaits, None
        waiting = self._table.waiters.get(id or "")
        if id is None or waiting is None:
            return
        kept = [entry for entry in waiting if entry[1] is not exchange]
        if kept:
            self._table.waiters[id] = kept
        else:
            del self._table.waiters[id]
        if all(other.method == "tasks/result" for _, other in kept):
            self._context.timers.cancel(("task-look", id))

    # --- List -------------------------------------------------------------------------------------------------------

    def _list(self, session: Session, exchange: Exchange) -> None:
        try:
            raw = envelope.member_of(exchange.params, "cursor")
        except RemoteProtocolError as error:
            self._refuse(session, exchange, error.rpc_code, error.message)
            return
        after = 0
        if raw not in (None, b"null"):
            match = _CURSOR.fullmatch(envelope.text_of(raw) or "")
            if match is None:
                text = "got a cursor that was not given out here, expected one of an answer to tasks/list"
                self._refuse(session, exchange, INVALID_PARAMS, text)
                return
            after = int(match[1])
        now_unix = self._context.now_unix
        found = [
            task
            for task in self._table.tasks.values()
            if task.ordinal > after
            and task.expires_at_unix > now_unix
            and is_shown(session, task)
            and self._table.is_told(task)
        ]
        page = found[: self._context.limits.task_page_max]
        result = b'{"tasks":[' + b",".join(map(self._local_tasks.task_notifications.shown, page)) + b"]"
        if len(found) > len(page):
            result += b',"nextCursor":"after-%d"' % page[-1].ordinal
        self._answer(session, exchange, result + b"}")

    # --- Update -----------------------------------------------------------------------------------------------------

    def _update(self, session: Session, exchange: Exchange, task: Task) -> None:
        try:
            responses = input_requests.read_responses(exchange.params)
            self._local_tasks.task_questions.answer_questions(task, responses, exchange.headers)
        except RemoteProtocolError as error:
            self._refuse(session, exchange, error.rpc_code, error.message)
            return
        self._answer(session, exchange, ACKNOWLEDGED)

    # --- Cancel -----------------------------------------------------------------------------------------------------

    def _cancel(self, session: Session, exchange: Exchange, task: Task) -> None:
        run = self._table.runs.get(task.id)
        link = None if run is None else self._links.link_of(run.exchange)
        if run is not None and link is not None and run.exchange.upstream_task is not None and not link.can_be_told:
            self._wait(session, exchange, task)  # until its server is reached, which must be told
        else:
            self._cancel_now(session, exchange, task)

    def _cancel_now(self, session: Session, exchange: Exchange, task: Task) -> None:
        if task.is_over and not session.is_stateless:
            text = f"Cannot cancel task: it is {task.state.value} already"
            self._refuse(session, exchange, INVALID_PARAMS, text)
            return
        if not task.is_over:
            self._local_tasks.cancel(task, "its client cancelled it")
        self._answer(
            session,
            exchange,
            ACKNOWLEDGED if session.is_stateless else self._local_tasks.task_notifications.shown(task),
        )

    def _answer(self, session: Session, exchange: Exchange, result: bytes) -> None:
        if session.is_stateless:
            result = named(result, server_info_of(session.greeting))
        self._responder.answer(session, exchange, envelope.encode_result(exchange.id_raw, result))

    def _refuse(self, session: Session, exchange: Exchange, code: int, text: str, data: object = None) -> None:
        self._responder.answer(session, exchange, envelope.encode_error(exchange.id_raw, code, text, data))


ACKNOWLEDGED: Final = b'{"resultType":"complete"}'
