"""Servers without sessions: each request says what its own session wants, what a server demands is believed only where
it can be read, and what it says of itself is not mended."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, Driver, driver, error, newcomer
from isthmus.core.base.effects import Connected
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import Era
from stateless_driving import modern
from stateless_server import discovery

TASKS = "io.modelcontextprotocol/tasks"
ABLE = f'{{"tools":{{}},"logging":{{}},"extensions":{{"{TASKS}":{{}}}}}}'
GREETING = '{"protocolVersion":"2025-11-25","capabilities":{}}'


def clients(count: int, sharing: Sharing = Sharing.NONE) -> tuple[Driver, list[Client]]:
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, sharing=sharing, era=Era.STATELESS))
    found = []
    for _ in range(count):
        client = newcomer(world, "pipe", "s")
        client.initialize(GREETING)
        if world.dials[-1].channel not in world.opened:
            world.opened.add(world.dials[-1].channel)
            world.open(world.dials[-1].channel, Connected())
            world.answer(world.hear("server/discover"), discovery(ABLE))
        client.notify("notifications/initialized")
        assert client.pipe is not None
        world.sent[client.pipe].clear()
        found.append(client)
    return world, found


def said(frame: dict[str, Any], name: str) -> Any:
    return frame["params"]["_meta"].get(f"io.modelcontextprotocol/{name}")


def call(client: Client, id_raw: str = "1") -> None:
    client.request(id_raw, "tools/call", '{"name":"x"}')


def test_each_session_s_requests_say_its_own_level() -> None:
    world, (first, second, third) = clients(3, Sharing.CONCURRENT)
    assert len(world.children) == 1
    for client, level in ((first, "debug"), (second, "error")):
        client.request("5", "logging/setLevel", f'{{"level":"{level}"}}')
        assert client.pipe is not None
        assert world.said(client.pipe) == {"jsonrpc": "2.0", "id": 5, "result": {}}
    for client, level in ((first, "debug"), (second, "error"), (third, None)):
        call(client)
        assert said(world.hear("tools/call").frame, "logLevel") == level
    assert not world.heard, "the server itself is told nothing"


@pytest.mark.parametrize(
    ("data", "is_repeated"),
    [
        ({"requiredCapabilities": {"extensions": {TASKS: {}}}}, True),
        ({"requiredCapabilities": {"extensions": {}}}, False),
        ({"requiredCapabilities": {"sampling": {}}}, False),
        ({}, False),
        (None, False),
        ("x", False),
        (f'{{"requiredCapabilities":{{"extensions":{{"{TASKS}":{{}}}}}},"requiredCapabilities":{{}}}}', False),
    ],
)
def test_a_call_is_made_anew_as_a_task_for_a_server_that_says_clearly_that_it_must(
    data: object, is_repeated: bool
) -> None:
    world, (client,) = clients(1)
    call(client)
    heard = world.hear("tools/call")
    assert TASKS not in json.dumps(said(heard.frame, "clientCapabilities"))
    text = data if isinstance(data, str) and data.startswith("{") else json.dumps(data)
    world.reply(heard, error(str(heard.id), f'{{"code":-32021,"message":"m","data":{text}}}'))
    assert world.hears("tools/call") is is_repeated
    assert client.pipe is not None
    if is_repeated:
        assert not world.messages(client.pipe)
        assert said(world.hear("tools/call").frame, "clientCapabilities")["extensions"] == {TASKS: {}}
    else:
        assert world.said(client.pipe)["result"]["isError"]


@pytest.mark.parametrize("rest", [{}, {"x": 1}, {"resultType": "complete", "ttlMs": 5, "cacheScope": "public"}])
def test_what_a_server_says_of_itself_comes_as_it_was_said(rest: dict[str, Any]) -> None:
    """To clients of its own era, what is missing in it included."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, era=Era.STATELESS))
    client = modern(world, "s")
    channel = client.request("server/discover")
    world.open(world.dials[-1].channel, Connected())
    said = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **rest}
    world.answer(world.hear("server/discover"), json.dumps(said))
    assert client.answered(channel)["result"] == said
    again = client.request("server/discover")
    assert client.answered(again)["result"] == said
    assert not world.heard, "it is asked once"
