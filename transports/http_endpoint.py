"""Where an upstream HTTP server is, and how to speak to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from ..core.wire.http_client import PROTOCOL_HEADERS

_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_FRAMING_HEADERS: Final = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"expect", b"upgrade", b"te"}
    | {b"sec-websocket-" + name for name in (b"key", b"version", b"protocol", b"extensions", b"accept")}
)


def is_websocket(url: str) -> bool:
    """Whether the server there is to be reached through a WebSocket."""
    return re.match(r"(?i)wss?://", url) is not None


@dataclass(frozen=True, slots=True)
class Address:
    """Where an `Endpoint` lies: whom to connect to, what to say for Host, and what to ask for."""

    scheme: str
    host: str
    port: int
    authority: bytes
    target: bytes


@dataclass(frozen=True)
class Endpoint:
    """An upstream server's URL, and how to speak to it.

    Args:
        url: http, https, ws or wss, without user-info. Path and query are sent as written; a fragment is not sent.
        headers: sent with every request; credentials belong here.
        verify_tls: whether an https server must prove that it is the host of the URL.
        ca_file: a PEM file of the certificate authorities to trust instead of the system's.

    Raises:
        ValueError: the URL or a header cannot be used. The message says which and why, and repeats no header's value.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    verify_tls: bool = True
    ca_file: str | None = None

    def __post_init__(self) -> None:
        self.address()
        for name, value in self.headers:
            if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
                raise ValueError(f"got header name {name!r}, expected letters, digits and hyphens")
            if name.lower().encode() in PROTOCOL_HEADERS | _FRAMING_HEADERS:
                raise ValueError(f"got header {name}, which is set for each request; expected others only")
            if not re.fullmatch(r"([!-~\x80-\xff]([ \t!-~\x80-\xff]*[!-~\x80-\xff])?)?", value):
                raise ValueError(f"the value of header {name} has characters that no header can carry")

    def address(self) -> Address:
        """The URL in parts."""
        found = re.fullmatch(r"(?i:(https?|wss?))://([^/?#]*)([^#]*)(?s:#.*)?", self.url)
        if found is None:
            raise ValueError("got a URL of another kind, expected http:// or https://, or ws:// or wss://")
        scheme, authority, target = found[1].lower(), found[2], found[3]
        if "@" in authority:
            raise ValueError("got a URL with user-info, expected credentials in a header")
        if not re.fullmatch(r"[!-~]*", authority + target):
            raise ValueError("got a URL with a space or a non-ASCII character, expected them percent-encoded")
        parts = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+))(?::([0-9]{0,5}))?", authority)
        port = _DEFAULT_PORTS[scheme] if parts is None or not parts[3] else int(parts[3])
        if parts is None or not 1 <= port <= 65535:
            raise ValueError(f"got {authority!r} between // and the path, expected HOST or HOST:PORT")
        host = parts[1] or parts[2]
        shown = f"[{host}]" if ":" in host else host
        if port != _DEFAULT_PORTS[scheme]:
            shown += f":{port}"
        target = target if target.startswith("/") else "/" + target
        return Address(scheme, host, port, shown.encode(), target.encode())
