"""Tests of requests, subscriptions and questions that are open when a server is lost: all are settled, and none is
kept."""

from __future__ import annotations

import json

import pytest
from driving import GONE, Driver, connect, driver, error, result
from isthmus.core.base.effects import Spawn
from isthmus.core.base.events import Cause, End
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind
from isthmus.core.base.revisions import Era
from isthmus.core.jsonrpc import envelope
from stateless_driving import assert_idle, bridge, modern, served, start_legacy_server, start_stateless_server
from stateless_server import grant
from task_clients import handle
from task_scenes import scene
from task_servers import text

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


def lose(world: Driver) -> None:
    world.end(world.last_dial(Spawn).channel, GONE)


# --- Subscriptions ----------------------------------------------------------------------------------------------------


def test_a_cancelled_subscription_is_not_made_when_the_server_is_back() -> None:
    """The client cancelled before the lost server had answered."""
    world, client, _ = served()
    channel = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:1"]})
    world.take_sent("resources/subscribe")
    lose(world)
    client.cancel(channel)
    client.request("tools/list")
    start_legacy_server(world)
    assert world.was_sent("tools/list")
    assert not world.was_sent("resources/subscribe")


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_subscription_that_the_lost_server_did_not_answer_is_confirmed_by_the_next(is_refused: bool) -> None:
    """The next server is asked again, and its answer decides the confirmation, before its deadline."""
    world, client, _ = served()
    channel = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:1"]})
    world.take_sent("resources/subscribe")
    lose(world)
    start_legacy_server(world)
    again = world.take_sent("resources/subscribe")
    assert again.frame["params"] == {"uri": "a:1"}
    assert client.notifications(channel) == []
    world.reply(again, error(str(again.id), '{"code":-32602,"message":"no"}') if is_refused else result(str(again.id)))
    (confirmation,) = client.notifications(channel)
    assert confirmation["method"] == ACKNOWLEDGED
    assert confirmation["params"]["notifications"] == ({} if is_refused else {"resourceSubscriptions": ["a:1"]})


@pytest.mark.parametrize("cause", [Cause(End.BROKEN, "reset"), Cause(End.REFUSED, status=500)])
def test_a_subscription_that_the_next_server_cannot_be_asked_for_is_not_waited_for(cause: Cause) -> None:
    """The confirmation comes at once, before its deadline."""
    world, client, _ = served("http")
    channel = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:1"]})
    world.end(world.take_sent("resources/subscribe").channel, Cause(End.REFUSED, status=404))
    start_legacy_server(world)
    again = world.take_sent("resources/subscribe")
    assert client.notifications(channel) == []
    world.end(again.channel, cause)
    (confirmation,) = client.notifications(channel)
    assert (confirmation["method"], confirmation["params"]["notifications"]) == (ACKNOWLEDGED, {})


def test_a_subscription_that_a_stateless_server_grants_after_a_loss_is_confirmed() -> None:
    world = bridge()
    client = modern(world, "pipe")
    client.request("server/discover")
    start_stateless_server(world)
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["a:1"]}
    channel = client.request("subscriptions/listen", notifications=wanted)
    world.wait(Limits().listen_pause_s)
    world.take_sent("subscriptions/listen")
    lose(world)
    start_stateless_server(world)
    grant(world, world.take_sent("subscriptions/listen"))
    (confirmation,) = client.notifications(channel)
    assert (confirmation["method"], confirmation["params"]["notifications"]) == (ACKNOWLEDGED, wanted)


@pytest.mark.parametrize("how", ["answer", "error", "broken", "refused"])
def test_a_resource_is_subscribed_again_only_once_it_is_unsubscribed(how: str) -> None:
    """Requests on separate connections may overtake each other, which would leave the client unsubscribed."""
    world, client, _ = served("http")
    first = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:1"]})
    world.answer(world.take_sent("resources/subscribe"))
    client.cancel(first)
    leaving = world.take_sent("resources/unsubscribe")
    again = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:1"]})
    assert not world.was_sent("resources/subscribe")
    assert client.notifications(again) == []
    if how == "answer":
        world.answer(leaving)
    elif how == "error":
        world.reply(leaving, error(str(leaving.id), '{"code":-32602,"message":"no"}'))
    else:
        cause = Cause(End.BROKEN, "reset") if how == "broken" else Cause(End.REFUSED, status=500)
        world.end(leaving.channel, cause)
    world.answer(world.take_sent("resources/subscribe"))
    (confirmation,) = client.notifications(again)
    assert confirmation["params"]["notifications"] == {"resourceSubscriptions": ["a:1"]}
    assert not world.unread


def test_a_client_that_leaves_before_it_is_subscribed_again_leaves_nothing() -> None:
    world, client, _ = served("http")
    first = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:1"]})
    world.answer(world.take_sent("resources/subscribe"))
    client.cancel(first)
    leaving = world.take_sent("resources/unsubscribe")
    client.cancel(client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:1"]}))
    world.answer(leaving)
    assert not world.was_sent("resources/subscribe")
    while world.was_sent("resources/unsubscribe"):
        world.answer(world.take_sent("resources/unsubscribe"))
    assert_idle(world)


# --- Requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_run", [True, False])
def test_a_request_that_may_have_run_has_an_unknown_outcome(has_run: bool) -> None:
    """The second attempt at a list was never sent; the first may have been."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/list")
    unreachable = Cause(End.UNREACHABLE, "refused", unsent=True)
    world.end(world.take_sent("tools/list").channel, Cause(End.BROKEN, "reset") if has_run else unreachable)
    world.end(world.take_sent("tools/list").channel, unreachable)
    failure = json.loads(world.messages(channel)[-1])["error"]
    assert failure["data"]["outcome"] == ("unknown" if has_run else "not_executed")
    assert ("may have run" in failure["message"]) == has_run


@pytest.mark.parametrize("cut", range(1, 6))
@pytest.mark.parametrize("is_marked", [True, False])
def test_a_byte_order_mark_may_be_cut(cut: int, is_marked: bool) -> None:
    """A large answer comes in pieces; where they are cut does not show."""
    world = driver()
    client = connect(world, "pipe", "pipe")
    client.request("1", "tools/list")
    received = world.take_sent("tools/list")
    whole = (envelope.MARK if is_marked else b"") + result(str(received.id), '{"tools":[]}')
    world.send_pieces(received.channel, *(whole[at : at + 1] for at in range(cut)), whole[cut:])
    assert client.pipe is not None
    assert world.only_message(client.pipe) == {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}


# --- Questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
@pytest.mark.parametrize("is_plain", [True, False])
def test_a_question_of_a_task_is_withdrawn_when_the_task_is_over(kind: Kind, is_plain: bool) -> None:
    """A client that knows no tasks, and waits for its call, gets the withdrawal too."""
    world = scene(Era.STATELESS, kind, has_tasks=True, insists=True)
    party = world.party(Era.HANDSHAKE, is_plain=is_plain)
    asked = party.call("a", "must")
    world.run()
    work = world.server.accept(world.server.work("a"))
    world.server.ask(work, "q")
    world.wait(3.0)
    if not is_plain:
        party.result(handle(asked))
        world.run()
    (question,) = party.received("elicitation/create")
    assert party.received("notifications/cancelled") == []
    world.server.finish(work, text("done"))
    world.wait(3.0)
    assert [cancelled["params"]["requestId"] for cancelled in party.received("notifications/cancelled")] == [
        question["id"]
    ]
    assert not is_plain or asked.result["content"][0]["text"] == "done"
