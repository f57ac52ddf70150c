"""Tests of peers in memory: channels with order, flow control, and one end from either side."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.effects import Close, Send
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import Cause, Connected, End, Opening, PipeOpening
from isthmus.core.base.ids import ChannelId
from isthmus.transports.base.port import Outlet
from isthmus.transports.memory import MemoryClient, MemoryPeer, MemoryServer
from ports import PATIENCE_S, RecordingPort

DIALLED = ChannelId(7)
SIDES = ("client", "server")


def connected(port: RecordingPort, side: str) -> tuple[MemoryPeer, ChannelId]:
    if side == "client":
        client = MemoryClient(port)
        client.open(PipeOpening(server="one"))
        return client, next(iter(port.outlets))
    server = MemoryServer(port)
    server.connect(DIALLED)
    return server, DIALLED


def order(peer: MemoryPeer, channel: ChannelId, *messages: bytes) -> None:
    for message in messages:
        peer.send(Send(channel=channel, message=message))


@pytest.mark.anyio
@pytest.mark.parametrize("side", SIDES)
async def test_messages_cross_in_order_both_ways(side: str) -> None:
    port = RecordingPort()
    peer, channel = connected(port, side)
    assert isinstance(port.opened_channels[channel], PipeOpening if side == "client" else Connected)
    order(peer, channel, b"one", b"two", b"three")
    assert [await peer.receive() for _ in range(3)] == [b"one", b"two", b"three"]
    peer.say(b"four")
    peer.say(b"five")
    assert port.messages[channel] == [b"four", b"five"]


@pytest.mark.anyio
async def test_who_waits_is_woken_by_a_message_and_by_the_end() -> None:
    port = RecordingPort()
    peer, channel = connected(port, "client")
    got: list[bytes | None] = []

    async def read() -> None:
        try:
            got.append(await peer.receive())
        except anyio.EndOfStream:
            got.append(None)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            order(peer, channel, b"for one of them")
            await anyio.wait_all_tasks_blocked()
            assert got == [b"for one of them"]
            peer.leave()
    assert got == [b"for one of them", None]


@pytest.mark.anyio
@pytest.mark.parametrize("side", SIDES)
async def test_what_nobody_reads_is_not_reported_as_sent(side: str) -> None:
    port = RecordingPort()
    peer, channel = connected(port, side)
    order(peer, channel, b"x" * 10, b"y" * 20)
    assert port.sent_bytes[channel] == 0
    await peer.receive()
    assert port.sent_bytes[channel] == 10
    await peer.receive()
    assert port.sent_bytes[channel] == 30


@pytest.mark.anyio
async def test_a_peer_that_asks_is_held_back_while_paused() -> None:
    port = RecordingPort()
    peer, _ = connected(port, "server")
    await peer.ready()
    peer.pause()
    went_on = anyio.Event()

    async def wait() -> None:
        await peer.ready()
        went_on.set()

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert not went_on.is_set()
            peer.resume()
        peer.pause()
        peer.leave()  # a closed channel is not waited for
        await peer.ready()


@pytest.mark.anyio
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("who", ["engine", "peer"])
async def test_either_side_ends_it_once(side: str, who: str) -> None:
    port = RecordingPort()
    peer, channel = connected(port, side)
    order(peer, channel, b"last words")
    for _ in range(2):  # RecordingPort refuses a second end
        if who == "engine":
            peer.close(Close(channel=channel))
        else:
            peer.leave()
    assert port.closes == {channel: Cause(End.DONE if who == "engine" else End.GONE)}
    assert peer.is_closed
    order(peer, channel, b"too late")
    assert await peer.receive() == b"last words"
    with pytest.raises(anyio.EndOfStream):
        await peer.receive()
    with pytest.raises(anyio.BrokenResourceError):
        peer.say(b"nobody hears this")


class EagerPort(RecordingPort):
    """Gives orders to an outlet before `open` returns, as an engine may."""

    def __init__(self, *, closes: bool) -> None:
        super().__init__()
        self._closes = closes

    def open(self, opening: Opening, outlet: Outlet) -> ChannelId:
        channel = super().open(opening, outlet)
        outlet.send(Send(channel=channel, message=b"welcome"))
        if self._closes:
            outlet.close(Close(channel=channel))
        return channel


@pytest.mark.anyio
@pytest.mark.parametrize("closes", [False, True])
async def test_orders_may_come_while_it_opens(closes: bool) -> None:
    port = EagerPort(closes=closes)
    client, channel = connected(port, "client")
    assert port.closes == ({channel: Cause(End.DONE)} if closes else {})
    assert await client.receive() == b"welcome"
    assert port.sent_bytes[channel] == (0 if closes else len(b"welcome"))


@pytest.mark.anyio
async def test_nothing_can_be_sent_before_it_is_open() -> None:
    client = MemoryClient(RecordingPort())
    with pytest.raises(LocalProtocolError, match="not open"):
        client.say(b"hello?")
    client.leave()
    with pytest.raises(anyio.EndOfStream):
        await client.receive()


@given(
    steps=st.lists(st.binary(max_size=50) | st.sampled_from(["read", "close", "leave"])), side=st.sampled_from(SIDES)
)
def test_it_behaves_as_a_list(steps: list[bytes | str], side: str) -> None:
    """The property holds for any order of events. Messages sent before the end are read once and in order, and the
    port's count of sent bytes is what was read before the end."""

    async def run() -> None:
        port = RecordingPort()
        peer, channel = connected(port, side)
        waiting: list[bytes] = []
        read_bytes, ended = 0, False
        for step in steps:
            if isinstance(step, bytes):
                order(peer, channel, step)
                waiting += [] if ended else [step]
            elif step == "close":
                peer.close(Close(channel=channel))
                ended = True
            elif step == "leave":
                peer.leave()
                ended = True
            elif waiting:
                assert await peer.receive() == waiting[0]
                read_bytes += 0 if ended else len(waiting.pop(0))
                if ended:
                    waiting.pop(0)
            elif ended:
                with pytest.raises(anyio.EndOfStream):
                    await peer.receive()
            assert port.sent_bytes[channel] == read_bytes
            assert (channel in port.closes) is ended

    anyio.run(run)
