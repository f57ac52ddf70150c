"""Writing to an upstream: requests under numbers of our own, answers and notifications, over a pipe or as POSTs."""

from __future__ import annotations

from ..base.effects import Cause, Headers, Post
from ..base.ids import ChannelId
from ..base.revisions import LATEST_MODERN
from ..jsonrpc import envelope
from ..state.context import Desk
from ..state.exchange import Exchange
from ..state.exchange import Input as ExchangeInput
from ..state.link import SUBSCRIPTION, Ear, Errand, Link, Notice, UpPostRole
from ..state.upstream_session import State
from ..wire.http.mcp_headers import headers_for
from ..wire.http.retry import may_send_again


class Uplink:
    """The way up to servers."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def write(self, link: Link, exchange: Exchange, params: bytes | None, mirrored: Headers = ()) -> None:
        """Send a client's request: our number for its id, and for its progress token if it has one.

        Args:
            params: the exchange's own, as the server's era has them.
            mirrored: what of them a server without sessions wants in headers too.
        """
        exchange.step(ExchangeInput.SEND)
        exchange.attempts += 1
        number = exchange.upstream_id = link.next_id()
        link.pending[number] = exchange
        if exchange.token_raw is not None:
            assert params is not None
            params = envelope.replace_progress_token(params, b"%d" % number)
        self.expect_reply(link, exchange)
        message = envelope.encode_request(b"%d" % number, exchange.method, params)
        exchange.post = self._emit(link, message, number, exchange.headers, mirrored=mirrored)

    def run(
        self,
        link: Link,
        purpose: str,
        method: str,
        params: bytes | None,
        *,
        about: str = "",
        exchange: Exchange | None = None,
        is_repeated: bool = False,
    ) -> int:
        """Send a request of our own. Returns its number."""
        number = link.next_id()
        link.pending[number] = Errand(purpose, link.upstream.incarnation, about, exchange)
        if exchange is not None and exchange.remote is not None:
            exchange.remote.requests[purpose] = number
        message = envelope.encode_request(b"%d" % number, method, params)
        mirrored = headers_for(method, params) if link.is_stateless and not link.is_pipe else ()
        self._emit(
            link,
            message,
            number,
            link.headers,
            is_own=True,
            is_repeated=is_repeated,
            is_lasting=purpose == SUBSCRIPTION,
            mirrored=mirrored,
        )
        return number

    def give_up(self, link: Link, purpose: str) -> None:
        """What was asked for this purpose is not waited for any more."""
        numbers = [n for n, entry in link.pending.items() if isinstance(entry, Errand) and entry.purpose == purpose]
        self.give_up_numbers(link, numbers)

    def give_up_numbers(self, link: Link, numbers: list[int]) -> None:
        """The answers to these requests of ours are not waited for any more."""
        for number in numbers:
            link.pending.pop(number, None)
        for channel in sorted(link.posts):
            role = self._desk.role_of(channel)
            if isinstance(role, UpPostRole) and role.number in numbers:
                self._desk.close(channel, reason="it took too long")

    def repeat(self, role: UpPostRole, errand: Errand | None, cause: Cause) -> bool:
        """What was our own, or a notification or an answer, met a connection that the server had closed: send it once
        more, if it may be. A client's request is its own story.

        Args:
            errand: what it was for, if it was a request.
        """
        link, own = role.link, role.own
        is_answered = role.number is not None and errand is None  # on another stream
        if own is None or is_answered or role.is_repeated or link.upstream.state in (State.IDLE, State.CLOSED):
            return False
        if not may_send_again(cause, own.message, has_session=role.names_session):
            return False
        if errand is not None and errand.purpose == SUBSCRIPTION and role.number != next(reversed(link.ears), None):
            return False  # another has taken its place
        if errand is None:
            self._emit(
                link,
                own.message,
                None,
                own.headers,
                is_own=True,
                is_confirmation=role.is_confirmation,
                is_repeated=True,
            )
        else:
            frame = envelope.decode(own.message)
            assert frame.method is not None
            number = self.run(
                link,
                errand.purpose,
                frame.method,
                frame.params,
                about=errand.about,
                exchange=errand.exchange,
                is_repeated=True,
            )
            if errand.purpose == SUBSCRIPTION:
                assert role.number is not None
                link.ears[number] = Ear(number, link.ears.pop(role.number).wanted)
        return True

    def tell(self, link: Link, message: bytes, headers: Headers | None = None) -> None:
        """Send a notification or an answer, with the `headers` of the client that said it; None: it is our own."""
        self._emit(link, message, None, link.headers if headers is None else headers, is_own=True)

    def confirm(self, link: Link) -> None:
        """Send the notification that ends the handshake; on HTTP, how its POST ends is part of the handshake."""
        message = envelope.encode_notification("notifications/initialized", None)
        self._emit(link, message, None, link.headers, is_own=True, is_confirmation=True)

    def expect_reply(self, link: Link, exchange: Exchange) -> None:
        """The server's time to say something about the exchange begins anew; not while it waits for the client."""
        if exchange.task is not None or (exchange.park is not None and exchange.waits_for_client):
            return  # a task ends at its deadline
        at = self._desk.now + (link.plan.reply_timeout_s or self._desk.limits.reply_timeout_s)
        self._desk.timers.set(("reply", (exchange.sid, exchange.key)), at, "upstream reply")

    def expect_none(self, exchange: Exchange) -> None:
        self._desk.timers.cancel(("reply", (exchange.sid, exchange.key)))

    def _emit(
        self,
        link: Link,
        message: bytes,
        number: int | None,
        headers: Headers,
        *,
        is_own: bool = False,
        is_confirmation: bool = False,
        is_repeated: bool = False,
        is_lasting: bool = False,
        mirrored: Headers = (),
    ) -> ChannelId | None:
        """Write one message. Returns the POST's channel, on HTTP."""
        if link.is_pipe:
            assert link.channel is not None
            self._desk.send(link.channel, message)
            return None
        upstream, limits = link.upstream, self._desk.limits
        is_notice = number is None and not is_confirmation
        if is_notice and link.notices >= limits.notices_open_max:
            text = f"{link.notices} notifications and answers are on their way: one more dropped"
            self._desk.note("warning", text, link.plan.id)
            return None
        own = Notice(message, headers) if is_own else None
        role = UpPostRole(link, number, own=own, is_confirmation=is_confirmation, is_repeated=is_repeated)
        revision = upstream.agreed_revision
        if link.is_stateless and upstream.state is State.INITIALIZING:
            revision = LATEST_MODERN
        target = Post(
            link.plan.id,
            message,
            session=upstream.session,
            revision=revision,
            headers=headers,
            cookies=link.cookies.pairs,
            mirrored=mirrored,
            is_lasting=is_lasting,
        )
        channel = role.channel = self._desk.dial(role, target)
        link.posts[channel] = None
        if is_notice:
            link.notices += 1
            if link.notices > limits.notices_open_high:
                self._desk.hold_back(channel)
            self._end_within(channel, limits.notice_timeout_s)
        return channel

    def receive_settled(self, role: UpPostRole) -> None:
        """The request it carried is answered, or nobody waits for it: its stream "SHOULD" end (2025-03-26
        basic/transports, "Sending Messages"), and is ended if it does not."""
        assert role.channel is not None
        if not (self._desk.ends_source and role.channel == self._desk.source):
            self._end_within(role.channel, self._desk.limits.cancel_grace_s)

    def expect_part(self, role: UpPostRole, heard_at: float) -> bool:
        """The server's time to go on with its answer runs from `heard_at`. False if it is over."""
        assert role.channel is not None
        at = heard_at + (role.link.plan.reply_timeout_s or self._desk.limits.reply_timeout_s)
        if at <= self._desk.now:
            return False
        self._desk.timers.set(("grace", role.channel), at, "upstream reply that does not go on")
        return True

    def receive_close(self, role: UpPostRole) -> None:
        """A POST is over."""
        assert role.channel is not None
        role.link.posts.pop(role.channel, None)
        self._desk.timers.cancel(("grace", role.channel))
        if role.number is None and not role.is_confirmation:
            role.link.notices -= 1

    def _end_within(self, channel: ChannelId, seconds: float) -> None:
        self._desk.timers.set(("grace", channel), self._desk.now + seconds, "upstream reply that stays open")
