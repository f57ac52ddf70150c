"""From the need for a server to a session with it that requests may pass: dialled, greeted, listened to, set again.

Nothing is held between the steps but the `Upstream`'s state; each step begins when the one before is heard of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from . import jsonrpc
from .clients import Clients
from .desk import Desk
from .effects import Cause, End, Join, Listen, Spawn
from .endings import BAD_REQUEST, METHOD_NOT_ALLOWED, NOT_FOUND, describe
from .errors import RemoteProtocolError
from .exchange import Exchange
from .health import Health
from .jsonrpc import Frame
from .links import ChildRole, Link, Notice, UpStreamRole
from .nursery import Nursery
from .plan import Kind
from .sharing import Crowd
from .uplink import Uplink
from .upstream import Input, State


class Adaptation(Protocol):
    """What the file plane says about handshakes."""

    def adapt_handshake(self, link: Link, result: bytes) -> bytes:
        """The `initialize` result the client is shown."""


class Losses(Protocol):
    """What becomes of a link that fails."""

    def lose(self, link: Link, reason: str, *, error: bytes | None = None, is_forgotten: bool = False) -> None: ...

    def give_up(self, link: Link, reason: str) -> None: ...


class Handshakes:
    """
    Attributes:
        health: of each server, by its id.
        crowds: of each shared link, by its id.
        children: the processes of all links and the spare ones.
    """

    def __init__(self, desk: Desk, clients: Clients, uplink: Uplink) -> None:
        self.files: Adaptation
        self.losses: Losses
        self.forward: Callable[[Link, Exchange], None]
        self.health = {id: Health(desk.limits) for id in desk.servers}
        self.crowds: dict[str, Crowd] = {}
        self.nursery = Nursery(desk)
        self._desk = desk
        self._clients = clients
        self._uplink = uplink
        self._event_pipes: set[str] = set()  # servers that were found to speak HTTP+SSE

    # --- Dialling ---------------------------------------------------------------------------------------------------

    def need(self, link: Link) -> None:
        """Somebody waits for the upstream: begin a handshake unless one is under way or must pause."""
        if link.upstream.state is not State.IDLE:
            return
        pause = link.pause_left(self._desk.now)
        if pause > 0:
            self.losses.give_up(link, f"{link.upstream.failure}; it is tried again in {pause:.1f} s at the earliest")
        else:
            self.dial(link)
        pause = max(pause, self.health[link.plan.id].pause_left(self._desk.now))
        if pause > 0 and link.upstream.state is State.IDLE and link.upstream.has_subscriptions:
            self._desk.timers.set(("restart", link.id), self._desk.now + pause, "upstream restart")

    def dial(self, link: Link) -> None:
        """Begin a handshake, if there may be one now."""
        fault = self._why_not(link)
        if fault is not None:
            self.losses.give_up(link, fault)
            return
        link.upstream.receive_need()
        link.denial, link.dialled_with = None, link.headers
        link.cookies.clear()  # they were those of the session before
        at = self._desk.now + self.start_timeout_s(link)
        self._desk.timers.set(("start", link.id), at, "upstream start")
        link.refusal = None
        link.is_pipe = link.plan.kind is not Kind.HTTP or link.plan.id in self._event_pipes
        if link.plan.kind is Kind.PIPE:
            self._spawn(link)
        elif link.is_pipe:
            self._join(link)
        else:
            self.health[link.plan.id].receive_start()
            self._shake_hands(link)

    def _spawn(self, link: Link) -> None:
        spare = self.nursery.take(link.plan) if self._may_move(link) else None
        if spare is not None:
            link.workspace = spare.workspace
            if not link.is_shared:
                link.session.workspace = spare.workspace
            link.channel = spare.channel
            link.children += 1
            role = ChildRole(link, is_process=True)
            self._desk.assign(spare.channel, role)
            if spare.is_connected:
                self._shake_hands(link)
        else:
            self.health[link.plan.id].receive_start()
            target = Spawn(server=link.plan.id, workspace=link.workspace)
            link.channel = self._desk.dial(ChildRole(link, is_process=True), target)
            link.children += 1
            self.nursery.children += 1

    def _may_move(self, link: Link) -> bool:
        """Where there are files, a session that has been served before has its own in its folders."""
        return not link.plan.has_files or link.upstream.incarnation <= 1

    def _why_not(self, link: Link) -> str | None:
        """Why nothing can be started for it now."""
        needs_room = link.plan.kind is Kind.PIPE and not self.nursery.spare_count(link.plan.id)
        if needs_room and not self.nursery.has_room:
            return f"{self.nursery.children} server processes run, the most allowed; try again later"
        return self.health[link.plan.id].why_not(self._desk.now)

    def _join(self, link: Link) -> None:
        self.health[link.plan.id].receive_start()
        self.join(link)

    def join(self, link: Link, *, is_repeated: bool = False) -> None:
        """Connect to the server's two-way stream."""
        role = ChildRole(link, is_process=False, is_repeated=is_repeated)
        link.channel = self._desk.dial(role, Join(link.plan.id, link.headers))

    def receive_connected(self, link: Link) -> None:
        """The two-way stream is open."""
        if link.upstream.state is State.DIALING:
            self._shake_hands(link)

    def fall_back(self, link: Link, cause: Cause) -> bool:
        """A server refused `initialize` over Streamable HTTP: try it as one of HTTP+SSE. False if there is no reason.

        Source: 2025-11-25 basic/transports, "Backwards Compatibility": "400 Bad Request", "404 Not Found" or "405
        Method Not Allowed".
        """
        if not link.plan.may_fall_back or link.upstream.state is not State.INITIALIZING or link.is_pipe:
            return False
        if cause.end is not End.REFUSED or cause.status not in (BAD_REQUEST, NOT_FOUND, METHOD_NOT_ALLOWED):
            return False
        link.refusal = cause
        link.is_pipe = True
        link.upstream.step(Input.REDIAL)
        self._join(link)
        return True

    def doubt(self, link: Link) -> None:
        """It did not come up: how it is to be spoken to is not known any more."""
        if link.upstream.state in (State.DIALING, State.INITIALIZING):
            self._event_pipes.discard(link.plan.id)

    def describe(self, link: Link, reason: str) -> str:
        """Why it did not come up, both ways of speaking to it considered."""
        if link.refusal is None:
            return reason
        return f"over Streamable HTTP {describe(link.refusal)}; over HTTP+SSE {reason}"

    # --- Greeting ---------------------------------------------------------------------------------------------------

    def _shake_hands(self, link: Link) -> None:
        link.upstream.step(Input.CONNECTED)
        link.has_listened = False
        link.listen_event_id = None
        self._uplink.run(link, "initialize", "initialize", link.upstream.initialize)

    def receive_handshake(self, link: Link, frame: Frame, session: str | None) -> None:
        """The answer to `initialize`."""
        link.babble = ""
        if frame.error is not None:
            self.losses.lose(link, "it refused to initialize", error=jsonrpc.usable_error(frame.error))
            return
        assert frame.result is not None
        try:
            link.upstream.receive_initialized(frame.result, session)
            shown = self.files.adapt_handshake(link, frame.result) if link.plan.has_files else frame.result
        except (RemoteProtocolError, msgspec.DecodeError) as error:
            link.upstream.session = session  # it may have begun one
            self.losses.lose(link, f"its answer to initialize is unusable: {error}")
            return
        link.handshake, link.refusal = shown, None
        if link.plan.kind is Kind.HTTP:
            (self._event_pipes.add if link.is_pipe else self._event_pipes.discard)(link.plan.id)
        self.accept_all(link)
        self._uplink.confirm(link)
        if link.is_pipe:  # what is written first arrives first
            self.receive_confirmed(link)

    def accept_all(self, link: Link) -> None:
        """The sessions that wait for the server's greeting are shown it."""
        if link.handshake is None:
            return
        crowd = self.crowds.get(link.id)
        for session in list(link.sessions.values()):
            if session.opener is None:
                continue
            shown, revision = link.handshake, link.upstream.revision
            if crowd is not None:
                shown, revision = crowd.shown(session, shown)
            self._clients.accept_session(session, shown, revision)

    def receive_confirmed(self, link: Link) -> None:
        """`initialized` has arrived."""
        link.upstream.step(Input.CONFIRMED)
        if link.is_pipe:
            self.receive_listening(link)
        else:
            self.listen(link)
            at = self._desk.now + self._desk.limits.listen_wait_s
            self._desk.timers.set(("listening", link.id), at, "upstream event stream")

    def listen(self, link: Link, *, is_repeated: bool = False) -> None:
        """Open the GET stream."""
        upstream = link.upstream
        target = Listen(
            server=link.plan.id,
            session=upstream.session,
            revision=upstream.revision,
            headers=link.headers,
            last_event_id=link.listen_event_id or None,
            cookies=link.cookies.pairs,
        )
        link.stream = self._desk.dial(UpStreamRole(link, self._desk.now, is_repeated=is_repeated), target)

    def receive_listening(self, link: Link) -> None:
        """The stream is open, refused, or long in coming: requests need not wait for it any longer."""
        self._desk.timers.cancel(("listening", link.id))
        if link.upstream.state is not State.LISTENING:
            return
        link.upstream.step(Input.LISTENED)
        replay = link.upstream.replay()
        link.replaying = len(replay)
        for method, params in replay:
            self._uplink.run(link, "replay", method, params)
        if not replay:
            self._receive_ready(link)

    def receive_replayed(self, link: Link) -> None:
        """One of the settings was made again, or could not be."""
        link.replaying -= 1
        if link.replaying == 0 and link.upstream.state is State.REPLAYING:
            self._receive_ready(link)

    def _receive_ready(self, link: Link) -> None:
        link.upstream.receive_replayed(self._desk.now)
        self._desk.timers.cancel(("start", link.id))
        self.health[link.plan.id].receive_ready()
        self.flush(link)
        self.nursery.refill(link.plan, self.health[link.plan.id])

    def flush(self, link: Link) -> None:
        """What waited for the upstream goes up."""
        while link.queue and link.upstream.state is State.READY:
            entry = link.queue.popleft()
            if isinstance(entry, Notice):
                self._uplink.tell(link, *entry)
            else:
                self.forward(link, entry)

    def advance(self, link: Link, done: Exchange) -> None:
        """A request is over: with serial sharing, it is the next one's turn."""
        crowd = self.crowds.get(link.id)
        if crowd is None or crowd.turn is not done:
            return
        crowd.turn = None
        while crowd.waiting and crowd.turn is None:
            following, _ = crowd.waiting.popitem(last=False)
            self.forward(link, following)

    # --- Time -------------------------------------------------------------------------------------------------------

    def start_timeout_s(self, link: Link) -> float:
        return link.plan.start_timeout_s or self._desk.limits.start_timeout_s

    def handle_start_timeout(self, link: Link) -> None:
        self.losses.lose(link, f"it did not answer within {self.start_timeout_s(link):g} s of being started")

    def handle_relisten(self, link: Link) -> None:
        if link.stream is None and link.upstream.state in (State.REPLAYING, State.READY):
            self.listen(link)
