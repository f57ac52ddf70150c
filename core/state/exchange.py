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

from typing import Final, NamedTuple

from ..base.events import Headers
from ..base.ids import ChannelId
from ..base.methods import SAFE_TO_REPEAT
from ..base.state_machine import Machine, Symbol
from ..bridge.request_meta import RequestMeta
from ..jsonrpc.envelope import IdKey
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
    """

    gathered: list[bytes] | None = None
    session: str | None = None
    status = 200
    challenge = ""

    def __init__(self, stream: Stream, *, ends_channel: bool, can_stream: bool) -> None:
        self.stream = stream
        self.ends_channel = ends_channel
        self.can_stream = can_stream
        self.remaining = 0

    @classmethod
    def detached(cls) -> Reply:
        """Returns the reply of a call that no client request waits for: nothing can be sent on it."""
        reply = cls(Stream(None), ends_channel=True, can_stream=False)
        reply.remaining = 1
        return reply


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
        token_raw: bytes | None,
        headers: Headers = (),
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
