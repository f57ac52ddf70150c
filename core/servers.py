"""The engine's upstream half: handshakes, requests under ids of our own, and what servers say.

One link belongs to one downstream session. When its upstream is lost, what provably did not run is sent again to a new
one, what reads only is too, and every other open request ends in an error that says its outcome is unknown.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from . import jsonrpc
from .asking import Asking
from .clients import Clients
from .courier import Courier
from .desk import Desk
from .effects import Cause, Connected, Delete, End, Join, Listen, Spawn
from .endings import denies_session, describe, error_in, may_have_run
from .errors import INTERNAL_ERROR, OUTCOME_UNKNOWN, UPSTREAM_UNAVAILABLE, RemoteProtocolError
from .exchange import Exchange
from .exchange import Input as ExchangeInput
from .exchange import State as ExchangeState
from .ids import ChannelId
from .jsonrpc import Frame
from .links import ChildRole, Errand, FarewellRole, Link, UpPostRole, UpStreamRole
from .plan import Kind
from .resuming import Resuming
from .rewrite import members, set_member
from .session import Ask, Session
from .uplink import Uplink
from .upstream import Input, State
from .wire.oversize import owner_of

NOISE_NOTED: Final = 8
"""So many lines of noise are noted one by one."""

TAIL_BYTES: Final = 4096
"""How much of an unreadable message's end is searched for its id."""


class FileRules(Protocol):
    """What the file plane decides about messages of servers that it serves."""

    def receive_call(self, link: Link, exchange: Exchange) -> bool:
        """A request is about to go up. True if the file plane answers it, or sends it on later."""

    def receive_result(self, link: Link, exchange: Exchange, result: bytes) -> bool:
        """A result came. True if the file plane answers it, now or later."""

    def adapt_handshake(self, link: Link, result: bytes) -> bytes:
        """The `initialize` result the client is shown."""

    def roots_of(self, session: Session) -> bytes:
        """The JSON result of `roots/list` in that session."""

    def forget(self, exchange: Exchange) -> None:
        """The exchange is over, however it ended."""

    def close_session(self, session: Session) -> None: ...

    def sweep(self, session: Session) -> None:
        """The session is over and its process, if it had one, is gone."""


