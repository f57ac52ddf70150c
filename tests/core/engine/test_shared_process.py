"""Tests of slow readers among the sessions of one shared process, and of plans that cannot be shared."""

from __future__ import annotations

import json

import pytest
from driving import Client, Driver, driver, new_client, result
from isthmus.core.base.effects import Close, Effect, Pause, Spawn
from isthmus.core.base.events import Connected
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan, Sharing, UploadConsumer

HANDSHAKE = '{"protocolVersion":"2025-11-25","capabilities":{"logging":{},"resources":{"subscribe":true}}}'
ABLE = '{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"sampling":{}}}'


def shared(sharing: Sharing = Sharing.CONCURRENT, *, limits: Limits | None = None) -> Driver:
    return driver(ServerPlan(id="s", kind=Kind.PIPE, sharing=sharing), limits=limits)


def child(world: Driver) -> ChannelId:
    return world.last_dial(Spawn).channel


def join(world: Driver, down: str = "pipe", params: str = ABLE) -> Client:
    """Returns a client that has finished its handshake."""
    client = new_client(world, down, "s")
    channel = client.initialize(params)
    if child(world) not in world.over and not world.messages(channel):
        world.open(child(world), Connected())
        world.answer(world.take_sent("initialize"), HANDSHAKE)
        world.take_sent("notifications/initialized")
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    if client.pipe is not None:
        world.sent[client.pipe].clear()
    return client


def last(world: Driver, client: Client) -> dict[str, object]:
    assert client.pipe is not None
    frame = json.loads(world.messages(client.pipe)[-1])
    assert isinstance(frame, dict)
    return frame


def test_plans_that_cannot_be_shared_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be shared"):
        ServerPlan(id="s", kind=Kind.HTTP, sharing=Sharing.SERIAL)
    with pytest.raises(ValueError, match="cannot be shared"):
        consumer = UploadConsumer(tools=("t",), file_path_argument="p")
        ServerPlan(id="s", kind=Kind.PIPE, sharing=Sharing.SERIAL, consumers=(consumer,))


# --- Slow readers -----------------------------------------------------------------------------------------------------

SLOW = Limits(outbox_high_bytes=1000, outbox_low_bytes=300, outbox_max_bytes=5000)
BIG = '{"x":"' + "y" * 2000 + '"}'


def answered(world: Driver, text: str) -> list[Effect]:
    received = world.take_sent("tools/call")
    return world.send(received.channel, result(str(received.id), text))


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_a_slow_reader_does_not_pause_the_process(down: str) -> None:
    """The other sessions are answered."""
    world = shared(limits=SLOW)
    stalled, other = join(world, down), join(world)
    stalled.request("1", "tools/call", "{}")
    effects = answered(world, BIG)
    assert not [effect for effect in effects if isinstance(effect, Pause)]
    other.request("1", "tools/call", "{}")
    world.answer(world.take_sent("tools/call"), '{"n":1}')
    assert last(world, other)["result"] == {"n": 1}


def test_a_reader_over_the_limit_is_closed() -> None:
    """The outbox holds at most its limit and one message. Only this session ends."""
    world = shared(limits=SLOW)
    stalled, other = join(world), join(world)
    assert stalled.pipe is not None
    closed: list[ChannelId] = []
    for n in range(1, 5):
        assert not closed, "no more than 5000 bytes waited before"
        stalled.request(str(n), "tools/call", "{}")
        closed = [effect.channel for effect in answered(world, BIG) if isinstance(effect, Close)]
    assert closed == [stalled.pipe]
    world.end(stalled.pipe)
    other.request("1", "tools/call", "{}")
    world.answer(world.take_sent("tools/call"), '{"n":1}')
    assert last(world, other)["result"] == {"n": 1}


def test_a_server_of_one_session_is_paused_for_a_slow_reader() -> None:
    world = driver(ServerPlan(id="s", kind=Kind.PIPE), limits=SLOW)
    client = join(world)
    client.request("1", "tools/call", "{}")
    effects = answered(world, BIG)
    assert [type(effect) for effect in effects if isinstance(effect, Pause | Close)] == [Pause]
