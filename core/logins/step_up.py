"""Decides whether a request that was refused for its scopes is worth another login.

Source: 2026-07-28 basic/authorization, "Step-Up Authorization Flow": clients "SHOULD track scope upgrade attempts to
avoid repeated failures for the same resource and operation combination".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .challenges import BearerChallenge

ATTEMPTS_MAX: Final = 2
"""The most logins for one operation of one server. At it: the refusal goes to the client."""
OPERATIONS_MAX: Final = 1024
"""The most operations that are remembered. At it: the oldest is forgotten."""
INSUFFICIENT_SCOPE: Final = "insufficient_scope"


class StepUps:
    """The logins with more scopes that were made for operations, in all servers of a process."""

    def __init__(self) -> None:
        self._attempts: dict[tuple[str, str], int] = {}

    def begin(
        self, server: str, operation: str, status: int, challenge: BearerChallenge | None, earlier: Iterable[str]
    ) -> tuple[str, ...] | None:
        """Returns the scopes to log in with for a request that was refused; None if another login is of no use.

        They are the union of those that were requested before and those of the challenge.

        Args:
            operation: the method of the request, and the name of its tool, prompt or resource.
            status: the HTTP status of the refusal.
            earlier: the scopes that were requested before.
        """
        if status != 403 or challenge is None or challenge.error != INSUFFICIENT_SCOPE or not challenge.scope:
            return None
        key = (server, operation)
        attempts = self._attempts.pop(key, 0)
        if attempts < ATTEMPTS_MAX:
            attempts += 1
            self._attempts[key] = attempts
            while len(self._attempts) > OPERATIONS_MAX:
                del self._attempts[next(iter(self._attempts))]
            return tuple(dict.fromkeys((*earlier, *challenge.scope)))
        self._attempts[key] = attempts
        return None
