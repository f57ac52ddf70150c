"""One client's session with one server, as the client sees it.

It outlives the upstream session behind it: that one may be lost and made anew, this one keeps its id, its open
requests and what it is owed. The server's messages wait in it until the client has confirmed the handshake and has a
stream open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ..base.effects import Headers
from ..base.empty import NONE
from ..base.ids import ChannelId
from ..base.revisions import Features, features_of
from ..base.state_machine import Machine, Symbol
from ..bridge.request_meta import Envelope
from ..jsonrpc.envelope import IdKey
from .exchange import Exchange, ExchangeKey
from .stream import Stream
from .subscription import Listening


class State(Symbol):
    OPENING = "opening"  # initialize is on its way
    INITIALIZED = "initialized"  # its result was sent; server messages are held
    READY = "ready"  # the client said initialized, or behaved so
    CLOSED = "closed"


class Input(Symbol):
    ACCEPT = "accept"
    CONFIRM = "confirm"
    CLOSE = "close"


# Source: 2025-11-25 basic/lifecycle, "Initialization": the server "SHOULD NOT send requests other than pings and
# logging before receiving the initialized notification".
TRANSITIONS: Final[dict[State, dict[Input, State]]] = {
    State.OPENING: {Input.ACCEPT: State.INITIALIZED, Input.CLOSE: State.CLOSED},
    State.INITIALIZED: {Input.CONFIRM: State.READY, Input.CLOSE: State.CLOSED},
    State.READY: {Input.CLOSE: State.CLOSED},
    State.CLOSED: {},
}


class Audience(NamedTuple):
    """For whom a server may look as it does: what one is shown of it is not for others.

    Attributes:
        headers: as in `Affinities`.
    """

    server: str
    principal: str
    headers: Headers = ()


class Affinities(NamedTuple):
    """What requests of clients without sessions must have in common to share a session.

    Attributes:
        fingerprint: of what the client can do; "" where the server is told that with each request.
        group: the pipe they came on, the one request, or 0: any of the principal's.
        headers: what goes on to the server of their headers, those left out that are about a request: by it the server
            may know whose they are.
        is_for_one: it is the one request, with what becomes of it.
    """

    server: str
    principal: str
    fingerprint: str
    group: int
    headers: Headers = ()
    is_for_one: bool = False

    @property
    def audience(self) -> Audience:
        return Audience(self.server, self.principal, self.headers)


class Ask(NamedTuple):
    """A request of the server that waits for the client.

    Attributes:
        id_raw: the server's own id, under which it is answered.
        token_raw: the server's progress token, if any.
        incarnation: which upstream session asked; an answer for an earlier one is dropped.
        stream: where the client was asked; None while held. Only who was asked can answer.
        ordinal: which event of that stream the question is, if its events have ids.
        exchange: the call in whose course it is asked, where the answer has a longer way: to a `Round`, or from another
            request of the client.
        number: under which the client is asked.
        params: what the server said, where the client is shown it as its older revision has it.
        of_task: the call whose client is asked in the course of a task.
        told: how far the server was told that it is.
        is_shown: it has left for the client, and is not only kept for it.
    """

    id_raw: bytes
    token_raw: bytes | None
    method: str
    incarnation: int
    stream: Stream | None
    ordinal: int = 0
    exchange: Exchange | None = None
    number: int = 0
    params: bytes | None = None
    of_task: Exchange | None = None
    told: float = float("-inf")
    is_shown: bool = False


class Held(NamedTuple):
    """A message of the server for which the client has no stream open. `about` names what it tells the state of."""

    message: bytes
    method: str
    ask: int | None
    about: str = ""


class Session(Machine[State, Input]):
    """Moves along `TRANSITIONS` only.

    Attributes:
        id: the secret the client proves itself with (`Mcp-Session-Id`). Never in a handle, link, path or log.
        sid: the public name used in handles and links; knowing it gives nothing.
        workspace: the name of its folders.
        pipe: its channel, if it is a pipe; None on HTTP.
        streams: its GET streams that are connected, the newest last; a pipe's only stream.
        resumable: its streams with event ids, by number.
        last_stream: the highest such number.
        kept_bytes: what is kept of them in memory.
        stored_bytes: what is kept of them in the storage.
        opener: the initialize exchange, until it is answered.
        sees_hidden: it is not a client's, and is shown what the plan hides from clients.
        is_own: it is not a client's, and is told of tasks what the server says itself.
        headers: what of its client's latest HTTP headers goes on to the server.
        affinity: what its requests have in common, if its client has no sessions; it is then one of ours.
        client: what its client said of itself.
        greeting: what it is told of the server (a `DiscoverResult`), if its client has no sessions.
        level: the least severe log message it wants, for a server that wants to be told with each request.
        subscriptions: the resources it wants to hear of, for such a server.
        listens: its subscriptions, if its client has no sessions.
        adopted: how many of its exchanges are tasks, which no request of its client waits for.
        passing: how many large answers are on their way to its client, and not here in full. See `passing`.
    """

    __slots__ = (
        "adopted",
        "affinity",
        "asks",
        "base_url",
        "client",
        "exchanges",
        "features",
        "greeting",
        "headers",
        "held",
        "id",
        "is_own",
        "is_stateless",
        "kept_bytes",
        "last_ask",
        "last_stream",
        "level",
        "listens",
        "opener",
        "passing",
        "pipe",
        "principal",
        "resumable",
        "sees_hidden",
        "server",
        "sid",
        "stored_bytes",
        "streams",
        "subscriptions",
        "workspace",
    )

    TRANSITIONS = TRANSITIONS

    def __init__(
        self, *, id: str, sid: str, workspace: str, server: str, principal: str, pipe: ChannelId | None, base_url: str
    ) -> None:
        super().__init__(State.OPENING)
        self.id = id
        self.sid = sid
        self.workspace = workspace
        self.server = server
        self.principal = principal
        self.pipe = pipe
        self.base_url = base_url
        self.headers: Headers = ()
        self.sees_hidden = False
        self.is_own = False
        self.features: Features = features_of(None)
        self.streams: list[Stream] = [] if pipe is None else [Stream(pipe)]
        self.resumable: dict[int, Stream] = {}
        self.last_stream = 0
        self.kept_bytes = 0
        self.stored_bytes = 0
        self.opener: Exchange | None = None
        self.exchanges: dict[ExchangeKey, Exchange] = {}
        self.asks: dict[int, Ask] = {}
        self.held: list[Held] = []
        self.last_ask = 0
        self.affinity: Affinities | None = None
        self.is_stateless = False
        self.client = Envelope("", b"{}")
        self.greeting: bytes | None = None
        self.level: str | None = None
        self.subscriptions: dict[str, None] = {}
        self.listens: Mapping[ExchangeKey, Listening] = NONE
        self.adopted = 0
        self.passing = 0

    def rest(self) -> None:
        """All that is to come may take long: what was used once and is empty need not be kept."""
        for table in (self.exchanges, self.resumable):
            if not table:
                table.clear()

    def receive_headers(self, headers: Headers) -> None:
        """A request of the client brought these. Others than before are normal: credentials are renewed."""
        self.headers = headers or self.headers

    @property
    def is_busy(self) -> bool:
        """Whether something is going on that idleness must not end. A question that nobody answers is not."""
        return bool(self.exchanges or self.streams or self.passing)

    @property
    def in_flight(self) -> int:
        """How many requests of its client are open: not answered, or not in full."""
        return len(self.exchanges) - self.adopted + self.passing

    def find_by_id(self, id_key: IdKey) -> Exchange | None:
        """The open request with that id; None if there is none, or more than one, which nobody can tell apart."""
        found = [exchange for exchange in self.exchanges.values() if exchange.id_key == id_key]
        return found[0] if len(found) == 1 else None

    def record_ask(self, ask: Ask) -> int:
        """Note a server's request. Returns the id under which the client is asked."""
        self.last_ask += 1
        self.asks[self.last_ask] = ask._replace(number=self.last_ask)
        return self.last_ask

    def only_call(self) -> Exchange | None:
        """The one request in flight upstream that messages can travel with, if there is exactly one."""
        found = [e for e in self.exchanges.values() if e.upstream_id is not None and e.reply.can_stream]
        return found[0] if len(found) == 1 else None

    def latest_call(self) -> Exchange | None:
        """The most recently accepted request that messages can travel with."""
        return next((e for e in reversed(self.exchanges.values()) if e.reply.can_stream), None)
