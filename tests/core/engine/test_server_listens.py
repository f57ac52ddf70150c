"""Tests of the `subscriptions/listen` requests of the proxy: one open request for each stateless server covers all of
its clients of the handshake era."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, SentMessage, driver, new_client
from isthmus.core.base.events import Cause, End
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from stateless_server import (
    DIED,
    LISTENING,
    META,
    connect_child,
    discovered,
    fail,
    grant,
    input_required_result,
    modern_plan,
    refuse,
    tell,
)

UPDATED = "notifications/resources/updated"
TOOLS = "notifications/tools/list_changed"
KINDS = pytest.mark.parametrize("up", [Kind.PIPE, Kind.HTTP])
SIDES = pytest.mark.parametrize("down", ["pipe", "http"])


class World:
    """A stateless server that sends changes, and a client whose stream is open."""

    def __init__(self, down: str, up: Kind, capabilities: str = LISTENING, **plan: Any) -> None:
        limits = plan.pop("limits", None)
        self.driver = driver(modern_plan(up, **plan), limits=limits)
        self.server = up.value
        self.client, self.listen = self.join(down, capabilities)

    def join(self, down: str, capabilities: str = LISTENING) -> tuple[Client, SentMessage | None]:
        """Adds a client. Returns it, and the listen request that was made for it."""
        client = new_client(self.driver, down, self.server)
        channel = client.initialize()
        listen = None
        if self.driver.was_sent("server/discover") or not self.driver.messages(channel):
            listen = discovered(self.driver, capabilities)
        client.session = self.driver.sent[channel][-1].session
        client.notify("notifications/initialized")
        if client.pipe is None:
            client.listen()
        else:
            self.driver.sent[client.pipe].clear()
        return client, listen

    def notifications(self, client: Client | None = None) -> list[tuple[str, str | None]]:
        """Returns the method and the URI of each notification so far."""
        client = client or self.client
        channel = client.pipe or client.stream
        assert channel is not None
        frames = [f for f in self.driver.frames(channel) if "method" in f]
        assert META not in json.dumps(frames)
        return [(frame["method"], frame.get("params", {}).get("uri")) for frame in frames]

    def request(self, id_raw: str, uri: str, *, un: bool = False, client: Client | None = None) -> Any:
        """Sends `resources/subscribe` or `unsubscribe`. Returns a function that returns the answer."""
        client = client or self.client
        method = "resources/unsubscribe" if un else "resources/subscribe"
        channel = client.request(id_raw, method, json.dumps({"uri": uri}))

        def answer() -> Any:
            found = [frame for frame in self.driver.frames(channel) if frame.get("id") == int(id_raw)]
            return found[-1] if found else None

        return answer

    def next_listen(self) -> SentMessage:
        self.driver.wait(0.05)
        return self.driver.take_sent("subscriptions/listen")

    def subscribe(self, id_raw: str, uri: str, client: Client | None = None) -> SentMessage:
        """Subscribes to a resource. Returns the listen request that has it."""
        answer = self.request(id_raw, uri, client=client)
        listen = self.next_listen()
        grant(self.driver, listen)
        assert answer()["result"] == {}
        self.driver.unread = [h for h in self.driver.unread if h.frame.get("method") != "notifications/cancelled"]
        return listen

    def is_closed(self, listen: SentMessage) -> bool:
        """True if the proxy has ended that listen request."""
        if listen.post is not None:
            return listen.channel in self.driver.closed
        return any(b"notifications/cancelled" in e.message and b":%d}" % listen.id in e.message for e in self._sends())

    def _sends(self) -> Any:
        return [send for channel in self.driver.children for send in self.driver.sent[channel]]


def filter_of(listen: SentMessage | None) -> dict[str, Any]:
    assert listen is not None
    found = listen.frame["params"]["notifications"]
    assert isinstance(found, dict)
    return found


@KINDS
@SIDES
def test_one_listen_has_all_lists_that_the_server_offers(down: str, up: Kind) -> None:
    """After the handshake one `subscriptions/listen` is open, with exactly the lists that the server offers."""
    world = World(down, up)
    assert filter_of(world.listen) == {"toolsListChanged": True, "resourcesListChanged": True}
    assert World(down, up, '{"tools":{}}').listen is None
    assert filter_of(World(down, up, '{"prompts":{"listChanged":true}}').listen) == {"promptsListChanged": True}


@KINDS
@SIDES
def test_changes_reach_the_client_without_the_name_of_our_subscription(down: str, up: Kind) -> None:
    """Every interested client gets each change, without `subscriptionId`."""
    world = World(down, up)
    assert world.listen is not None
    tell(world.driver, world.listen, TOOLS)
    listen = world.subscribe("5", "a:b")
    tell(world.driver, listen, UPDATED, {"uri": "a:b"})
    assert world.notifications() == [(TOOLS, None), (UPDATED, "a:b")]


@KINDS
@SIDES
def test_a_subscription_is_answered_when_it_is_granted_and_no_update_is_missed(down: str, up: Kind) -> None:
    """The old listen request ends only once the new one is acknowledged, and the answer `{}` comes then."""
    world = World(down, up)
    old = world.listen
    assert old is not None
    answer = world.request("5", "a:b")
    world.driver.wait(0.04)
    assert not world.driver.was_sent("subscriptions/listen"), "perhaps more follows at once"
    new = world.next_listen()
    assert filter_of(new) == filter_of(old) | {"resourceSubscriptions": ["a:b"]}
    assert answer() is None
    tell(world.driver, old, TOOLS)
    assert not world.is_closed(old)
    grant(world.driver, new)
    assert answer()["result"] == {}
    assert world.is_closed(old)
    assert not world.is_closed(new)
    tell(world.driver, new, UPDATED, {"uri": "a:b"})
    assert world.notifications() == [(TOOLS, None), (UPDATED, "a:b")]


@KINDS
def test_many_subscriptions_at_once_make_one_listen(up: Kind) -> None:
    """Subscriptions are collected for a moment. Each is answered."""
    world = World("pipe", up)
    answers = [world.request(str(10 + n), f"a:{n}") for n in range(5)]
    listen = world.next_listen()
    assert filter_of(listen)["resourceSubscriptions"] == [f"a:{n}" for n in range(5)]
    grant(world.driver, listen)
    assert [answer()["result"] for answer in answers] == [{}] * 5
    assert not world.driver.was_sent("subscriptions/listen")


@KINDS
def test_a_subscription_during_an_open_listen_waits_for_the_next_one(up: Kind) -> None:
    """An acknowledgement grants nothing beyond its own request."""
    world = World("pipe", up)
    first = world.request("5", "a:1")
    listen = world.next_listen()
    second = world.request("6", "a:2")
    grant(world.driver, listen)
    assert first()["result"] == {}
    assert second() is None
    again = world.next_listen()
    assert filter_of(again)["resourceSubscriptions"] == ["a:1", "a:2"]
    grant(world.driver, again)
    assert second()["result"] == {}


@KINDS
def test_a_resource_that_is_not_granted_is_refused(up: Kind) -> None:
    """An acknowledgement without the URI refuses it with -32602, and grants the others."""
    world = World("pipe", up)
    good, bad = world.request("5", "a:good"), world.request("6", "a:bad")
    listen = world.next_listen()
    grant(world.driver, listen, {"toolsListChanged": True, "resourceSubscriptions": ["a:good"]})
    assert good()["result"] == {}
    assert bad()["error"]["code"] == -32602
    world.request("7", "a:third")
    assert filter_of(world.next_listen())["resourceSubscriptions"] == ["a:good", "a:third"], (
        "a refused resource is not repeated"
    )


@KINDS
@pytest.mark.parametrize(
    "capabilities",
    ["{}", '{"resources":{}}', '{"resources":{"listChanged":true}}', '{"resources":{"subscribe":false}}'],
)
def test_a_server_without_subscribe_is_not_asked(capabilities: str, up: Kind) -> None:
    """The method is unknown, as it would be at the server itself."""
    world = World("pipe", up, capabilities)
    assert world.request("5", "a:b")()["error"]["code"] == -32601
    world.driver.wait(1.0)
    assert not world.driver.was_sent("subscriptions/listen")


@pytest.mark.parametrize("params", ["{}", '{"uri":1}', '{"uri":null}', '{"uri":"a","uri":"b"}', '{"uri":"\\ud800"}'])
def test_a_subscription_without_a_uri_is_refused(params: str) -> None:
    """A subscription needs a resource."""
    world = World("http", Kind.PIPE)
    channel = world.client.request("5", "resources/subscribe", params)
    assert world.driver.only_message(channel)["error"]["code"] in (-32602, -32600)
    world.driver.wait(1.0)
    assert not world.driver.was_sent("subscriptions/listen")


def test_subscriptions_are_bounded() -> None:
    """One subscription too many is refused. The others stay."""
    world = World("pipe", Kind.PIPE, limits=Limits(subscriptions_per_session_max=2))
    for number in range(2):
        world.subscribe(str(10 + number), f"a:{number}")
    assert world.request("20", "a:2")()["error"]["code"] == -32602
    assert world.request("21", "a:0", un=True)()["result"] == {}
    world.subscribe("22", "a:2")


@KINDS
def test_unsubscribe_is_answered_at_once_and_the_listen_shrinks_later(up: Kind) -> None:
    """The answer does not wait for the new listen request."""
    world = World("pipe", up)
    world.subscribe("5", "a:1")
    old = world.subscribe("6", "a:2")
    assert world.request("7", "a:1", un=True)()["result"] == {}
    new = world.next_listen()
    assert filter_of(new)["resourceSubscriptions"] == ["a:2"]
    assert not world.is_closed(old)
    grant(world.driver, new)
    assert world.is_closed(old)


def test_an_empty_listen_is_ended() -> None:
    """The last listen request is ended when its filter is empty."""
    world = World("pipe", Kind.PIPE, '{"resources":{"subscribe":true}}')
    assert world.listen is None
    listen = world.subscribe("5", "a:1")
    world.request("6", "a:1", un=True)
    world.driver.wait(0.05)
    assert world.is_closed(listen)
    assert not world.driver.was_sent("subscriptions/listen")


@KINDS
def test_the_same_subscription_twice_is_one(up: Kind) -> None:
    """Corner case 67: a second subscription to a resource is granted at once, without a new listen request."""
    world = World("pipe", up)
    world.subscribe("5", "a:1")
    again = world.request("6", "a:1")
    world.driver.wait(0.05)
    assert again()["result"] == {}
    assert not world.driver.was_sent("subscriptions/listen")


# --- Losses -----------------------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("how", ["result", "cut", "cancelled"])
def test_a_listen_that_ends_is_opened_again_with_a_change_for_each_part(how: str, up: Kind) -> None:
    """After an outage the client gets at least one change for each granted part."""
    world = World("pipe", up)
    listen = world.subscribe("5", "a:1")
    if how == "result":
        world.driver.answer(listen, f'{{"resultType":"complete","_meta":{{"{META}subscriptionId":{listen.id}}}}}')
    elif how == "cancelled":
        tell(world.driver, listen, "notifications/cancelled", {"requestId": listen.id})
    elif up is Kind.HTTP:
        world.driver.end(listen.channel, Cause(End.BROKEN))
    else:
        world.driver.end(listen.channel, DIED)
        connect_child(world.driver)
        world.driver.answer(world.driver.take_sent("server/discover"), _discovery())
    world.driver.wait(2.0)
    assert world.notifications() == []
    again = world.driver.take_sent("subscriptions/listen")
    assert filter_of(again) == filter_of(listen)
    grant(world.driver, again)
    assert sorted(world.notifications()) == [
        ("notifications/resources/list_changed", None),
        (UPDATED, "a:1"),
        (TOOLS, None),
    ]


def _discovery() -> str:
    return f'{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{LISTENING}}}'


def test_pauses_grow_while_listens_fail() -> None:
    """A server that ends each request at once does not keep the proxy busy."""
    world = World("pipe", Kind.HTTP)
    listen, count = world.listen, 0
    assert listen is not None
    world.driver.answer(listen, "{}")
    for _ in range(200):
        world.driver.wait(0.5)
        if world.driver.was_sent("subscriptions/listen"):
            count += 1
            fail(world.driver, world.driver.take_sent("subscriptions/listen"), -32603)
    assert 3 <= count <= 12


@KINDS
@pytest.mark.parametrize("how", ["error", "result"])
def test_a_larger_listen_that_is_refused_leaves_the_old_one(how: str, up: Kind) -> None:
    """The new subscription is refused, and the granted ones stay."""
    world = World("pipe", up)
    old = world.subscribe("5", "a:1")
    answer = world.request("6", "a:2")
    new = world.next_listen()
    if how == "error":
        fail(world.driver, new, -32603, "too many", status=200)
    else:
        world.driver.answer(new, "{}")
    assert answer()["error"]["code"] == -32602
    assert not world.is_closed(old)
    tell(world.driver, old, UPDATED, {"uri": "a:1"})
    assert world.notifications() == [(UPDATED, "a:1")]


@KINDS
def test_a_pending_subscription_outlives_the_loss_of_the_server(up: Kind) -> None:
    """The subscription is made again with the new process, and answered."""
    world = World("pipe", up)
    answer = world.request("5", "a:1")
    listen = world.next_listen()
    if up is Kind.HTTP:
        world.driver.end(listen.channel, Cause(End.BROKEN))
    else:
        world.driver.end(listen.channel, DIED)
        connect_child(world.driver)
        world.driver.answer(world.driver.take_sent("server/discover"), _discovery())
    world.driver.wait(2.0)
    while world.driver.was_sent("subscriptions/listen"):
        grant(world.driver, world.driver.take_sent("subscriptions/listen"))
        world.driver.wait(0.1)
    assert answer() is not None


@KINDS
def test_a_server_that_never_confirms_does_not_hold_up_calls(up: Kind) -> None:
    """First requests wait one second for the acknowledgement, no longer."""
    world = driver(modern_plan(up))
    client = new_client(world, "pipe", up.value)
    client.initialize()
    discovered(world, LISTENING, grants=False)
    client.request("1", "prompts/list")
    assert not world.was_sent("prompts/list")
    world.wait(1.0)
    assert world.was_sent("prompts/list")


@KINDS
def test_a_notification_of_a_closed_subscription_is_dropped(up: Kind) -> None:
    """Notifications that cross the cancellation belong to an ended subscription."""
    world = World("pipe", up)
    old = world.listen
    assert old is not None
    world.subscribe("5", "a:1")
    if up is Kind.PIPE:
        tell(world.driver, old, TOOLS)
        assert world.notifications() == []
    assert world.is_closed(old)


@pytest.mark.parametrize("id", ["1", "99", '"x"', "null", "{}"])
def test_a_server_cancels_nothing_but_its_subscriptions(id: str) -> None:
    """A server's `notifications/cancelled` for any other id changes no state."""
    world = World("pipe", Kind.PIPE)
    channel = world.client.request("7", "tools/call", '{"name":"t"}')
    received = world.driver.take_sent("tools/call")
    for named in (id, str(received.id)):
        world.driver.send(
            received.channel,
            f'{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{named}}}}}'.encode(),
        )
    assert world.notifications() == []
    world.driver.answer(received, '{"resultType":"complete","content":[]}')
    assert json.loads(world.driver.messages(channel)[-1])["result"] == {"content": []}


