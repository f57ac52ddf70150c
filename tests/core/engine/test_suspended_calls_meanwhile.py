"""What goes on while a call waits for its client, and while no call is open that could ask: time, messages, bounds."""

from __future__ import annotations

import json

import pytest
from driving import Driver, Heard, notification, request
from isthmus.core.base.limits import Limits
from stateless_driving import (
    ACCEPT,
    ANSWERS,
    QUESTIONS,
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
    speak,
    tables,
)

UPS = pytest.mark.parametrize("up", ["pipe", "http"])
DOWNS = pytest.mark.parametrize("down", ["pipe", "http"])


def progress(heard: Heard, value: int) -> bytes:
    return notification("notifications/progress", f'{{"progressToken":{heard.id},"progress":{value}}}')


# --- Time -------------------------------------------------------------------------------------------------------------


@UPS
def test_a_server_is_not_timed_while_it_waits_for_the_client(up: str) -> None:
    """While a call is parked its server owes nothing, whatever it says meanwhile; with the next leg its time begins
    anew."""
    world, client, _ = served(up, limits=Limits(reply_timeout_s=50.0))
    heard, _, state = parked(world, client, token="t")
    speak(world, heard, progress(heard, 1))
    ask(world, heard, "roots/list", '"second"')
    world.wait(400)
    assert not world.hears("notifications/cancelled")
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    _, state = rounds(client, channel, client.last_id)
    world.wait(400)
    channel = client.call(requestState=state, inputResponses={"r2": ANSWERS["roots/list"]})
    world.wait(49)
    assert not world.hears("notifications/cancelled")
    world.wait(1)
    assert world.hear("notifications/cancelled").frame["params"]["requestId"] == heard.id
    assert client.answered(channel, client.last_id)["error"]["data"]["outcome"] == "unknown"


# --- Meanwhile --------------------------------------------------------------------------------------------------------


def log(level: str, text: str = "x") -> bytes:
    return notification("notifications/message", json.dumps({"level": level, "data": text}))


def chatty(world: Driver, client: Modern, level: str, token: str) -> tuple[Heard, str]:
    """A parked call that wanted the log and progress. Returns it and its state."""
    channel = client.call(level=level, token=token)
    world.answer(world.hear("logging/setLevel"))
    heard = world.hear("tools/call")
    ask(world, heard)
    collect(world)
    return heard, rounds(client, channel, client.last_id)[1]


@pytest.mark.parametrize("is_over", [False, True], ids=["goes on", "is over"])
def test_what_came_between_two_legs_is_told_on_the_next(is_over: bool) -> None:
    """The log in order and the latest progress, under the next leg's token, before anything else; also where the call
    ended meanwhile."""
    world, client, _ = served()
    heard, state = chatty(world, client, "debug", "first")
    for text in ("a", "b"):
        speak(world, heard, log("info", text))
    for value in (1, 2, 3):
        speak(world, heard, progress(heard, value))
    if is_over:
        give(world, heard)
    channel = client.call(level="debug", token="second", requestState=state, inputResponses={"r1": ACCEPT})
    told = client.told(channel)
    assert [frame["params"].get("data") for frame in told] == ["a", "b", None]
    assert [frame["method"] for frame in told] == [*2 * ["notifications/message"], "notifications/progress"]
    assert told[-1]["params"] == {"progressToken": "second", "progress": 3}
    if not is_over:
        give(world, heard)
    assert client.answered(channel)["result"]["resultType"] == "complete"
    assert list(world.frames(channel))[:3] == told
    assert_idle(world)


