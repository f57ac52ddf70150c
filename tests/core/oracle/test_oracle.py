"""Every rule of the oracle, in every revision that has it: one conversation keeps it, and one breaks it."""

from __future__ import annotations

import json

import pytest
from isthmus.core.oracle import RULES, Head, Oracle, Role, Said, Transport, Verb
from oracle_cases import CASES, Case, found
from oracle_casing import detailed, task
from wire_scenes import CLIENT, SERVER, K, Wire

PAIRS = [(case, revision) for case in CASES for revision in RULES[case.rule].clauses]

BESIDES = {
    "session-revived": ("session-id-lost",),
    "session-end-status": ("session-id-lost",),
    "version-refused": ("version-header",),
    **dict.fromkeys(("mismatch-refused", "version-header"), ("mirrored-name", "mismatch-refused")),
    **dict.fromkeys(("mirrored-method", "mirrored-name", "mirrored-argument"), ("mismatch-refused",)),
}
"""What cannot be broken alone: whoever finds a session that is over has asked for it, and what a server must refuse is
wrong already."""


WITH_A_STATUS = {"session-end-status": 404, "version-refused": 400, "mismatch-refused": 400}
"""Rules that a server keeps by what it answers, after its client has broken another."""


def named(value: object) -> str:
    return value.rule if isinstance(value, Case) else str(value)


@pytest.mark.parametrize(("case", "revision"), PAIRS, ids=named)
def test_a_rule_is_kept_and_broken(case: Case, revision: str) -> None:
    """The conversation that keeps it has no violation; the other has this one, and no other."""
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


# --- What only its peer could have kept -------------------------------------------------------------------------------


def breaks(wire: Wire, who: object) -> set[str]:
    """The rules that one side breaks, until now."""
    oracle = Oracle(None, wire.transport)
    return {violation.rule for each in wire.seen for violation in oracle.receive(each) if violation.who is who}


@pytest.mark.parametrize("named", [None, 20251125, "", "\ud800", "2025 11 25", "v" * 65])
def test_a_version_that_no_header_can_name_is_missed_in_none(named: object) -> None:
    """The answer to `initialize` names it; the client goes on without a header."""
    wire = Wire("2025-11-25", Transport.HTTP)
    wire.hello()
    wire.welcome(protocolVersion=named)
    wire.call(head={"revision": None})
    assert "version-header-missing" not in breaks(wire, CLIENT)


@pytest.mark.parametrize("is_stateless_only", [False, True])
def test_a_request_that_says_no_era_is_answered_in_either(is_stateless_only: bool) -> None:
    """On a pipe where both are spoken, and before any handshake. Where there is only one, it is answered in that."""
    wire = Wire("2026-07-28")
    wire.reply(wire.call())
    wire.say(CLIENT, {"jsonrpc": "2.0", "id": 7, "method": "ping"})
    wire.say(SERVER, {"jsonrpc": "2.0", "id": 7, "result": {}})
    oracle = Oracle("2026-07-28" if is_stateless_only else None, Transport.PIPE)
    told = [violation for each in wire.seen for violation in oracle.receive(each) if violation.who is SERVER]
    assert ("result-kind-missing" in {violation.rule for violation in told}) is is_stateless_only


def test_a_level_that_is_none_is_below_none() -> None:
    """A log message was asked for, and says no level: there is a rule for that, and it is another."""
    wire = Wire("2026-07-28")
    wire.call(meta=wire.meta(**{K + "logLevel": "error"}))
    wire.tell("notifications/message", level=None, data="x")
    assert "log-unasked" not in breaks(wire, SERVER)
    wire.tell("notifications/message", level="info", data="x")
    assert "log-unasked" in breaks(wire, SERVER)


@pytest.mark.parametrize("case", [case for case in CASES if case.rule in WITH_A_STATUS], ids=named)
def test_what_is_refused_by_its_status_is_not_accepted(case: Case) -> None:
    """The conversation that breaks it, but for the last status."""
    for revision in RULES[case.rule].clauses:
        wire = Wire(revision, case.transport)
        case.play(wire, True)
        last = max(index for index, seen in enumerate(wire.seen) if isinstance(seen, Head))
        head = wire.seen[last]
        oracle = Oracle(None if revision == "2026-07-28" else revision, case.transport)
        status = WITH_A_STATUS[case.rule]
        seen = [*wire.seen[:last], Head(head.channel, status, "application/json")]
        assert [each for one in seen for each in oracle.receive(one) if each.who is Role.SERVER] == []


def test_a_request_that_passes_for_one_of_a_session_may_be_answered_so() -> None:
    """2026-07-28 basic/transports/streamable-http, "Protocol Version Header"."""
    wire = Wire("2026-07-28", Transport.HTTP)
    for head in (None, "2025-11-25"):
        wire.head(wire.channels[wire.call(head={"revision": head})], 400, "application/json", "S1")
    oracle = Oracle("2026-07-28", Transport.HTTP)
    assert [each for seen in wire.seen for each in oracle.receive(seen) if each.who is Role.SERVER] == []


