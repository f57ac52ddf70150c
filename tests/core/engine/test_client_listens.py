"""Tests of client subscriptions in the stateless era, with servers of either era: confirmation, notifications,
recovery, end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Driver, SentMessage, error, notification, result
from inside import Inside
from isthmus.core.base.effects import Send, Spawn
from isthmus.core.base.events import Cause, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import Era
from stateless_driving import (
    K,
    Modern,
    assert_empty,
    assert_idle,
    bridge,
    modern,
    respond,
    send_during,
    served,
    start_legacy_server,
    start_stateless_server,
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


# --- Ends -------------------------------------------------------------------------------------------------------------


@DOWNS
@pytest.mark.parametrize("is_live", [False, True], ids=["opening", "live"])
def test_a_proxy_that_stops_ends_each_subscription_with_its_result(down: str, is_live: bool) -> None:
    """The result has the subscription id; on a pipe the subscription is cancelled as well. No state is left."""
    world, client, _ = served(down=down)
    channel = listen(client)
    if is_live:
        world.answer(world.take_sent("resources/subscribe"))
    world.stop()
    answer = client.answered(channel)["result"]
    assert answer["resultType"] == "complete"
    assert answer["_meta"][K + "subscriptionId"] == 1
    assert answer["_meta"][K + "serverInfo"] == {"name": "s", "version": "1"}
    cancelled = [f["params"] for f in client.notifications(channel) if f["method"] == "notifications/cancelled"]
    assert cancelled == ([{"requestId": 1}] if down == "pipe" else [])
    assert_empty(world)


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


@UPS
def test_changes_that_the_server_does_not_notify_of_are_not_confirmed(up: str) -> None:
    """Flags that the server does not declare, and resources that it refuses to subscribe to, are left out."""
    world, client, _ = served(up, capabilities='{"tools":{"listChanged":true},"resources":{"subscribe":true}}')
    channel = listen(client, **{**EVERYTHING, "resourceSubscriptions": ["a:b", "c:d"]})
    for received in (world.take_sent("resources/subscribe"), world.take_sent("resources/subscribe")):
        if received.frame["params"]["uri"] == "a:b":
            world.answer(received)
        else:
            world.reply(received, error(str(received.id), '{"code":-32602,"message":"no"}'))
    assert notified(client, channel, 1) == [(ACK, {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]})]


def test_a_server_that_takes_too_long_to_confirm_is_not_waited_for() -> None:
    """The confirmation lists what is confirmed by the deadline; a later answer of the server adds nothing."""
    world, client, _ = served()
    channel = listen(client, resourceSubscriptions=["a:b"], toolsListChanged=True)
    subscribing = world.take_sent("resources/subscribe")
    world.wait(Limits().listen_ack_s - 1)
    assert not world.messages(channel)
    world.wait(1)
    assert notified(client, channel, 1) == [(ACK, {"toolsListChanged": True})]
    world.answer(subscribing)
    world.send(world.dials[-1].channel, changed(UPDATED, "a:b"))
    assert len(world.messages(channel)) == 1


@UPS
@DOWNS
def test_a_resource_is_subscribed_once_for_all_subscriptions(up: str, down: str) -> None:
    """Two client subscriptions to one resource are one to the server, and each gets updates under its own id. The
    upstream subscription ends with the last of them."""
    world, client, stream = served(up, down)
    first = listen(client, resourceSubscriptions=["a:b"])
    world.answer(world.take_sent("resources/subscribe"))
    second = listen(client, resourceSubscriptions=["a:b", "a:b"])
    assert not world.was_sent("resources/subscribe")
    world.send(source(world, stream), changed(UPDATED, "a:b"))
    for channel, id in ((first, 1), (second, 2)):
        assert notified(client, channel, id)[1:] == [(UPDATED, "a:b")]
    client.cancel(first, "1")
    assert not world.was_sent("resources/unsubscribe")
    world.send(source(world, stream), changed(UPDATED, "a:b"))
    assert len(notified(client, second, 2)) == 3
    client.cancel(second, "2")
    assert world.take_sent("resources/unsubscribe").frame["params"] == {"uri": "a:b"}
    before = len(world.log)
    world.send(source(world, stream), changed(UPDATED, "a:b"))
    assert not [effect for effect in world.log[before:] if isinstance(effect, Send)], "none after its end"


@UPS
def test_no_other_principal_is_notified(up: str) -> None:
    """A subscription belongs to its principal: notifications of another principal's session do not reach it."""
    world, client, stream = served(up)
    channel = listen(client)
    world.answer(world.take_sent("resources/subscribe"))
    other = modern(world, up, principal="bob")
    other.request("server/discover")
    start_legacy_server(world, session="S2")
    theirs = listen(other)
    world.answer(world.take_sent("resources/subscribe"))
    world.send(source(world, stream) if up == "http" else first_child(world), changed(TOOLS))
    assert [len(world.messages(each)) for each in (channel, theirs)] == [2, 1]


