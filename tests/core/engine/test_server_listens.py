"""What a server without sessions tells of changes, for clients that have one: one subscription of ours at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, Heard, driver, newcomer
from isthmus.core.base.effects import Cause, End
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from stateless_server import (
    DIED,
    LISTENING,
    META,
    asking,
    connect_child,
    discovered,
    fail,
    grant,
    modern_plan,
    refuse,
    tell,
)

UPDATED = "notifications/resources/updated"
TOOLS = "notifications/tools/list_changed"
KINDS = pytest.mark.parametrize("up", [Kind.PIPE, Kind.HTTP])
SIDES = pytest.mark.parametrize("down", ["pipe", "http"])


class World:
    """A server that tells of changes, and a client whose stream is open."""

    def __init__(self, down: str, up: Kind, capabilities: str = LISTENING, **plan: Any) -> None:
        limits = plan.pop("limits", None)
        self.driver = driver(modern_plan(up, **plan), limits=limits)
        self.server = up.value
        self.client, self.listen = self.join(down, capabilities)

    def join(self, down: str, capabilities: str = LISTENING) -> tuple[Client, Heard | None]:
        """One more client. Returns it, and the subscription that was made for it."""
        client = newcomer(self.driver, down, self.server)
        channel = client.initialize()
        listen = None
        if self.driver.hears("server/discover") or not self.driver.messages(channel):
            listen = discovered(self.driver, capabilities)
        client.session = self.driver.sent[channel][-1].session
        client.notify("notifications/initialized")
        if client.pipe is None:
            client.listen()
        else:
            self.driver.sent[client.pipe].clear()
        return client, listen

    def told(self, client: Client | None = None) -> list[tuple[str, str | None]]:
        """Notifications so far: method and URI."""
        client = client or self.client
        channel = client.pipe or client.stream
        assert channel is not None
        frames = [f for f in self.driver.frames(channel) if "method" in f]
        assert META not in json.dumps(frames)
        return [(frame["method"], frame.get("params", {}).get("uri")) for frame in frames]

    def wish(self, id_raw: str, uri: str, *, un: bool = False, client: Client | None = None) -> Any:
        """`resources/subscribe` or `unsubscribe`. Returns how to see its answer."""
        client = client or self.client
        method = "resources/unsubscribe" if un else "resources/subscribe"
        channel = client.request(id_raw, method, json.dumps({"uri": uri}))

        def answer() -> Any:
            found = [frame for frame in self.driver.frames(channel) if frame.get("id") == int(id_raw)]
            return found[-1] if found else None

        return answer

    def next_listen(self) -> Heard:
        self.driver.wait(0.05)
        return self.driver.hear("subscriptions/listen")

    def subscribe(self, id_raw: str, uri: str, client: Client | None = None) -> Heard:
        """A subscription that works. Returns the listen that has it."""
        answer = self.wish(id_raw, uri, client=client)
        listen = self.next_listen()
        grant(self.driver, listen)
        assert answer()["result"] == {}
        self.driver.heard = [h for h in self.driver.heard if h.frame.get("method") != "notifications/cancelled"]
        return listen

    def is_closed(self, listen: Heard) -> bool:
        """Whether that subscription was ended by us."""
        if listen.post is not None:
            return listen.channel in self.driver.closed
        return any(b"notifications/cancelled" in e.message and b":%d}" % listen.id in e.message for e in self._sends())

    def _sends(self) -> Any:
        return [send for channel in self.driver.children for send in self.driver.sent[channel]]


def wanted(listen: Heard | None) -> dict[str, Any]:
    assert listen is not None
    found = listen.frame["params"]["notifications"]
    assert isinstance(found, dict)
    return found


@KINDS
@SIDES
def test_one_subscription_has_what_the_server_offers(down: str, up: Kind) -> None:
    """After the introduction one `subscriptions/listen` is open, with the lists the server tells of and no other."""
    world = World(down, up)
    assert wanted(world.listen) == {"toolsListChanged": True, "resourcesListChanged": True}
    assert World(down, up, '{"tools":{}}').listen is None
    assert wanted(World(down, up, '{"prompts":{"listChanged":true}}').listen) == {"promptsListChanged": True}


@KINDS
@SIDES
def test_changes_reach_the_client_without_the_name_of_our_subscription(down: str, up: Kind) -> None:
    """After each change every interested client is told of that type and URI."""
    world = World(down, up)
    assert world.listen is not None
    tell(world.driver, world.listen, TOOLS)
    listen = world.subscribe("5", "a:b")
    tell(world.driver, listen, UPDATED, {"uri": "a:b"})
    assert world.told() == [(TOOLS, None), (UPDATED, "a:b")]


@KINDS
@SIDES
def test_a_wish_is_answered_when_it_is_granted_and_nothing_is_missed_meanwhile(down: str, up: Kind) -> None:
    """Make before break: the old subscription ends only once the new one is confirmed, and `{}` says that it is."""
    world = World(down, up)
    old = world.listen
    assert old is not None
    answer = world.wish("5", "a:b")
    world.driver.wait(0.04)
    assert not world.driver.hears("subscriptions/listen"), "perhaps more follows at once"
    new = world.next_listen()
    assert wanted(new) == wanted(old) | {"resourceSubscriptions": ["a:b"]}
    assert answer() is None
    tell(world.driver, old, TOOLS)
    assert not world.is_closed(old)
    grant(world.driver, new)
    assert answer()["result"] == {}
    assert world.is_closed(old)
    assert not world.is_closed(new)
    tell(world.driver, new, UPDATED, {"uri": "a:b"})
    assert world.told() == [(TOOLS, None), (UPDATED, "a:b")]


@KINDS
def test_many_wishes_at_once_make_one_subscription(up: Kind) -> None:
    """Changes of what is wanted are gathered; each is answered."""
    world = World("pipe", up)
    answers = [world.wish(str(10 + n), f"a:{n}") for n in range(5)]
    listen = world.next_listen()
    assert wanted(listen)["resourceSubscriptions"] == [f"a:{n}" for n in range(5)]
    grant(world.driver, listen)
    assert [answer()["result"] for answer in answers] == [{}] * 5
    assert not world.driver.hears("subscriptions/listen")


@KINDS
def test_a_wish_that_comes_while_one_is_open_waits_for_the_next(up: Kind) -> None:
    """What the open request does not ask for, its confirmation does not grant."""
    world = World("pipe", up)
    first = world.wish("5", "a:1")
    listen = world.next_listen()
    second = world.wish("6", "a:2")
    grant(world.driver, listen)
    assert first()["result"] == {}
    assert second() is None
    again = world.next_listen()
    assert wanted(again)["resourceSubscriptions"] == ["a:1", "a:2"]
    grant(world.driver, again)
    assert second()["result"] == {}


@KINDS
def test_what_is_not_granted_is_refused(up: Kind) -> None:
    """A confirmation without the URI is a refusal: -32602; what was granted beside it is not."""
    world = World("pipe", up)
    good, bad = world.wish("5", "a:good"), world.wish("6", "a:bad")
    listen = world.next_listen()
    grant(world.driver, listen, {"toolsListChanged": True, "resourceSubscriptions": ["a:good"]})
    assert good()["result"] == {}
    assert bad()["error"]["code"] == -32602
    world.wish("7", "a:third")
    assert wanted(world.next_listen())["resourceSubscriptions"] == ["a:good", "a:third"], "it is not asked for again"


@KINDS
@pytest.mark.parametrize(
    "capabilities",
    ["{}", '{"resources":{}}', '{"resources":{"listChanged":true}}', '{"resources":{"subscribe":false}}'],
)
def test_a_server_that_tells_of_no_resource_is_not_asked_to(capabilities: str, up: Kind) -> None:
    """The method is unknown then, as it would be with the server itself."""
    world = World("pipe", up, capabilities)
    assert world.wish("5", "a:b")()["error"]["code"] == -32601
    world.driver.wait(1.0)
    assert not world.driver.hears("subscriptions/listen")


@pytest.mark.parametrize("params", ["{}", '{"uri":1}', '{"uri":null}', '{"uri":"a","uri":"b"}', '{"uri":"\\ud800"}'])
def test_a_wish_without_a_uri_is_refused(params: str) -> None:
    """A subscription is to something."""
    world = World("http", Kind.PIPE)
    channel = world.client.request("5", "resources/subscribe", params)
    assert world.driver.said(channel)["error"]["code"] in (-32602, -32600)
    world.driver.wait(1.0)
    assert not world.driver.hears("subscriptions/listen")


def test_subscriptions_are_bounded() -> None:
    """One too many is refused; the others stay."""
    world = World("pipe", Kind.PIPE, limits=Limits(subscriptions_per_session_max=2))
    for number in range(2):
        world.subscribe(str(10 + number), f"a:{number}")
    assert world.wish("20", "a:2")()["error"]["code"] == -32602
    assert world.wish("21", "a:0", un=True)()["result"] == {}
    world.subscribe("22", "a:2")


@KINDS
def test_a_wish_is_dropped_at_once_and_the_subscription_shrinks_later(up: Kind) -> None:
    """`resources/unsubscribe` is answered without waiting."""
    world = World("pipe", up)
    world.subscribe("5", "a:1")
    old = world.subscribe("6", "a:2")
    assert world.wish("7", "a:1", un=True)()["result"] == {}
    new = world.next_listen()
    assert wanted(new)["resourceSubscriptions"] == ["a:2"]
    assert not world.is_closed(old)
    grant(world.driver, new)
    assert world.is_closed(old)


def test_no_subscription_is_kept_for_nothing() -> None:
    """When nothing is wanted any more, the last one is ended."""
    world = World("pipe", Kind.PIPE, '{"resources":{"subscribe":true}}')
    assert world.listen is None
    listen = world.subscribe("5", "a:1")
    world.wish("6", "a:1", un=True)
    world.driver.wait(0.05)
    assert world.is_closed(listen)
    assert not world.driver.hears("subscriptions/listen")


@KINDS
def test_the_same_wish_twice_is_one(up: Kind) -> None:
    """Corner case 67: to subscribe to what is subscribed is granted at once, without another subscription."""
    world = World("pipe", up)
    world.subscribe("5", "a:1")
    again = world.wish("6", "a:1")
    world.driver.wait(0.05)
    assert again()["result"] == {}
    assert not world.driver.hears("subscriptions/listen")


# --- Losses -----------------------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("how", ["result", "cut", "cancelled"])
def test_a_subscription_that_ends_is_had_again_and_everything_may_have_changed(how: str, up: Kind) -> None:
    """After any outage of what is subscribed the client hears of at least one change for each granted part."""
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
        world.driver.answer(world.driver.hear("server/discover"), _discovery())
    world.driver.wait(2.0)
    assert world.told() == []
    again = world.driver.hear("subscriptions/listen")
    assert wanted(again) == wanted(listen)
    grant(world.driver, again)
    assert sorted(world.told()) == [
        ("notifications/resources/list_changed", None),
        (UPDATED, "a:1"),
        (TOOLS, None),
    ]


def _discovery() -> str:
    return f'{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{LISTENING}}}'


def test_subscriptions_that_fail_and_fail_are_asked_for_more_and_more_rarely() -> None:
    """A server that ends each at once does not keep us busy."""
    world = World("pipe", Kind.HTTP)
    listen, count = world.listen, 0
    assert listen is not None
    world.driver.answer(listen, "{}")
    for _ in range(200):
        world.driver.wait(0.5)
        if world.driver.hears("subscriptions/listen"):
            count += 1
            fail(world.driver, world.driver.hear("subscriptions/listen"), -32603)
    assert 3 <= count <= 12


@KINDS
@pytest.mark.parametrize("how", ["error", "result"])
def test_a_larger_subscription_that_is_refused_leaves_the_old_one(how: str, up: Kind) -> None:
    """The server refuses to tell of more: the wish is refused, what was subscribed stays so."""
    world = World("pipe", up)
    old = world.subscribe("5", "a:1")
    answer = world.wish("6", "a:2")
    new = world.next_listen()
    if how == "error":
        fail(world.driver, new, -32603, "too many", status=200)
    else:
        world.driver.answer(new, "{}")
    assert answer()["error"]["code"] == -32602
    assert not world.is_closed(old)
    tell(world.driver, old, UPDATED, {"uri": "a:1"})
    assert world.told() == [(UPDATED, "a:1")]


@KINDS
def test_a_server_that_dies_while_it_is_asked_to_tell_is_asked_again(up: Kind) -> None:
    """A wish that waits is no reason to lose it: it is made again with the new process, and answered."""
    world = World("pipe", up)
    answer = world.wish("5", "a:1")
    listen = world.next_listen()
    if up is Kind.HTTP:
        world.driver.end(listen.channel, Cause(End.BROKEN))
    else:
        world.driver.end(listen.channel, DIED)
        connect_child(world.driver)
        world.driver.answer(world.driver.hear("server/discover"), _discovery())
    world.driver.wait(2.0)
    while world.driver.hears("subscriptions/listen"):
        grant(world.driver, world.driver.hear("subscriptions/listen"))
        world.driver.wait(0.1)
    assert answer() is not None


@KINDS
def test_a_server_that_never_confirms_does_not_hold_up_calls(up: Kind) -> None:
    """First requests wait for the subscription for a second, no longer."""
    world = driver(modern_plan(up))
    client = newcomer(world, "pipe", up.value)
    client.initialize()
    discovered(world, LISTENING, grants=False)
    client.request("1", "prompts/list")
    assert not world.hears("prompts/list")
    world.wait(1.0)
    assert world.hears("prompts/list")


@KINDS
def test_a_notification_of_a_closed_subscription_is_dropped(up: Kind) -> None:
    """Between our word and the server's ear it may tell of more: that is of a subscription which is over."""
    world = World("pipe", up)
    old = world.listen
    assert old is not None
    world.subscribe("5", "a:1")
    if up is Kind.PIPE:
        tell(world.driver, old, TOOLS)
        assert world.told() == []
    assert world.is_closed(old)


