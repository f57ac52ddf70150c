"""The Agents SDK of OpenAI: the tools of an agent with an MCP server, and the items its runner makes of results.

With the argument `patient`, a request may take a minute.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import agent
from agents import Agent, FunctionTool, ItemHelpers, RunContextWrapper
from agents.mcp import MCPServer, MCPServerStdio, MCPServerStreamableHttp
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall


class OpenAiAgents:
    def __init__(self, server: MCPServer) -> None:
        self._server = server
        self._agent = Agent(name="agent", mcp_servers=[server])

    async def _tools(self) -> list[FunctionTool]:
        tools = await self._agent.get_mcp_tools(RunContextWrapper(None))
        return [tool for tool in tools if isinstance(tool, FunctionTool)]

    async def tools(self) -> list[dict[str, Any]]:
        return [
            {"name": tool.name, "description": tool.description, "parameters": tool.params_json_schema}
            for tool in await self._tools()
        ]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        (tool,) = [each for each in await self._tools() if each.name == name]
        text = json.dumps(arguments)
        wish = ResponseFunctionToolCall(arguments=text, call_id="1", name=name, type="function_call")
        context = ToolContext(None, tool_name=name, tool_call_id="1", tool_arguments=text)
        output = ItemHelpers.tool_call_output_item(wish, await tool.on_invoke_tool(context, text))["output"]
        return output if isinstance(output, str) else json.dumps(output)

    async def read(self, uri: str) -> bytes:
        return agent.content((await self._server.read_resource(uri)).contents[0])


@asynccontextmanager
async def connect(target: dict[str, Any]) -> AsyncIterator[OpenAiAgents]:
    kind = MCPServerStreamableHttp if "url" in target else MCPServerStdio
    limits = {"client_session_timeout_seconds": 60} if "patient" in sys.argv[1:] else {}
    async with kind(params=target, **limits) as server:
        yield OpenAiAgents(server)


agent.run(connect, ["openai-agents", "mcp"])