@pytest.mark.parametrize("level, heard_of", [(None, []), ("error", ["c"]), ("info", ["b", "c"])])
def test_a_leg_hears_of_the_log_only_what_it_asked_for(level: str | None, heard_of: list[str]) -> None:
    """A request without a log level is told no log message, and another none below its own, whatever the one before
    wanted."""
    world, client, _ = served()
    heard, state = chatty(world, client, "debug", "t")
    for each, text in (("debug", "a"), ("info", "b"), ("error", "c")):
        speak(world, heard, log(each, text))
    channel = client.call(level=level, requestState=state, inputResponses={"r1": ACCEPT})
    assert [frame["params"]["data"] for frame in client.told(channel)] == heard_of


def test_a_leg_without_a_token_is_told_no_progress() -> None:
    """Progress travels under the token of the leg that is open; without one it is dropped, and never under an old
    one."""
    world, client, _ = served()
    heard, state = chatty(world, client, "debug", "first")
    speak(world, heard, progress(heard, 1))
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    speak(world, heard, progress(heard, 2))
    assert client.told(channel) == []


def test_only_so_much_of_the_log_is_kept() -> None:
    """The first of what came, up to the limit, and one progress: a server may talk without end."""
    world, client, _ = served(limits=Limits(park_logs_max=3))
    heard, state = chatty(world, client, "debug", "t")
    for number in range(10):
        speak(world, heard, log("info", str(number)))
    channel = client.call(level="debug", requestState=state, inputResponses={"r1": ACCEPT})
    assert [frame["params"]["data"] for frame in client.told(channel)] == ["0", "1", "2"]


# --- While no call is open --------------------------------------------------------------------------------------------


def test_a_question_from_before_a_call_went_up_is_asked_with_it() -> None:
    """A call that waits for something else when the question comes, here for the log level, is the one to ask with: its
    server may not answer it before it knows."""
    world, client, _ = served()
    channel = client.call(level="debug")
    levelling = world.hear("logging/setLevel")
    world.say(levelling.channel, request('"q"', "roots/list"))
    world.answer(levelling)
    heard = world.hear("tools/call")
    collect(world)
    questions, state = rounds(client, channel)
    assert questions == {"r1": {"method": "roots/list"}}
    channel = client.call(requestState=state, inputResponses={"r1": ANSWERS["roots/list"]})
    assert world.hear("").frame == {"jsonrpc": "2.0", "id": "q", "result": ANSWERS["roots/list"]}
    give(world, heard)
    assert "result" in client.answered(channel)
    assert_idle(world)


def test_a_deferred_call_goes_up_once_and_after_the_answer() -> None:
    """A question that came while no call was open is asked instead of sending the next call, which goes up when its
    client is back; nothing else waits for that."""
    world, client, _ = served()
    child = world.dials[-1].channel
    world.say(child, request('"q"', "roots/list"))
    client.request("tools/list")
    give(world, world.hear("tools/list"), '{"tools":[]}')
    channel = client.call()
    _, state = rounds(client, channel)
    assert not world.hears("tools/call")
    client.call(requestState=state, inputResponses={"r1": ANSWERS["roots/list"]})
    assert world.heard[0].frame.get("id") == "q"
    world.hear("")
    give(world, world.hear("tools/call"))
    assert not world.heard
    assert_idle(world)


@pytest.mark.parametrize("has_roots", [True, False])
def test_a_question_that_no_call_comes_for_is_refused(has_roots: bool) -> None:
    """Roots wait for a call as long as may be, where the client has any; then, and else at once, nobody has
    answered."""
    world, client, _ = served()
    if not has_roots:
        world, client, _ = served(limits=None)
        client.capabilities = {}
        client.request("server/discover")
        rise(world)
    child = world.dials[-1].channel
    world.say(child, request('"q"', "roots/list"))
    if has_roots:
        assert not world.hears("")
        world.wait(Limits().held_timeout_s)
    assert world.hear("").frame["error"]["code"] == -32603
    assert_idle(world)


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage"])
@pytest.mark.parametrize("during", ["nothing", "tools/list"])
def test_nobody_is_asked_by_the_way(method: str, during: str) -> None:
    """A form or a prompt outside of a call that may ask is answered at once as by a user who turns away; other requests
    are never answered with questions."""
    world, client, _ = served()
    if during != "nothing":
        channel = client.request(during)
        heard = world.hear(during)
    world.say(world.dials[-1].channel, request('"q"', method, QUESTIONS[method]))
    answer = world.hear("").frame
    expected = {"elicitation/create": {"result": {"action": "cancel"}}}
    assert answer.get("result") == expected.get(method, {}).get("result")
    if during != "nothing":
        give(world, heard, '{"tools":[]}')
        assert client.answered(channel)["result"]["resultType"] == "complete"
    assert_idle(world)


