"""The eras that a server speaks, as far as is known, and the era to try for a client.

A client is served in its own era if the server speaks it: then nothing needs translating. Only an answer of the server
counts as evidence. A refusal that may have another cause changes nothing.

A server may be updated. So a denial of an era is believed for `Limits.server_era_ttl_s` only; a proof until the server
denies it.
"""

from __future__ import annotations

from typing import Final

from ..base.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
)
from ..base.events import Cause, End
from ..base.limits import Limits
from ..base.revisions import MODERN, Era
from ..bridge.discovery import refused_revisions
from ..jsonrpc.envelope import error_code, number_of
from ..wire.http.failure import BAD_REQUEST, NOT_FOUND, error_in, id_in

NO_SESSION: Final = -32000
"""The error code with which servers made after the official TypeScript examples refuse a request without a session. The
specification does not define it."""

OTHER: Final = {Era.HANDSHAKE: Era.STATELESS, Era.STATELESS: Era.HANDSHAKE}

NO_EVIDENCE: Final = frozenset({401, 403, 408, 429})
"""Statuses that do not tell a server's era, beside redirects and all from 500 on."""


class ServerEra:
    """The eras of one server.

    Attributes:
        discovered: its last `DiscoverResult`.
        spoken: the eras in which it has answered, with the revision of the last time; None: it named none.
        has_stateless_tasks: it has tasks in the stateless era only: in a session it refuses calls that it would run as
            tasks.
        is_mute: its handshake over HTTP began no session, without which it can send neither server requests nor
            notifications.
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
        """True if the server speaks an era, False if it does not; None: unknown."""
        if self._forced is not None:
            return era is self._forced
        known = self._speaks.get(era)
        if known is False and now - self._denied_at[era] >= self._limits.server_era_ttl_s:
            return None
        return known

    def choose(self, wanted: Era, now: float) -> Era:
        """Returns the era to try for a client of the era `wanted`."""
        other = OTHER[wanted]
        if wanted is Era.HANDSHAKE and self.is_mute and self.speaks(other, now):
            return other
        if wanted is Era.HANDSHAKE and self.has_stateless_tasks and self.speaks(other, now) is not False:
            return other
        if self.speaks(wanted, now) is False and self.speaks(other, now) is not False:
            return other
        return wanted

    def may_try_other_era(self, era: Era, now: float, *, is_said: bool = True) -> bool:
        """True if the other era is worth trying after `era` failed.

        An answer of this handshake (`is_said`) weighs more than what is known from before: the server may have been
        replaced.
        """
        return self._forced is None and (is_said or self.speaks(OTHER[era], now) is not False)

    def may_ask(self, now: float) -> bool:
        """True if a server whose handshake began no session should be sent `server/discover`."""
        known = self.speaks(Era.STATELESS, now)
        return known is True or (known is None and now - self._asked_at >= self._limits.server_era_ttl_s)

    def receive_handshake(self, *, is_mute: bool) -> None:
        """Records whether the server began a session: without one it has no stream for messages of its own."""
        self.is_mute = is_mute

    def receive_discovery(self, result: bytes) -> None:
        """Records its `DiscoverResult`."""
        self.discovered = result

    def require_tasks(self) -> None:
        """Records that the server has tasks in the stateless era only."""
        self.has_stateless_tasks = True

    def receive_question(self, now: float) -> None:
        """Records that `server/discover` was sent, so that it is not sent again too soon, however it ends."""
        self._asked_at = now

    def receive_proof(self, era: Era, revision: str | None) -> None:
        """Records that the server answered in that era, with that revision."""
        self._speaks[era] = True
        self.spoken[era] = revision

    def receive_denial(self, era: Era, now: float) -> None:
        """Records that the server answered as one that does not speak the era."""
        self._speaks[era] = False
        self._denied_at[era] = now
        self._forget_discovered(era)
        self.spoken.pop(era, None)

    def receive_silence(self, era: Era, now: float) -> None:
        """Records that the server did not answer in that era, or died, but works in the other.

        A server known to speak the era is only forgotten, not denied: a second silence is a denial.
        """
        if self._speaks.get(era) is True:
            self.forget(era)
        else:
            self.receive_denial(era, now)

    def forget(self, *eras: Era) -> None:
        """Makes these eras unknown again, since the server has changed its behaviour."""
        for era in eras:
            self._speaks.pop(era, None)
            self.spoken.pop(era, None)
            self._forget_discovered(era)

    def _forget_discovered(self, era: Era) -> None:
        if era is Era.STATELESS:
            self.discovered = None


def denies_handshake(error: bytes) -> bool:
    """True if an error says that `initialize` is unknown, or lacks what 2026-07-28 requires of every request.

    A server with sessions refuses `initialize` with other codes, or with one about the version asked for. That error
    then lists the supported revisions, none of them stateless.
    """
    code = error_code(error)
    if code == UNSUPPORTED_VERSION:
        supported = refused_revisions(error)
        return supported is not None and any(revision in MODERN for revision in supported)
    return code in (METHOD_NOT_FOUND, HEADER_MISMATCH, MISSING_CAPABILITY) or (
        code == INVALID_PARAMS and b"io.modelcontextprotocol" in error
    )


def is_evidence(cause: Cause) -> bool:
    """True if the status of a refusal may tell the era of a server: it is not about credentials, load or redirects."""
    return cause.end is End.REFUSED and 400 <= cause.status < 500 and cause.status not in NO_EVIDENCE


def denies_stateless(cause: Cause) -> bool:
    """True if the end of a POST with `server/discover` says that the server does not know that method.

    Source: 2026-07-28 basic/versioning, "Backward Compatibility": 400 without a modern error in the body. Real servers
    also send other refusals, so any counts that is not about credentials, load or redirects.
    """
    if cause.end is not End.REFUSED:
        return cause.end is End.DONE  # it ended the reply without an answer
    if not is_evidence(cause):
        return False
    error = error_in(cause)
    return error is None or not is_modern(error)


def lacks_session(cause: Cause, number: int | None) -> bool:
    """True if a server with sessions refused a request for naming none: 400 or 404 without an error, or with an error
    that is not about the request, as official servers of 2025 write them.

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
    """True if a request in a session was refused by a server that serves only revisions without sessions."""
    error = error_in(cause)
    return error is not None and error_code(error) == UNSUPPORTED_VERSION and is_modern(error)


def is_modern(error: bytes) -> bool:
    """True if only a server that speaks 2026-07-28 sends such an error."""
    code = error_code(error)
    if code == UNSUPPORTED_VERSION:
        supported = refused_revisions(error)
        return supported is not None and any(revision in MODERN for revision in supported)
    return code in (HEADER_MISMATCH, MISSING_CAPABILITY)
