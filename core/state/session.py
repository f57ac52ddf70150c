"""One client's session with one server, as the client sees it.

A session outlives the upstream session behind it. If that is lost, a new one is made, while this session keeps its id,
its open requests and the messages that its client has yet to receive.

The machine starts in OPENING when a client sends `initialize`; until the server's response is known, there is no
session that the client could use. ACCEPT means that the response was sent, and leads to INITIALIZED: the client may
send requests, and the server's messages are held. CONFIRM means that the client sent `notifications/initialized`, or
sent a request that shows that it considers the handshake done: in READY, held messages are released, and further ones
go to the client's streams at once. A client without a stream gets them when it opens one.

CLOSE ends the session in every state: the client ended it with DELETE or by closing its pipe, its handshake failed, it
was idle for too long, or the proxy shuts down.

Clients without sessions (2026-07-28) have such a session as well, one of ours, which several of their requests may
share. It is accepted and confirmed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ..base.budget import UNCOUNTED_MAX_BYTES, OwnerUse, Share
from ..base.empty import NONE, without
from ..base.events import Headers
from ..base.grants import Grants
from ..base.ids import ChannelId
from ..base.limits import Limits
from ..base.revisions import Features, features_of
from ..base.state_machine import Machine, Symbol
from ..bridge.capabilities import declared
from ..bridge.request_meta import RequestMeta
from ..jsonrpc.envelope import IdKey
from .answered_tokens import AnsweredToken, remembered
from .exchange import Exchange, ExchangeKey
from .list_changes import NO_LISTS, NOTIFICATION_OF
from .listen_filter import ListenFilter
from .ports import SessionRouter, StatelessReplies
from .stream import Stream
from .subscription import Subscription


class SessionState(Symbol):
    """The states of a session."""

    OPENING = "opening"  # `initialize` is not answered yet
    INITIALIZED = "initialized"  # the result of `initialize` was sent; server messages are held
    READY = "ready"  # the client confirmed the handshake
    CLOSED = "closed"


class SessionInput(Symbol):
    """The inputs that move a session from state to state."""

    ACCEPT = "accept"  # the result of `initialize` is sent
    CONFIRM = "confirm"  # `notifications/initialized`, or a request that implies it
    CLOSE = "close"  # ended by either side, or by a timeout


# Source: 2025-11-25 basic/lifecycle, "Initialization": the server "SHOULD NOT send requests other than pings and
# logging before receiving the initialized notification".
TRANSITIONS: Final[dict[SessionState, dict[SessionInput, SessionState]]] = {
    SessionState.OPENING: {SessionInput.ACCEPT: SessionState.INITIALIZED, SessionInput.CLOSE: SessionState.CLOSED},
    SessionState.INITIALIZED: {SessionInput.CONFIRM: SessionState.READY, SessionInput.CLOSE: SessionState.CLOSED},
    SessionState.READY: {SessionInput.CLOSE: SessionState.CLOSED},
    SessionState.CLOSED: {},
}


class Audience(NamedTuple):
    """The clients to whom a server looks the same. Information that a server gave to one audience is not used for
    another.

    Attributes:
        headers: as in `Affinities`.
    """

    server: str
    principal: str
    headers: Headers = ()


class Affinities(NamedTuple):
    """The properties that requests of clients without sessions must have in common to share a session.

    Attributes:
        fingerprint: a digest of the client's capabilities; "" where the server is told them with each request.
        group: the channel of the pipe or of the single request; 0 for any of the principal's.
        headers: the HTTP headers that go on to the server, without those that describe a request: the server may tell
            clients apart by them.
        is_for_one: the session is for one request, with its retries and tasks.
        handle: the name of the session in the handle that its requests bring.
    """

    server: str
    principal: str
    fingerprint: str
    group: int
    headers: Headers = ()
    is_for_one: bool = False
    handle: str = ""

    @property
    def audience(self) -> Audience:
        """The audience that these requests belong to."""
        return Audience(self.server, self.principal, self.headers)


class PendingQuestion(NamedTuple):
    """A server request that waits for the client's response.

    Attributes:
        id_raw: the server's own id, under which it is answered.
        token_raw: the server's progress token, if any.
        incarnation: the upstream session that asked; an answer for an earlier one is dropped.
        stream: the stream that the request was sent on; None while it is held. Only the client that was asked can
            answer.
        ordinal: the number of its event on that stream, if its events have ids.
        exchange: the call in whose course it is asked, if the answer does not go straight to the server: it is a
            question of an `InputRound`, or is answered in another request of the client.
        number: the id under which the client is asked.
        params: the server's params, if the client was sent others, in the form of its older revision.
        of_task: the call that the client was given a task for, if the question is asked in the course of that.
        is_shown: the request was sent to the client, and is not only kept for it.
        size_bytes: the bytes of its params, as far as they count in `Session.room`.
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
    is_shown: bool = False
    size_bytes: int = 0


