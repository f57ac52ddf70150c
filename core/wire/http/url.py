"""Strict parsing of the URL of a server: the parts that are checked are the parts that are used."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

import msgspec

DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class Address(msgspec.Struct, frozen=True):
    """The parts of a URL: host and port to connect to, `authority` for the `Host` header, and `target` to request."""

    scheme: str
    host: str
    port: int
    authority: bytes
    target: bytes

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host in lower case, and port."""
        return self.scheme, self.host.lower(), self.port


def parse_url(url: str) -> Address:
    """Parses an http, https, ws or wss URL. Path and query stay as they are written; a fragment is dropped.

    Raises:
        ValueError: the URL cannot be used. The message gives the reason and repeats neither path nor credentials.
    """
    found = re.fullmatch(r"(?i:(https?|wss?))://([^/?#]*)([^#]*)(?s:#.*)?", url)
    if found is None:
        raise ValueError("got a URL of another kind, expected http:// or https://, or ws:// or wss://")
    scheme, authority, target = found[1].lower(), found[2], found[3]
    if "@" in authority:
        raise ValueError("got a URL with user-info, expected credentials in a header")
    if not re.fullmatch(r"[!-~]*", authority + target):
        raise ValueError("got a URL with a space or a non-ASCII character, expected them percent-encoded")
    parts = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+))(?::([0-9]{0,5}))?", authority)
    port = DEFAULT_PORTS[scheme] if parts is None or not parts[3] else int(parts[3])
    if parts is None or not 1 <= port <= 65535 or not _is_address(parts[1] or "::"):
        raise ValueError(f"got {authority!r} between // and the path, expected HOST or HOST:PORT")
    host = parts[1] or parts[2]
    shown = f"[{host}]" if ":" in host else host
    if port != DEFAULT_PORTS[scheme]:
        shown += f":{port}"
    target = target if target.startswith("/") else "/" + target
    return Address(scheme, host, port, shown.encode(), target.encode())


def _is_address(text: str) -> bool:
    """True if `text` is an IPv6 address."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
