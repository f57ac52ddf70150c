"""What arrives on a connection, and the bodies in it: by length, or in chunks.

Bytes are kept as they came, with a mark of how far they are read: a piece of a body that fills what came is given out
as that, without a copy. Chunks that came together are given out together.

A body in chunks may end with further headers, and chunks may have extensions. Hardly anybody sends either; from there
on h11 reads the rest of that one body.
"""

from __future__ import annotations

import enum
import re
from typing import Final

import h11

from ...core.wire.http1.events import CLOSED, END, NEED_DATA, PAUSED, Data, Signal
from ...core.wire.http1.heads import HEAD_END
from .h11 import H11Chunked

KNOWN_HEAD_SIZE_MAX_BYTES: Final = 2048
"""A head up to this size is kept for comparison with the next: three times what MCP peers send."""
CHUNKS_MAX: Final = 128
"""Chunks given out as one piece. Each costs its reader about half a microsecond, and others want their turn."""

_UNUSUAL_END: Final = re.compile(rb"\n\r?\n")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n")
_BETWEEN: Final = re.compile(rb"\r\n([0-9A-Fa-f]{1,15})\r\n")
_LAST_CHUNK: Final = re.compile(rb"0{1,15}\r\n\r\n")
_BEGUN: Final = re.compile(rb"[0-9A-Fa-f]{0,15}\r?|0{1,15}\r\n\r?")
_LINE_END: Final = b"\r\n"


class Reading(enum.Enum):
    """What comes next."""

    HEAD = "head"
    SIZED = "sized"  # a body by length
    CHUNKED = "chunked"
    DONE = "done"  # nothing of this message
    FAILED = "failed"  # nothing that could be read


HEAD: Final = Reading.HEAD
SIZED: Final = Reading.SIZED
CHUNKED: Final = Reading.CHUNKED
DONE: Final = Reading.DONE
FAILED: Final = Reading.FAILED


