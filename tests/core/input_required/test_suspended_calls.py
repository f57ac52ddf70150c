"""Tests of suspended calls: what their servers and clients get, at which bound, and at which moment."""

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
from isthmus.core.bridge.input_requests import NOT_ASKED, fallback, refusal_of
from isthmus.core.input_required.call_state import asking
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
    modern,
    respond,
    rounds,
    send_during,
    served,
    start_legacy_server,
    suspended,
    tables,
)

CANCELLED = {"action": "cancel"}


def able_without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in ABLE.items() if name not in names}


def with_token(method: str = "elicitation/create", token: object = "theirs") -> str:
    return json.dumps({**json.loads(QUESTIONS[method]), "_meta": {"progressToken": token}})


def timers(world: Driver) -> dict[str, float]:
    """The seconds until each timer is due."""
    live = tables(world.engine)["timers"]
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
    """The error has a reason, and no call is suspended for the question."""
    world, client, _ = served()
    channel = client.call()
    received = world.take_sent("tools/call")
    ask(world, received, method, params=params)
    refused = world.take_sent("").frame
    assert refused["id"] == "q"
    assert error.items() <= refused["error"].items()
    assert refused["error"]["message"]
    assert not tables(world.engine)["suspended calls"]
    respond(world, received)
    assert "result" in client.answered(channel)


@pytest.mark.parametrize("method", sorted(QUESTIONS))
def test_the_answers_for_a_client_that_is_gone_and_for_one_that_cannot(method: str) -> None:
    """Each known kind of question has an answer of its own for both cases. Any other question gets "unknown method"."""
    kind, answer = input_requests.FALLBACKS[method]
    assert fallback(method) == (Frame(result=answer) if kind == "result" else Frame(error=answer))
    assert refusal_of(method) == Frame(error=input_requests.REFUSALS[method][1])
    assert fallback("vendor/ask") == Frame(error=NOT_ASKED)


def test_a_server_that_asks_too_many_is_told_to_try_later() -> None:
    world, client, _ = served(limits=Limits(suspended_calls_max=1))
    suspended(world, client)
    client.call()
    ask(world, world.take_sent("tools/call"), id_raw='"more"')
    text = "too many calls wait for answers of their clients: try again later"
    assert world.take_sent("").frame["error"] == {"code": -32603, "message": text}


# --- The call of a question -------------------------------------------------------------------------------------------


def two_calls(first: dict[str, Any], second: dict[str, Any]) -> tuple[Driver, Modern, ChannelId, list[ChannelId]]:
    """Makes two calls of one session, the present requests of which declare `first` and `second`. Each was asked
    something before, and has been continued. Returns the channel on which the server asks, and that of each call."""
    world, client, stream = served("http")
    assert stream is not None
    channels = []
    for number, able in enumerate((first, second)):
        name = f"t{number}"
        _, _, state = suspended(world, client, "elicitation/create", f'"{name}"', name=name)
        channels.append(client.call(name, capabilities=able, requestState=state, inputResponses={"r1": ACCEPT}))
        assert world.take_sent("").frame["result"] == ACCEPT
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
def test_the_latest_call_that_can_be_asked_is_asked(first: dict[str, Any], second: dict[str, Any], asked: int) -> None:
    """The question names no call: capabilities decide before age."""
    world, client, stream, channels = two_calls(first, second)
    world.send(stream, request("1", "roots/list"))
    collect(world)
    assert not world.messages(channels[1 - asked])
    assert rounds(client, channels[asked])[0] == {"r2": {"method": "roots/list"}}


FAILURE = '{"content":[{"type":"text","text":"no roots"}],"isError":true}'


@pytest.mark.parametrize("where", ["in the call", "beside one call", "beside two calls"])
def test_a_call_fails_for_a_missing_capability_if_the_question_was_certainly_its_own(where: str) -> None:
    """The error names the required capability, unless another call may have asked."""
    world = bridge()
    client = modern(world, "http", capabilities=able_without("roots"))
    channel = client.call("t")
    stream = start_legacy_server(world)
    assert stream is not None
    received = world.take_sent("tools/call")
    if where == "in the call":
        ask(world, received, "roots/list")
    elif where == "beside one call":
        world.send(stream, request('"q"', "roots/list"))
    else:
        client.call("other")
        other = world.take_sent("tools/call")
        world.send(stream, request('"q"', "roots/list"))
        respond(world, other, FAILURE)
    assert world.take_sent("").frame["error"] == {"code": -32601, "message": "Client has no roots"}
    respond(world, received, FAILURE)
    answer = client.answered(channel)
    if where == "beside two calls":
        assert answer["result"]["isError"] is True
    else:
        assert answer["error"]["code"] == -32021
        assert answer["error"]["data"]["requiredCapabilities"] == {"roots": {}}


