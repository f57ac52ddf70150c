"""Newline-delimited JSON: the framing of stdio and of any other two-way stream of bytes.

A line ends at 0x0A and nowhere else. U+2028, NEL and a lone CR are data inside JSON strings, though many readers split
there. `LineReader` searches each byte for a line end once, when it arrives, and buffers only the line that is not yet
finished. The buffer therefore never holds a line end, and its pieces are joined once, when the line ends.

Source: 2024-11-05 to 2026-07-28, basic/transports, "stdio": messages are delimited by newlines and contain none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec

from ..base.budget import Share
from ..base.errors import LocalProtocolError
from .truncated import HEAD_SIZE_MAX_BYTES, TAIL_SIZE_MAX_BYTES

BOM: Final = b"\xef\xbb\xbf"
SMALL_SIZE_MAX_BYTES: Final = 4096
"""Pieces of a line below this size are gathered in one buffer: an object for each would cost more than the copy."""
JOINED_SIZE_MAX_BYTES: Final = 64 * 1024
"""A larger message becomes a write of its own: copying it costs more than a write."""


class Line(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, gc=False):
    """One line that is not blank, without its line end. A line longer than `joined_size_max_bytes` may come in pieces:
    `data` is the first piece and `rest` has the others."""

    data: bytes
    rest: tuple[bytes, ...] = ()


class Oversize(msgspec.Struct, frozen=True, tag=True):
    """A line over the limit, or without room for it, which was dropped. Reading goes on after its line end.

    Attributes:
        head: the first bytes, at most `HEAD_SIZE_MAX_BYTES` and at most the limit.
        size_bytes: the whole length without the LF.
        tail: the last bytes, at most `TAIL_SIZE_MAX_BYTES`. Head and tail serve to find the id of the message.
    """

    head: bytes
    size_bytes: int
    tail: bytes = b""


class LineReader:
    """Splits a stream of bytes into lines. Blank lines (white space only) and a byte order mark at the very start are
    removed.

    Args:
        line_size_max_bytes: the longest line accepted, counting everything before the LF. No more is ever buffered.
        joined_size_max_bytes: a longer line is returned in the pieces that arrived. None: every line is joined.
        share: takes the bytes of a line that is arriving and is longer than most. A line for which it has no room is
            dropped like one over the limit.
    """

    def __init__(
        self, *, line_size_max_bytes: int, joined_size_max_bytes: int | None = None, share: Share | None = None
    ) -> None:
        assert line_size_max_bytes > 0
        self._joined_size_max = line_size_max_bytes if joined_size_max_bytes is None else joined_size_max_bytes
        self._size_max = line_size_max_bytes
        self._share = share
        self._head_max = min(HEAD_SIZE_MAX_BYTES, line_size_max_bytes)
        self._pieces: list[bytes] = []  # of the unfinished line, or its head once it is over the limit
        self._small = bytearray()  # what follows the pieces: small pieces of the line, gathered
        self._kept_size = 0  # bytes in both
        self._dropped_size = 0  # length so far of a line over the limit; 0 if the line is not over it
        self._tail = b""  # the last bytes so far of a line over the limit
        self._is_first_line = True
        self._is_at_eof = False

    def receive_bytes(self, data: bytes) -> list[Line | Oversize]:
        """Takes the bytes that arrived, cut anywhere, and returns the lines that they complete.

        Raises:
            LocalProtocolError: the stream has ended already. The state is unchanged.
        """
        if self._is_at_eof:
            raise LocalProtocolError("got bytes after the end of the stream, expected a new LineReader")
        out: list[Line | Oversize] = []
        if b"\n" not in data:  # the middle of a long line: kept as it is, without a copy
            if data:
                self._keep(data)
            return out
        *ends, rest = data.split(b"\n")
        self._finish(ends[0], out)
        for piece in islice(ends, 1, None):  # whole lines, none the first of the stream: nothing to join or strip
            if len(piece) > self._size_max:
                self._finish(piece, out)
            elif (line := piece.removesuffix(b"\r")) and not line.isspace():
                out.append(Line(line))
        if rest:
            self._keep(rest)
        return out

    def receive_eof(self) -> list[Line | Oversize]:
        """Ends the stream, which is the end of an unfinished line, too. A second call returns nothing."""
        self._is_at_eof = True
        out: list[Line | Oversize] = []
        if self._kept_size or self._dropped_size:
            self._finish(b"", out)
        return out

    def _finish(self, piece: bytes, out: list[Line | Oversize]) -> None:
        """Ends the current line with `piece`."""
        if self._dropped_size or self._kept_size + len(piece) > self._size_max:
            self._keep(piece)
            size_bytes, tail = self._dropped_size, self._tail
            out.append(Oversize(self._take(b""), size_bytes, tail))
            return
        if self._kept_size > self._joined_size_max and self._pieces:
            first, *rest = self._take_long(piece)
            if any(part and not part.isspace() for part in (first, *rest)):
                out.append(Line(first, tuple(rest)))
            return
        # One CR belongs to the line end. It goes before the parts are joined, so that a long line is copied only once.
        line = self._take(piece.removesuffix(b"\r")) if piece else self._take(b"").removesuffix(b"\r")
        if line and not line.isspace():
            out.append(Line(line))

    def _keep(self, piece: bytes) -> None:
        """Adds `piece` to the current line, whose end has not arrived."""
        if self._dropped_size:
            self._dropped_size += len(piece)
            self._tail = (self._tail + piece[-TAIL_SIZE_MAX_BYTES:])[-TAIL_SIZE_MAX_BYTES:]
        elif (size_bytes := self._kept_size + len(piece)) <= self._size_max and self._has_room(size_bytes):
            self._store(piece)
        else:
            line = self._join(piece)
            self._dropped_size = size_bytes
            self._tail = line[-TAIL_SIZE_MAX_BYTES:]
            self._store(line[: self._head_max])

    def _has_room(self, size_bytes: int) -> bool:
        return self._share is None or self._share.hold(size_bytes)

    def _store(self, piece: bytes) -> None:
        self._kept_size += len(piece)
        if len(piece) < SMALL_SIZE_MAX_BYTES:
            self._small += piece
            return
        if self._small:
            self._pieces.append(bytes(self._small))
            self._small = bytearray()
        self._pieces.append(piece)

    def _take(self, piece: bytes) -> bytes:
        """Returns the current line with `piece` appended, and starts the next line."""
        line = self._join(piece) if self._kept_size else piece
        if self._dropped_size:
            self._dropped_size = 0
            self._tail = b""
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(BOM)
        return line

    def _take_long(self, piece: bytes) -> list[bytes]:
        """Returns the current line like `_take`, in pieces. The last piece has at least `SMALL_SIZE_MAX_BYTES`, so that
        the end of the message can be read from it alone."""
        pieces, last = self._pieces, bytes(self._small) + piece
        if len(last) < SMALL_SIZE_MAX_BYTES:
            last = pieces.pop() + last
        pieces.append(last.removesuffix(b"\r"))
        self._clear()
        if self._is_first_line:
            self._is_first_line = False
            while len(pieces[0]) < len(BOM) and BOM.startswith(pieces[0]) and len(pieces) > 1:  # it came in parts
                pieces[:2] = [pieces[0] + pieces[1]]
            pieces[0] = pieces[0].removeprefix(BOM)
        return pieces

    def _join(self, piece: bytes) -> bytes:
        """Returns the buffered bytes with `piece` appended, and empties the buffer."""
        line = b"".join((*self._pieces, self._small, piece))
        self._clear()
        return line

    def _clear(self) -> None:
        self._pieces, self._small, self._kept_size = [], bytearray(), 0
        if self._share is not None and self._share.amount:
            self._share.give_all_back()


def encode_lines(messages: Sequence[bytes]) -> list[bytes]:
    """Encodes messages as lines, in as few pieces as possible without copying messages over `JOINED_SIZE_MAX_BYTES`."""
    pieces: list[bytes] = []
    small: list[bytes] = []
    for message in messages:
        if len(message) <= JOINED_SIZE_MAX_BYTES:
            small.append(encode_line(message))
            continue
        pieces += (b"".join(small), message.replace(b"\r", b" ").replace(b"\n", b" "))
        small = [b"\n"]
    pieces.append(b"".join(small))
    return [piece for piece in pieces if piece]


def encode_line(message: bytes) -> bytes:
    """Encodes `message`, the JSON of one message, as a line. CR and LF in it become spaces: inside JSON text they can
    only be white space between tokens, since strings must escape them (RFC 8259, section 7)."""
    return message.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"
