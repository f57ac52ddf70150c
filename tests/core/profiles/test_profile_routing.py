"""Dialogues with a profile: ids that are the same at several servers, and legs that come and go (R1 to R14, S3, S4)."""

from __future__ import annotations

from typing import Any, Final

import pytest
from dialogue import Dialogue
from dialogue_peers import Request, Server
from expected_values import Containing
from isthmus.core import Era, Kind, Offer, Profile, ProfileServer, ServerPlan, TaskRules
from profile_scenes import CAN, NO_CONTENT, OPEN, greeted, meeting, serve

ENDS = pytest.mark.parametrize(
    ("down", "era"),
    [("pipe", Era.HANDSHAKE), ("http", Era.HANDSHAKE), ("http", Era.STATELESS)],
    ids=["pipe", "http", "stateless"],
)
ERAS = pytest.mark.parametrize("era", [Era.HANDSHAKE, Era.STATELESS], ids=["handshake", "stateless"])
KINDS = pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP], ids=["process", "url"])
FIVE: Final = ("s1", "s2", "s3", "s4", "s5")
QUESTION: Final = {"message": "Sure?", "requestedSchema": OPEN | {"properties": {}}}
T: Final = {"name": "t", "inputSchema": OPEN}
LISTEN: Final = "subscriptions/listen"


def said(text: str) -> dict[str, Any]:
    return NO_CONTENT | {"content": [{"type": "text", "text": text}]}


@ERAS
def test_r1_one_id_at_five_servers_at_once_is_five_requests(era: Era) -> None:
    """Each request over HTTP has a response of its own, in which its answer comes."""
    play, alice, servers = meeting(*FIVE, era=era)
    open_calls: list[tuple[Server, Request, Request]] = []
    for server in servers:
        call = alice.asks("tools/call", {"name": f"{server.name}__t"}, id=1)
        server.starts(able=CAN)
        open_calls.append((server, call, server.is_asked("tools/call")))
    for server, call, received in reversed(open_calls):
        server.answers(received, said(server.name))
        alice.is_answered(call, Containing({"content": said(server.name)["content"]}))
    play.finish()


@ERAS
def test_r2_one_progress_token_at_two_servers_at_once_is_two_tokens(era: Era) -> None:
    play, alice, servers = meeting(era=era)
    calls = []
    for server in servers:
        call = alice.asks("tools/call", {"name": f"{server.name}__t", "_meta": {"progressToken": "p"}})
        server.starts(able=CAN)
        calls.append((server, call, server.is_asked("tools/call")))
    for number, (server, call, received) in enumerate(reversed(calls)):
        told = {"progressToken": received.params["_meta"]["progressToken"], "progress": number}
        server.notifies("progress", told)
        alice.is_notified("progress", {"progressToken": "p", "progress": number}, on=call)
    play.finish()


@ENDS
def test_r3_a_cancellation_reaches_one_server_alone(down: str, era: Era) -> None:
    play, alice, servers = meeting(down=down, era=era)
    calls = {}
    for server in servers:
        call = alice.asks("tools/call", {"name": f"{server.name}__t"})
        server.starts(able=CAN)
        calls[server.name] = call, server.is_asked("tools/call")
    alpha, beta = servers
    call, received = calls["alpha"]
    alice.cancels(call)
    alpha.is_cancelled(received)
    if down == "http" and era is Era.HANDSHAKE:
        alice.is_closed(call)
    play.finish()
    call, received = calls["beta"]
    beta.answers(received, NO_CONTENT)
    alice.is_answered(call, ...)
    play.finish()


