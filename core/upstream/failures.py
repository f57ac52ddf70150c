"""Handles the loss of a server or of one reply: fails or retries open requests, and restarts what is lost.

A server is lost when its process dies, its connection ends, or it forgets the upstream session (404). `Failures.lose`
settles the open requests, and has the handshake begin again: at once for a session that was forgotten, after a pause
for a process that died (`health` ends crash loops). Which responses mean that a session is forgotten is decided in
`wire/http/failure`.

A request that provably did not run, or that only reads, is sent again in a new upstream session. Every other open
request ends in an error that says its outcome is unknown. Sessions that are over are ended with their servers (DELETE),
after the cancellations that are still to be sent.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..base.effects import Delete
from ..base.errors import OUTCOME_UNKNOWN, UPSTREAM_UNAVAILABLE, RemoteProtocolError
from ..base.events import Cause, End
from ..base.ids import ChannelId
from ..base.plan import Kind
from ..downstream.responder import Responder
from ..downstream.sessions import Sessions
from ..jsonrpc import envelope
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.link import CANCEL, NOTHING, Link, OwnRequest
from ..state.session import PendingQuestion, Session
from ..state.upstream_channels import DeleteRole, UpstreamPostRole, UpstreamStreamRole
from ..state.upstream_session import UpstreamSessionState
from ..wire.http.failure import NOT_FOUND, describe, error_in, may_have_run
from .auth_errors import error_of, is_denied, login_page_of
from .handshake import Handshaker
from .resumption import Resumption
from .writer import UpstreamWriter

TIMERS: Final = (
    "start",
    "probe",
    "listening",
    "relisten",
    "level",
    "schemas",
    "news",
    "restart",
    "linger",
    "rest",
    "early lists",
)
"""Purposes of the timers of a link, but for that of a check."""


class Failures:
    """Settles what is open when a server or a reply is lost, and ends upstream sessions."""

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        responder: Responder,
        writer: UpstreamWriter,
        resumption: Resumption,
        handshaker: Handshaker,
    ) -> None:
        self._context = context
        self._sessions = sessions
        self._responder = responder
        self._writer = writer
        self._resumption = resumption
        self._handshaker = handshaker
        self._postponed_deletes: dict[str, Delete] = {}  # by the links' ids; they wait for cancellations to arrive
        self._left_streams: dict[ChannelId, str] = {}  # GET streams that servers are to end, with the servers' ids

    # --- A whole server ---------------------------------------------------------------------------------------------

    def lose(
        self,
        link: Link,
        reason: str,
        *,
        error: bytes | None = None,
        is_forgotten: bool = False,
        is_unknown: bool = False,
        is_ours: bool = False,
        stage: str = "",
    ) -> None:
        """Ends the upstream session: settles what was open, and makes a new one if anything waits for it.

        Args:
            error: the error that the server answered to `initialize`, if it did.
            is_forgotten: the server knew the session, and does not any more.
            is_unknown: the server never knew the session, whatever it said before: there is none to end.
            is_ours: this machine is the cause; see `Cause.is_ours`.
            stage: how far the handshake had come, for the `data` of the error that its clients get.
        """
        upstream = link.upstream
        if upstream.state in (UpstreamSessionState.IDLE, UpstreamSessionState.CLOSED):
            return
        has_worked = upstream.state is UpstreamSessionState.READY and not upstream.is_suspect
        self._handshaker.forget_transport(link)
        reason = self._handshaker.describe(link, reason)
        if noise := link.handshake.take_noise():
            reason = f"{reason}; it wrote what is no message: {noise}"
        if link.handshake.refusal is not None:
            error = error or error_in(link.handshake.refusal)
        # The driver tells a person to log in, once; here it would be said for each handshake.
        level = "info" if link.handshake.wants_login else "warning"
        self._context.note(level, f"upstream lost: {reason}", link.plan.id)
        if not is_forgotten and not is_unknown:
            self.send_delete(link)
        upstream.receive_lost(reason, self._context.now, is_forgotten=is_forgotten)
        self._count(link, reason, is_failure=not has_worked and not is_ours)
        self._release(link, reason)
        if upstream.is_over:
            return
        if self._refuse_openers(link, reason, error, stage):
            return
        pause = link.pause_left(self._context.now)
        if pause > 0:
            self.fail_queue(link, reason, refusal=error if upstream.times_forgotten else None)
        elif upstream.times_forgotten > 1 and not link.queue:
            pause = self._context.limits.restart_backoff_s  # a server may forget each new session: no busy loop
        if pause > 0 and link.is_awaited:
            self._context.timers.set(("restart", link.id), self._context.now + pause, "upstream restart")
        elif link.queue or link.is_awaited:
            self._handshaker.need(link)

    def _count(self, link: Link, reason: str, *, is_failure: bool) -> None:
        """Counts the failure of a server over all its sessions. Only processes can be in a crash loop."""
        health = self._handshaker.health[link.plan.id]
        if not is_failure:
            health.receive_loss(reason)
        elif link.plan.kind is Kind.PIPE:
            health.receive_failure(reason, self._context.now)
        else:
            health.receive_refusal(reason)

    def rest(self, link: Link) -> None:
        """Stops a server that is not in use. The next request starts it again."""
        self._context.note("info", "stopped: idle", link.plan.id)
        link.upstream.receive_rest()
        self._release(link, "idle")

    def _release(self, link: Link, reason: str) -> None:
        """Closes the channels of a lost upstream session, and settles all that waits on it."""
        self._handshaker.leave(link)
        self.cancel_timers(link)
        for receive_lost in link.interceptors.receive_lost:
            receive_lost(link, reason)
        if link.upstream.is_over:
            return  # the link was kept for one of those tasks only
        for session in link.sessions.values():
            for number, question in list(session.questions.items()):
                call = question.exchange
                if not link.carries(call or question.of_task):
                    continue  # another link carries the call, so its server still waits for the answer
                if call is None or (
                    call.round is None and not _outlives_session(question, number)
                ):  # else the answer is of use: the call can be made again, or its task goes on
                    self._responder.cancel_question(session, number, None)
        self._context.close(link.disconnect(), reason=reason)
        self._context.close(link.get_stream.take_channel(), reason=reason)
        if link.shared_process is not None:
            link.enqueue_first(link.shared_process.receive_lost())
        for number, entry in list(link.pending.items()):
            if isinstance(entry, OwnRequest):
                link.settle(number)
            elif entry.post is None:  # on a pipe, or between two connections; else the end of its POST settles it
                link.settle(number)
                self._settle_lost(link, entry, reason)
                if link.upstream.state is UpstreamSessionState.CLOSED:
                    return  # the link served that request only
        self._resumption.forget_all(link)
        self.close_posts(link, reason)

    def _refuse_openers(self, link: Link, reason: str, error: bytes | None, stage: str = "") -> bool:
        """Refuses the sessions that wait for the handshake. True if the link is over with that."""
        openers = [session for session in link.sessions.values() if session.opener is not None]
        data = {"outcome": "not_executed", **({"stage": stage} if stage else {})}
        fallback = {"code": UPSTREAM_UNAVAILABLE, "message": _unstarted(link, reason), "data": data}
        for session in openers:
            self._sessions.refuse_session(session, error or msgspec.json.encode(fallback))
        return bool(openers) and (not link.is_shared or not link.sessions)

    def _settle_lost(self, link: Link, exchange: Exchange, reason: str) -> None:
        self._writer.expect_none(exchange)
        if exchange.may_repeat(is_unsent=False, retries=link.plan.session_retries):
            exchange.requeue(may_have_run=True)
            link.enqueue(exchange)
        else:
            self._fail_unknown(link, exchange, reason)

    def send_delete(self, link: Link) -> bool:
        """Ends an upstream session with DELETE, as clients "SHOULD" (2025-03-26 basic/transports, "Session
        Management").

        Returns whether the server is told now. The DELETE waits for cancellations of tasks that are still to arrive.
        """
        upstream = link.upstream
        if link.is_pipe or upstream.session is None or link.is_left or link.is_lent:
            return False
        target = Delete(
            link.plan.id,
            upstream.session,
            upstream.agreed_revision,
            link.headers,
            link.cookies.pairs,
            principal=link.logs_in_as,
            address=link.address,
        )
        if link.parting:
            self._postponed_deletes[link.id] = target  # cancellations must reach the session before its end
            return False
        self._delete(target)
        return True

    def leave_stream(self, link: Link, reason: str, *, is_told: bool) -> None:
        """Closes the GET stream.

        A server that is told that the session is over ends the stream by itself, if given time, and its connection can
        then be used again. No more than `Limits.pool_idle_max` streams of a server are left open for that.
        """
        stream = link.get_stream.take_channel()
        role = None if stream is None else self._context.role_if_open(stream)
        left = list(self._left_streams.values()).count(link.plan.id)
        is_left = is_told and isinstance(role, UpstreamStreamRole) and role.is_open
        if stream is not None and is_left and left < self._context.limits.pool_idle_max:
            self._left_streams[stream] = link.plan.id
            at = self._context.now + self._context.limits.stream_farewell_s
            self._context.timers.set(("grace", stream), at, "end of an upstream event stream")
        else:
            self._context.close(stream, reason=reason)

    def receive_left_stream(self, channel: ChannelId) -> None:
        """Handles the end of a GET stream of a session that is over."""
        if self._left_streams.pop(channel, None) is not None:
            self._context.timers.cancel(("grace", channel))

    def leave(self, link: Link, reason: str) -> None:
        """Closes the two-way stream: at once, or when the server has answered the cancellations of its tasks, or its
        time for that is over. Some servers stop reading when their input ends."""
        numbers = [n for n, entry in link.pending.items() if isinstance(entry, OwnRequest) and entry.purpose == CANCEL]
        if link.channel is None or not link.is_pipe or not numbers:
            link.begin_leaving(NOTHING)
            self._context.close(link.channel, reason=reason)
            return
        link.begin_leaving(frozenset(numbers))
        at = self._context.now + self._context.limits.task_farewell_s
        self._context.timers.set(("grace", link.channel), at, "cancellation of a task")

    def receive_left(self, link: Link, channel: ChannelId, message: bytes) -> None:
        """Handles a message of a server that is being left, perhaps the answer to one of the cancellations."""
        try:
            id_raw = envelope.decode(message).id_raw
        except RemoteProtocolError:
            return
        # -1 stands for ids that are no number of ours: numbers begin at 1.
        if link.receive_left(-1 if id_raw is None else envelope.number_of(id_raw) or -1):
            self._context.timers.cancel(("grace", channel))
            self._context.close(channel, reason="its session is over")

    def receive_parted(self, link: Link, channel: ChannelId) -> None:
        """Handles the end of a POST with a cancellation: after the last one, the session itself is ended."""
        if link.receive_cancel_sent(channel):
            target = self._postponed_deletes.pop(link.id, None)
            if target is not None:
                self._delete(target)

    def _delete(self, target: Delete, *, is_repeated: bool = False) -> None:
        channel = self._context.dial(DeleteRole(target, is_repeated=is_repeated), target)
        at = self._context.now + self._context.limits.notification_timeout_s
        self._context.timers.set(("grace", channel), at, "farewell to an upstream session")

    def receive_farewell_close(self, role: DeleteRole, channel: ChannelId, cause: Cause) -> None:
        """Handles the end of a DELETE. Its outcome does not matter; on a connection found closed it is sent once
        more."""
        self._context.timers.cancel(("grace", channel))
        if cause.stale and not role.is_repeated:
            self._delete(role.target, is_repeated=True)

    def close_posts(self, link: Link, reason: str) -> None:
        """Closes the POSTs of requests that are settled. Other notifications and responses may still arrive, within a
        time."""
        for channel in sorted(link.posts):
            role = self._context.role_of(channel)
            assert isinstance(role, UpstreamPostRole)
            if channel in link.parting:
                at = self._context.now + self._context.limits.task_farewell_s
                self._context.timers.set(("grace", channel), at, "cancellation of a task")
            elif role.is_confirmation or (role.number is not None and role.number not in link.pending):
                self._context.close(channel, reason=reason)
            elif role.number is None:
                self._writer.receive_settled(role)

    def cancel_timers(self, link: Link) -> None:
        for purpose in TIMERS:
            self._context.timers.cancel((purpose, link.id))
        if link.session_check is not None:
            self._context.timers.cancel(("session-check", link.id))

    # --- One request ------------------------------------------------------------------------------------------------

    def settle_post(self, link: Link, exchange: Exchange, cause: Cause, *, is_unsent: bool) -> None:
        """Retries or fails an open request whose POST ended without its response.

        Args:
            is_unsent: the server provably did not run the request.
        """
        error = error_of(link, exchange, cause)
        if exchange.may_repeat(is_unsent=is_unsent, retries=link.plan.session_retries) and (
            is_unsent or cause.end is not End.REFUSED
        ):
            exchange.requeue(may_have_run=not is_unsent)
            link.enqueue(exchange)
        elif error is not None:
            if not self._asks_for_login(link, exchange, cause):
                self._refuse(link, exchange, error)
        elif not exchange.may_have_run and (
            is_unsent or cause.end is End.UNREACHABLE or (cause.end is End.REFUSED and not may_have_run(cause.status))
        ):
            self._fail(link, exchange, UPSTREAM_UNAVAILABLE, f"the server could not be asked: {describe(cause)}", cause)
        else:
            self._fail_unknown(link, exchange, describe(cause), cause)

    def _asks_for_login(self, link: Link, exchange: Exchange, cause: Cause) -> bool:
        """True if the client is asked to open a page where the caller logs in, instead of getting an error."""
        page = login_page_of(cause)
        return page is not None and any(ask(link, exchange, page) for ask in link.interceptors.receive_login)

    def give_up(self, link: Link, reason: str) -> None:
        """Fails all that waits for a server that cannot be had: its handshakes, else its queued requests."""
        if not self._refuse_openers(link, reason, None):
            self.fail_queue(link, reason)

    def fail_queue(self, link: Link, reason: str, *, refusal: bytes | None = None) -> None:
        """Answers all queued requests with an error.

        Args:
            refusal: the error with which a server that had forgotten the session refuses to begin another.
        """
        over: dict[str, Session] = {}
        for entry in link.take_queue():
            if isinstance(entry, Exchange) and entry.may_have_run:
                self._fail_unknown(link, entry, reason)
            elif isinstance(entry, Exchange) and is_denied(link.handshake.denial):
                if not self._asks_for_login(link, entry, link.handshake.denial):
                    self._refuse(link, entry, error_of(link, entry, link.handshake.denial))
            elif isinstance(entry, Exchange) and refusal is not None:
                over[entry.sid] = link.session_of(entry)
                self._refuse_as_forgotten(link, entry, refusal)
            elif isinstance(entry, Exchange):
                self._fail(link, entry, UPSTREAM_UNAVAILABLE, _unstarted(link, reason), None)
        for session in over.values():
            self._end_forgotten(session)

    def refuse_session_of(self, link: Link, exchange: Exchange, error: bytes) -> None:
        """Answers a request with an error, and with 404 and the end of its session where the client has one over HTTP:
        the server does not know the session, and it cannot be begun anew. The client can begin another.

        Source: 2025-03-26 basic/transports, "Session Management".
        """
        session = link.session_of(exchange)
        self._refuse_as_forgotten(link, exchange, error)
        self._end_forgotten(session)

    def _refuse_as_forgotten(self, link: Link, exchange: Exchange, error: bytes) -> None:
        has_status = exchange.reply.ends_channel and exchange.reply.gathered is None
        if has_status and _can_be_ended(link.session_of(exchange)):
            exchange.reply.refuse(NOT_FOUND)
        self._refuse(link, exchange, error)

    def _end_forgotten(self, session: Session) -> None:
        if _can_be_ended(session):
            self._sessions.close_session(session, "its server does not know it any more")

    def _fail_unknown(self, link: Link, exchange: Exchange, reason: str, cause: Cause | None = None) -> None:
        text = f"the server was lost before it answered: {reason}. {exchange.method} may have run; it is not repeated"
        if cause is not None and cause.end is End.REFUSED:
            text = f"the server failed: {reason}. {exchange.method} may have run; it is not repeated"
        data = {"outcome": "unknown", **_refusal(cause)}
        self.finish(link, exchange, envelope.encode_error(exchange.id_raw, OUTCOME_UNKNOWN, text, data))

    def _fail(self, link: Link, exchange: Exchange, code: int, text: str, cause: Cause | None) -> None:
        data = _refusal(cause) or {"outcome": "not_executed"}
        self.finish(link, exchange, envelope.encode_error(exchange.id_raw, code, text, data))

    def _refuse(self, link: Link, exchange: Exchange, error: bytes | None) -> None:
        assert error is not None
        self.finish(link, exchange, envelope.encode_error_raw(exchange.id_raw, error))

    def finish(self, link: Link, exchange: Exchange, message: bytes) -> None:
        """Answers an exchange, and drops what was kept for it."""
        session = link.session_of(exchange)
        for forget in link.interceptors.forget:
            forget(link, session, exchange)
        self._responder.answer(session, exchange, message)


def _can_be_ended(session: Session) -> bool:
    """True if the client has the session by name, over Streamable HTTP, and can begin another."""
    return session.pipe is None and not session.is_stateless


def _outlives_session(question: PendingQuestion, number: int) -> bool:
    """True if the question belongs to a task that goes on. Its answer is sent whenever the server can be reached
    again."""
    upstream_task = None if question.exchange is None else question.exchange.upstream_task
    return upstream_task is not None and number in upstream_task.open


def _unstarted(link: Link, reason: str) -> str:
    return f"the server could not be {'started' if link.plan.kind is Kind.PIPE else 'connected to'}: {reason}"


def _refusal(cause: Cause | None) -> dict[str, object]:
    """Returns the status and the first 200 bytes of the body of a refusing response, for the error's `data`."""
    if cause is None or not cause.status:
        return {}
    return {"httpStatus": cause.status, "body": cause.body[:200].decode(errors="replace")}
