"""Tasks of servers: calls that a server answered with a task, whose outcome the proxy fetches.

To the rest of the proxy such a call is an open call like any other. This module polls its task (`tasks/get`), fetches
the outcome and delivers it as the response to the call, asks the client the task's questions as if the call asked them,
and cancels the task when the call is cancelled.

A server with sessions is asked for the outcome at once, with a `tasks/result` that it answers when the task is over.
That saves polling, and such servers send their questions on that request's stream. A stateless server is polled at the
interval it names while a client waits, and less and less often while none does.

Source: 2025-11-25 basic/utilities/tasks; the tasks extension.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..base.errors import INTERNAL_ERROR, INVALID_PARAMS, OUTCOME_UNKNOWN, RemoteProtocolError
from ..base.events import Cause
from ..base.ids import ChannelId
from ..base.plan import Kind
from ..bridge import related_task, tasks
from ..downstream.responder import Responder
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeInput, ExchangeKey, ExchangeState
from ..state.interceptor import Interceptor
from ..state.link import CANCEL, FETCH, LOOK, TASK_PURPOSES, UPDATE, Link, OwnRequest
from ..state.session import PendingQuestion, Session
from ..state.upstream_channels import UpstreamPostRole
from ..state.upstream_session import UpstreamSessionState
from ..state.upstream_task import UpstreamTask
from ..upstream.handshake import Handshaker
from ..upstream.writer import UpstreamWriter
from ..wire.http.failure import describe, error_in
from .local_tasks import LocalTasks
from .polling import TaskPolling
from .upstream_questions import UpstreamQuestions

FETCHES_MAX: Final = 64
"""The most `tasks/result` requests that are open with one server, as each may be a connection. At it: further tasks are
polled."""

ORPHANS_MAX: Final = 256
"""The most calls of one server that were cancelled before it answered, and whose responses are still read in case they
are tasks. At it: the oldest is forgotten, and its task is not cancelled."""

PAUSE_MIN_S: Final = 0.05
"""The shortest pause between two polls of a task, whatever interval its server names."""

CANCELLED: Final = msgspec.json.encode({"code": INTERNAL_ERROR, "message": "the server cancelled the task"})


class UpstreamTasks(Interceptor):
    """The tasks of all servers. A call here may be a task of the proxy too, if its client was given one."""

    name = "server tasks"
    purposes = TASK_PURPOSES

    def __init__(
        self,
        context: Context,
        writer: UpstreamWriter,
        responder: Responder,
        handshaker: Handshaker,
        local_tasks: LocalTasks,
    ) -> None:
        self._context = context
        self._writer = writer
        self._responder = responder
        self._handshaker = handshaker
        self._local_tasks = local_tasks
        self._polling = polling = TaskPolling(context, writer, local_tasks)
        self._questions = UpstreamQuestions(context, responder, polling)

    def has_say(self, link: Link) -> bool:
        return link.abilities.calls

    # --- Calls become tasks -------------------------------------------------------------------------------------------

    def receive_response(self, link: Link, exchange: Exchange, frame: Frame) -> bool:
        """Handles a response of a server. True if it is a task: the call goes on, with the task polled. False if it is
        the outcome of the call.

        Raises:
            RemoteProtocolError: it is a task that is malformed, was not allowed, or has an id that is in use.
        """
        result = frame.result
        if result is None or exchange.upstream_task is not None or exchange.method != "tools/call":
            return False
        if not exchange.is_augmented:
            if link.is_stateless and tasks.is_task(result):
                raise RemoteProtocolError("got a task, expected a result: its client knows no tasks")
            return False
        created = tasks.read_created(result, is_stateless=link.is_stateless)
        if created is None:
            return False
        if created.id in link.upstream_tasks:
            raise RemoteProtocolError("got the id of a task that is under way, expected another")
        self._begin(link, exchange, created)
        self._local_tasks.receive_handle(link.session_of(exchange), exchange, created, result)
        self._look_first(link, exchange, created.status)
        return True

    def revive(self, link: Link, exchange: Exchange, id: str, poll_s: float) -> None:
        """Polls a task that an earlier run began, from now on.

        Args:
            exchange: a new one, which stands for the call.
            id: the server's `taskId`.
        """
        for step in (ExchangeInput.PREPARED, ExchangeInput.SEND):
            exchange.step(step)
        fields = tasks.TaskFields(
            id=id, status="working", created_at="", updated_at="", ttl_ms=None, poll_ms=int(poll_s * 1000)
        )
        self._begin(link, exchange, fields)
        if link.upstream.state is UpstreamSessionState.READY:
            self._look(link, exchange)
        else:
            self._handshaker.need(link)

    def _begin(self, link: Link, exchange: Exchange, created: tasks.TaskFields) -> None:
        upstream_task = UpstreamTask(
            created.id,
            poll_s=self._pause_of(
                self._context.limits.task_poll_s if created.poll_ms is None else created.poll_ms / 1000
            ),
            status=created.status,
            message=created.message or "",
            now=self._context.now,
            number=None if exchange.token_raw is None else exchange.upstream_id,
        )
        exchange.receive_task(upstream_task)
        link.add_task(exchange, upstream_task)
        self._writer.expect_reply(link, exchange)

    def _pause_of(self, poll_s: float) -> float:
        return min(max(poll_s, PAUSE_MIN_S), self._context.limits.task_poll_max_s)

    def _look_first(self, link: Link, exchange: Exchange, status: str) -> None:
        if exchange.state is not ExchangeState.TASKED:
            return  # the call was cancelled meanwhile
        if link.is_stateless:
            if status == "working":
                self._polling.poll_later(exchange)
            else:
                self._look(link, exchange)
            return
        if status == "cancelled":
            self._look(link, exchange)
            return
        if len(link.upstream_tasks) <= FETCHES_MAX or status != "working":
            self._polling.fetch(link, exchange)
        self._polling.poll_later(exchange)

    # --- Polling ------------------------------------------------------------------------------------------------------

    def refresh(self, link: Link, exchange: Exchange) -> bool:
        """Polls a task for a client's `tasks/get`, unless that was done less than half a poll interval ago. True if a
        poll is under way."""
        upstream_task = exchange.upstream_task
        if upstream_task is None or exchange.state is not ExchangeState.TASKED:
            return False
        if not upstream_task.is_looked_at and self._context.now - upstream_task.looked_at >= upstream_task.poll_s / 2:
            upstream_task.hurry()
            self._look(link, exchange)
        return upstream_task.is_looked_at

    def handle_look(self, session: Session, key: ExchangeKey) -> None:
        """Handles the timer of a task: it is time to poll, or the poll under way takes too long."""
        exchange = session.exchanges.get(key)
        link = None if exchange is None else session.router.link_of(exchange)
        upstream_task = None if exchange is None else exchange.upstream_task
        if exchange is None or link is None or upstream_task is None or exchange.state is not ExchangeState.TASKED:
            return
        if upstream_task.is_looked_at:
            self._polling.drop(link, exchange, LOOK)
            self._receive_failure(link, exchange, "it does not say how its task fares")
            return
        self._look(link, exchange)

    def _look(self, link: Link, exchange: Exchange) -> None:
        upstream_task = exchange.upstream_task
        assert upstream_task is not None
        if link.upstream.state is not UpstreamSessionState.READY:
            self._polling.poll_later(exchange)
            self._handshaker.need(link)
            return
        upstream_task.begin_look()
        self._polling.run(link, exchange, LOOK, "tasks/get", {"taskId": upstream_task.id})
        self._polling.set_timer(exchange, self._context.limits.notification_timeout_s)
        self._questions.send(link, exchange)

    # --- From the server ----------------------------------------------------------------------------------------------

    def receive_own_response(self, link: Link, own_request: OwnRequest, frame: Frame) -> None:
        """Handles the response to one of our own requests about a task."""
        exchange = own_request.exchange
        assert exchange is not None
        upstream_task = exchange.upstream_task
        if own_request.purpose == CANCEL or upstream_task is None or exchange.state is not ExchangeState.TASKED:
            return
        self._writer.expect_reply(link, exchange)
        if own_request.purpose == UPDATE:
            upstream_task.receive_taken(own_request.about)
        elif own_request.purpose == FETCH:
            upstream_task.end_fetch()
            try:
                self._receive_outcome(link, exchange, upstream_task, frame)
            except RemoteProtocolError as fault:
                self._deliver(link, exchange, _unreadable(fault))
        elif upstream_task.is_looked_at:
            upstream_task.end_look()
            try:
                self._receive_seen(link, exchange, upstream_task, frame)
            except RemoteProtocolError as fault:
                self._receive_failure(link, exchange, fault.message)
            self._local_tasks.receive_look(exchange)

    def receive_own_failure(self, link: Link, own_request: OwnRequest, cause: Cause) -> bool:
        """Handles the loss of one of our own requests about a task: it will have no response."""
        if error_in(cause) is not None:
            return False
        self._receive_own_failure(link, own_request, cause)
        return True

    def _receive_own_failure(self, link: Link, own_request: OwnRequest, cause: Cause) -> None:
        exchange = own_request.exchange
        assert exchange is not None
        upstream_task = exchange.upstream_task
        if own_request.purpose == CANCEL:
            self._context.note("warning", f"a task could not be cancelled: {describe(cause)}", link.plan.id)
            return
        if upstream_task is None or exchange.state is not ExchangeState.TASKED:
            return
        if own_request.purpose == UPDATE:
            upstream_task.receive_unsent(own_request.about)
        elif own_request.purpose == FETCH:
            upstream_task.end_fetch()
            upstream_task.hurry()
            self._polling.poll_later(exchange)
        elif upstream_task.is_looked_at:
            self._receive_failure(link, exchange, describe(cause))
            self._local_tasks.receive_look(exchange)

    def receive_notification(self, link: Link, frame: Frame, related: Exchange | None) -> bool:
        """Handles `notifications/tasks/status` and `notifications/tasks`. True if it is one of them, even of an unknown
        task.

        Raises:
            RemoteProtocolError: it cannot be read. Nothing has changed.
        """
        if frame.method not in ("notifications/tasks/status", "notifications/tasks"):
            return False
        exchange = link.upstream_tasks.get(tasks.task_id(frame.params) or "")
        if exchange is not None and exchange.upstream_task is not None:
            self._writer.expect_reply(link, exchange)
            self._receive_state(link, exchange, exchange.upstream_task, frame.params or b"{}")
        return True

    def _receive_seen(self, link: Link, exchange: Exchange, upstream_task: UpstreamTask, frame: Frame) -> None:
        if frame.error is None:
            assert frame.result is not None
            self._receive_state(link, exchange, upstream_task, frame.result)
            return
        error = envelope.usable_error(frame.error)
        if upstream_task.fault is not None:  # the task is gone: the error that `tasks/result` had was its outcome
            self._deliver(link, exchange, Frame(error=upstream_task.fault))
        elif envelope.error_code(error) == INVALID_PARAMS:
            text = "the server does not know the task any more: what became of it cannot be told"
            self._deliver(link, exchange, Frame(error=envelope.error_object(OUTCOME_UNKNOWN, text)))
        else:
            text = envelope.text_of(envelope.member_of(error, "message")) or ""
            self._receive_failure(link, exchange, f"it says of its task: {text}", error)

    def _receive_failure(self, link: Link, exchange: Exchange, reason: str, error: bytes | None = None) -> None:
        upstream_task = exchange.upstream_task
        assert upstream_task is not None
        upstream_task.receive_failure(self._context.now)
        if exchange.task is None and upstream_task.failures > self._context.limits.resume_failures_max:
            text = f"the server was lost before its task was over: {reason}. The call may have run"
            self._deliver(link, exchange, Frame(error=error or envelope.error_object(OUTCOME_UNKNOWN, text)))
            return
        self._context.note("info", f"a task could not be looked at: {reason}", link.plan.id)
        limits = self._context.limits
        pause_s = upstream_task.take_pause(2, min_s=limits.task_poll_s, max_s=limits.task_poll_max_s)
        self._polling.set_timer(exchange, pause_s)

    def _receive_state(self, link: Link, exchange: Exchange, upstream_task: UpstreamTask, data: bytes) -> None:
        """Handles the state of a task as its server sent it, in a result of `tasks/get` or in a notification."""
        detailed = tasks.read_detailed(data) if link.is_stateless else None
        seen = tasks.read_task(data) if detailed is None else detailed.task
        if seen.id != upstream_task.id:
            raise RemoteProtocolError("got another task than was asked for")
        poll_s = None if seen.poll_ms is None else self._pause_of(seen.poll_ms / 1000)
        if upstream_task.receive_state(seen.status, seen.message or "", poll_s, self._context.now):
            self._tell(link, exchange, upstream_task, seen)
        if seen.status == "cancelled":
            self._deliver(link, exchange, Frame(error=CANCELLED))
        elif detailed is not None:
            try:
                self._receive_detailed(link, exchange, upstream_task, detailed)
            except RemoteProtocolError as fault:
                self._deliver(link, exchange, _unreadable(fault))
        elif seen.status not in tasks.TERMINAL:
            if seen.status == "input_required" and not upstream_task.is_fetched:
                self._polling.fetch(link, exchange)  # its questions come on the stream of `tasks/result`
            self._polling.poll_later(exchange)
        else:
            # The task was seen to be over before, and `tasks/result` has no response yet: it is sent again.
            if upstream_task.is_fetched and upstream_task.is_overdue:
                self._polling.drop(link, exchange, FETCH)
                upstream_task.end_fetch()
            if not upstream_task.is_fetched:
                self._polling.fetch(link, exchange)
            upstream_task.receive_final()
            self._polling.set_timer(exchange, max(upstream_task.poll_s, self._context.limits.task_poll_s))

    def _receive_detailed(
        self, link: Link, exchange: Exchange, upstream_task: UpstreamTask, detailed: tasks.Detailed
    ) -> None:
        if detailed.result is not None:
            result = detailed.result
            if envelope.member_of(result, "resultType") is None:
                result = b'{"resultType":"complete"' + (b"," if result[1:].strip() != b"}" else b"") + result[1:]
            self._deliver(link, exchange, Frame(result=related_task.without_related(result)))
            return
        if detailed.error is not None:
            self._deliver(link, exchange, Frame(error=detailed.error))
            return
        self._questions.ask_new(link, exchange, upstream_task, detailed.questions)
        if exchange.state is ExchangeState.TASKED:
            self._polling.poll_later(exchange)

    def _receive_outcome(self, link: Link, exchange: Exchange, upstream_task: UpstreamTask, frame: Frame) -> None:
        if frame.result is not None:
            self._receive_result(link, exchange, upstream_task, frame.result)
        elif upstream_task.is_overdue:
            self._deliver(link, exchange, Frame(error=frame.error))
        else:  # the outcome, or an error for asking too early: the next `tasks/get` tells which
            assert frame.error is not None
            upstream_task.receive_fault(envelope.usable_error(frame.error))
            if not upstream_task.is_looked_at:
                self._look(link, exchange)

    def _receive_result(self, link: Link, exchange: Exchange, upstream_task: UpstreamTask, result: bytes) -> None:
        """Delivers a result of `tasks/result`. Python's `mcp` 1.x sends an object without `content` where a tool raised
        or a task was cancelled, and nothing but the status tells it from success."""
        if envelope.member_of(result, "content") is not None or upstream_task.status == "completed":
            self._deliver(link, exchange, Frame(result=related_task.without_related(result)))
        elif upstream_task.status == "failed":
            text = upstream_task.message or "the task failed, and the server says no more of it"
            self._deliver(link, exchange, Frame(error=envelope.error_object(INTERNAL_ERROR, text)))
        elif upstream_task.status == "cancelled":
            self._deliver(link, exchange, Frame(error=CANCELLED))
        elif not upstream_task.is_looked_at:
            self._look(link, exchange)

    def _tell(self, link: Link, exchange: Exchange, upstream_task: UpstreamTask, seen: tasks.TaskFields) -> None:
        session = link.session_of(exchange)
        self._local_tasks.receive_status(session, exchange, seen)
        if exchange.task is None and exchange.token_raw is not None and seen.message:
            looks = upstream_task.count_look()
            if looks <= exchange.told:
                return  # the server has sent progress of its own, further on
            exchange.receive_progress(looks)
            progress = {"progress": looks, "message": seen.message}
            params = b'{"progressToken":' + exchange.token_raw + b"," + msgspec.json.encode(progress)[1:]
            message = envelope.encode_notification("notifications/progress", params)
            self._responder.tell_progress(session, exchange, message)

    def _deliver(self, link: Link, exchange: Exchange, frame: Frame) -> None:
        """Ends the task, and delivers its outcome as the response to the call."""
        if exchange.upstream_task is not None:
            self._questions.settle(link, exchange, exchange.upstream_task)
        self._forget(link, exchange)
        link.router.receive_response(link, exchange, frame)

    # --- Loss and recovery of the server ------------------------------------------------------------------------------

    def receive_lost(self, link: Link, reason: str) -> None:
        """Handles the loss of a server. Its tasks go on without the proxy and are polled again, but those of a process
        are lost with it."""
        for exchange in list(link.upstream_tasks.values()):
            upstream_task = exchange.upstream_task
            assert upstream_task is not None
            upstream_task.receive_lost()
            if link.plan.kind is not Kind.PIPE:
                self._polling.set_timer(exchange, max(upstream_task.poll_s, self._context.limits.restart_backoff_s))
                continue
            text = f"the server was lost before its task was over: {reason}. The call may have run; it is not repeated"
            error = envelope.encode_error(exchange.id_raw, OUTCOME_UNKNOWN, text, {"outcome": "unknown"})
            link.router.finish(link, exchange, error)
        link.forget_orphans()

    def receive_ready(self, link: Link) -> None:
        """Polls all tasks of a link: its server is connected, again or for the first time."""
        for exchange in list(link.upstream_tasks.values()):
            if exchange.upstream_task is not None and not exchange.upstream_task.is_looked_at:
                self._look(link, exchange)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def receive_client_answer(self, link: Link, session: Session, question: PendingQuestion, answer: Frame) -> bool:
        asker = question.exchange
        if asker is None or asker.upstream_task is None or question.number not in asker.upstream_task.open:
            return False
        self._questions.receive_answer(link, question.number, asker, answer)
        return True

    def cancel(self, link: Link, exchange: Exchange) -> None:
        """Handles the cancellation of a call: sends `tasks/cancel`, unless the task is left to its server, and forgets
        the task without waiting for a response."""
        upstream_task = exchange.upstream_task
        if upstream_task is None or exchange.state is not ExchangeState.TASKED:
            return
        if not upstream_task.is_left:
            self._send_cancel(link, exchange, upstream_task)
        self._forget(link, exchange)

    def _send_cancel(self, link: Link, exchange: Exchange, upstream_task: UpstreamTask) -> None:
        if not link.abilities.cancels:
            self._context.note("info", "a task goes on though nobody wants it: its server cannot cancel", link.plan.id)
        elif link.upstream.state is UpstreamSessionState.READY:
            number = self._polling.run(link, exchange, CANCEL, "tasks/cancel", {"taskId": upstream_task.id})
            channel = self._channel_of(link, number)
            if channel is not None:
                link.expect_cancel(channel)
                at = self._context.now + self._context.limits.notification_timeout_s
                self._context.timers.set(("grace", channel), at, "cancellation of a task")
        else:
            self._context.note("warning", "a task could not be cancelled: its server cannot be reached", link.plan.id)

    def receive_withdrawn(self, link: Link, exchange: Exchange) -> None:
        """Remembers a cancelled call whose server may still answer with a task. The oldest of more than `ORPHANS_MAX`
        is forgotten."""
        if exchange.is_augmented and exchange.upstream_id is not None:
            link.add_orphan(exchange.upstream_id, exchange, ORPHANS_MAX)

    def receive_unexpected(self, link: Link, number: int, frame: Frame) -> None:
        """Handles the response to a cancelled call: cancels the task if it is one."""
        exchange = link.take_orphan(number)
        if exchange is None or frame.result is None:
            return
        try:
            created = tasks.read_created(frame.result, is_stateless=link.is_stateless)
        except RemoteProtocolError:
            return
        if created is not None and created.status not in tasks.TERMINAL and link.abilities.cancels:
            self._polling.run(link, exchange, CANCEL, "tasks/cancel", {"taskId": created.id})

    def _channel_of(self, link: Link, number: int) -> ChannelId | None:
        for channel in link.posts:
            role = self._context.role_of(channel)
            if isinstance(role, UpstreamPostRole) and role.number == number:
                return channel
        return None

    def forget(self, link: Link | None, session: Session, exchange: Exchange) -> None:
        if link is not None:
            self._forget(link, exchange)

    def _forget(self, link: Link, exchange: Exchange) -> None:
        """Forgets a task that is over, however it ended: it is not polled any more, and its requests are given up."""
        upstream_task = exchange.upstream_task
        if upstream_task is None:
            return
        link.remove_task(exchange, upstream_task)
        self._context.timers.cancel(("look", (exchange.sid, exchange.key)))
        for purpose in (LOOK, FETCH):
            self._polling.drop(link, exchange, purpose)
        upstream_task.end()


def _unreadable(fault: RemoteProtocolError) -> Frame:
    text = f"what the server's task came to could not be read: {fault.message}"
    return Frame(error=envelope.error_object(INTERNAL_ERROR, text))
