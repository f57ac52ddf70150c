"""The open requests of a pipe are known by their ids, as long as they are open."""

from __future__ import annotations

import pytest
from isthmus.core.base.ids import ChannelId
from isthmus.core.endpoints.pipe_requests import Legs
from isthmus.core.jsonrpc.envelope import IdKey
from isthmus.core.state.exchange import Exchange, ExchangeKey, Input, Reply
from isthmus.core.state.session import Session
from isthmus.core.state.stream import Stream

PIPE = ChannelId(1)


def session() -> Session:
    return Session(id="i", sid="s", workspace="w", server="a", principal="p", pipe=PIPE, base_url="")


def opened(number: int) -> tuple[IdKey, Exchange]:
    id_key: IdKey = ("n", number)
    reply = Reply(Stream(PIPE), ends_channel=False, can_stream=True)
    key = ExchangeKey(PIPE, number)
    return id_key, Exchange(
        key, reply, sid="s", id_raw=b"%d" % number, id_key=id_key, method="m", params=None, token_raw=None
    )


def end(exchange: Exchange) -> None:
    """However it ended."""
    exchange.step(Input.CANCEL)
    assert exchange.is_over


def test_who_is_open_is_found_by_its_id() -> None:
    legs, owner = Legs(), session()
    id_key, exchange = opened(1)
    assert legs.find(id_key) is None
    legs.add(id_key, owner, exchange)
    assert legs.find(id_key) == (owner, exchange)
    assert legs.find(("s", "1")) is None
    assert legs.find(None) is None
    assert legs.open


@pytest.mark.parametrize("how", ["over", "another id", "no channel"])
def test_who_is_not_open_any_more_is_forgotten_on_the_way(how: str) -> None:
    """Over, gone on under another id, or without a channel."""
    legs, owner = Legs(), session()
    id_key, exchange = opened(1)
    legs.add(id_key, owner, exchange)
    if how == "over":
        end(exchange)
    elif how == "another id":
        exchange.id_key = ("n", 2)
    else:
        exchange.reply.stream.channel = None
    assert legs.find(id_key) is None
    assert not legs.open


def test_all_that_are_open_can_be_taken_once() -> None:
    legs, owner = Legs(), session()
    every = [opened(number) for number in range(4)]
    for id_key, exchange in every:
        legs.add(id_key, owner, exchange)
    end(every[1][1])
    assert legs.take_all() == [(owner, every[number][1]) for number in (0, 2, 3)]
    assert legs.take_all() == []
    assert not legs.open


def test_an_answer_is_owed_to_all_but_subscriptions() -> None:
    legs, owner = Legs(), session()
    assert not legs.is_waiting
    one, two = opened(1), opened(2)
    for id_key, exchange in (one, two):
        legs.add(id_key, owner, exchange)
    assert legs.is_waiting
    end(one[1])
    assert legs.is_waiting
    owner.listens = {two[1].key: None}  # type: ignore[dict-item]
    assert not legs.is_waiting


def test_there_are_never_many_more_than_are_open() -> None:
    """Of few none is looked for; of many, whenever there are twice as many as were open the last time."""
    legs, owner = Legs(), session()
    sizes = []
    for number in range(200):
        id_key, exchange = opened(number)
        legs.add(id_key, owner, exchange)
        if number % 8:
            end(exchange)
        sizes.append(len(legs.open))
    assert sizes[31] == 32
    assert sizes[32] == 5
    assert all(size <= max(32, 2 * (number // 8 + 1)) for number, size in enumerate(sizes))
    still = [number for number in range(200) if not number % 8]
    assert [id_key[1] for id_key in list(legs.open) if legs.find(id_key)] == still


def test_what_is_open_is_swept_no_more_often_than_it_doubles() -> None:
    legs, owner = Legs(), session()
    for number in range(64):
        legs.add(opened(number)[0], owner, opened(number)[1])
    ended = list(range(64, 100))
    for number in ended:
        id_key, exchange = opened(number)
        legs.add(id_key, owner, exchange)
        end(exchange)
    assert len(legs.open) == 100, "looked through at 32 and 64, and next at 128"
