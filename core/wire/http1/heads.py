"""Heads of HTTP/1.1 as MCP peers write them: read and written, or said not to be plain.

Here is decided what a codec of ours reads and writes itself. Whatever else HTTP allows, or does not, is for h11 to
judge: nothing is refused here.
"""

from __future__ import annotations

import re
from typing import Final

from ..headers import Headers
from .events import InformationalHead, RequestHead, ResponseHead
from .fields import NotPlain, asks_to_close, encode_field, read_framing, read_line, read_size

HEAD_END: Final = b"\r\n\r\n"

_REQUEST_LINE: Final = re.compile(rb"(GET|POST|PUT|DELETE|HEAD|OPTIONS|PATCH) (/[\x21-\x7e]*) HTTP/1\.1")
_METHODS: Final = frozenset(("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"))
_TARGET: Final = re.compile(rb"/[\x21-\x7e]*")
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.1 ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")


def read_request_head(raw: bytes) -> tuple[bytes, RequestHead, bool, bool]:
    """What a head says, whether no other request is to follow, and whether a 100 is awaited.

    Args:
        raw: with the empty line that ends it.

    Raises:
        NotPlain: it is not written as usual, or not allowed.
    """
    first, *lines = raw[: -len(HEAD_END)].split(b"\r\n")
    matched = _REQUEST_LINE.fullmatch(first)
    if matched is None:
        raise NotPlain
    headers = tuple(map(read_line, lines))
    framing = read_framing(headers)
    expected = framing.get(b"expect")
    if (
        b"host" not in framing
        or b"upgrade" in framing
        or (expected is not None and expected.lower() != b"100-continue")
    ):
        raise NotPlain
    size = read_size(framing)
    head = RequestHead(matched[1].decode(), matched[2].decode(), headers, "1.1", 0 if size == -1 else size)
    return raw, head, asks_to_close(framing), expected is not None


def encode_request_head(method: str, target: bytes, headers: Headers) -> tuple[bytes, bool]:
    """The head, and whether no other request is to follow.

    Raises:
        NotPlain: it is not written as usual, or not allowed.
    """
    framing = read_framing(headers)
    size = read_size(framing)
    if size is None or method not in _METHODS or b"host" not in framing or b"upgrade" in framing:
        raise NotPlain
    if _TARGET.fullmatch(target) is None:
        raise NotPlain
    first = b"%b %b HTTP/1.1\r\n" % (method.encode(), target)
    return b"".join((first, *map(encode_field, headers), b"\r\n")), asks_to_close(framing)


class PostHead:
    """The heads of POSTs that differ only in how long their bodies are: encoded once, while the target is the same.

    Args:
        headers: names in lower case, Host among them, without a Content-Length.
    """

    __slots__ = ("_start", "_target", "headers", "is_closing")

    def __init__(self, headers: Headers) -> None:
        self.headers = headers
        self.is_closing = False
        self._target = b""
        self._start: bytes | None = None

    def start(self, target: bytes) -> bytes | None:
        """All up to the value of the Content-Length, which two line ends follow. None: they are not plain."""
        if target is not self._target:
            self._target = target
            try:
                head, self.is_closing = encode_request_head("POST", target, (*self.headers, (b"content-length", b"0")))
                self._start = head[: -len(b"0" + HEAD_END)]
            except NotPlain:
                self._start = None
        return self._start

    def sized(self, size_bytes: int) -> Headers:
        """The headers of one of them."""
        return (*self.headers, (b"content-length", b"%d" % size_bytes))


def read_response_head(raw: bytes) -> InformationalHead | tuple[ResponseHead, int | None, bool]:
    """What a head says, the size of its body (None: chunks, -1: not said), and whether the connection ends with it.

    Args:
        raw: with the empty line that ends it.

    Raises:
        NotPlain: it is not written as usual, or not allowed.
    """
    first, *lines = raw[: -len(HEAD_END)].split(b"\r\n")
    matched = _STATUS_LINE.fullmatch(first)
    if matched is None:
        raise NotPlain
    status = int(matched[1])
    headers = tuple(map(read_line, lines))
    framing = read_framing(headers)
    size = read_size(framing)
    if status == 101:
        raise NotPlain
    if status < 200:
        return InformationalHead(status, headers)
    return ResponseHead(status, headers), size, asks_to_close(framing)
