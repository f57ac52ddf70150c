"""Clients without sessions that have spoken before, and say the same of themselves again.

What each says with every request was looked at once: later requests are of the same session, if nothing has changed
since.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ..base.effects import EventPipeOpening, Headers, PipeOpening, PostOpening
from ..base.revisions import Era
from ..bridge import request_meta, task_support
from ..bridge.request_meta import Envelope
from ..input_required.deferred_questions import Deferring
from ..jsonrpc import envelope
from ..jsonrpc.splice import members, remove_members
from ..state.context import Desk
from ..state.session import Affinities, Audience, Session
from ..upstream.era_detection import Verdict
from ..wire.http.param_headers import Mirror

ACQUAINTANCES_MAX: Final = 256
"""Clients that are recognized by what they say of themselves: one takes a KiB. Those of one kind are one."""
SAID_MAX_BYTES: Final = 4096
"""What says more of itself is looked at each time."""

OF_A_REQUEST: Final = frozenset({"traceparent", "tracestate", "baggage"})
"""Headers that tell of a request and not of who makes it (W3C Trace Context, Baggage)."""


class Acquaintance(NamedTuple):
    """
    Attributes:
        session: the one its requests are of.
        leg: what it says.
        rest: what else is in its `_meta`; empty: nothing.
    """

    session: Session
    leg: Envelope
    rest: bytes


class Acquaintances:
    """
    Args:
        mirrors: which arguments clients were told to say in headers too.
        by_affinity: the sessions there are.
    """

    def __init__(
        self,
        desk: Desk,
        verdicts: Mapping[str, Verdict],
        mirrors: Mapping[Audience, Mapping[str, tuple[Mirror, ...]]],
        deferring: Deferring,
        by_affinity: Mapping[Affinities, Session],
    ) -> None:
        self._desk = desk
        self._verdicts = verdicts
        self._mirrors = mirrors
        self._deferring = deferring
        self._by_affinity = by_affinity
        self._known: dict[tuple[str, str, Headers, bytes], Acquaintance] = {}  # by who, and what `_meta` said

    def add(self, opening: PostOpening, session: Session, leg: Envelope, params: bytes | None) -> None:
        """A request was taken. Who wants more than an answer with each is nobody to remember."""
        meta = envelope.member_of(params, "_meta")
        affinity = session.affinity
        if meta is None or len(meta) > SAID_MAX_BYTES or affinity is None or affinity.is_for_one:
            return
        key = opening.server, opening.principal, opening.headers, meta
        if key in self._known or leg.log_level is not None or task_support.declares(leg.capabilities):
            return
        if len(self._known) >= ACQUAINTANCES_MAX:
            del self._known[next(iter(self._known))]
        rest = remove_members(meta, request_meta.KEYS)
        self._known[key] = Acquaintance(session, leg, rest if members(rest) else b"")

    def find(self, opening: PostOpening, meta: bytes) -> Acquaintance | None:
        """Who says this of itself, if its requests go as the last ones did, and nothing is to be asked with them."""
        key = opening.server, opening.principal, opening.headers, meta
        known = self._known.get(key)
        if known is None:
            return None
        session, affinity = known.session, known.session.affinity
        if affinity is None or self._by_affinity.get(affinity) is not session:
            del self._known[key]
            return None
        if self.says_all(opening.server) == bool(affinity.fingerprint) or self._deferring.is_asking(session):
            return None
        return known

    def has_mirrors(self, known: Acquaintance, tool: str) -> bool:
        """Whether the client was told to say arguments of a tool in headers too."""
        affinity = known.session.affinity
        advertised = None if affinity is None else self._mirrors.get(affinity.audience)
        return advertised is not None and bool(advertised.get(tool))

    def says_all(self, server: str) -> bool:
        """Whether a server is told with each request what its client can do."""
        verdict = self._verdicts[server]
        return verdict.choose(Era.STATELESS, self._desk.now) is Era.STATELESS and verdict.discovered is not None


def audience_of(opening: PostOpening | PipeOpening | EventPipeOpening) -> Audience:
    """Who speaks on a channel, as its server may tell them apart."""
    headers = tuple(pair for pair in opening.headers if pair[0].lower() not in OF_A_REQUEST)
    return Audience(opening.server, opening.principal, headers)
