"""A peer sends any JSON for a task: it is read as an independent reader does, or refused, and both eras can write it.

The input is read as a server's response to a call, as a task of either era, as a task with its details, and as the
params of a client's call. Accepted outcomes: `RemoteProtocolError`, with INTERNAL_ERROR or INVALID_PARAMS if the JSON
can be decoded; None from `read_created`; or a task whose members the standard library's json finds in the input, and
which is the same after it was written and read again in each era.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from isthmus.core.base.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, RemoteProtocolError
from isthmus.core.bridge import tasks
from isthmus.core.bridge.input_requests import embed
from isthmus.core.bridge.tasks import Detailed, TaskFields

T = TypeVar("T")


def outcome(call: Callable[[], T]) -> T | None:
    """Returns the result of the call; None if it raises RemoteProtocolError."""
    try:
        return call()
    except RemoteProtocolError as error:
        refusal = error
    assert refusal.rpc_code in (INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR)
    return None


def parse(data: bytes) -> Any:
    """Returns the value as the standard library decodes it.

    Raises:
        ValueError, RecursionError: it cannot be decoded.
    """
    return json.loads(data.decode(), parse_int=float)


def readable(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def check_members(task: TaskFields, value: Any, ttl: str, poll: str) -> None:
    """Checks that each field has the value of its member, or stands for its absence."""
    assert task.id == value["taskId"]
    assert 1 <= len(task.id) <= 1024
    assert task.status == value["status"]
    assert task.message == (None if value.get("statusMessage") is None else readable(value["statusMessage"]))
    assert task.created_at == readable(value.get("createdAt") or "")
    assert task.updated_at == readable(value.get("lastUpdatedAt") or "")
    for read, seen in ((task.ttl_ms, value.get(ttl)), (task.poll_ms, value.get(poll))):
        assert read == (None if seen is None else int(min(seen, 2**53 - 1)))
        assert read is None or read >= 0


def check_round_trips(task: TaskFields) -> None:
    assert tasks.read_task(tasks.legacy_task(task)) == task
    assert tasks.read_created(tasks.legacy_created(task), is_stateless=False) == task
    assert tasks.read_created(tasks.modern_created(task), is_stateless=True) == task


def check_detailed(one: Detailed, value: Any) -> None:
    assert one.task.status == "input_required" or not one.questions
    assert (one.result is not None) == (one.task.status == "completed")
    assert (one.error is not None) == (one.task.status == "failed")
    if one.task.status == "input_required":
        assert len(one.questions) == len(value["inputRequests"])
    for part, name in ((one.result, "result"), (one.error, "error")):
        assert part is None or parse(part) == value[name]
    questions = {question.key: embed(question.method, question.params) for question in one.questions}

    def write() -> bytes:
        return tasks.modern_detailed(one.task, questions=questions, result=one.result, error=one.error, is_result=True)

    written = outcome(write)
    if written is None:
        assert one.result is not None  # it has one of the members to be written twice
        return
    again = tasks.read_detailed(written)
    assert again.task == one.task
    assert [question.key for question in again.questions] == [question.key for question in one.questions]
    assert again.error == one.error
    assert tasks.related_id(again.result) is None


def test_one_input(data: bytes) -> None:
    legacy = outcome(lambda: tasks.read_task(data))
    detailed = outcome(lambda: tasks.read_detailed(data))
    handle = outcome(lambda: tasks.read_created(data, is_stateless=False))
    modern_handle = outcome(lambda: tasks.read_created(data, is_stateless=True))
    task_options = outcome(lambda: tasks.wanted(data))
    try:
        value = parse(data)
    except (ValueError, RecursionError):
        return  # not UTF-8 in a part that was not decoded
    if legacy is not None:
        check_members(legacy, value, "ttl", "pollInterval")
        check_round_trips(legacy)
    if detailed is not None:
        check_members(detailed.task, value, "ttlMs", "pollIntervalMs")
        check_round_trips(detailed.task)
        check_detailed(detailed, value)
    if handle is not None:
        assert value.get("content") is None
        check_members(handle, value["task"], "ttl", "pollInterval")
        check_round_trips(handle)
    if modern_handle is not None:
        assert value["resultType"] == "task"
        check_members(modern_handle, value, "ttlMs", "pollIntervalMs")
    if task_options is not None and data.startswith(b"{"):
        check_task_options(data, value, *task_options)


def check_task_options(data: bytes, value: Any, is_wanted: bool, ttl_ms: int | None) -> None:
    assert is_wanted == isinstance(value.get("task"), dict)
    if is_wanted:
        ttl = value["task"].get("ttl")
        assert ttl_ms == (None if ttl is None else int(min(ttl, 2**53 - 1)))
    assert ttl_ms is None or ttl_ms >= 0
    bare = tasks.without_task(data)
    assert bare is not None
    assert tasks.wanted(bare) == (False, None)
    assert tasks.without_task(tasks.augmented(data, ttl_ms)) == bare
