"""Routes requests under `/upload/<server>` by their heads: forms with files, plain files, and resumable uploads (tus).

    POST    /upload/<server>                  a form; with the header Tus-Resumable, a new tus upload
    PUT     /upload/<server>[/<filename>]     a file
    HEAD GET PATCH DELETE
            /upload/<server>/tus/<id>         a tus upload; or POST with X-HTTP-Method-Override
    OPTIONS any of these                      the supported methods and tus extensions

The module `tus` parses the headers of resumable uploads.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final
from urllib.parse import unquote

from ...base.errors import RemoteProtocolError
from ...base.events import DraftOpening, RawFile, UploadOpening, Verb
from ...base.lazy_regex import Pattern
from ...base.replica import is_minted_or_tagged
from ..headers import Headers, read_fields, read_session
from . import tus
from .request_target import decode_segment
from .routes import Head, NotAllowed, Refused, Surface, UploadRoute

SERVER_METHODS: Final = ("POST", "PUT", "OPTIONS")
FILE_METHODS: Final = ("PUT", "OPTIONS")
VERBS: Final = {"HEAD": Verb.RESUME, "GET": Verb.LOOK, "PATCH": Verb.APPEND, "DELETE": Verb.END}
DRAFT_METHODS: Final = (*VERBS, "POST", "OPTIONS")
FILENAME_MAX_BYTES: Final = 8 * 1024
"""The longest file name in a header. 255 bytes of UTF-8 are 765 when percent-encoded; longer names are cut later on. At
it: 400."""

_SHA256: Final = re.compile(r"[0-9A-Fa-f]{64}")
_DIGEST: Final = Pattern(r"sha-256[ \t]*=[ \t]*(?::([A-Za-z0-9+/=]{44}):|([A-Za-z0-9+/=]{44}))", re.IGNORECASE)


def upload_route(
    head: Head, server: str, rest: list[str], query: dict[str, str], surface: Surface, *, base_url: str
) -> UploadRoute | Refused | None:
    """Returns the route of an upload, or the response to send at once; None if nothing exists at that path.

    Args:
        rest: the segments of the path after the server's.

    Raises:
        NotAllowed: the path has no such method.
        RemoteProtocolError: the request is malformed.
    """
    is_draft = len(rest) == 2 and rest[0] == "tus"
    if len(rest) > 1 and not is_draft:
        return None
    allowed = DRAFT_METHODS if is_draft else FILE_METHODS if rest else SERVER_METHODS
    if head.method not in allowed:
        raise NotAllowed(head.method, allowed)
    if head.method == "OPTIONS":
        return Refused(
            204, b"", ((b"allow", ", ".join(allowed).encode()), *tus.supported(surface.upload_size_max_bytes))
        )
    fields = read_fields(head.headers)
    if is_draft:
        return _draft_route(head, server, rest[1], query, fields)
    if head.method == "POST" and read_one(head.headers, b"tus-resumable") is not None:
        return _new_draft_route(head, server, query, fields, base_url)
    _check_coding(head.headers)
    raw = _raw_file(head.headers, fields, rest) if head.method == "PUT" else None
    opening = UploadOpening(
        server, query=query, session=read_session(fields), size_bytes=_content_length(fields), raw=raw
    )
    return UploadRoute(opening, fields.get(b"content-type", ""))


def tus_headers(head: Head) -> Headers:
    """Returns the headers of every response to a tus request; none for other requests."""
    if head.method == "OPTIONS" or not head.target.startswith("/upload/"):
        return ()
    is_tus = "/tus/" in head.target.partition("?")[0] or any(name == b"tus-resumable" for name, _ in head.headers)
    return ((b"tus-resumable", tus.VERSION.encode()), (b"tus-version", tus.VERSION.encode())) if is_tus else ()


def _new_draft_route(
    head: Head, server: str, query: dict[str, str], fields: dict[bytes, str], base_url: str
) -> UploadRoute:
    headers = head.headers
    tus.check_version(read_one(headers, b"tus-resumable"))
    _check_coding(headers)
    if read_one(headers, b"upload-length") is None and read_one(headers, b"upload-defer-length") is not None:
        raise RemoteProtocolError("got Upload-Defer-Length, expected Upload-Length")
    length = tus.read_number(read_one(headers, b"upload-length"), "Upload-Length")
    size_bytes = _body_size(headers)
    if size_bytes != 0:
        _check_body_type(fields)
    metadata = read_one(headers, b"upload-metadata") or ""
    opening = DraftOpening(
        server,
        Verb.CREATE,
        query,
        session=read_session(fields),
        size_bytes=size_bytes,
        length=length,
        file=tus.read_metadata(metadata),
        metadata=metadata,
        checksum=tus.read_checksum(read_one(headers, b"upload-checksum")) if size_bytes != 0 else None,
        base_url=base_url,
    )
    return UploadRoute(opening, "")


def _draft_route(
    head: Head, server: str, draft: str, query: dict[str, str], fields: dict[bytes, str]
) -> UploadRoute | None:
    headers, method = head.headers, head.method
    if method == "POST":
        method = read_one(headers, b"x-http-method-override") or "POST"
    verb = VERBS.get(method)
    # A POST may not stand for a HEAD, whose response has no body.
    if verb is None or (method != head.method and verb is Verb.RESUME):
        raise NotAllowed(method, DRAFT_METHODS)
    if not is_minted_or_tagged(draft):
        return None
    if verb is not Verb.LOOK:  # GET is for any client, not only for those of tus
        tus.check_version(read_one(headers, b"tus-resumable"))
    session = read_session(fields)
    if verb is not Verb.APPEND:
        return UploadRoute(DraftOpening(server, verb, query, draft=draft, session=session), "")
    _check_coding(headers)
    _check_body_type(fields)
    opening = DraftOpening(
        server,
        verb,
        query,
        draft=draft,
        session=session,
        size_bytes=_body_size(headers),
        offset=tus.read_number(read_one(headers, b"upload-offset"), "Upload-Offset"),
        checksum=tus.read_checksum(read_one(headers, b"upload-checksum")),
    )
    return UploadRoute(opening, "")


def _check_body_type(fields: dict[bytes, str]) -> None:
    content_type = fields.get(b"content-type", "")
    if content_type.partition(";")[0].strip().lower() != tus.BODY_TYPE:
        seen = f"Content-Type {content_type[:64]!r}" if content_type else "no Content-Type"
        raise RemoteProtocolError(f"got {seen}, expected {tus.BODY_TYPE}", http_status=415)


def _body_size(headers: Headers) -> int | None:
    """Returns the length of the body in bytes, 0 if there is no body; None if it is chunked."""
    if any(name == b"transfer-encoding" for name, _ in headers):
        return None
    return _content_length(read_fields(headers)) or 0


def _content_length(fields: dict[bytes, str]) -> int | None:
    """Returns the `Content-Length`; None if it is missing."""
    length = fields.get(b"content-length")
    if length is not None and not (length.isascii() and length.isdigit() and len(length) <= 18):
        raise RemoteProtocolError(f"got Content-Length {length[:32]!r}, expected digits")
    return None if length is None else int(length)


def _check_coding(headers: Headers) -> None:
    """Refuses a body that is not the file itself: an encoded one, or a part."""
    coding = read_one(headers, b"content-encoding")
    if coding not in (None, "", "identity"):
        raise RemoteProtocolError(f"got Content-Encoding {coding[:32]!r}, expected none", http_status=415)
    if read_one(headers, b"content-range") is not None:
        # RFC 9110, 14.5: otherwise a part would be stored as the whole.
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
    """Returns a header that may occur once. Two are refused, since two readers could each go by a different one."""
    found = [value for other, value in headers if other == name]
    if len(found) > 1:
        raise RemoteProtocolError(f"got {len(found)} headers {name.decode()}, expected one")
    return found[0].decode("latin-1") if found else None


def decode_name(value: str) -> str:
    """Decodes a file name from a header: percent-encoded UTF-8, plain UTF-8, or Latin-1."""
    if len(value) > FILENAME_MAX_BYTES:
        raise RemoteProtocolError(f"got a file name of {len(value)} bytes, expected {FILENAME_MAX_BYTES} at most")
    try:
        value = value.encode("latin-1").decode()
    except UnicodeDecodeError:
        pass  # it is Latin-1
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        return value  # the name has a literal percent sign


def read_sha256(headers: Headers) -> str | None:
    """Returns the SHA-256 that the content must have, in lower-case hexadecimal, from `X-Content-SHA256`, `Repr-Digest`
    or `Content-Digest` (RFC 9530) or `Digest` (RFC 3230). They must agree. None if there is none."""
    found: set[str] = set()
    plain = read_one(headers, b"x-content-sha256")
    if plain is not None:
        if _SHA256.fullmatch(plain) is None:
            raise RemoteProtocolError(f"got X-Content-SHA256 {plain[:80]!r}, expected 64 hexadecimal digits")
        found.add(plain.lower())
    for name in (b"repr-digest", b"content-digest", b"digest"):
        for item in (read_one(headers, name) or "").split(","):
            if not item.strip().lower().startswith("sha-256"):
                continue  # only SHA-256 is checked
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
