"""Dialogues about results that are kept (`ServerPlan.caches`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Request
from expected_values import Containing
from isthmus.core import Era, Headers, Kind, Limits, Profile, ServerPlan
from isthmus.core.base.plan import AccessRule, AccessRules, ProfileServer

ABLE: Final = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}
URI: Final = "file:///notes/today"
LISTS: Final = {
    "tools/list": {"tools": []},
    "prompts/list": {"prompts": []},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": [{"uri": URI, "text": "milk"}]},
}
PARAMS: Final[Mapping[str, Any]] = {"resources/read": {"uri": URI}}


def plan(kind: Kind = Kind.HTTP, **rest: Any) -> ServerPlan:
    return ServerPlan(id="files", kind=kind, era=Era.STATELESS, caches=True, **rest)


def told(method: str, ttl_ms: Any = 60_000, scope: str = "public", **rest: Any) -> Any:
    return LISTS[method] | {"resultType": "complete", "ttlMs": ttl_ms, "cacheScope": scope} | rest


def met(
    play: Dialogue, name: str = "alice", principal: str = "", down: str = "http", *, passed: Headers = (), **rest: Any
) -> Client:
    """Returns a client of the stateless era for whom the server is ready, and whose headers are passed on."""
    client = play.client(name, down, era=Era.STATELESS, principal=principal, **rest)
    client.passed = passed
    discovery = client.asks("server/discover")
    if not any(each.peer is client for each in play.unexpected):
        play.server.starts(able=ABLE)
    client.is_answered(discovery, ...)
    return client


def is_sent(play: Dialogue, client: Client, method: str, result: Any = None, **rest: Any) -> None:
    """Expects that a request is answered by the server."""
    request = client.asks(method, PARAMS.get(method), **rest)
    answered(play, client, request, told(method) if result is None else result)


def answered(play: Dialogue, client: Client, request: Request, result: Any) -> None:
    play.server.answers(play.server.is_asked(request.method, ...), result)
    client.is_answered(request, Containing({"resultType": result["resultType"]}))


def is_kept(client: Client, method: str, **members: Any) -> None:
    """Expects that a request is answered without the server."""
    request = client.asks(method, PARAMS.get(method))
    client.is_answered(request, Containing(LISTS[method] | members))


@pytest.mark.parametrize("method", LISTS)
def test_a_public_result_is_given_to_all_callers_until_it_is_stale(method: str) -> None:
    play = Dialogue(plan())
    alice, bob = met(play, "alice", "a"), met(play, "bob", "b")
    is_sent(play, alice, method)
    play.waits(20)
    is_kept(bob, method, ttlMs=40_000, cacheScope="public")
    play.waits(39.9995)
    is_kept(alice, method, ttlMs=0)
    play.waits(0.001)
    is_sent(play, bob, method)
    (status,) = play.engine.report()
    assert (status.cache_hits, status.cache_misses) == (2, 2)


@pytest.mark.parametrize("method", ["tools/list", "resources/read"])
def test_a_private_result_is_given_to_its_caller_alone(method: str) -> None:
    play = Dialogue(plan())
    alice, twin, bob = met(play, "alice", "a"), met(play, "twin", "a"), met(play, "bob", "b")
    is_sent(play, alice, method, told(method, scope="private"))
    is_kept(twin, method, cacheScope="private")
    is_sent(play, bob, method, told(method, scope="private"))
    is_kept(bob, method)
    anyone = met(play, "anyone")
    is_sent(play, anyone, method, told(method, scope="none"))
    is_kept(anyone, method)
    is_sent(play, met(play, "eve", "e"), method)  # a scope that is none is private


def test_a_private_result_is_not_kept_where_each_caller_has_a_login_of_its_own() -> None:
    play = Dialogue(plan(logs_in_callers=True))
    alice = met(play, "alice", "a")
    is_sent(play, alice, "tools/list", told("tools/list", scope="private"))
    is_sent(play, alice, "tools/list")
    is_kept(alice, "tools/list")
    is_sent(play, met(play, "bob", "b"), "tools/list")  # who may have no account there


def test_a_result_is_given_to_those_alone_by_whose_headers_the_server_may_know_them() -> None:
    play = Dialogue(plan(passes_authorization=True))
    tokens = {"alice": "A", "twin": "A", "bob": "B"}
    passed = [(("Authorization", token), ("traceparent", name)) for name, token in tokens.items()]
    alice, twin, bob, nobody = (met(play, passed=headers) for headers in (*passed, ()))
    for method, scope in (("tools/list", "public"), ("resources/read", "private")):
        is_sent(play, alice, method, told(method, scope=scope))
        is_kept(twin, method)
        for client in (bob, nobody):
            is_sent(play, client, method, told(method, scope=scope))
            is_kept(client, method)


def test_each_process_has_private_results_of_its_own() -> None:
    play = Dialogue(plan(Kind.PIPE))
    alice = met(play, "alice", "a", "pipe")
    is_sent(play, alice, "resources/read", told("resources/read", scope="private"))
    is_kept(alice, "resources/read")
    first = play.server.channel
    twin = met(play, "twin", "a", "pipe")
    is_sent(play, twin, "resources/read", told("resources/read", scope="private"))
    is_sent(play, twin, "tools/list")
    is_kept(alice, "tools/list")
    play.server.breaks_off(first)
    request = alice.asks("tools/list")
    play.server.starts(able=ABLE)
    answered(play, alice, request, told("tools/list"))  # it may be another server now


CHANGES: Final = {
    "tools/list_changed": ("tools/list",),
    "prompts/list_changed": ("prompts/list",),
    "resources/list_changed": ("resources/list", "resources/templates/list", "resources/read"),
    "resources/updated": ("resources/read",),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_makes_results_stale_that_are_kept_or_on_their_way(change: str) -> None:
    play = Dialogue(plan())
    alice, bob = met(play, "alice", "a"), met(play, "bob", "b")
    wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
    listen = alice.asks("subscriptions/listen", {"notifications": wanted | {"resourceSubscriptions": [URI]}})
    received = play.server.is_asked("subscriptions/listen", ...)
    play.server.grants(received)
    alice.is_granted(listen, ...)
    for method in LISTS:
        is_sent(play, bob, method, told(method, scope="private"))
    on_their_way = [(alice.asks(each, PARAMS.get(each)), play.server.is_asked(each, ...)) for each in LISTS]
    params = {"uri": f"{URI}/milk"} if change == "resources/updated" else {}
    play.server.tells(received, change, params)
    alice.is_told(listen, change, params)
    for asked, request in on_their_way:
        play.server.answers(request, told(request.method))
        alice.is_answered(asked, ...)
    for method in LISTS:
        for client in (alice, bob):
            if method not in CHANGES[change]:
                is_kept(client, method)
        if method in CHANGES[change]:
            is_sent(play, bob, method)
            is_kept(alice, method)


def test_a_client_that_listens_reads_nothing_older_than_its_subscription() -> None:
    play = Dialogue(plan())
    alice, bob = met(play, "alice", "a"), met(play, "bob", "b")
    is_sent(play, bob, "tools/list")
    for _ in range(2):
        play.waits(1)
        listen = alice.asks("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        play.server.grants(play.server.is_asked("subscriptions/listen", ...))
        alice.is_granted(listen, ...)
        is_kept(bob, "tools/list")
        is_sent(play, alice, "tools/list")
        is_kept(alice, "tools/list", ttlMs=60_000)


UNUSUAL: Final = [
    {"_meta": {"progressToken": 1}},
    {"_meta": {"com.example/tenant": "x"}},
    {"requestState": "abc"},
    {"inputResponses": {}},
    {"uri": 7},
]


@pytest.mark.parametrize("extra", UNUSUAL)
def test_a_request_that_says_more_than_is_usual_is_sent(extra: Any) -> None:
    play = Dialogue(plan())
    alice = met(play)
    is_sent(play, alice, "resources/read")
    for _ in range(2):
        request = alice.asks("resources/read", {"uri": URI} | extra)
        answered(play, alice, request, told("resources/read", contents=[]))
    is_kept(alice, "resources/read")
    assert play.engine.report()[0].cache_misses == 1


def test_equal_requests_have_equal_params_and_capabilities() -> None:
    play = Dialogue(plan())
    alice = met(play)
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    first = alice.asks("tools/list", {"cursor": None, "_meta": trace})
    answered(play, alice, first, told("tools/list"))
    is_kept(alice, "tools/list")
    page = alice.asks("tools/list", {"cursor": "2"})
    answered(play, alice, page, told("tools/list"))
    other = alice.asks("resources/read", {"uri": f"{URI}/"})
    answered(play, alice, other, told("resources/read"))
    is_sent(play, alice, "resources/read")
    is_sent(play, met(play, "bob", able={}), "tools/list")
    is_kept(met(play, "carol"), "tools/list")


def test_a_client_that_knows_no_ttl_is_answered_by_the_server() -> None:
    play = Dialogue(plan())
    bob = met(play, "bob")
    is_sent(play, bob, "tools/list")
    alice = play.client("alice", "http")
    alice.meets(play.server, able=ABLE)
    for _ in range(2):
        request = alice.asks("tools/list")
        play.server.answers(play.server.is_asked("tools/list", ...), told("tools/list"))
        alice.is_answered(request, {"tools": []})


NOT_KEPT: Final = [
    told("resources/read", 0),
    told("resources/read", -1),
    told("resources/read", "60000"),
    LISTS["resources/read"] | {"resultType": "complete"},
    {"resultType": "input_required", "requestState": "s", "ttlMs": 60_000, "cacheScope": "public"},
]


@pytest.mark.parametrize("result", NOT_KEPT)
def test_what_a_server_does_not_allow_is_not_kept(result: Any) -> None:
    play = Dialogue(plan())
    alice = met(play)
    for _ in range(2):
        is_sent(play, alice, "resources/read", result)


@pytest.mark.parametrize(
    ("method", "code", "stale"),
    [
        ("tools/call", -32602, "tools/list"),
        ("prompts/get", -32601, "prompts/list"),
        ("resources/read", -32602, "resources/list"),
        ("tools/list", -32602, "tools/list"),
    ],
)
def test_an_error_that_shows_a_list_to_be_out_of_date_drops_it(method: str, code: int, stale: str) -> None:
    play = Dialogue(plan())
    alice = met(play)
    is_sent(play, alice, stale)
    params = {"name": "gone", "uri": "gone", "cursor": "gone"}
    for error in (-32603, code):
        is_kept(alice, stale)
        request = alice.asks(method, params)
        if method == "tools/call" and error == -32603:
            play.server.answers(play.server.is_asked("tools/list", ...), told("tools/list"))
        play.server.answers(play.server.is_asked(method, ...), error=error)
        alice.is_answered(request, error=error)
    is_sent(play, alice, stale)


def test_rules_of_access_hold_for_each_caller_of_a_kept_result() -> None:
    rules = AccessRules(tools=(("delete", AccessRule(groups=("admins",))),))
    play = Dialogue(plan(access=rules))
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("search", "delete")]
    admin, bob = met(play, "admin", "a", groups="admins"), met(play, "bob", "b")
    is_sent(play, admin, "tools/list", told("tools/list", tools=tools))
    request = bob.asks("tools/list")
    bob.is_answered(request, Containing({"tools": tools[:1], "cacheScope": "private"}))
    request = admin.asks("tools/list")
    admin.is_answered(request, Containing({"tools": tools}))


def test_what_is_kept_is_bounded() -> None:
    limits = Limits(cached_results_max=2, cached_result_max_bytes=2000, cache_ttl_max_s=30)
    play = Dialogue(plan(), limits=limits)
    alice = met(play)
    for method in ("tools/list", "prompts/list"):
        is_sent(play, alice, method)
    is_kept(alice, "tools/list")
    is_sent(play, alice, "resources/list")
    is_kept(alice, "tools/list")
    is_sent(play, alice, "prompts/list")
    is_sent(play, alice, "resources/read", told("resources/read", contents=["x" * 1000]))
    is_sent(play, alice, "resources/read")
    play.waits(30)
    is_sent(play, alice, "resources/read")


def test_a_server_of_a_plan_that_keeps_nothing_is_always_asked() -> None:
    play = Dialogue(ServerPlan(id="files", kind=Kind.HTTP, era=Era.STATELESS))
    alice = met(play)
    for _ in range(2):
        is_sent(play, alice, "resources/read")
    assert play.engine.report()[0].cache_misses == 0


def test_a_profile_reads_lists_and_resources_that_are_kept() -> None:
    profile = Profile(id="all", servers=(ProfileServer("files"),))
    play = Dialogue(plan(), profiles=(profile,))
    alice = met(play)
    is_sent(play, alice, "resources/read")
    listed = told("resources/list", resources=[{"uri": URI, "name": "today"}])
    is_sent(play, alice, "resources/list", listed)
    bob = play.client("bob", "http", server="all", era=Era.STATELESS)
    request = bob.asks("resources/list")
    play.server.starts(able=ABLE)
    shown = f"files+{URI}"
    bob.is_answered(request, Containing({"resources": [Containing({"uri": shown, "name": "today"})]}))
    request = bob.asks("resources/read", {"uri": shown})
    bob.is_answered(request, Containing({"contents": [{"uri": shown, "text": "milk"}]}))
