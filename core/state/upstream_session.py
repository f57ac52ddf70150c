"""One session with an upstream server, as often as it has to be made.

The first handshake carries the client's own `initialize`; when the server later dies or forgets the session, the same
parameters make a new one, and what the client had set (log level, subscriptions) is set again before any request
passes. An upstream that will not start is left alone for a while, longer each time.
"""

from __future__ import annotations

import re
from typing import Final

from ..base.errors import RemoteProtocolError
from ..base.limits import Limits
from ..base.memoize import remembered
from ..base.state_machine import Machine, Symbol
from ..jsonrpc.envelope import member_of, text_of
from ..jsonrpc.splice import members, remove_member, take

REVISION: Final = re.compile(r"[!-~]{1,64}")
"""What a revision may look like to be echoed in a header; real ones are dates."""

REMEMBERED: Final = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
"""Requests that set what a new upstream session must be set to again."""


class State(Symbol):
    IDLE = "idle"  # nothing is there; the next need makes it
    DIALING = "dialing"  # a process is being started
    INITIALIZING = "initializing"  # initialize was sent, or server/discover
    CONFIRMING = "confirming"  # initialized was sent, and must arrive before anything else
    LISTENING = "listening"  # the GET stream is being opened, so that no question of the server is lost
    REPLAYING = "replaying"  # log level and subscriptions are being set again
    READY = "ready"
    CLOSED = "closed"


class Input(Symbol):
    DIAL = "dial"
    CONNECTED = "connected"
    REDIAL = "redial"  # it is reached in another way
    INITIALIZED = "initialized"
    DISCOVERED = "discovered"  # it answered `server/discover`: there is no more to a handshake then
    CONFIRMED = "confirmed"
    LISTENED = "listened"
    REPLAYED = "replayed"
    LOST = "lost"
    CLOSE = "close"


