"""Subscriptions of clients without sessions, with servers of both kinds: confirmed, told, made up for, ended."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Driver, Heard, error, notification, result
from isthmus.core.base.effects import Cause, End, Send, Spawn
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
    emerge,
    give,
    modern,
    rise,
    served,
    speak,
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


def told(client: Modern, channel: ChannelId, id: Any) -> list[tuple[str, Any]]:
    """(method, what it is about) of all that a subscription was told, which says each time that it is for it."""
    found = []
    for frame in client.told(channel):
        said = frame["params"].get("_meta", {}).get(K + "subscriptionId")
        if said == id and type(said) is type(id):
            subject = frame["params"].get("notifications", frame["params"].get("uri"))
            found.append((frame["method"].removeprefix("notifications/"), subject))
    return found


# --- They end ---------------------------------------------------------------------------------------------------------


@DOWNS
@pytest.mark.parametrize("is_live", [False, True], ids=["opening", "live"])
def test_a_proxy_that_stops_ends_each_subscription_with_its_result(down: str, is_live: bool) -> None:
    """The answer says whose it is; on a pipe the subscription is cancelled as well. Nothing of it is left."""
    world, client, _ = served(down=down)
    channel = listen(client)
    if is_live:
        world.answer(world.hear("resources/subscribe"))
    world.stop()
    answer = client.answered(channel)["result"]
    assert answer["resultType"] == "complete"
    assert answer["_meta"][K + "subscriptionId"] == 1
    assert answer["_meta"][K + "serverInfo"] == {"name": "s", "version": "1"}
    cancelled = [f["params"] for f in client.told(channel) if f["method"] == "notifications/cancelled"]
    assert cancelled == ([{"requestId": 1}] if down == "pipe" else [])
    assert_empty(world)


# --- With servers that have sessions ----------------------------------------------------------------------------------


def changed(what: str, subject: str | None = None) -> bytes:
    """A server's word that something is different."""
    return notification(f"notifications/{what}", None if subject is None else json.dumps({"uri": subject}))


TOOLS, PROMPTS, RESOURCES = "tools/list_changed", "prompts/list_changed", "resources/list_changed"
UPDATED = "resources/updated"
ACK = "subscriptions/acknowledged"


def source(world: Driver, stream: ChannelId | None) -> ChannelId:
    """Where a server says what belongs to no request."""
    return stream or world.dials[-1].channel


@UPS
@DOWNS
@pytest.mark.parametrize("id_raw", ["1", '"1"', "1.0"])
def test_the_first_word_is_what_was_confirmed_and_all_say_whose_they_are(up: str, down: str, id_raw: str) -> None:
    """What changes before the confirmation waits for it; afterwards each change that was asked for comes under the id
    of its subscription, with its type and spelling, and none that was not."""
    world, client, stream = served(up, down)
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]}
    channel = client.request("subscriptions/listen", id_raw=id_raw, notifications=wanted)
    subscribing = world.hear("resources/subscribe")
    assert subscribing.frame["params"] == {"uri": "a:b"}
    server = source(world, stream)
    for message in (changed(UPDATED, "a:b"), changed(TOOLS), changed(TOOLS), changed(PROMPTS)):
        world.say(server, message)
    assert not world.messages(channel), "nothing before it is confirmed"
    world.answer(subscribing)
    for message in (changed(UPDATED, "a:b/c"), changed(RESOURCES), changed(UPDATED, "x:y")):
        world.say(server, message)
    assert told(client, channel, json.loads(id_raw)) == [
        (ACK, wanted),
        (UPDATED, "a:b"),
        (TOOLS, None),
        (UPDATED, "a:b/c"),
    ]
    assert len(client.told(channel)) == 4
    assert all(b'subscriptionId":%b' % id_raw.encode() in message for message in world.messages(channel))