def test_the_latest_of_two_calls_is_not_blamed_for_a_question_beside_them() -> None:
    """The failure is passed on as the server's own."""
    world = bridge()
    client = modern(world, "http", capabilities=able_without("roots"))
    client.call("first")
    stream = start_legacy_server(world)
    assert stream is not None
    world.take_sent("tools/call")
    channel = client.call("second")
    received = world.take_sent("tools/call")
    world.send(stream, request('"q"', "roots/list"))
    respond(world, received, FAILURE)
    assert client.answered(channel)["result"]["isError"] is True


# --- Time -------------------------------------------------------------------------------------------------------------


def test_the_deadlines_of_a_call_are_those_of_its_state() -> None:
    """A running call has the server's reply timeout. An asked call also has the pause for more questions. A
    suspended call has the client's time to come back, and ticks for a server that wants progress; its reply timeout
    stands still."""
    limits = Limits(collect_s=1.0, suspended_call_ttl_s=500.0, suspended_call_tick_s=7.0, reply_timeout_s=50.0)
    world, client, _ = served(limits=limits)
    channel = client.call()
    received = world.take_sent("tools/call")
    assert timers(world) == {"idle": timers(world)["idle"], "reply": 50.0}
    ask(world, received, params=with_token())
    assert timers(world)["collect"] == 1.0
    assert set(timers(world)) == {"idle", "reply", "collect"}
    collect(world)
    _, state = rounds(client, channel)
    assert {"park": 500.0, "tick": 7.0}.items() <= timers(world).items()
    assert set(timers(world)) == {"idle", "park", "tick"}
    client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert {"idle", "reply"} <= set(timers(world)) <= {"idle", "reply", "tick"}


def test_only_a_question_with_a_progress_token_gets_ticks() -> None:
    """Another suspended call of the same session has no ticks."""
    world, client, _ = served(limits=Limits(suspended_call_tick_s=7.0))
    first = client.call("one")
    ask(world, world.take_sent("tools/call"), params=with_token())
    collect(world)
    rounds(client, first, 1)
    client.call("two")
    ask(world, world.take_sent("tools/call"), id_raw='"quiet"')
    collect(world)
    ticks = [id for purpose, id in tables(world.engine)["timers"] if purpose == "tick"]
    (with_one,) = [
        id for id, (_, e) in tables(world.engine)["suspended calls"].items() if b'"one"' in (e.params or b"")
    ]
    assert ticks == [with_one]
    world.wait(7.0)
    (tick,) = world.unread
    assert tick.frame["params"] == {"progressToken": "theirs", "progress": 1}


def test_a_question_to_a_suspended_call_may_get_ticks() -> None:
    """The ticks begin with the question, and count from 1. A question without a token gets none."""
    world, client, _ = served(limits=Limits(suspended_call_tick_s=7.0))
    received, _, _ = suspended(world, client)
    world.wait(5)
    assert "tick" not in timers(world)
    ask(world, received, "roots/list", '"quiet"')
    assert "tick" not in timers(world)
    ask(world, received, "roots/list", '"second"', params='{"_meta":{"progressToken":9}}')
    for count in (1, 2):
        assert timers(world)["tick"] == 7.0
        world.wait(7.0)
        (tick,) = world.unread
        assert tick.frame["method"] == "notifications/progress"
        assert tick.frame["params"] == {"progressToken": 9, "progress": count}
        world.unread.clear()


def test_withdrawing_the_last_question_ends_the_pause() -> None:
    """The pause for more questions stays while one of two is open, and ends with the last."""
    world, client, _ = served(limits=Limits(collect_s=1.0))
    client.call()
    received = world.take_sent("tools/call")
    ask(world, received, id_raw="1")
    ask(world, received, id_raw="2")
    send_during(world, received, notification("notifications/cancelled", '{"requestId":1}'))
    assert "collect" in timers(world)
    send_during(world, received, notification("notifications/cancelled", '{"requestId":2}'))
    assert "collect" not in timers(world)


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_call_whose_client_does_not_come_back_is_given_up(up: str) -> None:
    """The log names the call. The server gets a cancellation with the reason, and its question is answered with
    "cancel"."""
    world, client, _ = served(up, limits=Limits(suspended_call_ttl_s=30.0))
    received, _, state = suspended(world, client)
    world.wait(29.9)
    assert not world.unread
    world.wait(0.1)
    assert world.notes("info")[-1] == "tools/call given up: its client did not come back with answers"
    assert world.take_sent("").frame == {"jsonrpc": "2.0", "id": "q", "result": CANCELLED}
    cancelled = world.take_sent("notifications/cancelled").frame["params"]
    assert cancelled == {"requestId": received.id, "reason": "the client did not come back"}
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert client.answered(channel, client.last_id)["error"]["data"] == {"reason": "invalid_request_state"}