# --- Many sessions, one server ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.SOCKET])
@pytest.mark.parametrize("sharing", [Sharing.CONCURRENT, Sharing.SERIAL])
def test_sessions_that_share_a_server_share_its_subscription(sharing: Sharing, kind: Kind) -> None:
    """One listen request covers all sessions. An update goes to its subscribers, a changed list to all."""
    world = World("pipe", kind, sharing=sharing)
    other, listen = world.join("pipe")
    assert listen is None, "it is there already"
    world.subscribe("5", "a:1")
    both = world.subscribe("6", "a:2", client=other)
    assert filter_of(both)["resourceSubscriptions"] == ["a:1", "a:2"]
    tell(world.driver, both, UPDATED, {"uri": "a:1"})
    tell(world.driver, both, UPDATED, {"uri": "a:2"})
    tell(world.driver, both, TOOLS)
    assert world.notifications() == [(UPDATED, "a:1"), (TOOLS, None)]
    assert world.notifications(other) == [(UPDATED, "a:2"), (TOOLS, None)]


def test_a_resource_is_dropped_with_its_last_subscriber() -> None:
    """The last subscriber may unsubscribe or leave."""
    world = World("pipe", Kind.PIPE, sharing=Sharing.CONCURRENT)
    other, _ = world.join("pipe")
    listen = world.subscribe("5", "a:1")
    again = world.request("6", "a:1", client=other)
    world.driver.wait(0.1)
    assert again()["result"] == {}
    world.request("7", "a:1", un=True)
    world.driver.wait(0.1)
    assert not world.driver.was_sent("subscriptions/listen")
    tell(world.driver, listen, UPDATED, {"uri": "a:1"})
    assert (UPDATED, "a:1") not in world.notifications()
    assert world.notifications(other) == [(UPDATED, "a:1")]
    assert other.pipe is not None
    world.driver.end(other.pipe)
    assert "resourceSubscriptions" not in filter_of(world.next_listen())