@UPS
def test_what_the_server_does_not_tell_is_not_confirmed(up: str) -> None:
    """Flags it does not declare, and resources that it refuses to tell of, are left out."""
    world, client, _ = served(up, capabilities='{"tools":{"listChanged":true},"resources":{"subscribe":true}}')
    channel = listen(client, **{**EVERYTHING, "resourceSubscriptions": ["a:b", "c:d"]})
    for heard in (world.hear("resources/subscribe"), world.hear("resources/subscribe")):
        if heard.frame["params"]["uri"] == "a:b":
            world.answer(heard)
        else:
            world.reply(heard, error(str(heard.id), '{"code":-32602,"message":"no"}'))
    assert told(client, channel, 1) == [(ACK, {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]})]


def test_a_server_that_takes_too_long_to_confirm_is_not_waited_for() -> None:
    """What is confirmed by then is all there is; it is not told of what comes later, either."""
    world, client, _ = served()
    channel = listen(client, resourceSubscriptions=["a:b"], toolsListChanged=True)
    subscribing = world.hear("resources/subscribe")
    world.wait(Limits().listen_ack_s - 1)
    assert not world.messages(channel)
    world.wait(1)
    assert told(client, channel, 1) == [(ACK, {"toolsListChanged": True})]
    world.answer(subscribing)
    world.say(world.dials[-1].channel, changed(UPDATED, "a:b"))
    assert len(world.messages(channel)) == 1


@UPS
@DOWNS
def test_a_resource_is_subscribed_once_however_many_want_it(up: str, down: str) -> None:
    """Two subscriptions to one resource are one to the server, and each is told under its own id; when the last of
    them has ended, so has that."""
    world, client, stream = served(up, down)
    first = listen(client, resourceSubscriptions=["a:b"])
    world.answer(world.hear("resources/subscribe"))
    second = listen(client, resourceSubscriptions=["a:b", "a:b"])
    assert not world.hears("resources/subscribe")
    world.say(source(world, stream), changed(UPDATED, "a:b"))
    for channel, id in ((first, 1), (second, 2)):
        assert told(client, channel, id)[1:] == [(UPDATED, "a:b")]
    client.cancel(first, "1")
    assert not world.hears("resources/unsubscribe")
    world.say(source(world, stream), changed(UPDATED, "a:b"))
    assert len(told(client, second, 2)) == 3
    client.cancel(second, "2")
    assert world.hear("resources/unsubscribe").frame["params"] == {"uri": "a:b"}
    before = len(world.log)
    world.say(source(world, stream), changed(UPDATED, "a:b"))
    assert not [effect for effect in world.log[before:] if isinstance(effect, Send)], "none after its end"


@UPS
def test_nobody_else_is_told(up: str) -> None:
    """A subscription is its principal's: what another's session is told reaches it not."""
    world, client, stream = served(up)
    channel = listen(client)
    world.answer(world.hear("resources/subscribe"))
    other = modern(world, up, principal="bob")
    other.request("server/discover")
    rise(world, session="S2")
    theirs = listen(other)
    world.answer(world.hear("resources/subscribe"))
    world.say(source(world, stream) if up == "http" else first_child(world), changed(TOOLS))
    assert [len(world.messages(each)) for each in (channel, theirs)] == [2, 1]


def first_child(world: Driver) -> ChannelId:
    return next(dial.channel for dial in world.dials if dial.channel not in world.over)


def test_a_server_that_was_away_is_made_up_for() -> None:
    """While it is lost nothing comes; when it is back, it is subscribed to again before anything else goes up, and each
    subscription is told once of a change of all that was confirmed."""
    world, client, _ = served()
    channel = listen(client)
    world.answer(world.hear("resources/subscribe"))
    world.end(world.last_dial(Spawn).channel)
    client.request("tools/list")
    rise(world)
    replayed = world.hear("resources/subscribe")
    assert not world.hears("tools/list")
    world.answer(replayed)
    assert world.hears("tools/list")
    assert sorted(told(client, channel, 1)[1:], key=str) == sorted(
        [(TOOLS, None), (PROMPTS, None), (RESOURCES, None), (UPDATED, "a:b")], key=str
    )
    world.say(world.last_dial(Spawn).channel, changed(TOOLS))
    assert len(world.messages(channel)) == 6


