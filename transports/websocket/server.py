"""A downstream client on a WebSocket: one two-way channel, from the upgrade of its HTTP connection to its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from anyio.abc import ByteStream

from ...core.base.budget import Budget
from ...core.base.limits import Limits
from ...core.wire.http.routes import SocketRoute
from ..base.port import Port


async def serve_socket(
    port: Port,
    route: SocketRoute,
    limits: Limits,
    bodies: Budget,
    stream: ByteStream,
    *,
    greeting: bytes,
    received: bytes,
    holds: Callable[[], bool],
    wait_change: Callable[[], Awaitable[None]],
) -> None:
    """Serves one client on `stream` until it leaves or the channel is closed. The stream stays open.

    Args:
        bodies: the room for messages that are arriving.
        greeting: the head of the response that grants the upgrade.
        received: bytes that were read behind the request.
        holds: whether the client may still use the connection. It is asked at intervals, and after `wait_change`.
        wait_change: returns when that may have changed.
    """
    # Imported late: wsproto loads slowly, and most gateways have no WebSockets.
    from .client_peer import SocketClient

    await SocketClient(port, limits, bodies, holds, wait_change).serve(route, stream, greeting, received)
