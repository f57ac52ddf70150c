"""Parked calls to the letter: what their servers and clients are told, at which bound, and at which moment."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Driver, notification, request
from isthmus.core.base.errors import OVERLOADED
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.log_levels import LEVELS
from isthmus.core.base.plan import Affinity
from isthmus.core.bridge import input_requests
from isthmus.core.input_required.suspended_calls import NOT_ASKED, asking, fallback, refusal_of
from isthmus.core.jsonrpc.envelope import Frame
from stateless_driving import (
    ABLE,
    ACCEPT,
    ANSWERS,
    FORM,
    QUESTIONS,
    Modern,
    ask,
    assert_empty,
    bridge,
    collect,
    give,
    modern,
    parked,
    rise,
    rounds,
    served,
    speak,
    tables,
)

CANCELLED = {"action": "cancel"}


def able_without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in ABLE.items() if name not in names}


def with_token(method: str = "elicitation/create", token: object = "theirs") -> str:
    return json.dumps({**json.loads(QUESTIONS[method]), "_meta": {"progressToken": token}})


def timers(world: Driver) -> dict[str, float]:
    """When each of them is due, counted from now."""
    live = world.engine._desk.timers._live
    return {purpose: live[purpose, key][0] - world.now for purpose, key in live}


# --- Refused questions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params", "error"),
    [
        ("vendor/ask", "{}", {"code": -32601, "message": "the client cannot be asked: it does not offer that"}),
        ("elicitation/create", '{"message":5}', {"code": -32602}),
        ("sampling/createMessage", '{"messages":5}', {"code": -32602}),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused_and_leaves_nothing(
    method: str, params: str, error: dict[str, Any]
) -> None:
    """With its reason; no call is parked for it."""
    world, client, _ = served()
    channel = client.call()
    heard = world.hear("tools/call")
    ask(world, heard, method, params=params)
    refused = world.hear("").frame
    assert refused["id"] == "q"
    assert error.items() <= refused["error"].items()
    assert refused["error"]["message"]
    assert not tables(world.engine)["parks"]
    give(world, heard)
    assert "result" in client.answered(channel)


@pytest.mark.parametrize("method", sorted(QUESTIONS))
def test_what_a_server_hears_of_nobody_and_of_a_client_that_cannot(method: str) -> None:
    """The kinds of question that there are each have an answer of their own; any other is an unknown method."""
    kind, said = input_requests.FALLBACKS[method]
    assert fallback(method) == (Frame(result=said) if kind == "result" else Frame(error=said))
    assert refusal_of(method) == Frame(error=input_requests.REFUSALS[method][1])
    assert fallback("vendor/ask") == Frame(error=NOT_ASKED)


def test_a_server_that_asks_too_many_is_told_to_try_later() -> None:
    world, client, _ = served(limits=Limits(parks_max=1))
    parked(world, client)
    client.call()
    ask(world, world.hear("tools/call"), id_raw='"more"')
    text = "too many calls wait for answers of their clients: try again later"
    assert world.hear("").frame["error"] == {"code": -32603, "message": text}


# --- Whose question it is ---------------------------------------------------------------------------------------------


def two_calls(first: dict[str, Any], second: dict[str, Any]) -> tuple[Driver, Modern, ChannelId, list[ChannelId]]:
    """Two calls of one session whose present legs declare this much: each was asked something before, and has come back
    with less if it can do less. Returns where the server asks, and where each is answered."""
    world, client, stream = served("http")
    assert stream is not None
    channels = []
    for number, able in enumerate((first, second)):
        name = f"t{number}"
        _, _, state = parked(world, client, "elicitation/create", f'"{name}"', name=name)
        channels.append(client.call(name, capabilities=able, requestState=state, inputResponses={"r1": ACCEPT}))
        assert world.hear("").frame["result"] == ACCEPT
    return world, client, stream, channels


@pytest.mark.parametrize(
    ("first", "second", "asked"),
    [
        (ABLE, ABLE, 1),
        (ABLE, able_without("roots"), 0),
        (able_without("roots"), ABLE, 1),
        (able_without("sampling"), able_without("sampling"), 1),
    ],
)
def test_of_several_calls_the_latest_that_can_be_asked_is_asked(
    first: dict[str, Any], second: dict[str, Any], asked: int
) -> None:
    """Where the question does not say whose it is: capabilities decide before age."""
    world, client, stream, channels = two_calls(first, second)
    world.say(stream, request("1", "roots/list"))
    collect(world)
    assert not world.messages(channels[1 - asked])
    assert rounds(client, channels[asked])[0] == {"r2": {"method": "roots/list"}}


FAILURE = '{"content":[{"type":"text","text":"no roots"}],"isError":true}'


@pytest.mark.parametrize("where", ["in the call", "beside one call", "beside two calls"])
def test_a_call_fails_for_what_its_client_lacks_where_it_is_known_whose_question_it_was(where: str) -> None:
    """The client is told which capability it would take: not where another call may have asked."""
    world = bridge()
    client = modern(world, "http", capabilities=able_without("roots"))
    channel = client.call("t")
    stream = rise(world)
    assert stream is not None
    heard = world.hear("tools/call")
    if where == "in the call":
        ask(world, heard, "roots/list")
    elif where == "beside one call":
        world.say(stream, request('"q"', "roots/list"))
    else:
        client.call("other")
        other = world.hear("tools/call")
        world.say(stream, request('"q"', "roots/list"))
        give(world, other, FAILURE)
    assert world.hear("").frame["error"] == {"code": -32601, "message": "Client has no roots"}
    give(world, heard, FAILURE)
    answer = client.answered(channel)
    if where == "beside two calls":
        assert answer["result"]["isError"] is True
    else:
        assert answer["error"]["code"] == -32021
        assert answer["error"]["data"]["requiredCapabilities"] == {"roots": {}}


def test_the_latest_of_two_calls_is_not_blamed_for_a_question_beside_them() -> None:
    """Its server's failure is its own, and told as such."""
    world = bridge()
    client = modern(world, "http", capabilities=able_without("roots"))
    client.call("first")
    stream = rise(world)
    assert stream is not None
    world.hear("tools/call")
    channel = client.call("second")
    heard = world.hear("tools/call")
    world.say(stream, request('"q"', "roots/list"))
    give(world, heard, FAILURE)
    assert client.answered(channel)["result"]["isError"] is True


