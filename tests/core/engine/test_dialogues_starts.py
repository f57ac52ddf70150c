"""Dialogues about clients that are answered while the process of their server starts (`ServerPlan.answers_early`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
from dialogue import Dialogue
from dialogue_peers import HANDSHAKE, STATELESS, Client, Request
from expected_values import Containing
from isthmus.core import Era, Kind, Limits, NameFilter, PipeOpening, ServerPlan
from isthmus.core.base.errors import UPSTREAM_UNAVAILABLE
from isthmus.core.base.plan import AccessRule, AccessRules, Affinity, Sharing

ABLE: Final[Mapping[str, Any]] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True},
}
SEARCH: Final = {"name": "search", "inputSchema": {"type": "object"}}
DELETE: Final = {"name": "delete", "inputSchema": {"type": "object"}}
TOOLS: Final = {"tools": [SEARCH]}
LISTS: Final = {
    "tools/list": ("tools", SEARCH),
    "prompts/list": ("prompts", {"name": "greet"}),
    "resources/list": ("resources", {"name": "today", "uri": "file:///today"}),
    "resources/templates/list": ("resourceTemplates", {"name": "day", "uriTemplate": "file:///{day}"}),
}
INTRODUCTION: Final = {
    "protocolVersion": HANDSHAKE,
    "capabilities": ABLE,
    "serverInfo": {"name": "files", "version": "1"},
    "instructions": "Be good.",
}


def plan(**rest: Any) -> ServerPlan:
    return ServerPlan(id="files", kind=Kind.PIPE, **{"era": Era.HANDSHAKE, "answers_early": True, **rest})


def starts(play: Dialogue, **rest: Any) -> None:
    play.server.starts(**{"able": ABLE, "instructions": "Be good.", **rest})


def learned(
    *plans: ServerPlan, able: Any = ABLE, lists: Mapping[str, Any] = {"tools/list": TOOLS}, **rest: Any
) -> tuple[Dialogue, Client]:
    """Returns a dialogue in which a first client has been told what the server says of itself, and its lists."""
    play = Dialogue(*(plans or (plan(),)))
    alice = play.client("alice", **rest)
    greeting = alice.greets()
    starts(play, able=able)
    alice.is_answered(greeting, INTRODUCTION | {"capabilities": able})
    alice.notifies("initialized")
    for method, result in lists.items():
        lists_anew(play, alice, method, result)
    return play, alice


def lists_anew(play: Dialogue, client: Client, method: str = "tools/list", result: Any = TOOLS) -> None:
    """Expects that a list comes from the server."""
    request = client.asks(method)
    play.server.answers(play.server.is_asked(method), result)
    client.is_answered(request, result)


def is_listed_early(client: Client, result: Any = TOOLS, method: str = "tools/list") -> None:
    """Expects that a list is answered without the server."""
    client.is_answered(client.asks(method), result)


def meets_early(client: Client, introduction: Any = INTRODUCTION) -> Request:
    """Finishes the handshake of a client without its server, whose start is expected next."""
    greeting = client.greets()
    client.is_answered(greeting, introduction)
    client.play.server.is_started()
    client.notifies("initialized")
    return greeting


def is_compared(play: Dialogue, result: Any = TOOLS, method: str = "tools/list") -> None:
    """Expects that the server is asked for a list that clients have already."""
    play.server.answers(play.server.is_asked(method, {}), result)


def finishes(play: Dialogue, **rest: Any) -> None:
    """Finishes the start of the process."""
    play.server.connects()
    play.server.is_greeted(**{"able": ABLE, "instructions": "Be good.", **rest})


# --- The server is as it was ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_initialize_is_answered_while_the_process_starts(down: str) -> None:
    play, _ = learned(lists={}, down=down)
    bob = play.client("bob", down)
    meets_early(bob)
    bob.is_answered(bob.asks("ping"), {})
    call = bob.asks("tools/call", {"name": "search"})
    play.server.connects()
    greeting = play.server.is_asked("initialize", {"protocolVersion": HANDSHAKE, "capabilities": bob.able})
    play.server.answers(greeting, INTRODUCTION)
    play.server.is_notified("initialized")
    play.server.answers(play.server.is_asked("tools/call", {"name": "search"}), {"content": []})
    bob.is_answered(call, {"content": []})


@pytest.mark.parametrize("method", LISTS)
def test_a_list_is_answered_while_the_process_starts_and_compared_afterwards(method: str) -> None:
    array, entry = LISTS[method]
    play, _ = learned(lists={method: {array: [entry]}})
    bob = play.client("bob")
    meets_early(bob)
    is_listed_early(bob, {array: [entry]}, method)
    is_listed_early(bob, {array: [entry]}, method)
    finishes(play)
    is_compared(play, {array: [entry], "_meta": {}}, method)
    lists_anew(play, bob, method, {array: [entry]})


def test_what_the_driver_learned_is_for_everybody() -> None:
    play = Dialogue(plan())
    probe = play.client("probe", able={})
    probe.pipe = probe.opens(PipeOpening("files", is_own=True, is_brief=True, sees_hidden=True))
    greeting = probe.greets()
    starts(play)
    probe.is_answered(greeting, INTRODUCTION)
    probe.notifies("initialized")
    lists_anew(play, probe)
    probe.leaves()
    play.server.is_closed()
    for name in ("alice", "bob"):
        client = play.client(name, principal=name, able={})
        meets_early(client)
        is_listed_early(client)
        client.leaves()
        play.server.is_closed()


def test_the_drivers_own_sessions_hear_the_server_itself() -> None:
    play, _ = learned()
    probe = play.client("probe")
    probe.pipe = probe.opens(PipeOpening("files", is_own=True))
    greeting = probe.greets()
    starts(play)
    probe.is_answered(greeting, INTRODUCTION)
    lists_anew(play, probe)


def test_a_list_that_comes_after_a_call_waits() -> None:
    """The call may change it."""
    play, _ = learned()
    bob = play.client("bob")
    meets_early(bob)
    level = bob.asks("logging/setLevel", {"level": "info"})
    is_listed_early(bob)
    call = bob.asks("tools/call", {"name": "search"})
    listing = bob.asks("tools/list")
    finishes(play)
    methods = ("tools/list", "logging/setLevel", "tools/call", "tools/list")
    compared, levelled, called, listed = [play.server.is_asked(method) for method in methods]
    play.server.answers(compared, TOOLS)
    play.server.answers(levelled)
    bob.is_answered(level)
    play.server.answers(called, {"content": []})
    bob.is_answered(call, {"content": []})
    play.server.answers(listed, {"tools": []})
    bob.is_answered(listing, {"tools": []})


def test_a_list_of_a_process_that_was_called_is_not_learned() -> None:
    play, alice = learned(lists={})
    call = alice.asks("tools/call", {"name": "enable"})
    play.server.answers(play.server.is_asked("tools/call"), {"content": []})
    alice.is_answered(call, {"content": []})
    lists_anew(play, alice, result={"tools": [SEARCH, DELETE]})
    is_not_listed(play, play.client("bob"))


def is_not_listed(play: Dialogue, client: Client) -> None:
    """Expects that a list waits for the server."""
    meets_early(client)
    request = client.asks("tools/list")
    finishes(play)
    play.server.answers(play.server.is_asked("tools/list"), TOOLS)
    client.is_answered(request, TOOLS)


@pytest.mark.parametrize("params", [{"cursor": "2"}, {"_meta": {"progressToken": 1}}, {"_meta": {"x": 1}}, {"x": 1}])
def test_an_unusual_request_for_a_list_waits(params: Any) -> None:
    play, _ = learned()
    bob = play.client("bob")
    meets_early(bob)
    request = bob.asks("tools/list", params)
    finishes(play)
    play.server.answers(play.server.is_asked("tools/list"), TOOLS)
    bob.is_answered(request, TOOLS)


def test_a_list_of_several_pages_waits() -> None:
    play, _ = learned(lists={"tools/list": TOOLS | {"nextCursor": "2"}})
    is_not_listed(play, play.client("bob"))


@pytest.mark.parametrize("place", ["introduction", "list"])
def test_an_answer_with_a_path_of_its_session_is_not_learned(place: str) -> None:
    play = Dialogue(plan())
    alice = play.client("alice")
    greeting = alice.greets()
    (spawn,) = play.dialled
    text = f"files are in /w/{spawn.workspace}/ws"
    instructions = text if place == "introduction" else "Be good."
    starts(play, instructions=instructions)
    alice.is_answered(greeting, INTRODUCTION | {"instructions": instructions})
    lists_anew(play, alice, result={"tools": [SEARCH | {"description": text}]})
    bob = play.client("bob")
    if place == "list":
        return is_not_listed(play, bob)
    bob.greets()
    play.server.is_started()
    return None


def test_a_list_that_the_server_said_has_changed_waits() -> None:
    play, alice = learned()
    play.server.notifies("tools/list_changed")
    alice.is_notified("tools/list_changed", None)
    is_not_listed(play, play.client("bob"))


def test_a_process_that_was_stopped_starts_again_while_its_client_lists() -> None:
    play, alice = learned(plan(idle_stop_s=10.0))
    play.waits(11)
    play.server.is_closed()
    listing = alice.asks("tools/list")
    play.server.is_started()
    alice.is_answered(listing, TOOLS)


def test_sessions_of_a_shared_process_are_answered_while_it_starts() -> None:
    play, alice = learned(plan(sharing=Sharing.CONCURRENT))
    alice.leaves()
    play.waits(1000)
    play.server.is_closed()
    first, second = play.client("first"), play.client("second")
    meets_early(first)
    is_listed_early(first)
    second.is_answered(second.greets(), INTRODUCTION)
    second.notifies("initialized")
    is_listed_early(second)
    finishes(play)
    is_compared(play)


# --- Another client ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [{"able": {"sampling": {}}}, {"revision": "2025-06-18"}, {"principal": "bob"}],
    ids=lambda each: next(iter(each)),
)
def test_a_client_of_another_kind_waits(other: Any) -> None:
    play, _ = learned(principal="alice")
    bob = play.client("bob", **{"principal": "alice", **other})
    greeting = bob.greets()
    starts(play)
    bob.is_answered(greeting, ...)
    bob.notifies("initialized")
    lists_anew(play, bob)


def test_the_name_of_a_client_does_not_count_and_other_members_do() -> None:
    play, _ = learned()
    params = {"protocolVersion": HANDSHAKE, "capabilities": {"sampling": {}, "elicitation": {}}}
    bob = play.client("bob")
    named = bob.asks("initialize", params | {"clientInfo": {"name": "n", "version": "1"}})
    bob.is_answered(named, INTRODUCTION)
    play.server.is_started()
    carol = play.client("carol")
    greeting = carol.asks("initialize", params | {"_meta": {"tenant": 1}})
    starts(play)
    carol.is_answered(greeting, INTRODUCTION)


def test_no_principal_gets_the_list_of_another() -> None:
    """The twin of bob gets the introduction early, and waits for the list."""
    play, _ = learned(principal="alice")
    bob = play.client("bob", principal="bob")
    greeting = bob.greets()
    starts(play)
    bob.is_answered(greeting, INTRODUCTION)
    twin = play.client("twin", principal="bob")
    is_not_listed(play, twin)


def test_a_list_is_filtered_for_each_caller() -> None:
    rules = AccessRules(tools=(("delete", AccessRule(groups=("admin",))),))
    play, _ = learned(plan(access=rules), lists={}, principal="alice", groups="admin")
    admin = play.client("admin", principal="alice", groups="admin")
    meets_early(admin)
    finishes(play)
    lists_anew(play, admin, result={"tools": [SEARCH, DELETE]})
    other = play.client("other", principal="alice")
    meets_early(other)
    is_listed_early(other)


def test_hidden_names_stay_hidden() -> None:
    play, alice = learned(plan(tools=NameFilter(exclude=("delete",))), lists={})
    request = alice.asks("tools/list")
    play.server.answers(play.server.is_asked("tools/list"), {"tools": [SEARCH, DELETE]})
    alice.is_answered(request, TOOLS)
    bob = play.client("bob")
    meets_early(bob)
    is_listed_early(bob)


# --- The server is another one ----------------------------------------------------------------------------------------


def test_clients_are_notified_of_another_list_and_the_next_ones_get_that() -> None:
    play, _ = learned()
    bob = play.client("bob")
    meets_early(bob)
    is_listed_early(bob)
    finishes(play)
    is_compared(play, {"tools": [SEARCH, DELETE]})
    bob.is_notified("tools/list_changed", None)
    lists_anew(play, bob, result={"tools": [SEARCH, DELETE]})
    carol = play.client("carol")
    meets_early(carol)
    is_listed_early(carol, {"tools": [SEARCH, DELETE]})


def test_a_client_that_was_promised_nothing_is_not_notified() -> None:
    play, _ = learned(able={"tools": {}})
    bob = play.client("bob")
    meets_early(bob, INTRODUCTION | {"capabilities": {"tools": {}}})
    is_listed_early(bob)
    finishes(play, able={"tools": {}})
    is_compared(play, {"tools": [SEARCH, DELETE]})


def test_a_list_that_the_server_refuses_has_changed() -> None:
    play, _ = learned()
    bob = play.client("bob")
    meets_early(bob)
    is_listed_early(bob)
    finishes(play)
    play.server.answers(play.server.is_asked("tools/list"), error=-32601)
    bob.is_notified("tools/list_changed", None)
    is_not_listed(play, play.client("carol"))


def test_a_list_that_the_server_does_not_give_again_is_not_waited_for() -> None:
    play, _ = learned(plan(idle_stop_s=100.0))
    bob = play.client("bob")
    meets_early(bob)
    is_listed_early(bob)
    finishes(play)
    late = play.server.is_asked("tools/list")
    play.waits(90)
    play.server.answers(late, {"tools": []})


def test_another_introduction_is_for_the_next_session() -> None:
    play, _ = learned()
    bob = play.client("bob")
    meets_early(bob)
    changed = {"tools": {}, "prompts": {}}
    finishes(play, able=changed, instructions="Be better.")
    carol = play.client("carol")
    meets_early(carol, INTRODUCTION | {"capabilities": changed, "instructions": "Be better."})


def test_another_revision_is_translated() -> None:
    play, _ = learned()
    bob = play.client("bob")
    meets_early(bob)
    finishes(play, protocolVersion="2025-06-18")
    lists_anew(play, bob)


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_server_that_comes_back_in_the_other_era_is_translated(is_listed: bool) -> None:
    play, _ = learned(plan(era=None))
    bob = play.client("bob")
    meets_early(bob)
    if is_listed:
        is_listed_early(bob)
    play.server.connects()
    play.server.answers(play.server.is_asked("initialize"), error=-32601)
    play.server.is_closed()
    play.server.era = Era.STATELESS
    play.server.starts(able=ABLE)
    play.server.grants(play.server.is_asked("subscriptions/listen"))
    if is_listed:
        bob.is_notified("tools/list_changed", None)
    listing = bob.asks("tools/list")
    hints = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    play.server.answers(play.server.is_asked("tools/list"), TOOLS | hints)
    bob.is_answered(listing, TOOLS)


def test_a_list_waits_once_the_server_is_spoken_to_in_the_other_era() -> None:
    play, _ = learned(plan(era=None))
    bob = play.client("bob")
    meets_early(bob)
    play.server.connects()
    play.server.answers(play.server.is_asked("initialize"), error=-32601)
    play.server.is_closed()
    play.server.is_started()
    bob.asks("tools/list")
    play.finish()


# --- The start fails --------------------------------------------------------------------------------------------------


def test_requests_get_the_error_of_the_start_and_the_next_client_waits() -> None:
    play, alice = learned()
    alice.leaves()
    play.server.is_closed()
    bob = play.client("bob")
    meets_early(bob)
    is_listed_early(bob)
    call = bob.asks("tools/call", {"name": "search"})
    play.server.dies()
    error = {"code": UPSTREAM_UNAVAILABLE, "data": {"outcome": "not_executed"}}
    text = "the server could not be started: exited with code 1"
    bob.is_answered(call, error=error | {"message": text})
    bob.is_answered(bob.asks("tools/list"), error=error)
    carol = play.client("carol")
    greeting = carol.greets()
    play.server.is_started()
    play.server.dies()
    carol.is_answered(greeting, error=error | {"message": text})


def test_a_process_that_does_not_answer_in_time_is_given_up() -> None:
    play, _ = learned(plan(start_timeout_s=5.0))
    bob = play.client("bob")
    meets_early(bob)
    call = bob.asks("tools/call", {"name": "search"})
    play.server.connects()
    play.server.is_asked("initialize")
    play.waits(5)
    bob.is_answered(call, error=UPSTREAM_UNAVAILABLE)
    play.server.is_closed()


def test_a_session_goes_on_when_its_server_starts_after_all() -> None:
    play, _ = learned()
    bob = play.client("bob")
    meets_early(bob)
    is_listed_early(bob)
    play.server.dies()
    play.waits(60)
    listing = bob.asks("tools/list")
    starts(play)
    compared, listed = play.server.is_asked("tools/list", {}), play.server.is_asked("tools/list", None)
    play.server.answers(compared, TOOLS)
    play.server.answers(listed, TOOLS)
    bob.is_answered(listing, TOOLS)


def test_a_request_whose_session_ends_with_its_failure_is_answered_once() -> None:
    shared = plan(sharing=Sharing.CONCURRENT)
    play = Dialogue(shared, limits=Limits(children_max=1), affinity=Affinity.REQUEST)
    alice = play.client("alice", era=Era.STATELESS, principal="a")
    bob = play.client("bob", "http", era=Era.STATELESS, principal="b")
    discovered(play, alice)
    bob.is_answered(bob.asks("tools/list"), error=UPSTREAM_UNAVAILABLE)


# --- Clients without sessions -----------------------------------------------------------------------------------------


def discovered(play: Dialogue, client: Client, **rest: Any) -> None:
    request = client.asks("server/discover")
    starts(play, **rest)
    client.is_answered(request, ...)


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_a_client_without_sessions_is_answered_early(down: str) -> None:
    play = Dialogue(plan())
    alice = play.client("alice", down, era=Era.STATELESS, principal="a")
    discovered(play, alice)
    listing = alice.asks("tools/list")
    play.server.answers(play.server.is_asked("tools/list"), TOOLS)
    alice.is_answered(listing, Containing(TOOLS))
    play.server.dies()
    discovery = alice.asks("server/discover")
    play.server.is_started()
    alice.is_answered(discovery, Containing({"instructions": "Be good.", "supportedVersions": [STATELESS]}))
    alice.is_answered(alice.asks("tools/list"), Containing(TOOLS))


def test_a_client_without_sessions_discovers_early_what_others_were_told() -> None:
    """The lists may depend on the capabilities of the client, so they wait."""
    play, _ = learned(principal="alice")
    other = play.client("other", era=Era.STATELESS, principal="alice", able={"sampling": {}})
    discovery = other.asks("server/discover")
    other.is_answered(discovery, Containing({"instructions": "Be good."}))
    play.server.is_started()
    listing = other.asks("tools/list")
    finishes(play)
    play.server.answers(play.server.is_asked("tools/list"), TOOLS)
    other.is_answered(listing, Containing(TOOLS))
    stranger = play.client("stranger", era=Era.STATELESS, principal="bob", able={"sampling": {}})
    discovered(play, stranger)


def test_it_does_so_before_the_era_of_the_server_is_known() -> None:
    """The server was met by a client with sessions, and is asked whether it speaks the other era as well."""
    play, _ = learned(plan(era=None))
    other = play.client("other", era=Era.STATELESS, able={"sampling": {}})
    discovery = other.asks("server/discover")
    told = other.play.expects(other, "is answered", ..., discovery).what["result"]
    assert (told["instructions"], told["supportedVersions"]) == ("Be good.", [STATELESS])
    play.server.is_started()
    call = other.asks("tools/call", {"name": "search"})
    play.server.connects()
    play.server.answers(play.server.is_asked("server/discover"), error=-32601)
    play.server.is_closed()
    play.server.is_started()
    finishes(play)
    play.server.answers(play.server.is_asked("tools/call"), {"content": []})
    other.is_answered(call, ...)


def fresh(ttl_ms: int, scope: str = "public") -> Any:
    return {"resultType": "complete", "ttlMs": ttl_ms, "cacheScope": scope}


@pytest.mark.parametrize("ttl_ms", [0, 60_000])
def test_a_server_without_sessions_says_how_long_its_results_are_given(ttl_ms: int) -> None:
    play = Dialogue(plan(era=Era.STATELESS))
    alice = play.client("alice", era=Era.STATELESS)
    discovered(play, alice, **fresh(ttl_ms))
    listing = alice.asks("tools/list")
    play.server.answers(play.server.is_asked("tools/list"), TOOLS | fresh(ttl_ms))
    alice.is_answered(listing, Containing(TOOLS))
    play.waits(20)
    bob = play.client("bob", era=Era.STATELESS)
    discovery = bob.asks("server/discover")
    if not ttl_ms:
        return starts(play, **fresh(0)) or bob.is_answered(discovery, ...)
    play.server.is_started()
    bob.is_answered(discovery, Containing({"ttlMs": 40_000}))
    bob.is_answered(bob.asks("tools/list"), Containing(TOOLS | {"ttlMs": 40_000}))
    finishes(play, **fresh(ttl_ms))
    is_compared(play, TOOLS | fresh(ttl_ms))
    play.finish()
    return None


def test_a_subscriber_is_told_of_another_list() -> None:
    play = Dialogue(plan())
    alice = play.client("alice", era=Era.STATELESS)
    discovered(play, alice)
    listing = alice.asks("tools/list")
    play.server.answers(play.server.is_asked("tools/list"), TOOLS)
    alice.is_answered(listing, Containing(TOOLS))
    bob = play.client("bob", era=Era.STATELESS)
    listen = bob.asks("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    play.server.is_started()
    bob.is_answered(bob.asks("tools/list"), Containing(TOOLS))
    finishes(play)
    bob.is_granted(listen, {"toolsListChanged": True})
    is_compared(play, {"tools": []})
    bob.is_told(listen, "tools/list_changed")


# --- Off --------------------------------------------------------------------------------------------------------------


def test_without_the_setting_clients_wait() -> None:
    play, _ = learned(plan(answers_early=False))
    bob = play.client("bob")
    greeting = bob.greets()
    starts(play)
    bob.is_answered(greeting, INTRODUCTION)
    lists_anew(play, bob)


@pytest.mark.parametrize("kind", [Kind.HTTP, Kind.SOCKET])
def test_only_a_process_is_not_waited_for(kind: Kind) -> None:
    with pytest.raises(ValueError, match="has no process"):
        ServerPlan(id="files", kind=kind, answers_early=True)
