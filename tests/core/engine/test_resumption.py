"""Servers' replies and GET streams that end early with an event id: polled, resumed, and at last given up.

Source: 2025-11-25 basic/transports, "Sending Messages to the Server" 6 and "Resumability and Redelivery".
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import pytest
from driving import (
    DONE,
    FORGOTTEN,
    GONE,
    NO_STREAM,
    Client,
    Driver,
    Heard,
    connect,
    driver,
    error,
    newcomer,
    notification,
    request,
    result,
)
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.effects import Cause, Connected, Delete, End, Listen, Post, Primed
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits

UNREACHABLE = Cause(End.UNREACHABLE, detail="connection refused", unsent=True)
WITH_TOKEN = '{"_meta":{"progressToken":"t"}}'


def polled(id: str | None = "e1", retry_ms: int | None = None) -> Cause:
    """The server ended a stream in order, to be asked for the rest."""
    return Cause(End.DONE, last_event_id=id, retry_ms=retry_ms)


def broken(id: str | None = "e1", retry_ms: int | None = None) -> Cause:
    return Cause(End.BROKEN, detail="reset", last_event_id=id, retry_ms=retry_ms)


def call_of(client: Client, method: str = "tools/call") -> tuple[ChannelId, Heard]:
    """A call whose server has begun to reply."""
    world = client.driver
    channel = client.request("1", method, WITH_TOKEN)
    call = world.hear(method)
    world.open(call.channel, Connected())
    world.open(call.channel, Primed())
    return channel, call


def resumptions(world: Driver) -> list[tuple[ChannelId, Listen]]:
    dials = [(dial.channel, dial.target) for dial in world.dials if isinstance(dial.target, Listen)]
    return [(channel, target) for channel, target in dials if target.last_event_id is not None]


def plans_nothing(world: Driver) -> bool:
    """Whether no resumption is due within a thousand seconds."""
    end = world.now + 1000.0
    while (deadline := world.engine.next_timeout()) is not None and deadline.at < end:
        if "resumed" in deadline.why:
            return False
        world.wait(deadline.at - world.now)
    return True


def failure(world: Driver, channel: ChannelId) -> dict[str, object]:
    seen = json.loads(world.messages(channel)[-1])["error"]
    assert isinstance(seen, dict)
    return seen


def is_unknown(world: Driver, channel: ChannelId) -> bool:
    found = failure(world, channel)
    data = found["data"]
    assert isinstance(data, dict)
    return found["code"] == -31001 and data["outcome"] == "unknown"


# --- The replies of polling servers, and replies that break -----------------------------------------------------------


@pytest.mark.parametrize("cut", [polled, broken])
@pytest.mark.parametrize(
    ("retry_ms", "pause_s"),
    [(None, 1.0), (0, 0.1), (50, 0.1), (100, 0.1), (2500, 2.5), (60_000, 60.0), (10**9, 60.0)],
)
def test_a_reply_is_taken_up_where_it_ended_after_the_pause_its_server_wants(
    cut: Callable[..., Cause], retry_ms: int | None, pause_s: float
) -> None:
    world = driver()
    client = connect(world, "http", "http", session="S7")
    channel, call = call_of(client)
    world.end(call.channel, cut("e1", retry_ms))
    world.wait(pause_s - 0.01)
    assert not resumptions(world)
    world.wait(0.02)
    ((rest, target),) = resumptions(world)
    assert target == Listen(server="http", session="S7", revision="2025-11-25", last_event_id="e1", is_of_call=True)
    assert not world.sent[channel]
    world.open(rest, Connected())
    world.say(rest, result(str(call.id), '{"n":1}'))
    world.end(rest)
    assert world.messages(channel) == [result("1", '{"n":1}')]
    world.wait(1000.0)
    assert len(resumptions(world)) == 1
    assert not world.heard, "it is asked for the rest, not called again"
    assert world.engine.exchange_count == 0


@given(
    steps=st.lists(st.sampled_from(["progress", "question", "poll", "break", "fail"]), max_size=20),
    down=st.sampled_from(["pipe", "http"]),
)
def test_what_a_server_says_over_many_connections_comes_once_and_in_order(steps: list[str], down: str) -> None:
    """However often its reply is cut, as long as it can be had again before too many attempts have failed."""
    world = driver(limits=Limits(resume_failures_max=30))
    client = connect(world, down, "http")
    channel, call = call_of(client)
    current: ChannelId | None = call.channel
    expected: list[object] = []
    for number, step in enumerate([*steps, "answer"]):
        if step in ("poll", "break"):
            if current is not None:
                world.end(current, (polled if step == "poll" else broken)(f"e{number}"))
                current = None
            continue
        if current is None:
            world.wait(40.0)
            current = resumptions(world)[-1][0]
            if step == "fail":
                world.end(current, UNREACHABLE)
                current = None
                continue
            world.open(current, Connected())
        if step == "progress":
            params = f'{{"progressToken":{call.frame["params"]["_meta"]["progressToken"]},"progress":{number}}}'
            world.say(current, notification("notifications/progress", params))
            expected.append({"progressToken": "t", "progress": number})
        elif step == "question":
            world.say(current, request(f'"q{number}"', "elicitation/create", f'{{"q":{number}}}'))
            expected.append({"q": number})
            (asked,) = [f for f in world.frames(channel) if f.get("params") == {"q": number}]
            client.say(result(str(asked["id"])))
            assert world.hear("").raw == result(f'"q{number}"')
        elif step == "answer":
            world.say(current, result(str(call.id), '{"n":1}'))
            world.end(current, polled())
    assert [frame.get("params") for frame in world.frames(channel)] == [*expected, None]
    assert world.messages(channel)[-1] == result("1", '{"n":1}')
    world.wait(1000.0)
    assert not world.heard


def test_an_end_that_names_no_new_id_is_resumed_from_the_last_that_was_named() -> None:
    world = driver()
    client = connect(world, "http", "http")
    _, call = call_of(client)
    world.end(call.channel, polled("e1", 200))
    for id in (None, "e2", None, None):
        world.wait(1.0)
        rest = resumptions(world)[-1][0]
        world.open(rest, Connected())
        world.end(rest, polled(id))
    world.wait(1.0)
    assert [target.last_event_id for _, target in resumptions(world)] == ["e1", "e1", "e2", "e2", "e2"]


@pytest.mark.parametrize("cause", [DONE, broken(None), polled(""), broken("")])
def test_a_reply_that_named_no_id_or_took_it_back_is_not_resumed(cause: Cause) -> None:
    world = driver()
    channel, call = call_of(connect(world, "http", "http"))
    world.end(call.channel, cause)
    assert is_unknown(world, channel)
    world.wait(1000.0)
    assert not resumptions(world)


def test_an_id_that_is_taken_back_later_ends_it() -> None:
    world = driver()
    channel, call = call_of(connect(world, "http", "http"))
    world.end(call.channel, polled())
    world.wait(1.0)
    ((rest, _),) = resumptions(world)
    world.open(rest, Connected())
    world.end(rest, polled(""))
    assert is_unknown(world, channel)


@pytest.mark.parametrize("unreadable", [b'{"jsonrpc":"2.0","result":{}}', b"nonsense"])
def test_an_answer_that_could_not_be_read_is_not_asked_for_again(unreadable: bytes) -> None:
    """What cannot be read at all may have been it."""
    world = driver()
    channel, call = call_of(connect(world, "http", "http"))
    world.say(call.channel, unreadable)
    world.end(call.channel, polled())
    assert "could not be read" in str(failure(world, channel)["message"])
    world.wait(1000.0)
    assert not resumptions(world)


# --- It cannot be had -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 405, 409, 500, 501, 503])
def test_what_a_refused_resumption_says_of_a_tool_call_is_that_its_fate_is_unknown(status: int) -> None:
    """It was begun; whatever the refusal says, it is about the GET."""
    world = driver()
    channel, call = call_of(connect(world, "http", "http"))
    world.end(call.channel, polled())
    world.wait(1.0)
    body = error(str(call.id), '{"code":-32601,"message":"no"}')
    world.end(resumptions(world)[-1][0], Cause(End.REFUSED, status=status, body=body))
    assert is_unknown(world, channel)
    world.wait(1000.0)
    assert len(resumptions(world)) == 1
    assert not world.heard


@pytest.mark.parametrize("status", [400, 405, 409, 500])
def test_a_safe_request_whose_reply_cannot_be_resumed_is_sent_again(status: int) -> None:
    world = driver()
    channel, call = call_of(connect(world, "http", "http"), "tools/list")
    world.end(call.channel, polled())
    world.wait(1.0)
    world.end(resumptions(world)[-1][0], Cause(End.REFUSED, status=status))
    again = world.hear("tools/list")
    assert again.id != call.id
    world.answer(again)
    assert world.messages(channel) == [result("1")]


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
def test_404_on_a_resumption_is_a_forgotten_session(method: str) -> None:
    world = driver()
    channel, call = call_of(connect(world, "http", "http"), method)
    world.end(call.channel, polled())
    world.wait(1.0)
    world.end(resumptions(world)[-1][0], FORGOTTEN)
    if method == "tools/call":
        assert is_unknown(world, channel)
        return
    world.shake_hands(session="S2")
    world.answer(world.hear(method))
    assert world.messages(channel) == [result("1")]


@pytest.mark.parametrize("cut", [polled, broken])
@pytest.mark.parametrize("cause", [UNREACHABLE, broken(None), DONE, Cause(End.TIMED_OUT)])
def test_resume_failures_max_attempts_in_a_row_are_made_with_growing_pauses(
    cut: Callable[..., Cause], cause: Cause
) -> None:
    world = driver(limits=Limits(resume_failures_max=5, listen_retry_s=1.0))
    channel, call = call_of(connect(world, "http", "http"))
    world.end(call.channel, cut())
    for attempt, pause_s in enumerate([1.0, 2.0, 4.0, 8.0, 16.0]):
        world.wait(pause_s - 0.01)
        assert len(resumptions(world)) == attempt
        world.wait(0.02)
        assert len(resumptions(world)) == attempt + 1
        assert not world.sent[channel]
        world.end(resumptions(world)[-1][0], cause)
    assert is_unknown(world, channel)
    assert "could not be resumed" in str(failure(world, channel)["message"])
    world.wait(1000.0)
    assert len(resumptions(world)) == 5
    assert not world.heard


@pytest.mark.parametrize(("retry_ms", "pauses"), [(500, [0.5, 1, 2, 4, 8]), (40_000, [40] * 5)])
def test_the_pauses_a_server_wants_grow_with_each_failure_too(retry_ms: int, pauses: list[float]) -> None:
    world = driver()
    _, call = call_of(connect(world, "http", "http"))
    world.end(call.channel, polled("e1", retry_ms))
    for attempt, pause_s in enumerate(pauses):
        world.wait(pause_s - 0.01)
        assert len(resumptions(world)) == attempt
        world.wait(0.02)
        world.end(resumptions(world)[-1][0], UNREACHABLE)


def test_a_connection_that_succeeds_makes_up_for_those_that_failed() -> None:
    world = driver(limits=Limits(resume_failures_max=2))
    channel, call = call_of(connect(world, "http", "http"))
    world.end(call.channel, broken())
    for _ in range(5):
        world.wait(30.0)
        world.end(resumptions(world)[-1][0], UNREACHABLE)
        world.wait(30.0)
        world.open(resumptions(world)[-1][0], Connected())
        world.end(resumptions(world)[-1][0], broken())
    assert not world.sent[channel]
    for _ in range(2):
        world.wait(30.0)
        world.end(resumptions(world)[-1][0], UNREACHABLE)
    assert is_unknown(world, channel)


# --- Connections that bring nothing -----------------------------------------------------------------------------------


def ended_at_once(world: Driver, retry_ms: int | None, *, names_id: bool, after_s: float = 0.0) -> float:
    """The newest resumption ends without a message. Returns how long after its beginning the next one begins."""
    count, began = len(resumptions(world)), world.now
    rest = resumptions(world)[-1][0]
    world.open(rest, Connected())
    world.wait(after_s)
    world.end(rest, polled(f"e{count}" if names_id else None, retry_ms))
    while len(resumptions(world)) == count:
        deadline = world.engine.next_timeout()
        assert deadline is not None
        world.wait(deadline.at - world.now)
    return world.now - began


@pytest.mark.parametrize("names_id", [False, True])
def test_a_server_that_ends_every_connection_at_once_is_asked_more_and_more_rarely(names_id: bool) -> None:
    """Whether it names new ids or not. A message makes up for all of them."""
    world = driver()
    _, call = call_of(connect(world, "http", "http"))
    world.end(call.channel, polled("e0", 0))
    world.wait(0.1)
    for _ in range(2):
        gaps = [ended_at_once(world, 0, names_id=names_id) for _ in range(9)]
        assert gaps == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0])
        world.say(resumptions(world)[-1][0], notification("notifications/message", '{"level":"info","data":1}'))
        assert ended_at_once(world, 0, names_id=names_id) == pytest.approx(0.1)


def test_how_rarely_is_for_the_server_to_say_if_it_wants_more() -> None:
    world = driver()
    _, call = call_of(connect(world, "http", "http"))
    world.end(call.channel, polled("e0", 8000))
    world.wait(8.0)
    assert [ended_at_once(world, 8000, names_id=True) for _ in range(9)] == pytest.approx([8.0] * 9)


def test_a_connection_that_was_open_for_long_is_followed_by_the_next_as_soon_as_ever() -> None:
    world = driver()
    _, call = call_of(connect(world, "http", "http"))
    world.end(call.channel, polled("e0", 200))
    world.wait(0.2)
    gaps = [ended_at_once(world, 200, names_id=True, after_s=30.0) for _ in range(9)]
    assert gaps == pytest.approx([30.2] * 9)


def test_what_brings_nothing_for_the_whole_time_limit_is_given_up() -> None:
    """Nothing else bounds how often a reply is asked for."""
    world = driver(limits=Limits(reply_timeout_s=100.0, polling_idle_max_s=2.0))
    channel, call = call_of(connect(world, "http", "http"))
    world.end(call.channel, polled("e0", 0))
    world.wait(0.1)
    while not world.sent[channel]:
        rest = resumptions(world)[-1][0]
        if rest not in world.over:
            world.open(rest, Connected())
            world.end(rest, polled("e1", 0))
        world.wait(0.05)
    assert "100 s" in str(failure(world, channel)["message"])
    assert 50 <= len(resumptions(world)) <= 60


@pytest.mark.parametrize(("retry_ms", "longest_s"), [(0, 5.0), (None, 30.0)])
def test_a_get_stream_that_ends_at_once_is_opened_more_and_more_rarely(retry_ms: int | None, longest_s: float) -> None:
    """A server that names a pause wants to be polled; another had better offer no stream than end it."""
    world = driver()
    _, stream = listening(world)
    begun = [world.now]
    for _ in range(14):
        world.end(stream, broken(None, retry_ms))
        count = len(world.dials)
        while len(world.dials) == count:
            world.wait(0.05)
        begun.append(world.now)
        stream = world.last_dial(Listen).channel
        world.open(stream, Connected())
    gaps = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert gaps == pytest.approx(sorted(gaps), abs=0.06)
    assert gaps[-1] == pytest.approx(longest_s, abs=0.06)
    world.say(stream, notification("notifications/message", '{"level":"info","data":1}'))
    world.end(stream, broken(None, retry_ms))
    count = len(world.dials)
    world.wait(1.05)
    assert len(world.dials) == count + 1


# --- Meanwhile --------------------------------------------------------------------------------------------------------


def waiting(world: Driver, client: Client, method: str = "tools/call") -> tuple[ChannelId, Heard]:
    """A call that waits for its reply to be taken up again."""
    channel, call = call_of(client, method)
    world.end(call.channel, polled("e1", 4000))
    return channel, call


def taken_up(world: Driver, client: Client, method: str = "tools/call") -> tuple[ChannelId, Heard]:
    """A call whose reply is on its second connection."""
    channel, call = waiting(world, client, method)
    world.wait(4.0)
    world.open(resumptions(world)[-1][0], Connected())
    return channel, call


@pytest.mark.parametrize("stage", [waiting, taken_up])
@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
def test_the_session_is_forgotten_meanwhile(
    stage: Callable[[Driver, Client, str], tuple[ChannelId, Heard]], method: str
) -> None:
    """Who waits between two connections cannot be told anything any more; an open connection may still deliver."""
    world = driver()
    client = connect(world, "http", "http")
    channel, call = stage(world, client, method)
    client.request("2", "prompts/list")
    world.end(world.hear("prompts/list").channel, FORGOTTEN)
    world.shake_hands(session="S2")
    world.answer(world.hear("prompts/list"))
    if stage is taken_up:
        world.say(resumptions(world)[-1][0], result(str(call.id), '{"n":1}'))
        assert world.messages(channel) == [result("1", '{"n":1}')]
    elif method == "tools/call":
        assert is_unknown(world, channel)
    else:
        world.answer(world.hear(method), '{"n":2}')
        assert world.messages(channel) == [result("1", '{"n":2}')]
    assert plans_nothing(world)
    assert len(resumptions(world)) == (stage is taken_up)
    assert not world.heard


def test_a_reply_of_an_earlier_session_is_not_resumed_in_a_later_one() -> None:
    """Its id would name something else there, or nothing."""
    world = driver()
    client = connect(world, "http", "http")
    channel, call = call_of(client)
    client.request("2", "prompts/list")
    world.end(world.hear("prompts/list").channel, FORGOTTEN)
    world.shake_hands(session="S2")
    world.end(call.channel, polled())
    assert is_unknown(world, channel)
    world.wait(1000.0)
    assert not resumptions(world)


@pytest.mark.parametrize("stage", [waiting, taken_up])
def test_it_is_cancelled_meanwhile(stage: Callable[[Driver, Client], tuple[ChannelId, Heard]]) -> None:
    world = driver(limits=Limits(cancel_grace_s=2.0))
    client = connect(world, "http", "http")
    channel, call = stage(world, client)
    before = len(resumptions(world))
    client.notify("notifications/cancelled", '{"requestId":1}')
    assert failure(world, channel)["code"] == -32800
    told = world.hear("notifications/cancelled")
    assert told.frame["params"] == {"requestId": call.id}
    world.acknowledge(told)
    assert plans_nothing(world)
    assert len(resumptions(world)) == before
    assert all(rest in world.closed for rest, _ in resumptions(world))


@pytest.mark.parametrize("stage", [waiting, taken_up])
def test_its_server_says_nothing_for_too_long(stage: Callable[[Driver, Client], tuple[ChannelId, Heard]]) -> None:
    """The time is that of the request, not that of a connection."""
    world = driver(limits=Limits(reply_timeout_s=20.0))
    client = connect(world, "http", "http")
    channel, _ = stage(world, client)
    while not world.sent[channel]:
        world.wait(1.0)
        assert world.now < 200.0
        open_ones = [rest for rest, _ in resumptions(world) if rest not in world.over]
        for rest in open_ones:
            world.open(rest, Connected())
            world.end(rest, polled())
    assert world.now == pytest.approx(120.0, abs=1.0)
    assert failure(world, channel)["code"] == -31008
    assert world.hears("notifications/cancelled")
    before = len(resumptions(world))
    world.wait(1000.0)
    assert len(resumptions(world)) == before


@pytest.mark.parametrize("stage", [waiting, taken_up])
@pytest.mark.parametrize("end", ["delete", "stop"])
def test_the_clients_session_ends_meanwhile(
    stage: Callable[[Driver, Client], tuple[ChannelId, Heard]], end: str
) -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel, _ = stage(world, client)
    before = len(resumptions(world))
    if end == "delete":
        client.delete()
    else:
        world.stop()
    assert failure(world, channel)["code"] == (-32600 if end == "delete" else -31001)
    assert [dial.target for dial in world.dials if isinstance(dial.target, Delete)]
    assert all(rest in world.closed for rest, _ in resumptions(world))
    for channel in [*[rest for rest, _ in resumptions(world)], world.hear("notifications/cancelled").channel]:
        world.end(channel)
    assert plans_nothing(world)
    assert len(resumptions(world)) == before
    assert world.engine.next_timeout() is None


def test_the_answer_may_come_elsewhere_meanwhile() -> None:
    world = driver()
    client = connect(world, "http", "http", listens=True)
    channel, call = waiting(world, client)
    stream = next(d.channel for d in world.dials if isinstance(d.target, Listen))
    world.say(stream, result(str(call.id), '{"n":1}'))
    assert world.messages(channel) == [result("1", '{"n":1}')]
    assert plans_nothing(world)
    assert not resumptions(world)


def test_the_client_may_be_cut_off_meanwhile() -> None:
    world = driver()
    client = connect(world, "http", "http")
    channel, call = waiting(world, client)
    primed = world.primed[channel].event_id
    world.end(channel, GONE)
    world.wait(4.0)
    rest = resumptions(world)[-1][0]
    world.open(rest, Connected())
    world.say(rest, result(str(call.id), '{"n":1}'))
    assert world.messages(client.resume(primed)) == [result("1", '{"n":1}')]


def test_the_rest_of_a_reply_that_stays_open_after_the_answer_is_ended() -> None:
    world = driver(limits=Limits(cancel_grace_s=2.0))
    _, call = taken_up(world, connect(world, "http", "http"))
    ((rest, _),) = resumptions(world)
    world.say(rest, result(str(call.id)))
    world.wait(1.9)
    assert rest not in world.closed
    world.wait(0.2)
    assert rest in world.closed


def test_only_requests_of_clients_are_resumed() -> None:
    """Not the handshake, and not what needs no answer."""
    world = driver()
    client = newcomer(world, "http", "http")
    channel = client.initialize()
    post = world.hear("initialize")
    world.open(post.channel, Connected(session="S1"))
    world.end(post.channel, polled())
    assert failure(world, channel)["code"] == -31004
    client = connect(world, "http", "http")
    client.notify("vendor/notice")
    world.end(world.hear("vendor/notice").channel, polled())
    world.wait(1000.0)
    assert not resumptions(world)


# --- The GET stream ---------------------------------------------------------------------------------------------------


def listening(world: Driver) -> tuple[Client, ChannelId]:
    client = connect(world, "http", "http", listens=True)
    return client, world.last_dial(Listen).channel


def listens(world: Driver) -> list[Listen]:
    return [dial.target for dial in world.dials if isinstance(dial.target, Listen)]


@pytest.mark.parametrize("cut", [polled, broken])
@pytest.mark.parametrize(("retry_ms", "pause_s"), [(None, 1.0), (0, 0.1), (7000, 7.0), (10**9, 60.0)])
def test_a_get_stream_is_listened_to_again_from_its_last_event(
    cut: Callable[..., Cause], retry_ms: int | None, pause_s: float
) -> None:
    world = driver()
    client, stream = listening(world)
    own = client.listen()
    world.end(stream, cut("e5", retry_ms))
    world.wait(pause_s - 0.01)
    assert len(listens(world)) == 1
    world.wait(0.02)
    assert listens(world)[1:] == [Listen(server="http", session="S1", revision="2025-11-25", last_event_id="e5")]
    again = world.last_dial(Listen).channel
    world.open(again, Connected())
    world.say(again, notification("notifications/message", '{"n":1}'))
    assert len(world.messages(own)) == 1
    world.end(again, cut(None))
    world.wait(1.01)
    assert listens(world)[-1].last_event_id == "e5", "still where it ended"


def test_an_id_that_a_get_stream_took_back_is_not_used() -> None:
    world = driver()
    _, stream = listening(world)
    world.end(stream, broken("e5"))
    world.wait(1.0)
    again = world.last_dial(Listen).channel
    world.open(again, Connected())
    world.end(again, broken(""))
    world.wait(1.0)
    assert [target.last_event_id for target in listens(world)] == [None, "e5", None]


@pytest.mark.parametrize("status", [400, 405, 409, 410])
def test_a_get_stream_that_cannot_be_resumed_is_opened_afresh(status: int) -> None:
    world = driver()
    client, stream = listening(world)
    world.end(stream, broken("e5"))
    world.wait(1.0)
    world.end(world.last_dial(Listen).channel, Cause(End.REFUSED, status=status))
    world.wait(2.0)
    assert [target.last_event_id for target in listens(world)] == [None, "e5", None]
    fresh = world.last_dial(Listen).channel
    own = client.listen()
    world.open(fresh, Connected())
    world.say(fresh, notification("notifications/message", "{}"))
    assert len(world.messages(own)) == 1


def test_a_server_that_refuses_the_fresh_one_too_is_left_alone() -> None:
    world = driver()
    _, stream = listening(world)
    world.end(stream, broken("e5"))
    for _ in range(2):
        world.wait(2.0)
        world.end(world.last_dial(Listen).channel, NO_STREAM)
    world.wait(1000.0)
    assert len(listens(world)) == 3


@pytest.mark.parametrize("cause", [UNREACHABLE, broken(None), Cause(End.REFUSED, status=503)])
def test_a_server_that_is_away_for_a_while_is_asked_for_the_rest_when_it_is_back(cause: Cause) -> None:
    world = driver()
    _, stream = listening(world)
    world.end(stream, broken("e5"))
    for _ in range(4):
        world.wait(30.0)
        world.end(world.last_dial(Listen).channel, cause)
    world.wait(30.0)
    assert [target.last_event_id for target in listens(world)] == [None, *["e5"] * 5]


def test_a_new_session_begins_with_a_fresh_get_stream() -> None:
    world = driver()
    client, stream = listening(world)
    world.end(stream, broken("e5"))
    client.request("1", "tools/list")
    world.end(world.hear("tools/list").channel, FORGOTTEN)
    world.shake_hands(session="S2", listens=True)
    assert listens(world)[-1] == Listen(server="http", session="S2", revision="2025-11-25")
    world.wait(100.0)
    assert len(listens(world)) == 2


def test_404_for_the_rest_of_a_get_stream_is_a_forgotten_session() -> None:
    world = driver()
    client, stream = listening(world)
    world.end(stream, broken("e5"))
    world.wait(1.0)
    world.end(world.last_dial(Listen).channel, FORGOTTEN)
    client.request("1", "tools/list")
    world.shake_hands(session="S2")
    assert [dial.target.session for dial in world.dials if isinstance(dial.target, Post)][-1] == "S2"
    assert world.hears("tools/list")


def test_a_client_that_takes_no_events_gets_the_answer_alone_after_all() -> None:
    """What goes on between us and the server is nothing to it: it is not told of progress, and has nothing to poll."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.say(request("1", "tools/call", WITH_TOKEN), takes_events=False)
    call = world.hear("tools/call")
    world.open(call.channel, Connected())
    world.open(call.channel, Primed())
    world.say(call.channel, notification("notifications/progress", f'{{"progressToken":{call.id},"progress":1}}'))
    world.end(call.channel, polled())
    assert channel not in world.primed and not world.sent[channel] and channel not in world.over
    world.wait(5.0)
    ((resumed, _),) = resumptions(world)
    world.open(resumed, Connected())
    world.say(resumed, result(str(call.id), '{"done":1}'))
    (sent,) = world.sent[channel]
    assert (sent.message, sent.is_last, sent.status, sent.event_id) == (result("1", '{"done":1}'), True, 200, None)
