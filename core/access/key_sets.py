"""The keys of an issuer (RFC 7517), and what becomes of a token that is signed with a key that was not read yet.

An issuer may sign with a new key from the moment in which it has published it. So a token is refused for its key only
after the key set was read once more, in an attempt that began after the token came. Attempts have a pause between them
(`REFETCH_PAUSE_S`), because anybody can write the name of a key that does not exist; a token that comes in the pause
waits for its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .issuer_answers import Refused, Unavailable, Waits
from .issuer_documents import IssuerDocuments
from .json_web_tokens import JsonWebToken, shown
from .public_keys import Key

UNKNOWN_KEYS_MAX: Final = 64
"""Tokens of one issuer that wait for its keys to be read once more, because the key that they name is unknown. After a
rotation the first of them is followed by others for a second or two. At it: 503."""
NAMELESS_KEYS_MAX: Final = 4
"""Keys that are tried for a token that names none. An issuer has two or three at a time. At it: 401."""


class KeySet:
    """The keys of an issuer, and the tokens that wait for unknown ones.

    Args:
        documents: of the issuer, with its keys.
    """

    def __init__(self, documents: IssuerDocuments) -> None:
        self._documents = documents
        self._waiting: dict[bytes, int] = {}
        """The attempt that each waiting token needs: the first one that begins after it came."""
        self._answered: set[bytes] = set()
        """Tokens whose attempt was the last one."""

    def candidates(self, token: JsonWebToken) -> Sequence[Key] | Refused:
        """Returns the keys that the token may be signed with; none if it names a key that is unknown."""
        if token.kid is None:
            fitting = [key for key in self._documents.keys if key.fits(token.algorithm)]
            if len(fitting) > NAMELESS_KEYS_MAX:
                return Refused(f"it names no key (kid), and {len(fitting)} keys of its issuer fit")
            return fitting
        named = [key for key in self._documents.keys if key.kid == token.kid]
        fitting = [key for key in named if key.fits(token.algorithm)]
        if named and not fitting:
            return Refused(f"its algorithm does not fit key {shown(token.kid)}")
        return fitting[:NAMELESS_KEYS_MAX]

    def miss(self, token: JsonWebToken, digest: bytes, now: float) -> Refused | Unavailable | Waits:
        """Returns what becomes of a token that no known key has signed.

        Args:
            digest: of the token.
        """
        documents = self._documents
        if digest in self._answered and documents.rest_of_pause(now):
            return self._refused(token, now) if documents.is_read else documents.unavailable(now)
        if digest not in self._waiting:
            if len(self._waiting) < UNKNOWN_KEYS_MAX:
                self._waiting[digest] = documents.next_attempt(now)
            elif documents.is_attempted or documents.rest_of_pause(now):
                return documents.unavailable(now, "too many tokens wait for unknown keys of their issuer")
        return Waits(documents.want(now))

    def doubt(self, now: float) -> Waits | None:
        """Returns the request to read the keys once more, for a signature that a known key has not made: some issuers
        give a new key the name of the old one. None in the pause between attempts."""
        documents = self._documents
        return None if documents.rest_of_pause(now) else Waits(documents.want(now))

    def end_attempt(self) -> None:
        """Notes that an attempt to read the documents has ended."""
        done = self._documents.attempts
        self._answered = {digest for digest, attempt in self._waiting.items() if attempt <= done}
        self._waiting = {digest: attempt for digest, attempt in self._waiting.items() if attempt > done}

    def _refused(self, token: JsonWebToken, now: float) -> Refused:
        documents = self._documents
        if token.kid is None:
            return Refused(f"it is signed with no key that {shown(documents.issuer)} publishes, and names none (kid)")
        asked = f"asked {documents.age_s(now)} s ago"
        return Refused(
            f"signed with key {shown(token.kid)}, which {shown(documents.issuer)} does not publish ({asked})"
        )
