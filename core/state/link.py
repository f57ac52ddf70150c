"""What stands between downstream sessions and a server: the upstream session, its channels and open requests.

A link belongs to one session, or, where the plan says so, to all sessions with its server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from ..base.effects import Cause, Delete, Headers
from ..base.empty import NONE
from ..base.ids import ChannelId
from ..base.limits import Limits
from ..base.plan import Kind, ServerPlan, Sharing
from ..base.revisions import Era
from ..bridge.task_support import Abilities, Support
from ..jsonrpc.envelope import Frame
from ..wire.http.cookies import CookieStore
from ..wire.http.mcp_headers import Named
from ..wire.http.param_headers import Mirror
from .context import Role
from .exchange import Exchange
from .listen import Filter
from .session import Session
from .tool_hints import Hints
from .upstream_session import State, Upstream

CANCEL: Final = "task-cancel"
"""What a request of ours is for that ends a task of the server's."""
SUBSCRIPTION: Final = "listen"
"""What one is for whose answer comes when nobody wants to hear of changes any more."""


class Notice(NamedTuple):
    """A message that waits for the upstream, or for what comes of it, and what of the client's headers goes with it."""

    message: bytes
    headers: Headers


NO_QUEUE: Final[deque[Exchange | Notice]] = deque(maxlen=0)
NOTHING: Final[frozenset[Any]] = frozenset()
"""What most links have, of which there may be thousands: each empty queue takes 760 bytes, each empty set 216."""


class Crossed(NamedTuple):
    """A request as its server is to have it."""

    params: bytes | None
    mirrored: Headers = ()


class Said(NamedTuple):
    """What a client without sessions said, and how it was looked at.

    Attributes:
        rest: what is in `_meta` beside what it says of itself; empty: nothing.
    """

    params: bytes
    spans: Mapping[str, slice]
    named: Named
    rest: bytes


class Ferry(Protocol):
    """How plain calls get across a link. See `ferries`; None of either method: it does not know."""

    def up(self, link: Link, session: Session, method: str, params: bytes | None, said: Said | None) -> Crossed | None:
        """
        Args:
            params: as the client sent them. Nothing in them is about tasks, progress or an earlier round.
            said: the same, of a client without sessions.
        """

    def down(self, link: Link, session: Session, exchange: Exchange, result: bytes) -> bytes | None:
        """The result of a request that went up so."""


