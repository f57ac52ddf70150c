"""Tests of calls with many notifications at once, over real sockets: however the bytes are divided, all arrive, once
and in order."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Iterator
from typing import ClassVar

import anyio
import pytest
from working_stub import ECHO, PATIENCE_S, Client, Stub, connected

STEPS = 150
CALL = (
    b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{},'
    b'"_meta":{"progressToken":"mine"}}}'
)


def notifications(token: bytes, dice: random.Random) -> Iterator[bytes]:
    """Progress in rows of any length, in plain and other forms, and log messages among it."""
    due = 0
    while due < STEPS:
        row = dice.choice([1, 1, 2, 30])
        form = dice.choice([b"%d", b"%d", b'%d,"total":150', b'%d,"message":"\\u00e9\\""', b'%d,"_meta":{}'])
        for step in range(due, min(due + row, STEPS)):
            params = b'{"progressToken":%b,"progress":%b}' % (token, form % step)
            yield b'{"jsonrpc":"2.0","method":"notifications/progress","params":%b}' % params
        due = min(due + row, STEPS)
        yield b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"at %d"}}' % due


class BurstStub(Stub):
    """Writes its messages in pieces of any size: several in one turn, or one in several turns."""

    dice: ClassVar[random.Random]

    def reply(self, head: bytes, body: bytes) -> bytes:
        if b'"tools/call"' not in body:
            return super().reply(head, body)
        params = json.loads(body)["params"]
        token, id = json.dumps(params["_meta"]["progressToken"]).encode(), str(json.loads(body)["id"]).encode()
        events = [b"event: message\ndata: %b\n\n" % message for message in notifications(token, self.dice)]
        events.append(b"event: message\ndata: %b\n\n" % (ECHO % (id, b"")))
        whole = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events) + b"0\r\n\r\n"
        cuts = sorted(self.dice.sample(range(len(whole)), self.dice.choice([0, 5, 200])))
        self.pieces = [whole[a:b] for a, b in itertools.pairwise([0, *cuts, len(whole)])]
        asyncio.get_running_loop().call_soon(self.go_on)
        return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

    def go_on(self) -> None:
        for _ in range(min(len(self.pieces), self.dice.choice([1, 1, 20]))):
            self.transport.write(self.pieces.pop(0))
        if self.pieces:
            asyncio.get_running_loop().call_soon(self.go_on)


async def received(client: Client) -> list[bytes]:
    """The messages that a client gets from its call to the answer."""
    form = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n%bcontent-length: %d\r\n\r\n%b"
    client.writer.write(form % (client.headers, len(CALL), CALL))
    await client.reader.readuntil(b"\r\n\r\n")
    body = b""
    while size := int(await client.reader.readuntil(b"\r\n"), 16):
        body += await client.reader.readexactly(size)
        await client.reader.readexactly(2)
    return [line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: ")]


@pytest.mark.parametrize("driver", ["protocols", "anyio"])
@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_read_brings_all_of_it_comes_in_order(
    driver: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISTHMUS_DRIVER", driver)
    BurstStub.dice = random.Random(seed)
    wanted = [*notifications(b'"mine"', random.Random(seed)), ECHO % (b"7", b"")]

    async def run() -> list[bytes]:
        with anyio.fail_after(PATIENCE_S):
            async with connected(BurstStub, is_modern=False) as client:
                return await received(client)

    assert [json.loads(message) for message in anyio.run(run)] == [json.loads(message) for message in wanted]
