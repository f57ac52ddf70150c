"""An MCP server that misbehaves when it is told to, and answers properly otherwise.

    rude_server.py             serves stdin and stdout
    rude_server.py --exit      reads one line, and exits
    rude_server.py --port 0    serves Streamable HTTP on /mcp, without sessions

It imports no part of the product, so a process starts at once. The name of the called tool says what it does:

- `echo` returns its argument `text`, `big` returns `size` characters, `hang` answers never;
- each key of `LINES` and of `RESPONSES` is a kind of misbehaviour, on stdio and over HTTP. All of them go on until
their reader leaves or `ENDLESS_BYTES` are written.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

Json = dict[str, Any]

MIB = 1024 * 1024
ENDLESS_BYTES = 256 * MIB
"""The length of what has no end: four times the longest message that the proxy takes from a server."""
MANY_TOOLS = 100_000
FLOOD = 2_000
"""The messages of one flood."""


def encode(**members: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}, separators=(",", ":")).encode()


def text_of(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


def answer_to(message: Json) -> Json | None:
    """Returns the result of a well-behaved server, or None for no answer."""
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
        info = {"name": "rude", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
    if method == "tools/list":
        schema = {"type": "object"}
        return {"tools": [{"name": name, "inputSchema": schema} for name in ("echo", "big", "hang")]}
    if method == "tools/call":
        arguments = params.get("arguments") or {}
        if params["name"] == "hang":
            return None
        text = arguments.get("text")
        return text_of("x" * arguments.get("size", 0) or (text[:100] if isinstance(text, str) else "no text"))
    return {}


# --- stdio ------------------------------------------------------------------------------------------------------------

IS_LONG_LIST = False
"""True once the list of tools has `MANY_TOOLS` entries."""


def write(data: bytes, to: int = 1) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(to, view) :]


def write_stderr(id: object) -> Iterator[bytes]:
    line = b"\x1b]0;title\x07\x1b[2J\x1b[31mred\r\x00 \x9b31m" + b"\x1b[1A" * 200 + b"\n"
    for _ in range(4 * MIB // len(line)):
        write(line, to=2)
    yield encode(id=id, result=text_of("said"))


def endless_line(id: object) -> Iterator[bytes]:
    """Yields one line that does not end. The write after the reader has left fails, which ends the process."""
    piece = b"y" * MIB
    write(encode(id=id)[:-1] + b',"result":{"content":[{"type":"text","text":"')
    for _ in range(ENDLESS_BYTES // MIB):
        write(piece)
    yield b'"}]}}'


def doubled_ids(id: object) -> Iterator[bytes]:
    for n in range(FLOOD):
        yield encode(id=id, result=text_of(f"answer {n}"))


def unknown_ids(id: object) -> Iterator[bytes]:
    for n in range(FLOOD):
        other: object = (n, -n, f"unknown {n}", None, 1.5, 2**63 + n)[n % 6]
        yield encode(id=other, result=text_of("an answer to nobody"))
    yield encode(id=id, result=text_of("done"))


def notifications(id: object) -> Iterator[bytes]:
    for n in range(FLOOD):
        yield encode(method="notifications/message", params={"level": "error", "data": "x" * 500})
        yield encode(method="notifications/progress", params={"progressToken": f"unknown {n}", "progress": n})
    yield encode(id=id, result=text_of("done"))


def list_changes(id: object) -> Iterator[bytes]:
    global IS_LONG_LIST  # noqa: PLW0603  # the process has one client
    IS_LONG_LIST = True
    for _ in range(FLOOD):
        yield encode(method="notifications/tools/list_changed")
    yield encode(id=id, result=text_of("done"))


LINES = {
    "write_stderr": write_stderr,
    "endless_line": endless_line,
    "doubled_ids": doubled_ids,
    "unknown_ids": unknown_ids,
    "notifications": notifications,
    "list_changes": list_changes,
}


def long_list(id: object) -> bytes:
    names = (f'{{"name":"tool_{n}","inputSchema":{{"type":"object"}}}}' for n in range(MANY_TOOLS))
    return encode(id=id)[:-1] + b',"result":{"tools":[' + ",".join(names).encode() + b"]}}"


def serve_stdio() -> None:
    for line in sys.stdin.buffer:
        try:
            message = json.loads(line)
        except ValueError:
            continue  # the proxy passes text on that this parser refuses
        if "id" not in message or "method" not in message:
            continue
        id, name = message["id"], (message.get("params") or {}).get("name")
        if message["method"] == "tools/list" and IS_LONG_LIST:
            write(long_list(id) + b"\n")
        elif message["method"] == "tools/call" and name in LINES:
            for data in LINES[name](id):
                write(data + b"\n")
        else:
            result = answer_to(message)
            if result is not None:
                write(encode(id=id, result=result) + b"\n")


# --- HTTP -------------------------------------------------------------------------------------------------------------


async def endless_head() -> AsyncIterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    for n in itertools.count():
        yield b"".join(b"x-%d-%d: %s\r\n" % (n, m, b"h" * 100) for m in range(100))


async def endless_body() -> AsyncIterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    while True:
        yield b"100000\r\n" + b" " * MIB + b"\r\n"


async def compressed() -> AsyncIterator[bytes]:
    body = gzip.compress(b" " * (64 * MIB), 1)
    yield b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n"
    yield b"content-length: %d\r\n\r\n" % len(body) + body


async def giant_event() -> AsyncIterator[bytes]:
    """Yields one event of short lines that has no end."""
    yield b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    lines = b"data:\n" * 10_000
    while True:
        yield b"%x\r\n" % len(lines) + lines + b"\r\n"


RESPONSES = {
    "endless_head": endless_head,
    "endless_body": endless_body,
    "compressed": compressed,
    "giant_event": giant_event,
}


async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serves one request, and closes: no connection is kept for later."""
    with contextlib.suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
        await serve_request(reader, writer)
    writer.close()


async def serve_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
    message: Json = json.loads(await reader.readexactly(int(fields.get(b"content-length", b"0"))) or b"{}")
    name = (message.get("params") or {}).get("name")
    if message.get("method") == "tools/call" and name in RESPONSES:
        written = 0
        async for piece in RESPONSES[name]():
            writer.write(piece)
            await writer.drain()
            written += len(piece)
            if written > ENDLESS_BYTES:
                return
        return
    result = answer_to(message) if "id" in message and "method" in message else None
    body = b"" if result is None else encode(id=message["id"], result=result)
    status = b"405 No" if not head.startswith(b"post") else b"202 Yes" if result is None else b"200 OK"
    lines = [b"HTTP/1.1 " + status, b"connection: close", b"content-length: %d" % len(body)]
    writer.write(b"\r\n".join([*lines, b"content-type: application/json", b"", body]))
    await writer.drain()


async def serve_http(port: int) -> None:
    server = await asyncio.start_server(serve_connection, "127.0.0.1", port)
    print(f"listening on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    server.close()


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has left ends a process of stdio
    if "--exit" in sys.argv:
        sys.stdin.readline()
    elif "--port" in sys.argv:
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        asyncio.run(serve_http(int(sys.argv[sys.argv.index("--port") + 1])))
    else:
        serve_stdio()
