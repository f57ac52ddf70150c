"""The fast path for HTTP/1.1 header lines: parsed and encoded by a dictionary look-up.

Peers repeat the same header lines. `read_line` and `encode_field` check a line by a regular expression the first time
and keep the result, so a repeated line skips the check. A cached line was checked before, and the result depends on the
line alone, so the look-up returns what the check would. The caches are bounded in entries and in bytes. Anything that
is not usual raises `NotPlain`, and the codec hands the message to h11. `tests/transports/http1/test_server.py` and
`test_client.py` compare both codecs with h11; `test_repeated_heads.py` covers repetition.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MEMO_LINES_MAX: Final = 1024
"""Lines in each cache, over all connections. A client sends about ten, of which one or two are unlike other clients':
this serves some hundreds of clients at a time; with 10,000, lines are checked anew more often."""
MEMO_LINE_SIZE_MAX_BYTES: Final = 512
"""A longer line is checked each time and not kept, so that a cache stays within 1 MiB. Tokens of clients are
shorter."""
LENGTH_DIGITS_MAX: Final = 18
"""The most digits of a `Content-Length`. A longer one is left to h11."""

_TOKEN: Final = rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+"
_TEXT: Final = rb"[\t\x20-\x7e\x80-\xff]*"
_LINE: Final = re.compile(rb"(%b):(%b)" % (_TOKEN, _TEXT))
_LOWER_NAME: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-z]+")
_VALUE: Final = re.compile(rb"(?![\t ])%b(?<![\t ])" % _TEXT)

_FRAMING: Final = frozenset((b"connection", b"content-length", b"expect", b"host", b"transfer-encoding", b"upgrade"))


# RFC 9112, 7.1.1, without the blanks that may stand around ";" and "=".
_QUOTED: Final = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"'
_CHUNK_LINE: Final = re.compile(rb"[0-9A-Fa-f]{1,20}(?:;%b(?:=(?:%b|%b))?)*\r\n" % (_TOKEN, _TOKEN, _QUOTED))
_LONE_LINE_FEED: Final = re.compile(rb"(?<!\r)\n")
_FOLDED: Final = re.compile(rb"(?:\A|\n)[\t ]")
_LENGTHS: Final = re.compile(rb"\ncontent-length:[^\n]*,", re.IGNORECASE)


class NotPlain(Exception):
    """A head is not written as peers usually write it. It may still be valid: h11 decides."""


class FieldLines(dict[bytes, tuple[bytes, bytes]]):
    """A cache from a header line, without its CRLF, to its name in lower case and its value.

    Source: RFC 9112, 5: "field-line = field-name ":" OWS field-value OWS".
    """

    def __missing__(self, line: bytes) -> tuple[bytes, bytes]:
        matched = _LINE.fullmatch(line)
        if matched is None:
            raise NotPlain
        field = (matched[1].lower(), matched[2].strip(b" \t"))
        if len(line) <= MEMO_LINE_SIZE_MAX_BYTES:
            if len(self) >= MEMO_LINES_MAX:
                self.clear()
            self[line] = field
        return field


class EncodedFields(dict[tuple[bytes, bytes], bytes]):
    """A cache from a name in lower case and a value to the header line, with its CRLF."""

    def __missing__(self, field: tuple[bytes, bytes]) -> bytes:
        name, value = field
        if _LOWER_NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            raise NotPlain
        line = b"%b: %b\r\n" % field
        if len(line) <= MEMO_LINE_SIZE_MAX_BYTES:
            if len(self) >= MEMO_LINES_MAX:
                self.clear()
            self[field] = line
        return line


read_line: Final = FieldLines().__getitem__
encode_field: Final = EncodedFields().__getitem__


def find_ambiguity(section: bytes) -> str | None:
    """Returns what in the lines of a request another recipient may read differently; None: nothing.

    A proxy in front might then see one request where this one sees two. A recipient may accept or refuse the first
    two.

    Args:
        section: a whole head, or the trailers of a chunked body, with the empty line.

    Source: RFC 9112, 2.2 (a line that ends in LF alone), 5.2 (a folded line), 6.3 (a list of lengths).
    """
    if _LONE_LINE_FEED.search(section) is not None:
        return "got a line that ends in LF, expected CRLF"
    if _FOLDED.search(section) is not None:
        return "got a folded header line, expected each header on one line"
    if _LENGTHS.search(section) is not None:
        return "got a list of lengths in Content-Length, expected one"
    return None


def is_chunk_line(line: bytes) -> bool:
    """True if `line`, with its CRLF, may begin a chunk: its size in hexadecimal digits, and perhaps extensions.

    Source: RFC 9112, 7.1.
    """
    return _CHUNK_LINE.fullmatch(line) is not None


def read_framing(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Returns those of `headers` that frame messages and govern the connection, by name.

    Raises:
        NotPlain: one of them occurs twice, or `Connection` is neither `keep-alive` nor `close`.
    """
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _FRAMING:
            if name in found:
                raise NotPlain
            found[name] = value
    if b"connection" in found and found[b"connection"].lower() not in (b"keep-alive", b"close"):
        raise NotPlain
    return found


def read_size(framing: dict[bytes, bytes]) -> int | None:
    """Returns the announced length of the body in bytes: None for a chunked body, -1 if no length is announced.

    Raises:
        NotPlain: the length is written in an unusual way, or both as a length and as chunked.
    """
    length = framing.get(b"content-length")
    if b"transfer-encoding" in framing:
        if framing[b"transfer-encoding"] != b"chunked" or length is not None:
            raise NotPlain
        return None
    if length is None:
        return -1
    if not length.isdigit() or len(length) > LENGTH_DIGITS_MAX:
        raise NotPlain
    return int(length)


def asks_to_close(framing: dict[bytes, bytes]) -> bool:
    """True if the connection is to be closed after this message and its response."""
    return b"connection" in framing and framing[b"connection"].lower() == b"close"
