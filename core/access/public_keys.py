"""Public keys, and the key sets in which issuers publish them (RFC 7517)."""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

from .issuer_settings import ALGORITHMS
from .json_web_tokens import NAME_MAX_CHARS, read_object

DOCUMENT_MAX_BYTES: Final = 64 * 1024
"""The largest key set, and the largest metadata of an issuer. Those of large providers have some 10 KB. At it: the
document counts as not read."""
KEYS_MAX: Final = 64
"""The most keys of a set. Issuers publish two to ten. At it: the set counts as not read."""
RSA_MIN_BYTES: Final = 256
"""The shortest modulus of an RSA key (RFC 7518, 3.3)."""
RSA_MAX_BYTES: Final = 1024
"""The longest modulus of an RSA key: verifying takes a time that grows with its square."""

_MEMBERS: Final = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
_SIZES: Final = {"P-256": 32, "P-384": 48, "P-521": 66, "Ed25519": 32}


class Key(msgspec.Struct, frozen=True):
    """A public key. The members that its type does not have are "".

    Attributes:
        kid: its name; "": it has none.
        kty: its type: `RSA`, `EC` or `OKP`.
        alg: the only algorithm that it is for; "": all that fit it.
    """

    kid: str
    kty: str
    alg: str = ""
    crv: str = ""
    n: str = ""
    e: str = ""
    x: str = ""
    y: str = ""

    def fits(self, algorithm: str) -> bool:
        """True if the key verifies signatures of an algorithm of `ALGORITHMS`."""
        return ALGORITHMS.get(algorithm) == (self.kty, self.crv) and self.alg in ("", algorithm)


def read_key_set(data: bytes) -> tuple[Key, ...] | str:
    """Returns the usable keys of a set, or a predicate that says why it is none.

    Keys that are not for signatures, of unknown types or unusable are left out (RFC 7517, 5).
    """
    if len(data) > DOCUMENT_MAX_BYTES:
        return f"has more than {DOCUMENT_MAX_BYTES} bytes"
    found = read_object(data)
    if isinstance(found, str):
        return found
    listed = found.get("keys")
    if not isinstance(listed, list):
        return "has no list of keys"
    if len(listed) > KEYS_MAX:
        return f"has {len(listed)} keys, expected {KEYS_MAX} at most"
    keys = (_read_key(each) for each in listed if isinstance(each, dict))
    return tuple(key for key in keys if key is not None)


def _read_key(found: dict[str, object]) -> Key | None:
    operations = found.get("key_ops", ["verify"])
    if found.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    kty, kid, alg = found.get("kty"), found.get("kid", ""), found.get("alg", "")
    if not isinstance(kty, str) or not isinstance(kid, str) or not isinstance(alg, str) or len(kid) > NAME_MAX_CHARS:
        return None
    members = {}
    for name in _MEMBERS.get(kty, ()):
        value = found.get(name)
        if not isinstance(value, str):
            return None
        members[name] = value
    key = Key(kid, kty, alg, **members)
    return key if any(key.fits(algorithm) for algorithm in ALGORITHMS) and _has_sizes(key) else None


def _has_sizes(key: Key) -> bool:
    if key.kty == "RSA":
        return RSA_MIN_BYTES <= _size(key.n) <= RSA_MAX_BYTES and 1 <= _size(key.e) <= 8
    return _size(key.x) == _SIZES[key.crv] and (key.kty == "OKP" or _size(key.y) == _SIZES[key.crv])


def _size(text: str) -> int:
    """Returns the number of bytes of a number in base64url, without zeros in front; 0 if it is none."""
    try:
        return len(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
    except (binascii.Error, ValueError):
        return 0
