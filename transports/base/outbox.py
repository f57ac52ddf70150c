"""What one connection still has to write, and how long its client may take for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import anyio
from anyio.abc import ByteStream

from ...core.base.limits import KIB
from .clock import loop_clock
from .wire import Silent

PIECE_MIN_BYTES: Final = 16 * KIB
"""Each piece written is progress in the sense of `Limits.write_timeout_s`: small ones, so that a reader who takes
little, but steadily, is not taken for one who takes nothing."""
PIECE_MAX_BYTES: Final = 64 * KIB
"""For brisk readers, to whom small pieces would cost half the throughput."""
BRISK_S: Final = 0.01
"""A piece that leaves within this time may be followed by a larger one."""


class Outbox:
    """Collects bytes without awaiting; its one writer sends all that is there in one write.

    Attributes:
        message_bytes: how much of what is queued is messages rather than framing.
    """

    def __init__(self, stream: ByteStream, *, write_timeout_s: float) -> None:
        self.message_bytes = 0
        self._stream = stream
        self._write_timeout_s = write_timeout_s
        self._queued: list[bytes] = []
        self._work = anyio.Event()
        self._piece_bytes = PIECE_MIN_BYTES
        self._now = loop_clock()

    @property
    def is_empty(self) -> bool:
        return not self._queued

    def put(self, data: bytes) -> None:
        self._queued.append(data)
        self._work.set()

    def wake(self) -> None:
        """Make the writer look for other work than bytes."""
        self._work.set()

    def clear(self) -> None:
        self._queued.clear()

    async def wait(self) -> None:
        """Until there may be something to do."""
        await self._work.wait()
        self._work = anyio.Event()

    async def flush(self) -> int:
        """Send all that is queued now. Returns how many bytes of messages that was.

        Raises:
            Silent: the client took nothing for `write_timeout_s`.
            anyio.BrokenResourceError: the client is gone.
        """
        queued, self._queued = self._queued, []
        message_bytes, self.message_bytes = self.message_bytes, 0
        with anyio.CancelScope() as scope:
            for data in _runs(queued):
                start = 0
                while start < len(data):
                    began_at = self._now()
                    scope.deadline = began_at + self._write_timeout_s
                    await self._stream.send(data[start : start + self._piece_bytes])
                    start += self._piece_bytes
                    is_brisk = self._now() - began_at < BRISK_S
                    self._piece_bytes = min(2 * self._piece_bytes, PIECE_MAX_BYTES) if is_brisk else PIECE_MIN_BYTES
        if scope.cancelled_caught:
            raise Silent
        return message_bytes


def _runs(queued: list[bytes]) -> Iterator[bytes]:
    """All that is queued, in order: what is small is joined, what is large is not copied for it."""
    run: list[bytes] = []
    size_bytes = 0
    for data in queued:
        run.append(data)
        size_bytes += len(data)
        if size_bytes >= PIECE_MAX_BYTES:
            yield b"".join(run)
            run, size_bytes = [], 0
    if run:
        yield b"".join(run)
