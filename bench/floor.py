"""The least a proxy in this language can cost: `python floor.py MODE PORT …` listens on that port.

- `relay PORT UPSTREAM_PORT`: bytes from socket to socket through asyncio protocols, on uvloop where it is installed.
- `relay-anyio PORT UPSTREAM_PORT`: the same through anyio streams.
- `lines PORT COMMAND ARG…`: HTTP in front of one process that speaks lines; heads are searched, not parsed.
- `posts UPSTREAM_PORT`: lines on its own stdin and stdout in front of an HTTP server; one connection for each request
  in flight.

The last two read nothing but `id` and `progressToken`, which must be unique, and trust their peers in everything. They
exist to compute ratios to them, not to be used as proxies.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Coroutine
from typing import Any, cast

ID = re.compile(rb'"(?:id|progressToken)": ?([0-9]+)')
LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)


class Relay(asyncio.Protocol):
    """One connection of a pair; its bytes go to `other`."""

    transport: asyncio.Transport
    other: Relay | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are of no class of asyncio

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()


class Accepted(Relay):
    port = 0
    dialing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.early: list[bytes] = []
        self.dialing = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        _, dialed = await asyncio.get_running_loop().create_connection(Relay, "127.0.0.1", self.port)
        self.other, dialed.other = dialed, self
        dialed.transport.writelines(self.early)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self.early.append(data)
        else:
            self.other.transport.write(data)


async def relay(port: int, upstream_port: int) -> None:
    Accepted.port = upstream_port
    await _serve(Accepted, port)


async def _serve(protocol: type[asyncio.Protocol], port: int) -> None:
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


def relay_anyio(port: int, upstream_port: int) -> Coroutine[Any, Any, None]:
    import anyio
    from anyio.abc import SocketStream

    async def copy(source: SocketStream, sink: SocketStream) -> None:
        try:
            async for data in source:
                await sink.send(data)
            await sink.send_eof()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            await sink.aclose()

    async def handle(downstream: SocketStream) -> None:
        async with downstream, await anyio.connect_tcp("127.0.0.1", upstream_port) as upstream:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(copy, downstream, upstream)
                await copy(upstream, downstream)

    async def serve() -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port, backlog=4096)
        await listener.serve(handle)

    return serve()


class Child(asyncio.SubprocessProtocol):
    """The process behind `lines`; `owed` has the connection that waits for each id."""

    stdin: asyncio.WriteTransport

    def __init__(self) -> None:
        self.owed: dict[bytes, Post] = {}
        self.parts: list[bytes] = []

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        first, *more = data.split(b"\n")
        self.parts.append(first)
        for part in more:
            self._deliver(b"".join(self.parts))
            self.parts = [part]

    def _deliver(self, message: bytes) -> None:
        found = ID.search(message, 0, 200)
        assert found is not None, message[:200]
        if b'"method"' in message[:60]:
            self.owed[found[1]].send_event(message)
        else:
            self.owed.pop(found[1]).send_reply(message)


class Post(asyncio.Protocol):
    child: Child
    transport: asyncio.Transport
    is_stream = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are of no class of asyncio
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer = self.buffer + data if self.buffer else data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            found = LENGTH.search(self.buffer, 0, end)
            whole = end + 4 + (int(found[1]) if found else 0)
            if len(self.buffer) < whole:
                return
            body, self.buffer = self.buffer[end + 4 : whole], self.buffer[whole:]
            self._forward(body)

    def _forward(self, body: bytes) -> None:
        id = ID.search(body)
        if id is None:
            status = b"202 Accepted" if body else b"200 OK"  # a notification, or a DELETE
            self.transport.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % status)
        else:
            self.child.owed[id[1]] = self
        if body:
            self.child.stdin.writelines([body, b"\n"])

    def send_event(self, message: bytes) -> None:
        if not self.is_stream:
            self.is_stream = True
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
        self.transport.write(b"%x\r\ndata: %b\n\n\r\n" % (len(message) + 8, message))

    def send_reply(self, message: bytes) -> None:
        if self.is_stream:
            self.send_event(message)
            self.is_stream = False
            self.transport.write(b"0\r\n\r\n")
            return
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: one\r\ncontent-length: %d\r\n\r\n"
        self.transport.writelines([head % len(message), message])


async def lines(port: int, command: list[str]) -> None:
    pipes = await asyncio.get_running_loop().subprocess_exec(Child, *command, stderr=None)
    Post.child = pipes[1]
    Post.child.stdin = cast(asyncio.WriteTransport, pipes[0].get_pipe_transport(0))
    await _serve(Post, port)


class Caller(asyncio.Protocol):
    """One connection of `posts`; idle ones wait in `idle`."""

    idle: list[Caller]
    session = b""
    stdout: asyncio.WriteTransport
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are of no class of asyncio
        self.buffer = b""

    def send(self, body: bytes) -> None:
        head = (
            b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            b"accept: application/json, text/event-stream\r\n%bcontent-length: %d\r\n\r\n"
        )
        self.transport.writelines([head % (Caller.session, len(body)), body])

    def data_received(self, data: bytes) -> None:
        self.buffer = self.buffer + data if self.buffer else data
        end = self.buffer.find(b"\r\n\r\n")
        found = LENGTH.search(self.buffer, 0, end) if end >= 0 else None
        if found is None or len(self.buffer) < end + 4 + int(found[1]):
            return
        if not Caller.session and (named := re.search(rb"mcp-session-id: [^\r]+\r\n", self.buffer)):
            Caller.session = named[0]
        if len(self.buffer) > end + 4:
            Caller.stdout.writelines([self.buffer[end + 4 :], b"\n"])
        self.buffer = b""
        Caller.idle.append(self)


class Lines(asyncio.Protocol):
    def __init__(self, port: int, ended: asyncio.Future[None]) -> None:
        self.port, self.ended, self.buffer = port, ended, b""
        self.posting: set[asyncio.Task[None]] = set()

    def data_received(self, data: bytes) -> None:
        *whole, self.buffer = (self.buffer + data).split(b"\n")
        for line in whole:
            if Caller.idle:
                Caller.idle.pop().send(line)
            else:
                task = asyncio.get_running_loop().create_task(self._dial(line))
                self.posting.add(task)
                task.add_done_callback(self.posting.discard)

    async def _dial(self, line: bytes) -> None:
        _, caller = await asyncio.get_running_loop().create_connection(Caller, "127.0.0.1", self.port)
        caller.send(line)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(None)


async def posts(port: int) -> None:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    Caller.idle = []
    Caller.stdout, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
    await loop.connect_read_pipe(lambda: Lines(port, ended), sys.stdin)
    await ended


def main(mode: str, arguments: list[str]) -> None:
    work = {
        "relay": lambda: relay(int(arguments[0]), int(arguments[1])),
        "relay-anyio": lambda: relay_anyio(int(arguments[0]), int(arguments[1])),
        "lines": lambda: lines(int(arguments[0]), arguments[1:]),
        "posts": lambda: posts(int(arguments[0])),
    }[mode]()
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
