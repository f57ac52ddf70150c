"""An MCP server on a WebSocket, made of the official SDK (`mcp` 1.x) alone. It prints its URL on stdout.

Its tools: `echo` returns `text`, `ask` asks the client's model, `big` returns so many characters, `leave` closes the
connection with a code and a reason.
"""

from __future__ import annotations

import socket
import warnings
from typing import Any

import anyio
import uvicorn
from mcp import types
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.websocket import websocket_server

warnings.simplefilter("ignore")  # the SDK deprecates this transport
server = FastMCP("socket-server")
protocols: list[list[str]] = []
"""The subprotocols that each client offered."""


@server.tool()
def echo(text: str) -> str:
    return text


@server.tool()
def big(size: int) -> str:
    return "é" * size


@server.tool()
def offered() -> str:
    return ", ".join(protocols[-1])


@server.tool()
async def ask(context: Context) -> str:  # type: ignore[type-arg]
    content = types.TextContent(type="text", text="hi")
    messages = [types.SamplingMessage(role="user", content=content)]
    result = await context.session.create_message(messages, max_tokens=5)
    assert isinstance(result.content, types.TextContent)
    return result.content.text


async def app(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "websocket"
    protocols.append(scope["subprotocols"])
    async with websocket_server(scope, receive, send) as (reading, writing):
        lower = server._mcp_server
        await lower.run(reading, writing, lower.create_initialization_options())


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening on ws://127.0.0.1:{listener.getsockname()[1]}/any/path", flush=True)
    config = uvicorn.Config(app, lifespan="off", log_level="warning")
    await uvicorn.Server(config).serve(sockets=[listener])


anyio.run(main)