def first_child(world: Driver) -> ChannelId:
    return next(dial.channel for dial in world.dials if dial.channel not in world.over)


def test_a_server_that_is_back_is_subscribed_to_again() -> None:
    """A lost server sends nothing. A server that is back is subscribed to again before anything else goes up, and each
    subscription gets one notification for everything that was confirmed."""
    world, client, _ = served()
    channel = listen(client)
    world.answer(world.take_sent("resources/subscribe"))
    world.end(world.last_dial(Spawn).channel)
    client.request("tools/list")
    start_legacy_server(world)
    replayed = world.take_sent("resources/subscribe")
    assert not world.was_sent("tools/list")
    world.answer(replayed)
    assert world.was_sent("tools/list")
    assert sorted(notified(client, channel, 1)[1:], key=str) == sorted(
        [(TOOLS, None), (PROMPTS, None), (RESOURCES, None), (UPDATED, "a:b")], key=str
    )
    world.send(world.last_dial(Spawn).channel, changed(TOOLS))
    assert len(world.messages(channel)) == 6


def test_a_subscription_that_finds_its_session_forgotten_starts_a_new_one() -> None:
    """A 404 to the proxy's own request starts a new session, as one to a client's request does."""
    world, client, _ = served(up="http")
    channel = listen(client, resourceSubscriptions=["a:b"])
    world.end(world.take_sent("resources/subscribe").channel, Cause(End.REFUSED, status=404))
    start_legacy_server(world, session="S2")
    again = world.take_sent("resources/subscribe")
    assert again.post is not None
    assert again.post.session == "S2"
    world.answer(again)
    world.wait(Limits().listen_ack_s)
    assert notified(client, channel, 1)[0][0] == ACK


def test_a_server_that_is_lost_before_it_confirmed_does_not_delay_the_confirmation() -> None:
    """The subscription is confirmed in its time all the same, with what is known by then."""
    world, client, _ = served()
    channel = listen(client, toolsListChanged=True, resourceSubscriptions=["a:b"])
    world.take_sent("resources/subscribe")
    world.end(world.last_dial(Spawn).channel)
    start_legacy_server(world)
    world.wait(Limits().listen_ack_s)
    assert notified(client, channel, 1)[0][0] == ACK


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


@pytest.mark.parametrize(
    "method", ["notifications/elicitation/complete", "notifications/vendor", "notifications/message"]
)
@UPS
def test_other_notifications_reach_no_subscription(method: str, up: str) -> None:
    """The end of a URL elicitation that no call waits for, vendor notifications and log messages go to no
    subscription."""
    world, client, stream = served(up)
    channel = listen(client, toolsListChanged=True)
    world.send(source(world, stream), notification(method, '{"elicitationId":"x","level":"error","data":1}'))
    assert len(world.messages(channel)) == 1


# --- With servers without sessions ------------------------------------------------------------------------------------


def served_stateless(down: str = "http", up: str = "http", *, limits: Limits | None = None) -> tuple[Driver, Modern]:
    """A client and a ready server, both of the stateless era."""
    world = bridge(limits=limits)
    client = modern(world, up, down)
    channel = client.request("server/discover")
    start_stateless_server(world)
    world.sent[channel].clear()
    client.last_id = 0
    return world, client


