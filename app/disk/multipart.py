"""Stores multipart uploads as blobs while they arrive.

Only the current chunk is held in memory. A limit is checked before the chunk that would exceed it is written.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final, NamedTuple
from urllib.parse import unquote

import msgspec
from multipart import (
    MultipartError,
    MultipartSegment,
    ParserError,
    ParserLimitReached,
    PushMultipartParser,
    parse_options_header,
)

from ...core.base.events import RawFile
from ...core.base.setting_names import LARGER_FILES
from ...core.base.storage import Receive, StoredFile, UploadManifest
from ...core.files.store.filenames import HEAD_BYTES
from ...storage.interface import Blobs
from ...transports.base.port import UploadRefused

HEADER_SIZE_MAX_BYTES: Final = 4096
"""Bytes of one header of a part. File names end at 255 bytes on most systems, three times that if percent-encoded."""
HEADERS_MAX: Final = 16
"""Headers of a part. RFC 7578 defines three."""
SHA256_SIZE_MAX_BYTES: Final = 128
"""A hash has 64 digits; the rest is room for white space."""

_BOUNDARY: Final = re.compile(r"[!-~]([ -~]{0,198}[!-~])?")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_MIME_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]{1,127}/[a-z0-9!#$&^_.+-]{1,127}")
# A quote that is never closed is read up to the end: every quote behind it has a backslash before it.
_QUOTED: Final = re.compile(r'"(?:\\.|[^"\\])*+("?)')
_FILENAME_EXTENDED: Final = re.compile(r";\s*filename\*\s*=\s*utf-8'[^';]*'([^\s;]+)", re.IGNORECASE)


class _Head(NamedTuple):
    """The headers of a part, parsed."""

    name: str
    filename: str | None
    mime_type: str | None


_Event = _Head | bytes | None


class UploadReader:
    """Stores one upload request. See `BlobFiles.take_in`."""

    def __init__(self, order: Receive, blobs: Blobs) -> None:
        self.begun: list[str] = []
        """Keys that may hold something, noted before the first write: a commit can fail half way."""
        self._order = order
        self._blobs = blobs
        self._files: list[StoredFile] = []
        self._hashes: list[str] = []
        self._size_bytes = 0

    async def take(self, events: AsyncGenerator[_Event, None]) -> bytes:
        async for head in events:
            assert isinstance(head, _Head)
            if head.name == "file":
                await self._take_file(head, events)
            elif head.name == "sha256":
                await self._take_hash(events)
            else:
                detail = f"got a field {_shown(head.name)}, expected only file and sha256"
                raise UploadRefused(400, "unknown_field", detail)
        self._check_files()
        return msgspec.json.encode(UploadManifest(tuple(self._files)))

    async def _take_file(self, head: _Head, events: AsyncGenerator[_Event, None]) -> None:
        order = self._order
        if len(self._files) == len(order.blobs):
            raise UploadRefused(400, "too_many_files", f"got more than {len(order.blobs)} files, expected at most that")
        if not head.filename:
            # With curl, a forgotten @ sends the path as the content: it must not be stored as if it were the file.
            raise UploadRefused(400, "no_file", "a file field has no filename; with curl write -F file=@PATH")
        async with aclosing(_content(events)) as content:
            await self._store(head.filename, head.mime_type, content)

    async def take_raw(self, raw: RawFile, body: AsyncIterator[bytes]) -> bytes:
        await self._store(raw.filename, raw.mime_type, body)
        if raw.sha256:
            self._hashes.append(raw.sha256)
        self._check_files()
        return msgspec.json.encode(UploadManifest(tuple(self._files)))

    async def _store(self, filename: str, mime_type: str | None, content: AsyncIterator[bytes]) -> None:
        order = self._order
        key = order.blobs[len(self._files)]
        self.begun.append(key)
        size_bytes, head = 0, b""
        async with self._blobs.create(key, size_max_bytes=order.file_size_max_bytes) as writer:
            async for chunk in content:
                size_bytes += len(chunk)
                self._size_bytes += len(chunk)
                if size_bytes > order.file_size_max_bytes:
                    most = order.file_size_max_bytes
                    detail = f"{_shown(filename)} is larger than the {most} bytes a file may have; {LARGER_FILES}"
                    raise UploadRefused(413, "file_too_large", detail)
                if self._size_bytes > order.total_size_max_bytes:
                    detail = f"the files have over {order.total_size_max_bytes} bytes, all that there is room for"
                    raise UploadRefused(413, "request_too_large", detail)
                head += chunk[: HEAD_BYTES - len(head)]
                await writer.write(chunk)
            stat = await writer.commit()
        self._files.append(StoredFile(filename, stat.size_bytes, stat.sha256, mime_type, head))

    async def _take_hash(self, events: AsyncGenerator[_Event, None]) -> None:
        content = bytearray()
        while (chunk := await anext(events)) is not None:
            assert isinstance(chunk, bytes)
            content += chunk
            if len(content) > SHA256_SIZE_MAX_BYTES:
                raise _malformed(f"a sha256 field has over {SHA256_SIZE_MAX_BYTES} bytes, expected 64 digits")
        digits = content.decode("ascii", "replace").strip().lower()
        if not digits:
            return
        if _SHA256.fullmatch(digits) is None:
            raise _malformed(f"got {_shown(digits)} as sha256, expected 64 hexadecimal digits")
        if len(self._hashes) == len(self._order.blobs):
            raise _sha256_count(f"over {len(self._hashes)}", f"at most {len(self._hashes)} files")
        self._hashes.append(digits)

    def _check_files(self) -> None:
        """Checks what is known at the end only, since fields come in any order."""
        if not self._files:
            raise UploadRefused(400, "no_file", "got no file, expected one or more fields named file")
        if self._hashes and len(self._hashes) != len(self._files):
            raise _sha256_count(str(len(self._hashes)), f"{len(self._files)} files")
        if self._order.require_sha256 and not self._hashes:
            detail = "got no sha256 field, expected one for each file, in the order of the files"
            raise UploadRefused(400, "sha256_required", detail)
        for file, digits in zip(self._files, self._hashes, strict=False):
            if file.sha256 != digits:
                detail = f"{_shown(file.filename)} arrived with the SHA-256 {file.sha256}, expected {digits}"
                raise UploadRefused(400, "sha256_mismatch", detail)


async def _content(events: AsyncGenerator[_Event, None]) -> AsyncGenerator[bytes, None]:
    """Yields the content of the current part."""
    while (chunk := await anext(events)) is not None:
        assert isinstance(chunk, bytes)
        yield chunk


class _Parser(PushMultipartParser):  # type: ignore[misc]
    """A parser that checks header lines of parts by their bytes.

    The library accepts or refuses some lines depending on where the chunks are cut.
    """

    def _on_segment_headerline(self, line: bytes) -> None:
        if b"\n" in line or b"\r" in line:
            raise ParserError("a line in the head of a part has a bare line end in it")
        if len(line) >= self.max_header_size:
            raise ParserLimitReached(f"a line in the head of a part has {self.max_header_size} bytes or more")
        super()._on_segment_headerline(line)


async def parts_of(boundary: bytes, body: AsyncIterator[bytes], overhead_max: int) -> AsyncGenerator[_Event, None]:
    """Yields for each part its head, its content in non-empty chunks, and None.

    Args:
        overhead_max: bytes of the body that need not be content.
    """
    parser = _Parser(boundary, max_header_size=2 * HEADER_SIZE_MAX_BYTES, max_header_count=HEADERS_MAX)
    opening = b"--" + boundary
    begin: bytes | None = b""  # the beginning of the body; None once it was checked
    overhead_bytes = 0
    try:
        async for chunk in body:
            overhead_bytes += len(chunk)
            if begin is not None:
                begin += chunk
                if len(begin) < len(opening) + 2:
                    continue
                # A preamble would be legal but is never sent, and the parser treats one differently as chunks are cut.
                if not begin.startswith((opening, b"\r\n" + opening)):
                    raise _malformed("the body does not begin with the boundary that its Content-Type names")
                chunk, begin = begin, None
            if chunk:  # the parser takes an empty chunk for the end
                for event in parser.parse(chunk):
                    if isinstance(event, bytes):
                        overhead_bytes -= len(event)
                    yield _head(event) if isinstance(event, MultipartSegment) else event
            if overhead_bytes > overhead_max:
                detail = f"over {overhead_max} bytes of the body are not content of files"
                raise UploadRefused(413, "request_too_large", detail)
        parser.close()
    except MultipartError as error:
        raise _malformed(f"not multipart/form-data: {error.args[0]}") from error


def boundary_of(content_type: str) -> bytes:
    """Returns the boundary of a multipart/form-data body.

    Raises:
        UploadRefused: 415 unsupported_media_type, 400 malformed.
    """
    media_type, options = parse_options_header(content_type)
    if media_type != "multipart/form-data":
        detail = f"got Content-Type {_shown(media_type)}, expected multipart/form-data; with curl write -F file=@PATH"
        raise UploadRefused(415, "unsupported_media_type", detail)
    boundary = options.get("boundary", "")
    if _BOUNDARY.fullmatch(boundary) is None:
        raise _malformed("Content-Type: multipart/form-data has no usable boundary; let the HTTP client write it")
    return str(boundary).encode("ascii")


def _head(segment: MultipartSegment) -> _Head:
    for name, value in segment.headerlist:
        if len(value.encode()) > HEADER_SIZE_MAX_BYTES:
            raise _malformed(f"the header {name} of a part has over {HEADER_SIZE_MAX_BYTES} bytes")
        if name == "Content-Transfer-Encoding" and value.strip().lower() not in ("binary", "8bit", "7bit"):
            # RFC 7578, 4.7 deprecates the header. Ignoring it would store the encoded bytes as if they were the file.
            raise _malformed(f"got Content-Transfer-Encoding {_shown(value)}, expected none")
    mime_type = segment.content_type
    if mime_type is not None and _MIME_TYPE.fullmatch(mime_type) is None:
        mime_type = None
    return _Head(segment.name, _filename(segment), mime_type)


def _filename(segment: MultipartSegment) -> str | None:
    """Returns the file name as sent.

    RFC 7578, 4.2 forbids `filename*`. Clients that send it anyway have the name right only there.
    """
    disposition = _QUOTED.sub(_emptied, segment.header("Content-Disposition"))
    extended = _FILENAME_EXTENDED.search(disposition)
    if extended is not None:
        try:
            return unquote(extended[1], errors="strict")
        except UnicodeDecodeError:
            pass  # use the plain name beside it
    name: str | None = segment.filename
    return name


def _emptied(quoted: re.Match[str]) -> str:
    return '""' if quoted[1] else quoted[0]


def _malformed(detail: str) -> UploadRefused:
    return UploadRefused(400, "malformed", detail)


def _sha256_count(hashes: str, files: str) -> UploadRefused:
    detail = f"got {hashes} sha256 fields for {files}, expected one for each file or none"
    return UploadRefused(400, "sha256_count", detail)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:79]}…")
