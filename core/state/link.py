"""The link between downstream sessions and a server: the upstream session, its channels and its open requests.

A link belongs to one session, or, where the plan shares the server's process, to all sessions with that server. It
lives as long as they do, over all incarnations of its upstream session. A link of a shared process may outlive them for
a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ..base.empty import NONE
from ..base.events import Cause, Headers
from ..base.ids import ChannelId
from ..base.limits import Limits
from ..base.plan import Kind, ServerPlan, Sharing
from ..base.revisions import Era
from ..bridge.task_support import Support, TaskAbilities
from ..jsonrpc.envelope import Frame
from ..wire.http.cookies import CookieStore
from ..wire.http.mcp_headers import Named
from ..wire.http.param_headers import Mirror
from .exchange import Exchange
from .interceptor import Interceptors
from .listen_filter import ListenFilter
from .ports import LinkRouter
from .session import Session
from .tool_hints import Hints
from .upstream_session import UpstreamSession, UpstreamSessionState

if TYPE_CHECKING:
    from .shared_process import SharedProcess
    from .upstream_channels import UpstreamPostRole

LOOK: Final = "task-get"
FETCH: Final = "task-result"
UPDATE: Final = "task-update"
CANCEL: Final = "task-cancel"
"""The purposes of our `tasks/get`, `tasks/result`, `tasks/update` and `tasks/cancel` requests."""
TASK_PURPOSES: Final = frozenset({LOOK, FETCH, UPDATE, CANCEL})
"""The purposes of our own requests that are about tasks."""
SUBSCRIPTION: Final = "listen"
"""The purpose of our `subscriptions/listen` requests, which are answered when the subscription ends."""


class QueuedNotification(NamedTuple):
    """A notification, or a response to a server request, that waits for the upstream or for the outcome of its POST,
    with the client's headers that go with it."""

    message: bytes
    headers: Headers


NO_QUEUE: Final[deque[Exchange | QueuedNotification]] = deque(maxlen=0)
"""The empty queue, shared by all links that never queued anything. There may be thousands of links, and an empty queue
takes 760 bytes."""
NOTHING: Final[frozenset[Any]] = frozenset()
"""The empty set, shared for the same reason: an empty set takes 216 bytes."""


class TranslatedParams(NamedTuple):
    """The params of a request in the form for its server, and the `Mcp-*` headers that go with them."""

    params: bytes | None
    mirrored: Headers = ()


class StatelessParams(NamedTuple):
    """The params of a request of a client without sessions, with what was parsed of them.

    Attributes:
        spans: the positions of the members of `params`.
        named: the name for the `Mcp-Name` header, with all headers that repeat parts of the params.
        rest: the members of `_meta` that do not describe the client, as JSON; empty if there are none.
    """

    params: bytes
    spans: Mapping[str, slice]
    named: Named
    rest: bytes


class PlainTranslation(Protocol):
    """A one-step translation of plain calls between the eras of a client and its server. See `fast_path_eras`. Each
    method returns None for a message that it can not translate, which the full translation must handle."""

    def up(
        self, link: Link, session: Session, method: str, params: bytes | None, stateless_params: StatelessParams | None
    ) -> TranslatedParams | None:
        """Returns the params of a request for the server.

        Args:
            params: as the client sent them. Nothing in them is about tasks, progress or an earlier round.
            stateless_params: the same, parsed, for a client without sessions.
        """

    def down(self, link: Link, session: Session, exchange: Exchange, result: bytes) -> bytes | None:
        """Returns the result, for the client, of a request whose params `up` returned."""


