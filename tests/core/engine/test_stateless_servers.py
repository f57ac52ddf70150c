"""Tests of stateless servers: log levels by session, required tasks, and unchanged discoveries."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Client, Driver, driver, error, new_client
from isthmus.core.base.events import Connected
from isthmus.core.base.plan import Kind, Offer, ServerPlan, Sharing, TaskRules
from isthmus.core.base.revisions import Era
from stateless_driving import modern
from stateless_server import discovery

TASKS = "io.modelcontextprotocol/tasks"
ABLE = f'{{"tools":{{}},"logging":{{}},"extensions":{{"{TASKS}":{{}}}}}}'
GREETING = '{"protocolVersion":"2025-11-25","capabilities":{}}'
OWN_TASKS = TaskRules(offer=Offer.OWN)


def clients(count: int, sharing: Sharing = Sharing.NONE) -> tuple[Driver, list[Client]]:
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, sharing=sharing, era=Era.STATELESS, tasks=OWN_TASKS))
    found = []
    for _ in range(count):
        client = new_client(world, "pipe", "s")
        client.initialize(GREETING)
        if world.dials[-1].channel not in world.opened:
            world.opened.add(world.dials[-1].channel)
            world.open(world.dials[-1].channel, Connected())
            world.answer(world.take_sent("server/discover"), discovery(ABLE))
        client.notify("notifications/initialized")
        assert client.pipe is not None
        world.sent[client.pipe].clear()
        found.append(client)
    return world, found


def meta_of(frame: dict[str, Any], name: str) -> Any:
    return frame["params"]["_meta"].get(f"io.modelcontextprotocol/{name}")


def call(client: Client, id_raw: str = "1") -> None:
    client.request(id_raw, "tools/call", '{"name":"x"}')


def test_each_request_has_the_log_level_of_its_session() -> None:
    world, (first, second, third) = clients(3, Sharing.CONCURRENT)
    assert len(world.children) == 1
    for client, level in ((first, "debug"), (second, "error")):
        client.request("5", "logging/setLevel", f'{{"level":"{level}"}}')
        assert client.pipe is not None
        assert world.only_message(client.pipe) == {"jsonrpc": "2.0", "id": 5, "result": {}}
    for client, level in ((first, "debug"), (second, "error"), (third, "info")):
        call(client)
        assert meta_of(world.take_sent("tools/call").frame, "logLevel") == level
    assert not world.unread, "the server gets no `logging/setLevel`"


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
def test_a_call_is_repeated_as_a_task_only_if_the_server_requires_it(data: object, is_repeated: bool) -> None:
    world, (client,) = clients(1)
    call(client)
    received = world.take_sent("tools/call")
    assert TASKS not in json.dumps(meta_of(received.frame, "clientCapabilities"))
    text = data if isinstance(data, str) and data.startswith("{") else json.dumps(data)
    world.reply(received, error(str(received.id), f'{{"code":-32021,"message":"m","data":{text}}}'))
    assert world.was_sent("tools/call") is is_repeated
    assert client.pipe is not None
    if is_repeated:
        assert not world.messages(client.pipe)
        assert meta_of(world.take_sent("tools/call").frame, "clientCapabilities")["extensions"] == {TASKS: {}}
    else:
        assert world.only_message(client.pipe)["result"]["isError"]


@pytest.mark.parametrize("rest", [{}, {"x": 1}, {"resultType": "complete", "ttlMs": 5, "cacheScope": "public"}])
def test_a_discovery_reaches_stateless_clients_unchanged(rest: dict[str, Any]) -> None:
    """Missing members are not added."""
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, era=Era.STATELESS))
    client = modern(world, "s")
    channel = client.request("server/discover")
    world.open(world.dials[-1].channel, Connected())
    answer = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **rest}
    world.answer(world.take_sent("server/discover"), json.dumps(answer))
    assert client.answered(channel)["result"] == answer
    again = client.request("server/discover")
    assert client.answered(again)["result"] == answer
    assert not world.unread, "the server is asked once"
