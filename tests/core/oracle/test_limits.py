"""The oracle accepts any possible observation in bounded memory, and refuses impossible ones."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.oracle import (
    METHODS,
    PIPE_CHANNEL,
    RULES,
    AnyObservation,
    Ended,
    Head,
    Opened,
    Oracle,
    Role,
    Said,
    Transport,
    Verb,
    decode_observation,
)
from isthmus.core.oracle.seen import Memory
from oracle_cases import CASES, found
from wire_scenes import CLIENT, SERVER, K, Wire

SEEN: list[AnyObservation] = [
    Opened(1, Verb.POST, session="S", mirrored=(("Mcp-Method", "ping"),)),
    Head(1, 200, "application/json", "S"),
    Said(1, CLIENT, b"\xff", event_id="e", at=1.5),
    Ended(1, SERVER),
]


@pytest.mark.parametrize("observation", SEEN)
def test_an_observation_is_a_line_of_json(observation: AnyObservation) -> None:
    line = msgspec.json.encode(observation)
    assert b"\n" not in line
    assert decode_observation(line) == observation


@pytest.mark.parametrize("line", [b"", b"{}", b'{"type":"Said"}', b"\xff", b"[" * 20_000])
def test_a_malformed_observation_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="this is no observation"):
        decode_observation(line)


# --- Impossible observations ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transport", "observation", "reason"),
    [
        (Transport.PIPE, Opened(1, Verb.POST), "a pipe has no requests"),
        (Transport.PIPE, Head(PIPE_CHANNEL, 200), "a pipe has no responses"),
        (Transport.PIPE, Said(1, CLIENT, b"{}"), "channel 1 is not open"),
        (Transport.HTTP, Said(PIPE_CHANNEL, CLIENT, b"{}"), "channel 0 is not open"),
        (Transport.HTTP, Opened(7, Verb.POST), "channel 7 was opened before"),
        (Transport.HTTP, Opened(8, Verb.POST), "channel 8 was opened before"),
        (Transport.HTTP, Ended(8), "channel 8 is not open"),
    ],
)
def test_an_impossible_observation_is_refused_and_changes_nothing(
    transport: Transport, observation: AnyObservation, reason: str
) -> None:
    oracle = Oracle(None, transport)
    if transport is Transport.HTTP:
        for before in (Opened(7, Verb.GET), Opened(8, Verb.POST), Ended(8)):
            oracle.receive(before)
    count = oracle.count
    with pytest.raises(LocalProtocolError, match=reason):
        oracle.receive(observation)
    assert oracle.count == count


# --- Bounds -----------------------------------------------------------------------------------------------------------


def test_a_table_forgets_its_oldest_entry() -> None:
    table: Memory[int, str] = Memory(2)
    for number in (1, 2, 1):
        table[number] = str(number)
    assert not table.has_forgotten
    table[3] = "3"
    assert (list(table), table.has_forgotten) == ([2, 3], True)


def forgetful(wire: Wire) -> set[str]:
    """Returns the rules that a conversation breaks for an oracle that keeps two of each."""
    oracle = Oracle(None, wire.transport, remembered_max=2)
    return {violation.rule for each in wire.seen for violation in oracle.receive(each)}


def test_a_forgotten_request_is_not_reported_as_unknown() -> None:
    """The response, the progress and the cancellation of a forgotten request break no rule."""
    wire = Wire("2025-11-25")
    wire.handshake()
    for number in range(1, 5):
        wire.call(number, meta={"progressToken": number})
    wire.tell("notifications/progress", progressToken=1, progress=1)
    wire.notify("notifications/cancelled", requestId=1)
    wire.reply(1)
    assert forgetful(wire) == set()


def test_a_forgotten_stateless_request_is_not_reported_as_unknown() -> None:
    wire = Wire("2026-07-28")
    ids = [wire.call(arguments={"n": number}) for number in range(4)]
    for id in ids[1:]:
        wire.reply(id, resultType="input_required", requestState=f"s{id}")
    wire.call(arguments={"n": 1}, requestState=f"s{ids[1]}")
    wire.tell("notifications/tools/list_changed", _meta={K + "subscriptionId": "long ago"})
    assert forgetful(wire) == set()


def test_forgotten_elicitations_are_not_reported_as_unknown() -> None:
    wire = Wire("2025-11-25")
    wire.handshake()
    for number in range(4):
        wire.tell("elicitation/create", id=number, mode="url", elicitationId=str(number))
        wire.respond(number, action="accept")
    wire.tell("notifications/elicitation/complete", elicitationId="0")
    assert forgetful(wire) == set()


# --- Arbitrary input --------------------------------------------------------------------------------------------------

METAS = st.fixed_dictionaries(
    {},
    optional={
        "progressToken": st.sampled_from([1, "1", 1.0, 1.5, None]),
        K + "protocolVersion": st.sampled_from(["2026-07-28", "2025-11-25", 1]),
        K + "clientCapabilities": st.sampled_from([{}, {"elicitation": 1}, {"extensions": {K + "tasks": {}}}, 1]),
        K + "subscriptionId": st.sampled_from([1, "1", []]),
    },
)
INNER: dict[str, Any] = {
    "_meta": st.one_of(METAS, st.just(1)),
    "requestId": st.sampled_from([1, "1", []]),
    "progressToken": st.sampled_from([1, []]),
    "progress": st.sampled_from([1, "x"]),
    "protocolVersion": st.sampled_from(["2025-11-25", "2024-10-07", "1", "2026-07-28", 1]),
    "capabilities": st.sampled_from([{}, {"tools": 1}, 1]),
    "serverInfo": st.sampled_from([{}, 1]),
    "task": st.sampled_from([{}, {"taskId": "a"}, {"taskId": "a", "status": "working"}, 1]),
    "tasks": st.sampled_from([[], [1], 1]),
    "taskId": st.sampled_from(["a", 1]),
    "status": st.sampled_from(["working", "completed", 1]),
    "resultType": st.sampled_from(["complete", "input_required", "task", "odd", 1]),
    "inputRequests": st.sampled_from([{}, {"q": 1}, {"q": {"method": "elicitation/create", "params": 1}}, 1]),
    "requestState": st.sampled_from(["s", 1]),
    "inputResponses": st.sampled_from([{}, {"q": {}}, 1]),
    "notifications": st.sampled_from([{}, {"toolsListChanged": True, "taskIds": 1}, 1]),
    "tools": st.sampled_from([[{"name": "t", "inputSchema": {"properties": {"a": {"x-mcp-header": "A"}}}}], 1]),
    "name": st.sampled_from(["t", 1]),
    "arguments": st.sampled_from([{"a": 1}, {"a": []}, 1]),
    "uri": st.sampled_from(["u", 1]),
    "level": st.sampled_from(["info", 1]),
    "mode": st.sampled_from(["form", [], 1]),
}
OBJECTS = st.fixed_dictionaries({}, optional=INNER)
IDS = st.sampled_from([1, 2, "1", 1.0, None, []])
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0")},
    optional={
        "id": IDS,
        "method": st.sampled_from([*METHODS, "own/thing"]),
        "params": OBJECTS,
        "result": st.one_of(OBJECTS, st.just(1)),
        "error": st.sampled_from([{"code": -32002, "message": ""}, {"code": 1}, {"code": -32042, "data": 1}, 1]),
    },
)
BYTES = st.one_of(
    MESSAGES.map(lambda message: json.dumps(message).encode()),
    st.lists(MESSAGES, max_size=2).map(lambda batch: json.dumps(batch).encode()),
    st.sampled_from([b"", b"\xff", b"1"]),
)
CHANNELS = st.sampled_from([0, 1, 2])
HEADERS = st.sampled_from([None, "", "S", "2025-11-25", "2026-07-28"])
ROLES = st.sampled_from(Role)
ANYTHING = st.one_of(
    st.builds(Said, CHANNELS, ROLES, BYTES, event_id=st.sampled_from([None, "e"]), at=st.sampled_from([None, 1.0])),
    st.builds(Said, CHANNELS, ROLES, BYTES),
    st.builds(
        Opened,
        CHANNELS,
        st.sampled_from(Verb),
        session=HEADERS,
        revision=HEADERS,
        accept=HEADERS,
        last_event_id=st.sampled_from([None, "e"]),
        mirrored=st.sampled_from([None, (), (("Mcp-Name", "=?base64?x?="), ("Mcp-Param-A", "1"))]),
    ),
    st.builds(Head, CHANNELS, st.sampled_from([200, 202, 404]), HEADERS, HEADERS),
    st.builds(Ended, CHANNELS, st.one_of(st.none(), ROLES)),
)


@settings(max_examples=60, deadline=None)
@given(
    seen=st.lists(ANYTHING, max_size=12),
    transport=st.sampled_from(Transport),
    revision=st.sampled_from([None, "2024-11-05", "2025-11-25", "2026-07-28", "1999-01-01"]),
)
def test_any_observation_is_judged(seen: list[AnyObservation], transport: Transport, revision: str | None) -> None:
    """Each violation is of a rule of the revision it names, by a side that can break it."""
    oracle = Oracle(revision, transport)
    reported = []
    for observation in seen:
        try:
            reported += oracle.receive(observation)
        except LocalProtocolError:
            continue
    for violation in reported + oracle.finish():
        rule, spoken = RULES[violation.rule], violation.clause.partition(" ")[0]
        assert violation.who in rule.who
        assert rule.clauses[spoken] == violation.clause.removeprefix(f"{spoken} ")
        assert all(0 <= number < oracle.count for number in violation.observations)
        assert len(violation.text) < 1000


@pytest.mark.parametrize("kind", ["input_required", "task"])
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_server_members_from_a_client_are_judged(kind: str, revision: str) -> None:
    """A `resultType` in a client's response breaks no rule, since a result may have members of any name."""
    wire = Wire(revision)
    wire.handshake()
    wire.tell("ping", id=9)
    wire.respond(9, resultType=kind)
    oracle = Oracle(None, Transport.PIPE)
    assert [violation for each in wire.seen for violation in oracle.receive(each)] == []


