"""What the URL of a server and the transport named beside it mean together."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from ...core.wire.headers import is_loopback
from .settings import Core, Transport

SCHEMES: Final[dict[Transport, tuple[str, ...]]] = {
    "auto": ("http", "https", "sse+http", "sse+https", "ws", "wss", "unix"),
    "streamable_http": ("http", "https"),
    "sse": ("http", "https", "sse+http", "sse+https"),
    "websocket": ("ws", "wss"),
    "unix": ("unix",),
}
"""What the URL of a server may begin with, for each transport."""

_SSE: Final = "sse+"


def scheme_of(url: str) -> str:
    """What comes before ://, in lower case; empty if nothing does."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", url)
    return "" if found is None else found[1].lower()


def settle(url: str, transport: Transport | None) -> tuple[str, Transport]:
    """The URL to connect to, and the transport to speak there: `auto` only where the URL leaves it open."""
    scheme = scheme_of(url)
    if scheme.startswith(_SSE):
        return url[len(_SSE) :], "sse"
    if scheme in SCHEMES["unix"]:
        return url, "unix"
    return url, "websocket" if scheme in SCHEMES["websocket"] else transport or "auto"


def unix_path(url: str) -> str | None:
    """The path of a `unix:///path` URL; None if it is no such URL, or its path is not absolute."""
    found = re.fullmatch(r"(?i:unix)://(/[^?#\0]+)", url)
    return None if found is None else found[1]


def is_for_this_machine(core: Core) -> bool:
    """Whether nobody elsewhere reaches this listener, neither directly nor through what stands in front of it."""
    names = [] if core.port is None else [core.host]
    names += [urlsplit(core.public_base_url).hostname or ""] if core.public_base_url else []
    return all(is_loopback(host_of(name)) for name in names)


def host_of(name: str) -> str:
    """A host as `Surface` wants it, whatever people write: lower case, no port, IPv6 in brackets."""
    name = name.lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return f"[{name}]" if name.count(":") > 1 else name.partition(":")[0]
