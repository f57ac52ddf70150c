"""What the channels of servers report: that they are open, what is said there, and how they end."""

from __future__ import annotations

from typing import Protocol

from ..base.effects import Cause, Connected, CookieChanges, End, Primed, Queued, Sweep
from ..base.errors import INTERNAL_ERROR
from ..base.ids import ChannelId
from ..base.revisions import Era
from ..downstream.responder import Courier
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Desk
from ..state.exchange import Exchange
from ..state.link import ChildRole, Errand, FarewellRole, Link, UpPostRole, UpStreamRole
from ..state.session import Session
from ..state.upstream_session import State
from ..subscriptions.server_listens import News
from ..tasks.upstream_tasks import PURPOSES, Tasked
from ..upstream.auth_errors import handshake_error_of, is_denied
from ..upstream.era_detection import lacks_revision, lacks_session
from ..upstream.failures import Losses
from ..upstream.handshake import Handshakes
from ..upstream.progress import Progress, Row
from ..upstream.resumption import Resuming
from ..upstream.warm_pool import SpareRole
from ..upstream.writer import Uplink
from ..wire.http.failure import NO_CONTENT, denies_session, describe, error_in
from .dispatcher import Hearing, UpRole, is_current, related_of
from .passthrough import Passing


class Folders(Protocol):
    """Who must know that a session's folders are not used any more."""

    def sweep(self, session: Session) -> None:
        """The session is over and its process, if it had one, is gone."""


