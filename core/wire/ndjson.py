"""Messages as lines: the framing of stdio and of any other two-way stream of bytes.

A line ends at 0x0A and nowhere else: U+2028, NEL and a lone CR are data inside JSON strings, though many readers split
there. Bytes that arrive are searched once, for the line end, and kept only while their line is unfinished; so what is
kept never holds a line end, and nothing of it is looked at again before the pieces are joined, once.

Source: 2024-11-05 to 2026-07-28, basic/transports, "stdio": messages are delimited by newlines and contain none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec

from ..base.errors import LocalProtocolError
from .truncated import HEAD_SIZE_MAX_BYTES, TAIL_SIZE_MAX_BYTES

BOM: Final = b"\xef\xbb\xbf"
CRUMB_SIZE_MAX_BYTES: Final = 4096
"""Smaller pieces of a line are kept as one, since each object has its overhead."""
JOINED_SIZE_MAX_BYTES: Final = 64 * 1024
"""A larger message is a write of its own: copying it costs more than a write."""


class Line(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, gc=False):
    """One line that is not blank: its bytes without the line end. Of a long line that is not joined, `data` is the
    first piece and `rest` are the others."""

    data: bytes
    rest: tuple[bytes, ...] = ()


class Oversize(msgspec.Struct, frozen=True, tag=True):
    """A line over the limit was dropped; reading goes on after its line end.

    `head` is how it began (at most `HEAD_SIZE_MAX_BYTES` and at most the limit) and `tail` how it ended (at most
    `TAIL_SIZE_MAX_BYTES`), to find out whose it was; `size_bytes` its whole length without the LF.
    """

    head: bytes
    size_bytes: int
    tail: bytes = b""


class Truncated(msgspec.Struct, frozen=True, tag=True):
    """The stream ended inside a line, which is dropped; `data` is how it began, at most `HEAD_SIZE_MAX_BYTES`."""

    data: bytes


class LineReader:
    """Bytes in, lines out; blank lines (white space only) and a byte order mark at the very start vanish.

    Args:
        line_size_max_bytes: longest line taken, counting everything before the LF. No more than this is ever buffered.
        joined_size_max_bytes: a longer line is given in the pieces it came in. None: every line is joined.
    """

    def __init__(self, *, line_size_max_bytes: int, joined_size_max_bytes: int | None = None) -> None:
        assert line_size_max_bytes > 0
        self._joined_size_max = line_size_max_bytes if joined_size_max_bytes is None else joined_size_max_bytes
        self._size_max = line_size_max_bytes
        self._head_max = min(HEAD_SIZE_MAX_BYTES, line_size_max_bytes)
        self._pieces: list[bytes] = []  # the unfinished line, or its head once it is over the limit
        self._crumbs = bytearray()  # what follows the pieces: small, so that many of them are one object
        self._kept_size = 0  # of pieces and crumbs
        self._dropped_size = 0  # length so far of an unfinished line over the limit; 0 if there is none
        self._tail = b""  # its last bytes so far
        self._is_first_line = True
        self._is_at_eof = False

    def receive_bytes(self, data: bytes) -> list[Line | Oversize]:
        """Take what arrived, cut anywhere; return the lines it completed.

        Raises:
            LocalProtocolError: the stream has ended already. Nothing has changed.
        """
        if self._is_at_eof:
            raise LocalProtocolError("got bytes after the end of the stream, expected a new LineReader")
        out: list[Line | Oversize] = []
        if b"\n" not in data:  # the midst of a long line, which is kept as it is, without a copy
            if data:
                self._keep(data)
            return out
        *ends, rest = data.split(b"\n")
        self._finish(ends[0], out)
        for piece in islice(ends, 1, None):  # nothing is kept, and the first line was before
            if len(piece) > self._size_max:
                self._finish(piece, out)
            elif (line := piece.removesuffix(b"\r")) and not line.isspace():
                out.append(Line(line))
        if rest:
            self._keep(rest)
        return out

    def receive_eof(self) -> list[Truncated]:
        """The stream ended: report an unfinished line, unless it is blank. Asked again, there is nothing to report."""
        self._is_at_eof = True
        is_over = self._dropped_size > 0
        line = self._take(b"")
        return [Truncated(line[: self._head_max])] if is_over or (line and not line.isspace()) else []

    def _finish(self, piece: bytes, out: list[Line | Oversize]) -> None:
        """`piece` ends the line at hand."""
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
        """`piece` continues the line at hand, whose end is not in sight."""
        if self._dropped_size:
            self._dropped_size += len(piece)
            self._tail = (self._tail + piece[-TAIL_SIZE_MAX_BYTES:])[-TAIL_SIZE_MAX_BYTES:]
        elif (size_bytes := self._kept_size + len(piece)) <= self._size_max:
            self._store(piece)
        else:
            line = self._join(piece)
            self._dropped_size = size_bytes
            self._tail = line[-TAIL_SIZE_MAX_BYTES:]
            self._store(line[: self._head_max])

    def _store(self, piece: bytes) -> None:
        self._kept_size += len(piece)
        if len(piece) < CRUMB_SIZE_MAX_BYTES:
            self._crumbs += piece
            return
        if self._crumbs:
            self._pieces.append(bytes(self._crumbs))
            self._crumbs = bytearray()
        self._pieces.append(piece)

    def _take(self, piece: bytes) -> bytes:
        """The line at hand with `piece` at its end; the next line starts."""
        line = self._join(piece) if self._kept_size else piece
        if self._dropped_size:
            self._dropped_size = 0
            self._tail = b""
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(BOM)
        return line

    def _take_long(self, piece: bytes) -> list[bytes]:
        """The same, in pieces. The last of them is no crumb, so that it shows how the line ends."""
        pieces, last = self._pieces, bytes(self._crumbs) + piece
        if len(last) < CRUMB_SIZE_MAX_BYTES:
            last = pieces.pop() + last
        pieces.append(last.removesuffix(b"\r"))
        self._pieces, self._crumbs, self._kept_size = [], bytearray(), 0
        if self._is_first_line:
            self._is_first_line = False
            pieces[0] = pieces[0].removeprefix(BOM)
        return pieces

    def _join(self, piece: bytes) -> bytes:
        """What was kept with `piece` at its end; nothing is kept any more."""
        line = b"".join((*self._pieces, self._crumbs, piece))
        self._pieces, self._crumbs, self._kept_size = [], bytearray(), 0
        return line


def encode_lines(messages: Sequence[bytes]) -> list[bytes]:
    """The messages as lines, in as few pieces as can be had without copying large ones."""
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
    """`message` (the JSON of one message) as a line. CR and LF in it become spaces: inside JSON text they can only be
    white space between tokens, since strings must escape them (RFC 8259, section 7)."""
    return message.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"
