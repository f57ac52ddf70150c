"""The official Python SDK's HTTP+SSE server, on a port of its own choice, which it prints.

Its tools: `add` two numbers, `count` with progress, `question` the client for a sample, `grow` a text by so many times,
and `die` at once.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import anyio
import uvicorn
from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent

server = FastMCP("old-school", instructions="Count on me.")


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
async def count(to: int, context: Context[Any, Any, Any]) -> str:
    for number in range(1, to + 1):
        await context.report_progress(number, to)
    return f"counted to {to}"


@server.tool()
async def question(context: Context[Any, Any, Any]) -> str:
    asked = SamplingMessage(role="user", content=TextContent(type="text", text="well?"))
    answer = await context.session.create_message([asked], max_tokens=9)
    return f"it said {answer.content.text}" if isinstance(answer.content, TextContent) else "it said no text"


@server.tool()
def grow(seed: str, times: int) -> str:
    return seed * times


@server.tool()
def die() -> str:
    os._exit(3)


class PrintingServer(uvicorn.Server):
    """A server that prints its URL."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        print(f"listening on 127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}", flush=True)


if __name__ == "__main__":
    port = int(os.environ.get("PORT", "0"))
    config = uvicorn.Config(server.sse_app(), host="127.0.0.1", port=port, log_level="warning")
    anyio.run(PrintingServer(config).serve)
