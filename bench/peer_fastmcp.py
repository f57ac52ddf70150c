"""FastMCP as a proxy: `python peer_fastmcp.py default|reused PORT|stdio URL | FILE | COMMAND ARG…`, run by its venv.

A FILE of several servers (`mcpServers`) has the name `….json`.
`default` is the mode that its documentation shows first; `reused` keeps one connected client, which is its cheapest
mode.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from fastmcp import Client, FastMCP
from fastmcp.client.transports import ClientTransport, MCPConfigTransport, StdioTransport, StreamableHttpTransport
from fastmcp.server import create_proxy


async def main(mode: str, listen: str, target: list[str]) -> None:
    transport: ClientTransport
    if target[0].startswith("http"):
        transport = StreamableHttpTransport(target[0])
    elif target[0].endswith(".json"):
        transport = MCPConfigTransport(json.loads(Path(target[0]).read_text()))
    else:
        transport = StdioTransport(target[0], target[1:])
    if mode == "reused":
        async with Client(transport) as client:
            await serve(create_proxy(client), listen)
    else:
        await serve(create_proxy(transport), listen)


async def serve(proxy: FastMCP, listen: str) -> None:
    if listen == "stdio":
        await proxy.run_stdio_async(show_banner=False)
    else:
        await proxy.run_http_async(host="127.0.0.1", port=int(listen), log_level="error", show_banner=False)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