_GONE: Final = {Input.LOST: State.IDLE, Input.CLOSE: State.CLOSED}
TRANSITIONS: Final[dict[State, dict[Input, State]]] = {
    State.IDLE: {Input.DIAL: State.DIALING, Input.CLOSE: State.CLOSED},
    State.DIALING: {Input.CONNECTED: State.INITIALIZING, **_GONE},
    State.INITIALIZING: {
        Input.INITIALIZED: State.CONFIRMING,
        Input.DISCOVERED: State.REPLAYING,
        Input.REDIAL: State.DIALING,
        **_GONE,
    },
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
        capabilities: the names of the capabilities it declared; None before it has said so for the first time.
        failure: how it was lost last, for error messages.
        failures: such losses in a row as call for a pause.
        forgettings: sessions it forgot since it last answered a request.
        is_denied: it has just said that it does not know the session: nothing more is said in that.
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
        "forgettings",
        "incarnation",
        "initialize",
        "is_denied",
        "revision",
        "session",
    )

    TRANSITIONS = TRANSITIONS

    def __init__(self, initialize: bytes, limits: Limits) -> None:
        super().__init__(State.IDLE)
        self.initialize = initialize
        self.incarnation = 0
        self.session: str | None = None
        self.is_denied = False
        self.revision: str | None = None
        self.capabilities: frozenset[str] | None = None
        self.failure = ""
        self.failures = 0
        self._limits = limits
        self._not_before = float("-inf")
        self._ready_at = float("-inf")
        self.forgettings = 0
        self._is_suspect = False  # it was READY, and lost before it had answered anything
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
        self.is_denied = False

    def receive_head(self, session: str | None) -> None:
        """The response to `initialize` began. What is said from now on is said in the session it names: the server may
        ask before it answers.

        Source: 2025-11-25 basic/transports, "Session Management": "all of their subsequent HTTP requests".
        """
        assert self.state is State.INITIALIZING
        self.session = session

    def receive_initialized(self, result: bytes) -> None:
        """It answered `initialize`.

        Raises:
            RemoteProtocolError: the result is no object, or has a member twice. Nothing has changed.
        """
        revision, names = _introduction(result)
        self.step(Input.INITIALIZED)
        self.revision = revision
        self.capabilities = names

    def receive_discovered(self, result: bytes, revision: str) -> None:
        """It answered `server/discover`, and is spoken to in a revision without sessions.

        Raises:
            RemoteProtocolError: the result is no object, or has a member twice. Nothing has changed.
        """
        _, names = _introduction(result)
        self.step(Input.DISCOVERED)
        self.revision = revision
        self.session = None
        self.capabilities = names

    def receive_replayed(self, now: float) -> None:
        self.step(Input.REPLAYED)
        self._ready_at = now

    def receive_proof(self) -> None:
        """It answered a request, or stood for long: it works, whatever became of earlier ones."""
        self.failures = 0
        self.forgettings = 0
        self._is_suspect = False

    def receive_lost(self, reason: str, now: float, *, is_forgotten: bool = False) -> None:
        """It died, forgot the session or could not be reached.

        What had become READY is made anew at once, and so is what forgot its session; what fails before, or again
        without having answered anything, is left alone for a while.
        """
        was_ready = self.state is State.READY
        if was_ready and now - self._ready_at >= self._limits.restart_backoff_max_s:
            self.receive_proof()
        self.step(Input.LOST)
        self.failure = reason
        self.forgettings += is_forgotten
        if was_ready and (is_forgotten or not self._is_suspect):
            self._is_suspect = self._is_suspect or not is_forgotten
            return
        self.failures += 1
        pause = self._limits.restart_backoff_s * 2.0 ** min(self.failures - 1, 16)
        self._not_before = now + min(pause, self._limits.restart_backoff_max_s)

    def receive_rest(self) -> None:
        """It is let go, for nobody uses it; it is made anew when somebody does."""
        self.step(Input.LOST)

    def remember(self, method: str, params: bytes | None) -> bool:
        """A request that sets something succeeded: a later incarnation is set the same way. False if there are too many
        such to remember this one.

        Its `_meta` is left out: the progress token in it was the client's, for that one request. What no two readers
        would read alike (a member twice) is not remembered.
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
        elif uri in self._subscriptions or len(self._subscriptions) < self._limits.subscriptions_per_session_max:
            self._subscriptions[uri] = params
        else:
            return False
        return True

    def replay(self) -> list[tuple[str, bytes]]:
        """(method, params) of what a new incarnation must be told before anything else."""
        level = [] if self._level is None else [("logging/setLevel", self._level)]
        return level + [("resources/subscribe", params) for params in self._subscriptions.values()]

    @property
    def agreed_revision(self) -> str | None:
        """The revision that headers name; None while it is being negotiated."""
        return None if self.state is State.INITIALIZING else self.revision

    @property
    def ready_at(self) -> float:
        """When requests could pass for the last time that they could not."""
        return self._ready_at

    @property
    def is_suspect(self) -> bool:
        """Whether it was lost when it seemed to work, and has not answered anything since."""
        return self._is_suspect

    def forget_subscription(self, uri: str) -> None:
        """Nobody is subscribed to it any more."""
        self._subscriptions.pop(uri, None)

    @property
    def has_subscriptions(self) -> bool:
        """Whether the client waits for updates, so that a lost upstream is made anew without being asked."""
        return bool(self._subscriptions)


@remembered
def _introduction(result: bytes) -> tuple[str | None, frozenset[str]]:
    """The revision that a server names, if it can be said back in a header, and the names of what it can do.

    Raises:
        RemoteProtocolError: the result is no object, or has a member twice.
    """
    spans = members(result)
    revision = text_of(take(result, spans.get("protocolVersion")))
    if revision is not None and not REVISION.fullmatch(revision):
        revision = None
    declared = take(result, spans.get("capabilities"))
    return revision, frozenset(members(declared) if declared is not None and declared.startswith(b"{") else ())
