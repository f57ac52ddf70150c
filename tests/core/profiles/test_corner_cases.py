"""Dialogues with a profile whose servers fail, leave, repeat themselves, or have names and URIs of any kind."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client
from expected_values import Containing
from isthmus.core import Era, Kind, Profile, ProfileServer, ServerPlan
from isthmus.core.profiles.rewriting import CHAIN_MAX
from profile_scenes import CAN, fail_to_start, greeted, meeting

ERAS = pytest.mark.parametrize("era", [Era.HANDSHAKE, Era.STATELESS], ids=["handshake", "stateless"])
FAILURES_IN_A_ROW = 5


def result_of(play: Dialogue, client: Client) -> dict[str, Any]:
    """Takes the one message that has come, which is a result for a client, and returns that."""
    (came,) = [each for each in play.unexpected if each.peer is client]
    play.unexpected.remove(came)
    found: dict[str, Any] = came.what["result"]
    return found


# --- Failures -------------------------------------------------------------------------------------------------------


@ERAS
def test_requests_do_not_wait_for_a_server_that_is_left_alone(era: Era) -> None:
    """A server that failed to start is not started for a while: calls say so at once, and lists leave it out."""
    play, alice, (alpha, beta) = meeting(down="pipe", era=era)
    for _ in range(FAILURES_IN_A_ROW if era is Era.HANDSHAKE else 1):
        call = alice.asks("tools/call", {"name": "alpha__t"})
        fail_to_start(alpha)
        alice.is_answered(call, error=-31004)
    call = alice.asks("tools/call", {"name": "alpha__t"})
    alice.is_answered(call, error=-31004)
    alice.asks("tools/list")
    beta.starts(able=CAN)
    beta.answers(beta.is_asked("tools/list"), {"tools": []})
    (why,) = result_of(play, alice)["_meta"]["dev.isthmus/servers"].values()
    assert ("left alone" if era is Era.HANDSHAKE else "it is tried again") in why
    play.finish()


@ERAS
@pytest.mark.parametrize("is_started", [False, True], ids=["starting", "started"])
def test_a_client_that_leaves_takes_no_list_of_others_with_it(era: Era, is_started: bool) -> None:
    """A list that a client was waiting for as it left is read for the next one."""
    play, alice, (alpha,) = meeting("alpha", down="pipe", era=era)
    alice.asks("tools/list")
    if is_started:
        alpha.starts(able=CAN)
        alpha.is_asked("tools/list")
    else:
        alpha.is_started()
    alice.leaves()
    play.unexpected.clear()
    bob = greeted(play, "bob", down="pipe", era=era)
    bob.asks("tools/list")
    alpha.starts(able=CAN)
    alpha.answers(alpha.is_asked("tools/list"), {"tools": [{"name": "t"}]})
    assert [tool["name"] for tool in result_of(play, bob)["tools"]] == ["alpha__t"]


def test_a_server_dies_while_its_list_is_read() -> None:
    """The others are listed, and the list says why that one is missing."""
    play, alice, (alpha, beta) = meeting(down="pipe")
    alice.asks("tools/list")
    alpha.is_started()
    beta.is_started()
    beta.connects()
    beta.is_greeted(able=CAN)
    beta.answers(beta.is_asked("tools/list"), {"tools": [{"name": "t"}]})
    alpha.connects()
    alpha.is_greeted(able=CAN)
    alpha.is_asked("tools/list")
    alpha.dies()
    fail_to_start(alpha)  # a list is asked for once more
    result = result_of(play, alice)
    assert [tool["name"] for tool in result["tools"]] == ["beta__t"]
    assert list(result["_meta"]["dev.isthmus/servers"]) == ["alpha"]


def test_a_server_that_is_lost_keeps_what_it_has_listed() -> None:
    play, alice, (alpha,) = meeting("alpha", down="pipe")
    alice.asks("tools/list")
    alpha.starts(able=CAN)
    alpha.answers(alpha.is_asked("tools/list"), {"tools": [{"name": "t"}]})
    shown = result_of(play, alice)
    alpha.dies()
    alice.asks("tools/list")
    assert result_of(play, alice)["tools"] == shown["tools"]


# --- Names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        "x__y",
        "__y",
        "b_c",
        "n" * 65,
        "n" * 300,
        "read file",
        "read.file",
        "a/b",
        "lesen\u00e4",
        "\0",
        "\U0001f600",
        "Read",
    ],
)
def test_a_tool_of_any_name_is_called_by_the_name_that_is_listed(raw: str) -> None:
    """Aliases of which one begins another, with `_` in the id, do not get into each other's way."""
    play, alice, (_, other) = meeting("a", "a_b", down="pipe")
    alice.asks("tools/list")
    for server in play.servers:
        server.is_started()
    for server in play.servers:
        server.connects()
        server.is_greeted(able=CAN)
        server.answers(server.is_asked("tools/list"), {"tools": [{"name": raw}]})
    names = [tool["name"] for tool in result_of(play, alice)["tools"]]
    assert len(set(names)) == 2
    (name,) = [name for name in names if name.startswith("a-b__")]
    assert len(name) <= 50
    call = alice.asks("tools/call", {"name": name})
    other.answers(other.is_asked("tools/call", {"name": raw}), {"content": []})
    alice.is_answered(call, {"content": []})
    play.finish()


