"""Writes requests, responses and notifications to servers, over a pipe or as POSTs.

The id of a request is replaced by a number of ours (`Link.next_id`), and so is its progress token.
"""

from __future__ import annotations

from ..base.effects import Post
from ..base.events import Cause, Headers
from ..base.ids import ChannelId
from ..base.methods import LISTEN
from ..base.revisions import LATEST_MODERN
from ..jsonrpc import envelope
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.link import SUBSCRIPTION, Link, OwnRequest, QueuedNotification
from ..state.telemetry import Telemetry
from ..state.upstream_channels import UpstreamPostRole
from ..state.upstream_session import UpstreamSessionState
from ..wire.http.mcp_headers import headers_for
from ..wire.http.retry import may_send_again


class UpstreamWriter:
    """The writer of all links, and the timers of what it has sent.

    Attributes:
        telemetry: emits the events of requests; None if the plan asks for none.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.telemetry = Telemetry.of(context)

    def write(
        self,
        link: Link,
        exchange: Exchange,
        params: bytes | None,
        mirrored: Headers = (),
        headers: Headers | None = None,
    ) -> None:
        """Sends a client's request, with our number as its id, and as its progress token if it has one.

        Args:
            params: the exchange's params, in the server's era.
            mirrored: the headers that mirror params, for a server without sessions.
            headers: the HTTP headers that go with it; None: those of the exchange.
        """
        if headers is None:
            headers = exchange.headers
        number = link.expect(exchange)
        if exchange.token_raw is not None:
            assert params is not None
            params = envelope.replace_progress_token(params, b"%d" % number)
        self.expect_reply(link, exchange)
        message = envelope.encode_request(b"%d" % number, exchange.method, params)
        is_lasting = exchange.method == LISTEN
        post = self._emit(link, message, number, headers, is_lasting=is_lasting, mirrored=mirrored)
        exchange.receive_written(number, post)
        if self.telemetry is not None:
            self.telemetry.receive_sent(link, exchange, number, post)

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
        """Sends a request of the proxy's own. Returns its number."""
        number = link.expect(OwnRequest(purpose, link.upstream.incarnation, about, exchange))
        if exchange is not None and exchange.upstream_task is not None:
            exchange.upstream_task.receive_sent(purpose, number)
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
        """Drops the proxy's own requests of this purpose, with their POSTs."""
        numbers = [n for n, entry in link.pending.items() if isinstance(entry, OwnRequest) and entry.purpose == purpose]
        self.give_up_numbers(link, numbers)

    def give_up_numbers(self, link: Link, numbers: list[int]) -> None:
        """Drops these requests of the proxy's own, with their POSTs."""
        for number in numbers:
            link.settle(number)
        for channel in sorted(link.posts):
            role = self._context.role_of(channel)
            if isinstance(role, UpstreamPostRole) and role.number in numbers:
                self._context.close(channel, reason="it took too long")

    def repeat(self, role: UpstreamPostRole, own_request: OwnRequest | None, cause: Cause) -> bool:
        """Sends a message once more, if it may be, after its POST met a connection that the server had closed.

        True if it was sent. A client's request is not repeated here, but by `Failures`.

        Args:
            own_request: the purpose of the message, if it is a request.
        """
        link, own = role.link, role.notification
        is_answered = role.number is not None and own_request is None  # the response came on another stream
        if (
            own is None
            or is_answered
            or role.is_repeated
            or link.upstream.state in (UpstreamSessionState.IDLE, UpstreamSessionState.CLOSED)
        ):
            return False
        if not may_send_again(cause, own.message, has_session=role.names_session):
            return False
        if (
            own_request is not None
            and own_request.purpose == SUBSCRIPTION
            and role.number != (None if link.subscriptions.newest is None else link.subscriptions.newest.number)
        ):
            return False  # a newer subscription has replaced it
        if own_request is None:
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
                own_request.purpose,
                frame.method,
                frame.params,
                about=own_request.about,
                exchange=own_request.exchange,
                is_repeated=True,
            )
            if own_request.purpose == SUBSCRIPTION:
                assert role.number is not None
                link.subscriptions.reopen(role.number, number)
        return True

    def tell(self, link: Link, message: bytes, headers: Headers | None = None) -> None:
        """Sends a notification or a response, with the `headers` of the client that sent it; None: it is the proxy's
        own."""
        self._emit(link, message, None, link.headers if headers is None else headers, is_own=True)

    def confirm(self, link: Link) -> None:
        """Sends `notifications/initialized`. On HTTP, the end of its POST is part of the handshake."""
        message = envelope.encode_notification("notifications/initialized", None)
        self._emit(link, message, None, link.headers, is_own=True, is_confirmation=True)

    def expect_reply(self, link: Link, exchange: Exchange) -> None:
        """Restarts the reply timeout of an exchange, except while the server waits for the client."""
        if exchange.is_lasting:
            return
        if exchange.task is not None or (exchange.suspended_call is not None and exchange.waits_for_client):
            return  # a task ends at its own deadline, and a client that is asked has its own timeout
        at = self._context.now + (link.plan.reply_timeout_s or self._context.limits.reply_timeout_s)
        self._context.timers.set(("reply", (exchange.sid, exchange.key)), at, "upstream reply")

    def expect_none(self, exchange: Exchange) -> None:
        self._context.timers.cancel(("reply", (exchange.sid, exchange.key)))

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
        """Writes one message. Returns the channel of its POST; None on a pipe, or if the message was dropped."""
        if link.is_pipe:
            assert link.channel is not None
            self._context.send(link.channel, message)
            return None
        upstream, limits = link.upstream, self._context.limits
        is_notification = number is None and not is_confirmation
        if is_notification and link.open_notifications >= limits.notifications_open_max:
            text = f"{link.open_notifications} notifications and answers are on their way: one more dropped"
            self._context.note("warning", text, link.plan.id)
            return None
        own = QueuedNotification(message, headers) if is_own else None
        role = UpstreamPostRole(
            link, number, notification=own, is_confirmation=is_confirmation, is_repeated=is_repeated
        )
        revision = upstream.revision
        if upstream.state is UpstreamSessionState.INITIALIZING:  # it is being negotiated
            revision = LATEST_MODERN if link.is_stateless else None
        target = Post(
            link.plan.id,
            message,
            session=upstream.session,
            revision=revision,
            headers=headers,
            cookies=link.cookies.pairs,
            mirrored=mirrored,
            is_lasting=is_lasting,
            principal=link.logs_in_as,
            address=link.address,
        )
        channel = self._context.dial(role, target)
        link.open_post(channel, is_notification=is_notification)
        if is_notification:
            if link.open_notifications > limits.notifications_open_high:
                # Backpressure: the client that sends so many is not read until this POST ends.
                self._context.hold_back(channel)
            self._end_within(channel, limits.notification_timeout_s)
        return channel

    def receive_settled(self, role: UpstreamPostRole) -> None:
        """Gives the stream of a settled request `Limits.cancel_grace_s` to end, as it "SHOULD" (2025-03-26
        basic/transports, "Sending Messages")."""
        assert role.channel is not None
        # No timer where the input that settled the request also ends this channel.
        if not (self._context.ends_source and role.channel == self._context.source):
            self._end_within(role.channel, self._context.limits.cancel_grace_s)

    def expect_part(self, role: UpstreamPostRole, heard_at: float) -> bool:
        """Restarts the reply timeout of a partial response, from `heard_at`. False if it is over."""
        assert role.channel is not None
        at = heard_at + (role.link.plan.reply_timeout_s or self._context.limits.reply_timeout_s)
        if at <= self._context.now:
            return False
        self._context.timers.set(("grace", role.channel), at, "upstream reply that does not go on")
        return True

    def receive_close(self, role: UpstreamPostRole) -> None:
        """Handles the end of a POST."""
        assert role.channel is not None
        role.link.close_post(role.channel, is_notification=role.number is None and not role.is_confirmation)
        self._context.timers.cancel(("grace", role.channel))

    def _end_within(self, channel: ChannelId, seconds: float) -> None:
        self._context.timers.set(("grace", channel), self._context.now + seconds, "upstream reply that stays open")
