"""Dialogues of clients whose subscription (`subscriptions/listen`) is one of their server too."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import META, Client, Request, Server
from isthmus.core import Cause, End, Era, Kind, Limits, ServerPlan

LISTEN, CHANGED, UPDATED = "subscriptions/listen", "tools/list_changed", "resources/updated"
TOOLS = {"toolsListChanged": True}
WANTED = TOOLS | {"resourceSubscriptions": ["a:1", "a:2"]}
DONE = {"resultType": "complete"}
UPS = pytest.mark.parametrize("up", [Kind.PIPE, Kind.HTTP], ids=["pipe", "http"])
DOWNS = pytest.mark.parametrize("down", ["pipe", "http"])


def meeting(
    down: str = "http", up: Kind = Kind.PIPE, limits: Limits | None = None, **plan: Any
) -> tuple[Dialogue, Server, Client]:
    play = Dialogue(ServerPlan(id="files", kind=up, era=Era.STATELESS, **plan), limits=limits)
    alice = play.client("alice", down, era=Era.STATELESS)
    alice.meets(play.server, able={})
    return play, play.server, alice


def listens(client: Client, files: Server, wanted: Any = WANTED, *, id: Any = None) -> tuple[Request, Request]:
    """A client listens. Returns its request, and the one of the server."""
    listen = client.asks(LISTEN, {"notifications": wanted}, id=id)
    return listen, files.is_asked(LISTEN, {"notifications": wanted})


def live(client: Client, files: Server, *, id: Any = None) -> tuple[Request, Request]:
    listen, asked = listens(client, files, id=id)
    files.grants(asked)
    client.is_granted(listen, WANTED)
    return listen, asked


def tagged(id: Any, **meta: Any) -> dict[str, Any]:
    return {"_meta": {META + "subscriptionId": id} | meta}


def is_cut_off(play: Dialogue, client: Client, listen: Request, down: str) -> None:
    """The client's stream ends without a response."""
    if down == "pipe":
        client.is_cancelled(listen)
    else:
        client.is_closed(listen)
    assert play.engine.exchange_count == 0


# --- What passes ------------------------------------------------------------------------------------------------------


@UPS
@DOWNS
@pytest.mark.parametrize("id", [7, "7", "mine", 1.0])
def test_all_that_the_server_sends_reaches_the_client_under_its_own_id(up: Kind, down: str, id: Any) -> None:
    """The server grants a part, with members of its own, and notifies of what the proxy does not know."""
    play, files, alice = meeting(down, up)
    listen, asked = listens(alice, files, WANTED | {"vendor": [1]}, id=id)
    assert play.engine.exchange_count == 0
    granted = {"notifications": {"resourceSubscriptions": [], "vendor": 1}}
    files.notifies("subscriptions/acknowledged", granted | tagged(asked.id, note=1), on=asked)
    alice.is_notified("subscriptions/acknowledged", granted | tagged(id, note=1), on=listen)
    for method, params in ((CHANGED, {}), (UPDATED, {"uri": "a:1/b", "x": 1}), ("vendor/changed", {"y": [1.0]})):
        files.tells(asked, method, params)
        alice.is_told(listen, method, params)
    play.waits(Limits().reply_timeout_s * 3)
    files.tells(asked, CHANGED, {})
    alice.is_told(listen, CHANGED, {})


@UPS
@DOWNS
def test_the_servers_result_ends_the_subscription(up: Kind, down: str) -> None:
    """A pipe also gets its cancellation, once."""
    play, files, alice = meeting(down, up)
    listen, asked = live(alice, files, id="mine")
    files.answers(asked, DONE | tagged(asked.id, vendor=1))
    alice.is_answered(listen, DONE | tagged(listen.id, vendor=1))
    if down == "pipe":
        alice.is_cancelled(listen)
    if up is Kind.PIPE:
        files.notifies("cancelled", {"requestId": asked.id})
        files.tells(asked, CHANGED, {})
    assert play.engine.exchange_count == 0
    live(alice, files)


