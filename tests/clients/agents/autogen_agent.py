"""AutoGen: the tools of `mcp_server_tools`, each call of which opens a session of its own, and `McpWorkbench`.

Both are given to an agent as a workbench, whose results the agent turns into text.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import agent
from autogen_core import CancellationToken
from autogen_core.tools import StaticStreamWorkbench, Workbench
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams, StreamableHttpServerParams, mcp_server_tools


class AutoGen:
    def __init__(self, workbench: Workbench) -> None:
        self._workbench = workbench

    async def tools(self) -> list[dict[str, Any]]:
        return [dict(tool) for tool in await self._workbench.list_tools()]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        result = await self._workbench.call_tool(name, arguments, CancellationToken())
        return result.to_text()

    async def read(self, uri: str) -> bytes:
        if not isinstance(self._workbench, McpWorkbench):
            raise NotImplementedError
        return agent.content((await self._workbench.read_resource(uri)).contents[0])


@asynccontextmanager
async def connect(target: dict[str, Any]) -> AsyncIterator[AutoGen]:
    params = StreamableHttpServerParams(**target) if "url" in target else StdioServerParams(**target)
    async with AsyncExitStack() as stack:
        if sys.argv[1:] == ["workbench"]:
            yield AutoGen(await stack.enter_async_context(McpWorkbench(params)))
        else:
            yield AutoGen(StaticStreamWorkbench(await mcp_server_tools(params)))


agent.run(connect, ["autogen-ext", "autogen-agentchat", "mcp"])
