"""One `subscriptions/listen`, and what is wanted of a server for many.

A listen is a request that stays open: its client says what it wants to hear of, the server which of that it will tell,
and from then on every change arrives under the listen's id. Changes are invalidations: who hears of one reads anew, so
equal ones that wait are one, and after a gap a change of everything makes up for whatever was missed.

Source: 2026-07-28 basic/patterns/subscriptions; the tasks extension for `taskIds`.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from ..base.errors import INVALID_PARAMS, OVERLOADED, RemoteProtocolError
from ..base.state_machine import Machine
from ..jsonrpc.envelope import member_of, text_of
from ..jsonrpc.splice import elements, members, remove_member, set_member, take

SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
UPDATED: Final = "notifications/resources/updated"
TASK: Final = "notifications/tasks"
LISTS: Final = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}
"""Which field of a filter wants which change of a list."""

_FLAGS: Final = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}
_NAMES: Final = {"resourceSubscriptions": "uris", "taskIds": "tasks"}

K = TypeVar("K", bound=Hashable)


# --- What is wanted -------------------------------------------------------------------------------------------------


class Change(NamedTuple):
    """A notification that something is different now; `params` is JSON."""

    method: str
    params: bytes | None = None


class Filter(msgspec.Struct, frozen=True):
    """Which changes are wanted. `|` wants what either does, `&` what both do, `-` what only the left one does.

    Attributes:
        tools, prompts, resources: changes of the list.
        uris: updates of these resources, and of what lies below them.
        tasks: the state of the tasks with these ids.
    """

    tools: bool = False
    prompts: bool = False
    resources: bool = False
    uris: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()

    def __or__(self, other: Filter) -> Filter:
        return Filter(
            self.tools or other.tools,
            self.prompts or other.prompts,
            self.resources or other.resources,
            self.uris | other.uris,
            self.tasks | other.tasks,
        )

    def __and__(self, other: Filter) -> Filter:
        return Filter(
            self.tools and other.tools,
            self.prompts and other.prompts,
            self.resources and other.resources,
            self.uris & other.uris,
            self.tasks & other.tasks,
        )

    def __sub__(self, other: Filter) -> Filter:
        return Filter(
            self.tools and not other.tools,
            self.prompts and not other.prompts,
            self.resources and not other.resources,
            self.uris - other.uris,
            self.tasks - other.tasks,
        )

    def __bool__(self) -> bool:
        return self != Filter()

    def covers(self, method: str, subject: str | None = None) -> bool:
        """Whether a notification is wanted; `subject` is the URI or the task that it is about.

        Source: 2026-07-28 schema, ResourceUpdatedNotificationParams: the URI "might be a sub-resource of the one that
        the client actually subscribed to". Below a URI is what follows it after a slash.
        """
        if method in LISTS:
            return bool(getattr(self, LISTS[method]))
        if subject is None:
            return False
        if method == UPDATED:
            return subject in self.uris or any(above in self.uris for above in _ancestors(subject))
        return method == TASK and subject in self.tasks

    def changes(self) -> list[Change]:
        """A change of everything wanted whose news can be read anew; a task's is in the notification itself."""
        told = [Change(method) for method, field in LISTS.items() if getattr(self, field)]
        return told + [Change(UPDATED, msgspec.json.encode({"uri": uri})) for uri in sorted(self.uris)]


def _ancestors(uri: str) -> Iterator[str]:
    """What a URI lies below, with and without the slash between them."""
    end = uri.rfind("/")
    while end >= 0:
        yield uri[: end + 1]
        yield uri[:end]
        end = uri.rfind("/", 0, end)


def hearers(filters: Mapping[K, Filter], method: str, subject: str | None = None) -> list[K]:
    """Who is told of a change, among those that share what a server tells.

    An update that nobody's filter covers goes to all who have subscribed to any resource: servers name resources in
    other ways than they were asked for, and one invalidation too many does no harm.
    """
    if method == UPDATED:
        found = [key for key, one in filters.items() if subject in one.uris]
        found = found or [key for key, one in filters.items() if one.covers(method, subject)]
        return found or [key for key, one in filters.items() if one.uris]
    return [key for key, one in filters.items() if one.covers(method, subject)]