# --- Time -------------------------------------------------------------------------------------------------------------


def test_the_deadlines_of_a_call_are_those_of_its_state() -> None:
    """Running: its server's time to answer. Asked: the pause for more questions beside it. Parked: the client's time to
    come back, and a sign of life for a server that wants one; its own time stands still."""
    limits = Limits(collect_s=1.0, park_ttl_s=500.0, park_tick_s=7.0, reply_timeout_s=50.0)
    world, client, _ = served(limits=limits)
    channel = client.call()
    heard = world.hear("tools/call")
    assert timers(world) == {"idle": timers(world)["idle"], "reply": 50.0}
    ask(world, heard, params=with_token())
    assert timers(world)["collect"] == 1.0
    assert set(timers(world)) == {"idle", "reply", "collect"}
    collect(world)
    _, state = rounds(client, channel)
    assert {"park": 500.0, "tick": 7.0}.items() <= timers(world).items()
    assert set(timers(world)) == {"idle", "park", "tick"}
    client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert {"idle", "reply"} <= set(timers(world)) <= {"idle", "reply", "tick"}


def test_only_the_call_whose_question_wants_signs_of_life_gives_them() -> None:
    """Another of the same session that is parked as well does not, and none is due for it."""
    world, client, _ = served(limits=Limits(park_tick_s=7.0))
    first = client.call("one")
    ask(world, world.hear("tools/call"), params=with_token())
    collect(world)
    rounds(client, first, 1)
    client.call("two")
    ask(world, world.hear("tools/call"), id_raw='"quiet"')
    collect(world)
    ticks = [id for purpose, id in world.engine._desk.timers._live if purpose == "tick"]
    (with_one,) = [id for id, (_, e) in tables(world.engine)["parks"].items() if b'"one"' in (e.params or b"")]
    assert ticks == [with_one]
    world.wait(7.0)
    (tick,) = world.heard
    assert tick.frame["params"] == {"progressToken": "theirs", "progress": 1}


def test_a_question_while_its_client_is_away_may_want_signs_of_life() -> None:
    """They begin with it, and count from 1; what wants none hears none."""
    world, client, _ = served(limits=Limits(park_tick_s=7.0))
    heard, _, _ = parked(world, client)
    world.wait(5)
    assert "tick" not in timers(world)
    ask(world, heard, "roots/list", '"quiet"')
    assert "tick" not in timers(world)
    ask(world, heard, "roots/list", '"second"', params='{"_meta":{"progressToken":9}}')
    for count in (1, 2):
        assert timers(world)["tick"] == 7.0
        world.wait(7.0)
        (tick,) = world.heard
        assert tick.frame["method"] == "notifications/progress"
        assert tick.frame["params"] == {"progressToken": 9, "progress": count}
        world.heard.clear()


