"""Judges IP addresses: a URL that another party wrote must not lead into this machine or its network.

Source: 2026-07-28 basic/security_best_practices, "Server-Side Request Forgery"; RFC 9728, 7.7; the IANA registries of
special-purpose addresses, as `ipaddress` has them.
"""

from __future__ import annotations

import ipaddress
from typing import Final

_IP = ipaddress.IPv4Address | ipaddress.IPv6Address
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")  # RFC 4291, 2.5.5.1, as well
_TRANSLATED_LOCALLY: Final = ipaddress.IPv6Network("64:ff9b:1::/48")  # RFC 8215


def explain_address(address: _IP) -> str:
    """Returns what kind of address it is, if it is none of the public internet; else ""."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return "an IPv4-mapped address"
        if address.is_site_local or address in _TRANSLATED_LOCALLY:
            return "a private address"
    if address.is_unspecified:
        return "the unspecified address"
    if address.is_loopback:
        return "a loopback address"
    if address.is_link_local:
        return "a link-local address"
    if address.is_multicast:
        return "a multicast address"
    if not address.is_global:
        return "a private address"
    inner = _inner(address)
    kind = "" if inner is None else explain_address(inner)
    return f"{kind} inside an IPv6 address" if kind else ""


def is_loopback_name(host: str) -> bool:
    """True if a host is `localhost` or a loopback address, as they are usually written."""
    name = host.lower().rstrip(".")
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _inner(address: _IP) -> ipaddress.IPv4Address | None:
    """Returns the IPv4 address to which a gateway passes on what is sent to an IPv6 address."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _TRANSLATED or address in _COMPATIBLE:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour or (address.teredo[1] if address.teredo is not None else None)
