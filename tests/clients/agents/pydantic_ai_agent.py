"""Pydantic AI: an `Agent` with an `MCPToolset`, whose model is a function that makes one call and notes its result.

The toolset stays open between the runs, unless the argument `runs` is there: each run then has a session of its own.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import agent
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


class PydanticAi:
    def __init__(self, toolset: MCPToolset[None]) -> None:
        self._toolset = toolset

    async def tools(self) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = []

        def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            shown.extend(
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters_json_schema}
                for tool in info.function_tools
            )
            return ModelResponse([TextPart("Done.")])

        await Agent(FunctionModel(model), toolsets=[self._toolset]).run("Go on.")
        return shown

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        shown: list[str] = []

        def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            for part in messages[-1].parts:
                if isinstance(part, ToolReturnPart):
                    shown.append(part.model_response_str())
                elif isinstance(part, RetryPromptPart):
                    shown.append(part.model_response())
            return ModelResponse([TextPart("Done.") if shown else ToolCallPart(name, arguments)])

        await Agent(FunctionModel(model), toolsets=[self._toolset]).run("Go on.")
        return "\n".join(shown)

    async def read(self, uri: str) -> bytes:
        content = await self._toolset.read_resource(uri)
        return content.data if isinstance(content, BinaryContent) else str(content).encode()


@asynccontextmanager
async def connect(target: dict[str, Any]) -> AsyncIterator[PydanticAi]:
    toolset = MCPToolset(target["url"] if "url" in target else StdioTransport(**target))
    async with AsyncExitStack() as stack:
        if "runs" not in sys.argv[1:]:
            await stack.enter_async_context(toolset)
        yield PydanticAi(toolset)


agent.run(connect, ["pydantic-ai-slim", "mcp"])