def parse_filter(params: bytes | None, *, names_max: int) -> Filter:
    """The filter in the params of a listen request or of its acknowledgment. What it does not know it leaves out.

    Args:
        names_max: how many URIs and tasks it may name, in all.

    Raises:
        RemoteProtocolError: it is missing, or not of its form (INVALID_PARAMS); or it names too much (OVERLOADED).
    """
    try:
        raw = member_of(params, "notifications")
        if raw is None or not raw.startswith(b"{"):
            raise _unreadable("no object notifications in the params of a listen", "one")
        spans = members(raw)
    except RemoteProtocolError as error:
        error.rpc_code = INVALID_PARAMS
        raise
    fields: dict[str, object] = {field: _flag(take(raw, spans.get(name)), name) for name, field in _FLAGS.items()}
    for name, field in _NAMES.items():
        listed = _texts(take(raw, spans.get(name)), name, names_max)
        names_max -= len(listed)
        fields[field] = frozenset(listed)
    return msgspec.structs.replace(Filter(), **fields)


def format_filter(wanted: Filter) -> bytes:
    """The JSON of the member `notifications` of a listen request, or of its acknowledgment."""
    told: dict[str, object] = {name: True for name, field in _FLAGS.items() if getattr(wanted, field)}
    told |= {name: sorted(getattr(wanted, field)) for name, field in _NAMES.items() if getattr(wanted, field)}
    return msgspec.json.encode(told)


def _flag(raw: bytes | None, name: str) -> bool:
    if raw not in (None, b"null", b"true", b"false"):
        raise _unreadable(f"another value for {name}", "true or false")
    return raw == b"true"


def _texts(raw: bytes | None, name: str, texts_max: int) -> list[str]:
    if raw is None or raw == b"null":
        return []
    if not raw.startswith(b"["):
        raise _unreadable(f"another value for {name}", "a list of texts")
    spans = elements(raw)
    if len(spans) > texts_max:
        raise RemoteProtocolError(
            f"got {len(spans)} entries in {name}, expected {texts_max} at most", rpc_code=OVERLOADED
        )
    texts = [text_of(raw[start:stop]) for start, stop in spans]
    if None in texts:
        raise _unreadable(f"an entry of {name} that is no Unicode text", "texts only")
    return [text for text in texts if text is not None]


def _unreadable(seen: str, expected: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"got {seen}, expected {expected}",
        rpc_code=INVALID_PARAMS,
        clause="2026-07-28 basic/patterns/subscriptions, Notification Filter",
    )


# --- Under which id -------------------------------------------------------------------------------------------------


def tagged(params: bytes | None, id_raw: bytes) -> bytes:
    """The params of a notification, or a result, with the id of the listen that it belongs to, as its client wrote it.

    Raises RemoteProtocolError where `params` is no object, or a member is there twice.
    """
    params = b"{}" if params is None else params
    meta = member_of(params, "_meta")
    if meta is None or not meta.startswith(b"{"):
        meta = b"{}"
    return set_member(params, "_meta", set_member(meta, SUBSCRIPTION_ID, id_raw))


def untagged(params: bytes | None) -> tuple[bytes | None, bytes | None]:
    """The params without that id, and its JSON. Where nothing else was in them there are none. Raises as `tagged`."""
    meta = member_of(params, "_meta")
    if params is None or meta is None or not meta.startswith(b"{"):
        return params, None
    id_raw = take(meta, members(meta).get(SUBSCRIPTION_ID))
    if id_raw is None:
        return params, None
    meta = remove_member(meta, SUBSCRIPTION_ID)
    params = set_member(params, "_meta", meta) if members(meta) else remove_member(params, "_meta")
    return params if members(params) else None, id_raw


# --- The machine ----------------------------------------------------------------------------------------------------


class State(enum.Enum):
    OPENING = "opening"  # not acknowledged yet; changes wait
    LIVE = "live"  # changes are told as they come
    STALE = "stale"  # the server is lost: nothing comes, and something may be missed
    CLOSED = "closed"  # its client ended it, or was told that it ended


class Input(enum.Enum):
    ACKNOWLEDGE = "acknowledge"
    LOSE = "lose"  # the connection to the server is gone
    RECOVER = "recover"  # the server is asked for the same again
    CLOSE = "close"


