"""Dialogues of clients of the handshake era with a server of the stateless era about what has changed: one open
`subscriptions/listen` of the proxy covers all of them."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Request, Server
from expected_values import Containing
from isthmus.core import Cause, End, Era, Kind, Limits, ServerPlan, Sharing

ABLE = {"tools": {"listChanged": True}, "resources": {"listChanged": True, "subscribe": True}, "logging": {}}
LISTS = {"toolsListChanged": True, "resourcesListChanged": True}
A, B, C = {"uri": "a:1"}, {"uri": "a:2"}, {"uri": "a:3"}
DONE = {"resultType": "complete"}
UNSENT = Cause(End.BROKEN, "the connection ended before a response", stale=True, unsent=True)
SUBSCRIBE, UNSUBSCRIBE, LISTEN = "resources/subscribe", "resources/unsubscribe", "subscriptions/listen"
UPDATED, TOOLS = "resources/updated", "tools/list_changed"
UPS = pytest.mark.parametrize("up", [Kind.PIPE, Kind.HTTP], ids=["pipe", "http"])
DOWNS = pytest.mark.parametrize("down", ["pipe", "http"])


def meeting(
    down: str, up: Kind, *, able: Any = ABLE, limits: Limits | None = None, **plan: Any
) -> tuple[Dialogue, Server, Client]:
    play = Dialogue(ServerPlan(id="files", kind=up, era=Era.STATELESS, **plan), limits=limits)
    (alice := play.client("alice", down)).meets(play.server, able=able)
    if down == "http":
        alice.listens()
    return play, play.server, alice


def lists(client: Client, server: Server) -> None:
    """A client reads the lists that the proxy then announces changes of."""
    for method, array in (("tools/list", "tools"), ("resources/list", "resources")):
        request = client.asks(method)
        server.answers(server.is_asked(method), DONE | {array: [], "ttlMs": 0, "cacheScope": "private"})
        client.is_answered(request, ...)


def wanted(*resources: dict[str, str], lists: dict[str, Any] = LISTS) -> dict[str, Any]:
    """Returns the params of a `subscriptions/listen`."""
    named = {"resourceSubscriptions": [each["uri"] for each in resources]} if resources else {}
    return {"notifications": lists | named}


def asked_anew(play: Dialogue, *resources: dict[str, str]) -> Request:
    """The proxy's next `subscriptions/listen` comes, some moments after a change, and is for these resources."""
    play.waits(0.05)
    return play.server.is_asked(LISTEN, wanted(*resources))


def subscribed(play: Dialogue, client: Client, *resources: dict[str, str]) -> None:
    """A client subscribes to the last of these resources; the server grants all."""
    request, old = client.asks(SUBSCRIBE, resources[-1]), play.server.listen
    play.server.grants(asked_anew(play, *resources))
    play.server.is_cancelled(old)
    client.is_answered(request)


def lose(server: Server, listen: Request) -> None:
    """Loses the response, or with the process everything; another process is discovered."""
    if server.is_url:
        server.breaks_off(listen)
    else:
        server.dies()
        server.starts(able=ABLE)


# --- Subscribing ------------------------------------------------------------------------------------------------------


@UPS
@DOWNS
@pytest.mark.parametrize(
    ("able", "lists"),
    [(ABLE, LISTS), ({"prompts": {"listChanged": True}}, {"promptsListChanged": True}), ({"tools": {}}, None)],
)
def test_one_listen_has_all_lists_that_the_server_offers(down: str, up: Kind, able: Any, lists: Any) -> None:
    """A lasting request over HTTP is kept apart from the connections of calls."""
    _, files, alice = meeting(down, up, able=able)
    assert getattr(files, "listen", None) is None if lists is None else files.listen.params["notifications"] == lists
    alice.asks("prompts/list")
    call = files.is_asked("prompts/list")
    assert up is Kind.PIPE or lists is None or (files.listen.post.is_lasting, call.post.is_lasting) == (True, False)


@UPS
@DOWNS
def test_subscriptions_at_once_make_one_listen_and_no_update_is_missed(down: str, up: Kind) -> None:
    """Each is answered when it is granted; the older request ends only then. One that comes later waits for the next
    request, and one that is granted already is answered at once."""
    play, files, alice = meeting(down, up)
    old = files.listen
    first = alice.asks(SUBSCRIBE, A)
    play.waits(0.04)
    second = alice.asks(SUBSCRIBE, B)
    new = asked_anew(play, A, B)
    later = alice.asks(SUBSCRIBE, C)
    files.tells(old, TOOLS)
    alice.is_notified(TOOLS, ...)
    files.grants(new)
    files.is_cancelled(old)
    alice.is_answered(first)
    alice.is_answered(second)
    if up is Kind.PIPE:
        files.tells(old, TOOLS)
    newest = asked_anew(play, A, B, C)
    files.tells(new, UPDATED, B)
    alice.is_notified(UPDATED, B)
    files.grants(newest)
    files.is_cancelled(new)
    alice.is_answered(later)
    files.grants(newest, {})
    files.tells(newest, UPDATED, C)
    alice.is_notified(UPDATED, C)
    again = alice.asks(SUBSCRIBE, A)
    play.waits(0.05)
    alice.is_answered(again)
    play.waits(1.0)


