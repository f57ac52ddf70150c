"""The filter of a subscription (`subscriptions/listen`), and the subscription id in its notifications."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from ..base.errors import INVALID_PARAMS, OVERLOADED, RemoteProtocolError
from ..jsonrpc.envelope import member_of, text_of
from ..jsonrpc.splice import elements, members, remove_member, set_member, take

SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
"""The `_meta` key of the listen request's id."""

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
UPDATED: Final = "notifications/resources/updated"
TASK: Final = "notifications/tasks"
LISTS: Final = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}
"""The field of `ListenFilter` that subscribes to each list notification."""

_FLAGS: Final = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}
_NAMES: Final = {"resourceSubscriptions": "uris", "taskIds": "tasks"}

NESTED_URI_MAX_CHARS: Final = 2048
"""Longest URI of which it is asked whether it lies below another one: each of its slashes takes a copy."""

K = TypeVar("K", bound=Hashable)


# --- Filters --------------------------------------------------------------------------------------------------------


class Change(NamedTuple):
    """A notification of a change; `params` is JSON, or None."""

    method: str
    params: bytes | None = None


class ListenFilter(msgspec.Struct, frozen=True):
    """The set of changes that a subscription covers. `|`, `&` and `-` are union, intersection and difference.

    Attributes:
        tools: changes of the list of tools.
        prompts: changes of the list of prompts.
        resources: changes of the list of resources.
        uris: updates of these resources, and of those below them.
        tasks: the status of the tasks with these ids.
    """

    tools: bool = False
    prompts: bool = False
    resources: bool = False
    uris: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()

    def __or__(self, other: ListenFilter) -> ListenFilter:
        return ListenFilter(
            self.tools or other.tools,
            self.prompts or other.prompts,
            self.resources or other.resources,
            self.uris | other.uris,
            self.tasks | other.tasks,
        )

    def __and__(self, other: ListenFilter) -> ListenFilter:
        return ListenFilter(
            self.tools and other.tools,
            self.prompts and other.prompts,
            self.resources and other.resources,
            self.uris & other.uris,
            self.tasks & other.tasks,
        )

    def __sub__(self, other: ListenFilter) -> ListenFilter:
        return ListenFilter(
            self.tools and not other.tools,
            self.prompts and not other.prompts,
            self.resources and not other.resources,
            self.uris - other.uris,
            self.tasks - other.tasks,
        )

    def __bool__(self) -> bool:
        """True if anything is covered."""
        return self != ListenFilter()

    @property
    def size_chars(self) -> int:
        """The characters of all URIs and task ids together."""
        return sum(map(len, self.uris)) + sum(map(len, self.tasks))

    def covers(self, method: str, subject: str | None = None) -> bool:
        """True if a notification is covered; `subject` is the URI or the task id that it is about.

        Source: 2026-07-28 schema, ResourceUpdatedNotificationParams: the URI "might be a sub-resource of the one that
        the client actually subscribed to". A URI lies below another if it continues that one after a slash.
        """
        if method in LISTS:
            return bool(getattr(self, LISTS[method]))
        if subject is None:
            return False
        if method == UPDATED:
            return subject in self.uris or (
                len(subject) <= NESTED_URI_MAX_CHARS and any(above in self.uris for above in _ancestors(subject))
            )
        return method == TASK and subject in self.tasks

    def changes(self) -> list[Change]:
        """Returns a change of every list and resource covered. Tasks are left out: their notification carries the
        status itself, so there is nothing to read anew."""
        lists = [Change(method) for method, field in LISTS.items() if getattr(self, field)]
        return lists + [Change(UPDATED, msgspec.json.encode({"uri": uri})) for uri in sorted(self.uris)]


def _ancestors(uri: str) -> Iterator[str]:
    """Yields the URIs that `uri` lies below, each with and without its final slash."""
    end = uri.rfind("/")
    while end >= 0:
        yield uri[: end + 1]
        yield uri[:end]
        end = uri.rfind("/", 0, end)


def recipients(filters: Mapping[K, ListenFilter], method: str, subject: str | None = None) -> list[K]:
    """Returns the keys of the filters that cover a change, among the sessions that share a server.

    An update that no filter covers goes to all that subscribe to any resource: servers may name resources in other ways
    than clients did, and one invalidation too many does no harm.
    """
    if method == UPDATED:
        found = [key for key, one in filters.items() if subject in one.uris]
        found = found or [key for key, one in filters.items() if one.covers(method, subject)]
        return found or [key for key, one in filters.items() if one.uris]
    return [key for key, one in filters.items() if one.covers(method, subject)]


def parse_filter(params: bytes | None, *, names_max: int) -> ListenFilter:
    """Returns the filter in the params of a listen request or of its acknowledgment. Unknown members are ignored.

    Args:
        names_max: largest number of URIs and task ids together.

    Raises:
        RemoteProtocolError: it is missing, or malformed (INVALID_PARAMS); or it names too many (OVERLOADED).
    """
    try:
        raw = member_of(params, "notifications")
        if raw is None or not raw.startswith(b"{"):
            raise _unreadable("no object notifications in the params of a listen", "one")
        spans = members(raw)
    except RemoteProtocolError as error:
        error.blame(INVALID_PARAMS)
        raise
    fields: dict[str, object] = {field: _flag(take(raw, spans.get(name)), name) for name, field in _FLAGS.items()}
    for name, field in _NAMES.items():
        listed = _texts(take(raw, spans.get(name)), name, names_max)
        names_max -= len(listed)
        fields[field] = frozenset(listed)
    return msgspec.structs.replace(ListenFilter(), **fields)


def format_filter(wanted: ListenFilter) -> bytes:
    """Returns the JSON of the member `notifications` of a listen request, or of its acknowledgment."""
    fields: dict[str, object] = {name: True for name, field in _FLAGS.items() if getattr(wanted, field)}
    fields |= {name: sorted(getattr(wanted, field)) for name, field in _NAMES.items() if getattr(wanted, field)}
    return msgspec.json.encode(fields)


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


# --- Subscription ids -----------------------------------------------------------------------------------------------


def tagged(params: bytes | None, id_raw: bytes) -> bytes:
    """Returns the params of a notification, or a result, with the subscription id added: the id of the listen request,
    as its client wrote it.

    Raises:
        RemoteProtocolError: `params` is no object, or has a member twice.
    """
    params = b"{}" if params is None else params
    meta = member_of(params, "_meta")
    if meta is None or not meta.startswith(b"{"):
        meta = b"{}"
    return set_member(params, "_meta", set_member(meta, SUBSCRIPTION_ID, id_raw))


def untagged(params: bytes | None) -> tuple[bytes | None, bytes | None]:
    """Returns the params without the subscription id, and the JSON of that id. Params that held nothing else become
    None.

    Raises:
        RemoteProtocolError: `params` is no object, or has a member twice.
    """
    meta = member_of(params, "_meta")
    if params is None or meta is None or not meta.startswith(b"{"):
        return params, None
    id_raw = take(meta, members(meta).get(SUBSCRIPTION_ID))
    if id_raw is None:
        return params, None
    meta = remove_member(meta, SUBSCRIPTION_ID)
    params = set_member(params, "_meta", meta) if members(meta) else remove_member(params, "_meta")
    return params if members(params) else None, id_raw


def subject_of(method: str, params: bytes | None) -> str | None:
    """Returns the URI or the task id that a notification is about; None for other notifications.

    Raises:
        RemoteProtocolError: the member is there twice.
    """
    name = {UPDATED: "uri", TASK: "taskId"}.get(method)
    return None if name is None else text_of(member_of(params, name))
