"""The writing half of the server's codec: one response to an HTTP/1.1 request, written as h11 would write it.

Header fields are validated once and remembered as encoded lines. Fields that are not plain are validated by h11, and
what h11 refuses is refused. `tests/transports/http1/test_server.py` compares the bytes with those of h11 alone.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

import h11

from ...core.wire.headers import Headers
from ...core.wire.http1.events import BODILESS, REASONS
from ...core.wire.http1.fields import NotPlain, asks_to_close, encode_field, read_framing, read_size

SMALL_CHUNK_SIZE_MAX_BYTES: Final = 4096
"""Data up to this size is copied into its chunk, which is cheaper than three separate pieces."""

_STATUS_LINES: Final = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, reason) for status, reason in REASONS.items() if status >= 200
}
# Lines that follow the caller's headers, by (is chunked, is closing).
_TAILS: Final = {
    (False, False): b"\r\n",
    (True, False): b"Transfer-Encoding: chunked\r\n\r\n",
    (False, True): b"Connection: close\r\n\r\n",
    (True, True): b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
}
_LAST_CHUNK: Final = b"0\r\n\r\n"


class WriteState(enum.Enum):
    """The part of a response that comes next."""

    HEAD = "head"
    SIZED = "sized"  # a body of known length
    CHUNKED = "chunked"
    NO_BODY = "no body"
    DONE = "done"  # nothing: no response is under way
    FAILED = "failed"  # nothing: the response was written wrongly


HEAD: Final = WriteState.HEAD
SIZED: Final = WriteState.SIZED
CHUNKED: Final = WriteState.CHUNKED
NO_BODY: Final = WriteState.NO_BODY
DONE: Final = WriteState.DONE
FAILED: Final = WriteState.FAILED


class ResponseWriter:
    """Writes one response after another. See `ServerCodec` for arguments, results and errors of its methods.

    Attributes:
        is_closing: no other response follows, because the client asked to close the connection or was told that it
            closes.
    """

    __slots__ = ("_is_head_only", "_known", "_left", "_writing", "is_closing")

    def __init__(self) -> None:
        self.is_closing = False
        self._writing = DONE
        self._is_head_only = False
        self._left = 0  # bytes of the Content-Length still to be written
        # The last document's headers and status, and its encoded head up to the value of Content-Length.
        self._known: tuple[Headers, int, bytes] | None = None

    def begin(self, method: str, *, is_closing: bool) -> None:
        """Begins the response to a request."""
        self.is_closing = is_closing
        self._writing = HEAD
        self._is_head_only = method == "HEAD"

    @property
    def is_done(self) -> bool:
        return self._writing is DONE

    def encode_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        return b"".join(self._head(status, headers))

    def encode_data(self, data: bytes | bytearray) -> Sequence[bytes | bytearray]:
        writing = self._writing
        if writing is CHUNKED:
            if len(data) > SMALL_CHUNK_SIZE_MAX_BYTES:
                return [b"%x\r\n" % len(data), data, b"\r\n"]
            return [b"".join((b"%x\r\n" % len(data), data, b"\r\n"))] if data else []
        if writing is SIZED:
            self._left -= len(data)
            if self._left < 0:
                raise self._refusal(f"got {-self._left} bytes more than the Content-Length said")
            return [data] if data else []
        if writing is NO_BODY:
            return []
        raise self._refusal("got a body where none was due")

    def encode_end(self) -> bytes:
        writing = self._writing
        if writing in (HEAD, DONE, FAILED):
            raise self._refusal("got the end of a response where none was due")
        if writing is SIZED and self._left:
            raise self._refusal(f"got {self._left} bytes less than the Content-Length said")
        self._writing = DONE
        return _LAST_CHUNK if writing is CHUNKED else b""

    def encode_whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
        pieces = self._head(status, headers)
        if self._writing is SIZED and self._left == len(body):  # the usual case
            self._writing = DONE
            pieces.append(body)
        else:
            return b"".join((*pieces, *self.encode_data(body), self.encode_end()))
        return b"".join(pieces)

    def encode_document(self, status: int, headers: Headers, pieces: tuple[bytes, ...]) -> list[bytes]:
        known = self._known
        if known is None or known[0] is not headers or known[1] != status:
            known = self._known = _learn(status, headers)
        if known is None or self._writing is not HEAD or self.is_closing or self._is_head_only:
            body = b"".join(pieces)
            return [self.encode_whole(status, (*headers, (b"content-length", b"%d" % len(body))), body)]
        self._writing = DONE
        first, *others = pieces
        if not others:
            return [b"%b%d\r\n\r\n%b" % (known[2], len(first), first)]
        return [b"%b%d\r\n\r\n%b" % (known[2], sum(map(len, pieces)), first), *others]

    def encode_informational(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        if self._writing is not HEAD or status == 101:
            raise self._refusal(f"got a {status} where none was due")
        reason = REASONS.get(status, b"")
        response = h11.InformationalResponse(status_code=status, headers=list(headers), reason=reason)
        lines = [b"%b: %b\r\n" % field for field in response.headers]
        return b"".join((b"HTTP/1.1 %d %b\r\n" % (status, reason), *lines, b"\r\n"))

    def _head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
        """Begins the response. Returns the lines of its head."""
        if self._writing is not HEAD:
            raise self._refusal("got the head of a response where none was due")
        try:
            pieces = [_STATUS_LINES[status], *map(encode_field, headers)]
            framing = read_framing(headers)
            size = read_size(framing)
            if size is None or (self.is_closing and b"connection" in framing):
                raise NotPlain
        except (KeyError, NotPlain):
            return self._unusual_head(status, headers)
        is_chunked = size < 0 and status not in BODILESS
        pieces.append(_TAILS[is_chunked, self.is_closing])
        self.is_closing = self.is_closing or asks_to_close(framing)
        self._begin_body(status, None if is_chunked else size)
        return pieces

    def _unusual_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
        reason = REASONS.get(status, b"")
        fields = list(h11.Response(status_code=status, headers=list(headers), reason=reason).headers)
        given = dict(fields)
        size = int(given.get(b"content-length", b"-1"))
        is_chunked = status not in BODILESS and (size < 0 or b"transfer-encoding" in given)
        if is_chunked:  # Transfer-Encoding overrides Content-Length
            fields = [field for field in fields if field[0] not in (b"content-length", b"transfer-encoding")]
        tokens = {
            token.strip().lower() for name, value in fields if name == b"connection" for token in value.split(b",")
        }
        pieces = [b"HTTP/1.1 %d %b\r\n" % (status, reason)]
        if self.is_closing:
            others = sorted(tokens - {b"", b"keep-alive", b"close"})
            fields = [field for field in fields if field[0] != b"connection"]
            fields += [(b"connection", token) for token in others]
        pieces += [b"%b: %b\r\n" % field for field in fields]
        pieces.append(_TAILS[is_chunked, self.is_closing])
        self.is_closing = self.is_closing or b"close" in tokens
        self._begin_body(status, None if is_chunked else size)
        return pieces

    def _begin_body(self, status: int, size_bytes: int | None) -> None:
        if self._is_head_only or status in BODILESS:
            self._writing = NO_BODY
        elif size_bytes is None:
            self._writing = CHUNKED
        else:
            self._writing, self._left = SIZED, size_bytes

    def _refusal(self, text: str) -> h11.LocalProtocolError:
        """Returns the error to raise: our own side wrote the response wrongly, and nothing that follows would make
        sense."""
        self._writing = FAILED
        return h11.LocalProtocolError(text)


def _learn(status: int, headers: Headers) -> tuple[Headers, int, bytes] | None:
    """Encodes a head once for all documents with these headers. None if they are not plain, or frame the body or close
    the connection themselves."""
    try:
        lines = [_STATUS_LINES[status], *map(encode_field, headers)]
        if status in BODILESS or read_framing(headers):
            return None
    except (KeyError, NotPlain):
        return None
    return headers, status, b"".join(lines) + b"content-length: "
