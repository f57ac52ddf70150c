"""Which of the two eras a server speaks, as far as has been found out, and which one to try for a client.

Each client is served in its own era if the server has it: then nothing needs translating. Only what the server was
*heard* to say counts: a refusal that could have another cause leaves open what was open.

A server may have been updated, so that a "no" is believed for a day only; "yes" until the server says otherwise.
"""

from __future__ import annotations

from typing import Final

from ..base.effects import Cause, End
from ..base.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
)
from ..base.limits import Limits
from ..base.revisions import MODERN, Era
from ..bridge.discovery import refused_revisions
from ..jsonrpc.envelope import error_code, number_of
from ..wire.http.failure import BAD_REQUEST, NOT_FOUND, error_in, id_in

NO_SESSION: Final = -32000
"""What servers made after the official TypeScript examples say where a session is missing: none of it is in the text
of the specification."""

OTHER: Final = {Era.HANDSHAKE: Era.STATELESS, Era.STATELESS: Era.HANDSHAKE}

NO_EVIDENCE: Final = frozenset({401, 403, 408, 429})
"""Statuses, beside all from 500 on and redirects, that say nothing of a server's era."""


class Verdict:
    """What is known of one server.

    Attributes:
        discovered: its last `DiscoverResult`.
        spoken: the eras it was spoken to in, with the revision of the last time; None: it named none.
        has_stateless_tasks: with sessions it refuses calls that it would make tasks of without.
        is_mute: over HTTP, its handshake began no session, without which it can ask and tell nobody anything.
    """

    def __init__(self, forced: Era | None, limits: Limits) -> None:
        self.discovered: bytes | None = None
        self.spoken: dict[Era, str | None] = {}
        self.is_mute = False
        self.has_stateless_tasks = False
        self._forced = forced
        self._limits = limits
        self._speaks: dict[Era, bool] = {}
        self._denied_at: dict[Era, float] = {}
        self._asked_at = float("-inf")

    def speaks(self, era: Era, now: float) -> bool | None:
        """Whether it speaks an era; None: nobody knows."""
        if self._forced is not None:
            return era is self._forced
        known = self._speaks.get(era)
        if known is False and now - self._denied_at[era] >= self._limits.verdict_ttl_s:
            return None
        return known

    def choose(self, wanted: Era, now: float) -> Era:
        """What to try for a client that talks so."""
        other = OTHER[wanted]
        if wanted is Era.HANDSHAKE and self.is_mute and self.speaks(other, now):
            return other
        if wanted is Era.HANDSHAKE and self.has_stateless_tasks and self.speaks(other, now) is not False:
            return other
        if self.speaks(wanted, now) is False and self.speaks(other, now) is not False:
            return other
        return wanted

    def may_turn(self, era: Era, now: float, *, is_said: bool = True) -> bool:
        """Whether the other era is worth trying after this one failed. What a server said now weighs more than what it
        said some time ago: it may have been replaced."""
        return self._forced is None and (is_said or self.speaks(OTHER[era], now) is not False)

    def may_ask(self, now: float) -> bool:
        """Whether it is worth asking one that has no sessions in its handshake if it speaks the era that needs none."""
        known = self.speaks(Era.STATELESS, now)
        return known is True or (known is None and now - self._asked_at >= self._limits.verdict_ttl_s)

    def receive_question(self, now: float) -> None:
        """It is asked that. Whatever comes of it, it is not asked again so soon."""
        self._asked_at = now

    def receive_proof(self, era: Era, revision: str | None) -> None:
        """It was spoken to in that era, and answered so."""
        self._speaks[era] = True
        self.spoken[era] = revision

    def receive_denial(self, era: Era, now: float) -> None:
        """It answered as one does who does not speak it."""
        self._speaks[era] = False
        self._denied_at[era] = now
        self._forget_discovered(era)
        self.spoken.pop(era, None)

    def receive_silence(self, era: Era, now: float) -> None:
        """It said nothing, or died, when it was spoken to so, and works otherwise. Of one that is known to speak so,
        that alone is no denial: once more, and it is."""
        if self._speaks.get(era) is True:
            self.forget(era)
        else:
            self.receive_denial(era, now)

    def forget(self, *eras: Era) -> None:
        """It does not do as it did: nothing is known of these."""
        for era in eras:
            self._speaks.pop(era, None)
            self.spoken.pop(era, None)
            self._forget_discovered(era)

    def _forget_discovered(self, era: Era) -> None:
        if era is Era.STATELESS:
            self.discovered = None


def denies_handshake(error: bytes) -> bool:
    """Whether an error says that `initialize` is unknown, or lacks what every request must have since 2026-07-28.

    What a server that has sessions refuses it for has other codes, or is about the version asked for, of which it then
    names some that have sessions.
    """
    code = error_code(error)
    if code == UNSUPPORTED_VERSION:
        supported = refused_revisions(error)
        return supported is not None and any(revision in MODERN for revision in supported)
    return code in (METHOD_NOT_FOUND, HEADER_MISMATCH, MISSING_CAPABILITY) or (
        code == INVALID_PARAMS and b"io.modelcontextprotocol" in error
    )


def denies_stateless(cause: Cause) -> bool:
    """Whether the end of a POST with `server/discover` says that its server has never heard of that.

    Source: 2026-07-28 basic/versioning, "Backward Compatibility": 400 without a modern error in the body, and by the
    way servers are, any other refusal that is not about credentials, load or redirects.
    """
    if cause.end is not End.REFUSED:
        return cause.end is End.DONE  # it had nothing to say to a request
    if cause.status >= 500 or cause.status in NO_EVIDENCE or 300 <= cause.status < 400:
        return False
    error = error_in(cause)
    return error is None or not is_modern(error)


def lacks_session(cause: Cause, number: int | None) -> bool:
    """Whether a request that names no session is refused by a server that wants one: 400 or 404 without an error, or
    with one that is not about the request, as official servers of 2025 write them.

    Args:
        number: the id of the request.
    """
    if cause.end is not End.REFUSED or cause.status not in (BAD_REQUEST, NOT_FOUND):
        return False
    error = error_in(cause)
    if error is None:
        return True
    id_raw = id_in(cause)
    is_addressed = id_raw is not None and number_of(id_raw) == number
    return not is_addressed and error_code(error) in (NO_SESSION, INVALID_REQUEST)


def lacks_revision(cause: Cause) -> bool:
    """Whether a request in a session is refused by a server that knows none: it serves only what has none."""
    error = error_in(cause)
    return error is not None and error_code(error) == UNSUPPORTED_VERSION and is_modern(error)


def is_modern(error: bytes) -> bool:
    """Whether only a server that speaks 2026-07-28 says so."""
    code = error_code(error)
    if code == UNSUPPORTED_VERSION:
        supported = refused_revisions(error)
        return supported is not None and any(revision in MODERN for revision in supported)
    return code in (HEADER_MISMATCH, MISSING_CAPABILITY)
