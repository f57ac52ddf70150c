"""How plain calls get across: what their server is told of their client, on the short way as on the long one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import LATEST, Client, Driver, driver, newcomer, request
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.base.revisions import LATEST_MODERN, Era
from stateless_server import discovered

K = "io.modelcontextprotocol/"
TASKS = K + "tasks"
OTHER = "com.example/x"
PLAIN = {
    "tools/call": '{"name":"t","arguments":{}}',
    "prompts/get": '{"name":"p"}',
    "resources/read": '{"uri":"a:b"}',
    "completion/complete": '{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"b"}}',
}
DECLARED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"roots": {}, "extensions": {OTHER: {}}}, {"roots": {}, "extensions": {OTHER: {}}}),
    ({"roots": {}, "extensions": {TASKS: {}}}, {"roots": {}, "extensions": {}}),
    ({"extensions": {TASKS: {}, OTHER: {"a": 1}}}, {"extensions": {OTHER: {"a": 1}}}),
]
"""What clients declare in their handshake, and what is said of that with each request."""


def across(kind: Kind, declared: dict[str, Any], *, capabilities: str = "{}") -> tuple[Driver, Client]:
    """A client with a session, and a server without that makes no tasks."""
    world = driver(ServerPlan(id="s", kind=kind, era=Era.STATELESS))
    client = newcomer(world, "http", "s")
    channel = client.initialize(json.dumps({"protocolVersion": LATEST, "capabilities": declared}))
    discovered(world, capabilities)
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    return world, client


def told(world: Driver, client: Client, method: str) -> dict[str, Any]:
    """What comes with a request of the client, as most clients make it."""
    channel = client.post(request("1", method, PLAIN[method]), revision=LATEST)
    if world.hears("tools/list"):  # what it wants in headers is looked up
        world.answer(world.hear("tools/list"), '{"resultType":"complete","tools":[]}')
    heard = world.hear(method)
    world.answer(heard, '{"resultType":"complete","content":[]}')
    assert "result" in world.said(channel)
    said = heard.frame["params"]["_meta"]
    assert isinstance(said, dict)
    return said


@pytest.mark.parametrize("kind", [Kind.HTTP, Kind.PIPE])
@pytest.mark.parametrize(("declared", "shown"), DECLARED)
def test_a_server_is_told_with_each_request_what_its_client_declared_once(
    kind: Kind, declared: dict[str, Any], shown: dict[str, Any]
) -> None:
    """But for the extension that means nothing in a session; and each time the same, whatever came between."""
    world, client = across(kind, declared)
    for _ in range(3):
        for method in PLAIN:
            said = told(world, client, method)
            assert said[K + "clientCapabilities"] == shown, method
            assert said[K + "protocolVersion"] == LATEST_MODERN
            assert K + "logLevel" not in said


@pytest.mark.parametrize("kind", [Kind.HTTP, Kind.PIPE])
def test_the_level_that_a_client_wants_comes_with_what_it_asks_from_then_on(kind: Kind) -> None:
    """And another one from when it wants that."""
    world, client = across(kind, {}, capabilities='{"logging":{}}')
    for level in ("info", "error", "info"):
        channel = client.post(request("2", "logging/setLevel", json.dumps({"level": level})), revision=LATEST)
        assert world.said(channel)["result"] == {}
        for method in PLAIN:
            assert told(world, client, method)[K + "logLevel"] == level
