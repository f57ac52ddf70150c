"""Header lines of the plain kind, read and written at the price of looking them up.

Peers say the same lines over and over. What a line says is remembered, and so is the line for what is to be said: few
of them, short ones, and only after they were judged. Whatever is not plain raises `NotPlain`, and is for h11.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MEMO_LINES_MAX: Final = 1024
"""Lines remembered, of all connections together. A client sends about ten, of which one or two are its own: so this
serves some hundreds of clients at a time, and 10,000 worse, but well enough."""
MEMO_LINE_SIZE_MAX_BYTES: Final = 512
"""A longer line is judged anew each time, so that 1 MiB holds all that is remembered. Tokens of clients are shorter."""
LENGTH_DIGITS_MAX: Final = 18
"""Of a Content-Length. More is h11's to judge."""

_TOKEN: Final = rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+"
_TEXT: Final = rb"[\t\x20-\x7e\x80-\xff]*"
_LINE: Final = re.compile(rb"(%b):(%b)" % (_TOKEN, _TEXT))
_LOWER_NAME: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-z]+")
_VALUE: Final = re.compile(rb"(?![\t ])%b(?<![\t ])" % _TEXT)

_FRAMING: Final = frozenset((b"connection", b"content-length", b"expect", b"host", b"transfer-encoding", b"upgrade"))


class NotPlain(Exception):
    """It is not what peers usually send, and may be right all the same."""


class FieldLines(dict[bytes, tuple[bytes, bytes]]):
    """The name, in lower case, and the value of a header line without its CRLF.

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
    """The header line, with its CRLF, for a name in lower case and a value."""

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


def read_framing(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Those of `headers` that say where messages end, each of which is there once at most.

    Raises:
        NotPlain: one of them is there twice, or asks for something that few ask for.
    """
    pairs = [field for field in headers if field[0] in _FRAMING]
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotPlain
    if b"connection" in found and found[b"connection"].lower() not in (b"keep-alive", b"close"):
        raise NotPlain
    return found


def read_size(framing: dict[bytes, bytes]) -> int | None:
    """How many bytes of body are announced: None for chunks, -1 for nothing said.

    Raises:
        NotPlain: it is said in an unusual way, or twice.
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
    """Whether the connection is to end with this message and its answer."""
    return b"connection" in framing and framing[b"connection"].lower() == b"close"
