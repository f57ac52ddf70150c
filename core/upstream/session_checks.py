"""Asks a session whether its server still knows it, after a refusal that could mean that it does not.

A server that has forgotten a session says so with 404. Others answer 400, 401 or an error about the session or its
initialization (`wire/http/session_refusal`). After such a refusal the session is sent one `ping`, whatever the number
of refused requests, and their clients wait. If the ping is refused alike, the session is forgotten: it is begun anew,
and what was refused, so did not run, is sent once more. Otherwise each client gets the refusal as it came.

A client whose request is refused again, or whose session cannot be begun anew, is told 404 where its transport has
statuses: it can then begin anew itself.
"""

from __future__ import annotations

from ..base.errors import UPSTREAM_UNAVAILABLE
from ..base.events import Cause
from ..base.plan import Kind, ServerPlan
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.interceptor import Interceptor
from ..state.link import Link, OwnRequest
from ..state.session_check import RefusedRequest, SessionCheck
from ..state.upstream_channels import UpstreamPostRole
from ..state.upstream_session import UpstreamSessionState
from ..wire.http.failure import denies_session, describe, error_in
from ..wire.http.session_refusal import Refusal, is_alike, refusal_in, refusal_of
from .failures import Failures
from .handshake import Handshaker
from .writer import UpstreamWriter

PURPOSE = "session-check"


