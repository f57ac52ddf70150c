"""Replies that are not HTTP/1.1: of a server that wants TLS, or speaks HTTP/2 alone."""

from __future__ import annotations

from typing import Final

INSTALL_HTTP2: Final = "pip install 'isthmus[http2]'"
ENABLE_HTTP1: Final = "enable HTTP/1.1 there, or put a reverse proxy that speaks both in front of it"

_ALERT: Final = b"\x15\x03"
"""The beginning of a TLS alert. Source: RFC 8446, 5.1."""
_SETTINGS: Final = b"\x04\x00\x00\x00\x00\x00"
"""Type, flags and stream of the frame that a server begins HTTP/2 with. Source: RFC 9113, 3.4 and 6.5."""
_LENGTH_BYTES: Final = 3


def is_http2(data: bytes) -> bool:
    """True if a reply that begins with `data` is HTTP/2. A server that speaks it has not run a request of HTTP/1.1."""
    return data[_LENGTH_BYTES : _LENGTH_BYTES + len(_SETTINGS)] == _SETTINGS


def may_become_http2(data: bytes) -> bool:
    """True if `data` is too short to tell whether the reply is HTTP/2. A SETTINGS frame is shorter than 64 KiB."""
    beginning = data[_LENGTH_BYTES:]
    return data.startswith(b"\0") and len(beginning) < len(_SETTINGS) and _SETTINGS.startswith(beginning)


def explain_foreign(data: bytes, scheme: str, *, has_http2: bool = True) -> str:
    """Explains what a reply is that begins with `data`. Returns "" if that is not known.

    Args:
        scheme: of the server's URL: http, https, ws or wss.
        has_http2: HTTP/2 is installed, or would not help.
    """
    if data.startswith(_ALERT) and scheme in ("http", "ws"):
        return f"got a TLS alert, expected HTTP; write {scheme}s:// in the URL"
    if is_http2(data):
        mend = ENABLE_HTTP1 if has_http2 else f"have it reached over HTTP/2: {INSTALL_HTTP2}; or {ENABLE_HTTP1}"
        return f"got HTTP/2, expected HTTP/1.1: it most likely speaks HTTP/2 alone; {mend}"
    return ""
