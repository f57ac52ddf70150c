"""The clients without sessions that have sent requests before, recognized by the bytes of `_meta`.

A client describes itself with every request. Parsing the description, and finding the session for it, is skipped for a
request with the same `_meta`, server, principal and headers as an earlier one: the result would be the same session, as
long as the session exists, the server's era is unchanged and no deferred question waits. `find` checks these three.
`tests/core/engine/test_fast_path.py` compares this way with the ordinary one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ..base.events import EventPipeOpening, Headers, PipeOpening, PostOpening
from ..base.revisions import Era
from ..bridge import request_meta, task_support
from ..bridge.request_meta import OF_A_REQUEST, RequestMeta
from ..jsonrpc import envelope
from ..jsonrpc.splice import members, remove_members
from ..state.advertised import Advertised
from ..state.context import Context
from ..state.session import Audience, Session
from ..upstream.era_detection import ServerEra
from .affinity_table import AffinityTable

if TYPE_CHECKING:
    from ..input_required.deferred_questions import DeferredQuestions

KNOWN_CLIENTS_MAX: Final = 256
"""Clients that are remembered, about a KiB each. Clients of one kind, with the same headers, count as one. At it: the
oldest is forgotten, and its next request is read in full."""
META_MAX_BYTES: Final = 4096
"""Longest `_meta` that is remembered."""


class KnownClient(NamedTuple):
    """A remembered client.

    Attributes:
        session: the session of its requests.
        request: its description of itself.
        rest: the other members of its `_meta`, as JSON; empty if there are none.
    """

    session: Session
    request: RequestMeta
    rest: bytes


class KnownClients:
    """The table of remembered clients.

    Args:
        advertised: the arguments that clients were told to repeat in headers.
        by_affinity: the sessions of clients without sessions.
    """

    def __init__(
        self,
        context: Context,
        server_eras: Mapping[str, ServerEra],
        advertised: Advertised,
        deferred_questions: DeferredQuestions,
        by_affinity: AffinityTable,
    ) -> None:
        self._context = context
        self._server_eras = server_eras
        self._advertised = advertised
        self._deferring = deferred_questions
        self._by_affinity = by_affinity
        self._known: dict[
            tuple[str, str, Headers, bytes], KnownClient
        ] = {}  # by server, principal, headers and `_meta`

    def add(self, opening: PostOpening, session: Session, request: RequestMeta, params: bytes | None) -> None:
        """Remembers the client of an accepted request. Clients that want log messages or tasks are not remembered,
        since their calls are never plain."""
        meta = envelope.member_of(params, "_meta")
        affinity = session.affinity
        if meta is None or len(meta) > META_MAX_BYTES or affinity is None or affinity.is_for_one or session.has_handle:
            return
        key = opening.server, opening.principal, opening.headers, meta
        if key in self._known or request.log_level is not None or task_support.declares(request.capabilities):
            return
        if not OF_A_REQUEST.isdisjoint(members(meta)):
            return  # the next request has another trace context
        if len(self._known) >= KNOWN_CLIENTS_MAX:
            del self._known[next(iter(self._known))]
        rest = remove_members(meta, request_meta.KEYS)
        self._known[key] = KnownClient(session, request, rest if members(rest) else b"")

    def find(self, opening: PostOpening, meta: bytes) -> KnownClient | None:
        """Returns the client with this `_meta`; None if it is not known, its session has ended, its requests need
        another session now, or a deferred question is to be asked with its next request."""
        key = opening.server, opening.principal, opening.headers, meta
        known = self._known.get(key)
        if known is None:
            return None
        session, affinity = known.session, known.session.affinity
        if affinity is None or self._by_affinity.sessions.get(affinity) is not session:
            del self._known[key]
            return None
        if self.says_all(opening.server) == bool(affinity.fingerprint) or self._deferring.is_asking(session):
            return None
        return known

    def has_mirrors(self, known: KnownClient, tool: str) -> bool:
        """True if the client was told to repeat arguments of the tool in headers."""
        affinity = known.session.affinity
        told = None if affinity is None else self._advertised.of(affinity.audience)
        return told is not None and bool(told.get(tool))

    def says_all(self, server: str) -> bool:
        """True if the server is told the client's capabilities with each request, so that one session serves clients of
        all capabilities."""
        server_era = self._server_eras.get(server)  # None: it is a profile
        return server_era is not None and (
            server_era.choose(Era.STATELESS, self._context.now) is Era.STATELESS and server_era.discovered is not None
        )


def audience_of(opening: PostOpening | PipeOpening | EventPipeOpening) -> Audience:
    """Returns the audience of a channel's client: its server, its principal, and, of anonymous clients, the headers by
    which the server may know it. A principal is who it is whatever its headers say: its tokens change."""
    if opening.principal:
        return Audience(opening.server, opening.principal)
    headers = tuple(pair for pair in opening.headers if pair[0].lower() not in OF_A_REQUEST)
    return Audience(opening.server, opening.principal, headers)