NAMES = ("elicitationId", "mode", "method", "taskId", "uri", "level", "name", "requestId", "progressToken", "status")


@pytest.mark.parametrize("value", [[], {}, 1.5, None], ids=repr)
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_name_may_have_any_type(value: object, revision: str) -> None:
    """Values of other types are tried in each message of either side, and in server requests inside a result."""
    params = dict.fromkeys(NAMES, value)
    input_required = {
        "resultType": "input_required",
        "inputRequests": {"q": {"method": "elicitation/create", "params": params}},
    }
    wire = Wire(revision)
    wire.handshake()
    wire.answer(wire.call(), result=input_required)
    wire.answer(wire.call(), result={"resultType": "input_required", "inputRequests": {"q": params}})
    for number, method in enumerate(METHODS):
        for sender in Role:
            message = {"jsonrpc": "2.0", "method": method, "params": params}
            wire.send(sender, message)
            wire.send(sender, {**message, "id": 1000 + number})
            wire.send(sender.other, {"jsonrpc": "2.0", "id": 1000 + number, "result": params})
    oracle = Oracle(None, Transport.PIPE)
    assert [violation for each in wire.seen for violation in oracle.receive(each)]


def test_the_end_may_be_reported_more_than_once() -> None:
    (case,) = [case for case in CASES if case.rule == "unanswered"][:1]
    wire, _ = found(case, "2025-11-25", is_broken=True)
    oracle = Oracle(None, Transport.PIPE)
    for each in wire.seen:
        oracle.receive(each)
    assert oracle.finish() == oracle.finish() != []
