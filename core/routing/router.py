"""Routes requests of sessions to their servers, past the interceptors of their link.

A request meets each interceptor in the order of `interceptors.ORDER`: first those that need no server
(`receive_request`), then, once the server is ready, those that decide about what is written (`prepare`). A plain call
skips all of them (`fast_path_rules`). `Router` is the port of all sessions and links (`state/ports.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..base.errors import RemoteProtocolError
from ..base.events import Headers
from ..base.limits import Limits
from ..base.methods import HANDSHAKE_NOTIFICATIONS, MAY_ASK
from ..base.revisions import Era, features_of
from ..bridge import related_task
from ..caching.early_answers import EarlyAnswers
from ..caching.interceptor import Caching
from ..downstream.downstream import Downstream
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import set_member
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeInput, ExchangeState, Plain
from ..state.feature import Feature, TimerHandler
from ..state.interceptor import Interceptors
from ..state.link import Link, QueuedNotification, StatelessParams
from ..state.session import PendingQuestion, Session
from ..state.upstream_channels import DeleteRole, DuplexRole, UpstreamPostRole, UpstreamStreamRole
from ..state.upstream_session import UpstreamSessionState
from ..state.upstream_task import UpstreamTask
from ..subscriptions.subscriptions import Subscriptions
from ..upstream.access_filter import AccessFiltering
from ..upstream.definition_filter import DefinitionFilter
from ..upstream.filtering import NameFiltering
from ..upstream.presentation import Presentation
from ..upstream.rate_limiting import RateLimiting
from ..upstream.upstream import Upstream
from ..upstream.warm_pool import WarmProcessRole
from . import fast_path_rules
from .dispatcher import Dispatcher, is_current
from .era_adapter import EraAdapter
from .fast_path_rules import LinkWay
from .idle_stop import IdleStop
from .interceptors import in_order, interceptors_of
from .links import Links
from .passthrough import Passthrough
from .server_channels import ServerChannels
from .sharing import SerialTurn, SharedSettings
from .time_limits import ToolTimeLimits
from .tracing import TracePropagation

UPSTREAM_ROLES = (DuplexRole, UpstreamPostRole, UpstreamStreamRole, WarmProcessRole)
_ALL_ROLES = (*UPSTREAM_ROLES, DeleteRole)


class Router:
    """Routes requests, responses and notifications to servers. Implements `SessionRouter` and `LinkRouter`.

    Attributes:
        links: the links of all sessions.
        passthrough: passes large results on.
        channels: handles the events of servers' channels.
        timers: the handler of each timer of this half, by purpose.
    """

    def __init__(
        self,
        context: Context,
        downstream: Downstream,
        upstream: Upstream,
        subscriptions: Subscriptions,
        features: Sequence[Feature],
    ) -> None:
        self._context = context
        self._features = features
        self._responder = downstream.responder
        self._writer = upstream.writer
        self._resumption = upstream.resumption
        self._handshaker = handshaker = upstream.handshaker
        self._failures = upstream.failures
        self._server_messages = upstream.server_messages
        self._tool_discovery = upstream.tool_discovery
        self._server_listens = server_listens = subscriptions.server_listens
        self._era_adapter = era_adapter = EraAdapter(context, upstream, subscriptions)
        self._idle_stop = idle_stop = IdleStop(context, upstream.failures)
        time_limits = ToolTimeLimits(context, downstream.responder)
        checks = upstream.session_checks
        decisions = downstream.decisions
        early_answers = EarlyAnswers(context, downstream.responder, upstream.writer)
        self._definitions = DefinitionFilter(context, upstream.writer, handshaker.health, downstream.responder)
        own = [
            Presentation(context),
            AccessFiltering(context, downstream.responder),
            decisions,
            RateLimiting(context, handshaker.health),
            idle_stop,
            time_limits,
            SharedSettings(),
            NameFiltering(),
            era_adapter,
            self._definitions,
            Caching(context, handshaker.health),
            early_answers,
            SerialTurn(),
            TracePropagation(context),
            checks,
        ]
        ordered = in_order([*own, *(each for feature in features for each in feature.interceptors)])
        self._all = Interceptors(ordered)
        interceptors = {id: interceptors_of(plan, ordered) for id, plan in context.servers.items()}
        self.links = links = Links(context, downstream.sessions, upstream, features, interceptors, self)
        self._dispatcher = dispatcher = Dispatcher(context, upstream, subscriptions)
        self.passthrough = passthrough = Passthrough(context, downstream.responder, upstream)
        self.channels = ServerChannels(context, downstream.responder, upstream, dispatcher, passthrough, features)
        while_open = downstream.sessions.while_open
        of_links: Mapping[str, Callable[[Link], None]] = {
            "start": handshaker.handle_start_timeout,
            "probe": handshaker.handle_probe_timeout,
            "listening": handshaker.handle_listening_timeout,
            "relisten": handshaker.handle_relisten,
            "restart": handshaker.need,
            "news": server_listens.handle_change,
            "session-check": checks.handle_timeout,
            "level": era_adapter.handle_level,
            "schemas": upstream.tool_discovery.handle_schemas,
            "linger": links.handle_linger,
            "rest": idle_stop.handle_rest,
            "early lists": early_answers.handle_timeout,
        }
        self.timers: Mapping[str, TimerHandler] = {
            **{purpose: links.while_open(handle) for purpose, handle in of_links.items()},
            "resume": self._handle_resume,
            "spare": handshaker.warm_pool.handle_idle,
            "refill": self._handle_refill,
            "definitions": self._handle_definitions,
            "decision": decisions.handle_timeout,
            "limit": while_open(time_limits.handle_limit),
            "ack": while_open(subscriptions.client_listens.handle_ack),
        }

    def receive_record(self, key: str, value: bytes | None) -> None:
        """Handles a record that another replica has written, or, if `value` is None, removed."""
        self._definitions.receive_record(key, value, self.links.links.values())

    # --- Up: requests -----------------------------------------------------------------------------------------------

    def request(self, session: Session, exchange: Exchange) -> None:
        """Routes a client's request: as a plain call if it is one, else past the interceptors of its link."""
        link = self.links.by_sid[session.sid]
        if link.upstream.state is UpstreamSessionState.READY and fast_path_rules.may_go_up(link, exchange):
            self._idle_stop.restart(link)
            self._writer.write(link, exchange, exchange.params)
            return
        for receive_request in link.interceptors.receive_request:
            if receive_request(link, exchange):
                return
        self._go_on(link, exchange)

    def plain_way(
        self, session: Session, method: str, params: bytes | None, stateless_params: StatelessParams | None
    ) -> LinkWay | None:
        """Returns the way of a call on the link of its session; None if that is not ready, or the call is not plain."""
        link = self.links.by_sid.get(session.sid)
        if link is None or link.upstream.state is not UpstreamSessionState.READY:
            return None
        if link.is_pipe and (link.plan.idle_stop_s is not None or not self._has_much_room(link)):
            return None
        if link.is_plain:
            return LinkWay(self._writer, link, Plain.UNCHANGED, params)
        translation = link.translation
        crossed = None if translation is None else translation.up(link, session, method, params, stateless_params)
        return None if crossed is None else LinkWay(self._writer, link, Plain.TRANSLATED, *crossed)

    def _has_much_room(self, link: Link) -> bool:
        return self._context.unsent_bytes(link.channel) <= self._context.limits.outbox_low_bytes

    def forward(self, link: Link, exchange: Exchange, *, after: str) -> None:
        """Sends a request on that an interceptor has held back: past the interceptors after it, then up."""
        for receive_request in link.interceptors.after(after):
            if receive_request(link, exchange):
                return
        self._go_on(link, exchange)

    def _go_on(self, link: Link, exchange: Exchange) -> None:
        exchange.step(ExchangeInput.PREPARED)
        self._send_or_queue(link, exchange)

    def _send_or_queue(self, link: Link, exchange: Exchange) -> None:
        if link.upstream.state is UpstreamSessionState.READY:
            self.send(link, exchange)
        else:
            link.enqueue(exchange)
            self._handshaker.need(link)
            for receive_waiting in link.interceptors.receive_waiting:
                receive_waiting(link, exchange)

    def send(self, link: Link, exchange: Exchange) -> None:
        """Sends a request to a server that is ready, past the interceptors that prepare it."""
        for prepare in link.interceptors.prepare:
            if prepare(link, exchange):
                return
        try:
            params = self._era_adapter.params_up(link, exchange)
            mirrored = self._era_adapter.mirrored_up(link, exchange, params)
            headers = exchange.headers
            for adapt_request in link.interceptors.adapt_request:
                params, headers = adapt_request(link, exchange, params, headers)
        except RemoteProtocolError as error:
            self.finish(link, exchange, envelope.encode_error(exchange.id_raw, error.rpc_code, error.message))
            self._handshaker.advance(link, exchange)
            return
        self._writer.write(link, exchange, params, mirrored, headers)
        for receive_sent in link.interceptors.receive_sent:
            receive_sent(link, exchange)

    def resend(self, link: Link, exchange: Exchange) -> None:
        """Sends a request once more: with the answers to its server's questions, or in another form."""
        exchange.resume()
        self._send_or_queue(link, exchange)

    def repeat(self, session: Session, exchange: Exchange) -> None:
        """Sends a request of the session once more."""
        self.resend(self.links.by_sid[session.sid], exchange)

    def renegotiate(self, link: Link, exchange: Exchange, *, for_tasks: bool = False) -> None:
        """Determines the server's revision anew, since it refused the known one, and sends the exchange once more.

        Args:
            for_tasks: the server has tasks in the stateless era only, and wants the call to be one.
        """
        server_era = self._handshaker.server_eras[link.plan.id]
        server_era.forget(*Era)
        if for_tasks:
            server_era.require_tasks()
        exchange.resume()
        link.enqueue(exchange)
        reason = "it has tasks without a session only" if for_tasks else "it does not speak the revision that it did"
        self._failures.lose(link, reason)

    def read_tools(self, link: Link, exchange: Exchange) -> None:
        """Reads the server's list of tools before the exchange is sent."""
        self._tool_discovery.begin(link, exchange)

    def has_room(self, session: Session) -> bool:
        """True if messages for the session's server can be taken. HTTP clients cannot be paused, so they are refused
        otherwise."""
        link = self.links.by_sid.get(session.sid)
        return link is None or self._context.unsent_bytes(link.channel) <= self._context.limits.outbox_max_bytes

    def expect_reply(self, session: Session, exchange: Exchange) -> None:
        """Starts the reply timeout of an exchange anew."""
        if exchange.upstream_id is not None and exchange.state is ExchangeState.SENT:
            self._writer.expect_reply(self.links.by_sid[session.sid], exchange)

    # --- Up: other messages -----------------------------------------------------------------------------------------

    def notify(self, session: Session, method: str, params: bytes | None, headers: Headers) -> None:
        """Sends a client's notification to the server; queues it while the server starts, up to
        `Limits.notifications_waiting_max`."""
        link = self.links.by_sid[session.sid]
        if link.plan.owns_roots and method == "notifications/roots/list_changed":
            return  # the proxy answers `roots/list`, so the client's roots are unknown to the server
        if (link.is_stateless or session.is_stateless) and method in HANDSHAKE_NOTIFICATIONS:
            return  # a cancellation is sent by `withdraw`
        if method == "notifications/progress":
            restored = self._server_messages.restore_token(link, session, params)
            if restored is None:
                return
            params = restored
        message = envelope.encode_notification(method, params)
        if link.upstream.state is UpstreamSessionState.READY:
            self._writer.tell(link, message, headers)
        elif link.upstream.state is UpstreamSessionState.IDLE:
            self._context.note("debug", f"{method} dropped: there is no upstream session", link.plan.id)
        elif not _may_wait(message, link, self._context.limits):
            self._context.note("warning", f"{method} dropped: too many wait for the upstream", link.plan.id)
        else:
            link.enqueue(QueuedNotification(message, headers))

    def reply(self, session: Session, question: PendingQuestion, answer: Frame, headers: Headers) -> None:
        """Routes a client's response to a question: to the interceptor that asked it, or to the server."""
        call = question.exchange or question.of_task
        link = self.links.by_sid.get(session.sid) if call is None else self.links.link_of(call)
        if link is None:
            return
        if question.of_task is not None and answer.result is not None:
            answer = _with_server_task(None if link.is_stateless else question.of_task.upstream_task, answer.result)
        for receive_client_answer in link.interceptors.receive_client_answer:
            if receive_client_answer(link, session, question, answer):
                return
        server = features_of(link.upstream.revision)
        if server != session.features:
            answer = self._server_messages.restore(session, question, answer, server)
        self._server_messages.reply(link, question, answer, headers)

    def tick(self, session: Session, question: PendingQuestion, count: int) -> None:
        """Sends progress for a question of the server that still waits for its client, if the server asked for
        progress."""
        link = self.links.by_sid.get(session.sid)
        if link is not None and question.token_raw is not None and question.incarnation == link.upstream.incarnation:
            params = b'{"progressToken":%b,"progress":%d}' % (question.token_raw, count)
            self._writer.tell(link, envelope.encode_notification("notifications/progress", params))

    # --- Down -------------------------------------------------------------------------------------------------------

    def receive_response(self, link: Link, exchange: Exchange, frame: Frame) -> None:
        """Handles the server's response to a request, however it was fetched."""
        self._dispatcher.receive_answer(link, exchange, frame)

    def receive_kept(self, link: Link, exchange: Exchange, frame: Frame) -> None:
        """Handles a response that the server gave to an equal request earlier."""
        self._dispatcher.pass_down(link, exchange, frame)

    def finish(self, link: Link, exchange: Exchange, message: bytes) -> None:
        """Gives an exchange its response."""
        self._failures.finish(link, exchange, message)

    def withdraw(self, session: Session, exchange: Exchange, params: bytes | None, headers: Headers) -> None:
        """Cancels an exchange upstream, after its client has cancelled it."""
        link = self.links.link_of(exchange)
        if link is None:
            for forget in self._all.forget:
                forget(None, session, exchange)
            return
        for cancel in link.interceptors.cancel:
            cancel(link, exchange)
        for forget in link.interceptors.forget:
            forget(link, session, exchange)
        if exchange.state is ExchangeState.QUEUED:
            link.withdraw(exchange)
            if link.shared_process is not None:
                link.shared_process.withdraw(exchange)
        self._writer.expect_none(exchange)
        if exchange.state is not ExchangeState.SENT or exchange.upstream_id is None:
            return
        self._resumption.forget(link, exchange.upstream_id)
        if link.settle(exchange.upstream_id) is None:
            return
        for receive_withdrawn in link.interceptors.receive_withdrawn:
            receive_withdrawn(link, exchange)
        role = None if exchange.post is None else self._context.role_of(exchange.post)
        if isinstance(role, UpstreamPostRole):
            self._writer.receive_settled(role)
        if link.is_stateless and not link.is_pipe:
            # 2026-07-28 basic/patterns/cancellation: on HTTP, closing the stream is the cancellation.
            self._context.close(exchange.post, reason="the request was cancelled")
        elif link.upstream.state is UpstreamSessionState.READY and (
            not isinstance(role, UpstreamPostRole) or is_current(role)
        ):
            # A request of a lost session is unknown in the session after it.
            params = set_member(params or b"{}", "requestId", b"%d" % exchange.upstream_id)
            self._writer.tell(link, envelope.encode_notification("notifications/cancelled", params), headers)
        if link.shared_process is not None:
            if exchange.method in MAY_ASK:
                ttl_s = self._context.limits.cancelled_request_ttl_s
                link.shared_process.remember_cancelled(exchange, self._context.now + ttl_s)
            self._handshaker.advance(link, exchange)

    # --- Servers ----------------------------------------------------------------------------------------------------

    def lose(self, link: Link, reason: str, *, error: bytes | None = None) -> None:
        """Ends the upstream session of a link whose server is lost."""
        self._failures.lose(link, reason, error=error)

    def give_up(self, link: Link, reason: str) -> None:
        """Fails all that waits for a server that cannot be had."""
        self._failures.give_up(link, reason)

    def open_listen(self, link: Link) -> bool:
        """Subscribes with a stateless server. True if there is nothing to subscribe before requests may pass."""
        return self._server_listens.open(link)

    # --- Sessions ---------------------------------------------------------------------------------------------------

    def begin(self, session: Session, initialize: bytes) -> None:
        """Opens the link of a session that sent `initialize`, and dials its server."""
        self.links.begin(session, initialize)

    def begin_stateless(self, session: Session) -> None:
        """Opens the link of a session of a client without sessions."""
        self.links.begin_stateless(session)

    def is_used(self, session: Session) -> bool:
        """True if a feature works for the session."""
        return any(feature.is_used(session) for feature in self._features)

    def keeps_state(self, session: Session) -> bool:
        link = self.links.by_sid.get(session.sid)
        if link is None or link.is_shared or link.upstream.state is not UpstreamSessionState.READY:
            return False
        return link.is_pipe or (not link.is_stateless and link.upstream.session is not None)

    def close_session(self, session: Session) -> None:
        """Handles the coming end of a session."""
        for feature in self._features:
            feature.receive_closing(session)

    def end(self, session: Session, questions: list[PendingQuestion]) -> None:
        """Ends the links of a session that has ended."""
        self.links.end(session, questions)

    def is_live(self, sid: str) -> bool:
        """True if the session has a link."""
        return sid in self.links.by_sid

    def link_of(self, exchange: Exchange) -> Link | None:
        """Returns the link that carries a request; None if it has ended."""
        return self.links.link_of(exchange)

    def earlier_link_of(
        self, session: Session, exchange: Exchange, upstream: str, revision: str, address: str = ""
    ) -> Link:
        """Returns the link on which a task of an earlier run is polled."""
        return self.links.earlier_link_of(session, exchange, upstream, revision, address)

    def server_of(self, session: Session, exchange: Exchange) -> tuple[str, bytes | None]:
        """Returns the server of a request, and its params there."""
        return session.server, exchange.params

    def session_with(self, session: Session) -> tuple[str, str, str]:
        """Returns the upstream's `Mcp-Session-Id`, the revision of that session and the name of its address; empty
        texts if it has none."""
        link = self.links.by_sid[session.sid]
        if link.is_stateless or link.upstream.session is None:
            return "", "", ""
        address = link.plan.addresses[link.address] if link.plan.addresses else ""
        return link.upstream.session, link.upstream.revision or "", address

    def leave(self, session: Session, exchange: Exchange) -> None:
        """Leaves a server's task running when this process ends."""
        assert exchange.upstream_task is not None
        exchange.upstream_task.leave()
        if (link := self.links.link_of(exchange)) is not None:
            link.leave_tasks()

    # --- Time -------------------------------------------------------------------------------------------------------

    def _handle_refill(self, server: str) -> None:
        """Starts the spare processes that waited for those of sessions."""
        self._handshaker.warm_pool.refill(self._context.servers[server], self._handshaker.health[server])

    def _handle_resume(self, id: str, number: int) -> None:
        """Handles the end of a pause before a reply stream is resumed."""
        if (link := self.links.links.get(id)) is not None:
            self._resumption.handle_resume(link, number)

    def _handle_definitions(self, id: str, use: str) -> None:
        """Handles the end of the time for reading definitions."""
        if (link := self.links.links.get(id)) is not None:
            self._definitions.handle_timeout(link, use)


def _with_server_task(upstream_task: UpstreamTask | None, result: bytes) -> Frame:
    """Returns a client's response to a question of a task, with the related-task metadata that the server knows: that
    of its own task, or none."""
    try:
        bare = related_task.without_related(result) or b"{}"
        return Frame(result=bare if upstream_task is None else related_task.with_related(bare, upstream_task.id))
    except RemoteProtocolError as error:
        return Frame(error=envelope.error_object(error.rpc_code, error.message))


def _may_wait(message: bytes, link: Link, limits: Limits) -> bool:
    """True if there is room for a notification that waits for the upstream."""
    sizes = [len(entry.message) for entry in link.queue if isinstance(entry, QueuedNotification)]
    return (
        len(sizes) < limits.notifications_waiting_max
        and sum(sizes) + len(message) <= limits.notifications_waiting_max_bytes
    )
