"""Tests of resumption: responses and GET streams of servers that end early with an event id are resumed, or given up.

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
    SentMessage,
    connect,
    driver,
    error,
    new_client,
    notification,
    request,
    result,
)
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.effects import Delete, Listen, Post
from isthmus.core.base.events import Cause, Connected, End, Primed
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits

UNREACHABLE = Cause(End.UNREACHABLE, detail="connection refused", unsent=True)
WITH_TOKEN = '{"_meta":{"progressToken":"t"}}'


def polled(id: str | None = "e1", retry_ms: int | None = None) -> Cause:
    """Returns the cause of a stream that the server ended in order, to be polled."""
    return Cause(End.DONE, last_event_id=id, retry_ms=retry_ms)


def broken(id: str | None = "e1", retry_ms: int | None = None) -> Cause:
    return Cause(End.BROKEN, detail="reset", last_event_id=id, retry_ms=retry_ms)


def call_of(client: Client, method: str = "tools/call") -> tuple[ChannelId, SentMessage]:
    """Returns a call whose response stream has begun."""
    world = client.driver
    channel = client.request("1", method, WITH_TOKEN)
    call = world.take_sent(method)
    world.open(call.channel, Connected())
    world.open(call.channel, Primed())
    return channel, call


def resumptions(world: Driver) -> list[tuple[ChannelId, Listen]]:
    dials = [(dial.channel, dial.target) for dial in world.dials if isinstance(dial.target, Listen)]
    return [(channel, target) for channel, target in dials if target.last_event_id is not None]


def plans_nothing(world: Driver) -> bool:
    """True if no resumption is due within a thousand seconds."""
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
def test_a_reply_is_resumed_where_it_ended_after_the_retry_pause(
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
    world.send(rest, result(str(call.id), '{"n":1}'))
    world.end(rest)
    assert world.messages(channel) == [result("1", '{"n":1}')]
    world.wait(1000.0)
    assert len(resumptions(world)) == 1
    assert not world.unread, "it is asked for the rest, not called again"
    assert world.engine.exchange_count == 0


@given(
    steps=st.lists(st.sampled_from(["progress", "question", "poll", "break", "fail"]), max_size=20),
    down=st.sampled_from(["pipe", "http"]),
)
def test_messages_over_many_connections_come_once_and_in_order(steps: list[str], down: str) -> None:
    """The response may be cut any number of times, unless too many attempts in a row fail."""
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
            world.send(current, notification("notifications/progress", params))
            expected.append({"progressToken": "t", "progress": number})
        elif step == "question":
            world.send(current, request(f'"q{number}"', "elicitation/create", f'{{"q":{number}}}'))
            expected.append({"q": number})
            (asked,) = [f for f in world.frames(channel) if f.get("params") == {"q": number}]
            client.send(result(str(asked["id"])))
            assert world.take_sent("").raw == result(f'"q{number}"')
        elif step == "answer":
            world.send(current, result(str(call.id), '{"n":1}'))
            world.end(current, polled())
    assert [frame.get("params") for frame in world.frames(channel)] == [*expected, None]
    assert world.messages(channel)[-1] == result("1", '{"n":1}')
    world.wait(1000.0)
    assert not world.unread


def test_a_stream_without_a_new_id_is_resumed_from_the_last_id() -> None:
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
def test_a_reply_without_an_id_or_with_an_empty_one_is_not_resumed(cause: Cause) -> None:
    world = driver()
    channel, call = call_of(connect(world, "http", "http"))
    world.end(call.channel, cause)
    assert is_unknown(world, channel)
    world.wait(1000.0)
    assert not resumptions(world)


def test_a_later_empty_id_ends_resumption() -> None:
    world = driver()
    channel, call = call_of(connect(world, "http", "http"))
    world.end(call.channel, polled())
    world.wait(1.0)
    ((rest, _),) = resumptions(world)
    world.open(rest, Connected())
    world.end(rest, polled(""))
    assert is_unknown(world, channel)


def test_an_unreadable_answer_is_not_resumed() -> None:
    world = driver()
    channel, call = call_of(connect(world, "http", "http"))
    world.send(call.channel, b'{"jsonrpc":"2.0","result":{}}')
    world.end(call.channel, polled())
    assert "could not be read" in str(failure(world, channel)["message"])
    world.wait(1000.0)
    assert not resumptions(world)


@pytest.mark.parametrize("noise", [b"nonsense", b'{"id":1,"result":{}}', b'{"level":"info","id":1,"method":"x"}'])
def test_a_reply_with_noise_is_resumed(noise: bytes) -> None:
    """Noise is no answer, so the answer is still to come."""
    world = driver()
    channel, call = call_of(connect(world, "http", "http"))
    world.send(call.channel, noise)
    world.end(call.channel, polled())
    world.wait(1.0)
    ((rest, _),) = resumptions(world)
    world.open(rest, Connected())
    world.send(rest, result(str(call.id), '{"n":1}'))
    assert json.loads(world.messages(channel)[-1])["result"] == {"n": 1}


# --- It cannot be had -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 405, 409, 500, 501, 503])
def test_a_tool_call_with_a_refused_resumption_has_an_unknown_outcome(status: int) -> None:
    """The call has begun. The refusal is about the GET alone."""
    world = driver()
    channel, call = call_of(connect(world, "http", "http"))
    world.end(call.channel, polled())
    world.wait(1.0)
    body = error(str(call.id), '{"code":-32601,"message":"no"}')
    world.end(resumptions(world)[-1][0], Cause(End.REFUSED, status=status, body=body))
    assert is_unknown(world, channel)
    world.wait(1000.0)
    assert len(resumptions(world)) == 1
    assert not world.unread


@pytest.mark.parametrize("status", [400, 405, 409, 500])
def test_a_safe_request_whose_reply_cannot_be_resumed_is_sent_again(status: int) -> None:
    world = driver()
    channel, call = call_of(connect(world, "http", "http"), "tools/list")
    world.end(call.channel, polled())
    world.wait(1.0)
    world.end(resumptions(world)[-1][0], Cause(End.REFUSED, status=status))
    again = world.take_sent("tools/list")
    assert again.id != call.id
    world.answer(again)
    assert world.messages(channel) == [result("1")]


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
def test_404_on_a_resumption_ends_the_session(method: str) -> None:
    world = driver()
    channel, call = call_of(connect(world, "http", "http"), method)
    world.end(call.channel, polled())
    world.wait(1.0)
    world.end(resumptions(world)[-1][0], FORGOTTEN)
    if method == "tools/call":
        assert is_unknown(world, channel)
        return
    world.start_server(session="S2")
    world.answer(world.take_sent(method))
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
    assert not world.unread


@pytest.mark.parametrize(("retry_ms", "pauses"), [(500, [0.5, 1, 2, 4, 8]), (40_000, [40] * 5)])
def test_retry_pauses_of_the_server_grow_with_each_failure(retry_ms: int, pauses: list[float]) -> None:
    world = driver()
    _, call = call_of(connect(world, "http", "http"))
    world.end(call.channel, polled("e1", retry_ms))
    for attempt, pause_s in enumerate(pauses):
        world.wait(pause_s - 0.01)
        assert len(resumptions(world)) == attempt
        world.wait(0.02)
        world.end(resumptions(world)[-1][0], UNREACHABLE)


def test_a_successful_connection_resets_the_count_of_failures() -> None:
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
    """Ends the newest resumption without a message. Returns the seconds from its beginning to the next one."""
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
def test_pauses_grow_while_every_connection_ends_at_once(names_id: bool) -> None:
    """New event ids do not matter. A message resets the pauses."""
    world = driver()
    _, call = call_of(connect(world, "http", "http"))
    world.end(call.channel, polled("e0", 0))
    world.wait(0.1)
    for _ in range(2):
        gaps = [ended_at_once(world, 0, names_id=names_id) for _ in range(9)]
        assert gaps == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0])
        world.send(resumptions(world)[-1][0], notification("notifications/message", '{"level":"info","data":1}'))
        assert ended_at_once(world, 0, names_id=names_id) == pytest.approx(0.1)


def test_a_longer_retry_pause_of_the_server_applies() -> None:
    world = driver()
    _, call = call_of(connect(world, "http", "http"))
    world.end(call.channel, polled("e0", 8000))
    world.wait(8.0)
    assert [ended_at_once(world, 8000, names_id=True) for _ in range(9)] == pytest.approx([8.0] * 9)


def test_pauses_do_not_grow_after_a_long_connection() -> None:
    world = driver()
    _, call = call_of(connect(world, "http", "http"))
    world.end(call.channel, polled("e0", 200))
    world.wait(0.2)
    gaps = [ended_at_once(world, 200, names_id=True, after_s=30.0) for _ in range(9)]
    assert gaps == pytest.approx([30.2] * 9)


def test_a_reply_without_messages_for_the_time_limit_is_given_up() -> None:
    """No other limit bounds the resumptions of a response."""
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
def test_pauses_grow_while_every_get_stream_ends_at_once(retry_ms: int | None, longest_s: float) -> None:
    """The pauses that a server names apply; without them the pauses grow."""
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
    world.send(stream, notification("notifications/message", '{"level":"info","data":1}'))
    world.end(stream, broken(None, retry_ms))
    count = len(world.dials)
    world.wait(1.05)
    assert len(world.dials) == count + 1


# --- Meanwhile --------------------------------------------------------------------------------------------------------


def waiting(world: Driver, client: Client, method: str = "tools/call") -> tuple[ChannelId, SentMessage]:
    """Returns a call that waits for the resumption of its response."""
    channel, call = call_of(client, method)
    world.end(call.channel, polled("e1", 4000))
    return channel, call


def resumed(world: Driver, client: Client, method: str = "tools/call") -> tuple[ChannelId, SentMessage]:
    """Returns a call whose response is on its second connection."""
    channel, call = waiting(world, client, method)
    world.wait(4.0)
    world.open(resumptions(world)[-1][0], Connected())
    return channel, call


@pytest.mark.parametrize("stage", [waiting, resumed])
@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
def test_the_server_forgets_the_session_meanwhile(
    stage: Callable[[Driver, Client, str], tuple[ChannelId, SentMessage]], method: str
) -> None:
    """A call between two connections is lost; an open connection may still deliver its response."""
    world = driver()
    client = connect(world, "http", "http")
    channel, call = stage(world, client, method)
    client.request("2", "prompts/list")
    world.end(world.take_sent("prompts/list").channel, FORGOTTEN)
    world.start_server(session="S2")
    world.answer(world.take_sent("prompts/list"))
    if stage is resumed:
        world.send(resumptions(world)[-1][0], result(str(call.id), '{"n":1}'))
        assert world.messages(channel) == [result("1", '{"n":1}')]
    elif method == "tools/call":
        assert is_unknown(world, channel)
    else:
        world.answer(world.take_sent(method), '{"n":2}')
        assert world.messages(channel) == [result("1", '{"n":2}')]
    assert plans_nothing(world)
    assert len(resumptions(world)) == (stage is resumed)
    assert not world.unread


def test_a_reply_of_an_earlier_session_is_not_resumed_in_a_later_one() -> None:
    """An event id belongs to its session."""
    world = driver()
    client = connect(world, "http", "http")
    channel, call = call_of(client)
    client.request("2", "prompts/list")
    world.end(world.take_sent("prompts/list").channel, FORGOTTEN)
    world.start_server(session="S2")
    world.end(call.channel, polled())
    assert is_unknown(world, channel)
    world.wait(1000.0)
    assert not resumptions(world)


@pytest.mark.parametrize("stage", [waiting, resumed])
def test_the_call_is_cancelled_meanwhile(stage: Callable[[Driver, Client], tuple[ChannelId, SentMessage]]) -> None:
    world = driver(limits=Limits(cancel_grace_s=2.0))
    client = connect(world, "http", "http")
    channel, call = stage(world, client)
    before = len(resumptions(world))
    client.notify("notifications/cancelled", '{"requestId":1}')
    assert failure(world, channel)["code"] == -32800
    cancelled = world.take_sent("notifications/cancelled")
    assert cancelled.frame["params"] == {"requestId": call.id}
    world.acknowledge(cancelled)
    assert plans_nothing(world)
    assert len(resumptions(world)) == before
    assert all(rest in world.closed for rest, _ in resumptions(world))


@pytest.mark.parametrize("stage", [waiting, resumed])
def test_the_server_is_silent_for_too_long(stage: Callable[[Driver, Client], tuple[ChannelId, SentMessage]]) -> None:
    """The time limit is that of the request, not that of a connection."""
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
    assert world.was_sent("notifications/cancelled")
    before = len(resumptions(world))
    world.wait(1000.0)
    assert len(resumptions(world)) == before


@pytest.mark.parametrize("stage", [waiting, resumed])
@pytest.mark.parametrize("end", ["delete", "stop"])
def test_the_clients_session_ends_meanwhile(
    stage: Callable[[Driver, Client], tuple[ChannelId, SentMessage]], end: str
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
    for channel in [*[rest for rest, _ in resumptions(world)], world.take_sent("notifications/cancelled").channel]:
        world.end(channel)
    assert plans_nothing(world)
    assert len(resumptions(world)) == before
    assert world.engine.next_timeout() is None


def test_the_answer_may_come_elsewhere_meanwhile() -> None:
    world = driver()
    client = connect(world, "http", "http", listens=True)
    channel, call = waiting(world, client)
    stream = next(d.channel for d in world.dials if isinstance(d.target, Listen))
    world.send(stream, result(str(call.id), '{"n":1}'))
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
    world.send(rest, result(str(call.id), '{"n":1}'))
    assert world.messages(client.resume(primed)) == [result("1", '{"n":1}')]


def test_a_resumed_stream_is_closed_after_the_answer() -> None:
    world = driver(limits=Limits(cancel_grace_s=2.0))
    _, call = resumed(world, connect(world, "http", "http"))
    ((rest, _),) = resumptions(world)
    world.send(rest, result(str(call.id)))
    world.wait(1.9)
    assert rest not in world.closed
    world.wait(0.2)
    assert rest in world.closed


def test_only_requests_of_clients_are_resumed() -> None:
    """The response to `initialize` and those to notifications are not resumed."""
    world = driver()
    client = new_client(world, "http", "http")
    channel = client.initialize()
    post = world.take_sent("initialize")
    world.open(post.channel, Connected(session="S1"))
    world.end(post.channel, polled())
    assert failure(world, channel)["code"] == -31004
    client = connect(world, "http", "http")
    client.notify("vendor/notice")
    world.end(world.take_sent("vendor/notice").channel, polled())
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
def test_a_get_stream_is_resumed_from_its_last_event(
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
    world.send(again, notification("notifications/message", '{"n":1}'))
    assert len(world.messages(own)) == 1
    world.end(again, cut(None))
    world.wait(1.01)
    assert listens(world)[-1].last_event_id == "e5", "still where it ended"


def test_a_get_stream_with_an_empty_id_is_opened_afresh() -> None:
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
    world.send(fresh, notification("notifications/message", "{}"))
    assert len(world.messages(own)) == 1


def test_a_get_stream_that_is_refused_afresh_is_not_retried() -> None:
    world = driver()
    _, stream = listening(world)
    world.end(stream, broken("e5"))
    for _ in range(2):
        world.wait(2.0)
        world.end(world.last_dial(Listen).channel, NO_STREAM)
    world.wait(1000.0)
    assert len(listens(world)) == 3


@pytest.mark.parametrize("cause", [UNREACHABLE, broken(None), Cause(End.REFUSED, status=503)])
def test_a_get_stream_is_resumed_when_its_server_is_back(cause: Cause) -> None:
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
    world.end(world.take_sent("tools/list").channel, FORGOTTEN)
    world.start_server(session="S2", listens=True)
    assert listens(world)[-1] == Listen(server="http", session="S2", revision="2025-11-25")
    world.wait(100.0)
    assert len(listens(world)) == 2


def test_404_on_a_resumed_get_stream_ends_the_session() -> None:
    world = driver()
    client, stream = listening(world)
    world.end(stream, broken("e5"))
    world.wait(1.0)
    world.end(world.last_dial(Listen).channel, FORGOTTEN)
    client.request("1", "tools/list")
    world.start_server(session="S2")
    assert [dial.target.session for dial in world.dials if isinstance(dial.target, Post)][-1] == "S2"
    assert world.was_sent("tools/list")


def test_a_client_that_takes_no_events_gets_the_answer_alone() -> None:
    """The client gets no progress and is not told to poll, though the upstream response is resumed."""
    world = driver()
    client = connect(world, "http", "http")
    channel = client.send(request("1", "tools/call", WITH_TOKEN), takes_events=False)
    call = world.take_sent("tools/call")
    world.open(call.channel, Connected())
    world.open(call.channel, Primed())
    world.send(call.channel, notification("notifications/progress", f'{{"progressToken":{call.id},"progress":1}}'))
    world.end(call.channel, polled())
    assert channel not in world.primed and not world.sent[channel] and channel not in world.over
    world.wait(5.0)
    ((rest, _),) = resumptions(world)
    world.open(rest, Connected())
    world.send(rest, result(str(call.id), '{"done":1}'))
    (sent,) = world.sent[channel]
    assert (sent.message, sent.is_last, sent.status, sent.event_id) == (result("1", '{"done":1}'), True, 200, None)
