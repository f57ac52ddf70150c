"""The task workshop on FastMCP 4.x with its tasks package: the extension of 2026-07-28. See README.md beside this file.

tasks_fastmcp.py MARKS stdio | http
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

import anyio
import mcp_types as types
import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp import MCPError
from serving import PrintingServer

BROKEN = 4001
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
POLL = timedelta(milliseconds=100)
REQUIRED = TaskConfig(mode="required", poll_interval=POLL)
OPTIONAL = TaskConfig(mode="optional", poll_interval=POLL)
marks, transport_name = sys.argv[1:]

server: FastMCP = FastMCP("task workshop", version="1")
server.add_extension(TasksExtension())


def mark(line: str) -> None:
    with open(marks, "a") as file:
        file.write(f"{line}\n")


@server.tool(output_schema=None)
async def plain() -> str:
    return "plain"


@server.tool(task=OPTIONAL, output_schema=None)
async def quick() -> str:
    await asyncio.sleep(0.05)
    return "quick"


@server.tool(task=REQUIRED, output_schema=None)
async def must() -> str:
    await asyncio.sleep(0.05)
    return "must"


@server.tool(task=REQUIRED, output_schema=None)
async def asks(ctx: Context) -> str | types.InputRequiredResult:
    answer = (ctx.input_responses or {}).get("who")
    if isinstance(answer, types.ElicitResult):
        return f"hello {(answer.content or {}).get('name')}"
    params = types.ElicitRequestFormParams(message="Who?", requested_schema=FORM)
    return types.InputRequiredResult(input_requests={"who": types.ElicitRequest(params=params)})


@server.tool(task=REQUIRED, output_schema=None)
async def slow(label: str) -> str:
    mark(f"started {label}")
    try:
        await anyio.sleep_forever()
    except asyncio.CancelledError:
        mark(f"cancelled {label}")
        raise
    return "slow"


@server.tool(task=REQUIRED, output_schema=None)
async def fails() -> str:
    raise ToolError("it failed")


@server.tool(task=REQUIRED, output_schema=None)
async def breaks() -> str:
    raise MCPError(code=BROKEN, message="it broke")


async def over_http() -> None:
    application = server.http_app()
    await PrintingServer(
        uvicorn.Config(application, host="127.0.0.1", port=0, log_level="warning", lifespan="on")
    ).serve()


if transport_name == "stdio":
    server.run(show_banner=False)
else:
    anyio.run(over_http)