@ENDS
@pytest.mark.parametrize("server_era", [Era.HANDSHAKE, Era.STATELESS], ids=["asks", "wants input"])
def test_r4_r11_two_servers_put_a_question_of_one_id(down: str, era: Era, server_era: Era) -> None:
    """Alpha asks in its era and beta in the handshake era. Each answer goes to the one that has asked."""
    plans = [
        ServerPlan(id=id, kind=Kind.PIPE, era=each) for id, each in (("alpha", server_era), ("beta", Era.HANDSHAKE))
    ]
    play = Dialogue(*plans, profiles=(Profile("all", (ProfileServer("alpha"), ProfileServer("beta"))),))
    alice = greeted(play, "alice", down=down, era=era)
    calls, questions = {}, {}
    for server in play.servers:
        name = server.name
        calls[name] = alice.asks("tools/call", {"name": f"{name}__ask"})
        (received,) = [one for one in serve(play, {})[name] if one.method == "tools/call"]
        if server.era is Era.STATELESS:
            entry = {"method": "elicitation/create", "params": QUESTION}
            wanted = {"resultType": "input_required", "inputRequests": {"q": entry}, "requestState": "s"}
            server.answers(received, wanted)
            asked = None
        else:
            asked = server.asks("elicitation/create", QUESTION, on=received, id="q")
        shown = Containing({"message": f"[{name}] Sure?"})
        if era is Era.STATELESS:
            if asked is not None:
                play.waits(1.0)
            (came,) = play.unexpected
            alice.is_answered(calls[name], ...)
            questions[name] = came.what["result"], received, asked
        else:
            questions[name] = alice.is_asked("elicitation/create", shown), received, asked
    for server in reversed(play.servers):
        name, (question, received, asked) = server.name, questions[server.name]
        answer = {"action": "accept", "content": {"who": name}}
        if era is Era.STATELESS:
            responses = dict.fromkeys(question["inputRequests"], answer)
            again = {"requestState": question["requestState"], "inputResponses": responses}
            calls[name] = alice.asks("tools/call", {"name": f"{name}__ask"} | again)
        else:
            alice.answers(question, answer)
        if asked is None:
            given = Containing({"requestState": "s", "inputResponses": {"q": answer}})
            received = server.is_asked("tools/call", given)
        else:
            server.is_answered(asked, answer)
        server.answers(received, said(name))
        alice.is_answered(calls[name], Containing({"content": said(name)["content"]}))
    play.finish()


@ENDS
def test_r6_a_change_within_a_call_and_outside_is_told_once(down: str, era: Era) -> None:
    play, alice, (alpha, _) = meeting(down=down, era=era)
    tools = {"alpha": [T], "beta": [T]}
    listing = alice.asks("tools/list")
    serve(play, tools)
    alice.is_answered(listing, ...)
    stream = None
    if era is Era.STATELESS:
        stream = alice.asks(LISTEN, {"notifications": {"toolsListChanged": True}})
        alice.is_granted(stream, {"toolsListChanged": True})
    elif down == "http":
        stream = alice.listens()
    for within in (True, False):
        if within:
            call = alice.asks("tools/call", {"name": "alpha__t"})
            received = alpha.is_asked("tools/call")
        tools["alpha"] = [T | {"name": f"new{within}"}]
        alpha.notifies("tools/list_changed")
        play.waits(0.3)
        serve(play, tools)
        alice.is_notified("tools/list_changed", on=stream)
        if within:
            alpha.answers(received, NO_CONTENT)
            alice.is_answered(call, ...)
    play.finish()


def test_r7_a_subscription_at_three_servers_of_which_one_refuses_and_one_is_dead() -> None:
    """The part of the one that refuses is left out. The part of the dead one joins when that is there."""
    play, alice, (alpha, beta, gamma) = meeting("alpha", "beta", "gamma", era=Era.STATELESS)
    uris = ["alpha+memo:x", "beta+memo:x", "gamma+memo:x"]
    listen = alice.asks(LISTEN, {"notifications": {"resourceSubscriptions": uris}})
    for server in (alpha, beta, gamma):
        server.is_started()
    gamma.breaks_off(gamma.channel)
    beta.connects()
    beta.is_greeted(able={"resources": {}})
    alpha.connects()
    alpha.is_greeted(able=CAN)
    alpha.answers(alpha.is_asked("resources/subscribe"), {})
    alice.is_granted(listen, {"resourceSubscriptions": ["alpha+memo:x", "gamma+memo:x"]})
    play.waits(2.0)
    serve(play, {})
    alice.is_told(listen, "resources/updated", {"uri": "gamma+memo:x"})
    for server in (gamma, alpha):
        server.notifies("resources/updated", {"uri": "memo:x"})
        alice.is_told(listen, "resources/updated", {"uri": f"{server.name}+memo:x"})
    play.finish()


