"""The progress tokens of requests that were answered a short time ago."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

ANSWERED_TOKENS_MAX: Final = 64
"""Progress tokens that are remembered for one link, and for one session. Progress that comes after the response comes
shortly after it, and each token may have 8 KiB.

At it: the oldest is forgotten, and progress for it is dropped.
"""


class AnsweredToken(NamedTuple):
    """A progress token as the peer that asked knows it.

    Attributes:
        owner: what the request belonged to: the public name of a session, or the incarnation of an upstream session.
    """

    token_raw: bytes
    owner: str | int


def remembered(
    tokens: Mapping[int, AnsweredToken], number: int, token_raw: bytes, owner: str | int
) -> Mapping[int, AnsweredToken]:
    """Returns `tokens` with the token of the request that had this number, at most `ANSWERED_TOKENS_MAX`."""
    kept = {**tokens, number: AnsweredToken(token_raw, owner)}
    if len(kept) > ANSWERED_TOKENS_MAX:
        del kept[next(iter(kept))]
    return kept
