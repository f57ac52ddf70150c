"""Revocations: credentials that are refused though nothing else is wrong with them: an operator has taken them back.

A static token is revoked by its hash: it stays refused until its entry in the configuration is another one. A token of
an issuer is revoked by the time at which it was issued: those that the caller was given up to the revocation are
refused, and one that does not say when it was issued is refused for good. A caller who logs in again is let in, and is
the same caller: its sessions, tasks and files go on.

At `REVOCATIONS_MAX` callers of issuers, the oldest revocation becomes one of all callers of issuers: every token that
was issued up to it is refused. Nobody is let in by that, and those who hold so old a token log in again. Revoked static
tokens that the configuration does not have any more are forgotten then, oldest first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

import msgspec

from .identity import Identity

REVOCATIONS_MAX: Final = 10_000
"""Revocations that are kept of callers of issuers, and as many of static tokens that are not configured any more. At
it: the oldest is widened, or forgotten."""


class Revocation(msgspec.Struct, frozen=True):
    """The revocation of a caller's credentials, as it is kept.

    Attributes:
        principal: the caller; "" for all callers of issuers.
        at_unix: when it was revoked.
        sha256: the hash of the static token, in hexadecimal; "" for tokens of an issuer.
    """

    principal: str
    at_unix: float
    sha256: str = ""

    @property
    def name(self) -> str:
        """The name of what is revoked. A later revocation of the same name replaces this one."""
        return self.sha256 or self.principal


class Changed(NamedTuple):
    """The changes that a revocation makes to what is kept."""

    saved: tuple[Revocation, ...] = ()
    forgotten: tuple[Revocation, ...] = ()


class Revocations:
    """All revocations.

    Args:
        kept: those of earlier runs.

    Attributes:
        epoch: grows with each revocation.
    """

    def __init__(self, kept: Iterable[Revocation] = ()) -> None:
        self.epoch = 0
        self._tokens: dict[str, Revocation] = {}
        self._callers: dict[str, Revocation] = {}
        for each in sorted(kept, key=lambda one: one.at_unix):
            (self._tokens if each.sha256 else self._callers)[each.name] = each

    def __len__(self) -> int:
        return len(self._tokens) + len(self._callers)

    def find_token(self, sha256: str) -> Revocation | None:
        """Returns the revocation of a static token, by its hash in hexadecimal."""
        return self._tokens.get(sha256)

    def find_issued(self, identity: Identity) -> Revocation | None:
        """Returns the revocation of a token of an issuer, by whom it names and when it was issued."""
        for name in (identity.principal, "") if self._callers else ():
            found = self._callers.get(name)
            # Issuers tell whole seconds: a token of the second of the revocation may be older than it.
            if found is not None and (identity.issued_at is None or identity.issued_at <= found.at_unix):
                return found
        return None

    def revoke_tokens(
        self, principal: str, hashes: Collection[str], configured: Collection[str], now: float
    ) -> Changed:
        """Revokes the static tokens of a caller, which have these hashes.

        Args:
            configured: the hashes of all static tokens of the configuration.
            now: Unix seconds.
        """
        forgotten = self._forget_tokens(configured)
        return Changed(tuple(self._add(self._tokens, Revocation(principal, now, each)) for each in hashes), forgotten)

    def revoke_caller(self, principal: str, now: float) -> Changed:
        """Revokes all tokens that issuers have given to a caller up to `now`, in Unix seconds."""
        revocation = self._add(self._callers, Revocation(principal, now))
        widened = self._widen()
        return Changed((revocation, *widened.saved), widened.forgotten)

    def receive(self, revocation: Revocation, configured: Collection[str]) -> bool:
        """Takes in a revocation that another process has made and kept. Returns False if it is known, or older than
        one that is.

        Args:
            configured: as in `revoke_tokens`.
        """
        kept = self._tokens if revocation.sha256 else self._callers
        known = kept.get(revocation.name)
        if known is not None and known.at_unix >= revocation.at_unix:
            return False
        self._forget_tokens(configured)
        self._add(kept, revocation)
        self._widen()
        return True

    def _forget_tokens(self, configured: Collection[str]) -> tuple[Revocation, ...]:
        gone = [each for each in self._tokens.values() if each.sha256 not in configured]
        forgotten = tuple(gone[: max(0, len(gone) - REVOCATIONS_MAX)])
        for each in forgotten:
            del self._tokens[each.name]
        return forgotten

    def _widen(self) -> Changed:
        """Replaces the oldest revocation of a caller by one of all callers, if there are too many."""
        named = [each for each in self._callers.values() if each.principal]
        if len(named) <= REVOCATIONS_MAX:
            return Changed()
        oldest = named[0]
        del self._callers[oldest.name]
        everyone = self._callers.get("", Revocation("", 0.0))
        widened = Revocation("", max(oldest.at_unix, everyone.at_unix))
        self._callers[""] = widened
        return Changed((widened,), (oldest,))

    def _add(self, kept: dict[str, Revocation], revocation: Revocation) -> Revocation:
        kept.pop(revocation.name, None)  # what is revoked last stands last
        kept[revocation.name] = revocation
        self.epoch += 1
        return revocation
