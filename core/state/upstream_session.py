"""One session with an upstream server, through all its incarnations.

The first handshake carries the client's own `initialize`. When the server later dies or forgets the session, the same
parameters make a new one, and the settings that the client had made (log level, subscriptions) are restored before any
request is sent. Each handshake is one incarnation. A server that does not start is left alone for a while, longer each
time.

The machine rests in IDLE, where there is no session. DIAL begins an incarnation: in DIALING a process is started, or a
connection made; an HTTP server needs neither. CONNECTED leads to INITIALIZING: `initialize`, or, for a server of
unknown era, `server/discover` was sent. REDIAL leads back, to try the server over another transport, in the other
era, or at another address.

INITIALIZED means that the server answered `initialize`. In CONFIRMING `notifications/initialized` is sent, and must
arrive before anything else; CONFIRMED says that it did. In LISTENING the GET stream is opened, so that no server
request is lost; LISTENED says that it is open, that there is none, or that it takes too long. In REPLAYING the settings
are restored, and REPLAYED leads to READY: requests pass. DISCOVERED skips CONFIRMING and LISTENING, since a stateless
server has neither.

LOST leads back to IDLE from every state in between: the server died, forgot the session, could not be reached, or was
stopped because it was idle. CLOSE ends the machine: the link is not needed any more.
"""

from __future__ import annotations

import re
from typing import Final

from ..base.errors import UNSUPPORTED_VERSION, RemoteProtocolError
from ..base.limits import Limits
from ..base.memoize import remembered
from ..base.revisions import MODERN
from ..base.state_machine import Machine, Symbol
from ..jsonrpc.envelope import member_of, text_of
from ..jsonrpc.splice import members, remove_member, take

REVISION: Final = re.compile(r"[!-~]{1,64}")
"""The form of a revision that may be echoed in a header; real ones are dates."""

REMEMBERED: Final = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
"""Requests whose settings a new incarnation must restore."""


class UpstreamSessionState(Symbol):
    """The states of an upstream session."""

    IDLE = "idle"  # there is no session; the next request makes one
    DIALING = "dialing"  # a process is being started, or a connection made
    INITIALIZING = "initializing"  # `initialize` or `server/discover` was sent
    CONFIRMING = "confirming"  # `notifications/initialized` was sent, and must arrive before anything else
    LISTENING = "listening"  # the GET stream is being opened, so that no server request is lost
    REPLAYING = "replaying"  # log level and subscriptions are being restored
    READY = "ready"  # requests are sent as they come
    CLOSED = "closed"  # the link has ended


class UpstreamSessionInput(Symbol):
    """The inputs that move an upstream session from state to state."""

    DIAL = "dial"  # a handshake begins
    CONNECTED = "connected"  # the process runs, or the connection is open
    REDIAL = "redial"  # another transport, era or address is tried
    INITIALIZED = "initialized"  # `initialize` was answered
    DISCOVERED = "discovered"  # `server/discover` was answered, which is the whole handshake then
    CONFIRMED = "confirmed"  # `notifications/initialized` arrived
    LISTENED = "listened"  # the GET stream is open, refused, or overdue
    REPLAYED = "replayed"  # all settings are restored
    LOST = "lost"  # the server is gone, or the session is
    CLOSE = "close"  # the link is not needed any more


_GONE: Final = {
    UpstreamSessionInput.LOST: UpstreamSessionState.IDLE,
    UpstreamSessionInput.CLOSE: UpstreamSessionState.CLOSED,
}
TRANSITIONS: Final[dict[UpstreamSessionState, dict[UpstreamSessionInput, UpstreamSessionState]]] = {
    UpstreamSessionState.IDLE: {
        UpstreamSessionInput.DIAL: UpstreamSessionState.DIALING,
        UpstreamSessionInput.CLOSE: UpstreamSessionState.CLOSED,
    },
    UpstreamSessionState.DIALING: {UpstreamSessionInput.CONNECTED: UpstreamSessionState.INITIALIZING, **_GONE},
    UpstreamSessionState.INITIALIZING: {
        UpstreamSessionInput.INITIALIZED: UpstreamSessionState.CONFIRMING,
        UpstreamSessionInput.DISCOVERED: UpstreamSessionState.REPLAYING,
        UpstreamSessionInput.REDIAL: UpstreamSessionState.DIALING,
        **_GONE,
    },
    UpstreamSessionState.CONFIRMING: {UpstreamSessionInput.CONFIRMED: UpstreamSessionState.LISTENING, **_GONE},
    UpstreamSessionState.LISTENING: {UpstreamSessionInput.LISTENED: UpstreamSessionState.REPLAYING, **_GONE},
    UpstreamSessionState.REPLAYING: {UpstreamSessionInput.REPLAYED: UpstreamSessionState.READY, **_GONE},
    UpstreamSessionState.READY: _GONE,
    UpstreamSessionState.CLOSED: {},
}


