"""Any body comes as an upload, cut in any way: its files are stored whole or not at all.

The first byte says how many files are allowed (bits 0 and 1), whether hashes are required (bit 2), and whether the
body is the file itself instead of a form (bit 3); the second sets the limit of a file. Then come the Content-Type, a
newline, and the body. Accepted outcomes: `UploadRefused`, with nothing stored; or a manifest of the stored files, each
of which is a part of the body.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from isthmus.app.disk.blob_files import BlobFiles
from isthmus.core.base.events import RawFile
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.storage import Receive, UploadManifest
from isthmus.storage.interface import BlobStat
from isthmus.transports.base.port import UploadRefused

CODES = {
    400: {
        "malformed",
        "no_file",
        "too_many_files",
        "unknown_field",
        "sha256_count",
        "sha256_mismatch",
        "sha256_required",
    },
    413: {"file_too_large", "request_too_large"},
    415: {"unsupported_media_type"},
}
LOOP = asyncio.new_event_loop()


class Writer:
    def __init__(self, kept: dict[str, bytes], key: str) -> None:
        self._kept, self._key, self._data = kept, key, bytearray()

    async def write(self, chunk: bytes) -> None:
        assert chunk
        self._data += chunk

    async def commit(self) -> BlobStat:
        self._kept[self._key] = bytes(self._data)
        return BlobStat(len(self._data), hashlib.sha256(self._data).hexdigest())


class Blobs:
    """A blob store that is a dictionary."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    @asynccontextmanager
    async def create(self, key: str, *, size_max_bytes: int) -> AsyncGenerator[Writer, None]:
        assert key not in self.kept
        yield Writer(self.kept, key)

    async def delete(self, key: str) -> bool:
        return self.kept.pop(key, None) is not None


async def body_of(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def outcome(order: Receive, content_type: str, chunks: list[bytes]) -> tuple[int, str] | list[object]:
    """Returns the status and code of the refusal, or the manifest and the contents stored."""
    blobs = Blobs()
    files = BlobFiles(blobs)  # type: ignore[arg-type]  # it has the methods that are used
    try:
        written = LOOP.run_until_complete(files.take_in(order, content_type, body_of(chunks)))
    except UploadRefused as refusal:
        assert not blobs.kept
        assert refusal.code in CODES[refusal.status]
        assert refusal.detail.isprintable()
        return refusal.status, refusal.code
    manifest = msgspec.json.decode(written, type=UploadManifest)
    assert 1 <= len(manifest.files) <= len(order.blobs)
    assert list(blobs.kept) == list(order.blobs[: len(manifest.files)])
    body = b"".join(chunks)
    for file, content in zip(manifest.files, blobs.kept.values(), strict=True):
        assert content in body
        assert (file.size_bytes, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())
        assert file.size_bytes <= order.file_size_max_bytes
    assert sum(map(len, blobs.kept.values())) <= order.total_size_max_bytes
    return [manifest, *blobs.kept.values()]


def test_one_input(data: bytes) -> None:
    flags, limit, rest = data[0] if data else 0, data[1] if len(data) > 1 else 0, data[2:]
    head, _, body = rest.partition(b"\n")
    order = Receive(
        ChannelId(1),
        tuple("abcd"[: 1 if flags & 8 else 1 + (flags & 3)]),
        file_size_max_bytes=limit,
        total_size_max_bytes=limit + limit // 2,
        require_sha256=bool(flags & 4),
        raw=RawFile("a", None, hashlib.sha256(head).hexdigest() if flags & 4 else "") if flags & 8 else None,
    )
    content_type = head.decode("latin-1")
    whole = outcome(order, content_type, [body] if body else [])
    middle = len(body) // 2
    for chunks in ([body[:middle], body[middle:]], [body[i : i + 1] for i in range(len(body))]):
        again = outcome(order, content_type, [chunk for chunk in chunks if chunk])
        # A body with two faults may be refused for either, depending on how it is cut.
        assert again == whole or (isinstance(again, tuple) and isinstance(whole, tuple))
