"""Servers of HTTP whose handshake begins no session, and which are asked if they need one: what is learnt of that."""

from __future__ import annotations

import pytest
from driving import FORGOTTEN, GONE, Driver, driver, newcomer
from isthmus.core.base.effects import Cause, End
from isthmus.core.base.limits import Limits
from stateless_driving import modern

HELLO = '{"protocolVersion":"2025-11-25","capabilities":{}}'
UNKNOWN = b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32601,"message":"Method not found"}}'
BUSY = Cause(End.REFUSED, status=503)


def asked(**limits: float) -> Driver:
    """A world whose one server is being asked, after its handshake."""
    world = driver(limits=Limits(**limits))
    newcomer(world, "http", "http").initialize()
    world.answer(world.hear("initialize"), HELLO, session=None)
    assert [heard.frame["method"] for heard in world.heard] == ["server/discover"]
    return world


def settle(world: Driver, how: str) -> None:
    """Be a server that has no such thing, or does not say; it goes on with the handshake that it has answered."""
    if how == "silence":
        world.wait(world.engine._desk.limits.probe_timeout_s)
        world.hear("server/discover")
    elif how == "unknown":
        heard = world.hear("server/discover")
        world.reply(heard, UNKNOWN % heard.id)
    else:
        world.end(world.hear("server/discover").channel, {"refused": FORGOTTEN, "busy": BUSY, "broken": GONE}[how])
    world.acknowledge(world.hear("notifications/initialized"))


def tried(world: Driver) -> str:
    """How the next client without a session makes the server be spoken to first."""
    modern(world, "http").call()
    (heard,) = [heard for heard in world.heard if heard.frame["method"] in ("initialize", "server/discover")]
    return str(heard.frame["method"])


@pytest.mark.parametrize(
    ("how", "first"),
    [
        ("unknown", "initialize"),
        ("refused", "initialize"),
        ("silence", "server/discover"),
        ("busy", "server/discover"),
        ("broken", "server/discover"),
    ],
)
def test_only_what_it_says_is_believed_of_a_server(how: str, first: str) -> None:
    """One that denies it is not asked again for a client without sessions; one that was silent is."""
    world = asked()
    settle(world, how)
    assert tried(world) == first


@pytest.mark.parametrize("how", ["unknown", "refused"])
def test_a_denial_is_believed_for_so_long(how: str) -> None:
    """And from when it came, not from when it was asked for."""
    for waited_s, first in ((49.0, "initialize"), (50.0, "server/discover")):
        world = asked(verdict_ttl_s=50.0)
        world.wait(1.0)
        settle(world, how)
        world.wait(waited_s)
        assert tried(world) == first


@pytest.mark.parametrize("how", ["unknown", "refused", "silence", "busy", "broken"])
def test_whatever_it_says_others_with_sessions_do_not_have_it_asked_again_so_soon(how: str) -> None:
    """It counts from when it was asked, and not from what it said."""
    world = asked(verdict_ttl_s=50.0, probe_timeout_s=0.5)
    settle(world, how)
    for waited_s, is_asked in ((0.0, False), (39.0, False), (11.0, True)):
        world.wait(waited_s)
        newcomer(world, "http", "http").initialize()
        world.answer(world.hear("initialize"), HELLO, session=None)
        assert world.hears("server/discover") is is_asked
        if not is_asked:
            world.acknowledge(world.hear("notifications/initialized"))