def test_a_refusal_may_name_another_session() -> None:
    wire = Wire("2025-11-25", Transport.HTTP)
    wire.greet()
    wire.head(wire.channels[wire.call(head={"session": None})], 400, "application/json", "S2")
    oracle = Oracle(None, Transport.HTTP)
    assert [each for seen in wire.seen for each in oracle.receive(seen) if each.who is Role.SERVER] == []


def test_what_is_on_its_way_when_a_client_ends_its_session_breaks_nothing() -> None:
    """Only a 404 tells a client to begin anew (2025-11-25 basic/transports, "Session Management")."""
    wire = Wire("2025-11-25", Transport.HTTP)
    wire.greet()
    wire.head(wire.open(Verb.DELETE), 200, "")
    for id in (1, 2):
        wire.call(id)
        wire.head(wire.channels[id], 404, "")
        wire.end(wire.channels[id])
    oracle = Oracle(None, Transport.HTTP)
    broken = [each.rule for seen in wire.seen for each in oracle.receive(seen) if each.who is Role.CLIENT]
    assert broken == ["session-id-lost"], "the second time it had been told"


# --- What is on no stream that is known -------------------------------------------------------------------------------


def told(wire: Wire, revision: str | None = None) -> list[tuple[Role, str]]:
    """All that is broken, for an oracle that is told what is spoken."""
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
def test_what_a_server_may_ask_is_not_judged_where_its_request_was_not_seen(question: object, rules: list[str]) -> None:
    """Nobody knows what its client has declared; the kinds of questions are the same for all."""
    wire = Wire(V5)
    meta = {K + "serverInfo": {"name": "s", "version": "1"}}
    result = {"resultType": "input_required", "inputRequests": {"q": question}, "_meta": meta}
    wire.say(SERVER, {"jsonrpc": "2.0", "id": 9, "result": result})
    assert told(wire, V5) == [(SERVER, rule) for rule in ["response-unknown", *rules]]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_what_is_said_of_a_task_is_no_task(method: str) -> None:
    """2026-07-28 tasks extension: only what a call becomes has the type task; what is said of one is complete."""
    wire = Wire(V5)
    wire.reply(wire.call(), resultType="task", **detailed("a"))
    responses = {"inputResponses": {}} if method == "tasks/update" else {}
    wire.reply(wire.request(method, taskId="a", **responses), **detailed("a"))
    assert told(wire) == []
    wire.reply(wire.request(method, taskId="a", **responses), resultType="task", **detailed("a"))
    assert (SERVER, "task-shape") in told(wire)
    assert (SERVER, "task-unasked") not in told(wire)


def test_a_task_may_be_told_of_before_its_request_is_answered() -> None:
    """What told of it was no answer: it begins once, with the answer."""
    wire = Wire("2025-11-25")
    wire.greet()
    id = wire.call(task={})
    wire.tell("notifications/tasks/status", **task("a"))
    wire.reply(id, task=task("a"))
    assert told(wire) == []
    wire.reply(wire.call(task={}), task=task("a"))
    assert told(wire) == [(SERVER, "task-begins")]


def test_without_a_handshake_a_head_alone_is_judged_by_what_is_spoken() -> None:
    """A GET says no revision; where only one without sessions is spoken, it is that one's."""
    wire = Wire(V5, Transport.HTTP)
    channel = wire.open(Verb.GET, revision=None)
    wire.raw(SERVER, b"{", channel)
    for revision, clause in ((V5, V5), ("2025-11-25", "2025-11-25"), (None, "2025-03-26")):
        oracle = Oracle(revision, Transport.HTTP)
        found = [violation for each in wire.seen for violation in oracle.receive(each)]
        clauses = {violation.clause.partition(" ")[0] for violation in found if violation.rule == "not-json"}
        assert clauses == {clause}


@pytest.mark.parametrize("is_answered", [False, True])
def test_what_a_refused_post_asked_is_answered_once_if_at_all(is_answered: bool) -> None:
    """HTTP+SSE: its answer comes on the event stream, and may have come before the refusal."""
    wire = Wire("2024-11-05", Transport.EVENTS)
    wire.greet()
    channel = wire.open()
    wire.say(CLIENT, {"jsonrpc": "2.0", "id": 7, "method": "ping"}, channel)
    if is_answered:
        wire.say(SERVER, {"jsonrpc": "2.0", "id": 7, "result": {}}, wire.stream)
    wire.head(channel, 400, "")
    wire.end(channel)
    oracle = Oracle("2024-11-05", Transport.EVENTS)
    assert [violation for each in wire.seen for violation in oracle.receive(each)] + oracle.finish() == []
    again = Said(wire.stream or 0, SERVER, json.dumps({"jsonrpc": "2.0", "id": 7, "result": {}}).encode())
    assert [violation.rule for violation in oracle.receive(again)] == (["response-twice"] if is_answered else [])
