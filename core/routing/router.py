"""The engine's upstream half: which link a session's wishes go to.

A link is what stands between a session and its server; sessions that share a process share a link. How one comes about
is told in `handshakes`, what is said on it in `uplink`, `hearing` and `asking`, what its channels report in
`server_channels`, how it is lost in `losses`, and what is taken up again in `resuming`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from ..base.effects import Headers
from ..base.errors import INTERNAL_ERROR, RemoteProtocolError
from ..base.methods import MAY_ASK
from ..base.plan import Kind, ServerPlan, Sharing
from ..base.revisions import LATEST_LEGACY, LEGACY, Era, features_of
from ..bridge import related_task
from ..bridge.discovery import initialize_params, introduction
from ..downstream.responder import Courier
from ..downstream.sessions import Clients
from ..input_required.deferred_questions import Deferring
from ..input_required.rounds import Rounds
from ..input_required.url_elicitation import Visits
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import set_member
from ..state.context import Desk
from ..state.exchange import Exchange, ExchangeKey
from ..state.exchange import Input as ExchangeInput
from ..state.exchange import State as ExchangeState
from ..state.link import Link, Notice, UpPostRole
from ..state.session import Ask, Session
from ..state.upstream_session import Input, State
from ..state.upstream_task import Remote
from ..subscriptions.client_listens import Listens, OwnNews, Telling
from ..subscriptions.server_listens import News
from ..tasks.augmentation import Calling
from ..tasks.local_tasks import Tasking
from ..tasks.requests import TaskVerbs
from ..tasks.store import TaskStore
from ..tasks.table import TaskTable
from ..tasks.upstream_tasks import Tasked
from ..upstream import filtering
from ..upstream.failures import Losses, Memory
from ..upstream.handshake import Adaptation, Handshakes
from ..upstream.resumption import Resuming
from ..upstream.server_messages import Asking
from ..upstream.shared_process import Crowd, Share, greeting
from ..upstream.tool_discovery import Pupil
from ..upstream.writer import Uplink
from . import fast_path_rules
from .dispatcher import Hearing, Results, is_current
from .era_adapter import Crossings
from .passthrough import Passing
from .server_channels import Folders, ServerChannels


class FileRules(Adaptation, Results, Memory, Folders, Pupil, OwnNews, Protocol):
    """What the file plane decides about messages of servers that it serves."""

    def receive_call(self, link: Link, exchange: Exchange) -> bool:
        """A request is about to go up. True if the file plane answers it, or sends it on later."""

    def prepare(self, link: Link, exchange: Exchange) -> bool:
        """A request is about to be written, to a server that is ready. True if it waits, or is answered."""

    def roots_of(self, session: Session) -> bytes:
        """The JSON result of `roots/list` in that session."""

    def close_session(self, session: Session) -> None: ...


class Servers:
    """The upstream half of the engine. It is the courier's `Upward`.

    Attributes:
        links: by their ids.
        by_sid: those of sessions, by the public names of these.
        listens: subscriptions of clients without sessions.
        channels: what is told of the channels of servers.
        passing: large answers that come on them.
    """

    def __init__(
        self,
        desk: Desk,
        clients: Clients,
        courier: Courier,
        telling: Telling,
        deferring: Deferring,
        visits: Visits,
        tasking: Tasking,
        store: TaskStore,
        table: TaskTable,
    ) -> None:
        self.links: dict[str, Link] = {}
        self._files: FileRules
        self._desk = desk
        self._clients = clients
        self._courier = courier
        self._deferring = deferring
        self.by_sid: dict[str, Link] = {}
        self._shared: dict[str, Link] = {}  # by server
        self.uplink = self._uplink = uplink = Uplink(desk)
        self._resuming = resuming = Resuming(desk)
        self.handshakes = handshakes = Handshakes(desk, clients, uplink)
        self._losses = losses = Losses(desk, clients, courier, uplink, resuming, handshakes)

        def roots_of(session: Session) -> bytes:
            return self._files.roots_of(session)

        self._asking = Asking(desk, courier, uplink, handshakes.crowds, roots_of=roots_of)
        self._rounds = Rounds(desk, courier, roots_of=roots_of)
        self._news = news = News(desk, uplink, resuming, self._asking)
        self.listens = listens = Listens(desk, uplink, telling, courier, handshakes.crowds)
        self.tasked = tasked = Tasked(desk, uplink, courier, roots_of=roots_of, need=handshakes.need)
        self.crossings = crossings = Crossings(
            desk, uplink, self._rounds, news, listens, tasked, handshakes.crowds, write=self._send_up
        )
        self._hearing = hearing = Hearing(
            desk, uplink, resuming, self._asking, handshakes, losses, crossings, news, listens, tasked
        )
        self.passing = passing = Passing(desk, courier, uplink, resuming, handshakes, losses)
        self.channels = ServerChannels(
            desk, courier, uplink, resuming, handshakes, losses, hearing, news, tasked, passing
        )
        self._calling = calling = Calling(desk, courier, tasking, crossings.schooling)
        self.verbs = listens.tasks = TaskVerbs(desk, courier, tasking, store, table, tasked, self)
        tasked.adopted, tasked.answers, tasked.ends = tasking, hearing, losses
        handshakes.tasked = losses.tasked = tasked
        crossings.calling = calling
        calling.onward = self
        tasking.remotes = self
        handshakes.losses = losses
        handshakes.forward = self._send_up
        handshakes.news = news
        handshakes.listens = listens
        losses.crossings = crossings
        losses.listens = listens
        news.readiness = handshakes
        news.listens = listens
        listens.news = news
        crossings.visits = visits
        crossings.onward = news.onward = self._rounds.onward = self
        self._due: Final[dict[str, Callable[[Link], None]]] = {
            "start": handshakes.handle_start_timeout,
            "probe": handshakes.handle_probe_timeout,
            "listening": handshakes.handle_listening_timeout,
            "relisten": handshakes.handle_relisten,
            "restart": handshakes.need,
            "news": news.handle_change,
            "level": crossings.handle_level,
            "schemas": crossings.schooling.handle_schemas,
            "linger": self._handle_linger,
            "rest": self._handle_rest,
        }

    def use(self, files: FileRules) -> None:
        """Let the file plane have its say."""
        self._files = self.handshakes.files = self._losses.files = files
        self._hearing.files = self.channels.files = files
        self.listens.files = self.crossings.schooling.files = files

    # --- From the downstream half ---------------------------------------------------------------------------------

    def begin(self, session: Session, initialize: bytes) -> None:
        plan = self._desk.servers[session.server]
        try:
            if plan.owns_roots:
                initialize = _with_roots(initialize)
            session.client = introduction(initialize)
            if plan.sharing is not Sharing.NONE:
                self._share(session, plan, Share(session, initialize))
                return
        except RemoteProtocolError as error:
            text = f"initialize: {error.message}"
            self._clients.refuse_session(session, msgspec.json.encode({"code": error.rpc_code, "message": text}))
            return
        link = Link(session.sid, plan, session.workspace, initialize, self._desk.limits)
        self._add(link, session)
        self.handshakes.dial(link)

    def begin_stateless(self, session: Session) -> None:
        """The handshake, should there be one, is made with what the first request said; it waits for that."""
        plan = self._desk.servers[session.server]
        initialize = initialize_params(session.client, server=LEGACY[LATEST_LEGACY], version=self._desk.plan.version)
        if plan.sharing is not Sharing.NONE:
            self._join(session, plan, Share(session, initialize))
            return
        if plan.owns_roots:
            initialize = _with_roots(initialize)
        link = Link(session.sid, plan, session.workspace, initialize, self._desk.limits)
        self._add(link, session)

    def _join(self, session: Session, plan: ServerPlan, share: Share) -> Link:
        link = self._shared_link(plan)
        self._desk.timers.cancel(("linger", link.id))
        self.handshakes.crowds[link.id].shares[session.sid] = share
        self._add(link, session)
        if session.is_stateless and link.upstream.state in (State.REPLAYING, State.READY):
            self.handshakes.accept_all(link)
        return link

    def _share(self, session: Session, plan: ServerPlan, share: Share) -> None:
        link = self._join(session, plan, share)
        if link.upstream.state is State.IDLE:
            self.handshakes.need(link)
        elif link.upstream.state not in (State.DIALING, State.INITIALIZING):
            self.handshakes.accept_all(link)

    def _shared_link(self, plan: ServerPlan) -> Link:
        link = self._shared.get(plan.id)
        if link is None:
            id, workspace = self._desk.mint(), self._desk.mint()
            link = Link(id, plan, workspace, greeting(self._desk.plan.version), self._desk.limits)
            self._shared[plan.id] = self.links[id] = link
            self.handshakes.crowds[id] = Crowd(link)
        return link

    def _add(self, link: Link, session: Session) -> None:
        link.sessions[session.sid] = session
        self.by_sid[session.sid] = link
        self.links[link.id] = link

    def request(self, session: Session, exchange: Exchange) -> None:
        link = self.by_sid[session.sid]
        if link.upstream.state is State.READY and fast_path_rules.may_go_up(link, exchange):
            self._rest_later(link)
            exchange.step(ExchangeInput.PREPARED)
            self._uplink.write(link, exchange, exchange.params)
            return
        if self.verbs.receive_request(link, session, exchange):
            return
        self._rest_later(link)
        if self._calling.receive_request(link, session, exchange):
            return
        crowd = self.handshakes.crowds.get(link.id)
        if crowd is not None and not link.is_stateless and self._receive_wish(link, crowd, exchange):
            return
        if link.has_files and self._files.receive_call(link, exchange):
            return
        self.forward(link, exchange)

    def _receive_wish(self, link: Link, crowd: Crowd, exchange: Exchange) -> bool:
        try:
            if not crowd.receive_wish(exchange):
                return False
        except RemoteProtocolError as error:
            message = envelope.encode_error(exchange.id_raw, error.rpc_code, error.message)
        else:
            message = envelope.encode_result(exchange.id_raw, b"{}")
        self._losses.finish(link, exchange, message)
        return True

    def has_room(self, session: Session) -> bool:
        link = self.by_sid.get(session.sid)
        return link is None or self._desk.unsent_bytes(link.channel) <= self._desk.limits.outbox_max_bytes

    def forward(self, link: Link, exchange: Exchange) -> None:
        """An exchange that is prepared goes up, or waits until the upstream is ready."""
        if link.is_filtered and (refused := filtering.refusal(link, exchange)) is not None:
            self.finish(link, exchange, refused)
            return
        exchange.step(ExchangeInput.PREPARED)
        if link.upstream.state is State.READY:
            self._send_up(link, exchange)
        else:
            link.enqueue(exchange)
            self.handshakes.need(link)

    def _send_up(self, link: Link, exchange: Exchange) -> None:
        """Write it; with serial sharing, when its turn comes."""
        if link.has_files and self._files.prepare(link, exchange):
            return
        if self.crossings.receive_request(link, exchange) or self._calling.prepare(link, exchange):
            return
        crowd = self.handshakes.crowds.get(link.id)
        if crowd is not None and link.plan.sharing is Sharing.SERIAL and exchange.method in MAY_ASK:
            if crowd.turn is not None:
                crowd.waiting[exchange] = None
                return
            crowd.turn = exchange
        try:
            params = self.crossings.params_up(link, exchange)
            mirrored = self.crossings.mirrored_up(link, exchange, params)
        except RemoteProtocolError as error:
            self.finish(link, exchange, envelope.encode_error(exchange.id_raw, error.rpc_code, error.message))
            self.handshakes.advance(link, exchange)
            return
        self._uplink.write(link, exchange, params, mirrored)
        session = link.session_of(exchange)
        if session.is_stateless:
            self._deferring.receive_sent(session, exchange)

    def resend(self, link: Link, exchange: Exchange) -> None:
        """It goes up once more, with what its server wanted to know."""
        if exchange.state is ExchangeState.ASKING:
            exchange.step(ExchangeInput.PREPARED)
        exchange.upstream_id = None
        if link.upstream.state is State.READY:
            self._send_up(link, exchange)
        else:
            link.enqueue(exchange)
            self.handshakes.need(link)

    def renegotiate(self, link: Link, exchange: Exchange, *, for_tasks: bool = False) -> None:
        """Its server does not speak the revision that it did: find out what it speaks, and send it once more.

        Args:
            for_tasks: it has tasks in the other era, and wants the call to be one.
        """
        verdict = self.handshakes.verdicts[link.plan.id]
        verdict.forget(*Era)
        verdict.has_stateless_tasks = verdict.has_stateless_tasks or for_tasks
        exchange.upstream_id = None
        link.enqueue(exchange)
        reason = "it has tasks without a session only" if for_tasks else "it does not speak the revision that it did"
        self._losses.lose(link, reason)

    def tick(self, session: Session, ask: Ask, count: int) -> None:
        link = self.by_sid.get(session.sid)
        if link is not None and ask.token_raw is not None and ask.incarnation == link.upstream.incarnation:
            params = b'{"progressToken":%b,"progress":%d}' % (ask.token_raw, count)
            self._uplink.tell(link, envelope.encode_notification("notifications/progress", params))

    def repeat(self, session: Session, exchange: Exchange) -> None:
        self.resend(self.by_sid[session.sid], exchange)

    def expect_reply(self, session: Session, exchange: Exchange) -> None:
        if exchange.upstream_id is not None and exchange.state is ExchangeState.SENT:
            self._uplink.expect_reply(self.by_sid[session.sid], exchange)

    def learn(self, link: Link, exchange: Exchange) -> None:
        """The file plane wants to know more of a tool before it is called."""
        self.crossings.schooling.begin(link, exchange)

    def finish(self, link: Link, exchange: Exchange, message: bytes) -> None:
        """The file plane gives an exchange its answer."""
        self._losses.finish(link, exchange, message)

    def withdraw(self, session: Session, exchange: Exchange, params: bytes | None, headers: Headers) -> None:
        self._files.forget(exchange)
        link = self.way_of(exchange)
        if link is not None and exchange.remote is not None:
            self.tasked.cancel(link, exchange)
        self.crossings.forget(link, session, exchange)
        if link is None:
            return
        crowd = self.handshakes.crowds.get(link.id)
        if exchange.state is ExchangeState.QUEUED:
            if exchange in link.queue:
                link.queue.remove(exchange)
            if crowd is not None:
                crowd.waiting.pop(exchange, None)
        self._uplink.expect_none(exchange)
        if exchange.state is not ExchangeState.SENT or exchange.upstream_id is None:
            return
        self._resuming.forget(link, exchange.upstream_id)
        if link.pending.pop(exchange.upstream_id, None) is None:
            return
        if exchange.is_augmented:
            self.tasked.expect_orphan(link, exchange)
        role = None if exchange.post is None else self._desk.role_of(exchange.post)
        if isinstance(role, UpPostRole):
            self._uplink.receive_settled(role)
        if link.is_stateless and not link.is_pipe:
            # 2026-07-28 basic/patterns/cancellation: on HTTP, closing the stream is the cancellation.
            self._desk.close(exchange.post, reason="the request was cancelled")
        elif link.upstream.state is State.READY and (not isinstance(role, UpPostRole) or is_current(role)):
            # Of a session that is lost, the one after it knows nothing.
            params = set_member(params or b"{}", "requestId", b"%d" % exchange.upstream_id)
            self._uplink.tell(link, envelope.encode_notification("notifications/cancelled", params), headers)
        if crowd is not None:
            if exchange.method in MAY_ASK:
                crowd.remember_ghost(exchange, self._desk.now + self._desk.limits.ghost_timeout_s)
            self.handshakes.advance(link, exchange)

    def notify(self, session: Session, method: str, params: bytes | None, headers: Headers) -> None:
        link = self.by_sid[session.sid]
        if link.plan.owns_roots and method == "notifications/roots/list_changed":
            return  # its roots are not the client's
        if link.is_stateless:
            return  # such a server knows no notification but one, which is not sent from here
        if method == "notifications/progress":
            restored = self._asking.restore_token(session, params)
            if restored is None:
                return
            params = restored
        message = envelope.encode_notification(method, params)
        if link.upstream.state is State.READY:
            self._uplink.tell(link, message, headers)
        elif link.upstream.state is State.IDLE:
            self._desk.note("debug", f"{method} dropped: there is no upstream session", link.plan.id)
        elif sum(isinstance(entry, Notice) for entry in link.queue) >= self._desk.limits.notices_waiting_max:
            self._desk.note("warning", f"{method} dropped: too many wait for the upstream", link.plan.id)
        else:
            link.enqueue(Notice(message, headers))

    def reply(self, session: Session, ask: Ask, answer: Frame, headers: Headers) -> None:
        call = ask.exchange or ask.of_task
        link = self.by_sid.get(session.sid) if call is None else self.way_of(call)
        if link is None:
            return
        if ask.of_task is not None and answer.result is not None:
            answer = _renamed(None if link.is_stateless else ask.of_task.remote, answer.result)
        asker = ask.exchange
        if asker is not None and asker.remote is not None and ask.number in asker.remote.open:
            self.tasked.asking.receive_answer(link, ask.number, asker, answer)
            return
        if asker is not None and (asker.round is not None or not session.is_stateless):
            self._rounds.receive_answer(link, ask.number, asker, answer)
            return
        server = features_of(link.upstream.revision)
        if server != session.features:
            answer = self._asking.restore(session, ask, answer, server)
        self._asking.reply(link, ask, answer, headers)

    def end(self, session: Session, asks: list[Ask]) -> None:
        link = self.by_sid.pop(session.sid, None)
        for lent in [other for other in self.links.values() if other.is_lent and session.sid in other.sessions]:
            self._end(lent, "session over")
        self._files.close_session(session)
        if link is None:
            return
        if link.is_shared:
            self._leave(link, session, asks)
        else:
            self._end(link, "session over")
            if link.children == 0:
                self._files.sweep(session)

    def _leave(self, link: Link, session: Session, asks: list[Ask]) -> None:
        """One of those that share a link is gone: nothing of it may stay behind, and nobody else notice."""
        refusal = msgspec.json.encode({"code": INTERNAL_ERROR, "message": "the client is gone"})
        for ask in asks:
            self._asking.reply(link, ask, Frame(error=refusal), ())
        del link.sessions[session.sid]
        self._news.receive_change(link)
        for uri in self.handshakes.crowds[link.id].leave(session):
            link.upstream.forget_subscription(uri)
            if link.upstream.state is State.READY and not link.is_stateless:
                params = msgspec.json.encode({"uri": uri})
                self._uplink.run(link, "unsubscribe", "resources/unsubscribe", params)
        if link.sessions:
            return
        if link.upstream.state is State.IDLE:
            self._end(link, "nobody uses it")
        else:
            linger_s = link.plan.idle_stop_s or self._desk.limits.shared_linger_s
            self._desk.timers.set(("linger", link.id), self._desk.now + linger_s, "shared process without sessions")

    def _handle_linger(self, link: Link) -> None:
        """Nobody has used it for a while."""
        if not link.sessions:
            self._end(link, "nobody uses it")

    def _handle_rest(self, link: Link) -> None:
        """It has not been asked anything for a while."""
        if link.upstream.state is not State.READY:
            return
        asks = any(session.asks for session in link.sessions.values())
        if link.pending or link.queue or asks or link.is_awaited or link.remotes:
            self._rest_later(link)
        else:
            self._losses.rest(link)

    def _rest_later(self, link: Link) -> None:
        if link.plan.kind is Kind.PIPE and link.plan.idle_stop_s is not None:
            self._desk.timers.set(("rest", link.id), self._desk.now + link.plan.idle_stop_s, "idle server process")

    # --- Orders of an operator ----------------------------------------------------------------------------------------

    def kind_of(self, id: str) -> str:
        return self._desk.servers[id].kind.value

    def start_server(self, id: str) -> None:
        """Let it run, whatever has been, and start what needs no client: a shared process, or the spare ones."""
        plan, health = self._desk.servers[id], self.handshakes.health[id]
        health.receive_order(is_stopped=False)
        if plan.sharing is not Sharing.NONE:
            link = self._shared_link(plan)
            if link.upstream.state is State.IDLE:
                self.handshakes.dial(link)
        self.handshakes.nursery.refill(plan, health)

    def stop_server(self, id: str) -> None:
        """End what runs. Requests under way learn that their fate is unknown, later ones that it is stopped."""
        self.handshakes.health[id].receive_order(is_stopped=True)
        self.handshakes.nursery.let_go(id)
        for link in [link for link in self.links.values() if link.plan.id == id]:
            self._losses.lose(link, "it was stopped by order")
            if link.is_shared and not link.sessions and link.id in self.links:
                self._end(link, "it was stopped by order")

    def stop(self) -> None:
        """No session is left, and none will come."""
        for link in list(self.links.values()):
            self._end(link, "the proxy is shutting down")
        self.handshakes.nursery.let_go()

    def _end(self, link: Link, reason: str) -> None:
        """Let go of the server."""
        del self.links[link.id]
        if link.is_shared:
            del self._shared[link.plan.id]
            del self.handshakes.crowds[link.id]
        self._losses.cancel_timers(link)
        upstream = link.upstream
        is_told = upstream.state is not State.IDLE and self._losses.say_farewell(link)
        upstream.step(Input.CLOSE)
        self._losses.leave(link, reason)
        self._losses.leave_stream(link, reason, is_told=is_told)
        link.pending.clear()
        self._resuming.forget_all(link)
        self._losses.close_posts(link, reason)

    # --- Time -------------------------------------------------------------------------------------------------------

    def handle_timeout(self, purpose: str, id: str) -> None:
        """Something that a link waited for is due, if there still is such a link."""
        if (link := self.links.get(id)) is not None:
            self._due[purpose](link)

    def handle_look(self, session: Session, key: ExchangeKey) -> None:
        exchange = session.exchanges.get(key)
        link = None if exchange is None else self.way_of(exchange)
        if link is not None and exchange is not None:
            self.tasked.handle_look(link, exchange)

    # --- Tasks ------------------------------------------------------------------------------------------------------

    def is_live(self, sid: str) -> bool:
        return sid in self.by_sid

    def way_of(self, exchange: Exchange) -> Link | None:
        """The link that a call goes by."""
        return self.by_sid.get(exchange.sid) if exchange.link is None else self.links.get(exchange.link)

    def way_back(self, session: Session, exchange: Exchange, upstream: str, revision: str) -> Link:
        """The link by which a task of an earlier run is asked for: in the session that it was begun in, if it was in
        one, for there are servers that know it by that only. One that has forgotten the session is asked in a new one.
        """
        own = self.by_sid[session.sid]
        if not upstream:
            return own
        lent = [link for link in self.links.values() if link.is_lent and session.sid in link.sessions]
        link = next((link for link in lent if link.upstream.session == upstream), None)
        if link is None:
            link = Link(self._desk.mint(), own.plan, session.workspace, own.upstream.initialize, self._desk.limits)
            link.is_lent = True
            link.sessions[session.sid] = session
            self.links[link.id] = link
            self.handshakes.go_on(link, upstream, revision)
        exchange.link = link.id
        return link

    def session_with(self, session: Session) -> tuple[str, str]:
        link = self.by_sid[session.sid]
        if link.is_stateless or link.upstream.session is None:
            return "", ""
        return link.upstream.session, link.upstream.revision or ""

    def is_http(self, server: str) -> bool:
        return self._desk.servers[server].kind is Kind.HTTP

    def leave(self, session: Session, exchange: Exchange) -> None:
        assert exchange.remote is not None
        exchange.remote.is_left = True
        if (link := self.way_of(exchange)) is not None:
            link.is_left = True

    def handle_round(self, session: Session, key: ExchangeKey) -> None:
        if (link := self.by_sid.get(session.sid)) is not None:
            self._rounds.handle_pause(link, key)

    def handle_ack(self, session: Session, key: ExchangeKey) -> None:
        self.listens.handle_ack(session, key)

    def handle_resume(self, id: str, number: int) -> None:
        if (link := self.links.get(id)) is not None:
            self._resuming.handle_resume(link, number)


def _renamed(remote: Remote | None, result: bytes) -> Frame:
    """A client's answer to a question of a task: it names that as the server knows it, if it is one there."""
    try:
        bare = related_task.without_related(result) or b"{}"
        return Frame(result=bare if remote is None else related_task.with_related(bare, remote.id))
    except RemoteProtocolError as error:
        return Frame(error=envelope.error_object(error.rpc_code, error.message))


def _with_roots(initialize: bytes) -> bytes:
    """The client's initialize params, declaring roots: with a file plane they are its session's own folders."""
    capabilities = envelope.member_of(initialize, "capabilities")
    if capabilities is None or not capabilities.startswith(b"{"):
        capabilities = b"{}"
    return set_member(initialize, "capabilities", set_member(capabilities, "roots", b"{}"))
