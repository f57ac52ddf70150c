"""An upstream that costs next to nothing: `python stub.py http` prints its port, `python stub.py stdio` speaks lines.

It answers initialize, tools/call (echo of a fixed result) and pings by pattern, parses nothing else, and offers no GET
stream, so that what is measured is the proxy.
"""

from __future__ import annotations

import asyncio
import re
import sys

ID = re.compile(rb'"id":\s*("[^"]*"|[0-9]+)')
LENGTH = re.compile(rb"content-length:\s*([0-9]+)", re.IGNORECASE)
HELLO = (
    b'{"jsonrpc":"2.0","id":%b,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
    b'"serverInfo":{"name":"stub","version":"1"}}}'
)
ECHO = b'{"jsonrpc":"2.0","id":%b,"result":{"content":[{"type":"text","text":"' + b"x" * 64 + b'"}]}}'


def answer(message: bytes) -> bytes | None:
    """The reply to one message, or None for a notification."""
    found = ID.search(message)
    if found is None:
        return None
    return (HELLO if b'"initialize"' in message else ECHO) % found[1]


class Http(asyncio.Protocol):
    sessions = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[: end + 4]
            length = LENGTH.search(head)
            size = int(length[1]) if length else 0
            if len(self.buffer) < end + 4 + size:
                return
            body, self.buffer = self.buffer[end + 4 : end + 4 + size], self.buffer[end + 4 + size :]
            self.transport.write(self.reply(head, body))

    def reply(self, head: bytes, body: bytes) -> bytes:
        if not head.startswith(b"POST"):
            status = b"405 Method Not Allowed" if head.startswith(b"GET") else b"200 OK"
            return b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % status
        message = answer(body)
        if message is None:
            return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
        session = b""
        if b'"initialize"' in body:
            Http.sessions += 1
            session = b"mcp-session-id: s%d\r\n" % Http.sessions
        return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b" % (
            session,
            len(message),
            message,
        )


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Http, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "http":
        asyncio.run(serve())
    for line in sys.stdin.buffer if sys.argv[1] == "stdio" else ():
        reply = answer(line)
        if reply is not None:
            sys.stdout.buffer.write(reply + b"\n")
            sys.stdout.buffer.flush()
