"""LlamaIndex: the tools of `McpToolSpec`. `BasicMCPClient` opens a session for each call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import agent
from llama_index.core.tools import FunctionTool
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec


class LlamaIndex:
    def __init__(self, client: BasicMCPClient, tools: list[FunctionTool]) -> None:
        self._client = client
        self._tools = {tool.metadata.get_name(): tool for tool in tools}

    async def tools(self) -> list[dict[str, Any]]:
        return [tool.metadata.to_openai_tool(skip_length_check=True)["function"] for tool in self._tools.values()]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        return (await self._tools[name].acall(**arguments)).content

    async def read(self, uri: str) -> bytes:
        return agent.content((await self._client.read_resource(uri)).contents[0])


@asynccontextmanager
async def connect(target: dict[str, Any]) -> AsyncIterator[LlamaIndex]:
    client = BasicMCPClient(target.pop("url", None) or target.pop("command"), **target)
    yield LlamaIndex(client, await McpToolSpec(client).to_tool_list_async())


agent.run(connect, ["llama-index-tools-mcp", "llama-index-core", "mcp"])
