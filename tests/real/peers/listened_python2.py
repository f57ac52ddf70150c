"""A server on mcp 2.x that has room for one subscription and ends it when asked. Its list of tools may be kept, and
says how often it was read.

listened_python2.py stdio | http
"""

from __future__ import annotations

import itertools
import os
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.lowlevel.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ToolsListChanged
from serving_python2 import serve

changes = InMemorySubscriptionBus()
listens = ListenHandler(changes, max_subscriptions=1)
lists_read = itertools.count(1)


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    names = ("change", "end", "die")
    count = str(next(lists_read))
    tools = [types.Tool(name=name, description=count, input_schema={"type": "object"}) for name in names]
    return types.ListToolsResult(tools=tools)


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    if params.name == "die":
        os._exit(1)
    if params.name == "end":
        listens.close()
    else:
        await changes.publish(ToolsListChanged())
    return types.CallToolResult(content=[types.TextContent(text=params.name)])


server: Server[Any] = Server(
    "listened",
    version="1",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_subscriptions_listen=listens,
    cache_hints={"tools/list": CacheHint(ttl_ms=3_600_000, scope="public")},
)


anyio.run(serve, server, sys.argv[1])