def test_r10_tasks_of_one_id_at_two_servers_are_two() -> None:
    """The list of tasks has them in the order in which they began."""
    play, alice, servers = meeting(down="pipe", tasks=TaskRules(offer=Offer.AUTO))
    able = CAN | {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
    tools = [T | {"execution": {"taskSupport": "optional"}}]
    ids = {}
    for server in reversed(servers):
        call = alice.asks("tools/call", {"name": f"{server.name}__t", "task": {}})
        asked = serve(play, {"alpha": tools, "beta": tools}, able=able)[server.name]
        times = dict.fromkeys(("createdAt", "lastUpdatedAt"), "2026-01-01T00:00:00Z")
        server.answers(asked[-1], {"task": {"taskId": "T1", "status": "working", "ttl": 60_000, **times}})
        waiting = server.is_asked("tasks/result", {"taskId": "T1"})
        (came,) = play.unexpected
        alice.is_answered(call, ...)
        ids[server.name] = came.what["result"]["task"]["taskId"]
        server.answers(waiting, said(server.name))
        alice.is_notified("tasks/status", Containing({"taskId": ids[server.name], "status": "completed"}))
        play.waits(1.0)
    listed = [Containing({"taskId": id, "status": "completed"}) for id in ids.values()]
    alice.is_answered(alice.asks("tasks/list"), {"tasks": listed})
    for name, id in ids.items():
        asking = alice.asks("tasks/result", {"taskId": id})
        alice.is_answered(asking, Containing({"content": said(name)["content"]}))


@pytest.mark.parametrize("strict", [False, True])
@ERAS
def test_r14_a_tool_that_requires_tasks_is_called_as_it_is_without_call_tool(era: Era, strict: bool) -> None:
    """The proxy makes a task of the call and gives the plain result, unless the configuration forbids that."""
    rules = TaskRules(offer=Offer.OWN, strict=strict)
    play, alice, (alpha,) = meeting("alpha", era=era, has_search=True, tasks=rules)
    able = CAN | {"tasks": {"requests": {"tools": {"call": {}}}}}
    tools = {"alpha": [T | {"execution": {"taskSupport": "required"}}]}
    codes = set()
    for params in ({"name": "alpha__t"}, {"name": "call_tool", "arguments": {"name": "alpha__t"}}):
        call = alice.asks("tools/call", params)
        asked = serve(play, tools, able=able)["alpha"]
        if strict:
            (came,) = play.unexpected
            alice.is_answered(call, error={})
            codes.add(came.what["error"]["code"])
            continue
        assert asked[-1].params["task"]
        times = dict.fromkeys(("createdAt", "lastUpdatedAt"), "2026-01-01T00:00:00Z")
        alpha.answers(asked[-1], {"task": {"taskId": "T1", "status": "working", "ttl": 60_000, **times}})
        alpha.answers(alpha.is_asked("tasks/result"), said("done"))
        alice.is_answered(call, Containing({"content": said("done")["content"]}))
    assert codes == ({-32021 if era is Era.STATELESS else -32601} if strict else set())
    play.finish()


# --- Sessions ---------------------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("down", ["pipe", "http"])
def test_s3_a_session_that_ends_while_five_servers_are_opened_leaves_none(down: str, kind: Kind) -> None:
    play, alice, servers = meeting(*FIVE, down=down, kind=kind)
    alice.asks("tools/list")
    for server in servers[1:]:
        if kind is Kind.PIPE:
            server.is_started()
        else:
            server.is_asked("initialize")
    if kind is Kind.PIPE:  # one of them is halfway through its handshake
        servers[0].starts(able=CAN)
        servers[0].is_asked("tools/list")
    else:
        servers[0].is_greeted(able=CAN)
        servers[0].is_asked("tools/list")
    alice.leaves()
    play.unexpected.clear()
    assert play.engine.session_count == 0
    play.waits(600)
    assert [server.name for channel, server in play.owners.items() if channel not in play.over] == []
    play.finish()


def test_s4_clients_with_other_capabilities_have_legs_of_their_own() -> None:
    """Clients without sessions share a leg if the server cannot tell them apart."""
    play, alice, (alpha, _) = meeting(era=Era.STATELESS)
    others = (("bob", {}), ("carol", {"sampling": {}, "elicitation": {}}))
    bob, carol = (greeted(play, name, era=Era.STATELESS, able=able) for name, able in others)
    greetings = []
    for client in (alice, bob, carol):
        call = client.asks("tools/call", {"name": "alpha__t"})
        asked = serve(play, {})["alpha"]
        greetings.append([one.params["capabilities"] for one in asked if one.method == "initialize"])
        alpha.answers(asked[-1], NO_CONTENT)
        client.is_answered(call, ...)
    assert greetings == [[{"sampling": {}, "elicitation": {}}], [{}], []]