def test_an_update_below_a_subscribed_resource_reaches_its_subscriber() -> None:
    """An update may name a part of a subscribed resource. All clients with a subscription get it then."""
    world = World("pipe", Kind.PIPE, sharing=Sharing.CONCURRENT)
    other, _ = world.join("pipe")
    listen = world.subscribe("5", "file:///dir")
    tell(world.driver, listen, UPDATED, {"uri": "file:///dir/file"})
    assert world.notifications() == [(UPDATED, "file:///dir/file")]
    assert world.notifications(other) == []


# --- Another era ------------------------------------------------------------------------------------------------------


def test_subscriptions_outlive_a_change_of_era() -> None:
    """A server that is replaced by one of the other era, and back, gets the subscriptions each time."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE))
    client = new_client(world, "pipe", "s")
    client.initialize()
    legacy = '{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}}}'
    child = connect_child(world)
    world.answer(world.take_sent("initialize"), legacy)
    world.take_sent("notifications/initialized")
    client.request("1", "resources/subscribe", '{"uri":"a:1"}')
    world.answer(world.take_sent("resources/subscribe"))
    world.end(child, DIED)
    child = connect_child(world)
    fail(world, world.take_sent("initialize"), -32601)
    connect_child(world)
    child = world.dials[-1].channel
    world.answer(world.take_sent("server/discover"), _discovery())
    listen = world.take_sent("subscriptions/listen")
    assert filter_of(listen)["resourceSubscriptions"] == ["a:1"]
    grant(world, listen)
    client.request("2", "resources/subscribe", '{"uri":"a:2"}')
    world.wait(0.05)
    grant(world, world.take_sent("subscriptions/listen"))
    world.unread.clear()
    world.end(child, DIED)
    world.wait(2.0)
    connect_child(world)
    fail(world, world.take_sent("server/discover"), -32601)
    connect_child(world)
    world.answer(world.take_sent("initialize"), legacy)
    world.take_sent("notifications/initialized")
    again = [world.take_sent("resources/subscribe").frame["params"]["uri"] for _ in range(2)]
    assert again == ["a:1", "a:2"]


def test_the_log_level_outlives_a_change_of_era() -> None:
    """The level is in each request to a stateless server, and is set again in a session."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE))
    client = new_client(world, "pipe", "s")
    client.initialize()
    legacy = '{"protocolVersion":"2025-11-25","capabilities":{"logging":{}}}'
    child = connect_child(world)
    world.answer(world.take_sent("initialize"), legacy)
    world.take_sent("notifications/initialized")
    client.request("1", "logging/setLevel", '{"level":"error"}')
    world.answer(world.take_sent("logging/setLevel"))
    world.end(child, DIED)
    client.request("2", "tools/list")
    connect_child(world)
    fail(world, world.take_sent("initialize"), -32601)
    child = connect_child(world)
    world.answer(world.take_sent("server/discover"), _discovery())
    grant(world, world.take_sent("subscriptions/listen"))
    received = world.take_sent("tools/list")
    assert received.frame["params"]["_meta"][f"{META}logLevel"] == "error"
    world.answer(received, '{"resultType":"complete","tools":[]}')
    client.request("3", "logging/setLevel", '{"level":"info"}')
    world.end(child, DIED)
    client.request("4", "tools/list")
    connect_child(world)
    fail(world, world.take_sent("server/discover"), -32601)
    connect_child(world)
    world.answer(world.take_sent("initialize"), legacy)
    world.take_sent("notifications/initialized")
    assert world.take_sent("logging/setLevel").frame["params"]["level"] == "info"