def test_names_that_differ_in_case_only_are_two() -> None:
    play, alice, (alpha,) = meeting("alpha", down="pipe")
    alice.asks("tools/list")
    alpha.starts(able=CAN)
    alpha.answers(alpha.is_asked("tools/list"), {"tools": [{"name": "read"}, {"name": "READ"}]})
    assert [tool["name"] for tool in result_of(play, alice)["tools"]] == ["alpha__READ", "alpha__read"]


def test_a9_the_list_of_a_profile_that_contains_itself_ends() -> None:
    """The server alpha lists a tool of its own, and all that the profile shows."""
    play, alice, (alpha,) = meeting("alpha", down="pipe")
    own = {"name": "t", "inputSchema": {"type": "object"}}
    tools = [own]
    alice.asks("tools/list")
    alpha.starts(able=CAN)
    alpha.answers(alpha.is_asked("tools/list"), {"tools": tools})
    for depth in range(CHAIN_MAX + 1):
        shown = result_of(play, alice)["tools"]
        assert len({tool["name"] for tool in shown}) == len(shown) == depth + 1
        tools = [own, *shown]
        alpha.notifies("tools/list_changed")
        play.waits(0.3)
        alpha.answers(alpha.is_asked("tools/list"), {"tools": tools})
        if depth < CHAIN_MAX:
            alice.is_notified("tools/list_changed")
            alice.asks("tools/list")
    play.finish()
    deepest = next(tool for tool in shown if "dev.isthmus/chain" in tool["_meta"])
    call = alice.asks("tools/call", {"name": deepest["name"]})
    alpha.answers(alpha.is_asked("tools/call", {"name": deepest["name"].partition("__")[2]}), {"content": []})
    alice.is_answered(call, {"content": []})


def test_a_raw_name_is_refused_with_the_names_that_it_may_mean() -> None:
    play, alice, (alpha, beta) = meeting(down="pipe")
    alice.asks("tools/list")
    for server in (alpha, beta):
        server.is_started()
    for server in (alpha, beta):
        server.connects()
        server.is_greeted(able=CAN)
        server.answers(server.is_asked("tools/list"), {"tools": [{"name": "echo"}]})
    play.unexpected.clear()
    call = alice.asks("tools/call", {"name": "echo"})
    alice.is_answered(call, error={"code": -32602, "data": {"candidates": ["alpha__echo", "beta__echo"]}})


# --- URIs -----------------------------------------------------------------------------------------------------------


def test_a_raw_uri_is_read_at_the_one_server_that_lists_it() -> None:
    play, alice, (alpha, beta) = meeting(down="pipe")
    alice.asks("resources/list")
    for server in (alpha, beta):
        server.is_started()
    for server, uris in ((alpha, ["memo:both", "memo:a"]), (beta, ["memo:both"])):
        server.connects()
        server.is_greeted(able=CAN)
        server.answers(server.is_asked("resources/list"), {"resources": [{"uri": uri, "name": uri} for uri in uris]})
    play.unexpected.clear()
    reading = alice.asks("resources/read", {"uri": "memo:a"})
    alpha.answers(alpha.is_asked("resources/read", {"uri": "memo:a"}), {"contents": []})
    alice.is_answered(reading, {"contents": []})
    both = alice.asks("resources/read", {"uri": "memo:both"})
    candidates = ["alpha+memo:both", "beta+memo:both"]
    alice.is_answered(both, error={"code": -32602, "data": {"candidates": candidates}})


def test_contents_may_have_another_uri_than_was_asked_for() -> None:
    _play, alice, (alpha, _) = meeting(down="pipe")
    reading = alice.asks("resources/read", {"uri": "alpha+dir:x"})
    alpha.starts(able=CAN)
    contents = [{"uri": f"dir:x/{name}", "text": name} for name in ("a", "b")]
    alpha.answers(alpha.is_asked("resources/read", {"uri": "dir:x"}), {"contents": contents})
    shown = [{"uri": f"alpha+dir:x/{name}", "text": name} for name in ("a", "b")]
    alice.is_answered(reading, {"contents": shown})


def test_an_update_may_be_of_a_uri_below_the_one_that_was_subscribed_to() -> None:
    _play, alice, (alpha, _) = meeting(down="pipe")
    following = alice.asks("resources/subscribe", {"uri": "alpha+dir:x"})
    alpha.starts(able=CAN)
    alpha.answers(alpha.is_asked("resources/subscribe", {"uri": "dir:x"}), {})
    alice.is_answered(following, {})
    alpha.notifies("resources/updated", {"uri": "dir:x/below"})
    alice.is_notified("resources/updated", {"uri": "alpha+dir:x/below"})


