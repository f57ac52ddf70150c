"""Tasks in both eras: read into one structure, and written from it in either form.

In 2025-11-25 a task is an object of its own, and its outcome is fetched with another request. In the extension that
replaced it, a task's members lie flat in a result of their own type, together with its questions and its outcome. Both
forms have the same seven members of a task, so translating one way and back loses nothing.

Reading tolerates servers of all ages: a member that is absent or null is accepted wherever the task can be followed
without it. A member that is present must have its proper type. Times are shown to people and are not parsed.

Source: 2025-11-25 basic/utilities/tasks; the extension `io.modelcontextprotocol/tasks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from ..base.errors import INTERNAL_ERROR, INVALID_PARAMS, RemoteProtocolError
from ..base.timestamps import format_time as format_time
from ..base.timestamps import parse_time as parse_time
from ..jsonrpc.append import readable_text
from ..jsonrpc.envelope import described, member_of, text_of
from ..jsonrpc.number_text import SAFE_INTEGER_MAX
from ..jsonrpc.outline import outline_of
from ..jsonrpc.splice import Span, build_object, insert_members, members, remove_members, take
from .input_requests import Question, read_questions
from .related_task import ID_SIZE_MAX_CHARS, id_of, without_related
from .related_task import RELATED as RELATED
from .related_task import related_id as related_id
from .related_task import with_related as with_related

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The name of the extension in capabilities."""

UNKNOWN: Final = "Task not found: there is none of that id, or its time is over"
"""The error for a request about a task that its client has not, or has no more."""
TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
STATUSES: Final = ("working", "input_required", *sorted(TERMINAL))

TTL_MAX_MS: Final = SAFE_INTEGER_MAX
"""The longest time to live, some 285,000 years; longer ones are cut. Some servers write "for good" as a largest
integer."""

CLAUSE: Final = "2025-11-25 basic/utilities/tasks"
CLAUSE_MODERN: Final = f"extension {TASKS}"