def test_a_session_that_is_forgotten_when_a_resource_is_wanted_is_made_anew_for_it() -> None:
    """A request of our own finds out as a client's does."""
    world, client, _ = served(up="http")
    channel = listen(client, resourceSubscriptions=["a:b"])
    world.end(world.hear("resources/subscribe").channel, Cause(End.REFUSED, status=404))
    rise(world, session="S2")
    again = world.hear("resources/subscribe")
    assert again.post is not None
    assert again.post.session == "S2"
    world.answer(again)
    world.wait(Limits().listen_ack_s)
    assert told(client, channel, 1)[0][0] == ACK


def test_a_server_that_is_lost_before_it_confirmed_is_not_waited_for_in_vain() -> None:
    """Its subscription is confirmed all the same, with what there is, in the time it has."""
    world, client, _ = served()
    channel = listen(client, toolsListChanged=True, resourceSubscriptions=["a:b"])
    world.hear("resources/subscribe")
    world.end(world.last_dial(Spawn).channel)
    rise(world)
    world.wait(Limits().listen_ack_s)
    assert told(client, channel, 1)[0][0] == ACK


def test_a_flood_without_a_listener_is_dropped() -> None:
    """Changes that nobody asked for reach nobody, and nothing is kept of them."""
    world, client, _ = served()
    child = world.dials[-1].channel
    before = len(world.log)
    for _ in range(1000):
        world.say(child, changed(TOOLS))
        world.say(child, changed(UPDATED, "a:b"))
    assert not [effect for effect in world.log[before:] if isinstance(effect, Send)]
    channel = listen(client, toolsListChanged=True)
    assert told(client, channel, 1) == [(ACK, {"toolsListChanged": True})]


@pytest.mark.parametrize(
    "method", ["notifications/elicitation/complete", "notifications/vendor", "notifications/message"]
)
@UPS
def test_what_is_no_change_reaches_no_subscription(method: str, up: str) -> None:
    """The end of a visit that nobody waits for, what vendors say and the log are nothing that a subscription names."""
    world, client, stream = served(up)
    channel = listen(client, toolsListChanged=True)
    world.say(source(world, stream), notification(method, '{"elicitationId":"x","level":"error","data":1}'))
    assert len(world.messages(channel)) == 1


# --- With servers that have none --------------------------------------------------------------------------------------


def emerged(down: str = "http", up: str = "http", *, limits: Limits | None = None) -> tuple[Driver, Modern]:
    """A client and a server without sessions that is ready."""
    world = bridge(limits=limits)
    client = modern(world, up, down)
    channel = client.request("server/discover")
    emerge(world)
    world.sent[channel].clear()
    client.last_id = 0
    return world, client


def heard_listen(world: Driver) -> Heard:
    world.wait(Limits().news_pause_s)
    return world.hear("subscriptions/listen")


def say_of(world: Driver, heard: Heard, method: str, **params: Any) -> None:
    """Be such a server, and say something on a subscription of ours."""
    speak(world, heard, notification(method, json.dumps({**params, "_meta": {K + "subscriptionId": heard.id}})))


@UPS
@DOWNS
def test_ids_of_our_own_subscriptions_stay_with_the_server(up: str, down: str) -> None:
    """Each side knows its own ids: what the server says under ours comes under the client's."""
    world, client = emerged(down, up)
    channel = client.request("subscriptions/listen", id_raw='"mine"', notifications={"toolsListChanged": True})
    heard = heard_listen(world)
    assert heard.frame["params"]["notifications"] == {"toolsListChanged": True}
    assert not world.messages(channel), "not before its server has confirmed it"
    say_of(world, heard, "notifications/subscriptions/acknowledged", notifications={"toolsListChanged": True})
    say_of(world, heard, "notifications/tools/list_changed")
    assert told(client, channel, "mine") == [(ACK, {"toolsListChanged": True}), (TOOLS, None)]
    assert len(client.told(channel)) == 2
    client.cancel(channel, '"mine"')
    world.wait(1)
    if up == "http":
        assert heard.channel in world.closed
    else:
        assert world.hear("notifications/cancelled").frame["params"] == {"requestId": heard.id}


