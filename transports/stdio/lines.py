"""Messages as lines over file descriptors, in both directions.

On asyncio, descriptors that know readiness are served by the callbacks of the event loop (`line_callbacks`). What is
here serves the others, and works on every loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
from anyio.lowlevel import checkpoint

from ...core.wire.ndjson import Line, LineReader, Oversize, Truncated, encode_lines
from ...core.wire.oversize import answer_for
from ..base.descriptors import Descriptor
from ..base.driver import uses_protocols
from ..base.gate import Gate
from .asyncio_lines import TURN_LINES, Reading, Take, Writing
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
    """Hand the lines of `source` to `take` while the gate is open, those of one read at once; return at the end of the
    stream.

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


async def _hand_over(lines: Sequence[Line | Oversize], take: Take) -> None:
    """A read may hold thousands of short lines: now and then others get their turn."""
    while lines:
        now, lines = lines[:TURN_LINES], lines[TURN_LINES:]
        take(now)
        try:
            if len(now) == TURN_LINES:
                await checkpoint()
        except anyio.get_cancelled_exc_class():
            if lines:  # they have been read, and nobody could read them again
                take(lines)
            raise


def messages_in(
    lines: Sequence[Line | Oversize | Truncated], size_max_bytes: int, log: Callable[[str], None], *, source: str
) -> list[bytes]:
    """What a server said in these lines; of one that is no message, the answer in its place, if it may have been one.

    Args:
        source: what they stood in, for people.
    """
    messages: list[bytes] = []
    for line in lines:
        if type(line) is Line:
            messages.append(b"".join((line.data, *line.rest)) if line.rest else line.data)
        elif isinstance(line, Oversize):
            log(f"dropped a line of {line.size_bytes} bytes, the limit is {size_max_bytes}: {line.head[:80]!r}")
            answer = answer_for(line.head, line.size_bytes, size_max_bytes, tail=line.tail)
            if answer is not None:
                messages.append(answer)
        else:
            log(f"{source} ended within a line, which is dropped: {line.data[:80]!r}")
    return messages
