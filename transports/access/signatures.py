"""Signatures of tokens, which the package PyJWT verifies. Only its cryptography is used.

This file is imported when there are issuers whose keys verify tokens: a configuration without any does not need PyJWT.
"""

from __future__ import annotations

import functools
from typing import Final

import msgspec

from ...core.access.public_keys import Key

MISSING: Final = "auth.issuers wants the package PyJWT[crypto], which verifies signatures: pip install 'isthmus[auth]'"

try:
    import cryptography.exceptions
    import jwt
except ImportError:
    raise ImportError(MISSING) from None

KEYS_KEPT: Final = 256
"""Keys that are kept as they were parsed: those of a dozen issuers. Parsing one takes as long as a signature."""


def verify(key: Key, algorithm: str, message: bytes, signature: bytes) -> bool:
    """True if the key has signed the message.

    Args:
        algorithm: one that the key fits.
        signature: as RFC 7518, 3 encodes it.
    """
    parsed = _parsed(key, algorithm)
    if parsed is None:
        return False
    try:
        return parsed.Algorithm.verify(message, parsed.key, signature)
    except (ValueError, cryptography.exceptions.UnsupportedAlgorithm):  # a key that the library cannot use
        return False


@functools.lru_cache(maxsize=KEYS_KEPT)
def _parsed(key: Key, algorithm: str) -> jwt.PyJWK | None:
    members = {name: value for name, value in msgspec.structs.asdict(key).items() if value}
    try:
        return jwt.PyJWK.from_dict(members, algorithm)
    except (jwt.PyJWTError, ValueError, cryptography.exceptions.UnsupportedAlgorithm):
        return None
