"""Tests of client subscriptions in the stateless era: their bytes, malformed ones, and what is left of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Driver, SentMessage, notification
from inside import Inside
from isthmus.core.base.effects import Send
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import Era
from stateless_driving import (
    K,
    Modern,
    assert_idle,
    bridge,
    modern,
    served,
)
from stateless_server import discovered, grant, tell

UPS = pytest.mark.parametrize("up", ["pipe", "http"])
DOWNS = pytest.mark.parametrize("down", ["pipe", "http"])
EVERYTHING = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["a:b"],
}


def listen(client: Modern, **wanted: Any) -> ChannelId:
    return client.request("subscriptions/listen", notifications=wanted or EVERYTHING)


def notified(client: Modern, channel: ChannelId, id: Any) -> list[tuple[str, Any]]:
    """Method and subject of each notification on a channel that has the id of this subscription."""
    found = []
    for frame in client.notifications(channel):
        subscription_id = frame["params"].get("_meta", {}).get(K + "subscriptionId")
        if subscription_id == id and type(subscription_id) is type(id):
            subject = frame["params"].get("notifications", frame["params"].get("uri"))
            found.append((frame["method"].removeprefix("notifications/"), subject))
    return found


# --- With servers that have sessions ----------------------------------------------------------------------------------


def changed(what: str, subject: str | None = None) -> bytes:
    """A server notification about a change."""
    return notification(f"notifications/{what}", None if subject is None else json.dumps({"uri": subject}))


TOOLS, PROMPTS, RESOURCES = "tools/list_changed", "prompts/list_changed", "resources/list_changed"
UPDATED = "resources/updated"
ACK = "subscriptions/acknowledged"


def source(world: Driver, stream: ChannelId | None) -> ChannelId:
    """The channel on which a server sends what belongs to no request."""
    return stream or world.dials[-1].channel


@UPS
@DOWNS
@pytest.mark.parametrize("id_raw", ["1", '"1"', "1.0"])
def test_the_confirmation_comes_first_and_each_notification_has_the_subscription_id(
    up: str, down: str, id_raw: str
) -> None:
    """Changes before the confirmation wait for it. Afterwards each requested change comes under the id of its
    subscription, with the type and spelling of that id, and no other change comes."""
    world, client, stream = served(up, down)
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]}
    channel = client.request("subscriptions/listen", id_raw=id_raw, notifications=wanted)
    subscribing = world.take_sent("resources/subscribe")
    assert subscribing.frame["params"] == {"uri": "a:b"}
    server = source(world, stream)
    for message in (changed(UPDATED, "a:b"), changed(TOOLS), changed(TOOLS), changed(PROMPTS)):
        world.send(server, message)
    assert not world.messages(channel), "nothing before it is confirmed"
    world.answer(subscribing)
    for message in (changed(UPDATED, "a:b/c"), changed(RESOURCES), changed(UPDATED, "x:y")):
        world.send(server, message)
    assert notified(client, channel, json.loads(id_raw)) == [
        (ACK, wanted),
        (UPDATED, "a:b"),
        (TOOLS, None),
        (UPDATED, "a:b/c"),
    ]
    assert len(client.notifications(channel)) == 4
    assert all(b'subscriptionId":%b' % id_raw.encode() in message for message in world.messages(channel))


def test_changes_without_a_subscription_are_dropped() -> None:
    """Changes without a subscriber are sent to no client, and no state is kept of them."""
    world, client, _ = served()
    child = world.dials[-1].channel
    before = len(world.log)
    for _ in range(1000):
        world.send(child, changed(TOOLS))
        world.send(child, changed(UPDATED, "a:b"))
    assert not [effect for effect in world.log[before:] if isinstance(effect, Send)]
    channel = listen(client, toolsListChanged=True)
    assert notified(client, channel, 1) == [(ACK, {"toolsListChanged": True})]


# --- With servers without sessions ------------------------------------------------------------------------------------


def take_listen(world: Driver) -> SentMessage:
    world.wait(Limits().listen_pause_s)
    return world.take_sent("subscriptions/listen")


@pytest.mark.parametrize("sharing", [Sharing.CONCURRENT, Sharing.SERIAL])
def test_on_a_shared_server_each_client_gets_updates_of_its_own_resources(sharing: Sharing) -> None:
    """A client gets updates of no other resources, and of none once its subscription is over."""
    world = bridge(ServerPlan(id="s", kind=Kind.PIPE, era=Era.STATELESS, sharing=sharing))
    clients = [modern(world, "s", "pipe") for _ in range(2)]
    channels = [listen(one, resourceSubscriptions=[uri]) for one, uri in zip(clients, ("a:1", "a:2"), strict=True)]
    received = discovered(world, '{"resources":{"subscribe":true}}', grants=False) or take_listen(world)
    grant(world, received)
    for each in channels:
        world.sent[each].clear()
    tell(world, received, f"notifications/{UPDATED}", {"uri": "a:2"})
    assert [len(clients[0].notifications(channels[0])), len(clients[1].notifications(channels[1]))] == [0, 1]
    clients[1].cancel(channels[1], "1")
    again = take_listen(world)
    assert again.frame["params"]["notifications"] == {"resourceSubscriptions": ["a:1"]}
    grant(world, again)
    for uri in ("a:1", "a:2"):
        tell(world, again, f"notifications/{UPDATED}", {"uri": uri})
    assert [frame["params"]["uri"] for frame in clients[0].notifications(channels[0])] == ["a:1"]
    assert len(clients[1].notifications(channels[1])) == 1
    (shared,) = [link.shared_process for link in Inside(world.engine).links.links.values()]
    assert shared is not None
    assert sorted(list(member.subscriptions) for member in shared.members.values()) == [[], ["a:1"]], (
        "nothing is left of it"
    )


# --- Bounds and faults ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("notifications", [None, 5, [], {"toolsListChanged": 1}, {"resourceSubscriptions": [5]}])
def test_a_subscription_that_cannot_be_read_is_refused(notifications: Any) -> None:
    world, client, _ = served()
    channel = client.request("subscriptions/listen", notifications=notifications)
    assert client.answered(channel)["error"]["code"] == -32602
    assert_idle(world)
