"""Redirects of an upstream server: which are followed, and what is said of the others.

307 and 308 say that the same request is to be made elsewhere: it has not run, and neither its method nor its body
changes. They are followed within the origin that was asked, which is all that its credentials are meant for. With 301,
302 and 303 a POST may become a GET and lose its message, so they are refused.

Frameworks redirect to the path with a slash more or less, and mean it for good though most say 307. That may be
remembered, and any 308 that was not for one client alone; another 307 is where the server wants this one request.

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
"""A longer path and query fit into no request line that a server would take."""


class Redirect(msgspec.Struct, frozen=True):
    """Ask for `target`, path and query, at the same origin. `is_lasting` if later requests may begin there."""

    target: bytes
    is_lasting: bool


def judge_redirect(
    address: Address, asked: bytes, status: int, headers: Iterable[tuple[bytes, bytes]], *, is_personal: bool = False
) -> Redirect | str | None:
    """Whether a response leads elsewhere: None if it does not, and a line for people if it is not to be followed.

    Args:
        address: of the server; its origin counts.
        asked: path and query of the request.
        headers: names in any case.
        is_personal: whether the request had anything of one client's: where that is sent, others need not belong.
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
        right = f"{address.scheme}://{address.authority.decode()}"
        return f"{seen}: it leaves {right}, which alone credentials are for; expected the final URL"
    return Redirect(found.target, _differ_by_slash(asked, found.target) or (status == 308 and not is_personal))


def show_origin(location: bytes) -> str:
    """Where a redirect leads, for people: path and credentials are nobody's business in a log."""
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
        return None  # some would be dropped in silence by what resolves it
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
