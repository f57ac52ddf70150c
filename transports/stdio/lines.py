"""Messages as lines over file descriptors, in both directions.

On asyncio, descriptors whose readiness is known are served by callbacks of the event loop (`asyncio_lines`). The code
here serves all others, and works on every event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
from anyio.lowlevel import checkpoint

from ...core.wire.ndjson import Line, LineReader, Oversize, encode_lines
from ...core.wire.oversize import answer_for
from ..base.descriptors import Descriptor
from ..base.driver import uses_protocols
from ..base.gate import Gate
from .asyncio_lines import TURN_LINES, LineReading, LineWriting, Take
from .outbox import Outbox


async def read_lines(
    source: Descriptor,
    lines: LineReader,
    gate: Gate,
    take: Take,
    *,
    read_size_bytes: int,
    protocols: bool | None = None,
) -> None:
    """Hands the lines of `source`, those of one read at once, to `take` while the gate is open. Returns at the end of
    the stream.

    Args:
        protocols: True to use callbacks of asyncio's event loop, False for the portable code; None: callbacks wherever
            possible.
    """
    if source.is_readiness_known and uses_protocols(protocols):
        await LineReading(source, lines, gate, take, read_size_bytes=read_size_bytes).run()
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
    if cut := lines.receive_eof():
        take(cut)


async def write_lines(
    outbox: Outbox,
    sink: Descriptor,
    report: Callable[[int], None],
    *,
    stall_timeout_s: float | None = None,
    protocols: bool | None = None,
) -> None:
    """Writes the messages of the outbox until it ends, and reports the sizes written, without framing, to `report`.

    Args:
        protocols: as for `read_lines`.

    Raises:
        OSError, TimeoutError: as `Descriptor.write`.
    """
    if sink.is_stream and uses_protocols(protocols):
        await LineWriting(outbox, sink, report, stall_timeout_s=stall_timeout_s).run()
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


async def _hand_over(lines: Sequence[Line | Oversize], take: Take) -> None:
    """Hands over `TURN_LINES` lines at a time, so that others get their turn: one read may hold thousands of short
    lines."""
    while lines:
        now, lines = lines[:TURN_LINES], lines[TURN_LINES:]
        take(now)
        try:
            if len(now) == TURN_LINES:
                await checkpoint()
        except anyio.get_cancelled_exc_class():
            if lines:  # they were read from the pipe, so nobody else can read them
                take(lines)
            raise


def messages_in(lines: Sequence[Line | Oversize], size_max_bytes: int, log: Callable[[str], None]) -> list[bytes]:
    """Returns the messages in lines of a server. A line over the limit is replaced by an error response if it may have
    been a response."""
    messages: list[bytes] = []
    for line in lines:
        if isinstance(line, Line):
            messages.append(b"".join((line.data, *line.rest)) if line.rest else line.data)
        else:
            why = f"the limit is {size_max_bytes}" if line.size_bytes > size_max_bytes else "others left no room for it"
            log(f"dropped a line of {line.size_bytes} bytes, {why}: {line.head[:80]!r}")
            answer = answer_for(line.head, line.size_bytes, size_max_bytes, tail=line.tail)
            if answer is not None:
                messages.append(answer)
    return messages
