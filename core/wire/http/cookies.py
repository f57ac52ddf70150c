"""The cookies of an upstream session: those that a server sets, and the `Cookie` header sent back to it.

Load balancers use a cookie to find the server that a session is on. A store has the cookies of one upstream session,
which are sent only to the origin that set them. This simplifies RFC 6265: `Path` is ignored (a session has one
endpoint), `Domain` must cover the host, a `Secure` cookie is kept over TLS only, and a cookie that has expired on
arrival is removed. Later expiry is not tracked: sessions are short, and servers check the cookies they get.

Values are credentials and appear in no message for people.

Source: RFC 6265, 5.1.1 (dates), 5.2 and 5.3 (`Set-Cookie`), 5.4 (`Cookie`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from ...base.events import CookieChanges, Cookies
from ...base.limits import Limits

COOKIE_MAX_BYTES: Final = 4 * 1024
"""The longest cookie, name and value together, as RFC 6265, 6.1 asks of a client. At it: the cookie is ignored."""

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z:@/?\[\](){}<>-]+")
_VALUE: Final = re.compile(r"[\t -~\x80-\xff]*")
_SECONDS: Final = re.compile(r"-?[0-9]+")
_NOT_IN_DATES: Final = re.compile(r"[^0-9A-Za-z:]+")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class CookieStore:
    """The cookies of one upstream session. Over `limits`, those that were set longest ago are dropped."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._values: dict[str, str] = {}

    @property
    def pairs(self) -> Cookies:
        """Names and values, the most recently set last."""
        return tuple(self._values.items())

    def receive(self, changes: CookieChanges) -> None:
        """Sets and removes cookies; a value of None removes one."""
        for name, value in changes:
            self._values.pop(name, None)
            if value is not None:
                self._values[name] = value
        size = sum(len(name) + len(value) for name, value in self._values.items())
        while len(self._values) > self._limits.cookies_max or size > self._limits.cookies_max_bytes:
            name = next(iter(self._values))
            size -= len(name) + len(self._values.pop(name))

    def clear(self) -> None:
        self._values.clear()


def read_cookies(
    headers: Iterable[tuple[bytes, bytes]], *, host: str, is_secure: bool, now_unix: float
) -> CookieChanges:
    """Returns the changes that the `Set-Cookie` headers of a response from `host` make. Invalid ones are ignored.

    Args:
        headers: names in any case.
        is_secure: the response came over TLS.
    """
    read = (
        _read_cookie(value.decode("latin-1"), host.lower(), is_secure, now_unix)
        for name, value in headers
        if name.lower() == b"set-cookie"
    )
    return tuple(change for change in read if change is not None)


def cookie_header(given: Iterable[bytes], kept: Cookies) -> bytes:
    """Returns the `Cookie` header made of the `given` values and the `kept` cookies. A given cookie takes precedence
    over a kept one of its name."""
    lines = list(given)
    named = {part.partition(b"=")[0].strip() for line in lines for part in line.split(b";")}
    encoded = ((name.encode("latin-1"), value.encode("latin-1")) for name, value in kept)
    return b"; ".join([*lines, *(name + b"=" + value for name, value in encoded if name not in named)])


def _read_cookie(line: str, host: str, is_secure: bool, now_unix: float) -> tuple[str, str | None] | None:
    pair, *parts = line.split(";")
    name, equals, value = (part.strip(" \t") for part in pair.partition("="))
    is_sound = equals and _NAME.fullmatch(name) and _VALUE.fullmatch(value)
    if not is_sound or len(name) + len(value) > COOKIE_MAX_BYTES:
        return None
    attributes: dict[str, str] = {}  # the last of several with one name counts
    for part in parts:
        key, _, text = part.partition("=")
        attributes[key.strip(" \t").lower()] = text.strip(" \t")
    domain = attributes.get("domain", "").removeprefix(".").lower()
    if domain and host != domain and (_is_address(host) or not host.endswith("." + domain)):
        return None
    is_gone = _is_expired(attributes, now_unix)
    if "secure" in attributes and not is_secure:
        return None
    return name, None if is_gone else value


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def _is_expired(attributes: dict[str, str], now_unix: float) -> bool:
    max_age = attributes.get("max-age", "")
    if _SECONDS.fullmatch(max_age):
        return max_age.startswith("-") or not max_age.strip("0")
    expires_at_unix = _parse_date(attributes.get("expires", ""))
    return expires_at_unix is not None and expires_at_unix <= now_unix


def _parse_date(text: str) -> float | None:
    """Parses a date with its parts in any order, as servers write it; None if `text` is not a date."""
    time: tuple[int, int, int] | None = None
    day = month = year = None
    for token in _NOT_IN_DATES.sub(" ", text).lower().split():
        if time is None and (found := re.match(r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?![0-9])", token)):
            time = int(found[1]), int(found[2]), int(found[3])
        elif day is None and (found := re.match(r"([0-9]{1,2})(?![0-9])", token)):
            day = int(found[1])
        elif month is None and token[:3] in _MONTHS:
            month = _MONTHS.index(token[:3]) + 1
        elif year is None and (found := re.match(r"([0-9]{2,4})(?![0-9])", token)):
            year = int(found[1])
    if time is None or day is None or month is None or year is None:
        return None
    year += 1900 if 70 <= year <= 99 else 2000 if year < 70 else 0
    try:
        return datetime(year, month, day, *time, tzinfo=UTC).timestamp()
    except ValueError:
        return None
