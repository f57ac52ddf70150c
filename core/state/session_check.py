"""The state of a check whether a server still knows an upstream session. See `upstream/session_checks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..base.events import Cause

if TYPE_CHECKING:
    from ..wire.http.session_refusal import Refusal
    from .exchange import Exchange


class RefusedRequest(NamedTuple):
    """A request that was refused, and whose client waits until the session has been asked.

    Attributes:
        outcome: the end of its POST, or the JSON of the error in its response.
    """

    exchange: Exchange
    outcome: Cause | bytes


class SessionCheck:
    """One check. It holds at most the open requests of its link's sessions, which have a limit of their own.

    Attributes:
        refusals: how requests were refused.
        waiting: the requests whose clients wait for the outcome.
    """

    __slots__ = ("refusals", "waiting")

    def __init__(self, refusal: Refusal) -> None:
        self.refusals = [refusal]
        self.waiting: list[RefusedRequest] = []

    def add(self, refusal: Refusal, refused: RefusedRequest) -> None:
        """Adds a request that was refused."""
        if refusal not in self.refusals:
            self.refusals.append(refusal)
        self.waiting.append(refused)
