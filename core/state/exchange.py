"""One client request, from acceptance to its one response.

An exchange is known by (channel, ordinal), never by the id its client chose: clients reuse ids, even at the same time.
The id is kept as bytes and only echoed. Upstream, the request travels under a number of ours.

The state says how far the request has come. PREPARING lasts while handles of uploads in its arguments are resolved;
most requests have none, and PREPARED follows at once. In QUEUED the request waits for the upstream session, or, with
serial sharing, for its turn. SEND means that it was written to the server: from SENT on it may have run. REQUEUE leads
back to QUEUED, and is given only if the request provably did not run, or may safely run again.

Servers may answer a sent request in three ways. REPLY is the final result or error: in CAPTURING the files that it
names are taken in. ASKED is an `input_required` result of a stateless server: the request has ended upstream, and in
ASKING the client is asked; with its answers, PREPARED queues the request again. TASKED is a task handle in place of the
result: the outcome is fetched by other requests, and arrives as REPLY.

Two inputs end an exchange in every state. ANSWER means that its client was given the response. CANCEL means that the
client wants none; a late response of the server is dropped.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from ..base.events import Headers
from ..base.ids import ChannelId
from ..base.methods import SAFE_TO_REPEAT
from ..base.state_machine import Machine, Symbol
from ..bridge.request_meta import RequestMeta
from ..jsonrpc.envelope import IdKey, progress_token
from ..tracing.context import TraceContext
from ..tracing.trace import Trace
from .input_round import InputRound
from .ports import TaskKeeper
from .stream import Stream
from .suspended_call import SuspendedCall
from .task import Task
from .upstream_task import UpstreamTask


class ExchangeState(Symbol):
    """The states of an exchange."""

    PREPARING = "preparing"  # file handles in its arguments are being resolved
    QUEUED = "queued"  # ready to be sent; the upstream is not ready, or it is not the request's turn
    SENT = "sent"  # written upstream: from here on it may have run
    TASKED = "tasked"  # the server made a task of it; the outcome will be fetched
    ASKING = "asking"  # the server ended the request with questions (`input_required`), and the client is asked
    CAPTURING = "capturing"  # the response is here; files it names are being taken in
    ANSWERED = "answered"  # the client was given the response
    CANCELLED = "cancelled"  # the client wants no response


class ExchangeInput(Symbol):
    """The inputs that move an exchange from state to state."""

    PREPARED = "prepared"  # the arguments are resolved, or the client has answered
    SEND = "send"  # written to the server
    REQUEUE = "requeue"  # the request provably did not run, or may safely run again
    REPLY = "reply"  # the final response came
    ASKED = "asked"  # an `input_required` result came
    TASKED = "tasked"  # a task handle came
    ANSWER = "answer"  # the client was given the response
    CANCEL = "cancel"  # the client cancelled the request, or is gone


# An input missing from a row is illegal in that state; an empty row is terminal. Only SENT can be requeued: a request
# that was never written is queued still, and one that was answered must not run again.
TRANSITIONS: Final[dict[ExchangeState, dict[ExchangeInput, ExchangeState]]] = {
    ExchangeState.PREPARING: {
        ExchangeInput.PREPARED: ExchangeState.QUEUED,
        ExchangeInput.ANSWER: ExchangeState.ANSWERED,
        ExchangeInput.CANCEL: ExchangeState.CANCELLED,
    },
    ExchangeState.QUEUED: {
        ExchangeInput.SEND: ExchangeState.SENT,
        ExchangeInput.ANSWER: ExchangeState.ANSWERED,
        ExchangeInput.CANCEL: ExchangeState.CANCELLED,
    },
    ExchangeState.SENT: {
        ExchangeInput.REQUEUE: ExchangeState.QUEUED,
        ExchangeInput.REPLY: ExchangeState.CAPTURING,
        ExchangeInput.ASKED: ExchangeState.ASKING,
        ExchangeInput.TASKED: ExchangeState.TASKED,
        ExchangeInput.ANSWER: ExchangeState.ANSWERED,
        ExchangeInput.CANCEL: ExchangeState.CANCELLED,
    },
    ExchangeState.TASKED: {
        ExchangeInput.REPLY: ExchangeState.CAPTURING,
        ExchangeInput.ANSWER: ExchangeState.ANSWERED,
        ExchangeInput.CANCEL: ExchangeState.CANCELLED,
    },
    ExchangeState.ASKING: {
        ExchangeInput.PREPARED: ExchangeState.QUEUED,
        ExchangeInput.ANSWER: ExchangeState.ANSWERED,
        ExchangeInput.CANCEL: ExchangeState.CANCELLED,
    },
    ExchangeState.CAPTURING: {
        ExchangeInput.ANSWER: ExchangeState.ANSWERED,
        ExchangeInput.CANCEL: ExchangeState.CANCELLED,
    },
    ExchangeState.ANSWERED: {},
    ExchangeState.CANCELLED: {},
}


class ExchangeKey(NamedTuple):
    """The identity of an exchange: the channel of the request, and its ordinal among the requests of that channel."""

    channel: ChannelId
    ordinal: int


class TaskOptions(NamedTuple):
    """The client's instructions about tasks for one call.

    Attributes:
        is_asked: the client wants the call to run as a task (2025-11-25), and nothing else.
        ttl_ms: the requested life of the task, in milliseconds.
        knows_tasks: the client accepts a task handle in place of the result (the tasks extension).
    """

    is_asked: bool = False
    ttl_ms: int | None = None
    knows_tasks: bool = False


NO_TASK_OPTIONS: Final = TaskOptions()
"""The wish of a client that said nothing about tasks."""
TRACE_LINKS_MAX: Final = 32
"""Links of a request's span to others. A call comes back with answers a few times. At it: there are no more."""
_NO_PAGES: Final[frozenset[str]] = frozenset()
_NO_ANSWERS: Final[dict[str, bytes]] = {}  # shared, so never changed but replaced


