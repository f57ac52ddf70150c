"""Resumption of replies that a server cut off, or ended to be polled, before the response came.

A server that names event ids can be asked for the rest of a stream (GET with `Last-Event-ID`). Meanwhile the request
stays open under its number, and costs one timer between two connections. The number of connections is bounded by time
alone: by the silence after which every request ends (`Limits.reply_timeout_s`, or its server's own), with pauses that
grow while nothing comes.

The GET stream of an upstream session is opened again, with `Last-Event-ID`, by `Handshaker.listen`. Event streams
towards clients are resumed in `downstream/event_streams`.

Source: 2025-11-25 basic/transports, "Sending Messages to the Server" 6 and "Resumability and Redelivery".
"""

from __future__ import annotations

from ..base.effects import Listen
from ..base.events import Cause, End
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.link import Link
from ..state.upstream_channels import UpstreamPostRole
from ..state.upstream_session import UpstreamSessionState


class Resumption:
    """The pauses between two connections of one reply, and the connections that follow."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def receive_cut(self, link: Link, role: UpstreamPostRole, exchange: Exchange, cause: Cause) -> bool:
        """Handles the end of a reply without its response. True if it will be resumed; the exchange then stays
        pending."""
        number = role.number
        if (
            number is None
            or link.upstream.state is not UpstreamSessionState.READY
            or role.incarnation != link.upstream.incarnation
        ):
            return False
        role.receive_event_id(cause.last_event_id)
        never_sent = cause.end is End.UNREACHABLE and not role.is_resumed
        if not role.last_event_id or cause.end is End.REFUSED or never_sent:
            return False
        role.receive_cut(cause.retry_ms)
        if role.failures >= self._context.limits.resume_failures_max:
            return False
        link.cut_reply(number, role)
        link.expect_again(number, exchange)
        limits = self._context.limits
        at = self._context.now + self.pause(role.retry_ms, role.failures)
        at = max(at, role.dialled_at + self.spacing(role.idle, limits.polling_idle_max_s))
        self._context.timers.set(("resume", (link.id, number)), at, "upstream reply to be resumed")
        return True

    def pause(self, retry_ms: int | None, failures: int) -> float:
        """Returns the seconds until a stream is opened again: as its server asks, within bounds; longer with each
        failure."""
        limits = self._context.limits
        if retry_ms is None:
            return float(min(limits.listen_retry_s * 2.0 ** min(failures, 16), limits.listen_retry_max_s))
        asked = min(max(retry_ms / 1000, limits.polling_pause_min_s), limits.polling_pause_max_s)
        return float(min(asked * 2.0 ** min(failures, 16), max(asked, limits.listen_retry_max_s)))

    def spacing(self, idle: int, longest_s: float) -> float:
        """Returns the least seconds between the beginnings of two connections, after `idle` in a row that brought no
        message.

        A connection that was open for longer than that causes no further wait.
        """
        return float(min(self._context.limits.polling_pause_min_s * 2.0 ** min(max(idle - 1, 0), 16), longest_s))

    def handle_resume(self, link: Link, number: int) -> None:
        cut = link.take_cut(number)
        exchange = link.pending.get(number)
        if cut is None or not isinstance(exchange, Exchange) or link.upstream.state is not UpstreamSessionState.READY:
            return
        role = UpstreamPostRole.resuming(cut, self._context.now)
        upstream = link.upstream
        target = Listen(
            server=link.plan.id,
            session=upstream.session,
            revision=upstream.revision,
            headers=link.headers,
            last_event_id=role.last_event_id,
            cookies=link.cookies.pairs,
            is_of_call=True,
            principal=link.logs_in_as,
            address=link.address,
        )
        channel = self._context.dial(role, target)
        exchange.receive_resumed(channel)
        link.open_post(channel)

    def forget(self, link: Link, number: int) -> None:
        """Drops a reply that is not waited for any more."""
        if number in link.cut:
            link.take_cut(number)
            self._context.timers.cancel(("resume", (link.id, number)))

    def forget_all(self, link: Link) -> None:
        for number in list(link.cut):
            self.forget(link, number)
