"""A server on the official Python SDK, mcp 2.x, which records spans itself.

traced_python2.py stdio | http
"""

from __future__ import annotations

import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import Server
from serving_python2 import serve
from traced import record

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="echo", input_schema=TEXT)])


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=str((params.arguments or {})["text"]))])


record("server")
server: Server[Any] = Server("traced", on_list_tools=list_tools, on_call_tool=call_tool)
anyio.run(serve, server, sys.argv[1])
