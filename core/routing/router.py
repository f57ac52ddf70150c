"""The upstream half of the engine: routes each request to a link, and builds the parts that work on links.

A link stands between a session and its server; sessions that share a process share a link. Connections are made in
`handshake`, messages written in `writer`, and messages of servers read in `dispatcher` and `server_messages`.
`server_channels` handles the events of their channels, `failures` the loss of servers, and `resumption` the resumption
of their streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from ..base.errors import INTERNAL_ERROR, RemoteProtocolError
from ..base.events import Headers
from ..base.methods import MAY_ASK
from ..base.plan import Kind, ServerPlan, Sharing
from ..base.revisions import LATEST_LEGACY, LEGACY, Era, features_of
from ..bridge import related_task
from ..bridge.discovery import initialize_params, introduction
from ..downstream.responder import Responder
from ..downstream.sessions import Sessions
from ..input_required.deferred_questions import DeferredQuestions
from ..input_required.rounds import Rounds
from ..input_required.url_elicitation import UrlElicitation
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import set_member
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeInput, ExchangeKey, ExchangeState
from ..state.link import Link, QueuedNotification
from ..state.session import PendingQuestion, Session
from ..state.upstream_channels import UpstreamPostRole
from ..state.upstream_session import UpstreamSessionInput, UpstreamSessionState
from ..state.upstream_task import UpstreamTask
from ..subscriptions.client_listens import ClientListens, NotificationSender, OwnNotifications
from ..subscriptions.server_listens import ServerListens
from ..tasks.augmentation import TaskAugmentation
from ..tasks.local_tasks import LocalTasks
from ..tasks.requests import TaskRequests
from ..tasks.store import TaskStore
from ..tasks.table import TaskTable
from ..tasks.upstream_tasks import UpstreamTasks
from ..upstream import filtering
from ..upstream.failures import ExchangeRecords, Failures
from ..upstream.handshake import HandshakeAdapter, Handshaker
from ..upstream.resumption import Resumption
from ..upstream.server_messages import ServerMessages
from ..upstream.shared_process import Member, SharedProcess, shared_initialize_params
from ..upstream.tool_discovery import ToolListener
from ..upstream.writer import UpstreamWriter
from . import fast_path_rules
from .dispatcher import Dispatcher, FileResults, is_current
from .era_adapter import EraAdapter
from .passthrough import Passthrough
from .server_channels import ServerChannels, WorkspaceSweeper


class FileRules(
    HandshakeAdapter, FileResults, ExchangeRecords, WorkspaceSweeper, ToolListener, OwnNotifications, Protocol
):
    """The file plane's decisions about messages of the servers it handles."""

    def receive_call(self, link: Link, exchange: Exchange) -> bool:
        """Handles a request that is about to be sent up. True if the file plane answers it, or sends it on later."""

    def prepare(self, link: Link, exchange: Exchange) -> bool:
        """Handles a request that is about to be written to a server that is ready. True if it waits, or is answered."""

    def roots_of(self, session: Session) -> bytes:
        """Returns the JSON result of `roots/list` in that session."""

    def close_session(self, session: Session) -> None:
        """Handles the end of a session."""


