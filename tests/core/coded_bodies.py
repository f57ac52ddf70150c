"""Bodies with content codings, made by the libraries that servers use."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable
from typing import Final

import brotli

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def deflate_raw(text: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(text) + packer.flush()


def pack_gzip(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0)


def pack_br(text: bytes) -> bytes:
    return bytes(brotli.compress(text, quality=4))


def pack_zstd(text: bytes) -> bytes:
    return zstd.compress(text)


PACKERS: Final[dict[str, tuple[str, Callable[[bytes], bytes]]]] = {
    "gzip": ("gzip", pack_gzip),
    "x-gzip": ("X-GZIP", pack_gzip),
    "zlib": ("deflate", zlib.compress),
    "raw": ("deflate", deflate_raw),
    "br": ("br", pack_br),
    "zstd": ("zstd", pack_zstd),
    "twice": ("gzip, br", lambda text: pack_br(pack_gzip(text))),
    "thrice, one of them nothing": ("deflate, identity,, zstd", lambda text: pack_zstd(zlib.compress(text))),
}
"""`Content-Encoding` and how a body of it is made."""


class Flushing:
    """A server that compresses an event stream, and flushes after each event. It keeps one stream open."""

    def __init__(self, coding: str) -> None:
        self.coding = coding
        if coding == "br":
            self._br = brotli.Compressor(quality=4)
        elif coding == "zstd":
            self._zstd = zstd.ZstdCompressor()
        else:
            self._zlib = zlib.compressobj(wbits=31 if coding == "gzip" else 15)

    def pack(self, text: bytes) -> bytes:
        if self.coding == "br":
            return bytes(self._br.process(text) + self._br.flush())
        if self.coding == "zstd":
            return self._zstd.compress(text, zstd.ZstdCompressor.FLUSH_BLOCK)
        return self._zlib.compress(text) + self._zlib.flush(zlib.Z_SYNC_FLUSH)

    def finish(self) -> bytes:
        if self.coding == "br":
            return bytes(self._br.finish())
        return self._zstd.flush() if self.coding == "zstd" else self._zlib.flush()
