"""Opens a session with a server: dial, probe or initialize, open the GET stream, restore what clients had set.

`Handshaker.dial` begins a handshake. In the handshake era the server is sent `initialize`, then
`notifications/initialized`; its GET stream is opened, and log level and subscriptions are set again. In the stateless
era it is sent `server/discover`, and resources are subscribed again. The era tried first is the clients'; for a brief
session it is the stateless one over HTTP, and else the handshake era. A server that denies it, or does not answer, is
tried in the other era, and after that over HTTP+SSE where the plan allows.

No step keeps state of its own: `UpstreamSession` holds it, and each step begins when the one before is reported done.
"""

from __future__ import annotations

import msgspec

from ..base.effects import Listen
from ..base.errors import UNSUPPORTED_VERSION, RemoteProtocolError
from ..base.events import Cause, End
from ..base.ids import ChannelId
from ..base.plan import Kind
from ..base.revisions import LATEST_LEGACY, LATEST_MODERN, LEGACY, Era, is_known_modern
from ..base.setting_names import MORE_TIME
from ..bridge.discovery import served_revisions, to_initialize_result
from ..bridge.request_meta import add, own_envelope
from ..bridge.task_support import TaskAbilities, server_abilities
from ..downstream.sessions import Sessions
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..jsonrpc.splice import set_member
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.link import Link, OwnRequest, QueuedNotification
from ..state.session import Session
from ..state.upstream_channels import UpstreamPostRole, UpstreamStreamRole
from ..state.upstream_session import UpstreamSessionInput, UpstreamSessionState
from ..wire.http.failure import (
    BAD_REQUEST,
    INTERNAL_SERVER_ERROR,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    describe,
    error_in,
    first_words_in,
)
from .addresses import is_of_address
from .dialer import Dialer
from .era_detection import OTHER, ServerEra, denies_handshake, denies_stateless, is_evidence, is_modern
from .health import Health
from .introduction import NOTHING_KNOWN, discovery_of, handshake_for
from .processes import STARTING, Restart
from .writer import UpstreamWriter


