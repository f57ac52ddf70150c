"""The proxy introduces itself, and clients that do not tell their name, by the name and version of the plan."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import LATEST, driver, request
from isthmus.core.base.effects import Send
from isthmus.core.base.events import Connected, PipeOpening
from isthmus.core.base.plan import Kind, ServerPlan, Sharing
from isthmus.core.base.revisions import Era

K = "io.modelcontextprotocol/"
LEGACY = request("0", "initialize", json.dumps({"protocolVersion": LATEST, "capabilities": {}}))
ANONYMOUS = request(
    "0",
    "tools/list",
    json.dumps({"_meta": {K + "protocolVersion": "2026-07-28", K + "clientCapabilities": {}}}),
)


@pytest.mark.parametrize("named", [{}, {"name": "acme-gateway", "version": "2.1"}])
@pytest.mark.parametrize(
    ("fields", "said", "method"),
    [
        ({"era": Era.HANDSHAKE, "sharing": Sharing.CONCURRENT}, LEGACY, "initialize"),
        ({"era": Era.HANDSHAKE}, ANONYMOUS, "initialize"),
        ({"era": Era.STATELESS}, LEGACY, "server/discover"),
    ],
)
def test_servers_are_told_the_name_of_the_plan(
    named: dict[str, Any], fields: dict[str, Any], said: bytes, method: str
) -> None:
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, **fields), **named)
    client = world.engine.new_channel()
    world.open(client, PipeOpening("s"))
    world.send(client, said)
    (sent,) = [order for order in world.open(world.dials[-1].channel, Connected()) if isinstance(order, Send)]
    message = json.loads(sent.message)
    assert message["method"] == method
    params = message["params"]
    told = params["clientInfo"] if method == "initialize" else params["_meta"][K + "clientInfo"]
    assert told == (named or {"name": "isthmus", "version": "0"})
