"""A server of the official SDK (`mcp` 1.x) on stdin and stdout that is late: `late_python1.py START_S LIST_S`.

It begins to read after START_S seconds, and lists its tools LIST_S seconds after it was asked.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import TextContent, Tool

START_S, LIST_S = map(float, sys.argv[1:])
server: Server[Any] = Server("late")


@server.list_tools()  # type: ignore[no-untyped-call,untyped-decorator,unused-ignore]
async def list_tools() -> list[Tool]:
    await anyio.sleep(LIST_S)
    return [Tool(name="echo", inputSchema={"type": "object"})]


@server.call_tool()  # type: ignore[untyped-decorator,unused-ignore]
async def call_tool(name: str, arguments: dict[str, Any]) -> list[TextContent]:
    return [TextContent(type="text", text=arguments["text"])]


async def main() -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


time.sleep(START_S)
anyio.run(main)
