"""The header `X-Forwarded-For`: the address of the caller behind the proxies that are trusted.

Each proxy adds the address of its own peer at the end. So the entries of the proxies that are trusted stand at the
right, and what a client has written itself stands left of the address that the first of them has added. The caller is
the rightmost entry that is no trusted proxy. The header counts only if the peer of the connection is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from ...access.identity import Peer
from ...access.networks import Network, is_peer_within, is_within, read_address
from ..headers import Headers

FORWARDED_FOR: Final = b"x-forwarded-for"
PROXIES_MAX: Final = 16
"""Entries that are looked at, from the right. A request passes a balancer, a web server and an ingress: hardly anybody
has more proxies than that in a row. At it: the caller is the last one that was looked at."""
ENTRY_MAX_BYTES: Final = 64
"""The longest entry: an IPv6 address with a zone, in brackets, with a port. At it: the entry is no address."""

_WITH_PORT: Final = re.compile(r"\[([^\]]*)\](?::[0-9]+)?|([0-9.]+):[0-9]+")


class TrustedProxies(msgspec.Struct, frozen=True):
    """The proxies in front whose `X-Forwarded-For` counts.

    Attributes:
        networks: their addresses.
        has_unix: peers of Unix sockets are proxies too.
    """

    networks: tuple[Network, ...] = ()
    has_unix: bool = False

    def has(self, peer: Peer) -> bool:
        """True if a peer is one of them."""
        return is_peer_within(peer, self.networks, has_unix=self.has_unix)


def caller_host(headers: Headers, peer: Peer, proxies: TrustedProxies) -> str:
    """Returns the IP address of the caller of a request; "" if it has none, as on a Unix socket.

    An entry that is no address, such as `unknown` or a name that hides one, was written by the proxy right of it. That
    proxy is then the last one whose address is known, and counts as the caller.

    Args:
        headers: of the request, names in lower case.
    """
    if not proxies.has(peer):
        return peer.host
    host = peer.host
    for entry in _entries(headers):
        address = read_address(_without_port(entry))
        if address is None:
            break
        host = str(address)
        if not is_within(address, proxies.networks):
            break
    return host


def _entries(headers: Headers) -> Iterator[str]:
    """Yields the entries of all headers of that name from the right, `PROXIES_MAX` at most."""
    left = PROXIES_MAX
    for name, value in reversed(headers):
        if name != FORWARDED_FOR:
            continue
        entries = value.rsplit(b",", left)
        for entry in reversed(entries[-left:]):
            yield entry.strip(b" \t").decode("latin-1") if len(entry) <= ENTRY_MAX_BYTES else ""
        left -= min(left, len(entries))
        if not left:
            return


def _without_port(entry: str) -> str:
    """Returns the address of an entry: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or
    `[2001:db8::1]:80`."""
    found = _WITH_PORT.fullmatch(entry)
    return entry if found is None else found[1] or found[2] or ""