class Link:
    """The state of one link.

    The comments in `__init__` give the meaning of each attribute, in groups: identity, connection and open requests,
    the GET stream, the handshake, the era of the server, its tools and log level, subscriptions, and tasks. In them,
    "ours" means sent by the proxy itself, a "number" is the id of a request written upstream, and None means not known
    yet.
    """

    __slots__ = (
        "abilities",
        "answered",
        "channel",
        "children",
        "cookies",
        "cut",
        "denial",
        "dialled_with",
        "era",
        "first_noise",
        "handshake",
        "has_files",
        "has_listened",
        "hints",
        "id",
        "interceptors",
        "is_asked_again",
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
        "open_notifications",
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
        "replaying",
        "router",
        "sessions",
        "shared_process",
        "stream",
        "subscribing",
        "supports",
        "tokens",
        "translation",
        "tried",
        "upstream",
        "upstream_listens",
        "upstream_tasks",
        "workspace",
        "wrapped",
    )

    def __init__(
        self,
        id: str,
        plan: ServerPlan,
        workspace: str,
        initialize: bytes,
        limits: Limits,
        *,
        router: LinkRouter,
        interceptors: Interceptors,
        shared_process: SharedProcess | None = None,
        is_lent: bool = False,
    ) -> None:
        # Identity
        self.id = id  # unique among all links; that of a link of one session is the session's public name
        self.plan = plan
        self.has_files = plan.has_files  # the file plane handles its messages
        self.sessions: dict[str, Session] = {}  # the sessions whose requests it carries, by their public names
        self.workspace = workspace  # the name of the folders that its process gets
        self.is_furnished = False  # files may lie in the workspace, or be on their way there, before the process starts
        self.router = router
        self.interceptors = interceptors  # those of its server
        self.shared_process = shared_process  # what its sessions want of the one process, if they share it
        self.is_lent = is_lent  # it uses a session that an earlier run began: others may use that, so it is not ended

        # Connection and open requests
        self.upstream = UpstreamSession(initialize, limits)  # the state machine of the connection
        self.is_pipe = plan.kind is not Kind.HTTP  # one two-way stream carries all messages: no POST for each
        self.channel: ChannelId | None = None  # that two-way stream, if it is open
        self.children = 0  # processes that were started and are not known to have ended
        self.cookies = CookieStore(limits)  # cookies that the server has set in this upstream session
        self.posts: dict[ChannelId, None] = {}  # open POSTs, oldest first
        self.open_notifications = 0  # POSTs among them with a notification or a response
        self.pending: dict[int, Exchange | OwnRequest] = {}  # the exchange or request of ours behind each number
        self.last_id = 0  # the highest number so far; numbers are never used twice, over all incarnations
        self.queue = NO_QUEUE  # requests and notifications that wait for the upstream, in order
        self.cut: Mapping[int, UpstreamPostRole] = NONE  # reply streams that are to be resumed, by number
        self.noise = 0  # messages of the server that could not be read

        # The GET stream, on HTTP
        self.stream: ChannelId | None = None
        self.has_listened = False  # this upstream session has granted one, of its own or for the rest of a reply
        self.listen_event_id: str | None = None  # its last event id
        self.listen_failures = 0  # streams lost since one was granted
        self.listen_idle = 0  # streams in a row that brought no message

        # The handshake
        self.dialled_with: Headers = ()  # the client's headers in the last one
        self.denial: Cause | None = None  # the refusal of the client's credentials in the last one
        self.handshake: bytes | None = None  # the last result of it, in the form that clients get
        self.replaying = 0  # settings that the server has yet to confirm
        self.first_noise = ""  # the start of the first line that was no message, while `initialize` was not answered
        self.is_asked_again = False  # the server refused a revision, and was asked in one that it named
        self.refusal: Cause | None = None  # the refusal over Streamable HTTP, if HTTP+SSE is tried after it

        # The era of the server
        self.era = Era.HANDSHAKE  # the era in which the server is spoken to
        self.is_stateless = False  # that is the stateless one
        self.answered: Frame | None = None  # the response to `initialize`, while `server/discover` is tried
        self.tried: Mapping[Era, bool] = NONE  # eras that failed; True: the server said so, False: it was silent
        self.refused: bytes | None = None  # the error that the first of them failed with
        # Calls go up and results come down unchanged; None: not determined in this incarnation. See `fast_path_rules`.
        self.is_plain: bool | None = None
        self.translation: PlainTranslation | None = None  # of plain calls between eras. See `fast_path_eras`.

        # Its tools and log level
        self.hints: dict[str, Hints] | None = None  # file hints, for `files: auto`; None: not read
        self.mirrors: dict[str, tuple[Mirror, ...]] | None = None  # arguments for `Mcp-Param-…` headers
        self.pages_read = 0  # pages of `tools/list` read so far, while it is being read
        self.page_read: bytes | None = None  # the cursor of the last page that was requested
        self.wrapped: frozenset[str] = NOTHING  # tools whose results are wrapped for clients that know only objects
        self.learning: list[Exchange] = []  # requests that wait for the list of tools
        self.levelling: tuple[str, list[Exchange]] | None = None  # the log level being set, and requests that wait

        # Subscriptions
        self.upstream_listens: dict[int, UpstreamListen] = {}  # ours with a stateless server, by number, newest last
        self.missed = ListenFilter()  # changes that may have been missed while nothing was subscribed
        self.subscribing: list[Exchange] = []  # requests that wait for a resource to be subscribed

        # Tasks
        self.abilities = TaskAbilities(calls=False, cancels=False, lists=False)  # declared by the server
        self.supports: Mapping[str, Support] = NONE  # declared by its tools, by tool
        self.knows_supports = False  # its whole list of tools was read for that
        self.upstream_tasks: Mapping[str, Exchange] = NONE  # exchanges that are tasks of the server, by its task ids
        self.tokens: Mapping[int, Exchange] = NONE  # the same exchanges, by the numbers their progress comes under
        self.orphans: Mapping[int, Exchange] = NONE  # cancelled calls that may yet become tasks, by number
        self.is_left = False  # tasks of the server go on without us, so its session is not ended with DELETE
        self.parting: frozenset[ChannelId] = NOTHING  # POSTs that cancel tasks; the session's DELETE waits for them
        self.leaving: frozenset[int] = NOTHING  # numbers of `tasks/cancel` that delay the end of the two-way stream

    def rest(self) -> None:
        """Frees the memory of emptied tables, before a time in which nothing may happen for long."""
        for table in (self.posts, self.pending):
            if not table:
                table.clear()

    def speak(self, era: Era) -> None:
        """Sets the era in which the server is spoken to. The link has no upstream session id until the server names
        one."""
        self.era = era
        self.is_stateless = era is Era.STATELESS
        self.upstream.session = None

    @property
    def can_be_told(self) -> bool:
        """True if messages can be sent to the server now."""
        return self.upstream.state is UpstreamSessionState.READY

    @property
    def is_awaited(self) -> bool:
        """True if a session waits for notifications of the server, so that a lost one is made anew without a
        request."""
        return self.upstream.has_subscriptions or any(s.listens or s.subscriptions for s in self.sessions.values())

    @property
    def is_shared(self) -> bool:
        """True if several sessions may use the link."""
        return self.plan.sharing is not Sharing.NONE

    @property
    def session(self) -> Session:
        """The one session of a link that is not shared, also after that has ended."""
        assert not self.is_shared
        (session,) = self.sessions.values()
        return session

    def carries(self, exchange: Exchange | None) -> bool:
        """True if the link carries the call, or, for None, the messages that belong to no call. A lent link carries
        only the exchanges that name it; the session's own link carries the rest."""
        return (None if exchange is None else exchange.link) == (self.id if self.is_lent else None)

    def session_of(self, exchange: Exchange) -> Session:
        """Returns the session of an exchange."""
        return self.sessions[exchange.sid]

    def enqueue(self, entry: Exchange | QueuedNotification) -> None:
        """Adds a request or notification to the queue, to be sent in order when the upstream is ready."""
        if self.queue is NO_QUEUE:
            self.queue = deque()
        self.queue.append(entry)

    def next_id(self) -> int:
        """Returns the id for a request to the server. Ids are never used twice."""
        self.last_id += 1
        return self.last_id

    @property
    def headers(self) -> Headers:
        """The client's HTTP headers that go with our own messages; none if sessions share the link."""
        return () if self.is_shared else self.session.headers

    def pause_left(self, now: float) -> float:
        """Returns the seconds until the server may be dialled again. Credentials other than the refused ones may be
        tried at once."""
        if self.denial is not None and self.headers != self.dialled_with:
            return 0.0
        return self.upstream.pause_left(now)


class UpstreamListen:
    """One of our subscriptions (`subscriptions/listen`) with a stateless server.

    Attributes:
        number: the number of the request.
        wanted: the filter of the request.
        granted: the part that the server acknowledged; None before.
    """

    __slots__ = ("granted", "number", "wanted")

    def __init__(self, number: int, wanted: ListenFilter) -> None:
        self.number = number
        self.wanted = wanted
        self.granted: ListenFilter | None = None


class OwnRequest:
    """A request of ours to the upstream, with the incarnation that it was sent in. `about` is the URI or key it is
    about, where the purpose alone does not identify it; `exchange` is the call it is made for, if there is one."""

    __slots__ = ("about", "exchange", "incarnation", "purpose")

    def __init__(self, purpose: str, incarnation: int, about: str = "", exchange: Exchange | None = None) -> None:
        self.exchange = exchange
        self.about = about
        self.purpose = purpose
        self.incarnation = incarnation