@KINDS
def test_each_request_has_the_log_level_that_was_set_before(up: Kind) -> None:
    """Every request after `logging/setLevel` carries the level, and none before. An unknown level is refused."""
    world = World("pipe", up)
    world.client.request("1", "prompts/list")
    assert f"{META}logLevel" not in world.driver.take_sent("prompts/list").frame["params"]["_meta"]
    channel = world.client.request("2", "logging/setLevel", '{"level":"loud"}')
    assert json.loads(world.driver.messages(channel)[-1])["error"]["code"] == -32602
    for number, level in enumerate(("debug", "emergency", "info")):
        world.client.request(str(10 + number), "logging/setLevel", f'{{"level":"{level}"}}')
        assert json.loads(world.driver.messages(channel)[-1])["result"] == {}
        world.client.request(str(20 + number), "prompts/list")
        assert world.driver.take_sent("prompts/list").frame["params"]["_meta"][f"{META}logLevel"] == level


@KINDS
def test_questions_and_subscriptions_do_not_interfere(up: Kind) -> None:
    """A call between two rounds goes on while subscriptions change."""
    world = World("pipe", up)
    channel = world.client.request("7", "prompts/get", '{"name":"t"}')
    received = world.driver.take_sent("prompts/get")
    world.driver.answer(received, input_required_result(None, "s"))
    world.subscribe("8", "a:1")
    world.driver.wait(0.25)
    world.driver.answer(world.driver.take_sent("prompts/get"), '{"resultType":"complete","messages":[]}')
    assert json.loads(world.driver.messages(channel)[-1])["result"] == {"messages": []}


