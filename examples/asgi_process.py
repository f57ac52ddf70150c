"""The server processes of `asgi.py`, one for each session: a line is a message, in either direction."""

import asyncio
import os
import shlex
import signal
from collections.abc import Coroutine
from contextlib import suppress
from subprocess import PIPE
from typing import Any

from mcp_engine import Cause, Connected, Dial, End, LineChannel

GRACE_S = 5.0  # for what waits to be written, and for the server to go once its stdin has ended


def run(gateway: Any, dial: Dial, channel: Any) -> Coroutine[Any, Any, None]:
    channel.peer = LineChannel(gateway.engine, dial.channel, is_client=False, limits=gateway.limits)
    return serve(gateway, channel)


async def serve(gateway: Any, channel: Any) -> None:
    """A server from its start to its end, which is told."""
    gateway.tell(gateway.engine.receive_close, channel.peer.channel, await live(gateway, channel))
    del gateway.channels[channel.peer.channel]


async def live(gateway: Any, channel: Any) -> Cause:
    try:
        command = shlex.split(os.environ["MCP_COMMAND"])
        child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, start_new_session=True)
    except OSError as error:
        return Cause(End.UNREACHABLE, str(error), unsent=True)
    gateway.tell(gateway.engine.receive_open, channel.peer.channel, Connected())
    reading = asyncio.ensure_future(read(gateway, channel, child.stdout))
    writing = asyncio.ensure_future(write(gateway, channel, child.stdin))
    closing = asyncio.ensure_future(channel.until(lambda: channel.peer.is_closed))
    await asyncio.wait((reading, writing, closing), return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait((reading,), timeout=GRACE_S)  # one that reads nothing never gets to the end of its queue
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for task in (writing, closing):
        task.cancel()
    await reading
    return Cause(End.BROKEN, f"the server ended with exit code {await child.wait()}")


async def read(gateway: Any, channel: Any, stdout: Any) -> None:
    while data := await stdout.read(gateway.limits.read_size_bytes):
        gateway.tell(channel.peer.receive_bytes, data)
        await channel.until(lambda: not channel.peer.is_paused)
    gateway.tell(channel.peer.receive_eof)


async def write(gateway: Any, channel: Any, stdin: Any) -> None:
    with suppress(OSError):  # it reads no more
        while not channel.peer.is_closed or channel.peer.has_output:
            stdin.write(channel.peer.take())
            await stdin.drain()
            gateway.tell(channel.peer.written)
            await channel.until(lambda: channel.peer.has_output or channel.peer.is_closed)
    stdin.close()