def test_the_last_question_withdrawn_is_waited_for_no_more() -> None:
    """One of two leaves the pause for the other; both leave none."""
    world, client, _ = served(limits=Limits(collect_s=1.0))
    client.call()
    heard = world.hear("tools/call")
    ask(world, heard, id_raw="1")
    ask(world, heard, id_raw="2")
    speak(world, heard, notification("notifications/cancelled", '{"requestId":1}'))
    assert "collect" in timers(world)
    speak(world, heard, notification("notifications/cancelled", '{"requestId":2}'))
    assert "collect" not in timers(world)


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_call_whose_client_does_not_come_back_is_given_up(up: str) -> None:
    """The log says which; the server is told that nobody wants it, and why, and its question is answered as by one who
    turns away."""
    world, client, _ = served(up, limits=Limits(park_ttl_s=30.0))
    heard, _, state = parked(world, client)
    world.wait(29.9)
    assert not world.heard
    world.wait(0.1)
    assert world.notes("info")[-1] == "tools/call given up: its client did not come back with answers"
    assert world.hear("").frame == {"jsonrpc": "2.0", "id": "q", "result": CANCELLED}
    cancelled = world.hear("notifications/cancelled").frame["params"]
    assert cancelled == {"requestId": heard.id, "reason": "the client did not come back"}
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert client.answered(channel, client.last_id)["error"]["data"] == {"reason": "invalid_request_state"}


# --- What is kept -----------------------------------------------------------------------------------------------------


def held_result(size_bytes: int) -> str:
    """A result whose whole message, under a client's id of one digit, has so many bytes."""
    bare = len('{"jsonrpc":"2.0","id":1,"result":{"content":[],"x":""}}')
    return '{"content":[],"x":"%s"}' % ("x" * (size_bytes - bare))


@pytest.mark.parametrize(("second_bytes", "is_kept"), [(399, True), (400, True), (401, False)])
def test_answers_are_kept_up_to_a_bound_for_all_who_are_away(second_bytes: int, is_kept: bool) -> None:
    """The bound itself is within. Of what is too much, its client learns that the call has run."""
    world, client, _ = served(limits=Limits(parks_held_max_bytes=1000))
    first, _, first_state = parked(world, client, asked="1", name="a")
    second, _, second_state = parked(world, client, asked="2", name="b")
    give(world, first, held_result(600))
    outcomes = [len(e.park.outcome) for _, e in tables(world.engine)["parks"].values() if e.park.outcome is not None]
    assert outcomes == [600]
    give(world, second, held_result(second_bytes))
    channel = client.call("b", requestState=second_state, inputResponses={"r1": ACCEPT})
    answer = client.answered(channel, client.last_id)
    if is_kept:
        assert len(answer["result"]["x"]) > 300
    else:
        text = "the answer came while its client was away, and was too large to be kept: the call has run"
        assert answer["error"] == {"code": OVERLOADED, "message": text, "data": {"outcome": "executed"}}
    channel = client.call("a", requestState=first_state, inputResponses={"r1": ACCEPT})
    assert len(client.answered(channel, client.last_id)["result"]["x"]) > 500


def test_an_answer_for_who_waits_is_given_however_much_is_kept() -> None:
    """The bound is for what is kept."""
    world, client, _ = served(limits=Limits(parks_held_max_bytes=10))
    channel = client.call()
    heard = world.hear("tools/call")
    ask(world, heard)
    give(world, heard, held_result(600))
    assert len(client.answered(channel)["result"]["x"]) > 500


LOG = '{"level":"info","data":"%s"}'


@pytest.mark.parametrize(("last_bytes", "is_kept"), [(299, True), (300, True), (301, False)])
def test_of_the_log_so_many_bytes_are_kept(last_bytes: int, is_kept: bool) -> None:
    """All messages together, whole; one that does not fit is dropped, and a smaller one after it fits again."""
    world, client, _ = served(limits=Limits(park_logs_max_bytes=900))
    channel = client.call(level="debug")
    world.answer(world.hear("logging/setLevel"))
    heard = world.hear("tools/call")
    ask(world, heard)
    collect(world)
    _, state = rounds(client, channel)
    bare = len(notification("notifications/message", LOG % ""))
    for size_bytes in (400, 200, last_bytes):
        speak(world, heard, notification("notifications/message", LOG % ("x" * (size_bytes - bare))))
    (_, exchange) = next(iter(tables(world.engine)["parks"].values()))
    assert [len(message) for message in exchange.park.missed][:2] == [400, 200]
    channel = client.call(level="debug", requestState=state, inputResponses={"r1": ACCEPT})
    sizes = [len(frame["params"]["data"]) + bare for frame in client.told(channel)]
    assert sizes == [400, 200, *[last_bytes] * is_kept]


