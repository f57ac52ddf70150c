"""Conditional requests for files (RFC 9110, 13)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ..headers import Headers
from .dates import format_date, parse_date

_TAG: Final = re.compile(rb'(W/)?("[^"]*")')


class Validators(NamedTuple):
    """The validators of a file: its entity tag and its modification time.

    Attributes:
        etag: a strong entity tag, quoted.
        stored_at_unix: the time since which the content is unchanged, in whole seconds; 0 if it is not known.
    """

    etag: bytes
    stored_at_unix: int

    @property
    def headers(self) -> Headers:
        """`ETag`, and `Last-Modified` if the time is known."""
        tag = ((b"etag", self.etag),)
        return (*tag, (b"last-modified", self._date.encode())) if self.stored_at_unix else tag

    @property
    def _date(self) -> str:
        return format_date(self.stored_at_unix)

    def judge(self, headers: Headers) -> int | None:
        """Evaluates the conditions of a GET or HEAD in the order of RFC 9110, 13.2.2. Returns 304 or 412 if the content
        is not to be sent, else None."""
        match, unmodified = _lines(headers, b"if-match"), self._since(headers, b"if-unmodified-since")
        if match is not None:
            if not self._is_in(match, is_weak=False):
                return 412
        elif unmodified is not None and self.stored_at_unix > unmodified:
            return 412
        none_match, modified = _lines(headers, b"if-none-match"), self._since(headers, b"if-modified-since")
        if none_match is not None:
            return 304 if self._is_in(none_match, is_weak=True) else None
        return 304 if modified is not None and self.stored_at_unix <= modified else None

    def allow_range(self, headers: Headers) -> bool:
        """True if `If-Range` permits a partial response. A date counts as a strong validator like the tag, because the
        content under one address never changes."""
        wanted = [value for name, value in headers if name == b"if-range"]
        known = [value for _, value in self.headers]
        return all(value in known for value in wanted)

    def _is_in(self, value: bytes, *, is_weak: bool) -> bool:
        """True if a list of tags has `etag`. Only a weak comparison considers weak tags."""
        if value.strip() == b"*":
            return True
        return any(tag == self.etag and (is_weak or not weak) for weak, tag in _TAG.findall(value))

    def _since(self, headers: Headers, name: bytes) -> int | None:
        """Returns the date of a condition; None if it cannot be evaluated, and is ignored (RFC 9110, 13.1.3)."""
        value = _lines(headers, name)
        return None if value is None or not self.stored_at_unix else parse_date(value.decode("latin-1"))


def _lines(headers: Headers, name: bytes) -> bytes | None:
    """Returns the values of all headers of that name, joined; None if there is none."""
    found = [value for other, value in headers if other == name]
    return b", ".join(found) if found else None
