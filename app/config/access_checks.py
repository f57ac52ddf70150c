"""Checks of the part of a configuration that says who may call."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final

from ...core.access.client_certificates import is_name
from ...core.access.issuer_settings import ALGORITHMS
from ..base.problem import Problem
from .access_settings import Auth, Issuer
from .value_checks import check_header_name, check_path, check_url

UNIX: Final = "unix"
"""Stands for the peers of Unix sockets in `auth.proxy.peers` and `core.trusted_proxies`."""
DAY_MAX_CHARS: Final = 12
"""The longest text that is shown in place of a day."""
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")


def check_auth(auth: Auth, is_sound: Callable[[str], bool]) -> Iterator[Problem]:
    names: dict[str, str] = {}
    hashes: dict[str, str] = {}
    for i, token in enumerate(auth.tokens if is_sound("auth.tokens") else ()):
        key = f"auth.tokens[{i}]"
        if not token.name.isprintable():
            yield Problem(f"{key}.name", "printable characters")
        if token.name in names:
            yield Problem(f"{key}.name", f"a name of its own ({names[token.name]} has this one)", f"got {token.name!r}")
        names.setdefault(token.name, key)
        if _SHA256.fullmatch(token.sha256) is None:
            right = "64 hexadecimal digits, as `isthmus token new` prints them; the token itself is written nowhere"
            yield Problem(f"{key}.sha256", right, "got another text")
        elif token.sha256.lower() in hashes:
            yield Problem(f"{key}.sha256", f"a token of its own ({hashes[token.sha256.lower()]} has this one)")
        hashes.setdefault(token.sha256.lower(), key)
        if token.expires is not None and day_of(token.expires) is None:
            # Another text may be a misplaced token.
            seen = f"got {token.expires!r}" if len(token.expires) <= DAY_MAX_CHARS else "got another text"
            yield Problem(f"{key}.expires", "a day such as 2027-01-31", seen)
    for i, issuer in enumerate(auth.issuers if is_sound("auth.issuers") else ()):
        yield from _issuer(f"auth.issuers[{i}]", issuer, [each.url for each in auth.issuers[:i]])
    if sum(issuer.introspect is not None for issuer in auth.issuers) > 1:
        right = "one issuer with it at most: a token that is no JWT does not say whose it is"
        yield Problem("auth.issuers", right, "got introspect at several")
    clients = auth.client_certificates if is_sound("auth.client_certificates") else None
    if clients is not None:
        yield from check_path("auth.client_certificates.ca_file", clients.ca_file)
        for group, listed in clients.groups.items():
            for i, name in enumerate(listed):
                if not is_name(name):
                    right = "a URI, a DNS name in lower case, or an e-mail address, as in certificates"
                    yield Problem(f"auth.client_certificates.groups.{group}[{i}]", right, f"got {name[:60]!r}")
    if is_sound("auth.proxy") and auth.proxy is not None:
        for i, peer in enumerate(auth.proxy.peers):
            yield from check_peer(f"auth.proxy.peers[{i}]", peer)
        yield from check_header_name("auth.proxy.user", auth.proxy.user)
        if auth.proxy.groups is not None:
            yield from check_header_name("auth.proxy.groups", auth.proxy.groups)


def _issuer(key: str, issuer: Issuer, others: list[str]) -> Iterator[Problem]:
    yield from check_url(f"{key}.url", issuer.url, may_query=False)
    if issuer.url in others:
        yield Problem(f"{key}.url", "an issuer of its own: another entry has this one")
    if issuer.jwks_url is not None:
        yield from check_url(f"{key}.jwks_url", issuer.jwks_url)
    if issuer.introspect is not None and issuer.introspect.url is not None:
        yield from check_url(f"{key}.introspect.url", issuer.introspect.url)
    for name in issuer.algorithms or ():
        if name not in ALGORITHMS:
            yield Problem(f"{key}.algorithms", f"some of {', '.join(ALGORITHMS)}", f"got {name[:40]!r}")


def day_of(text: str) -> float | None:
    """Returns the Unix time at which a day begins (UTC); None if the text is none."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()


def check_peer(key: str, peer: str) -> Iterator[Problem]:
    """Checks the address, or the network, of proxies in front."""
    if network_of(peer) is None and peer != UNIX:
        yield Problem(key, "an address, a network such as 10.0.0.0/8, or unix", f"got {peer[:60]!r}")


def network_of(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None
