"""The metrics of all workers on one page: each tells its own on a socket, and the one that is asked adds a label."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio.abc import SocketListener, SocketStream, TaskStatus

ENDING: Final = ".metrics"
"""The end of the name of each worker's socket, in the folder of all of them; its tag is before it."""
ANSWER_TIMEOUT_S: Final = 2.0
"""Seconds that a worker may take to tell its metrics; it takes some milliseconds. At it: they are missing, and
`isthmus_worker_answers` is 0."""
SIZE_MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the metrics of one worker: thousands of servers and tools. At it: they are missing."""
_SAMPLE: Final = re.compile(rb"([A-Za-z_:][A-Za-z0-9_:]*)(\{)?")

Expose = Callable[[], Awaitable[bytes]]
"""Returns the metrics of this worker, in the text format of Prometheus."""


async def tell_metrics(
    folder: str, tag: str, expose: Expose, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Tells the metrics of this worker to each that connects, until cancelled."""
    async with await _listen(os.path.join(folder, f"{tag}{ENDING}")) as listener:

        async def tell(stream: SocketStream) -> None:
            async with stream:
                with anyio.move_on_after(ANSWER_TIMEOUT_S):
                    try:
                        await stream.send(await expose())
                    except anyio.BrokenResourceError:
                        return

        task_status.started()
        await listener.serve(tell)


async def gathered(folder: str, tag: str, own: bytes) -> bytes:
    """Returns the metrics of all workers, `own` among them."""
    found: dict[str, bytes | None] = {tag: own}

    async def ask(other: str) -> None:
        found[other] = await _asked(os.path.join(folder, f"{other}{ENDING}"))

    async with anyio.create_task_group() as tasks:
        for name in os.listdir(folder):
            other = name.removesuffix(ENDING)
            if name != other != tag:
                tasks.start_soon(ask, other)
    return merged(found)


def merged(parts: dict[str, bytes | None]) -> bytes:
    """Returns the metrics of several workers as one text, with the label `worker` for each sample.

    Args:
        parts: the metrics of each worker, by its tag; None: it does not answer.
    """
    families: dict[bytes, list[bytes]] = {}  # the lines of each, by the line that tells its type
    heads: dict[bytes, bytes] = {}
    for tag in sorted(parts):
        help, family = b"", b""
        for line in (parts[tag] or b"").splitlines():
            if line.startswith(b"# HELP "):
                help = line
            elif line.startswith(b"# TYPE "):
                family = line
                heads.setdefault(family, help)
                families.setdefault(family, [])
            elif line and (match := _SAMPLE.match(line)) is not None:
                label = b'worker="%b"' % tag.encode()
                rest = line[match.end() :]
                between = b"{%b," % label if match[2] else b"{%b}" % label
                families.setdefault(family, []).append(match[1] + between + rest)
    lines = [line for family, samples in families.items() for line in (heads.get(family, b""), family, *samples)]
    lines += [b"# HELP isthmus_worker_answers 1: the metrics of this worker are on the page; 0: they are missing."]
    lines += [b"# TYPE isthmus_worker_answers gauge"]
    lines += [
        b'isthmus_worker_answers{worker="%b"} %d' % (tag.encode(), parts[tag] is not None) for tag in sorted(parts)
    ]
    return b"\n".join([*lines, b""])


async def _listen(path: str) -> SocketListener:
    return await anyio.create_unix_listener(path, mode=0o600)


async def _asked(path: str) -> bytes | None:
    """Returns the metrics of another worker; None if it does not answer."""
    told = bytearray()
    with anyio.move_on_after(ANSWER_TIMEOUT_S):
        try:
            async with await anyio.connect_unix(path) as stream:
                async for piece in stream:
                    told += piece
                    if len(told) > SIZE_MAX_BYTES:
                        return None
        except (OSError, anyio.BrokenResourceError):
            return None
        return bytes(told) or None
    return None
