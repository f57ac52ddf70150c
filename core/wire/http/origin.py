"""The `Host` and `Origin` checks of the listener: which names and web pages may reach it (else 403).

Source: 2025-11-25 basic/transports, "Security Warning".
"""

from __future__ import annotations

import re
from typing import Final

from ...base.errors import RemoteProtocolError
from ..headers import TRANSPORTS

_HOST: Final = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_.-]{1,253})(?::[0-9]{1,5})?")
_LOOPBACK: Final = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]{1,5})?")
_ORIGIN: Final = re.compile(r"https?://(\[[0-9a-f:.]{2,45}\]|[a-z0-9_.-]{1,253})(?::[0-9]{1,5})?")


def check_host(host: str | None, hosts: frozenset[str], *, any_host: bool, more: str = "") -> str:
    """Returns the `Host` header in lower case, port included, if its host is in `hosts` or `any_host` is set.

    A web page can make its own name resolve to this machine; the browser then sends that name as `Host`. Refusing it
    (403) prevents DNS rebinding. Source: 2025-11-25 basic/transports, "Security Warning".

    Args:
        more: the setting that adds to `hosts`.
    """
    matched = None if host is None else _HOST.fullmatch(host.lower())
    if matched is None or not (any_host or matched[1] in hosts):
        seen = "no Host header" if host is None else f"Host {host[:200]!r}"
        names = ", ".join(sorted(hosts))
        raise RemoteProtocolError(
            f"got {seen}, expected one of {names}{_addition(more)}",
            http_status=403,
            clause=f'{TRANSPORTS}, "Security Warning"',
        )
    return matched[0]


def _addition(setting: str) -> str:
    return f"; {setting} adds one" if setting else ""


def is_expected(host: str | None, hosts: frozenset[str], *, any_host: bool) -> bool:
    """True if the `Host` header, with or without a port, names one of `hosts`, or `any_host` is set."""
    matched = None if host is None else _HOST.fullmatch(host.lower())
    return matched is not None and (any_host or matched[1] in hosts)


def is_loopback(host: str) -> bool:
    """True if `host`, with or without a port, is a loopback name or address."""
    return _LOOPBACK.fullmatch(host.lower()) is not None


def check_origin(origin: str | None, hosts: frozenset[str], origins: frozenset[str], *, more: str = "") -> None:
    """Refuses an `Origin` that is not acceptable (403). Only browsers send one; a request without it passes.

    Args:
        more: the setting that adds to `origins`.
    """
    if origin is not None and not allows_origin(origin, hosts, origins):
        raise RemoteProtocolError(
            f"got Origin {origin[:200]!r}, expected none, or one that is allowed{_addition(more)}",
            http_status=403,
            clause=f'{TRANSPORTS}, "Security Warning"',
        )


def allows_origin(origin: str, hosts: frozenset[str], origins: frozenset[str]) -> bool:
    """True if web pages of `origin` may call: it is in `origins`, or its host is in `hosts`."""
    if origin.lower() in origins:
        return True
    matched = _ORIGIN.fullmatch(origin.lower())
    return matched is not None and matched[1] in hosts
