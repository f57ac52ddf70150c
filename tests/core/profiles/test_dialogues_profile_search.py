"""Dialogues with a profile whose clients search for tools: it shows the servers alpha and beta."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Request, Server
from expected_values import Containing
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core import Era, Kind, Profile, ProfileServer, ServerPlan
from isthmus.core.base.plan import AccessRule, AccessRules, Offer, TaskRules
from profile_scenes import names_of, result_for

ENDS = pytest.mark.parametrize(
    ("down", "era"),
    [("pipe", Era.HANDSHAKE), ("http", Era.HANDSHAKE), ("http", Era.STATELESS)],
    ids=["pipe", "http", "stateless"],
)
CAN = {"tools": {"listChanged": True}}
SURFACE = ["call_read_only_tool", "call_tool", "search_tools"]
OPEN = {"type": "object"}
LIST = {"name": "list_files", "description": "Lists files.", "inputSchema": OPEN, "annotations": {"readOnlyHint": True}}
WRITE = {"name": "write_file", "description": "Writes a file.", "inputSchema": OPEN}
MAIL = {"name": "send", "description": "Sends mail.", "inputSchema": OPEN}
RULES = AccessRules(tools=(("write_file", AccessRule(groups=("staff",))), ("list_files", AccessRule(scopes=("read",)))))


def meeting(
    down: str = "pipe",
    era: Era = Era.HANDSHAKE,
    *,
    rules: AccessRules | None = None,
    alias: str | None = None,
    tasks: TaskRules | None = None,
    **rest: Any,
) -> tuple[Dialogue, Client, Server, Server]:
    """Returns a client that has met the profile, and its two servers, of which none is started yet."""
    handshake = Era.HANDSHAKE
    servers = [
        ServerPlan(id="alpha", kind=Kind.PIPE, era=handshake, access=rules, tasks=tasks or TaskRules()),
        ServerPlan(id="beta", kind=Kind.PIPE, era=handshake, tasks=tasks or TaskRules()),
    ]
    shown = (ProfileServer("alpha", alias), ProfileServer("beta"))
    play = Dialogue(*servers, profiles=(Profile("all", shown, has_search=True),))
    alice = play.client("alice", down, server="all", era=era, **rest)
    if era is Era.HANDSHAKE:
        alice.is_answered(alice.greets(), Containing({"capabilities": Containing({"tools": {}})}))
        alice.notifies("initialized")
    return play, alice, *play.servers


def result_of(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Returns the result of a call that needs no server."""
    request = client.asks("tools/call", {"name": tool, "arguments": arguments})
    return result_for(client, request)


def fill(play: Dialogue, client: Client, *tools: Any) -> None:
    """Lets a first search read the list of alpha, and that of beta, which has `MAIL`."""
    alpha, beta = play.servers
    request = client.asks("tools/call", {"name": "search_tools", "arguments": {"query": ""}})
    alpha.is_started()
    beta.is_started()
    for server, entries in ((alpha, tools), (beta, (MAIL,))):
        server.connects()
        server.is_greeted(able=CAN)
        server.answers(server.is_asked("tools/list"), {"tools": list(entries)})
    client.is_answered(request, ...)


