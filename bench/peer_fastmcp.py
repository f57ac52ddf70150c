"""FastMCP as a proxy: `python peer_fastmcp.py default|reused PORT|stdio URL | COMMAND ARG…`, run by its venv.

`default` is the mode that its documentation shows first; `reused` keeps one connected client, which is its cheapest
mode.
"""

from __future__ import annotations

import asyncio
import sys

from fastmcp import Client, FastMCP
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from fastmcp.server import create_proxy


async def main(mode: str, listen: str, target: list[str]) -> None:
    is_url = target[0].startswith("http")
    transport = StreamableHttpTransport(target[0]) if is_url else StdioTransport(target[0], target[1:])
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
