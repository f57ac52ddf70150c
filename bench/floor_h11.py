"""The plain floor of the stack: an HTTP proxy on h11 and anyio streams that forwards whole requests and knows no MCP.

`python floor_h11.py PORT UPSTREAM_PORT`. It frames with h11 on both sides, as the product's transports do, and does
nothing else, so a ratio to it shows the cost of the protocol engine and its transports.
"""

from __future__ import annotations

import sys

import anyio
import h11
from anyio.abc import SocketStream

PORT, UPSTREAM = map(int, sys.argv[1:])
HEADERS = (b"content-type", b"accept", b"mcp-session-id", b"mcp-protocol-version")


async def gather(connection: h11.Connection, stream: SocketStream) -> tuple[h11.Request | h11.Response, bytes] | None:
    head: h11.Request | h11.Response | None = None
    body = []
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            try:
                connection.receive_data(await stream.receive(65536))
            except anyio.EndOfStream:
                connection.receive_data(b"")
        elif isinstance(event, h11.Request | h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            return head, b"".join(body)
        else:
            return None


async def handle(downstream: SocketStream) -> None:
    async with downstream, await anyio.connect_tcp("127.0.0.1", UPSTREAM) as upstream:
        server, client = h11.Connection(h11.SERVER), h11.Connection(h11.CLIENT)
        while (asked := await gather(server, downstream)) is not None:
            request, body = asked
            assert isinstance(request, h11.Request)
            headers = [(name, value) for name, value in request.headers if name in HEADERS]
            headers += [(b"host", b"127.0.0.1"), (b"content-length", b"%d" % len(body))]
            await upstream.send(
                b"".join(
                    client.send(part) or b""
                    for part in (
                        h11.Request(method=request.method, target=request.target, headers=headers),
                        h11.Data(data=body),
                        h11.EndOfMessage(),
                    )
                )
            )
            answered = await gather(client, upstream)
            assert answered is not None
            response, body = answered
            assert isinstance(response, h11.Response)
            headers = [(name, value) for name, value in response.headers if name in HEADERS]
            headers += [(b"content-length", b"%d" % len(body))]
            await downstream.send(
                b"".join(
                    server.send(part) or b""
                    for part in (
                        h11.Response(status_code=response.status_code, headers=headers),
                        h11.Data(data=body),
                        h11.EndOfMessage(),
                    )
                )
            )
            client.start_next_cycle()
            server.start_next_cycle()


async def main() -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=PORT, backlog=4096)
    await listener.serve(handle)


if __name__ == "__main__":
    anyio.run(main)
