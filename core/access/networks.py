"""Networks of IP addresses, and which peers are in them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from .identity import Peer

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def read_address(text: str) -> Address | None:
    """Returns an IP address without its zone, and an IPv4 address in place of one that IPv6 stands for; None if the
    text is none."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def is_within(address: Address, networks: Iterable[Network]) -> bool:
    """True if one of the networks has the address."""
    return any(address.version == network.version and address in network for network in networks)


def is_peer_within(peer: Peer, networks: Iterable[Network], *, has_unix: bool) -> bool:
    """True if a peer has an address in one of the networks, or, with `has_unix`, is that of a Unix socket."""
    if peer.is_unix:
        return has_unix
    address = read_address(peer.host)
    return address is not None and is_within(address, networks)
