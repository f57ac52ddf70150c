"""A downstream client on a WebSocket, as an `Outlet`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from anyio.abc import ByteStream

from ...core.base.budget import Budget, Share
from ...core.base.events import Cause, End
from ...core.base.limits import Limits
from ...core.wire.http.routes import SocketRoute
from ...core.wire.oversize import answer_for
from ..base.port import Port
from .connection import Socket
from .frames import Frames


class SocketClient(Socket):
    """The channel of one client. `serve` opens it and reports its end.

    Args:
        bodies: the room for messages that are arriving.
        holds, wait_change: see `Socket`.
    """

    def __init__(
        self,
        port: Port,
        limits: Limits,
        bodies: Budget,
        holds: Callable[[], bool],
        wait_change: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(port, limits, peer="the client", gone=End.GONE, holds=holds, wait_change=wait_change)
        self._bodies = bodies

    async def serve(self, route: SocketRoute, stream: ByteStream, greeting: bytes, received: bytes) -> None:
        frames = Frames(
            is_client=False,
            message_size_max_bytes=self._limits.request_size_max_bytes,
            deflate=route.upgrade.deflate,
            share=Share(self._bodies, route.opening.owner),
        )
        self._channel = self._port.open(route.opening, self)
        cause = Cause(End.BROKEN, "the listener was stopped")
        try:
            cause = await self.carry(stream, frames, greeting=greeting, received=received)
        finally:
            self._port.closed(self._channel, cause)

    def _refuse(self, head: bytes) -> None:
        refusal = answer_for(head, None, self._limits.request_size_max_bytes, is_request=True)
        if refusal is not None:
            self._put(refusal, is_ordered=False)
