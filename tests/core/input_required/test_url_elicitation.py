"""Pages to visit, at their bounds: how many, how long their names, how long they are waited for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import error
from isthmus.core.base.limits import Limits
from stateless_driving import ACCEPT, give, served

from tests.core.engine.test_url_elicitation import agreed, done, page, refuse


@pytest.mark.parametrize(("others", "is_known"), [(63, True), (64, False)])
def test_so_many_visits_that_were_done_before_are_known(others: int, is_known: bool) -> None:
    """Of a client that has agreed meanwhile: its call goes up at once if the page is among the last 64."""
    world, client, _ = served()
    channel = client.request("tools/call", name="t")
    heard = world.hear("tools/call")
    refuse(world, heard, "a")
    said = client.answered(channel, client.last_id)["result"]
    done(world, heard.channel, "a")
    for number in range(others):
        done(world, heard.channel, f"x{number}")
        done(world, heard.channel, f"x{number}")
    again = client.request("tools/call", name="t", requestState=said["requestState"], inputResponses={"r1": ACCEPT})
    refuse(world, world.hear("tools/call"), "a")
    assert world.hears("tools/call") is is_known
    if not is_known:
        done(world, heard.channel, "a")
    give(world, world.hear("tools/call"))
    assert "result" in client.answered(again, client.last_id)


@pytest.mark.parametrize(("count", "is_asked"), [(0, False), (1, True), (16, True), (17, False)])
def test_so_many_pages_are_asked_at_once(count: int, is_asked: bool) -> None:
    """Under keys that count from 1; of none, or of more, the client is told as the server said it."""
    world, client, _ = served()
    channel = client.request("tools/call", name="t")
    refuse(world, world.hear("tools/call"), *(f"p{number}" for number in range(count)))
    answer = client.answered(channel, client.last_id)
    if is_asked:
        assert list(answer["result"]["inputRequests"]) == [f"r{number + 1}" for number in range(count)]
        return
    assert answer.get("result", {}).get("resultType") != "input_required"


@pytest.mark.parametrize("name", ["a" * 64, "a" * 65, "ü", "a" * 1000, "\u2028"])
def test_a_page_is_known_by_its_whole_name(name: str) -> None:
    """However long, and whatever it is written in; another that begins alike is another."""
    world, client, _ = served()
    channel, child = agreed(world, client, name)
    for other in (name + "b", name[:-1], "x"):
        if other != name:
            done(world, child, other)
            assert not world.hears("tools/call")
    done(world, child, name)
    give(world, world.hear("tools/call"))
    assert "result" in client.answered(channel, client.last_id)


def test_a_visit_is_waited_for_so_long() -> None:
    """Then the call is made all the same: its server says what is left."""
    world, client, _ = served(limits=Limits(visit_wait_s=8.0))
    channel, _ = agreed(world, client, "a")
    world.wait(7.75)
    assert not world.hears("tools/call")
    world.wait(0.25)
    give(world, world.hear("tools/call"))
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
def test_a_refusal_that_names_no_page_is_told_as_it_is(data: Any) -> None:
    """The call is over, and is not made again."""
    world, client, _ = served()
    channel = client.request("tools/call", name="t")
    heard = world.hear("tools/call")
    said = {"code": -32042, "message": "visit"} | ({} if data is None else {"data": data})
    world.reply(heard, error(str(heard.id), json.dumps(said)))
    answer = client.answered(channel, client.last_id)
    assert answer.get("result", {}).get("resultType") != "input_required"
    assert "visit" in json.dumps(answer)
    assert not world.hears("tools/call")
