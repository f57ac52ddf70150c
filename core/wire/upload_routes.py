"""What requests under `/upload/<server>` ask for, told by their heads: forms with files, and files as they are."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final
from urllib.parse import unquote

from ..effects import RawFile, UploadOpening
from ..errors import RemoteProtocolError
from .http_headers import Headers, read_fields, read_session
from .http_routes import Head, NotAllowed, UploadRoute
from .http_target import decode_segment

FORM_METHODS: Final = ("POST", "PUT")
FILE_METHODS: Final = ("PUT",)
FILENAME_MAX_BYTES: Final = 8 * 1024
"""A name as it stands in a header: 255 bytes of UTF-8 are 765 percent-encoded, and what is longer is cut later on."""

_SHA256: Final = re.compile(r"[0-9A-Fa-f]{64}")
_DIGEST: Final = re.compile(r"sha-256[ \t]*=[ \t]*(?::([A-Za-z0-9+/=]{44}):|([A-Za-z0-9+/=]{44}))", re.IGNORECASE)


def upload_route(head: Head, server: str, rest: list[str], query: dict[str, str]) -> UploadRoute | None:
    """The route of an upload; None if there is nothing at that path.

    Args:
        rest: the parts of the path after the server's.

    Raises:
        NotAllowed, RemoteProtocolError: it may not be.
    """
    if len(rest) > 1:
        return None
    allowed = FILE_METHODS if rest else FORM_METHODS
    if head.method not in allowed:
        raise NotAllowed(head.method, allowed)
    fields = read_fields(head.headers)
    _check_coding(head.headers)
    raw = _raw_file(head.headers, fields, rest) if head.method == "PUT" else None
    opening = UploadOpening(server, query=query, session=read_session(fields), size_bytes=_announced(fields), raw=raw)
    return UploadRoute(opening, fields.get(b"content-type", ""))


def _announced(fields: dict[bytes, str]) -> int | None:
    """The length of the body; None if it is not said."""
    length = fields.get(b"content-length")
    if length is not None and not (length.isascii() and length.isdigit() and len(length) <= 18):
        raise RemoteProtocolError(f"got Content-Length {length[:32]!r}, expected digits")
    return None if length is None else int(length)


def _check_coding(headers: Headers) -> None:
    """What would be stored as if it were the file, and is not, is refused."""
    coding = read_one(headers, b"content-encoding")
    if coding not in (None, "", "identity"):
        raise RemoteProtocolError(f"got Content-Encoding {coding[:32]!r}, expected none", http_status=415)
    if read_one(headers, b"content-range") is not None:
        # RFC 9110, 14.5: else a part would be taken for the whole.
        raise RemoteProtocolError("got Content-Range, expected a whole file; parts are taken by the tus protocol")


def _raw_file(headers: Headers, fields: dict[bytes, str], rest: list[str]) -> RawFile:
    content_type = fields.get(b"content-type", "")
    if content_type.partition(";")[0].strip().lower() == "multipart/form-data":
        raise RemoteProtocolError(
            "got a form in a PUT, expected the file itself as the body; forms are taken by POST", http_status=415
        )
    name = read_one(headers, b"x-filename")
    filename = decode_segment(rest[0]) if rest else ""
    if name:
        filename = decode_name(name)
    return RawFile(filename=filename, mime_type=content_type or None, sha256=read_sha256(headers) or "")


def read_one(headers: Headers, name: bytes) -> str | None:
    """A header that is there once at most. Two readers could each believe another one of two."""
    found = [value for other, value in headers if other == name]
    if len(found) > 1:
        raise RemoteProtocolError(f"got {len(found)} headers {name.decode()}, expected one")
    return found[0].decode("latin-1") if found else None


def decode_name(value: str) -> str:
    """A file's name as headers carry it: percent-encoded UTF-8, or plain UTF-8 or Latin-1."""
    if len(value) > FILENAME_MAX_BYTES:
        raise RemoteProtocolError(f"got a file name of {len(value)} bytes, expected {FILENAME_MAX_BYTES} at most")
    try:
        value = value.encode("latin-1").decode()
    except UnicodeDecodeError:
        pass  # Latin-1 then
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        return value  # a percent sign in a name


def read_sha256(headers: Headers) -> str | None:
    """What the content must have, in lower-case hexadecimal: of `X-Content-SHA256`, `Repr-Digest` or `Content-Digest`
    (RFC 9530) or `Digest` (RFC 3230), which must agree."""
    found: set[str] = set()
    plain = read_one(headers, b"x-content-sha256")
    if plain is not None:
        if _SHA256.fullmatch(plain) is None:
            raise RemoteProtocolError(f"got X-Content-SHA256 {plain[:80]!r}, expected 64 hexadecimal digits")
        found.add(plain.lower())
    for name in (b"repr-digest", b"content-digest", b"digest"):
        for item in (read_one(headers, name) or "").split(","):
            if not item.strip().lower().startswith("sha-256"):
                continue  # another algorithm: whoever wants one checked gives this one
            matched = _DIGEST.fullmatch(item.strip())
            try:
                digest = base64.b64decode((matched[1] or matched[2]) if matched else "", validate=True)
            except binascii.Error:
                digest = b""
            if len(digest) != 32:
                raise RemoteProtocolError(f"got {name.decode()} {item.strip()[:80]!r}, expected sha-256=:<base64>:")
            found.add(digest.hex())
    if len(found) > 1:
        raise RemoteProtocolError("got two different SHA-256 for one file, expected one")
    return found.pop() if found else None
