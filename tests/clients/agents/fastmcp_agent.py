"""The client of FastMCP. A host shows the content of a result to its model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import agent
from fastmcp import Client
from fastmcp.client.transports import StdioTransport


class FastMcp:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def tools(self) -> list[dict[str, Any]]:
        tools = await self._client.list_tools()
        return [{**tool.model_dump(mode="json"), "parameters": tool.input_schema} for tool in tools]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        return agent.blocks((await self._client.call_tool(name, arguments)).content)

    async def read(self, uri: str) -> bytes:
        return agent.content((await self._client.read_resource(uri))[0])


@asynccontextmanager
async def connect(target: dict[str, Any]) -> AsyncIterator[FastMcp]:
    async with Client(target["url"] if "url" in target else StdioTransport(**target)) as client:
        yield FastMcp(client)


agent.run(connect, ["fastmcp", "mcp"])
