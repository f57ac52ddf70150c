"""Content codings of responses: decodes the body of a server that compresses although no coding was offered.

Some servers, and more often what stands before them, compress whatever `Accept-Encoding` says. gzip and deflate are
decoded here. A driver adds decompressors of other packages, as the core imports none.

A body has been through one coding or two, in the order of `Content-Encoding`; a `BodyDecoder` undoes them in reverse.
Each of its stages feeds the bytes to a stream decompressor. A stream that has ended may be followed by another one:
members of gzip and frames of zstd are one body. What else follows is read as the usual HTTP libraries do: behind gzip
and deflate it is ignored, behind br and zstd it is an error.

A few bytes can stand for very many, so a body is decoded a slice at a time, and the caller attends to others between
two slices. How long the decoded body may be is up to its reader. Decoding ends for a body that holds too much for its
size, or too little.

Source: RFC 9110, 8.4; RFC 1950 to 1952; RFC 7932; RFC 8878.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from ...base.budget import Share
from ...base.errors import RemoteProtocolError
from ...base.limits import KIB, MIB, Limits
from ..headers import Headers

CODINGS_MAX: Final = 2
"""The most codings of one body. One is usual; a second is that of a gateway before the server. At it: the response is
refused, and the error names the codings."""

SLICE_BYTES: Final = 128 * KIB
"""The bytes decoded at a time, some tenths of a millisecond of work; br may give up to twice as many. At it: others
have their turn before the next bytes."""

ANY_RATIO_MAX_BYTES: Final = 16 * MIB
"""The decoded bytes of one body for which its ratio does not matter: large texts that repeat themselves shrink to a
thousandth, and these bytes are decoded in a tenth of a second. At it: `Limits.reply_ratio_max` applies."""

INSTALL: Final = "pip install 'isthmus[codings]'"
"""The command that lets br and zstd be read."""


class Decompressor(Protocol):
    """Decompresses one stream.

    Attributes:
        eof: the stream has ended. Nothing more may be fed.
        needs_input: all that was fed is decompressed. While False, only b"" may be fed.
        unused_data: what was fed behind the end of the stream.
    """

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, size_max_bytes: int, /) -> bytes:
        """Returns about `size_max_bytes` at most. Raises `Coding.error`."""


class Coding(msgspec.Struct, frozen=True, kw_only=True):
    """One content coding.

    Attributes:
        open: makes the decompressor of a stream that has this beginning.
        error: raised by decompressors for malformed input.
        beginning_bytes: the bytes that have to be known to open a stream.
        next: the beginning of a further stream in the same body; None: there is none.
        is_tail_ignored: anything may follow the last stream.
        window_max_bytes: the decoded bytes that a decompressor keeps.
    """

    open: Callable[[bytes], Decompressor]
    error: type[Exception]
    beginning_bytes: int = 1
    next: bytes | None = None
    is_tail_ignored: bool = False
    window_max_bytes: int = 32 * KIB


class _Inflater:
    """The `Decompressor` of zlib, for one of its formats."""

    __slots__ = ("_inflater", "needs_input")

    def __init__(self, window_bits: int) -> None:
        self._inflater = zlib.decompressobj(window_bits)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inflater.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflater.unused_data

    def decompress(self, data: bytes, size_max_bytes: int, /) -> bytes:
        out = self._inflater.decompress(data or self._inflater.unconsumed_tail, size_max_bytes)
        self.needs_input = len(out) < size_max_bytes
        return out


def _open_gzip(beginning: bytes) -> Decompressor:
    return _Inflater(16 + zlib.MAX_WBITS)


def _open_deflate(beginning: bytes) -> Decompressor:
    """Opens a stream with the header of zlib, or without. RFC 9110, 8.4.1.2: "Some non-conformant implementations send
    the "deflate" compressed data without the zlib wrapper"."""
    is_wrapped = beginning[0] & 0x8F == 8 and int.from_bytes(beginning[:2], "big") % 31 == 0
    return _Inflater(zlib.MAX_WBITS if is_wrapped else -zlib.MAX_WBITS)


_GZIP: Final = Coding(open=_open_gzip, error=zlib.error, beginning_bytes=3, next=b"\x1f\x8b\x08", is_tail_ignored=True)

OWN: Final[Mapping[str, Coding]] = {
    "gzip": _GZIP,
    "x-gzip": _GZIP,
    "deflate": Coding(open=_open_deflate, error=zlib.error, beginning_bytes=2, is_tail_ignored=True),
}
"""The codings that need no other package."""

ADDED: Final = ("br", "zstd")
"""The codings that a driver may add."""