def take_listen(world: Driver) -> SentMessage:
    world.wait(Limits().listen_pause_s)
    return world.take_sent("subscriptions/listen")


def notify_listener(world: Driver, received: SentMessage, method: str, **params: Any) -> None:
    """Plays a server of the stateless era that sends a notification on the proxy's own subscription."""
    send_during(
        world, received, notification(method, json.dumps({**params, "_meta": {K + "subscriptionId": received.id}}))
    )


@UPS
@DOWNS
def test_ids_of_our_own_subscriptions_stay_with_the_server(up: str, down: str) -> None:
    """Each side knows its own ids: notifications under the proxy's id reach the client under the client's."""
    world, client = served_stateless(down, up)
    channel = client.request("subscriptions/listen", id_raw='"mine"', notifications={"toolsListChanged": True})
    received = take_listen(world)
    assert received.frame["params"]["notifications"] == {"toolsListChanged": True}
    assert not world.messages(channel), "not before its server has confirmed it"
    notify_listener(
        world, received, "notifications/subscriptions/acknowledged", notifications={"toolsListChanged": True}
    )
    notify_listener(world, received, "notifications/tools/list_changed")
    assert notified(client, channel, "mine") == [(ACK, {"toolsListChanged": True}), (TOOLS, None)]
    assert len(client.notifications(channel)) == 2
    client.cancel(channel, '"mine"')
    world.wait(1)
    if up == "http":
        assert received.channel in world.closed
    else:
        assert world.take_sent("notifications/cancelled").frame["params"] == {"requestId": received.id}


@pytest.mark.parametrize("how", ["result", "cut off"])
def test_a_server_that_ends_our_subscription_is_asked_again(how: str) -> None:
    """Client subscriptions stay open: the proxy subscribes anew and notifies clients that something may have
    changed."""
    world, client = served_stateless()
    channel = listen(client, toolsListChanged=True)
    received = take_listen(world)
    granted = {"toolsListChanged": True}
    notify_listener(world, received, "notifications/subscriptions/acknowledged", notifications=granted)
    if how == "result":
        world.send(received.channel, result(str(received.id), '{"resultType":"complete"}'))
        world.end(received.channel)
    else:
        world.end(received.channel, Cause(End.BROKEN))
    world.wait(Limits().listen_retry_s)
    again = take_listen(world)
    notify_listener(world, again, "notifications/subscriptions/acknowledged", notifications=granted)
    assert notified(client, channel, 1) == [(ACK, granted), (TOOLS, None)]
    assert client.driver.sent[channel][-1].is_last is False


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


@pytest.mark.parametrize("request_id", ["3", "999", '"x"', "null"])
def test_a_server_cancels_nothing_but_subscriptions(request_id: str) -> None:
    """A cancellation of any other id changes nothing."""
    world, client = served_stateless(up="pipe")
    channel = client.call()
    received = world.take_sent("tools/call")
    named = request_id.replace("3", str(received.id))
    send_during(world, received, notification("notifications/cancelled", f'{{"requestId":{named}}}'))
    respond(world, received, '{"resultType":"complete","content":[]}')
    assert client.answered(channel)["result"]["content"] == []


# --- Bounds and faults ------------------------------------------------------------------------------------------------


@DOWNS
def test_only_so_many_subscriptions_are_open(down: str) -> None:
    """One more is refused; one that ends makes room."""
    _, client, _ = served(down=down, limits=Limits(listens_per_session_max=2))
    channels = [listen(client, toolsListChanged=True) for _ in range(3)]
    assert client.answered(channels[2], 3)["error"]["code"] == -31007
    client.cancel(channels[0], "1")
    channel = listen(client, toolsListChanged=True)
    assert notified(client, channel, 4) == [(ACK, {"toolsListChanged": True})]


@pytest.mark.parametrize("notifications", [None, 5, [], {"toolsListChanged": 1}, {"resourceSubscriptions": [5]}])
def test_a_subscription_that_cannot_be_read_is_refused(notifications: Any) -> None:
    world, client, _ = served()
    channel = client.request("subscriptions/listen", notifications=notifications)
    assert client.answered(channel)["error"]["code"] == -32602
    assert_idle(world)