@pytest.mark.parametrize("how", ["result", "cut off"])
def test_a_server_that_ends_our_subscription_is_asked_again(how: str) -> None:
    """Its clients' stay open: it is subscribed to anew, and they are told that something may have changed."""
    world, client = emerged()
    channel = listen(client, toolsListChanged=True)
    heard = heard_listen(world)
    granted = {"toolsListChanged": True}
    say_of(world, heard, "notifications/subscriptions/acknowledged", notifications=granted)
    if how == "result":
        world.say(heard.channel, result(str(heard.id), '{"resultType":"complete"}'))
        world.end(heard.channel)
    else:
        world.end(heard.channel, Cause(End.BROKEN))
    world.wait(Limits().listen_retry_s)
    again = heard_listen(world)
    say_of(world, again, "notifications/subscriptions/acknowledged", notifications=granted)
    assert told(client, channel, 1) == [(ACK, granted), (TOOLS, None)]
    assert client.driver.sent[channel][-1].is_last is False


@pytest.mark.parametrize("sharing", [Sharing.CONCURRENT, Sharing.SERIAL])
def test_on_a_shared_server_each_hears_of_the_resources_that_it_listens_to(sharing: Sharing) -> None:
    """And of no others; of none any more once its subscription is over."""
    world = bridge(ServerPlan(id="s", kind=Kind.PIPE, era=Era.STATELESS, sharing=sharing))
    clients = [modern(world, "s", "pipe") for _ in range(2)]
    channels = [listen(one, resourceSubscriptions=[uri]) for one, uri in zip(clients, ("a:1", "a:2"), strict=True)]
    heard = discovered(world, '{"resources":{"subscribe":true}}', grants=False) or heard_listen(world)
    grant(world, heard)
    for each in channels:
        world.sent[each].clear()
    tell(world, heard, f"notifications/{UPDATED}", {"uri": "a:2"})
    assert [len(clients[0].told(channels[0])), len(clients[1].told(channels[1]))] == [0, 1]
    clients[1].cancel(channels[1], "1")
    again = heard_listen(world)
    assert again.frame["params"]["notifications"] == {"resourceSubscriptions": ["a:1"]}
    grant(world, again)
    for uri in ("a:1", "a:2"):
        tell(world, again, f"notifications/{UPDATED}", {"uri": uri})
    assert [frame["params"]["uri"] for frame in clients[0].told(channels[0])] == ["a:1"]
    assert len(clients[1].told(channels[1])) == 1
    (crowd,) = world.engine._servers.handshakes.crowds.values()
    assert sorted(list(share.subscriptions) for share in crowd.shares.values()) == [[], ["a:1"]], (
        "nothing is left of it"
    )


@pytest.mark.parametrize("request_id", ["3", "999", '"x"', "null"])
def test_a_server_cancels_nothing_but_subscriptions(request_id: str) -> None:
    """Its word on any other id changes nothing."""
    world, client = emerged(up="pipe")
    channel = client.call()
    heard = world.hear("tools/call")
    named = request_id.replace("3", str(heard.id))
    speak(world, heard, notification("notifications/cancelled", f'{{"requestId":{named}}}'))
    give(world, heard, '{"resultType":"complete","content":[]}')
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
    assert told(client, channel, 4) == [(ACK, {"toolsListChanged": True})]


@pytest.mark.parametrize("notifications", [None, 5, [], {"toolsListChanged": 1}, {"resourceSubscriptions": [5]}])
def test_a_subscription_that_cannot_be_read_is_refused(notifications: Any) -> None:
    world, client, _ = served()
    channel = client.request("subscriptions/listen", notifications=notifications)
    assert client.answered(channel)["error"]["code"] == -32602
    assert_idle(world)