def test_a_refused_listen_over_http_is_repeated() -> None:
    """The request is repeated some time after 503."""
    world = driver(modern_plan(Kind.HTTP))
    client = new_client(world, "pipe", "http")
    client.initialize()
    listen = discovered(world, LISTENING, grants=False)
    assert listen is not None
    refuse(world, listen, 503)
    client.request("1", "prompts/list")
    assert world.was_sent("prompts/list")
    world.wait(5.0)
    assert world.was_sent("subscriptions/listen")


def test_a_listen_is_marked_as_lasting() -> None:
    """HTTP clients keep a lasting request apart from the connections of calls."""
    world = World("http", Kind.HTTP)
    assert world.listen is not None and world.listen.post is not None
    assert world.listen.post.is_lasting
    world.client.request("2", "tools/list")
    call = world.driver.take_sent("tools/list").post
    assert call is not None and not call.is_lasting


# --- Stale connections ------------------------------------------------------------------------------------------------

UNSENT = Cause(End.BROKEN, "the connection ended before a response", stale=True, unsent=True)


def test_a_repeated_listen_is_known_under_its_new_id() -> None:
    """Waiting clients get its acknowledgement and notifications as if the first request had arrived."""
    world = World("http", Kind.HTTP)
    old = world.listen
    assert old is not None
    answer = world.request("5", "a:b")
    first = world.next_listen()
    world.driver.end(first.channel, UNSENT)
    again = world.driver.take_sent("subscriptions/listen")
    assert again.frame["params"] == first.frame["params"]
    assert again.id != first.id
    assert not world.is_closed(old), "the other is not acknowledged yet"
    grant(world.driver, again)
    assert answer()["result"] == {}
    assert world.is_closed(old)
    tell(world.driver, again, UPDATED, {"uri": "a:b"})
    assert world.notifications() == [(UPDATED, "a:b")]
    world.driver.wait(0.05)
    assert not world.driver.was_sent("subscriptions/listen")