class Handshaker:
    """Opens and restores the upstream sessions of all links.

    Attributes:
        health: the failure counts of each server, by its id.
        server_eras: the eras that each server speaks, by its id.
        processes: the processes of all servers.
        warm_pool: the spare ones.
        addresses: the addresses of each server that has several, by its id.
    """

    def __init__(self, context: Context, sessions: Sessions, writer: UpstreamWriter) -> None:
        self.health = {id: Health(context.limits) for id in context.servers}
        self.server_eras = {id: ServerEra(plan.era, context.limits) for id, plan in context.servers.items()}
        self._dialer = Dialer(context, self.health, self._begin)
        self.processes = self._dialer.processes
        self.warm_pool = self._dialer.warm_pool
        self.addresses = self._dialer.addresses
        self._context = context
        self._sessions = sessions
        self._writer = writer
        self._event_pipes: set[str] = set()  # servers that were found to speak HTTP+SSE

    # --- Dialling ---------------------------------------------------------------------------------------------------

    def need(self, link: Link) -> None:
        """Begins a handshake for a link that is needed, unless one is under way or the link must pause."""
        if link.upstream.state is not UpstreamSessionState.IDLE:
            return
        # A person logs in elsewhere. Nothing is sent without a login, so a pause would spare no server.
        pause = 0.0 if link.handshake.wants_login else link.pause_left(self._context.now)
        if pause > 0:
            link.router.give_up(link, f"{link.upstream.failure}; it is tried again in {pause:.1f} s at the earliest")
        else:
            self.dial(link)
        pause = max(pause, self.health[link.plan.id].pause_left(self._context.now))
        if pause > 0 and link.upstream.state is UpstreamSessionState.IDLE and link.is_awaited:
            self._context.timers.set(("restart", link.id), self._context.now + pause, "upstream restart")

    def dial(self, link: Link) -> None:
        """Begins a handshake, if the server may be started now; else fails all that waits for it."""
        fault = self._dialer.why_not(link)
        if fault is not None:
            link.router.give_up(link, fault)
            return
        link.begin_handshake(address=self._dialer.choose(link), is_event_pipe=link.plan.id in self._event_pipes)
        at = self._context.now + self.start_timeout_s(link)
        self._context.timers.set(("start", link.id), at, "upstream start")
        self._reach(link)
        for introduce in link.interceptors.introduce:
            if introduce(link):
                self.accept_all(link)

    def _reach(self, link: Link) -> None:
        """Connects to the server, and begins the handshake in the era that is tried first."""
        is_event_pipe = link.plan.id in self._event_pipes
        wanted = Era.HANDSHAKE if is_event_pipe or not _is_for_stateless(link) else Era.STATELESS
        link.speak(self.server_eras[link.plan.id].choose(wanted, self._context.now))
        self._dialer.reach(link)

    def move_on(self, link: Link, cause: Cause) -> bool:
        """Begins the handshake at another address, after this one failed. False if there is none that this attempt has
        not tried, or the failure would be the same there.

        Only what begins a session is sent twice: requests wait until there is a session.
        """
        return is_of_address(cause, link.era) and self._move_on(link, describe(cause))

    def _move_on(self, link: Link, reason: str) -> bool:
        addresses = self.addresses.get(link.plan.id)
        if addresses is None or link.upstream.state not in STARTING or link.handshake.answered is not None:
            return False
        self._receive_failed_address(link, reason)
        place = addresses.place(link.id, self._context.now, besides=link.handshake.failed_addresses)
        if place is None:
            return False
        self._drop_own_requests(link)
        self._context.timers.cancel(("probe", link.id))
        link.begin_elsewhere(place, is_event_pipe=link.plan.id in self._event_pipes)
        self._reach(link)
        return True

    def _receive_failed_address(self, link: Link, reason: str) -> None:
        """Records how an address failed in a handshake."""
        addresses = self.addresses[link.plan.id]
        addresses.receive_failure(link.address, reason, self._context.now)
        link.handshake.receive_failed_addresses({link.address: reason})
        self._context.note("warning", f"{addresses.all[link.address].name} failed: {reason}", link.plan.id)

    def must_leave(self, link: Link, cause: Cause) -> bool:
        """Handles a connection of a link that could not be made. True if its session was ready, and is to be begun anew
        at another address."""
        addresses = self.addresses.get(link.plan.id)
        if addresses is None or cause.is_ours or link.upstream.state is not UpstreamSessionState.READY:
            return False
        now, has_session = self._context.now, link.upstream.session is not None
        addresses.receive_failure(link.address, describe(cause), now)
        return addresses.is_left_for_good(link.address, now, has_session=has_session)

    def leave(self, link: Link) -> None:
        """Handles the end of a link's upstream session: its address has one less."""
        if (addresses := self.addresses.get(link.plan.id)) is not None:
            addresses.leave(link.id)

    def turn(self, link: Link, error: bytes | None = None, *, is_said: bool = True, is_denial: bool = True) -> bool:
        """Tries the other era, on a new connection or with a new process, since some servers decide by the first
        message.

        False if that era was tried in this handshake, or is known not to be spoken.

        Args:
            error: the server's error, if it sent one.
            is_said: the server answered; silence and a sudden end may have other causes. An answer that denies this era
                counts, whatever is known from before.
            is_denial: the answer denies this era, and not only this handshake.
        """
        server_era = self.server_eras[link.plan.id]
        other = OTHER[link.era]
        if (
            link.upstream.state not in (UpstreamSessionState.DIALING, UpstreamSessionState.INITIALIZING)
            or other in link.handshake.tried
        ):
            return False
        if link.is_pipe and link.plan.kind is Kind.HTTP:
            return False
        if not server_era.may_try_other_era(link.era, self._context.now, is_said=is_said and is_denial):
            server_era.forget(other)  # a server speaks one of the two: what was known of the other is out of date
            return False
        link.handshake.receive_failed_era(link.era, error, is_said=is_said)
        link.speak(other)
        if link.upstream.state is UpstreamSessionState.INITIALIZING:
            link.upstream.step(UpstreamSessionInput.REDIAL)
        self._drop_own_requests(link)
        self._context.close(link.disconnect(), reason="spoken to in another way")
        self._context.timers.cancel(("probe", link.id))
        self._dialer.reach(link)
        return True

    def restart(self, link: Link, *, overlapped: bool) -> bool:
        """Starts a process again that ended before it was ready, because an earlier one was ending or a spare one runs.
        False if there was none.

        Args:
            overlapped: an earlier one was ending when it was started, or it was a spare one, which may have ended
                before it was needed.
        """
        if link.upstream.state in STARTING and self.warm_pool.spare_count(link.plan.id):
            self.warm_pool.give_up(link.plan, "another process did not start beside a spare one")
        restart = self.processes.restart_after(link.plan.id, overlapped=overlapped)
        if link.upstream.state not in STARTING or restart not in (Restart.LATER, Restart.NOW):
            return False
        if link.upstream.state is UpstreamSessionState.INITIALIZING:
            link.upstream.step(UpstreamSessionInput.REDIAL)
        self._drop_own_requests(link)
        self._context.timers.cancel(("probe", link.id))
        self._context.note(
            "info", "ended while another process of it was ending, or before it was needed: started again", link.plan.id
        )
        if restart is Restart.LATER:
            self.processes.wait(link)
        else:
            self._start_again(link)
        return True

    def receive_gone(self, channel: ChannelId) -> None:
        """Handles the end of a process: starts those that waited for it."""
        self.processes.start_waiting(channel, self._start_again)

    def _start_again(self, link: Link) -> None:
        fault = self._dialer.why_not(link)
        if fault is None:
            self._dialer.reach(link)
        else:
            link.router.lose(link, fault)

    def _probe_again(self, link: Link) -> bool:
        """Sends `server/discover` once more to a server that denies `initialize`, after it did not answer the first
        probe.

        Such a server was slow to start. It is asked on the same connection, and only once.
        """
        if (
            link.upstream.state is not UpstreamSessionState.INITIALIZING
            or link.handshake.tried.get(Era.STATELESS) is not False
        ):
            return False
        link.handshake.try_stateless_again()
        link.speak(Era.STATELESS)
        self._discover(link)
        return True

    def _drop_own_requests(self, link: Link) -> None:
        """Drops the requests that this handshake sent in the other era."""
        numbers = {number for number, entry in link.pending.items() if isinstance(entry, OwnRequest)}
        for number in numbers:
            link.settle(number)
        for channel in sorted(link.posts):
            role = self._context.role_of(channel)
            if isinstance(role, UpstreamPostRole) and role.number in numbers:
                self._context.close(channel, reason="spoken to in another way")

    def _record_eras(self, link: Link) -> None:
        """Records the eras that this handshake proved and denied, and that its address works."""
        if (addresses := self.addresses.get(link.plan.id)) is not None:
            addresses.receive_success(link.address)
        server_era = self.server_eras[link.plan.id]
        server_era.receive_proof(link.era, link.upstream.revision)
        for era, is_said in link.handshake.tried.items():
            if is_said:
                server_era.receive_denial(era, self._context.now)
            elif link.is_pipe:  # over HTTP, silence may as well come from the network
                server_era.receive_silence(era, self._context.now)
        self._context.timers.cancel(("probe", link.id))

    def join(self, link: Link, *, is_repeated: bool = False) -> None:
        """Connects to the server's two-way stream."""
        self._dialer.join(link, is_repeated=is_repeated)

    def receive_connected(self, link: Link) -> None:
        """Handles the opening of the two-way stream."""
        if link.upstream.state is UpstreamSessionState.DIALING:
            self._begin(link)

    def fall_back(self, link: Link, cause: Cause) -> bool:
        """Tries HTTP+SSE with a server that refused `initialize` over Streamable HTTP. False if the refusal gives no
        reason to.

        Source: 2025-11-25 basic/transports, "Backwards Compatibility": "400 Bad Request", "404 Not Found" or "405
        Method Not Allowed".
        """
        if not _may_fall_back(link, cause):
            return False
        assert link.era is Era.HANDSHAKE, "who is spoken to otherwise is not waited for any more"
        link.fall_back(cause)
        self._dialer.reach(link)
        return True

    def forget_transport(self, link: Link) -> None:
        """Forgets the transport of a server whose handshake failed: Streamable HTTP is tried again next time."""
        if link.upstream.state in (UpstreamSessionState.DIALING, UpstreamSessionState.INITIALIZING):
            self._event_pipes.discard(link.plan.id)

    def describe(self, link: Link, reason: str) -> str:
        """Returns why the handshake failed, over both transports if both were tried, and what the server said first."""
        words, failed = link.handshake.words, link.handshake.failed_addresses
        if failed:
            names = [address.name for address in self.addresses[link.plan.id].all]
            here = {link.address: reason} if link.address not in failed else {}
            return "; ".join(f"{names[place]}: {why}" for place, why in {**failed, **here}.items())
        if link.handshake.refusal is not None:
            first = describe(link.handshake.refusal)
            if first == reason:
                return _with_words(f"over Streamable HTTP and over HTTP+SSE {reason}", words)
            said = f" and said {words!r}" if words else ""
            return f"over Streamable HTTP {first}{said}; over HTTP+SSE {reason}"
        if words and link.handshake.tried:
            return f"{reason}; first it said {words!r}"
        return _with_words(reason, words) if link.upstream.state in STARTING else reason

    # --- Handshake --------------------------------------------------------------------------------------------------

    def _begin(self, link: Link) -> None:
        link.upstream.step(UpstreamSessionInput.CONNECTED)
        link.get_stream.receive_session()
        if link.era is Era.HANDSHAKE:
            self._writer.run(link, "initialize", "initialize", link.upstream.initialize)
        else:
            self._discover(link)

    def _discover(self, link: Link) -> None:
        request_meta = own_envelope(LATEST_MODERN, self._context.plan.name, self._context.plan.version)
        self._writer.run(link, "discover", "server/discover", add(None, request_meta))
        at = self._context.now + self._probe_timeout_s(link)
        self._context.timers.set(("probe", link.id), at, "server/discover")

    def _probe_timeout_s(self, link: Link) -> float:
        limits = self._context.limits
        return limits.probe_start_timeout_s if link.plan.kind is Kind.PIPE else limits.probe_timeout_s

    def receive_discovery(self, link: Link, frame: Frame) -> None:
        """Handles the response to `server/discover`."""
        link.handshake.take_noise()
        error = None if frame.error is None else envelope.usable_error(frame.error)
        try:
            if frame.result is None:
                raise RemoteProtocolError("it refused server/discover")
            revisions = [revision for revision in served_revisions(frame.result) if is_known_modern(revision)]
            if not revisions:
                raise RemoteProtocolError("it serves no revision without sessions that is known here")
            shown = _adapted(link, frame.result)
            # Raises if the result cannot be translated for a client with a session, which may come later.
            to_initialize_result(shown, client=LEGACY[LATEST_LEGACY], name=link.plan.id)
            link.upstream.receive_discovered(frame.result, max(revisions))
        except (RemoteProtocolError, msgspec.DecodeError) as fault:
            if not (
                self._discover_again(link, error)
                or self._accept_answered(link, is_denied=True)
                or self.turn(link, error)
                or self._fall_back_late(link)
            ):
                link.router.lose(link, str(fault), error=error_with_first(link, error))
            return
        link.handshake.receive_result(shown)
        _learn_abilities(link, frame.result)
        server_era = self.server_eras[link.plan.id]
        server_era.receive_discovery(frame.result)
        if (answered := link.handshake.take_answered()) is not None:
            server_era.receive_proof(Era.HANDSHAKE, _revision_in(answered.result))
        self._record_eras(link)
        self.accept_all(link)
        link.handshake.begin_replay(0)
        if link.router.open_listen(link):
            self._receive_ready(link)

    def _discover_again(self, link: Link, error: bytes | None) -> bool:
        """Sends `server/discover` once more, after an error that names a revision known here.

        Source: 2026-07-28 basic/versioning, "Protocol Version Negotiation".
        """
        if error is None or envelope.error_code(error) != UNSUPPORTED_VERSION or not is_modern(error):
            return False
        if link.upstream.state is not UpstreamSessionState.INITIALIZING or link.handshake.was_asked_again:
            return False
        link.handshake.ask_again()
        self._discover(link)
        return True

    def receive_listen_open(self, link: Link) -> None:
        """Handles the confirmation or the refusal of a `subscriptions/listen`: the link is ready."""
        if link.upstream.state is UpstreamSessionState.REPLAYING and link.is_stateless:
            self._receive_ready(link)

    def handle_probe_timeout(self, link: Link) -> None:
        """Tries the other era after `server/discover` had no response: some servers never answer an unknown method."""
        if link.upstream.state is not UpstreamSessionState.INITIALIZING or link.era is not Era.STATELESS:
            return
        if self._accept_answered(link):
            return
        is_known = self.server_eras[link.plan.id].speaks(Era.STATELESS, self._context.now) is True
        text = f"it did not answer server/discover within {self._probe_timeout_s(link):g} s"
        if is_known and self._move_on(link, text):
            return
        if (is_known and not link.is_pipe) or not (self.turn(link, is_said=False) or self._fall_back_late(link)):
            link.router.lose(link, text, error=link.handshake.error)

    def receive_head(self, link: Link, number: int | None, session: str | None) -> None:
        """Handles the head of the response to a POST, which may be that to `initialize`."""
        entry = None if number is None else link.pending.get(number)
        if (
            isinstance(entry, OwnRequest)
            and entry.purpose == "initialize"
            and link.upstream.state is UpstreamSessionState.INITIALIZING
        ):
            link.upstream.receive_head(session)

    def receive_handshake(self, link: Link, frame: Frame) -> None:
        """Handles the response to `initialize`."""
        link.handshake.take_noise()
        if frame.error is not None:
            error = envelope.usable_error(frame.error)
            is_denial = denies_handshake(error)
            if not (self.turn(link, error, is_denial=is_denial) or (is_denial and self._probe_again(link))):
                link.router.lose(link, "it refused to initialize", error=error_with_first(link, error))
            return
        if not self._must_probe(link):
            self._accept_handshake(link, frame)
            return
        link.handshake.put_aside(frame)
        self.server_eras[link.plan.id].receive_question(self._context.now)
        link.speak(Era.STATELESS)
        self._discover(link)

    def _must_probe(self, link: Link) -> bool:
        """True if the server should be asked whether it speaks the stateless era, before its `initialize` result is
        accepted.

        An HTTP server that begins no session has no stream for server requests or notifications. In the stateless era
        it can send both.
        """
        server_era = self.server_eras[link.plan.id]
        is_mute = link.upstream.session is None and not link.is_pipe
        server_era.receive_handshake(is_mute=is_mute)
        return is_mute and Era.STATELESS not in link.handshake.tried and server_era.may_ask(self._context.now)

    def _accept_answered(self, link: Link, *, is_denied: bool = False) -> bool:
        """Accepts the `initialize` result that was put aside for a probe. False if there is none.

        Args:
            is_denied: the server denied the stateless era.
        """
        frame = link.handshake.take_answered()
        if frame is None or link.upstream.state is not UpstreamSessionState.INITIALIZING:
            return False
        self._drop_own_requests(link)
        link.speak(Era.HANDSHAKE)
        if is_denied:
            self.server_eras[link.plan.id].receive_denial(Era.STATELESS, self._context.now)
        self._accept_handshake(link, frame)
        return True

    def _accept_handshake(self, link: Link, frame: Frame) -> None:
        assert frame.result is not None
        try:
            link.upstream.receive_initialized(frame.result)
            shown = _adapted(link, frame.result)
        except (RemoteProtocolError, msgspec.DecodeError) as fault:
            is_of_other_era = isinstance(fault, RemoteProtocolError) and fault.rpc_code == UNSUPPORTED_VERSION
            if not is_of_other_era or not self.turn(link, envelope.error_object(UNSUPPORTED_VERSION, str(fault))):
                link.router.lose(link, f"its answer to initialize is unusable: {fault}")
            return
        link.handshake.receive_result(shown)
        _learn_abilities(link, frame.result)
        self._record_eras(link)
        if link.plan.kind is Kind.HTTP:
            (self._event_pipes.add if link.is_pipe else self._event_pipes.discard)(link.plan.id)
        self.accept_all(link)
        self._writer.confirm(link)
        if link.is_pipe:  # a pipe keeps order: `initialized` arrives before all that follows
            self.receive_confirmed(link)

    def accept_all(self, link: Link) -> None:
        """Gives the server's handshake result to all sessions that wait for it. One that is presumed is given to those
        alone that may have it."""
        if link.handshake.result is None:
            return
        is_early = link.upstream.state in STARTING
        for session in list(link.sessions.values()):
            if is_early and not session.takes_early:
                continue
            if session.is_stateless:
                session.receive_greeting(self._discovery(link, session))
            elif session.opener is not None:
                shown, revision = handshake_for(link, session)
                self._sessions.accept_session(session, shown, revision)

    def _discovery(self, link: Link, session: Session) -> bytes:
        try:
            return discovery_of(link, session)
        except RemoteProtocolError as fault:
            text = f"what it says of itself cannot be shown to clients without sessions: {fault.message}"
            self._context.note("warning", text, link.plan.id)
            return NOTHING_KNOWN

    def receive_confirmed(self, link: Link) -> None:
        """Handles the arrival of `notifications/initialized`."""
        link.upstream.step(UpstreamSessionInput.CONFIRMED)
        if link.is_pipe or link.is_brief:
            self.receive_listening(link)
        else:
            self.listen(link)
            at = self._context.now + self._context.limits.listen_wait_s
            self._context.timers.set(("listening", link.id), at, "upstream event stream")

    def listen(self, link: Link, *, is_repeated: bool = False) -> None:
        """Opens the GET stream."""
        upstream = link.upstream
        target = Listen(
            server=link.plan.id,
            session=upstream.session,
            revision=upstream.revision,
            headers=link.headers,
            last_event_id=link.get_stream.last_event_id or None,
            cookies=link.cookies.pairs,
            principal=link.logs_in_as,
            address=link.address,
        )
        role = UpstreamStreamRole(link, self._context.now, is_repeated=is_repeated)
        link.get_stream.open(self._context.dial(role, target))

    def go_on(self, link: Link, session: str, revision: str, address: str) -> None:
        """Continues a session whose handshake was made by an earlier run of the proxy, at the address of that name.

        No GET stream is opened: messages of a task come on the streams of its own requests.
        """
        result = b'{"protocolVersion":%b,"capabilities":{"tools":{}}}' % msgspec.json.encode(revision)
        if (addresses := self.addresses.get(link.plan.id)) is not None:
            link.use_address(addresses.keep(link.id, address, self._context.now))
        upstream = link.upstream
        upstream.receive_need()
        upstream.step(UpstreamSessionInput.CONNECTED)
        upstream.receive_head(session)
        upstream.receive_initialized(result)
        upstream.step(UpstreamSessionInput.CONFIRMED)
        upstream.step(UpstreamSessionInput.LISTENED)
        upstream.receive_replayed(self._context.now)
        link.receive_abilities(TaskAbilities(calls=True, cancels=True, lists=False))

    def receive_listening(self, link: Link) -> None:
        """Handles the opening, the refusal or the timeout of the GET stream: requests need not wait for it any
        longer."""
        self._context.timers.cancel(("listening", link.id))
        if link.upstream.state is not UpstreamSessionState.LISTENING:
            return
        link.upstream.step(UpstreamSessionInput.LISTENED)
        replay = link.upstream.replay()
        link.handshake.begin_replay(len(replay))
        link.rest()
        for method, params in replay:
            self._writer.run(
                link, "replay", method, params, about=envelope.text_of(envelope.member_of(params, "uri")) or ""
            )
        if not replay:
            self._receive_ready(link)

    def receive_replayed(self, link: Link) -> None:
        """Handles the end of one replayed request, whether it succeeded or not."""
        if link.handshake.receive_replayed() and link.upstream.state is UpstreamSessionState.REPLAYING:
            self._receive_ready(link)

    def _receive_ready(self, link: Link) -> None:
        link.receive_ready(self._context.now)
        self._context.timers.cancel(("start", link.id))
        self.health[link.plan.id].receive_ready()
        for receive_ready in link.interceptors.receive_ready:
            receive_ready(link)
        self.flush(link)
        self.warm_pool.receive_ready(link, self.health[link.plan.id])

    def flush(self, link: Link) -> None:
        """Sends all that was queued for the server."""
        while link.upstream.state is UpstreamSessionState.READY and (entry := link.next_queued()) is not None:
            if isinstance(entry, QueuedNotification):
                self._writer.tell(link, *entry)
            else:
                link.router.send(link, entry)

    def advance(self, link: Link, done: Exchange) -> None:
        """Starts the next request of a serially shared process, after `done`."""
        if link.shared_process is None or not link.shared_process.end_turn(done):
            return
        while (following := link.shared_process.next_waiting()) is not None:
            link.router.send(link, following)

    # --- Timeouts ---------------------------------------------------------------------------------------------------

    def start_timeout_s(self, link: Link) -> float:
        return link.plan.start_timeout_s or self._context.limits.start_timeout_s

    def handle_start_timeout(self, link: Link) -> None:
        reason = f"it did not answer within {self.start_timeout_s(link):g} s of being started; {MORE_TIME}"
        if link.plan.id in self.addresses and link.upstream.state in STARTING:
            self._receive_failed_address(link, reason)
        link.router.lose(link, reason)

    def receive_refusal(self, link: Link, purpose: str, cause: Cause) -> bool:
        """Handles the end of a handshake's POST without a response in it. True if the handshake continues in another
        way."""
        error = error_in(cause)
        link.handshake.receive_words(first_words_in(cause))
        if purpose == "discover":
            if self._discover_again(link, error):
                return True
            is_denied = denies_stateless(cause)
            if self._accept_answered(link, is_denied=is_denied):
                return True
            if link.is_brief and cause.status >= INTERNAL_SERVER_ERROR:
                return self.turn(link, error, is_said=False)  # some fail at a method that they do not know
            return is_denied and (self.turn(link, error) or self._fall_back_late(link))
        if error is not None and is_evidence(cause):
            is_denial = denies_handshake(error)
            if self.turn(link, error, is_denial=is_denial):
                link.handshake.receive_refused_initialize(cause)
                return True
            if is_denial and self._probe_again(link):
                return True
        return self.fall_back(link, cause)

    def _fall_back_late(self, link: Link) -> bool:
        """Tries HTTP+SSE with a server that refused both eras over Streamable HTTP, `initialize` first. False if its
        refusal gives no reason to."""
        cause = link.handshake.refused_initialize
        if cause is None or link.era is not Era.STATELESS or not _may_fall_back(link, cause):
            return False
        link.handshake.try_handshake_again()
        link.speak(Era.HANDSHAKE)
        self._drop_own_requests(link)
        self._context.timers.cancel(("probe", link.id))
        return self.fall_back(link, cause)

    def handle_listening_timeout(self, link: Link) -> None:
        """Lets requests pass after the GET stream, or the `subscriptions/listen`, was not answered in time."""
        if link.is_stateless:
            self.receive_listen_open(link)
        else:
            self.receive_listening(link)

    def handle_relisten(self, link: Link) -> None:
        if link.get_stream.channel is None and link.upstream.state in (
            UpstreamSessionState.REPLAYING,
            UpstreamSessionState.READY,
        ):
            self.listen(link)