class UpstreamSession(Machine[UpstreamSessionState, UpstreamSessionInput]):
    """The state of one upstream session.

    Args:
        initialize: the JSON of the params of every `initialize`.

    Attributes:
        incarnation: number of handshakes begun.
        session: the upstream's `Mcp-Session-Id`, if it gave one.
        revision: the negotiated revision.
        capabilities: the names of the capabilities it declared; None before its first introduction.
        failure: the reason of the latest loss, for error messages.
        failures: losses in a row that call for a pause.
        forgettings: sessions it forgot since it last answered a request.
        needs_proof: it has failed, and has not answered a request since.
        is_denied: the server has just said that it does not know the session: nothing more is sent in it.
    """

    __slots__ = (
        "_is_suspect",
        "_level",
        "_limits",
        "_not_before",
        "_ready_at",
        "_subscriptions",
        "capabilities",
        "failure",
        "failures",
        "incarnation",
        "initialize",
        "is_denied",
        "needs_proof",
        "revision",
        "session",
        "times_forgotten",
    )

    TRANSITIONS = TRANSITIONS

    def __init__(self, initialize: bytes, limits: Limits) -> None:
        super().__init__(UpstreamSessionState.IDLE)
        self.initialize = initialize
        self.incarnation = 0
        self.session: str | None = None
        self.is_denied = False
        self.revision: str | None = None
        self.capabilities: frozenset[str] | None = None
        self.failure = ""
        self.failures = 0
        self.needs_proof = False
        self._limits = limits
        self._not_before = float("-inf")
        self._ready_at = float("-inf")
        self.times_forgotten = 0
        self._is_suspect = False  # was READY, and was lost before it had answered anything
        self._level: bytes | None = None
        self._subscriptions: dict[str, bytes] = {}

    def pause_left(self, now: float) -> float:
        """Returns the seconds until it may be dialled again; 0 if it may be now."""
        return max(0.0, self._not_before - now)

    def receive_need(self) -> None:
        """Begins a handshake: a new incarnation."""
        self.step(UpstreamSessionInput.DIAL)
        self.incarnation += 1
        self.session = None
        self.is_denied = False

    def receive_redialled(self) -> None:
        """Begins the handshake anew, at another address of the server: a new incarnation, so that nothing which the
        first address still sends counts."""
        if self.state is UpstreamSessionState.INITIALIZING:
            self.step(UpstreamSessionInput.REDIAL)
        assert self.state is UpstreamSessionState.DIALING
        self.incarnation += 1

    def forget_session(self) -> None:
        """Forgets the `Mcp-Session-Id`: the server is spoken to in another era, and has yet to name one."""
        self.session = None

    def receive_denied(self, *, is_denied: bool) -> None:
        """Records whether the server has just said that it does not know the session."""
        self.is_denied = is_denied

    def receive_head(self, session: str | None) -> None:
        """Handles the head of the response to `initialize`. All messages from now on name its session: the server may
        send requests before it answers.

        Source: 2025-11-25 basic/transports, "Session Management": "all of their subsequent HTTP requests".
        """
        assert self.state is UpstreamSessionState.INITIALIZING
        self.session = session

    def presume(self, revision: str | None, capabilities: frozenset[str] | None) -> None:
        """Takes these for what the server will answer, until it does."""
        assert self.state in (UpstreamSessionState.DIALING, UpstreamSessionState.INITIALIZING)
        self.revision, self.capabilities = revision, capabilities

    def receive_initialized(self, result: bytes) -> None:
        """Handles the result of `initialize`.

        Raises:
            RemoteProtocolError: the result is no object, has a member twice, or names a revision without `initialize`
                (UNSUPPORTED_VERSION). Nothing has changed.
        """
        revision, names = _introduction(result)
        if revision in MODERN:
            text = f"got {revision} in the answer to initialize, expected a revision that has initialize"
            raise RemoteProtocolError(text, rpc_code=UNSUPPORTED_VERSION)
        self.step(UpstreamSessionInput.INITIALIZED)
        self.revision = revision
        self.capabilities = names

    def receive_discovered(self, result: bytes, revision: str) -> None:
        """Handles the result of `server/discover`, which chose a revision without sessions.

        Raises:
            RemoteProtocolError: the result is no object, or has a member twice. Nothing has changed.
        """
        _, names = _introduction(result)
        self.step(UpstreamSessionInput.DISCOVERED)
        self.revision = revision
        self.session = None
        self.capabilities = names

    def receive_replayed(self, now: float) -> None:
        """Handles the end of the handshake: the settings are restored."""
        self.step(UpstreamSessionInput.REPLAYED)
        self._ready_at = now

    def receive_proof(self) -> None:
        """Clears the record of failures: the server answered a request, or ran for long."""
        self.needs_proof = False
        self.failures = 0
        self.times_forgotten = 0
        self._is_suspect = False

    def receive_lost(self, reason: str, now: float, *, is_forgotten: bool = False) -> None:
        """Handles the loss of the session: the server died, forgot it or could not be reached.

        A session that had become READY is made anew at once, and so is a forgotten one. If it fails before that, or
        again without having answered anything, the server is left alone for a while (`Limits.restart_backoff_s`,
        doubled each time).
        """
        was_ready = self.state is UpstreamSessionState.READY
        if was_ready and now - self._ready_at >= self._limits.restart_backoff_max_s:
            self.receive_proof()
        self.step(UpstreamSessionInput.LOST)
        self.failure = reason
        self.needs_proof = True
        self.times_forgotten += is_forgotten
        if was_ready and (is_forgotten or not self._is_suspect):
            self._is_suspect = self._is_suspect or not is_forgotten
            return
        self.failures += 1
        pause = self._limits.restart_backoff_s * 2.0 ** min(self.failures - 1, 16)
        self._not_before = now + min(pause, self._limits.restart_backoff_max_s)

    def receive_rest(self) -> None:
        """Lets go of a server that is not in use. The next request makes a new session."""
        self.step(UpstreamSessionInput.LOST)

    def remember(self, method: str, params: bytes | None) -> bool:
        """Records a setting that a request has made, for later incarnations. False if too many are recorded already.

        The `_meta` of the params is left out: its progress token was for that one request. Params with a member twice
        are not recorded, because two readers could read them differently.
        """
        if method not in REMEMBERED or params is None or not params.startswith(b"{"):
            return True
        try:
            params = remove_member(params, "_meta")
        except RemoteProtocolError:
            return True
        if method == "logging/setLevel":
            self._level = params
            return True
        uri = text_of(member_of(params, "uri"))
        if uri is None:
            return True
        if method == "resources/unsubscribe":
            self._subscriptions.pop(uri, None)
        else:
            others = [kept for other, kept in self._subscriptions.items() if other != uri]
            size_bytes = sum(map(len, others)) + len(params)
            if (
                len(others) >= self._limits.subscriptions_per_session_max
                or size_bytes > self._limits.subscriptions_per_session_max_bytes
            ):
                return False
            self._subscriptions[uri] = params
        return True

    def replay(self) -> list[tuple[str, bytes]]:
        """Returns (method, params) of the requests that restore the settings in a new incarnation."""
        level = [] if self._level is None else [("logging/setLevel", self._level)]
        return level + [("resources/subscribe", params) for params in self._subscriptions.values()]

    @property
    def agreed_revision(self) -> str | None:
        """The revision that headers name; None while it is being negotiated."""
        return None if self.state is UpstreamSessionState.INITIALIZING else self.revision

    @property
    def ready_at(self) -> float:
        """The time at which it became READY last."""
        return self._ready_at

    @property
    def is_suspect(self) -> bool:
        """True if it was lost although it seemed to work, and has not answered anything since."""
        return self._is_suspect

    def forget_subscription(self, uri: str) -> None:
        """Drops a recorded subscription."""
        self._subscriptions.pop(uri, None)

    @property
    def has_subscriptions(self) -> bool:
        """True if the client waits for resource updates, so that a lost upstream is made anew without a request."""
        return bool(self._subscriptions)


@remembered
def _introduction(result: bytes) -> tuple[str | None, frozenset[str]]:
    """Returns the revision that a server names, if it can be echoed in a header, and the names of its capabilities.

    Raises:
        RemoteProtocolError: the result is no object, or has a member twice.
    """
    spans = members(result)
    revision = text_of(take(result, spans.get("protocolVersion")))
    if revision is not None and not REVISION.fullmatch(revision):
        revision = None
    declared = take(result, spans.get("capabilities"))
    return revision, frozenset(members(declared) if declared is not None and declared.startswith(b"{") else ())
