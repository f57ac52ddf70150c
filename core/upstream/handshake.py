"""From the need for a server to a session with it that requests may pass: dialled, greeted, listened to, set again.

Nothing is held between the steps but the `Upstream`'s state; each step begins when the one before is heard of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from ..base.effects import Cause, End, Listen
from ..base.empty import NONE
from ..base.errors import UNSUPPORTED_VERSION, RemoteProtocolError
from ..base.plan import Kind
from ..base.revisions import LATEST_LEGACY, LATEST_MODERN, LEGACY, Era, is_known_modern
from ..bridge.discovery import served_revisions, to_initialize_result
from ..bridge.request_meta import add, own_envelope
from ..bridge.task_support import Abilities, server_abilities
from ..downstream.sessions import Clients
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Desk
from ..state.exchange import Exchange
from ..state.link import Errand, Link, Notice, UpPostRole, UpStreamRole
from ..state.session import Session
from ..state.upstream_session import Input, State
from ..wire.http.failure import BAD_REQUEST, METHOD_NOT_ALLOWED, NOT_FOUND, describe, error_in
from .dialer import Reaching
from .era_detection import OTHER, Verdict, denies_handshake, denies_stateless, is_modern
from .health import Health
from .introduction import NOTHING_KNOWN, discovery_of, handshake_for
from .shared_process import Crowd
from .writer import Uplink


class Adaptation(Protocol):
    """What the file plane says about handshakes."""

    def adapt_handshake(self, link: Link, result: bytes) -> bytes:
        """The `initialize` result the client is shown."""


class Losses(Protocol):
    """What becomes of a link that fails."""

    def lose(self, link: Link, reason: str, *, error: bytes | None = None, is_forgotten: bool = False) -> None: ...

    def give_up(self, link: Link, reason: str) -> None: ...


class News(Protocol):
    """What is subscribed with servers without sessions."""

    def open(self, link: Link) -> bool:
        """The server can be spoken to. True if nothing is wanted of it that must be subscribed first."""


class Listens(Protocol):
    """Who must know that the server tells of changes again."""

    def receive_ready(self, link: Link) -> None: ...


class Tasked(Protocol):
    """What the server is to be asked once it can be."""

    def receive_ready(self, link: Link) -> None: ...


class Handshakes:
    """
    Attributes:
        health: of each server, by its id.
        verdicts: which era each speaks, likewise.
        crowds: of each shared link, by its id.
        nursery: the spare processes, and the number of all.
    """

    def __init__(self, desk: Desk, clients: Clients, uplink: Uplink) -> None:
        self.files: Adaptation
        self.losses: Losses
        self.news: News
        self.listens: Listens
        self.tasked: Tasked
        self.forward: Callable[[Link, Exchange], None]
        self.health = {id: Health(desk.limits) for id in desk.servers}
        self.verdicts = {id: Verdict(plan.era, desk.limits) for id, plan in desk.servers.items()}
        self.crowds: dict[str, Crowd] = {}
        self._reaching = Reaching(desk, self.health, self._shake_hands)
        self.nursery = self._reaching.nursery
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
        if pause > 0 and link.upstream.state is State.IDLE and link.is_awaited:
            self._desk.timers.set(("restart", link.id), self._desk.now + pause, "upstream restart")

    def dial(self, link: Link) -> None:
        """Begin a handshake, if there may be one now."""
        fault = self._reaching.why_not(link)
        if fault is not None:
            self.losses.give_up(link, fault)
            return
        link.upstream.receive_need()
        link.denial, link.dialled_with = None, link.headers
        link.cookies.clear()  # they were those of the session before
        at = self._desk.now + self.start_timeout_s(link)
        self._desk.timers.set(("start", link.id), at, "upstream start")
        link.refusal = link.refused = None
        link.tried = NONE
        link.is_asked_again = False
        link.answered = None
        link.is_pipe = link.plan.kind is not Kind.HTTP or link.plan.id in self._event_pipes
        is_event_pipe = link.is_pipe and link.plan.kind is Kind.HTTP
        wanted = Era.HANDSHAKE if is_event_pipe or not _is_for_stateless(link) else Era.STATELESS
        link.speak(self.verdicts[link.plan.id].choose(wanted, self._desk.now))
        self._reaching.reach(link)

    def turn(self, link: Link, error: bytes | None = None, *, is_said: bool = True) -> bool:
        """The server does not speak the era that was tried: try the other one, on a connection or with a process of
        its own, since some servers decide by the first message. False if that was tried, or is known to be in vain.

        Args:
            error: what the server said.
            is_said: it said anything: silence and a sudden end may have other causes. What it answers as the others do
                counts, whatever it did before.
        """
        verdict = self.verdicts[link.plan.id]
        other = OTHER[link.era]
        if link.upstream.state not in (State.DIALING, State.INITIALIZING) or other in link.tried:
            return False
        if link.is_pipe and link.plan.kind is Kind.HTTP:
            return False
        if not verdict.may_turn(link.era, self._desk.now, is_said=is_said):
            verdict.forget(other)  # it cannot be that it speaks neither
            return False
        link.tried = {**link.tried, link.era: is_said}
        link.refused = link.refused or error
        link.speak(other)
        if link.upstream.state is State.INITIALIZING:
            link.upstream.step(Input.REDIAL)
        self._drop_errands(link)
        channel, link.channel = link.channel, None
        self._desk.close(channel, reason="spoken to in another way")
        self._desk.timers.cancel(("probe", link.id))
        self._reaching.reach(link)
        return True

    def _probe_again(self, link: Link) -> bool:
        """It was silent when it was asked whether it has no sessions, and says now that it has none: it was slow to
        start. Ask again where it has just answered, and only once."""
        if link.upstream.state is not State.INITIALIZING or link.tried.get(Era.STATELESS) is not False:
            return False
        link.tried = {Era.HANDSHAKE: True}
        link.speak(Era.STATELESS)
        self._discover(link)
        return True

    def _drop_errands(self, link: Link) -> None:
        """Nobody waits for what was asked in this handshake any more."""
        numbers = {number for number, entry in link.pending.items() if isinstance(entry, Errand)}
        for number in numbers:
            del link.pending[number]
        for channel in sorted(link.posts):
            role = self._desk.role_of(channel)
            if isinstance(role, UpPostRole) and role.number in numbers:
                self._desk.close(channel, reason="spoken to in another way")

    def _receive_verdict(self, link: Link) -> None:
        """The handshake came through: what failed before it failed for good, if it is known why."""
        verdict = self.verdicts[link.plan.id]
        verdict.receive_proof(link.era, link.upstream.revision)
        for era, is_said in link.tried.items():
            if is_said:
                verdict.receive_denial(era, self._desk.now)
            elif link.is_pipe:  # over HTTP, silence is the network's as often as the server's
                verdict.receive_silence(era, self._desk.now)
        self._desk.timers.cancel(("probe", link.id))

    def join(self, link: Link, *, is_repeated: bool = False) -> None:
        """Connect to the server's two-way stream."""
        self._reaching.join(link, is_repeated=is_repeated)

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
        assert link.era is Era.HANDSHAKE, "who is spoken to otherwise is not waited for any more"
        link.refusal = cause
        link.is_pipe = True
        link.upstream.step(Input.REDIAL)
        self._reaching.reach(link)
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
        if link.era is Era.HANDSHAKE:
            self._uplink.run(link, "initialize", "initialize", link.upstream.initialize)
        else:
            self._discover(link)

    def _discover(self, link: Link) -> None:
        who = own_envelope(LATEST_MODERN, self._desk.plan.version)
        self._uplink.run(link, "discover", "server/discover", add(None, who))
        at = self._desk.now + self._probe_timeout_s(link)
        self._desk.timers.set(("probe", link.id), at, "server/discover")

    def _probe_timeout_s(self, link: Link) -> float:
        limits = self._desk.limits
        return limits.probe_start_timeout_s if link.plan.kind is Kind.PIPE else limits.probe_timeout_s

    def receive_discovery(self, link: Link, frame: Frame) -> None:
        """The answer to `server/discover`."""
        link.babble = ""
        error = None if frame.error is None else envelope.usable_error(frame.error)
        try:
            if frame.result is None:
                raise RemoteProtocolError("it refused server/discover")
            revisions = [revision for revision in served_revisions(frame.result) if is_known_modern(revision)]
            if not revisions:
                raise RemoteProtocolError("it serves no revision without sessions that is known here")
            shown = self.files.adapt_handshake(link, frame.result) if link.has_files else frame.result
            # Raises where no client with a session could be shown it: such a one may come later.
            to_initialize_result(shown, client=LEGACY[LATEST_LEGACY], name=link.plan.id)
            link.upstream.receive_discovered(frame.result, max(revisions))
        except (RemoteProtocolError, msgspec.DecodeError) as fault:
            if not (self._ask_again(link, error) or self._go_back(link, is_denied=True) or self.turn(link, error)):
                self.losses.lose(link, str(fault), error=link.refused or error)
            return
        link.handshake, link.refusal, link.refused = shown, None, None
        _learn_abilities(link, frame.result)
        verdict = self.verdicts[link.plan.id]
        verdict.discovered = frame.result
        if link.answered is not None:
            verdict.receive_proof(Era.HANDSHAKE, _revision_in(link.answered.result))
            link.answered = None
        self._receive_verdict(link)
        self.accept_all(link)
        link.replaying = 0
        if self.news.open(link):
            self._receive_ready(link)

    def _ask_again(self, link: Link, error: bytes | None) -> bool:
        """It refuses the revision it was asked in, and names one that is known here: it is asked once more, in that.

        Source: 2026-07-28 basic/versioning, "Protocol Version Negotiation".
        """
        if error is None or envelope.error_code(error) != UNSUPPORTED_VERSION or not is_modern(error):
            return False
        if link.upstream.state is not State.INITIALIZING or link.is_asked_again:
            return False
        link.is_asked_again = True
        self._discover(link)
        return True

    def receive_news_open(self, link: Link) -> None:
        """What is subscribed is subscribed again, or cannot be."""
        if link.upstream.state is State.REPLAYING and link.is_stateless:
            self._receive_ready(link)

    def handle_probe_timeout(self, link: Link) -> None:
        """It may be one that never answers what it does not know."""
        if link.upstream.state is not State.INITIALIZING or link.era is not Era.STATELESS:
            return
        if self._go_back(link):
            return
        is_known = self.verdicts[link.plan.id].speaks(Era.STATELESS, self._desk.now) is True
        if (is_known and not link.is_pipe) or not self.turn(link, is_said=False):
            text = f"it did not answer server/discover within {self._probe_timeout_s(link):g} s"
            self.losses.lose(link, text, error=link.refused)

    def receive_head(self, link: Link, number: int | None, session: str | None) -> None:
        """The response to a POST began, which may be that to `initialize`."""
        entry = None if number is None else link.pending.get(number)
        if isinstance(entry, Errand) and entry.purpose == "initialize" and link.upstream.state is State.INITIALIZING:
            link.upstream.receive_head(session)

    def receive_handshake(self, link: Link, frame: Frame) -> None:
        """The answer to `initialize`."""
        link.babble = ""
        if frame.error is not None:
            error = envelope.usable_error(frame.error)
            if not (denies_handshake(error) and (self.turn(link, error) or self._probe_again(link))):
                self.losses.lose(link, "it refused to initialize", error=link.refused or error)
            return
        if not self._must_ask(link):
            self._accept_handshake(link, frame)
            return
        link.answered = frame
        self.verdicts[link.plan.id].receive_question(self._desk.now)
        link.speak(Era.STATELESS)
        self._discover(link)

    def _must_ask(self, link: Link) -> bool:
        """Whether to see if the server can do without a handshake: over HTTP, one that begins no session has no stream
        to ask anything on, or to tell of changes. In the era that needs none it can do both."""
        verdict = self.verdicts[link.plan.id]
        verdict.is_mute = link.upstream.session is None and not link.is_pipe
        return verdict.is_mute and Era.STATELESS not in link.tried and verdict.may_ask(self._desk.now)

    def _go_back(self, link: Link, *, is_denied: bool = False) -> bool:
        """It cannot do without, or does not say: go on with the handshake that it has answered. False if there is none.

        Args:
            is_denied: it said that it cannot.
        """
        frame, link.answered = link.answered, None
        if frame is None or link.upstream.state is not State.INITIALIZING:
            return False
        self._drop_errands(link)
        link.speak(Era.HANDSHAKE)
        if is_denied:
            self.verdicts[link.plan.id].receive_denial(Era.STATELESS, self._desk.now)
        self._accept_handshake(link, frame)
        return True

    def _accept_handshake(self, link: Link, frame: Frame) -> None:
        assert frame.result is not None
        try:
            link.upstream.receive_initialized(frame.result)
            shown = self.files.adapt_handshake(link, frame.result) if link.has_files else frame.result
        except (RemoteProtocolError, msgspec.DecodeError) as error:
            self.losses.lose(link, f"its answer to initialize is unusable: {error}")
            return
        link.handshake, link.refusal, link.refused = shown, None, None
        _learn_abilities(link, frame.result)
        self._receive_verdict(link)
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
        for session in list(link.sessions.values()):
            if session.is_stateless:
                session.greeting = self._discovery(link, session)
            elif session.opener is not None:
                shown, revision = handshake_for(link, session)
                self._clients.accept_session(session, shown, revision)

    def _discovery(self, link: Link, session: Session) -> bytes:
        try:
            return discovery_of(link, session)
        except RemoteProtocolError as fault:
            text = f"what it says of itself cannot be shown to clients without sessions: {fault.message}"
            self._desk.note("warning", text, link.plan.id)
            return NOTHING_KNOWN

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

    def go_on(self, link: Link, session: str, revision: str) -> None:
        """The handshake was made by an earlier run: go on in the session that it began. No stream is opened beside
        requests; what belongs to a task comes on theirs."""
        said = b'{"protocolVersion":%b,"capabilities":{"tools":{}}}' % msgspec.json.encode(revision)
        upstream = link.upstream
        upstream.receive_need()
        upstream.step(Input.CONNECTED)
        upstream.receive_head(session)
        upstream.receive_initialized(said)
        upstream.step(Input.CONFIRMED)
        upstream.step(Input.LISTENED)
        upstream.receive_replayed(self._desk.now)
        link.abilities = Abilities(calls=True, cancels=True, lists=False)

    def receive_listening(self, link: Link) -> None:
        """The stream is open, refused, or long in coming: requests need not wait for it any longer."""
        self._desk.timers.cancel(("listening", link.id))
        if link.upstream.state is not State.LISTENING:
            return
        link.upstream.step(Input.LISTENED)
        replay = link.upstream.replay()
        link.replaying = len(replay)
        link.rest()
        for method, params in replay:
            self._uplink.run(
                link, "replay", method, params, about=envelope.text_of(envelope.member_of(params, "uri")) or ""
            )
        if not replay:
            self._receive_ready(link)

    def receive_replayed(self, link: Link) -> None:
        """One of the settings was made again, or could not be."""
        link.replaying -= 1
        if link.replaying == 0 and link.upstream.state is State.REPLAYING:
            self._receive_ready(link)

    def _receive_ready(self, link: Link) -> None:
        link.upstream.receive_replayed(self._desk.now)
        link.is_plain = link.ferry = None
        self._desk.timers.cancel(("start", link.id))
        self.health[link.plan.id].receive_ready()
        self.listens.receive_ready(link)
        self.tasked.receive_ready(link)
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

    def receive_refusal(self, link: Link, purpose: str, cause: Cause) -> bool:
        """The POST of a handshake ended without an answer to it. True if it goes on in another way."""
        error = error_in(cause)
        if purpose == "discover":
            if self._ask_again(link, error):
                return True
            is_denied = denies_stateless(cause)
            return self._go_back(link, is_denied=is_denied) or (is_denied and self.turn(link, error))
        if error is not None and denies_handshake(error) and (self.turn(link, error) or self._probe_again(link)):
            return True
        return self.fall_back(link, cause)

    def handle_listening_timeout(self, link: Link) -> None:
        """Requests need not wait any longer for what the server says first."""
        if link.is_stateless:
            self.receive_news_open(link)
        else:
            self.receive_listening(link)

    def handle_relisten(self, link: Link) -> None:
        if link.stream is None and link.upstream.state in (State.REPLAYING, State.READY):
            self.listen(link)


def _is_for_stateless(link: Link) -> bool:
    return bool(link.sessions) and all(session.is_stateless for session in link.sessions.values())


def _learn_abilities(link: Link, handshake: bytes) -> None:
    """What the server itself says that it can do about tasks."""
    declared = envelope.member_of(handshake, "capabilities")
    link.abilities = server_abilities(declared, is_stateless=link.is_stateless)
    link.knows_supports = False


def _revision_in(initialized: bytes | None) -> str | None:
    """The revision that an answer to `initialize` names, as far as it can be read."""
    try:
        return envelope.text_of(envelope.member_of(initialized, "protocolVersion"))
    except RemoteProtocolError:
        return None