class Servers:
    """The upstream half of the engine. It is the courier's `Upward`."""

    def __init__(self, desk: Desk, clients: Clients, courier: Courier) -> None:
        self.files: FileRules
        self.links: dict[str, Link] = {}
        self._desk = desk
        self._clients = clients
        self._courier = courier
        self._children = 0  # of all links
        self._uplink = uplink = Uplink(desk)
        self._resuming = Resuming(desk)
        self._asking = Asking(desk, courier, uplink, lambda session: self.files.roots_of(session))

    # --- From the downstream half ---------------------------------------------------------------------------------

    def begin(self, session: Session, initialize: bytes) -> None:
        plan = self._desk.servers[session.server]
        try:
            if plan.owns_roots:
                initialize = _with_roots(initialize)
            else:
                members(initialize)
        except RemoteProtocolError as error:
            text = f"initialize: {error.message}"
            self._clients.refuse_session(session, msgspec.json.encode({"code": error.rpc_code, "message": text}))
            return
        link = Link(session, plan, initialize, self._desk.limits)
        self.links[session.sid] = link
        self._dial(link)

    def request(self, session: Session, exchange: Exchange) -> None:
        link = self.links[session.sid]
        if link.plan.has_files and self.files.receive_call(link, exchange):
            return
        self.forward(link, exchange)

    def has_room(self, session: Session) -> bool:
        link = self.links.get(session.sid)
        return link is None or self._desk.unsent_bytes(link.channel) <= self._desk.limits.outbox_max_bytes

    def forward(self, link: Link, exchange: Exchange) -> None:
        """An exchange that is prepared goes up, or waits until the upstream is ready."""
        exchange.step(ExchangeInput.PREPARED)
        if link.upstream.state is State.READY:
            self._uplink.write(link, exchange)
        else:
            link.queue.append(exchange)
            self._need(link)

    def withdraw(self, session: Session, exchange: Exchange, reason: bytes | None) -> None:
        self.files.forget(exchange)
        link = self.links.get(session.sid)
        if link is None:
            return
        if exchange.state is ExchangeState.QUEUED and exchange in link.queue:
            link.queue.remove(exchange)
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
            params = b'{"requestId":%d' % exchange.upstream_id
            params += (b',"reason":' + reason if reason is not None else b"") + b"}"
            self._uplink.tell(link, jsonrpc.encode_notification("notifications/cancelled", params))

    def notify(self, session: Session, method: str, params: bytes | None) -> None:
        link = self.links[session.sid]
        if link.plan.owns_roots and method == "notifications/roots/list_changed":
            return  # its roots are not the client's
        if method == "notifications/progress":
            restored = self._asking.restore_token(session, params)
            if restored is None:
                return
            params = restored
        message = jsonrpc.encode_notification(method, params)
        if link.upstream.state is State.READY:
            self._uplink.tell(link, message)
        elif link.upstream.state is State.IDLE:
            self._desk.note("debug", f"{method} dropped: there is no upstream session", link.plan.id)
        elif sum(isinstance(entry, bytes) for entry in link.queue) >= self._desk.limits.notices_waiting_max:
            self._desk.note("warning", f"{method} dropped: too many wait for the upstream", link.plan.id)
        else:
            link.queue.append(message)

    def reply(self, session: Session, ask: Ask, answer: Frame) -> None:
        link = self.links.get(session.sid)
        if link is not None:
            self._asking.reply(link, ask, answer)

    def end(self, session: Session) -> None:
        link = self.links.pop(session.sid, None)
        self.files.close_session(session)
        if link is None:
            return
        self._cancel_timers(link)
        upstream = link.upstream
        if link.children == 0:
            self.files.sweep(session)
        if upstream.state is not State.IDLE:
            self._say_farewell(link)
        upstream.step(Input.CLOSE)
        self._desk.close(link.channel, reason="session over")
        self._desk.close(link.stream, reason="session over")
        link.pending.clear()
        self._resuming.forget_all(link)
        self._close_posts(link, "session over")

    def _say_farewell(self, link: Link) -> None:
        """End a session that is no longer needed, as clients "SHOULD" (2025-03-26 basic/transports, "Session
        Management")."""
        upstream = link.upstream
        if not link.is_pipe and upstream.session is not None:
            target = Delete(server=link.plan.id, session=upstream.session, revision=upstream.revision)
            self._desk.dial(FarewellRole(), target)

    def _close_posts(self, link: Link, reason: str) -> None:
        """Abandon the requests that nobody waits for. Other notifications and answers may still arrive, for a while."""
        for channel in sorted(link.posts):
            role = self._desk.role_of(channel)
            assert isinstance(role, UpPostRole)
            if role.is_confirmation or (role.number is not None and role.number not in link.pending):
                self._desk.close(channel, reason=reason)
            elif role.number is None:
                self._uplink.receive_settled(role)

    # --- Handshake ------------------------------------------------------------------------------------------------

    def _need(self, link: Link) -> None:
        """Somebody waits for the upstream: begin a handshake unless one is under way or must pause."""
        if link.upstream.state is not State.IDLE:
            return
        pause = link.upstream.pause_left(self._desk.now)
        if pause > 0:
            text = f"{link.upstream.failure}; it is tried again in {pause:.1f} s at the earliest"
            self._fail_queue(link, text)
        else:
            self._dial(link)

    def _dial(self, link: Link) -> None:
        upstream = link.upstream
        upstream.receive_need()
        at = self._desk.now + self._start_timeout_s(link)
        self._desk.timers.set(("start", link.session.sid), at, "upstream start")
        if not link.is_pipe:
            self._shake_hands(link)
        elif link.plan.kind is not Kind.PIPE:
            link.channel = self._desk.dial(ChildRole(link, is_process=False), Join(server=link.plan.id))
        elif self._children >= self._desk.limits.children_max:
            self._lose(link, f"{self._children} server processes run, the most allowed; try again later")
        else:
            target = Spawn(server=link.plan.id, workspace=link.session.workspace)
            link.channel = self._desk.dial(ChildRole(link, is_process=True), target)
            link.children += 1
            self._children += 1

    def _shake_hands(self, link: Link) -> None:
        link.upstream.step(Input.CONNECTED)
        link.has_listened = False
        link.listen_event_id = None
        self._uplink.run(link, "initialize", "initialize", link.upstream.initialize)

    def _receive_handshake(self, link: Link, frame: Frame, session: str | None) -> None:
        if frame.error is not None:
            self._lose(link, "it refused to initialize", error=jsonrpc.usable_error(frame.error))
            return
        assert frame.result is not None
        try:
            link.upstream.receive_initialized(frame.result, session)
            shown = self.files.adapt_handshake(link, frame.result) if link.plan.has_files else frame.result
        except (RemoteProtocolError, msgspec.DecodeError) as error:
            link.upstream.session = session  # it may have begun one
            self._lose(link, f"its answer to initialize is unusable: {error}")
            return
        if link.session.opener is not None:
            self._clients.accept_session(link.session, shown, link.upstream.revision)
        self._uplink.confirm(link)
        if link.is_pipe:  # what is written first arrives first
            self._receive_confirmed(link)

    def _receive_confirmed(self, link: Link) -> None:
        link.upstream.step(Input.CONFIRMED)
        if link.is_pipe:
            self._receive_listening(link)
        else:
            self._listen(link)
            at = self._desk.now + self._desk.limits.listen_wait_s
            self._desk.timers.set(("listening", link.session.sid), at, "upstream event stream")

    def _listen(self, link: Link) -> None:
        upstream = link.upstream
        target = Listen(
            server=link.plan.id,
            session=upstream.session,
            revision=upstream.revision,
            last_event_id=link.listen_event_id or None,
        )
        link.stream = self._desk.dial(UpStreamRole(link), target)

    def _receive_listening(self, link: Link) -> None:
        """The stream is open, refused, or long in coming: requests need not wait for it any longer."""
        self._desk.timers.cancel(("listening", link.session.sid))
        if link.upstream.state is not State.LISTENING:
            return
        link.upstream.step(Input.LISTENED)
        replay = link.upstream.replay()
        link.replaying = len(replay)
        for method, params in replay:
            self._uplink.run(link, "replay", method, params)
        if not replay:
            self._receive_ready(link)

    def _receive_ready(self, link: Link) -> None:
        link.upstream.receive_replayed(self._desk.now)
        self._desk.timers.cancel(("start", link.session.sid))
        self._flush(link)

    def _flush(self, link: Link) -> None:
        while link.queue and link.upstream.state is State.READY:
            entry = link.queue.popleft()
            if isinstance(entry, bytes):
                self._uplink.tell(link, entry)
            else:
                self._uplink.write(link, entry)

    def _start_timeout_s(self, link: Link) -> float:
        return link.plan.start_timeout_s or self._desk.limits.start_timeout_s

    def handle_start_timeout(self, sid: str) -> None:
        link = self.links.get(sid)
        if link is not None:
            self._lose(link, f"it did not answer within {self._start_timeout_s(link):g} s of being started")

    def handle_listening_timeout(self, sid: str) -> None:
        link = self.links.get(sid)
        if link is not None:
            self._receive_listening(link)

    def handle_relisten(self, sid: str) -> None:
        link = self.links.get(sid)
        if link is not None and link.stream is None and link.upstream.state in (State.REPLAYING, State.READY):
            self._listen(link)

    def handle_resume(self, sid: str, number: int) -> None:
        link = self.links.get(sid)
        if link is not None:
            self._resuming.handle_resume(link, number)

    def handle_restart(self, sid: str) -> None:
        link = self.links.get(sid)
        if link is not None:
            self._need(link)

    # --- Channels -------------------------------------------------------------------------------------------------

    def receive_connected(self, role: ChildRole | UpPostRole | UpStreamRole, opening: Connected) -> None:
        link = role.link
        if isinstance(role, ChildRole):
            if link.upstream.state is State.DIALING:
                self._shake_hands(link)
        elif isinstance(role, UpPostRole):
            role.session = opening.session
            role.has_begun = True
            if role.is_confirmation and self._is_current(role) and link.upstream.state is State.CONFIRMING:
                self._uplink.receive_settled(role)  # it was to say 202 and said 200: taken is taken
                self._receive_confirmed(link)
        elif self._is_current(role):
            link.listen_failures = 0
            link.has_listened = True
            self._receive_listening(link)

    def receive_primed(self, role: ChildRole | UpPostRole | UpStreamRole) -> None:
        """The server's reply can be resumed should it be cut off: so can the client's."""
        related = self._related(role.link, role)
        if related is not None:
            self._courier.prime(role.link.session, related)

    def _is_current(self, role: UpPostRole | UpStreamRole) -> bool:
        return role.incarnation == role.link.upstream.incarnation and role.link.upstream.state is not State.IDLE

    def receive_close(self, role: ChildRole | UpPostRole | UpStreamRole, channel: ChannelId, cause: Cause) -> None:
        link = role.link
        if isinstance(role, ChildRole):
            link.children -= role.is_process
            self._children -= role.is_process
            if link.upstream.state is State.CLOSED:
                if role.is_process and link.children == 0:
                    self.files.sweep(link.session)
            elif link.channel == channel:
                link.channel = None
                self._lose(link, cause.detail or ("its process is gone" if role.is_process else describe(cause)))
        elif isinstance(role, UpStreamRole):
            self._receive_stream_close(link, role, channel, cause)
        else:
            self._uplink.receive_close(role)
            if link.upstream.state is not State.CLOSED:
                self._receive_post_close(link, role, cause)

    def _receive_stream_close(self, link: Link, role: UpStreamRole, channel: ChannelId, cause: Cause) -> None:
        if link.stream != channel:
            return
        link.stream = None
        if link.upstream.state in (State.CLOSED, State.IDLE) or role.incarnation != link.upstream.incarnation:
            return
        # A server without streams may refuse each with 404 or 400: one that has granted it before has forgotten us.
        if link.has_listened and denies_session(cause, names_session=role.names_session):
            self._lose(link, "it forgot the session", is_forgotten=True)
            return
        self._receive_listening(link)
        if cause.end is End.REFUSED and 400 <= cause.status < 500:
            if not link.listen_event_id:
                return  # 405 above all: it offers no stream, which is its right
            link.listen_event_id = None  # the rest of the old one is gone; a new one may be had
        elif cause.last_event_id is not None:
            link.listen_event_id = cause.last_event_id
        pause = self._resuming.pause(cause.retry_ms, link.listen_failures)
        link.listen_failures += 1
        self._desk.timers.set(("relisten", link.session.sid), self._desk.now + pause, "upstream event stream")

    def _receive_post_close(self, link: Link, role: UpPostRole, cause: Cause) -> None:
        is_lost = denies_session(cause, names_session=role.names_session)
        entry = None if role.number is None else link.pending.pop(role.number, None)
        if isinstance(entry, Exchange):
            entry.post = None
            if self._resuming.receive_cut(link, role, entry, cause):
                return
            self._uplink.expect_none(entry)
            is_unsent = (cause.unsent or is_lost) and not role.is_resumed
            if cause.end is End.DONE and role.problem:
                cause = Cause(End.BROKEN, detail=role.problem)
            elif role.is_resumed:
                cause = Cause(End.BROKEN, detail=f"its reply was cut off, and could not be resumed: {describe(cause)}")
            self._settle_post(link, entry, cause, is_unsent=is_unsent)
        elif isinstance(entry, Errand):
            if self._is_current(role):
                self._receive_errand_close(link, entry, cause)
            return
        elif role.is_confirmation and self._is_current(role) and link.upstream.state is State.CONFIRMING:
            if cause.end is End.DONE:
                self._receive_confirmed(link)
            else:
                self._lose(link, describe(cause))
            return
        elif role.number is None and cause.end is not End.DONE:
            self._desk.note("warning", f"a notification or answer did not arrive: {describe(cause)}", link.plan.id)
        if is_lost and self._is_current(role):
            self._lose(link, "it forgot the session", is_forgotten=True)
        elif link.queue:
            self._resume_queue(link)

    def _resume_queue(self, link: Link) -> None:
        if link.upstream.state is State.READY:
            self._flush(link)
        else:
            self._need(link)

    def _receive_errand_close(self, link: Link, errand: Errand, cause: Cause) -> None:
        if errand.purpose == "replay":
            self._receive_replayed(link)
        else:
            error = error_in(cause)
            self._lose(link, describe(cause), error=error)

    def _settle_post(self, link: Link, exchange: Exchange, cause: Cause, *, is_unsent: bool) -> None:
        """The POST of an open request ended without its answer."""
        error = error_in(cause)
        if exchange.may_repeat(is_unsent=is_unsent, retries=link.plan.session_retries) and (
            is_unsent or cause.end is not End.REFUSED
        ):
            exchange.may_have_run = exchange.may_have_run or not is_unsent
            self._requeue(link, exchange)
        elif error is not None:
            self.finish(link, exchange, jsonrpc.encode_error_raw(exchange.id_raw, error))
        elif is_unsent or cause.end is End.UNREACHABLE or (cause.end is End.REFUSED and not may_have_run(cause.status)):
            self._fail(link, exchange, UPSTREAM_UNAVAILABLE, f"the server could not be asked: {describe(cause)}", cause)
        else:
            self._fail_unknown(link, exchange, describe(cause), cause)

    # --- Loss -----------------------------------------------------------------------------------------------------

    def _lose(self, link: Link, reason: str, *, error: bytes | None = None, is_forgotten: bool = False) -> None:
        """The upstream session is gone: settle what was open, and make a new one if somebody waits."""
        upstream, session = link.upstream, link.session
        if upstream.state is State.IDLE:
            return
        self._desk.note("warning", f"upstream lost: {reason}", link.plan.id)
        if not is_forgotten:
            self._say_farewell(link)
        upstream.receive_lost(reason, self._desk.now, is_forgotten=is_forgotten)
        self._cancel_timers(link)
        for number in list(session.asks):
            self._courier.unask(session, number, None)
        child, link.channel = link.channel, None
        stream, link.stream = link.stream, None
        self._desk.close(child, reason=reason)
        self._desk.close(stream, reason=reason)
        for number, entry in list(link.pending.items()):
            if isinstance(entry, Errand):
                del link.pending[number]
            elif entry.post is None:  # on a pipe, or between two connections; else the end of its POST settles it
                del link.pending[number]
                self._settle_lost(link, entry, reason)
        self._resuming.forget_all(link)
        self._close_posts(link, reason)
        if session.opener is not None:
            fallback = {"code": UPSTREAM_UNAVAILABLE, "message": _unstarted(link, reason)}
            self._clients.refuse_session(session, error or msgspec.json.encode(fallback))
            return
        pause = upstream.pause_left(self._desk.now)
        if pause > 0:
            self._fail_queue(link, reason)
        elif upstream.forgettings > 1 and not link.queue:
            pause = self._desk.limits.restart_backoff_s  # who forgets and forgets must not keep us busy
        if pause > 0 and upstream.has_subscriptions:
            self._desk.timers.set(("restart", session.sid), self._desk.now + pause, "upstream restart")
        elif link.queue or upstream.has_subscriptions:
            self._need(link)

    def _settle_lost(self, link: Link, exchange: Exchange, reason: str) -> None:
        self._uplink.expect_none(exchange)
        if exchange.may_repeat(is_unsent=False, retries=link.plan.session_retries):
            exchange.may_have_run = True
            self._requeue(link, exchange)
        else:
            self._fail_unknown(link, exchange, reason)

    def _requeue(self, link: Link, exchange: Exchange) -> None:
        exchange.step(ExchangeInput.REQUEUE)
        exchange.upstream_id = None
        link.queue.append(exchange)

    def _fail_queue(self, link: Link, reason: str) -> None:
        waiting, link.queue = link.queue, type(link.queue)()
        for entry in waiting:
            if isinstance(entry, Exchange) and entry.may_have_run:
                self._fail_unknown(link, entry, reason)
            elif isinstance(entry, Exchange):
                self._fail(link, entry, UPSTREAM_UNAVAILABLE, _unstarted(link, reason), None)

    def _fail_unknown(self, link: Link, exchange: Exchange, reason: str, cause: Cause | None = None) -> None:
        text = f"the server was lost before it answered: {reason}. {exchange.method} may have run; it is not repeated"
        if cause is not None and cause.end is End.REFUSED:
            text = f"the server failed: {reason}. {exchange.method} may have run; it is not repeated"
        data = {"outcome": "unknown", **_refusal(cause)}
        self.finish(link, exchange, jsonrpc.encode_error(exchange.id_raw, OUTCOME_UNKNOWN, text, data))

    def _fail(self, link: Link, exchange: Exchange, code: int, text: str, cause: Cause | None) -> None:
        data = _refusal(cause) or {"outcome": "not_executed"}
        self.finish(link, exchange, jsonrpc.encode_error(exchange.id_raw, code, text, data))

    def finish(self, link: Link, exchange: Exchange, message: bytes) -> None:
        self.files.forget(exchange)
        self._courier.answer(link.session, exchange, message)

    def _cancel_timers(self, link: Link) -> None:
        for purpose in ("start", "listening", "relisten", "restart"):
            self._desk.timers.cancel((purpose, link.session.sid))

    # --- Messages of the server -------------------------------------------------------------------------------------

    def receive_message(self, role: ChildRole | UpPostRole | UpStreamRole, channel: ChannelId, message: bytes) -> None:
        link = role.link
        try:
            parts = jsonrpc.split_batch(message) if jsonrpc.is_batch(message) else [message]
        except RemoteProtocolError as error:
            self._receive_garbage(link, role, message, error)
            return
        for part in parts:
            if link.upstream.state is State.CLOSED or not self._desk.is_open(channel):
                return  # which an earlier part may have brought about
            try:
                frame = jsonrpc.decode(part)
            except RemoteProtocolError as error:
                self._receive_garbage(link, role, part, error)
            else:
                self._receive_frame(link, role, frame)

    def _receive_garbage(
        self, link: Link, role: ChildRole | UpPostRole | UpStreamRole, message: bytes, error: RemoteProtocolError
    ) -> None:
        """What asks is answered; a broken answer whose request is known ends that request; noise is dropped."""
        self._note_noise(link, message, error)
        id_raw, shape = error.id_raw, error.shape
        if shape == "call":
            if id_raw is not None and (isinstance(role, ChildRole) or self._is_current(role)):
                self._uplink.tell(link, jsonrpc.encode_error(id_raw, error.rpc_code, error.message))
            return
        if not shape and (id_raw := owner_of(message, message[-TAIL_BYTES:])) is not None:
            shape = "reply"
        text = f"the server's answer could not be read: {error.message}"
        number = None if id_raw is None else jsonrpc.number_of(id_raw)
        if number is None and isinstance(role, UpPostRole):
            role.problem = text  # the end of its reply decides what becomes of the request
            number = role.number if shape == "reply" else None
        if number is not None and number in link.pending:
            answer = msgspec.json.encode({"code": INTERNAL_ERROR, "message": text})
            self._receive_reply(link, role, Frame(error=answer), number)

    def _note_noise(self, link: Link, message: bytes, error: RemoteProtocolError) -> None:
        """Say it a few times, then more and more rarely. What looks like a message may be payload: it is not shown."""
        link.noise += 1
        if link.noise > NOISE_NOTED and link.noise & (link.noise - 1):
            return
        text = f"server sent what is no message: {error.message}"
        if not message.lstrip().startswith((b"{", b"[")):
            text += f"; it begins {message[:40].decode(errors='replace')!r}"
        if link.noise > NOISE_NOTED:
            text += f" ({link.noise} times by now)"
        self._desk.note("warning", text, link.plan.id)

    def _receive_frame(self, link: Link, role: ChildRole | UpPostRole | UpStreamRole, frame: Frame) -> None:
        related = self._related(link, role)
        if frame.is_notification:
            self._asking.receive_notification(link, frame, related)
        elif not frame.is_request:
            number = self._number_of(frame, role)
            if number is not None:
                self._receive_reply(link, role, frame, number)
        elif isinstance(role, ChildRole) or self._is_current(role):
            self._asking.receive_request(link, frame, related)
        else:
            self._desk.note("debug", f"{frame.method} dropped: its session is lost, so is its answer", link.plan.id)

    def _related(self, link: Link, role: object) -> Exchange | None:
        entry = link.pending.get(role.number) if isinstance(role, UpPostRole) and role.number is not None else None
        return entry if isinstance(entry, Exchange) else None

    def _number_of(self, frame: Frame, role: object) -> int | None:
        """Which of our requests is answered. Some servers echo the number as a string; an error without an id
        belongs to the POST that carried it."""
        if frame.id_raw is None:
            return role.number if isinstance(role, UpPostRole) else None
        number = jsonrpc.number_of(frame.id_raw)
        if number is None and frame.error is not None and isinstance(role, UpPostRole):
            return role.number
        return number

    def _receive_reply(self, link: Link, role: object, frame: Frame, number: int) -> None:
        entry = link.pending.pop(number, None)
        self._resuming.forget(link, number)
        if isinstance(role, UpPostRole) and role.number == number:
            self._uplink.receive_settled(role)
        if entry is None:
            self._desk.note("debug", "server answered what nobody waits for: dropped", link.plan.id)
        elif isinstance(entry, Errand):
            if entry.incarnation != link.upstream.incarnation:
                return
            if entry.purpose == "replay":
                self._receive_replayed(link)
            else:
                self._receive_handshake(link, frame, role.session if isinstance(role, UpPostRole) else None)
        else:
            self._receive_answer(link, entry, frame)

    def _receive_replayed(self, link: Link) -> None:
        link.replaying -= 1
        if link.replaying == 0 and link.upstream.state is State.REPLAYING:
            self._receive_ready(link)

    def _receive_answer(self, link: Link, exchange: Exchange, frame: Frame) -> None:
        self._uplink.expect_none(exchange)
        exchange.step(ExchangeInput.REPLY)
        link.upstream.receive_proof()
        if frame.error is not None:
            message = jsonrpc.encode_error_raw(exchange.id_raw, jsonrpc.usable_error(frame.error))
            self.finish(link, exchange, message)
            return
        assert frame.result is not None
        try:
            if not link.upstream.remember(exchange.method, exchange.params):
                text = f"{exchange.method} is not set again if the server is lost: too many are remembered"
                self._desk.note("warning", text, link.plan.id)
            if link.plan.has_files and self.files.receive_result(link, exchange, frame.result):
                return
        except RemoteProtocolError as error:
            text = f"the server's answer could not be read: {error.message}"
            self.finish(link, exchange, jsonrpc.encode_error(exchange.id_raw, INTERNAL_ERROR, text))
            return
        self.finish(link, exchange, jsonrpc.encode_result(exchange.id_raw, frame.result))


def _unstarted(link: Link, reason: str) -> str:
    return f"the server could not be {'started' if link.plan.kind is Kind.PIPE else 'connected to'}: {reason}"


def _refusal(cause: Cause | None) -> dict[str, object]:
    """What a refusing response was, for the error's data."""
    if cause is None or not cause.status:
        return {}
    return {"httpStatus": cause.status, "body": cause.body[:200].decode(errors="replace")}


def _with_roots(initialize: bytes) -> bytes:
    """The client's initialize params, declaring roots: with a file plane they are its session's own folders."""
    capabilities = jsonrpc.member_of(initialize, "capabilities")
    if capabilities is None or not capabilities.startswith(b"{"):
        capabilities = b"{}"
    return set_member(initialize, "capabilities", set_member(capabilities, "roots", b"{}"))
