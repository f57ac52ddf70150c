"""The issuers whose tokens are accepted: who a token is from.

A driver asks in a loop, `CHECK_ROUNDS_MAX` times at most:

    answer = issuers.check(token, audiences, now)
    if not isinstance(answer, Waits): it is the answer
    send answer.request, not before its `not_before`; callers whose request is equal wait for the same response
    once for each response: issuers.fetched(request, reply, now), or issuers.failed(request, now, why)

A request leaves the table of those that are under way in the same moment in which it is reported. It does not end with
the caller that began it. `due` names the requests that nobody waits for yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from .identity import Identity
from .issuer_answers import DocumentWanted, Refused, Reply, Unavailable, Waits, Wanted
from .issuer_settings import IssuerSettings
from .key_sets import Key

CHECK_ROUNDS_MAX: Final = 16
"""Questions about one token: two reads of metadata at three addresses and of keys, and some to spare. At it: 503."""

Verify = Callable[[Key, str, bytes, bytes], bool]


class Issuers:
    """Finds out who a token is from.

    Args:
        settings: one of them at most with `introspection`: it is asked about every token that is no JWT.
        verify: whether a signature is right, of a key, an algorithm, the signed message and the signature.

    Attributes:
        epoch: grows when a key set changed: identities that were established before are to be established anew.

    Raises:
        LocalProtocolError: the settings cannot be used.
    """

    def __init__(self, settings: Sequence[IssuerSettings], *, verify: Verify) -> None:
        self.epoch = 0

    def names(self, token: str) -> bool:
        """True if the token has a form that one of the issuers may have given it."""
        raise NotImplementedError

    def check(self, token: str, audiences: Collection[str], now: float) -> Identity | Refused | Unavailable | Waits:
        """Returns who the token is from.

        An identity holds for `expires_at`. One that came by introspection is asked for again after
        `INTROSPECTION_KEPT_S`, because the issuer may have revoked the token.

        Args:
            audiences: the URLs of the endpoint, one of which the token must be for; a slash at the end does not count.
            now: Unix seconds.
        """
        raise NotImplementedError

    def fetched(self, request: Wanted, reply: Reply, now: float) -> None:
        """Takes the response to a request."""

    def failed(self, request: Wanted, now: float, why: str = "") -> None:
        """Notes that there is no response to a request. `why` is for people."""

    def due(self, now: float) -> list[DocumentWanted]:
        """Returns the requests for documents that were never read or are about to expire. Asked every half minute or
        so, the driver keeps callers from waiting for them."""
        raise NotImplementedError
