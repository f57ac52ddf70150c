"""Tests of tool discovery: the list of tools is read before the first call that needs it, while calls wait, within
bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, Driver, SentMessage, driver, error, new_client
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.base.revisions import Era
from stateless_driving import start_stateless_server


def tool(name: str) -> dict[str, Any]:
    shown = {"type": "string", "x-mcp-header": "Region"}
    return {"name": name, "inputSchema": {"type": "object", "properties": {"region": shown}}}


def page(*names: str, cursor: object = None) -> str:
    page: dict[str, Any] = {"resultType": "complete", "tools": [tool(name) for name in names]}
    page |= {"ttlMs": 0, "cacheScope": "private"}
    return json.dumps(page if cursor is None else {**page, "nextCursor": cursor})


def begun(limits: Limits | None = None) -> tuple[Driver, Client]:
    """Returns a client of the handshake era of a stateless server, over HTTP."""
    world = driver(ServerPlan(id="s", kind=Kind.HTTP, era=Era.STATELESS), limits=limits)
    client = new_client(world, "http", "s")
    channel = client.initialize()
    start_stateless_server(world, capabilities='{"tools":{}}')
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    return world, client


def call(client: Client, name: str = "t", id_raw: str = "1") -> ChannelId:
    return client.request(id_raw, "tools/call", json.dumps({"name": name, "arguments": {"region": "west"}}))


def param(received: SentMessage) -> str | None:
    """Returns the header of an argument of the call."""
    assert received.post is not None
    return dict(received.post.mirrored).get("mcp-param-region")


def test_calls_wait_for_every_page() -> None:
    world, client = begun()
    for number, name in enumerate(("b", "c"), start=1):
        call(client, name, str(number))
    for cursor, names, following in ((None, ("a",), "x"), ("x", ("b",), "y"), ("y", ("c",), None)):
        assert not world.was_sent("tools/call")
        received = world.take_sent("tools/list")
        assert received.frame["params"].get("cursor") == cursor
        assert not world.was_sent("tools/list")
        world.answer(received, page(*names, cursor=following))
    calls = [world.take_sent("tools/call") for _ in "bc"]
    assert [received.frame["params"]["name"] for received in calls] == ["b", "c"]
    assert [param(received) for received in calls] == ["west", "west"]
    call(client, "other", "3")
    assert param(world.take_sent("tools/call")) is None
    assert not world.was_sent("tools/list")


@pytest.mark.parametrize("cursor", ["x", None])
def test_a_page_without_a_new_cursor_is_the_last(cursor: str | None) -> None:
    world, client = begun()
    call(client)
    world.answer(world.take_sent("tools/list"), page("a", cursor="x"))
    world.answer(world.take_sent("tools/list"), page("t", cursor=cursor))
    assert param(world.take_sent("tools/call")) == "west"
    assert not world.was_sent("tools/list")


def test_pages_are_bounded() -> None:
    world, client = begun(Limits(schema_pages_max=3))
    call(client)
    for number in range(3):
        world.answer(world.take_sent("tools/list"), page(f"t{number}", cursor=f"x{number}"))
    assert not world.was_sent("tools/list")
    assert world.was_sent("tools/call")


def test_no_page_is_read_without_waiting_calls() -> None:
    """The pages read before are used."""
    world, client = begun()
    call(client)
    client.notify("notifications/cancelled", '{"requestId":1}')
    world.answer(world.take_sent("tools/list"), page("t", cursor="x"))
    assert not world.was_sent("tools/list")
    assert not world.was_sent("tools/call")
    call(client, id_raw="2")
    assert param(world.take_sent("tools/call")) == "west"


@pytest.mark.parametrize("answer", ['{"resultType":"complete","tools":[{"name":"a","name":"b"}]}', None, ""])
def test_without_a_list_calls_are_sent_all_the_same(answer: str | None) -> None:
    """The list is unreadable, refused, or does not come."""
    world, client = begun()
    call(client)
    received = world.take_sent("tools/list")
    if answer is None:
        world.reply(received, error(str(received.id), '{"code":-32603,"message":"no"}'))
    elif answer:
        world.answer(received, answer)
    else:
        world.wait(Limits().lookup_s - 0.1)
        assert not world.was_sent("tools/call")
        world.wait(0.2)
        assert received.channel in world.closed
    assert world.was_sent("tools/call")
    assert not world.was_sent("tools/list")


def test_a_list_that_has_changed_is_read_anew() -> None:
    """The list is read before the next call."""
    world, client = begun()
    call(client)
    world.answer(world.take_sent("tools/list"), page())
    first = world.take_sent("tools/call")
    assert param(first) is None
    world.reply(first, error(str(first.id), '{"code":-32020,"message":"header missing"}'))
    world.answer(world.take_sent("tools/list"), page("t"))
    assert param(world.take_sent("tools/call")) == "west"


@pytest.mark.parametrize(("pages", "name"), [(("a", "b"), "a"), (("ab", "cd"), "d"), (("ab", "cd"), "c")])
def test_known_tools_are_bounded_to_the_latest_page(pages: tuple[str, str], name: str) -> None:
    world, client = begun(Limits(tools_known_max=2))
    call(client, name)
    for names, following in zip(pages, ("x", None), strict=True):
        world.answer(world.take_sent("tools/list"), page(*names, cursor=following))
    assert param(world.take_sent("tools/call")) == "west"


def test_tools_with_invalid_header_marks_are_left_out_and_logged() -> None:
    """The list is one that a client asked for."""
    world, client = begun()
    channel = client.request("1", "tools/list")
    broken = {"type": "object", "properties": {"p": {"type": "object", "x-mcp-header": "P"}}}
    tools = [{"name": f"t{number}", "inputSchema": broken} for number in range(10)] + [tool("good")]
    answer = {"resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "private"}
    world.answer(world.take_sent("tools/list"), json.dumps(answer))
    assert [shown["name"] for shown in world.only_message(channel)["result"]["tools"]] == ["good"]
    assert sum(text.startswith("a tool is left out: ") for text in world.notes("warning")) == 8
