"""Every rule of the oracle, in every revision that has it: one conversation keeps it, and one breaks it."""

from __future__ import annotations

import json

import pytest
from each_row import each_row
from isthmus.core.oracle import RULES, Head, Oracle, Role, Said, Transport, Verb
from oracle_case import detailed, task
from oracle_cases import CASES, Case, found
from wire_scenes import CLIENT, SERVER, K, Wire

PAIRS = [(case, revision) for case in CASES for revision in RULES[case.rule].clauses]

BESIDES = {
    "session-revived": ("session-id-lost",),
    "session-end-status": ("session-id-lost",),
    "version-refused": ("version-header",),
    **dict.fromkeys(("mismatch-refused", "version-header"), ("mirrored-name", "mismatch-refused")),
    **dict.fromkeys(("mirrored-method", "mirrored-name", "mirrored-argument"), ("mismatch-refused",)),
}
"""Rules that cannot be broken alone: a client that finds its session over has sent a request in it, and a request that
a server must refuse is wrong already."""


WITH_A_STATUS = {"session-end-status": 404, "version-refused": 400, "mismatch-refused": 400}
"""The status by which a server keeps each rule, after its client has broken another."""


def named(value: object) -> str:
    return value.rule if isinstance(value, Case) else str(value)


@each_row(("case", "revision"), PAIRS)
def test_a_rule_is_kept_and_broken(case: Case, revision: str) -> None:
    """The conversation that keeps the rule has no violation; the other has this one, and no other."""
    wire, none = found(case, revision, is_broken=False)
    assert none == [], list(wire.seen)
    wire, violations = found(case, revision, is_broken=True)
    rules = {violation.rule for violation in violations}
    assert case.rule in rules
    assert rules <= {case.rule, *BESIDES.get(case.rule, ()), "unanswered"}, violations
    for violation in violations:
        rule = RULES[violation.rule]
        assert violation.who in rule.who
        spoken = violation.clause.partition(" ")[0]
        assert spoken == revision or case.rule == "version-unsupported"  # where the answer's revision holds
        assert violation.severity is rule.severity(spoken)
        assert violation.clause == f"{spoken} {rule.clauses[spoken]}"
        assert violation.observations
        assert all(0 <= number < len(wire.seen) for number in violation.observations)


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} == set(RULES)


# --- Consequences of a broken rule ------------------------------------------------------------------------------------


def breaks(wire: Wire, who: object) -> set[str]:
    """Returns the rules that one side has broken so far."""
    oracle = Oracle(None, wire.transport)
    return {violation.rule for each in wire.seen for violation in oracle.receive(each) if violation.who is who}


@pytest.mark.parametrize("named", [None, 20251125, "", "\ud800", "2025 11 25", "v" * 65])
def test_a_version_that_no_header_can_carry_needs_no_header(named: object) -> None:
    """The answer to `initialize` names the version, and the client goes on without a header."""
    wire = Wire("2025-11-25", Transport.HTTP)
    wire.initialize()
    wire.answer_initialize(protocolVersion=named)
    wire.call(head={"revision": None})
    assert "version-header-missing" not in breaks(wire, CLIENT)


@pytest.mark.parametrize("is_stateless_only", [False, True])
def test_a_request_without_an_era_is_answered_in_either(is_stateless_only: bool) -> None:
    """A pipe has both eras before any handshake. If only one is in use, the response belongs to that."""
    wire = Wire("2026-07-28")
    wire.reply(wire.call())
    wire.send(CLIENT, {"jsonrpc": "2.0", "id": 7, "method": "ping"})
    wire.send(SERVER, {"jsonrpc": "2.0", "id": 7, "result": {}})
    oracle = Oracle("2026-07-28" if is_stateless_only else None, Transport.PIPE)
    violations = [violation for each in wire.seen for violation in oracle.receive(each) if violation.who is SERVER]
    assert ("result-kind-missing" in {violation.rule for violation in violations}) is is_stateless_only


def test_a_malformed_level_is_not_below_the_requested_one() -> None:
    """A malformed level breaks another rule."""
    wire = Wire("2026-07-28")
    wire.call(meta=wire.meta(**{K + "logLevel": "error"}))
    wire.tell("notifications/message", level=None, data="x")
    assert "log-unasked" not in breaks(wire, SERVER)
    wire.tell("notifications/message", level="info", data="x")
    assert "log-unasked" in breaks(wire, SERVER)


@pytest.mark.parametrize("case", [case for case in CASES if case.rule in WITH_A_STATUS], ids=named)
def test_a_refusal_by_status_breaks_no_rule(case: Case) -> None:
    """The last status of the conversation that breaks the rule is corrected."""
    for revision in RULES[case.rule].clauses:
        wire = Wire(revision, case.transport)
        case.play(wire, True)
        last = max(index for index, seen in enumerate(wire.seen) if isinstance(seen, Head))
        head = wire.seen[last]
        oracle = Oracle(None if revision == "2026-07-28" else revision, case.transport)
        status = WITH_A_STATUS[case.rule]
        seen = [*wire.seen[:last], Head(head.channel, status, "application/json")]
        assert [each for one in seen for each in oracle.receive(one) if each.who is Role.SERVER] == []


def test_a_request_that_may_be_of_a_session_may_be_answered_as_one() -> None:
    """Source: 2026-07-28 basic/transports/streamable-http, "Protocol Version Header"."""
    wire = Wire("2026-07-28", Transport.HTTP)
    for head in (None, "2025-11-25"):
        wire.head(wire.channels[wire.call(head={"revision": head})], 400, "application/json", "S1")
    oracle = Oracle("2026-07-28", Transport.HTTP)
    assert [each for seen in wire.seen for each in oracle.receive(seen) if each.who is Role.SERVER] == []