# --- Bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["parks_per_session_max", "parks_max"])
def test_only_so_many_calls_are_parked(name: str) -> None:
    """One more question is refused with an error, and none that is parked is lost for it; there is room again when one
    is over."""
    world, client, _ = served(limits=Limits(**{name: 2}))
    calls = [parked(world, client, asked=str(number)) for number in range(2)]
    channel = client.call()
    heard = world.hear("tools/call")
    ask(world, heard, id_raw='"more"')
    refused = world.hear("").frame
    assert (refused["id"], refused["error"]["code"]) == ("more", -32603)
    collect(world)
    assert not world.messages(channel), "the call itself goes on"
    give(world, heard)
    for call, _, state in calls:
        channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
        world.hear("")
        give(world, call)
        assert "result" in client.answered(channel)
    parked(world, client)


def test_only_so_many_questions_of_a_call_are_open() -> None:
    """One more is refused; those before it are asked."""
    world, client, _ = served(limits=Limits(asks_per_session_max=2))
    channel = client.call()
    heard = world.hear("tools/call")
    for number in ("1", "2", "3"):
        ask(world, heard, id_raw=number)
    assert world.hear("").id == 3
    collect(world)
    assert len(rounds(client, channel)[0]) == 2


def test_parking_tells_what_it_holds() -> None:
    """While a call is parked its park and one deadline are all there is of it; with its end both are gone."""
    world, client, _ = served()
    heard, _, state = parked(world, client)
    assert len(tables(world.engine)["parks"]) == 1
    assert {purpose for purpose, _ in tables(world.engine)["timers"]} == {"idle", "park"}
    client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert {purpose for purpose, _ in tables(world.engine)["timers"]} == {"idle", "reply"}
    give(world, heard)
    world.heard.clear()
    assert_idle(world)


@UPS
@DOWNS
@pytest.mark.parametrize("method, target", [("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")])
def test_each_request_that_may_ask_can_be_parked(up: str, down: str, method: str, target: str) -> None:
    world, client, _ = served(up, down)
    channel = client.request(method, **{target: "x:y"})
    heard = world.hear(method)
    ask(world, heard)
    collect(world)
    _, state = rounds(client, channel, client.last_id)
    channel = client.request(method, **{target: "x:y"}, requestState=state, inputResponses={"r1": ACCEPT})
    assert world.hear("").frame["result"] == ACCEPT
    give(world, heard, '{"content":[],"messages":[],"contents":[]}')
    assert client.answered(channel, client.last_id)["result"]["resultType"] == "complete"
    assert_idle(world)


def test_a_server_that_waits_for_answers_hears_that_somebody_is_at_it() -> None:
    """Servers give up on a question after a minute, unless they hear of progress: one that wants to hear of it does, as
    long as the call is parked, under its own token and with growing numbers; and no longer."""
    world, client, _ = served()
    channel = client.call()
    heard = world.hear("tools/call")
    params = json.dumps({**json.loads(QUESTIONS["elicitation/create"]), "_meta": {"progressToken": "their own"}})
    ask(world, heard, params=params)
    collect(world)
    _, state = rounds(client, channel)
    every = world.engine._desk.limits.park_tick_s
    for count in range(1, 6):
        world.wait(every)
        (tick,) = world.heard
        assert tick.frame["method"] == "notifications/progress"
        assert tick.frame["params"] == {"progressToken": "their own", "progress": count}
        world.heard.clear()
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert world.heard.pop().frame["result"] == ACCEPT
    world.wait(10 * every)
    assert not world.heard
    give(world, heard)
    assert "result" in client.answered(channel, client.last_id)


