"""Tests of servers over HTTP whose handshake begins no session: they are asked whether they speak the stateless era,
and the answer is remembered."""

from __future__ import annotations

import pytest
from driving import FORGOTTEN, GONE, Driver, driver, new_client
from isthmus.core.base.events import Cause, End
from isthmus.core.base.limits import Limits
from stateless_driving import modern

HELLO = '{"protocolVersion":"2025-11-25","capabilities":{}}'
UNKNOWN = b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32601,"message":"Method not found"}}'
BUSY = Cause(End.REFUSED, status=503)


def asked(**limits: float) -> Driver:
    """Returns a driver whose one server has got `server/discover` after its handshake."""
    world = driver(limits=Limits(**limits))
    new_client(world, "http", "http").initialize()
    world.answer(world.take_sent("initialize"), HELLO, session=None)
    assert [received.frame["method"] for received in world.unread] == ["server/discover"]
    return world


def settle(world: Driver, how: str, probe_timeout_s: float = Limits().probe_timeout_s) -> None:
    """Answers `server/discover` in the way that `how` names, and finishes the handshake."""
    if how == "silence":
        world.wait(probe_timeout_s)
        world.take_sent("server/discover")
    elif how == "unknown":
        received = world.take_sent("server/discover")
        world.reply(received, UNKNOWN % received.id)
    else:
        world.end(world.take_sent("server/discover").channel, {"refused": FORGOTTEN, "busy": BUSY, "broken": GONE}[how])
    world.acknowledge(world.take_sent("notifications/initialized"))


def first_method(world: Driver) -> str:
    """The first method that the server gets for the next client without a session."""
    modern(world, "http").call()
    (received,) = [
        received for received in world.unread if received.frame["method"] in ("initialize", "server/discover")
    ]
    return str(received.frame["method"])


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
def test_a_denial_is_believed_and_silence_is_not(how: str, first: str) -> None:
    """A server that denies the stateless era is not asked again for a client without sessions. A silent one is."""
    world = asked()
    settle(world, how)
    assert first_method(world) == first


@pytest.mark.parametrize("how", ["unknown", "refused"])
def test_a_denial_is_believed_for_so_long(how: str) -> None:
    """The time is counted from the answer, not from the question."""
    for waited_s, first in ((49.0, "initialize"), (50.0, "server/discover")):
        world = asked(server_era_ttl_s=50.0)
        world.wait(1.0)
        settle(world, how)
        world.wait(waited_s)
        assert first_method(world) == first


@pytest.mark.parametrize("how", ["unknown", "refused", "silence", "busy", "broken"])
def test_the_question_is_not_repeated_so_soon_for_clients_with_sessions(how: str) -> None:
    """The time is counted from the question, not from the answer."""
    world = asked(server_era_ttl_s=50.0, probe_timeout_s=0.5)
    settle(world, how, probe_timeout_s=0.5)
    for waited_s, is_asked in ((0.0, False), (39.0, False), (11.0, True)):
        world.wait(waited_s)
        new_client(world, "http", "http").initialize()
        world.answer(world.take_sent("initialize"), HELLO, session=None)
        assert world.was_sent("server/discover") is is_asked
        if not is_asked:
            world.acknowledge(world.take_sent("notifications/initialized"))
