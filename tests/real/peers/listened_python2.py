"""A server on mcp 2.x that has room for one subscription and ends it when asked.

listened_python2.py stdio | http
"""

from __future__ import annotations

import os
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ToolsListChanged
from serving_python2 import serve

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


anyio.run(serve, server, sys.argv[1])