def test_the_first_listen_is_repeated_before_anything_else() -> None:
    """Requests wait for the listen request, so that no change is missed."""
    world = driver(modern_plan(Kind.HTTP))
    client = new_client(world, "http", "http")
    channel = client.initialize()
    listen = discovered(world, LISTENING, grants=False)
    assert listen is not None
    client.session = world.sent[channel][-1].session
    call = client.request("1", "prompts/list")
    assert not world.was_sent("prompts/list")
    world.end(listen.channel, UNSENT)
    again = world.take_sent("subscriptions/listen")
    assert not world.was_sent("prompts/list")
    grant(world, again)
    world.answer(world.take_sent("prompts/list"), '{"resultType":"complete","prompts":[]}')
    assert world.only_message(call)["result"]["prompts"] == []


def test_a_replaced_listen_is_not_repeated() -> None:
    world = World("http", Kind.HTTP)
    answers = [world.request("5", "a:b")]
    first = world.next_listen()
    answers.append(world.request("6", "c:d"))
    second = world.next_listen()
    world.driver.end(first.channel, UNSENT)
    assert not world.driver.was_sent("subscriptions/listen")
    grant(world.driver, second)
    assert [answer()["result"] for answer in answers] == [{}, {}]


# --- Repeated and missing messages ------------------------------------------------------------------------------------


