"""Calls that a server has made tasks of: their answers are asked for until they are there.

To everybody else such a call is one like any other whose answer takes its time. Here it is looked at (`tasks/get`), its
outcome fetched and given on as if it were the answer to the call, its questions asked of the client as if the call
asked them, and the task cancelled when nobody wants the call any more.

A server with sessions is asked for the outcome at once, with a request that it answers when there is one
(`tasks/result`): that saves looking, and it is on that request's stream that such servers ask. One without is looked at
as often as it wants to be while somebody waits, and less and less often while nobody does.

Source: 2025-11-25 basic/utilities/tasks; the tasks extension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from ..base.effects import Cause
from ..base.empty import NONE, without
from ..base.errors import INTERNAL_ERROR, INVALID_PARAMS, OUTCOME_UNKNOWN, RemoteProtocolError
from ..base.ids import ChannelId
from ..base.plan import Kind
from ..bridge import related_task, task_support, tasks
from ..bridge.request_meta import Envelope, add, own_envelope
from ..downstream.responder import Courier
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Desk
from ..state.exchange import Exchange
from ..state.exchange import Input as ExchangeInput
from ..state.exchange import State as ExchangeState
from ..state.link import CANCEL, Errand, Link, UpPostRole
from ..state.session import Session
from ..state.upstream_session import State
from ..state.upstream_task import Remote
from ..upstream.writer import Uplink
from ..wire.http.failure import describe
from .upstream_questions import UPDATE, RemoteAsking

LOOK: Final = "task-get"
FETCH: Final = "task-result"
PURPOSES: Final = frozenset({LOOK, FETCH, UPDATE, CANCEL})
"""Of requests of ours that are about tasks."""

FETCHES_MAX: Final = 64
"""Requests for outcomes that wait with one server at once: each may be a connection. Further tasks are looked at."""

ORPHANS_MAX: Final = 256
"""Calls of one server, cancelled before it answered, whose answers are looked at all the same."""

PAUSE_MIN_S: Final = 0.05
"""The shortest pause between two looks at a task, whatever its server wants."""

PAUSE_GROWTH: Final = 1.5

CANCELLED: Final = msgspec.json.encode({"code": INTERNAL_ERROR, "message": "the server cancelled the task"})


class Adopted(Protocol):
    """Whose clients were told of a task of ours, or may be."""

    def receive_handle(self, session: Session, exchange: Exchange, created: tasks.Task, result: bytes) -> None:
        """The server made a task of a call."""

    def receive_status(self, session: Session, exchange: Exchange, seen: tasks.Task) -> None:
        """The server said how it fares."""

    def is_awaited(self, exchange: Exchange) -> bool:
        """Whether somebody waits for what becomes of it."""

    def receive_look(self, exchange: Exchange) -> None:
        """What was to be seen of it was seen, or could not be."""


class Answers(Protocol):
    def receive_answer(self, link: Link, exchange: Exchange, frame: Frame) -> None: ...


class Ends(Protocol):
    def finish(self, link: Link, exchange: Exchange, message: bytes) -> None: ...


class Tasked:
    """
    Attributes:
        asking: what is asked in their course.

    Args:
        roots_of: the JSON result of `roots/list` in a session, for servers whose roots are not the client's.
        need: have a server dialled.
    """

    def __init__(
        self,
        desk: Desk,
        uplink: Uplink,
        courier: Courier,
        *,
        roots_of: Callable[[Session], bytes],
        need: Callable[[Link], None],
    ) -> None:
        self.adopted: Adopted
        self.answers: Answers
        self.ends: Ends
        self._desk = desk
        self._uplink = uplink
        self._courier = courier
        self.asking = RemoteAsking(desk, courier, self, roots_of=roots_of)
        self._need = need

    # --- It becomes a task ------------------------------------------------------------------------------------------

    def receive_created(self, link: Link, exchange: Exchange, result: bytes) -> bool:
        """A call was answered. False if that is its result.

        Raises:
            RemoteProtocolError: it is a task that cannot be one.
        """
        if exchange.remote is not None or exchange.method != "tools/call":
            return False
        if not exchange.is_augmented:
            if link.is_stateless and tasks.is_task(result):
                raise RemoteProtocolError("got a task, expected a result: its client knows no tasks")
            return False
        created = tasks.read_created(result, is_stateless=link.is_stateless)
        if created is None:
            return False
        if created.id in link.remotes:
            raise RemoteProtocolError("got the id of a task that is under way, expected another")
        number = exchange.upstream_id
        remote = self._begin(link, exchange, created)
        if number is not None and exchange.token_raw is not None:
            remote.number = number
            link.tokens = {**link.tokens, number: exchange}
        self.adopted.receive_handle(link.session_of(exchange), exchange, created, result)
        self._look_first(link, exchange, created.status)
        return True

    def revive(self, link: Link, exchange: Exchange, id: str, poll_s: float) -> None:
        """A task that an earlier run began: it is asked for from now on."""
        for wish in (ExchangeInput.PREPARED, ExchangeInput.SEND):
            exchange.step(wish)
        word = tasks.Task(
            id=id, status="working", created_at="", updated_at="", ttl_ms=None, poll_ms=int(poll_s * 1000)
        )
        self._begin(link, exchange, word)
        if link.upstream.state is State.READY:
            self._look(link, exchange)
        else:
            self._need(link)

    def _begin(self, link: Link, exchange: Exchange, created: tasks.Task) -> Remote:
        exchange.step(ExchangeInput.TASKED)
        exchange.upstream_id = exchange.post = None
        poll_s = self._desk.limits.task_poll_s if created.poll_ms is None else created.poll_ms / 1000
        poll_s = min(max(poll_s, PAUSE_MIN_S), self._desk.limits.task_poll_max_s)
        remote = exchange.remote = Remote(
            created.id, poll_s=poll_s, status=created.status, message=created.message or "", now=self._desk.now
        )
        link.remotes = {**link.remotes, created.id: exchange}
        self._uplink.expect_reply(link, exchange)
        return remote

    def _look_first(self, link: Link, exchange: Exchange, status: str) -> None:
        if exchange.state is not ExchangeState.TASKED:
            return  # nobody wanted it any more
        if link.is_stateless:
            if status == "working":
                self.look_later(link, exchange)
            else:
                self._look(link, exchange)
            return
        if status == "cancelled":
            self._look(link, exchange)
            return
        if len(link.remotes) <= FETCHES_MAX or status != "working":
            self._fetch(link, exchange)
        self.look_later(link, exchange)

    # --- Looking ----------------------------------------------------------------------------------------------------

    def refresh(self, link: Link, exchange: Exchange) -> bool:
        """Its client asks how it fares. True if that is being found out."""
        remote = exchange.remote
        if remote is None or exchange.state is not ExchangeState.TASKED:
            return False
        if not remote.is_looked_at and self._desk.now - remote.looked_at >= remote.poll_s / 2:
            remote.pause_s = remote.poll_s
            self._look(link, exchange)
        return remote.is_looked_at

    def handle_look(self, link: Link, exchange: Exchange) -> None:
        """It is time to look, or a look takes too long."""
        remote = exchange.remote
        if remote is None or exchange.state is not ExchangeState.TASKED:
            return
        if remote.is_looked_at:
            self._drop(link, exchange, LOOK)
            remote.is_looked_at = False
            self._receive_failure(link, exchange, "it does not say how its task fares")
            return
        self._look(link, exchange)

    def _look(self, link: Link, exchange: Exchange) -> None:
        remote = exchange.remote
        assert remote is not None
        if link.upstream.state is not State.READY:
            self.look_later(link, exchange)
            self._need(link)
            return
        remote.is_looked_at = True
        self.run(link, exchange, LOOK, "tasks/get", {"taskId": remote.id})
        self._set_timer(exchange, self._desk.limits.notice_timeout_s)
        self.asking.send(link, exchange)

    def look_later(self, link: Link, exchange: Exchange) -> None:
        remote, limits = exchange.remote, self._desk.limits
        assert remote is not None
        is_hurried = exchange.task is None or self.adopted.is_awaited(exchange)
        if remote.is_fetched and not (is_hurried and exchange.token_raw is not None):
            remote.pause_s = limits.task_poll_max_s  # it says by itself when it is over
        elif is_hurried:
            remote.pause_s = remote.poll_s
        self._set_timer(exchange, remote.pause_s)
        remote.pause_s = min(remote.pause_s * PAUSE_GROWTH, limits.task_poll_max_s)

    def _set_timer(self, exchange: Exchange, pause_s: float) -> None:
        self._desk.timers.set(("look", (exchange.sid, exchange.key)), self._desk.now + pause_s, "task of the server's")

    def _fetch(self, link: Link, exchange: Exchange) -> None:
        remote = exchange.remote
        assert remote is not None
        remote.is_fetched = True
        self.run(link, exchange, FETCH, "tasks/result", {"taskId": remote.id})

    def run(self, link: Link, exchange: Exchange, purpose: str, method: str, params: object, about: str = "") -> int:
        encoded = msgspec.json.encode(params)
        if link.is_stateless:
            encoded = add(encoded, self._envelope(link, exchange))
        return self._uplink.run(link, purpose, method, encoded, about=about, exchange=exchange)

    def _envelope(self, link: Link, exchange: Exchange) -> Envelope:
        session = link.sessions.get(exchange.sid)  # of a shared process it may have left before its call was answered
        who = exchange.leg or (own_envelope("", self._desk.plan.version) if session is None else session.client)
        assert link.upstream.revision is not None
        able = task_support.declare_modern(who.capabilities)
        return msgspec.structs.replace(who, revision=link.upstream.revision, capabilities=able, log_level=None)

    # --- What the server says ---------------------------------------------------------------------------------------

    def receive_errand(self, link: Link, errand: Errand, frame: Frame) -> None:
        """The answer to a request of ours."""
        exchange = errand.exchange
        assert exchange is not None
        remote = exchange.remote
        if errand.purpose == CANCEL or remote is None or exchange.state is not ExchangeState.TASKED:
            return
        self._uplink.expect_reply(link, exchange)
        if errand.purpose == UPDATE:
            remote.answers.pop(errand.about, None)
            remote.sending.discard(errand.about)
        elif errand.purpose == FETCH:
            remote.is_fetched = False
            try:
                self._receive_outcome(link, exchange, remote, frame)
            except RemoteProtocolError as fault:
                self._deliver(link, exchange, _unreadable(fault))
        elif remote.is_looked_at:
            remote.is_looked_at = False
            try:
                self._receive_seen(link, exchange, remote, frame)
            except RemoteProtocolError as fault:
                self._receive_failure(link, exchange, fault.message)
            self.adopted.receive_look(exchange)

    def receive_failure(self, link: Link, errand: Errand, cause: Cause) -> None:
        """A request of ours was not answered."""
        exchange = errand.exchange
        assert exchange is not None
        remote = exchange.remote
        if errand.purpose == CANCEL:
            self._desk.note("warning", f"a task could not be cancelled: {describe(cause)}", link.plan.id)
            return
        if remote is None or exchange.state is not ExchangeState.TASKED:
            return
        if errand.purpose == UPDATE:
            remote.sending.discard(errand.about)
        elif errand.purpose == FETCH:
            remote.is_fetched = False
            remote.pause_s = remote.poll_s
            self.look_later(link, exchange)
        elif remote.is_looked_at:
            remote.is_looked_at = False
            self._receive_failure(link, exchange, describe(cause))
            self.adopted.receive_look(exchange)

    def receive_notification(self, link: Link, frame: Frame) -> bool:
        """`notifications/tasks/status`, or `notifications/tasks`. True if it was one, whosoever's.

        Raises:
            RemoteProtocolError: it cannot be read. Nothing has changed.
        """
        if frame.method not in ("notifications/tasks/status", "notifications/tasks"):
            return False
        exchange = link.remotes.get(tasks.task_id(frame.params) or "")
        if exchange is not None and exchange.remote is not None:
            self._uplink.expect_reply(link, exchange)
            self._receive_said(link, exchange, exchange.remote, frame.params or b"{}")
        return True

    def _receive_seen(self, link: Link, exchange: Exchange, remote: Remote, frame: Frame) -> None:
        if frame.error is None:
            assert frame.result is not None
            self._receive_said(link, exchange, remote, frame.result)
            return
        error = envelope.usable_error(frame.error)
        if remote.fault is not None:  # it knows nothing of it, and said why before
            self._deliver(link, exchange, Frame(error=remote.fault))
        elif envelope.error_code(error) == INVALID_PARAMS:
            text = "the server does not know the task any more: what became of it cannot be told"
            self._deliver(link, exchange, Frame(error=envelope.error_object(OUTCOME_UNKNOWN, text)))
        else:
            said = envelope.text_of(envelope.member_of(error, "message")) or ""
            self._receive_failure(link, exchange, f"it says of its task: {said}", error)

    def _receive_failure(self, link: Link, exchange: Exchange, reason: str, error: bytes | None = None) -> None:
        remote = exchange.remote
        assert remote is not None
        remote.failures += 1
        remote.looked_at = self._desk.now
        if exchange.task is None and remote.failures > self._desk.limits.resume_failures_max:
            text = f"the server was lost before its task was over: {reason}. The call may have run"
            self._deliver(link, exchange, Frame(error=error or envelope.error_object(OUTCOME_UNKNOWN, text)))
            return
        self._desk.note("info", f"a task could not be looked at: {reason}", link.plan.id)
        remote.pause_s = max(remote.pause_s, self._desk.limits.task_poll_s)
        self._set_timer(exchange, remote.pause_s)
        remote.pause_s = min(remote.pause_s * 2, self._desk.limits.task_poll_max_s)

    def _receive_said(self, link: Link, exchange: Exchange, remote: Remote, data: bytes) -> None:
        """How it fares, in the server's words."""
        detailed = tasks.read_detailed(data) if link.is_stateless else None
        seen = tasks.read_task(data) if detailed is None else detailed.task
        if seen.id != remote.id:
            raise RemoteProtocolError("got another task than was asked for")
        remote.failures = 0
        remote.looked_at = self._desk.now
        if seen.poll_ms is not None:
            poll_s = min(max(seen.poll_ms / 1000, PAUSE_MIN_S), self._desk.limits.task_poll_max_s)
            if poll_s != remote.poll_s:  # else it would never be looked at less often while nobody waits
                remote.pause_s, remote.poll_s = min(remote.pause_s, poll_s), poll_s
        is_new = seen.status != remote.status or (seen.message or "") != remote.message
        remote.status, remote.message = seen.status, seen.message or ""
        if is_new:
            self._tell(link, exchange, remote, seen)
        if seen.status == "cancelled":
            self._deliver(link, exchange, Frame(error=CANCELLED))
        elif detailed is not None:
            try:
                self._receive_detailed(link, exchange, remote, detailed)
            except RemoteProtocolError as fault:
                self._deliver(link, exchange, _unreadable(fault))
        elif seen.status not in tasks.TERMINAL:
            remote.fault = None  # it was asked too early
            if seen.status == "input_required" and not remote.is_fetched:
                self._fetch(link, exchange)  # it asks where it is asked for the outcome
            self.look_later(link, exchange)
        else:
            if remote.is_fetched and remote.is_overdue:
                self._drop(link, exchange, FETCH)
                remote.is_fetched = False
            if not remote.is_fetched:
                self._fetch(link, exchange)
            remote.is_overdue = True
            self._set_timer(exchange, max(remote.poll_s, self._desk.limits.task_poll_s))

    def _receive_detailed(self, link: Link, exchange: Exchange, remote: Remote, said: tasks.Detailed) -> None:
        if said.result is not None:
            result = said.result
            if envelope.member_of(result, "resultType") is None:
                result = b'{"resultType":"complete"' + (b"," if result[1:].strip() != b"}" else b"") + result[1:]
            self._deliver(link, exchange, Frame(result=related_task.without_related(result)))
            return
        if said.error is not None:
            self._deliver(link, exchange, Frame(error=said.error))
            return
        self.asking.ask_new(link, exchange, remote, said.questions)
        if exchange.state is ExchangeState.TASKED:
            self.look_later(link, exchange)

    def _receive_outcome(self, link: Link, exchange: Exchange, remote: Remote, frame: Frame) -> None:
        if frame.result is not None:
            self._receive_result(link, exchange, remote, frame.result)
        elif remote.is_overdue:
            self._deliver(link, exchange, Frame(error=frame.error))
        else:  # the call's own error, or one of asking too early
            assert frame.error is not None
            remote.fault = envelope.usable_error(frame.error)
            if not remote.is_looked_at:
                self._look(link, exchange)

    def _receive_result(self, link: Link, exchange: Exchange, remote: Remote, result: bytes) -> None:
        """An outcome. Python's `mcp` 1.x has an object without `content` where a tool raised or a task was cancelled,
        and nothing but the status tells it from success."""
        if envelope.member_of(result, "content") is not None or remote.status == "completed":
            self._deliver(link, exchange, Frame(result=related_task.without_related(result)))
        elif remote.status == "failed":
            text = remote.message or "the task failed, and the server says no more of it"
            self._deliver(link, exchange, Frame(error=envelope.error_object(INTERNAL_ERROR, text)))
        elif remote.status == "cancelled":
            self._deliver(link, exchange, Frame(error=CANCELLED))
        elif not remote.is_looked_at:
            self._look(link, exchange)

    def _tell(self, link: Link, exchange: Exchange, remote: Remote, seen: tasks.Task) -> None:
        session = link.session_of(exchange)
        self.adopted.receive_status(session, exchange, seen)
        if exchange.task is None and exchange.token_raw is not None and seen.message:
            remote.looks += 1
            if remote.looks <= exchange.told:
                return  # the server says itself how far it is
            exchange.told = remote.looks
            said = {"progress": remote.looks, "message": seen.message}
            params = b'{"progressToken":' + exchange.token_raw + b"," + msgspec.json.encode(said)[1:]
            message = envelope.encode_notification("notifications/progress", params)
            self._courier.tell_progress(session, exchange, message)

    def _deliver(self, link: Link, exchange: Exchange, frame: Frame) -> None:
        """The answer to the call."""
        if exchange.remote is not None:
            self.asking.settle(link, exchange, exchange.remote)
        self.forget(link, exchange)
        self.answers.receive_answer(link, exchange, frame)

    # --- The server is lost, and back -------------------------------------------------------------------------------

    def receive_lost(self, link: Link, reason: str) -> None:
        """What it worked on goes on without us, unless it was in a process that is gone."""
        for exchange in list(link.remotes.values()):
            remote = exchange.remote
            assert remote is not None
            remote.is_looked_at = remote.is_fetched = False
            remote.sending.clear()
            if link.plan.kind is not Kind.PIPE:
                self._set_timer(exchange, max(remote.poll_s, self._desk.limits.restart_backoff_s))
                continue
            text = f"the server was lost before its task was over: {reason}. The call may have run; it is not repeated"
            error = envelope.encode_error(exchange.id_raw, OUTCOME_UNKNOWN, text, {"outcome": "unknown"})
            self.ends.finish(link, exchange, error)
        link.orphans = NONE

    def receive_ready(self, link: Link) -> None:
        """It can be asked again, or for the first time."""
        for exchange in list(link.remotes.values()):
            if exchange.remote is not None and not exchange.remote.is_looked_at:
                self._look(link, exchange)

    # --- Ends -------------------------------------------------------------------------------------------------------

    def cancel(self, link: Link, exchange: Exchange) -> None:
        """Nobody wants the answer any more: the server is told so, before anything is waited for."""
        remote = exchange.remote
        if remote is None or exchange.state is not ExchangeState.TASKED:
            return
        if not remote.is_left:
            self._say_cancelled(link, exchange, remote)
        self.forget(link, exchange)

    def _say_cancelled(self, link: Link, exchange: Exchange, remote: Remote) -> None:
        if not link.abilities.cancels:
            self._desk.note("info", "a task goes on though nobody wants it: its server cannot cancel", link.plan.id)
        elif link.upstream.state is State.READY:
            number = self.run(link, exchange, CANCEL, "tasks/cancel", {"taskId": remote.id})
            channel = self._channel_of(link, number)
            if channel is not None:
                link.parting |= {channel}
                at = self._desk.now + self._desk.limits.notice_timeout_s
                self._desk.timers.set(("grace", channel), at, "cancellation of a task")
        else:
            self._desk.note("warning", "a task could not be cancelled: its server cannot be reached", link.plan.id)

    def expect_orphan(self, link: Link, exchange: Exchange) -> None:
        """A call is not wanted any more, but its server may make a task of it yet."""
        assert exchange.upstream_id is not None
        link.orphans = {**link.orphans, exchange.upstream_id: exchange}
        if len(link.orphans) > ORPHANS_MAX:
            link.orphans = without(link.orphans, next(iter(link.orphans)))

    def receive_orphan(self, link: Link, number: int, frame: Frame) -> None:
        """It has answered such a call: with a task that nobody knows of, perhaps."""
        exchange = link.orphans.get(number)
        link.orphans = without(link.orphans, number)
        if exchange is None or frame.result is None:
            return
        try:
            created = tasks.read_created(frame.result, is_stateless=link.is_stateless)
        except RemoteProtocolError:
            return
        if created is not None and created.status not in tasks.TERMINAL and link.abilities.cancels:
            self.run(link, exchange, CANCEL, "tasks/cancel", {"taskId": created.id})

    def _channel_of(self, link: Link, number: int) -> ChannelId | None:
        for channel in link.posts:
            role = self._desk.role_of(channel)
            if isinstance(role, UpPostRole) and role.number == number:
                return channel
        return None

    def forget(self, link: Link, exchange: Exchange) -> None:
        """It is over, however it ended: it is not asked for any more."""
        remote = exchange.remote
        if remote is None:
            return
        if link.remotes.get(remote.id) is exchange:
            link.remotes = without(link.remotes, remote.id)
        if remote.number is not None:
            link.tokens = without(link.tokens, remote.number)
        self._desk.timers.cancel(("look", (exchange.sid, exchange.key)))
        for purpose in (LOOK, FETCH):
            self._drop(link, exchange, purpose)
        remote.is_looked_at = remote.is_fetched = False
        remote.open.clear()
        remote.answers.clear()

    def _drop(self, link: Link, exchange: Exchange, purpose: str) -> None:
        assert exchange.remote is not None
        number = exchange.remote.requests.pop(purpose, None)
        if number is not None and number in link.pending:
            self._uplink.give_up_numbers(link, [number])


def _unreadable(fault: RemoteProtocolError) -> Frame:
    text = f"what the server's task came to could not be read: {fault.message}"
    return Frame(error=envelope.error_object(INTERNAL_ERROR, text))
