"""Dialogues of several clients with one shared process: ids, questions, log levels and subscriptions are kept apart."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import HANDSHAKE, Client, Request, Server
from expected_values import Containing
from isthmus.core import End, Kind, Limits, ServerPlan, Sharing

ABLE = {"logging": {}, "resources": {"subscribe": True}, "tools": {"listChanged": True}}
CONCURRENTLY, SERIALLY = Sharing.CONCURRENT, Sharing.SERIAL
A, B = {"uri": "file:///a"}, {"uri": "file:///b"}
TOOL = {"name": "x"}
FORM = {"message": "m", "requestedSchema": {"type": "object", "properties": {}}}


def shared(sharing: Sharing = CONCURRENTLY, limits: Limits | None = None) -> tuple[Dialogue, Server]:
    play = Dialogue(ServerPlan(id="files", kind=Kind.PIPE, sharing=sharing), limits=limits)
    return play, play.server


def meeting(
    sharing: Sharing = CONCURRENTLY, limits: Limits | None = None, **bob: Any
) -> tuple[Dialogue, Server, Client, Client]:
    """Returns a dialogue in which two clients have met the process."""
    play, files = shared(sharing, limits)
    both = play.client("alice"), play.client("bob", **bob)
    for each in both:
        each.meets(files, able=ABLE)
    return play, files, *both


def call(client: Client, files: Server) -> tuple[Request, Request]:
    """Returns a call as its client asked it, and as the process got it."""
    return client.asks("tools/call", TOOL), files.is_asked("tools/call", TOOL)


def subscribed(client: Client, files: Server, resource: Any) -> None:
    request = client.asks("resources/subscribe", resource)
    files.answers(files.is_asked("resources/subscribe", resource))
    client.is_answered(request)


# --- Calls ------------------------------------------------------------------------------------------------------------


def test_each_client_is_answered_under_its_own_id() -> None:
    play, files = shared()
    clients = [play.client(name, "pipe" if name < "d" else "http") for name in "abcde"]
    for each in clients:
        each.meets(files)
    calls = [(each, *call(each, files)) for each in clients]
    assert len({asked.id for _, _, asked in calls}) == 5
    for each, request, asked in reversed(calls):
        files.answers(asked, {"for": each.name})
        each.is_answered(request, {"for": each.name})


def test_serial_sharing_runs_one_call_at_a_time_and_lets_lists_pass() -> None:
    play, files, alice, bob = meeting(SERIALLY)
    (carol := play.client("carol")).meets(files)
    for _ in range(3):
        slow, running = call(alice, files)
        waiting = bob.asks("tools/call", {"name": "next"})
        dropped = carol.asks("tools/call", {"name": "never"})
        carol.cancels(dropped)
        listed = carol.asks("tools/list")
        files.answers(files.is_asked("tools/list"), {"tools": []})
        carol.is_answered(listed, {"tools": []})
        question = files.asks("elicitation/create", FORM)
        alice.answers(alice.is_asked("elicitation/create", FORM), {"action": "accept"})
        files.is_answered(question, {"action": "accept"})
        files.answers(running)
        alice.is_answered(slow)
        files.answers(files.is_asked("tools/call", {"name": "next"}))
        bob.is_answered(waiting)


def test_a_client_that_leaves_loses_its_turn() -> None:
    _, files, alice, bob = meeting(SERIALLY)
    _, running = call(alice, files)
    waiting = bob.asks("tools/call", {"name": "next"})
    alice.leaves()
    files.is_cancelled(running)
    files.answers(files.is_asked("tools/call", {"name": "next"}))
    bob.is_answered(waiting)


# --- Questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage"])
def test_a_question_goes_to_the_client_of_the_open_call(method: str) -> None:
    _, files, alice, bob = meeting()
    for client in (alice, bob):
        request, asked = call(client, files)
        question = files.asks(method, {})
        client.answers(client.is_asked(method, {}), {"action": "accept"})
        files.is_answered(question, {"action": "accept"})
        files.answers(asked)
        client.is_answered(request)


def test_a_question_that_may_belong_to_several_calls_is_refused() -> None:
    _, files, alice, bob = meeting()
    call(alice, files)
    call(bob, files)
    question = files.asks("elicitation/create", {})
    files.is_answered(question, error={"code": -32603, "message": Containing("2 clients share this server")})


@pytest.mark.parametrize("how", ["cancelled", "answered late", "forgotten"])
def test_a_question_may_belong_to_a_cancelled_call(how: str) -> None:
    """A cancelled call may still ask, until its answer comes or its time is over."""
    play, files, alice, bob = meeting(limits=Limits(cancelled_request_ttl_s=60.0))
    request, asked = call(alice, files)
    alice.cancels(request)
    files.is_cancelled(asked)
    call(bob, files)
    if how == "answered late":
        files.answers(asked)
    elif how == "forgotten":
        play.waits(60)
    question = files.asks("elicitation/create", {})
    if how == "cancelled":
        files.is_answered(question, error={"message": Containing("cannot be told")})
    else:
        bob.is_asked("elicitation/create", {})


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list"])
def test_a_question_that_nobody_can_answer_is_refused(method: str) -> None:
    """The client of the call is unable; or has left, with the question open or before."""
    _, files, alice, bob = meeting(able={})
    request, asked = call(bob, files)
    files.is_answered(files.asks(method, {}), error=-32601)
    files.answers(asked)
    bob.is_answered(request)
    bob.leaves()
    _, asked = call(alice, files)
    question = files.asks("elicitation/create", {})
    alice.is_asked("elicitation/create", {})
    alice.leaves()
    files.is_cancelled(asked)
    files.is_answered(question, error={})
    files.is_answered(
        files.asks(method, {}), error={"code": -32603, "message": f"no client is there to answer {method}"}
    )


def test_a_question_unknown_to_an_older_client_is_refused() -> None:
    """The client knows forms but no URLs. A form reaches it without members that it does not know."""
    _, files, _, bob = meeting(revision="2025-06-18", able={"elicitation": {}})
    call(bob, files)
    page = files.asks("elicitation/create", {"mode": "url", "url": "http://x", "message": "m", "elicitationId": "e"})
    files.is_answered(page, error=-32603)
    files.asks("elicitation/create", FORM | {"mode": "form"})
    bob.is_asked("elicitation/create", FORM)


# --- What is shared ---------------------------------------------------------------------------------------------------


def test_the_process_gets_the_lowest_log_level_and_each_client_its_own() -> None:
    """A setting that changes nothing is not sent."""
    _, files, loud, quiet = meeting()
    quietly = quiet.asks("logging/setLevel", {"level": "error"})
    files.answers(files.is_asked("logging/setLevel", {"level": "error"}))
    quiet.is_answered(quietly)
    loudly = loud.asks("logging/setLevel", {"level": "info"})
    files.answers(files.is_asked("logging/setLevel", {"level": "info"}))
    loud.is_answered(loudly)
    for client, level in ((loud, "info"), (quiet, "error")):
        client.is_answered(client.asks("logging/setLevel", {"level": level}))
    for level, hearers in (("info", [loud]), ("alert", [loud, quiet])):
        files.notifies("message", {"level": level, "data": "x"})
        for client in hearers:
            client.is_notified("message", {"level": level, "data": "x"})
    call(quiet, files)
    files.notifies("message", {"level": "alert", "data": "of the call"})
    quiet.is_notified("message", {"level": "alert", "data": "of the call"})


def test_updates_go_to_subscribers_and_the_last_one_ends_the_subscription() -> None:
    """An update of another resource, which may be a part of a subscribed one, goes to all subscribers; a changed list
    goes to all clients. An unsubscribe without a subscription is sent."""
    play, files, alice, bob = meeting()
    (carol := play.client("carol")).meets(files)
    for client in (alice, bob):
        subscribed(client, files, A)
    for resource in (A, {"uri": "file:///a/b"}):
        files.notifies("resources/updated", resource)
        for client in (alice, bob):
            client.is_notified("resources/updated", resource)
    files.notifies("tools/list_changed")
    for client in (alice, bob, carol):
        client.is_notified("tools/list_changed", None)
    alice.is_answered(alice.asks("resources/unsubscribe", A))
    unknown = carol.asks("resources/unsubscribe", B)
    files.answers(files.is_asked("resources/unsubscribe", B))
    carol.is_answered(unknown)
    bob.leaves()
    files.is_asked("resources/unsubscribe", A)


def test_a_new_process_gets_the_state_of_all_clients() -> None:
    _, files, alice, bob = meeting()
    subscribed(alice, files, A)
    request, _ = call(bob, files)
    files.dies("killed")
    bob.is_answered(request, error={"data": {"outcome": "unknown"}})
    files.starts(able=ABLE)
    files.answers(files.is_asked("resources/subscribe", A))
    for client in (alice, bob):
        listing = client.asks("tools/list")
        files.answers(files.is_asked("tools/list"), {"tools": []})
        client.is_answered(listing, {"tools": []})


# --- Starts and ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("requested", ["2025-03-26", "2025-06-18", HANDSHAKE, "1999-01-01", 7])
def test_the_handshake_is_the_proxys_own_and_each_client_gets_a_revision_that_it_knows(requested: Any) -> None:
    """The process is told of all capabilities and of no client. Clients that come meanwhile wait."""
    play, files = shared()
    alice, bob = play.client("alice", able={}, revision=requested), play.client("bob", "http")
    hers = alice.greets()
    files.is_started()
    his = bob.greets()
    files.connects()
    able = {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {"form": {}, "url": {}}}
    told = {"protocolVersion": HANDSHAKE, "capabilities": able, "clientInfo": Containing({"name": "isthmus"})}
    greeting = files.is_asked("initialize", told)
    files.answers(greeting, {"protocolVersion": HANDSHAKE, "capabilities": {}})
    files.is_notified("initialized")
    known = requested if requested in ("2025-03-26", "2025-06-18") else HANDSHAKE
    alice.is_answered(hers, Containing({"protocolVersion": known}))
    bob.is_answered(his, Containing({"protocolVersion": HANDSHAKE}))


def test_a_process_that_does_not_start_fails_all_who_wait() -> None:
    play, files = shared()
    clients = [play.client(name) for name in "abc"]
    greetings = [clients[0].greets()]
    files.is_started()
    greetings += [each.greets() for each in clients[1:]]
    files.dies("no such file", end=End.UNREACHABLE)
    for each, greeting in zip(clients, greetings, strict=True):
        each.is_answered(greeting, error={"message": Containing("no such file")})
    assert play.engine.session_count == 0


def test_a_process_lingers_after_its_last_client_and_is_used_again() -> None:
    play, files = shared(limits=Limits(shared_linger_s=60.0))
    alice, bob, carol = (play.client(name) for name in ("alice", "bob", "carol"))
    alice.meets(files)
    alice.leaves()
    play.waits(59)
    bob.meets(files)
    play.waits(600)
    bob.leaves()
    play.waits(61)
    files.is_closed()
    carol.meets(files)
    play.stops()
    carol.is_closed()
    files.is_closed()
    assert play.engine.next_timeout() is None
