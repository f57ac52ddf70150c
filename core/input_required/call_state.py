"""The `requestState` that a call's questions go out with: it says the same of each call, whatever that waits for."""

from __future__ import annotations

from collections.abc import Mapping

from ..bridge.request_state import Claims, Kind, Seal, digest_of, target_of
from ..state.context import Desk
from ..state.exchange import Exchange
from ..state.session import Session


class Stating:
    """
    Args:
        owner: this run of the proxy. Calls of another one are not here.
    """

    def __init__(self, desk: Desk, seal: Seal, owner: str) -> None:
        self._desk = desk
        self._seal = seal
        self._owner = owner

    def is_own(self, claims: Claims) -> bool:
        """Whether it was this run that made it."""
        return claims.owner == self._owner

    def state(
        self,
        session: Session,
        exchange: Exchange,
        kind: Kind,
        *,
        park: str = "",
        round: int = 0,
        questions: Mapping[str, str] | None = None,
    ) -> str:
        """The state for a call: good for its principal, its server and its own request, for `Limits.park_ttl_s`."""
        now_unix = self._desk.now_unix
        claims = Claims(
            kind=kind,
            issued_at_unix=int(now_unix),
            expires_at_unix=int(now_unix + self._desk.limits.park_ttl_s),
            owner=self._owner,
            park=park,
            round=round,
            server=session.server,
            principal=self._seal.tag(session.principal),
            method=exchange.method,
            target=target_of(exchange.method, exchange.said),
            digest=digest_of(exchange.said),
            questions=dict(questions or {}),
        )
        return self._seal.mint(claims)