class BodyDecoder:
    """Decodes one body.

    The decoded text does not depend on how the body was cut into pieces. Of a malformed body, the part before the
    malformed place may be returned or not.

    Args:
        codings: name and coding, in the order of `Content-Encoding`.
        share: takes what the decompressors keep of the decoded text, as far as it is more than usual.

    Attributes:
        is_behind: `decode` has more to return before it takes anything new.
    """

    def __init__(self, codings: list[tuple[str, Coding]], limits: Limits, share: Share | None = None) -> None:
        assert 0 < len(codings) <= CODINGS_MAX
        self.is_behind = False
        self._stages = [_Stage(name, coding, limits.reply_size_max_bytes) for name, coding in reversed(codings)]
        self._ratio_max = limits.reply_ratio_max
        self._share = share

    def decode(self, data: bytes) -> bytes:
        """Takes a piece of the body, and returns a slice of the decoded one. Call it again with b"" while `is_behind`.

        Raises:
            RemoteProtocolError: the body is malformed, or beyond a limit. Nothing more can be decoded.
        """
        assert not (data and self.is_behind), "the rest of the last piece comes first"
        stages = self._stages
        first = max((place for place, stage in enumerate(stages) if stage.is_behind), default=0)
        for stage in stages[first:]:
            data = stage.decode(data)
        received_bytes = stages[0].received_bytes
        for stage in stages:
            if stage.returned_bytes > max(ANY_RATIO_MAX_BYTES, self._ratio_max * received_bytes):
                raise RemoteProtocolError(
                    f"got a body in {stage.name} with {stage.returned_bytes} bytes in {received_bytes}, "
                    f"expected {self._ratio_max} times as many at most"
                )
        if self._share is not None and not self._share.hold(sum(stage.kept_bytes for stage in stages)):
            raise RemoteProtocolError(f"got a body in {stages[-1].name}, for which others that arrive leave no room")
        self.is_behind = any(stage.is_behind for stage in stages)
        return data

    def finish(self) -> None:
        """Ends the body.

        Raises:
            RemoteProtocolError: its end is missing.
        """
        for stage in self._stages:
            if not stage.may_end:
                raise RemoteProtocolError(f"got a body in {stage.name} that is cut off, expected all of it")

    def release(self) -> None:
        """Gives back what was taken of the share."""
        if self._share is not None:
            self._share.give_all_back()


class _Stage:
    """Undoes one coding.

    Attributes:
        received_bytes: all bytes that came in.
        returned_bytes: all bytes that went out.
        is_behind: there is more to return, or another stream to begin.
    """

    __slots__ = ("_coding", "_excess_max", "_has_ended", "_held", "_is_over", "_stream", "is_behind", "name",
                 "received_bytes", "returned_bytes")  # fmt: skip

    def __init__(self, name: str, coding: Coding, excess_max_bytes: int) -> None:
        self.name = name
        self.received_bytes = self.returned_bytes = 0
        self.is_behind = False
        self._coding = coding
        self._excess_max = excess_max_bytes
        self._stream: Decompressor | None = None
        self._held = b""  # came in, and was not fed to a stream
        self._has_ended = False  # a stream has ended
        self._is_over = False  # the last stream has ended: the rest is ignored

    @property
    def kept_bytes(self) -> int:
        return min(self.returned_bytes, self._coding.window_max_bytes)

    @property
    def may_end(self) -> bool:
        """True if the body is complete. One without any byte is: it holds nothing."""
        return self._stream is None and (self._has_ended or not self.received_bytes)

    def decode(self, data: bytes) -> bytes:
        """Returns a slice, which may be empty though more follows."""
        self.received_bytes += len(data)
        if not self._is_over:
            self._held += data
        if self._stream is None and len(self._held) >= self._coding.beginning_bytes:
            self._begin()
        out = b""
        stream = self._stream
        if stream is not None and (self._held or not stream.needs_input):
            held, self._held = self._held, b""
            try:
                out = stream.decompress(held, SLICE_BYTES)
            except self._coding.error:
                raise self._malformed() from None
            if stream.eof:  # another stream begins with the next slice: there may be thousands without content
                self._held, self._stream, self._has_ended = stream.unused_data, None, True
        self.returned_bytes += len(out)
        if self.received_bytes - self.returned_bytes > self._excess_max:
            excess_bytes = self.received_bytes - self.returned_bytes
            raise RemoteProtocolError(f"got a body in {self.name} with {excess_bytes} bytes more than it holds")
        if self._stream is None:
            self.is_behind = len(self._held) >= self._coding.beginning_bytes
        else:
            self.is_behind = not self._stream.needs_input
        return out

    def _begin(self) -> None:
        coding = self._coding
        if not self._has_ended or (coding.next is not None and self._held.startswith(coding.next)):
            self._stream = coding.open(self._held)
        elif coding.is_tail_ignored:
            self._held, self._is_over = b"", True
        else:
            raise self._malformed()

    def _malformed(self) -> RemoteProtocolError:
        return RemoteProtocolError(f"got a body that is not {self.name}, expected what its Content-Encoding says")


def names_of(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """Returns the codings of a body in lower case, in the order in which they were applied. Several lines of
    `Content-Encoding` mean the same as one list (RFC 9110, 5.3)."""
    lines = b",".join([value for name, value in headers if name == b"content-encoding"])
    names = [name.strip().lower() for name in lines.decode("latin-1").split(",")]
    return [name for name in names if name not in ("", "identity")]


def codings_for(headers: Headers, added: Callable[[str], Coding | None]) -> list[tuple[str, Coding]]:
    """Returns the codings of a body, with their names, or [] if it has none or cannot be decoded.

    Args:
        added: finds a coding that is not in `OWN`.
    """
    names = names_of(headers)
    if not 0 < len(names) <= CODINGS_MAX:
        return []
    found = [(name, OWN.get(name) or added(name)) for name in names]
    known = [(name, coding) for name, coding in found if coding is not None]
    return known if len(known) == len(names) else []


def without_codings(headers: Headers) -> Headers:
    """Returns the headers of the decoded body, whose length is not known. An empty body stays one."""
    return tuple(
        (name, value)
        for name, value in headers
        if name != b"content-encoding" and (name != b"content-length" or value == b"0")
    )


def describe_unread(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Returns the reason for people why a body is not read, or "" if it has no coding."""
    names = names_of(headers)
    if not names:
        return ""
    shown = "".join(c if " " <= c <= "~" else "?" for c in ", ".join(names)[:100])
    if len(names) > CODINGS_MAX:
        return f"got Content-Encoding {shown}, expected {CODINGS_MAX} codings at most; none was offered"
    if any(name in ADDED for name in names) and all(name in OWN or name in ADDED for name in names):
        return f"got Content-Encoding {shown}, expected none: none was offered. To read it: {INSTALL}"
    return f"got Content-Encoding {shown}, expected none: none was offered"