class Reply:
    """The reply to one incoming body: one request's response, or all responses of a batch.

    Attributes:
        stream: the stream that the reply travels on.
        remaining: responses still owed.
        ends_channel: True for an HTTP reply, which is over after its last response; a pipe goes on.
        gathered: the responses of a batch so far, sent as one array at the end; None if it is no batch.
        can_stream: messages other than the responses may travel here too.
        session: the `Mcp-Session-Id` to hand out with the first bytes.
        status: the HTTP status, if the reply is a single message.
        challenge: the `WWW-Authenticate` header, likewise.
        headers: further HTTP headers, likewise.
    """

    gathered: list[bytes] | None = None
    session: str | None = None
    status = 200
    challenge = ""
    headers: Headers = ()

    def __init__(self, stream: Stream, *, ends_channel: bool, can_stream: bool, is_batch: bool = False) -> None:
        self.stream = stream
        self.ends_channel = ends_channel
        self.can_stream = can_stream
        self.remaining = 0
        if is_batch:
            self.gathered = []

    def expect(self) -> None:
        """Expects one more response."""
        self.remaining += 1

    def take(self, message: bytes | None) -> tuple[bytes | None, bool]:
        """Takes one response, or None in its place. Returns what is to be sent now, and whether the reply is over.

        The responses of a batch are sent with the last of them.
        """
        self.remaining -= 1
        assert self.remaining >= 0
        is_last = self.remaining == 0
        if self.gathered is not None:
            if message is not None:
                self.gathered.append(message)
            message = b"[" + b",".join(self.gathered) + b"]" if is_last and self.gathered else None
        return message, is_last

    def take_notification(self, message: bytes) -> bool:
        """Takes a notification. True if it is not to be sent on the stream."""
        return False

    @property
    def must_answer(self) -> bool:
        """True if the next response cannot be left out: the client would resume the stream to have it, or accepts no
        event stream and would get a body without any response."""
        if not self.ends_channel or self.stream.number is not None:
            return self.ends_channel
        return not self.can_stream and self.stream.channel is not None and self.remaining == 1 and not self.gathered

    def name_session(self, session: str) -> None:
        """Hands the session's id out with the first bytes."""
        self.session = session

    def refuse(self, status: int, challenge: str = "") -> None:
        """Sets the HTTP status and the challenge of a reply that is a single error."""
        self.status, self.challenge = status, challenge

    def add_headers(self, headers: Headers) -> None:
        """Adds HTTP headers to a reply that is a single message."""
        self.headers += headers

    @classmethod
    def detached(cls) -> Reply:
        """Returns the reply of a call that no client request waits for: nothing can be sent on it."""
        reply = cls(Stream(None), ends_channel=True, can_stream=False)
        reply.expect()
        return reply