@pytest.mark.parametrize("id", ["1", "99", '"x"', "null", "{}"])
def test_a_server_cancels_nothing_but_its_subscriptions(id: str) -> None:
    """A server's `cancelled` that names no subscription changes no state."""
    world = World("pipe", Kind.PIPE)
    channel = world.client.request("7", "tools/call", '{"name":"t"}')
    heard = world.driver.hear("tools/call")
    for named in (id, str(heard.id)):
        world.driver.say(
            heard.channel,
            f'{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{named}}}}}'.encode(),
        )
    assert world.told() == []
    world.driver.answer(heard, '{"resultType":"complete","content":[]}')
    assert json.loads(world.driver.messages(channel)[-1])["result"] == {"content": []}


# --- Many sessions, one server ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.SOCKET])
@pytest.mark.parametrize("sharing", [Sharing.CONCURRENT, Sharing.SERIAL])
def test_sessions_that_share_a_server_share_its_subscription(sharing: Sharing, kind: Kind) -> None:
    """One subscription covers what all want; an update goes to those who subscribed, a list's change to all."""
    world = World("pipe", kind, sharing=sharing)
    other, listen = world.join("pipe")
    assert listen is None, "it is there already"
    world.subscribe("5", "a:1")
    both = world.subscribe("6", "a:2", client=other)
    assert wanted(both)["resourceSubscriptions"] == ["a:1", "a:2"]
    tell(world.driver, both, UPDATED, {"uri": "a:1"})
    tell(world.driver, both, UPDATED, {"uri": "a:2"})
    tell(world.driver, both, TOOLS)
    assert world.told() == [(UPDATED, "a:1"), (TOOLS, None)]
    assert world.told(other) == [(UPDATED, "a:2"), (TOOLS, None)]


