"""The server processes of `asgi.py`: a line is a message, in either direction."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from subprocess import PIPE

from mcp_engine import Cause, ChannelId, Close, Connected, End, Engine, Limits, Pass, Send
from mcp_engine.wire.ndjson import Line, LineReader, encode_line
from mcp_engine.wire.oversize import answer_for

GRACE_S = 5.0  # for a server to go once its stdin has ended
LIMITS = Limits()
Tell = Callable[..., None]  # calls an input of the engine, and queues what comes of it


class Channel:
    """A server, or one request of a client. What it is to be sent waits in `outbox`; `Pause` keeps that short."""

    def __init__(self, number: ChannelId) -> None:
        self.number = number
        self.outbox: asyncio.Queue[Send | Pass | Close] = asyncio.Queue()
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.is_over = asyncio.Event()
        self.server: asyncio.Future[None] | None = None


async def run(command: list[str], channel: Channel, engine: Engine, tell: Tell) -> Cause:
    """A server from its start to its end, which is told."""
    try:
        child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, start_new_session=True)
    except OSError as error:
        return Cause(End.UNREACHABLE, str(error), unsent=True)
    assert child.stdin and child.stdout
    tell(engine.receive_open, channel.number, Connected())
    reading = asyncio.ensure_future(read(child.stdout, channel, engine, tell))
    writing = asyncio.ensure_future(write(child.stdin, channel, engine, tell))
    await channel.is_over.wait()
    channel.outbox.put_nowait(Close(channel.number))  # at which its stdin is closed
    channel.may_read.set()  # what it still says is dropped
    await asyncio.wait((reading,), timeout=GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    await asyncio.wait((reading, writing))
    return Cause(End.BROKEN, f"the server ended with exit code {await child.wait()}")


async def read(stdout: asyncio.StreamReader, channel: Channel, engine: Engine, tell: Tell) -> None:
    lines, size_max = LineReader(line_size_max_bytes=LIMITS.reply_size_max_bytes), LIMITS.reply_size_max_bytes
    while await channel.may_read.wait() and (data := await stdout.read(LIMITS.read_size_bytes)):
        for line in lines.receive_bytes(data):
            said = line.data if isinstance(line, Line) else answer_for(line.head, line.size_bytes, size_max)
            tell(engine.receive_message, channel.number, said or b"{}")
    channel.is_over.set()


async def write(stdin: asyncio.StreamWriter, channel: Channel, engine: Engine, tell: Tell) -> None:
    with suppress(OSError):  # it reads no more
        while isinstance(order := await channel.outbox.get(), Send):
            stdin.write(encode_line(order.message))
            await stdin.drain()
            tell(engine.receive_sent, channel.number, len(order.message))
    stdin.close()
    channel.is_over.set()