class ServerChannels:
    """All that were dialled, but not what is known of each: that is its role."""

    def __init__(
        self,
        desk: Desk,
        courier: Courier,
        uplink: Uplink,
        resuming: Resuming,
        handshakes: Handshakes,
        losses: Losses,
        hearing: Hearing,
        news: News,
        tasked: Tasked,
        passing: Passing,
    ) -> None:
        self.files: Folders
        self._desk = desk
        self._courier = courier
        self._uplink = uplink
        self._resuming = resuming
        self._handshakes = handshakes
        self._losses = losses
        self._hearing = hearing
        self._news = news
        self._tasked = tasked
        self._progress = Progress(uplink, courier)
        self._passing = passing

    def receive_open(self, role: UpRole | SpareRole, opening: Connected | Primed | Queued) -> None:
        """A channel that was dialled is open, can be resumed, or is to wait."""
        if isinstance(role, UpPostRole) and isinstance(opening, Connected):
            self._receive_connected(role, opening)
        elif isinstance(role, SpareRole):
            self._handshakes.nursery.receive_connected(role)
        elif isinstance(opening, Queued):
            if isinstance(role, UpStreamRole) and is_current(role):
                self._handshakes.receive_listening(role.link)
        elif isinstance(opening, Primed):
            related = related_of(role)
            if related is not None:
                self._courier.prime(role.link.session_of(related), related)
        else:
            self._receive_connected(role, opening)

    def _receive_connected(self, role: UpRole, opening: Connected) -> None:
        link = role.link
        _keep(role, opening.cookies)
        if isinstance(role, ChildRole):
            self._handshakes.receive_connected(link)
        elif isinstance(role, UpPostRole):
            self._handshakes.receive_head(link, role.number, opening.session)
            role.has_begun = True
            link.has_listened |= role.is_resumed and is_current(role)  # it was asked for with GET
            if role.is_confirmation and is_current(role) and link.upstream.state is State.CONFIRMING:
                self._uplink.receive_settled(role)  # it was to say 202 and said 200: taken is taken
                self._handshakes.receive_confirmed(link)
        else:
            role.is_open = True
            if is_current(role):
                link.listen_failures = 0
                link.has_listened = True
                self._handshakes.receive_listening(link)

    def receive_message(self, role: UpRole | SpareRole, channel: ChannelId, message: bytes) -> None:
        if isinstance(role, SpareRole):
            self._desk.note("debug", "a spare process spoke before it was spoken to: dropped", role.server)
        elif role.link.leaving:
            self._losses.receive_left(role.link, channel, message)
        elif len(message) < envelope.LARGE_BYTES or not self._passing.receive_whole(role, (message,)):
            self._hearing.receive_message(role, channel, message)

    def receive_progress(self, role: UpRole, row: Row) -> bool:
        """Several messages that are plain progress. False if they are to be heard one by one."""
        if role.link.leaving or not self._progress.receive(role.link, row):
            return False
        if not isinstance(role, ChildRole):
            role.has_spoken = True
        return True

    def receive_pieces(self, role: UpRole | SpareRole, channel: ChannelId, pieces: tuple[bytes, ...]) -> None:
        """One message came, which is large, in pieces."""
        if isinstance(role, SpareRole) or not self._passing.receive_whole(role, pieces):
            self.receive_message(role, channel, b"".join(pieces))

    def receive_close(self, role: UpRole | SpareRole | FarewellRole, channel: ChannelId, cause: Cause) -> None:
        if isinstance(role, FarewellRole):
            self._losses.receive_farewell_close(role, channel, cause)
            return
        if isinstance(role, SpareRole):
            self._handshakes.nursery.receive_close(role, cause, self._handshakes.health[role.server])
            if self._desk.servers[role.server].has_files:
                self._desk.order(Sweep(workspace=role.workspace))
            return
        link = role.link
        _keep(role, cause.cookies)
        if isinstance(role, ChildRole):
            self._receive_child_close(link, role, channel, cause)
        elif isinstance(role, UpStreamRole):
            self._receive_stream_close(link, role, channel, cause)
        else:
            if role.passage is not None:
                self._passing.receive_close(role, describe(cause))
            self._uplink.receive_close(role)
            self._losses.receive_parted(link, channel)
            if link.upstream.state is not State.CLOSED:
                self._receive_post_close(link, role, cause)

    def _receive_child_close(self, link: Link, role: ChildRole, channel: ChannelId, cause: Cause) -> None:
        link.children -= role.is_process
        self._desk.timers.cancel(("grace", channel))
        self._handshakes.nursery.children -= role.is_process
        if link.upstream.state is State.CLOSED:
            if role.is_process and link.children == 0 and link.has_files:
                self.files.sweep(link.session)
        elif link.channel == channel:
            link.channel = None
            if cause.stale and link.upstream.state is State.DIALING and not role.is_repeated:
                self._handshakes.join(link, is_repeated=True)
                return
            reason = cause.detail or ("its process is gone" if role.is_process else describe(cause))
            # There is nothing to speak to then, which an operator mends in another way than one who speaks no MCP.
            has_started = not role.is_process or cause.end is not End.UNREACHABLE
            stage = "" if has_started else "start"
            has_tried = link.is_stateless and cause.end is not End.UNREACHABLE
            if has_tried and self._handshakes.turn(link, is_said=False):
                return  # some end at once when they are asked what they do not know
            error = handshake_error_of(link, cause)
            if error is not None and not is_denied(cause):  # of another protocol than ours: alone it would mislead
                message = envelope.text_of(envelope.member_of(error, "message"))
                reason, error = f"{reason}; it says: {message}", None
            self._losses.lose(link, reason, error=error, stage=stage)

    def _receive_stream_close(self, link: Link, role: UpStreamRole, channel: ChannelId, cause: Cause) -> None:
        if link.stream != channel:
            self._losses.receive_left_stream(channel)
            return
        limits = self._desk.limits
        link.stream = None
        if link.upstream.state in (State.CLOSED, State.IDLE) or role.incarnation != link.upstream.incarnation:
            return
        if cause.stale and not role.is_repeated:
            self._handshakes.listen(link, is_repeated=True)
            return
        # A server without streams may refuse each with 404 or 400: one that has granted it before has forgotten us.
        if link.has_listened and denies_session(cause, names_session=role.names_session):
            self._losses.lose(link, "it forgot the session", is_forgotten=True)
            return
        self._handshakes.receive_listening(link)
        is_declined = cause.status == NO_CONTENT or 400 <= cause.status < 500
        if cause.end is End.REFUSED and is_declined and not (link.has_listened and is_denied(cause)):
            if not link.listen_event_id:
                return  # 405 above all: it offers no stream, which is its right; 204 has browsers stop as well
            link.listen_event_id = None  # the rest of the old one is gone; a new one may be had
        elif cause.last_event_id is not None:
            link.listen_event_id = cause.last_event_id
        link.listen_idle = 0 if role.has_spoken else link.listen_idle + 1
        at = self._desk.now + self._resuming.pause(cause.retry_ms, link.listen_failures)
        # Who names a pause wants to be polled; other servers had better keep the stream open.
        longest_s = limits.listen_retry_max_s if cause.retry_ms is None else limits.polling_idle_max_s
        at = max(at, role.dialled_at + self._resuming.spacing(link.listen_idle, longest_s))
        link.listen_failures += 1
        if link.listen_failures > limits.resume_failures_max:
            link.listen_event_id = None  # it may be just this that it fails over
        self._desk.timers.set(("relisten", link.id), at, "upstream event stream")

    def _receive_post_close(self, link: Link, role: UpPostRole, cause: Cause) -> None:
        is_lost = denies_session(cause, names_session=role.names_session)
        entry = None if role.number is None else link.pending.pop(role.number, None)
        if isinstance(entry, Exchange):
            entry.post = None
            if self._resuming.receive_cut(link, role, entry, cause):
                if cause.end is End.DONE and self._desk.plan.mirrors_polling:
                    self._courier.release(link.session_of(entry), entry)
                return
            self._uplink.expect_none(entry)
            is_lost = is_lost or self._is_of_another_era(link, role, cause)
            link.upstream.is_denied = is_lost and is_current(role)
            answer = error_in(cause) if link.is_stateless and not is_lost and not is_denied(cause) else None
            if answer is not None:
                self._hearing.receive_answer(link, entry, Frame(error=answer))  # 2026-07-28: errors have statuses
                self._handshakes.advance(link, entry)
                return
            is_unsent = (cause.unsent or is_lost) and not role.is_resumed
            if cause.end is End.DONE and role.problem:
                cause = Cause(End.BROKEN, detail=role.problem)
            elif role.is_resumed:
                cause = Cause(End.BROKEN, detail=f"its reply was cut off, and could not be resumed: {describe(cause)}")
            self._losses.settle_post(link, entry, cause, is_unsent=is_unsent)
        elif is_current(role) and self._uplink.repeat(role, entry, cause):
            return
        elif isinstance(entry, Errand):
            if is_current(role):
                assert role.number is not None
                is_forgotten = is_lost and link.upstream.state in (State.READY, State.REPLAYING)  # the next is asked
                if not is_forgotten or entry.purpose in PURPOSES:
                    self._receive_errand_close(link, entry, cause, role.number)
                if is_forgotten and link.upstream.state is not State.CLOSED:
                    self._losses.lose(link, "it forgot the session", is_forgotten=True)
            return
        elif role.is_confirmation and is_current(role) and link.upstream.state is State.CONFIRMING:
            if cause.end is End.DONE:
                self._handshakes.receive_confirmed(link)
            else:
                error = handshake_error_of(link, cause)
                self._losses.lose(link, describe(cause), error=error, is_unknown=is_lost)
            return
        elif role.number is None and cause.end is not End.DONE:
            self._desk.note("warning", f"a notification or answer did not arrive: {describe(cause)}", link.plan.id)
        if is_lost and is_current(role):
            self._losses.lose(link, "it forgot the session", is_forgotten=True)
        elif link.queue and link.upstream.state is State.READY:
            self._handshakes.flush(link)
        elif link.queue:
            self._handshakes.need(link)

    def _is_of_another_era(self, link: Link, role: UpPostRole, cause: Cause) -> bool:
        """A server that had no sessions refuses a request as one does that has, or the other way round: it was replaced
        (2026-07-28 basic/versioning, "Backward Compatibility"), and did not run it."""
        if role.era is Era.STATELESS:
            is_other = lacks_session(cause, role.number)
        else:
            is_other = lacks_revision(cause)
        if is_other:
            self._handshakes.verdicts[link.plan.id].forget(role.era)
        return is_other

    def _receive_errand_close(self, link: Link, errand: Errand, cause: Cause, number: int) -> None:
        if errand.purpose == "replay":
            self._hearing.receive_replay(link, errand, is_done=False)
        elif errand.purpose in ("initialize", "discover"):
            if not self._handshakes.receive_refusal(link, errand.purpose, cause):
                error = handshake_error_of(link, cause)
                self._losses.lose(link, describe(cause), error=link.refused or error)
        elif errand.purpose in PURPOSES and error_in(cause) is None:
            self._tasked.receive_failure(link, errand, cause)
        elif link.upstream.state is not State.CLOSED:
            text = error_in(cause) or envelope.error_object(INTERNAL_ERROR, describe(cause))
            self._hearing.receive_errand(link, errand, Frame(error=text), number)


def _keep(role: UpRole, cookies: CookieChanges) -> None:
    """What a response set is for the upstream session that asked, if that is still there."""
    if cookies and not isinstance(role, ChildRole) and is_current(role):
        role.link.cookies.receive(cookies)