@DOWNS
def test_a_subscription_can_be_cancelled_before_it_is_confirmed(down: str) -> None:
    """Nothing comes of it any more, and its server is told that nobody wants to know."""
    world, client, _ = served(down=down)
    channel = listen(client)
    subscribing = world.hear("resources/subscribe")
    client.cancel(channel)
    assert world.hears("resources/unsubscribe")
    world.answer(subscribing)
    world.answer(world.hear("resources/unsubscribe"))
    world.say(world.dials[-1].channel, changed(TOOLS))
    assert not world.messages(channel)
    world.wait(10)
    assert_idle(world)


# --- What several have in common --------------------------------------------------------------------------------------


def test_on_a_shared_server_a_resource_is_subscribed_until_the_last_session_lets_it_go() -> None:
    """Sessions of several principals share a process: what one lets go, another may still want."""
    world = bridge(ServerPlan(id="s", kind=Kind.PIPE, era=Era.HANDSHAKE, sharing=Sharing.CONCURRENT))
    clients = [modern(world, "s", principal=name) for name in ("ann", "bob")]
    channels = []
    for one in clients:
        one.request("server/discover")
        if world.hears("initialize") or not channels:
            rise(world)
        channels.append(listen(one, resourceSubscriptions=["a:b"]))
        world.answer(world.hear("resources/subscribe"))
    clients[0].cancel(channels[0])
    assert not world.hears("resources/unsubscribe")
    world.say(first_child(world), changed(UPDATED, "a:b"))
    assert told(clients[1], channels[1], 2)[1:] == [(UPDATED, "a:b")]
    clients[1].cancel(channels[1])
    assert world.hear("resources/unsubscribe").frame["params"] == {"uri": "a:b"}


@DOWNS
def test_what_the_server_confirms_counts_only_for_who_wanted_it_then(down: str) -> None:
    """A subscription that came later than what we asked waits for the next that we ask."""
    world, client = emerged(down)
    first = listen(client, toolsListChanged=True)
    early = heard_listen(world)
    later = listen(client, promptsListChanged=True)
    say_of(world, early, "notifications/subscriptions/acknowledged", notifications={"toolsListChanged": True})
    assert told(client, first, 1) == [(ACK, {"toolsListChanged": True})]
    assert told(client, later, 2) == []
    both = {"toolsListChanged": True, "promptsListChanged": True}
    again = heard_listen(world)
    assert again.frame["params"]["notifications"] == both
    say_of(world, again, "notifications/subscriptions/acknowledged", notifications=both)
    assert told(client, later, 2) == [(ACK, {"promptsListChanged": True})]


@pytest.mark.parametrize("when", ["before", "while"])
def test_what_changes_while_the_server_is_away_is_asked_for_when_it_is_back(when: str) -> None:
    """Or just before: nothing is asked for until then, for there is nobody to ask."""
    world, client = emerged(up="pipe")
    first = listen(client, toolsListChanged=True)
    say_of(
        world, heard_listen(world), "notifications/subscriptions/acknowledged", notifications={"toolsListChanged": True}
    )
    second = listen(client, promptsListChanged=True)
    both = {"toolsListChanged": True, "promptsListChanged": True}
    say_of(world, heard_listen(world), "notifications/subscriptions/acknowledged", notifications=both)
    world.heard.clear()
    if when == "before":
        client.cancel(first)
    world.end(world.last_dial(Spawn).channel)
    if when == "while":
        client.cancel(first)
    world.wait(Limits().news_pause_s)
    assert not world.hears("subscriptions/listen")
    emerge(world)
    again = world.hear("subscriptions/listen")
    assert again.frame["params"]["notifications"] == {"promptsListChanged": True}
    say_of(world, again, "notifications/subscriptions/acknowledged", notifications={"promptsListChanged": True})
    acknowledged, *changes = told(client, second, 2)
    assert acknowledged == (ACK, {"promptsListChanged": True})
    assert set(changes) == {(PROMPTS, None)}, "something may have been missed"


