"""Retries of clients without sessions: what they must be, which are refused, and that a refused one changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Driver, error, notification, request
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.effects import Cause, Dial, End, Listen, Post
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from stateless_driving import (
    ACCEPT,
    ANSWERS,
    K,
    Modern,
    ask,
    assert_idle,
    collect,
    give,
    modern,
    parked,
    rise,
    rounds,
    served,
)


def refusal(client: Modern, channel: ChannelId) -> dict[str, Any]:
    """The error on a channel, which is of a requestState that is worth nothing."""
    found = client.answered(channel, client.last_id)["error"]
    assert found["code"] == -32602
    assert found["message"] == "Invalid or expired requestState"
    assert found["data"] == {"reason": "invalid_request_state"}, "why it is refused is not told"
    return dict(found)


def deferred(world: Driver, client: Modern) -> str:
    """A call that is answered with a question that had waited for one. Returns the state to bring back."""
    child = world.dials[-1].channel
    world.say(child, request('"q"', "roots/list"))
    channel = client.call()
    questions, state = rounds(client, channel, client.last_id)
    assert questions == {"r1": {"method": "roots/list"}}
    assert not world.hears("tools/call")
    return state


VISIT = (
    '{"code":-32042,"message":"visit","data":{"elicitations":'
    '[{"mode":"url","elicitationId":"e","url":"http://x","message":"m"}]}}'
)


def visited(world: Driver, client: Modern) -> str:
    """A call that is refused until a page is visited. Returns the state to bring back."""
    channel = client.call()
    heard = world.hear("tools/call")
    world.say(heard.channel, error(str(heard.id), VISIT))
    questions, state = rounds(client, channel, client.last_id)
    assert questions["r1"]["params"]["mode"] == "url"
    return state


# --- Refused ones change nothing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ["pipe", "http"])
@pytest.mark.parametrize("kind", ["deferred", "visited"])
def test_a_retry_whose_answers_cannot_be_read_leaves_nothing(down: str, kind: str) -> None:
    """A request that is refused is not open: what it would have begun is not there."""
    world, client, _ = served(down=down)
    state = deferred(world, client) if kind == "deferred" else visited(world, client)
    body = client.body("tools/call", name="ask", arguments={}, requestState=state, inputResponses={"r1": "X"})
    unreadable = b'{"roots":5}' if kind == "deferred" else b'{"action":"accept","action":"decline"}'
    channel = client.send(body.replace(b'"X"', unreadable))
    assert client.answered(channel, client.last_id)["error"]["code"] in (-32600, -32602)
    assert not world.engine.exchange_count
    assert not world.hears("tools/call")
    world.wait(60)
    assert_idle(world)


@pytest.mark.parametrize("kind", ["deferred", "visited"])
def test_such_a_retry_can_be_made_again(kind: str) -> None:
    """What is refused has claimed nothing: the same state is good for another try."""
    world, client, _ = served()
    state = deferred(world, client) if kind == "deferred" else visited(world, client)
    client.call(requestState=state, inputResponses={"r1": 5})
    method = "roots/list" if kind == "deferred" else "elicitation/create"
    channel = client.call(requestState=state, inputResponses={"r1": ANSWERS[method]})
    give(world, world.hear("tools/call"))
    assert client.answered(channel, client.last_id)["result"]["resultType"] == "complete"


# --- A round is claimed once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_of_two_retries_that_race_one_goes_on(down: str) -> None:
    """A round is accepted once: whoever comes second is refused, while the call goes on and when it is over."""
    world, client, _ = served(down=down)
    heard, _, state = parked(world, client)
    answers = {"r1": ACCEPT}
    winner, winner_id = client.call(requestState=state, inputResponses=answers), client.last_id
    loser = client.call(requestState=state, inputResponses=answers)
    refusal(client, loser)
    assert world.hear("").frame["result"] == ACCEPT
    assert not world.hears(""), "the answer went up once"
    give(world, heard)
    assert "result" in client.answered(winner, winner_id)
    refusal(client, client.call(requestState=state, inputResponses=answers))
    assert not world.hears("tools/call"), "nothing runs twice"
    assert_idle(world)


def test_only_the_newest_round_can_be_claimed() -> None:
    """A state of an earlier round is worth nothing once there is a later one, and costs that one nothing."""
    world, client, _ = served()
    heard, _, first = parked(world, client)
    channel = client.call(requestState=first)
    again, second = rounds(client, channel, client.last_id)
    assert list(again) == ["r1"], "what was not answered is asked again"
    refusal(client, client.call(requestState=first, inputResponses={"r1": ACCEPT}))
    assert not world.hears("")
    channel = client.call(requestState=second, inputResponses={"r1": ACCEPT})
    give(world, heard)
    assert "result" in client.answered(channel, client.last_id)


def test_a_round_whose_answer_has_not_its_form_can_be_claimed_again() -> None:
    """An answer that is none is refused, and the round stays open for a better one."""
    world, client, _ = served()
    heard, _, state = parked(world, client)
    for wrong in ({"action": "maybe"}, {}, 5, [], {"action": "accept", "content": []}):
        channel = client.call(requestState=state, inputResponses={"r1": wrong})
        assert client.answered(channel, client.last_id)["error"]["code"] == -32602
    assert not world.hears("")
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    give(world, heard)
    assert "result" in client.answered(channel, client.last_id)


def test_a_held_answer_is_given_once() -> None:
    """What the call came to while its client was away is given to whoever claims the round; then it is gone."""
    world, client, _ = served()
    heard, _, state = parked(world, client)
    give(world, heard, '{"content":[],"n":1}')
    assert world.hear("").frame["result"] == {"action": "cancel"}, "its server did not wait, and has asked all the same"
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert client.answered(channel, client.last_id)["result"]["n"] == 1
    assert not world.hears(""), "nobody waits for the answers any more"
    refusal(client, client.call(requestState=state, inputResponses={"r1": ACCEPT}))
    assert_idle(world)


def test_a_retry_for_another_run_of_the_proxy_is_told_that_its_call_is_lost() -> None:
    """Its key opens the state, but the call is not there: it is not begun a second time, since it may have had
    effects."""
    key = b"0123456789abcdef"
    first, client, _ = served(state_keys=(key,))
    _, _, state = parked(first, client)
    second, other, _ = served(seed=2, state_keys=(key,))
    channel = other.call(requestState=state, inputResponses={"r1": ACCEPT})
    answer = other.answered(channel, other.last_id)["result"]
    assert answer["isError"]
    assert answer["resultType"] == "complete"
    assert answer["_meta"][K + "serverInfo"] == {"name": "s", "version": "1"}
    assert not second.hears("tools/call")
    assert_idle(second)


# --- What a state is good for -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parked", "deferred", "visited"])
@pytest.mark.parametrize(
    "change",
    [{"name": "other"}, {"arguments": {"a": 2}}, {"arguments": {}}, {"arguments": {"a": "1"}}],
    ids=["tool", "value", "absence", "type"],
)
def test_a_state_is_good_for_its_own_request_only(kind: str, change: dict[str, Any]) -> None:
    """Another tool or other arguments with it are refused, and the call it is for stays as it is."""
    world, client, _ = served()
    original = {"name": "ask", "arguments": {"a": 1}}
    if kind == "deferred":
        world.say(world.dials[-1].channel, request('"q"', "roots/list"))
    channel = client.call(**original)
    if kind != "deferred":
        heard = world.hear("tools/call")
        if kind == "parked":
            ask(world, heard)
            collect(world)
        else:
            world.say(heard.channel, error(str(heard.id), VISIT))
    _, state = rounds(client, channel, client.last_id)
    answers = {"r1": ANSWERS["roots/list"] if kind == "deferred" else ACCEPT}
    refusal(client, client.call(**{**original, **change}, requestState=state, inputResponses=answers))
    assert not world.hears("tools/call")
    assert not world.hears("")
    channel = client.call(**original, requestState=state, inputResponses=answers)
    give(world, heard if kind == "parked" else world.hear("tools/call"))
    assert client.answered(channel, client.last_id)["result"]["resultType"] == "complete"


@pytest.mark.parametrize(
    "arguments",
    ['{"b":[1,2],"a":1.0}', '{ "b" : [1e0, 2.00], "a" : 1 }', '{"\\u0061":10e-1,"b":[1,2]}'],
    ids=["order", "numbers", "escapes"],
)
def test_the_same_arguments_may_be_written_otherwise(arguments: str) -> None:
    """Order, white space, escapes and the spelling of numbers make no other request."""
    world, client, _ = served()
    heard, _, state = parked(world, client, arguments={"a": 1, "b": [1, 2]})
    body = client.body("tools/call", name="ask", arguments="A", requestState=state, inputResponses={"r1": ACCEPT})
    channel = client.send(body.replace(b'"A"', arguments.encode()))
    give(world, heard)
    assert "result" in client.answered(channel, client.last_id)


@pytest.mark.parametrize("kind", ["parked", "deferred", "visited"])
def test_a_state_is_good_for_its_own_principal_only(kind: str) -> None:
    """Somebody else with it is told what a forger is told; its owner can still use it."""
    world, client, _ = served()
    make = {"parked": lambda: parked(world, client)[2], "deferred": lambda: deferred(world, client)}
    state = make.get(kind, lambda: visited(world, client))()
    thief = modern(world, "pipe", principal="eve")
    thief.request("server/discover")
    rise(world)
    answers = {"r1": ANSWERS["roots/list"] if kind == "deferred" else ACCEPT}
    refusal(thief, thief.call(requestState=state, inputResponses=answers))
    assert not world.hears("")
    own = client.call(requestState=state, inputResponses=answers)
    assert not [frame for frame in world.frames(own) if "error" in frame]


@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
@settings(max_examples=60, deadline=None)
def test_no_bit_of_a_state_can_be_changed(place: int, bit: int) -> None:
    """A state in which anything is different is refused, or is no state of ours; the call stays parked and goes on."""
    world, client, _ = served()
    heard, _, state = parked(world, client)
    raw = bytearray(state.encode())
    raw[place % len(raw)] ^= 1 << bit
    changed = raw.decode("latin-1")
    refusal(client, client.call(requestState=changed, inputResponses={"r1": ACCEPT}))
    assert not world.hears("")
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    give(world, heard)
    assert "result" in client.answered(channel, client.last_id)


@pytest.mark.parametrize("kind", ["parked", "deferred", "visited"])
def test_a_state_ends(kind: str) -> None:
    """After its time, and what clocks may differ by, it is worth nothing, and nothing of it is left."""
    world, client, _ = served()
    make = {"parked": lambda: parked(world, client)[2], "deferred": lambda: deferred(world, client)}
    state = make.get(kind, lambda: visited(world, client))()
    world.wait(Limits().park_ttl_s + 61)
    world.heard.clear()
    refusal(client, client.call(requestState=state, inputResponses={"r1": ACCEPT}))
    assert not world.hears("tools/call")
    assert_idle(world)


@pytest.mark.parametrize(
    "state", ["5", "[]", "{}", "true", '"not ours"', '"ist1."', json.dumps("x" * 70_000)], ids=lambda text: text[:10]
)
@pytest.mark.parametrize("method, target", [("tools/call", "name"), ("resources/read", "uri")])
def test_a_state_that_nobody_gave_is_refused(state: str, method: str, target: str) -> None:
    """A server with sessions gives none: whatever a client sends as one is refused, and the server sees nothing."""
    world, client, _ = served()
    body = client.body(method, **{target: "x:y"}, requestState="S").replace(b'"S"', state.encode())
    channel = client.send(body)
    assert client.answered(channel, client.last_id)["error"]["code"] == -32602
    assert not world.hears(method)
    assert_idle(world)


def test_no_state_is_as_good_as_none() -> None:
    """`null` is absence; and answers without a state belong to nothing: the call is a fresh one."""
    world, client, _ = served()
    channel = client.send(client.body("tools/call", name="x", requestState=None, inputResponses={"r1": ACCEPT}))
    heard = world.hear("tools/call")
    assert heard.frame["params"] == {"name": "x"}
    give(world, heard)
    assert "result" in client.answered(channel)


def test_a_client_that_lost_its_state_begins_anew() -> None:
    """The fresh call has a park of its own; the one that was left behind is never gone on with, and is given up."""
    world, client, _ = served()
    first, _, _ = parked(world, client)
    channel = client.call(inputResponses={"r1": ACCEPT})
    second = world.hear("tools/call")
    assert second.id != first.id
    assert not world.hears("")
    give(world, second)
    assert "result" in client.answered(channel, client.last_id)
    world.wait(Limits().park_ttl_s)
    assert world.hear("").frame["result"] == {"action": "cancel"}
    assert world.hear("notifications/cancelled").frame["params"]["requestId"] == first.id
    assert_idle(world)


# --- Pages to visit ---------------------------------------------------------------------------------------------------


def visits(*names: str) -> str:
    """A refusal until pages are visited."""
    pages = [{"mode": "url", "elicitationId": name, "url": "http://x", "message": "m"} for name in names]
    return json.dumps({"code": -32042, "message": "visit", "data": {"elicitations": pages}})


@pytest.mark.parametrize(
    "name", ["e", "e" * 10_000, "\u00e9" * 5_000, "\x01" * 64], ids=["short", "long", "wide", "odd"]
)
def test_a_visit_may_have_any_name(name: str) -> None:
    """The call goes up again when all are agreed to, and, refused once more, when the server says that they are over,
    whatever it calls them."""
    world, client, _ = served()
    channel = client.call()
    heard = world.hear("tools/call")
    world.say(heard.channel, error(str(heard.id), visits(name)))
    _, state = rounds(client, channel, client.last_id)
    channel = client.call(requestState=state, inputResponses={"r1": {"action": "accept"}})
    heard = world.hear("tools/call")
    world.say(heard.channel, error(str(heard.id), visits(name)))
    assert not world.hears("tools/call"), "it waits to hear that the visit is over"
    world.say(heard.channel, notification("notifications/elicitation/complete", json.dumps({"elicitationId": name})))
    give(world, world.hear("tools/call"))
    assert client.answered(channel, client.last_id)["result"]["resultType"] == "complete"
    assert client.told(channel) == [], "the end of a visit is the server's affair"
    assert_idle(world)


def test_a_refusal_with_too_many_pages_is_one() -> None:
    """More pages than can be asked for at once are a fault of the server, which its client is told."""
    world, client, _ = served()
    channel = client.call()
    heard = world.hear("tools/call")
    world.say(heard.channel, error(str(heard.id), visits(*map(str, range(1000)))))
    assert client.answered(channel)["error"]["code"] == -32603
    assert_idle(world)


def test_a_server_that_has_forgotten_its_session_is_not_answered_in_it() -> None:
    """Its question is open when the stream of the call is cut, and what is left of that is not to be had: 404."""
    world, client, _ = served("http")
    heard, _, _ = parked(world, client)
    world.end(heard.channel, Cause(End.BROKEN, last_event_id="e1"))
    world.wait(Limits().listen_retry_s)
    resumed = world.last(Dial)
    assert isinstance(resumed.target, Listen)
    before = len(world.every(Dial))
    world.end(resumed.channel, Cause(End.REFUSED, status=404))
    later = [dial.target for dial in world.every(Dial)[before:]]
    assert not [target for target in later if isinstance(target, Post) and target.session is not None]
