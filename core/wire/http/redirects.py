"""Redirects of an upstream server: those that are followed, and the error message for the others.

With 307 and 308 the server asks for the same request at another URL: the request has not run, and neither its method
nor its body changes. They are followed within the requested origin only, since credentials are meant for no other. With
301, 302 and 303 a POST may become a GET and lose its message, so they are refused.

A redirect is lasting if later requests may start at its target. A 308 is, unless the request had anything of one
client. A 307 is not, with one exception: frameworks redirect to the path with or without a final slash, and mean it for
good though most of them send 307.

Source: RFC 9110, 15.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urljoin, urlsplit

import msgspec

from .url import Address, parse_url

FOLLOWED: Final = frozenset({307, 308})
REFUSED: Final = frozenset({301, 302, 303})

TARGET_MAX_BYTES: Final = 8 * 1024
"""The longest path and query. No server takes a longer request line. At it: the redirect is not followed: error
-31004."""


class Redirect(msgspec.Struct, frozen=True):
    """A redirect to follow: `target` is path and query at the same origin. `is_lasting`: later requests may start
    there."""

    target: bytes
    is_lasting: bool


def judge_redirect(
    address: Address, asked: bytes, status: int, headers: Iterable[tuple[bytes, bytes]], *, is_personal: bool = False
) -> Redirect | str | None:
    """Returns the redirect to follow, None if the response is no redirect, or a line for people if it is refused.

    Args:
        address: the address of the server; only its origin counts.
        asked: path and query of the request.
        headers: names in any case.
        is_personal: the request had headers or cookies of one client, so its redirect need not hold for others.
    """
    if status not in FOLLOWED | REFUSED:
        return None
    locations = [value.strip() for name, value in headers if name.lower() == b"location"]
    if not locations:
        return None
    seen = f"got a redirect (HTTP status {status}) to {show_origin(locations[0])}, not followed"
    if status in REFUSED:
        return f"{seen}: a POST may lose its message; expected the final URL, or HTTP status 307 or 308"
    found = _resolve(address, asked, locations[0]) if len(set(locations)) == 1 else None
    if found is None:
        return f"{seen}; expected one URL that can be asked"
    if found.origin != address.origin:
        expected = f"{address.scheme}://{address.authority.decode()}"
        return f"{seen}: it leaves {expected}, which alone credentials are for; expected the final URL"
    return Redirect(found.target, _differ_by_slash(asked, found.target) or (status == 308 and not is_personal))


def show_origin(location: bytes) -> str:
    """Returns the origin of a `Location` for people. Path and credentials must not appear in a log."""
    try:
        parts = urlsplit(location.decode("ascii"))
        host, port = parts.hostname, parts.port
    except ValueError:
        return "an unreadable address"
    if not host:
        return "another path of the same origin"
    shown = f"{parts.scheme}://" if parts.scheme else "//"
    shown += f"[{host}]" if ":" in host else host
    shown += "" if port is None else f":{port}"
    return "".join(char if " " <= char <= "~" else "?" for char in shown[:100])


def _resolve(address: Address, asked: bytes, location: bytes) -> Address | None:
    if not location or not all(0x21 <= c <= 0x7E for c in location):
        return None  # `urljoin` would silently drop some of these
    base = f"{address.scheme}://{address.authority.decode()}{asked.decode('latin-1')}"
    try:
        found = parse_url(urljoin(base, location.decode()))
    except ValueError:
        return None
    return found if len(found.target) <= TARGET_MAX_BYTES else None


def _differ_by_slash(asked: bytes, target: bytes) -> bool:
    path, _, query = asked.partition(b"?")
    other, _, other_query = target.partition(b"?")
    return query == other_query and path.rstrip(b"/") == other.rstrip(b"/")