@KINDS
def test_the_first_acknowledgement_counts(up: Kind) -> None:
    """A second acknowledgement of a listen request changes nothing."""
    world = World("http", up)
    listen = world.subscribe("5", "a:b")
    grant(world.driver, listen, {})
    tell(world.driver, listen, UPDATED, {"uri": "a:b"})
    assert world.notifications() == [(UPDATED, "a:b")]
    assert not world.is_closed(listen)
    world.driver.wait(1.0)
    assert not world.driver.was_sent("subscriptions/listen")


@KINDS
def test_a_cancelled_subscription_is_not_answered(up: Kind) -> None:
    """Other subscriptions of the same listen request are answered."""
    world = World("pipe", up)
    cancelled, kept = world.request("5", "a:b"), world.request("6", "c:d")
    listen = world.next_listen()
    world.client.notify("notifications/cancelled", '{"requestId":5}')
    grant(world.driver, listen)
    assert cancelled() is None
    assert kept()["result"] == {}


@KINDS
def test_a_pending_subscription_ends_with_unsubscribe(up: Kind) -> None:
    """The two requests may arrive in either order over HTTP. Other pending subscriptions go on waiting."""
    world = World("http", up)
    dropped, other = world.request("5", "a:1"), world.request("6", "a:2")
    assert world.request("7", "a:3", un=True)()["result"] == {}
    assert dropped() is None
    assert world.request("8", "a:1", un=True)()["result"] == {}
    assert dropped()["result"] == {}
    listen = world.next_listen()
    assert filter_of(listen)["resourceSubscriptions"] == ["a:2"]
    assert other() is None
    grant(world.driver, listen)
    assert other()["result"] == {}


@KINDS
def test_a_listen_that_ends_during_its_replacement_is_not_repeated(up: Kind) -> None:
    """Clients get nothing before the replacement is acknowledged, and then a change for each list."""
    world = World("http", up)
    old = world.listen
    assert old is not None
    answer = world.request("5", "a:b")
    new = world.next_listen()
    if up is Kind.PIPE:
        world.driver.answer(old, '{"resultType":"complete"}')
    else:
        world.driver.end(old.channel, Cause(End.DONE))
    assert answer() is None, "the replacement may grant it yet"
    world.driver.wait(10.0)
    assert not world.driver.was_sent("subscriptions/listen")
    assert world.notifications() == []
    grant(world.driver, new)
    assert answer()["result"] == {}
    assert sorted(world.notifications()) == [("notifications/resources/list_changed", None), (TOOLS, None)]
