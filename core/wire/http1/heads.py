"""The fast path for HTTP/1.1 heads: parses and encodes them as MCP peers write them, and leaves all others to h11.

The functions accept only a narrow form: HTTP/1.1, a usual method, an origin-form target, and unambiguous framing. In
that form a head means the same to every parser, so the result is the one of h11. Anything else raises `NotPlain`, valid
or not, and the codec hands it to h11: no head is rejected here. `tests/transports/http1/test_server.py` and
`test_client.py` compare both ways; `tests/core/wire/http1/test_heads.py` compares `PostHead` with a head encoded alone.
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
    """Parses the head of a request.

    Args:
        raw: the head with the empty line that ends it.

    Returns:
        `raw`; the head; whether the connection is to close after this request; whether the client waits for a 100
        (Continue).

    Raises:
        NotPlain: the head is not written as usual, or is not valid.
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
    """Encodes the head of a request. Returns it, and whether the connection is to close after this request.

    Raises:
        NotPlain: the head is not written as usual, or is not valid.
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
    """The head shared by POST requests that differ only in the length of their bodies, encoded once per target.

    Args:
        headers: names in lower case, with `host` and without `content-length`.
    """

    __slots__ = ("_start", "_target", "headers", "is_closing")

    def __init__(self, headers: Headers) -> None:
        self.headers = headers
        self.is_closing = False
        self._target = b""
        self._start: bytes | None = None

    def start(self, target: bytes) -> bytes | None:
        """Returns the head up to the value of `content-length`. The caller appends the digits and two line ends.
        None: the head is not plain (see `NotPlain`)."""
        if target is not self._target:  # by identity: a client passes the same object again
            self._target = target
            try:
                head, self.is_closing = encode_request_head("POST", target, (*self.headers, (b"content-length", b"0")))
                self._start = head[: -len(b"0" + HEAD_END)]
            except NotPlain:
                self._start = None
        return self._start

    def sized(self, size_bytes: int) -> Headers:
        """Returns the headers of one request, whose body has `size_bytes` bytes."""
        return (*self.headers, (b"content-length", b"%d" % size_bytes))


def read_response_head(raw: bytes) -> InformationalHead | tuple[ResponseHead, int | None, bool]:
    """Parses the head of a response.

    Args:
        raw: the head with the empty line that ends it.

    Returns:
        The head alone for a 1xx response. Otherwise the head, the announced length of the body in bytes (None: chunked,
        -1: not announced), and whether the connection is to close after the response.

    Raises:
        NotPlain: the head is not written as usual, is not valid, or switches protocols (101).
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
