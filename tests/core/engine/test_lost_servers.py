"""What is under way when a server is lost is neither forgotten nor kept for nobody."""

from __future__ import annotations

import json

import pytest
from driving import GONE, Driver, connect, driver, error, result
from isthmus.core.base.effects import Cause, End, Spawn
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind
from isthmus.core.base.revisions import Era
from isthmus.core.jsonrpc import envelope
from stateless_driving import assert_idle, bridge, emerge, modern, rise, served
from stateless_server import grant
from task_clients import handle
from task_scenes import scene
from task_servers import text

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


def lose(world: Driver) -> None:
    world.end(world.last_dial(Spawn).channel, GONE)


# --- Subscriptions ----------------------------------------------------------------------------------------------------


def test_what_nobody_wants_any_more_is_not_subscribed_when_the_server_is_back() -> None:
    """Its client cancelled before the server, which was lost, had answered."""
    world, client, _ = served()
    channel = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:1"]})
    world.hear("resources/subscribe")
    lose(world)
    client.cancel(channel)
    client.request("tools/list")
    rise(world)
    assert world.hears("tools/list")
    assert not world.hears("resources/subscribe")


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_subscription_that_the_lost_server_did_not_answer_is_confirmed_by_the_next(is_refused: bool) -> None:
    """It is asked again, and what it answers is told: before the time is over that a confirmation may take."""
    world, client, _ = served()
    channel = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:1"]})
    world.hear("resources/subscribe")
    lose(world)
    rise(world)
    again = world.hear("resources/subscribe")
    assert again.frame["params"] == {"uri": "a:1"}
    assert client.told(channel) == []
    world.reply(again, error(str(again.id), '{"code":-32602,"message":"no"}') if is_refused else result(str(again.id)))
    (said,) = client.told(channel)
    assert said["method"] == ACKNOWLEDGED
    assert said["params"]["notifications"] == ({} if is_refused else {"resourceSubscriptions": ["a:1"]})


@pytest.mark.parametrize("cause", [Cause(End.BROKEN, "reset"), Cause(End.REFUSED, status=500)])
def test_a_subscription_that_the_next_server_cannot_be_asked_for_is_not_waited_for(cause: Cause) -> None:
    """Nothing can come of it before the time is over that a confirmation may take."""
    world, client, _ = served("http")
    channel = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:1"]})
    world.end(world.hear("resources/subscribe").channel, Cause(End.REFUSED, status=404))
    rise(world)
    again = world.hear("resources/subscribe")
    assert client.told(channel) == []
    world.end(again.channel, cause)
    (said,) = client.told(channel)
    assert (said["method"], said["params"]["notifications"]) == (ACKNOWLEDGED, {})


def test_what_a_server_without_sessions_grants_after_a_loss_is_confirmed() -> None:
    world = bridge()
    client = modern(world, "pipe")
    client.request("server/discover")
    emerge(world)
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["a:1"]}
    channel = client.request("subscriptions/listen", notifications=wanted)
    world.wait(Limits().news_pause_s)
    world.hear("subscriptions/listen")
    lose(world)
    emerge(world)
    grant(world, world.hear("subscriptions/listen"))
    (said,) = client.told(channel)
    assert (said["method"], said["params"]["notifications"]) == (ACKNOWLEDGED, wanted)


@pytest.mark.parametrize("how", ["answer", "error", "broken", "refused"])
def test_a_resource_is_subscribed_again_only_when_it_is_not_any_more(how: str) -> None:
    """Requests on connections of their own overtake one another: the server would be left unsubscribed."""
    world, client, _ = served("http")
    first = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:1"]})
    world.answer(world.hear("resources/subscribe"))
    client.cancel(first)
    leaving = world.hear("resources/unsubscribe")
    again = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:1"]})
    assert not world.hears("resources/subscribe")
    assert client.told(again) == []
    if how == "answer":
        world.answer(leaving)
    elif how == "error":
        world.reply(leaving, error(str(leaving.id), '{"code":-32602,"message":"no"}'))
    else:
        cause = Cause(End.BROKEN, "reset") if how == "broken" else Cause(End.REFUSED, status=500)
        world.end(leaving.channel, cause)
    world.answer(world.hear("resources/subscribe"))
    (said,) = client.told(again)
    assert said["params"]["notifications"] == {"resourceSubscriptions": ["a:1"]}
    assert not world.heard


def test_who_leaves_before_it_is_subscribed_again_leaves_nothing() -> None:
    world, client, _ = served("http")
    first = client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:1"]})
    world.answer(world.hear("resources/subscribe"))
    client.cancel(first)
    leaving = world.hear("resources/unsubscribe")
    client.cancel(client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:1"]}))
    world.answer(leaving)
    assert not world.hears("resources/subscribe")
    while world.hears("resources/unsubscribe"):
        world.answer(world.hear("resources/unsubscribe"))
    assert_idle(world)


# --- Requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_run", [True, False])
def test_what_may_have_run_is_not_said_to_have_not(has_run: bool) -> None:
    """The second attempt at a list was never sent; the first may have been."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/list")
    unreachable = Cause(End.UNREACHABLE, "refused", unsent=True)
    world.end(world.hear("tools/list").channel, Cause(End.BROKEN, "reset") if has_run else unreachable)
    world.end(world.hear("tools/list").channel, unreachable)
    said = json.loads(world.messages(channel)[-1])["error"]
    assert said["data"]["outcome"] == ("unknown" if has_run else "not_executed")
    assert ("may have run" in said["message"]) == has_run


@pytest.mark.parametrize("cut", range(1, 6))
@pytest.mark.parametrize("is_marked", [True, False])
def test_a_byte_order_mark_may_be_cut(cut: int, is_marked: bool) -> None:
    """A large answer comes in pieces; where they are cut does not show."""
    world = driver()
    client = connect(world, "pipe", "pipe")
    client.request("1", "tools/list")
    heard = world.hear("tools/list")
    whole = (envelope.MARK if is_marked else b"") + result(str(heard.id), '{"tools":[]}')
    world.say_pieces(heard.channel, *(whole[at : at + 1] for at in range(cut)), whole[cut:])
    assert client.pipe is not None
    assert world.said(client.pipe) == {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}


# --- Questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
@pytest.mark.parametrize("is_plain", [True, False])
def test_what_a_task_has_asked_is_withdrawn_when_it_is_over(kind: Kind, is_plain: bool) -> None:
    """Also where its client knows of no task, and waits for its call."""
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
    (question,) = party.heard("elicitation/create")
    assert party.heard("notifications/cancelled") == []
    world.server.finish(work, text("done"))
    world.wait(3.0)
    assert [said["params"]["requestId"] for said in party.heard("notifications/cancelled")] == [question["id"]]
    assert not is_plain or asked.result["content"][0]["text"] == "done"
