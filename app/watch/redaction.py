"""Replaces secrets in messages and headers, before anybody can look at them.

The values of members with telling names are replaced, wherever they stand in a message, and so are bearer tokens and
the signatures of links in texts. All other bytes stay as they crossed the wire.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

REDACTED: Final = "[redacted]"
NAMES: Final = (
    "password",
    "passwd",
    "secret",
    "token",
    "apikey",
    "authorization",
    "cookie",
    "credential",
    "privatekey",
    "requeststate",
)
"""Parts of the names of members whose values are replaced, without case, `_` and `-`."""
HARMLESS: Final = frozenset({"progresstoken", "maxtokens", "totaltokens", "inputtokens", "outputtokens", "tokens"})
"""Names that hold such a part and no secret."""
KEPT_MAX: Final = 1024
"""Names of headers and tags of sessions that are kept: those of the clients of some minutes."""
TAG_CHARS: Final = 8
"""Characters of the tag that stands for the id of a session."""

_VALUE: Final = b'"' + REDACTED.encode() + b'"'
_STRING: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"(\s*:\s*)?', re.DOTALL)
_SCALAR: Final = re.compile(rb"[^\s,\]}]+")
_IN_TEXT: Final = re.compile(
    rb"((?i:bearer|authorization: *basic) +)[A-Za-z0-9._~+/=-]{16,}|([?&](?:sig|token|state|code)=)[^&\"\s\\#]+"
)
_SESSION: Final = frozenset({"mcp-session-id"})
_SAFE_HEADERS: Final = re.compile(
    r"accept(-.*)?|content-(type|length|encoding)|user-agent|host|origin|last-event-id|mcp-protocol-version|mcp-method|"
    r"mcp-name|mcp-param-.*|traceparent|tracestate|retry-after|date|server|www-authenticate"
)
"""Headers whose values are shown. Others may hold credentials under any name."""


class Redaction(NamedTuple):
    """A message without its secrets.

    Attributes:
        body: the message.
        members: the names of the members whose values were replaced, in order.
    """

    body: bytes
    members: tuple[str, ...]


class Redactor:
    """Replaces secrets.

    Args:
        names: further names of members, or parts of them.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = (*NAMES, *map(_plain, names))
        self._signs = (*(name.encode() for name in self._names), b"bearer", b"sig=", b"state=", b"code=", b"\\u")
        self._is_shown = lru_cache(KEPT_MAX)(self._may_be_shown)

    def redact(self, body: bytes) -> Redaction:
        """Returns a message without its secrets. What is no JSON is read as far as it looks like it."""
        plain = body.lower().replace(b"_", b"").replace(b"-", b"")
        if not any(sign in plain for sign in self._signs):
            return Redaction(body, ())
        kept: list[bytes] = []
        members: list[str] = []
        at = 0
        while (match := _STRING.search(body, at)) is not None:
            kept.append(_IN_TEXT.sub(_replaced, body[at : match.end()]))
            at = match.end()
            if match[2] is not None and self._is_secret(match[1]):
                end = _end_of_value(body, at)
                if body[at:end] not in (b"null", b"true", b"false", b'""'):
                    kept.append(_VALUE)
                    members.append(_text(match[1]))
                    at = end
        kept.append(_IN_TEXT.sub(_replaced, body[at:]))
        return Redaction(b"".join(kept), tuple(members))

    def headers(self, headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Returns headers without secrets, and each session id as its tag."""
        return [
            (name, _tag_of(value) if name.lower() in _SESSION else value if self._is_shown(name) else REDACTED)
            for name, value in headers
        ]

    def _may_be_shown(self, name: str) -> bool:
        lower = name.lower()
        return _SAFE_HEADERS.fullmatch(lower) is not None and not any(part in _plain(lower) for part in self._names)

    def _is_secret(self, name: bytes) -> bool:
        plain = _plain(_text(name))
        return plain not in HARMLESS and any(part in plain for part in self._names)


@lru_cache(KEPT_MAX)
def _tag_of(session: str) -> str:
    """Returns the tag that stands for the id of a session, which is its credential."""
    return hashlib.sha256(session.encode(errors="surrogatepass")).hexdigest()[:TAG_CHARS]


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _text(inside: bytes) -> str:
    """Returns the text of a JSON string, without its quotes."""
    try:
        return msgspec.json.decode(b'"' + inside + b'"', type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return inside.decode(errors="replace")


def _replaced(match: re.Match[bytes]) -> bytes:
    return (match[1] or match[2]) + REDACTED.encode()


def _end_of_value(body: bytes, at: int) -> int:
    """Returns the end of the JSON value that begins at `at`; the end of the body if it has none."""
    if body[at : at + 1] not in (b"{", b"["):
        if body[at : at + 1] == b'"':
            match = _STRING.match(body, at)
            return len(body) if match is None else match.end(1) + 1  # a text that is cut off has no end
        match = _SCALAR.match(body, at)
        return at if match is None else match.end()
    depth = 0
    for match in _BRACKET.finditer(body, at):
        if match[0][:1] != b'"':
            depth += 1 if match[0] in (b"{", b"[") else -1
            if not depth:
                return match.end()
    return len(body)


_BRACKET: Final = re.compile(rb'[{}\[\]]|"(?:[^"\\]|\\.)*"', re.DOTALL)
