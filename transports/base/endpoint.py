"""Where an upstream HTTP server is, and how to speak to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ...core.base.errors import LocalProtocolError
from ...core.wire.http.request import encode_header
from ...core.wire.http.url import Address, parse_url

__all__ = ["Address", "Endpoint", "is_websocket"]


def is_websocket(url: str) -> bool:
    """Whether the server there is to be reached through a WebSocket."""
    return re.match(r"(?i)wss?://", url) is not None


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
        try:
            self.encoded_headers()
        except LocalProtocolError as error:
            raise ValueError(str(error)) from None

    def encoded_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers as they are sent, names in lower case."""
        return [encode_header(name, value) for name, value in self.headers]

    def address(self) -> Address:
        """The URL in parts."""
        return parse_url(self.url)
