"""The types that checkers share: requests, streams, messages, and findings about them."""

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
    """A dict of at most `size_max` entries, which forgets the oldest entry first."""

    def __init__(self, size_max: int) -> None:
        super().__init__()
        self._size_max = size_max
        self.has_forgotten = False

    def __setitem__(self, key: K, value: V) -> None:
        if key not in self and len(self) >= self._size_max:
            del self[next(iter(self))]
            self.has_forgotten = True
        super().__setitem__(key, value)


class RequestState(enum.Enum):
    """The state of a request."""

    OPEN = "open"
    CANCELLED = "cancelled"
    ANSWERED = "answered"
    LOST = "lost"  # its channel is gone, so it cannot be answered


class Request(msgspec.Struct, eq=False):
    """One request, with what later rules need to know about it.

    Attributes:
        index: of the observation it came in.
        token: its progress token.
        name: what it names: a tool, a prompt, a URI or a task.
        meta: `_meta` of its params.
        sought: the filter of a `subscriptions/listen`.
        is_acknowledged: that was acknowledged, so its stream may end without a response.
        duplicates: how many requests with this id were open when it came, against the rules, and are answered on the
            same channel.
        is_doubled: another request with this id was open at the same time, so it may be unclear which of them is
            answered or cancelled.
        is_task: it asks to be run as a task, and its receiver has declared that it can be.
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
    is_acknowledged: bool = False
    is_task: bool = False
    is_task_over: bool = False
    duplicates: int = 0
    is_doubled: bool = False
    state: RequestState = RequestState.OPEN

    def receive_acknowledged(self) -> None:
        """Handles the acknowledgment of a `subscriptions/listen`."""
        self.is_acknowledged = True

    def receive_twin(self, other: Request, *, shares_channel: bool) -> None:
        """Handles an earlier request with this id that is still open."""
        self.is_doubled = True
        other.is_doubled = True
        self.duplicates = other.duplicates + 1 if shares_channel else 0

    def receive_response(self, *, is_result: bool) -> bool:
        """Handles a response with its id. False if one of the earlier requests with this id may be meant: only the last
        response closes this one."""
        if self.duplicates:
            self.duplicates -= 1
            return False
        self.state = RequestState.ANSWERED
        self.is_task = self.is_task and is_result
        return True

    def cancel(self) -> None:
        """Ends it if it is open: no response is owed."""
        if self.state is RequestState.OPEN:
            self.state = RequestState.CANCELLED

    def lose(self) -> None:
        """Ends it if it is open: it cannot be answered any more."""
        if self.state is RequestState.OPEN:
            self.state = RequestState.LOST

    def reopen(self) -> None:
        """Handles the loss of its response, which may be sent again."""
        self.state = RequestState.OPEN

    def end_task(self) -> None:
        """Records that its task has a final status."""
        self.is_task_over = True

    @property
    def capabilities(self) -> JsonObject:
        """The client capabilities that a stateless-era request declares."""
        found = self.meta.get(CAPABILITIES)
        return found if isinstance(found, dict) else {}


class Stream(msgspec.Struct, eq=False):
    """One channel.

    Attributes:
        verb: None for a pipe.
        resumes: for a GET with `Last-Event-ID`, the stream that it continues, as far as that id is known.
        requests: requests of the client that came in its body; none for a pipe, which has them all.
        notifications: the number of other messages that came in its body.
        given: requests of the server that were answered in its body.
        contradicts: how its head contradicts its body; empty if it does not.
        has_event_id: an event of it had an id, so it can be resumed.
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
    requests: list[Request] = []
    notifications: int = 0
    given: list[Request] = []
    status: int | None = None
    content_type: str | None = None
    contradicts: str = ""
    has_event_id: bool = False
    messages: int = 0

    def receive_head(self, status: int, content_type: str | None) -> None:
        """Takes what the head of the response says."""
        self.status, self.content_type = status, content_type

    def receive_event_id(self) -> None:
        """Records that an event has an id."""
        self.has_event_id = True

    def receive_contradiction(self, text: str) -> None:
        """Records how the head contradicts the body."""
        self.contradicts = text

    def add_request(self, request: Request) -> None:
        """Adds a request of the client that came in the body."""
        self.requests.append(request)

    def add_answered(self, request: Request) -> None:
        """Adds a request of the server that was answered in the body."""
        self.given.append(request)

    def take_answered(self) -> list[Request]:
        """Removes and returns those."""
        given, self.given = self.given, []
        return given

    def count(self, *, is_notification: bool = False) -> None:
        """Counts a message of the server, or one of the client that is no request."""
        if is_notification:
            self.notifications += 1
        else:
            self.messages += 1

    @property
    def origin(self) -> Stream:
        """The stream that this one continues, or itself."""
        stream = self
        while stream.resumes is not None:
            stream = stream.resumes
        return stream


class MessageKind(enum.Enum):
    REQUEST = "request"
    NOTIFICATION = "notification"
    RESULT = "result"
    ERROR = "error"


class Frame(msgspec.Struct, eq=False):
    """One message, as it is judged.

    Attributes:
        request: the request that a response answers; None if unknown.
        made: the entry that the book will have for a request.
        is_batched: it came in an array.
        is_first: it is the first message of its observation.
    """

    kind: MessageKind
    sender: Role
    stream: Stream
    index: int
    message: JsonObject
    said: Said
    revision: str = LATEST_LEGACY
    request: Request | None = None
    made: Request | None = None
    is_batched: bool = False
    is_first: bool = True

    def attribute(self, revision: str, *, made: Request | None) -> None:
        """Takes the revision by which it is judged, and the entry of a request."""
        self.revision, self.made = revision, made

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
        """The `_meta` of the params or of the result."""
        found = (self.params or self.result).get("_meta")
        return found if isinstance(found, dict) else {}


class Finding(NamedTuple):
    """A checker's finding. `revision` is that of the rule's clause."""

    rule: str
    who: Role
    text: str
    revision: str
    observations: tuple[int, ...]


def key_of(value: object) -> Id | None:
    """Returns an id or a token by value; None for an invalid one. JSON's 1 and "1" differ, and 1.0 is an integer."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def shown(value: object) -> str:
    """Returns the text of a value, short enough for a sentence."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…'"
