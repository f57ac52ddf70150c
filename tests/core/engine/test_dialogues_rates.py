"""Dialogues about rate limits: what counts on each way to a server, for whom, and what the caller is told."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from dialogue import Dialogue
from dialogue_peers import Client
from expected_values import Containing
from isthmus.core import Era, Kind, Limits, Offer, PostOpening, Profile, ProfileServer, ServerPlan, TaskRules
from isthmus.core.base.governance import RateLimit
from isthmus.core.base.plan import AccessRule, AccessRules

TWO: Final = RateLimit(calls=2, per_s=60.0, tools=("write_*",))
ENDS: Final = [(down, era) for down in ("pipe", "http") for era in Era]
TEXT: Final = "write_page of files did not run: the limit is 2 calls per 60 s for write_*. Try again in 30 s"


def limited(*limits: RateLimit, **rest: Any) -> ServerPlan:
    return ServerPlan(
        **{"id": "files", "kind": Kind.PIPE, "era": Era.HANDSHAKE, "rate_limits": limits or (TWO,)} | rest
    )


def refusal(text: str = TEXT, seconds: int = 30) -> Any:
    told = {"content": [{"type": "text", "text": text}], "isError": True}
    return Containing(told | {"_meta": Containing({"dev.isthmus/retryAfterSeconds": seconds})})


def calls(play: Dialogue, client: Client, tool: str = "write_page", server: int = 0, **params: Any) -> None:
    """Makes a call that its server answers."""
    call = client.asks("tools/call", {"name": tool} | params)
    play.servers[server].answers(play.servers[server].is_asked("tools/call", ...), {"content": []})
    client.is_answered(call, ...)


def is_limited(client: Client, tool: str = "write_page", text: str = TEXT, seconds: int = 30, **params: Any) -> Any:
    """Makes a call that is refused."""
    call = client.asks("tools/call", {"name": tool} | params)
    client.is_answered(call, refusal(text, seconds))
    return call


@pytest.mark.parametrize(("down", "era"), ENDS)
def test_a_call_too_many_is_refused_until_there_is_a_token(down: str, era: Era) -> None:
    """The status is 200, and the reply to a POST has Retry-After. Other requests and tools are not limited."""
    play = Dialogue(limited())
    alice = play.client("alice", down, era=era, principal="alice")
    alice.meets(play.server)
    for _ in range(2):
        calls(play, alice)
    call = is_limited(alice)
    if down == "http":
        assert (play.statuses[call.channel], play.headers[call.channel]) == (200, (("Retry-After", "30"),))
    calls(play, alice, "read_page")
    listed = alice.asks("tools/list")
    play.server.answers(play.server.is_asked("tools/list", ...), {"tools": []})
    alice.is_answered(listed, ...)
    play.waits(29.5)
    is_limited(alice, text=TEXT.replace("30 s", "1 s"), seconds=1)
    play.waits(0.5)
    calls(play, alice)
    is_limited(alice)
    assert play.audited == ["limited: write_page for principal alice: the limit is 2 calls per 60 s for write_*"] * 2
    assert play.engine.report()[0].limited == (("write_page", 3),)
    play.finish()


@pytest.mark.parametrize(("down", "era"), [("http", Era.HANDSHAKE), ("http", Era.STATELESS), ("pipe", Era.HANDSHAKE)])
def test_callers_are_who_they_are_recognised_as_or_their_addresses(down: str, era: Era) -> None:
    """Clients without sessions share one session with the server, whatever their addresses."""
    everyone = RateLimit(calls=3, per_s=60.0, is_for_each_caller=False)
    play = Dialogue(limited(RateLimit(calls=1, per_s=60.0), everyone, kind=Kind.HTTP if down == "http" else Kind.PIPE))
    each = [("alice", "10.0.0.1"), ("alice", "10.0.0.2"), ("", "10.0.0.1"), ("", "10.0.0.2"), ("", "10.0.0.3")]
    met = [play.client(f"{who} {at}", down, era=era, principal=who, address=at) for who, at in each]
    for client in met if era is Era.HANDSHAKE else met[:1] + met[2:3]:
        client.meets(play.server)
    alice, alice_elsewhere, first, second, third = met
    own = "t of files did not run: the limit is 1 call per 60 s for all tools. Try again in 60 s"
    together = "t of files did not run: the limit is 3 calls of all callers per 60 s for all tools. Try again in 20 s"
    calls(play, alice, "t")
    is_limited(alice_elsewhere, "t", own, 60)
    calls(play, first, "t")
    calls(play, second, "t")
    is_limited(first, "t", own, 60)
    is_limited(third, "t", together, 20)


@pytest.mark.parametrize(("down", "era"), ENDS)
def test_all_ways_to_a_server_count_together(down: str, era: Era) -> None:
    """A server has its own path, a profile with other names, and `call_tool` of a profile."""
    profiles = (
        Profile("all", (ProfileServer("files", "f"),)),
        Profile("many", (ProfileServer("files", "m"),), has_search=True),
    )
    play = Dialogue(limited(RateLimit(calls=3, per_s=60.0)), profiles=profiles)
    own, all_, many = (
        play.client(f"at {place}", down, era=era, principal="alice", server=place) for place in ("files", "all", "many")
    )
    own.meets(play.server)
    for client in (all_, many):
        if era is Era.HANDSHAKE:
            client.is_answered(client.greets(), ...)
            client.notifies("initialized")
    calls(play, own)
    ways: list[tuple[Client, str, dict[str, Any]]] = [
        (all_, "f__write_page", {}),
        (many, "call_tool", {"arguments": {"name": "m__write_page"}}),
    ]
    for client, tool, params in ways:
        call = client.asks("tools/call", {"name": tool} | params)
        play.server.starts(able={"tools": {}})
        play.server.answers(play.server.is_asked("tools/call", ...), {"content": []})
        client.is_answered(call, ...)
    text = "write_page of files did not run: the limit is 3 calls per 60 s for all tools. Try again in 20 s"
    for client, tool, params in [(own, "write_page", {}), *ways, (many, "m__write_page", {})]:
        call = is_limited(client, tool, text, 20, **params)
        assert play.headers[call.channel] == ((("Retry-After", "20"),) if down == "http" else ())
    play.finish()


def test_each_call_of_a_batch_counts() -> None:
    play = Dialogue(limited())
    alice = play.client("alice", "http", revision="2025-03-26")
    alice.meets(play.server)
    batch = [{"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "write_page"}} for id in range(3)]
    call = alice.asks("ping")
    alice.is_answered(call, ...)
    heard: list[Any] = []
    alice.hears = lambda channel, message, post=None: heard.append(json.loads(message))  # type: ignore[method-assign]
    channel = alice.opens(PostOpening(alice.server, session=alice.session))
    play.happens(lambda now: play.engine.receive_message(channel, json.dumps(batch).encode(), now))
    received = [play.server.is_asked("tools/call", ...) for _ in range(2)]
    for one in received:
        play.server.answers(one, {"content": []})
    assert {each["id"]: each["result"].get("isError", False) for each in heard[0]} == {0: False, 1: False, 2: True}
    assert play.headers[channel] == ()


def test_a_call_that_asks_for_a_task_gets_an_error() -> None:
    """The result of such a call would have another form. Requests about the tasks that run do not count."""
    play = Dialogue(limited(RateLimit(calls=1, per_s=8.0), tasks=TaskRules(offer=Offer.AUTO)))
    alice = play.client("alice", "http")
    alice.meets(play.server, able={"tools": {}})
    call = alice.asks("tools/call", {"name": "slow", "task": {}})
    play.server.is_asked("tools/call", ...)
    play.waits(1.0)
    alice.is_answered(call, ...)
    for method in ("tasks/list", "tasks/list"):
        alice.is_answered(alice.asks(method), ...)
    again = alice.asks("tools/call", {"name": "slow", "task": {}})
    text = "slow of files did not run: the limit is 1 call per 8 s for all tools. Try again in 7 s"
    data = {"outcome": "not_executed", "retryAfterSeconds": 7}
    alice.is_answered(again, error={"code": -31007, "message": text, "data": data})
    is_limited(alice, "slow", text, 7)


def test_what_the_proxy_sends_by_itself_does_not_count() -> None:
    """A call that is sent again to a server that has forgotten its session is one call."""
    play = Dialogue(limited(kind=Kind.HTTP))
    alice = play.client("alice", "http")
    alice.meets(play.server)
    for _ in range(2):
        call = alice.asks("tools/call", {"name": "write_page"})
        play.server.refuses(play.server.is_asked("tools/call", ...), 404)
        play.server.is_greeted()
        play.server.answers(play.server.is_asked("tools/call", ...), {"content": []})
        alice.is_answered(call, ...)
    is_limited(alice)
    play.finish()


def test_what_is_refused_for_another_reason_takes_nothing() -> None:
    rules = AccessRules(tools=(("write_page", AccessRule(scopes=("write",))),))
    play = Dialogue(limited(RateLimit(calls=1, per_s=60.0), access=rules, decides=True))
    alice = play.client("alice", principal="alice")
    alice.meets(play.server)
    alice.is_answered(alice.asks("tools/call", {"name": "write_page"}), error=-31009)
    denied = alice.asks("tools/call", {"name": "read"})
    play.denies(alice.waits_for_decision("tools/call", "read"))
    alice.is_answered(denied, error=-31009)
    call = alice.asks("tools/call", {"name": "read"})
    play.allows(alice.waits_for_decision("tools/call", "read"))
    play.server.answers(play.server.is_asked("tools/call", ...), {"content": []})
    alice.is_answered(call, ...)


@pytest.mark.parametrize(
    "params", ['{"name":"a","name":"write_a"}', '{"name":"a","Name":"write_a"}', '{"name":1}', "{}"]
)
def test_a_name_that_servers_may_read_in_several_ways_is_refused(params: str) -> None:
    play = Dialogue(limited())
    alice = play.client("alice")
    alice.meets(play.server)
    line = f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}'.encode()
    play.happens(lambda now: play.engine.receive_message(alice.pipe, line, now))
    assert play.expects(alice, "is answered", {"id": 7, "error": ...}).what["error"]["code"] in (-32602, -32600)


def test_a_caller_for_whom_there_is_no_room_is_refused() -> None:
    play = Dialogue(limited(), limits=Limits(rate_buckets_max=1))
    alice, bob = (play.client(name, principal=name) for name in ("alice", "bob"))
    for client in (alice, bob):
        client.meets(play.server)
    calls(play, alice)
    is_limited(bob, text="write_page of files did not run: too many callers make calls. Try again in 30 s", seconds=30)
    play.waits(30.0)
    calls(play, bob)
