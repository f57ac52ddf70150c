"""The engine's upstream half: which link a session's wishes go to, and what the channels of servers report.

A link is what stands between a session and its server; sessions that share a process share a link. How one comes about
is told in `handshakes`, what is said on it in `uplink`, `hearing` and `asking`, how it is lost in `losses`, and what is
taken up again in `resuming`.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from . import jsonrpc, visibility
from .asking import Asking
from .clients import Clients
from .courier import Courier
from .credentials import handshake_error_of, is_denied
from .desk import Desk
from .effects import Cause, Connected, End, Headers, Primed, Sweep
from .endings import NO_CONTENT, denies_session, describe
from .errors import INTERNAL_ERROR, RemoteProtocolError
from .exchange import Exchange
from .exchange import Input as ExchangeInput
from .exchange import State as ExchangeState
from .handshakes import Adaptation, Handshakes
from .hearing import Hearing, Results, UpRole, is_current, related_of
from .ids import ChannelId
from .jsonrpc import Frame
from .links import ChildRole, Errand, FarewellRole, Link, Notice, UpPostRole, UpStreamRole
from .losses import Losses, Memory
from .nursery import SpareRole
from .plan import Kind, ServerPlan, Sharing
from .resuming import Resuming
from .rewrite import members, set_member
from .session import Ask, Session
from .sharing import MAY_ASK, Crowd, Share, greeting
from .uplink import Uplink
from .upstream import Input, State


class FileRules(Adaptation, Results, Memory, Protocol):
    """What the file plane decides about messages of servers that it serves."""

    def receive_call(self, link: Link, exchange: Exchange) -> bool:
        """A request is about to go up. True if the file plane answers it, or sends it on later."""

    def roots_of(self, session: Session) -> bytes:
        """The JSON result of `roots/list` in that session."""

    def close_session(self, session: Session) -> None: ...

    def sweep(self, session: Session) -> None:
        """The session is over and its process, if it had one, is gone."""


class Servers:
    """The upstream half of the engine. It is the courier's `Upward`.

    Attributes:
        links: by their ids.
    """

    def __init__(self, desk: Desk, clients: Clients, courier: Courier) -> None:
        self.links: dict[str, Link] = {}
        self._files: FileRules
        self._desk = desk
        self._clients = clients
        self._courier = courier
        self._by_sid: dict[str, Link] = {}
        self._shared: dict[str, Link] = {}  # by server
        self._uplink = uplink = Uplink(desk)
        self._resuming = Resuming(desk)
        self.handshakes = handshakes = Handshakes(desk, clients, uplink)
        self._losses = losses = Losses(desk, clients, courier, uplink, self._resuming, handshakes)
        self._asking = Asking(
            desk, courier, uplink, handshakes.crowds, roots_of=lambda session: self._files.roots_of(session)
        )
        self._hearing = Hearing(desk, uplink, self._resuming, self._asking, handshakes, losses)
        handshakes.losses = losses
        handshakes.forward = self._send_up

    def use(self, files: FileRules) -> None:
        """Let the file plane have its say."""
        self._files = self.handshakes.files = self._losses.files = self._hearing.files = files

    # --- From the downstream half ---------------------------------------------------------------------------------

    def begin(self, session: Session, initialize: bytes) -> None:
        plan = self._desk.servers[session.server]
        try:
            if plan.sharing is not Sharing.NONE:
                self._share(session, plan, Share(session, initialize))
                return
            if plan.owns_roots:
                initialize = _with_roots(initialize)
            else:
                members(initialize)
        except RemoteProtocolError as error:
            text = f"initialize: {error.message}"
            self._clients.refuse_session(session, msgspec.json.encode({"code": error.rpc_code, "message": text}))
            return
        link = Link(session.sid, plan, session.workspace, initialize, self._desk.limits)
        self._add(link, session)
        self.handshakes.dial(link)

    def _share(self, session: Session, plan: ServerPlan, share: Share) -> None:
        link = self._shared_link(plan)
        self._desk.timers.cancel(("linger", link.id))
        self.handshakes.crowds[link.id].shares[session.sid] = share
        self._add(link, session)
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
        self._by_sid[session.sid] = link
        self.links[link.id] = link

    def request(self, session: Session, exchange: Exchange) -> None:
        link = self._by_sid[session.sid]
        self._rest_later(link)
        crowd = self.handshakes.crowds.get(link.id)
        if crowd is not None and self._receive_wish(link, crowd, exchange):
            return
        if link.plan.has_files and self._files.receive_call(link, exchange):
            return
        self.forward(link, exchange)

    def _receive_wish(self, link: Link, crowd: Crowd, exchange: Exchange) -> bool:
        try:
            if not crowd.receive_wish(exchange):
                return False
        except RemoteProtocolError as error:
            message = jsonrpc.encode_error(exchange.id_raw, error.rpc_code, error.message)
        else:
            message = jsonrpc.encode_result(exchange.id_raw, b"{}")
        self._losses.finish(link, exchange, message)
        return True

    def has_room(self, session: Session) -> bool:
        link = self._by_sid.get(session.sid)
        return link is None or self._desk.unsent_bytes(link.channel) <= self._desk.limits.outbox_max_bytes

    def forward(self, link: Link, exchange: Exchange) -> None:
        """An exchange that is prepared goes up, or waits until the upstream is ready."""
        if (refused := visibility.refusal(link, exchange)) is not None:
            self.finish(link, exchange, refused)
            return
        exchange.step(ExchangeInput.PREPARED)
        if link.upstream.state is State.READY:
            self._send_up(link, exchange)
        else:
            link.queue.append(exchange)
            self.handshakes.need(link)

    def _send_up(self, link: Link, exchange: Exchange) -> None:
        """Write it; with serial sharing, when its turn comes."""
        crowd = self.handshakes.crowds.get(link.id)
        if crowd is not None and link.plan.sharing is Sharing.SERIAL and exchange.method in MAY_ASK:
            if crowd.turn is not None:
                crowd.waiting[exchange] = None
                return
            crowd.turn = exchange
        self._uplink.write(link, exchange)

    def finish(self, link: Link, exchange: Exchange, message: bytes) -> None:
        """The file plane gives an exchange its answer."""
        self._losses.finish(link, exchange, message)

    def withdraw(self, session: Session, exchange: Exchange, params: bytes | None, headers: Headers) -> None:
        self._files.forget(exchange)
        link = self._by_sid.get(session.sid)
        if link is None:
            return
        crowd = self.handshakes.crowds.get(link.id)
        if exchange.state is ExchangeState.QUEUED:
            if exchange in link.queue:
                link.queue.remove(exchange)
            if crowd is not None:
                crowd.waiting.pop(exchange, None)
        if exchange.state is not ExchangeState.SENT or exchange.upstream_id is None:
            return
        self._uplink.expect_none(exchange)
        self._resuming.forget(link, exchange.upstream_id)
        if link.pending.pop(exchange.upstream_id, None) is None:
            return
        if exchange.post is not None:
            role = self._desk.role_of(exchange.post)
            if isinstance(role, UpPostRole):
                self._uplink.receive_settled(role)
        if link.upstream.state is State.READY:
            params = set_member(params or b"{}", "requestId", b"%d" % exchange.upstream_id)
            self._uplink.tell(link, jsonrpc.encode_notification("notifications/cancelled", params), headers)
        if crowd is not None:
            if exchange.method in MAY_ASK:
                crowd.remember_ghost(exchange, self._desk.now + self._desk.limits.ghost_timeout_s)
            self.handshakes.advance(link, exchange)

    def notify(self, session: Session, method: str, params: bytes | None, headers: Headers) -> None:
        link = self._by_sid[session.sid]
        if link.plan.owns_roots and method == "notifications/roots/list_changed":
            return  # its roots are not the client's
        if method == "notifications/progress":
            restored = self._asking.restore_token(session, params)
            if restored is None:
                return
            params = restored
        message = jsonrpc.encode_notification(method, params)
        if link.upstream.state is State.READY:
            self._uplink.tell(link, message, headers)
        elif link.upstream.state is State.IDLE:
            self._desk.note("debug", f"{method} dropped: there is no upstream session", link.plan.id)
        elif sum(isinstance(entry, Notice) for entry in link.queue) >= self._desk.limits.notices_waiting_max:
            self._desk.note("warning", f"{method} dropped: too many wait for the upstream", link.plan.id)
        else:
            link.queue.append(Notice(message, headers))

    def reply(self, session: Session, ask: Ask, answer: Frame, headers: Headers) -> None:
        link = self._by_sid.get(session.sid)
        if link is not None:
            self._asking.reply(link, ask, answer, headers)

    def end(self, session: Session, asks: list[Ask]) -> None:
        link = self._by_sid.pop(session.sid, None)
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
        for uri in self.handshakes.crowds[link.id].leave(session):
            link.upstream.forget_subscription(uri)
            if link.upstream.state is State.READY:
                params = msgspec.json.encode({"uri": uri})
                self._uplink.run(link, "unsubscribe", "resources/unsubscribe", params)
        if link.sessions:
            return
        if link.upstream.state is State.IDLE:
            self._end(link, "nobody uses it")
        else:
            linger_s = link.plan.idle_stop_s or self._desk.limits.shared_linger_s
            self._desk.timers.set(("linger", link.id), self._desk.now + linger_s, "shared process without sessions")

    def handle_linger(self, id: str) -> None:
        """Nobody has used it for a while."""
        link = self.links.get(id)
        if link is not None and not link.sessions:
            self._end(link, "nobody uses it")

    def handle_rest(self, id: str) -> None:
        """It has not been asked anything for a while."""
        link = self.links.get(id)
        if link is None or link.upstream.state is not State.READY:
            return
        asks = any(session.asks for session in link.sessions.values())
        if link.pending or link.queue or asks or link.upstream.has_subscriptions:
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
        if upstream.state is not State.IDLE:
            self._losses.say_farewell(link)
        upstream.step(Input.CLOSE)
        self._desk.close(link.channel, reason=reason)
        self._desk.close(link.stream, reason=reason)
        link.pending.clear()
        self._resuming.forget_all(link)
        self._losses.close_posts(link, reason)

    # --- Time -------------------------------------------------------------------------------------------------------

    def handle_start_timeout(self, id: str) -> None:
        if (link := self.links.get(id)) is not None:
            self.handshakes.handle_start_timeout(link)

    def handle_listening_timeout(self, id: str) -> None:
        if (link := self.links.get(id)) is not None:
            self.handshakes.receive_listening(link)

    def handle_relisten(self, id: str) -> None:
        if (link := self.links.get(id)) is not None:
            self.handshakes.handle_relisten(link)

    def handle_restart(self, id: str) -> None:
        if (link := self.links.get(id)) is not None:
            self.handshakes.need(link)

    def handle_resume(self, id: str, number: int) -> None:
        if (link := self.links.get(id)) is not None:
            self._resuming.handle_resume(link, number)

    # --- Channels -------------------------------------------------------------------------------------------------

    def receive_open(self, role: UpRole | SpareRole, opening: Connected | Primed) -> None:
        """A channel that was dialled is open, or can be resumed."""
        if isinstance(role, SpareRole):
            self.handshakes.nursery.receive_connected(role)
        elif isinstance(opening, Primed):
            related = related_of(role)
            if related is not None:
                self._courier.prime(role.link.session_of(related), related)
        else:
            self._receive_connected(role, opening)

    def _receive_connected(self, role: UpRole, opening: Connected) -> None:
        link = role.link
        if isinstance(role, ChildRole):
            self.handshakes.receive_connected(link)
        elif isinstance(role, UpPostRole):
            role.session = opening.session
            role.has_begun = True
            if role.is_confirmation and is_current(role) and link.upstream.state is State.CONFIRMING:
                self._uplink.receive_settled(role)  # it was to say 202 and said 200: taken is taken
                self.handshakes.receive_confirmed(link)
        elif is_current(role):
            link.listen_failures = 0
            link.has_listened = True
            self.handshakes.receive_listening(link)

    def receive_message(self, role: UpRole | SpareRole, channel: ChannelId, message: bytes) -> None:
        if isinstance(role, SpareRole):
            self._desk.note("debug", "a spare process spoke before it was spoken to: dropped", role.server)
        else:
            self._hearing.receive_message(role, channel, message)

    def receive_close(self, role: UpRole | SpareRole | FarewellRole, channel: ChannelId, cause: Cause) -> None:
        if isinstance(role, FarewellRole):
            self._losses.receive_farewell_close(role, channel, cause)
            return
        if isinstance(role, SpareRole):
            self.handshakes.nursery.receive_close(role, cause, self.handshakes.health[role.server])
            if self._desk.servers[role.server].has_files:
                self._desk.order(Sweep(workspace=role.workspace))
            return
        link = role.link
        if isinstance(role, ChildRole):
            self._receive_child_close(link, role, channel, cause)
        elif isinstance(role, UpStreamRole):
            self._receive_stream_close(link, role, channel, cause)
        else:
            self._uplink.receive_close(role)
            if link.upstream.state is not State.CLOSED:
                self._receive_post_close(link, role, cause)

    def _receive_child_close(self, link: Link, role: ChildRole, channel: ChannelId, cause: Cause) -> None:
        link.children -= role.is_process
        self.handshakes.nursery.children -= role.is_process
        if link.upstream.state is State.CLOSED:
            if role.is_process and link.children == 0 and link.plan.has_files:
                self._files.sweep(link.session)
        elif link.channel == channel:
            link.channel = None
            if cause.stale and link.upstream.state is State.DIALING and not role.is_repeated:
                self.handshakes.join(link, is_repeated=True)
                return
            reason = cause.detail or ("its process is gone" if role.is_process else describe(cause))
            # There is nothing to speak to then, which an operator mends in another way than one who speaks no MCP.
            has_started = not role.is_process or cause.end is not End.UNREACHABLE
            stage = "" if has_started else "start"
            self._losses.lose(link, reason, error=handshake_error_of(link, cause), stage=stage)

    def _receive_stream_close(self, link: Link, role: UpStreamRole, channel: ChannelId, cause: Cause) -> None:
        if link.stream != channel:
            return
        limits = self._desk.limits
        link.stream = None
        if link.upstream.state in (State.CLOSED, State.IDLE) or role.incarnation != link.upstream.incarnation:
            return
        if cause.stale and not role.is_repeated:
            self.handshakes.listen(link, is_repeated=True)
            return
        # A server without streams may refuse each with 404 or 400: one that has granted it before has forgotten us.
        if link.has_listened and denies_session(cause, names_session=role.names_session):
            self._losses.lose(link, "it forgot the session", is_forgotten=True)
            return
        self.handshakes.receive_listening(link)
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
                self._receive_errand_close(link, entry, cause)
            return
        elif role.is_confirmation and is_current(role) and link.upstream.state is State.CONFIRMING:
            if cause.end is End.DONE:
                self.handshakes.receive_confirmed(link)
            else:
                self._losses.lose(link, describe(cause), error=handshake_error_of(link, cause))
            return
        elif role.number is None and cause.end is not End.DONE:
            self._desk.note("warning", f"a notification or answer did not arrive: {describe(cause)}", link.plan.id)
        if is_lost and is_current(role):
            self._losses.lose(link, "it forgot the session", is_forgotten=True)
        elif link.queue and link.upstream.state is State.READY:
            self.handshakes.flush(link)
        elif link.queue:
            self.handshakes.need(link)

    def _receive_errand_close(self, link: Link, errand: Errand, cause: Cause) -> None:
        if errand.purpose == "replay":
            self.handshakes.receive_replayed(link)
        elif errand.purpose == "initialize" and not self.handshakes.fall_back(link, cause):
            self._losses.lose(link, describe(cause), error=handshake_error_of(link, cause))


def _with_roots(initialize: bytes) -> bytes:
    """The client's initialize params, declaring roots: with a file plane they are its session's own folders."""
    capabilities = jsonrpc.member_of(initialize, "capabilities")
    if capabilities is None or not capabilities.startswith(b"{"):
        capabilities = b"{}"
    return set_member(initialize, "capabilities", set_member(capabilities, "roots", b"{}"))