# --- Kept results and logs --------------------------------------------------------------------------------------------


def held_result(size_bytes: int) -> str:
    """A result whose whole message, under a client's id of one digit, has so many bytes."""
    bare = len('{"jsonrpc":"2.0","id":1,"result":{"content":[],"x":""}}')
    return '{"content":[],"x":"%s"}' % ("x" * (size_bytes - bare))


@pytest.mark.parametrize(("second_bytes", "is_kept"), [(399, True), (400, True), (401, False)])
def test_results_of_suspended_calls_are_kept_up_to_a_bound(second_bytes: int, is_kept: bool) -> None:
    """The bound itself is within. A client whose answer was too large gets an error that says that the call has run."""
    world, client, _ = served(limits=Limits(held_answers_max_bytes=1000))
    first, _, first_state = suspended(world, client, question_id="1", name="a")
    second, _, second_state = suspended(world, client, question_id="2", name="b")
    respond(world, first, held_result(600))
    outcomes = [
        len(e.suspended_call.outcome)
        for _, e in tables(world.engine)["suspended calls"].values()
        if e.suspended_call.outcome is not None
    ]
    assert outcomes == [600]
    respond(world, second, held_result(second_bytes))
    channel = client.call("b", requestState=second_state, inputResponses={"r1": ACCEPT})
    answer = client.answered(channel, client.last_id)
    if is_kept:
        assert len(answer["result"]["x"]) > 300
    else:
        text = "the answer came while its client was away, and was too large to be kept: the call has run"
        assert answer["error"] == {"code": OVERLOADED, "message": text, "data": {"outcome": "executed"}}
    channel = client.call("a", requestState=first_state, inputResponses={"r1": ACCEPT})
    assert len(client.answered(channel, client.last_id)["result"]["x"]) > 500


def test_a_result_for_a_waiting_client_is_not_bounded() -> None:
    """The bound is only for kept results."""
    world, client, _ = served(limits=Limits(held_answers_max_bytes=10))
    channel = client.call()
    received = world.take_sent("tools/call")
    ask(world, received)
    respond(world, received, held_result(600))
    assert len(client.answered(channel)["result"]["x"]) > 500


LOG = '{"level":"info","data":"%s"}'


@pytest.mark.parametrize(("last_bytes", "is_kept"), [(299, True), (300, True), (301, False)])
def test_log_messages_are_kept_up_to_a_bound(last_bytes: int, is_kept: bool) -> None:
    """Messages are kept whole. One that does not fit is dropped, and a smaller one after it fits again."""
    world, client, _ = served(limits=Limits(suspended_call_logs_max_bytes=900))
    channel = client.call(level="debug")
    world.answer(world.take_sent("logging/setLevel"))
    received = world.take_sent("tools/call")
    ask(world, received)
    collect(world)
    _, state = rounds(client, channel)
    bare = len(notification("notifications/message", LOG % ""))
    for size_bytes in (400, 200, last_bytes):
        send_during(world, received, notification("notifications/message", LOG % ("x" * (size_bytes - bare))))
    (_, exchange) = next(iter(tables(world.engine)["suspended calls"].values()))
    assert [len(message) for message in exchange.suspended_call.missed][:2] == [400, 200]
    channel = client.call(level="debug", requestState=state, inputResponses={"r1": ACCEPT})
    sizes = [len(frame["params"]["data"]) + bare for frame in client.notifications(channel)]
    assert sizes == [400, 200, *[last_bytes] * is_kept]


@pytest.mark.parametrize("wanted", LEVELS)
def test_a_request_gets_log_messages_of_its_level_and_above_and_of_unknown_levels(wanted: str) -> None:
    world, client, _ = served()
    client.call(level="debug")
    world.answer(world.take_sent("logging/setLevel"))
    world.take_sent("tools/call")
    channel = client.call(level=wanted)
    received = world.take_sent("tools/call")
    for level in (*LEVELS, "loud"):
        send_during(world, received, notification("notifications/message", json.dumps({"level": level, "data": 1})))
    levels = [frame["params"]["level"] for frame in client.notifications(channel)]
    assert levels == [*LEVELS[LEVELS.index(wanted) :], "loud"]


