"""Bytes that come in pieces and are wanted whole: joined once, however large they get and however small the pieces."""

from __future__ import annotations

from typing import Final

SMALL_SIZE_BYTES: Final = 4 * 1024
"""Pieces below this are gathered in a buffer: an object for each would cost more than what it holds."""


class Pieces:
    """Attributes:
    size_bytes: of all that was appended since it was taken last.
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
        """Whether the first piece does."""
        return bool(self._pieces) and self._pieces[0].startswith(prefix)

    def copy_beginning(self, size_bytes: int) -> bytes:
        """The first so many bytes, or all there are."""
        first = bytes(self._pieces[0][:size_bytes]) if self._pieces else b""
        return first if len(first) == min(size_bytes, self.size_bytes) else b"".join(self._pieces)[:size_bytes]

    def take_pieces(self, beginning_bytes: int = 0) -> tuple[bytes, ...]:
        """All, as it came, but for what was small: the first piece has `beginning_bytes` or more, or is all there is.
        Nothing is left here."""
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
        """All but the first `skip` bytes, which the first piece must hold. Nothing is left here."""
        pieces, self._pieces = self._pieces, []
        self.size_bytes = 0
        if skip:
            pieces[0] = pieces[0][skip:]
        return b"".join(pieces)
