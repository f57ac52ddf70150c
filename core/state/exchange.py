"""One client request, from acceptance to its one answer.

An exchange is known by (channel, ordinal), never by the id its client chose: clients reuse ids, even at the same time.
The id is kept as bytes and only echoed. Upstream it travels under a number of our own.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..base.effects import Headers
from ..base.ids import ChannelId
from ..base.methods import SAFE_TO_REPEAT
from ..base.state_machine import Machine, Symbol
from ..bridge.request_meta import Envelope
from ..jsonrpc.envelope import IdKey
from .input_round import Round
from .stream import Stream
from .suspended_call import Park
from .task import Task
from .upstream_task import Remote


class State(Symbol):
    PREPARING = "preparing"  # its file handles are being resolved
    QUEUED = "queued"  # ready to go; the upstream is not
    SENT = "sent"  # written upstream: from here on it may have run
    TASKED = "tasked"  # the server made a task of it: its answer is fetched
    ASKING = "asking"  # the server wants to know more first, and ended the request with its questions
    CAPTURING = "capturing"  # the reply is in hand; files it names are being taken in
    ANSWERED = "answered"
    CANCELLED = "cancelled"  # the client does not want an answer any more


class Input(Symbol):
    PREPARED = "prepared"
    SEND = "send"
    REQUEUE = "requeue"  # provably did not run, or may safely run again
    REPLY = "reply"
    ASKED = "asked"
    TASKED = "tasked"
    ANSWER = "answer"
    CANCEL = "cancel"


# An input missing from a row is illegal in that state; an empty row is terminal. Only SENT can be requeued: what was
# never written needs no second chance, and what was answered must not run again.
TRANSITIONS: Final[dict[State, dict[Input, State]]] = {
    State.PREPARING: {
        Input.PREPARED: State.QUEUED,
        Input.ANSWER: State.ANSWERED,
        Input.CANCEL: State.CANCELLED,
    },
    State.QUEUED: {
        Input.SEND: State.SENT,
        Input.ANSWER: State.ANSWERED,
        Input.CANCEL: State.CANCELLED,
    },
    State.SENT: {
        Input.REQUEUE: State.QUEUED,
        Input.REPLY: State.CAPTURING,
        Input.ASKED: State.ASKING,
        Input.TASKED: State.TASKED,
        Input.ANSWER: State.ANSWERED,
        Input.CANCEL: State.CANCELLED,
    },
    State.TASKED: {
        Input.REPLY: State.CAPTURING,
        Input.ANSWER: State.ANSWERED,
        Input.CANCEL: State.CANCELLED,
    },
    State.ASKING: {
        Input.PREPARED: State.QUEUED,
        Input.ANSWER: State.ANSWERED,
        Input.CANCEL: State.CANCELLED,
    },
    State.CAPTURING: {
        Input.ANSWER: State.ANSWERED,
        Input.CANCEL: State.CANCELLED,
    },
    State.ANSWERED: {},
    State.CANCELLED: {},
}


class ExchangeKey(NamedTuple):
    """Where a request came in, and which of that channel's requests it was."""

    channel: ChannelId
    ordinal: int


class Wish(NamedTuple):
    """What the client of a call said of tasks.

    Attributes:
        is_asked: it wants the call to be one (2025-11-25), and nothing else.
        ttl_ms: how long it wants that to be kept.
        knows_tasks: it can be told of one in place of the result (the tasks extension).
    """

    is_asked: bool = False
    ttl_ms: int | None = None
    knows_tasks: bool = False


NO_WISH: Final = Wish()
_NOBODY: Final[frozenset[str]] = frozenset()
_NOTHING: Final[dict[str, bytes]] = {}  # nobody puts anything into it: it is replaced


class Reply:
    """What answers one incoming body: one request's answer, or all answers of a batch.

    Attributes:
        stream: where it travels.
        remaining: answers still owed.
        ends_channel: an HTTP reply, which is over after its last answer; a pipe goes on.
        gathered: answers are kept and sent as one array (those of a batch); else None.
        can_stream: messages other than the answers may travel here too.
        session: the `Mcp-Session-Id` to hand out with the first bytes.
        status, challenge: the HTTP status and the `WWW-Authenticate` header it has if it is a single message.
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


class Exchange(Machine[State, Input]):
    """Moves along `TRANSITIONS` only.

    Attributes:
        sid: the public name of the session it belongs to.
        id_raw: the client's id, echoed byte for byte.
        params: what is sent upstream: the client's, with handles and tokens replaced.
        said: the client's own.
        token_raw: the client's progress token, if it wants progress.
        headers: what of the client's HTTP headers goes on to the server.
        upstream_id: the number it travels under, once sent.
        post: the channel of its POST to an HTTP upstream, while that is open.
        attempts: how often it was written upstream.
        told: how far its client was told that it is.
        may_have_run: whether an earlier attempt may have reached the server.
        leg: what the client said of itself with the request, if it says that with each (2026-07-28).
        park: what its server asks of such a client, once it does.
        lacking: a capability that its server asked for in vain, as the JSON of `requiredCapabilities`.
        round: what its server, without sessions, wants to know before it answers.
        mirrored: what of the request its client said in headers.
        known: answers to what its server asks, from before the call was lost, by what was asked.
        visited: the pages that its user has agreed to visit, by their names.
        is_native: its answer is of the client's own era already.
        is_plain: it went up as it came. See `plain`.
        is_ferried: it went up in one step, though not as it came. See `ferries`.
        wish: what its client said of tasks.
        is_augmented: the server may make a task of it.
        must_augment: it refused it otherwise.
        remote: the task that the server has made of it.
        link: the id of the way it goes by, where that is not its session's.
        task: the one that its client was told of: what comes of the exchange becomes what comes of that.
        awaits: the task whose outcome it waits for, by its id.
    """

    TRANSITIONS = TRANSITIONS

    # Most calls go up, come back and are over: what few of them need is the class's until then.
    upstream_id: int | None = None
    post: ChannelId | None = None
    attempts = 0
    told = float("-inf")
    may_have_run = False
    leg: Envelope | None = None
    park: Park | None = None
    lacking: bytes | None = None
    round: Round | None = None
    mirrored: Headers = ()
    visited: frozenset[str] = _NOBODY
    known = _NOTHING
    is_native = False
    is_plain = False
    is_ferried = False
    wish = NO_WISH
    is_augmented = False
    must_augment = False
    remote: Remote | None = None
    link: str | None = None
    task: Task | None = None
    awaits: str | None = None

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
        self.state = State.PREPARING
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
        """Whether it is its client's turn to say something, of one that is no task."""
        assert self.task is None
        return self.park is not None and not self.park.has_leg

    @property
    def is_upstream(self) -> bool:
        """Whether its server is at work on it."""
        return self.upstream_id is not None or self.state is State.TASKED

    @property
    def is_begun(self) -> bool:
        """Whether its server may have worked on it, now or in an earlier attempt."""
        return self.may_have_run or self.state not in (State.PREPARING, State.QUEUED)

    def may_repeat(self, *, is_unsent: bool, retries: int) -> bool:
        """Whether it can be written upstream again without the risk of running twice.

        Args:
            is_unsent: it is proved that the upstream did not run it.
            retries: how many repetitions are allowed in all.
        """
        return self.attempts <= retries and (is_unsent or self.method in SAFE_TO_REPEAT)
