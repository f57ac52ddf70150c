"""Tests of the queue of event streams above the limit: each waits until another ends, in the order of arrival."""

from __future__ import annotations

import anyio
import pytest
from client_dialer import DONE, EVENTS_HEAD, LAST_CHUNK, chunk, dialer
from client_fakes import WITH_BOTH_DRIVERS, Peer, serving
from client_fakes import anyio_backend as anyio_backend
from isthmus.core.base.effects import Close, Listen, Post
from isthmus.core.base.events import Cause, Connected, End, Queued
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits

pytestmark = [pytest.mark.anyio, WITH_BOTH_DRIVERS]

LIMITS = Limits(upstream_streams_max=1)
STREAM = Listen("s", "sid")


async def test_a_stream_waits_until_another_ends() -> None:
    """The end of a stream, of any kind, lets the next one begin. A waiting stream that was closed is passed over."""
    ends = [anyio.Event() for _ in range(3)]

    async def stream(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(EVENTS_HEAD + chunk(b": here\n\n"))
            await ends[peer.number].wait()
            await peer.send(LAST_CHUNK)

    async with serving(stream) as server, dialer(LIMITS) as dial:
        first, _, third, _ = (dial(server.endpoint, STREAM) for _ in range(4))
        assert await dial.port.until_reports(1, 1) == [Connected(status=200)]
        for waiting in (2, 3, 4):
            assert await dial.port.until_reports(waiting, 1) == [Queued()]
        third.close(Close(ChannelId(3)))
        assert await dial.port.until_closed(3) == [Queued(), DONE]
        first.close(Close(ChannelId(1)))
        assert await dial.port.until_reports(2, 2) == [Queued(), Connected(status=200)]
        assert server.connections == 2
        ends[1].set()
        assert await dial.port.until_closed(2) == [Queued(), Connected(status=200), DONE]
        assert await dial.port.until_reports(4, 2) == [Queued(), Connected(status=200)]


async def test_waiting_streams_are_closed_when_the_client_stops() -> None:
    async def stream(peer: Peer) -> None:
        await peer.request()
        await peer.send(EVENTS_HEAD)
        await peer.wait_gone()

    async with serving(stream) as server:
        async with dialer(LIMITS) as dial:
            dial(server.endpoint, STREAM)
            await dial.port.until_reports(1, 1)
            dial(server.endpoint, STREAM)
            await dial.port.until_reports(2, 1)
        assert dial.port.reports[ChannelId(2)] == [Queued(), Cause(End.BROKEN, "shutting down", unsent=True)]


async def test_a_subscription_is_refused_instead() -> None:
    """The response to a subscription is awaited, and would otherwise wait as long as the queue."""

    async def stream(peer: Peer) -> None:
        await peer.request()
        await peer.send(EVENTS_HEAD)
        await peer.wait_gone()

    async with serving(stream) as server, dialer(LIMITS) as dial:
        dial(server.endpoint, STREAM)
        await dial.port.until_reports(1, 1)
        dial(server.endpoint, Post("s", b"{}", is_lasting=True))
        (cause,) = await dial.port.until_closed(2)
        assert isinstance(cause, Cause)
        assert (cause.end, cause.unsent) == (End.UNREACHABLE, True)
        assert cause.detail == "overloaded: 1 streams of servers are open, the most there may be"
