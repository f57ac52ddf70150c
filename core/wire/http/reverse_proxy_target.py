"""The translation between paths of this proxy and URLs of a transparent server.

    /mcp/<id>                     the configured URL, as it is written
    /mcp/<id>/<rest>?<query>      below the configured URL, its own query first
    /mcp/<id>/~/<mark>/<path>     any path of the configured URL's origin that the server itself has named

The mark is a signature of the path, which no client can forge. Clients therefore reach what is below the configured URL
and what the server itself has named, and nothing else on the same host. The signature needs no stored state.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

import msgspec

from ...base.errors import RemoteProtocolError
from ..headers import Headers

ANYWHERE: Final = "/~/"
MARK_CHARS: Final = 32

LOCATIONS: Final = frozenset({b"location", b"content-location"})
"""Response headers with a URL."""

_PORTS: Final = {"http": 80, "https": 443}
_VISIBLE: Final = re.compile(r"[!-~]+")


class ForwardTarget(msgspec.Struct, frozen=True):
    """The paths of one transparent server. `to_upstream` and `to_client` are inverse to each other.

    Attributes:
        server: the id of the server.
        base_url: the configured URL: http or https, visible ASCII, with host and path, without user-info and fragment.
        key: the key that signs paths.
        public_path: the prefix of this proxy's paths as clients see them, without a slash at the end.
    """

    server: str
    base_url: str
    key: bytes
    public_path: str = ""

    def to_upstream(self, rest: str, query: str) -> bytes:
        """Returns the request target for the part of a path after `/mcp/<id>`.

        Raises:
            RemoteProtocolError: the path leads out of the configured URL, or its mark is not valid (404).
        """
        path, own_query = self._base()
        if rest.startswith(ANYWHERE):
            mark, slash, tail = rest[len(ANYWHERE) :].partition("/")
            if not hmac.compare_digest(mark.encode(), self._mark(slash + tail).encode()):
                raise RemoteProtocolError("got a path that this server has not given out", http_status=404)
            path, own_query = slash + tail, ""
        elif rest not in ("", "/"):  # many clients are configured with a slash at the end
            if not _is_below(rest):
                raise RemoteProtocolError("got a path with . or .. in it, expected none")
            path = path.rstrip("/") + rest
        both = "&".join(part for part in (own_query, query) if part)
        return f"{path}?{both}".encode() if both else path.encode()

    def to_client(self, uri: str, requested: bytes) -> str:
        """Returns the path and query by which a client reaches `uri`.

        Args:
            uri: a URI that the server named, relative to the request target `requested`.

        Raises:
            RemoteProtocolError: the URI is of another origin, or unreadable: a client that followed it would leave the
                proxy.
        """
        shown = f"endpoint {uri[:200]!r}"
        if not _VISIBLE.fullmatch(uri):
            raise RemoteProtocolError(f"got {shown}, expected a URI in visible ASCII")
        try:
            found = self._resolve(uri, requested)
        except ValueError:
            raise RemoteProtocolError(f"got {shown}, expected a URI")
        if found is None:
            origin = urlsplit(self.base_url)
            raise RemoteProtocolError(f"got {shown}, expected one of {origin.scheme}://{origin.netloc}")
        return self._public(found)

    def relocate(self, headers: Headers, requested: bytes) -> Headers:
        """Returns a response's headers, names in lower case, with each of `LOCATIONS` that is the configured URL or
        below it replaced by the URL that a client reaches it by. Any other stays unchanged, also an unreadable one."""
        if not any(name in LOCATIONS for name, _ in headers):
            return headers
        return tuple(
            (name, self._relocated(value, requested) if name in LOCATIONS else value) for name, value in headers
        )

    def _relocated(self, location: bytes, requested: bytes) -> bytes:
        uri, mark, fragment = location.decode("latin-1").partition("#")
        try:
            found = self._resolve(uri, requested) if _VISIBLE.fullmatch(uri) else None
        except ValueError:
            found = None
        if found is None:
            return location
        path, own_query = self._base()
        rest = found.path.removeprefix(path.rstrip("/"))
        if found.path != path.rstrip("/") + rest or rest[:1] not in ("", "/") or not _is_below(rest):
            return location
        if found.path == path and own_query in ("", found.query):  # the configured URL itself
            added = f"?{found.query}" if found.query and not own_query else ""
            public = f"{self.public_path}/mcp/{self.server}{added}"
        else:
            public = self._public(found)
        return f"{public}{mark}{fragment}".encode("latin-1")

    def _resolve(self, uri: str, requested: bytes) -> SplitResult | None:
        """Resolves a URI that the server named; None if it is of another origin.

        Raises:
            ValueError: `uri` is not a URI.
        """
        found = urlsplit(urljoin(urljoin(self.base_url, requested.decode()), uri))
        is_same = "@" not in found.netloc and _origin(found.geturl()) == _origin(self.base_url)
        found = found._replace(path=found.path or "/")
        return found if is_same and found.path.startswith("/") else None

    def _public(self, found: SplitResult) -> str:
        base, own_query = self._base()
        rest = found.path.removeprefix(base.rstrip("/"))
        is_plain = found.path.startswith(base.rstrip("/")) and rest.startswith("/") and rest != "/"
        if own_query or not is_plain or rest.startswith(ANYWHERE) or not _is_below(rest):
            rest = f"{ANYWHERE}{self._mark(found.path)}{found.path}"
        return f"{self.public_path}/mcp/{self.server}{rest}" + (f"?{found.query}" if found.query else "")

    def _base(self) -> tuple[str, str]:
        parts = urlsplit(self.base_url)
        return parts.path or "/", parts.query

    def _mark(self, path: str) -> str:
        signed = f"forward\n{self.server}\n{path}".encode()
        return hmac.new(self.key, signed, hashlib.sha256).hexdigest()[:MARK_CHARS]


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _is_below(rest: str) -> bool:
    """True if no reading of a path leads above its beginning. Some servers decode percent-encoding before they resolve
    `..`, once or twice, and some treat a backslash as a slash."""
    segments = re.split(r"[/\\]", unquote(unquote(rest, errors="replace"), errors="replace"))
    return not any(segment in (".", "..") for segment in segments)
