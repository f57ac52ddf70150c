"""The list of tools is read before the first call that needs it: as far as somebody waits, and within bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, Driver, Heard, driver, error, newcomer
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.base.revisions import Era
from stateless_driving import emerge


def tool(name: str) -> dict[str, Any]:
    shown = {"type": "string", "x-mcp-header": "Region"}
    return {"name": name, "inputSchema": {"type": "object", "properties": {"region": shown}}}


def page(*names: str, cursor: object = None) -> str:
    said: dict[str, Any] = {"resultType": "complete", "tools": [tool(name) for name in names]}
    said |= {"ttlMs": 0, "cacheScope": "private"}
    return json.dumps(said if cursor is None else {**said, "nextCursor": cursor})


def begun(limits: Limits | None = None) -> tuple[Driver, Client]:
    """A client with a session of a server without, over HTTP."""
    world = driver(ServerPlan(id="s", kind=Kind.HTTP, era=Era.STATELESS), limits=limits)
    client = newcomer(world, "http", "s")
    channel = client.initialize()
    emerge(world, capabilities='{"tools":{}}')
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    return world, client


def call(client: Client, name: str = "t", id_raw: str = "1") -> ChannelId:
    return client.request(id_raw, "tools/call", json.dumps({"name": name, "arguments": {"region": "west"}}))


def param(heard: Heard) -> str | None:
    """What of the call is said in a header of its own."""
    assert heard.post is not None
    return dict(heard.post.mirrored).get("mcp-param-region")


def test_calls_wait_for_every_page() -> None:
    world, client = begun()
    for number, name in enumerate(("b", "c"), start=1):
        call(client, name, str(number))
    for cursor, names, following in ((None, ("a",), "x"), ("x", ("b",), "y"), ("y", ("c",), None)):
        assert not world.hears("tools/call")
        heard = world.hear("tools/list")
        assert heard.frame["params"].get("cursor") == cursor
        assert not world.hears("tools/list")
        world.answer(heard, page(*names, cursor=following))
    calls = [world.hear("tools/call") for _ in "bc"]
    assert [heard.frame["params"]["name"] for heard in calls] == ["b", "c"]
    assert [param(heard) for heard in calls] == ["west", "west"]
    call(client, "other", "3")
    assert param(world.hear("tools/call")) is None
    assert not world.hears("tools/list")


@pytest.mark.parametrize("cursor", ["x", None])
def test_a_page_that_names_itself_or_none_is_the_last(cursor: str | None) -> None:
    world, client = begun()
    call(client)
    world.answer(world.hear("tools/list"), page("a", cursor="x"))
    world.answer(world.hear("tools/list"), page("t", cursor=cursor))
    assert param(world.hear("tools/call")) == "west"
    assert not world.hears("tools/list")


def test_so_many_pages_are_read() -> None:
    world, client = begun(Limits(schema_pages_max=3))
    call(client)
    for number in range(3):
        world.answer(world.hear("tools/list"), page(f"t{number}", cursor=f"x{number}"))
    assert not world.hears("tools/list")
    assert world.hears("tools/call")


def test_a_page_is_not_asked_for_when_nobody_waits() -> None:
    """What was read until then holds."""
    world, client = begun()
    call(client)
    client.notify("notifications/cancelled", '{"requestId":1}')
    world.answer(world.hear("tools/list"), page("t", cursor="x"))
    assert not world.hears("tools/list")
    assert not world.hears("tools/call")
    call(client, id_raw="2")
    assert param(world.hear("tools/call")) == "west"


@pytest.mark.parametrize("answer", ['{"resultType":"complete","tools":[{"name":"a","name":"b"}]}', None, ""])
def test_without_a_list_calls_go_as_they_can(answer: str | None) -> None:
    """It cannot be read, is refused, or does not come."""
    world, client = begun()
    call(client)
    heard = world.hear("tools/list")
    if answer is None:
        world.reply(heard, error(str(heard.id), '{"code":-32603,"message":"no"}'))
    elif answer:
        world.answer(heard, answer)
    else:
        world.wait(world.engine._desk.limits.lookup_s - 0.1)
        assert not world.hears("tools/call")
        world.wait(0.2)
        assert heard.channel in world.closed
    assert world.hears("tools/call")
    assert not world.hears("tools/list")


def test_a_list_that_has_changed_is_read_anew() -> None:
    """Before the next call."""
    world, client = begun()
    call(client)
    world.answer(world.hear("tools/list"), page())
    first = world.hear("tools/call")
    assert param(first) is None
    world.reply(first, error(str(first.id), '{"code":-32020,"message":"header missing"}'))
    world.answer(world.hear("tools/list"), page("t"))
    assert param(world.hear("tools/call")) == "west"


@pytest.mark.parametrize(("pages", "name"), [(("a", "b"), "a"), (("ab", "cd"), "d"), (("ab", "cd"), "c")])
def test_of_more_tools_than_may_be_known_the_latest_page_is(pages: tuple[str, str], name: str) -> None:
    world, client = begun(Limits(tools_known_max=2))
    call(client, name)
    for names, following in zip(pages, ("x", None), strict=True):
        world.answer(world.hear("tools/list"), page(*names, cursor=following))
    assert param(world.hear("tools/call")) == "west"


def test_tools_whose_marks_are_broken_are_left_out_and_some_are_named() -> None:
    """Of a list that a client asked for."""
    world, client = begun()
    channel = client.request("1", "tools/list")
    broken = {"type": "object", "properties": {"p": {"type": "object", "x-mcp-header": "P"}}}
    tools = [{"name": f"t{number}", "inputSchema": broken} for number in range(10)] + [tool("good")]
    said = {"resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "private"}
    world.answer(world.hear("tools/list"), json.dumps(said))
    assert [shown["name"] for shown in world.said(channel)["result"]["tools"]] == ["good"]
    assert sum(text.startswith("a tool is left out: ") for text in world.notes("warning")) == 8
