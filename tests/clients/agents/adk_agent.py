"""The Agent Development Kit of Google: an `LlmAgent` with an `McpToolset`, run by the runner that keeps its sessions in
memory. Its model makes one call and notes the response of the function.
With the argument `patient`, connecting may take a minute.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

import agent
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool.mcp_session_manager import StdioConnectionParams, StreamableHTTPConnectionParams
from google.adk.tools.mcp_tool.mcp_toolset import McpToolset
from google.genai import types
from mcp import StdioServerParameters

Reply = Callable[[LlmRequest], types.Part]


class Model(BaseLlm):
    """A model that replies as the journey says."""

    model: str = "journey"
    reply: Reply | None = None

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        assert self.reply is not None
        yield LlmResponse(content=types.Content(role="model", parts=[self.reply(llm_request)]))


class Adk:
    def __init__(self, toolset: McpToolset) -> None:
        self._toolset = toolset
        self._model = Model()
        self._runner = InMemoryRunner(LlmAgent(name="agent", model=self._model, tools=[toolset]), app_name="journey")

    async def open(self) -> None:
        session = await self._runner.session_service.create_session(app_name="journey", user_id="user")
        self._session = session.id

    async def _run(self, reply: Reply) -> None:
        self._model.reply = reply
        message = types.Content(role="user", parts=[types.Part(text="Go on.")])
        async for event in self._runner.run_async(user_id="user", session_id=self._session, new_message=message):
            if event.error_message:
                raise RuntimeError(event.error_message)

    async def tools(self) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = []

        def reply(request: LlmRequest) -> types.Part:
            for tool in request.config.tools or []:
                shown.extend(
                    {**each.model_dump(mode="json"), "parameters": each.parameters_json_schema}
                    for each in tool.function_declarations or []
                )
            return types.Part(text="Done.")

        await self._run(reply)
        return shown

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        shown: list[str] = []

        def reply(request: LlmRequest) -> types.Part:
            for part in request.contents[-1].parts or []:
                if part.function_response:
                    shown.append(json.dumps(part.function_response.response))
            if shown:
                return types.Part(text="Done.")
            return types.Part(function_call=types.FunctionCall(name=name, args=arguments))

        await self._run(reply)
        return "\n".join(shown)

    async def read(self, uri: str) -> bytes:
        name = unquote(uri.rpartition("/")[2])  # the tool for resources takes the names that a list has
        return agent.content((await self._toolset.read_resource(name))[0])


@asynccontextmanager
async def connect(target: dict[str, Any]) -> AsyncIterator[Adk]:
    limits = {"timeout": 60} if "patient" in sys.argv[1:] else {}
    toolset = McpToolset(
        connection_params=StreamableHTTPConnectionParams(**target, **limits)
        if "url" in target
        else StdioConnectionParams(server_params=StdioServerParameters(**target), **limits)
    )
    adk = Adk(toolset)
    await adk.open()
    yield adk
    await toolset.close()


agent.run(connect, ["google-adk", "mcp"])