class Held(NamedTuple):
    """A server message that waits until the client opens a stream. `about` names the object whose state it reports, and
    `question` is the number of a server request."""

    message: bytes
    method: str
    question: int | None
    about: str = ""


REQUEST_BYTES: Final = 2 * 1024
"""The memory of a request besides its params."""


def _counted_bytes(exchange: Exchange) -> int:
    """Returns the memory that a request counts for: none for that of a POST, unless it is large."""
    size_bytes = 0 if exchange.params is None else len(exchange.params)
    is_counted = size_bytes > UNCOUNTED_MAX_BYTES or not exchange.reply.ends_channel
    return size_bytes + REQUEST_BYTES if is_counted else 0


class ProfileLeg(NamedTuple):
    """The part of a session with one server of a profile that is of the session with the profile.

    Attributes:
        sid: the public name of the session with the profile.
        profile: the id of the profile.
        tool_shown: returns the name that clients have for a tool of the server.
    """

    sid: str
    profile: str
    tool_shown: Callable[[str], str]


class Session(Machine[SessionState, SessionInput]):
    """The state of one session.

    Attributes:
        id: the secret the client proves itself with (`Mcp-Session-Id`). Never in a handle, link, path or log.
        sid: the public name used in handles and links; knowing it gives no access.
        workspace: the name of its folders.
        server: the id of its server.
        router: routes its requests to its server.
        replies: replies to its client, if that has no sessions.
        owner: the owner of what it uses, see `core.base.budget`.
        pipe: its channel, if it is a pipe; None on HTTP.
        features: the features of its revision.
        streams: its connected GET streams, the newest last; for a pipe, its only stream.
        resumable: its streams with event ids, by number.
        last_stream: the highest such number.
        kept_bytes: bytes of its events kept in memory.
        stored_bytes: bytes of its events kept in the storage.
        opener: the `initialize` exchange, until it is answered.
        exchanges: its open requests, in order of arrival.
        questions: the server requests that wait for a response, by number.
        held: server messages that wait for a stream.
        answered_tokens: the progress tokens of the server requests that the client answered last, by their numbers.
        last_question: the highest number of a server request.
        sees_hidden: it is the driver's own, and sees the names that the plan hides from clients.
        is_own: it is the driver's own, and sees the task abilities the server declared.
        is_brief: it is the driver's own, and only learns who the server is, see `PipeOpening`.
        leg: set if it is a session with one server of a profile.
        headers: the headers of the client's latest HTTP request that go on to the server.
        affinity: the common properties of its requests, if its client has no sessions.
        is_stateless: its client has no sessions.
        client: the client's description of itself.
        greeting: the description of the server for the client (a `DiscoverResult`), if its client has no sessions.
        level: the least severe log level it wants, for a server that is told with each request.
        subscriptions: the URIs of the resources it subscribes to, for such a server.
        listens: its `subscriptions/listen` requests, if its client has no sessions.
        lists: the lists that its client has, if that has sessions.
        passed: the filters of those that are passed to the server. They are not in `listens`.
        adopted: number of its exchanges that are tasks, which no request of its client waits for.
        passing: number of large responses that are being passed on in parts. See `passthrough`.
        use: the use of its owner, of which its requests and streams are a part.
        room: the memory that it takes for what it keeps of messages.
        counted: bytes of that for each request that counts.
        grants: those of its latest request that was judged; None before the first.
    """

    __slots__ = (
        "adopted",
        "affinity",
        "answered_tokens",
        "base_url",
        "client",
        "counted",
        "exchanges",
        "features",
        "grants",
        "greeting",
        "headers",
        "held",
        "id",
        "is_brief",
        "is_own",
        "is_stateless",
        "kept_bytes",
        "last_question",
        "last_stream",
        "leg",
        "level",
        "listens",
        "lists",
        "opener",
        "owner",
        "passed",
        "passing",
        "pipe",
        "principal",
        "questions",
        "replies",
        "resumable",
        "room",
        "router",
        "sees_hidden",
        "server",
        "sid",
        "stored_bytes",
        "streams",
        "subscriptions",
        "use",
        "workspace",
    )

    TRANSITIONS = TRANSITIONS

    def __init__(
        self,
        *,
        id: str,
        sid: str,
        workspace: str,
        server: str,
        principal: str,
        owner: str,
        use: OwnerUse,
        room: Share,
        pipe: ChannelId | None,
        base_url: str,
        router: SessionRouter,
        replies: StatelessReplies | None = None,
        sees_hidden: bool = False,
        is_own: bool = False,
        is_brief: bool = False,
        leg: ProfileLeg | None = None,
    ) -> None:
        super().__init__(SessionState.OPENING)
        self.id = id
        self.sid = sid
        self.workspace = workspace
        self.server = server
        self.principal = principal
        self.owner = owner
        self.use = use
        self.room = room
        self.counted: Mapping[ExchangeKey, int] = NONE
        self.pipe = pipe
        self.base_url = base_url
        self.router = router
        self.replies = replies
        self.headers: Headers = ()
        self.sees_hidden = sees_hidden
        self.is_own = is_own
        self.is_brief = is_brief
        self.leg = leg
        self.features: Features = features_of(None)
        self.streams: list[Stream] = [] if pipe is None else [Stream(pipe)]
        self.resumable: dict[int, Stream] = {}
        self.last_stream = 0
        self.kept_bytes = 0
        self.stored_bytes = 0
        self.opener: Exchange | None = None
        self.exchanges: dict[ExchangeKey, Exchange] = {}
        self.questions: dict[int, PendingQuestion] = {}
        self.answered_tokens: Mapping[int, AnsweredToken] = NONE
        self.held: list[Held] = []
        self.last_question = 0
        self.affinity: Affinities | None = None
        self.is_stateless = False
        self.client = RequestMeta("", b"{}")
        self.greeting: bytes | None = None
        self.level: str | None = None
        self.subscriptions: dict[str, None] = {}
        self.listens: Mapping[ExchangeKey, Subscription] = NONE
        self.lists = NO_LISTS
        self.passed: Mapping[ExchangeKey, ListenFilter] = NONE
        self.adopted = 0
        self.passing = 0
        self.grants: Grants | None = None

    @property
    def files_sid(self) -> str:
        """The public name of the session that its files are of: those of a profile are of the session with that."""
        return self.sid if self.leg is None else self.leg.sid

    @property
    def takes_early(self) -> bool:
        """True if its client is answered while the server starts. The driver's own sessions learn what the server says
        now, and a profile keeps lists of its own."""
        return not self.is_own and self.leg is None

    def tool_shown(self, name: str) -> str:
        """Returns the name that its client has for a tool of its server."""
        return name if self.leg is None else self.leg.tool_shown(name)

    def receive_grants(self, grants: Grants) -> None:
        """Takes the grants of a request: its client may have another token now."""
        self.grants = grants

    def rest(self) -> None:
        """Frees the memory of emptied tables, before a time in which nothing may happen for long."""
        for table in (self.exchanges, self.resumable):
            if not table:
                table.clear()

    # --- Event streams ----------------------------------------------------------------------------------------------

    def add_resumable(self, stream: Stream) -> None:
        """Adds a stream whose events have ids from now on, and gives it its number."""
        self.last_stream += 1
        stream.begin(self.last_stream)
        self.resumable[self.last_stream] = stream

    def remove_resumable(self, stream: Stream) -> None:
        """Removes a stream that cannot be resumed any more."""
        assert stream.number is not None
        del self.resumable[stream.number]

    def count_kept(self, size_bytes: int) -> int:
        """Counts bytes of events kept in memory; negative for events that are dropped. Returns them."""
        self.kept_bytes += size_bytes
        return size_bytes

    def count_stored(self, size_bytes: int) -> int:
        """Counts bytes of events kept in the storage, likewise."""
        self.stored_bytes += size_bytes
        return size_bytes

    # --- Its client -------------------------------------------------------------------------------------------------

    def receive_headers(self, headers: Headers) -> None:
        """Takes over the headers of a client's request. Changes are normal: credentials are renewed."""
        self.headers = headers or self.headers

    @property
    def has_handle(self) -> bool:
        """True if the results of its client without sessions have a handle by which that comes back to it."""
        return self.affinity is not None and bool(self.affinity.handle)

    def use_workspace(self, workspace: str) -> None:
        """Takes over the folders of a process that was started ahead of need."""
        self.workspace = workspace

    # --- The handshake ----------------------------------------------------------------------------------------------

    def begin(self, opener: Exchange) -> None:
        """Begins the handshake with the client's `initialize`."""
        self.opener = opener
        self.exchanges[opener.key] = opener
        self.use.count_calls(1)

    def introduce(self, client: RequestMeta) -> None:
        """Takes the client's description of itself."""
        self.client = client

    @property
    def opens_pages(self) -> bool:
        """True if the client knows the error -32042, which no server of 2026-07-28 may send. Some do."""
        return self.features.url_elicitation and declared(self.client.capabilities, "elicitation", "url")

    def end_opening(self, features: Features | None) -> Exchange:
        """Ends the handshake. Returns its exchange.

        Args:
            features: those of the revision that was negotiated; None: the handshake has failed.
        """
        opener, self.opener = self.opener, None
        assert opener is not None
        if features is not None:
            self.step(SessionInput.ACCEPT)
            self.features = features
        return opener

    def serve_stateless(self, affinity: Affinities, client: RequestMeta, features: Features) -> None:
        """Opens the session for a client without sessions: there is no handshake."""
        self.affinity, self.is_stateless = affinity, True
        self.client, self.features = client, features
        self.step(SessionInput.ACCEPT)
        self.step(SessionInput.CONFIRM)

    def receive_greeting(self, greeting: bytes) -> None:
        """Takes the description of the server for a client without sessions."""
        self.greeting = greeting

    def merge(self, affinity: Affinities) -> None:
        """Serves requests of another affinity from now on."""
        self.affinity = affinity

    # --- Requests ---------------------------------------------------------------------------------------------------

    def add(self, exchange: Exchange, headers: Headers = ()) -> None:
        """Adds a request, with the headers that came with it."""
        self.exchanges[exchange.key] = exchange
        if self.use.is_bounded:
            self.use.count_calls(1)
        if not exchange.reply.ends_channel or (
            exchange.params is not None and len(exchange.params) > UNCOUNTED_MAX_BYTES
        ):
            self._count(exchange)
        if headers:
            self.headers = headers

    def remove(self, exchange: Exchange) -> None:
        """Removes a request that is over, or was refused before it began."""
        if self.exchanges.pop(exchange.key, None) is not None and self.use.is_bounded:
            self.use.count_calls(-1)
        if self.counted and exchange.key in self.counted:
            self.room.give_back(self.counted[exchange.key])
            self.counted = without(self.counted, exchange.key)
        if self.passed:
            self._end_passed(exchange)

    def has_room_for(self, exchange: Exchange) -> bool:
        """True if there is memory for a request."""
        size_bytes = _counted_bytes(exchange)
        return not size_bytes or self.room.has_room(size_bytes)

    def _count(self, exchange: Exchange) -> None:
        size_bytes = _counted_bytes(exchange)
        if self.room.take(size_bytes):
            self.counted = {**self.counted, exchange.key: size_bytes}

    def count_adopted(self, change: int) -> None:
        """Counts requests that became tasks, or tasks that are over."""
        self.adopted += change
        self.use.count_calls(-change)

    def count_passing(self, change: int) -> None:
        """Counts large responses that begin, or end, to be passed on in parts."""
        self.passing += change
        self.use.count_calls(change)

    # --- Streams ----------------------------------------------------------------------------------------------------

    def open_stream(self, stream: Stream, streams_max: int) -> Stream | None:
        """Adds a GET stream. Returns the oldest if there are too many now, which is removed."""
        self.streams.append(stream)
        if len(self.streams) > streams_max:
            return self.streams.pop(0)
        self.use.count_streams(1)
        return None

    def close_stream(self, stream: Stream) -> None:
        """Removes a GET stream, if it is there."""
        if stream in self.streams:
            self.streams.remove(stream)
            self.use.count_streams(-1)

    # --- What the client has set ------------------------------------------------------------------------------------

    def set_level(self, level: str | None) -> None:
        """Records the log level; None: the server has to be told again."""
        self.level = level

    def subscribe(self, uri: str, limits: Limits) -> str | None:
        """Records a subscription to a resource. Returns why there is no room for it; None if there is."""
        if uri in self.subscriptions:
            return None
        if len(self.subscriptions) >= limits.subscriptions_per_session_max:
            return f"{limits.subscriptions_per_session_max} resources are subscribed, the most allowed"
        most = limits.subscriptions_per_session_max_bytes
        if sum(map(len, self.subscriptions)) + len(uri) > most:
            return f"the URIs of all subscriptions have more characters than allowed, expected at most {most}"
        self.subscriptions[uri] = None
        return None

    def unsubscribe(self, uri: str) -> None:
        """Drops that record."""
        self.subscriptions.pop(uri, None)

    def begin_listen(self, subscription: Subscription) -> None:
        """Adds a `subscriptions/listen`."""
        self.listens = {**self.listens, subscription.exchange.key: subscription}
        self.use.count_streams(1)
        self._end_passed(subscription.exchange)

    def pass_listen(self, exchange: Exchange, wanted: ListenFilter) -> None:
        """Adds a subscription that is passed to the server, until its request is over."""
        if exchange.key not in self.passed:
            self.use.count_streams(1)
        self.passed = {**self.passed, exchange.key: wanted}

    def _end_passed(self, exchange: Exchange) -> None:
        if exchange.key in self.passed:
            self.passed = without(self.passed, exchange.key)
            self.use.count_streams(-1)

    def end_listen(self, exchange: Exchange) -> Subscription:
        """Removes a `subscriptions/listen`. Returns it."""
        subscription = self.listens[exchange.key]
        self.listens = without(self.listens, exchange.key)
        self.use.count_streams(-1)
        return subscription

    # --- Messages of the server -------------------------------------------------------------------------------------

    def receive_change(self, method: str) -> bool:
        """Handles a change of a list, which the proxy has made. True if the client is to be told now. `method` is the
        notification."""
        if method not in self.lists.known:
            self.lists = self.lists.receive_change(method, [one.method for one in self.exchanges.values()])
            return False
        return True

    def receive_listed(self, listing: str) -> str | None:
        """Handles the response to a request for a list. Returns the notification that waited for it; None if there is
        none."""
        waiting = self.lists.waiting
        self.lists = self.lists.receive_response(listing)
        return NOTIFICATION_OF[listing] if len(waiting) > len(self.lists.waiting) else None

    def hold(self, held: Held) -> None:
        """Keeps a message until there is a stream for it."""
        self.held.append(held)

    def drop_held(self, held: Held) -> None:
        """Drops a message that is kept."""
        self.held.remove(held)

    def take_held(self) -> list[Held]:
        """Removes and returns the messages that are kept."""
        held, self.held = self.held, []
        return held

    def drop_held_about(self, about: str) -> None:
        """Drops the kept messages that report the state of that object."""
        if self.held:
            self.held = [held for held in self.held if held.about != about]

    def drop_held_question(self, number: int) -> None:
        """Drops a question from the messages that are kept."""
        if self.held:
            self.held = [held for held in self.held if held.question != number]

    def replace_question(self, question: PendingQuestion) -> None:
        """Records what has changed of a server request."""
        self.questions[question.number] = question

    def settle_question(self, number: int) -> PendingQuestion | None:
        """Removes and returns a server request; None if it is settled already."""
        question = self.questions.pop(number, None)
        if question is not None and question.size_bytes:
            self.room.give_back(question.size_bytes)
        return question

    def remember_token(self, question: PendingQuestion) -> None:
        """Remembers the progress token of a server request that the client has answered."""
        assert question.token_raw is not None
        self.answered_tokens = remembered(
            self.answered_tokens, question.number, question.token_raw, question.incarnation
        )

    def close(self) -> list[PendingQuestion]:
        """Ends the session. Returns the server requests that were not answered."""
        self.step(SessionInput.CLOSE)
        self.counted = NONE
        self.room.give_all_back()
        questions = list(self.questions.values())
        self.questions.clear()
        self.held.clear()
        if self.pipe is None:
            self.use.count_streams(-len(self.streams))
        self.streams.clear()
        return questions

    # --- State ------------------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """True if the session must not end for idleness. An unanswered question does not count."""
        return bool(self.exchanges or self.streams or self.passing)

    @property
    def in_flight(self) -> int:
        """The number of its client's requests that are not answered, or not in full."""
        return len(self.exchanges) - self.adopted + self.passing

    @property
    def waiting_count(self) -> int:
        """The number of those that are owed a response. A subscription has none before its end."""
        return self.in_flight - len(self.listens) - len(self.passed)

    def is_listen(self, exchange: Exchange) -> bool:
        """True if a request is a subscription that has begun."""
        return exchange.key in self.listens or exchange.key in self.passed

    def find_by_id(self, id_key: IdKey) -> Exchange | None:
        """Returns the open request with that id; None if there is none, or if there are several, which cannot be told
        apart."""
        found = [exchange for exchange in self.exchanges.values() if exchange.id_key == id_key]
        return found[0] if len(found) == 1 else None

    def record_question(self, question: PendingQuestion) -> int:
        """Adds a server request. Returns the id under which the client is asked."""
        if not self.room.take(question.size_bytes):
            question = question._replace(size_bytes=0)
        self.last_question += 1
        self.questions[self.last_question] = question._replace(number=self.last_question)
        return self.last_question

    def only_call(self) -> Exchange | None:
        """Returns the one request in flight upstream on whose stream messages can travel; None unless there is exactly
        one."""
        found = [e for e in self.exchanges.values() if e.upstream_id is not None and e.reply.can_stream]
        return found[0] if len(found) == 1 else None

    def latest_call(self) -> Exchange | None:
        """Returns the most recently accepted request on whose stream messages can travel."""
        return next((e for e in reversed(self.exchanges.values()) if e.reply.can_stream), None)
