"""A server on the official Python SDK, mcp 1.x, which knows nothing of traces: the tool records its span itself.

traced_python1.py stdio | http
"""

from __future__ import annotations

import sys
from typing import Any

import anyio
import uvicorn
from mcp.server.fastmcp import Context, FastMCP
from serving import PrintingServer
from traced import receive, record

tracer = record("server")
server = FastMCP("traced")


@server.tool()
def echo(text: str, context: Context[Any, Any, Any]) -> str:
    meta = context.request_context.meta
    receive(tracer, "tools/call echo", {} if meta is None else meta.model_dump())
    return text


async def main() -> None:
    if sys.argv[1] == "stdio":
        await server.run_stdio_async()
    else:
        application = server.streamable_http_app()
        await PrintingServer(uvicorn.Config(application, host="127.0.0.1", port=0, log_level="warning")).serve()


anyio.run(main)
