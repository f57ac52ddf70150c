"""Tests of a client's session: which request is meant, what keeps it busy, where messages may travel, and its tables at
rest."""

from __future__ import annotations

import itertools
import json
import sys

import pytest
from driving import GONE, Client, Driver, connect, driver, notification
from hypothesis import given
from hypothesis import strategies as st
from inside import Inside
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.revisions import DEFAULT_HTTP_REVISION
from isthmus.core.jsonrpc.envelope import IdKey
from isthmus.core.state.exchange import Exchange, ExchangeKey, Reply
from isthmus.core.state.listen import Listen
from isthmus.core.state.listen_filter import ListenFilter
from isthmus.core.state.session import PendingQuestion, Session, SessionState
from isthmus.core.state.subscription import Subscription
from parts import lone_session


def session(pipe: ChannelId | None = None) -> Session:
    return lone_session(id="i", server="files", pipe=pipe)


def add(
    target: Session, number: int, *, id_key: IdKey = ("n", 1), is_sent: bool = False, can_stream: bool = True
) -> Exchange:
    """An open request that came in on channel `number`."""
    key = ExchangeKey(ChannelId(number), 0)
    reply = Reply(ChannelId(number), ends_channel=True, can_stream=can_stream)
    exchange = Exchange(
        key, reply, sid="s", id_raw=b"1", id_key=id_key, method="tools/call", params=None, token_raw=None
    )
    exchange.upstream_id = number if is_sent else None
    target.exchanges[key] = exchange
    return exchange


def test_a_session_begins_empty() -> None:
    """A new session knows nothing of its client, and assumes the oldest HTTP revision."""
    fresh = session()
    assert fresh.state is SessionState.OPENING
    assert fresh.features.revision == DEFAULT_HTTP_REVISION
    assert not fresh.is_busy
    assert (fresh.find_by_id(("n", 1)), fresh.only_call(), fresh.latest_call()) == (None, None, None)


@pytest.mark.parametrize("busy", list(itertools.product([False, True], repeat=4)))
def test_a_request_a_stream_or_a_pipe_keeps_a_session_busy(busy: tuple[bool, ...]) -> None:
    """A question that nobody answers does not."""
    has_request, has_question, has_stream, is_pipe = busy
    target = session(ChannelId(9) if is_pipe else None)
    if has_request:
        add(target, 1)
    if has_question:
        target.record_question(PendingQuestion(b"1", None, "roots/list", 1, None))
    if has_stream:
        target.streams.append(ChannelId(8))
    assert target.is_busy == (has_request or has_stream or is_pipe)


IDS: list[IdKey] = [("n", 1), ("s", "1"), ("n", 2), ("s", "")]


@given(ids=st.lists(st.sampled_from(IDS), max_size=6), wanted=st.sampled_from(IDS))
def test_a_request_is_found_by_its_id_if_only_one_has_it(ids: list[IdKey], wanted: IdKey) -> None:
    """An id that is in use twice finds no request, since nobody can tell which is meant. 1 and "1" differ."""
    target = session()
    made = [add(target, number, id_key=id_key) for number, id_key in enumerate(ids, 1)]
    having = [exchange for exchange in made if exchange.id_key == wanted]
    assert target.find_by_id(wanted) is (having[0] if len(having) == 1 else None)


@given(open_calls=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=5))
def test_the_request_that_carries_a_servers_message(open_calls: list[tuple[bool, bool]]) -> None:
    """The only streaming request that is upstream carries it; the latest streaming request is the second best."""
    target = session()
    made = [add(target, n, is_sent=sent, can_stream=can) for n, (sent, can) in enumerate(open_calls, 1)]
    streaming = [exchange for exchange in made if exchange.reply.can_stream]
    at_work = [exchange for exchange in streaming if exchange.upstream_id is not None]
    assert target.only_call() is (at_work[0] if len(at_work) == 1 else None)
    assert target.latest_call() is (streaming[-1] if streaming else None)


def test_questions_get_numbers_of_their_own() -> None:
    """A number is never used twice, even after its question is gone."""
    target = session()
    question = PendingQuestion(b'"x"', b"7", "sampling/createMessage", 1, None)
    numbers = [target.record_question(question) for _ in range(3)]
    target.questions.clear()
    numbers += [target.record_question(question) for _ in range(2)]
    assert len(set(numbers)) == 5
    assert list(target.questions) == numbers[3:]
    assert list(target.questions.values()) == [question._replace(number=number) for number in numbers[3:]]