def test_a_variable_of_a_template_is_completed_at_its_server() -> None:
    _play, alice, (_, beta) = meeting(down="pipe")
    ref = {"type": "ref/resource", "uri": "beta+{scheme}://x"}
    asking = alice.asks("completion/complete", {"ref": ref, "argument": {"name": "scheme", "value": "f"}})
    beta.starts(able=CAN)
    received = beta.is_asked("completion/complete", Containing({"ref": ref | {"uri": "{scheme}://x"}}))
    beta.answers(received, {"completion": {"values": ["file"]}})
    alice.is_answered(asking, {"completion": {"values": ["file"]}})


# --- Routing --------------------------------------------------------------------------------------------------------


def test_a_ping_needs_no_server() -> None:
    play, alice, _ = meeting(down="pipe")
    alice.is_answered(alice.asks("ping"), {})
    play.finish()


def test_changed_roots_are_told_to_every_open_server() -> None:
    _play, alice, servers = meeting(down="pipe")
    for server in servers:
        alice.asks("tools/call", {"name": f"{server.name}__t"})
        server.starts(able=CAN)
        server.is_asked("tools/call")
    alice.notifies("roots/list_changed")
    for server in servers:
        server.is_notified("roots/list_changed")


def test_the_subscription_of_one_session_outlives_that_of_another() -> None:
    """Each session has legs of its own, so that one that unsubscribes leaves the other subscribed."""
    play, alice, (alpha, _) = meeting(down="pipe")
    bob = greeted(play, "bob", down="pipe")
    asked = {}
    for client in (alice, bob):
        following = client.asks("resources/subscribe", {"uri": "alpha+memo:x"})
        alpha.starts(able=CAN)
        asked[client.name] = alpha.is_asked("resources/subscribe", {"uri": "memo:x"})
        alpha.answers(asked[client.name], {})
        client.is_answered(following, {})
    ending = bob.asks("resources/unsubscribe", {"uri": "alpha+memo:x"})
    alpha.answers(alpha.is_asked("resources/unsubscribe", {"uri": "memo:x"}), {})
    bob.is_answered(ending, {})


def test_only_servers_that_are_used_are_started() -> None:
    play, alice, servers = meeting(*(f"s{number}" for number in range(30)), down="pipe")
    for server in (servers[3], servers[17]):
        call = alice.asks("tools/call", {"name": f"{server.name}__t"})
        server.starts(able=CAN)
        server.answers(server.is_asked("tools/call"), {"content": []})
        alice.is_answered(call, {"content": []})
    play.finish()


@pytest.mark.parametrize("agrees", [True, False], ids=["accept", "decline"])
def test_a_call_goes_on_after_the_visit_to_a_page(agrees: bool) -> None:
    """The state of the call is that of its server, whichever name the client has for the tool."""
    page = {"mode": "url", "elicitationId": "e", "url": "https://x.example/", "message": "look"}
    able = {"elicitation": {"url": {}}}
    plans = [ServerPlan(id=id, kind=Kind.PIPE, era=Era.HANDSHAKE) for id in ("alpha", "beta")]
    play = Dialogue(*plans, profiles=(Profile("all", (ProfileServer("alpha"), ProfileServer("beta"))),))
    alice = play.client("alice", "http", server="all", era=Era.STATELESS, able=able)
    alpha, _ = play.servers
    alice.asks("tools/call", {"name": "alpha__t", "arguments": {"x": 1}})
    alpha.starts(able=CAN)
    refusal = {"code": -32042, "message": "visit", "data": {"elicitations": [page]}}
    alpha.answers(alpha.is_asked("tools/call"), error=refusal)
    asked = result_of(play, alice)
    (key,) = asked["inputRequests"]
    answers = {key: {"action": "accept" if agrees else "decline"}}
    retry = {"requestState": asked["requestState"], "inputResponses": answers}
    alice.asks("tools/call", {"name": "alpha__t", "arguments": {"x": 1}} | retry)
    if agrees:
        alpha.answers(alpha.is_asked("tools/call", {"name": "t", "arguments": {"x": 1}}), {"content": []})
    result = result_of(play, alice)
    assert result.get("isError", False) is not agrees


# --- Rules of servers -----------------------------------------------------------------------------------------------


@ERAS
def test_a_request_waits_for_the_decision_about_its_server(era: Era) -> None:
    """The way through a profile leads around no decision."""
    plan = ServerPlan(id="alpha", kind=Kind.PIPE, era=Era.HANDSHAKE, decides=True)
    play = Dialogue(plan, profiles=(Profile("all", (ProfileServer("alpha"),)),))
    alice = greeted(play, "alice", era=era)
    alpha = play.server
    call = alice.asks("tools/call", {"name": "alpha__delete"})
    if era is Era.HANDSHAKE:
        alpha.starts(able=CAN)
    decide = alice.waits_for_decision("tools/call", "delete")
    play.denies(decide)
    alice.is_answered(call, error=-31009)
    play.finish()