@pytest.mark.parametrize("wanted", LEVELS)
def test_a_leg_hears_of_its_level_and_above_and_of_levels_that_nobody_knows(wanted: str) -> None:
    world, client, _ = served()
    client.call(level="debug")
    world.answer(world.hear("logging/setLevel"))
    world.hear("tools/call")
    channel = client.call(level=wanted)
    heard = world.hear("tools/call")
    for level in (*LEVELS, "loud"):
        speak(world, heard, notification("notifications/message", json.dumps({"level": level, "data": 1})))
    told = [frame["params"]["level"] for frame in client.told(channel)]
    assert told == [*LEVELS[LEVELS.index(wanted) :], "loud"]


# --- Ends -------------------------------------------------------------------------------------------------------------


def test_every_open_question_is_answered_when_its_call_is_over() -> None:
    """In the order in which they came, each as of nobody; those of another call stay open."""
    world, client, _ = served()
    heard, _, _ = parked(world, client, asked='"other"')
    channel = client.call()
    mine = world.hear("tools/call")
    for number, method in enumerate(sorted(QUESTIONS)):
        ask(world, mine, method, str(number))
    give(world, mine)
    said = [world.hear("").frame for _ in QUESTIONS]
    assert [frame["id"] for frame in said] == [0, 1, 2]
    assert said[0]["result"] == CANCELLED
    assert [frame["error"]["message"] for frame in said[1:]] == ["Nobody answered"] * 2
    assert not world.heard
    assert "result" in client.answered(channel, client.last_id)
    assert heard.id != mine.id and len(tables(world.engine)["parks"]) == 1
    give(world, heard)
    assert world.hear("").frame == {"jsonrpc": "2.0", "id": "other", "result": CANCELLED}


@pytest.mark.parametrize("is_over", [False, True], ids=["asks", "is over"])
def test_a_session_for_one_call_ends_when_its_client_has_stayed_away(is_over: bool) -> None:
    """Whether its server still waits for answers, or has answered: nothing is left then."""
    world = bridge(affinity=Affinity.REQUEST, limits=Limits(park_ttl_s=30.0))
    client = modern(world, "pipe")
    channel = client.call()
    rise(world)
    heard = world.hear("tools/call")
    ask(world, heard)
    collect(world)
    rounds(client, channel)
    if is_over:
        give(world, heard)
    world.wait(29.0)
    assert world.engine.session_count == 1
    world.wait(1.0)
    world.wait(world.engine._desk.limits.cancel_grace_s)
    assert world.engine.session_count == 0
    world.heard.clear()
    assert_empty(world)


@pytest.mark.parametrize("info", [None, b'{"name":"s","version":"1"}'])
@pytest.mark.parametrize("keys", [["r1"], ["r2", "r10"]])
def test_the_answer_that_asks_to_the_letter(info: bytes | None, keys: list[str]) -> None:
    """Its type, each question under its key in order, the state, and who the server is where that is known."""
    entries = dict.fromkeys(keys, b'{"method":"roots/list","n":1.50}')
    said = asking(b'"a"', entries, 'st"ate', info)
    listed = ",".join(f'"{key}":{{"method":"roots/list","n":1.50}}' for key in keys)
    meta = "" if info is None else f',"_meta":{{"io.modelcontextprotocol/serverInfo":{info.decode()}}}'
    expected = (
        '{"jsonrpc":"2.0","id":"a","result":{"resultType":"input_required","inputRequests":{'
        + listed
        + '},"requestState":"st\\"ate"'
        + meta
        + "}}"
    )
    assert said.decode() == expected


def test_what_is_still_to_be_asked_is_asked_with_the_next_leg_but_for_what_it_cannot_be_asked() -> None:
    """Of two open questions one takes what the new leg has not declared: its server is refused, the other is asked."""
    world, client, _ = served()
    heard, _, state = parked(world, client)
    ask(world, heard, "roots/list", '"roots"')
    ask(world, heard, "elicitation/create", '"form"', params=FORM)
    channel = client.call(capabilities=able_without("roots"), requestState=state, inputResponses={"r1": ACCEPT})
    answered = [world.hear("").frame for _ in range(2)]
    assert answered[0]["result"] == ACCEPT
    assert answered[1] == {"jsonrpc": "2.0", "id": "roots", "error": {"code": -32601, "message": "Client has no roots"}}
    asked, state = rounds(client, channel)
    assert {key: question["method"] for key, question in asked.items()} == {"r3": "elicitation/create"}
    channel = client.call(requestState=state, inputResponses={"r3": ANSWERS["elicitation/create"], "r2": {"roots": []}})
    assert [heard.frame["id"] for heard in world.heard] == ["form"]
    give(world, heard)
    assert "result" in client.answered(channel)