def says(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


@ENDS
def test_the_tools_that_are_listed_are_always_the_same(down: str, era: Era) -> None:
    play, alice, _alpha, _beta = meeting(down, era)
    answers = []
    for at in range(2):
        tools = alice.asks("tools/list")
        (came,) = play.unexpected
        alice.is_answered(tools, ...)
        answers.append(came.what["result"])
        if not at:
            fill(play, alice, LIST)
    assert answers[0] == answers[1]
    assert [tool["name"] for tool in answers[0]["tools"]] == SURFACE
    assert "alpha, beta" in answers[0]["tools"][2]["description"]
    if era is Era.STATELESS:
        assert (answers[0]["ttlMs"], answers[0]["cacheScope"]) == (300_000, "private")


@ENDS
def test_what_is_found_can_be_called(down: str, era: Era) -> None:
    """The answer comes as it is; a call by the name of the tool is possible, too."""
    play, alice, alpha, beta = meeting(down, era)
    fill(play, alice, LIST, WRITE)
    found = result_of(alice, "search_tools", query="write a file")
    assert names_of(found)[0] == "alpha__write_file"
    assert found["structuredContent"]["tools"][0]["inputSchema"] == OPEN
    assert names_of(result_of(alice, "search_tools", query="", server="beta")) == ["beta__send"]
    result = {"content": [], "structuredContent": {"uri": "memo:x"}}
    for server, tool, params in (
        (alpha, "call_tool", {"name": "alpha__write_file", "arguments": {"name": "x"}}),
        (beta, "beta__send", {"to": "y"}),
        (alpha, "call_read_only_tool", {"name": "alpha__list_files"}),
    ):
        call = alice.asks("tools/call", {"name": tool, "arguments": params})
        received = server.is_asked("tools/call", ...)
        server.answers(received, result)
        alice.is_answered(call, Containing(result))
        assert received.params["name"] in ("write_file", "send", "list_files")
        assert received.params.get("arguments") == (params if tool == "beta__send" else params.get("arguments"))
    play.finish()


def test_a_call_has_progress_questions_and_an_end() -> None:
    play, alice, alpha, _beta = meeting()
    params = {"name": "call_tool", "arguments": {"name": "alpha__t"}, "_meta": {"progressToken": "p"}}
    call = alice.asks("tools/call", params)
    alpha.starts(able=CAN)
    received = alpha.is_asked("tools/call")
    alpha.notifies("progress", {"progressToken": received.params["_meta"]["progressToken"], "progress": 1})
    alice.is_notified("progress", {"progressToken": "p", "progress": 1})
    asked = alpha.asks("elicitation/create", {"message": "Sure?", "requestedSchema": OPEN}, on=received)
    question = alice.is_asked("elicitation/create", Containing({"message": "[alpha] Sure?"}))
    alice.answers(question, {"action": "decline"})
    alpha.is_answered(asked, {"action": "decline"})
    alice.cancels(call)
    alpha.is_cancelled(received)
    play.finish()


def test_a_search_says_which_servers_are_missing() -> None:
    play, alice, alpha, beta = meeting()
    search = alice.asks("tools/call", {"name": "search_tools", "arguments": {"query": "files"}})
    beta.is_started()
    alpha.starts(able=CAN)
    alpha.answers(alpha.is_asked("tools/list"), {"tools": [LIST]})
    play.waits(3.0)
    (came,) = play.unexpected
    alice.is_answered(search, ...)
    found = came.what["result"]
    assert found["structuredContent"]["missing"] == {"beta": "it has not answered yet"}
    assert "- beta: it has not answered yet" in says(found)
    assert names_of(found) == ["alpha__list_files"]
    beta.connects()
    beta.is_greeted(able=CAN)
    beta.answers(beta.is_asked("tools/list"), {"tools": [MAIL]})
    assert names_of(result_of(alice, "search_tools", query="mail")) == ["beta__send"]
    play.finish()


def test_a_search_without_any_server_is_an_error() -> None:
    play, alice, alpha, beta = meeting()
    search = alice.asks("tools/call", {"name": "search_tools", "arguments": {"query": "files"}})
    alpha.is_started()
    beta.is_started()
    play.waits(3.0)
    (came,) = play.unexpected
    alice.is_answered(search, ...)
    assert came.what["result"]["isError"]


def test_a_cancelled_search_is_not_answered() -> None:
    play, alice, alpha, beta = meeting()
    search = alice.asks("tools/call", {"name": "search_tools", "arguments": {"query": "files"}})
    alpha.is_started()
    beta.is_started()
    alice.cancels(search)
    play.waits(3.0)
    assert not play.unexpected


def test_a_changed_list_is_found_and_not_told() -> None:
    play, alice, alpha, _beta = meeting()
    fill(play, alice, LIST)
    alpha.notifies("tools/list_changed")
    play.waits(0.3)
    alpha.answers(alpha.is_asked("tools/list"), {"tools": [WRITE]})
    assert names_of(result_of(alice, "search_tools", query="")) == ["alpha__write_file", "beta__send"]
    play.finish()


def test_changes_of_tools_cannot_be_subscribed() -> None:
    _play, alice, _alpha, _beta = meeting("http", Era.STATELESS)
    wanted = {"toolsListChanged": True, "promptsListChanged": True}
    alice.is_granted(alice.asks("subscriptions/listen", {"notifications": wanted}), {"promptsListChanged": True})


def test_what_is_not_known_to_change_nothing_is_not_called_as_such() -> None:
    play, alice, alpha, _beta = meeting()
    assert result_of(alice, "call_read_only_tool", name="alpha__list_files")["isError"], "nothing is known yet"
    lying = [{"name": f"t{at}", "annotations": hint} for at, hint in enumerate(({"readOnlyHint": "true"}, {}, None))]
    fill(play, alice, LIST, WRITE, *lying)
    for name in ("write_file", "t0", "t1", "t2"):
        assert result_of(alice, "call_read_only_tool", name=f"alpha__{name}")["isError"]
    alice.asks("tools/call", {"name": "call_read_only_tool", "arguments": {"name": "alpha__list_files"}})
    alpha.is_asked("tools/call", {"name": "list_files"})


@pytest.mark.parametrize(
    "arguments", [None, [], {}, {"name": 1}, {"name": "alpha__t", "path": "x"}, {"name": "alpha__t", "arguments": "x"}]
)
def test_a_wrong_call_says_what_is_right(arguments: Any) -> None:
    play, alice, _alpha, _beta = meeting()
    call = alice.asks("tools/call", {"name": "call_tool", "arguments": arguments})
    (came,) = play.unexpected
    alice.is_answered(call, ...)
    assert came.what["result"]["isError"] and "expected" in says(came.what["result"])


@pytest.mark.parametrize("name", [*SURFACE, "gamma__t", "t"])
def test_a_name_of_no_server_cannot_be_called(name: str) -> None:
    _play, alice, _alpha, _beta = meeting()
    alice.is_answered(alice.asks("tools/call", {"name": "call_tool", "arguments": {"name": name}}), error=-32602)


# --- Access -----------------------------------------------------------------------------------------------------------


@ENDS
def test_call_tool_reaches_nothing_that_a_direct_call_does_not(down: str, era: Era) -> None:
    play, alice, _alpha, _beta = meeting(down, era, rules=RULES, principal="alice")
    fill(play, alice, LIST, WRITE)
    assert names_of(result_of(alice, "search_tools", query="")) == ["alpha__list_files", "beta__send"]
    assert names_of(result_of(alice, "search_tools", query="alpha__write_file"))[:1] != ["alpha__write_file"]
    for name in ("alpha__write_file", "alpha__list_files"):
        errors = []
        for params in ({"name": name}, {"name": "call_tool", "arguments": {"name": name}}):
            call = alice.asks("tools/call", params)
            (came,) = play.unexpected
            alice.is_answered(call, error={})
            errors.append(came.what["error"])
        assert errors[0] == errors[1]
        assert errors[0]["code"] == (-32602 if name == "alpha__write_file" else -31009)
    play.finish()


def test_what_a_caller_may_see_is_its_own() -> None:
    """An index is shared only by those who see the same."""
    play, alice, _alpha, _beta = meeting("http", rules=RULES, principal="alice")
    fill(play, alice, LIST, WRITE)
    bob = play.client("bob", "http", server="all", principal="bob")
    bob.shows("staff")
    bob.is_answered(bob.greets(), ...)
    bob.notifies("initialized")
    fill(play, bob, LIST, WRITE)
    everything = ["alpha__list_files", "alpha__write_file", "beta__send"]
    assert names_of(result_of(bob, "search_tools", query="")) == everything
    assert names_of(result_of(alice, "search_tools", query="")) == ["alpha__list_files", "beta__send"]


def test_a_server_that_a_caller_may_not_see_is_not_named() -> None:
    rules = AccessRules(server=AccessRule(groups=("staff",)))
    play, alice, _alpha, beta = meeting(rules=rules)
    tools = alice.asks("tools/list")
    (came,) = play.unexpected
    alice.is_answered(tools, ...)
    assert "servers: beta." in came.what["result"]["tools"][2]["description"]
    search = alice.asks("tools/call", {"name": "search_tools", "arguments": {"query": "zzz"}})
    beta.starts(able=CAN)
    beta.answers(beta.is_asked("tools/list"), {"tools": [MAIL]})
    (came,) = play.unexpected
    alice.is_answered(search, ...)
    assert "alpha" not in says(came.what["result"])
    alice.is_answered(
        alice.asks("tools/call", {"name": "call_tool", "arguments": {"name": "alpha__list_files"}}), error=-32602
    )


# --- Any call ---------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["list_files", "a b", "x" * 60, "search_tools", "é"])
VALUES = st.recursive(
    st.none() | st.integers(0, 9) | st.sampled_from(['"', "\\", "é", "\ud83d", "name"]),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(st.sampled_from(["name", "arguments", "é"]), below),
    max_leaves=4,
)


@settings(max_examples=25)
@given(
    name=NAMES,
    alias=st.sampled_from([None, ""]),
    arguments=st.none() | st.dictionaries(st.sampled_from(["name", "arguments", "a"]), VALUES, max_size=3),
)
def test_a_call_of_a_shown_name_is_the_direct_call(
    name: str, alias: str | None, arguments: dict[str, Any] | None
) -> None:
    """The server gets the very same, but for the number of the request."""
    play, alice, alpha, _beta = meeting(alias=alias)
    fill(play, alice, {"name": name, "inputSchema": OPEN})
    (shown,) = names_of(result_of(alice, "search_tools", query="", server="alpha"))
    inner = {"name": shown} | ({} if arguments is None else {"arguments": arguments})
    received = []
    for params in (inner, {"name": "call_tool", "arguments": inner}):
        alice.asks("tools/call", params)
        received.append(alpha.is_asked("tools/call", ...).params)
    assert json.dumps(received[0]) == json.dumps(received[1])
    assert received[0]["name"] == name


TASK = {"taskId": ..., "status": "working", "createdAt": ..., "lastUpdatedAt": ..., "ttl": 60_000, "pollInterval": ...}


def calls_as_task(client: Client, tool: str, **arguments: Any) -> Request:
    return client.asks("tools/call", {"name": tool, "arguments": arguments, "task": {"ttl": 60_000}})


def handle_of(client: Client, request: Request) -> str:
    """Expects the handle of a task. Returns its id."""
    handle = client.play.expects(client, "is answered", {"id": request.id, "result": {"task": TASK}}, request)
    return str(handle.what["result"]["task"]["taskId"])


def ends_at_once(client: Client, request: Request, status: str) -> str:
    """Expects the handle of a task that is over already. Returns its id."""
    id = handle_of(client, request)
    client.is_notified("tasks/status", Containing({"taskId": id, "status": status}))
    return id


def tasking(offer: Offer = Offer.AUTO) -> tuple[Dialogue, Client, Server]:
    play, alice, alpha, _ = meeting(tasks=TaskRules(offer=offer))
    fill(play, alice, LIST, WRITE)
    return play, alice, alpha


def test_a_search_may_be_a_task() -> None:
    play, alice, _ = tasking()
    listed = alice.asks("tools/list")
    entries = play.expects(alice, "is answered", ..., listed).what["result"]["tools"]
    assert [entry["execution"] for entry in entries] == [{"taskSupport": "optional"}] * len(SURFACE)
    id = ends_at_once(alice, calls_as_task(alice, "search_tools", query="list files"), "completed")
    for _ in range(2):
        result = alice.asks("tasks/result", {"taskId": id})
        found = play.expects(alice, "is answered", ..., result).what["result"]
        assert names_of(found)[0] == "alpha__list_files"
    shown = alice.asks("tasks/list")
    alice.is_answered(shown, {"tasks": [Containing({"taskId": id, "status": "completed"})]})
    refused = alice.asks("tasks/cancel", {"taskId": id})
    alice.is_answered(refused, error=-32602)
    bob = play.client("bob", "http", server="all")
    bob.is_answered(bob.greets(), ...)
    bob.notifies("initialized")
    unknown = bob.asks("tasks/get", {"taskId": id})
    bob.is_answered(unknown, error=-32602)
    play.waits(61)
    gone = alice.asks("tasks/get", {"taskId": id})
    alice.is_answered(gone, error=-32602)


def test_a_search_that_waits_for_servers_may_be_cancelled_as_a_task() -> None:
    play, alice, alpha, beta = meeting(tasks=TaskRules(offer=Offer.AUTO))
    request = calls_as_task(alice, "search_tools", query="")
    alpha.is_started()
    beta.is_started()
    play.waits(0.3)
    id = handle_of(alice, request)
    result = alice.asks("tasks/result", {"taskId": id})
    cancel = alice.asks("tasks/cancel", {"taskId": id})
    alice.is_notified("tasks/status", Containing({"status": "cancelled"}))
    alice.is_answered(result, error=-32603)
    alice.is_answered(cancel, Containing({"status": "cancelled"}))
    play.waits(5)


def test_a_call_through_call_tool_may_be_a_task_of_its_server() -> None:
    _, alice, alpha = tasking()
    request = calls_as_task(alice, "call_tool", name="alpha__write_file", arguments={"text": "x"})
    call = alpha.is_asked("tools/call", {"name": "write_file", "arguments": {"text": "x"}})
    alpha.answers(call, {"content": [{"type": "text", "text": "done"}]})
    id = ends_at_once(alice, request, "completed")
    result = alice.asks("tasks/result", {"taskId": id})
    alice.is_answered(result, Containing({"content": [{"type": "text", "text": "done"}]}))
    ends_at_once(alice, calls_as_task(alice, "call_tool"), "failed")


def test_without_tasks_for_every_server_the_tools_do_not_offer_them() -> None:
    play, alice, _ = tasking(Offer.OWN)
    listed = alice.asks("tools/list")
    entries = play.expects(alice, "is answered", ..., listed).what["result"]["tools"]
    assert not [entry for entry in entries if "execution" in entry]
    refused = calls_as_task(alice, "call_tool", name="alpha__write_file", arguments={})
    alice.is_answered(refused, error={"code": -32601, "message": Containing("cannot be called as a task")})
    ends_at_once(alice, calls_as_task(alice, "search_tools", query=""), "completed")