# --- Ends -------------------------------------------------------------------------------------------------------------


def test_every_open_question_is_answered_when_its_call_is_over() -> None:
    """The server gets the answers in the order of its questions, as for a client that is gone. Those of another call
    stay open."""
    world, client, _ = served()
    received, _, _ = suspended(world, client, question_id='"other"')
    channel = client.call()
    mine = world.take_sent("tools/call")
    for number, method in enumerate(sorted(QUESTIONS)):
        ask(world, mine, method, str(number))
    respond(world, mine)
    answers = [world.take_sent("").frame for _ in QUESTIONS]
    assert [frame["id"] for frame in answers] == [0, 1, 2]
    assert answers[0]["result"] == CANCELLED
    assert [frame["error"]["message"] for frame in answers[1:]] == ["Nobody answered"] * 2
    assert not world.unread
    assert "result" in client.answered(channel, client.last_id)
    assert received.id != mine.id and len(tables(world.engine)["suspended calls"]) == 1
    respond(world, received)
    assert world.take_sent("").frame == {"jsonrpc": "2.0", "id": "other", "result": CANCELLED}


@pytest.mark.parametrize("is_over", [False, True], ids=["asks", "is over"])
def test_a_session_for_one_call_ends_when_its_client_has_stayed_away(is_over: bool) -> None:
    """The session ends whether its server still waits for answers or has answered, and leaves nothing."""
    world = bridge(affinity=Affinity.REQUEST, limits=Limits(suspended_call_ttl_s=30.0))
    client = modern(world, "pipe")
    channel = client.call()
    start_legacy_server(world)
    received = world.take_sent("tools/call")
    ask(world, received)
    collect(world)
    rounds(client, channel)
    if is_over:
        respond(world, received)
    world.wait(29.0)
    assert world.engine.session_count == 1
    world.wait(1.0)
    world.wait(Limits().cancel_grace_s)
    assert world.engine.session_count == 0
    world.unread.clear()
    assert_empty(world)


@pytest.mark.parametrize("info", [None, b'{"name":"s","version":"1"}'])
@pytest.mark.parametrize("keys", [["r1"], ["r2", "r10"]])
def test_the_bytes_of_an_input_required_result(info: bytes | None, keys: list[str]) -> None:
    """The result has its type, the questions by their keys in order, the state, and `serverInfo` if the server is
    known."""
    entries = dict.fromkeys(keys, b'{"method":"roots/list","n":1.50}')
    message = asking(b'"a"', entries, 'st"ate', info)
    listed = ",".join(f'"{key}":{{"method":"roots/list","n":1.50}}' for key in keys)
    meta = "" if info is None else f',"_meta":{{"io.modelcontextprotocol/serverInfo":{info.decode()}}}'
    expected = (
        '{"jsonrpc":"2.0","id":"a","result":{"resultType":"input_required","inputRequests":{'
        + listed
        + '},"requestState":"st\\"ate"'
        + meta
        + "}}"
    )
    assert message.decode() == expected


def test_open_questions_are_asked_with_the_next_request_or_refused_if_it_lacks_the_capability() -> None:
    """One of two open questions needs a capability that the next request does not declare: that question is refused,
    the other is asked."""
    world, client, _ = served()
    received, _, state = suspended(world, client)
    ask(world, received, "roots/list", '"roots"')
    ask(world, received, "elicitation/create", '"form"', params=FORM)
    channel = client.call(capabilities=able_without("roots"), requestState=state, inputResponses={"r1": ACCEPT})
    answered = [world.take_sent("").frame for _ in range(2)]
    assert answered[0]["result"] == ACCEPT
    assert answered[1] == {"jsonrpc": "2.0", "id": "roots", "error": {"code": -32601, "message": "Client has no roots"}}
    asked, state = rounds(client, channel)
    assert {key: question["method"] for key, question in asked.items()} == {"r3": "elicitation/create"}
    channel = client.call(requestState=state, inputResponses={"r3": ANSWERS["elicitation/create"], "r2": {"roots": []}})
    assert [received.frame["id"] for received in world.unread] == ["form"]
    respond(world, received)
    assert "result" in client.answered(channel)