@UPS
def test_a_resource_that_is_not_granted_is_refused_and_not_asked_for_again(up: Kind) -> None:
    play, files, alice = meeting("pipe", up)
    good, bad, old = alice.asks(SUBSCRIBE, A), alice.asks(SUBSCRIBE, B), files.listen
    files.grants(asked_anew(play, A, B), wanted(A)["notifications"])
    files.is_cancelled(old)
    alice.is_answered(good)
    alice.is_answered(bad, error=-32602)
    alice.asks(SUBSCRIBE, C)
    asked_anew(play, A, C)


@UPS
@pytest.mark.parametrize(
    "able",
    [{}, {"resources": {}}, {"resources": {"listChanged": True}}, {"resources": {"subscribe": False}}],
)
def test_a_server_without_subscribe_is_not_asked(able: Any, up: Kind) -> None:
    play, _, alice = meeting("pipe", up, able=able)
    alice.is_answered(alice.asks(SUBSCRIBE, A), error=-32601)
    play.waits(1.0)


def test_subscriptions_are_bounded() -> None:
    play, _, alice = meeting("pipe", Kind.PIPE, limits=Limits(subscriptions_per_session_max=2))
    subscribed(play, alice, A)
    subscribed(play, alice, A, B)
    alice.is_answered(alice.asks(SUBSCRIBE, C), error=-32602)
    alice.is_answered(alice.asks(UNSUBSCRIBE, A))
    subscribed(play, alice, B, C)


@UPS
def test_unsubscribe_is_answered_at_once_and_the_listen_shrinks_later(up: Kind) -> None:
    """The request ends with the last subscription."""
    play, files, alice = meeting("pipe", up, able={"resources": {"subscribe": True}})
    first, second = alice.asks(SUBSCRIBE, A), alice.asks(SUBSCRIBE, B)
    play.waits(0.05)
    files.grants(old := files.is_asked(LISTEN, wanted(A, B, lists={})))
    alice.is_answered(first)
    alice.is_answered(second)
    alice.is_answered(alice.asks(UNSUBSCRIBE, A))
    play.waits(0.05)
    files.grants(new := files.is_asked(LISTEN, wanted(B, lists={})))
    files.is_cancelled(old)
    alice.is_answered(alice.asks(UNSUBSCRIBE, B))
    play.waits(0.05)
    files.is_cancelled(new)


@UPS
def test_a_pending_subscription_ends_with_unsubscribe_or_its_cancellation(up: Kind) -> None:
    """Over HTTP two requests may arrive in either order. Other pending subscriptions go on waiting."""
    play, files, alice = meeting("http", up)
    dropped, kept, cancelled, old = *(alice.asks(SUBSCRIBE, each) for each in (A, B, C)), files.listen
    alice.is_answered(alice.asks(UNSUBSCRIBE, {"uri": "a:4"}))
    unsubscribing = alice.asks(UNSUBSCRIBE, A)
    alice.is_answered(dropped)
    alice.is_answered(unsubscribing)
    new = asked_anew(play, B, C)
    alice.cancels(cancelled)
    alice.is_closed(cancelled)
    files.grants(new)
    files.is_cancelled(old)
    alice.is_answered(kept)


# --- Losses -----------------------------------------------------------------------------------------------------------


@UPS
@pytest.mark.parametrize("how", ["result", "cut", "cancelled"])
def test_a_listen_that_ends_is_opened_again_with_a_change_for_each_part(how: str, up: Kind) -> None:
    play, files, alice = meeting("pipe", up)
    lists(alice, files)
    subscribed(play, alice, A)
    if how == "result":
        files.answers(files.listen, DONE)
    elif how == "cancelled":
        files.cancels(files.listen)
    else:
        lose(files, files.listen)
    if how != "cut" or files.is_url:
        play.waits(2.0)
    files.grants(files.is_asked(LISTEN, wanted(A)))
    alice.is_notified(TOOLS, ...)
    alice.is_notified("resources/list_changed", ...)
    alice.is_notified(UPDATED, A)


