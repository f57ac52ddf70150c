"""Semantic Kernel: an MCP plugin in a kernel, which calls its functions as its automatic function calling does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import agent
from semantic_kernel import Kernel
from semantic_kernel.connectors.mcp import MCPPluginBase, MCPStdioPlugin, MCPStreamableHttpPlugin
from semantic_kernel.contents import ChatHistory, FunctionCallContent, FunctionResultContent


class SemanticKernel:
    def __init__(self, plugin: MCPPluginBase) -> None:
        self._plugin = plugin
        self._kernel = Kernel()
        self._kernel.add_plugin(plugin)

    async def tools(self) -> list[dict[str, Any]]:
        return [
            {
                "name": each.fully_qualified_name,
                "description": each.description,
                "parameters": {"properties": {p.name: p.schema_data for p in each.parameters}},
            }
            for each in self._kernel.get_full_list_of_function_metadata()
        ]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        history = ChatHistory()
        wish = FunctionCallContent(id="1", name=name, arguments=json.dumps(arguments))
        await self._kernel.invoke_function_call(wish, history)
        (item,) = history.messages[-1].items
        assert isinstance(item, FunctionResultContent)
        return str(item.result)

    async def read(self, uri: str) -> bytes:
        raise NotImplementedError


@asynccontextmanager
async def connect(target: dict[str, Any]) -> AsyncIterator[SemanticKernel]:
    kind = MCPStreamableHttpPlugin if "url" in target else MCPStdioPlugin
    async with kind(name="isthmus", **target) as plugin:
        yield SemanticKernel(plugin)


agent.run(connect, ["semantic-kernel", "mcp"])