class Router:
    """The upstream half of the engine. The responder sees it as `SessionRouter`.

    Attributes:
        links: all links, by their ids.
        by_sid: the links of sessions, by the sessions' public names.
        writer: writes messages to servers.
        handshaker: makes connections to servers.
        client_listens: the subscriptions of clients without sessions.
        upstream_tasks: the tasks of servers.
        era_adapter: translates between eras.
        passthrough: passes large results on.
        channels: handles the events of servers' channels.
        task_requests: answers the task requests of clients.
    """

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        responder: Responder,
        notification_sender: NotificationSender,
        deferred_questions: DeferredQuestions,
        url_elicitation: UrlElicitation,
        local_tasks: LocalTasks,
        store: TaskStore,
        table: TaskTable,
    ) -> None:
        self.links: dict[str, Link] = {}
        self._files: FileRules
        self._context = context
        self._sessions = sessions
        self._responder = responder
        self._deferring = deferred_questions
        self.by_sid: dict[str, Link] = {}
        self._shared: dict[str, Link] = {}  # by server
        self.writer = self._writer = writer = UpstreamWriter(context)
        self._resumption = resumption = Resumption(context)
        self.handshaker = handshaker = Handshaker(context, sessions, writer)
        self._failures = failures = Failures(context, sessions, responder, writer, resumption, handshaker)

        def roots_of(session: Session) -> bytes:
            return self._files.roots_of(session)

        self._server_messages = ServerMessages(
            context, responder, writer, handshaker.shared_processes, roots_of=roots_of
        )
        self._rounds = Rounds(context, responder, roots_of=roots_of)
        self._server_listens = server_listens = ServerListens(context, writer, resumption, self._server_messages)
        self.client_listens = client_listens = ClientListens(
            context, writer, notification_sender, responder, handshaker.shared_processes
        )
        self.upstream_tasks = upstream_tasks = UpstreamTasks(
            context, writer, responder, roots_of=roots_of, need=handshaker.need
        )
        self.era_adapter = era_adapter = EraAdapter(
            context,
            writer,
            self._rounds,
            server_listens,
            client_listens,
            upstream_tasks,
            handshaker.shared_processes,
            write=self._send_up,
        )
        self._dispatcher = dispatcher = Dispatcher(
            context,
            writer,
            resumption,
            self._server_messages,
            handshaker,
            failures,
            era_adapter,
            server_listens,
            client_listens,
            upstream_tasks,
        )
        self.passthrough = passthrough = Passthrough(context, responder, writer, resumption, handshaker, failures)
        self.channels = ServerChannels(
            context,
            responder,
            writer,
            resumption,
            handshaker,
            failures,
            dispatcher,
            server_listens,
            upstream_tasks,
            passthrough,
        )
        self._augmentation = augmentation = TaskAugmentation(
            context, responder, local_tasks, era_adapter.tool_discovery
        )
        self.task_requests = client_listens.tasks = TaskRequests(
            context, responder, local_tasks, store, table, upstream_tasks, self
        )
        upstream_tasks.adopted, upstream_tasks.answers, upstream_tasks.ends = local_tasks, dispatcher, failures
        handshaker.upstream_tasks = failures.upstream_tasks = upstream_tasks
        era_adapter.augmentation = augmentation
        augmentation.onward = self
        local_tasks.upstream_tasks = self
        handshaker.failures = failures
        handshaker.forward = self._send_up
        handshaker.server_listens = server_listens
        handshaker.listens = client_listens
        failures.era_adapter = era_adapter
        failures.listens = client_listens
        server_listens.readiness = handshaker
        server_listens.listens = client_listens
        client_listens.server_listens = server_listens
        era_adapter.visits = url_elicitation
        era_adapter.onward = server_listens.onward = self._rounds.onward = self
        self._due: Final[dict[str, Callable[[Link], None]]] = {
            "start": handshaker.handle_start_timeout,
            "probe": handshaker.handle_probe_timeout,
            "listening": handshaker.handle_listening_timeout,
            "relisten": handshaker.handle_relisten,
            "restart": handshaker.need,
            "news": server_listens.handle_change,
            "level": era_adapter.handle_level,
            "schemas": era_adapter.tool_discovery.handle_schemas,
            "linger": self._handle_linger,
            "rest": self._handle_rest,
        }

    def use(self, files: FileRules) -> None:
        """Connects the file plane. Called once, before any input."""
        self._files = self.handshaker.files = self._failures.files = files
        self._dispatcher.files = self.channels.files = files
        self.client_listens.files = self.era_adapter.tool_discovery.files = files

    # --- Orders of the downstream half ----------------------------------------------------------------------------

    def begin(self, session: Session, initialize: bytes) -> None:
        """Opens a link for a session that sent `initialize`, and dials its server. A malformed `initialize` is
        refused."""
        plan = self._context.servers[session.server]
        try:
            if plan.owns_roots:
                initialize = _with_roots(initialize)
            session.client = introduction(initialize)
            if plan.sharing is not Sharing.NONE:
                self._join_and_start(session, plan, Member(session, initialize))
                return
        except RemoteProtocolError as error:
            text = f"initialize: {error.message}"
            self._sessions.refuse_session(session, msgspec.json.encode({"code": error.rpc_code, "message": text}))
            return
        link = Link(session.sid, plan, session.workspace, initialize, self._context.limits)
        self._add(link, session)
        self.handshaker.dial(link)

    def begin_stateless(self, session: Session) -> None:
        """Opens a link for a session of a client without sessions. The server is dialled with the first request.
        `initialize`, should the server need it, is made from the client's description in that request."""
        plan = self._context.servers[session.server]
        initialize = initialize_params(session.client, server=LEGACY[LATEST_LEGACY], version=self._context.plan.version)
        if plan.sharing is not Sharing.NONE:
            self._join(session, plan, Member(session, initialize))
            return
        if plan.owns_roots:
            initialize = _with_roots(initialize)
        link = Link(session.sid, plan, session.workspace, initialize, self._context.limits)
        self._add(link, session)

    def _join(self, session: Session, plan: ServerPlan, member: Member) -> Link:
        link = self._shared_link(plan)
        self._context.timers.cancel(("linger", link.id))
        self.handshaker.shared_processes[link.id].members[session.sid] = member
        self._add(link, session)
        if session.is_stateless and link.upstream.state in (UpstreamSessionState.REPLAYING, UpstreamSessionState.READY):
            self.handshaker.accept_all(link)
        return link

    def _join_and_start(self, session: Session, plan: ServerPlan, member: Member) -> None:
        link = self._join(session, plan, member)
        if link.upstream.state is UpstreamSessionState.IDLE:
            self.handshaker.need(link)
        elif link.upstream.state not in (UpstreamSessionState.DIALING, UpstreamSessionState.INITIALIZING):
            self.handshaker.accept_all(link)

    def _shared_link(self, plan: ServerPlan) -> Link:
        link = self._shared.get(plan.id)
        if link is None:
            id, workspace = self._context.mint(), self._context.mint()
            link = Link(id, plan, workspace, shared_initialize_params(self._context.plan.version), self._context.limits)
            self._shared[plan.id] = self.links[id] = link
            self.handshaker.shared_processes[id] = SharedProcess(link)
        return link

    def _add(self, link: Link, session: Session) -> None:
        link.sessions[session.sid] = session
        self.by_sid[session.sid] = link
        self.links[link.id] = link

    def request(self, session: Session, exchange: Exchange) -> None:
        """Routes a client's request: as a plain call if it is one, else through the task rules, the settings of a
        shared process, and the file plane."""
        link = self.by_sid[session.sid]
        if link.upstream.state is UpstreamSessionState.READY and fast_path_rules.may_go_up(link, exchange):
            self._rest_later(link)
            exchange.step(ExchangeInput.PREPARED)
            self._writer.write(link, exchange, exchange.params)
            return
        if self.task_requests.receive_request(link, session, exchange):
            return
        self._rest_later(link)
        if self._augmentation.receive_request(link, session, exchange):
            return
        shared_process = self.handshaker.shared_processes.get(link.id)
        if (
            shared_process is not None
            and not link.is_stateless
            and self._receive_setting(link, shared_process, exchange)
        ):
            return
        if link.has_files and self._files.receive_call(link, exchange):
            return
        self.forward(link, exchange)

    def _receive_setting(self, link: Link, shared_process: SharedProcess, exchange: Exchange) -> bool:
        try:
            if not shared_process.receive_setting(exchange):
                return False
        except RemoteProtocolError as error:
            message = envelope.encode_error(exchange.id_raw, error.rpc_code, error.message)
        else:
            message = envelope.encode_result(exchange.id_raw, b"{}")
        self._failures.finish(link, exchange, message)
        return True

    def has_room(self, session: Session) -> bool:
        """True if messages for the session's server can be taken. HTTP clients cannot be paused, so they are refused
        otherwise."""
        link = self.by_sid.get(session.sid)
        return link is None or self._context.unsent_bytes(link.channel) <= self._context.limits.outbox_max_bytes

    def forward(self, link: Link, exchange: Exchange) -> None:
        """Sends a prepared exchange up, or queues it until the upstream is ready."""
        if link.is_filtered and (refused := filtering.refusal(link, exchange)) is not None:
            self.finish(link, exchange, refused)
            return
        exchange.step(ExchangeInput.PREPARED)
        if link.upstream.state is UpstreamSessionState.READY:
            self._send_up(link, exchange)
        else:
            link.enqueue(exchange)
            self.handshaker.need(link)

    def _send_up(self, link: Link, exchange: Exchange) -> None:
        """Sends the request; with `sharing: serial`, queues it until the one before is answered."""
        if link.has_files and self._files.prepare(link, exchange):
            return
        if self.era_adapter.receive_request(link, exchange) or self._augmentation.prepare(link, exchange):
            return
        shared_process = self.handshaker.shared_processes.get(link.id)
        if shared_process is not None and link.plan.sharing is Sharing.SERIAL and exchange.method in MAY_ASK:
            if shared_process.turn is not None:
                shared_process.waiting[exchange] = None
                return
            shared_process.turn = exchange
        try:
            params = self.era_adapter.params_up(link, exchange)
            mirrored = self.era_adapter.mirrored_up(link, exchange, params)
        except RemoteProtocolError as error:
            self.finish(link, exchange, envelope.encode_error(exchange.id_raw, error.rpc_code, error.message))
            self.handshaker.advance(link, exchange)
            return
        self._writer.write(link, exchange, params, mirrored)
        session = link.session_of(exchange)
        if session.is_stateless:
            self._deferring.receive_sent(session, exchange)

    def resend(self, link: Link, exchange: Exchange) -> None:
        """Sends an exchange once more, with the answers to its server's questions."""
        if exchange.state is ExchangeState.ASKING:
            exchange.step(ExchangeInput.PREPARED)
        exchange.upstream_id = None
        if link.upstream.state is UpstreamSessionState.READY:
            self._send_up(link, exchange)
        else:
            link.enqueue(exchange)
            self.handshaker.need(link)

    def renegotiate(self, link: Link, exchange: Exchange, *, for_tasks: bool = False) -> None:
        """Determines the server's revision anew, since it refused the known one, and sends the exchange once more.

        Args:
            for_tasks: the server has tasks in the stateless era only, and wants the call to be one.
        """
        server_era = self.handshaker.server_eras[link.plan.id]
        server_era.forget(*Era)
        server_era.has_stateless_tasks = server_era.has_stateless_tasks or for_tasks
        exchange.upstream_id = None
        link.enqueue(exchange)
        reason = "it has tasks without a session only" if for_tasks else "it does not speak the revision that it did"
        self._failures.lose(link, reason)

    def tick(self, session: Session, question: PendingQuestion, count: int) -> None:
        """Sends progress for a question of the server that still waits for its client, if the server asked for
        progress."""
        link = self.by_sid.get(session.sid)
        if link is not None and question.token_raw is not None and question.incarnation == link.upstream.incarnation:
            params = b'{"progressToken":%b,"progress":%d}' % (question.token_raw, count)
            self._writer.tell(link, envelope.encode_notification("notifications/progress", params))

    def repeat(self, session: Session, exchange: Exchange) -> None:
        """Sends an exchange of the session once more."""
        self.resend(self.by_sid[session.sid], exchange)

    def expect_reply(self, session: Session, exchange: Exchange) -> None:
        """Starts the reply timeout of an exchange anew."""
        if exchange.upstream_id is not None and exchange.state is ExchangeState.SENT:
            self._writer.expect_reply(self.by_sid[session.sid], exchange)

    def learn(self, link: Link, exchange: Exchange) -> None:
        """Reads the server's list of tools before the exchange is sent: the file plane must know more of its tool."""
        self.era_adapter.tool_discovery.begin(link, exchange)

    def finish(self, link: Link, exchange: Exchange, message: bytes) -> None:
        """Gives an exchange its response."""
        self._failures.finish(link, exchange, message)

    def withdraw(self, session: Session, exchange: Exchange, params: bytes | None, headers: Headers) -> None:
        """Cancels an exchange upstream, after its client has cancelled it."""
        self._files.forget(exchange)
        link = self.link_of(exchange)
        if link is not None and exchange.upstream_task is not None:
            self.upstream_tasks.cancel(link, exchange)
        self.era_adapter.forget(link, session, exchange)
        if link is None:
            return
        shared_process = self.handshaker.shared_processes.get(link.id)
        if exchange.state is ExchangeState.QUEUED:
            if exchange in link.queue:
                link.queue.remove(exchange)
            if shared_process is not None:
                shared_process.waiting.pop(exchange, None)
        self._writer.expect_none(exchange)
        if exchange.state is not ExchangeState.SENT or exchange.upstream_id is None:
            return
        self._resumption.forget(link, exchange.upstream_id)
        if link.pending.pop(exchange.upstream_id, None) is None:
            return
        if exchange.is_augmented:
            self.upstream_tasks.expect_orphan(link, exchange)
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
        if shared_process is not None:
            if exchange.method in MAY_ASK:
                shared_process.remember_cancelled(
                    exchange, self._context.now + self._context.limits.cancelled_request_ttl_s
                )
            self.handshaker.advance(link, exchange)

    def notify(self, session: Session, method: str, params: bytes | None, headers: Headers) -> None:
        """Sends a client's notification to the server; queues it while the server starts, up to
        `Limits.notifications_waiting_max`."""
        link = self.by_sid[session.sid]
        if link.plan.owns_roots and method == "notifications/roots/list_changed":
            return  # the proxy answers `roots/list`, so the client's roots are unknown to the server
        if link.is_stateless:
            return  # a stateless server knows no notification but `notifications/cancelled`, which `withdraw` sends
        if method == "notifications/progress":
            restored = self._server_messages.restore_token(session, params)
            if restored is None:
                return
            params = restored
        message = envelope.encode_notification(method, params)
        if link.upstream.state is UpstreamSessionState.READY:
            self._writer.tell(link, message, headers)
        elif link.upstream.state is UpstreamSessionState.IDLE:
            self._context.note("debug", f"{method} dropped: there is no upstream session", link.plan.id)
        elif (
            sum(isinstance(entry, QueuedNotification) for entry in link.queue)
            >= self._context.limits.notifications_waiting_max
        ):
            self._context.note("warning", f"{method} dropped: too many wait for the upstream", link.plan.id)
        else:
            link.enqueue(QueuedNotification(message, headers))

    def reply(self, session: Session, question: PendingQuestion, answer: Frame, headers: Headers) -> None:
        """Routes a client's response to a question: to a task of the server, to a round of questions, or to the server
        itself."""
        call = question.exchange or question.of_task
        link = self.by_sid.get(session.sid) if call is None else self.link_of(call)
        if link is None:
            return
        if question.of_task is not None and answer.result is not None:
            answer = _with_server_task(None if link.is_stateless else question.of_task.upstream_task, answer.result)
        asker = question.exchange
        if asker is not None and asker.upstream_task is not None and question.number in asker.upstream_task.open:
            self.upstream_tasks.asking.receive_answer(link, question.number, asker, answer)
            return
        if asker is not None and (asker.round is not None or not session.is_stateless):
            self._rounds.receive_answer(link, question.number, asker, answer)
            return
        server = features_of(link.upstream.revision)
        if server != session.features:
            answer = self._server_messages.restore(session, question, answer, server)
        self._server_messages.reply(link, question, answer, headers)

    def end(self, session: Session, questions: list[PendingQuestion]) -> None:
        """Ends the links of a session that has ended. A shared link stays for the other sessions."""
        link = self.by_sid.pop(session.sid, None)
        for lent in [other for other in self.links.values() if other.is_lent and session.sid in other.sessions]:
            self._end(lent, "session over")
        self._files.close_session(session)
        if link is None:
            return
        if link.is_shared:
            self._leave(link, session, questions)
        else:
            self._end(link, "session over")
            if link.children == 0:
                self._files.sweep(session)

    def _leave(self, link: Link, session: Session, questions: list[PendingQuestion]) -> None:
        """Removes a session from a shared link: answers its questions, and ends its subscriptions, if no other session
        needs them."""
        refusal = msgspec.json.encode({"code": INTERNAL_ERROR, "message": "the client is gone"})
        for question in questions:
            self._server_messages.reply(link, question, Frame(error=refusal), ())
        del link.sessions[session.sid]
        self._server_listens.receive_change(link)
        for uri in self.handshaker.shared_processes[link.id].leave(session):
            link.upstream.forget_subscription(uri)
            if link.upstream.state is UpstreamSessionState.READY and not link.is_stateless:
                params = msgspec.json.encode({"uri": uri})
                self._writer.run(link, "unsubscribe", "resources/unsubscribe", params)
        if link.sessions:
            return
        if link.upstream.state is UpstreamSessionState.IDLE:
            self._end(link, "nobody uses it")
        else:
            linger_s = link.plan.idle_stop_s or self._context.limits.shared_linger_s
            self._context.timers.set(
                ("linger", link.id), self._context.now + linger_s, "shared process without sessions"
            )

    def _handle_linger(self, link: Link) -> None:
        """Ends a shared process that no session has used for a while."""
        if not link.sessions:
            self._end(link, "nobody uses it")

    def _handle_rest(self, link: Link) -> None:
        """Stops a process that had no request for a while, unless something still depends on it."""
        if link.upstream.state is not UpstreamSessionState.READY:
            return
        questions = any(session.questions for session in link.sessions.values())
        if link.pending or link.queue or questions or link.is_awaited or link.upstream_tasks:
            self._rest_later(link)
        else:
            self._failures.rest(link)

    def _rest_later(self, link: Link) -> None:
        if link.plan.kind is Kind.PIPE and link.plan.idle_stop_s is not None:
            self._context.timers.set(
                ("rest", link.id), self._context.now + link.plan.idle_stop_s, "idle server process"
            )

    # --- Orders of an operator ----------------------------------------------------------------------------------------

    def kind_of(self, id: str) -> str:
        """Returns the kind of a server, as the plan spells it."""
        return self._context.servers[id].kind.value

    def start_server(self, id: str) -> None:
        """Lets a server run, whatever has happened, and starts what needs no client: a shared process, or the spare
        ones."""
        plan, health = self._context.servers[id], self.handshaker.health[id]
        health.receive_order(is_stopped=False)
        if plan.sharing is not Sharing.NONE:
            link = self._shared_link(plan)
            if link.upstream.state is UpstreamSessionState.IDLE:
                self.handshaker.dial(link)
        self.handshaker.warm_pool.refill(plan, health)

    def stop_server(self, id: str) -> None:
        """Stops a server. Requests under way fail with an unknown outcome, later ones because it is stopped."""
        self.handshaker.health[id].receive_order(is_stopped=True)
        self.handshaker.warm_pool.let_go(id)
        for link in [link for link in self.links.values() if link.plan.id == id]:
            self._failures.lose(link, "it was stopped by order")
            if link.is_shared and not link.sessions and link.id in self.links:
                self._end(link, "it was stopped by order")

    def stop(self) -> None:
        """Ends all links. No session is left, and none will come."""
        for link in list(self.links.values()):
            self._end(link, "the proxy is shutting down")
        self.handshaker.warm_pool.let_go()

    def _end(self, link: Link, reason: str) -> None:
        """Ends a link: sends DELETE for its upstream session, if it has one, and closes its channels."""
        del self.links[link.id]
        if link.is_shared:
            del self._shared[link.plan.id]
            del self.handshaker.shared_processes[link.id]
        self._failures.cancel_timers(link)
        upstream = link.upstream
        is_told = upstream.state is not UpstreamSessionState.IDLE and self._failures.send_delete(link)
        upstream.step(UpstreamSessionInput.CLOSE)
        self._failures.leave(link, reason)
        self._failures.leave_stream(link, reason, is_told=is_told)
        link.pending.clear()
        self._resumption.forget_all(link)
        self._failures.close_posts(link, reason)

    # --- Time -------------------------------------------------------------------------------------------------------

    def handle_timeout(self, purpose: str, id: str) -> None:
        """Handles a timer of a link, if the link still exists."""
        if (link := self.links.get(id)) is not None:
            self._due[purpose](link)

    def handle_look(self, session: Session, key: ExchangeKey) -> None:
        """Handles the timeout of a `tasks/get` to a server."""
        exchange = session.exchanges.get(key)
        link = None if exchange is None else self.link_of(exchange)
        if link is not None and exchange is not None:
            self.upstream_tasks.handle_look(link, exchange)

    # --- Tasks ------------------------------------------------------------------------------------------------------

    def is_live(self, sid: str) -> bool:
        """True if the session has a link."""
        return sid in self.by_sid

    def link_of(self, exchange: Exchange) -> Link | None:
        """Returns the link that carries a call; None if it has ended."""
        return self.by_sid.get(exchange.sid) if exchange.link is None else self.links.get(exchange.link)

    def earlier_link_of(self, session: Session, exchange: Exchange, upstream: str, revision: str) -> Link:
        """Returns the link on which a task of an earlier run is polled.

        It uses the upstream session that the task was begun in, if there was one, because some servers know a task in
        that session only. A server that has forgotten the session is asked in a new one.
        """
        own = self.by_sid[session.sid]
        if not upstream:
            return own
        lent = [link for link in self.links.values() if link.is_lent and session.sid in link.sessions]
        link = next((link for link in lent if link.upstream.session == upstream), None)
        if link is None:
            link = Link(
                self._context.mint(), own.plan, session.workspace, own.upstream.initialize, self._context.limits
            )
            link.is_lent = True
            link.sessions[session.sid] = session
            self.links[link.id] = link
            self.handshaker.go_on(link, upstream, revision)
        exchange.link = link.id
        return link

    def session_with(self, session: Session) -> tuple[str, str]:
        """Returns the upstream's `Mcp-Session-Id` and the revision of that session; empty texts if it has none."""
        link = self.by_sid[session.sid]
        if link.is_stateless or link.upstream.session is None:
            return "", ""
        return link.upstream.session, link.upstream.revision or ""

    def is_http(self, server: str) -> bool:
        """True if the server is reached over Streamable HTTP."""
        return self._context.servers[server].kind is Kind.HTTP

    def leave(self, session: Session, exchange: Exchange) -> None:
        """Leaves a server's task running when this process ends."""
        assert exchange.upstream_task is not None
        exchange.upstream_task.is_left = True
        if (link := self.link_of(exchange)) is not None:
            link.is_left = True

    def handle_round(self, session: Session, key: ExchangeKey) -> None:
        """Handles the end of a pause before a request is repeated."""
        if (link := self.by_sid.get(session.sid)) is not None:
            self._rounds.handle_pause(link, key)

    def handle_ack(self, session: Session, key: ExchangeKey) -> None:
        """Handles the time limit for the acknowledgment of a subscription."""
        self.client_listens.handle_ack(session, key)

    def handle_resume(self, id: str, number: int) -> None:
        """Handles the end of a pause before a reply stream is resumed."""
        if (link := self.links.get(id)) is not None:
            self._resumption.handle_resume(link, number)


def _with_server_task(upstream_task: UpstreamTask | None, result: bytes) -> Frame:
    """Returns a client's response to a question of a task, with the related-task metadata that the server knows: that
    of its own task, or none."""
    try:
        bare = related_task.without_related(result) or b"{}"
        return Frame(result=bare if upstream_task is None else related_task.with_related(bare, upstream_task.id))
    except RemoteProtocolError as error:
        return Frame(error=envelope.error_object(error.rpc_code, error.message))


def _with_roots(initialize: bytes) -> bytes:
    """Returns the params of `initialize` with the capability `roots` declared: with a file plane, the proxy answers
    `roots/list` with the session's own folders."""
    capabilities = envelope.member_of(initialize, "capabilities")
    if capabilities is None or not capabilities.startswith(b"{"):
        capabilities = b"{}"
    return set_member(initialize, "capabilities", set_member(capabilities, "roots", b"{}"))
