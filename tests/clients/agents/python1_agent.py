"""`mcp` 1.x of PyPI. A host shows the content of a result to its model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import agent
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl


class Sdk:
    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def tools(self) -> list[dict[str, Any]]:
        tools = (await self._session.list_tools()).tools
        return [{**tool.model_dump(mode="json"), "parameters": tool.inputSchema} for tool in tools]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        return agent.blocks((await self._session.call_tool(name, arguments)).content)

    async def read(self, uri: str) -> bytes:
        return agent.content((await self._session.read_resource(AnyUrl(uri))).contents[0])


@asynccontextmanager
async def connect(target: dict[str, Any]) -> AsyncIterator[Sdk]:
    async with AsyncExitStack() as stack:
        transport = (
            streamable_http_client(target["url"]) if "url" in target else stdio_client(StdioServerParameters(**target))
        )
        read, write, *_ = await stack.enter_async_context(transport)
        session = await stack.enter_async_context(ClientSession(read, write))
        await session.initialize()
        yield Sdk(session)


agent.run(connect, ["mcp"])
