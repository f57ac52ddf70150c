"""Tests of retries of stateless clients: which are refused, and that a refused one changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Driver, error, notification, request
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.effects import Dial, Listen, Post
from isthmus.core.base.events import Cause, End
from isthmus.core.base.grants import Grants
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import AccessRule, AccessRules, Kind, ServerPlan
from stateless_driving import (
    ACCEPT,
    ANSWERS,
    K,
    Modern,
    ask,
    assert_idle,
    collect,
    modern,
    respond,
    rounds,
    served,
    start_legacy_server,
    suspended,
)


def refusal(client: Modern, channel: ChannelId) -> dict[str, Any]:
    """Returns the error of a retry with an invalid `requestState`."""
    found = client.answered(channel, client.last_id)["error"]
    assert found["code"] == -32602
    assert found["message"] == "Invalid or expired requestState"
    assert found["data"] == {"reason": "invalid_request_state"}, "the error does not say why"
    return dict(found)


def deferred(world: Driver, client: Modern) -> str:
    """Makes a call that is answered with a deferred question. Returns its `requestState`."""
    child = world.dials[-1].channel
    world.send(child, request('"q"', "roots/list"))
    channel = client.call()
    questions, state = rounds(client, channel, client.last_id)
    assert questions == {"r1": {"method": "roots/list"}}
    assert not world.was_sent("tools/call")
    return state


URL_REQUIRED = (
    '{"code":-32042,"message":"visit","data":{"elicitations":'
    '[{"mode":"url","elicitationId":"e","url":"http://x","message":"m"}]}}'
)


def url_elicited(world: Driver, client: Modern) -> str:
    """Makes a call that is refused until a page is visited. Returns its `requestState`."""
    channel = client.call()
    received = world.take_sent("tools/call")
    world.send(received.channel, error(str(received.id), URL_REQUIRED))
    questions, state = rounds(client, channel, client.last_id)
    assert questions["r1"]["params"]["mode"] == "url"
    return state


# --- Refused retries --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ["pipe", "http"])
@pytest.mark.parametrize("kind", ["deferred", "url_elicitation"])
def test_a_retry_with_unreadable_answers_leaves_nothing(down: str, kind: str) -> None:
    """A refused request is not open and leaves no state."""
    world, client, _ = served(down=down)
    state = deferred(world, client) if kind == "deferred" else url_elicited(world, client)
    body = client.body("tools/call", name="ask", arguments={}, requestState=state, inputResponses={"r1": "X"})
    unreadable = b'{"roots":5}' if kind == "deferred" else b'{"action":"accept","action":"decline"}'
    channel = client.send(body.replace(b'"X"', unreadable))
    assert client.answered(channel, client.last_id)["error"]["code"] in (-32600, -32602)
    assert not world.engine.exchange_count
    assert not world.was_sent("tools/call")
    world.wait(60)
    assert_idle(world)


@pytest.mark.parametrize("kind", ["deferred", "url_elicitation"])
def test_a_refused_retry_can_be_repeated(kind: str) -> None:
    """A refused retry has not claimed its round: the same state is valid for another one."""
    world, client, _ = served()
    state = deferred(world, client) if kind == "deferred" else url_elicited(world, client)
    client.call(requestState=state, inputResponses={"r1": 5})
    method = "roots/list" if kind == "deferred" else "elicitation/create"
    channel = client.call(requestState=state, inputResponses={"r1": ANSWERS[method]})
    respond(world, world.take_sent("tools/call"))
    assert client.answered(channel, client.last_id)["result"]["resultType"] == "complete"


# --- A round is claimed once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_of_two_retries_that_race_one_goes_on(down: str) -> None:
    """A round is accepted once. A second retry is refused during the call and after it."""
    world, client, _ = served(down=down)
    received, _, state = suspended(world, client)
    answers = {"r1": ACCEPT}
    winner, winner_id = client.call(requestState=state, inputResponses=answers), client.last_id
    loser = client.call(requestState=state, inputResponses=answers)
    refusal(client, loser)
    assert world.take_sent("").frame["result"] == ACCEPT
    assert not world.was_sent(""), "the answer went up once"
    respond(world, received)
    assert "result" in client.answered(winner, winner_id)
    refusal(client, client.call(requestState=state, inputResponses=answers))
    assert not world.was_sent("tools/call"), "nothing runs twice"
    assert_idle(world)


def test_only_the_newest_round_can_be_claimed() -> None:
    """A state of an earlier round is invalid, and does not affect the later round."""
    world, client, _ = served()
    received, _, first = suspended(world, client)
    channel = client.call(requestState=first)
    again, second = rounds(client, channel, client.last_id)
    assert list(again) == ["r1"], "what was not answered is asked again"
    refusal(client, client.call(requestState=first, inputResponses={"r1": ACCEPT}))
    assert not world.was_sent("")
    channel = client.call(requestState=second, inputResponses={"r1": ACCEPT})
    respond(world, received)
    assert "result" in client.answered(channel, client.last_id)


def test_a_round_with_an_invalid_answer_can_be_claimed_again() -> None:
    """An invalid answer is refused, and the round stays open."""
    world, client, _ = served()
    received, _, state = suspended(world, client)
    for wrong in ({"action": "maybe"}, {}, 5, [], {"action": "accept", "content": []}):
        channel = client.call(requestState=state, inputResponses={"r1": wrong})
        assert client.answered(channel, client.last_id)["error"]["code"] == -32602
    assert not world.was_sent("")
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    respond(world, received)
    assert "result" in client.answered(channel, client.last_id)


def test_a_held_answer_is_given_once() -> None:
    """The answer of a call whose client was away is given to the retry of the round, once."""
    world, client, _ = served()
    received, _, state = suspended(world, client)
    respond(world, received, '{"content":[],"n":1}')
    assert world.take_sent("").frame["result"] == {"action": "cancel"}, (
        "the server did not wait for the answer to its question"
    )
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert client.answered(channel, client.last_id)["result"]["n"] == 1
    assert not world.was_sent(""), "the call has ended, so its server gets no answers"
    refusal(client, client.call(requestState=state, inputResponses={"r1": ACCEPT}))
    assert_idle(world)


def test_a_retry_after_a_restart_says_that_its_call_is_lost() -> None:
    """The state is authentic but its call is unknown. The call is not made again, since it may have had effects."""
    key = b"0123456789abcdef"
    first, client, _ = served(state_keys=(key,))
    _, _, state = suspended(first, client)
    second, other, _ = served(seed=2, state_keys=(key,))
    channel = other.call(requestState=state, inputResponses={"r1": ACCEPT})
    answer = other.answered(channel, other.last_id)["result"]
    assert answer["isError"]
    assert answer["resultType"] == "complete"
    assert answer["_meta"][K + "serverInfo"] == {"name": "s", "version": "1"}
    assert not second.was_sent("tools/call")
    assert_idle(second)


def test_who_may_not_make_a_call_any_more_is_not_told_that_it_is_lost() -> None:
    key, staff = b"0123456789abcdef", AccessRule(groups=("staff",))
    plan = ServerPlan(id="pipe", kind=Kind.PIPE, access=AccessRules(tools=(("ask", staff),)))
    first, client, _ = served(servers=(plan,), state_keys=(key,))
    client.grants = Grants(groups=frozenset({"staff"}))
    _, _, state = suspended(first, client)
    _, other, _ = served(servers=(plan,), seed=2, state_keys=(key,))
    channel = other.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert other.answered(channel, other.last_id)["error"] == {"code": -32602, "message": "Unknown tool: ask"}


# --- Validity of a state ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["suspended", "deferred", "url_elicitation"])
@pytest.mark.parametrize(
    "change",
    [{"name": "other"}, {"arguments": {"a": 2}}, {"arguments": {}}, {"arguments": {"a": "1"}}],
    ids=["tool", "value", "absence", "type"],
)
def test_a_state_is_valid_for_its_own_request_only(kind: str, change: dict[str, Any]) -> None:
    """A retry with another tool or other arguments is refused, and the suspended call stays as it is."""
    world, client, _ = served()
    original = {"name": "ask", "arguments": {"a": 1}}
    if kind == "deferred":
        world.send(world.dials[-1].channel, request('"q"', "roots/list"))
    channel = client.call(**original)
    if kind != "deferred":
        received = world.take_sent("tools/call")
        if kind == "suspended":
            ask(world, received)
            collect(world)
        else:
            world.send(received.channel, error(str(received.id), URL_REQUIRED))
    _, state = rounds(client, channel, client.last_id)
    answers = {"r1": ANSWERS["roots/list"] if kind == "deferred" else ACCEPT}
    refusal(client, client.call(**{**original, **change}, requestState=state, inputResponses=answers))
    assert not world.was_sent("tools/call")
    assert not world.was_sent("")
    channel = client.call(**original, requestState=state, inputResponses=answers)
    respond(world, received if kind == "suspended" else world.take_sent("tools/call"))
    assert client.answered(channel, client.last_id)["result"]["resultType"] == "complete"


@pytest.mark.parametrize(
    "arguments",
    ['{"b":[1,2],"a":1.0}', '{ "b" : [1e0, 2.00], "a" : 1 }', '{"\\u0061":10e-1,"b":[1,2]}'],
    ids=["order", "numbers", "escapes"],
)
def test_equal_arguments_may_be_written_differently(arguments: str) -> None:
    """Order, white space, escapes and the spelling of numbers do not matter."""
    world, client, _ = served()
    received, _, state = suspended(world, client, arguments={"a": 1, "b": [1, 2]})
    body = client.body("tools/call", name="ask", arguments="A", requestState=state, inputResponses={"r1": ACCEPT})
    channel = client.send(body.replace(b'"A"', arguments.encode()))
    respond(world, received)
    assert "result" in client.answered(channel, client.last_id)


@pytest.mark.parametrize("kind", ["suspended", "deferred", "url_elicitation"])
def test_a_state_is_valid_for_its_own_principal_only(kind: str) -> None:
    """Another principal gets the same error as for a forged state. The owner can still use it."""
    world, client, _ = served()
    make = {"suspended": lambda: suspended(world, client)[2], "deferred": lambda: deferred(world, client)}
    state = make.get(kind, lambda: url_elicited(world, client))()
    thief = modern(world, "pipe", principal="eve")
    thief.request("server/discover")
    start_legacy_server(world)
    answers = {"r1": ANSWERS["roots/list"] if kind == "deferred" else ACCEPT}
    refusal(thief, thief.call(requestState=state, inputResponses=answers))
    assert not world.was_sent("")
    own = client.call(requestState=state, inputResponses=answers)
    assert not [frame for frame in world.frames(own) if "error" in frame]


@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
@settings(max_examples=60, deadline=None)
def test_no_bit_of_a_state_can_be_changed(place: int, bit: int) -> None:
    """A changed state is refused or is no state of the proxy. The call stays suspended and goes on."""
    world, client, _ = served()
    received, _, state = suspended(world, client)
    raw = bytearray(state.encode())
    raw[place % len(raw)] ^= 1 << bit
    changed = raw.decode("latin-1")
    refusal(client, client.call(requestState=changed, inputResponses={"r1": ACCEPT}))
    assert not world.was_sent("")
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    respond(world, received)
    assert "result" in client.answered(channel, client.last_id)


@pytest.mark.parametrize("kind", ["suspended", "deferred", "url_elicitation"])
def test_a_state_expires(kind: str) -> None:
    """A state is invalid after its lifetime and the tolerance of clocks, and no entry of it is left."""
    world, client, _ = served()
    make = {"suspended": lambda: suspended(world, client)[2], "deferred": lambda: deferred(world, client)}
    state = make.get(kind, lambda: url_elicited(world, client))()
    world.wait(Limits().suspended_call_ttl_s + 61)
    world.unread.clear()
    refusal(client, client.call(requestState=state, inputResponses={"r1": ACCEPT}))
    assert not world.was_sent("tools/call")
    assert_idle(world)


@pytest.mark.parametrize(
    "state", ["5", "[]", "{}", "true", '"not ours"', '"ist1."', json.dumps("x" * 70_000)], ids=lambda text: text[:10]
)
@pytest.mark.parametrize("method, target", [("tools/call", "name"), ("resources/read", "uri")])
def test_a_state_that_was_never_issued_is_refused(state: str, method: str, target: str) -> None:
    """A server with sessions issues no state, so any other one is refused, and the server gets nothing."""
    world, client, _ = served()
    body = client.body(method, **{target: "x:y"}, requestState="S").replace(b'"S"', state.encode())
    channel = client.send(body)
    assert client.answered(channel, client.last_id)["error"]["code"] == -32602
    assert not world.was_sent(method)
    assert_idle(world)


def test_a_null_state_is_no_state() -> None:
    """A request with `null` for the state, or with answers but no state, is a new call."""
    world, client, _ = served()
    channel = client.send(client.body("tools/call", name="x", requestState=None, inputResponses={"r1": ACCEPT}))
    received = world.take_sent("tools/call")
    assert received.frame["params"] == {"name": "x"}
    respond(world, received)
    assert "result" in client.answered(channel)


def test_a_client_that_lost_its_state_begins_anew() -> None:
    """The new call is suspended on its own. The first one is never resumed, and is given up."""
    world, client, _ = served()
    first, _, _ = suspended(world, client)
    channel = client.call(inputResponses={"r1": ACCEPT})
    second = world.take_sent("tools/call")
    assert second.id != first.id
    assert not world.was_sent("")
    respond(world, second)
    assert "result" in client.answered(channel, client.last_id)
    world.wait(Limits().suspended_call_ttl_s)
    assert world.take_sent("").frame["result"] == {"action": "cancel"}
    assert world.take_sent("notifications/cancelled").frame["params"]["requestId"] == first.id
    assert_idle(world)


# --- URL elicitation --------------------------------------------------------------------------------------------------


def url_required(*names: str) -> str:
    """Returns an error that requires visits of pages."""
    pages = [{"mode": "url", "elicitationId": name, "url": "http://x", "message": "m"} for name in names]
    return json.dumps({"code": -32042, "message": "visit", "data": {"elicitations": pages}})


@pytest.mark.parametrize(
    "name", ["e", "e" * 10_000, "\u00e9" * 5_000, "\x01" * 64], ids=["short", "long", "wide", "odd"]
)
def test_a_url_elicitation_may_have_any_id(name: str) -> None:
    """The call is sent again when every page is accepted and, refused once more, when the server completes them under
    the same ids."""
    world, client, _ = served()
    channel = client.call()
    received = world.take_sent("tools/call")
    world.send(received.channel, error(str(received.id), url_required(name)))
    _, state = rounds(client, channel, client.last_id)
    channel = client.call(requestState=state, inputResponses={"r1": {"action": "accept"}})
    received = world.take_sent("tools/call")
    world.send(received.channel, error(str(received.id), url_required(name)))
    assert not world.was_sent("tools/call"), "the call waits for the completion"
    world.send(
        received.channel, notification("notifications/elicitation/complete", json.dumps({"elicitationId": name}))
    )
    respond(world, world.take_sent("tools/call"))
    assert client.answered(channel, client.last_id)["result"]["resultType"] == "complete"
    assert client.notifications(channel) == [], "completions are not passed on"
    assert_idle(world)


def test_too_many_url_elicitations_are_an_error() -> None:
    """More pages than one round allows are a fault of the server."""
    world, client, _ = served()
    channel = client.call()
    received = world.take_sent("tools/call")
    world.send(received.channel, error(str(received.id), url_required(*map(str, range(1000)))))
    assert client.answered(channel)["error"]["code"] == -32603
    assert_idle(world)


def test_no_answer_is_sent_in_a_forgotten_session() -> None:
    """The question is open when the stream of the call is cut and its resumption gets 404."""
    world, client, _ = served("http")
    received, _, _ = suspended(world, client)
    world.end(received.channel, Cause(End.BROKEN, last_event_id="e1"))
    world.wait(Limits().listen_retry_s)
    resumed = world.last(Dial)
    assert isinstance(resumed.target, Listen)
    before = len(world.every(Dial))
    world.end(resumed.channel, Cause(End.REFUSED, status=404))
    later = [dial.target for dial in world.every(Dial)[before:]]
    assert not [target for target in later if isinstance(target, Post) and target.session is not None]
