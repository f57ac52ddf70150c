"""One session with an upstream server, as often as it has to be made.

The first handshake carries the client's own `initialize`; when the server later dies or forgets the session, the same
parameters make a new one, and what the client had set (log level, subscriptions) is set again before any request
passes. An upstream that will not start is left alone for a while, longer each time.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from .jsonrpc import member_of, text_of
from .limits import Limits
from .machine import Machine


class State(enum.Enum):
    IDLE = "idle"  # nothing is there; the next need makes it
    DIALING = "dialing"  # a process is being started
    INITIALIZING = "initializing"  # initialize was sent
    CONFIRMING = "confirming"  # initialized was sent, and must arrive before anything else
    LISTENING = "listening"  # the GET stream is being opened, so that no question of the server is lost
    REPLAYING = "replaying"  # log level and subscriptions are being set again
    READY = "ready"
    CLOSED = "closed"


class Input(enum.Enum):
    DIAL = "dial"
    CONNECTED = "connected"
    INITIALIZED = "initialized"
    CONFIRMED = "confirmed"
    LISTENED = "listened"
    REPLAYED = "replayed"
    LOST = "lost"
    CLOSE = "close"


_GONE: Final = {Input.LOST: State.IDLE, Input.CLOSE: State.CLOSED}
TRANSITIONS: Final[dict[State, dict[Input, State]]] = {
    State.IDLE: {Input.DIAL: State.DIALING, Input.CLOSE: State.CLOSED},
    State.DIALING: {Input.CONNECTED: State.INITIALIZING, **_GONE},
    State.INITIALIZING: {Input.INITIALIZED: State.CONFIRMING, **_GONE},
    State.CONFIRMING: {Input.CONFIRMED: State.LISTENING, **_GONE},
    State.LISTENING: {Input.LISTENED: State.REPLAYING, **_GONE},
    State.REPLAYING: {Input.REPLAYED: State.READY, **_GONE},
    State.READY: _GONE,
    State.CLOSED: {},
}


class Upstream(Machine[State, Input]):
    """Moves along `TRANSITIONS` only.

    Args:
        initialize: the JSON of the params every handshake is made with.

    Attributes:
        incarnation: how many handshakes were begun.
        session: the upstream's `Mcp-Session-Id`, if it gave one.
        revision: what it negotiated.
        capabilities: the names of the capabilities it declared.
        failure: what the last failed start said, for error messages.
    """

    __slots__ = (
        "_level",
        "_limits",
        "_not_before",
        "_subscriptions",
        "capabilities",
        "failure",
        "failures",
        "incarnation",
        "initialize",
        "revision",
        "session",
    )

    TRANSITIONS = TRANSITIONS

    def __init__(self, initialize: bytes, limits: Limits) -> None:
        super().__init__(State.IDLE)
        self.initialize = initialize
        self.incarnation = 0
        self.session: str | None = None
        self.revision: str | None = None
        self.capabilities: frozenset[str] = frozenset()
        self.failure = ""
        self.failures = 0
        self._limits = limits
        self._not_before = float("-inf")
        self._level: bytes | None = None
        self._subscriptions: dict[str, bytes] = {}

    def pause_left(self, now: float) -> float:
        """Seconds until it may be dialled again; 0 when it may be now."""
        return max(0.0, self._not_before - now)

    def receive_need(self) -> None:
        """Somebody wants it: a handshake begins."""
        self.step(Input.DIAL)
        self.incarnation += 1
        self.session = None

    def receive_initialized(self, result: bytes, session: str | None) -> None:
        """It answered `initialize`.

        Raises:
            RemoteProtocolError: the result is no object, or has a member twice. Nothing has changed.
        """
        revision = text_of(member_of(result, "protocolVersion"))
        declared = member_of(result, "capabilities")
        names = msgspec.json.decode(declared, type=dict[str, msgspec.Raw]) if declared and declared[:1] == b"{" else {}
        self.step(Input.INITIALIZED)
        self.revision = revision
        self.session = session
        self.capabilities = frozenset(names)

    def receive_replayed(self) -> None:
        self.step(Input.REPLAYED)
        self.failures = 0
        self.failure = ""

    def receive_lost(self, reason: str, now: float) -> None:
        """It died, forgot the session or could not be reached. What failed before READY is not tried again at once."""
        was_ready = self.state is State.READY
        self.step(Input.LOST)
        self.failure = reason
        if not was_ready:
            self.failures += 1
            pause = self._limits.restart_backoff_s * 2.0 ** min(self.failures - 1, 16)
            self._not_before = now + min(pause, self._limits.restart_backoff_max_s)

    def remember(self, method: str, params: bytes | None) -> None:
        """A request that sets something succeeded: a later incarnation is set the same way."""
        if method == "logging/setLevel":
            self._level = params
        elif method in ("resources/subscribe", "resources/unsubscribe") and params is not None:
            uri = text_of(member_of(params, "uri"))
            if uri is None:
                return
            if method == "resources/unsubscribe":
                self._subscriptions.pop(uri, None)
            elif len(self._subscriptions) < self._limits.subscriptions_per_session_max:
                self._subscriptions[uri] = params

    def replay(self) -> list[tuple[str, bytes]]:
        """(method, params) of what a new incarnation must be told before anything else."""
        level = [] if self._level is None else [("logging/setLevel", self._level)]
        return level + [("resources/subscribe", params) for params in self._subscriptions.values()]

    @property
    def has_subscriptions(self) -> bool:
        """Whether the client waits for updates, so that a lost upstream is made anew without being asked."""
        return bool(self._subscriptions)