@UPS
@DOWNS
@pytest.mark.parametrize("is_live", [False, True], ids=["opening", "live"])
def test_the_servers_error_reaches_the_client(up: Kind, down: str, is_live: bool) -> None:
    _, files, alice = meeting(down, up)
    listen, asked = live(alice, files) if is_live else listens(alice, files)
    files.answers(asked, error=-32603)
    alice.is_answered(listen, error={"code": -32603, "message": "no"})


@UPS
@DOWNS
def test_the_servers_cancellation_ends_the_stream_without_a_response(up: Kind, down: str) -> None:
    """Over HTTP the server's stream is closed as well, in case it leaves it open."""
    play, files, alice = meeting(down, up)
    listen, asked = live(alice, files)
    files.notifies("cancelled", {"requestId": asked.id, "reason": "full"}, on=asked)
    if down == "pipe":
        alice.is_notified("cancelled", {"requestId": listen.id, "reason": "full"})
    else:
        alice.is_closed(listen)
    if up is Kind.PIPE:
        files.answers(asked, DONE | tagged(asked.id))
    else:
        files.is_closed(asked)
    assert play.engine.exchange_count == 0


@UPS
@DOWNS
def test_a_cancellation_before_the_acknowledgment_is_an_error(up: Kind, down: str) -> None:
    """No stream has begun that could end."""
    _, files, alice = meeting(down, up)
    listen, asked = listens(alice, files)
    files.notifies("cancelled", {"requestId": asked.id}, on=asked)
    if up is Kind.HTTP:
        files.is_closed(asked)
    alice.is_answered(listen, error=-32603)


@UPS
@DOWNS
@pytest.mark.parametrize("is_live", [False, True], ids=["opening", "live"])
def test_the_clients_cancellation_reaches_the_server(up: Kind, down: str, is_live: bool) -> None:
    play, files, alice = meeting(down, up)
    listen, asked = live(alice, files) if is_live else listens(alice, files)
    alice.cancels(listen)
    files.is_cancelled(asked)
    if up is Kind.PIPE:
        files.tells(asked, CHANGED, {})
    assert play.engine.exchange_count == 0


@UPS
def test_each_client_has_its_own_subscription(up: Kind) -> None:
    """A change reaches the client whose subscription it names, and no other."""
    play, files, alice = meeting(up=up)
    bob = play.client("bob", "http", era=Era.STATELESS)
    first, hers = live(alice, files)
    second, his = live(bob, files)
    files.tells(his, CHANGED, {})
    bob.is_told(second, CHANGED, {})
    bob.cancels(second)
    files.is_cancelled(his)
    if up is Kind.PIPE:
        files.tells(his, CHANGED, {})
    files.tells(hers, CHANGED, {})
    alice.is_told(first, CHANGED, {})


@UPS
def test_a_change_without_a_subscription_goes_to_those_that_want_it(up: Kind) -> None:
    """A notification on the stream of a subscription is that one's. Before the acknowledgment nothing is sent."""
    _, files, alice = meeting("pipe", up)
    first, one = live(alice, files)
    alice.asks("prompts/get", {"name": "a"})
    call = files.is_asked("prompts/get", {"name": "a"})
    files.notifies(CHANGED, on=call)
    alice.is_told(first, CHANGED, {})
    second, other = listens(alice, files, TOOLS)
    files.notifies(UPDATED, {"uri": "a:1/b"}, on=one)
    alice.is_told(first, UPDATED, {"uri": "a:1/b"})
    if up is Kind.PIPE:
        files.notifies("prompts/list_changed")
        files.notifies(CHANGED)
        alice.is_told(first, CHANGED, {})
    files.grants(other)
    alice.is_granted(second, TOOLS)
    files.notifies(CHANGED, on=other)
    if up is Kind.PIPE:
        alice.is_told(first, CHANGED, {})
    alice.is_told(second, CHANGED, {})


