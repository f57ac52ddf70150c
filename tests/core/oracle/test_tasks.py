"""The oracle's rules of tasks: every status, every verb, and the members of a task."""

from __future__ import annotations

from typing import Any

import pytest
from each_row import each_row
from isthmus.core.oracle import Oracle
from oracle_case import breaks, detailed, task
from wire_scenes import CLIENT, SERVER, TASKS, K, Wire

V4, V5 = "2025-11-25", "2026-07-28"
STATUSES = ("working", "input_required", "completed", "failed", "cancelled")
OVER = STATUSES[2:]
DETAIL: dict[str, dict[str, Any]] = {
    "input_required": {"inputRequests": {}},
    "completed": {"result": {}},
    "failed": {"error": {}},
}
RELATED = K + "related-task"


def begun(revision: str, id: str = "a", **more: Any) -> tuple[Wire, Any]:
    """A call that has become a task."""
    wire = Wire(revision)
    wire.handshake()
    if revision == V4:
        call = wire.call(task={})
        wire.reply(call, task=task(id, **more))
    else:
        call = wire.call()
        wire.reply(call, resultType="task", **detailed(id, **more))
    return wire, call


def report(wire: Wire, id: str, status: str, how: str, **more: Any) -> None:
    """The server reports the status of a task, in one of the possible forms."""
    shown = (
        task(id, status, **more) if wire.revision == V4 else detailed(id, status, **{**DETAIL.get(status, {}), **more})
    )
    if how == "get":
        wire.reply(wire.request("tasks/get", taskId=id), **shown)
    elif how == "list":
        wire.reply(wire.request("tasks/list"), tasks=[shown])
    elif wire.revision == V4:
        wire.tell("notifications/tasks/status", **shown)
    else:
        listen = wire.request("subscriptions/listen", notifications={"taskIds": [id]})
        meta = {K + "subscriptionId": listen}
        wire.tell("notifications/subscriptions/acknowledged", notifications={"taskIds": [id]}, _meta=meta)
        wire.tell("notifications/tasks", **shown, _meta=meta)


CHANNELS = [(V4, "get"), (V4, "list"), (V4, "told"), (V5, "get"), (V5, "told")]


@each_row(("revision", "how"), CHANNELS)
@each_row("first", STATUSES)
@each_row("second", STATUSES)
def test_a_task_that_is_over_stays_as_it_is(revision: str, how: str, first: str, second: str) -> None:
    """A task that is not over may get any status."""
    wire, _ = begun(revision)
    report(wire, "a", first, how)
    before = len(wire.seen)
    report(wire, "a", second, how)
    assert breaks(wire, before) == (["task-status"] if first in OVER and second != first else [])


@pytest.mark.parametrize("status", STATUSES)
def test_a_task_begins_as_working(status: str) -> None:
    """A task of the extension may be over at once. Source: 2025-11-25."""
    wire, _ = begun(V4, status=status)
    assert breaks(wire) == ([] if status == "working" else ["task-begins"])
    wire, _ = begun(V5, status=status)
    assert breaks(wire) == []


@each_row(("revision", "how"), CHANNELS)
@each_row(
    ("name", "value"),
    [
        ("taskId", 7),
        ("taskId", ...),
        ("status", "odd"),
        ("status", ...),
        ("createdAt", 7),
        ("createdAt", ...),
        ("lastUpdatedAt", None),
        ("lastUpdatedAt", ...),
        ("ttl", -1),
        ("ttl", "1"),
        ("ttl", True),
        ("ttl", ...),
    ],
)
def test_a_task_has_all_its_members(revision: str, how: str, name: str, value: Any) -> None:
    wire, _ = begun(revision)
    name = "ttlMs" if name == "ttl" and revision == V5 else name
    shown = task("a", **{name: value}) if revision == V4 else detailed("a", **{name: value})
    before = len(wire.seen)
    if how == "get":
        wire.reply(wire.request("tasks/get", taskId="a"), **shown)
    elif how == "list":
        wire.reply(wire.request("tasks/list"), tasks=[task("a"), shown])
    else:
        wire.tell("notifications/tasks/status" if revision == V4 else "notifications/tasks", **shown)
    found = [rule for rule in breaks(wire, before) if rule.startswith("task")]
    assert found == ["task-shape"]


@pytest.mark.parametrize("value", [None, 0, 1, 2.5])
def test_a_time_to_live_is_a_duration_or_none(value: Any) -> None:
    for revision in (V4, V5):
        wire, _ = begun(revision, **{"ttl" if revision == V4 else "ttlMs": value})
        assert breaks(wire) == []


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("how", ["get", "told"])
def test_a_task_has_the_members_of_its_status(status: str, how: str) -> None:
    """The extension: server requests, a result or an error, each an object."""
    for name in ("inputRequests", "result", "error"):
        for value in ({}, 7, ...):
            wire, _ = begun(V5)
            before = len(wire.seen)
            report(wire, "a", status, how, **{name: value})
            is_wrong = name in DETAIL.get(status, {}) and value != {}
            assert breaks(wire, before) == (["task-detail"] if is_wrong else []), (name, value)


@pytest.mark.parametrize("status", STATUSES)
def test_a_cancelled_task_is_cancelled(status: str) -> None:
    """A task that was over before is refused instead. Source: 2025-11-25."""
    for was in STATUSES:
        wire, _ = begun(V4)
        report(wire, "a", was, "get")
        before = len(wire.seen)
        wire.reply(wire.request("tasks/cancel", taskId="a"), **task("a", status))
        found = [rule for rule in breaks(wire, before) if rule == "task-cancelled"]
        assert found == (["task-cancelled"] if was in OVER or status != "cancelled" else []), was
        wire, _ = begun(V4)
        report(wire, "a", was, "get")
        before = len(wire.seen)
        wire.answer(wire.request("tasks/cancel", taskId="a"), error={"code": -32602, "message": ""})
        assert breaks(wire, before) == []