def _with_words(reason: str, words: str) -> str:
    """Returns why a server was lost, and what it said in its refusal."""
    if not words or words in reason:
        return reason
    return f"{reason}{' It' if reason.endswith('?') else '; it'} says: {words!r}"


def _adapted(link: Link, handshake: bytes) -> bytes:
    """Returns the handshake result that clients are shown."""
    for adapt in link.interceptors.adapt_handshake:
        handshake = adapt(link, handshake)
    return handshake


def error_with_first(link: Link, error: bytes | None) -> bytes | None:
    """Returns the error of the second era that was tried, with the words of the first in front."""
    first = link.handshake.error
    if first is None or error is None:
        return first or error
    said = [envelope.text_of(envelope.member_of(each, "message")) for each in (first, error)]
    if said[0] == said[1]:
        return first
    method = "server/discover" if link.is_stateless else "initialize"
    return set_member(first, "message", msgspec.json.encode(f"{said[0]}; asked with {method}: {said[1]}"))


def _may_fall_back(link: Link, cause: Cause) -> bool:
    if not link.plan.may_fall_back or link.upstream.state is not UpstreamSessionState.INITIALIZING or link.is_pipe:
        return False
    return cause.end is End.REFUSED and cause.status in (BAD_REQUEST, NOT_FOUND, METHOD_NOT_ALLOWED)


def _is_for_stateless(link: Link) -> bool:
    """True if the stateless era is tried first. A brief session does so over HTTP only: a process may never deny it."""
    is_http = link.plan.kind is Kind.HTTP
    sessions = link.sessions.values()
    return bool(sessions) and all(session.is_stateless or (session.is_brief and is_http) for session in sessions)


def _learn_abilities(link: Link, handshake: bytes) -> None:
    """Records what the server declares about tasks."""
    declared = envelope.member_of(handshake, "capabilities")
    link.receive_abilities(server_abilities(declared, is_stateless=link.is_stateless))


def _revision_in(initialized: bytes | None) -> str | None:
    """Returns the revision in an `initialize` result, if it can be read."""
    try:
        return envelope.text_of(envelope.member_of(initialized, "protocolVersion"))
    except RemoteProtocolError:
        return None
