"""Tasks, as each era writes them: read into one shape, and written from it in either.

In 2025-11-25 a task is an object of its own, whose outcome is fetched with another request; in the extension that came
after it, its members lie flat in a result of their own type, and its questions and its outcome with them. What both say
of a task is the same seven things, so mapping one way and back loses nothing.

What is read here comes from servers of all ages: a member that is absent, or null, is tolerated wherever the task can
be followed without it; one that is there must be what its name says. Times are shown to people and are not read.

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
from ..jsonrpc.splice import Span, build_object, insert_members, members, remove_members, take
from .input_requests import Question, read_questions
from .related_task import ID_SIZE_MAX_CHARS, id_of, without_related
from .related_task import RELATED as RELATED
from .related_task import related_id as related_id
from .related_task import with_related as with_related

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension, as capabilities name it."""

TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
STATUSES: Final = ("working", "input_required", *sorted(TERMINAL))

TTL_MAX_MS: Final = SAFE_INTEGER_MAX
"""Longer times are cut to this one, some 285,000 years: "for good" is often the largest integer of a language."""

CLAUSE: Final = "2025-11-25 basic/utilities/tasks"
CLAUSE_MODERN: Final = f"extension {TASKS}"


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What both eras say of a task.

    Attributes:
        id: 1 to 1024 characters.
        status: one of `STATUSES`.
        created_at, updated_at: as written, ISO 8601 where the writer keeps to the specification; "": it said none.
        ttl_ms: from its creation; None: for good, or not said.
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
    """A task with what its status brings along.

    Attributes:
        questions: those nobody has answered yet, while it is `input_required`.
        result: a JSON object, once it is `completed`.
        error: a JSON-RPC error object, once it is `failed`.
    """

    task: Task
    questions: tuple[Question, ...]
    result: bytes | None
    error: bytes | None


# --- Reading what servers say ---------------------------------------------------------------------------------------


def is_task(result: bytes) -> bool:
    """Whether this result of a modern server is a task. Others cost no more than a search for the word.

    Raises:
        RemoteProtocolError: a member of the result occurs twice.
    """
    if b'"task"' not in result and b"\\u" not in result:
        return False
    return text_of(member_of(result, "resultType")) == "task"


def read_created(result: bytes, *, is_stateless: bool) -> Task | None:
    """The task that a server answers a call with; None: it is an answer of another kind.

    A legacy server's has no word of its own for it. It is taken for a task if its member `task` names one and says how
    it is, and there is no `content`, which every plain result of a tool has.

    Raises:
        RemoteProtocolError: it is a task, and malformed (INTERNAL_ERROR); or a member that is judged occurs twice.
    """
    if is_stateless:
        return _read(result, members(result), _MODERN) if is_task(result) else None
    if not result.startswith(b"{") or (b'"task"' not in result and b"\\u" not in result):
        return None
    spans = members(result)
    task = take(result, spans.get("task"))
    if task is None or not task.startswith(b"{") or take(result, spans.get("content")) not in (None, b"null"):
        return None
    named = members(task)
    if any(text_of(take(task, named.get(key))) is None for key in ("taskId", "status")):
        return None
    return _read(task, named, _LEGACY)


def read_task(data: bytes) -> Task:
    """A legacy server's task: the result of `tasks/get` or `tasks/cancel`, or what it tells of itself unasked.

    Raises:
        RemoteProtocolError: as `read_created` does.
    """
    return _read(data, _open(data), _LEGACY)


def read_detailed(data: bytes) -> Detailed:
    """A modern server's task: the result of `tasks/get`, or the params of `notifications/tasks`.

    The text of the extension has its `resultType` be "complete", some of its examples "task"; either is accepted. What
    the status has no use for is not looked at.

    Raises:
        RemoteProtocolError: it is malformed, lacks what its status must bring, or asks what cannot be asked
            (INTERNAL_ERROR); or a member that is judged occurs twice.
    """
    spans = _open(data)
    kind = take(data, spans.get("resultType"))
    if kind not in (None, b"null") and text_of(kind) not in ("complete", "task"):
        raise _faulty(f"with the resultType {_word(kind or b'')}", '"complete"', _MODERN)
    task = _read(data, spans, _MODERN)
    if task.status == "input_required":
        entries = _owed("inputRequests", task, take(data, spans.get("inputRequests")))
        return Detailed(task, read_questions(build_object({"inputRequests": entries}))[0], None, None)
    if task.status == "completed":
        return Detailed(task, (), _owed("result", task, take(data, spans.get("result"))), None)
    if task.status == "failed":
        return Detailed(task, (), None, _owed("error", task, take(data, spans.get("error"))))
    return Detailed(task, (), None, None)


