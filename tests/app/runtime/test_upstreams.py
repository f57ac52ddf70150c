"""Tests of the way from a dial target to the address of its server."""

from __future__ import annotations

from typing import Any

import pytest
from isthmus.app.runtime.upstreams import Upstreams
from isthmus.core.base.budget import Budget
from isthmus.core.base.effects import Delete, Join, Listen, Post, Target
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.websocket.client import SocketServer

pytestmark = pytest.mark.anyio

HTTP = (Endpoint("http://a/mcp"), Endpoint("http://b/mcp"))
SOCKETS = (Endpoint("ws://a/mcp"), Endpoint("ws://b/mcp"))


class FakeClient:
    def dial(self, endpoint: Endpoint, *_: Any, **__: Any) -> Endpoint:
        return endpoint


@pytest.mark.parametrize("place", [0, 1])
async def test_each_target_is_dialled_at_its_address(place: int) -> None:
    """A server with one address may be given alone."""
    plans = {id: ServerPlan(id=id, kind=Kind.HTTP) for id in ("http", "one", "socket")}
    upstreams = Upstreams(
        plans,
        {"http": HTTP, "one": HTTP[0], "socket": SOCKETS},
        None,  # type: ignore[arg-type]
        Limits(),
        None,  # type: ignore[arg-type]
        FakeClient(),  # type: ignore[arg-type]
        Budget(1 << 20, 1 << 20),
        log_server=lambda server, line: None,
    )

    def reached(target: Target) -> object:
        return upstreams.reach(target, ChannelId(1))[0]

    for target in (
        Post("http", b"{}", address=place),
        Listen("http", address=place),
        Delete("http", "S", address=place),
    ):
        assert reached(target) is HTTP[place]
    assert reached(Post("one", b"{}")) is HTTP[0]
    socket = reached(Join("socket", address=place))
    assert isinstance(socket, SocketServer)
    assert socket._dialer.address == SOCKETS[place].address()
