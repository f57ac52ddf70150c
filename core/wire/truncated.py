"""What is left of bytes that are too many to keep: how they began, how they ended, and how many they were."""

from __future__ import annotations

from typing import Final

HEAD_SIZE_MAX_BYTES: Final = 4096
"""What is kept of the start of a message that is dropped: `jsonrpc`, `id` and `method`, where peers put them first."""

TAIL_SIZE_MAX_BYTES: Final = 320
"""What is kept of its end: `jsonrpc` and `id`, where other peers put them last."""


class Remains:
    """
    Args:
        head_size_max_bytes: the most that is kept of the start.

    Attributes:
        head: the first bytes.
        tail: the last bytes, at most `TAIL_SIZE_MAX_BYTES`; they may be among the first as well.
        size_bytes: of all.
    """

    __slots__ = ("_head_max", "head", "size_bytes", "tail")

    def __init__(self, head_size_max_bytes: int) -> None:
        self._head_max = head_size_max_bytes
        self.head = b""
        self.tail = b""
        self.size_bytes = 0

    @property
    def is_whole(self) -> bool:
        """Whether `head` is all there is."""
        return self.size_bytes == len(self.head)

    def receive_bytes(self, piece: bytes | bytearray) -> None:
        """What follows."""
        self._receive_ends(piece, piece, len(piece))

    def receive_remains(self, other: Remains, start: int) -> None:
        """What follows is what remains of other bytes, without the first `start` of them: their head holds those, and
        as many more as can be kept here."""
        if other.is_whole:
            self.receive_bytes(other.head[start:])
        else:
            self._receive_ends(other.head[start:], other.tail, other.size_bytes - start)

    def _receive_ends(self, first: bytes | bytearray, last: bytes | bytearray, size_bytes: int) -> None:
        if len(self.head) < self._head_max:
            self.head += first[: self._head_max - len(self.head)]
        if len(last) >= TAIL_SIZE_MAX_BYTES:
            self.tail = bytes(last[-TAIL_SIZE_MAX_BYTES:])
        else:
            self.tail = (self.tail + last)[-TAIL_SIZE_MAX_BYTES:]
        self.size_bytes += size_bytes
