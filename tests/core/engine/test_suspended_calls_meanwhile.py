"""Tests of suspended calls while the client is away, and of questions without an open call: time limits, messages and
bounds."""

from __future__ import annotations

import json

import pytest
from driving import Driver, SentMessage, notification, request
from isthmus.core.base.limits import Limits
from stateless_driving import (
    ACCEPT,
    ANSWERS,
    QUESTIONS,
    Modern,
    ask,
    assert_idle,
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

UPS = pytest.mark.parametrize("up", ["pipe", "http"])
DOWNS = pytest.mark.parametrize("down", ["pipe", "http"])


def progress(received: SentMessage, value: int) -> bytes:
    return notification("notifications/progress", f'{{"progressToken":{received.id},"progress":{value}}}')


# --- Time -------------------------------------------------------------------------------------------------------------


@UPS
def test_a_server_is_not_timed_while_it_waits_for_the_client(up: str) -> None:
    """The reply timeout stands still while a call is suspended, whatever the server sends, and starts again with the
    next request."""
    world, client, _ = served(up, limits=Limits(reply_timeout_s=50.0))
    received, _, state = suspended(world, client, token="t")
    send_during(world, received, progress(received, 1))
    ask(world, received, "roots/list", '"second"')
    world.wait(400)
    assert not world.was_sent("notifications/cancelled")
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    _, state = rounds(client, channel, client.last_id)
    world.wait(400)
    channel = client.call(requestState=state, inputResponses={"r2": ANSWERS["roots/list"]})
    world.wait(49)
    assert not world.was_sent("notifications/cancelled")
    world.wait(1)
    assert world.take_sent("notifications/cancelled").frame["params"]["requestId"] == received.id
    assert client.answered(channel, client.last_id)["error"]["data"]["outcome"] == "unknown"


# --- Meanwhile --------------------------------------------------------------------------------------------------------


def log(level: str, text: str = "x") -> bytes:
    return notification("notifications/message", json.dumps({"level": level, "data": text}))


def suspended_with_log(world: Driver, client: Modern, level: str, token: str) -> tuple[SentMessage, str]:
    """Returns a suspended call that takes log messages and progress, and its `requestState`."""
    channel = client.call(level=level, token=token)
    world.answer(world.take_sent("logging/setLevel"))
    received = world.take_sent("tools/call")
    ask(world, received)
    collect(world)
    return received, rounds(client, channel, client.last_id)[1]


@pytest.mark.parametrize("is_over", [False, True], ids=["goes on", "is over"])
def test_messages_between_two_requests_come_on_the_next(is_over: bool) -> None:
    """The log messages in order and the latest progress, under the new token, come before anything else, also if the
    call has ended meanwhile."""
    world, client, _ = served()
    received, state = suspended_with_log(world, client, "debug", "first")
    for text in ("a", "b"):
        send_during(world, received, log("info", text))
    for value in (1, 2, 3):
        send_during(world, received, progress(received, value))
    if is_over:
        respond(world, received)
    channel = client.call(level="debug", token="second", requestState=state, inputResponses={"r1": ACCEPT})
    frames = client.notifications(channel)
    assert [frame["params"].get("data") for frame in frames] == ["a", "b", None]
    assert [frame["method"] for frame in frames] == [*2 * ["notifications/message"], "notifications/progress"]
    assert frames[-1]["params"] == {"progressToken": "second", "progress": 3}
    if not is_over:
        respond(world, received)
    assert client.answered(channel)["result"]["resultType"] == "complete"
    assert list(world.frames(channel))[:3] == frames
    assert_idle(world)


@pytest.mark.parametrize("level, expected", [(None, []), ("error", ["c"]), ("info", ["b", "c"])])
def test_a_request_gets_log_messages_of_its_own_level_only(level: str | None, expected: list[str]) -> None:
    """A request without a log level gets none, and another none below its own, whatever the level of the request
    before."""
    world, client, _ = served()
    received, state = suspended_with_log(world, client, "debug", "t")
    for each, text in (("debug", "a"), ("info", "b"), ("error", "c")):
        send_during(world, received, log(each, text))
    channel = client.call(level=level, requestState=state, inputResponses={"r1": ACCEPT})
    assert [frame["params"]["data"] for frame in client.notifications(channel)] == expected


def test_a_request_without_a_token_gets_no_progress() -> None:
    """Progress has the token of the open request. Without one it is dropped, and never sent under an old token."""
    world, client, _ = served()
    received, state = suspended_with_log(world, client, "debug", "first")
    send_during(world, received, progress(received, 1))
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    send_during(world, received, progress(received, 2))
    assert client.notifications(channel) == []


def test_held_log_messages_are_bounded() -> None:
    """The first log messages up to the limit and one progress notification are held."""
    world, client, _ = served(limits=Limits(suspended_call_logs_max=3))
    received, state = suspended_with_log(world, client, "debug", "t")
    for number in range(10):
        send_during(world, received, log("info", str(number)))
    channel = client.call(level="debug", requestState=state, inputResponses={"r1": ACCEPT})
    assert [frame["params"]["data"] for frame in client.notifications(channel)] == ["0", "1", "2"]


# --- While no call is open --------------------------------------------------------------------------------------------


def test_a_question_before_a_call_was_sent_belongs_to_it() -> None:
    """A call that still waits, here for its log level, gets the question, since the server may not answer the wait
    before."""
    world, client, _ = served()
    channel = client.call(level="debug")
    levelling = world.take_sent("logging/setLevel")
    world.send(levelling.channel, request('"q"', "roots/list"))
    world.answer(levelling)
    received = world.take_sent("tools/call")
    collect(world)
    questions, state = rounds(client, channel)
    assert questions == {"r1": {"method": "roots/list"}}
    channel = client.call(requestState=state, inputResponses={"r1": ANSWERS["roots/list"]})
    assert world.take_sent("").frame == {"jsonrpc": "2.0", "id": "q", "result": ANSWERS["roots/list"]}
    respond(world, received)
    assert "result" in client.answered(channel)
    assert_idle(world)


def test_a_deferred_call_is_sent_once_and_after_the_answer() -> None:
    """A question without an open call is the answer to the next call, which is sent with the retry. Nothing else waits
    for that."""
    world, client, _ = served()
    child = world.dials[-1].channel
    world.send(child, request('"q"', "roots/list"))
    client.request("tools/list")
    respond(world, world.take_sent("tools/list"), '{"tools":[]}')
    channel = client.call()
    _, state = rounds(client, channel)
    assert not world.was_sent("tools/call")
    client.call(requestState=state, inputResponses={"r1": ANSWERS["roots/list"]})
    assert world.unread[0].frame.get("id") == "q"
    world.take_sent("")
    respond(world, world.take_sent("tools/call"))
    assert not world.unread
    assert_idle(world)


@pytest.mark.parametrize("has_roots", [True, False])
def test_a_question_without_a_call_is_refused(has_roots: bool) -> None:
    """`roots/list` waits for a call as long as there is a client with roots. Otherwise, and after the time limit, it is
    refused."""
    world, client, _ = served()
    if not has_roots:
        world, client, _ = served(limits=None)
        client.capabilities = {}
        client.request("server/discover")
        start_legacy_server(world)
    child = world.dials[-1].channel
    world.send(child, request('"q"', "roots/list"))
    if has_roots:
        assert not world.was_sent("")
        world.wait(Limits().held_timeout_s)
    assert world.take_sent("").frame["error"]["code"] == -32603
    assert_idle(world)


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage"])
@pytest.mark.parametrize("during", ["nothing", "tools/list"])
def test_only_certain_requests_carry_questions(method: str, during: str) -> None:
    """A form or a prompt outside a call is answered at once with `cancel`. Requests of other methods are never answered
    with questions."""
    world, client, _ = served()
    if during != "nothing":
        channel = client.request(during)
        received = world.take_sent(during)
    world.send(world.dials[-1].channel, request('"q"', method, QUESTIONS[method]))
    answer = world.take_sent("").frame
    expected = {"elicitation/create": {"result": {"action": "cancel"}}}
    assert answer.get("result") == expected.get(method, {}).get("result")
    if during != "nothing":
        respond(world, received, '{"tools":[]}')
        assert client.answered(channel)["result"]["resultType"] == "complete"
    assert_idle(world)


# --- Bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["suspended_calls_per_session_max", "suspended_calls_max"])
def test_suspended_calls_are_bounded(name: str) -> None:
    """One more question is refused with an error, and no suspended call is lost for it. There is room again when one
    ends."""
    world, client, _ = served(limits=Limits(**{name: 2}))
    calls = [suspended(world, client, question_id=str(number)) for number in range(2)]
    channel = client.call()
    received = world.take_sent("tools/call")
    ask(world, received, id_raw='"more"')
    refused = world.take_sent("").frame
    assert (refused["id"], refused["error"]["code"]) == ("more", -32603)
    collect(world)
    assert not world.messages(channel), "the call itself goes on"
    respond(world, received)
    for call, _, state in calls:
        channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
        world.take_sent("")
        respond(world, call)
        assert "result" in client.answered(channel)
    suspended(world, client)


def test_open_questions_of_a_call_are_bounded() -> None:
    """One question over the limit is refused. The earlier ones are asked."""
    world, client, _ = served(limits=Limits(questions_per_session_max=2))
    channel = client.call()
    received = world.take_sent("tools/call")
    for number in ("1", "2", "3"):
        ask(world, received, id_raw=number)
    assert world.take_sent("").id == 3
    collect(world)
    assert len(rounds(client, channel)[0]) == 2


def test_a_suspended_call_has_one_entry_and_one_deadline() -> None:
    """The entry and the deadline are gone with the end of the call."""
    world, client, _ = served()
    received, _, state = suspended(world, client)
    assert len(tables(world.engine)["suspended calls"]) == 1
    assert {purpose for purpose, _ in tables(world.engine)["timers"]} == {"idle", "park"}
    client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert {purpose for purpose, _ in tables(world.engine)["timers"]} == {"idle", "reply"}
    respond(world, received)
    world.unread.clear()
    assert_idle(world)


@UPS
@DOWNS
@pytest.mark.parametrize("method, target", [("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")])
def test_each_method_with_questions_can_be_suspended(up: str, down: str, method: str, target: str) -> None:
    world, client, _ = served(up, down)
    channel = client.request(method, **{target: "x:y"})
    received = world.take_sent(method)
    ask(world, received)
    collect(world)
    _, state = rounds(client, channel, client.last_id)
    channel = client.request(method, **{target: "x:y"}, requestState=state, inputResponses={"r1": ACCEPT})
    assert world.take_sent("").frame["result"] == ACCEPT
    respond(world, received, '{"content":[],"messages":[],"contents":[]}')
    assert client.answered(channel, client.last_id)["result"]["resultType"] == "complete"
    assert_idle(world)


def test_a_server_that_waits_for_answers_gets_progress() -> None:
    """Servers give up on a question after a minute without progress. A question with a token gets progress with growing
    numbers as long as its call is suspended."""
    world, client, _ = served()
    channel = client.call()
    received = world.take_sent("tools/call")
    params = json.dumps({**json.loads(QUESTIONS["elicitation/create"]), "_meta": {"progressToken": "their own"}})
    ask(world, received, params=params)
    collect(world)
    _, state = rounds(client, channel)
    every = Limits().suspended_call_tick_s
    for count in range(1, 6):
        world.wait(every)
        (tick,) = world.unread
        assert tick.frame["method"] == "notifications/progress"
        assert tick.frame["params"] == {"progressToken": "their own", "progress": count}
        world.unread.clear()
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert world.unread.pop().frame["result"] == ACCEPT
    world.wait(10 * every)
    assert not world.unread
    respond(world, received)
    assert "result" in client.answered(channel, client.last_id)


def test_a_question_without_a_token_gets_no_progress() -> None:
    world, client, _ = served()
    suspended(world, client)
    world.wait(10 * Limits().suspended_call_tick_s)
    assert not world.unread


# --- Requests that take no events -------------------------------------------------------------------------------------


def test_a_request_that_takes_no_events_gets_only_its_answer() -> None:
    """Held messages and later ones are dropped."""
    world, client, _ = served()
    received, state = suspended_with_log(world, client, "debug", "first")
    send_during(world, received, log("error", "kept"))
    send_during(world, received, progress(received, 1))
    answers = {"r1": ACCEPT}
    channel = client.call(level="debug", token="t", takes_events=False, requestState=state, inputResponses=answers)
    send_during(world, received, log("error", "later"))
    send_during(world, received, progress(received, 2))
    respond(world, received)
    (frame,) = world.frames(channel)
    assert frame["result"]["resultType"] == "complete"
    assert_idle(world)


def test_other_notifications_of_a_suspended_call_come_on_the_next_request() -> None:
    """Other notifications come whatever the log level."""
    world, client, _ = served("http")
    received, _, state = suspended(world, client)
    send_during(world, received, notification("notifications/vendor", '{"a":1}'))
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert [(frame["method"], frame["params"]) for frame in client.notifications(channel)] == [
        ("notifications/vendor", {"a": 1})
    ]


def test_the_bound_of_suspended_calls_is_per_session() -> None:
    """Another bound applies to all sessions together."""
    world, client, _ = served(limits=Limits(suspended_calls_per_session_max=1, suspended_calls_max=2))
    suspended(world, client)

    def is_suspended(client: Modern) -> bool:
        channel = client.call()
        ask(world, world.take_sent("tools/call"), id_raw='"more"')
        collect(world)
        if world.messages(channel):
            return True
        assert world.take_sent("").frame["error"]["code"] == -32603
        return False

    assert not is_suspended(client), "it has one"
    assert world.notes("warning")[-1] == "1 calls are parked, the most allowed"
    others = [modern(world, "pipe", principal=name) for name in ("bob", "carol")]
    for other in others:
        other.request("server/discover")
        start_legacy_server(world)
    assert [is_suspended(other) for other in others] == [True, False], "there is room for two"
    assert world.notes("warning")[-1] == "2 calls are parked, the most allowed"


def test_an_undeliverable_question_is_logged() -> None:
    world, _, _ = served()
    world.send(world.dials[-1].channel, request('"q"', "elicitation/create", QUESTIONS["elicitation/create"]))
    assert world.take_sent("").frame["result"] == {"action": "cancel"}
    assert world.notes("info")[-1] == "elicitation/create came while the client could not be asked"


def test_a_session_that_ends_leaves_suspended_calls_of_others() -> None:
    world, client, _ = served(down="pipe")
    _, _, lost = suspended(world, client)
    other = modern(world, "pipe", principal="bob")
    other.request("server/discover")
    start_legacy_server(world)
    received, _, state = suspended(world, other)
    assert client.pipe is not None
    world.end(client.pipe)
    world.wait(1.0)
    assert [exchange.id_raw for _, exchange in tables(world.engine)["suspended calls"].values()] == [
        str(other.last_id).encode()
    ]
    channel = other.call(requestState=state, inputResponses={"r1": ACCEPT})
    respond(world, received)
    assert other.answered(channel)["result"]["resultType"] == "complete"
    assert lost != state
