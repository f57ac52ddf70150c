"""Tests of names that begin with the tag of a replica: the replica that is asked has their owner answer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from driving import Client, Driver, connect, driver, request, result
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.effects import Forward
from isthmus.core.base.events import (
    DeleteOpening,
    DraftOpening,
    EventPipeOpening,
    GetOpening,
    MessageOpening,
    Opening,
    PostOpening,
    Verb,
)
from isthmus.core.base.ids import is_minted, mint
from isthmus.core.base.replica import ReplicaName, is_minted_or_tagged, is_tag, tag_of

RUN = "0" * 32
CALL = request("5", "tools/call", '{"name":"t"}')


def replica(tag: str, seed: int) -> Driver:
    return driver(seed=seed, replica=ReplicaName(tag, f"{seed:032x}"), shares_storage=True)


def opened(world: Driver, opening: Opening) -> int:
    channel = world.engine.new_channel()
    world.open(channel, opening)
    return channel


@pytest.fixture
def a() -> Driver:
    return replica("a", 1)


@pytest.fixture
def b() -> Driver:
    return replica("b", 2)


@pytest.fixture
def alice(a: Driver) -> Client:
    """A client that has its session at the replica `a`."""
    return connect(a, "http", "pipe")


def test_a_session_id_begins_with_the_tag_and_is_served(a: Driver, alice: Client) -> None:
    assert alice.session is not None
    assert alice.session.startswith("a.")
    assert is_minted(alice.session.removeprefix("a."))
    channel = alice.request("5", "tools/call", '{"name":"t"}')
    a.answer(a.take_sent("tools/call"), '{"content":[]}')
    assert a.messages(channel) == [result("5", '{"content":[]}')]
    assert not a.every(Forward)


@pytest.mark.parametrize(
    "make",
    [
        lambda id: PostOpening("pipe", session=id),
        lambda id: GetOpening("pipe", session=id),
        lambda id: DeleteOpening("pipe", session=id),
        lambda id: MessageOpening("pipe", id),
        lambda id: DraftOpening("pipe", Verb.RESUME, {}, draft=id),
    ],
    ids=["post", "get", "delete", "message", "draft"],
)
def test_a_request_for_another_replica_is_passed_on_and_answered_here_if_that_is_gone(b: Driver, make: Any) -> None:
    id = f"a.{RUN}"
    channel = opened(b, make(id))
    assert b.every(Forward) == [Forward(channel, "a")]
    b.send(channel, CALL)  # as it crosses the order
    b.end(channel)
    assert not b.sent.get(channel)
    again = opened(b, msgspec.structs.replace(make(id), is_returned=True))
    if isinstance(make(id), PostOpening):
        b.send(again, CALL)
    assert b.sent[again][-1].status == (403 if isinstance(make(id), DraftOpening) else 404)
    assert len(b.every(Forward)) == 1


@pytest.mark.parametrize("id", [f"b.{RUN}", RUN, "x", "UPPER.x", "a" * 9 + "." + RUN, ".", ""])
def test_any_other_name_is_looked_for_here(b: Driver, id: str) -> None:
    channel = opened(b, PostOpening("pipe", session=id))
    b.send(channel, CALL)
    assert b.sent[channel][-1].status == 404
    assert not b.every(Forward)


def test_nothing_is_passed_on_by_a_process_that_is_alone() -> None:
    world = driver()
    channel = opened(world, PostOpening("pipe", session=f"a.{RUN}"))
    world.send(channel, CALL)
    assert world.sent[channel][-1].status == 404


def test_the_endpoint_of_an_event_pipe_names_its_owner(a: Driver, b: Driver) -> None:
    pipe = opened(a, EventPipeOpening("pipe", endpoint="/messages"))
    token = a.sent[pipe][0].message.decode().partition("=")[2]
    assert token.startswith("a.")
    posted = opened(a, MessageOpening("pipe", token))
    a.send(posted, request("0", "ping"))
    assert a.messages(pipe)[-1] == result("0")
    elsewhere = opened(b, MessageOpening("pipe", token))
    assert b.every(Forward) == [Forward(elsewhere, "a")]


@given(st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True), st.binary(min_size=16, max_size=16))
def test_a_tagged_name_is_read_back(tag: str, seed: bytes) -> None:
    name = mint(lambda _: seed)
    assert is_tag(tag)
    assert (tag_of(f"{tag}.{name}"), tag_of(name)) == (tag, "")
    assert is_minted_or_tagged(f"{tag}.{name}")
    assert is_minted_or_tagged(name)


@given(st.text(max_size=60))
def test_what_is_no_tagged_name_is_no_path_either(text: str) -> None:
    if is_minted_or_tagged(text):
        assert not set(text) - set("abcdefghijklmnopqrstuvwxyz0123456789.")
        assert text.count(".") <= 1
        assert len(text) <= 41
