"""Tests of the subscriptions of clients without sessions: each part is requested, confirmed, notified and ended by
itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Driver, SentMessage, error, notification
from isthmus.core.base.effects import Note, Send, Spawn
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.name_filter import NameFilter
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import Era
from stateless_driving import (
    K,
    Modern,
    assert_idle,
    bridge,
    modern,
    served,
    start_legacy_server,
    start_stateless_server,
)
from stateless_server import grant

ABLE_OF_TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
LISTS = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}
ACK = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"


def listen(client: Modern, **wanted: Any) -> ChannelId:
    return client.request("subscriptions/listen", notifications=wanted)


def notified(client: Modern, channel: ChannelId) -> list[tuple[str, Any]]:
    """The (method, confirmed filter or URI) of each notification on a channel."""
    return [
        (frame["method"], frame["params"].get("notifications", frame["params"].get("uri")))
        for frame in client.notifications(channel)
    ]


def asked(world: Driver, method: str = "resources/subscribe") -> list[SentMessage]:
    """Takes every unread request of a method, in order."""
    found = []
    while world.was_sent(method):
        found.append(world.take_sent(method))
    return found


def uris(received: list[SentMessage]) -> list[str]:
    return [one.frame["params"]["uri"] for one in received]


def refuse(world: Driver, received: SentMessage) -> None:
    world.reply(received, error(str(received.id), '{"code":-32602,"message":"no"}'))


def changed(method: str, uri: str | None = None) -> bytes:
    return notification(method, None if uri is None else json.dumps({"uri": uri}))


def process(world: Driver) -> ChannelId:
    return world.last_dial(Spawn).channel


# --- Confirmations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", LISTS)
def test_each_list_is_confirmed_if_the_server_declares_its_changes(flag: str) -> None:
    """No other list is confirmed."""
    for name in LISTS.values():
        for declared in ("true", "false", "1", "null"):
            world, client, _ = served(capabilities=f'{{"{name}":{{"listChanged":{declared}}},"x":{{}}}}')
            channel = listen(client, **{flag: True})
            is_declared = name == LISTS[flag] and declared == "true"
            assert notified(client, channel) == [(ACK, {flag: True} if is_declared else {})]
            world.send(process(world), changed(f"notifications/{LISTS[flag]}/list_changed"))
            assert len(client.notifications(channel)) == 1 + is_declared


def test_a_server_without_resource_subscriptions_gets_none() -> None:
    """The subscription is confirmed at once, without any resource."""
    for declared in ("{}", '{"listChanged":true}', '{"subscribe":false}'):
        world, client, _ = served(capabilities=f'{{"resources":{declared},"tools":{{"listChanged":true}}}}')
        channel = listen(client, toolsListChanged=True, resourceSubscriptions=["a:b"])
        assert not asked(world)
        assert notified(client, channel) == [(ACK, {"toolsListChanged": True})]
        client.cancel(channel)
        assert not asked(world, "resources/unsubscribe")
        assert_idle(world)


def test_capabilities_that_cannot_be_read_declare_nothing() -> None:
    _, client, _ = served(
        capabilities='{"tools":{"listChanged":true,"listChanged":true},"prompts":{"listChanged":true}}'
    )
    channel = listen(client, toolsListChanged=True, promptsListChanged=True)
    assert notified(client, channel)[0][0] == ACK
    assert "toolsListChanged" not in notified(client, channel)[0][1]


def test_only_resources_that_are_not_subscribed_yet_are_requested() -> None:
    """Resources are requested in the order of their URIs, and the order of the client does not matter."""
    world, client, _ = served()
    first = listen(client, resourceSubscriptions=["m:1"])
    (subscribing,) = asked(world)
    world.answer(subscribing)
    second = listen(client, resourceSubscriptions=["z:1", "m:1", "a:1"])
    rest = asked(world)
    assert uris(rest) == ["a:1", "z:1"]
    assert notified(client, second) == []
    for received in rest:
        world.answer(received)
    assert notified(client, second) == [(ACK, {"resourceSubscriptions": ["a:1", "m:1", "z:1"]})]
    client.cancel(second)
    assert uris(asked(world, "resources/unsubscribe")) == ["a:1", "z:1"]
    client.cancel(first)
    assert uris(asked(world, "resources/unsubscribe")) == ["m:1"]


def test_a_resource_that_another_subscription_waits_for_is_not_unsubscribed() -> None:
    """A resource is not unsubscribed while another subscription has it or still waits for it. One without an answer is
    unsubscribed too."""
    world, client, _ = served()
    first, second = (listen(client, resourceSubscriptions=["a:1", own]) for own in ("b:1", "c:1"))
    received = asked(world)
    assert uris(received) == ["a:1", "b:1", "a:1", "c:1"]
    client.cancel(first)
    assert uris(asked(world, "resources/unsubscribe")) == ["b:1"]
    client.cancel(second)
    assert uris(asked(world, "resources/unsubscribe")) == ["a:1", "c:1"]


def test_a_refused_resource_is_not_requested_again() -> None:
    """A refused resource is neither requested again after the server was lost, nor unsubscribed when its subscription
    ends."""
    world, client, _ = served()
    channel = listen(client, resourceSubscriptions=["a:1", "b:1"])
    granted, refused = asked(world)
    refuse(world, refused)
    assert notified(client, channel) == []
    world.answer(granted)
    assert notified(client, channel) == [(ACK, {"resourceSubscriptions": ["a:1"]})]
    world.end(process(world))
    client.request("tools/list")
    start_legacy_server(world)
    again = asked(world)
    assert uris(again) == ["a:1"]
    world.answer(again[0])
    client.cancel(channel)
    assert uris(asked(world, "resources/unsubscribe")) == ["a:1"]


def test_a_subscription_is_confirmed_without_a_lost_server() -> None:
    """A subscription does not wait for the new server again. A confirmed one gets one change notification, for changes
    that it may have missed."""
    world, client, _ = served()
    waiting = listen(client, toolsListChanged=True, resourceSubscriptions=["a:1"])
    live = listen(client, toolsListChanged=True)
    world.take_sent("resources/subscribe")
    world.end(process(world))
    world.wait(Limits().listen_ack_s)
    assert notified(client, waiting) == [(ACK, {"toolsListChanged": True})]
    start_legacy_server(world)
    for received in asked(world):
        world.answer(received)
    assert [method for method, _ in notified(client, live)] == [ACK, "notifications/tools/list_changed"]
    world.wait(100)
    assert len(notified(client, waiting)) <= 2
    assert len(notified(client, live)) == 2


# --- Refusals ---------------------------------------------------------------------------------------------------------


def test_only_a_client_that_declares_tasks_may_name_them() -> None:
    """The error for another client says what it would have to declare."""
    _, client, _ = served()
    refused = client.answered(listen(client, taskIds=["t"]), 1)["error"]
    assert refused == {
        "code": -32021,
        "message": "Missing required client capability: tasks are an extension, declare it with each request",
        "data": {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}},
    }


def test_resources_and_tasks_count_together_over_all_subscriptions() -> None:
    world = bridge(limits=Limits(subscriptions_per_session_max=4))
    client = modern(world, "pipe", capabilities=ABLE_OF_TASKS)
    client.request("server/discover")
    start_legacy_server(world)
    first = listen(client, resourceSubscriptions=["a:1"], taskIds=["t", "u"])
    world.answer(world.take_sent("resources/subscribe"))
    refused = client.answered(listen(client, resourceSubscriptions=["b:1", "b:2"]), 3)["error"]
    assert refused == {"code": -31007, "message": "got 2 entries in resourceSubscriptions, expected 1 at most"}
    listen(client, resourceSubscriptions=["b:1"])
    assert client.answered(listen(client, taskIds=["v"]), 5)["error"]["code"] == -31007
    client.cancel(first)
    last = listen(client, taskIds=["t", "u", "v"])
    assert notified(client, last) == [(ACK, {})]


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_the_limit_of_subscriptions_is_within(down: str) -> None:
    _, client, _ = served(down=down, limits=Limits(listens_per_session_max=2))
    for id in (1, 2):
        channel = listen(client, toolsListChanged=True)
        assert (ACK, {"toolsListChanged": True}) in notified(client, channel), id
    refused = client.answered(listen(client, toolsListChanged=True), 3)["error"]
    assert refused == {"code": -31007, "message": "2 subscriptions are open, the most a client may have"}


# --- With a server that has no sessions -------------------------------------------------------------------------------


def ready(capabilities: str, up: str = "http") -> tuple[Driver, Modern]:
    """Returns a client, and a server without sessions that is ready. A filter keeps subscriptions from it."""
    hiding = NameFilter(exclude=("hidden",))
    world = bridge(ServerPlan(id=up, kind=Kind.PIPE if up == "pipe" else Kind.HTTP, tools=hiding))
    client = modern(world, up)
    client.request("server/discover")
    start_stateless_server(world, capabilities=capabilities)
    client.last_id = 0
    return world, client


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_part_that_the_server_does_not_offer_is_not_waited_for(up: str) -> None:
    """The subscription is confirmed at once without it."""
    world, client = ready('{"tools":{"listChanged":true},"resources":{}}', up)
    for wanted in ({"promptsListChanged": True}, {"resourceSubscriptions": ["a:1"]}, {}):
        channel = listen(client, **wanted)
        assert notified(client, channel) == [(ACK, {})]
    world.wait(Limits().listen_pause_s)
    assert not world.was_sent("subscriptions/listen")


def test_no_more_is_confirmed_than_the_server_grants() -> None:
    """Each subscription is confirmed its own part, and none the part that only another one asked for."""
    world, client = ready('{"tools":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true}}')
    first = listen(client, toolsListChanged=True, resourceSubscriptions=["a:1", "b:1"])
    second = listen(client, toolsListChanged=True, resourcesListChanged=True)
    world.wait(Limits().listen_pause_s)
    received = world.take_sent("subscriptions/listen")
    granted = {"resourcesListChanged": True, "resourceSubscriptions": ["a:1", "c:1"]}
    grant(world, received, granted)
    assert notified(client, first) == [(ACK, {"resourceSubscriptions": ["a:1"]})]
    assert notified(client, second) == [(ACK, {"resourcesListChanged": True})]


# --- Notifications ----------------------------------------------------------------------------------------------------


def test_an_unreadable_change_is_noted_and_dropped() -> None:
    world, client, _ = served()
    channels = [listen(client, toolsListChanged=True) for _ in range(2)]
    before = len(world.log)
    world.send(process(world), notification("notifications/tools/list_changed", '{"_meta":{"a":1,"a":2}}'))
    (note,) = [effect for effect in world.log[before:] if isinstance(effect, Note)]
    assert (note.level, note.server) == ("warning", "pipe")
    assert note.text.startswith("server sent a broken notifications/tools/list_changed: ")
    assert not [effect for effect in world.log[before:] if isinstance(effect, Send)]
    world.send(process(world), changed("notifications/tools/list_changed"))
    assert [len(notified(client, channel)) for channel in channels] == [2, 2]


def test_each_subscription_has_its_own_id_and_goes_on_when_another_ends() -> None:
    world, client, _ = served()
    first, second = (listen(client, toolsListChanged=True) for _ in range(2))
    client.cancel(first, "1")
    world.send(process(world), changed("notifications/tools/list_changed"))
    (_, change) = client.notifications(second)
    assert change["params"]["_meta"] == {K + "subscriptionId": 2}
    assert len(client.notifications(first)) == 1


# --- On a shared process ----------------------------------------------------------------------------------------------


def together(*names: str) -> tuple[Driver, list[Modern]]:
    """Returns clients with one process."""
    world = bridge(ServerPlan(id="s", kind=Kind.PIPE, era=Era.HANDSHAKE, sharing=Sharing.CONCURRENT))
    clients = [modern(world, "s", capabilities={"elicitation": {}, "experimental": {name: {}}}) for name in names]
    for number, one in enumerate(clients):
        one.request("server/discover")
        if number == 0:
            start_legacy_server(world)
    return world, clients


def test_an_update_on_a_shared_process_goes_to_its_subscribers() -> None:
    """Updates go to a client from its request on, until it ends the subscription or was refused."""
    world, (ann, bob, eve) = together("ann", "bob", "eve")
    channels = [listen(one, resourceSubscriptions=[uri]) for one, uri in ((ann, "a:1"), (bob, "b:1"), (eve, "a:1"))]
    for received in asked(world):
        world.answer(received)
    world.send(process(world), changed(UPDATED, "a:1"))
    assert [len(notified(one, channel)) for one, channel in zip((ann, bob, eve), channels, strict=True)] == [2, 1, 2]
    ann.cancel(channels[0])
    assert not asked(world, "resources/unsubscribe")
    world.send(process(world), changed(UPDATED, "a:1"))
    assert len(notified(eve, channels[2])) == 3
    eve.cancel(channels[2])
    assert uris(asked(world, "resources/unsubscribe")) == ["a:1"]
    bob.cancel(channels[1])
    assert uris(asked(world, "resources/unsubscribe")) == ["b:1"]


def test_a_refusal_on_a_shared_process_does_not_count_for_others() -> None:
    """A later request is sent to the server anew, and its end unsubscribes."""
    world, (ann, bob) = together("ann", "bob")
    first = listen(ann, resourceSubscriptions=["a:1"])
    refuse(world, world.take_sent("resources/subscribe"))
    assert notified(ann, first) == [(ACK, {})]
    second = listen(bob, resourceSubscriptions=["a:1"])
    world.answer(world.take_sent("resources/subscribe"))
    assert notified(bob, second) == [(ACK, {"resourceSubscriptions": ["a:1"]})]
    bob.cancel(second)
    assert uris(asked(world, "resources/unsubscribe")) == ["a:1"]


def test_each_resource_on_a_shared_process_is_unsubscribed_by_itself() -> None:
    """Resources that another client subscribes to stay subscribed, and only those."""
    world, (ann, bob) = together("ann", "bob")
    first = listen(ann, resourceSubscriptions=["a:1", "b:1", "c:1", "d:1"])
    listen(bob, resourceSubscriptions=["a:1", "c:1"])
    for received in asked(world):
        world.answer(received)
    ann.cancel(first)
    assert uris(asked(world, "resources/unsubscribe")) == ["b:1", "d:1"]