class Plain(enum.Enum):
    """The ways of a plain call, whose messages no interceptor changes."""

    UNCHANGED = "unchanged"  # see `fast_path_rules`
    TRANSLATED = "translated"  # in one step; see `fast_path_eras`


class Exchange(Machine[ExchangeState, ExchangeInput]):
    """One client request.

    Attributes:
        key: its identity.
        reply: the reply that carries its response.
        sid: the public name of its session.
        id_raw: the client's id, echoed byte for byte.
        id_key: the same id in a form that can be compared.
        params: the params that are sent upstream: the client's, with handles and tokens replaced.
        said: the params as the client sent them.
        token_raw: the client's progress token; None if it wants no progress.
        headers: the client's HTTP headers that go on to the server.
        upstream_id: the number it travels under upstream, once sent.
        post: the channel of its POST to an HTTP upstream, while that is open.
        attempts: times that it was written upstream.
        told: the last `progress` value that the client was sent; further values must be greater.
        may_have_run: an earlier attempt may have reached the server.
        request: the client's description of itself in the request's `_meta` (2026-07-28).
        suspended_call: the questions of a server with sessions to a client without, once it asks.
        lacking: a capability that the server asked for and the client lacks, as the JSON of `requiredCapabilities`.
        round: the questions of a stateless server to a client with a session, once it asks.
        mirrored: the `Mcp-Param-…` headers that the client sent with the request.
        known: answers that the client gave before the call was lost, by digests of the questions.
        visited: ids of the URL elicitations that the user has agreed to.
        is_lasting: a subscription at the server that was acknowledged: it has no response before its end, and is not
            sent again.
        is_native: the response needs no translation into the client's era.
        is_plain: the request went up unchanged. See `fast_path_rules`.
        is_plainly_translated: the request went up by a one-step translation. See `fast_path_eras`.
        wish: the client's instructions about tasks.
        is_augmented: the server was offered to make a task of it.
        must_augment: the server refused to run it other than as a task.
        upstream_task: the task that the server has made of it.
        link: the id of the link it goes by, if that is not its session's.
        task: the task that the client was given for it. The outcome of the exchange becomes the outcome of the task.
        awaits: the id of the task whose outcome it waits for.
        keeper: keeps it, if it may become a task or waits for one.
        begun_at: the time at which it came, if telemetry is emitted of it.
        sent_at: the time at which it was sent upstream last, if telemetry is emitted.
        trace: its trace; None if it has none.
        is_recorded: it has a span.
        attempt: the context of the span of its latest attempt at a server; None if it has none.
        trace_links: (trace id, span id) of spans that were found to belong to it, too.
    """

    TRANSITIONS = TRANSITIONS

    # Few calls need these attributes: until then the class's values are used, which saves memory and time.
    upstream_id: int | None = None
    post: ChannelId | None = None
    attempts = 0
    told = float("-inf")
    may_have_run = False
    request: RequestMeta | None = None
    suspended_call: SuspendedCall | None = None
    lacking: bytes | None = None
    round: InputRound | None = None
    mirrored: Headers = ()
    visited: frozenset[str] = _NO_PAGES
    known = _NO_ANSWERS
    is_lasting = False
    is_native = False
    is_plain = False
    is_plainly_translated = False
    task_options = NO_TASK_OPTIONS
    is_augmented = False
    must_augment = False
    upstream_task: UpstreamTask | None = None
    link: str | None = None
    task: Task | None = None
    awaits: str | None = None
    keeper: TaskKeeper | None = None
    begun_at: float | None = None
    sent_at: float | None = None
    trace: Trace | None = None
    is_recorded = False
    attempt: TraceContext | None = None
    trace_links: tuple[tuple[str, str], ...] = ()

    def __init__(
        self,
        key: ExchangeKey,
        reply: Reply,
        *,
        sid: str,
        id_raw: bytes,
        id_key: IdKey,
        method: str,
        params: bytes | None,
        token_raw: bytes | None = None,
        headers: Headers = (),
        request: RequestMeta | None = None,
        mirrored: Headers = (),
        known: Mapping[str, bytes] | None = None,
        plain: Plain | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.state = ExchangeState.PREPARING
        self.key = key
        self.reply = reply
        self.sid = sid
        self.id_raw = id_raw
        self.id_key = id_key
        self.method = method
        self.params = self.said = params
        self.token_raw = token_raw
        self.headers = headers
        reply.remaining += 1
        if request is not None:
            self.request = request
        if mirrored:
            self.mirrored = mirrored
        if known:
            self.known = dict(known)
        if trace is not None:
            self._take_trace(trace)
        if plain is Plain.UNCHANGED:
            self.is_plain = True
        elif plain is Plain.TRANSLATED:
            self.is_plainly_translated = True

    # --- The client's request ---------------------------------------------------------------------------------------

    def receive_begun(self, at: float, trace: Trace | None = None) -> None:
        """Records the time at which the request came, and its trace."""
        self.begun_at = at
        if trace is not None:
            self._take_trace(trace)

    def _take_trace(self, trace: Trace) -> None:
        self.trace = trace
        self.is_recorded = trace.span is not None

    def receive_attempt(self, attempt: TraceContext | None) -> None:
        """Takes the context of the span of the attempt that comes now."""
        self.attempt = attempt

    def link_trace(self, trace: Trace | None) -> None:
        """Records that the span of another request belongs to it, too, or, if that has none, the span of its client."""
        found = None if trace is None else trace.span or trace.parent
        if found is not None and self.trace is not None and len(self.trace_links) < TRACE_LINKS_MAX:
            self.trace_links += ((found.trace_id, found.span_id),)

    def receive_sent_at(self, at: float) -> None:
        """Records the time at which it was sent upstream."""
        self.sent_at = at

    def read_token(self) -> None:
        """Reads the client's progress token from the params.

        Raises:
            RemoteProtocolError: it is no string and no integer, or the params have a member twice.
        """
        self.token_raw = progress_token(self.params)

    def continue_in(self, reply: Reply, id_raw: bytes, id_key: IdKey) -> tuple[Reply, bytes, IdKey]:
        """Goes on in another request of the client. Returns the reply and the ids of the one before."""
        before = self.reply, self.id_raw, self.id_key
        self.reply, self.id_raw, self.id_key = reply, id_raw, id_key
        return before

    def detach(self) -> None:
        """Goes on without a request of the client."""
        self.reply = Reply.detached()

    def describe_client(self, request: RequestMeta, token_raw: bytes | None) -> None:
        """Takes the description and the token of the client's latest request."""
        self.request, self.token_raw = request, token_raw

    def replace_params(self, params: bytes | None) -> None:
        """Replaces the params that are sent upstream."""
        self.params = params

    def drop_mirrored(self) -> None:
        """Drops the client's `Mcp-Param-…` headers: its list of tools may be out of date."""
        self.mirrored = ()

    # --- On its way -------------------------------------------------------------------------------------------------

    def mark_plain(self) -> None:
        """Records that the request goes up unchanged."""
        self.is_plain = True

    def mark_native(self, is_native: bool = True) -> None:
        """Records whether the response is in the client's era."""
        self.is_native = is_native

    def receive_acknowledged(self) -> None:
        """Handles the acknowledgment of a subscription."""
        self.is_lasting = True

    def go_by(self, link: str) -> None:
        """Goes by another link than its session's."""
        self.link = link

    def receive_written(self, number: int, post: ChannelId | None) -> None:
        """Handles the request that was written upstream under a number, in a POST if it was one.

        A plain request is written as soon as it is there: PREPARED and SEND are one step for it.
        """
        if self.state is not ExchangeState.PREPARING:
            self.step(ExchangeInput.SEND)
        self.state = ExchangeState.SENT
        self.attempts += 1
        self.upstream_id = number
        self.post = post

    def receive_resumed(self, post: ChannelId) -> None:
        """Handles the GET that resumes its reply."""
        self.post = post

    def receive_post_end(self) -> None:
        """Handles the end of its POST."""
        self.post = None

    def requeue(self, *, may_have_run: bool = False) -> None:
        """Queues the request once more.

        Args:
            may_have_run: the attempt may have reached the server.
        """
        self.step(ExchangeInput.REQUEUE)
        self.upstream_id = None
        self.may_have_run = self.may_have_run or may_have_run

    def resume(self) -> None:
        """Queues the request once more, with the answers of its client if that was asked."""
        if self.state is ExchangeState.ASKING:
            self.step(ExchangeInput.PREPARED)
        self.upstream_id = None

    def receive_progress(self, progress: float) -> None:
        """Records the progress that the client is sent: further values must be greater."""
        self.told = progress

    def settle(self) -> None:
        """Gives a plain call its response, which is in the client's era: REPLY and ANSWER are one step for it."""
        if self.state is not ExchangeState.SENT:
            self.step(ExchangeInput.REPLY)  # for its error, in a state that has no REPLY
        self.state = ExchangeState.ANSWERED
        self.is_native = True

    # --- Questions --------------------------------------------------------------------------------------------------

    def begin_round(self) -> InputRound:
        """Handles questions of a stateless server. Returns the rounds of the request."""
        self.step(ExchangeInput.ASKED)
        self.round = self.round or InputRound(self.params)
        return self.round

    def end_rounds(self) -> InputRound | None:
        """Ends the rounds. Returns them; None if there were none."""
        round, self.round = self.round, None
        return round

    def suspend(self, suspended_call: SuspendedCall) -> SuspendedCall:
        """Begins to ask the client by results."""
        self.suspended_call = suspended_call
        return suspended_call

    def end_suspension(self) -> SuspendedCall | None:
        """Ends that: the call becomes a task. Returns the suspended call."""
        suspended_call, self.suspended_call = self.suspended_call, None
        return suspended_call

    def lack(self, capability: bytes) -> None:
        """Records a capability that the server asked for and the client lacks."""
        self.lacking = capability

    def take_known(self, digest: str) -> bytes | None:
        """Removes and returns the known answer to a question; None if there is none."""
        return self.known.pop(digest, None) if self.known else None

    def receive_visits(self, ids: frozenset[str]) -> None:
        """Records the pages that the user has agreed to visit."""
        self.visited = ids

    # --- Tasks ------------------------------------------------------------------------------------------------------

    def want_task(self, keeper: TaskKeeper, options: TaskOptions) -> None:
        """Takes the client's instructions about tasks."""
        self.keeper, self.task_options = keeper, options

    def forget_wish(self) -> None:
        """Drops them: the call is refused."""
        self.task_options = NO_TASK_OPTIONS

    def keep_for(self, keeper: TaskKeeper) -> None:
        """Is kept by the tasks, as a request about one of them."""
        self.is_native, self.keeper = True, keeper

    def wait_for(self, task: str) -> None:
        """Waits for the outcome of a task."""
        self.awaits = task

    def stop_waiting(self) -> str | None:
        """Stops that. Returns the id of the task; None if it waited for none."""
        task, self.awaits = self.awaits, None
        return task

    def augment(self, is_augmented: bool) -> None:
        """Records whether the server is offered to make a task of the call."""
        self.is_augmented = is_augmented

    def require_task(self) -> None:
        """Records that the server refused to run it other than as a task."""
        self.must_augment = True

    def become_task(self, task: Task, keeper: TaskKeeper) -> None:
        """Goes on as a task, for which no request of the client waits."""
        self.task, self.keeper = task, keeper
        self.reply, self.id_key = Reply.detached(), ("task", task.id)

    def receive_task(self, upstream_task: UpstreamTask) -> None:
        """Handles the server's task handle."""
        self.step(ExchangeInput.TASKED)
        self.upstream_id = self.post = None
        self.upstream_task = upstream_task

    # --- State ------------------------------------------------------------------------------------------------------

    @property
    def waits_for_client(self) -> bool:
        """True if the call is suspended until its client answers the server's questions. Not to be asked of a task."""
        assert self.task is None
        return self.suspended_call is not None and not self.suspended_call.has_request

    @property
    def is_upstream(self) -> bool:
        """True if the server is working on it."""
        return self.upstream_id is not None or self.state is ExchangeState.TASKED

    @property
    def is_begun(self) -> bool:
        """True if the server may have worked on it, now or in an earlier attempt."""
        return self.may_have_run or self.state not in (ExchangeState.PREPARING, ExchangeState.QUEUED)

    def may_repeat(self, *, is_unsent: bool, retries: int) -> bool:
        """True if it can be written upstream again without the risk of running twice.

        Args:
            is_unsent: proven that the upstream did not run it.
            retries: number of repetitions allowed in all.
        """
        return self.attempts <= retries and (is_unsent or self.method in SAFE_TO_REPEAT)
