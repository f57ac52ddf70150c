"""The official Python SDK's Streamable HTTP server (mcp 1.x) on Hypercorn, in HTTP/2 alone.

http2_tools.py [CERTIFICATE KEY]: with TLS if these files are named. See README.md beside this file.

Hypercorn speaks HTTP/1.1 as well, whatever it is told. So a gate stands before it, which refuses that as servers do
that have HTTP/2 alone: a TLS alert to a client that does not offer it, otherwise GOAWAY.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from typing import Any

import anyio
from hypercorn.asyncio import serve
from hypercorn.config import Config
from mcp.server.fastmcp import Context, FastMCP

BIG_BYTES = 5 * 1024 * 1024
PREFACE = b"PRI * HTTP/2.0\r\n\r\n"
GOAWAY = b"\0\0\0\4\0\0\0\0\0" + b"\0\0\x08\7\0\0\0\0\0" + b"\0\0\0\0" + b"\0\0\0\1"
HANDSHAKE = b"\x16\x03"
H2_OFFERED = b"\x00\x10\x00\x05\x00\x03\x02h2"
ALERT = b"\x15\x03\x03\x00\x02\x02\x78"

server = FastMCP("http2")
seen: set[str] = set()
ended = anyio.Event()


@server.tool()
async def count(to: int, context: Context[Any, Any, Any]) -> str:
    for number in range(1, to + 1):
        await context.report_progress(number, to)
    return f"counted to {to}"


@server.tool(structured_output=False)  # which would repeat it
def big() -> str:
    return "x" * BIG_BYTES


@server.tool()
async def wait(context: Context[Any, Any, Any]) -> str:
    await context.report_progress(1)
    try:
        await anyio.sleep_forever()
    finally:
        ended.set()
    return ""


@server.tool()
async def cancelled() -> str:
    with anyio.fail_after(20):
        await ended.wait()
    return "wait"


@server.tool()
async def change(context: Context[Any, Any, Any]) -> str:
    await context.session.send_tool_list_changed()
    return "changed"


@server.tool()
def versions() -> str:
    return " ".join(sorted(seen))


application = server.streamable_http_app()


async def watched(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        seen.add(f"{scope['method']}:{scope['http_version']}")
    await application(scope, receive, send)


async def main(*certificate: str) -> None:
    inner = socket.create_server(("127.0.0.1", 0))
    config = Config()
    config.bind = [f"fd://{inner.fileno()}"]
    config.alpn_protocols = ["h2"]
    config.graceful_timeout = 1.0
    if certificate:
        config.certfile, config.keyfile = certificate

    async def admit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            beginning = await reader.read(65_536)
            is_right = beginning.startswith(PREFACE) or H2_OFFERED in beginning
            if not is_right:
                writer.write(ALERT if beginning.startswith(HANDSHAKE) else GOAWAY)
                return await writer.drain()
            there, back = await asyncio.open_connection(*inner.getsockname())
            back.write(beginning)
            with contextlib.closing(back):
                each = [asyncio.create_task(copy(reader, back)), asyncio.create_task(copy(there, writer))]
                await asyncio.wait(each, return_when=asyncio.FIRST_COMPLETED)
                for task in each:
                    task.cancel()
        return None

    gate = await asyncio.start_server(admit, "127.0.0.1", 0)
    print(f"listening on 127.0.0.1:{gate.sockets[0].getsockname()[1]}", flush=True)
    await serve(watched, config)  # type: ignore[arg-type]


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
