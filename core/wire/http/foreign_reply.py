"""Explanations of replies that are not HTTP/1.1: a server that wants TLS, or speaks HTTP/2 alone."""

from __future__ import annotations

from typing import Final

_ALERT: Final = b"\x15\x03"
"""The beginning of a TLS alert. Source: RFC 8446, 5.1."""
_SETTINGS: Final = b"\x04\x00\x00\x00\x00\x00"
"""Type, flags and stream of the frame that a server begins HTTP/2 with. Source: RFC 9113, 3.4 and 6.5."""


def explain_foreign(data: bytes, scheme: str) -> str:
    """Explains what a reply is that begins with `data`. Returns "" if that is not known.

    Args:
        scheme: of the server's URL: http, https, ws or wss.
    """
    if data.startswith(_ALERT) and scheme in ("http", "ws"):
        return f"got a TLS alert, expected HTTP; write {scheme}s:// in the URL"
    if data[3:9] == _SETTINGS:
        return (
            "got HTTP/2, expected HTTP/1.1: a server that speaks HTTP/2 alone is not supported; "
            "enable HTTP/1.1 there, or put a reverse proxy that speaks both in front of it"
        )
    return ""
