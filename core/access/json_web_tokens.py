"""The form of a JSON Web Token (RFC 7519, in the compact form of RFC 7515), read whole before any part is believed.

What a header says about where to find keys (`jku`, `x5u`, `jwk`, `x5c`) is not read: the keys are those of the issuer.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

import msgspec

from .issuer_answers import Refused

TOKEN_MAX_CHARS: Final = 16 * 1024
"""The longest token. Usual ones have one to four thousand characters, those with hundreds of groups ten. At it: 401."""
HEADER_MAX_BYTES: Final = 4 * 1024
"""The largest header of a token. Usual ones have a hundred bytes, with a chain of certificates three thousand. At it:
401."""
NAME_MAX_CHARS: Final = 256
"""The longest name of a key (`kid`), and of a caller. A `sub` of OpenID Connect has 255 at most. At it: 401."""

TYPES: Final = frozenset({"at+jwt", "application/at+jwt", "jwt"})
"""Values of `typ` that an access token may have, in lower case: media types are compared without case (RFC 7515,
4.1.9). Authorization servers give other tokens other types (RFC 8725, 3.11)."""

SHOWN_MAX_CHARS: Final = 200

_COMPACT: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_PADDING: Final = ("", "===", "==", "=")
_LAST: Final = ("", "", "AQgw", "AEIMQUYcgkosw048")
"""The last characters of base64url, by the length of the text modulo 4: the bits that no byte needs are zero (RFC 4648,
3.5). So a token has one text only."""


class JsonWebToken(msgspec.Struct, frozen=True):
    """A token as it was read. Nothing of it is proved.

    Attributes:
        kid: the name of the key that it says it is signed with; None: it names none.
        issuer: its `iss`.
        claims: all of it, as `msgspec.json.decode` gives them.
        message: the bytes that are signed.
    """

    algorithm: str
    kid: str | None
    issuer: str
    claims: dict[str, object]
    message: bytes
    signature: bytes

    def __repr__(self) -> str:
        return f"JsonWebToken(algorithm={self.algorithm!r}, kid={self.kid!r}, issuer={self.issuer!r})"


def read_token(text: str) -> JsonWebToken | Refused:
    """Returns the parts of a token, or what is wrong with its form."""
    if len(text) > TOKEN_MAX_CHARS:
        return Refused(f"it has {len(text)} characters, expected {TOKEN_MAX_CHARS} at most")
    match = _COMPACT.fullmatch(text)
    if match is None:
        encrypted = text.count(".") == 4
        return Refused("it is encrypted, expected a signed token" if encrypted else "it is no signed JSON Web Token")
    header = _object(match[1], HEADER_MAX_BYTES)
    if isinstance(header, str):
        return Refused(f"its header {header}")
    if wrong := _wrong_in_header(header):
        return Refused(wrong)
    claims = _object(match[2], TOKEN_MAX_CHARS)
    if isinstance(claims, str):
        return Refused(f"its content {claims}")
    issuer = claims.get("iss")
    if not isinstance(issuer, str):
        return Refused("it names no issuer (iss)")
    try:
        signature = _decoded(match[3])
    except binascii.Error:
        return Refused("its signature is cut off")
    algorithm, kid = header["alg"], header.get("kid")
    assert isinstance(algorithm, str)
    assert kid is None or isinstance(kid, str)
    message = text[: match.end(2)].encode("ascii")
    return JsonWebToken(algorithm, kid, issuer, claims, message, signature)


def issuer_of(text: str) -> str | None:
    """Returns the `iss` of a text that has the parts of a token, whatever else is wrong with it; None for others."""
    match = _COMPACT.fullmatch(text) if len(text) <= TOKEN_MAX_CHARS else None
    claims = _object(match[2], TOKEN_MAX_CHARS) if match is not None else ""
    issuer = claims.get("iss") if isinstance(claims, dict) else None
    return issuer if isinstance(issuer, str) else None


def shown(text: str) -> str:
    """Returns a text of a peer as it may stand in a message: printable ASCII, and not too much of it."""
    escaped = text[:SHOWN_MAX_CHARS].encode("unicode_escape").decode("ascii")
    return escaped if len(escaped) <= SHOWN_MAX_CHARS >= len(text) else escaped[:SHOWN_MAX_CHARS] + "..."


def read_object(data: bytes) -> dict[str, object] | str:
    """Returns the members of a JSON object; or a predicate that says why it is none. Of a name that occurs twice the
    last member counts (RFC 7519, 4)."""
    try:
        found = msgspec.json.decode(data.decode("utf-8"))
    except RecursionError:
        return "is nested too deeply"
    except (msgspec.DecodeError, ValueError):
        return "is no JSON"
    return found if isinstance(found, dict) else "is no JSON object"


def _object(part: str, max_bytes: int) -> dict[str, object] | str:
    if len(part) * 3 // 4 > max_bytes:
        return f"has more than {max_bytes} bytes"
    try:
        return read_object(_decoded(part))
    except binascii.Error:
        return "is cut off"


def _wrong_in_header(header: dict[str, object]) -> str:
    if not isinstance(header.get("alg"), str):
        return "its header names no algorithm (alg)"
    if "crit" in header or "b64" in header:  # RFC 7515, 4.1.11: a token whose extensions are not understood is invalid
        return "its header has extensions (crit or b64), expected none"
    kid = header.get("kid")
    if "kid" in header and (not isinstance(kid, str) or len(kid) > NAME_MAX_CHARS):
        return f"its key's name (kid) is no text of {NAME_MAX_CHARS} characters at most"
    kind = header.get("typ")
    if "typ" in header and not (isinstance(kind, str) and kind.lower() in TYPES):
        return "its type (typ) is that of another kind of token, expected at+jwt, JWT or none"
    return ""


def _decoded(part: str) -> bytes:
    """Returns the bytes of base64url.

    Raises:
        binascii.Error: it is not the text of a whole number of bytes.
    """
    rest = len(part) % 4
    if rest and part[-1] not in _LAST[rest]:
        raise binascii.Error
    return base64.urlsafe_b64decode(part + _PADDING[rest])
