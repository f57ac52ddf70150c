"""Tests of the open requests of a pipe, which are found by their ids as long as they are open."""

from __future__ import annotations

import pytest
from isthmus.core.base.ids import ChannelId
from isthmus.core.endpoints.pipe_requests import PipeRequests
from isthmus.core.jsonrpc.envelope import IdKey
from isthmus.core.state.exchange import Exchange, ExchangeInput, ExchangeKey, Reply
from isthmus.core.state.session import Session
from isthmus.core.state.stream import Stream
from parts import lone_session

PIPE = ChannelId(1)


def session() -> Session:
    return lone_session(id="i", server="a", pipe=PIPE)


def opened(number: int) -> tuple[IdKey, Exchange]:
    id_key: IdKey = ("n", number)
    reply = Reply(Stream(PIPE), ends_channel=False, can_stream=True)
    key = ExchangeKey(PIPE, number)
    return id_key, Exchange(
        key, reply, sid="s", id_raw=b"%d" % number, id_key=id_key, method="m", params=None, token_raw=None
    )


def end(exchange: Exchange) -> None:
    """Ends the exchange. The way does not matter here."""
    exchange.step(ExchangeInput.CANCEL)
    assert exchange.is_over


def test_an_open_request_is_found_by_its_id() -> None:
    requests, owner = PipeRequests(), session()
    id_key, exchange = opened(1)
    assert requests.find(id_key) is None
    requests.add(id_key, owner, exchange)
    assert requests.find(id_key) == (owner, exchange)
    assert requests.find(("s", "1")) is None
    assert requests.find(None) is None
    assert requests.open


@pytest.mark.parametrize("how", ["over", "another id", "no channel"])
def test_a_request_that_is_not_open_any_more_is_removed(how: str) -> None:
    """A request that is over, continued under another id or without a channel is removed when it is looked up."""
    requests, owner = PipeRequests(), session()
    id_key, exchange = opened(1)
    requests.add(id_key, owner, exchange)
    if how == "over":
        end(exchange)
    elif how == "another id":
        exchange.id_key = ("n", 2)
    else:
        exchange.reply.stream.channel = None
    assert requests.find(id_key) is None
    assert not requests.open


def test_all_open_requests_can_be_taken_once() -> None:
    requests, owner = PipeRequests(), session()
    every = [opened(number) for number in range(4)]
    for id_key, exchange in every:
        requests.add(id_key, owner, exchange)
    end(every[1][1])
    assert requests.take_all() == [(owner, every[number][1]) for number in (0, 2, 3)]
    assert requests.take_all() == []
    assert not requests.open


def test_an_answer_is_owed_to_all_but_subscriptions() -> None:
    requests, owner = PipeRequests(), session()
    assert not requests.is_waiting
    one, two = opened(1), opened(2)
    for id_key, exchange in (one, two):
        requests.add(id_key, owner, exchange)
    assert requests.is_waiting
    end(one[1])
    assert requests.is_waiting
    owner.listens = {two[1].key: None}  # type: ignore[dict-item]
    assert not requests.is_waiting


def test_the_table_has_never_many_more_entries_than_open_requests() -> None:
    """A small table is not swept. A large one is swept when it has twice as many entries as were open at the last
    sweep."""
    requests, owner = PipeRequests(), session()
    sizes = []
    for number in range(200):
        id_key, exchange = opened(number)
        requests.add(id_key, owner, exchange)
        if number % 8:
            end(exchange)
        sizes.append(len(requests.open))
    assert sizes[31] == 32
    assert sizes[32] == 5
    assert all(size <= max(32, 2 * (number // 8 + 1)) for number, size in enumerate(sizes))
    still = [number for number in range(200) if not number % 8]
    assert [id_key[1] for id_key in list(requests.open) if requests.find(id_key)] == still


def test_the_table_is_swept_only_when_it_has_doubled() -> None:
    requests, owner = PipeRequests(), session()
    for number in range(64):
        requests.add(opened(number)[0], owner, opened(number)[1])
    ended = list(range(64, 100))
    for number in ended:
        id_key, exchange = opened(number)
        requests.add(id_key, owner, exchange)
        end(exchange)
    assert len(requests.open) == 100, "swept at 32 and 64, and next at 128"
