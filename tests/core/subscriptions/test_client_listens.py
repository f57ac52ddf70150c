"""Of what clients without sessions subscribe to, each part is asked for, confirmed, told and given up by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Driver, Heard, error, notification
from isthmus.core.base.effects import Note, Send, Spawn
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import Era
from stateless_driving import K, Modern, assert_idle, bridge, emerge, modern, rise, served
from stateless_server import grant

ABLE_OF_TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
LISTS = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}
ACK = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"


def listen(client: Modern, **wanted: Any) -> ChannelId:
    return client.request("subscriptions/listen", notifications=wanted)


def told(client: Modern, channel: ChannelId) -> list[tuple[str, Any]]:
    """(method, what it is about) of all that was told there."""
    return [
        (frame["method"], frame["params"].get("notifications", frame["params"].get("uri")))
        for frame in client.told(channel)
    ]


def asked(world: Driver, method: str = "resources/subscribe") -> list[Heard]:
    """Every request of that method that no test has taken, in order."""
    found = []
    while world.hears(method):
        found.append(world.hear(method))
    return found


def uris(heard: list[Heard]) -> list[str]:
    return [one.frame["params"]["uri"] for one in heard]


def refuse(world: Driver, heard: Heard) -> None:
    world.reply(heard, error(str(heard.id), '{"code":-32602,"message":"no"}'))


def changed(method: str, uri: str | None = None) -> bytes:
    return notification(method, None if uri is None else json.dumps({"uri": uri}))


def process(world: Driver) -> ChannelId:
    return world.last_dial(Spawn).channel


# --- What is confirmed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", LISTS)
def test_each_list_is_confirmed_where_the_server_tells_of_it(flag: str) -> None:
    """And of no other."""
    for name in LISTS.values():
        for declared in ("true", "false", "1", "null"):
            world, client, _ = served(capabilities=f'{{"{name}":{{"listChanged":{declared}}},"x":{{}}}}')
            channel = listen(client, **{flag: True})
            is_told = name == LISTS[flag] and declared == "true"
            assert told(client, channel) == [(ACK, {flag: True} if is_told else {})]
            world.say(process(world), changed(f"notifications/{LISTS[flag]}/list_changed"))
            assert len(client.told(channel)) == 1 + is_told


def test_a_server_that_takes_no_subscription_is_asked_for_none() -> None:
    """What was wanted of it is confirmed at once, without any resource."""
    for declared in ("{}", '{"listChanged":true}', '{"subscribe":false}'):
        world, client, _ = served(capabilities=f'{{"resources":{declared},"tools":{{"listChanged":true}}}}')
        channel = listen(client, toolsListChanged=True, resourceSubscriptions=["a:b"])
        assert not asked(world)
        assert told(client, channel) == [(ACK, {"toolsListChanged": True})]
        client.cancel(channel)
        assert not asked(world, "resources/unsubscribe")
        assert_idle(world)


def test_capabilities_that_cannot_be_read_declare_nothing() -> None:
    _, client, _ = served(
        capabilities='{"tools":{"listChanged":true,"listChanged":true},"prompts":{"listChanged":true}}'
    )
    channel = listen(client, toolsListChanged=True, promptsListChanged=True)
    assert told(client, channel)[0][0] == ACK
    assert "toolsListChanged" not in told(client, channel)[0][1]


def test_what_is_held_already_is_not_asked_for_again_and_the_rest_is() -> None:
    """Whatever its place in the order; it is asked for in that of its names."""
    world, client, _ = served()
    first = listen(client, resourceSubscriptions=["m:1"])
    (subscribing,) = asked(world)
    world.answer(subscribing)
    second = listen(client, resourceSubscriptions=["z:1", "m:1", "a:1"])
    rest = asked(world)
    assert uris(rest) == ["a:1", "z:1"]
    assert told(client, second) == []
    for heard in rest:
        world.answer(heard)
    assert told(client, second) == [(ACK, {"resourceSubscriptions": ["a:1", "m:1", "z:1"]})]
    client.cancel(second)
    assert uris(asked(world, "resources/unsubscribe")) == ["a:1", "z:1"]
    client.cancel(first)
    assert uris(asked(world, "resources/unsubscribe")) == ["m:1"]


def test_what_another_still_waits_for_is_not_given_up() -> None:
    """Neither what it was granted, nor what it may be yet; what nobody answered is given up as well."""
    world, client, _ = served()
    first, second = (listen(client, resourceSubscriptions=["a:1", own]) for own in ("b:1", "c:1"))
    heard = asked(world)
    assert uris(heard) == ["a:1", "b:1", "a:1", "c:1"]
    client.cancel(first)
    assert uris(asked(world, "resources/unsubscribe")) == ["b:1"]
    client.cancel(second)
    assert uris(asked(world, "resources/unsubscribe")) == ["a:1", "c:1"]


def test_what_was_refused_is_not_asked_for_again() -> None:
    """Neither after the server was lost, nor given up when its subscription ends."""
    world, client, _ = served()
    channel = listen(client, resourceSubscriptions=["a:1", "b:1"])
    granted, refused = asked(world)
    refuse(world, refused)
    assert told(client, channel) == []
    world.answer(granted)
    assert told(client, channel) == [(ACK, {"resourceSubscriptions": ["a:1"]})]
    world.end(process(world))
    client.request("tools/list")
    rise(world)
    again = asked(world)
    assert uris(again) == ["a:1"]
    world.answer(again[0])
    client.cancel(channel)
    assert uris(asked(world, "resources/unsubscribe")) == ["a:1"]


def test_a_subscription_that_a_lost_server_never_confirmed_ends_its_wait_once() -> None:
    """It is not waited for again; and one that was confirmed is made up for once only."""
    world, client, _ = served()
    waiting = listen(client, toolsListChanged=True, resourceSubscriptions=["a:1"])
    live = listen(client, toolsListChanged=True)
    world.hear("resources/subscribe")
    world.end(process(world))
    world.wait(Limits().listen_ack_s)
    assert told(client, waiting) == [(ACK, {"toolsListChanged": True})]
    rise(world)
    for heard in asked(world):
        world.answer(heard)
    assert [method for method, _ in told(client, live)] == [ACK, "notifications/tools/list_changed"]
    world.wait(100)
    assert len(told(client, waiting)) <= 2
    assert len(told(client, live)) == 2


# --- What is refused ------------------------------------------------------------------------------------------------


def test_tasks_are_named_by_who_declares_them_alone() -> None:
    """A client that does not hears what it would have to declare."""
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
    rise(world)
    first = listen(client, resourceSubscriptions=["a:1"], taskIds=["t", "u"])
    world.answer(world.hear("resources/subscribe"))
    refused = client.answered(listen(client, resourceSubscriptions=["b:1", "b:2"]), 3)["error"]
    assert refused == {"code": -31007, "message": "got 2 entries in resourceSubscriptions, expected 1 at most"}
    listen(client, resourceSubscriptions=["b:1"])
    assert client.answered(listen(client, taskIds=["v"]), 5)["error"]["code"] == -31007
    client.cancel(first)
    last = listen(client, taskIds=["t", "u", "v"])
    assert told(client, last) == [(ACK, {})]


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_the_last_subscription_that_may_be_is_confirmed(down: str) -> None:
    _, client, _ = served(down=down, limits=Limits(listens_per_session_max=2))
    for id in (1, 2):
        channel = listen(client, toolsListChanged=True)
        assert (ACK, {"toolsListChanged": True}) in told(client, channel), id
    refused = client.answered(listen(client, toolsListChanged=True), 3)["error"]
    assert refused == {"code": -31007, "message": "2 subscriptions are open, the most a client may have"}


# --- With a server that has no sessions -----------------------------------------------------------------------------


def standing(capabilities: str, up: str = "http") -> tuple[Driver, Modern]:
    """A client, and a server without sessions that is ready."""
    world = bridge()
    client = modern(world, up)
    client.request("server/discover")
    emerge(world, capabilities=capabilities)
    client.last_id = 0
    return world, client


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_what_the_server_does_not_offer_is_not_waited_for(up: str) -> None:
    """It is confirmed at once that there is none of it."""
    world, client = standing('{"tools":{"listChanged":true},"resources":{}}', up)
    for wanted in ({"promptsListChanged": True}, {"resourceSubscriptions": ["a:1"]}, {}):
        channel = listen(client, **wanted)
        assert told(client, channel) == [(ACK, {})]
    world.wait(Limits().news_pause_s)
    assert not world.hears("subscriptions/listen")


def test_no_more_is_confirmed_than_the_server_grants() -> None:
    """To each subscription its part, and what only another one was granted to none."""
    world, client = standing('{"tools":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true}}')
    first = listen(client, toolsListChanged=True, resourceSubscriptions=["a:1", "b:1"])
    second = listen(client, toolsListChanged=True, resourcesListChanged=True)
    world.wait(Limits().news_pause_s)
    heard = world.hear("subscriptions/listen")
    granted = {"resourcesListChanged": True, "resourceSubscriptions": ["a:1", "c:1"]}
    grant(world, heard, granted)
    assert told(client, first) == [(ACK, {"resourceSubscriptions": ["a:1"]})]
    assert told(client, second) == [(ACK, {"resourcesListChanged": True})]


# --- What is told ---------------------------------------------------------------------------------------------------


def test_a_change_that_cannot_be_read_is_noted_and_told_to_nobody() -> None:
    world, client, _ = served()
    channels = [listen(client, toolsListChanged=True) for _ in range(2)]
    before = len(world.log)
    world.say(process(world), notification("notifications/tools/list_changed", '{"_meta":{"a":1,"a":2}}'))
    (note,) = [effect for effect in world.log[before:] if isinstance(effect, Note)]
    assert (note.level, note.server) == ("warning", "pipe")
    assert note.text.startswith("server sent a broken notifications/tools/list_changed: ")
    assert not [effect for effect in world.log[before:] if isinstance(effect, Send)]
    world.say(process(world), changed("notifications/tools/list_changed"))
    assert [len(told(client, channel)) for channel in channels] == [2, 2]


def test_each_is_told_under_its_own_id_and_goes_on_when_another_ends() -> None:
    world, client, _ = served()
    first, second = (listen(client, toolsListChanged=True) for _ in range(2))
    client.cancel(first, "1")
    world.say(process(world), changed("notifications/tools/list_changed"))
    (_, change) = client.told(second)
    assert change["params"]["_meta"] == {K + "subscriptionId": 2}
    assert len(client.told(first)) == 1


# --- On a shared process --------------------------------------------------------------------------------------------


def together(*names: str) -> tuple[Driver, list[Modern]]:
    """Clients of several principals with one process."""
    world = bridge(ServerPlan(id="s", kind=Kind.PIPE, era=Era.HANDSHAKE, sharing=Sharing.CONCURRENT))
    clients = [modern(world, "s", principal=name) for name in names]
    for number, one in enumerate(clients):
        one.request("server/discover")
        if number == 0:
            rise(world)
    return world, clients


def test_on_a_shared_process_an_update_is_told_to_who_asked_for_it() -> None:
    """From when it was asked for, until it is given up or was refused."""
    world, (ann, bob, eve) = together("ann", "bob", "eve")
    channels = [listen(one, resourceSubscriptions=[uri]) for one, uri in ((ann, "a:1"), (bob, "b:1"), (eve, "a:1"))]
    for heard in asked(world):
        world.answer(heard)
    world.say(process(world), changed(UPDATED, "a:1"))
    assert [len(told(one, channel)) for one, channel in zip((ann, bob, eve), channels, strict=True)] == [2, 1, 2]
    ann.cancel(channels[0])
    assert not asked(world, "resources/unsubscribe")
    world.say(process(world), changed(UPDATED, "a:1"))
    assert len(told(eve, channels[2])) == 3
    eve.cancel(channels[2])
    assert uris(asked(world, "resources/unsubscribe")) == ["a:1"]
    bob.cancel(channels[1])
    assert uris(asked(world, "resources/unsubscribe")) == ["b:1"]


def test_on_a_shared_process_what_was_refused_counts_for_nobody() -> None:
    """Who asks later asks the server anew, and ends it with its own subscription."""
    world, (ann, bob) = together("ann", "bob")
    first = listen(ann, resourceSubscriptions=["a:1"])
    refuse(world, world.hear("resources/subscribe"))
    assert told(ann, first) == [(ACK, {})]
    second = listen(bob, resourceSubscriptions=["a:1"])
    world.answer(world.hear("resources/subscribe"))
    assert told(bob, second) == [(ACK, {"resourceSubscriptions": ["a:1"]})]
    bob.cancel(second)
    assert uris(asked(world, "resources/unsubscribe")) == ["a:1"]


def test_on_a_shared_process_each_resource_is_given_up_by_itself() -> None:
    """What another wants stays; what stands beside it does not."""
    world, (ann, bob) = together("ann", "bob")
    first = listen(ann, resourceSubscriptions=["a:1", "b:1", "c:1", "d:1"])
    listen(bob, resourceSubscriptions=["a:1", "c:1"])
    for heard in asked(world):
        world.answer(heard)
    ann.cancel(first)
    assert uris(asked(world, "resources/unsubscribe")) == ["b:1", "d:1"]
