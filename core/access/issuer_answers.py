"""The answers to the question who a token is from, and the requests to issuers that some of them wait for."""

from __future__ import annotations

import base64
import urllib.parse
from typing import ClassVar

import msgspec

Headers = tuple[tuple[bytes, bytes], ...]


class DocumentWanted(msgspec.Struct, frozen=True):
    """A document of an issuer that is to be requested.

    Equal values are one request: later callers wait for the one that is under way.

    Attributes:
        issuer: its URL in the settings.
        attempt: numbers the attempts to read the issuer's documents.
        not_before: Unix seconds before which the request is not sent, at most `REFETCH_PAUSE_S` from now; 0.0: at once.
    """

    issuer: str
    url: str
    attempt: int
    not_before: float = 0.0

    method: ClassVar[str] = "GET"
    headers: ClassVar[Headers] = ((b"accept", b"application/json"),)
    body: ClassVar[bytes] = b""


class MetadataWanted(DocumentWanted, frozen=True):
    """The metadata of an authorization server (RFC 8414, or OpenID Connect Discovery) are to be requested."""


class KeysWanted(DocumentWanted, frozen=True):
    """The key set of an issuer (RFC 7517) is to be requested."""


class IntrospectionWanted(msgspec.Struct, frozen=True):
    """An issuer is to be asked about a token (RFC 7662). The request holds secrets, which its text does not show."""

    issuer: str
    url: str
    token: str
    client_id: str
    client_secret: str

    method: ClassVar[str] = "POST"
    not_before: ClassVar[float] = 0.0

    @property
    def headers(self) -> Headers:
        """The headers of the request. The credentials are form-encoded first (RFC 6749, 2.3.1)."""
        pair = f"{urllib.parse.quote_plus(self.client_id)}:{urllib.parse.quote_plus(self.client_secret)}"
        return (
            (b"accept", b"application/json"),
            (b"content-type", b"application/x-www-form-urlencoded"),
            (b"authorization", b"Basic " + base64.b64encode(pair.encode())),
        )

    @property
    def body(self) -> bytes:
        return urllib.parse.urlencode({"token": self.token, "token_type_hint": "access_token"}).encode()

    def __repr__(self) -> str:
        return f"IntrospectionWanted(issuer={self.issuer!r}, url={self.url!r})"


Wanted = DocumentWanted | IntrospectionWanted


class Reply(msgspec.Struct, frozen=True):
    """The response to a request.

    Attributes:
        headers: names in lower case.
        body: of a key set or metadata at most `DOCUMENT_MAX_BYTES`; a longer one is refused.
    """

    status: int
    headers: Headers = ()
    body: bytes = b""

    def __repr__(self) -> str:
        return f"Reply(status={self.status}, body of {len(self.body)} bytes)"


class Refused(msgspec.Struct, frozen=True):
    """The token is not accepted: 401 `invalid_token`.

    Attributes:
        reason: why, for people. Of the token it holds `kid`, `iss` and `aud` at most.
    """

    reason: str


class Unavailable(msgspec.Struct, frozen=True):
    """The token cannot be judged now: 503, for on a 401 clients throw tokens away.

    Attributes:
        reason: why, for people.
    """

    retry_after_s: int
    reason: str = ""


class Waits(msgspec.Struct, frozen=True):
    """The answer depends on a request: after it, the same question is asked again."""

    request: Wanted
