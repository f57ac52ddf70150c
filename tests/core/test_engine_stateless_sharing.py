"""Who shares what: servers that several clients of both eras use, pipes on which both eras are spoken, affinities."""

from __future__ import annotations

from driving import Client, Driver, newcomer
from isthmus.core.limits import Limits
from isthmus.core.plan import Kind, ServerPlan, Sharing
from stateless_driving import (
    Modern,
    bridge,
    modern,
    rise,
)

HANDSHAKE = '{"protocolVersion":"2025-11-25","capabilities":{"logging":{},"resources":{"subscribe":true}}}'


def shared(sharing: Sharing, *, limits: Limits | None = None) -> tuple[Driver, Modern]:
    """A server that all share, ready, and a client of it without sessions."""
    world = bridge(ServerPlan(id="s", kind=Kind.PIPE, sharing=sharing), limits=limits)
    client = modern(world, "s")
    client.request("server/discover")
    rise(world)
    return world, client


def joined(world: Driver) -> Client:
    """A client with a session that joins it."""
    client = newcomer(world, "pipe", "s")
    client.initialize('{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}')
    client.notify("notifications/initialized")
    assert client.pipe is not None
    world.sent[client.pipe].clear()
    return client


# --- One log level ----------------------------------------------------------------------------------------------------


def test_a_request_makes_nobody_hear_less_of_a_shared_server() -> None:
    """A process has one log level: it is told the most that any of its clients wants, of whichever era."""
    world, client = shared(Sharing.CONCURRENT)
    old = joined(world)
    old.request("1", "logging/setLevel", '{"level":"info"}')
    world.answer(world.hear("logging/setLevel"))
    client.call(level="error")
    levelling = world.hear("logging/setLevel")
    assert levelling.frame["params"]["level"] == "info"
    world.answer(levelling)
    client.call(level="debug")
    levelling = world.hear("logging/setLevel")
    assert levelling.frame["params"]["level"] == "debug"
    world.answer(levelling)
    old.request("2", "logging/setLevel", '{"level":"error"}')
    assert not world.hears("logging/setLevel"), "a client that wants less does not make others hear less"