class Incoming:
    """The reading half of a codec, apart from what heads say.

    Args:
        head_size_max_bytes: the longest line, or head, that is waited for, while it is incomplete.
    """

    __slots__ = (
        "_at",
        "_buffer",
        "_by_h11",
        "_head_size_max",
        "_is_closing",
        "_is_ended",
        "_is_line_end_due",
        "_left",
        "_reading",
        "_searched_size",
    )

    def __init__(self, head_size_max_bytes: int) -> None:
        self._head_size_max = head_size_max_bytes
        self._reading = HEAD
        self._buffer = b""
        self._at = 0  # so much of it is read
        self._is_ended = False  # the stream, behind it
        self._searched_size = 0  # so much of an incomplete head has no end in it
        self._left = 0  # bytes of the body, or of the chunk, that are to come
        self._is_line_end_due = False  # behind a chunk
        self._by_h11: H11Chunked | None = None  # who reads the rest of this body
        self._is_closing = False  # no other message follows

    def _take(self, data: bytes) -> None:
        if self._by_h11 is not None:
            self._by_h11.receive_data(data)
        elif not data:
            self._is_ended = True
        elif self._at == len(self._buffer):
            self._buffer, self._at = data, 0
        else:
            self._buffer, self._at = self._buffer[self._at :] + data, 0

    def _skip_to(self, at: int) -> None:
        """What stands before it is read."""
        if at == len(self._buffer):
            self._buffer, self._at = b"", 0
        else:
            self._at = at

    def _give_back(self) -> tuple[bytes, bool]:
        if self._by_h11 is not None:
            return self._by_h11.trailing_data
        return self._buffer[self._at :], self._is_ended

    def _is_head_awaited(self) -> bool:
        """Whether the head that comes next, of which no end was found, may have one yet. Else h11 has to judge: it
        takes other line ends too, knows some heads for hopeless at once, and says what is wrong with the others."""
        size = len(self._buffer) - self._at
        if size == 0 or self._is_ended:
            return not self._is_ended
        if size > self._head_size_max or self._buffer[self._at] <= 0x20:
            return False
        if _UNUSUAL_END.search(self._buffer, self._at + self._searched_size) is not None:
            return False
        self._searched_size = max(0, size - len(HEAD_END) + 1)
        return True

    def _begin_body(self, size_bytes: int | None) -> None:
        """A head was read, and so much follows it; None: chunks."""
        if size_bytes is None:
            self._reading, self._left, self._is_line_end_due = CHUNKED, 0, False
        else:
            self._reading, self._left = SIZED, size_bytes

    def take_rest(self) -> bytes | None:
        """The whole body, if it has arrived and comes by length: then the message is complete, and its end has been
        told with it. None: it has to be asked for piece by piece. Only for what comes right behind a head."""
        if self._reading is not SIZED:
            return None
        buffer, at = self._buffer, self._at
        stop = at + self._left
        if stop > len(buffer):
            return None
        self._reading, self._left = DONE, 0
        if stop == len(buffer):
            self._buffer, self._at = b"", 0
        else:
            self._at = stop
        return buffer[at:stop]

    def _take_repeated(self, raw: bytes, size_bytes: int) -> bytes | None:
        """The body behind this head, if all that has arrived and was not read is the two: then the message is complete,
        and all is told of it. None: nothing was done."""
        buffer = self._buffer
        if len(buffer) != len(raw) + size_bytes or self._at or not buffer.startswith(raw):
            return None
        self._reading, self._left = DONE, 0
        self._buffer, self._searched_size = b"", 0
        return buffer[len(raw) :]

    def _next_of_body(self) -> Data | Signal:
        """What comes behind a head.

        Raises:
            h11.RemoteProtocolError: the body cannot go on like this.
        """
        try:
            if self._reading is SIZED:
                return self._next_sized()
            if self._reading is CHUNKED:
                return self._next_chunks() if self._by_h11 is None else self._next_by_h11(self._by_h11)
            if self._reading is DONE:
                return self._next_when_done()
            raise h11.RemoteProtocolError("got more behind what could not be read")
        except h11.RemoteProtocolError:
            self._reading = FAILED
            raise

    def _next_sized(self) -> Data | Signal:
        left = self._left
        if not left:
            self._reading = DONE
            return END
        buffer, at = self._buffer, self._at
        size = len(buffer) - at
        if not size:
            if self._is_ended:
                raise h11.RemoteProtocolError(f"connection closed with {left} bytes of the body to come")
            return NEED_DATA
        if size <= left:
            self._buffer, self._at = b"", 0
            self._left = left - size
            return Data(buffer[at:])
        self._at = at + left
        self._left = 0
        return Data(buffer[at : at + left])

    def _next_chunks(self) -> Data | Signal:
        buffer, at, left = self._buffer, self._at, self._left
        if at == len(buffer) and not self._is_ended:
            return NEED_DATA
        pieces: list[bytes] = []
        between, size = _LINE_END, 0  # what stood before the last chunk, and its size: many have the next one's
        while len(pieces) < CHUNKS_MAX:
            if left:
                end = at + left
                piece = buffer[at:end]
                if not piece:
                    break
                pieces.append(piece)
                if size and buffer.startswith(between, end):
                    at, left = end + len(between), size
                    continue
                matched = _BETWEEN.match(buffer, end)
                if matched is not None and (size := int(matched[1], 16)):
                    between, at, left = matched[0], matched.end(), size
                    continue
                at += len(piece)
                left -= len(piece)
                if left:
                    break
                self._is_line_end_due = True
            if self._is_line_end_due:
                if not buffer.startswith(_LINE_END, at):
                    break
                at += 2
                self._is_line_end_due = False
            matched = _CHUNK_SIZE.match(buffer, at)
            if matched is None or (left := int(matched[1], 16)) == 0:
                break
            at = matched.end()
        self._left = left
        self._skip_to(at)
        if pieces:
            return Data(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if left or self._is_line_end_due:
            return self._wait_for_chunk()
        return self._next_last()

    def _wait_for_chunk(self) -> Data | Signal:
        """What is left of a chunk is not there; or what is there is not the end of its line."""
        seen = self._buffer[self._at : self._at + 2]
        if not _LINE_END.startswith(seen):
            raise h11.RemoteProtocolError(f"got {seen!r} behind a chunk, expected the end of its line")
        if self._is_ended:
            raise h11.RemoteProtocolError("connection closed within a chunk of the body")
        return NEED_DATA

    def _next_last(self) -> Data | Signal:
        """What comes where no ordinary chunk begins: usually the end."""
        matched = _LAST_CHUNK.match(self._buffer, self._at)
        if matched is not None:
            self._skip_to(matched.end())
            self._reading = DONE
            return END
        if not self._is_ended and _BEGUN.fullmatch(self._buffer, self._at) is not None:
            return NEED_DATA
        self._by_h11 = H11Chunked(*self._give_back(), head_size_max_bytes=self._head_size_max)
        self._buffer, self._at = b"", 0
        return self._next_by_h11(self._by_h11)

    def _next_by_h11(self, by_h11: H11Chunked) -> Data | Signal:
        event = by_h11.next_event()
        if event is END:
            self._by_h11 = None
            self._buffer, self._is_ended = by_h11.trailing_data
            self._reading = DONE
        return event

    def _next_when_done(self) -> Signal:
        if self._at < len(self._buffer):
            if self._is_closing:
                raise h11.RemoteProtocolError("got more behind the last message of a connection")
            return PAUSED
        if self._is_ended:
            self._is_closing = True
            return CLOSED
        return NEED_DATA
