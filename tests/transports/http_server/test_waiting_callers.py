"""Requests that wait until an issuer has said who their caller is."""

from __future__ import annotations

import time

import anyio
import msgspec
import pytest
from http_fakes import anyio_backend as anyio_backend
from http_fakes import get, post, world
from isthmus.core.access.gate import Gate, GateSettings
from isthmus.core.access.issuer_answers import Reply, Wanted
from isthmus.core.access.issuer_settings import IntrospectionSettings, IssuerSettings
from isthmus.core.access.issuers import Issuers
from isthmus.core.base.effects import Send
from isthmus.core.base.events import DeleteOpening, End, Opening
from isthmus.core.base.ids import ChannelId
from isthmus.transports.base.port import Outlet

pytestmark = pytest.mark.anyio

ISSUER = "https://login.example.com"
ONE = ChannelId(1)


def _issuers() -> Issuers:
    introspection = IntrospectionSettings("me", "secret", f"{ISSUER}/introspect")
    settings = IssuerSettings(ISSUER, audience=("anything",), introspection=introspection)
    return Issuers([settings], verify=lambda *_: False)


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_a_request_that_is_answered_at_once_ends_its_channel(method: str) -> None:
    """The engine answers while it is told of the request. The end of its channel is reported all the same."""
    issuers = _issuers()

    async def ask(wanted: Wanted) -> None:
        await anyio.wait_all_tasks_blocked()
        claims = {"active": True, "sub": "alice", "aud": "anything", "exp": time.time() + 60}
        issuers.fetched(wanted, Reply(200, (), msgspec.json.encode(claims)), time.time())

    def answer(channel: ChannelId, outlet: Outlet) -> None:
        outlet.send(Send(channel, b"{}", is_last=True))

    def on_open(channel: ChannelId, opening: Opening, outlet: Outlet) -> None:
        if isinstance(opening, DeleteOpening):
            answer(channel, outlet)

    async with world(gate=Gate(GateSettings(), issuers), wait_for_issuer=ask) as w:
        w.port.on_open = on_open
        w.port.on_message = lambda channel, _, outlet: answer(channel, outlet)
        lines = "Authorization: Bearer opaque", "Mcp-Session-Id: s"
        await w.client.send(post(b"{}", *lines) if method == "POST" else get("/mcp", *lines, method=method))
        assert (await w.client.read(method)).status == 200
        assert await w.port.wait_closed(1) is End.DONE
        assert w.port.sent_bytes[ONE] == 2
