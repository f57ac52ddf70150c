"""Tests of the fast path across the eras: with each plain call, a server gets the same facts about its client as on the
slow path."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import LATEST, Client, Driver, driver, new_client, request
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
"""Capabilities that clients declare in their handshake, and those that each request declares for them."""


def across(kind: Kind, declared: dict[str, Any], *, capabilities: str = "{}") -> tuple[Driver, Client]:
    """Returns a client with a session, and a server without sessions that makes no tasks."""
    world = driver(ServerPlan(id="s", kind=kind, era=Era.STATELESS))
    client = new_client(world, "http", "s")
    channel = client.initialize(json.dumps({"protocolVersion": LATEST, "capabilities": declared}))
    discovered(world, capabilities)
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    return world, client


def meta_of(world: Driver, client: Client, method: str) -> dict[str, Any]:
    """The `_meta` that comes with a request of the client, in the form that most clients send."""
    channel = client.post(request("1", method, PLAIN[method]), revision=LATEST)
    if world.was_sent("tools/list"):  # looks up which parameters are sent as headers
        world.answer(world.take_sent("tools/list"), '{"resultType":"complete","tools":[]}')
    received = world.take_sent(method)
    world.answer(received, '{"resultType":"complete","content":[]}')
    assert "result" in world.only_message(channel)
    sent_meta = received.frame["params"]["_meta"]
    assert isinstance(sent_meta, dict)
    return sent_meta


@pytest.mark.parametrize("kind", [Kind.HTTP, Kind.PIPE])
@pytest.mark.parametrize(("declared", "shown"), DECLARED)
def test_each_request_declares_what_its_client_declared_once(
    kind: Kind, declared: dict[str, Any], shown: dict[str, Any]
) -> None:
    """Only the tasks extension is left out, which means nothing in a session. Requests in between change nothing."""
    world, client = across(kind, declared)
    for _ in range(3):
        for method in PLAIN:
            sent_meta = meta_of(world, client, method)
            assert sent_meta[K + "clientCapabilities"] == shown, method
            assert sent_meta[K + "protocolVersion"] == LATEST_MODERN
            assert K + "logLevel" not in sent_meta


@pytest.mark.parametrize("kind", [Kind.HTTP, Kind.PIPE])
def test_each_request_after_set_level_has_that_level(kind: Kind) -> None:
    """A new level replaces it from then on."""
    world, client = across(kind, {}, capabilities='{"logging":{}}')
    for level in ("info", "error", "info"):
        channel = client.post(request("2", "logging/setLevel", json.dumps({"level": level})), revision=LATEST)
        assert world.only_message(channel)["result"] == {}
        for method in PLAIN:
            assert meta_of(world, client, method)[K + "logLevel"] == level