class TaskFields(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a task that both eras have.

    Attributes:
        id: 1 to 1024 characters.
        status: one of `STATUSES`.
        created_at, updated_at: as written, ISO 8601 where the writer keeps to the specification; "" if absent.
        ttl_ms: counted from the creation; None: for good, or absent.
        message: for people.
    """

    id: str
    status: str
    created_at: str
    updated_at: str
    ttl_ms: int | None
    poll_ms: int | None = None
    message: str | None = None


class Detailed(NamedTuple):
    """A task with the members that its status requires.

    Attributes:
        questions: those not answered yet, while the task is `input_required`.
        result: a JSON object, once the task is `completed`.
        error: a JSON-RPC error object, once the task is `failed`.
    """

    task: TaskFields
    questions: tuple[Question, ...]
    result: bytes | None
    error: bytes | None


# --- Reading what servers send --------------------------------------------------------------------------------------


def is_task(result: bytes) -> bool:
    """True if this result of a stateless-era server is a task. Other results cost no more than a search for the word.

    Raises:
        RemoteProtocolError: a member of the result occurs twice.
    """
    words = outline_of(result)
    if b'"task"' not in words and b"\\u" not in words:
        return False
    return text_of(member_of(result, "resultType")) == "task"


def read_created(result: bytes, *, is_stateless: bool) -> TaskFields | None:
    """Returns the task that a server created for a call; None if the result is of another kind.

    A handshake-era result does not say that it is a task. It is taken for one if its member `task` has an id and a
    status, and there is no `content`, which every plain result of a tool has.

    Raises:
        RemoteProtocolError: the result is a malformed task (INTERNAL_ERROR); or a member that is read occurs twice.
    """
    if is_stateless:
        return _read(result, members(result), _MODERN) if is_task(result) else None
    words = outline_of(result)
    if not result.startswith(b"{") or (b'"task"' not in words and b"\\u" not in words):
        return None
    spans = members(result)
    task = take(result, spans.get("task"))
    if task is None or not task.startswith(b"{") or take(result, spans.get("content")) not in (None, b"null"):
        return None
    named = members(task)
    if any(text_of(take(task, named.get(key))) is None for key in ("taskId", "status")):
        return None
    return _read(task, named, _LEGACY)


def read_task(data: bytes) -> TaskFields:
    """Returns a handshake-era server's task.

    `data` is the result of `tasks/get` or `tasks/cancel`, or the params of a notification.

    Raises:
        RemoteProtocolError: the task is malformed (INTERNAL_ERROR); or a member that is read occurs twice.
    """
    return _read(data, _open(data), _LEGACY)


def read_detailed(data: bytes) -> Detailed:
    """Returns a stateless-era server's task: the result of `tasks/get`, or the params of `notifications/tasks`.

    The text of the extension requires the `resultType` "complete", some of its examples have "task"; either is
    accepted. Members that the status does not need are not looked at.

    Raises:
        RemoteProtocolError: the task is malformed, lacks what its status requires, or has a question that cannot be
            asked (INTERNAL_ERROR); or a member that is read occurs twice.
    """
    spans = _open(data)
    kind = take(data, spans.get("resultType"))
    if kind not in (None, b"null") and text_of(kind) not in ("complete", "task"):
        raise _faulty(f"with the resultType {_quoted(kind or b'')}", '"complete"', _MODERN)
    task = _read(data, spans, _MODERN)
    if task.status == "input_required":
        entries = _required_object("inputRequests", task, take(data, spans.get("inputRequests")))
        return Detailed(task, read_questions(build_object({"inputRequests": entries}))[0], None, None)
    if task.status == "completed":
        return Detailed(task, (), _required_object("result", task, take(data, spans.get("result"))), None)
    if task.status == "failed":
        return Detailed(task, (), None, _required_object("error", task, take(data, spans.get("error"))))
    return Detailed(task, (), None, None)


# --- Reading what clients send --------------------------------------------------------------------------------------


def wanted(params: bytes | None) -> tuple[bool, int | None]:
    """Returns whether a handshake-era client's `tools/call` asks for a task, and its time to live in milliseconds, if
    any.

    Raises:
        RemoteProtocolError: `task` is no object, or its `ttl` no time (INVALID_PARAMS); or one of them occurs twice.
    """
    task = member_of(params, "task")
    if task is None or task == b"null":
        return False, None
    if not task.startswith(b"{"):
        text = f"got a task in params that is {described(task)}, expected an object"
        raise RemoteProtocolError(text, rpc_code=INVALID_PARAMS, clause=CLAUSE)
    ttl = member_of(task, "ttl")
    if ttl is None or ttl == b"null":
        return True, None
    ttl_ms = _milliseconds(ttl)
    if ttl_ms is None:
        text = f"got a ttl of a task that is {described(ttl)}, expected a number of milliseconds, not negative"
        raise RemoteProtocolError(text, rpc_code=INVALID_PARAMS, clause=CLAUSE)
    return True, ttl_ms


def task_id(params: bytes | None) -> str | None:
    """Returns the id of the task that a request names; None if it names none, or no valid id."""
    try:
        return id_of(member_of(params, "taskId"))
    except RemoteProtocolError:
        return None


def clamp_ttl(wanted_ms: int | None, default_ms: int, max_ms: int) -> int:
    """Returns how long a task is kept whose client asked for `wanted_ms`, or for no particular time."""
    assert wanted_ms is None or wanted_ms >= 0
    return min(default_ms if wanted_ms is None else wanted_ms, max_ms)


# --- Writing --------------------------------------------------------------------------------------------------------


def legacy_task(task: TaskFields) -> bytes:
    """Returns the JSON of a Task of 2025-11-25."""
    return build_object(_parts(task, _LEGACY))


def legacy_created(task: TaskFields) -> bytes:
    """Returns the JSON of a CreateTaskResult of 2025-11-25."""
    return build_object({"task": legacy_task(task)})


def modern_created(task: TaskFields) -> bytes:
    """Returns the JSON of the extension's CreateTaskResult."""
    return build_object({"resultType": b'"task"', **_parts(task, _MODERN)})


def modern_detailed(
    task: TaskFields,
    *,
    questions: Mapping[str, bytes] = {},
    result: bytes | None = None,
    error: bytes | None = None,
    is_result: bool,
) -> bytes:
    """Returns the JSON of the extension's DetailedTask, with what the status of the task requires and nothing else.

    Args:
        questions: by key, each the JSON of a method and its params.
        result: a JSON object. Members that mark it as the result of a request of its own are removed.
        error: the JSON of an error object.
        is_result: for the result of `tasks/get`; else for the params of `notifications/tasks`.

    Raises:
        RemoteProtocolError: `result` is no object, or a member that is read occurs twice in it.
    """
    assert (result is not None) == (task.status == "completed")
    assert (error is not None) == (task.status == "failed")
    assert not questions or task.status == "input_required"
    parts = {"resultType": b'"complete"'} if is_result else {}
    parts.update(_parts(task, _MODERN))
    if task.status == "input_required":
        parts["inputRequests"] = build_object(questions)
    if result is not None:
        parts["result"] = _inlined(result)
    if error is not None:
        parts["error"] = error
    return build_object(parts)


def augmented(params: bytes | None, ttl_ms: int | None) -> bytes:
    """Returns the params of a `tools/call` that asks a handshake-era server for a task. `without_task` reverses it.

    Raises:
        RemoteProtocolError: the params are no object, or have a key twice.
    """
    task = b"{}" if ttl_ms is None else b'{"ttl":%d}' % ttl_ms
    bare = b"{}" if params is None else params
    _open(bare, INVALID_PARAMS)
    return insert_members(remove_members(bare, {"task"}), {"task": task})


def without_task(params: bytes | None) -> bytes | None:
    """Returns the params of a `tools/call` that asks for no task.

    Raises:
        RemoteProtocolError: the params have a key twice.
    """
    return remove_members(params, {"task"}) if params is not None and params.startswith(b"{") else params


# --- Helpers --------------------------------------------------------------------------------------------------------


class _Names(NamedTuple):
    ttl: str
    poll: str
    clause: str


_LEGACY: Final = _Names("ttl", "pollInterval", CLAUSE)
_MODERN: Final = _Names("ttlMs", "pollIntervalMs", CLAUSE_MODERN)

_LEGACY_METHODS: Final = frozenset({"tasks/get", "tasks/result", "tasks/list", "tasks/cancel"})
_MODERN_METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})


