"""Messages as lines over file descriptors, in both directions.

On asyncio, descriptors that know readiness are served by the callbacks of the event loop (`line_callbacks`). What is
here serves the others, and works on every loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
from anyio.lowlevel import checkpoint

from ..core.wire.ndjson import Line, LineReader, Oversize, Truncated, encode_lines
from ..core.wire.oversize import answer_for
from .descriptors import Descriptor
from .driver import uses_protocols
from .gate import Gate
from .line_callbacks import TURN_LINES, Reading, Writing
from .line_outbox import Outbox


async def read_lines(
    source: Descriptor,
    lines: LineReader,
    gate: Gate,
    take: Callable[[Line | Oversize | Truncated], None],
    *,
    read_size_bytes: int,
    protocols: bool | None = None,
) -> None:
    """Hand each line of `source` to `take` while the gate is open; return at the end of the stream.

    Args:
        protocols: whether the event loop's callbacks do it; None: wherever that is possible.
    """
    if source.is_readiness_known and uses_protocols(protocols):
        await Reading(source, lines, gate, take, read_size_bytes=read_size_bytes).run()
        return
    while True:
        await gate.wait_open()
        await source.wait_readable()
        if not gate.is_open:
            continue
        data = await source.read(read_size_bytes)
        if data == b"":
            break
        await _hand_over(lines.receive_bytes(data or b""), take)
    for cut in lines.receive_eof():
        take(cut)


async def write_lines(
    outbox: Outbox,
    sink: Descriptor,
    report: Callable[[int], None],
    *,
    stall_timeout_s: float | None = None,
    protocols: bool | None = None,
) -> None:
    """Write what is in the outbox and what will be, until its end; `report` the sizes written, framing not counted.

    Args:
        protocols: as for `read_lines`.

    Raises:
        OSError, TimeoutError: as `Descriptor.write`.
    """
    if sink.is_stream and uses_protocols(protocols):
        await Writing(outbox, sink, report, stall_timeout_s=stall_timeout_s).run()
        return
    try:
        while not (outbox.is_ended and outbox.is_empty):
            if outbox.is_empty:
                wake = anyio.Event()
                outbox.watcher = wake.set
                await wake.wait()
            messages, size_bytes = outbox.take()
            for piece in encode_lines(messages):
                await sink.write(piece, stall_timeout_s=stall_timeout_s)
            if size_bytes:
                report(size_bytes)
    finally:
        outbox.watcher = None


async def _hand_over(lines: Sequence[Line | Oversize], take: Callable[[Line | Oversize | Truncated], None]) -> None:
    """A read may hold thousands of short lines: now and then others get their turn."""
    left = iter(lines)
    try:
        for count, line in enumerate(left, 1):
            take(line)
            if count % TURN_LINES == 0:
                await checkpoint()
    except anyio.get_cancelled_exc_class():
        for line in left:  # they have been read, and nobody could read them again
            take(line)
        raise


def salvage(
    line: Oversize | Truncated, size_max_bytes: int, log: Callable[[str], None], *, source: str
) -> bytes | None:
    """What a server's line that is no message is taken for: an answer in its place, if it may be one.

    Args:
        source: what it stood in, for people.
    """
    if isinstance(line, Truncated):
        log(f"{source} ended within a line, which is dropped: {line.data[:80]!r}")
        return None
    log(f"dropped a line of {line.size_bytes} bytes, the limit is {size_max_bytes}: {line.head[:80]!r}")
    return answer_for(line.head, line.size_bytes, size_max_bytes, tail=line.tail)