# --- Reading what clients say ---------------------------------------------------------------------------------------


def wanted(params: bytes | None) -> tuple[bool, int | None]:
    """Whether a `tools/call` of a legacy client asks for a task, and for how many milliseconds, if it says.

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
    """The task that a request names; None, if it names none that there could be."""
    try:
        return id_of(member_of(params, "taskId"))
    except RemoteProtocolError:
        return None


def clamp_ttl(wanted_ms: int | None, default_ms: int, max_ms: int) -> int:
    """How long a task is kept whose client wishes for `wanted_ms`, or for nothing."""
    assert wanted_ms is None or wanted_ms >= 0
    return min(default_ms if wanted_ms is None else wanted_ms, max_ms)


# --- Saying ---------------------------------------------------------------------------------------------------------


def legacy_task(task: Task) -> bytes:
    """The JSON of a Task of 2025-11-25."""
    return build_object(_parts(task, _LEGACY))


def legacy_created(task: Task) -> bytes:
    """The JSON of a CreateTaskResult of 2025-11-25."""
    return build_object({"task": legacy_task(task)})


def modern_created(task: Task) -> bytes:
    """The JSON of the extension's CreateTaskResult."""
    return build_object({"resultType": b'"task"', **_parts(task, _MODERN)})


def modern_detailed(
    task: Task,
    *,
    questions: Mapping[str, bytes] = {},
    result: bytes | None = None,
    error: bytes | None = None,
    is_result: bool,
) -> bytes:
    """The JSON of the extension's DetailedTask, with what the status of the task must bring and nothing else.

    Args:
        questions: by key, each the JSON of a method and its params.
        result: a JSON object. What marks it as an answer to a request of its own is taken out.
        error: the JSON of an error object.
        is_result: of `tasks/get`; else it is the params of `notifications/tasks`.

    Raises:
        RemoteProtocolError: `result` is no object, or a member that is judged occurs in it twice.
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
    """The params of a `tools/call` that asks a legacy server for a task: `plain` takes it out again.

    Raises:
        RemoteProtocolError: the params are no object, or have a key twice.
    """
    wish = b"{}" if ttl_ms is None else b'{"ttl":%d}' % ttl_ms
    bare = b"{}" if params is None else params
    _open(bare, INVALID_PARAMS)
    return insert_members(remove_members(bare, {"task"}), {"task": wish})


def plain(params: bytes | None) -> bytes | None:
    """The params of a `tools/call` that asks for no task.

    Raises:
        RemoteProtocolError: they have a key twice.
    """
    return remove_members(params, {"task"}) if params is not None and params.startswith(b"{") else params


# --- Below ----------------------------------------------------------------------------------------------------------


class _Names(NamedTuple):
    ttl: str
    poll: str
    clause: str


_LEGACY: Final = _Names("ttl", "pollInterval", CLAUSE)
_MODERN: Final = _Names("ttlMs", "pollIntervalMs", CLAUSE_MODERN)


def _parts(task: Task, names: _Names) -> dict[str, bytes]:
    assert task.status in STATUSES
    parts: dict[str, object] = {"taskId": task.id, "status": task.status}
    if task.message is not None:
        parts["statusMessage"] = task.message
    parts.update({"createdAt": task.created_at, "lastUpdatedAt": task.updated_at, names.ttl: task.ttl_ms})
    if task.poll_ms is not None:
        parts[names.poll] = task.poll_ms
    return {key: msgspec.json.encode(value) for key, value in parts.items()}


def _read(data: bytes, spans: dict[str, Span], names: _Names) -> Task:
    """The task whose members these are."""
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
        seen = "without a status" if status is None else f"with the status {_word(found['status'])}"
        raise _faulty(seen, "one of " + ", ".join(STATUSES), names)
    return Task(
        id=id,
        status=status,
        created_at=text("createdAt") or "",
        updated_at=text("lastUpdatedAt") or "",
        ttl_ms=time_ms(names.ttl),
        poll_ms=time_ms(names.poll),
        message=text("statusMessage"),
    )


def _milliseconds(raw: bytes) -> int | None:
    """A JSON number as whole milliseconds; None if it is none, or negative. The largest are cut."""
    if raw[0] not in b"-0123456789":
        return None
    value = float(raw)
    return int(min(value, TTL_MAX_MS)) if value >= 0 else None


def _owed(name: str, task: Task, raw: bytes | None) -> bytes:
    """What a status must bring: an object."""
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


def _word(raw: bytes) -> str:
    """A word, so that it can be looked up; of anything else, what it is."""
    text = readable_text(raw)
    return described(raw) if text is None or len(text) > 40 else f'"{text}"'
