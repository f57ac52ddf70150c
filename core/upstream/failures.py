"""What becomes of open requests when a server, or the reply to one of them, is lost.

What provably did not run is sent again to a new session, what reads only is too, and every other open request ends in
an error that says its outcome is unknown.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

import msgspec

from ..base.effects import Cause, Delete, End
from ..base.errors import OUTCOME_UNKNOWN, UPSTREAM_UNAVAILABLE, RemoteProtocolError
from ..base.ids import ChannelId
from ..base.plan import Kind
from ..downstream.responder import Courier
from ..downstream.sessions import Clients
from ..jsonrpc import envelope
from ..state.context import Desk
from ..state.exchange import Exchange
from ..state.exchange import Input as ExchangeInput
from ..state.link import CANCEL, NO_QUEUE, NOTHING, Errand, FarewellRole, Link, UpPostRole, UpStreamRole
from ..state.session import Ask, Session
from ..state.upstream_session import State
from ..wire.http.failure import describe, error_in, may_have_run
from .auth_errors import error_of, is_denied
from .handshake import Handshakes
from .resumption import Resuming
from .writer import Uplink

TIMERS: Final = ("start", "probe", "listening", "relisten", "level", "schemas", "news", "restart", "linger", "rest")
"""All that belong to a link."""


class Crossings(Protocol):
    """What waits, or goes back and forth, between the eras."""

    def let_go(self, link: Link) -> list[Exchange]: ...

    def forget(self, link: Link | None, session: Session, exchange: Exchange) -> None: ...


class Listens(Protocol):
    """Who must know that nobody tells of changes any more."""

    def receive_lost(self, link: Link) -> None: ...


class Memory(Protocol):
    """Who must know that an exchange is over."""

    def forget(self, exchange: Exchange) -> None: ...


class Tasked(Protocol):
    """What servers have made tasks of."""

    def receive_lost(self, link: Link, reason: str) -> None: ...


class Losses:
    def __init__(
        self,
        desk: Desk,
        clients: Clients,
        courier: Courier,
        uplink: Uplink,
        resuming: Resuming,
        handshakes: Handshakes,
    ) -> None:
        self.files: Memory
        self.crossings: Crossings
        self.listens: Listens
        self.tasked: Tasked
        self._desk = desk
        self._clients = clients
        self._courier = courier
        self._uplink = uplink
        self._resuming = resuming
        self._handshakes = handshakes
        self._partings: dict[str, Delete] = {}  # farewells that are put off, by the links' ids
        self._left_streams: dict[ChannelId, str] = {}  # of sessions that are over, for these servers to end

    # --- A whole server ---------------------------------------------------------------------------------------------

    def lose(
        self,
        link: Link,
        reason: str,
        *,
        error: bytes | None = None,
        is_forgotten: bool = False,
        is_unknown: bool = False,
        stage: str = "",
    ) -> None:
        """The upstream session is gone: settle what was open, and make a new one if somebody waits.

        Args:
            error: what it answered to `initialize`, if that was an error.
            is_forgotten: it knew the session, and does not any more.
            is_unknown: it never did, whatever it said before: there is none to end.
            stage: how far it had come, for the data of the error that those who wait for the handshake get.
        """
        upstream = link.upstream
        if upstream.state in (State.IDLE, State.CLOSED):
            return
        has_worked = upstream.state is State.READY and not upstream.is_suspect
        self._handshakes.doubt(link)
        reason = self._handshakes.describe(link, reason)
        if link.babble:
            reason, link.babble = f"{reason}; it wrote what is no message: {link.babble}", ""
        if link.refusal is not None:
            error = error or error_in(link.refusal)
        self._desk.note("warning", f"upstream lost: {reason}", link.plan.id)
        if not is_forgotten and not is_unknown:
            self.say_farewell(link)
        upstream.receive_lost(reason, self._desk.now, is_forgotten=is_forgotten)
        self._count(link, reason, has_worked=has_worked)
        self._let_go(link, reason)
        if upstream.is_over:
            return
        if self._refuse_openers(link, reason, error, stage):
            return
        pause = link.pause_left(self._desk.now)
        if pause > 0:
            self.fail_queue(link, reason)
        elif upstream.forgettings > 1 and not link.queue:
            pause = self._desk.limits.restart_backoff_s  # who forgets and forgets must not keep us busy
        if pause > 0 and link.is_awaited:
            self._desk.timers.set(("restart", link.id), self._desk.now + pause, "upstream restart")
        elif link.queue or link.is_awaited:
            self._handshakes.need(link)

    def _count(self, link: Link, reason: str, *, has_worked: bool) -> None:
        """Failures, whichever session they were for, are counted together. Only of processes may they make a loop."""
        health = self._handshakes.health[link.plan.id]
        if has_worked:
            health.last_error = reason
        elif link.plan.kind is Kind.PIPE:
            health.receive_failure(reason, self._desk.now)
        else:
            health.receive_refusal(reason)

    def rest(self, link: Link) -> None:
        """Nobody uses the server for now: stop it. The next request starts it again."""
        self._desk.note("info", "stopped: idle", link.plan.id)
        link.upstream.receive_rest()
        self._let_go(link, "idle")

    def _let_go(self, link: Link, reason: str) -> None:
        """Nothing of the lost session is waited for any more."""
        self.cancel_timers(link)
        for exchange in self.crossings.let_go(link):
            link.enqueue(exchange)
        self.listens.receive_lost(link)
        self.tasked.receive_lost(link, reason)
        if link.upstream.is_over:
            return  # it was there for one of those alone
        for session in link.sessions.values():
            for number, ask in list(session.asks.items()):
                call = ask.exchange
                if not link.carries(call or ask.of_task):
                    continue  # who asked is still there
                if call is None or (
                    call.round is None and not _outlives(ask, number)
                ):  # else the call can be made again
                    self._courier.unask(session, number, None)
        child, link.channel = link.channel, None
        stream, link.stream = link.stream, None
        self._desk.close(child, reason=reason)
        self._desk.close(stream, reason=reason)
        crowd = self._handshakes.crowds.get(link.id)
        if crowd is not None:
            crowd.forget_ghosts()
            crowd.turn = None
            link.queue = deque([*crowd.waiting, *link.queue])
            crowd.waiting.clear()
        for number, entry in list(link.pending.items()):
            if isinstance(entry, Errand):
                link.pending.pop(number, None)
            elif entry.post is None:  # on a pipe, or between two connections; else the end of its POST settles it
                link.pending.pop(number, None)
                self._settle_lost(link, entry, reason)
                if link.upstream.state is State.CLOSED:
                    return  # it was there for that request alone
        self._resuming.forget_all(link)
        self.close_posts(link, reason)

    def _refuse_openers(self, link: Link, reason: str, error: bytes | None, stage: str = "") -> bool:
        """Who waits for the handshake learns that it failed. True if the link is over with that."""
        openers = [session for session in link.sessions.values() if session.opener is not None]
        data = {"outcome": "not_executed", **({"stage": stage} if stage else {})}
        fallback = {"code": UPSTREAM_UNAVAILABLE, "message": _unstarted(link, reason), "data": data}
        for session in openers:
            self._clients.refuse_session(session, error or msgspec.json.encode(fallback))
        return bool(openers) and (not link.is_shared or not link.sessions)

    def _settle_lost(self, link: Link, exchange: Exchange, reason: str) -> None:
        self._uplink.expect_none(exchange)
        if exchange.may_repeat(is_unsent=False, retries=link.plan.session_retries):
            exchange.may_have_run = True
            self._requeue(link, exchange)
        else:
            self._fail_unknown(link, exchange, reason)

    def say_farewell(self, link: Link) -> bool:
        """End a session that is no longer needed, as clients "SHOULD" (2025-03-26 basic/transports, "Session
        Management"). Returns whether its server is told now."""
        upstream = link.upstream
        if link.is_pipe or upstream.session is None or link.is_left or link.is_lent:
            return False
        target = Delete(link.plan.id, upstream.session, upstream.agreed_revision, link.headers, link.cookies.pairs)
        if link.parting:
            self._partings[link.id] = target  # what ends there must have reached it before
            return False
        self._part(target)
        return True

    def leave_stream(self, link: Link, reason: str, *, is_told: bool) -> None:
        """Close the GET stream; a server that is told that the session is over ends it by itself, if it is let, and
        then its connection can be used again. Of a server no more are left than connections are kept."""
        stream, link.stream = link.stream, None
        role = None if stream is None else self._desk.role_if_open(stream)
        left = list(self._left_streams.values()).count(link.plan.id)
        is_left = is_told and isinstance(role, UpStreamRole) and role.is_open
        if stream is not None and is_left and left < self._desk.limits.pool_idle_max:
            self._left_streams[stream] = link.plan.id
            at = self._desk.now + self._desk.limits.stream_farewell_s
            self._desk.timers.set(("grace", stream), at, "end of an upstream event stream")
        else:
            self._desk.close(stream, reason=reason)

    def receive_left_stream(self, channel: ChannelId) -> None:
        """A GET stream of a session that is over has ended."""
        if self._left_streams.pop(channel, None) is not None:
            self._desk.timers.cancel(("grace", channel))

    def leave(self, link: Link, reason: str) -> None:
        """Close the two-way stream: at once, or when the server has taken, in its time, that its tasks are not wanted:
        some stop reading when their input ends."""
        numbers = [n for n, entry in link.pending.items() if isinstance(entry, Errand) and entry.purpose == CANCEL]
        if link.channel is None or not link.is_pipe or not numbers:
            link.leaving = NOTHING
            self._desk.close(link.channel, reason=reason)
            return
        link.leaving = frozenset(numbers)
        at = self._desk.now + self._desk.limits.task_farewell_s
        self._desk.timers.set(("grace", link.channel), at, "cancellation of a task")

    def receive_left(self, link: Link, channel: ChannelId, message: bytes) -> None:
        """A server that is being left says something: the answer that is waited for, perhaps."""
        try:
            id_raw = envelope.decode(message).id_raw
        except RemoteProtocolError:
            return
        link.leaving -= {-1 if id_raw is None else envelope.number_of(id_raw) or -1}
        if not link.leaving:
            self._desk.timers.cancel(("grace", channel))
            self._desk.close(channel, reason="its session is over")

    def receive_parted(self, link: Link, channel: ChannelId) -> None:
        """The server took, or will not take, that something there is not wanted any more."""
        if channel in link.parting:
            link.parting -= {channel}
            if not link.parting and (target := self._partings.pop(link.id, None)) is not None:
                self._part(target)

    def _part(self, target: Delete, *, is_repeated: bool = False) -> None:
        channel = self._desk.dial(FarewellRole(target, is_repeated=is_repeated), target)
        at = self._desk.now + self._desk.limits.notice_timeout_s
        self._desk.timers.set(("grace", channel), at, "farewell to an upstream session")

    def receive_farewell_close(self, role: FarewellRole, channel: ChannelId, cause: Cause) -> None:
        """Whatever came of it: nobody waits for that."""
        self._desk.timers.cancel(("grace", channel))
        if cause.stale and not role.is_repeated:
            self._part(role.target, is_repeated=True)

    def close_posts(self, link: Link, reason: str) -> None:
        """Abandon the requests that nobody waits for. Other notifications and answers may still arrive, for a while."""
        for channel in sorted(link.posts):
            role = self._desk.role_of(channel)
            assert isinstance(role, UpPostRole)
            if channel in link.parting:
                at = self._desk.now + self._desk.limits.task_farewell_s
                self._desk.timers.set(("grace", channel), at, "cancellation of a task")
            elif role.is_confirmation or (role.number is not None and role.number not in link.pending):
                self._desk.close(channel, reason=reason)
            elif role.number is None:
                self._uplink.receive_settled(role)

    def cancel_timers(self, link: Link) -> None:
        for purpose in TIMERS:
            self._desk.timers.cancel((purpose, link.id))

    # --- One request ------------------------------------------------------------------------------------------------

    def settle_post(self, link: Link, exchange: Exchange, cause: Cause, *, is_unsent: bool) -> None:
        """The POST of an open request ended without its answer."""
        error = error_of(link, exchange, cause)
        if exchange.may_repeat(is_unsent=is_unsent, retries=link.plan.session_retries) and (
            is_unsent or cause.end is not End.REFUSED
        ):
            exchange.may_have_run = exchange.may_have_run or not is_unsent
            self._requeue(link, exchange)
        elif error is not None:
            self._refuse(link, exchange, error)
        elif not exchange.may_have_run and (
            is_unsent or cause.end is End.UNREACHABLE or (cause.end is End.REFUSED and not may_have_run(cause.status))
        ):
            self._fail(link, exchange, UPSTREAM_UNAVAILABLE, f"the server could not be asked: {describe(cause)}", cause)
        else:
            self._fail_unknown(link, exchange, describe(cause), cause)

    def _requeue(self, link: Link, exchange: Exchange) -> None:
        exchange.step(ExchangeInput.REQUEUE)
        exchange.upstream_id = None
        link.enqueue(exchange)

    def give_up(self, link: Link, reason: str) -> None:
        """The server will not be had: whoever waits for it waits in vain."""
        if not self._refuse_openers(link, reason, None):
            self.fail_queue(link, reason)

    def fail_queue(self, link: Link, reason: str) -> None:
        """What waits to go up is answered."""
        waiting, link.queue = link.queue, NO_QUEUE
        for entry in waiting:
            if isinstance(entry, Exchange) and entry.may_have_run:
                self._fail_unknown(link, entry, reason)
            elif isinstance(entry, Exchange) and is_denied(link.denial):
                self._refuse(link, entry, error_of(link, entry, link.denial))
            elif isinstance(entry, Exchange):
                self._fail(link, entry, UPSTREAM_UNAVAILABLE, _unstarted(link, reason), None)

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
        """Give an exchange its answer."""
        session = link.session_of(exchange)
        if link.has_files:
            self.files.forget(exchange)
        self.crossings.forget(link, session, exchange)
        self._courier.answer(session, exchange, message)

    def forget(self, link: Link, exchange: Exchange) -> None:
        """The same, but for the answer."""
        self.crossings.forget(link, link.session_of(exchange), exchange)


def _outlives(ask: Ask, number: int) -> bool:
    """Whether it is asked in the course of a task that goes on: answers are told whenever the server can be told."""
    remote = None if ask.exchange is None else ask.exchange.remote
    return remote is not None and number in remote.open


def _unstarted(link: Link, reason: str) -> str:
    return f"the server could not be {'started' if link.plan.kind is Kind.PIPE else 'connected to'}: {reason}"


def _refusal(cause: Cause | None) -> dict[str, object]:
    """What a refusing response was, for the error's data."""
    if cause is None or not cause.status:
        return {}
    return {"httpStatus": cause.status, "body": cause.body[:200].decode(errors="replace")}