def test_a_server_that_does_not_want_to_hear_of_progress_does_not() -> None:
    world, client, _ = served()
    parked(world, client)
    world.wait(10 * world.engine._desk.limits.park_tick_s)
    assert not world.heard


# --- Legs that take no events -----------------------------------------------------------------------------------------


def test_a_leg_that_takes_no_events_is_told_nothing_but_its_answer() -> None:
    """What was kept for it is dropped, and so is what comes while it is open."""
    world, client, _ = served()
    heard, state = chatty(world, client, "debug", "first")
    speak(world, heard, log("error", "kept"))
    speak(world, heard, progress(heard, 1))
    answers = {"r1": ACCEPT}
    channel = client.call(level="debug", token="t", takes_events=False, requestState=state, inputResponses=answers)
    speak(world, heard, log("error", "later"))
    speak(world, heard, progress(heard, 2))
    give(world, heard)
    (frame,) = world.frames(channel)
    assert frame["result"]["resultType"] == "complete"
    assert_idle(world)


def test_what_else_a_server_says_of_a_parked_call_is_told_on_the_next_leg() -> None:
    """Whatever log it wants: it is no log."""
    world, client, _ = served("http")
    heard, _, state = parked(world, client)
    speak(world, heard, notification("notifications/vendor", '{"a":1}'))
    channel = client.call(requestState=state, inputResponses={"r1": ACCEPT})
    assert [(frame["method"], frame["params"]) for frame in client.told(channel)] == [
        ("notifications/vendor", {"a": 1})
    ]


def test_calls_of_others_take_no_place_of_a_sessions_own() -> None:
    """But one of all."""
    world, client, _ = served(limits=Limits(parks_per_session_max=1, parks_max=2))
    parked(world, client)

    def is_parked(client: Modern) -> bool:
        channel = client.call()
        ask(world, world.hear("tools/call"), id_raw='"more"')
        collect(world)
        if world.messages(channel):
            return True
        assert world.hear("").frame["error"]["code"] == -32603
        return False

    assert not is_parked(client), "it has one"
    assert world.notes("warning")[-1] == "1 calls are parked, the most allowed"
    others = [modern(world, "pipe", principal=name) for name in ("bob", "carol")]
    for other in others:
        other.request("server/discover")
        rise(world)
    assert [is_parked(other) for other in others] == [True, False], "there is room for two"
    assert world.notes("warning")[-1] == "2 calls are parked, the most allowed"


def test_of_a_question_that_reaches_nobody_the_log_tells() -> None:
    world, _, _ = served()
    world.say(world.dials[-1].channel, request('"q"', "elicitation/create", QUESTIONS["elicitation/create"]))
    assert world.hear("").frame["result"] == {"action": "cancel"}
    assert world.notes("info")[-1] == "elicitation/create came while the client could not be asked"


def test_a_session_that_ends_leaves_the_parked_calls_of_others() -> None:
    world, client, _ = served(down="pipe")
    _, _, lost = parked(world, client)
    other = modern(world, "pipe", principal="bob")
    other.request("server/discover")
    rise(world)
    heard, _, state = parked(world, other)
    assert client.pipe is not None
    world.end(client.pipe)
    world.wait(1.0)
    assert [exchange.id_raw for _, exchange in tables(world.engine)["parks"].values()] == [str(other.last_id).encode()]
    channel = other.call(requestState=state, inputResponses={"r1": ACCEPT})
    give(world, heard)
    assert other.answered(channel)["result"]["resultType"] == "complete"
    assert lost != state
