"""The link between downstream sessions and a server: the upstream session, its channels and its open requests.

A link belongs to one session, or, where the plan shares the server's process, to all sessions with that server. It
lives as long as they do, over all incarnations of its upstream session. A link of a shared process may outlive them for
a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ..base.empty import NONE, without
from ..base.events import Cause, Headers
from ..base.governance import Cleaning
from ..base.ids import ChannelId
from ..base.limits import Limits
from ..base.plan import Kind, ServerPlan, Sharing
from ..base.revisions import Era
from ..bridge.task_support import TaskAbilities
from ..jsonrpc.splice import compact_members
from ..wire.http.cookies import CookieStore
from ..wire.http.mcp_headers import Named, named
from .answered_tokens import AnsweredToken, remembered
from .early_start import EarlyStart, Introduction
from .exchange import Exchange
from .get_stream import GetStream
from .handshake import Handshake
from .interceptor import Interceptors
from .known_definitions import KnownDefinitions
from .ports import LinkRouter
from .server_subscriptions import ServerSubscriptions
from .server_tools import ServerTools
from .session import Session
from .session_check import SessionCheck
from .upstream_session import UpstreamSession, UpstreamSessionInput, UpstreamSessionState

if TYPE_CHECKING:
    from .shared_process import SharedProcess
    from .upstream_channels import UpstreamPostRole
    from .upstream_task import UpstreamTask

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
DEFAULT_LOG_LEVEL: Final = "info"
"""The level for clients that name none. Servers with sessions choose it themselves; most leave out what is for
debugging."""

NO_ABILITIES: Final = TaskAbilities(calls=False, cancels=False, lists=False)
"""The task abilities of a server that declares none, shared for the same reason."""


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

    def with_params(self, method: str, params: bytes) -> StatelessParams | None:
        """Returns the same with other params, which have the same `_meta`; None if they are not plainly written."""
        spans = compact_members(params)
        what = None if spans is None else named(method, params, spans)
        return None if spans is None or what is None else StatelessParams(params, spans, what, self.rest)


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

    The comments in `__init__` give the meaning of each attribute, in groups. In them, "ours" means sent by the proxy
    itself, a "number" is the id of a request written upstream, and None means not known yet. Only the methods here, and
    those of the objects that a link consists of, change them.
    """

    __slots__ = (
        "abilities",
        "address",
        "answered_tokens",
        "channel",
        "children",
        "cookies",
        "cut",
        "definitions",
        "early",
        "era",
        "forgotten_incarnation",
        "get_stream",
        "handshake",
        "has_files",
        "id",
        "interceptors",
        "is_furnished",
        "is_left",
        "is_lent",
        "is_pipe",
        "is_plain",
        "is_stateless",
        "last_id",
        "leaving",
        "level",
        "listening_since",
        "logs_in_as",
        "open_notifications",
        "orphans",
        "parting",
        "pending",
        "plan",
        "posts",
        "queue",
        "router",
        "session_check",
        "sessions",
        "shared_process",
        "subscriptions",
        "tokens",
        "tools",
        "translation",
        "upstream",
        "upstream_tasks",
        "workspace",
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
        logs_in_as: str = "",
    ) -> None:
        # Identity
        self.id = id  # unique among all links; that of a link of one session is the session's public name
        self.plan = plan
        self.has_files = plan.has_files  # the file plane handles its messages
        self.logs_in_as = logs_in_as  # the principal whose login the server is shown; "": the proxy's own, or none
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
        self.address = 0  # the place of the address in the plan that it is connected to
        self.channel: ChannelId | None = None  # that two-way stream, if it is open
        self.children = 0  # processes that were started and are not known to have ended
        self.cookies = CookieStore(limits)  # cookies that the server has set in this upstream session
        self.posts: dict[ChannelId, None] = {}  # open POSTs, oldest first
        self.open_notifications = 0  # POSTs among them with a notification or a response
        self.pending: dict[int, Exchange | OwnRequest] = {}  # the exchange or request of ours behind each number
        self.answered_tokens: Mapping[int, AnsweredToken] = NONE  # of those that were answered last
        self.last_id = 0  # the highest number so far; numbers are never used twice, over all incarnations
        self.queue = NO_QUEUE  # requests and notifications that wait for the upstream, in order
        self.cut: Mapping[int, UpstreamPostRole] = NONE  # reply streams that are to be resumed, by number

        # What belongs together
        self.get_stream = GetStream()  # on HTTP
        self.handshake = Handshake()  # the latest
        self.early = EarlyStart() if plan.answers_early else None  # what clients get while the server starts
        self.tools = ServerTools()  # what is known of them
        # What it lists, judged; None: nothing is judged.
        judges = plan.pins is not None or plan.clean is Cleaning.BLOCK  # a property would cost each session a call
        self.definitions = KnownDefinitions() if judges else None
        self.subscriptions = ServerSubscriptions()  # ours with a stateless server
        self.listening_since: float | None = None  # when a subscription was last acknowledged, if results are kept
        self.session_check: SessionCheck | None = None  # under way
        self.forgotten_incarnation = 0  # the last that a check found forgotten
        self.level: tuple[str, list[Exchange]] | None = None  # the log level being set, and requests that wait

        # The era of the server
        self.era = Era.HANDSHAKE  # the era in which the server is spoken to
        self.is_stateless = False  # that is the stateless one
        # Calls go up and results come down unchanged; None: not determined in this incarnation. See `fast_path_rules`.
        self.is_plain: bool | None = None
        self.translation: PlainTranslation | None = None  # of plain calls between eras. See `fast_path_eras`.

        # Tasks
        self.abilities = NO_ABILITIES  # declared by the server
        self.upstream_tasks: Mapping[str, Exchange] = NONE  # exchanges that are tasks of the server, by its task ids
        self.tokens: Mapping[int, Exchange] = NONE  # the same exchanges, by the numbers their progress comes under
        self.orphans: Mapping[int, Exchange] = NONE  # cancelled calls that may yet become tasks, by number
        self.is_left = False  # tasks of the server go on without us, so its session is not ended with DELETE
        self.parting: frozenset[ChannelId] = NOTHING  # POSTs that cancel tasks; the session's DELETE waits for them
        self.leaving: frozenset[int] = NOTHING  # numbers of `tasks/cancel` that delay the end of the two-way stream

    # --- Sessions ---------------------------------------------------------------------------------------------------

    def attach(self, session: Session) -> None:
        """Adds a session whose requests the link carries from now on."""
        self.sessions[session.sid] = session

    def detach(self, session: Session) -> None:
        """Removes a session that is over."""
        del self.sessions[session.sid]

    @property
    def is_brief(self) -> bool:
        """True if it serves only sessions that learn who the server is."""
        return bool(self.sessions) and all(session.is_brief for session in self.sessions.values())

    # --- Connection -------------------------------------------------------------------------------------------------

    def begin_handshake(self, *, is_event_pipe: bool, address: int = 0) -> None:
        """Begins a handshake in a new upstream session. `is_event_pipe` if the server speaks HTTP+SSE."""
        self.upstream.receive_need()
        self._begin(address, is_event_pipe=is_event_pipe)

    def begin_elsewhere(self, address: int, *, is_event_pipe: bool) -> None:
        """Begins the handshake anew at another address of the server."""
        failed = self.handshake.failed_addresses
        self.upstream.receive_redialled()
        self._begin(address, is_event_pipe=is_event_pipe)
        self.handshake.receive_failed_addresses(failed)

    def _begin(self, address: int, *, is_event_pipe: bool) -> None:
        self.address = address
        self.handshake.begin(self.headers)
        self.cookies.clear()  # cookies belong to the session before, and to its address
        self.is_pipe = is_event_pipe or self.plan.kind is not Kind.HTTP

    def use_address(self, address: int) -> None:
        """Goes on with a session of an earlier run at that address."""
        self.address = address

    def fall_back(self, refusal: Cause) -> None:
        """Goes on with HTTP+SSE, after the server has refused Streamable HTTP."""
        self.handshake.receive_refusal(refusal)
        self.is_pipe = True
        self.upstream.step(UpstreamSessionInput.REDIAL)

    def connect(self, channel: ChannelId) -> None:
        """Takes a two-way stream to the server."""
        self.channel = channel

    def disconnect(self) -> ChannelId | None:
        """Gives up the two-way stream, if there is one. Returns it."""
        channel, self.channel = self.channel, None
        return channel

    def receive_process(self, workspace: str | None = None) -> None:
        """Handles a process that was started for the link, with its workspace if that is not the link's."""
        self.children += 1
        if workspace is not None:
            self.workspace = workspace
            if not self.is_shared:
                self.session.use_workspace(workspace)

    def receive_process_end(self) -> None:
        """Handles the end of a process."""
        self.children -= 1

    def presume(self, introduction: Introduction) -> None:
        """Takes what the server said in another session for its handshake, until that is over."""
        assert self.early is not None
        self.early.presume(self.era, introduction)
        self.upstream.presume(introduction.revision, introduction.capabilities)
        self.handshake.receive_result(introduction.shown)
        self.receive_abilities(introduction.abilities)

    def furnish(self) -> None:
        """Records that files may lie in the workspace from now on."""
        self.is_furnished = True

    # --- Requests to the server -------------------------------------------------------------------------------------

    def expect(self, entry: Exchange | OwnRequest) -> int:
        """Adds a request that is sent to the server. Returns its number, which was never used before."""
        self.last_id += 1
        self.pending[self.last_id] = entry
        return self.last_id

    def expect_again(self, number: int, exchange: Exchange) -> None:
        """Adds a request again whose reply is to be resumed."""
        self.pending[number] = exchange

    def settle(self, number: int | None) -> Exchange | OwnRequest | None:
        """Removes and returns the request of that number; None if no response to it is awaited."""
        return None if number is None else self.pending.pop(number, None)

    def receive_answer(self, number: int, post: ChannelId | None) -> None:
        """Handles the response to a plain call, with the end of its POST if that ended too."""
        del self.pending[number]
        if post is not None:
            self.posts.pop(post, None)
        if self.upstream.needs_proof:
            self.upstream.receive_proof()

    def remember_token(self, number: int, exchange: Exchange) -> None:
        """Remembers the progress token of a request that the server has answered."""
        assert exchange.token_raw is not None
        self.answered_tokens = remembered(self.answered_tokens, number, exchange.token_raw, exchange.sid)

    def settle_all(self) -> None:
        """Removes all requests: their link has ended."""
        self.pending.clear()

    def open_post(self, channel: ChannelId, *, is_notification: bool = False) -> None:
        """Adds a POST. `is_notification` if it carries a notification or a response."""
        self.posts[channel] = None
        self.open_notifications += is_notification

    def close_post(self, channel: ChannelId, *, is_notification: bool = False) -> None:
        """Removes a POST that has ended."""
        self.posts.pop(channel, None)
        self.open_notifications -= is_notification

    def cut_reply(self, number: int, role: UpstreamPostRole) -> None:
        """Records a reply stream that is to be resumed."""
        self.cut = {**self.cut, number: role}

    def take_cut(self, number: int) -> UpstreamPostRole | None:
        """Removes and returns the reply stream of that number, if it is to be resumed."""
        found = self.cut.get(number)
        self.cut = without(self.cut, number)
        return found

    # --- Requests that wait -----------------------------------------------------------------------------------------

    def set_level(self, level: str, exchange: Exchange) -> None:
        """Begins to set a log level, for which a request waits."""
        self.level = level, [exchange]

    def wait_for_level(self, exchange: Exchange) -> bool:
        """Lets a request wait for the log level. False if none is being set."""
        if self.level is not None:
            self.level[1].append(exchange)
        return self.level is not None

    def take_level(self) -> tuple[str, list[Exchange]]:
        """Ends the setting of a log level. Returns it, with the requests that waited."""
        level, self.level = self.level or ("", []), None
        return level

    def enqueue(self, entry: Exchange | QueuedNotification) -> None:
        """Adds a request or notification to the queue, to be sent in order when the upstream is ready."""
        if self.queue is NO_QUEUE:
            self.queue = deque()
        self.queue.append(entry)

    def enqueue_first(self, waiting: Sequence[Exchange]) -> None:
        """Adds requests in front of all that are queued."""
        if waiting:
            self.queue = deque([*waiting, *self.queue])

    def next_queued(self) -> Exchange | QueuedNotification | None:
        """Removes and returns the first entry of the queue; None if the queue is empty."""
        return self.queue.popleft() if self.queue else None

    def withdraw(self, exchange: Exchange) -> None:
        """Removes a cancelled request from the queue, if it is there."""
        if exchange in self.queue:
            self.queue.remove(exchange)

    def take_queue(self) -> Sequence[Exchange | QueuedNotification]:
        """Removes and returns all that is queued."""
        queue, self.queue = self.queue, NO_QUEUE
        return queue

    # --- Subscriptions ----------------------------------------------------------------------------------------------

    def receive_listening(self, now: float) -> None:
        """Handles the acknowledgment of a subscription."""
        self.listening_since = now

    # --- Logging ----------------------------------------------------------------------------------------------------

    def log_level_for(self, session: Session) -> str | None:
        """Returns the log level that a session's requests ask a server without sessions for; None: no log.

        A client with a session that has set no level gets logs too, at a level that the server chooses (2025-11-25
        server/utilities/logging). A server without sessions sends none unless it is asked.
        """
        if session.level is None and not session.is_stateless and "logging" in (self.upstream.capabilities or ()):
            return DEFAULT_LOG_LEVEL
        return session.level

    # --- Session check ----------------------------------------------------------------------------------------------

    def begin_check(self, check: SessionCheck) -> None:
        """Begins to ask whether the server knows the upstream session."""
        self.session_check = check

    def end_check(self) -> SessionCheck | None:
        """Ends the check, if one is under way. Returns it."""
        check, self.session_check = self.session_check, None
        return check

    def forget_incarnation(self) -> None:
        """Records that the server does not know the present upstream session any more."""
        self.forgotten_incarnation = self.upstream.incarnation
        self.upstream.receive_denied(is_denied=True)

    # --- Plain calls ------------------------------------------------------------------------------------------------

    def decide_plain(self, *, is_plain: bool, translation: PlainTranslation | None) -> None:
        """Decides how plain calls pass, for this upstream session."""
        self.is_plain, self.translation = is_plain, translation

    def receive_ready(self, now: float) -> None:
        """Handles the end of the handshake: requests may pass."""
        self.upstream.receive_replayed(now)
        self.is_plain = self.translation = None

    # --- Tasks ------------------------------------------------------------------------------------------------------

    def receive_abilities(self, abilities: TaskAbilities) -> None:
        """Handles what the server declares about tasks."""
        self.abilities = abilities
        self.tools.receive_handshake()

    def add_task(self, exchange: Exchange, upstream_task: UpstreamTask) -> None:
        """Adds a call that the server has made a task."""
        self.upstream_tasks = {**self.upstream_tasks, upstream_task.id: exchange}
        if upstream_task.number is not None:
            self.tokens = {**self.tokens, upstream_task.number: exchange}

    def remove_task(self, exchange: Exchange, upstream_task: UpstreamTask) -> None:
        """Removes a task that is over."""
        if self.upstream_tasks.get(upstream_task.id) is exchange:
            self.upstream_tasks = without(self.upstream_tasks, upstream_task.id)
        if upstream_task.number is not None:
            self.tokens = without(self.tokens, upstream_task.number)

    def add_orphan(self, number: int, exchange: Exchange, count_max: int) -> None:
        """Adds a cancelled call that may yet become a task. The oldest of more than `count_max` is forgotten."""
        self.orphans = {**self.orphans, number: exchange}
        if len(self.orphans) > count_max:
            self.orphans = without(self.orphans, next(iter(self.orphans)))

    def take_orphan(self, number: int) -> Exchange | None:
        """Removes and returns such a call; None if there is none of that number."""
        found = self.orphans.get(number)
        self.orphans = without(self.orphans, number)
        return found

    def forget_orphans(self) -> None:
        """Removes all such calls: the server is lost."""
        self.orphans = NONE

    def leave_tasks(self) -> None:
        """Records that tasks of the server go on without us."""
        self.is_left = True

    def expect_cancel(self, channel: ChannelId) -> None:
        """Lets the DELETE of the session wait for a POST that cancels a task."""
        self.parting |= {channel}

    def receive_cancel_sent(self, channel: ChannelId) -> bool:
        """Handles the end of such a POST. True if it was the last."""
        if channel not in self.parting:
            return False
        self.parting -= {channel}
        return not self.parting

    def begin_leaving(self, numbers: frozenset[int]) -> None:
        """Lets the end of the two-way stream wait for the responses to these `tasks/cancel`."""
        self.leaving = numbers

    def receive_left(self, number: int) -> bool:
        """Handles a response while the server is left. True if it was the last that is waited for."""
        self.leaving -= {number}
        return not self.leaving

    # --- State ------------------------------------------------------------------------------------------------------

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
        self.upstream.forget_session()

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

    @property
    def headers(self) -> Headers:
        """The client's HTTP headers that go with our own messages; none if sessions share the link."""
        return () if self.is_shared else self.session.headers

    def pause_left(self, now: float) -> float:
        """Returns the seconds until the server may be dialled again. Credentials other than the refused ones may be
        tried at once."""
        if self.handshake.denial is not None and self.headers != self.handshake.dialled_with:
            return 0.0
        return self.upstream.pause_left(now)


class OwnRequest:
    """A request of ours to the upstream, with the incarnation that it was sent in. `about` is the URI or key it is
    about, where the purpose alone does not identify it; `exchange` is the call it is made for, if there is one."""

    __slots__ = ("about", "exchange", "incarnation", "purpose")

    def __init__(self, purpose: str, incarnation: int, about: str = "", exchange: Exchange | None = None) -> None:
        self.exchange = exchange
        self.about = about
        self.purpose = purpose
        self.incarnation = incarnation
