"""The documents of an issuer: its metadata, and the key set that they name.

An attempt to read them is one request after another: metadata, at the addresses at which they may be, then the keys. A
key set is valid for an hour, or as long as its `Cache-Control` says; it is used for another day while it cannot be read
anew. What was read in an attempt takes the place of everything that was read before.
"""

from __future__ import annotations

import math
import re
import urllib.parse
from typing import Final

import msgspec

from .issuer_answers import DocumentWanted, Headers, KeysWanted, MetadataWanted, Reply, Unavailable, Waits
from .json_web_tokens import read_object, shown
from .public_keys import DOCUMENT_MAX_BYTES, Key, read_key_set

REFETCH_PAUSE_S: Final = 10.0
"""Seconds from the end of an attempt to the beginning of the next one."""
VALID_S: Final = 3600.0
"""Seconds for which documents are valid that do not say it."""
VALID_MIN_S: Final = 300.0
VALID_MAX_S: Final = 24 * 3600.0
AHEAD_S: Final = 60.0
"""Seconds before their end from which documents are read anew in the background."""
STALE_S: Final = 24 * 3600.0
"""Seconds for which documents are used when they should have been read anew and could not be."""
STALE_RETRY_S: Final = 60.0
"""Seconds for which nobody waits for documents that could not be read anew."""

_MAX_AGE: Final = re.compile(rb"(?:^|[\s,])max-age=\"?([0-9]{1,9})", re.IGNORECASE)
_NO_STORE: Final = re.compile(rb"(?:^|[\s,])no-(?:store|cache)\b", re.IGNORECASE)


class IssuerMetadata(msgspec.Struct, frozen=True):
    """The addresses that an issuer publishes. Those that it does not have are ""."""

    jwks_url: str = ""
    introspection_url: str = ""


class IssuerDocuments:
    """Reads the documents of an issuer, and keeps them.

    Args:
        issuer: its URL.
        place: where it stands in the configuration.
        jwks_url: the address of its key set; "": its metadata name it.
        has_keys: False for an issuer that is asked about each token: its metadata are all there is to read.

    Attributes:
        keys: as they were read last.
        metadata: as they were read last.
        attempts: the number of attempts that have ended.
        is_read: the last of them was successful.
    """

    def __init__(self, issuer: str, place: str, *, jwks_url: str = "", has_keys: bool = True) -> None:
        self.issuer = issuer
        self.keys: tuple[Key, ...] = ()
        self.metadata = IssuerMetadata(jwks_url)
        self.attempts = 0
        self.is_read = False
        self._place = place
        self._pinned = jwks_url
        self._has_keys = has_keys
        self._current: DocumentWanted | None = None
        self._addresses = metadata_urls(issuer)
        self._left: tuple[str, ...] = ()
        self._problems: list[str] = []
        self._ended_at = -math.inf
        self._read_at: float | None = None
        self._valid_s = VALID_S

    @property
    def is_attempted(self) -> bool:
        """True from the moment in which an attempt is asked for to its end."""
        return self._current is not None

    def ask(self, now: float) -> Waits | Unavailable | None:
        """Returns None if the documents can be used."""
        age = math.inf if self._read_at is None else now - self._read_at
        if 0 <= age < self._valid_s:
            return None
        is_usable = age < self._valid_s + STALE_S
        pause = STALE_RETRY_S if is_usable else REFETCH_PAUSE_S
        if not self.is_read and 0 <= now - self._ended_at < pause:
            return None if is_usable else self.unavailable(now)
        return Waits(self.want(now))

    def due(self, now: float) -> DocumentWanted | None:
        """Returns the request for documents that were never read, or end soon."""
        if self._read_at is not None and 0 <= now - self._read_at < self._valid_s - AHEAD_S:
            return None
        return self.want(now)

    def want(self, now: float) -> DocumentWanted:
        """Returns the next request of the attempt that is under way, or the first one of a new attempt."""
        if self._current is None or self._current.not_before > now + REFETCH_PAUSE_S:  # the clock was set back
            not_before = self._ended_at + REFETCH_PAUSE_S if self.rest_of_pause(now) else 0.0
            self._problems, self._left = [], ()
            self._current = self._keys_wanted(not_before) if self._pinned else self._metadata_wanted(not_before)
        return self._current

    def next_attempt(self, now: float) -> int:
        """Returns the number of the first attempt whose request for keys is sent after now."""
        current = self._current
        has_begun = isinstance(current, KeysWanted) and current.not_before <= now
        return self.attempts + (2 if has_begun else 1)

    def rest_of_pause(self, now: float) -> float:
        """Returns the seconds until an attempt may begin. A clock that was set back ends the pause."""
        since = now - self._ended_at
        return REFETCH_PAUSE_S - since if 0 <= since < REFETCH_PAUSE_S else 0.0

    @property
    def problem(self) -> str:
        """The reason why the last attempt failed, for people; "" if it did not, or there was none."""
        if self.is_read or not self.attempts:
            return ""
        problem = "; ".join(self._problems) or "no answer"
        return f"the documents of {shown(self.issuer)} cannot be read: {problem}"

    def age_s(self, now: float) -> int:
        """Returns the seconds since the end of the last attempt."""
        return max(round(now - self._ended_at), 0)

    def unavailable(self, now: float, reason: str = "") -> Unavailable:
        return Unavailable(max(math.ceil(self.rest_of_pause(now)), 1), reason or self.problem)

    def receive(self, request: DocumentWanted, reply: Reply, now: float) -> bool:
        """Takes the response to a request. True if the attempt has ended with it."""
        if request != self._current:
            return False
        if reply.status != 200:
            return self._go_on(request, f"answered {reply.status}", now)
        if isinstance(request, KeysWanted):
            keys = read_key_set(reply.body)
            if isinstance(keys, str):
                return self._go_on(request, keys, now)
            self.keys = keys
            return self._end(reply.headers, now)
        metadata = _read_metadata(reply.body, self.issuer, self._place)
        if isinstance(metadata, str):
            return self._go_on(request, metadata, now)
        if not (metadata.jwks_url if self._has_keys else metadata.introspection_url):
            wanted = "jwks_uri" if self._has_keys else "introspection_endpoint"
            return self._go_on(request, f"names no usable {wanted}", now)
        self.metadata = metadata
        self._addresses = tuple(sorted(self._addresses, key=lambda address: address != request.url))
        if not self._has_keys:
            return self._end(reply.headers, now)
        self._current = self._keys_wanted()
        return False

    def fail(self, request: DocumentWanted, why: str, now: float) -> bool:
        """Notes that there is no response to a request. True if the attempt has ended with it."""
        if request != self._current:
            return False
        self._left = ()  # the other addresses are of the same host
        return self._go_on(request, why or "no answer", now)

    def _go_on(self, request: DocumentWanted, problem: str, now: float) -> bool:
        self._problems.append(f"{shown(request.url)} {problem}")
        if isinstance(request, MetadataWanted):
            if self._left:
                self._current = self._metadata_wanted()
                return False
            if self.metadata.jwks_url and self._has_keys:  # where the keys were before
                self._current = self._keys_wanted()
                return False
        return self._end(None, now)

    def _end(self, headers: Headers | None, now: float) -> bool:
        """Ends the attempt: with the headers of the last document, or None if it could not be read."""
        self.attempts += 1
        self._current, self._left = None, ()
        self._ended_at = now
        self.is_read = headers is not None
        if headers is not None:
            self._read_at = now
            self._valid_s = _valid_s(headers)
        return True

    def _metadata_wanted(self, not_before: float = 0.0) -> DocumentWanted:
        url, *left = self._left or self._addresses
        self._left = tuple(left)
        return MetadataWanted(self.issuer, url, self.attempts + 1, not_before)

    def _keys_wanted(self, not_before: float = 0.0) -> DocumentWanted:
        return KeysWanted(self.issuer, self.metadata.jwks_url, self.attempts + 1, not_before)


