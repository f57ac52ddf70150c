"""Tests of connecting upstream in the event loop's turn that makes the connection, on asyncio's own loop and on
uvloop."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Callable

import anyio
import client_fakes
import pytest
from client_dialer import NOW, answer_all
from client_fakes import FakePort, Peer, serving
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.http_client.asyncio_connect import ConnectingDriver

LOOPS = ["asyncio", *(["uvloop"] if importlib.util.find_spec("uvloop") else [])]
WAIT_S = 30.0


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _protocols(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_fakes, "uses_protocols", True)


def when_made(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    made = ConnectingDriver.connection_made

    def connection_made(driver: ConnectingDriver, transport: asyncio.BaseTransport) -> None:
        made(driver, transport)
        then()

    monkeypatch.setattr(ConnectingDriver, "connection_made", connection_made)


async def test_a_client_can_stop_in_the_turn_in_which_a_connection_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's context ends, and each pending request is reported as closed."""
    is_made = anyio.Event()
    when_made(monkeypatch, is_made.set)
    port = FakePort()
    client = client_fakes.new_client(Limits())

    async def use(endpoint: Endpoint) -> None:
        async with client:
            client.dial(endpoint, NOW, ChannelId(1), port)
            await is_made.wait()

    async with serving(wait) as server:
        using = asyncio.ensure_future(use(server.endpoint))
        await asyncio.wait({using}, timeout=WAIT_S)
        assert using.done()
    assert port.reports[ChannelId(1)] == [Cause(End.BROKEN, "shutting down")]


async def wait(peer: Peer) -> None:
    await peer.request()
    await peer.wait_gone()


async def test_the_time_for_connecting_ends_when_a_connection_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeout stops counting even if it runs out before the task that waits for the connection has its turn."""
    when_made(monkeypatch, lambda: time.sleep(1.2))
    port = FakePort()
    client = client_fakes.new_client(Limits(connect_timeout_s=1.0))

    async def use(endpoint: Endpoint) -> None:
        async with client:
            client.dial(endpoint, NOW, ChannelId(1), port)
            await port.until_closed(1)

    async with serving(answer_all) as server:
        using = asyncio.ensure_future(use(server.endpoint))
        await asyncio.wait({using}, timeout=WAIT_S)
        assert using.done()
    assert port.reports[ChannelId(1)] == [Connected(status=200), b'{"on":0}', Cause(End.DONE)]