@pytest.mark.parametrize(("requests", "adopted", "passing"), list(itertools.product(range(3), range(3), range(3))))
def test_requests_in_flight_are_counted(requests: int, adopted: int, passing: int) -> None:
    """A request that goes on as a task does not count, and a response that is being passed on does."""
    target = session()
    for number in range(requests + adopted):
        add(target, number)
    target.adopted, target.passing = adopted, passing
    assert target.in_flight == requests + passing
    assert target.is_busy is (requests + adopted + passing > 0)


@pytest.mark.parametrize("ends", ["passed", "kept"])
def test_a_subscription_counts_once_though_it_is_passed_and_then_kept(ends: str) -> None:
    """A server that is lost before it acknowledges may come back with sessions. No subscription is owed a response."""
    target = session()
    call, listen = add(target, 1), add(target, 2)
    target.pass_listen(listen, ListenFilter(tools=True))
    if ends == "kept":
        target.begin_listen(Subscription(listen, Listen(b"1", ListenFilter(tools=True), queue_max=1)))
    assert (target.waiting_count, target.is_listen(listen), target.is_listen(call)) == (1, True, False)
    if ends == "kept":
        target.end_listen(listen)
    target.remove(listen)
    assert (target.waiting_count, target.is_listen(listen), len(target.passed)) == (1, False, 0)


def test_a_session_keeps_the_headers_of_its_last_request_that_had_any() -> None:
    target = session()
    assert target.headers == ()
    for headers, kept in (
        ((), ()),
        ((("a", "1"),), (("a", "1"),)),
        ((), (("a", "1"),)),
        ((("b", "2"),), (("b", "2"),)),
    ):
        target.receive_headers(headers)
        assert target.headers == kept


def test_a_new_session_has_zero_counts() -> None:
    target = session()
    counts = ("last_stream", "kept_bytes", "stored_bytes", "last_question", "adopted", "passing", "in_flight")
    assert [getattr(target, name) for name in counts] == [0] * len(counts)
    assert [name for name in ("is_own", "is_stateless", "is_busy") if getattr(target, name)] == []
    assert (target.client.revision, target.client.capabilities) == ("", b"{}")


# --- At rest ----------------------------------------------------------------------------------------------------------

EMPTY = sys.getsizeof({})
WITH_IDS = "2025-06-18"
"""A revision whose streams have event ids, and none before the first message."""


def only(world: Driver) -> Session:
    (found,) = Inside(world.engine).sessions.sessions.values()
    return found


def sizes(target: Session) -> list[bool]:
    """True for each table that is no larger than an empty one."""
    return [sys.getsizeof(table) == EMPTY for table in (target.exchanges, target.resumable)]


def streamed(world: Driver, client: Client, id: int) -> str:
    """Makes a call whose response comes on a stream with event ids. Returns the id of the first event."""
    params = '{"name":"t","_meta":{"progressToken":"t"}}'
    channel = client.request(str(id), "tools/call", params)
    received = world.take_sent("tools/call")
    token = received.frame["params"]["_meta"]["progressToken"]
    world.send(
        received.channel, notification("notifications/progress", json.dumps({"progressToken": token, "progress": 1}))
    )
    world.answer(received)
    (first, _) = world.event_ids(channel)
    assert first is not None
    return first


def served(limits: Limits | None = None) -> tuple[Driver, Client]:
    world = driver(limits=limits)
    return world, connect(world, "http", "pipe", revision=WITH_IDS)


def test_a_session_with_an_open_stream_gives_back_the_tables_of_its_calls() -> None:
    world, client = served(Limits(stream_ttl_s=10.0))
    streamed(world, client, 1)
    world.wait(20.0)
    target = only(world)
    assert not target.exchanges and not target.resumable
    assert sizes(target) == [False, False]
    stream = client.listen()
    assert sizes(target) == [True, True]
    world.end(stream, GONE)
    for id in (2, 3):  # and can be used as before
        client.request(str(id), "tools/list")
        world.answer(world.take_sent("tools/list"))
    assert sizes(target) == [False, True]
    client.listen()
    assert sizes(target) == [True, True]


def test_tables_that_are_in_use_are_kept() -> None:
    """An open call is answered, and a kept stream can be resumed."""
    world, client = served()
    first = streamed(world, client, 1)
    channel = client.request("2", "tools/list")
    client.listen()
    assert world.engine.exchange_count == 1
    assert sizes(only(world)) == [False, False]
    world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    assert world.only_message(channel)["result"] == {"tools": []}
    assert [frame["id"] for frame in world.frames(client.resume(first))] == [1]


@pytest.mark.parametrize("is_open", [False, True])
def test_rest_changes_nothing_observable(is_open: bool) -> None:
    target = session()
    add(target, 1)
    if not is_open:
        target.exchanges.clear()
    before = dict(target.exchanges), target.is_busy, target.in_flight
    target.rest()
    assert (dict(target.exchanges), target.is_busy, target.in_flight) == before