@pytest.mark.parametrize("related", [..., 7, {}, {"taskId": "b"}, {"taskId": 7}, {"taskId": "a"}])
def test_an_outcome_names_its_task(related: Any) -> None:
    wire, _ = begun(V4)
    before = len(wire.seen)
    wire.reply(wire.request("tasks/result", taskId="a"), content=[], _meta={} if related is ... else {RELATED: related})
    assert breaks(wire, before) == ([] if related == {"taskId": "a"} else ["related-task"])
    before = len(wire.seen)
    wire.answer(wire.request("tasks/result", taskId="a"), error={"code": -32603, "message": ""})
    assert breaks(wire, before) == []


@pytest.mark.parametrize("method", ["tasks/get", "tasks/list", "tasks/cancel", "tasks/result", "tools/call"])
def test_a_request_that_names_its_task_needs_no_related_task(method: str) -> None:
    """The rule holds for the request and its response, but not for `tasks/result` and calls."""
    related = {RELATED: {"taskId": "a"}}
    is_needless = method in ("tasks/get", "tasks/list", "tasks/cancel")
    wire, _ = begun(V4)
    before = len(wire.seen)
    id = wire.request(method, meta=related, taskId="a", name="t")
    assert breaks(wire, before) == (["related-task-needless"] if is_needless else [])
    before = len(wire.seen)
    shown: dict[str, Any] = {"tasks": []} if method == "tasks/list" else task("a", "cancelled")
    wire.reply(id, **shown, _meta=related)
    assert breaks(wire, before) == (["related-task-needless"] if is_needless else [])


@pytest.mark.parametrize(("revision", "name"), [(V4, "pollInterval"), (V5, "pollIntervalMs")])
@pytest.mark.parametrize(
    ("at", "is_early"), [(10.0, True), (11.999, True), (12.0, False), (13.0, False), (None, False)]
)
def test_a_task_is_polled_as_often_as_its_server_allows(
    revision: str, name: str, at: float | None, is_early: bool
) -> None:
    """The interval counts from its announcement; observations without times are not judged."""
    for interval in (2000, ..., "2000"):
        wire, _ = begun(revision)
        more = {} if interval is ... else {name: interval}
        shown = task("a", **more) if revision == V4 else detailed("a", **more)
        wire.reply(wire.request("tasks/get", taskId="a", at=9.0), at=10.0, **shown)
        before = len(wire.seen)
        wire.request("tasks/get", taskId="a", at=at)
        wire.request("tasks/get", taskId="b", at=at)
        expected = ["task-polled-early"] if is_early and interval == 2000 else []
        assert breaks(wire, before) == expected, interval


def test_a_key_belongs_to_one_server_request() -> None:
    """A key may be shown again with its request, and others beside it."""
    wire, _ = begun(V5)
    one, two = ({"method": "elicitation/create", "params": {"message": text}} for text in "ab")
    for questions in ({"k": one}, {"k": one, "l": two}, {"l": two}):
        before = len(wire.seen)
        report(wire, "a", "input_required", "get", inputRequests=questions)
        assert "task-key-reused" not in breaks(wire, before)
    before = len(wire.seen)
    report(wire, "a", "input_required", "get", inputRequests={"k": two, "l": two})
    assert breaks(wire, before).count("task-key-reused") == 1


@pytest.mark.parametrize(("is_asked", "is_made"), [(True, True), (True, False), (False, True), (False, False)])
def test_only_an_augmented_call_is_answered_with_a_task(is_asked: bool, is_made: bool) -> None:
    wire = Wire(V4)
    wire.handshake()
    id = wire.call(**({"task": {}} if is_asked else {}))
    before = len(wire.seen)
    wire.reply(id, **({"task": task("a")} if is_made else {"content": []}))
    expected = {(True, False): ["task-uncreated"], (False, True): ["task-unasked"]}
    assert breaks(wire, before) == expected.get((is_asked, is_made), [])


@pytest.mark.parametrize("extensions", [{TASKS: {}}, {TASKS: True}, {}, {"other": {}}, 7, ...])
@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
def test_a_task_is_created_for_clients_with_the_extension(method: str, extensions: Any) -> None:
    """Only tool calls become tasks."""
    wire = Wire(V5)
    able = {} if extensions is ... else {"extensions": extensions}
    id = wire.request(method, meta=wire.meta(able), name="t")
    before = len(wire.seen)
    wire.reply(id, resultType="task", **detailed("a"))
    is_declared = isinstance(extensions, dict) and TASKS in extensions
    found = [rule for rule in breaks(wire, before) if rule == "task-unasked"]
    assert found == ([] if is_declared and method == "tools/call" else ["task-unasked"])


def test_a_problem_that_is_an_echo_hides_no_other() -> None:
    """A malformed id may be echoed in a response; other problems beside it are judged."""
    wire = Wire("2025-03-26")
    wire.handshake()
    wire.send(CLIENT, {"jsonrpc": "2.0", "id": [], "method": "ping"})
    before = len(wire.seen)
    echo = {"jsonrpc": "2.0", "id": [], "error": {"code": -32600, "message": ""}}
    wire.send(SERVER, [echo, 7, echo])
    oracle = Oracle("2025-03-26", wire.transport)
    found = [oracle.receive(each) for each in wire.seen]
    assert [violation.rule for violation in found[before]] == ["not-jsonrpc"]
