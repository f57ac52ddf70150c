"""Whether a client wants a file at all, given what it has of it: conditional requests (RFC 9110, 13)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ..headers import Headers
from .dates import format_date, parse_date

_TAG: Final = re.compile(rb'(W/)?("[^"]*")')


class Validators(NamedTuple):
    """What tells one content from another.

    Attributes:
        etag: a strong one, quoted.
        stored_at_unix: since when the content is what it is, in whole seconds; 0 if that is not known.
    """

    etag: bytes
    stored_at_unix: int

    @property
    def headers(self) -> Headers:
        tag = ((b"etag", self.etag),)
        return (*tag, (b"last-modified", self._date.encode())) if self.stored_at_unix else tag

    @property
    def _date(self) -> str:
        return format_date(self.stored_at_unix)

    def judge(self, headers: Headers) -> int | None:
        """The status that answers a GET or HEAD without the content, 304 or 412, or None; in the order of RFC 9110,
        13.2.2."""
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
        """Whether a part fits to what the client has: `If-Range`. The date is as good as the tag, for the content under
        one address never changes."""
        wanted = [value for name, value in headers if name == b"if-range"]
        known = [value for _, value in self.headers]
        return all(value in known for value in wanted)

    def _is_in(self, value: bytes, *, is_weak: bool) -> bool:
        """Whether a list of tags has ours. Only a weak comparison heeds weak ones."""
        if value.strip() == b"*":
            return True
        return any(tag == self.etag and (is_weak or not weak) for weak, tag in _TAG.findall(value))

    def _since(self, headers: Headers, name: bytes) -> int | None:
        """The moment that a condition names, if it can be judged; RFC 9110, 13.1.3: else it is ignored."""
        value = _lines(headers, name)
        return None if value is None or not self.stored_at_unix else parse_date(value.decode("latin-1"))


def _lines(headers: Headers, name: bytes) -> bytes | None:
    """All that stands in headers of that name; None if there is none."""
    found = [value for other, value in headers if other == name]
    return b", ".join(found) if found else None
