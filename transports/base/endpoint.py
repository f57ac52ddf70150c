"""The address of an upstream HTTP server, and the headers and TLS settings to reach it with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ...core.base.errors import LocalProtocolError
from ...core.base.setting_names import KEYS, SettingNames
from ...core.wire.http.egress import Proxy
from ...core.wire.http.request import encode_header
from ...core.wire.http.url import Address, parse_url

__all__ = ["Address", "Endpoint", "is_websocket"]


def is_websocket(url: str) -> bool:
    """True if the URL is that of a WebSocket (ws or wss)."""
    return re.match(r"(?i)wss?://", url) is not None


@dataclass(frozen=True)
class Endpoint:
    """An upstream server's URL, headers and TLS settings.

    Args:
        url: http, https, ws or wss, without user-info. Path and query are sent as written; a fragment is not sent.
        headers: sent with every request; credentials belong here.
        verify_tls: whether an https server must prove that it is the host of the URL.
        ca_file: a PEM file of the certificate authorities to trust instead of the system's.
        proxy: the proxy that requests go through; None: none.
        names: the names of settings in messages about this server.

    Raises:
        ValueError: the URL or a header cannot be used. The message says which and why, and repeats no header's value.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    verify_tls: bool = True
    ca_file: str | None = None
    proxy: Proxy | None = None
    names: SettingNames = field(default=KEYS, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.address()
        try:
            self.encoded_headers()
        except LocalProtocolError as error:
            raise ValueError(str(error)) from None

    def encoded_headers(self) -> list[tuple[bytes, bytes]]:
        """Returns the headers as they are sent, with names in lower case."""
        return [encode_header(name, value) for name, value in self.headers]

    def address(self) -> Address:
        """Returns the URL in its parts."""
        return parse_url(self.url)
