"""The official Python SDK's Streamable HTTP server at `MCP_PATH`, on a port of its own choice, which it prints.

Starlette redirects from the path with a slash more or less. Its tools: `add` two numbers, and `asked`, the requested
paths, each with its method.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import anyio
import uvicorn
from mcp.server.fastmcp import FastMCP

server = FastMCP("moved", streamable_http_path=os.environ["MCP_PATH"])
seen: list[str] = []


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
def asked() -> str:
    return " ".join(seen)


class PrintingServer(uvicorn.Server):
    """A server that prints its URL."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        print(f"listening on 127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}", flush=True)


application = server.streamable_http_app()


async def watched(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        seen.append(f"{scope['method']}:{scope['path']}")
    await application(scope, receive, send)  # type: ignore[arg-type]


if __name__ == "__main__":
    config = uvicorn.Config(watched, host="127.0.0.1", port=0, log_level="warning")
    anyio.run(PrintingServer(config).serve)