@UPS
@pytest.mark.parametrize("how", ["error", "result"])
def test_a_larger_listen_that_is_refused_leaves_the_old_one(how: str, up: Kind) -> None:
    play, files, alice = meeting("pipe", up)
    subscribed(play, alice, A)
    old, request = files.listen, alice.asks(SUBSCRIBE, B)
    files.answers(asked_anew(play, A, B), DONE, error=-32603 if how == "error" else None)
    alice.is_answered(request, error=-32602)
    files.tells(old, UPDATED, A)
    alice.is_notified(UPDATED, A)


@UPS
def test_a_pending_subscription_outlives_the_loss_of_the_server(up: Kind) -> None:
    play, files, alice = meeting("pipe", up)
    lists(alice, files)
    request, old = alice.asks(SUBSCRIBE, A), files.listen
    lose(files, asked_anew(play, A))
    if files.is_url:
        alice.is_answered(request, error=-32602)
        files.tells(old, TOOLS)
        return alice.is_notified(TOOLS, ...)
    files.grants(files.is_asked(LISTEN, wanted(A)))
    alice.is_notified(TOOLS, ...)
    alice.is_notified("resources/list_changed", ...)
    play.waits(0.1)
    return alice.is_answered(request)


@UPS
def test_a_listen_that_ends_during_its_replacement_is_not_repeated(up: Kind) -> None:
    """Clients get nothing before the replacement is acknowledged, and then a change for each list."""
    play, files, alice = meeting("http", up)
    lists(alice, files)
    request = alice.asks(SUBSCRIBE, A)
    new = asked_anew(play, A)
    files.answers(files.listen, DONE)
    play.waits(10.0)
    files.grants(new)
    alice.is_answered(request)
    alice.is_notified(TOOLS, ...)
    alice.is_notified("resources/list_changed", ...)


def test_pauses_grow_while_listens_fail() -> None:
    play, files, _ = meeting("pipe", Kind.HTTP)
    files.answers(files.listen)
    for pause in (1.0, 2.0, 4.0, 8.0, 16.0):
        play.waits(pause - 0.1)
        play.waits(0.1)
        files.answers(files.is_asked(LISTEN), error=-32603)


@UPS
@pytest.mark.parametrize("how", ["silent", "refused"])
def test_a_server_that_does_not_confirm_does_not_hold_up_calls(how: str, up: Kind) -> None:
    """First requests wait one second for the acknowledgement. A refused listen is repeated later."""
    play = Dialogue(ServerPlan(id="files", kind=up, era=Era.STATELESS))
    files, alice = play.server, play.client("alice")
    greeting = alice.greets()
    files.starts(able=ABLE)
    alice.is_answered(greeting, ...)
    listen = files.is_asked(LISTEN)
    alice.asks("prompts/list")
    if how == "silent":
        play.waits(0.99)
        play.waits(0.01)
    elif files.is_url:
        files.refuses(listen, 503)
    else:
        files.answers(listen, error=-32603)
    files.is_asked("prompts/list")
    if how == "refused":
        play.waits(5.0)
        files.is_asked(LISTEN, wanted())


# --- Stale connections ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_first", [True, False])
def test_a_listen_that_was_not_sent_is_repeated_under_a_new_id(is_first: bool) -> None:
    """Clients get what they would have got from the first request. A replaced one is not repeated."""
    play, files, alice = meeting("http", Kind.HTTP)
    old, first = files.listen, alice.asks(SUBSCRIBE, A)
    lost = asked_anew(play, A)
    if is_first:
        files.breaks_off(lost, UNSENT)
        new = files.is_asked(LISTEN, wanted(A))
        assert new.id != lost.id
        files.grants(new)
        files.is_cancelled(old)
        alice.is_answered(first)
        files.tells(new, UPDATED, A)
        return alice.is_notified(UPDATED, A)
    second = alice.asks(SUBSCRIBE, B)
    new = asked_anew(play, A, B)
    files.breaks_off(lost, UNSENT)
    files.grants(new)
    files.is_cancelled(old)
    alice.is_answered(first)
    return alice.is_answered(second)


def test_the_first_listen_is_repeated_before_anything_else() -> None:
    play = Dialogue(ServerPlan(id="files", kind=Kind.HTTP, era=Era.STATELESS))
    files, alice = play.server, play.client("alice")
    greeting = alice.greets()
    files.starts(able=ABLE)
    alice.is_answered(greeting, ...)
    listen = files.is_asked(LISTEN)
    call = alice.asks("prompts/list")
    files.breaks_off(listen, UNSENT)
    files.grants(files.is_asked(LISTEN))
    files.answers(files.is_asked("prompts/list"), DONE | {"prompts": []})
    alice.is_answered(call, Containing({"prompts": []}))


