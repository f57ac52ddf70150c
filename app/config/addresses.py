"""Addresses: URLs of servers and the transports they name, hosts, and whether a listener is local."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from ...core.wire.http.origin import is_loopback
from .settings import Core, Transport

SCHEMES: Final[dict[Transport, tuple[str, ...]]] = {
    "auto": ("http", "https", "sse+http", "sse+https", "ws", "wss", "unix"),
    "streamable_http": ("http", "https"),
    "sse": ("http", "https", "sse+http", "sse+https"),
    "websocket": ("ws", "wss"),
    "unix": ("unix",),
}
"""URL schemes that are allowed for each transport."""

_SSE: Final = "sse+"
SHUTDOWN_DELAY_S: Final = 5.0
"""Seconds after the stop signal in which requests are still served, where other machines can connect. A balancer that
asks every two seconds has asked twice by then, and Kubernetes takes a second or two to take a pod off a service."""


def scheme_of(url: str) -> str:
    """Returns the scheme of a URL in lower case; empty if there is no `://` after a scheme."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", url)
    return "" if found is None else found[1].lower()


def settle(url: str, transport: Transport | None) -> tuple[str, Transport]:
    """Returns the URL to connect to and the transport to use there; `auto` only if neither argument decides it."""
    scheme = scheme_of(url)
    if scheme.startswith(_SSE):
        return url[len(_SSE) :], "sse"
    if scheme in SCHEMES["unix"]:
        return url, "unix"
    return url, "websocket" if scheme in SCHEMES["websocket"] else transport or "auto"


def unix_path(url: str) -> str | None:
    """Returns the path of a `unix:///path` URL; None if it is no such URL, or its path is not absolute."""
    found = re.fullmatch(r"(?i:unix)://(/[^?#\0]+)", url)
    return None if found is None else found[1]


def shown_names(urls: Sequence[str]) -> tuple[str, ...]:
    """Returns the names under which the URLs of one server are shown: scheme, host and port, as paths and queries may
    hold secrets, or the whole URL of a Unix socket. Of several with the same host, the later ones have a number."""
    names: list[str] = []
    seen: Counter[str] = Counter()
    for url in urls:
        scheme, _, rest = url.partition("://")
        bare = url if unix_path(url) is not None else f"{scheme}://{re.split('[/?#]', rest, maxsplit=1)[0]}".lower()
        seen[bare] += 1
        names.append(f"{bare} ({seen[bare]})" if seen[bare] > 1 else bare)
    return tuple(names)


def is_for_this_machine(core: Core) -> bool:
    """True if only this machine can reach the listener, directly or through a proxy at `public_base_url`."""
    names = [] if core.port is None else [core.host]
    names += [urlsplit(core.public_base_url).hostname or ""] if core.public_base_url else []
    return all(is_loopback(host_of(name)) for name in names)


def shutdown_delay_of(core: Core) -> float:
    """Returns the seconds after the stop signal in which requests are still served."""
    if core.shutdown_delay_seconds is not None:
        return core.shutdown_delay_seconds
    return 0.0 if is_for_this_machine(core) else SHUTDOWN_DELAY_S


def host_of(name: str) -> str:
    """Normalizes a host for `Surface`: lower case, no port, IPv6 in brackets."""
    name = name.lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return f"[{name}]" if name.count(":") > 1 else name.partition(":")[0]
