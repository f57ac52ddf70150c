"""Tests of resource subscriptions at servers without sessions: each request of a client is answered once, and leaves
nothing behind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, Driver, SentMessage, driver, new_client
from isthmus.core.base.effects import Dial, Note, Spawn
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind
from isthmus.core.base.timers import Deadline
from stateless_driving import tables
from stateless_server import DIED, discovered, fail, grant, modern_plan, tell

NAMES_ONLY = '{"resources":{"subscribe":true}}'
LISTS = '{"tools":{"listChanged":true},"resources":{"subscribe":true}}'
KINDS = pytest.mark.parametrize("up", [Kind.PIPE, Kind.HTTP])


def joined(
    up: Kind = Kind.PIPE, capabilities: str = NAMES_ONLY, limits: Limits | None = None, *, grants: bool = True
) -> tuple[Driver, Client, SentMessage | None]:
    """Returns a client with a session on a pipe, its server, and the first `subscriptions/listen`, if there was one."""
    world = driver(modern_plan(up), limits=limits)
    client = new_client(world, "pipe", up.value)
    client.initialize()
    listen = discovered(world, capabilities, grants=grants)
    client.notify("notifications/initialized")
    assert client.pipe is not None
    world.sent[client.pipe].clear()
    return world, client, listen


def subscribe(client: Client, number: int, uri: str, *, un: bool = False) -> None:
    method = "resources/unsubscribe" if un else "resources/subscribe"
    client.request(str(number), method, json.dumps({"uri": uri}))


def answers(client: Client) -> dict[int, Any]:
    """The results of the requests so far, by their ids: {} or the code of an error."""
    assert client.pipe is not None
    frames = [frame for frame in client.driver.frames(client.pipe) if "method" not in frame]
    found = {frame["id"]: frame.get("result", frame.get("error", {}).get("code")) for frame in frames}
    assert len(found) == len(frames), "each is answered once"
    return found


def listened(world: Driver) -> SentMessage:
    """Waits for the pause of changes, and takes the next `subscriptions/listen`."""
    world.wait(0.05)
    return world.take_sent("subscriptions/listen")


def timers(world: Driver) -> set[str]:
    return {purpose for purpose, _ in tables(world.engine)["timers"]}


def spawned(world: Driver) -> int:
    return len([dial for dial in world.every(Dial) if isinstance(dial.target, Spawn)])


@KINDS
def test_requests_too_late_for_one_listen_all_wait_for_the_next(up: Kind) -> None:
    world, client, _ = joined(up)
    subscribe(client, 1, "a:1")
    first = listened(world)
    for number in (2, 3, 4):
        subscribe(client, number, f"a:{number}")
    grant(world, first)
    assert answers(client) == {1: {}}
    second = listened(world)
    assert second.frame["params"]["notifications"] == {"resourceSubscriptions": ["a:1", "a:2", "a:3", "a:4"]}
    grant(world, second, {"resourceSubscriptions": ["a:1", "a:2", "a:4"]})
    assert answers(client) == {1: {}, 2: {}, 3: -32602, 4: {}}
    assert "listening" not in timers(world)
    assert len(tables(world.engine)["pending"]) == 1, "that of the subscription that goes on"


@KINDS
def test_a_cancelled_request_does_not_delay_others(up: Kind) -> None:
    world, client, _ = joined(up)
    subscribe(client, 1, "a:1")
    subscribe(client, 2, "a:2")
    client.notify("notifications/cancelled", '{"requestId":1}')
    subscribe(client, 3, "a:3")
    grant(world, listened(world))
    assert answers(client) == {2: {}, 3: {}}


@KINDS
def test_a_request_is_refused_when_the_listen_is_refused(up: Kind) -> None:
    """The refusal comes at once, and the server is not asked again where it would refuse again."""
    world, client, _ = joined(up)
    subscribe(client, 1, "a:1")
    fail(world, listened(world), -32602)
    assert answers(client) == {1: -32602}
    world.wait(60)
    assert not world.was_sent("subscriptions/listen")
    assert not tables(world.engine)["pending"]


def test_a_request_that_a_server_never_answers_times_out() -> None:
    """The request times out, and a granted one is not affected."""
    world, client, _ = joined(limits=Limits(reply_timeout_s=50.0, question_timeout_s=40.0))
    subscribe(client, 1, "a:1")
    grant(world, listened(world))
    subscribe(client, 2, "a:2")
    world.wait(49.0)
    assert answers(client) == {1: {}}
    world.wait(2.0)
    assert set(answers(client)) == {1, 2}
    assert answers(client)[2] != {}


def test_a_lost_server_is_restarted_only_for_a_subscription() -> None:
    for un in (False, True):
        world, client, _ = joined()
        subscribe(client, 1, "a:1")
        grant(world, listened(world))
        if un:
            subscribe(client, 2, "a:1", un=True)
            assert answers(client) == {1: {}, 2: {}}
            world.wait(0.05)
        count = spawned(world)
        world.end(world.last_dial(Spawn).channel, DIED)
        world.wait(10)
        assert (spawned(world) > count) is not un


@pytest.mark.parametrize(
    "capabilities",
    [
        '{"tools":{"listChanged":true,"listChanged":true}}',
        '{"tools":{"listChanged":1}}',
        '{"tools":[true]}',
        '{"prompts":{"subscribe":true}}',
        "{}",
    ],
)
def test_an_undeclared_subscription_is_refused(capabilities: str) -> None:
    world, client, listen = joined(capabilities=capabilities)
    assert listen is None
    subscribe(client, 1, "a:1")
    assert answers(client) == {1: -32601}
    world.wait(1)
    assert not world.was_sent("subscriptions/listen")


def test_a_confirmation_may_name_sixteen_times_as_many_resources_as_a_session() -> None:
    for count, is_read in ((16, True), (17, False)):
        world, client, _ = joined(limits=Limits(subscriptions_per_session_max=1))
        subscribe(client, 1, "a:0")
        before = len(world.log)
        grant(world, listened(world), {"resourceSubscriptions": [f"a:{number}" for number in range(count)]})
        assert answers(client) == ({1: {}} if is_read else {})
        noted = [effect for effect in world.log[before:] if isinstance(effect, Note) and "broken" in effect.text]
        assert len(noted) == (not is_read)


def test_a_listen_that_ends_again_and_again_is_repeated_after_longer_pauses() -> None:
    """The pause is doubled, until a subscription is confirmed."""
    world, _, listen = joined(capabilities=LISTS, limits=Limits(listen_retry_s=2.0, listen_retry_max_s=16.0))
    assert listen is not None
    pauses = []
    for _ in range(4):
        world.answer(listen, "{}")
        began = world.now
        while not world.was_sent("subscriptions/listen"):
            world.wait(0.5)
        pauses.append(world.now - began)
        listen = world.take_sent("subscriptions/listen")
    assert pauses == [2.0, 4.0, 8.0, 16.0]
    grant(world, listen)
    world.answer(listen, "{}")
    world.wait(1.9)
    assert not world.was_sent("subscriptions/listen")
    world.wait(0.1)
    assert world.was_sent("subscriptions/listen")


@KINDS
def test_changes_of_the_filter_are_gathered_for_a_moment(up: Kind) -> None:
    """The moment is counted from the last change, and no timer is left after it."""
    world, client, listen = joined(up, LISTS, Limits(listen_pause_s=1.0))
    assert listen is not None
    assert "news" not in timers(world)
    for number in range(3):
        subscribe(client, number, f"a:{number}")
        assert world.engine.next_timeout() == Deadline(world.now + 1.0, "subscriptions")
        world.wait(0.9)
        assert not world.was_sent("subscriptions/listen")
    world.wait(0.1)
    new = world.take_sent("subscriptions/listen")
    assert new.frame["params"]["notifications"] == {
        "toolsListChanged": True,
        "resourceSubscriptions": ["a:0", "a:1", "a:2"],
    }
    grant(world, new)
    assert answers(client) == {0: {}, 1: {}, 2: {}}
    assert not {"news", "listening"} & timers(world)


@KINDS
def test_notifications_about_nothing_known_are_dropped(up: Kind) -> None:
    """The completion of an unknown elicitation and cancellations of unknown ids are dropped."""
    world, client, listen = joined(up, LISTS)
    assert listen is not None
    assert client.pipe is not None
    tell(world, listen, "notifications/elicitation/complete", {"elicitationId": "e"})
    tell(world, listen, "notifications/cancelled", {"requestId": 987654})
    tell(world, listen, "notifications/cancelled", {})
    assert not world.messages(client.pipe)
    tell(world, listen, "notifications/tools/list_changed")
    assert len(world.messages(client.pipe)) == 1


@KINDS
def test_requests_wait_for_the_first_listen_to_be_granted(up: Kind) -> None:
    """Requests wait up to `listen_wait_s`, and then pass without it."""
    world, _, _ = joined(up, LISTS)
    assert "listening" not in timers(world)
    world, client, listen = joined(up, LISTS, Limits(listen_wait_s=3.0), grants=False)
    assert listen is not None
    assert "listening" in timers(world)
    client.request("9", "resources/list")
    world.wait(2.9)
    assert not world.was_sent("resources/list")
    world.wait(0.1)
    assert world.was_sent("resources/list")


@KINDS
def test_a_repeated_request_waits_with_the_first(up: Kind) -> None:
    world, client, _ = joined(up)
    subscribe(client, 1, "a:1")
    listen = listened(world)
    subscribe(client, 2, "a:1")
    world.wait(0.05)
    assert answers(client) == {}
    assert not world.was_sent("subscriptions/listen")
    grant(world, listen)
    assert answers(client) == {1: {}, 2: {}}
    assert timers(world) <= {"idle"}


@KINDS
def test_a_subscription_that_ends_before_it_was_sent_succeeds(up: Kind) -> None:
    """Subscribing and unsubscribing both succeed, and the server gets nothing."""
    world, client, _ = joined(up)
    subscribe(client, 1, "a:1")
    subscribe(client, 2, "a:1", un=True)
    world.wait(0.05)
    assert answers(client) == {1: {}, 2: {}}
    assert not world.was_sent("subscriptions/listen")
    assert not tables(world.engine)["pending"]


@KINDS
def test_a_listen_that_its_server_cancels_is_repeated_once(up: Kind) -> None:
    """The subscription is requested again after a pause, and only once."""
    world, _, listen = joined(up, LISTS)
    assert listen is not None
    tell(world, listen, "notifications/cancelled", {"requestId": listen.id})
    assert not tables(world.engine)["pending"]
    world.wait(1.0)
    again = world.take_sent("subscriptions/listen")
    grant(world, again)
    assert len(tables(world.engine)["pending"]) == 1
    world.wait(100)
    assert not world.was_sent("subscriptions/listen")
