"""Requests of clients about tasks: `tasks/get`, `tasks/result`, `tasks/list`, `tasks/update`, `tasks/cancel`.

A client that may not see a task gets the same error as for a task that never was. The access rules of the tool that
made a task hold for it: a caller who is not in the tool's group any more does not see it, and one whose token lacks a
scope is told which.

Source: 2025-11-25 basic/utilities/tasks; the tasks extension.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ..base.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CAPABILITY, RemoteProtocolError
from ..base.replica import tag_of
from ..bridge import input_requests, task_support, tasks
from ..bridge.task_support import NEEDED, UNDECLARED
from ..bridge.tasks import UNKNOWN, methods_of
from ..jsonrpc import envelope
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeState
from ..state.interceptor import Interceptor
from ..state.link import Link
from ..state.listen_filter import ListenFilter
from ..state.session import Session
from ..state.task import Task, TaskState
from ..upstream import task_offers
from ..upstream.access_filter import refuse_scopes, scopes_wanted
from .answers import ACKNOWLEDGED
from .foreign_tasks import ForeignTasks
from .local_tasks import LocalTasks
from .ownership import is_shown, may_see
from .store import TaskStore
from .table import TaskTable
from .upstream_tasks import UpstreamTasks

_CURSOR: Final = re.compile(r"after-([0-9]{1,18})")


class TaskRequests(Interceptor):
    """The requests about tasks of all clients."""

    name = "task requests"

    def __init__(
        self,
        context: Context,
        local_tasks: LocalTasks,
        store: TaskStore,
        table: TaskTable,
        upstream_tasks: UpstreamTasks,
        foreign_tasks: ForeignTasks,
    ) -> None:
        self._context = context
        self._local_tasks = local_tasks
        self._answers = local_tasks.answers
        self._store = store
        self._table = table
        self._upstream_tasks = upstream_tasks
        self._foreign_tasks = foreign_tasks

    def has_say(self, link: Link) -> bool:
        return False

    def receive_request(self, link: Link, exchange: Exchange) -> bool:
        """Handles a request of a client. True if it is about tasks, and is answered here, now or later."""
        session, method = link.session_of(exchange), exchange.method
        if not method.startswith("tasks/"):
            return False
        exchange.keep_for(self._local_tasks)
        if method not in methods_of(is_stateless=session.is_stateless) or not self._has_tasks(link, session):
            self._answers.refuse(session, exchange, METHOD_NOT_FOUND, f"Method not found: {method[:100]}")
        elif session.is_stateless and (
            exchange.request is None or not task_support.declares(exchange.request.capabilities)
        ):
            self._answers.refuse(session, exchange, MISSING_CAPABILITY, UNDECLARED, NEEDED)
        elif method == "tasks/list":
            self.list_tasks(session, exchange, lambda task: is_shown(session, task))
        else:
            self._receive_named(link, session, exchange)
        return True

    def grant_tasks(self, link: Link, exchange: Exchange, wanted: ListenFilter) -> ListenFilter:
        found = {id: self._table.tasks.get(id) for id in wanted.tasks}
        session = link.session_of(exchange)
        is_live = session.router.is_live
        visible = (
            id
            for id, task in found.items()
            if task is not None
            and may_see(session, task, is_live=is_live)
            and scopes_wanted(self._context, link.plan, session, exchange, task.tool) == frozenset()
        )
        return ListenFilter(tasks=frozenset(visible))

    def receive_watched(self, task: str) -> None:
        """Notifies the subscriptions to a task of its state, unless it is still `working`: one of them is new, and the
        task may have changed since its client last saw it."""
        found = self._table.tasks.get(task)
        if found is not None and found.state is not TaskState.WORKING:
            self._store.get(found, lambda outcome, fault: self._local_tasks.task_notifications.tell_now(found, outcome))

    def _has_tasks(self, link: Link, session: Session) -> bool:
        """True if the client was offered tasks. A stateless client was shown no capabilities before its server was ever
        reached: it may use tasks if the plan offers them."""
        if not link.plan.tasks.are_offered:
            return False
        if not session.is_stateless:
            return session.features.tasks and task_offers.are_offered(link)
        return link.handshake.result is None or task_offers.are_offered(link)

    def _receive_named(self, link: Link, session: Session, exchange: Exchange) -> None:
        """Handles a request about one task, once it is known whether that is at another replica."""
        if not self._waits(session, exchange, lambda: self._receive_known(link, session, exchange)):
            self._receive_known(link, session, exchange)

    def _waits(self, session: Session, exchange: Exchange, go_on: Callable[[], None]) -> bool:
        """True if the task of a request is looked for in the storage now. Calls `go_on` once that is done."""

        def loaded(problem: str) -> None:
            if exchange.is_over:
                return  # the client has left meanwhile
            if problem:
                text = f"the task could not be looked up: {problem}"
                self._answers.refuse(session, exchange, INTERNAL_ERROR, text)
            else:
                go_on()

        return self._foreign_tasks.wait_for_task(tasks.task_id(exchange.params) or "", loaded)

    def _receive_known(self, link: Link, session: Session, exchange: Exchange) -> None:
        task = self._find(session, exchange)
        scopes = None if task is None else scopes_wanted(self._context, link.plan, session, exchange, task.tool)
        if task is None or scopes is None:
            self._answers.refuse(session, exchange, INVALID_PARAMS, UNKNOWN)
            return
        if scopes:
            refuse_scopes(self._context, link, exchange, task.tool, scopes)
            return
        self._receive_about(session, exchange, task)

    def receive_own(self, session: Session, exchange: Exchange) -> None:
        """Handles a request about one task of a profile itself, which has no rules of a server."""
        exchange.keep_for(self._local_tasks)
        task = self._find(session, exchange)
        if task is None:
            self._answers.refuse(session, exchange, INVALID_PARAMS, UNKNOWN)
        else:
            self._receive_about(session, exchange, task)

    def _receive_about(self, session: Session, exchange: Exchange, task: Task) -> None:
        exchange.link_trace(task.trace)
        if not task.is_over and not self._local_tasks.is_own(task):
            self._receive_about_running(session, exchange, task)
            return
        if task.sid and task.sid != session.sid and self._local_tasks.is_own(task):
            self._local_tasks.pass_to(session, task)
        if not task.is_over and self._table.runs.get(task.id) is None:
            exchange_of_task = self._local_tasks.take_up(session, task)
            earlier = session.router.earlier_link_of(session, exchange_of_task, *task.upstream_session)
            self._upstream_tasks.revive(earlier, exchange_of_task, task.upstream_task, task.poll_ms / 1000)
        if exchange.method == "tasks/get":
            self._get(session, exchange, task)
        elif exchange.method == "tasks/result":
            self._result(session, exchange, task)
        elif exchange.method == "tasks/update":
            self._update(session, exchange, task)
        else:
            self._cancel(session, exchange, task)

    def _receive_about_running(self, session: Session, exchange: Exchange, task: Task) -> None:
        """Handles a request about a task that runs in another replica. That one alone can change it."""
        if exchange.method == "tasks/get":
            self._answers.answer(session, exchange, task)
        elif exchange.method == "tasks/result":
            self._answers.wait(session, exchange, task)
            self._foreign_tasks.watch(task)
        elif exchange.method == "tasks/cancel":
            self._foreign_tasks.cancel(session, exchange, task)
        else:
            text = f"the task runs in replica {tag_of(task.replica)}, which this request did not reach: try again"
            self._answers.refuse(session, exchange, INTERNAL_ERROR, text)

    def _find(self, session: Session, exchange: Exchange) -> Task | None:
        task = self._table.tasks.get(tasks.task_id(exchange.params) or "")
        if task is None or not may_see(session, task, is_live=session.router.is_live):
            return None
        if task.expires_at_unix <= self._context.now_unix:
            return None  # its timer is about to remove it
        return task

    # --- Get --------------------------------------------------------------------------------------------------------

    def _get(self, session: Session, exchange: Exchange, task: Task) -> None:
        if self._poll(task):
            self._answers.wait(session, exchange, task)
        else:
            self._answers.answer(session, exchange, task)

    def _poll(self, task: Task) -> bool:
        """Polls the task's server if that is due. True if a poll is under way, for which the client's request then
        waits."""
        run = self._table.runs.get(task.id)
        if task.is_over or run is None or run.exchange.state is not ExchangeState.TASKED or task.questions:
            return False
        link = run.session.router.link_of(run.exchange)
        return link is not None and self._upstream_tasks.refresh(link, run.exchange)

    def handle_look(self, id: str) -> None:
        """Answers the requests that wait for the state of a task: its server did not tell within
        `Limits.task_look_s`."""
        task = self._table.tasks.get(id)
        if task is not None:
            self._local_tasks.answer_waiting(task)

    # --- Result -----------------------------------------------------------------------------------------------------

    def _result(self, session: Session, exchange: Exchange, task: Task) -> None:
        if task.is_over:
            self._answers.answer(session, exchange, task)
            return
        self._answers.wait(session, exchange, task)
        self._local_tasks.task_questions.put_questions(session, task)

    # --- List -------------------------------------------------------------------------------------------------------

    def list_tasks(self, session: Session, exchange: Exchange, is_its: Callable[[Task], bool]) -> None:
        """Answers a `tasks/list`.

        Args:
            is_its: returns whether a task is one of the client's.
        """
        try:
            raw = envelope.member_of(exchange.params, "cursor")
        except RemoteProtocolError as error:
            self._answers.refuse(session, exchange, error.rpc_code, error.message)
            return
        after = 0
        if raw not in (None, b"null"):
            match = _CURSOR.fullmatch(envelope.text_of(raw) or "")
            if match is None:
                text = "got a cursor that was not given out here, expected one of an answer to tasks/list"
                self._answers.refuse(session, exchange, INVALID_PARAMS, text)
                return
            after = int(match[1])
        now_unix = self._context.now_unix
        found = [
            task
            for task in self._table.tasks.values()
            if task.ordinal > after
            and task.expires_at_unix > now_unix
            and is_its(task)
            and self._table.is_told(task)
            and self._is_known(session, exchange, task)
        ]
        page = found[: self._context.limits.task_page_max]
        result = b'{"tasks":[' + b",".join(map(self._local_tasks.task_notifications.shown, page)) + b"]"
        if len(found) > len(page):
            result += b',"nextCursor":"after-%d"' % page[-1].ordinal
        self._answers.send(session, exchange, result + b"}")

    def _is_known(self, session: Session, exchange: Exchange, task: Task) -> bool:
        plan = self._context.servers.get(task.server)  # None: it is of a profile itself
        return plan is None or scopes_wanted(self._context, plan, session, exchange, task.tool) is not None

    # --- Update -----------------------------------------------------------------------------------------------------

    def _update(self, session: Session, exchange: Exchange, task: Task) -> None:
        try:
            responses = input_requests.read_responses(exchange.params)
            self._local_tasks.task_questions.answer_questions(task, responses, exchange.headers)
        except RemoteProtocolError as error:
            self._answers.refuse(session, exchange, error.rpc_code, error.message)
            return
        self._answers.send(session, exchange, ACKNOWLEDGED)

    # --- Cancel -----------------------------------------------------------------------------------------------------

    def _cancel(self, session: Session, exchange: Exchange, task: Task) -> None:
        run = self._table.runs.get(task.id)
        link = None if run is None else run.session.router.link_of(run.exchange)
        if run is not None and link is not None and run.exchange.upstream_task is not None and not link.can_be_told:
            self._answers.wait(session, exchange, task)  # until its server is reached, which must be told
        else:
            self._local_tasks.cancel_for(session, exchange, task)