# --- Many sessions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.SOCKET])
@pytest.mark.parametrize("sharing", [Sharing.CONCURRENT, Sharing.SERIAL])
def test_clients_that_share_a_server_share_its_subscription(sharing: Sharing, kind: Kind) -> None:
    """An update goes to its subscribers, and so does one of a part of a resource; a changed list goes to all. A
    resource is dropped with its last subscriber."""
    play, files, alice = meeting("pipe", kind, sharing=sharing)
    (bob := play.client("bob")).meets(files)
    subscribed(play, alice, A)
    subscribed(play, bob, A, B)
    for resource, client in ((A, alice), (B, bob)):
        files.tells(files.listen, UPDATED, resource)
        client.is_notified(UPDATED, resource)
    files.tells(files.listen, TOOLS)
    alice.is_notified(TOOLS, ...)
    bob.is_notified(TOOLS, ...)
    again = bob.asks(SUBSCRIBE, A)
    play.waits(0.1)
    bob.is_answered(again)
    alice.is_answered(alice.asks(UNSUBSCRIBE, A))
    play.waits(0.1)
    part = {"uri": "a:1/part"}
    for resource in (A, part):
        files.tells(files.listen, UPDATED, resource)
        bob.is_notified(UPDATED, resource)
    bob.leaves()
    asked_anew(play)


# --- Another era, calls, levels ---------------------------------------------------------------------------------------


def replaced(play: Dialogue, by: Era, able: Any) -> None:
    """The process dies; the next one, which comes by itself or for a request, is of the other era."""
    files = play.server
    files.is_started()
    files.connects()
    files.answers(files.is_asked("initialize" if by is Era.STATELESS else "server/discover"), error=-32601)
    files.is_closed()
    files.era = by
    files.starts(able=able)


def test_subscriptions_and_the_log_level_outlive_a_change_of_era() -> None:
    """The level is in each request to a stateless server, and set again in a session."""
    able = {"resources": {"subscribe": True}, "logging": {}}
    play = Dialogue(ServerPlan(id="files", kind=Kind.PIPE))
    (alice := play.client("alice")).meets(files := play.server, able=able)
    for method, params in ((SUBSCRIBE, A), ("logging/setLevel", {"level": "error"})):
        request = alice.asks(method, params)
        files.answers(files.is_asked(method, params))
        alice.is_answered(request)
    files.dies()
    replaced(play, Era.STATELESS, able)
    files.grants(files.is_asked(LISTEN, wanted(A, lists={})))
    listing = alice.asks("tools/list")
    asked = files.is_asked("tools/list")
    assert asked.params["_meta"]["io.modelcontextprotocol/logLevel"] == "error"
    files.answers(asked, DONE | {"tools": []})
    alice.is_answered(listing, {"tools": []})
    alice.is_answered(alice.asks("logging/setLevel", {"level": "info"}))
    request, old = alice.asks(SUBSCRIBE, B), files.listen
    play.waits(0.05)
    files.grants(files.is_asked(LISTEN, wanted(A, B, lists={})))
    files.is_cancelled(old)
    alice.is_answered(request)
    files.dies()
    replaced(play, Era.HANDSHAKE, able)
    files.is_asked("logging/setLevel", {"level": "info"})
    files.is_asked(SUBSCRIBE, A)
    files.is_asked(SUBSCRIBE, B)


@UPS
def test_each_request_has_the_log_level_that_was_set_before(up: Kind) -> None:
    _, files, alice = meeting("pipe", up)
    alice.is_answered(alice.asks("logging/setLevel", {"level": "loud"}), error=-32602)
    for level in (None, "debug", "emergency", "info"):
        if level is not None:
            alice.is_answered(alice.asks("logging/setLevel", {"level": level}))
        alice.asks("prompts/list")
        assert files.is_asked("prompts/list").params["_meta"].get("io.modelcontextprotocol/logLevel") == (
            level or "info"
        )


@UPS
def test_a_call_between_two_rounds_goes_on_while_subscriptions_change(up: Kind) -> None:
    play, files, alice = meeting("pipe", up)
    call = alice.asks("prompts/get", {"name": "t"})
    files.answers(files.is_asked("prompts/get"), {"resultType": "input_required", "requestState": "s"})
    subscribed(play, alice, A)
    play.waits(0.25)
    files.answers(files.is_asked("prompts/get", {"name": "t", "requestState": "s"}), DONE | {"messages": []})
    alice.is_answered(call, {"messages": []})


@pytest.mark.parametrize("id", [1, 99, "x", None, {}])
def test_a_server_cancels_nothing_but_its_subscriptions(id: Any) -> None:
    _, files, alice = meeting("pipe", Kind.PIPE)
    request = alice.asks("prompts/get", {"name": "t"})
    asked = files.is_asked("prompts/get")
    for named in (id, asked.id):
        files.notifies("cancelled", {"requestId": named})
    files.answers(asked, DONE | {"messages": []})
    alice.is_answered(request, {"messages": []})