class SessionChecks(Interceptor):
    """The checks of all upstream sessions, at most one of each at a time (`Link.session_check`)."""

    name = "session checks"
    purposes = frozenset({PURPOSE})

    def __init__(self, context: Context, writer: UpstreamWriter, handshaker: Handshaker, failures: Failures) -> None:
        self._context = context
        self._writer = writer
        self._handshaker = handshaker
        self._failures = failures
        self._delivered: Exchange | None = None  # whose refusal is passed on, as its session is known

    def is_for(self, plan: ServerPlan) -> bool:
        return plan.kind is Kind.HTTP

    def has_say(self, link: Link) -> bool:
        return False

    # --- Refusals ---------------------------------------------------------------------------------------------------

    def holds_refusal(self, link: Link, exchange: Exchange, cause: Cause, role: UpstreamPostRole) -> bool:
        """Handles the refusal of a request's POST. True if its client waits until the session has been asked."""
        if role.is_resumed or role.incarnation != link.upstream.incarnation:
            return False
        refusal = refusal_of(cause, exchange.method, names_session=role.names_session)
        return refusal is not None and self._hold(link, refusal, RefusedRequest(exchange, cause))

    def is_late(self, link: Link, exchange: Exchange, cause: Cause, role: UpstreamPostRole) -> bool:
        """True if a refusal came from an upstream session that was found forgotten since: the request did not run."""
        if role.incarnation != link.forgotten_incarnation:
            return False
        return refusal_of(cause, exchange.method, names_session=role.names_session) is not None

    def holds_error(self, link: Link, exchange: Exchange, error: bytes) -> bool:
        """Handles the error in a request's response. True if its client waits until the session has been asked."""
        if link.is_pipe or exchange is self._delivered:
            return False
        post = None if exchange.post is None else self._context.role_if_open(exchange.post)
        is_earlier = isinstance(post, UpstreamPostRole) and post.incarnation != link.upstream.incarnation
        if link.is_stateless and not is_earlier:
            return False
        refusal = refusal_in(envelope.usable_error(error), exchange.method)
        if refusal is None:
            return False
        refused = RefusedRequest(exchange, error)
        if isinstance(post, UpstreamPostRole) and is_earlier:
            if post.incarnation != link.forgotten_incarnation:
                return False
            self._settle_unrun(link, refused)
            self._send_queued(link)
            return True
        return self._hold(link, refusal, refused)

    def suspect(self, link: Link, cause: Cause, *, names_session: bool) -> None:
        """Handles the refusal of anything else: of a notification, of an event stream, of a request of ours."""
        refusal = refusal_of(cause, "", names_session=names_session)
        if refusal is not None and self._may_ask(link) and link.session_check is None:
            self._ask(link, refusal)

    def _may_ask(self, link: Link) -> bool:
        return link.upstream.state is UpstreamSessionState.READY and not link.is_stateless and not link.is_pipe

    def _hold(self, link: Link, refusal: Refusal, refused: RefusedRequest) -> bool:
        if not self._may_ask(link):
            return False
        check = link.session_check or self._ask(link, refusal)
        check.add(refusal, refused)
        return True

    def _ask(self, link: Link, refusal: Refusal) -> SessionCheck:
        check = SessionCheck(refusal)
        link.begin_check(check)
        self._writer.run(link, PURPOSE, "ping", None)
        at = self._context.now + self._context.limits.session_check_timeout_s
        self._context.timers.set(("session-check", link.id), at, "ping of an upstream session")
        return check

    # --- The outcome ------------------------------------------------------------------------------------------------

    def receive_own_response(self, link: Link, own_request: OwnRequest, frame: Frame) -> None:
        refusal = None if frame.error is None else refusal_in(envelope.usable_error(frame.error), "ping")
        self._conclude(link, refusal)

    def receive_own_failure(self, link: Link, own_request: OwnRequest, cause: Cause) -> bool:
        names_session = link.upstream.session is not None
        is_denied = denies_session(cause, names_session=names_session)
        self._conclude(link, refusal_of(cause, "ping", names_session=names_session), is_denied=is_denied)
        return True

    def handle_timeout(self, link: Link) -> None:
        """Passes the refusals on: the server did not answer the ping."""
        self._writer.give_up(link, PURPOSE)
        self._conclude(link, None)

    def receive_lost(self, link: Link, reason: str) -> None:
        """Settles the requests that wait, as their session was lost in another way."""
        check = self._take(link)
        if check is not None:
            for refused in check.waiting:
                if link.upstream.times_forgotten:
                    self._settle_unrun(link, refused)
                elif self._is_awaited(link, refused.exchange):
                    self._refuse(link, refused)

    def _take(self, link: Link) -> SessionCheck | None:
        self._context.timers.cancel(("session-check", link.id))
        return link.end_check()

    def _conclude(self, link: Link, refusal: Refusal | None, *, is_denied: bool = False) -> None:
        """Handles the outcome of the ping: `refusal` is how it was refused, if it was."""
        check = self._take(link)
        if check is None:
            return
        if is_denied or (refusal is not None and any(is_alike(refusal, each) for each in check.refusals)):
            link.forget_incarnation()
            refused_again = [refused for refused in check.waiting if not self._repeats(link, refused)]
            self._failures.lose(link, "it forgot the session", is_forgotten=True)
            for refused in refused_again:
                self._refuse_session_of(link, refused)
            return
        for refused in check.waiting:
            if link.upstream.is_over or not self._is_awaited(link, refused.exchange):
                continue
            if isinstance(refused.outcome, Cause):
                self._failures.settle_post(link, refused.exchange, refused.outcome, is_unsent=False)
            else:
                self._delivered = refused.exchange
                link.router.receive_response(link, refused.exchange, Frame(error=refused.outcome))
                self._delivered = None
        self._send_queued(link)

    def _send_queued(self, link: Link) -> None:
        if link.queue and link.upstream.state is UpstreamSessionState.READY:
            self._handshaker.flush(link)
        elif link.queue:
            self._handshaker.need(link)

    def _settle_unrun(self, link: Link, refused: RefusedRequest) -> None:
        """Sends a request once more that did not run, or tells its client that the session is over."""
        if not self._repeats(link, refused):
            self._refuse_session_of(link, refused)

    def _repeats(self, link: Link, refused: RefusedRequest) -> bool:
        """Queues a request once more that did not run. False if it was repeated before."""
        exchange = refused.exchange
        if not self._is_awaited(link, exchange):
            return True
        self._writer.expect_none(exchange)
        if not exchange.may_repeat(is_unsent=True, retries=link.plan.session_retries):
            return False
        exchange.requeue()
        link.enqueue(exchange)
        return True

    def _refuse_session_of(self, link: Link, refused: RefusedRequest) -> None:
        if self._is_awaited(link, refused.exchange):
            self._failures.refuse_session_of(link, refused.exchange, _error_of(refused.outcome))

    def _refuse(self, link: Link, refused: RefusedRequest) -> None:
        if isinstance(refused.outcome, Cause):
            self._failures.settle_post(link, refused.exchange, refused.outcome, is_unsent=False)
        else:
            error = envelope.usable_error(refused.outcome)
            self._failures.finish(link, refused.exchange, envelope.encode_error_raw(refused.exchange.id_raw, error))

    def _is_awaited(self, link: Link, exchange: Exchange) -> bool:
        """True if the request's client waits for it: it was not cancelled, and its session is not over."""
        session = link.sessions.get(exchange.sid)
        return session is not None and session.exchanges.get(exchange.key) is exchange


def _error_of(outcome: Cause | bytes) -> bytes:
    """Returns the JSON of the error in a refusal, or one that describes it."""
    if not isinstance(outcome, Cause):
        return envelope.usable_error(outcome)
    text = f"the server does not know the session, not even a new one: {describe(outcome)}"
    return error_in(outcome) or envelope.error_object(UPSTREAM_UNAVAILABLE, text)
