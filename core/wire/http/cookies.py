"""Cookies of an upstream session: what a server sets, and what is sent back to it.

Load balancers know by a cookie which of many servers a session is on. A store has the cookies of one upstream session,
and they are sent to the one origin that set them, so the rules of RFC 6265 shrink: `Path` says nothing (a session has
one endpoint), `Domain` must cover the host, what is `Secure` is kept over TLS only, and what has expired on arrival is
removed. Later expiry is not watched: sessions are short, and servers judge what they get.

Values are credentials. They stand in no message for people.

Source: RFC 6265, 5.1.1 (dates), 5.2 and 5.3 (`Set-Cookie`), 5.4 (`Cookie`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from ...base.effects import CookieChanges, Cookies
from ...base.limits import Limits

COOKIE_MAX_BYTES: Final = 4 * 1024
"""One cookie, name and value: all that RFC 6265, 6.1 asks of a client. Longer ones are ignored."""

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z:@/?\[\](){}<>-]+")
_VALUE: Final = re.compile(r"[\t -~\x80-\xff]*")
_SECONDS: Final = re.compile(r"-?[0-9]+")
_NOT_IN_DATES: Final = re.compile(r"[^0-9A-Za-z:]+")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class CookieStore:
    """The cookies of one upstream session. What was set longest ago makes room, within `limits`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._values: dict[str, str] = {}

    @property
    def pairs(self) -> Cookies:
        """Names and values, what was set last at the end."""
        return tuple(self._values.items())

    def receive(self, changes: CookieChanges) -> None:
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
    """What the `Set-Cookie` lines of a response from `host` mean. A line that means nothing is left out.

    Args:
        headers: names in any case.
        is_secure: whether it came over TLS.
    """
    read = (
        _read_cookie(value.decode("latin-1"), host.lower(), is_secure, now_unix)
        for name, value in headers
        if name.lower() == b"set-cookie"
    )
    return tuple(change for change in read if change is not None)


def cookie_header(given: Iterable[bytes], kept: Cookies) -> bytes:
    """What is to be sent as `Cookie` with what is there already: that has precedence, name by name."""
    lines = list(given)
    named = {part.partition(b"=")[0].strip() for line in lines for part in line.split(b";")}
    encoded = ((name.encode("latin-1"), value.encode("latin-1")) for name, value in kept)
    return b"; ".join([*lines, *(name + b"=" + value for name, value in encoded if name not in named)])


def _read_cookie(line: str, host: str, is_secure: bool, now_unix: float) -> tuple[str, str | None] | None:
    pair, *attributes = line.split(";")
    name, equals, value = (part.strip(" \t") for part in pair.partition("="))
    is_sound = equals and _NAME.fullmatch(name) and _VALUE.fullmatch(value)
    if not is_sound or len(name) + len(value) > COOKIE_MAX_BYTES:
        return None
    said: dict[str, str] = {}  # the last of several equals counts
    for attribute in attributes:
        key, _, text = attribute.partition("=")
        said[key.strip(" \t").lower()] = text.strip(" \t")
    domain = said.get("domain", "").removeprefix(".").lower()
    if domain and host != domain and (_is_address(host) or not host.endswith("." + domain)):
        return None
    is_gone = _is_expired(said, now_unix)
    if "secure" in said and not is_secure:
        return None
    return name, None if is_gone else value


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def _is_expired(said: dict[str, str], now_unix: float) -> bool:
    max_age = said.get("max-age", "")
    if _SECONDS.fullmatch(max_age):
        return max_age.startswith("-") or not max_age.strip("0")
    expires_at_unix = _parse_date(said.get("expires", ""))
    return expires_at_unix is not None and expires_at_unix <= now_unix


def _parse_date(text: str) -> float | None:
    """A date as servers write it, in whichever order; None if it is none."""
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