@DOWNS
def test_a_subscription_can_be_cancelled_before_it_is_confirmed(down: str) -> None:
    """The client gets nothing more, and the server is unsubscribed from."""
    world, client, _ = served(down=down)
    channel = listen(client)
    subscribing = world.take_sent("resources/subscribe")
    client.cancel(channel)
    assert world.was_sent("resources/unsubscribe")
    world.answer(subscribing)
    world.answer(world.take_sent("resources/unsubscribe"))
    world.send(world.dials[-1].channel, changed(TOOLS))
    assert not world.messages(channel)
    world.wait(10)
    assert_idle(world)


# --- Shared subscriptions ---------------------------------------------------------------------------------------------


def test_on_a_shared_server_a_resource_is_subscribed_until_the_last_session_unsubscribes() -> None:
    """Sessions of several principals share a process: a resource that one unsubscribes from stays subscribed for
    another."""
    world = bridge(ServerPlan(id="s", kind=Kind.PIPE, era=Era.HANDSHAKE, sharing=Sharing.CONCURRENT))
    clients = [modern(world, "s", principal=name) for name in ("ann", "bob")]
    channels = []
    for one in clients:
        one.request("server/discover")
        if world.was_sent("initialize") or not channels:
            start_legacy_server(world)
        channels.append(listen(one, resourceSubscriptions=["a:b"]))
        world.answer(world.take_sent("resources/subscribe"))
    clients[0].cancel(channels[0])
    assert not world.was_sent("resources/unsubscribe")
    world.send(first_child(world), changed(UPDATED, "a:b"))
    assert notified(clients[1], channels[1], 2)[1:] == [(UPDATED, "a:b")]
    clients[1].cancel(channels[1])
    assert world.take_sent("resources/unsubscribe").frame["params"] == {"uri": "a:b"}


@DOWNS
def test_a_confirmation_counts_only_for_subscriptions_that_were_in_the_request(down: str) -> None:
    """A subscription that came after the proxy's request waits for the next such request."""
    world, client = served_stateless(down)
    first = listen(client, toolsListChanged=True)
    early = take_listen(world)
    later = listen(client, promptsListChanged=True)
    notify_listener(world, early, "notifications/subscriptions/acknowledged", notifications={"toolsListChanged": True})
    assert notified(client, first, 1) == [(ACK, {"toolsListChanged": True})]
    assert notified(client, later, 2) == []
    both = {"toolsListChanged": True, "promptsListChanged": True}
    again = take_listen(world)
    assert again.frame["params"]["notifications"] == both
    notify_listener(world, again, "notifications/subscriptions/acknowledged", notifications=both)
    assert notified(client, later, 2) == [(ACK, {"promptsListChanged": True})]


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_filter_that_changes_while_the_server_is_away_is_sent_when_it_is_back(when: str) -> None:
    """A changed filter, also one that changed just before the server was lost, is sent once the server is back, and not
    earlier."""
    world, client = served_stateless(up="pipe")
    first = listen(client, toolsListChanged=True)
    notify_listener(
        world, take_listen(world), "notifications/subscriptions/acknowledged", notifications={"toolsListChanged": True}
    )
    second = listen(client, promptsListChanged=True)
    both = {"toolsListChanged": True, "promptsListChanged": True}
    notify_listener(world, take_listen(world), "notifications/subscriptions/acknowledged", notifications=both)
    world.unread.clear()
    if when == "before":
        client.cancel(first)
    world.end(world.last_dial(Spawn).channel)
    if when == "while":
        client.cancel(first)
    world.wait(Limits().listen_pause_s)
    assert not world.was_sent("subscriptions/listen")
    start_stateless_server(world)
    again = world.take_sent("subscriptions/listen")
    assert again.frame["params"]["notifications"] == {"promptsListChanged": True}
    notify_listener(
        world, again, "notifications/subscriptions/acknowledged", notifications={"promptsListChanged": True}
    )
    acknowledged, *changes = notified(client, second, 2)
    assert acknowledged == (ACK, {"promptsListChanged": True})
    assert set(changes) == {(PROMPTS, None)}, "something may have been missed"