class Link:
    """Attributes:
    id: names it among all links; that of its session, if it has but one.
    has_files, is_filtered: of its plan, looked at with each request.
    sessions: whose requests it carries, by their public names.
    workspace: the name of the folders its process is given.
    is_furnished: files may lie there, or be on their way, for a call that waits for the process.
    channel: the two-way stream to the server, for a pipe.
    cookies: what the server has set in this upstream session.
    children: processes that were started and are not known to be gone.
    stream: the GET stream, for HTTP.
    cut: replies that are to be taken up again, by the number of their request.
    denial: how the server refused the credentials of the last handshake, if it did.
    dialled_with: the client's headers that the last handshake was made with.
    listen_event_id: the last event id that the GET stream named.
    listen_idle: GET streams in a row that brought no message.
    pending: what each number written upstream is for; numbers are never used twice, over all incarnations.
    queue: requests and notifications that wait for the upstream to be ready, in order.
    babble: how the first line began that was no message, and came in place of an answer to `initialize`.
    noise: how many messages of the server could not be read.
    notices: open POSTs that carry a notification or an answer.
    has_listened: whether this upstream session has ever granted a GET stream, its own or the rest of a reply.
    is_asked_again: in this handshake it was asked in a revision it named, after it had refused another.
    is_plain: whether nothing here has a say in what goes up and comes down; None: nobody has looked, in this
        incarnation. See `plain`.
    ferry: how plain calls get across, where they are not the same on both sides. See `ferries`.
    is_pipe: whether the server is spoken to over one two-way stream, rather than with a POST a message.
    refusal: why the server is not spoken to over Streamable HTTP, if that was tried first.
    handshake: the result of its last `initialize`, or `server/discover`, as clients are shown it.
    era: how the server is spoken to, or is to be.
    is_stateless: it has no sessions then: each request says all.
    answered: what it answered to `initialize`, while it is asked whether it can do without.
    tried: the eras that failed in this handshake, and whether the server said so, or nothing at all.
    refused: the error that the first of them failed with.
    hints: what its tools take where `files: auto` asks; None: nobody has looked.
    mirrors: which arguments of its tools the server wants in headers too, by tool; None: nobody has looked.
    page_read: the cursor of the last page of its list of tools that was asked for.
    pages_read: of its list of tools, while that is read for this.
    wrapped: the tools whose results have to be wrapped for clients that know only objects.
    learning: requests that wait for that to be known.
    levelling: requests that wait for the server to be told how much it is to log, and the level.
    ears: our subscriptions with a server without sessions, by their numbers; the newest last.
    missed: what may have changed while nothing was subscribed.
    subscribing: requests that wait until a resource is among what is subscribed.
    abilities: what the server itself can do about tasks.
    supports: which of its tools are to be called as tasks, by what it declared of them.
    knows_supports: whether its whole list of tools was read for that.
    remotes: the exchanges that are tasks of the server's, by its names for them.
    tokens: the same by the numbers that their progress comes under.
    parting: POSTs that say so: the farewell to the server waits for them.
    orphans: calls that nobody wants any more, and that the server may make tasks of yet, by their numbers.
    leaving: cancellations of tasks that are still to be answered, by their numbers, when all else is over.
    is_lent: it goes on with a session that an earlier run began, and others may as well: it is not ended from here.
    is_left: tasks of the server's go on there without us: it is not told that its session is over.
    """

    __slots__ = (
        "abilities",
        "answered",
        "babble",
        "channel",
        "children",
        "cookies",
        "cut",
        "denial",
        "dialled_with",
        "ears",
        "era",
        "ferry",
        "handshake",
        "has_files",
        "has_listened",
        "hints",
        "id",
        "is_asked_again",
        "is_filtered",
        "is_furnished",
        "is_left",
        "is_lent",
        "is_pipe",
        "is_plain",
        "is_stateless",
        "knows_supports",
        "last_id",
        "learning",
        "leaving",
        "levelling",
        "listen_event_id",
        "listen_failures",
        "listen_idle",
        "mirrors",
        "missed",
        "noise",
        "notices",
        "orphans",
        "page_read",
        "pages_read",
        "parting",
        "pending",
        "plan",
        "posts",
        "queue",
        "refusal",
        "refused",
        "remotes",
        "replaying",
        "sessions",
        "stream",
        "subscribing",
        "supports",
        "tokens",
        "tried",
        "upstream",
        "workspace",
        "wrapped",
    )

    def __init__(self, id: str, plan: ServerPlan, workspace: str, initialize: bytes, limits: Limits) -> None:
        self.id = id
        self.plan = plan
        self.has_files = plan.has_files
        self.is_filtered = bool(plan.tools or plan.prompts or plan.resources)
        self.sessions: dict[str, Session] = {}
        self.workspace = workspace
        self.upstream = Upstream(initialize, limits)
        self.channel: ChannelId | None = None
        self.children = 0
        self.cookies = CookieStore(limits)
        self.stream: ChannelId | None = None
        self.posts: dict[ChannelId, None] = {}
        self.cut: Mapping[int, UpPostRole] = NONE
        self.denial: Cause | None = None
        self.dialled_with: Headers = ()
        self.listen_event_id: str | None = None
        self.pending: dict[int, Exchange | Errand] = {}
        self.queue = NO_QUEUE
        self.babble = ""
        self.is_plain: bool | None = None
        self.ferry: Ferry | None = None
        self.noise = 0
        self.notices = 0
        self.has_listened = False
        self.is_asked_again = False
        self.is_pipe = plan.kind is not Kind.HTTP
        self.refusal: Cause | None = None
        self.handshake: bytes | None = None
        self.last_id = 0
        self.replaying = 0
        self.listen_failures = 0
        self.listen_idle = 0
        self.era = Era.HANDSHAKE
        self.is_stateless = False
        self.answered: Frame | None = None
        self.tried: Mapping[Era, bool] = NONE
        self.refused: bytes | None = None
        self.hints: dict[str, Hints] | None = None
        self.mirrors: dict[str, tuple[Mirror, ...]] | None = None
        self.pages_read = 0
        self.page_read: bytes | None = None
        self.wrapped: frozenset[str] = NOTHING
        self.learning: list[Exchange] = []
        self.levelling: tuple[str, list[Exchange]] | None = None
        self.ears: dict[int, Ear] = {}
        self.missed = Filter()
        self.subscribing: list[Exchange] = []
        self.abilities = Abilities(calls=False, cancels=False, lists=False)
        self.supports: Mapping[str, Support] = NONE
        self.knows_supports = False
        self.remotes: Mapping[str, Exchange] = NONE
        self.tokens: Mapping[int, Exchange] = NONE
        self.parting: frozenset[ChannelId] = NOTHING
        self.orphans: Mapping[int, Exchange] = NONE
        self.leaving: frozenset[int] = NOTHING
        self.is_furnished = False
        self.is_left = False
        self.is_lent = False

    def rest(self) -> None:
        """All that is to come may take long: what was used once and is empty need not be kept."""
        for table in (self.posts, self.pending):
            if not table:
                table.clear()

    def speak(self, era: Era) -> None:
        """From now on the server is spoken to so, and in no session until it names one."""
        self.era = era
        self.is_stateless = era is Era.STATELESS
        self.upstream.session = None

    @property
    def can_be_told(self) -> bool:
        """Whether something can be said to the server now."""
        return self.upstream.state is State.READY

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for news of the server, so that a lost one is made anew without being asked."""
        return self.upstream.has_subscriptions or any(s.listens or s.subscriptions for s in self.sessions.values())

    @property
    def is_shared(self) -> bool:
        return self.plan.sharing is not Sharing.NONE

    @property
    def session(self) -> Session:
        """The one session of a link that is not shared; also when that is over."""
        assert not self.is_shared
        (session,) = self.sessions.values()
        return session

    def carries(self, exchange: Exchange | None) -> bool:
        """Whether a call of one of its sessions goes by it, or what belongs to no call does."""
        return (None if exchange is None else exchange.link) == (self.id if self.is_lent else None)

    def session_of(self, exchange: Exchange) -> Session:
        return self.sessions[exchange.sid]

    def enqueue(self, entry: Exchange | Notice) -> None:
        """It goes up when the upstream is ready, after what waits already."""
        if self.queue is NO_QUEUE:
            self.queue = deque()
        self.queue.append(entry)

    def next_id(self) -> int:
        self.last_id += 1
        return self.last_id

    @property
    def headers(self) -> Headers:
        """What of its client's HTTP headers goes with what is our own; nobody's, where many share it."""
        return () if self.is_shared else self.session.headers

    def pause_left(self, now: float) -> float:
        """Seconds until the server may be dialled again. With other credentials than it refused it may be at once."""
        if self.denial is not None and self.headers != self.dialled_with:
            return 0.0
        return self.upstream.pause_left(now)


class Ear:
    """A subscription of ours (`subscriptions/listen`) with a server without sessions.

    Attributes:
        number: the request's.
        wanted: what was asked for.
        granted: what the server confirmed; None before.
    """

    __slots__ = ("granted", "number", "wanted")

    def __init__(self, number: int, wanted: Filter) -> None:
        self.number = number
        self.wanted = wanted
        self.granted: Filter | None = None


class Errand:
    """A request of our own to the upstream; `about`: the resource it is about, if that is what tells it apart;
    `exchange`: the call it is made for, if it is one's."""

    __slots__ = ("about", "exchange", "incarnation", "purpose")

    def __init__(self, purpose: str, incarnation: int, about: str = "", exchange: Exchange | None = None) -> None:
        self.exchange = exchange
        self.about = about
        self.purpose = purpose
        self.incarnation = incarnation