@pytest.mark.parametrize("how", ["all", "some"])
def test_what_nobody_wants_any_more_is_not_asked_for(how: str) -> None:
    """Changes that come together are one: the pause is short, and begins anew with each. With the last client the
    subscription goes, and no other takes its place."""
    world, client = emerged()
    channels = [listen(client, toolsListChanged=True), listen(client, promptsListChanged=True)]
    both = {"toolsListChanged": True, "promptsListChanged": True}
    heard = heard_listen(world)
    assert heard.frame["params"]["notifications"] == both
    say_of(world, heard, "notifications/subscriptions/acknowledged", notifications=both)
    client.cancel(channels[0])
    if how == "all":
        world.wait(Limits().news_pause_s - 0.01)
        client.cancel(channels[1])
        world.wait(Limits().news_pause_s - 0.01)
        assert heard.channel not in world.closed
        world.wait(0.01)
        assert heard.channel in world.closed
        assert not world.hears("subscriptions/listen")
    else:
        again = heard_listen(world)
        assert heard.channel not in world.closed, "until the other is confirmed"
        say_of(world, again, "notifications/subscriptions/acknowledged", notifications={"promptsListChanged": True})
        assert heard.channel in world.closed
        say_of(world, again, f"notifications/{PROMPTS}")
        assert told(client, channels[1], 2) == [(ACK, {"promptsListChanged": True}), (PROMPTS, None)]


def test_a_change_that_is_undone_at_once_asks_for_nothing() -> None:
    """What is wanted is what is subscribed: it is kept, and who came is told what was confirmed."""
    world, client = emerged()
    first = listen(client, toolsListChanged=True)
    heard = heard_listen(world)
    say_of(world, heard, "notifications/subscriptions/acknowledged", notifications={"toolsListChanged": True})
    second = listen(client, toolsListChanged=True)
    assert told(client, second, 2) == []
    world.wait(Limits().news_pause_s)
    assert not world.hears("subscriptions/listen")
    assert told(client, second, 2) == [(ACK, {"toolsListChanged": True})]
    assert told(client, first, 1) == [(ACK, {"toolsListChanged": True})]


def test_what_nobody_wants_any_more_is_not_subscribed_again_by_a_server_that_comes_back() -> None:
    world, client, _ = served()
    kept, dropped = listen(client, resourceSubscriptions=["a:b"]), listen(client, resourceSubscriptions=["c:d"])
    for _ in range(2):
        world.answer(world.hear("resources/subscribe"))
    client.cancel(dropped)
    world.answer(world.hear("resources/unsubscribe"))
    world.end(world.last_dial(Spawn).channel)
    client.request("tools/list")
    rise(world)
    assert world.hear("resources/subscribe").frame["params"] == {"uri": "a:b"}
    assert not world.hears("resources/subscribe")
    assert told(client, kept, 1)[0] == (ACK, {"resourceSubscriptions": ["a:b"]})


@UPS
def test_only_so_many_resources_are_named_in_all_subscriptions_together(up: str) -> None:
    """One that ends makes room; what is refused takes none."""
    world, client, _ = served(up, limits=Limits(subscriptions_per_session_max=3))
    first = listen(client, resourceSubscriptions=["a:1", "a:2"])
    assert client.answered(listen(client, resourceSubscriptions=["b:1", "b:2"]), 2)["error"]["code"] == -31007
    listen(client, resourceSubscriptions=["c:1"])
    channel = listen(client, resourceSubscriptions=["d:1"])
    assert client.answered(channel, 4)["error"]["code"] == -31007
    client.cancel(first)
    channel = listen(client, resourceSubscriptions=["e:1", "e:2"])
    for heard in [heard for heard in world.heard if heard.frame.get("method") == "resources/subscribe"]:
        world.answer(heard)
    assert told(client, channel, 5) == [(ACK, {"resourceSubscriptions": ["e:1", "e:2"]})]
