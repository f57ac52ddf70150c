"""Content that stands in a call's arguments itself: a `data:` URI, or an embedded resource of the protocol.

Source: RFC 2397; 2025-11-25 server/resources, "Resource Contents".
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from typing import Final, NamedTuple
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from ...jsonrpc.append import readable_members, readable_text
from ...jsonrpc.splice import take
from ..store.filenames import safe_filename, with_suffix

_DATA_URI: Final = re.compile(rb'"data:', re.IGNORECASE)
_NAME: Final = re.compile(r"(?:file)?name\*?=(?:utf-8'')?\"?([^\"]*)", re.IGNORECASE)


class InlineFile(NamedTuple):
    """A file whose content stands in the arguments."""

    data: bytes
    filename: str
    mime_type: str | None


def is_data_uri(raw: bytes) -> bool:
    """True if a JSON value is a `data:` URI as a whole, well-formed or not."""
    return _DATA_URI.match(raw) is not None


def is_inline(raw: bytes) -> bool:
    """True if a JSON value is a `data:` URI, or an object that is, or holds, a resource with `blob` or `text`."""
    return is_data_uri(raw) or (raw.startswith(b"{") and _resource(raw) is not None)


def read_inline(raw: bytes) -> InlineFile | None:
    """Returns the file that such a value stands for; None if its content cannot be decoded."""
    resource = _resource(raw)
    return _of_data_uri(readable_text(raw) or "") if resource is None else _of_resource(resource)


def decoded_base64(text: str) -> bytes | None:
    """Returns what a text in standard base64 stands for; None if it is none. Line breaks are ignored."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


def _of_data_uri(uri: str) -> InlineFile | None:
    header, comma, body = uri[len("data:") :].partition(",")
    if not comma:
        return None
    mime_type, *parameters = [part.strip() for part in header.split(";")]
    is_base64 = bool(parameters) and parameters[-1].lower() == "base64"
    data = decoded_base64(unquote(body)) if is_base64 else unquote_to_bytes(body)
    names = [match[1] for match in map(_NAME.match, parameters) if match is not None]
    return None if data is None else _file(data, unquote(names[0]) if names else "", mime_type or "text/plain")


def _resource(raw: bytes) -> bytes | None:
    """Returns the object with the content of a resource: `raw`, or what it embeds; None if there is none."""
    spans = readable_members(raw)
    if readable_text(take(raw, spans.get("type"))) == "resource" and "resource" in spans:
        raw = raw[slice(*spans["resource"])]
        spans = readable_members(raw)
    return raw if "uri" in spans and ("blob" in spans) != ("text" in spans) else None


def _of_resource(raw: bytes) -> InlineFile | None:
    spans = readable_members(raw)
    uri, text, blob, mime_type = (
        readable_text(take(raw, spans.get(name))) for name in ("uri", "text", "blob", "mimeType")
    )
    data = decoded_base64(blob) if blob is not None else None if text is None else text.encode()
    return None if data is None else _file(data, _last_segment(uri or ""), mime_type)


def _last_segment(uri: str) -> str:
    try:
        return unquote(posixpath.basename(urlsplit(uri).path))
    except ValueError:  # such as an unclosed [ in the host
        return ""


def _file(data: bytes, name: str, mime_type: str | None) -> InlineFile:
    return InlineFile(data, with_suffix(safe_filename(name, "file"), mime_type or ""), mime_type)
