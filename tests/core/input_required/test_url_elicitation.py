"""Tests of the bounds of URL elicitation: the number of pages, the length of their ids, and the time they are waited
for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import error
from isthmus.core.base.limits import Limits
from stateless_driving import ACCEPT, respond, served
from url_pages import agreed, done, page, refuse


@pytest.mark.parametrize(("others", "is_known"), [(63, True), (64, False)])
def test_the_last_completed_elicitations_are_remembered(others: int, is_known: bool) -> None:
    """The call of a client that has agreed meanwhile is sent at once if its page is among the last 64 completed
    ones."""
    world, client, _ = served()
    channel = client.request("tools/call", name="t")
    received = world.take_sent("tools/call")
    refuse(world, received, "a")
    result = client.answered(channel, client.last_id)["result"]
    done(world, received.channel, "a")
    for number in range(others):
        done(world, received.channel, f"x{number}")
        done(world, received.channel, f"x{number}")
    again = client.request("tools/call", name="t", requestState=result["requestState"], inputResponses={"r1": ACCEPT})
    refuse(world, world.take_sent("tools/call"), "a")
    assert world.was_sent("tools/call") is is_known
    if not is_known:
        done(world, received.channel, "a")
    respond(world, world.take_sent("tools/call"))
    assert "result" in client.answered(again, client.last_id)


@pytest.mark.parametrize(("count", "is_asked"), [(0, False), (1, True), (16, True), (17, False)])
def test_up_to_so_many_pages_are_asked_at_once(count: int, is_asked: bool) -> None:
    """The keys count from 1. With no page or too many, the client gets the server's error unchanged."""
    world, client, _ = served()
    channel = client.request("tools/call", name="t")
    refuse(world, world.take_sent("tools/call"), *(f"p{number}" for number in range(count)))
    answer = client.answered(channel, client.last_id)
    if is_asked:
        assert list(answer["result"]["inputRequests"]) == [f"r{number + 1}" for number in range(count)]
        return
    assert answer.get("result", {}).get("resultType") != "input_required"


@pytest.mark.parametrize("name", ["a" * 64, "a" * 65, "ü", "a" * 1000, "\u2028"])
def test_an_elicitation_is_known_by_its_whole_id(name: str) -> None:
    """An id may have any length and any characters. One that only begins alike is another."""
    world, client, _ = served()
    channel, child = agreed(world, client, name)
    for other in (name + "b", name[:-1], "x"):
        if other != name:
            done(world, child, other)
            assert not world.was_sent("tools/call")
    done(world, child, name)
    respond(world, world.take_sent("tools/call"))
    assert "result" in client.answered(channel, client.last_id)


def test_a_completion_is_waited_for_up_to_a_bound() -> None:
    """After that the call is sent all the same, and the server says what is missing."""
    world, client, _ = served(limits=Limits(url_elicitation_wait_s=8.0))
    channel, _ = agreed(world, client, "a")
    world.wait(7.75)
    assert not world.was_sent("tools/call")
    world.wait(0.25)
    respond(world, world.take_sent("tools/call"))
    assert "result" in client.answered(channel, client.last_id)


@pytest.mark.parametrize(
    "data",
    [
        None,
        7,
        [],
        {},
        {"elicitations": None},
        {"elicitations": {}},
        {"elicitations": []},
        {"elicitations": [7]},
        {"elicitations": [{}]},
        {"elicitations": [page("a") | {"mode": 7}]},
    ],
)
def test_an_error_that_names_no_page_is_passed_on(data: Any) -> None:
    """The call is over, and is not repeated."""
    world, client, _ = served()
    channel = client.request("tools/call", name="t")
    received = world.take_sent("tools/call")
    failure = {"code": -32042, "message": "visit"} | ({} if data is None else {"data": data})
    world.reply(received, error(str(received.id), json.dumps(failure)))
    answer = client.answered(channel, client.last_id)
    assert answer.get("result", {}).get("resultType") != "input_required"
    assert "visit" in json.dumps(answer)
    assert not world.was_sent("tools/call")
