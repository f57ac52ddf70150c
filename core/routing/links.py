"""The links between sessions and servers: how they begin and end.

Each session has a link, or shares one with the other sessions of its server. An operator may start and stop servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from ..base.errors import INTERNAL_ERROR, INVALID_PARAMS, OVERLOADED, RemoteProtocolError
from ..base.plan import ServerPlan, Sharing
from ..base.revisions import LATEST_LEGACY, LEGACY, MODERN
from ..bridge.discovery import initialize_params, introduction
from ..downstream.sessions import Sessions
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import set_member
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.feature import Feature
from ..state.interceptor import Interceptors
from ..state.link import Link
from ..state.ports import LinkRouter
from ..state.session import PendingQuestion, Session
from ..state.shared_process import Member, SharedProcess, shared_initialize_params
from ..state.upstream_session import UpstreamSessionInput, UpstreamSessionState
from ..subscriptions import filters
from ..upstream.roots import with_roots
from ..upstream.upstream import Upstream


class Links:
    """All links.

    Args:
        interceptors: those of each server, by its id.
        router: routes the requests of all links.

    Attributes:
        links: all links, by their ids.
        by_sid: the links of sessions, by the sessions' public names.
    """

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        upstream: Upstream,
        features: Sequence[Feature],
        interceptors: Mapping[str, Interceptors],
        router: LinkRouter,
    ) -> None:
        self.links: dict[str, Link] = {}
        self.by_sid: dict[str, Link] = {}
        self._shared: dict[tuple[str, str], Link] = {}  # by server and principal
        self._context = context
        self._sessions = sessions
        self._writer = upstream.writer
        self._resumption = upstream.resumption
        self._handshaker = upstream.handshaker
        self._failures = upstream.failures
        self._server_messages = upstream.server_messages
        self._features = features
        self._interceptors = interceptors
        self._router = router

    def link_of(self, exchange: Exchange) -> Link | None:
        """Returns the link that carries a request; None if it has ended."""
        return self.by_sid.get(exchange.sid) if exchange.link is None else self.links.get(exchange.link)

    def while_open(self, handle: Callable[[Link], None]) -> Callable[[str], None]:
        """Returns a timer handler that calls `handle` with the link, and does nothing once that has ended."""

        def handle_if_open(id: str) -> None:
            if (link := self.links.get(id)) is not None:
                handle(link)

        return handle_if_open

    # --- Begin ------------------------------------------------------------------------------------------------------

    def begin(self, session: Session, initialize: bytes) -> None:
        """Opens a link for a session that sent `initialize`, and dials its server. A malformed `initialize` is
        refused."""
        plan = self._context.servers[session.server]
        try:
            limit = self._context.limits.initialize_size_max_bytes
            if len(initialize) > limit:
                text = f"got params of {len(initialize)} bytes, expected at most {limit}"
                raise RemoteProtocolError(text, rpc_code=INVALID_PARAMS)
            if not session.room.take(2 * len(initialize)):  # the link keeps it, and the session what is read of it
                raise RemoteProtocolError("open sessions keep too many bytes: try again later", rpc_code=OVERLOADED)
            if plan.owns_roots:
                initialize = with_roots(initialize)
            session.introduce(introduction(initialize))
            if session.client.revision in MODERN:  # it has no initialize, so a server that repeats it would agree to it
                initialize = set_member(initialize, "protocolVersion", msgspec.json.encode(LATEST_LEGACY))
            if plan.sharing is not Sharing.NONE:
                self._join_and_start(session, plan, Member(session, initialize))
                return
        except RemoteProtocolError as error:
            text = f"initialize: {error.message}"
            self._sessions.refuse_session(session, msgspec.json.encode({"code": error.rpc_code, "message": text}))
            return
        link = self._new(session.sid, plan, session.workspace, initialize, session.principal)
        self._add(link, session)
        self._handshaker.dial(link)

    def begin_stateless(self, session: Session) -> None:
        """Opens a link for a session of a client without sessions. The server is dialled with the first request.
        `initialize`, should the server need it, is made from the client's description in that request."""
        plan, proxy = self._context.servers[session.server], self._context.plan
        initialize = initialize_params(
            session.client, server=LEGACY[LATEST_LEGACY], name=proxy.name, version=proxy.version
        )
        if plan.sharing is not Sharing.NONE:
            self._join(session, plan, Member(session, initialize))
            return
        if plan.owns_roots:
            initialize = with_roots(initialize)
        self._add(self._new(session.sid, plan, session.workspace, initialize, session.principal), session)

    def _join(self, session: Session, plan: ServerPlan, member: Member) -> Link:
        link = self._shared_link(plan, principal=session.principal)
        assert link.shared_process is not None
        self._context.timers.cancel(("linger", link.id))
        link.shared_process.join(member)
        self._add(link, session)
        if session.is_stateless and link.upstream.state in (UpstreamSessionState.REPLAYING, UpstreamSessionState.READY):
            self._handshaker.accept_all(link)
        if link.early is not None and link.early.is_presumed:
            self._handshaker.accept_all(link)
        return link

    def _join_and_start(self, session: Session, plan: ServerPlan, member: Member) -> None:
        link = self._join(session, plan, member)
        if link.upstream.state is UpstreamSessionState.IDLE:
            self._handshaker.need(link)
        elif link.upstream.state not in (UpstreamSessionState.DIALING, UpstreamSessionState.INITIALIZING):
            self._handshaker.accept_all(link)
            filters.renew_later(self._context, link)

    def _shared_link(self, plan: ServerPlan, *, principal: str) -> Link:
        principal = "" if plan.shares_with_everyone else principal
        link = self._shared.get((plan.id, principal))
        if link is None:
            id, workspace = self._context.mint(), self._context.mint()
            initialize = shared_initialize_params(self._context.plan.name, self._context.plan.version)
            link = self._new(id, plan, workspace, initialize, principal, shared_process=SharedProcess(principal))
            self._shared[plan.id, principal] = self.links[id] = link
        return link

    def _new(
        self,
        id: str,
        plan: ServerPlan,
        workspace: str,
        initialize: bytes,
        principal: str,
        *,
        shared_process: SharedProcess | None = None,
        is_lent: bool = False,
    ) -> Link:
        return Link(
            id,
            plan,
            workspace,
            initialize,
            self._context.limits,
            router=self._router,
            interceptors=self._interceptors[plan.id],
            shared_process=shared_process,
            is_lent=is_lent,
            logs_in_as=principal if plan.logs_in_callers else "",
        )

    def _add(self, link: Link, session: Session) -> None:
        link.attach(session)
        self.by_sid[session.sid] = link
        self.links[link.id] = link

    def earlier_link_of(
        self, session: Session, exchange: Exchange, upstream: str, revision: str, address: str = ""
    ) -> Link:
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
            initialize = own.upstream.initialize
            link = self._new(
                self._context.mint(), own.plan, session.workspace, initialize, session.principal, is_lent=True
            )
            link.attach(session)
            self.links[link.id] = link
            self._handshaker.go_on(link, upstream, revision, address)
        exchange.go_by(link.id)
        return link

    # --- Ends -------------------------------------------------------------------------------------------------------

    def end(self, session: Session, questions: list[PendingQuestion]) -> None:
        """Ends the links of a session that has ended. A shared link stays for the other sessions."""
        link = self.by_sid.pop(session.sid, None)
        for lent in [other for other in self.links.values() if other.is_lent and session.sid in other.sessions]:
            self._end(lent, "session over")
        for feature in self._features:
            feature.receive_closed(session)
        if link is None:
            return
        if link.is_shared:
            self._leave(link, session, questions)
        else:
            self._end(link, "session over")
            if link.children == 0:
                for feature in self._features:
                    feature.receive_left(session)

    def _leave(self, link: Link, session: Session, questions: list[PendingQuestion]) -> None:
        """Removes a session from a shared link: answers its questions, and ends its subscriptions, if no other session
        needs them."""
        refusal = msgspec.json.encode({"code": INTERNAL_ERROR, "message": "the client is gone"})
        for question in questions:
            self._server_messages.reply(link, question, Frame(error=refusal), ())
        link.detach(session)
        filters.renew_later(self._context, link)
        assert link.shared_process is not None
        for uri in link.shared_process.leave(session):
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

    def handle_linger(self, link: Link) -> None:
        """Ends a shared process that no session has used for a while."""
        if not link.sessions:
            self._end(link, "nobody uses it")

    def stop(self) -> None:
        """Ends all links. No session is left, and none will come."""
        for link in list(self.links.values()):
            self._end(link, "the proxy is shutting down")
        self._handshaker.warm_pool.let_go()

    def _end(self, link: Link, reason: str) -> None:
        """Ends a link: sends DELETE for its upstream session, if it has one, and closes its channels."""
        del self.links[link.id]
        if link.is_shared:
            assert link.shared_process is not None
            del self._shared[link.plan.id, link.shared_process.principal]
        self._failures.cancel_timers(link)
        upstream = link.upstream
        is_told = upstream.state is not UpstreamSessionState.IDLE and self._failures.send_delete(link)
        self._handshaker.leave(link)
        upstream.step(UpstreamSessionInput.CLOSE)
        self._failures.leave(link, reason)
        self._failures.leave_stream(link, reason, is_told=is_told)
        link.settle_all()
        self._resumption.forget_all(link)
        self._failures.close_posts(link, reason)

    # --- Orders of an operator ----------------------------------------------------------------------------------------

    def start_server(self, id: str) -> None:
        """Lets a server run, whatever has happened, and starts what needs no client: a shared process, or the spare
        ones."""
        plan, health = self._context.servers[id], self._handshaker.health[id]
        health.receive_order(is_stopped=False)
        if (addresses := self._handshaker.addresses.get(id)) is not None:
            addresses.receive_order()
        if plan.sharing is not Sharing.NONE and not plan.logs_in_callers:
            link = self._shared_link(plan, principal="")
            if link.upstream.state is UpstreamSessionState.IDLE:
                self._handshaker.dial(link)
        self._handshaker.warm_pool.receive_order(id)
        self._handshaker.warm_pool.refill(plan, health)

    def stop_server(self, id: str) -> None:
        """Stops a server. Requests under way fail with an unknown outcome, later ones because it is stopped."""
        self._handshaker.health[id].receive_order(is_stopped=True)
        self._handshaker.warm_pool.let_go(id)
        for link in [link for link in self.links.values() if link.plan.id == id]:
            self._failures.lose(link, "it was stopped by order")
            if link.is_shared and not link.sessions and link.id in self.links:
                self._end(link, "it was stopped by order")
