"""The oracle's rules of results, tasks and rounds of server requests, member by member."""

from __future__ import annotations

from typing import Any

import pytest
from each_row import each_row
from isthmus.core.oracle import Oracle
from oracle_case import breaks, detailed, task
from wire_scenes import K, Wire

V4, V5 = "2025-11-25", "2026-07-28"

# --- Stateless results ------------------------------------------------------------------------------------------------

LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")


@pytest.mark.parametrize(
    ("ttl", "scope", "is_right"),
    [
        (0, "private", True),
        (0.5, "public", True),
        (60_000, "private", True),
        (-1, "private", False),
        (True, "private", False),
        ("5", "private", False),
        (..., "private", False),
        (0, "shared", False),
        (0, None, False),
        (0, ..., False),
    ],
    ids=str,
)
def test_cacheable_results_have_cache_hints(ttl: Any, scope: Any, is_right: bool) -> None:
    """Cacheable results need the hints, and no others do. Source: 2026-07-28 server/utilities/caching."""
    for method in (*LISTS, "server/discover", "tools/call", "prompts/get", "completion/complete"):
        wire = Wire(V5)
        given = {"supportedVersions": [V5], "capabilities": {}} if method == "server/discover" else {}
        wire.reply(wire.request(method), ttlMs=ttl, cacheScope=scope, **given)
        is_cacheable = method in (*LISTS, "server/discover")
        assert breaks(wire) == ([] if is_right or not is_cacheable else ["cache-hints"]), method


@pytest.mark.parametrize(
    ("kind", "able", "broken"),
    [
        ("complete", {}, []),
        ("odd", {}, ["result-kind-unknown"]),
        (7, {}, ["result-kind-unknown"]),
        ("odd", {"extensions": {}}, ["result-kind-unknown"]),
        ("odd", {"extensions": {"own/one": {}}}, []),
        ("odd", {"extensions": ["own/one"]}, ["result-kind-unknown"]),
        (..., {}, ["result-kind-missing"]),
        (None, {}, ["result-kind-missing"]),
    ],
    ids=str,
)
def test_a_result_has_a_type_that_its_client_knows(kind: Any, able: dict[str, Any], broken: list[str]) -> None:
    wire = Wire(V5)
    wire.reply(wire.call(meta=wire.meta(able)), resultType=kind)
    assert breaks(wire) == broken


@pytest.mark.parametrize(
    ("name", "value", "broken"),
    [
        ("protocolVersion", ..., ["meta-missing"]),
        ("clientCapabilities", ..., ["meta-missing"]),
        ("clientCapabilities", [], ["meta-missing"]),
        ("clientInfo", ..., ["client-info"]),
        ("clientInfo", "c", ["client-info"]),
        ("logLevel", "info", []),
        ("related-task", {}, []),
        ("subscriptionId", 1, []),
        ("thing", 1, ["meta-reserved"]),
    ],
    ids=str,
)
def test_a_request_has_its_envelope(name: str, value: Any, broken: list[str]) -> None:
    wire = Wire(V5)
    wire.call(meta=wire.meta(**{K + name: value}))
    oracle = Oracle(V5, wire.transport)
    assert [violation.rule for each in wire.seen for violation in oracle.receive(each)] == broken


# --- Tasks ------------------------------------------------------------------------------------------------------------


@each_row("revision", [V4, V5])
@each_row(
    ("changed", "is_right"),
    [
        ({}, True),
        ({"createdAt": ...}, False),
        ({"lastUpdatedAt": 5}, False),
        ({"taskId": 7}, False),
        ({"status": "odd"}, False),
        ({"status": ...}, False),
        ({"ttl": 0}, True),
        ({"ttl": 1.5}, True),
        ({"ttl": None}, True),
        ({"ttl": -1}, False),
        ({"ttl": True}, False),
        ({"ttl": "5"}, False),
        ({"ttl": ...}, False),
    ],
)
def test_a_task_has_all_its_members(revision: str, changed: dict[str, Any], is_right: bool) -> None:
    wire = Wire(revision)
    wire.handshake()
    before = len(wire.seen)
    if wire.is_stateless:
        changed = {"ttlMs" if name == "ttl" else name: value for name, value in changed.items()}
        wire.reply(wire.request("tasks/get", taskId="a"), **{**detailed("a"), **changed})
    else:
        wire.reply(wire.request("tasks/get", taskId="a"), **{**task("a"), **changed})
    assert breaks(wire, before) == ([] if is_right else ["task-shape"])


@pytest.mark.parametrize("was", ["working", "input_required", "completed", "failed", "cancelled"])
def test_a_task_that_is_over_stays_so(was: str) -> None:
    for now in ("working", "input_required", "completed", "failed", "cancelled"):
        wire = Wire(V4)
        wire.handshake()
        before = len(wire.seen)
        for status in (was, now):
            wire.tell("notifications/tasks/status", **task("a", status))
        is_right = was == now or was in ("working", "input_required")
        assert breaks(wire, before) == ([] if is_right else ["task-status"]), now


