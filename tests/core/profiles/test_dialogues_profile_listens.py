"""Dialogues with a profile about what has changed, and about tasks."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import META, Client, Request, Server
from expected_values import Containing
from isthmus.core import Cause, End, Era, Kind, Offer, Profile, ProfileServer, ServerPlan, TaskRules

CHANGES = {"listChanged": True}
CAN = {"tools": CHANGES, "prompts": CHANGES, "resources": CHANGES | {"subscribe": True}}
TOOLS = {"toolsListChanged": True}
LISTEN, SUBSCRIBE, UPDATED = "subscriptions/listen", "resources/subscribe", "resources/updated"
EXTENSION = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
ERAS = pytest.mark.parametrize("era", [Era.HANDSHAKE, Era.STATELESS], ids=["handshake", "stateless"])
X, Y = {"uri": "memo:x"}, {"uri": "memo:y"}


def meeting(
    era: Era = Era.STATELESS,
    server_era: Era = Era.HANDSHAKE,
    down: str = "http",
    rules: TaskRules = TaskRules(offer=Offer.ALWAYS),  # noqa: B008
    **rest: Any,
) -> tuple[Dialogue, Client, Server, Server]:
    """Returns a client of the profile `all` and its two servers, of which none is started yet."""
    servers = [ServerPlan(id=id, kind=Kind.PIPE, era=server_era, tasks=rules) for id in ("alpha", "beta")]
    play = Dialogue(*servers, profiles=(Profile("all", (ProfileServer("alpha"), ProfileServer("beta"))),))
    alice = play.client("alice", down, server="all", era=era, principal="alice", **rest)
    if era is Era.HANDSHAKE:
        alice.is_answered(alice.greets(), ...)
        alice.notifies("initialized")
    return play, alice, *play.servers


def listens(alice: Client, *uris: str, **wanted: Any) -> Request:
    return alice.asks(LISTEN, {"notifications": wanted | ({"resourceSubscriptions": list(uris)} if uris else {})})


def starts(server: Server) -> None:
    server.connects()
    server.is_greeted(able=CAN)


# --- Subscriptions ----------------------------------------------------------------------------------------------------


def test_each_server_is_asked_for_its_part() -> None:
    """The subscription is acknowledged once, when all parts have been. Changes before it wait."""
    play, alice, alpha, beta = meeting()
    listen = listens(alice, "alpha+memo:x", "beta+memo:x", "beta+memo:y", "gamma+memo:x", **TOOLS)
    alpha.is_started()
    beta.is_started()
    starts(alpha)
    alpha.answers(alpha.is_asked(SUBSCRIBE, X))
    alpha.notifies(UPDATED, X)
    starts(beta)
    x, y = beta.is_asked(SUBSCRIBE, X), beta.is_asked(SUBSCRIBE, Y)
    beta.answers(y, error=-32602)
    beta.answers(x)
    alice.is_granted(listen, TOOLS | {"resourceSubscriptions": ["alpha+memo:x", "beta+memo:x"]})
    alice.is_told(listen, UPDATED, {"uri": "alpha+memo:x"})
    beta.notifies(UPDATED, X)
    alice.is_told(listen, UPDATED, {"uri": "beta+memo:x"})
    beta.notifies("tools/list_changed")
    alice.is_told(listen, "tools/list_changed", {})
    alice.hangs_up(listen)
    for server, request in [(server, server.is_asked("resources/unsubscribe", X)) for server in (alpha, beta)]:
        server.answers(request)
    beta.notifies("tools/list_changed")
    play.finish()


def test_servers_of_the_clients_era_are_asked_for_their_part() -> None:
    play, alice, alpha, beta = meeting(server_era=Era.STATELESS)
    listen = listens(alice, "alpha+memo:x", "beta+memo:y")
    alpha.is_started()
    beta.is_started()
    for server, wanted in ((alpha, X), (beta, Y)):
        starts(server)
        server.grants(
            server.is_asked(LISTEN, Containing({"notifications": {"resourceSubscriptions": [wanted["uri"]]}}))
        )
    alice.is_granted(listen, {"resourceSubscriptions": ["alpha+memo:x", "beta+memo:y"]})
    beta.tells(beta.listen, UPDATED, Y)
    alice.is_told(listen, UPDATED, {"uri": "beta+memo:y"})
    play.finish()


def test_the_part_of_a_dead_server_is_made_up_for_when_it_is_back() -> None:
    play, alice, alpha, beta = meeting()
    listen = listens(alice, "alpha+memo:x", "beta+memo:x")
    alpha.is_started()
    beta.is_started()
    beta.breaks_off(beta.channel, Cause(End.UNREACHABLE, detail="no such program", unsent=True))
    starts(alpha)
    alpha.answers(alpha.is_asked(SUBSCRIBE, X))
    alice.is_granted(listen, {"resourceSubscriptions": ["alpha+memo:x", "beta+memo:x"]})
    play.waits(2.0)
    beta.is_started()
    starts(beta)
    beta.answers(beta.is_asked(SUBSCRIBE, X))
    alice.is_told(listen, UPDATED, {"uri": "beta+memo:x"})
    play.finish()


def test_an_acknowledgment_does_not_wait_long_for_a_silent_server() -> None:
    play, alice, alpha, beta = meeting()
    listen = listens(alice, "alpha+memo:x", "beta+memo:x")
    alpha.is_started()
    beta.is_started()
    starts(alpha)
    alpha.answers(alpha.is_asked(SUBSCRIBE, X))
    play.waits(5.0)
    alice.is_granted(listen, {"resourceSubscriptions": ["alpha+memo:x", "beta+memo:x"]})
    starts(beta)
    beta.answers(beta.is_asked(SUBSCRIBE, X))
    alice.is_told(listen, UPDATED, {"uri": "beta+memo:x"})


def test_changes_of_lists_are_asked_of_servers_as_they_are_reached() -> None:
    play, alice, alpha, _beta = meeting(server_era=Era.STATELESS)
    listen = listens(alice, **TOOLS)
    alice.is_granted(listen, TOOLS)
    call = alice.asks("tools/call", {"name": "alpha__t"})
    alpha.is_started()
    starts(alpha)
    asked = alpha.is_asked(LISTEN, Containing({"notifications": TOOLS}))
    received = alpha.is_asked("tools/call")
    alpha.grants(asked)
    alpha.answers(received, {"content": [], "resultType": "complete"})
    alice.is_answered(call, ...)
    alpha.tells(alpha.listen, "tools/list_changed", {})
    alice.is_told(listen, "tools/list_changed", {})
    play.finish()


def test_a_proxy_that_stops_ends_the_subscription_with_its_result() -> None:
    play, alice, alpha, _beta = meeting()
    listen = listens(alice, "alpha+memo:x")
    alpha.is_started()
    starts(alpha)
    alpha.answers(alpha.is_asked(SUBSCRIBE, X))
    alice.is_granted(listen, {"resourceSubscriptions": ["alpha+memo:x"]})
    play.stops()
    alice.is_answered(listen, Containing({"resultType": "complete"}))
    alpha.is_asked("resources/unsubscribe", X)
    alpha.is_closed()
    assert play.engine.session_count == 0


# --- Tasks ------------------------------------------------------------------------------------------------------------


@ERAS
def test_a_call_becomes_a_task_and_requests_about_it_reach_its_server(era: Era) -> None:
    able = EXTENSION if era is Era.STATELESS else {}
    play, alice, alpha, _beta = meeting(era, able=able)
    params: dict[str, Any] = {"name": "alpha__slow"} | ({} if era is Era.STATELESS else {"task": {}})
    call = alice.asks("tools/call", params)
    alpha.is_started()
    starts(alpha)
    received = alpha.is_asked("tools/call", {"name": "slow"})
    if era is Era.HANDSHAKE:
        play.waits(1.0)
    (came,) = [each for each in play.unexpected if each.peer is alice]
    alice.is_answered(call, ...)
    result = came.what["result"]
    assert result.get("resultType") == ("task" if era is Era.STATELESS else None)
    id = (result if era is Era.STATELESS else result["task"])["taskId"]
    asking = alice.asks("tasks/get", {"taskId": id})
    alice.is_answered(asking, Containing({"status": "working"}))
    alpha.answers(received, {"content": [{"type": "resource_link", "uri": "memo:x", "name": "x"}]})
    content = [{"type": "resource_link", "uri": "alpha+memo:x", "name": "x"}]
    if era is Era.STATELESS:
        asking = alice.asks("tasks/get", {"taskId": id})
        alice.is_answered(asking, Containing({"status": "completed", "result": Containing({"content": content})}))
    else:
        alice.is_notified("tasks/status", Containing({"taskId": id, "status": "completed"}), on=alice.listens())
        alice.is_answered(alice.asks("tasks/result", {"taskId": id}), Containing({"content": content}))
        alice.is_answered(alice.asks("tasks/list"), {"tasks": [Containing({"taskId": id})]})
    alice.is_answered(alice.asks("tasks/get", {"taskId": "other"}), error=-32602)


def test_the_list_of_tasks_has_those_of_all_servers_and_of_this_client_alone() -> None:
    """A list starts no server."""
    play, alice, alpha, beta = meeting(Era.HANDSHAKE)
    ids = []
    for server in (alpha, beta):
        call = alice.asks("tools/call", {"name": f"{server.name}__slow", "task": {}})
        server.is_started()
        starts(server)
        server.is_asked("tools/call")
        play.waits(1.0)
        (came,) = [each for each in play.unexpected if each.peer is alice]
        alice.is_answered(call, ...)
        ids.append(came.what["result"]["task"]["taskId"])
    listed = {"tasks": [Containing({"taskId": id}) for id in ids]}
    alice.is_answered(alice.asks("tasks/list"), listed)
    for name, expected in (("alice", listed), ("bob", {"tasks": []})):
        other = play.client(f"{name}2", "http", server="all", principal=name)
        other.is_answered(other.greets(), ...)
        other.notifies("initialized")
        other.is_answered(other.asks("tasks/list"), expected)
    other.is_answered(other.asks("tasks/get", {"taskId": ids[0]}), error=-32602)


def test_a_task_is_refused_where_the_server_of_the_tool_has_none() -> None:
    """The profile has tasks, as another of its servers has them."""
    _play, alice, alpha, _beta = meeting(Era.HANDSHAKE, rules=TaskRules(offer=Offer.OWN))
    call = alice.asks("tools/call", {"name": "alpha__slow", "task": {}})
    alpha.is_started()
    starts(alpha)
    alice.is_answered(call, error=-32601)


def test_a_question_of_a_task_reaches_the_client_that_waits_for_its_result() -> None:
    """The question is asked once, and the answer goes to the server that asked."""
    play, alice, alpha, _beta = meeting(Era.HANDSHAKE)
    call = alice.asks("tools/call", {"name": "alpha__slow", "task": {}})
    alpha.is_started()
    starts(alpha)
    received = alpha.is_asked("tools/call")
    play.waits(1.0)
    (came,) = [each for each in play.unexpected if each.peer is alice]
    alice.is_answered(call, ...)
    id = came.what["result"]["task"]["taskId"]
    asked = alpha.asks("sampling/createMessage", {"messages": [], "maxTokens": 1}, on=received, id=7)
    waiting = alice.asks("tasks/result", {"taskId": id})
    question = alice.is_asked("sampling/createMessage", on=waiting)
    also = alice.asks("tasks/result", {"taskId": id})
    alice.answers(question, {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"})
    alice.is_notified("tasks/status", Containing({"taskId": id, "status": "working"}))
    alpha.is_answered(asked, Containing({"model": "m"}))
    alpha.answers(received, {"content": []})
    alice.is_notified("tasks/status", Containing({"taskId": id, "status": "completed"}))
    for each in (waiting, also):
        alice.is_answered(each, Containing({"content": []}))


def test_a_subscription_to_a_task_is_told_of_its_end() -> None:
    play, alice, alpha, _beta = meeting(able=EXTENSION)
    call = alice.asks("tools/call", {"name": "alpha__slow"})
    alpha.is_started()
    starts(alpha)
    received = alpha.is_asked("tools/call", {"name": "slow"})
    (came,) = [each for each in play.unexpected if each.peer is alice]
    alice.is_answered(call, ...)
    id = came.what["result"]["taskId"]
    bob = play.client("bob", "http", server="all", era=Era.STATELESS, able={})
    refused = bob.asks("tasks/get", {"taskId": id})
    bob.is_answered(refused, error=-32021)
    listen = alice.asks(LISTEN, {"notifications": {"taskIds": [id, "other"]}})
    alice.is_granted(listen, {"taskIds": [id]})
    alpha.answers(received, {"content": []})
    told = Containing({"taskId": id, "status": "completed", "_meta": {META + "subscriptionId": listen.id}})
    alice.is_notified("tasks", told, on=listen)
    play.finish()
