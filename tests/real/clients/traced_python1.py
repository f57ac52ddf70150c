"""A client on the official Python SDK, mcp 1.x: calls `echo` within a span of its own.

traced_python1.py URL TEXT meta | header
"""

from __future__ import annotations

import sys

import anyio
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from opentelemetry.trace import SpanKind
from traced import fields, record

tracer = record("client")


async def main(url: str, text: str, way: str) -> None:
    with tracer.start_as_current_span("visit", kind=SpanKind.CLIENT):
        headers = fields() if way == "header" else {}
        async with streamablehttp_client(url, headers=headers) as (reading, writing, _):
            async with ClientSession(reading, writing) as session:
                await session.initialize()
                meta = fields() if way == "meta" else None
                result = await session.call_tool("echo", {"text": text}, meta=meta)
                print(result.content[0].text)


anyio.run(main, *sys.argv[1:])
