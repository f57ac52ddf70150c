"""LangChain with langchain-mcp-adapters: the default tools, each call of which opens a session of its own.

The result of a call passes through langchain-openai, which makes it a message of the model.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import agent
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI


class LangChain:
    def __init__(self, client: MultiServerMCPClient, tools: list[BaseTool]) -> None:
        self._client = client
        self._tools = {tool.name: tool for tool in tools}
        self._model = ChatOpenAI(model="none", api_key="none")

    async def tools(self) -> list[dict[str, Any]]:
        return [convert_to_openai_tool(tool)["function"] for tool in self._tools.values()]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        wish = {"name": name, "args": arguments, "id": "1", "type": "tool_call"}
        message = await self._tools[name].ainvoke(wish)
        request = self._model._get_request_payload([AIMessage("", tool_calls=[wish]), message])
        content = request["messages"][-1]["content"]
        return content if isinstance(content, str) else json.dumps(content)

    async def read(self, uri: str) -> bytes:
        blobs = await self._client.get_resources("isthmus", uris=uri)
        return blobs[0].as_bytes()


@asynccontextmanager
async def connect(target: dict[str, Any]) -> AsyncIterator[LangChain]:
    transport = "streamable_http" if "url" in target else "stdio"
    client = MultiServerMCPClient({"isthmus": {"transport": transport, **target}})
    yield LangChain(client, await client.get_tools())


agent.run(connect, ["langchain-mcp-adapters", "langchain-core", "langchain-openai", "mcp"])