class ChildRole(Role):
    """A two-way stream to a server: a process of ours, or something that was connected to. One that is repeated was
    asked for before, on a connection found closed."""

    __slots__ = ("is_process", "is_repeated", "link")

    def __init__(self, link: Link, *, is_process: bool, is_repeated: bool = False) -> None:
        self.link = link
        self.is_process = is_process
        self.is_repeated = is_repeated

    @property
    def feeds_many(self) -> bool:
        return self.link.is_shared


class Passage:
    """An answer on its way from a server to a client, of which more is to come.

    Attributes:
        sink: the client's channel.
        left_bytes: so much.
        heard_at: when the last of it came.
    """

    __slots__ = ("heard_at", "left_bytes", "session", "sink")

    def __init__(self, sink: ChannelId, session: Session, left_bytes: int, *, heard_at: float) -> None:
        self.sink = sink
        self.session = session
        self.left_bytes = left_bytes
        self.heard_at = heard_at


class UpPostRole(Role):
    """One POST to an upstream, and the stream of its reply; or the GET of the rest of that.

    Attributes:
        channel: its own.
        number: the id of the request it carries; None for a notification or an answer.
        problem: what came on it that could not be read.
        names_session: whether it was sent in an upstream session, which may since have been lost.
        is_resumed: it is the rest of a reply that was cut off.
        has_begun: the response was a success.
        last_event_id: where to resume from, should it be cut off.
        retry_ms: how long to wait before that, if the server has said so.
        failures: connections in a row that failed to resume it.
        idle: connections in a row that resumed it and brought no message.
        dialled_at: when this connection was begun, if it resumes one.
        has_spoken: a message came.
        own: what it carries, if that is not a client's request: those are kept elsewhere. Headers go with it.
        is_repeated: that was sent before.
        era: how it was written.
        passage: its answer is being passed on.
    """

    channel: ChannelId | None = None
    problem = ""
    has_begun = False
    has_spoken = False
    dialled_at = float("-inf")
    idle = 0
    last_event_id: str | None = None
    retry_ms: int | None = None
    failures = 0
    passage: Passage | None = None

    def __init__(
        self,
        link: Link,
        number: int | None,
        *,
        own: Notice | None = None,
        is_confirmation: bool = False,
        is_repeated: bool = False,
        is_resumed: bool = False,
    ) -> None:
        upstream = link.upstream
        self.link = link
        self.number = number
        self.incarnation = upstream.incarnation
        self.own = own
        self.is_confirmation = is_confirmation
        self.is_repeated = is_repeated
        self.is_resumed = is_resumed
        self.names_session = upstream.session is not None
        self.era = link.era


class UpStreamRole(Role):
    """A GET stream from an upstream.

    Attributes:
        dialled_at: when it was asked for.
        has_spoken: a message came.
        is_open: the server has granted it.
        is_repeated: it was asked for before, on a connection found closed.
    """

    __slots__ = ("dialled_at", "has_spoken", "incarnation", "is_open", "is_repeated", "link", "names_session")

    def __init__(self, link: Link, dialled_at: float, *, is_repeated: bool = False) -> None:
        self.link = link
        self.dialled_at = dialled_at
        self.has_spoken = False
        self.is_open = False
        self.is_repeated = is_repeated
        self.incarnation = link.upstream.incarnation
        self.names_session = link.upstream.session is not None


class FarewellRole(Role):
    """A DELETE whose answer nobody waits for. One that is repeated was sent before, on a connection found closed."""

    __slots__ = ("is_repeated", "target")

    def __init__(self, target: Delete, *, is_repeated: bool = False) -> None:
        self.target = target
        self.is_repeated = is_repeated
