"""The server processes of `asgi.py`, one for each session: a line is a message, in either direction."""

import asyncio
import os
import shlex
import signal
from contextlib import suppress
from subprocess import PIPE
from typing import Any

from mcp_engine import Cause, Connected, Dial, End, Line, LineReader, Send, answer_for, encode_line

GRACE_S = 5.0  # for what waits to be written, and for the server to go once its stdin has ended


async def run(gateway: Any, dial: Dial, channel: Any) -> None:
    """A server from its start to its end, which is told."""
    gateway.tell(gateway.engine.receive_close, dial.channel, await live(gateway, dial, channel))
    del gateway.channels[dial.channel]


async def live(gateway: Any, dial: Dial, channel: Any) -> Cause:
    try:
        command = shlex.split(os.environ["MCP_COMMAND"])
        child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, start_new_session=True)
    except OSError as error:
        return Cause(End.UNREACHABLE, str(error), unsent=True)
    gateway.tell(gateway.engine.receive_open, dial.channel, Connected())
    reading = asyncio.ensure_future(read(gateway, dial, channel, child.stdout))
    writing = asyncio.ensure_future(write(gateway, dial, channel, child.stdin))
    closing = asyncio.ensure_future(channel.is_closed.wait())
    await asyncio.wait((reading, writing, closing), return_when=asyncio.FIRST_COMPLETED)
    channel.may_read.set()  # what it still says is dropped
    await asyncio.wait((reading,), timeout=GRACE_S)  # one that reads nothing never gets to the end of its queue
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for task in (writing, closing):
        task.cancel()
    await reading
    return Cause(End.BROKEN, f"the server ended with exit code {await child.wait()}")


async def read(gateway: Any, dial: Dial, channel: Any, stdout: Any) -> None:
    size_max = gateway.limits.reply_size_max_bytes
    lines = LineReader(line_size_max_bytes=size_max)
    while await channel.may_read.wait() and (data := await stdout.read(gateway.limits.read_size_bytes)):
        for line in lines.receive_bytes(data):
            said = line.data if isinstance(line, Line) else answer_for(line.head, line.size_bytes, size_max)
            if said:  # else nobody waits for the line that is too long
                gateway.tell(gateway.engine.receive_message, dial.channel, said)


async def write(gateway: Any, dial: Dial, channel: Any, stdin: Any) -> None:
    with suppress(OSError):  # it reads no more
        while isinstance(order := await channel.orders.get(), Send):
            stdin.write(encode_line(order.message))
            await stdin.drain()
            gateway.tell(gateway.engine.receive_sent, dial.channel, len(order.message))
    stdin.close()