def test_who_shares_does_not_lose_what_another_drops() -> None:
    """A resource is dropped when its last subscriber goes, by word or by leaving."""
    world = World("pipe", Kind.PIPE, sharing=Sharing.CONCURRENT)
    other, _ = world.join("pipe")
    listen = world.subscribe("5", "a:1")
    again = world.wish("6", "a:1", client=other)
    world.driver.wait(0.1)
    assert again()["result"] == {}
    world.wish("7", "a:1", un=True)
    world.driver.wait(0.1)
    assert not world.driver.hears("subscriptions/listen")
    tell(world.driver, listen, UPDATED, {"uri": "a:1"})
    assert (UPDATED, "a:1") not in world.told()
    assert world.told(other) == [(UPDATED, "a:1")]
    assert other.pipe is not None
    world.driver.end(other.pipe)
    assert "resourceSubscriptions" not in wanted(world.next_listen())


def test_an_update_below_a_subscribed_resource_reaches_its_subscriber() -> None:
    """Updates may name a part of what was subscribed: whoever wants anything is told rather than nobody."""
    world = World("pipe", Kind.PIPE, sharing=Sharing.CONCURRENT)
    other, _ = world.join("pipe")
    listen = world.subscribe("5", "file:///dir")
    tell(world.driver, listen, UPDATED, {"uri": "file:///dir/file"})
    assert world.told() == [(UPDATED, "file:///dir/file")]
    assert world.told(other) == []