# Source: 2026-07-28 basic/patterns/subscriptions, "Acknowledgment": the server "MUST NOT send any notification on the
# subscription before it". A server that is lost before that is asked again before it is acknowledged.
TRANSITIONS: Final[dict[State, dict[Input, State]]] = {
    State.OPENING: {Input.ACKNOWLEDGE: State.LIVE, Input.CLOSE: State.CLOSED},
    State.LIVE: {Input.LOSE: State.STALE, Input.CLOSE: State.CLOSED},
    State.STALE: {Input.RECOVER: State.LIVE, Input.CLOSE: State.CLOSED},
    State.CLOSED: {},
}


class Listen(Machine[State, Input]):
    """Moves along `TRANSITIONS` only. What its inputs return is to be sent on its stream, in that order.

    Args:
        id_raw: the JSON of the request's id; everything on its stream carries it.
        wanted: the filter of the request.
        queue_max: changes that wait for the acknowledgment, beside one a task. Above that they are forgotten, and made
            up for by a change of everything.

    Attributes:
        granted: what was acknowledged; nothing before that.
    """

    __slots__ = ("_has_overflowed", "_queue", "_queue_max", "granted", "id_raw", "wanted")

    TRANSITIONS = TRANSITIONS

    def __init__(self, id_raw: bytes, wanted: Filter, *, queue_max: int) -> None:
        super().__init__(State.OPENING)
        self.id_raw = id_raw
        self.wanted = wanted
        self.granted = Filter()
        self._queue: dict[tuple[str, str | None], bytes | None] = {}
        self._queue_max = queue_max
        self._has_overflowed = False

    def receive_acknowledged(self, granted: Filter) -> list[Change]:
        """The server tells so much of what is wanted: say so, then what has changed since.

        Raises:
            LocalProtocolError: it was acknowledged before, or is closed. Nothing has changed.
        """
        self.step(Input.ACKNOWLEDGE)
        self.granted = granted & self.wanted
        told = [Change(ACKNOWLEDGED, b'{"notifications":%b}' % format_filter(self.granted))]
        if self._has_overflowed:
            told += self.granted.changes()
        for (method, subject), params in self._queue.items():
            if self.granted.covers(method, subject) and not (self._has_overflowed and method != TASK):
                told.append(Change(method, params))
        self._queue = {}
        return self._tagged(told)

    def receive_change(self, method: str, params: bytes | None) -> list[Change]:
        """The server tells of a change. It waits, is told, or, where nobody wants it or it will be made up for, not.

        Args:
            params: as the server wrote them, but for the id of its own listen.

        Raises:
            RemoteProtocolError: the params are no object, or have a member twice. Nothing has changed.
        """
        subject = subject_of(method, params)
        if self.state is State.LIVE and self.granted.covers(method, subject):
            return self._tagged([Change(method, params)])
        if self.state is State.OPENING and self.wanted.covers(method, subject):
            tagged(params, self.id_raw)  # raises now rather than later
            is_more = method != TASK and (method, subject) not in self._queue
            if is_more and len(self._queue) >= self._queue_max:
                self._has_overflowed = True
            else:
                self._queue[method, subject] = params
        return []

    def receive_lost(self) -> None:
        """The connection to the server is gone. Raises LocalProtocolError unless it is live."""
        self.step(Input.LOSE)

    def receive_recovered(self) -> list[Change]:
        """The server tells again what it told before. What it could not tell meanwhile is made up for.

        Raises:
            LocalProtocolError: it was not lost. Nothing has changed.
        """
        self.step(Input.RECOVER)
        return self._tagged(self.granted.changes())

    def receive_close(self) -> bytes:
        """It ends. Returns the result that says so, for where it is the server's or the proxy's wish.

        Raises:
            LocalProtocolError: it had ended before.
        """
        self.step(Input.CLOSE)
        self._queue = {}
        return tagged(b'{"resultType":"complete"}', self.id_raw)

    def _tagged(self, changes: list[Change]) -> list[Change]:
        return [Change(method, tagged(params, self.id_raw)) for method, params in changes]


def subject_of(method: str, params: bytes | None) -> str | None:
    """The URI or the task that a notification is about. Raises RemoteProtocolError where it is there twice."""
    name = {UPDATED: "uri", TASK: "taskId"}.get(method)
    return None if name is None else text_of(member_of(params, name))
