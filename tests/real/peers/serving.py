"""A uvicorn server on a port of its own choice, which it prints."""

from __future__ import annotations

import socket

import uvicorn


class PrintingServer(uvicorn.Server):
    """A server that prints its URL."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        print(f"listening on 127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}", flush=True)