def metadata_urls(issuer: str) -> tuple[str, ...]:
    """Returns the addresses at which the metadata of an issuer may be, in the order of 2026-07-28
    basic/authorization/authorization-server-discovery."""
    parts = urllib.parse.urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.removesuffix("/")
    found = [
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
    ]
    return (*found, f"{origin}{path}/.well-known/openid-configuration") if path else tuple(found)


def _read_metadata(data: bytes, issuer: str, place: str) -> IssuerMetadata | str:
    """Returns what the metadata of an issuer say, or a predicate that says what is wrong with them."""
    if len(data) > DOCUMENT_MAX_BYTES:
        return f"has more than {DOCUMENT_MAX_BYTES} bytes"
    found = read_object(data)
    if isinstance(found, str):
        return found
    named = found.get("issuer")
    if named != issuer:  # RFC 8414, 3.3: "MUST be identical"
        seen = shown(named) if isinstance(named, str) else "none"
        return f"names the issuer {seen}, {place}.url is {shown(issuer)}: both must be the same, character by character"
    is_plain = issuer.startswith("http://")
    return IssuerMetadata(
        _usable(found.get("jwks_uri"), is_plain=is_plain),
        _usable(found.get("introspection_endpoint"), is_plain=is_plain),
    )


def _usable(url: object, *, is_plain: bool) -> str:
    """Returns a URL that may be requested: of HTTPS, or of HTTP if the issuer itself has no TLS."""
    schemes = ("https://", "http://") if is_plain else ("https://",)
    return url if isinstance(url, str) and url.startswith(schemes) else ""


def _valid_s(headers: Headers) -> float:
    """Returns the seconds for which a response is valid (RFC 9111, 5.2.2), within `VALID_MIN_S` and `VALID_MAX_S`."""
    control = b",".join(value for name, value in headers if name == b"cache-control")
    if _NO_STORE.search(control):
        return VALID_MIN_S
    age = _MAX_AGE.search(control)
    return VALID_S if age is None else min(max(float(age[1]), VALID_MIN_S), VALID_MAX_S)