@pytest.mark.parametrize(("waited_s", "is_early"), [(1.9, True), (2.0, False), (2.1, False)])
@pytest.mark.parametrize("revision", [V4, V5])
def test_a_task_is_polled_after_its_interval(revision: str, waited_s: float, is_early: bool) -> None:
    wire = Wire(revision)
    wire.handshake()
    before = len(wire.seen)
    fields = detailed("a", pollIntervalMs=2000) if wire.is_stateless else task("a", pollInterval=2000)
    wire.reply(wire.request("tasks/get", taskId="a", at=10.0), at=10.5, **fields)
    wire.request("tasks/get", taskId="b", at=10.5)
    wire.request("tasks/get", taskId="a", at=10.5 + waited_s)
    assert breaks(wire, before) == (["task-polled-early"] if is_early else [])


# --- Rounds -----------------------------------------------------------------------------------------------------------

SERVER_REQUESTS = {"q": {"method": "roots/list"}, "r": {"method": "roots/list"}}


def input_required(state: str | None, id: Any = None) -> tuple[Wire, Any]:
    """A call whose response holds server requests, and a state if one is given."""
    wire = Wire(V5)
    id = wire.call(id, arguments={"a": 1})
    kept = {} if state is None else {"requestState": state}
    wire.reply(id, resultType="input_required", inputRequests=SERVER_REQUESTS, **kept)
    return wire, id


def retried(state: str | None, id: Any = None, **retry: Any) -> list[str]:
    wire, first = input_required(state)
    before = len(wire.seen)
    wire.call(first if id == "same" else id, **{"arguments": {"a": 1}, **retry})
    return breaks(wire, before)


UNDECLARED = ["input-request-undeclared"]
ANSWERS = {"q": {"roots": []}, "r": {"roots": []}}


@pytest.mark.parametrize(
    ("state", "retry", "broken"),
    [
        ("s", {"requestState": "s", "inputResponses": ANSWERS}, []),
        ("s", {"requestState": "s", "inputResponses": {**ANSWERS, "more": {}}}, []),
        ("s", {"requestState": "s", "inputResponses": {"q": {}}}, ["retry-incomplete"]),
        ("s", {"requestState": "s", "inputResponses": []}, ["retry-incomplete"]),
        ("s", {"requestState": "s"}, ["retry-incomplete"]),
        ("s", {"requestState": "t", "inputResponses": ANSWERS}, ["state-changed"]),
        ("s", {"requestState": 7, "inputResponses": ANSWERS}, ["state-changed"]),
        ("s", {"inputResponses": ANSWERS}, ["state-changed"]),
        ("s", {"requestState": "s", "inputResponses": ANSWERS, "arguments": {"a": 2}}, ["state-elsewhere"]),
        ("s", {"requestState": "s", "inputResponses": ANSWERS, "name": "u"}, ["state-elsewhere"]),
        ("s", {"requestState": "t", "inputResponses": ANSWERS, "arguments": {"a": 2}}, []),
        ("s", {"requestState": "s", "inputResponses": ANSWERS, "id": "same"}, ["retry-id"]),
        ("s", {}, []),
        (None, {"inputResponses": ANSWERS}, []),
        (None, {"inputResponses": {"r": {}}}, ["retry-incomplete"]),
        (None, {"inputResponses": ANSWERS, "id": "same"}, ["retry-id"]),
        (None, {"inputResponses": ANSWERS, "arguments": {"a": 2}}, []),
        (None, {"requestState": "s", "inputResponses": ANSWERS}, []),
    ],
    ids=str,
)
def test_a_retry_is_the_same_request_with_all_answers(
    state: str | None, retry: dict[str, Any], broken: list[str]
) -> None:
    """The state is unchanged, under another id. An unknown state may be of a connection before this one. Source:
    2026-07-28 basic/patterns/mrtr."""
    assert retried(state, **retry) == broken


@pytest.mark.parametrize(
    ("question", "able", "broken"),
    [
        ({"method": "roots/list"}, {"roots": {}}, []),
        ({"method": "roots/list"}, {}, UNDECLARED),
        ({"method": "sampling/createMessage", "params": {}}, {"sampling": {}}, []),
        ({"method": "sampling/createMessage", "params": {}}, {"roots": {}}, UNDECLARED),
        ({"method": "elicitation/create"}, {"elicitation": {}}, []),
        ({"method": "elicitation/create", "params": {}}, {"elicitation": {"form": {}}}, []),
        ({"method": "elicitation/create", "params": []}, {"elicitation": {"url": {}}}, UNDECLARED),
        ({"method": "elicitation/create", "params": {"mode": "url"}}, {"elicitation": {"url": {}}}, []),
        (
            {"method": "elicitation/create", "params": {"mode": "url"}},
            {"elicitation": {}},
            UNDECLARED,
        ),
        ({"method": "elicitation/create"}, {"elicitation": True}, UNDECLARED),
        ({"method": "elicitation/create"}, {}, UNDECLARED),
        ({"method": "ping"}, {}, ["input-request-kind"]),
        ({}, {}, ["input-request-kind"]),
    ],
    ids=str,
)
def test_a_server_request_needs_its_capability(
    question: dict[str, Any], able: dict[str, Any], broken: list[str]
) -> None:
    wire = Wire(V5)
    wire.reply(wire.call(meta=wire.meta(able)), resultType="input_required", inputRequests={"q": question})
    assert breaks(wire) == broken
