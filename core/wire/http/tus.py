"""The headers of tus, the protocol for resumable uploads: parsing and encoding.

Source: tus resumable upload protocol 1.0.0 (2016-03-25) with the extensions creation, creation-with-upload, expiration,
termination and checksum.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from ...base.errors import RemoteProtocolError
from ...base.events import Checksum, RawFile
from ..headers import Headers

VERSION: Final = "1.0.0"
EXTENSIONS: Final = "creation,creation-with-upload,expiration,termination,checksum"
ALGORITHMS: Final = {"sha1": 20, "sha256": 32, "md5": 16}
"""The checksum algorithms and the length of their digests in bytes. Every tus server must support the first."""
BODY_TYPE: Final = "application/offset+octet-stream"
METADATA_MAX_BYTES: Final = 8 * 1024
"""The longest `Upload-Metadata`, with a file's name, type and hash. Clients send some hundred bytes. At it: 400."""
METADATA_PAIRS_MAX: Final = 32
"""Pairs of an `Upload-Metadata`. Clients send three. At it: 400."""

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_SHA256: Final = re.compile(r"[0-9A-Fa-f]{64}")
_KEY: Final = re.compile(r"[!-+\--~]{1,128}")


def check_version(version: str | None) -> None:
    """Checks the `Tus-Resumable` header, which each request must have.

    Raises:
        RemoteProtocolError: the version is missing or another (412). The response then has the header `Tus-Version`.
    """
    if version != VERSION:
        seen = "no Tus-Resumable header" if version is None else f"Tus-Resumable {version[:32]!r}"
        raise RemoteProtocolError(f"got {seen}, expected {VERSION}", http_status=412)


def supported(size_max_bytes: int | None) -> Headers:
    """Returns the headers of the response to OPTIONS: the version, the extensions and the largest upload."""
    size = () if size_max_bytes is None else ((b"tus-max-size", b"%d" % size_max_bytes),)
    return (
        (b"tus-resumable", VERSION.encode()),
        (b"tus-version", VERSION.encode()),
        *size,
        (b"tus-extension", EXTENSIONS.encode()),
        (b"tus-checksum-algorithm", ",".join(ALGORITHMS).encode()),
    )


def read_number(value: str | None, name: str) -> int:
    """Parses the required header `name`, a number of bytes.

    Raises:
        RemoteProtocolError: the header is missing or not a number.
    """
    if value is None:
        raise RemoteProtocolError(f"got no {name} header, expected a number of bytes")
    if _NUMBER.fullmatch(value) is None:
        raise RemoteProtocolError(f"got {name} {value[:32]!r}, expected a number of bytes")
    return int(value)


def read_checksum(value: str | None) -> Checksum | None:
    """Parses `Upload-Checksum`: the name of an algorithm, a blank, and the digest in base64. None if it is missing."""
    if value is None:
        return None
    algorithm, _, encoded = value.partition(" ")
    if algorithm not in ALGORITHMS:
        raise RemoteProtocolError(f"got a checksum by {algorithm[:32]!r}, expected one of {', '.join(ALGORITHMS)}")
    digest = _decode(encoded.strip())
    if digest is None or len(digest) != ALGORITHMS[algorithm]:
        raise RemoteProtocolError(f"got an Upload-Checksum that is no {algorithm} in base64, expected one")
    return Checksum(algorithm, digest.hex())


def read_metadata(value: str | None) -> RawFile:
    """Parses `Upload-Metadata`: pairs of a key and, after a blank, a value in base64, separated by commas.

    Of the keys, `filename` (or `name`), `filetype` (or `type`) and `sha256` are used; others are ignored.
    """
    if not value:
        return RawFile()
    if len(value) > METADATA_MAX_BYTES:
        raise RemoteProtocolError(f"got {len(value)} bytes of Upload-Metadata, expected {METADATA_MAX_BYTES} at most")
    pairs = value.split(",")
    if len(pairs) > METADATA_PAIRS_MAX:
        raise RemoteProtocolError(f"got {len(pairs)} pairs of Upload-Metadata, expected {METADATA_PAIRS_MAX} at most")
    found: dict[str, str] = {}
    for pair in pairs:
        key, _, encoded = pair.strip().partition(" ")
        content = _decode(encoded.strip())
        if _KEY.fullmatch(key) is None or content is None or key in found:
            raise RemoteProtocolError(
                "got malformed Upload-Metadata, expected different keys, each with base64 after it"
            )
        found[key] = content.decode("utf-8", "replace")
    sha256 = found.get("sha256", "")
    if sha256 and _SHA256.fullmatch(sha256) is None:
        raise RemoteProtocolError("got a sha256 in Upload-Metadata that is none, expected 64 hexadecimal digits")
    filename = found.get("filename") or found.get("name") or ""
    return RawFile(filename, found.get("filetype") or found.get("type") or None, sha256.lower())


def format_metadata(pairs: dict[str, str]) -> str:
    """Encodes `Upload-Metadata` as clients write it; the inverse of `read_metadata`."""
    return ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in pairs.items())


def _decode(encoded: str) -> bytes | None:
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None