# --- Another era ------------------------------------------------------------------------------------------------------


def test_what_is_subscribed_outlives_a_change_of_era() -> None:
    """A server is replaced by one of the other era, and back: what was subscribed is again, each time."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE))
    client = newcomer(world, "pipe", "s")
    client.initialize()
    legacy = '{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}}}'
    child = connect_child(world)
    world.answer(world.hear("initialize"), legacy)
    world.hear("notifications/initialized")
    client.request("1", "resources/subscribe", '{"uri":"a:1"}')
    world.answer(world.hear("resources/subscribe"))
    world.end(child, DIED)
    child = connect_child(world)
    fail(world, world.hear("initialize"), -32601)
    connect_child(world)
    child = world.dials[-1].channel
    world.answer(world.hear("server/discover"), _discovery())
    listen = world.hear("subscriptions/listen")
    assert wanted(listen)["resourceSubscriptions"] == ["a:1"]
    grant(world, listen)
    client.request("2", "resources/subscribe", '{"uri":"a:2"}')
    world.wait(0.05)
    grant(world, world.hear("subscriptions/listen"))
    world.heard.clear()
    world.end(child, DIED)
    world.wait(2.0)
    connect_child(world)
    fail(world, world.hear("server/discover"), -32601)
    connect_child(world)
    world.answer(world.hear("initialize"), legacy)
    world.hear("notifications/initialized")
    again = [world.hear("resources/subscribe").frame["params"]["uri"] for _ in range(2)]
    assert again == ["a:1", "a:2"]


def test_the_log_level_outlives_a_change_of_era() -> None:
    """What was set once is said with each request to a server without sessions, and set again in a session."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE))
    client = newcomer(world, "pipe", "s")
    client.initialize()
    legacy = '{"protocolVersion":"2025-11-25","capabilities":{"logging":{}}}'
    child = connect_child(world)
    world.answer(world.hear("initialize"), legacy)
    world.hear("notifications/initialized")
    client.request("1", "logging/setLevel", '{"level":"error"}')
    world.answer(world.hear("logging/setLevel"))
    world.end(child, DIED)
    client.request("2", "tools/list")
    connect_child(world)
    fail(world, world.hear("initialize"), -32601)
    child = connect_child(world)
    world.answer(world.hear("server/discover"), _discovery())
    grant(world, world.hear("subscriptions/listen"))
    heard = world.hear("tools/list")
    assert heard.frame["params"]["_meta"][f"{META}logLevel"] == "error"
    world.answer(heard, '{"resultType":"complete","tools":[]}')
    client.request("3", "logging/setLevel", '{"level":"info"}')
    world.end(child, DIED)
    client.request("4", "tools/list")
    connect_child(world)
    fail(world, world.hear("server/discover"), -32601)
    connect_child(world)
    world.answer(world.hear("initialize"), legacy)
    world.hear("notifications/initialized")
    assert world.hear("logging/setLevel").frame["params"]["level"] == "info"


