"""Strict parsing of a request target: anything that two parsers could read differently is refused."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, unquote

from ...base.errors import RemoteProtocolError

QUERY_FIELDS_MAX: Final = 32
"""Fields of a query. A signed link has a few. At it: 400."""


def split_target(target: str) -> tuple[str, str, str]:
    """Returns authority (of an absolute target, else empty), path and query."""
    authority = ""
    if target.lower().startswith(("http://", "https://")):
        # RFC 9112, 3.2.2: a server MUST accept the absolute form, and go by its host rather than by the Host header.
        authority, slash, tail = target.partition("://")[2].partition("/")
        if not authority:
            raise RemoteProtocolError("got a request target without a host, expected http://host/path")
        target = slash + tail if slash else "/"
    if not target.startswith("/"):
        raise RemoteProtocolError(f"got request target {target[:200]!r}, expected a path that starts with a slash")
    path, _, query = target.partition("?")
    return authority, path, query


def decode_segment(text: str) -> str:
    """Decodes the percent-encoding of one segment of a path. An encoded slash or control character is refused."""
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise RemoteProtocolError("got a path that is not UTF-8 once decoded, expected UTF-8")
    if any(char == "/" or ord(char) < 0x20 or ord(char) == 0x7F for char in decoded):
        raise RemoteProtocolError("got an encoded slash or control character in the path, expected none")
    return decoded


def parse_query(query: str) -> dict[str, str]:
    """Parses a query of at most `QUERY_FIELDS_MAX` fields. A field that occurs twice is refused."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX)
    except ValueError:  # too many, or not UTF-8
        raise RemoteProtocolError(f"got a malformed query, expected at most {QUERY_FIELDS_MAX} fields of UTF-8")
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise RemoteProtocolError("got a query that names a field twice, expected each field once")
    return fields
