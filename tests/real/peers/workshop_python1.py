"""The workshop on the official Python SDK, mcp 1.x: handshake revisions only. See README.md beside this file.

workshop_python1.py stdio | http
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp.types as types
import pydantic
import uvicorn
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import McpError
from serving import PrintingServer
from starlette.applications import Starlette
from starlette.routing import Mount

NOTE = "note://one"
FORM = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
NOTHING = {"type": "object", "properties": {}}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NUMBER = {"type": "object", "properties": {"to": {"type": "integer"}}, "required": ["to"]}
TOOLS = {
    "echo": TEXT,
    "form": NOTHING,
    "sample": NOTHING,
    "where": NOTHING,
    "count": NUMBER,
    "log": NOTHING,
    "change": NOTHING,
}


class Workshop(Server[Any, Any]):
    """A server that declares changing lists and resource subscriptions, which the SDK leaves out."""

    def create_initialization_options(self, *_: Any, **__: Any) -> Any:
        options = super().create_initialization_options(NotificationOptions(tools_changed=True))
        assert options.capabilities.resources is not None
        options.capabilities.resources.subscribe = True
        return options


server = Workshop("workshop", version="1")


@server.list_tools()
async def list_tools() -> list[types.Tool]:
    return [types.Tool(name=name, inputSchema=schema) for name, schema in TOOLS.items()]


@server.call_tool()
async def call_tool(name: str, arguments: dict[str, Any]) -> list[types.TextContent]:
    return [types.TextContent(type="text", text=await work(name, arguments))]


async def work(name: str, arguments: dict[str, Any]) -> str:
    context = server.request_context
    session = context.session
    match name:
        case "echo":
            return str(arguments["text"])
        case "form":
            answer = await session.elicit_form("Which colour?", FORM, related_request_id=context.request_id)
            return f"{answer.action} {(answer.content or {}).get('colour')}"
        case "sample":
            asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="well?"))
            sample = await session.create_message([asked], max_tokens=9, related_request_id=context.request_id)
            assert isinstance(sample.content, types.TextContent)
            return f"the model said {sample.content.text}"
        case "where":
            return " ".join(str(root.uri) for root in (await session.list_roots()).roots)
        case "count":
            token = context.meta.progressToken if context.meta else None
            for number in range(1, arguments["to"] + 1):
                if token is not None:
                    related = str(context.request_id)
                    await session.send_progress_notification(token, number, arguments["to"], related_request_id=related)
            return f"counted to {arguments['to']}"
        case "log":
            await session.send_log_message("warning", "noted", related_request_id=context.request_id)
            return "logged"
        case "change":
            await session.send_tool_list_changed()
            await session.send_resource_updated(pydantic.AnyUrl(NOTE))
            return "changed"
    raise ValueError(f"no such tool: {name}")


@server.list_resources()
async def list_resources() -> list[types.Resource]:
    return [types.Resource(uri=pydantic.AnyUrl(NOTE), name="one", mimeType="text/plain")]


@server.read_resource()
async def read_resource(uri: pydantic.AnyUrl) -> Iterable[ReadResourceContents]:
    if str(uri) != NOTE:
        raise McpError(types.ErrorData(code=-32002, message="no such note", data={"uri": str(uri)}))
    return [ReadResourceContents(content="the first note", mime_type="text/plain")]


@server.subscribe_resource()
async def subscribe(uri: pydantic.AnyUrl) -> None:
    pass


@server.unsubscribe_resource()
async def unsubscribe(uri: pydantic.AnyUrl) -> None:
    pass


@server.set_logging_level()
async def set_level(level: types.LoggingLevel) -> None:
    pass


@server.list_prompts()
async def list_prompts() -> list[types.Prompt]:
    return [types.Prompt(name="greet", arguments=[types.PromptArgument(name="name", required=True)])]


@server.get_prompt()
async def get_prompt(name: str, arguments: dict[str, str] | None) -> types.GetPromptResult:
    text = types.TextContent(type="text", text=f"Hello, {(arguments or {}).get('name')}!")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])


@server.completion()
async def complete(_: Any, argument: types.CompletionArgument, __: Any) -> types.Completion:
    return types.Completion(values=[name for name in ("Ada", "Alan", "Grace") if name.startswith(argument.value)])


async def over_stdio() -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


async def over_http() -> None:
    manager = StreamableHTTPSessionManager(server)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    application = Starlette(routes=[Mount("/", app=manager.handle_request)], lifespan=lifespan)
    await PrintingServer(uvicorn.Config(application, host="127.0.0.1", port=0, log_level="warning")).serve()


anyio.run(over_stdio if sys.argv[1] == "stdio" else over_http)
