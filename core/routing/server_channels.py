"""Handles the events of channels to servers: open, message, progress, and close.

The close of a POST, or of a GET stream, may mean that the server has forgotten the upstream session (404): `Failures`
then heals it. Otherwise the close of a GET stream has it opened again, from the event id that came last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..base.errors import INTERNAL_ERROR
from ..base.events import Cause, Connected, CookieChanges, End, Primed, Queued
from ..base.ids import ChannelId
from ..base.revisions import Era
from ..base.storage import Sweep
from ..downstream.responder import Responder
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.feature import ChannelHandler, Feature
from ..state.link import TASK_PURPOSES, Link, OwnRequest
from ..state.upstream_channels import DeleteRole, DuplexRole, UpstreamPostRole, UpstreamStreamRole
from ..state.upstream_session import UpstreamSessionState
from ..upstream.auth_errors import handshake_error_of, is_denied
from ..upstream.era_detection import lacks_revision, lacks_session
from ..upstream.handshake import error_with_first
from ..upstream.processes import STARTING, Restart, explain
from ..upstream.progress import Progress, Row
from ..upstream.session_checks import PURPOSE as SESSION_CHECK
from ..upstream.upstream import Upstream
from ..upstream.warm_pool import WarmProcessRole
from ..wire.http.failure import (
    METHOD_NOT_ALLOWED,
    NO_CONTENT,
    NOT_FOUND,
    TOO_MANY_REQUESTS,
    denies_session,
    describe,
    error_in,
    first_words_in,
)
from ..wire.websocket import GOING_AWAY
from .dispatcher import Dispatcher, UpRole, is_current, related_of
from .passthrough import Passthrough

FINAL: Final = (NO_CONTENT, NOT_FOUND, METHOD_NOT_ALLOWED)
"""The statuses of servers that offer no GET stream. 204 keeps browsers from asking again."""


class ServerChannels(ChannelHandler):
    """The handlers of channels to servers. The state of each channel is in its role."""

    def __init__(
        self,
        context: Context,
        responder: Responder,
        upstream: Upstream,
        dispatcher: Dispatcher,
        passthrough: Passthrough,
        features: Sequence[Feature],
    ) -> None:
        self._context = context
        self._responder = responder
        self._writer = upstream.writer
        self._resumption = upstream.resumption
        self._handshaker = upstream.handshaker
        self._failures = upstream.failures
        self._session_checks = upstream.session_checks
        self._dispatcher = dispatcher
        self._progress = Progress(upstream.writer, responder)
        self._passthrough = passthrough
        self._features = features

    def receive_open(self, role: UpRole | WarmProcessRole, opening: Connected | Primed | Queued) -> None:
        """Handles a channel that is open, can be resumed, or must wait."""
        if isinstance(role, UpstreamPostRole) and isinstance(opening, Connected):
            self._receive_connected(role, opening)
        elif isinstance(role, WarmProcessRole):
            self._handshaker.warm_pool.receive_connected(role)
        elif isinstance(opening, Queued):
            if isinstance(role, UpstreamStreamRole) and is_current(role):
                self._handshaker.receive_listening(role.link)
        elif isinstance(opening, Primed):
            related = related_of(role)
            if related is not None:
                self._responder.prime(role.link.session_of(related), related)
        else:
            self._receive_connected(role, opening)

    def _receive_connected(self, role: UpRole, opening: Connected) -> None:
        link = role.link
        _store_cookies(role, opening.cookies)
        if isinstance(role, DuplexRole):
            self._handshaker.receive_connected(link)
        elif isinstance(role, UpstreamPostRole):
            self._handshaker.receive_head(link, role.number, opening.session)
            role.receive_success()
            if role.is_resumed and is_current(role):  # a reply is resumed with GET
                link.get_stream.receive_granted(is_own=False)
            if role.is_confirmation and is_current(role) and link.upstream.state is UpstreamSessionState.CONFIRMING:
                self._writer.receive_settled(role)  # 200 in place of 202: accepted all the same
                self._handshaker.receive_confirmed(link)
        else:
            role.receive_granted()
            if is_current(role):
                link.get_stream.receive_granted()
                self._handshaker.receive_listening(link)

    def receive_message(self, role: UpRole | WarmProcessRole, channel: ChannelId, message: bytes) -> None:
        """Handles one message."""
        if isinstance(role, WarmProcessRole):
            self._context.note("debug", "a spare process spoke before it was spoken to: dropped", role.server)
        elif role.link.leaving:
            self._failures.receive_left(role.link, channel, message)
        elif len(message) < envelope.LARGE_BYTES or not self._passthrough.receive_whole(role, (message,)):
            self._dispatcher.receive_message(role, channel, message)

    def receive_progress(self, role: UpRole, row: Row) -> bool:
        """Handles several progress notifications of one call at once. False if they must be read one by one."""
        if role.link.leaving or not self._progress.receive(role.link, row):
            return False
        if not isinstance(role, DuplexRole) and not role.has_spoken:
            role.receive_message()
        return True

    def receive_pieces(self, role: UpRole | WarmProcessRole, channel: ChannelId, pieces: tuple[bytes, ...]) -> None:
        """Handles one large message that came in pieces."""
        if isinstance(role, WarmProcessRole) or not self._passthrough.receive_whole(role, pieces):
            self.receive_message(role, channel, b"".join(pieces))

    def receive_close(self, role: UpRole | WarmProcessRole | DeleteRole, channel: ChannelId, cause: Cause) -> None:
        """Handles the end of a channel."""
        if isinstance(role, DeleteRole):
            self._failures.receive_farewell_close(role, channel, cause)
            return
        if isinstance(role, WarmProcessRole):
            self._handshaker.processes.receive_ended(role.server, channel)
            self._handshaker.warm_pool.receive_close(role, cause, self._handshaker.health[role.server])
            if self._context.servers[role.server].has_files:
                self._context.order(Sweep(workspace=role.workspace))
            self._handshaker.receive_gone(channel)
            return
        link = role.link
        _store_cookies(role, cause.cookies)
        if isinstance(role, DuplexRole):
            overlapped = role.is_process and self._handshaker.processes.receive_ended(link.plan.id, channel)
            self._receive_child_close(link, role, channel, cause, overlapped=overlapped or role.was_spare)
            if role.is_process:
                health = self._handshaker.health[link.plan.id]
                self._handshaker.warm_pool.receive_session_process_end(channel, link.plan, health, cause)
                self._handshaker.receive_gone(channel)
        elif isinstance(role, UpstreamStreamRole):
            self._receive_stream_close(link, role, channel, cause)
        else:
            if role.partial_answer is not None:
                self._passthrough.receive_close(role, describe(cause))
            self._writer.receive_close(role)
            self._failures.receive_parted(link, channel)
            if link.upstream.state is not UpstreamSessionState.CLOSED:
                self._receive_post_close(link, role, cause)

    def stop(self, role: UpRole | WarmProcessRole | UpstreamPostRole | DeleteRole, channel: ChannelId) -> None:
        """Closes a channel as the proxy is shutting down. Requests under way end by themselves, and so does a server
        that still has to answer cancellations."""
        is_left_slowly = isinstance(role, DuplexRole) and bool(role.link.leaving)
        if isinstance(role, DuplexRole | WarmProcessRole | UpstreamStreamRole) and not is_left_slowly:
            self._context.close(channel, reason="the proxy is shutting down", code=GOING_AWAY)

    def _receive_child_close(
        self, link: Link, role: DuplexRole, channel: ChannelId, cause: Cause, *, overlapped: bool
    ) -> None:
        if role.is_process:
            link.receive_process_end()
        self._context.timers.cancel(("grace", channel))
        if link.upstream.state is UpstreamSessionState.CLOSED:
            if role.is_process and link.children == 0 and not link.is_shared:
                for feature in self._features:
                    feature.receive_left(link.session)
        elif link.channel == channel:
            link.disconnect()
            if cause.stale and link.upstream.state is UpstreamSessionState.DIALING and not role.is_repeated:
                self._handshaker.join(link, is_repeated=True)
                return
            reason = cause.detail or ("its process is gone" if role.is_process else describe(cause))
            # Operators must tell a process that did not start from one that runs and does not speak MCP.
            has_started = not role.is_process or cause.end is not End.UNREACHABLE
            stage = "" if has_started else "start"
            if role.is_process and cause.end is End.BROKEN and link.upstream.state in STARTING:
                if self._handshaker.restart(link, overlapped=overlapped):
                    return
                if self._handshaker.processes.restart_after(link.plan.id, overlapped=overlapped) is Restart.CONFLICT:
                    reason = explain(reason, link.plan.names.share)
            if not role.is_process and self._handshaker.move_on(link, cause):
                return
            has_tried = link.is_stateless and cause.end is not End.UNREACHABLE
            if has_tried and self._handshaker.turn(link, is_said=False):
                return  # some servers exit on a request that they do not know
            error = handshake_error_of(link, cause)
            if error is not None and not is_denied(cause):  # it may be about another transport: alone it would mislead
                message = envelope.text_of(envelope.member_of(error, "message"))
                reason, error = f"{reason}; it says: {message}", None
            elif not is_denied(cause):
                link.handshake.receive_words(first_words_in(cause))
            self._failures.lose(link, reason, error=error, stage=stage, is_ours=cause.is_ours)

    def _receive_stream_close(self, link: Link, role: UpstreamStreamRole, channel: ChannelId, cause: Cause) -> None:
        if link.get_stream.channel != channel:
            self._failures.receive_left_stream(channel)
            return
        limits, stream = self._context.limits, link.get_stream
        stream.take_channel()
        if (
            link.upstream.state in (UpstreamSessionState.CLOSED, UpstreamSessionState.IDLE)
            or role.incarnation != link.upstream.incarnation
        ):
            return
        if cause.stale and not role.is_repeated:
            self._handshaker.listen(link, is_repeated=True)
            return
        if cause.end is End.UNREACHABLE and self._handshaker.must_leave(link, cause):
            self._failures.lose(link, describe(cause), is_unknown=True)
            return
        # A server without GET streams may refuse each with 404 or 400. One that granted a stream before means that it
        # has forgotten the session.
        if stream.was_granted and denies_session(cause, names_session=role.names_session):
            self._failures.lose(link, "it forgot the session", is_forgotten=True)
            return
        self._handshaker.receive_listening(link)
        if stream.was_granted:
            self._session_checks.suspect(link, cause, names_session=role.names_session)
        is_declined = cause.status == NO_CONTENT or (400 <= cause.status < 500 and cause.status != TOO_MANY_REQUESTS)
        is_refused = cause.end is End.REFUSED and is_declined and not (stream.was_granted and is_denied(cause))
        if is_refused and not stream.receive_declined() and cause.status in FINAL:
            return  # the server offers no stream; any other refusal may be one of the moment
        failures = stream.receive_closed(
            None if is_refused else cause.last_event_id,
            has_spoken=role.has_spoken,
            failures_max=limits.resume_failures_max,
        )
        at = self._context.now + self._resumption.pause(cause.retry_ms, failures)
        # A server that names a pause wants to be polled; other servers are expected to keep the stream open.
        longest_s = limits.listen_retry_max_s if cause.retry_ms is None else limits.polling_idle_max_s
        at = max(at, role.dialled_at + self._resumption.spacing(stream.idle, longest_s))
        self._context.timers.set(("relisten", link.id), at, "upstream event stream")

    def _receive_post_close(self, link: Link, role: UpstreamPostRole, cause: Cause) -> None:
        is_lost = denies_session(cause, names_session=role.names_session)
        is_left = cause.end is End.UNREACHABLE and is_current(role) and self._handshaker.must_leave(link, cause)
        entry = link.settle(role.number)
        if isinstance(entry, Exchange) and entry.is_lasting:
            self._dispatcher.receive_cut_off(link, entry)
            return
        if isinstance(entry, Exchange):
            entry.receive_post_end()
            if self._resumption.receive_cut(link, role, entry, cause):
                if cause.end is End.DONE and self._context.plan.mirrors_polling:
                    self._responder.release(link.session_of(entry), entry)
                return
            self._writer.expect_none(entry)
            is_lost = is_lost or self._is_of_another_era(link, role, cause)
            if cause.end is End.REFUSED and not is_lost:
                is_lost = self._session_checks.is_late(link, entry, cause, role)
                if not is_lost and self._session_checks.holds_refusal(link, entry, cause, role):
                    return
            link.upstream.receive_denied(is_denied=is_lost and is_current(role))
            answer = error_in(cause) if link.is_stateless and not is_lost and not is_denied(cause) else None
            if answer is not None:
                self._dispatcher.receive_answer(link, entry, Frame(error=answer))  # 2026-07-28: errors have statuses
                self._handshaker.advance(link, entry)
                return
            is_unsent = (cause.unsent or is_lost) and not role.is_resumed
            if cause.end is End.DONE and role.problem:
                cause = Cause(End.BROKEN, detail=role.problem)
            elif role.is_resumed:
                cause = Cause(End.BROKEN, detail=f"its reply was cut off, and could not be resumed: {describe(cause)}")
            self._failures.settle_post(link, entry, cause, is_unsent=is_unsent)
        elif is_current(role) and self._writer.repeat(role, entry, cause):
            return
        elif isinstance(entry, OwnRequest):
            if is_current(role):
                assert role.number is not None
                is_forgotten = is_lost and link.upstream.state in (
                    UpstreamSessionState.READY,
                    UpstreamSessionState.REPLAYING,
                )  # the next upstream session will be asked
                if not is_forgotten or entry.purpose in (*TASK_PURPOSES, SESSION_CHECK):
                    if entry.purpose != SESSION_CHECK and not is_lost:
                        self._session_checks.suspect(link, cause, names_session=role.names_session)
                    self._receive_own_request_close(link, entry, cause, role.number)
                if is_forgotten and link.upstream.state is not UpstreamSessionState.CLOSED:
                    self._failures.lose(link, "it forgot the session", is_forgotten=True)
            return
        elif role.is_confirmation and is_current(role) and link.upstream.state is UpstreamSessionState.CONFIRMING:
            if cause.end is End.DONE:
                self._handshaker.receive_confirmed(link)
            else:
                error = handshake_error_of(link, cause)
                self._failures.lose(link, describe(cause), error=error, is_unknown=is_lost)
            return
        elif role.number is None and cause.end is not End.DONE:
            self._context.note("warning", f"a notification or answer did not arrive: {describe(cause)}", link.plan.id)
        if cause.end is End.REFUSED and role.number is None and is_current(role) and not is_lost:
            self._session_checks.suspect(link, cause, names_session=role.names_session)
        if is_lost and is_current(role):
            self._failures.lose(link, "it forgot the session", is_forgotten=True)
        elif is_left:
            self._failures.lose(link, describe(cause), is_unknown=True)
        elif link.queue and link.upstream.state is UpstreamSessionState.READY:
            self._handshaker.flush(link)
        elif link.queue:
            self._handshaker.need(link)

    def _is_of_another_era(self, link: Link, role: UpstreamPostRole, cause: Cause) -> bool:
        """True if a server refused a request as servers of the other era do: it was replaced (2026-07-28
        basic/versioning, "Backward Compatibility"), and did not run the request."""
        if role.era is Era.STATELESS:
            is_other = lacks_session(cause, role.number)
        else:
            is_other = lacks_revision(cause)
        if is_other:
            self._handshaker.server_eras[link.plan.id].forget(role.era)
        return is_other

    def _receive_own_request_close(self, link: Link, own_request: OwnRequest, cause: Cause, number: int) -> None:
        owner = link.interceptors.by_purpose.get(own_request.purpose)
        if own_request.purpose == "replay":
            self._dispatcher.receive_replay(link, own_request, is_done=False)
        elif own_request.purpose in ("initialize", "discover"):
            if self._handshaker.move_on(link, cause):
                return
            if not self._handshaker.receive_refusal(link, own_request.purpose, cause):
                error = handshake_error_of(link, cause)
                self._failures.lose(link, describe(cause), error=error_with_first(link, error))
        elif owner is not None and owner.receive_own_failure(link, own_request, cause):
            return
        elif link.upstream.state is not UpstreamSessionState.CLOSED:
            text = error_in(cause) or envelope.error_object(INTERNAL_ERROR, describe(cause))
            self._dispatcher.receive_own_response(link, own_request, Frame(error=text), number)


def _store_cookies(role: UpRole, cookies: CookieChanges) -> None:
    """Stores the cookies of a response for the upstream session that the request belonged to, if that still exists."""
    if cookies and not isinstance(role, DuplexRole) and is_current(role):
        role.link.cookies.receive(cookies)