@KINDS
def test_each_request_says_the_level_that_was_set_before(up: Kind) -> None:
    """Every request after `logging/setLevel` carries it, and none before; an unknown level is refused."""
    world = World("pipe", up)
    world.client.request("1", "prompts/list")
    assert f"{META}logLevel" not in world.driver.hear("prompts/list").frame["params"]["_meta"]
    channel = world.client.request("2", "logging/setLevel", '{"level":"loud"}')
    assert json.loads(world.driver.messages(channel)[-1])["error"]["code"] == -32602
    for number, level in enumerate(("debug", "emergency", "info")):
        world.client.request(str(10 + number), "logging/setLevel", f'{{"level":"{level}"}}')
        assert json.loads(world.driver.messages(channel)[-1])["result"] == {}
        world.client.request(str(20 + number), "prompts/list")
        assert world.driver.hear("prompts/list").frame["params"]["_meta"][f"{META}logLevel"] == level


@KINDS
def test_questions_and_news_do_not_meet(up: Kind) -> None:
    """A call that is asked about goes on while subscriptions change."""
    world = World("pipe", up)
    channel = world.client.request("7", "prompts/get", '{"name":"t"}')
    heard = world.driver.hear("prompts/get")
    world.driver.answer(heard, asking(None, "s"))
    world.subscribe("8", "a:1")
    world.driver.wait(0.25)
    world.driver.answer(world.driver.hear("prompts/get"), '{"resultType":"complete","messages":[]}')
    assert json.loads(world.driver.messages(channel)[-1])["result"] == {"messages": []}


