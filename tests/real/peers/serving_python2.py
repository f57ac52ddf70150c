"""Serves a server of mcp 2.x over the transport that its command line names."""

from __future__ import annotations

from typing import Any

import uvicorn
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from serving import PrintingServer


async def serve(server: Server[Any], transport: str) -> None:
    """Serves until the end.

    Args:
        transport: "stdio" or "http".
    """
    if transport == "stdio":
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    else:
        application = server.streamable_http_app()
        await PrintingServer(uvicorn.Config(application, host="127.0.0.1", port=0, log_level="warning")).serve()
