"""Static tokens: random secrets that callers send as `Authorization: Bearer`. Only their hashes are kept.

A token of `new_token` is `ist_`, 43 letters and digits that hold 256 random bits, and 6 that check the rest. A hash of
so many random bits cannot be searched for, so a plain SHA-256 is enough; a slow hash would cost time with each request.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from .identity import NOTHING, Identity

PREFIX: Final = "ist_"
_RANDOM_BYTES: Final = 32
_RANDOM_DIGITS: Final = 43
_CHECK_DIGITS: Final = 6
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class StaticToken(msgspec.Struct, frozen=True):
    """A token that may call.

    Attributes:
        name: names the caller: the principal is `token:` and the name.
        sha256: the SHA-256 of the token's text.
        expires_at: Unix seconds; None: never.
    """

    name: str
    sha256: bytes
    scopes: frozenset[str] = NOTHING
    groups: frozenset[str] = NOTHING
    expires_at: float | None = None

    @property
    def identity(self) -> Identity:
        return Identity(
            f"token:{self.name}", self.scopes, self.groups, self.expires_at, "token", token_id=self.sha256.hex()
        )


class StaticTokens:
    """The tokens of a configuration, by their hashes."""

    def __init__(self, tokens: Iterable[StaticToken]) -> None:
        self._by_hash = {token.sha256: (token, token.identity) for token in tokens}

    def __bool__(self) -> bool:
        return bool(self._by_hash)

    def find(self, text: str, now: float) -> Identity | str | None:
        """Returns the identity of a token's caller; the reason why the token is refused; None for a text that is
        neither one of these tokens nor has their form."""
        digest = digest_of(text)
        found = self._by_hash.get(digest)
        if found is None:
            return (
                None
                if not text.startswith(PREFIX)
                else "it is cut off or mistyped"
                if is_damaged(text)
                else ("nobody has this token here (any more)")
            )
        token, identity = found
        if not hmac.compare_digest(token.sha256, digest):
            return None
        if token.expires_at is not None and token.expires_at <= now:
            return f"it expired {round(now - token.expires_at)} s ago"
        return identity


def new_token(entropy: Callable[[int], bytes]) -> str:
    """Returns a fresh token.

    Args:
        entropy: returns that many random bytes.
    """
    text = PREFIX + _digits(int.from_bytes(entropy(_RANDOM_BYTES)), _RANDOM_DIGITS)
    return text + _check_digits(text)


def digest_of(text: str) -> bytes:
    """Returns the SHA-256 of a token's text, by which a configuration names it."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def is_damaged(text: str) -> bool:
    """True if a text that begins like a token of `new_token` cannot be one: its check digits do not fit."""
    body, check = text[:-_CHECK_DIGITS], text[-_CHECK_DIGITS:]
    return len(text) != len(PREFIX) + _RANDOM_DIGITS + _CHECK_DIGITS or _check_digits(body) != check


def _check_digits(text: str) -> str:
    return _digits(zlib.crc32(text.encode("utf-8", "surrogateescape")), _CHECK_DIGITS)


def _digits(number: int, count: int) -> str:
    digits = []
    for _ in range(count):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