def test_a_refused_subscription_over_http_is_had_again() -> None:
    """503 is no end of everything: it is asked for again, later."""
    world = driver(modern_plan(Kind.HTTP))
    client = newcomer(world, "pipe", "http")
    client.initialize()
    listen = discovered(world, LISTENING, grants=False)
    assert listen is not None
    refuse(world, listen, 503)
    client.request("1", "prompts/list")
    assert world.hears("prompts/list")
    world.wait(5.0)
    assert world.hears("subscriptions/listen")


def test_a_subscription_is_said_to_last() -> None:
    """Drivers leave calls their connections."""
    world = World("http", Kind.HTTP)
    assert world.listen is not None and world.listen.post is not None
    assert world.listen.post.is_lasting
    world.client.request("2", "tools/list")
    call = world.driver.hear("tools/list").post
    assert call is not None and not call.is_lasting


# --- A connection that was closed before it was looked at -------------------------------------------------------------

UNSENT = Cause(End.BROKEN, "the connection ended before a response", stale=True, unsent=True)


def test_a_subscription_that_is_sent_again_is_heard_under_its_new_number() -> None:
    """What its server confirms and tells goes to whoever waits for it, as if it had arrived at once."""
    world = World("http", Kind.HTTP)
    old = world.listen
    assert old is not None
    answer = world.wish("5", "a:b")
    first = world.next_listen()
    world.driver.end(first.channel, UNSENT)
    again = world.driver.hear("subscriptions/listen")
    assert again.frame["params"] == first.frame["params"]
    assert again.id != first.id
    assert not world.is_closed(old), "until the other is confirmed"
    grant(world.driver, again)
    assert answer()["result"] == {}
    assert world.is_closed(old)
    tell(world.driver, again, UPDATED, {"uri": "a:b"})
    assert world.told() == [(UPDATED, "a:b")]
    world.driver.wait(0.05)
    assert not world.driver.hears("subscriptions/listen")


