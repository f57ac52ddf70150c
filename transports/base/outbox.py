"""The write queue of one stream, and the time limit its peer has to take the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import anyio
from anyio.abc import ByteStream

from ...core.base.limits import KIB
from .clock import loop_clock
from .wire import Silent

PIECE_MIN_BYTES: Final = 16 * KIB
"""Size of the first pieces. Each piece written counts as progress for `Limits.write_timeout_s`, so pieces are small: a
peer that reads slowly but steadily does not time out."""
PIECE_MAX_BYTES: Final = 64 * KIB
"""Size of pieces for fast readers, for whom small pieces would halve the throughput."""
BRISK_S: Final = 0.01
"""A piece that is written within this time may be followed by one twice as large."""


class Outbox:
    """Queues bytes without awaiting. Its single writer task sends everything queued at once with `flush`.

    Attributes:
        message_bytes: how many of the queued bytes belong to messages, without framing.
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
        """Wakes the writer for work other than bytes."""
        self._work.set()

    def clear(self) -> None:
        self._queued.clear()

    async def wait(self) -> None:
        """Returns when there may be something to do."""
        await self._work.wait()
        self._work = anyio.Event()

    async def flush(self) -> int:
        """Sends everything that is queued now. Returns how many bytes of messages that was.

        Raises:
            Silent: the peer took nothing for `write_timeout_s`.
            anyio.BrokenResourceError: the peer is gone.
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
    """Yields all queued bytes in order, joined up to about `PIECE_MAX_BYTES`. Large items are not copied to join
    them."""
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
