"""The rules by which requests are equal, and the authorization context of each.

Two requests are equal if their server, method, params and revision are, and the capabilities of their clients.
`clientInfo` and the log level do not count: a result must not depend on them. What names one request alone, such as
its trace, does not count either. A request that says anything else about itself is never answered with what is kept.

A private result is for one authorization context: all by which the server can tell callers apart, and the proxy's own
name for the caller. A public one is for everybody, as far as the proxy alone decides who may use the server. A server
that is shown who a caller is decides that itself, so what it has told one is not given to another.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

import msgspec

from ..base.errors import RemoteProtocolError
from ..base.plan import Kind
from ..bridge.capabilities import fingerprint
from ..bridge.request_meta import KEYS, OF_A_REQUEST, RETRY_KEYS
from ..bridge.results import CACHEABLE
from ..jsonrpc.envelope import text_of
from ..jsonrpc.splice import look, take
from ..state.exchange import Exchange
from ..state.link import Link
from ..state.session import Session
from .result_cache import EVERYBODY, READ, CacheKey, Contexts

KEPT_METHODS: Final = CACHEABLE - {"server/discover"}
"""The methods whose results are kept. The proxy answers `server/discover` itself."""
_USUAL: Final = frozenset(KEYS) | OF_A_REQUEST
"""The members of `_meta` that a result does not depend on, or only through the client's revision and capabilities."""


class CacheableRequest(NamedTuple):
    """A request whose result may be kept.

    Attributes:
        contexts: the callers that its result may be given to.
        sent_at: the moment at which it was sent.
        changes: the number of changes of what it is about, at that moment.
    """

    key: CacheKey
    contexts: Contexts
    sent_at: float = 0.0
    changes: int = 0


def cacheable(link: Link, session: Session, exchange: Exchange) -> CacheableRequest | None:
    """Returns the request as far as its result depends on it; None if it must be sent.

    A client with a session knows no `ttlMs`: it would take what it gets for new, and rely on notifications of changes
    from then on. The driver's own session reads what the server says now.
    """
    request = exchange.request
    if request is None or not link.is_stateless or not session.is_stateless or session.is_own:
        return None
    if exchange.token_raw is not None or exchange.mirrored or exchange.known or exchange.round is not None:
        return None
    try:
        params = _params_of(exchange.params)
        able = fingerprint(request.capabilities)
    except RemoteProtocolError:
        return None
    if params is None:
        return None
    uri = ""
    if exchange.method == READ:
        found = text_of(dict(params).get("uri"))
        if found is None:
            return None
        uri = found
    said = (request.revision, able, [(name, bytes(value)) for name, value in params])
    return CacheableRequest(CacheKey(link.plan.id, exchange.method, uri, _digest(said)), contexts_of(link, exchange))


def _params_of(params: bytes | None) -> list[tuple[str, bytes]] | None:
    """Returns the params without `_meta`, in one order; None if there is more in them than is usual.

    Raises:
        RemoteProtocolError: they have a member twice.
    """
    if params is None or not params.startswith(b"{"):
        return None
    spans = look(params)
    meta = take(params, spans.get("_meta"))
    if meta is None or not look(meta).keys() <= _USUAL or not RETRY_KEYS.isdisjoint(spans):
        return None
    values = [(name, params[span.start : span.stop]) for name, span in sorted(spans.items()) if name != "_meta"]
    return [(name, value) for name, value in values if (name, value) != ("cursor", b"null")]


def contexts_of(link: Link, exchange: Exchange) -> Contexts:
    """Returns digests of the contexts in which a request is made.

    The driver adds the token of a caller's login, which may have been replaced by that of another account: the private
    context is not known then. A process of one session may know things of it, so each is a context of its own.
    """
    principal = link.session_of(exchange).principal
    headers = [pair for pair in exchange.headers if pair[0].lower() not in OF_A_REQUEST]
    public = _digest(("public", principal, headers)) if headers or link.logs_in_as else EVERYBODY
    if link.logs_in_as:
        return Contexts(None, public)
    place: object = link.cookies.pairs
    if link.plan.kind is not Kind.HTTP:
        place = link.id, link.upstream.incarnation
    return Contexts(_digest(("private", principal, headers, place)), public)


def _digest(parts: object) -> bytes:
    return hashlib.blake2b(msgspec.json.encode(parts), digest_size=32).digest()
