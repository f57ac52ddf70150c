"""The reading half of both codecs: received bytes, and bodies by length or in chunks.

Received bytes are kept as they came, with the position up to which they are read. A piece of a body that is all that
came is given out without a copy. Chunks that came together are given out as one piece.

A chunked body may end with trailers, and chunks may have extensions. Few peers send either: when one appears, h11 reads
the rest of that body. `tests/transports/http1/test_server.py` and `test_client.py` compare the result with h11 alone.
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
"""A head up to this size is kept to recognise the next one: three times the size that MCP peers send."""
CHUNKS_MAX: Final = 128
"""Chunks given out as one piece. Each costs its reader about half a microsecond, and other connections need their
turn."""

_UNUSUAL_END: Final = re.compile(rb"\n\r?\n")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n")
_BETWEEN: Final = re.compile(rb"\r\n([0-9A-Fa-f]{1,15})\r\n")
_LAST_CHUNK: Final = re.compile(rb"0{1,15}\r\n\r\n")
_BEGUN: Final = re.compile(rb"[0-9A-Fa-f]{0,15}\r?|0{1,15}\r\n\r?")
_LINE_END: Final = b"\r\n"


class ReadState(enum.Enum):
    """The part of a message that comes next."""

    HEAD = "head"
    SIZED = "sized"  # a body of known length
    CHUNKED = "chunked"
    DONE = "done"  # nothing: the message is complete
    FAILED = "failed"  # nothing: the rest cannot be parsed


HEAD: Final = ReadState.HEAD
SIZED: Final = ReadState.SIZED
CHUNKED: Final = ReadState.CHUNKED
DONE: Final = ReadState.DONE
FAILED: Final = ReadState.FAILED


class Incoming:
    """The reading half of a codec, without the parsing of heads.

    Args:
        head_size_max_bytes: the longest incomplete line or head that is waited for.
        is_request: what arrives are requests.
    """

    __slots__ = (
        "_at",
        "_buffer",
        "_by_h11",
        "_head_size_max",
        "_is_closing",
        "_is_ended",
        "_is_line_end_due",
        "_is_request",
        "_left",
        "_reading",
        "_searched_size",
    )

    def __init__(self, head_size_max_bytes: int, *, is_request: bool) -> None:
        self._is_request = is_request
        self._head_size_max = head_size_max_bytes
        self._reading = HEAD
        self._buffer = b""
        self._at = 0  # bytes of the buffer that are read
        self._is_ended = False  # the stream ended behind the buffer
        self._searched_size = 0  # bytes of an incomplete head that are known to hold no end
        self._left = 0  # bytes of the body, or of the chunk, still to come
        self._is_line_end_due = False  # a chunk was read whose line end is still to come
        self._by_h11: H11Chunked | None = None  # reads the rest of this body
        self._is_closing = False  # no other message follows on this connection

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
        """Marks all before `at` as read."""
        if at == len(self._buffer):
            self._buffer, self._at = b"", 0
        else:
            self._at = at

    def _give_back(self) -> tuple[bytes, bool]:
        if self._by_h11 is not None:
            return self._by_h11.trailing_data
        return self._buffer[self._at :], self._is_ended

    def _is_head_awaited(self) -> bool:
        """True if the incomplete head may still get an ordinary end. False means that h11 has to decide: it accepts
        other line ends too, refuses some heads at once, and explains what is wrong with the others."""
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
        """Begins the body behind a head, of `size_bytes`; None: in chunks."""
        if size_bytes is None:
            self._reading, self._left, self._is_line_end_due = CHUNKED, 0, False
        else:
            self._reading, self._left = SIZED, size_bytes

    def take_rest(self) -> bytes | None:
        """Returns the whole body, if its length is known and all of it has arrived: the message is then complete, and
        no END event follows. Returns None if the body must be read with `next_event`. Call it only right behind a
        head."""
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
        """Returns the body behind the head `raw` if the unread bytes are exactly that head and body: the message is
        then complete, and no event follows. Returns None otherwise, and nothing has changed."""
        buffer = self._buffer
        if len(buffer) != len(raw) + size_bytes or self._at or not buffer.startswith(raw):
            return None
        self._reading, self._left = DONE, 0
        self._buffer, self._searched_size = b"", 0
        return buffer[len(raw) :]

    def _next_of_body(self) -> Data | Signal:
        """Returns the next event behind a head.

        Raises:
            h11.RemoteProtocolError: the body is malformed or broken off.
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
        between, size = _LINE_END, 0  # the last chunk's size line and size: often the next chunk has the same
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
        """Waits for the rest of a chunk, or for its line end. Refuses bytes there that are not a line end."""
        seen = self._buffer[self._at : self._at + 2]
        if not _LINE_END.startswith(seen):
            raise h11.RemoteProtocolError(f"got {seen!r} behind a chunk, expected the end of its line")
        if self._is_ended:
            raise h11.RemoteProtocolError("connection closed within a chunk of the body")
        return NEED_DATA

    def _next_last(self) -> Data | Signal:
        """Reads where a chunk would begin but none does: usually the last chunk. Trailers and extensions go to h11."""
        matched = _LAST_CHUNK.match(self._buffer, self._at)
        if matched is not None:
            self._skip_to(matched.end())
            self._reading = DONE
            return END
        if not self._is_ended and _BEGUN.fullmatch(self._buffer, self._at) is not None:
            return NEED_DATA
        self._by_h11 = H11Chunked(
            *self._give_back(), head_size_max_bytes=self._head_size_max, is_request=self._is_request
        )
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
