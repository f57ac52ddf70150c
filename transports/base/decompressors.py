"""Decompressors of other packages, for content codings that the core does not decode itself.

Each package is imported when a server first sends its coding. From Python 3.14 on, zstd is in the standard library.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any, Final

from ...core.base.limits import MIB
from ...core.wire.http.codings import Coding, Decompressor

BR_WINDOW_MAX_BYTES: Final = 16 * MIB
"""The largest window of br (RFC 7932, 9.1). At it: the body is malformed."""

ZSTD_WINDOW_BITS_MAX: Final = 23
"""The largest window of zstd in HTTP, 8 MiB: RFC 9659 allows no other. At it: the body is malformed."""


class _BrDecompressor:
    """A decompressor of the package brotli, which refuses bytes behind the end by itself."""

    unused_data = b""

    def __init__(self, decompressor: Any) -> None:
        self._decompressor = decompressor
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return bool(self._decompressor.is_finished())

    def decompress(self, data: bytes, size_max_bytes: int, /) -> bytes:
        out: bytes = self._decompressor.process(data, output_buffer_limit=size_max_bytes)
        while len(out) < size_max_bytes and not self.eof:  # it may return a part only, whatever the limit
            more = self._decompressor.process(b"", output_buffer_limit=size_max_bytes - len(out))
            if not more:
                break
            out += more
        self.needs_input = len(out) < size_max_bytes and self._decompressor.can_accept_more_data()
        return out


def added_coding(name: str) -> Coding | None:
    """Returns the coding "br" or "zstd", if its package is installed in a version that bounds its output."""
    if name == "br":
        return _find_br()
    return _find_zstd() if name == "zstd" else None


@functools.cache
def _find_br() -> Coding | None:
    brotli = _find("brotli")
    if brotli is None or not hasattr(brotli.Decompressor, "can_accept_more_data"):
        return None

    def open_br(beginning: bytes) -> Decompressor:
        return _BrDecompressor(brotli.Decompressor())

    return Coding(open=open_br, error=brotli.error, window_max_bytes=BR_WINDOW_MAX_BYTES)


@functools.cache
def _find_zstd() -> Coding | None:
    zstd = _find("compression.zstd") or _find("backports.zstd")
    if zstd is None:
        return None
    options = {zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_BITS_MAX}

    def open_zstd(beginning: bytes) -> Decompressor:
        decompressor: Decompressor = zstd.ZstdDecompressor(options=options)
        return decompressor

    return Coding(open=open_zstd, error=zstd.ZstdError, next=b"", window_max_bytes=1 << ZSTD_WINDOW_BITS_MAX)


def _find(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        return None
