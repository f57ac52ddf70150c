"""A buffer for bytes that arrive in pieces and are needed whole: joined once, however large the sum and small the
pieces."""

from __future__ import annotations

from typing import Final

SMALL_SIZE_BYTES: Final = 4 * 1024
"""Pieces below this size are gathered in one buffer: an object for each would cost more than its content."""


class Chunks:
    """A buffer of byte pieces.

    Attributes:
        size_bytes: the bytes appended since the buffer was last emptied.
    """

    __slots__ = ("_pieces", "size_bytes")

    def __init__(self) -> None:
        self._pieces: list[bytes | bytearray] = []
        self.size_bytes = 0

    def append(self, piece: bytes | bytearray) -> None:
        pieces = self._pieces
        self.size_bytes += len(piece)
        if not pieces or len(piece) >= SMALL_SIZE_BYTES:
            pieces.append(bytes(piece))
        elif isinstance(pieces[-1], bytearray):
            pieces[-1] += piece
        else:
            pieces.append(bytearray(piece))

    def startswith(self, prefix: bytes) -> bool:
        """True if the first piece starts with `prefix`; later pieces are not looked at."""
        return bool(self._pieces) and self._pieces[0].startswith(prefix)

    def copy_beginning(self, size_bytes: int) -> bytes:
        """Returns the first `size_bytes` bytes, or all of them if there are fewer."""
        first = bytes(self._pieces[0][:size_bytes]) if self._pieces else b""
        return first if len(first) == min(size_bytes, self.size_bytes) else b"".join(self._pieces)[:size_bytes]

    def take_pieces(self, beginning_bytes: int = 0) -> tuple[bytes, ...]:
        """Returns all pieces as they arrived, except that small ones are joined, and empties the buffer. The first
        piece has at least `beginning_bytes`, or everything if there is less."""
        pieces, self._pieces = self._pieces, []
        self.size_bytes = 0
        count, first_bytes = 0, 0
        while first_bytes < beginning_bytes and count < len(pieces):
            first_bytes += len(pieces[count])
            count += 1
        if count > 1:
            pieces[:count] = [b"".join(pieces[:count])]
        return tuple(map(bytes, pieces))

    def take(self, skip: int = 0) -> bytes:
        """Returns everything but the first `skip` bytes, which the first piece must hold, and empties the buffer."""
        pieces, self._pieces = self._pieces, []
        self.size_bytes = 0
        if skip:
            pieces[0] = pieces[0][skip:]
        return b"".join(pieces)
