"""A client's session: which of its requests is meant, what it is busy with, and where messages may travel."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.revisions import DEFAULT_HTTP_REVISION
from isthmus.core.jsonrpc.envelope import IdKey
from isthmus.core.state.exchange import Exchange, ExchangeKey, Reply
from isthmus.core.state.session import Ask, Session, State


def session(pipe: ChannelId | None = None) -> Session:
    return Session(id="i", sid="s", workspace="w", server="files", principal="p", pipe=pipe, base_url="")


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
    """It knows nothing of the client yet: what it may do is what the oldest HTTP clients can."""
    fresh = session()
    assert fresh.state is State.OPENING
    assert fresh.features.revision == DEFAULT_HTTP_REVISION
    assert not fresh.is_busy
    assert (fresh.find_by_id(("n", 1)), fresh.only_call(), fresh.latest_call()) == (None, None, None)


@pytest.mark.parametrize("busy", list(itertools.product([False, True], repeat=4)))
def test_any_one_thing_keeps_it_from_idling(busy: tuple[bool, ...]) -> None:
    """An open request, a stream or a pipe; a question that nobody answers does not."""
    has_request, has_ask, has_stream, is_pipe = busy
    target = session(ChannelId(9) if is_pipe else None)
    if has_request:
        add(target, 1)
    if has_ask:
        target.record_ask(Ask(b"1", None, "roots/list", 1, None))
    if has_stream:
        target.streams.append(ChannelId(8))
    assert target.is_busy == (has_request or has_stream or is_pipe)


IDS: list[IdKey] = [("n", 1), ("s", "1"), ("n", 2), ("s", "")]


@given(ids=st.lists(st.sampled_from(IDS), max_size=6), wanted=st.sampled_from(IDS))
def test_a_request_is_found_by_its_id_if_only_one_has_it(ids: list[IdKey], wanted: IdKey) -> None:
    """Clients reuse ids at the same time; then nobody can tell which is meant, and none is. 1 and "1" differ."""
    target = session()
    made = [add(target, number, id_key=id_key) for number, id_key in enumerate(ids, 1)]
    having = [exchange for exchange in made if exchange.id_key == wanted]
    assert target.find_by_id(wanted) is (having[0] if len(having) == 1 else None)


@given(open_calls=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=5))
def test_where_a_message_may_travel(open_calls: list[tuple[bool, bool]]) -> None:
    """With the one request that is at work upstream and takes messages, if it is the only one; else the latest that
    takes messages is the second best."""
    target = session()
    made = [add(target, n, is_sent=sent, can_stream=can) for n, (sent, can) in enumerate(open_calls, 1)]
    streaming = [exchange for exchange in made if exchange.reply.can_stream]
    at_work = [exchange for exchange in streaming if exchange.upstream_id is not None]
    assert target.only_call() is (at_work[0] if len(at_work) == 1 else None)
    assert target.latest_call() is (streaming[-1] if streaming else None)


def test_questions_get_numbers_of_their_own() -> None:
    """A number is never used twice, even after its question is gone."""
    target = session()
    ask = Ask(b'"x"', b"7", "sampling/createMessage", 1, None)
    numbers = [target.record_ask(ask) for _ in range(3)]
    target.asks.clear()
    numbers += [target.record_ask(ask) for _ in range(2)]
    assert len(set(numbers)) == 5
    assert list(target.asks) == numbers[3:]
    assert list(target.asks.values()) == [ask._replace(number=number) for number in numbers[3:]]


@pytest.mark.parametrize(("requests", "adopted", "passing"), list(itertools.product(range(3), range(3), range(3))))
def test_what_its_client_waits_for_is_in_flight(requests: int, adopted: int, passing: int) -> None:
    """A request that goes on as a task is not, and an answer that is on its way is."""
    target = session()
    for number in range(requests + adopted):
        add(target, number)
    target.adopted, target.passing = adopted, passing
    assert target.in_flight == requests + passing
    assert target.is_busy is (requests + adopted + passing > 0)


def test_the_headers_of_the_last_request_that_had_any_are_its_own() -> None:
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


def test_of_a_new_session_nothing_has_been_counted() -> None:
    target = session()
    counts = ("last_stream", "kept_bytes", "stored_bytes", "last_ask", "adopted", "passing", "in_flight")
    assert [getattr(target, name) for name in counts] == [0] * len(counts)
    assert [name for name in ("is_own", "is_stateless", "is_busy") if getattr(target, name)] == []
    assert (target.client.revision, target.client.capabilities) == ("", b"{}")
