"""Dialogues about requests that wait for a decision of the driver (`ServerPlan.decides`)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client
from expected_values import Containing
from isthmus.core import Affinity, Era, Kind, Limits, Offer, PipeOpening, ServerPlan, StorageFailed, TaskRules

DENIED = -31009
ASKING = {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": {"type": "object"}}}


def deciding(kind: Kind = Kind.PIPE, **rest: Any) -> ServerPlan:
    return ServerPlan(id="files", kind=kind, era=Era.HANDSHAKE, decides=True, **rest)


def began(
    down: str = "pipe", era: Era = Era.HANDSHAKE, limits: Limits | None = None, **rest: Any
) -> tuple[Dialogue, Client]:
    """A client with a server that is there. Its discovery, if it sent one, was allowed."""
    play = Dialogue(deciding(**rest), limits=limits)
    alice = play.client("alice", down, era=era, principal="a")
    if era is Era.HANDSHAKE:
        alice.meets(play.server)
    else:
        discovery = alice.asks("server/discover")
        play.allows(alice.waits_for_decision("server/discover"))
        play.server.starts()
        alice.is_answered(discovery, ...)
    return play, alice


ENDS = [(down, era) for down in ("pipe", "http") for era in Era]


@pytest.mark.parametrize(("down", "era"), ENDS)
def test_a_request_reaches_its_server_once_it_is_allowed(down: str, era: Era) -> None:
    play, alice = began(down, era)
    call = alice.asks("tools/call", {"name": "delete", "arguments": {}})
    decide = alice.waits_for_decision("tools/call", "delete")
    assert (decide.server, decide.principal, decide.channel) == ("files", "a", call.channel)
    assert decide.params is not None
    assert b'"arguments"' in decide.params
    play.allows(decide)
    received = play.server.is_asked("tools/call", ...)
    play.server.answers(received, {"content": []})
    alice.is_answered(call, ...)
    play.allows(decide)  # a second answer does nothing
    play.finish()


@pytest.mark.parametrize(("down", "era"), ENDS)
def test_a_request_that_is_denied_gets_one_error_and_reaches_no_server(down: str, era: Era) -> None:
    play, alice = began(down, era)
    call = alice.asks("tools/call", {"name": "delete"})
    decide = alice.waits_for_decision("tools/call", "delete")
    play.denies(decide, "guests may not delete")
    error = {"code": DENIED, "message": "guests may not delete", "data": {"outcome": "not_executed"}}
    alice.is_answered(call, error=error)
    play.allows(decide)
    play.finish()
    assert play.engine.exchange_count == 0


@pytest.mark.parametrize(("down", "era"), ENDS)
def test_a_request_is_denied_when_nobody_decides(down: str, era: Era) -> None:
    play, alice = began(down, era, limits=Limits(decision_timeout_s=5.0))
    call = alice.asks("tools/call", {"name": "delete"})
    decide = alice.waits_for_decision("tools/call", "delete")
    play.waits(5.0)
    text = "nobody decided within 5 s whether tools/call may run: it did not run"
    alice.is_answered(call, error={"code": DENIED, "message": text})
    play.allows(decide)
    play.finish()


def test_a_driver_that_does_not_know_the_order_denies() -> None:
    play, alice = began()
    call = alice.asks("tools/list")
    decide = alice.waits_for_decision("tools/list")
    play.happens(lambda now: play.engine.receive_answer(decide.ticket, StorageFailed("what is it?"), now))
    alice.is_answered(call, error=DENIED)


@pytest.mark.parametrize(("down", "era"), ENDS)
def test_a_request_that_is_cancelled_needs_no_decision(down: str, era: Era) -> None:
    play, alice = began(down, era)
    call = alice.asks("tools/call", {"name": "delete"})
    decide = alice.waits_for_decision("tools/call", "delete")
    alice.cancels(call)
    if down == "http" and era is Era.HANDSHAKE:
        alice.is_closed(call)
    play.allows(decide)
    play.finish()
    assert play.engine.exchange_count == 0


def test_neither_handshake_nor_ping_nor_notifications_are_asked_about() -> None:
    play, alice = began()
    alice.is_answered(alice.asks("ping"))
    alice.notifies("roots/list_changed")
    play.server.is_notified("roots/list_changed")


def test_each_request_of_a_batch_is_decided_on_its_own() -> None:
    play = Dialogue(deciding())
    alice = play.client("alice", revision="2025-03-26")
    alice.meets(play.server)
    batch = [
        {"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": {"name": name}} for name in ("read", "delete")
    ]
    assert alice.pipe is not None
    play.happens(lambda now: play.engine.receive_message(alice.pipe, json.dumps(batch).encode(), now))
    read, delete = (alice.waits_for_decision("tools/call", name) for name in ("read", "delete"))
    play.denies(delete)
    play.allows(read)
    received = play.server.is_asked("tools/call", {"name": "read"})
    heard: list[bytes] = []
    alice.hears = lambda channel, message, post=None: heard.append(message)
    play.server.answers(received, {"content": []})
    answers = {each["id"]: each for each in json.loads(heard[0])}
    assert len(heard) == 1
    assert answers["delete"]["error"]["code"] == DENIED
    assert answers["read"]["result"] == {"content": []}


@pytest.mark.parametrize(
    "params",
    [
        '{"name":"read","name":"delete"}',
        '{"name":"read","\\u006eame":"delete"}',
        '{"name":"read","Name":"delete"}',
        '{"NAME":"delete"}',
        '{"name":["delete"]}',
        '{"name":null}',
        '{"name":"delete\\ud800"}',
        '["delete"]',
        "{}",
    ],
)
def test_a_name_that_servers_may_read_in_several_ways_is_refused(params: str) -> None:
    play, alice = began()
    assert alice.pipe is not None
    line = f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}'.encode()
    play.happens(lambda now: play.engine.receive_message(alice.pipe, line, now))
    came = play.expects(alice, "is answered", {"id": 7, "error": ...})
    assert came.what["error"]["code"] in (-32602, -32600)


def test_an_escaped_name_is_decided_as_the_server_reads_it() -> None:
    play, alice = began()
    assert alice.pipe is not None
    line = b'{"jsonrpc":"2.0","id":7,"m\\u0065thod":"tools\\u002fcall","params":{"n\\u0061me":"d\\u0065lete"}}'
    play.happens(lambda now: play.engine.receive_message(alice.pipe, line, now))
    play.denies(alice.waits_for_decision("tools/call", "delete"))
    play.expects(alice, "is answered", {"id": 7, "error": Containing({"code": DENIED})})


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("prompts/get", {"name": "p"}, "p"),
        ("resources/read", {"uri": "file:///a"}, "file:///a"),
        ("resources/subscribe", {"uri": "file:///a"}, "file:///a"),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "p"}}, "p"),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "u"}}, "u"),
        ("tasks/get", {"taskId": "t"}, "t"),
        ("tasks/list", None, None),
        ("logging/setLevel", {"level": "info"}, None),
        ("acme/run", {"name": "x"}, None),
    ],
)
def test_what_a_request_is_about(method: str, params: Any, name: str | None) -> None:
    play, alice = began()
    call = alice.asks(method, params)
    play.denies(alice.waits_for_decision(method, name))
    alice.is_answered(call, error=DENIED)


def test_requests_about_tasks_are_decided_before_the_proxy_answers() -> None:
    play = Dialogue(deciding(tasks=TaskRules(offer=Offer.AUTO)))
    alice = play.client("alice")
    alice.meets(play.server, able={"tools": {}})
    call = alice.asks("tools/call", {"name": "slow", "task": {}})
    play.denies(alice.waits_for_decision("tools/call", "slow"))
    alice.is_answered(call, error=DENIED)
    assert not play.engine.tasks()
    call = alice.asks("tools/call", {"name": "slow", "task": {}})
    play.allows(alice.waits_for_decision("tools/call", "slow"))
    play.server.is_asked("tools/call", ...)
    play.waits(1.0)
    alice.is_answered(call, ...)
    listed = alice.asks("tasks/list")
    play.denies(alice.waits_for_decision("tasks/list"))
    alice.is_answered(listed, error=DENIED)


@pytest.mark.parametrize("affinity", Affinity)
@pytest.mark.parametrize("down", ["pipe", "http"])
def test_a_retry_with_answers_is_decided_anew(down: str, affinity: Affinity) -> None:
    """No answer of a retry that is denied reaches the server, and the call goes on waiting."""
    play = Dialogue(deciding(), affinity=affinity)
    alice = play.client("alice", down, era=Era.STATELESS)
    call = alice.asks("tools/call", {"name": "delete"})
    play.allows(alice.waits_for_decision("tools/call", "delete"))
    play.server.starts()
    received = play.server.is_asked("tools/call", ...)
    question = play.server.asks(ASKING["method"], ASKING["params"], on=received)
    play.waits(1.0)
    asked = play.expects(alice, "is answered", {"id": call.id, "result": ...}, call).what["result"]
    (key,) = asked["inputRequests"]
    answers = {key: {"action": "accept", "content": {}}}
    retry = {"name": "delete", "requestState": asked["requestState"], "inputResponses": answers}
    denied = alice.asks("tools/call", retry)
    play.denies(alice.waits_for_decision("tools/call", "delete"))
    alice.is_answered(denied, error=DENIED)
    lost = alice.asks("tools/call", retry)
    alice.waits_for_decision("tools/call", "delete")
    alice.cancels(lost)
    if down == "http":
        play.finish()
    allowed = alice.asks("tools/call", retry)
    play.allows(alice.waits_for_decision("tools/call", "delete"))
    play.server.is_answered(question, {"action": "accept", "content": {}})
    again = alice.asks("tools/call", retry)
    play.allows(alice.waits_for_decision("tools/call", "delete"))
    alice.is_answered(again, error=-32602)  # this round is claimed
    play.server.answers(received, {"content": []})
    alice.is_answered(allowed, ...)
    if down == "http" and affinity is Affinity.REQUEST:
        play.waits(Limits().unclaimed_session_ttl_s)
        play.server.is_closed()
    assert play.engine.exchange_count == 0


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_a_question_that_waits_for_a_call_is_asked_and_answered_after_decisions(down: str) -> None:
    play = Dialogue(deciding())
    alice = play.client("alice", down, era=Era.STATELESS, able={"roots": {}})
    discovery = alice.asks("server/discover")
    play.allows(alice.waits_for_decision("server/discover"))
    play.server.starts()
    alice.is_answered(discovery, ...)
    question = play.server.asks("roots/list")
    denied = alice.asks("tools/call", {"name": "read"})
    play.denies(alice.waits_for_decision("tools/call", "read"))
    alice.is_answered(denied, error=DENIED)
    call = alice.asks("tools/call", {"name": "read"})
    play.allows(alice.waits_for_decision("tools/call", "read"))
    asked = play.expects(alice, "is answered", ..., call).what["result"]
    (key,) = asked["inputRequests"]
    retry = {"name": "read", "requestState": asked["requestState"], "inputResponses": {key: {"roots": []}}}
    denied = alice.asks("tools/call", retry)
    play.denies(alice.waits_for_decision("tools/call", "read"))
    alice.is_answered(denied, error=DENIED)
    broken = alice.asks("tools/call", retry | {"inputResponses": {key: 7}})
    play.allows(alice.waits_for_decision("tools/call", "read"))
    alice.is_answered(broken, error=-32602)
    allowed = alice.asks("tools/call", retry)
    play.allows(alice.waits_for_decision("tools/call", "read"))
    play.server.is_answered(question, {"roots": []})
    play.server.answers(play.server.is_asked("tools/call", ...), {"content": []})
    alice.is_answered(allowed, ...)


@pytest.mark.parametrize("up", Kind)
@pytest.mark.parametrize("server", Era)
@pytest.mark.parametrize(("down", "era"), ENDS)
def test_every_call_is_asked_about_and_not_the_first_alone(down: str, era: Era, server: Era, up: Kind) -> None:
    """A client or a server that is known takes no way around decisions."""
    play = Dialogue(ServerPlan(id="files", kind=up, era=server, decides=True))
    alice = play.client("alice", down, era=era)
    if era is Era.HANDSHAKE:
        alice.meets(play.server)
    for turn in range(3):
        call = alice.asks("tools/call", {"name": "read"})
        play.allows(alice.waits_for_decision("tools/call", "read"))
        if not turn and era is Era.STATELESS:
            play.server.starts()
        if not turn and (up, server) == (Kind.HTTP, Era.STATELESS):  # the proxy's own request is not asked about
            listed = {"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            play.server.answers(play.server.is_asked("tools/list", ...), listed)
        play.server.answers(play.server.is_asked("tools/call", ...), {"content": [], "resultType": "complete"})
        alice.is_answered(call, ...)


@pytest.mark.parametrize("is_own", [False, True])
def test_a_client_of_the_driver_itself_is_asked_about(is_own: bool) -> None:
    play = Dialogue(deciding())
    alice = play.client("alice", "own")
    alice.pipe = alice.opens(PipeOpening("files", "operator", "http://here", sees_hidden=is_own, is_own=is_own))
    alice.meets(play.server)
    call = alice.asks("tools/list")
    decide = alice.waits_for_decision("tools/list")
    assert decide.principal == "operator"
    play.denies(decide)
    alice.is_answered(call, error=DENIED)


def test_the_server_is_not_started_for_a_request_that_is_denied() -> None:
    play = Dialogue(deciding())
    alice = play.client("alice", "http", era=Era.STATELESS)
    call = alice.asks("tools/call", {"name": "read"})
    play.denies(alice.waits_for_decision("tools/call", "read"), "no", code=-30001)
    alice.is_answered(call, error={"code": -30001, "message": "no"})
    assert play.statuses[call.channel] == 200


def test_a_stateless_request_is_cancelled_when_its_client_hangs_up_after_it_was_allowed() -> None:
    play, alice = began("http", Era.STATELESS)
    call = alice.asks("tools/call", {"name": "delete"})
    play.allows(alice.waits_for_decision("tools/call", "delete"))
    received = play.server.is_asked("tools/call", ...)
    alice.hangs_up(call)
    play.server.is_cancelled(received)


@pytest.mark.parametrize(("down", "era"), ENDS)
def test_a_request_that_waits_for_a_decision_may_finish_while_the_proxy_drains(down: str, era: Era) -> None:
    play, alice = began(down, era)
    call = alice.asks("tools/call", {"name": "delete"})
    decide = alice.waits_for_decision("tools/call", "delete")
    play.happens(play.engine.receive_drain)
    play.allows(decide)
    play.server.answers(play.server.is_asked("tools/call", ...), {"content": []})
    alice.is_answered(call, ...)


@pytest.mark.parametrize(("down", "era"), ENDS)
def test_a_request_that_waits_for_a_decision_is_answered_when_the_proxy_stops(down: str, era: Era) -> None:
    play, alice = began(down, era)
    call = alice.asks("tools/call", {"name": "delete"})
    decide = alice.waits_for_decision("tools/call", "delete")
    play.stops()
    alice.is_answered(call, error={"code": -31007, "data": {"outcome": "not_executed"}})
    play.server.is_closed()
    if down == "pipe":
        alice.is_closed()
    play.allows(decide)
    play.finish()


def test_a_request_that_waits_for_a_decision_is_answered_when_its_session_ends() -> None:
    play, alice = began("http")
    call = alice.asks("tools/call", {"name": "delete"})
    decide = alice.waits_for_decision("tools/call", "delete")
    alice.leaves()
    alice.is_answered(call, error=-32600)
    play.server.is_closed()
    play.allows(decide)
    play.finish()


def test_requests_that_wait_count_as_open_requests() -> None:
    play, alice = began(limits=Limits(exchanges_per_session_max=2))
    calls, orders = [], []
    for _ in range(2):
        calls.append(alice.asks("tools/list"))
        orders.append(alice.waits_for_decision("tools/list"))
    alice.is_answered(alice.asks("tools/list"), error=-31007)
    for call, order in reversed(list(zip(calls, orders, strict=True))):
        play.denies(order)
        alice.is_answered(call, error=DENIED)
