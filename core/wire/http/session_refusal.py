"""Reads refusals that may mean that the server has forgotten the session.

The specification names 404 (`failure.denies_session`). Servers say it in many other ways: 400, 401, or an error in a
response of status 200. No list of words tells these from refusals of one request, so `upstream/session_checks` asks
the session with a `ping`, and compares how that is refused.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ...base.events import Cause, End
from ...jsonrpc import envelope
from .failure import ABOUT_SESSION, BAD_REQUEST, NOT_FOUND, UNAUTHORIZED, clip, error_in, words_in

GONE: Final = 410
MAY_MEAN_FORGOTTEN: Final = frozenset({BAD_REQUEST, UNAUTHORIZED, NOT_FOUND, GONE})
"""Statuses with which servers refuse unknown sessions, whatever they say with them."""

_DIGITS: Final = re.compile(r"\d+")


class Refusal(NamedTuple):
    """A refusal that may mean that the session is forgotten.

    Attributes:
        status: the HTTP status.
        code: the code of the JSON-RPC error in it; None if there is none.
        words: what it says, without what differs from request to request.
    """

    status: int
    code: int | None
    words: str


def refusal_of(cause: Cause, method: str, *, names_session: bool) -> Refusal | None:
    """Returns the refusal in the end of a POST or of a stream; None if it cannot mean that the session is forgotten.

    A 401 with a challenge is about credentials.

    Args:
        method: of the refused request; "" if it has none.
        names_session: the request named a session.
    """
    if cause.end is not End.REFUSED or (cause.status == UNAUTHORIZED and cause.challenge):
        return None
    words, error = words_in(cause), error_in(cause)
    if not (names_session and cause.status in MAY_MEAN_FORGOTTEN) and ABOUT_SESSION.search(words) is None:
        return None
    return Refusal(cause.status, None if error is None else envelope.error_code(error), _plain(words, method))


def refusal_in(error: bytes, method: str) -> Refusal | None:
    """Returns the refusal in the error of a response; None if it does not speak of a session or of initialization."""
    words = clip(envelope.text_of(envelope.member_of(error, "message")) or "")
    if ABOUT_SESSION.search(words) is None:
        return None
    return Refusal(200, envelope.error_code(error), _plain(words, method))


def is_alike(first: Refusal, second: Refusal) -> bool:
    """True if two requests were refused in the same way: with one status and code, and in the same words or both in
    words about the session."""
    if first[:2] != second[:2]:
        return False
    return first.words == second.words or bool(ABOUT_SESSION.search(first.words) and ABOUT_SESSION.search(second.words))


def _plain(words: str, method: str) -> str:
    """Returns the words without the method and without numbers, which differ between two requests."""
    return _DIGITS.sub("", words.replace(method, "") if method else words).casefold()