def test_the_first_subscription_is_sent_again_before_anything_else() -> None:
    """Requests wait for what is subscribed, and hear of all changes then."""
    world = driver(modern_plan(Kind.HTTP))
    client = newcomer(world, "http", "http")
    channel = client.initialize()
    listen = discovered(world, LISTENING, grants=False)
    assert listen is not None
    client.session = world.sent[channel][-1].session
    call = client.request("1", "prompts/list")
    assert not world.hears("prompts/list")
    world.end(listen.channel, UNSENT)
    again = world.hear("subscriptions/listen")
    assert not world.hears("prompts/list")
    grant(world, again)
    world.answer(world.hear("prompts/list"), '{"resultType":"complete","prompts":[]}')
    assert world.said(call)["result"]["prompts"] == []


def test_a_subscription_whose_place_another_has_taken_is_not_sent_again() -> None:
    world = World("http", Kind.HTTP)
    answers = [world.wish("5", "a:b")]
    first = world.next_listen()
    answers.append(world.wish("6", "c:d"))
    second = world.next_listen()
    world.driver.end(first.channel, UNSENT)
    assert not world.driver.hears("subscriptions/listen")
    grant(world.driver, second)
    assert [answer()["result"] for answer in answers] == [{}, {}]


# --- Servers that say things twice, or none ---------------------------------------------------------------------------


@KINDS
def test_what_a_server_confirms_first_counts(up: Kind) -> None:
    """Another word on the same subscription changes nothing: who was told yes, was told so."""
    world = World("http", up)
    listen = world.subscribe("5", "a:b")
    grant(world.driver, listen, {})
    tell(world.driver, listen, UPDATED, {"uri": "a:b"})
    assert world.told() == [(UPDATED, "a:b")]
    assert not world.is_closed(listen)
    world.driver.wait(1.0)
    assert not world.driver.hears("subscriptions/listen")


@KINDS
def test_a_wish_that_was_cancelled_is_not_answered(up: Kind) -> None:
    """Others that wait for the same subscription are."""
    world = World("pipe", up)
    cancelled, kept = world.wish("5", "a:b"), world.wish("6", "c:d")
    listen = world.next_listen()
    world.client.notify("notifications/cancelled", '{"requestId":5}')
    grant(world.driver, listen)
    assert cancelled() is None
    assert kept()["result"] == {}


@KINDS
def test_a_wish_that_is_dropped_before_it_was_granted_waits_for_nothing(up: Kind) -> None:
    """Over HTTP the second of two may come first. Wishes of others, and for other things, wait on."""
    world = World("http", up)
    dropped, other = world.wish("5", "a:1"), world.wish("6", "a:2")
    assert world.wish("7", "a:3", un=True)()["result"] == {}
    assert dropped() is None
    assert world.wish("8", "a:1", un=True)()["result"] == {}
    assert dropped()["result"] == {}
    listen = world.next_listen()
    assert wanted(listen)["resourceSubscriptions"] == ["a:2"]
    assert other() is None
    grant(world.driver, listen)
    assert other()["result"] == {}


@KINDS
def test_one_that_ends_while_another_is_about_to_take_its_place_is_not_asked_for_again(up: Kind) -> None:
    """Nor is anybody told anything before the other is confirmed; then, that something may have changed."""
    world = World("http", up)
    old = world.listen
    assert old is not None
    answer = world.wish("5", "a:b")
    new = world.next_listen()
    if up is Kind.PIPE:
        world.driver.answer(old, '{"resultType":"complete"}')
    else:
        world.driver.end(old.channel, Cause(End.DONE))
    assert answer() is None, "the other may confirm it yet"
    world.driver.wait(10.0)
    assert not world.driver.hears("subscriptions/listen")
    assert world.told() == []
    grant(world.driver, new)
    assert answer()["result"] == {}
    assert sorted(world.told()) == [("notifications/resources/list_changed", None), (TOOLS, None)]