@pytest.mark.parametrize("how", ["all", "some"])
def test_a_filter_that_no_client_has_any_more_is_not_sent(how: str) -> None:
    """Changes that come together are one: the pause is short, and begins anew with each. The upstream subscription ends
    with the last client, and no other takes its place."""
    world, client = served_stateless()
    channels = [listen(client, toolsListChanged=True), listen(client, promptsListChanged=True)]
    both = {"toolsListChanged": True, "promptsListChanged": True}
    received = take_listen(world)
    assert received.frame["params"]["notifications"] == both
    notify_listener(world, received, "notifications/subscriptions/acknowledged", notifications=both)
    client.cancel(channels[0])
    if how == "all":
        world.wait(Limits().listen_pause_s - 0.01)
        client.cancel(channels[1])
        world.wait(Limits().listen_pause_s - 0.01)
        assert received.channel not in world.closed
        world.wait(0.01)
        assert received.channel in world.closed
        assert not world.was_sent("subscriptions/listen")
    else:
        again = take_listen(world)
        assert received.channel not in world.closed, "until the other is confirmed"
        notify_listener(
            world, again, "notifications/subscriptions/acknowledged", notifications={"promptsListChanged": True}
        )
        assert received.channel in world.closed
        notify_listener(world, again, f"notifications/{PROMPTS}")
        assert notified(client, channels[1], 2) == [(ACK, {"promptsListChanged": True}), (PROMPTS, None)]


def test_a_filter_that_stays_the_same_is_not_sent_again() -> None:
    """An upstream subscription that still fits is kept, and the new client gets what was confirmed."""
    world, client = served_stateless()
    first = listen(client, toolsListChanged=True)
    received = take_listen(world)
    notify_listener(
        world, received, "notifications/subscriptions/acknowledged", notifications={"toolsListChanged": True}
    )
    second = listen(client, toolsListChanged=True)
    assert notified(client, second, 2) == []
    world.wait(Limits().listen_pause_s)
    assert not world.was_sent("subscriptions/listen")
    assert notified(client, second, 2) == [(ACK, {"toolsListChanged": True})]
    assert notified(client, first, 1) == [(ACK, {"toolsListChanged": True})]


def test_a_cancelled_subscription_is_not_made_again_when_the_server_is_back() -> None:
    world, client, _ = served()
    kept, dropped = listen(client, resourceSubscriptions=["a:b"]), listen(client, resourceSubscriptions=["c:d"])
    for _ in range(2):
        world.answer(world.take_sent("resources/subscribe"))
    client.cancel(dropped)
    world.answer(world.take_sent("resources/unsubscribe"))
    world.end(world.last_dial(Spawn).channel)
    client.request("tools/list")
    start_legacy_server(world)
    assert world.take_sent("resources/subscribe").frame["params"] == {"uri": "a:b"}
    assert not world.was_sent("resources/subscribe")
    assert notified(client, kept, 1)[0] == (ACK, {"resourceSubscriptions": ["a:b"]})


@UPS
def test_only_so_many_resources_are_named_in_all_subscriptions_together(up: str) -> None:
    """One that ends makes room; a refused one takes none."""
    world, client, _ = served(up, limits=Limits(subscriptions_per_session_max=3))
    first = listen(client, resourceSubscriptions=["a:1", "a:2"])
    assert client.answered(listen(client, resourceSubscriptions=["b:1", "b:2"]), 2)["error"]["code"] == -31007
    listen(client, resourceSubscriptions=["c:1"])
    channel = listen(client, resourceSubscriptions=["d:1"])
    assert client.answered(channel, 4)["error"]["code"] == -31007
    client.cancel(first)
    channel = listen(client, resourceSubscriptions=["e:1", "e:2"])
    for received in [received for received in world.unread if received.frame.get("method") == "resources/subscribe"]:
        world.answer(received)
    assert notified(client, channel, 5) == [(ACK, {"resourceSubscriptions": ["e:1", "e:2"]})]
