"""FastMCP as a proxy: `python peer_fastmcp.py default|reused PORT|stdio URL | FILE.json | COMMAND ARG…` in its venv.

`default` is the mode that its documentation shows first; `reused` keeps one connected client, which is its cheapest
mode. FILE.json has several servers (`mcpServers`): a proxy of each is mounted on one server. That takes less than one
proxy of the whole file, which by default connects to all servers for each call.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from fastmcp import Client, FastMCP
from fastmcp.client.transports import ClientTransport, StdioTransport, StreamableHttpTransport
from fastmcp.server import create_proxy


async def main(mode: str, listen: str, target: list[str]) -> None:
    async with AsyncExitStack() as clients:

        async def proxy_of(transport: ClientTransport) -> FastMCP:
            return create_proxy(await clients.enter_async_context(Client(transport)) if mode == "reused" else transport)

        if target[0].startswith("http"):
            proxy = await proxy_of(StreamableHttpTransport(target[0]))
        elif target[0].endswith(".json"):
            proxy = FastMCP("several")
            for name, server in json.loads(Path(target[0]).read_text())["mcpServers"].items():
                proxy.mount(await proxy_of(StreamableHttpTransport(server["url"])), namespace=name)
        else:
            proxy = await proxy_of(StdioTransport(target[0], target[1:]))
        await serve(proxy, listen)


async def serve(proxy: FastMCP, listen: str) -> None:
    if listen == "stdio":
        await proxy.run_stdio_async(show_banner=False)
    else:
        await proxy.run_http_async(host="127.0.0.1", port=int(listen), log_level="error", show_banner=False)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
