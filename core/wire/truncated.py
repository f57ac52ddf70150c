"""The beginning, the end and the size of a message that is too large to keep."""

from __future__ import annotations

from typing import Final

HEAD_SIZE_MAX_BYTES: Final = 4096
"""The bytes kept from the start of a dropped message: `jsonrpc`, `id` and `method`, where most peers put them first."""

TAIL_SIZE_MAX_BYTES: Final = 320
"""The bytes kept from the end of a dropped message: `jsonrpc` and `id`, where other peers put them last."""


class HeadAndTail:
    """The first and last bytes of a stream of pieces, and its size.

    Args:
        head_size_max_bytes: the most bytes that are kept from the start.

    Attributes:
        head: the first bytes.
        tail: the last bytes, at most `TAIL_SIZE_MAX_BYTES`. They may overlap with `head`.
        size_bytes: the bytes received in all.
    """

    __slots__ = ("_head_max", "head", "size_bytes", "tail")

    def __init__(self, head_size_max_bytes: int) -> None:
        self._head_max = head_size_max_bytes
        self.head = b""
        self.tail = b""
        self.size_bytes = 0

    @property
    def is_whole(self) -> bool:
        """True if `head` holds everything that was received."""
        return self.size_bytes == len(self.head)

    def receive_bytes(self, piece: bytes | bytearray) -> None:
        """Appends a piece."""
        self._receive_ends(piece, piece, len(piece))

    def receive_ends(self, other: HeadAndTail, start: int) -> None:
        """Appends the bytes that `other` stands for, without the first `start` of them.

        The head of `other` must hold those `start` bytes and as many more as fit into this head.
        """
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