# --- Loss of the server -----------------------------------------------------------------------------------------------


@DOWNS
def test_a_server_that_dies_ends_the_stream_and_the_client_listens_anew(down: str) -> None:
    """The server is not started again before the client asks."""
    play, files, alice = meeting(down)
    listen, _ = live(alice, files)
    files.dies()
    is_cut_off(play, alice, listen, down)
    play.waits(60)
    again = alice.asks(LISTEN, {"notifications": WANTED})
    files.starts(able={})
    files.grants(files.is_asked(LISTEN, {"notifications": WANTED}))
    alice.is_granted(again, WANTED)


@DOWNS
@pytest.mark.parametrize("cause", [Cause(End.BROKEN), Cause(End.DONE), Cause(End.BROKEN, last_event_id="7")])
def test_a_response_that_is_cut_off_ends_the_stream(down: str, cause: Cause) -> None:
    """The stateless era resumes no stream, whatever event ids it had."""
    play, files, alice = meeting(down, Kind.HTTP)
    listen, asked = live(alice, files)
    files.breaks_off(asked, cause)
    is_cut_off(play, alice, listen, down)
    play.waits(60)
    live(alice, files)


def test_a_subscription_that_a_lost_server_did_not_acknowledge_is_sent_to_the_next() -> None:
    _, files, alice = meeting()
    listen, _ = listens(alice, files)
    files.dies()
    files.starts(able={})
    files.grants(files.is_asked(LISTEN, {"notifications": WANTED}))
    alice.is_granted(listen, WANTED)


@UPS
def test_a_server_that_never_acknowledges_is_given_up(up: Kind) -> None:
    play, files, alice = meeting(up=up)
    listen, asked = listens(alice, files)
    play.waits(Limits().reply_timeout_s)
    files.is_cancelled(asked)
    alice.is_answered(listen, error={"data": {"outcome": "unknown"}})


# --- The proxy's own part ---------------------------------------------------------------------------------------------


@UPS
@DOWNS
@pytest.mark.parametrize("is_live", [False, True], ids=["opening", "live"])
def test_a_proxy_that_drains_ends_each_subscription_with_a_result(up: Kind, down: str, is_live: bool) -> None:
    play, files, alice = meeting(down, up)
    listen, asked = live(alice, files) if is_live else listens(alice, files)
    play.happens(play.engine.receive_drain)
    files.is_cancelled(asked)
    alice.is_answered(listen, DONE | tagged(listen.id))
    if down == "pipe":
        alice.is_cancelled(listen)
    assert play.engine.exchange_count == 0


@DOWNS
def test_subscriptions_that_pass_and_their_resources_are_bounded(down: str) -> None:
    """One that ends makes room; a refused one takes none, and does not reach the server."""
    limits = Limits(listens_per_session_max=2, subscriptions_per_session_max=3, subscriptions_per_session_max_bytes=9)
    _, files, alice = meeting(down, limits=limits)
    first, asked = live(alice, files)
    for wanted in (["a:3", "a:4"], ["a:34567"]):
        refused = alice.asks(LISTEN, {"notifications": {"resourceSubscriptions": wanted}})
        alice.is_answered(refused, error=-31007)
    listens(alice, files, {"resourceSubscriptions": ["a:3"]})
    alice.is_answered(alice.asks(LISTEN, {"notifications": TOOLS}), error=-31007)
    alice.cancels(first)
    files.is_cancelled(asked)
    listens(alice, files)


def test_an_idle_process_with_a_subscription_is_not_stopped() -> None:
    play, files, alice = meeting(idle_stop_s=60.0)
    listen, asked = live(alice, files)
    play.waits(600)
    alice.cancels(listen)
    files.is_cancelled(asked)
    play.waits(60)
    files.is_closed()