def test_a_refusal_may_name_another_session() -> None:
    wire = Wire("2025-11-25", Transport.HTTP)
    wire.handshake()
    wire.head(wire.channels[wire.call(head={"session": None})], 400, "application/json", "S2")
    oracle = Oracle(None, Transport.HTTP)
    assert [each for seen in wire.seen for each in oracle.receive(seen) if each.who is Role.SERVER] == []


def test_messages_on_their_way_when_a_session_ends_break_no_rule() -> None:
    """Only a 404 obliges a client to begin anew. Source: 2025-11-25 basic/transports, "Session Management"."""
    wire = Wire("2025-11-25", Transport.HTTP)
    wire.handshake()
    wire.head(wire.open(Verb.DELETE), 200, "")
    for id in (1, 2):
        wire.call(id)
        wire.head(wire.channels[id], 404, "")
        wire.end(wire.channels[id])
    oracle = Oracle(None, Transport.HTTP)
    broken = [each.rule for seen in wire.seen for each in oracle.receive(seen) if each.who is Role.CLIENT]
    assert broken == ["session-id-lost"], "only the second call follows a 404"


# --- Unseen requests --------------------------------------------------------------------------------------------------


def violations_of(wire: Wire, revision: str | None = None) -> list[tuple[Role, str]]:
    """Returns all violations, for an oracle that knows the revision."""
    oracle = Oracle(revision, wire.transport)
    return [(violation.who, violation.rule) for each in wire.seen for violation in oracle.receive(each)]


V5 = "2026-07-28"


@pytest.mark.parametrize(
    ("question", "rules"),
    [
        ({"method": "roots/list"}, []),
        ({"method": "elicitation/create", "params": {"mode": "none"}}, []),
        ({"method": "ping"}, ["input-request-kind"]),
        (7, ["input-request-kind"]),
    ],
)
def test_server_requests_of_an_unseen_request_need_no_capability(question: object, rules: list[str]) -> None:
    """The client's capabilities are unknown; the allowed methods are the same for all."""
    wire = Wire(V5)
    meta = {K + "serverInfo": {"name": "s", "version": "1"}}
    result = {"resultType": "input_required", "inputRequests": {"q": question}, "_meta": meta}
    wire.send(SERVER, {"jsonrpc": "2.0", "id": 9, "result": result})
    assert violations_of(wire, V5) == [(SERVER, rule) for rule in ["response-unknown", *rules]]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_result_about_a_task_is_no_task(method: str) -> None:
    """Only the result that creates a task has the type "task"; results about it are complete. Source: 2026-07-28 tasks
    extension."""
    wire = Wire(V5)
    wire.reply(wire.call(), resultType="task", **detailed("a"))
    responses = {"inputResponses": {}} if method == "tasks/update" else {}
    wire.reply(wire.request(method, taskId="a", **responses), **detailed("a"))
    assert violations_of(wire) == []
    wire.reply(wire.request(method, taskId="a", **responses), resultType="task", **detailed("a"))
    assert (SERVER, "task-shape") in violations_of(wire)
    assert (SERVER, "task-unasked") not in violations_of(wire)


def test_a_task_notification_may_precede_the_response() -> None:
    """The notification is no response, and the task begins once, with the response."""
    wire = Wire("2025-11-25")
    wire.handshake()
    id = wire.call(task={})
    wire.tell("notifications/tasks/status", **task("a"))
    wire.reply(id, task=task("a"))
    assert violations_of(wire) == []
    wire.reply(wire.call(task={}), task=task("a"))
    assert violations_of(wire) == [(SERVER, "task-begins")]


def test_a_head_alone_is_judged_by_the_revision_in_use() -> None:
    """A GET names no revision; the only revision in use applies, if it is known."""
    wire = Wire(V5, Transport.HTTP)
    channel = wire.open(Verb.GET, revision=None)
    wire.raw(SERVER, b"{", channel)
    for revision, clause in ((V5, V5), ("2025-11-25", "2025-11-25"), (None, "2025-03-26")):
        oracle = Oracle(revision, Transport.HTTP)
        found = [violation for each in wire.seen for violation in oracle.receive(each)]
        clauses = {violation.clause.partition(" ")[0] for violation in found if violation.rule == "not-json"}
        assert clauses == {clause}


@pytest.mark.parametrize("is_answered", [False, True])
def test_the_request_of_a_refused_post_has_one_response_at_most(is_answered: bool) -> None:
    """HTTP+SSE: the response comes on the event stream, and may precede the refusal."""
    wire = Wire("2024-11-05", Transport.EVENTS)
    wire.handshake()
    channel = wire.open()
    wire.send(CLIENT, {"jsonrpc": "2.0", "id": 7, "method": "ping"}, channel)
    if is_answered:
        wire.send(SERVER, {"jsonrpc": "2.0", "id": 7, "result": {}}, wire.stream)
    wire.head(channel, 400, "")
    wire.end(channel)
    oracle = Oracle("2024-11-05", Transport.EVENTS)
    assert [violation for each in wire.seen for violation in oracle.receive(each)] + oracle.finish() == []
    again = Said(wire.stream or 0, SERVER, json.dumps({"jsonrpc": "2.0", "id": 7, "result": {}}).encode())
    assert [violation.rule for violation in oracle.receive(again)] == (["response-twice"] if is_answered else [])
