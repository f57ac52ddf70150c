"""The conformance server of tasks in 2026-07-28, on FastMCP 4.x and its tasks package. See docs/conformance.md.

tasks2.py http    Streamable HTTP on a free port of 127.0.0.1; prints its URL
tasks2.py stdio
"""

from __future__ import annotations

import asyncio
import socket
import sys
from datetime import timedelta
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp import MCPError

POLL = timedelta(milliseconds=100)
OPTIONAL = TaskConfig(mode="optional", poll_interval=POLL)
REQUIRED = TaskConfig(mode="required", poll_interval=POLL)


class Extension(TasksExtension):
    """Lets a tool ask before there is a task. The package makes a task of a required tool's first request."""

    async def intercept_tool_call(self, params: Any, context: Any, call_next: Any) -> Any:
        if params.name == "test_tool_with_task":
            if params.input_responses is None:
                return await call_next()
            name = params.input_responses["user_name"].content["name"]
            params = params.model_copy(update={"arguments": {"user_name": name}})
        return await super().intercept_tool_call(params, context, call_next)


server: FastMCP = FastMCP("conformance-server", version="1.0.0")
server.add_extension(Extension())


def question(message: str, field: str, kind: str) -> types.ElicitRequest:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


@server.tool(output_schema=None)
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@server.tool(task=OPTIONAL, output_schema=None)
async def slow_compute(seconds: float, label: str = "") -> str:
    await asyncio.sleep(seconds)
    return f"computed {label}"


@server.tool(task=REQUIRED, output_schema=None)
async def failing_job() -> str:
    await asyncio.sleep(1)
    raise ToolError("the job failed")


@server.tool(task=REQUIRED, output_schema=None)
async def protocol_error_job() -> str:
    raise MCPError(code=types.INTERNAL_ERROR, message="the job broke")


@server.tool(task=REQUIRED, output_schema=None)
async def confirm_delete(ctx: Context, filename: str) -> str | types.InputRequiredResult:
    if ctx.input_responses is None:
        ask = question(f"Delete {filename}?", "confirm", "boolean")
        return types.InputRequiredResult(input_requests={"confirm": ask})
    return f"deleted {filename}"


@server.tool(task=REQUIRED, output_schema=None)
async def multi_input(ctx: Context) -> str | types.InputRequiredResult:
    answered = {*filter(None, (ctx.request_state or "").split()), *(ctx.input_responses or {})}
    if open_ones := {"first", "second"} - answered:
        asks = {key: question(f"The {key} name?", "name", "string") for key in sorted(open_ones)}
        return types.InputRequiredResult(input_requests=asks, request_state=" ".join(sorted(answered)))
    return "both are known"


@server.tool(name="test_tool_with_task", task=REQUIRED, output_schema=None)
async def welcome(user_name: str | None = None) -> str | types.InputRequiredResult:
    if user_name is None:
        return types.InputRequiredResult(input_requests={"user_name": question("Who are you?", "name", "string")})
    return f"Hello, {user_name}!"


class PrintingServer(uvicorn.Server):
    """A server that prints its URL."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        print(f"listening on http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}/mcp", flush=True)


async def over_http() -> None:
    application = server.http_app()
    await PrintingServer(
        uvicorn.Config(application, host="127.0.0.1", port=0, log_level="warning", lifespan="on")
    ).serve()


if sys.argv[1] == "stdio":
    server.run(show_banner=False)
else:
    anyio.run(over_http)