def methods_of(*, is_stateless: bool) -> frozenset[str]:
    """Returns the requests about tasks that clients of an era may send."""
    return _MODERN_METHODS if is_stateless else _LEGACY_METHODS


def _parts(task: TaskFields, names: _Names) -> dict[str, bytes]:
    assert task.status in STATUSES
    parts: dict[str, object] = {"taskId": task.id, "status": task.status}
    if task.message is not None:
        parts["statusMessage"] = task.message
    parts.update({"createdAt": task.created_at, "lastUpdatedAt": task.updated_at, names.ttl: task.ttl_ms})
    if task.poll_ms is not None:
        parts[names.poll] = task.poll_ms
    return {key: msgspec.json.encode(value) for key, value in parts.items()}


def _read(data: bytes, spans: dict[str, Span], names: _Names) -> TaskFields:
    """Returns the task with these members."""
    found = {key: raw for key in spans if (raw := take(data, spans[key])) is not None and raw != b"null"}

    def text(key: str) -> str | None:
        value = readable_text(found.get(key))
        if value is None and key in found:
            raise _faulty(f"with a {key} that is {described(found[key])}", "a string", names)
        return value

    def time_ms(key: str) -> int | None:
        value = None if key not in found else _milliseconds(found[key])
        if value is None and key in found:
            expected = "a number of milliseconds, not negative, or null"
            raise _faulty(f"with a {key} that is {described(found[key])}", expected, names)
        return value

    id = id_of(found.get("taskId"))
    if id is None:
        seen = "without a taskId" if "taskId" not in found else f"with a taskId that is {described(found['taskId'])}"
        raise _faulty(seen, f"a string of 1 to {ID_SIZE_MAX_CHARS} characters", names)
    status = text("status")
    if status not in STATUSES:
        seen = "without a status" if status is None else f"with the status {_quoted(found['status'])}"
        raise _faulty(seen, "one of " + ", ".join(STATUSES), names)
    return TaskFields(
        id=id,
        status=status,
        created_at=text("createdAt") or "",
        updated_at=text("lastUpdatedAt") or "",
        ttl_ms=time_ms(names.ttl),
        poll_ms=time_ms(names.poll),
        message=text("statusMessage"),
    )


def _milliseconds(raw: bytes) -> int | None:
    """Returns a JSON number as whole milliseconds, cut to `TTL_MAX_MS`; None if it is no number, or negative."""
    if raw[0] not in b"-0123456789":
        return None
    value = float(raw)
    return int(min(value, TTL_MAX_MS)) if value >= 0 else None


def _required_object(name: str, task: TaskFields, raw: bytes | None) -> bytes:
    """Returns the object that a status requires."""
    if raw is None or not raw.startswith(b"{"):
        seen = f"without {name}" if raw is None else f"with {name} that is {described(raw)}"
        raise _faulty(f"that is {task.status} {seen}", "an object", _MODERN)
    return raw


def _inlined(result: bytes) -> bytes:
    _open(result)
    bare = without_related(result)
    assert bare is not None
    return remove_members(bare, {"resultType"})


def _open(data: bytes, rpc_code: int = INTERNAL_ERROR) -> dict[str, Span]:
    if not data.startswith(b"{"):
        raise RemoteProtocolError(f"got {described(data)}, expected an object", rpc_code=rpc_code)
    return members(data)


def _faulty(seen: str, expected: str, names: _Names) -> RemoteProtocolError:
    return RemoteProtocolError(f"got a task {seen}, expected {expected}", rpc_code=INTERNAL_ERROR, clause=names.clause)


def _quoted(raw: bytes) -> str:
    """Returns a short text in quotes, so that it can be looked up; the type of anything else."""
    text = readable_text(raw)
    return described(raw) if text is None or len(text) > 40 else f'"{text}"'
