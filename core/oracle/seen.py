"""What the watches speak of: requests, streams, messages, and what is found about them."""

from __future__ import annotations

import enum
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from ..base.revisions import LATEST_LEGACY
from .observations import Headers, Role, Said, Verb

Id = str | int
JsonObject = dict[str, Any]

PREFIX: Final = "io.modelcontextprotocol/"
VERSION: Final = PREFIX + "protocolVersion"
CAPABILITIES: Final = PREFIX + "clientCapabilities"
CLIENT_INFO: Final = PREFIX + "clientInfo"
LOG_LEVEL: Final = PREFIX + "logLevel"
SERVER_INFO: Final = PREFIX + "serverInfo"
SUBSCRIPTION: Final = PREFIX + "subscriptionId"
RELATED_TASK: Final = PREFIX + "related-task"

K = TypeVar("K")
V = TypeVar("V")


class Memory(dict[K, V], Generic[K, V]):
    """A dict of at most `size_max` entries: the one that was put in first is forgotten first."""

    def __init__(self, size_max: int) -> None:
        super().__init__()
        self._size_max = size_max
        self.has_forgotten = False

    def __setitem__(self, key: K, value: V) -> None:
        if key not in self and len(self) >= self._size_max:
            del self[next(iter(self))]
            self.has_forgotten = True
        super().__setitem__(key, value)


class State(enum.Enum):
    OPEN = "open"
    CANCELLED = "cancelled"
    ANSWERED = "answered"
    LOST = "lost"  # what carried it is gone: nobody can answer it


class Ask(msgspec.Struct, eq=False):
    """One request, with what later rules have to know of it.

    Attributes:
        index: of the observation it came in.
        token: its progress token.
        name: what it names: a tool, a prompt, a URI or a task.
        meta: `_meta` of its params.
        sought: what a `subscriptions/listen` asks for.
        twins: how many requests with this id were open when it came, against the rules, and are answered on the same
            channel.
        is_doubled: another with this id was open at once: which is answered or cancelled may not show.
        is_task: it is to be a task, and its receiver has declared that it can be.
    """

    sender: Role
    id: Id
    method: str
    index: int
    channel: int
    revision: str
    meta: JsonObject
    token: Id | None = None
    name: str | None = None
    sought: JsonObject | None = None
    is_task: bool = False
    is_task_over: bool = False
    twins: int = 0
    is_doubled: bool = False
    state: State = State.OPEN

    @property
    def capabilities(self) -> JsonObject:
        """What a request without session declares of its client."""
        found = self.meta.get(CAPABILITIES)
        return found if isinstance(found, dict) else {}


class Stream(msgspec.Struct, eq=False):
    """One channel.

    Attributes:
        verb: None for a pipe.
        resumes: the stream whose rest it brings, of a GET with `Last-Event-ID`, as far as that id is known.
        asks: requests of the client that came in its body; of a pipe none, it has them all.
        notices: how many other messages did.
        given: requests of the server that were answered in it.
        contradicts: what its head says that its body does not; empty if nothing.
        has_event_id: an event of it had an id, so it can be taken up.
    """

    number: int
    verb: Verb | None
    index: int
    session: str | None = None
    revision: str | None = None
    accept: str | None = None
    last_event_id: str | None = None
    mirrored: Headers | None = None
    resumes: Stream | None = None
    asks: list[Ask] = []
    notices: int = 0
    given: list[Ask] = []
    status: int | None = None
    content_type: str | None = None
    contradicts: str = ""
    has_event_id: bool = False
    messages: int = 0

    @property
    def origin(self) -> Stream:
        """The stream that this one is the rest of, or itself."""
        stream = self
        while stream.resumes is not None:
            stream = stream.resumes
        return stream


class Kind(enum.Enum):
    REQUEST = "request"
    NOTIFICATION = "notification"
    RESULT = "result"
    ERROR = "error"


class Frame(msgspec.Struct, eq=False):
    """One message, as it is judged.

    Attributes:
        ask: what a response answers; None if that is unknown.
        made: what the book will have of a request.
        is_batched: it came in an array.
        is_first: it is the first message of its observation.
    """

    kind: Kind
    sender: Role
    stream: Stream
    index: int
    message: JsonObject
    said: Said
    revision: str = LATEST_LEGACY
    ask: Ask | None = None
    made: Ask | None = None
    is_batched: bool = False
    is_first: bool = True

    @property
    def id(self) -> Id:
        found = key_of(self.message["id"])
        assert found is not None
        return found

    @property
    def method(self) -> str:
        return str(self.message.get("method", ""))

    @property
    def params(self) -> JsonObject:
        found = self.message.get("params")
        return found if isinstance(found, dict) else {}

    @property
    def result(self) -> JsonObject:
        found = self.message.get("result")
        return found if isinstance(found, dict) else {}

    @property
    def meta(self) -> JsonObject:
        """`_meta` of the params or of the result."""
        found = (self.params or self.result).get("_meta")
        return found if isinstance(found, dict) else {}


class Breach(NamedTuple):
    """A watch's finding. `revision` is that of the rule's clause."""

    rule: str
    who: Role
    text: str
    revision: str
    observations: tuple[int, ...]


def key_of(value: object) -> Id | None:
    """An id or a token; None for what can be neither. JSON's 1 and "1" are two, and 1.0 is an integer."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def shown(value: object) -> str:
    """Something of a message, short enough for a sentence."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…'"
