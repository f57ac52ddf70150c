"""A server on mcp 2.x that has room for one subscription and ends it when asked.

listened_python2.py stdio | http
"""

from __future__ import annotations

import os
import sys
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ToolsListChanged
from serving import PrintingServer

changes = InMemorySubscriptionBus()
listens = ListenHandler(changes, max_subscriptions=1)


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    names = ("change", "end", "die")
    return types.ListToolsResult(tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in names])


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    if params.name == "die":
        os._exit(1)
    if params.name == "end":
        listens.close()
    else:
        await changes.publish(ToolsListChanged())
    return types.CallToolResult(content=[types.TextContent(text=params.name)])


server: Server[Any] = Server(
    "listened", version="1", on_list_tools=list_tools, on_call_tool=call_tool, on_subscriptions_listen=listens
)


async def over_stdio() -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


async def over_http() -> None:
    application = server.streamable_http_app()
    await PrintingServer(uvicorn.Config(application, host="127.0.0.1", port=0, log_level="warning")).serve()


anyio.run(over_stdio if sys.argv[1] == "stdio" else over_http)
