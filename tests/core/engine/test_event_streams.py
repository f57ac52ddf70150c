"""Tests of event streams of clients, which outlive their connections: event ids, resumption, and what is kept of them.

The main rule: a client that was cut off and names the last event that it saw gets exactly the rest, in order.

Source: 2025-03-26 to 2025-11-25 basic/transports, "Sending Messages to the Server" and "Resumability and Redelivery".
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import (
    GONE,
    LATEST,
    Client,
    Driver,
    connect,
    driver,
    new_client,
    notification,
    request,
    result,
)
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.effects import Listen, Send
from isthmus.core.base.events import Cause, Connected, End, GetOpening, Primed
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan
from streaming import (
    LOG,
    WITH_TOKEN,
    Call,
    call_of,
    can_resume,
    child_of,
    disconnected_call,
    is_refused,
    last_id,
    tag,
    tags,
)

CHANGED = "notifications/tools/list_changed"
NAMED_ONLY = ["2025-03-26", "2025-06-18"]
OLD = ["2024-11-05", *NAMED_ONLY]


# --- Priming ----------------------------------------------------------------------------------------------------------


def test_a_get_stream_is_primed_at_once() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    stream = client.listen()
    primed = world.primed[stream]
    assert (primed.event_id, primed.retry_ms, primed.is_last) == ("1-1", 1000, False)
    world.send(child_of(world), notification(CHANGED))
    (send,) = world.sent[stream]
    assert (send.event_id, send.retry_ms) == ("1-2", None)


def test_a_reply_is_primed_when_the_servers_own_can_be_resumed() -> None:
    world = driver()
    call = call_of(world, connect(world, "http", "http"))
    assert not world.every(Send)[1:]
    world.open(call.received.channel, Primed())
    assert world.primed[call.channel].event_id == "1-1"
    assert world.primed[call.channel].retry_ms == 1000
    assert not world.sent[call.channel]


def test_a_reply_is_primed_by_its_first_message_that_is_not_the_answer() -> None:
    world = driver()
    call = call_of(world, connect(world, "http", "pipe"))
    call.progress(1)
    call.progress(2)
    call.answer()
    sends = world.sent[call.channel]
    assert [(send.event_id, send.retry_ms) for send in sends] == [("1-1", 1000), ("1-2", None), ("1-3", None)]
    assert call.channel not in world.primed


def test_each_silent_reply_is_primed_after_its_own_wait() -> None:
    world = driver(limits=Limits(stream_commit_s=5.0))
    client = connect(world, "http", "pipe")
    first = call_of(world, client, "1")
    world.wait(3.0)
    second = call_of(world, client, "2")
    world.wait(1.9)
    assert not world.primed
    world.wait(0.1)
    assert list(world.primed) == [first.channel]
    world.wait(3.0)
    assert list(world.primed) == [first.channel, second.channel]
    third = call_of(world, client, "3")
    world.wait(4.9)
    third.answer()
    world.wait(100.0)
    assert list(world.primed) == [first.channel, second.channel]


def test_a_reply_that_is_not_silent_for_long_is_a_single_message_without_an_id() -> None:
    world = driver(limits=Limits(stream_commit_s=5.0))
    call = call_of(world, connect(world, "http", "pipe"))
    world.wait(4.9)
    call.answer()
    (send,) = world.sent[call.channel]
    assert (send.event_id, send.retry_ms, send.is_last) == (None, None, True)
    world.wait(10.0)
    assert not world.primed


def test_nothing_is_primed_twice() -> None:
    world = driver()
    client = connect(world, "http", "http")
    call = call_of(world, client)
    for _ in range(2):
        world.open(call.received.channel, Primed())
        world.wait(6.0)
    call.progress()
    world.open(call.received.channel, Primed())
    assert len([send for send in world.every(Send) if not send.message]) == 1
    assert world.event_ids(call.channel) == ["1-2"]


@pytest.mark.parametrize("revision", OLD)
@pytest.mark.parametrize("up", ["pipe", "http"])
def test_clients_of_old_revisions_are_never_primed(revision: str, up: str) -> None:
    """Old clients fail on an event without data. Some of them know ids."""
    world = driver()
    client = connect(world, "http", up, revision=revision)
    stream = client.listen()
    call = call_of(world, client)
    if up == "http":
        world.open(call.received.channel, Primed())
    world.wait(60.0)
    assert not world.primed
    call.progress(1)
    call.ask(2)
    call.answer()
    if up == "pipe":
        call.send(notification(CHANGED))
    sends = world.sent[call.channel] + world.sent[stream]
    assert [send.retry_ms for send in sends] == [None] * len(sends)
    assert [send.event_id is not None for send in sends] == [revision != "2024-11-05"] * len(sends)
    assert not world.primed


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_client_that_takes_no_events_is_never_primed(up: str) -> None:
    world = driver()
    client = connect(world, "http", up)
    channel = client.send(request("1", "tools/call", WITH_TOKEN), takes_events=False)
    call = Call(world, channel, world.take_sent("tools/call"))
    if up == "http":
        world.open(call.received.channel, Connected())
        world.open(call.received.channel, Primed())
    world.wait(60.0)
    call.progress(1)
    assert not world.sent[channel]
    assert not world.primed
    call.answer()
    assert world.event_ids(channel) == [None]


def test_messages_on_pipes_have_no_ids() -> None:
    world = driver()
    client = connect(world, "pipe", "http")
    call = call_of(world, client)
    world.open(call.received.channel, Primed())
    world.wait(60.0)
    call.progress()
    call.answer()
    assert world.event_ids(call.channel) == [None, None]
    assert not world.primed


def test_the_answer_to_initialize_is_never_a_stream() -> None:
    """The session id travels in the head of that response, and is not known earlier."""
    world = driver()
    client = new_client(world, "http", "http")
    channel = client.initialize()
    post = world.take_sent("initialize")
    world.open(post.channel, Connected(session="S1"))
    world.open(post.channel, Primed())
    world.wait(50.0)
    assert not world.primed
    world.send(post.channel, result(str(post.id), f'{{"protocolVersion":"{LATEST}"}}'))
    (send,) = world.sent[channel]
    assert send.session is not None
    assert send.event_id is None


def test_a_reply_whose_client_is_gone_is_not_primed() -> None:
    world = driver()
    call = call_of(world, connect(world, "http", "http"))
    world.end(call.channel, GONE)
    world.open(call.received.channel, Primed())
    world.wait(60.0)
    call.progress()
    call.answer()
    assert not world.primed
    assert not world.sent[call.channel]


# --- Resuming ---------------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.sampled_from(["progress", "progress", "log", "ask", "reply", "cut", "resume", "resume", "wait"]), max_size=30
)


class Reader:
    """The client of one stream, and the events that it must get.

    Attributes:
        sent: the messages of the server on the stream, in order.
        ids: the ids of the events that the client has seen, that of the priming event first.
        since: the place in `sent` at which the connection was resumed.
    """

    def __init__(self, world: Driver, client: Client, channel: ChannelId) -> None:
        self.world = world
        self.client = client
        self.channel: ChannelId | None = channel
        self.sent: list[Any] = []
        self.ids = [last_id(world, channel)]
        self.since = 0

    @property
    def seen(self) -> list[Any]:
        return self.sent[: len(self.ids) - 1]

    def read(self) -> None:
        """The events on the connection are exactly those that were sent since the place where it was resumed."""
        if self.channel is None:
            return
        sends = self.world.sent[self.channel]
        assert [tag(send.message) for send in sends] == self.sent[self.since :]
        ids = [send.event_id for send in sends]
        self.ids[self.since + 1 :] = [*self.ids[self.since + 1 :], *ids[len(self.ids) - self.since - 1 :]]
        assert ids == self.ids[self.since + 1 :], "an event has one id for ever"
        assert len(set(self.ids)) == len(self.ids), "no two events have the same"

    def hang_up(self) -> None:
        if self.channel is not None and self.channel not in self.world.over:
            self.world.end(self.channel, GONE)
        self.channel = None

    def take_up(self, place: int) -> None:
        """Resumes after an event that the client has seen, whether or not the older connection is still there."""
        before, self.since = self.channel, place
        self.channel = self.client.resume(self.ids[place])
        assert before is None or before in self.world.over, "the older connection is closed"
        self.read()


@given(up=st.sampled_from(["pipe", "http"]), steps=STEPS, data=st.data())
def test_a_reply_cut_anywhere_goes_on_after_any_event_the_client_has_seen(
    up: str, steps: list[str], data: st.DataObject
) -> None:
    world = driver()
    client = connect(world, "http", up)
    call = call_of(world, client)
    world.wait(5.0)
    reader = Reader(world, client, call.channel)
    replied: set[int] = set()
    for number, step in enumerate(steps):
        if step in ("progress", "log", "ask"):
            {"progress": call.progress, "log": call.log, "ask": call.ask}[step](number)
            reader.sent.append(number)
        elif step == "cut":
            reader.hang_up()
        elif step == "resume":
            reader.take_up(data.draw(st.integers(0, len(reader.ids) - 1), label="after"))
        elif step == "wait":
            world.wait(1.0)
        elif questions := [n for n in reader.seen if steps[n] == "ask" and n not in replied]:
            replied.add(questions[0])
            (id,) = {f["id"] for c in [*world.sent] for f in world.frames(c) if f.get("params") == {"q": questions[0]}}
            for _ in range(2):
                client.send(result(str(id)))
            assert world.take_sent("").frame["id"] == f"q{questions[0]}"
        reader.read()
    if data.draw(st.booleans(), label="cut before the end"):
        reader.hang_up()
    call.answer('{"done":1}')
    reader.sent.append(json.loads(result("1", '{"done":1}')))
    if reader.channel is None:
        reader.take_up(len(reader.ids) - 1)
    for _ in range(2):
        reader.read()
        assert reader.channel in world.over, "the answer is the end"
        reader.take_up(data.draw(st.integers(0, len(reader.ids) - 1), label="once more after"))
    assert not world.unread, "nothing was sent to the server twice"


@given(
    steps=st.lists(st.sampled_from(["change", "log", "ask", "cut", "resume", "resume"]), max_size=30), data=st.data()
)
def test_a_get_stream_cut_anywhere_goes_on_after_any_event_the_client_has_seen(
    steps: list[str], data: st.DataObject
) -> None:
    """Messages of the server without a connection wait. Equal `list_changed` notifications among them are sent once."""
    world = driver()
    client = connect(world, "http", "pipe")
    reader = Reader(world, client, client.listen())
    held: list[Any] = []
    for number, step in enumerate(steps):
        if step in ("change", "log", "ask"):
            message = {
                "change": notification(CHANGED),
                "log": notification(LOG, f'{{"data":{number}}}'),
                "ask": request(f'"q{number}"', "elicitation/create", f'{{"q":{number}}}'),
            }[step]
            world.send(child_of(world), message)
            if reader.channel is not None:
                reader.sent.append(tag(message))
            elif step != "change" or CHANGED not in held:
                held.append(tag(message))
        elif step == "cut":
            reader.hang_up()
        elif step == "resume":
            reader.sent += held
            held.clear()
            reader.take_up(data.draw(st.integers(0, len(reader.ids) - 1), label="after"))
        reader.read()


@pytest.mark.parametrize(
    "id", ["1-3", "1-1000000", "2-1", "1-0", "0-1", "", "1", "1-1-1", "01-1", "x", "\0", "9" * 5000]
)
def test_an_event_id_that_was_never_given_out_is_refused(id: str) -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    call = call_of(world, client)
    call.progress(1)
    call.progress(2)
    assert is_refused(world, client.resume(id), 400)
    call.progress(3)
    assert tags(world, call.channel) == [1, 2, 3], "the stream itself goes on"


def test_an_event_id_means_something_in_its_own_session_only() -> None:
    world = driver()
    mine, other = (connect(world, "http", "pipe", principal="me") for _ in range(2))
    calls = [call_of(world, mine, str(n)) for n in range(2)]
    for n, call in enumerate(calls):
        call.progress(n)
        world.end(call.channel, GONE)
    assert is_refused(world, other.resume("1-1"), 400), "it has no stream at all"
    own = other.listen()
    calls[0].progress(7)
    empty = other.resume("1-1")
    assert own in world.closed
    assert not world.sent[empty]
    assert is_refused(world, other.resume("2-1"), 400)
    assert tags(world, mine.resume("1-1")) == [7]


def test_foreign_and_unknown_sessions_are_refused_alike_whatever_the_id() -> None:
    world = driver()
    mine = connect(world, "http", "pipe", principal="me")
    call = call_of(world, mine)
    call.progress(1)
    intruders = [
        Client(world, "pipe", session=mine.session, principal="you"),
        Client(world, "pipe", session=mine.session),
        Client(world, "http", session=mine.session, principal="me"),
        Client(world, "pipe", session="f" * 32, principal="me"),
    ]
    answers = set()
    for intruder in intruders:
        for id in ("1-1", "9-9", "x"):
            channel = intruder.resume(id)
            assert is_refused(world, channel, 404)
            answers.add(world.sent[channel][0].message)
    assert len(answers) == 1
    assert is_refused(world, Client(world, "pipe", principal="me").resume("1-1"), 400), "without a session"
    call.progress(2)
    assert tags(world, call.channel) == [1, 2], "its stream was not taken from it"


def test_resuming_with_an_unknown_version_header_is_refused() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    call = call_of(world, client)
    call.progress(1)
    channel = world.engine.new_channel()
    opening = GetOpening(server="pipe", session=client.session, revision="1.0", last_event_id="1-1")
    world.open(channel, opening)
    assert is_refused(world, channel, 400)
    assert call.channel not in world.closed


def test_sessions_of_2024_11_05_have_nothing_to_resume() -> None:
    world = driver()
    client = connect(world, "http", "pipe", revision="2024-11-05")
    call_of(world, client).progress(1)
    assert is_refused(world, client.resume("1-1"), 400)


# --- The session's own streams ----------------------------------------------------------------------------------------


def test_a_get_stream_that_was_resumed_keeps_no_session_once_it_is_gone() -> None:
    world = driver(limits=Limits(session_idle_ttl_s=60.0))
    client = connect(world, "http", "pipe")
    first = client.listen()
    again = client.resume(last_id(world, first))
    world.end(first)
    world.wait(1000.0)
    assert world.engine.session_count == 1
    world.end(again, GONE)
    world.wait(61.0)
    assert world.engine.session_count == 0


def test_list_changed_survives_a_flood_of_logs() -> None:
    world = driver(limits=Limits(events_max=4, held_per_session_max=4))
    client = connect(world, "http", "pipe")
    stream = client.listen()
    world.send(child_of(world), notification(CHANGED))
    for number in range(10):
        world.send(child_of(world), notification(LOG, f'{{"data":{number}}}'))
    world.end(stream, GONE)
    world.send(child_of(world), notification("notifications/prompts/list_changed"))
    for number in range(10, 20):
        world.send(child_of(world), notification(LOG, f'{{"data":{number}}}'))
    came = tags(world, client.resume("1-1"))
    assert came == [CHANGED, 7, 8, 9, "notifications/prompts/list_changed", 17, 18, 19]


# --- Cancelling -------------------------------------------------------------------------------------------------------

CANCEL = '{"requestId":1}'


@pytest.mark.parametrize("revision", [LATEST, *OLD])
def test_a_cancelled_call_whose_stream_has_named_no_id_ends_without_an_answer(revision: str) -> None:
    """2025-11-25 basic/utilities/cancellation: receivers "SHOULD NOT send a response"."""
    world = driver()
    client = connect(world, "http", "pipe", revision=revision)
    call = call_of(world, client)
    if revision == "2024-11-05":
        call.progress()
    client.notify("notifications/cancelled", CANCEL)
    assert call.channel in world.closed
    assert not [send for send in world.sent[call.channel] if send.is_last]
    call.answer()
    assert world.engine.exchange_count == 0


# --- Batches ----------------------------------------------------------------------------------------------------------


def batch_of(world: Driver, client: Client) -> tuple[Call, Call]:
    body = b"[" + request("1", "tools/call", WITH_TOKEN) + b"," + request("2", "tools/call", WITH_TOKEN) + b"]"
    channel = client.send(body)
    first, second = (Call(world, channel, world.take_sent("tools/call")) for _ in range(2))
    return first, second


def test_a_batch_that_is_cut_off_is_resumed_like_any_other_reply() -> None:
    world = driver()
    client = connect(world, "http", "pipe", revision="2025-03-26")
    first, second = batch_of(world, client)
    second.progress(1)
    world.end(first.channel, GONE)
    second.answer('{"n":2}')
    first.progress(2)
    resumed = client.resume("1-1")
    assert tags(world, resumed) == [2]
    first.answer('{"n":1}')
    assert world.messages(resumed)[1:] == [b"[" + result("2", '{"n":2}') + b"," + result("1", '{"n":1}') + b"]"]
    assert world.sent[resumed][-1].is_last
    assert world.messages(client.resume("1-2")) == world.messages(resumed)[1:]


def test_cancelled_requests_of_a_batch_that_can_be_resumed_are_answered_too() -> None:
    world = driver()
    client = connect(world, "http", "pipe", revision="2025-03-26")
    first, second = batch_of(world, client)
    second.progress(1)
    client.notify("notifications/cancelled", CANCEL)
    client.notify("notifications/cancelled", '{"requestId":2}')
    (answers,) = [json.loads(message) for message in world.messages(first.channel)[1:]]
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(1, -32800), (2, -32800)]


def test_a_batch_cancelled_as_a_whole_ends_without_an_answer() -> None:
    world = driver()
    client = connect(world, "http", "pipe", revision="2025-03-26")
    first, _ = batch_of(world, client)
    client.notify("notifications/cancelled", CANCEL)
    client.notify("notifications/cancelled", '{"requestId":2}')
    assert world.closed[first.channel].status == 200  # an event stream that ends
    assert not world.sent[first.channel]


# --- Ends -------------------------------------------------------------------------------------------------------------


def by_delete(world: Driver, client: Client) -> None:
    client.delete()


def by_idleness(world: Driver, client: Client) -> None:
    world.wait(100.0)


def by_shutdown(world: Driver, client: Client) -> None:
    world.stop()


@pytest.mark.parametrize("end", [by_delete, by_idleness, by_shutdown])
def test_streams_end_with_their_session(end: Any) -> None:
    """Streams that are resumed, over, or without a connection end too; no deadline is left afterwards."""
    world = driver(limits=Limits(session_idle_ttl_s=60.0))
    client = connect(world, "http", "pipe")
    over, cut = call_of(world, client, "1"), call_of(world, client, "2")
    over.progress()
    over.answer()
    cut.progress()
    world.end(cut.channel, GONE)
    listening = client.listen()
    resumed = client.resume(last_id(world, cut.channel))
    cut.answer() if end is by_idleness else None
    world.end(listening, GONE) if end is by_idleness else None
    end(world, client)
    assert world.engine.session_count == 0
    assert resumed in world.over
    assert listening in world.over
    if end is not by_idleness:
        code = next(world.frames(resumed))["error"]["code"]
        assert code == (-32600 if end is by_delete else -31001), "what was open is answered"
    for id in ("1-1", "2-1", "3-1"):
        assert is_refused(world, client.resume(id), 404)
    world.end(child_of(world))
    world.wait(Limits().stream_commit_s)
    assert world.engine.next_timeout() is None


def test_delete_sends_nothing_to_a_client_that_is_away() -> None:
    world = driver()
    client = connect(world, "http", "pipe")
    call = call_of(world, client)
    call.progress()
    world.end(call.channel, GONE)
    client.delete()
    assert tags(world, call.channel) == [0]
    assert world.was_sent("notifications/cancelled")


# --- Bounds -----------------------------------------------------------------------------------------------------------


def test_resumable_per_session_max_forgets_finished_streams_then_those_cut_off() -> None:
    world = driver(limits=Limits(resumable_per_session_max=3))
    client = connect(world, "http", "pipe")
    connected = call_of(world, client, "1")
    connected.progress()
    cut = disconnected_call(world, client, "2")
    over = call_of(world, client, "3")
    over.progress()
    over.answer()
    disconnected_call(world, client, "4")
    assert is_refused(world, client.resume("3-1"), 400), "that which is over"
    disconnected_call(world, client, "5")
    assert is_refused(world, client.resume("2-1"), 400), "the oldest that is cut off"
    cut.answer()
    connected.progress(1)
    assert tags(world, connected.channel) == [0, 1]
    assert [can_resume(world, client, n) for n in (1, 4, 5)] == [True] * 3


def test_resumable_per_session_max_lets_a_connected_stream_go_on_without_ids() -> None:
    world = driver(limits=Limits(resumable_per_session_max=1))
    client = connect(world, "http", "pipe")
    first, second = call_of(world, client, "1"), call_of(world, client, "2")
    first.progress(1)
    second.progress(2)
    first.progress(3)
    assert is_refused(world, client.resume("1-1"), 400)
    first.answer()
    assert [send.event_id for send in world.sent[first.channel]] == ["1-1", None, None]
    assert world.sent[first.channel][-1].is_last
    assert can_resume(world, client, 2)


def test_events_max_drops_progress_and_never_a_question_or_the_answer() -> None:
    world = driver(limits=Limits(events_max=4))
    client = connect(world, "http", "pipe")
    call = disconnected_call(world, client, "1")
    for number in range(1, 4):
        call.progress(number)
    call.ask(4)
    for number in range(5, 20):
        call.progress(number)
    call.answer()
    assert tags(world, client.resume("1-1")) == [4, 18, 19, json.loads(result("1"))]


@pytest.mark.parametrize("count", [1, 2])
def test_events_max_keeps_at_least_what_came_last(count: int) -> None:
    world = driver(limits=Limits(events_max=count))
    client = connect(world, "http", "pipe")
    call = disconnected_call(world, client, "1")
    for number in range(9):
        call.ask(number)
    call.answer()
    assert tags(world, client.resume("1-1")) == [*range(10 - count, 9), json.loads(result("1"))]


def test_events_per_session_max_bytes_forgets_finished_streams_before_it_drops_from_open_ones() -> None:
    world = driver(limits=Limits(events_per_session_max_bytes=5000))
    client = connect(world, "http", "pipe")
    over = disconnected_call(world, client, "1", size=2000)
    over.answer()
    call = disconnected_call(world, client, "2", size=2000)
    assert can_resume(world, client, 1)
    call.log(3, 2000)
    assert is_refused(world, client.resume("1-1"), 400)
    call.log(4, 2000)
    assert tags(world, client.resume("2-1")) == [3, 4]


def test_events_per_session_max_bytes_is_for_all_streams_of_a_session_together() -> None:
    """A single larger event is kept, and no other. Open streams can be resumed all the same."""
    world = driver(limits=Limits(events_per_session_max_bytes=5000))
    client = connect(world, "http", "pipe")
    calls = [disconnected_call(world, client, str(n), size=4000) for n in range(1, 4)]
    assert [tags(world, client.resume(f"{n}-1")) for n in range(1, 4)] == [[], [], [3]]
    calls[2].log(9, 9000)
    assert tags(world, client.resume("3-1")) == [9]
    calls[0].progress(8)
    assert [tags(world, client.resume(f"{n}-1")) for n in range(1, 4)] == [[8], [], []]


def test_events_max_bytes_is_for_all_sessions_together() -> None:
    world = driver(limits=Limits(events_max_bytes=5000))
    clients = [connect(world, "http", "pipe") for _ in range(3)]
    for client in clients:
        disconnected_call(world, client, "1", size=4000)
    assert [tags(world, client.resume("1-1")) for client in clients] == [[], [], [1]]


def test_events_max_bytes_takes_from_the_session_that_was_sent_nothing_for_longest() -> None:
    world = driver(limits=Limits(events_max_bytes=10_000))
    clients = [connect(world, "http", "pipe") for _ in range(3)]
    calls = [disconnected_call(world, client, "1", size=4000) for client in clients[:2]]
    calls[0].ask(7)
    disconnected_call(world, clients[2], "1", size=4000)
    assert [tags(world, client.resume("1-1")) for client in clients] == [[1, 7], [], [1]]


def test_events_max_bytes_forgets_the_oldest_finished_stream_of_any_session() -> None:
    world = driver(limits=Limits(events_max_bytes=10_000))
    clients = [connect(world, "http", "pipe") for _ in range(4)]
    calls = [disconnected_call(world, client, "1", size=3000) for client in clients[:3]]
    for n in (1, 0, 2):
        calls[n].answer()
    disconnected_call(world, clients[3], "1", size=3000)
    assert [can_resume(world, client, 1) for client in clients] == [True, False, True, True]


def test_kept_events_go_with_their_session() -> None:
    """The room of ended sessions is there for later ones."""
    world = driver(limits=Limits(events_max_bytes=10_000))
    for _ in range(20):
        client = connect(world, "http", "pipe")
        disconnected_call(world, client, "1", size=3000)
        disconnected_call(world, client, "2", size=3000).answer()
        client.delete()
        world.unread.clear()
    client = connect(world, "http", "pipe")
    disconnected_call(world, client, "1", size=4500)
    disconnected_call(world, client, "2", size=4500)
    assert [tags(world, client.resume(f"{n}-1")) for n in (1, 2)] == [[1], [2]]


def test_kept_events_expire() -> None:
    world = driver(limits=Limits(events_per_session_max_bytes=10_000, stream_ttl_s=10.0))
    client = connect(world, "http", "pipe")
    for n in range(1, 20):
        disconnected_call(world, client, str(n), size=4000).answer()
        world.wait(6.0)
    assert [can_resume(world, client, n) for n in (18, 19)] == [False, True]
    world.wait(10.1)
    for n in (20, 21):
        disconnected_call(world, client, str(n), size=4500)
    assert [tags(world, client.resume(f"{n}-1")) for n in (20, 21)] == [[20], [21]]


def test_events_of_a_get_stream_can_be_resumed_until_they_expire() -> None:
    """A client that has seen everything may come back at any time; messages in the meantime wait as always."""
    world = driver(limits=Limits(stream_ttl_s=10.0, held_timeout_s=100.0))
    client = connect(world, "http", "pipe")
    stream = client.listen()
    ids = [last_id(world, stream)]
    for number in (1, 2):
        world.send(child_of(world), notification(LOG, f'{{"data":{number}}}'))
        ids.append(last_id(world, stream))
    world.end(stream, GONE)
    world.wait(9.9)
    stream = client.resume(ids[0])
    assert tags(world, stream) == [1, 2]
    world.wait(30.0)
    assert stream not in world.closed, "it has a connection"
    world.end(stream, GONE)
    world.wait(9.9)
    stream = client.resume(ids[1])
    assert tags(world, stream) == [2]
    world.end(stream, GONE)
    world.send(child_of(world), notification(LOG, '{"data":3}'))
    world.send(child_of(world), request('"q4"', "elicitation/create", '{"q":4}'))
    world.wait(10.1)
    for id in ids[:2]:
        assert is_refused(world, client.resume(id), 400)
    stream = client.resume(ids[2])
    assert tags(world, stream) == [3, 4]
    world.send(child_of(world), notification(LOG, '{"data":5}'))
    assert tags(world, stream) == [3, 4, 5]


def test_messages_to_a_stream_without_connection_expire_too() -> None:
    """The withdrawal of a question is kept for a while: the client may have seen the question."""
    world = driver(limits=Limits(stream_ttl_s=10.0, question_timeout_s=15.0, session_idle_ttl_s=1000.0))
    client = connect(world, "http", "pipe")
    stream = client.listen()
    world.send(child_of(world), request('"q1"', "elicitation/create", '{"q":1}'))
    seen = last_id(world, stream)
    world.end(stream, GONE)
    world.wait(15.1)
    (withdrawn,) = tags(world, stream := client.resume(seen))
    assert withdrawn == "notifications/cancelled"
    world.end(stream, GONE)
    world.wait(10.1)
    assert is_refused(world, client.resume(seen), 400)


def test_with_mirrors_polling_a_client_is_polled_like_its_server() -> None:
    """The server ends its stream; the proxy ends the client's too, and both are resumed."""
    world = driver(ServerPlan(id="http", kind=Kind.HTTP), mirrors_polling=True)
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", "{}")
    call = world.take_sent("tools/call")
    world.open(call.channel, Connected())
    world.open(call.channel, Primed())
    primed = world.primed[channel]
    assert primed.retry_ms is not None
    world.end(call.channel, Cause(End.DONE, last_event_id="u-1", retry_ms=100))
    assert channel in world.closed
    world.end(channel)
    again = world.engine.new_channel()
    opening = GetOpening(server="http", session=client.session, last_event_id=primed.event_id)
    world.open(again, opening)
    world.wait(0.1)
    resumed = world.last_dial(Listen)
    world.open(resumed.channel, Connected())
    world.send(resumed.channel, result(str(call.id), '{"n":1}'))
    assert world.only_message(again)["result"] == {"n": 1}
    assert world.sent[again][-1].is_last


def test_a_question_that_was_dropped_while_its_client_was_away_is_refused() -> None:
    """Six questions with room for four events: the two that were dropped are refused at once."""
    world = driver(ServerPlan(id="http", kind=Kind.HTTP), limits=Limits(events_max=4))
    client = connect(world, "http", "http")
    channel = client.request("1", "tools/call", "{}")
    call = world.take_sent("tools/call")
    world.open(call.channel, Connected())
    world.open(call.channel, Primed())
    primed = world.primed[channel]
    world.end(channel, GONE)
    for number in range(6):
        world.send(call.channel, request(f'"q{number}"', "elicitation/create", "{}"))
    again = world.engine.new_channel()
    opening = GetOpening(server="http", session=client.session, last_event_id=primed.event_id)
    world.open(again, opening)
    questions = [frame for frame in world.frames(again) if frame.get("method") == "elicitation/create"]
    assert len(questions) == 4
    refused = [received.frame for received in world.unread if "error" in received.frame]
    assert [frame["id"] for frame in refused] == ["q0", "q1"]
    assert all("the question was lost" in frame["error"]["message"] for frame in refused)
