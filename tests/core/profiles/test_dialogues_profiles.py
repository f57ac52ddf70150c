"""Dialogues with a profile: one endpoint that shows the servers alpha and beta."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Request, Server
from expected_values import Containing
from isthmus.core import Cause, End, Era, Kind, Profile, ProfileServer, ServerPlan
from isthmus.core.base.errors import HEADER_MISMATCH
from isthmus.core.base.plan import AccessRule, AccessRules
from isthmus.core.profiles.instructions import SERVER_MAX_CHARS

DOWNS = pytest.mark.parametrize("down", ["pipe", "http"])
KINDS = pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP], ids=["process", "url"])
ERAS = pytest.mark.parametrize("era", [Era.HANDSHAKE, Era.STATELESS], ids=["handshake", "stateless"])
CAN = {"tools": {}, "prompts": {}, "resources": {"subscribe": True}, "logging": {}}
COMPLETE = {"resultType": "complete"}


def meeting(
    down: str = "http",
    kind: Kind = Kind.PIPE,
    *,
    era: Era = Era.HANDSHAKE,
    server_era: Era = Era.HANDSHAKE,
    access: AccessRules | None = None,
    **rest: Any,
) -> tuple[Dialogue, Client, Server, Server]:
    """Returns a client that has met the profile, and its two servers, of which none is started yet."""
    servers = [ServerPlan(id=id, kind=kind, era=server_era, access=access) for id in ("alpha", "beta")]
    profile = Profile("all", (ProfileServer("alpha"), ProfileServer("beta")))
    play = Dialogue(*servers, profiles=(profile,))
    alice = play.client("alice", down, server="all", era=era, **rest)
    if era is Era.HANDSHAKE:
        greeting = alice.greets()
        alice.is_answered(greeting, Containing({"serverInfo": {"name": "all", "version": "0"}}))
        alice.notifies("initialized")
    return play, alice, *play.servers


def start(*servers: Server, method: str = "tools/list") -> list[Request]:
    """Expects servers to be started at once, and greets each. Returns the requests that each gets then."""
    for server in servers:
        if not server.is_url:
            server.is_started()
    greetings = {server.name: server.is_asked("initialize") for server in servers if server.is_url}
    asked = []
    for server in servers:
        if not server.is_url:
            server.connects()
        server.is_greeted(able=CAN, greeting=greetings.get(server.name))
        asked.append(server.is_asked(method))
    return asked


def give(server: Server, request: Request, *entries: Any, cursor: str = "") -> None:
    """Answers a request for a list."""
    more = {"nextCursor": cursor} if cursor else {}
    server.answers(request, {request.method.partition("/")[0]: list(entries)} | more | COMPLETE)


def shown(server: str, name: str) -> Containing:
    return Containing({"name": name, "_meta": {"dev.isthmus/server": server}})


@KINDS
@DOWNS
def test_a_call_goes_to_the_server_that_its_name_says(down: str, kind: Kind) -> None:
    play, alice, alpha, beta = meeting(down, kind)
    for server in (beta, alpha):
        call = alice.asks("tools/call", {"name": f"{server.name}__echo", "arguments": {"name": "beta__x"}})
        server.starts(able=CAN)
        server.answers(
            server.is_asked("tools/call", {"name": "echo", "arguments": {"name": "beta__x"}}),
            {"content": [{"type": "resource_link", "uri": "file:///x", "name": "x"}]},
        )
        link = {"type": "resource_link", "uri": f"{server.name}+file:///x", "name": "x"}
        alice.is_answered(call, {"content": [link]})
    play.finish()


@pytest.mark.parametrize(
    ("kind", "era"),
    [(Kind.PIPE, Era.HANDSHAKE), (Kind.HTTP, Era.HANDSHAKE), (Kind.PIPE, Era.STATELESS), (Kind.HTTP, Era.STATELESS)],
)
def test_lists_are_put_together_and_kept(kind: Kind, era: Era) -> None:
    play, alice, alpha, beta = meeting("http", kind, era=era)
    tools = alice.asks("tools/list")
    first, second = start(alpha, beta)
    give(beta, second, {"name": "b"}, cursor="2")
    give(beta, beta.is_asked("tools/list", Containing({"cursor": "2"})), {"name": "a"})
    give(alpha, first, {"name": "z"})
    names = [shown("alpha", "alpha__z"), shown("beta", "beta__a"), shown("beta", "beta__b")]
    alice.is_answered(tools, Containing({"tools": names}))
    alice.is_answered(alice.asks("tools/list"), Containing({"tools": names}))
    play.finish()


def test_another_client_of_the_kind_needs_no_server_for_a_list() -> None:
    play, alice, alpha, beta = meeting()
    tools = alice.asks("tools/list")
    for server, request in zip((alpha, beta), start(alpha, beta), strict=True):
        give(server, request, {"name": "t"})
    alice.is_answered(tools, ...)
    bob = play.client("bob", "http", server="all")
    bob.is_answered(bob.greets(), ...)
    bob.notifies("initialized")
    bob.is_answered(
        bob.asks("tools/list"), Containing({"tools": [shown("alpha", "alpha__t"), shown("beta", "beta__t")]})
    )
    play.finish()


def test_a_list_waits_for_a_slow_server_but_not_for_long() -> None:
    """The client is told when the list of that server is there."""
    play, alice, alpha, beta = meeting("pipe")
    tools = alice.asks("tools/list")
    beta.is_started()
    alpha.starts(able=CAN)
    give(alpha, alpha.is_asked("tools/list"), {"name": "t"})
    play.waits(3.0)
    missing = {"dev.isthmus/servers": {"beta": "it has not answered yet"}}
    alice.is_answered(tools, {"tools": [shown("alpha", "alpha__t")], "_meta": missing})
    beta.connects()
    beta.is_greeted(able=CAN)
    give(beta, beta.is_asked("tools/list"), {"name": "t"})
    alice.is_notified("tools/list_changed")
    alice.is_answered(alice.asks("tools/list"), {"tools": [shown("alpha", "alpha__t"), shown("beta", "beta__t")]})


def test_a_server_that_does_not_start_is_waited_for_once() -> None:
    """Further lists say at once that it is missing, and the client is told when it is there."""
    play, alice, alpha, beta = meeting("pipe")
    tools = alice.asks("tools/list")
    beta.is_started()
    alpha.starts(able=CAN)
    give(alpha, alpha.is_asked("tools/list"), {"name": "t"})
    play.waits(3.0)
    alice.is_answered(tools, ...)
    prompts = alice.asks("prompts/list")
    give(alpha, alpha.is_asked("prompts/list"), {"name": "p"})
    missing = {"dev.isthmus/servers": {"beta": "it has not answered yet"}}
    alice.is_answered(prompts, {"prompts": [shown("alpha", "alpha__p")], "_meta": missing})
    beta.connects()
    beta.is_greeted(able=CAN)
    reading, listing = beta.is_asked("tools/list"), beta.is_asked("prompts/list")
    give(beta, listing, {"name": "p"})
    alice.is_notified("prompts/list_changed")
    give(beta, reading, {"name": "t"})
    alice.is_notified("tools/list_changed")
    play.finish()


def test_a_server_that_cannot_be_started_concerns_nobody_else() -> None:
    play, alice, alpha, beta = meeting()
    tools = alice.asks("tools/list")
    alpha.is_started()
    beta.is_started()
    beta.breaks_off(beta.channel, Cause(End.UNREACHABLE, detail="no such program", unsent=True))
    alpha.connects()
    alpha.is_greeted(able=CAN)
    give(alpha, alpha.is_asked("tools/list"), {"name": "t"})
    alice.is_answered(tools, Containing({"tools": [shown("alpha", "alpha__t")]}))
    play.finish()


def test_nothing_there_is_an_error_and_no_empty_list() -> None:
    _play, alice, alpha, beta = meeting()
    tools = alice.asks("tools/list")
    for server in (alpha, beta):
        server.is_started()
    for server in (alpha, beta):
        server.breaks_off(server.channel, Cause(End.UNREACHABLE, detail="no such program", unsent=True))
    alice.is_answered(tools, error={"code": -31004})


def test_a_list_does_not_wait_for_a_server_that_has_not_declared_it() -> None:
    """The server is asked all the same, and the client told if there is something."""
    play, alice, alpha, beta = meeting("pipe")
    tools = alice.asks("tools/list")
    alpha.is_started()
    beta.is_started()
    for server in (alpha, beta):
        server.connects()
        server.is_greeted(able={"tools": {}})
        give(server, server.is_asked("tools/list"), {"name": "t"})
    alice.is_answered(tools, ...)
    prompts = alice.asks("prompts/list")
    alpha.is_asked("prompts/list")  # and never answers
    listing = beta.is_asked("prompts/list")
    alice.is_answered(prompts, {"prompts": []})
    give(beta, listing, {"name": "p"})
    alice.is_notified("prompts/list_changed")
    alice.is_answered(alice.asks("prompts/list"), Containing({"prompts": [shown("beta", "beta__p")]}))
    play.finish()


def test_a_server_without_prompts_has_an_empty_list_of_them() -> None:
    _play, alice, alpha, beta = meeting()
    prompts = alice.asks("prompts/list")
    for server, request in zip((alpha, beta), start(alpha, beta, method="prompts/list"), strict=True):
        server.answers(request, error=-32601)
    alice.is_answered(prompts, {"prompts": []})


@DOWNS
def test_a_change_is_told_once_the_list_is_read_and_differs(down: str) -> None:
    play, alice, alpha, beta = meeting(down)
    tools = alice.asks("tools/list")
    for server, request in zip((alpha, beta), start(alpha, beta), strict=True):
        give(server, request, {"name": "t"})
    alice.is_answered(tools, ...)
    if down == "http":
        alice.listens()
    for names in (("t",), ("new", "t"), ("new",)):
        for _ in range(3):
            alpha.notifies("tools/list_changed")
        play.waits(0.2)
        reading = alpha.is_asked("tools/list")
        if names == ("new", "t"):  # one more change while it is read
            alpha.notifies("tools/list_changed")
            play.waits(0.2)
            give(alpha, reading, {"name": "t"})
            reading = alpha.is_asked("tools/list")
        give(alpha, reading, *({"name": name} for name in names))
        if names != ("t",):
            alice.is_notified("tools/list_changed")
    alice.is_answered(
        alice.asks("tools/list"), Containing({"tools": [shown("alpha", "alpha__new"), shown("beta", "beta__t")]})
    )


@DOWNS
def test_two_servers_ask_at_once(down: str) -> None:
    """The questions may have the same id, and each answer goes to the one that asked."""
    play, alice, alpha, beta = meeting(down)
    calls = {}
    for server in (alpha, beta):
        calls[server.name] = alice.asks("tools/call", {"name": f"{server.name}__ask"})
        server.starts(able=CAN)
        call = server.is_asked("tools/call")
        asked = server.asks("sampling/createMessage", {"messages": [], "maxTokens": 1}, on=call, id=7)
        request = alice.is_asked("sampling/createMessage", on=calls[server.name] if down == "http" else None)
        calls[server.name] = calls[server.name], call, asked, request
    for server in (beta, alpha):
        asking, call, asked, request = calls[server.name]
        alice.answers(request, {"role": "assistant", "content": {"type": "text", "text": server.name}})
        server.is_answered(asked, Containing({"content": {"type": "text", "text": server.name}}))
        server.answers(call, {"content": []})
        alice.is_answered(asking, {"content": []})
    play.finish()


@DOWNS
def test_cancellation_reaches_the_server_of_the_call(down: str) -> None:
    _play, alice, alpha, _beta = meeting(down)
    call = alice.asks("tools/call", {"name": "alpha__slow"})
    alpha.starts(able=CAN)
    received = alpha.is_asked("tools/call")
    alice.cancels(call)
    alpha.is_cancelled(received)
    if down == "http":
        alice.is_closed(call)


def test_progress_and_logs_say_whose_they_are() -> None:
    play, alice, alpha, _beta = meeting("pipe")
    call = alice.asks("tools/call", {"name": "alpha__slow", "_meta": {"progressToken": "p"}})
    alpha.starts(able=CAN)
    received = alpha.is_asked("tools/call")
    token = received.params["_meta"]["progressToken"]
    alpha.notifies("progress", {"progressToken": token, "progress": 1})
    alice.is_notified("progress", {"progressToken": "p", "progress": 1})
    told = [{"progressToken": token, "progress": value} for value in (2, 3)]
    frames = [json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": each}) for each in told]
    play.happens(play.engine.receive_messages, alpha.channel, [frame.encode() for frame in frames])
    for value in (2, 3):
        alice.is_notified("progress", {"progressToken": "p", "progress": value})
    alpha.notifies("message", {"level": "info", "data": "x"})
    alice.is_notified("message", {"level": "info", "data": "x", "logger": "alpha"})
    alpha.notifies("message", {"level": "info", "data": "x", "logger": "db"})
    alice.is_notified("message", {"level": "info", "data": "x", "logger": "alpha/db"})
    alpha.answers(received, {"content": []})
    alice.is_answered(call, {"content": []})


@ERAS
def test_the_instructions_of_servers_reach_the_next_session(era: Era) -> None:
    """Each has a section, as far as there is room."""
    play, alice, alpha, beta = meeting(era=era)
    for server, text in ((beta, "b" * SERVER_MAX_CHARS + "!"), (alpha, " Use t. ")):
        call = alice.asks("tools/call", {"name": f"{server.name}__t"})
        server.starts(able=CAN, instructions=text)
        server.answers(server.is_asked("tools/call"), {"content": []})
        alice.is_answered(call, ...)
    instructions = "## alpha\n\nUse t.\n\n## beta\n\n" + "b" * (SERVER_MAX_CHARS - 1) + "…"
    bob = play.client("bob", "http", server="all", era=era)
    asked = bob.greets() if era is Era.HANDSHAKE else bob.asks("server/discover")
    bob.is_answered(asked, Containing({"instructions": instructions}))


def test_the_user_sees_which_server_asks() -> None:
    _play, alice, alpha, _beta = meeting("pipe")
    alice.asks("tools/call", {"name": "alpha__ask"})
    alpha.starts(able=CAN)
    call = alpha.is_asked("tools/call")
    alpha.asks("elicitation/create", {"message": "Sure?", "requestedSchema": {}}, on=call)
    alice.is_asked("elicitation/create", Containing({"message": "[alpha] Sure?"}))


def test_the_level_reaches_servers_now_and_later() -> None:
    _play, alice, alpha, beta = meeting("pipe")
    level = {"level": "warning"}
    alice.asks("tools/call", {"name": "alpha__t"})
    alpha.starts(able=CAN)
    alpha.is_asked("tools/call")
    setting = alice.asks("logging/setLevel", level)
    request = alpha.is_asked("logging/setLevel", level)
    alice.is_answered(setting, {})
    alpha.answers(request, {})
    alice.asks("tools/call", {"name": "beta__t"})
    beta.starts(able=CAN)
    request = beta.is_asked("logging/setLevel", level)
    beta.is_asked("tools/call")
    beta.answers(request, {})
    wrong = alice.asks("logging/setLevel", {"level": "loud"})
    alice.is_answered(wrong, error=-32602)


def test_resources_of_one_name_are_two() -> None:
    _play, alice, alpha, beta = meeting("pipe")
    for server in (alpha, beta):
        uri = f"{server.name}+memo:x"
        reading = alice.asks("resources/read", {"uri": uri})
        server.starts(able=CAN)
        server.answers(
            server.is_asked("resources/read", {"uri": "memo:x"}), {"contents": [{"uri": "memo:x", "text": server.name}]}
        )
        alice.is_answered(reading, {"contents": [{"uri": uri, "text": server.name}]})
        following = alice.asks("resources/subscribe", {"uri": uri})
        server.answers(server.is_asked("resources/subscribe", {"uri": "memo:x"}), {})
        alice.is_answered(following, {})
        server.notifies("resources/updated", {"uri": "memo:x"})
        alice.is_notified("resources/updated", {"uri": uri})


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "echo"}),
        ("tools/call", {"name": "gamma__echo"}),
        ("resources/read", {"uri": "memo:x"}),
        ("prompts/get", {}),
    ],
)
def test_a_name_of_no_server_is_refused(method: str, params: Any) -> None:
    play, alice, _alpha, _beta = meeting("pipe")
    alice.is_answered(alice.asks(method, params), error=-32602)
    play.finish()


def test_a_completion_of_a_server_that_completes_nothing_is_empty() -> None:
    _play, alice, alpha, _beta = meeting("pipe")
    asking = alice.asks("completion/complete", {"ref": {"type": "ref/prompt", "name": "alpha__p"}, "argument": {}})
    alpha.starts(able=CAN)
    alpha.answers(alpha.is_asked("completion/complete"), error=-32601)
    alice.is_answered(asking, {"completion": {"values": []}})


def test_a_lost_server_fails_its_own_calls_only() -> None:
    _play, alice, alpha, beta = meeting("pipe")
    call = alice.asks("tools/call", {"name": "alpha__t"})
    alpha.starts(able=CAN)
    alpha.is_asked("tools/call")
    other = alice.asks("tools/call", {"name": "beta__t"})
    beta.starts(able=CAN)
    received = beta.is_asked("tools/call")
    alpha.dies()
    alice.is_answered(call, error=-31001)
    beta.answers(received, {"content": []})
    alice.is_answered(other, {"content": []})
    again = alice.asks("tools/call", {"name": "alpha__t"})
    alpha.starts(able=CAN)
    alpha.answers(alpha.is_asked("tools/call"), {"content": []})
    alice.is_answered(again, {"content": []})


@DOWNS
def test_the_end_of_a_session_leaves_every_server(down: str) -> None:
    play, alice, alpha, _beta = meeting(down)
    alice.asks("tools/call", {"name": "alpha__t"})
    alpha.starts(able=CAN)
    alpha.is_asked("tools/call")
    alice.leaves()
    for _ in range(len(play.unexpected)):
        play.unexpected.pop()
    assert play.engine.session_count == 0


@pytest.mark.parametrize("rule", ["groups", "scopes", "server"])
def test_a_call_goes_on_only_for_a_caller_who_may_still_make_it(rule: str) -> None:
    """The rules of the server of the call hold for each round of it."""
    needs = AccessRule(scopes=("run",)) if rule == "scopes" else AccessRule(groups=("staff",))
    rules = AccessRules(server=needs) if rule == "server" else AccessRules(tools=(("ask", needs),))
    shown = {"groups": "staff", "scopes": "run"}
    play, alice, alpha, _beta = meeting(era=Era.STATELESS, access=rules, principal="alice", **shown)
    call = alice.asks("tools/call", {"name": "alpha__ask"})
    alpha.starts(able=CAN)
    received = alpha.is_asked("tools/call")
    asked = alpha.asks("sampling/createMessage", {"messages": [], "maxTokens": 1}, on=received)
    play.waits(1.0)
    (came,) = [each for each in play.unexpected if each.peer is alice]
    alice.is_answered(call, ...)
    result = came.what["result"]
    answer = {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}
    responses = dict.fromkeys(result["inputRequests"], answer)
    again = {"name": "alpha__ask", "requestState": result["requestState"], "inputResponses": responses}
    alice.shows()
    alice.is_answered(alice.asks("tools/call", again), error=-31009 if rule == "scopes" else -32602)
    alice.shows(**shown)
    call = alice.asks("tools/call", again)
    alpha.is_answered(asked, Containing({"model": "m"}))
    alpha.answers(received, {"content": []})
    alice.is_answered(call, Containing(COMPLETE))
    play.finish()


@ERAS
def test_a_client_without_sessions_calls_and_is_asked(era: Era) -> None:
    """A question of a server with sessions becomes `input_required`, and the answer goes back to it."""
    play, alice, _alpha, beta = meeting(era=Era.STATELESS, server_era=era)
    alice.is_answered(alice.asks("server/discover"), Containing(COMPLETE))
    call = alice.asks("tools/call", {"name": "beta__ask"})
    beta.starts(able=CAN)
    received = beta.is_asked("tools/call")
    question = {"messages": [], "maxTokens": 1}
    if era is Era.HANDSHAKE:
        asked = beta.asks("sampling/createMessage", question, on=received)
        play.waits(1.0)
    else:
        entry = {"method": "sampling/createMessage", "params": question}
        beta.answers(received, {"resultType": "input_required", "inputRequests": {"q": entry}, "requestState": "s"})
    (came,) = [each for each in play.unexpected if each.peer is alice]
    result = came.what["result"]
    assert result["resultType"] == "input_required"
    alice.is_answered(call, ...)
    answer = {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}
    responses = dict.fromkeys(result["inputRequests"], answer)
    again = alice.asks(
        "tools/call", {"name": "beta__ask", "requestState": result["requestState"], "inputResponses": responses}
    )
    if era is Era.HANDSHAKE:
        beta.is_answered(asked, Containing({"model": "m"}))
    else:
        received = beta.is_asked("tools/call", Containing({"name": "ask", "requestState": "s"}))
    beta.answers(received, {"content": []} | (COMPLETE if era is Era.STATELESS else {}))
    alice.is_answered(again, Containing(COMPLETE))
    play.finish()


def test_headers_for_marked_arguments_are_checked_once_a_client_was_shown_the_tool() -> None:
    """The client is told to repeat arguments in headers, whatever its server is: so the two are compared here."""
    _, alice, alpha, beta = meeting(era=Era.STATELESS)
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    params = {"name": "alpha__find", "arguments": {"region": "eu"}}
    before = alice.asks("tools/call", params)
    alpha.starts(able=CAN)
    alpha.answers(alpha.is_asked("tools/call"), {"content": []})
    alice.is_answered(before, ...)
    listed = alice.asks("tools/list")
    asked = alpha.is_asked("tools/list")
    beta.starts(able=CAN)
    others = beta.is_asked("tools/list")
    give(alpha, asked, {"name": "find", "inputSchema": schema})
    give(beta, others)
    alice.is_answered(listed, ...)
    refused = alice.asks("tools/call", params)
    alice.is_answered(refused, error={"code": HEADER_MISMATCH, "message": Containing("Mcp-Param-Region")})
    for region in ("us", "eu"):
        call = alice.asks("tools/call", params, headers=(("mcp-param-region", region),))
        if region == "us":
            alice.is_answered(call, error=HEADER_MISMATCH)
        else:
            alpha.answers(alpha.is_asked("tools/call", params | {"name": "find"}), {"content": []})
            alice.is_answered(call, ...)


def test_headers_of_a_client_go_to_those_servers_alone_that_are_to_have_them() -> None:
    own, other = (("x-a", "Authorization"), ("x-t", "X-T")), (("x-t", "X-T"),)
    members = ProfileServer("alpha", headers=own, required_headers=("x-a",)), ProfileServer("beta", headers=other)
    play = Dialogue(
        *(ServerPlan(id=id, kind=Kind.HTTP, era=Era.HANDSHAKE) for id in ("alpha", "beta")),
        profiles=(Profile("all", members),),
    )
    alpha, beta = play.servers
    alice = play.client("alice", "http", server="all")
    alice.is_answered(alice.greets(), ...)
    alice.notifies("initialized")
    refused = alice.asks("tools/call", {"name": "alpha__echo"}, headers=(("x-t", "1"),))
    alice.is_answered(refused, error={"code": -31004, "message": Containing("x-a")})
    sent: dict[str, Any] = {}
    for server in (alpha, beta):
        call = alice.asks("tools/call", {"name": f"{server.name}__echo"}, headers=(("x-a", "k"), ("x-t", "2")))
        server.starts(able=CAN)
        asked = server.is_asked("tools/call")
        assert asked.post is not None
        sent[server.name] = {target.headers for target in play.dialled if target.server == server.name}
        server.answers(asked, {"content": []})
        alice.is_answered(call, ...)
    assert sent == {"alpha": {(("Authorization", "k"), ("X-T", "2"))}, "beta": {(("X-T", "2"),)}}


def test_a_client_that_lacks_what_a_server_asks_for_is_told_so() -> None:
    needed = {"requiredCapabilities": {"sampling": {}}}
    play, alice, alpha, _ = meeting(era=Era.STATELESS, able={})
    call = alice.asks("tools/call", {"name": "alpha__think"})
    alpha.starts(able=CAN)
    asked = alpha.is_asked("tools/call")
    question = alpha.asks("sampling/createMessage", {"messages": [], "maxTokens": 1})
    alpha.is_answered(question, error=-32601)
    alpha.answers(asked, {"content": [{"type": "text", "text": "no model"}], "isError": True})
    alice.is_answered(call, error={"code": -32021, "data": Containing(needed)})
    assert play.statuses[call.channel] == 400
