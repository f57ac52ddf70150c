"""Answers requests with results that their server lets the proxy keep (`ServerPlan.caches`).

A request gets here when it is about to be written to a server that is ready, so all rules of access and definitions
have allowed it. What is kept is what the server said. It is handed in as if the server said it again: rules that change
or hide parts of a result see it each time, for each caller.

A client that listens for changes reads what it listens for, and then waits to be told. A change from before it listened
is never told, so what it reads must be newer than its subscription.

Source: 2026-07-28 server/utilities/caching.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..base.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RemoteProtocolError
from ..base.plan import ServerPlan
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Context
from ..state.exchange import Exchange, ExchangeInput, ExchangeKey
from ..state.interceptor import Interceptor
from ..state.link import Link
from ..state.listen_filter import ACKNOWLEDGED
from ..state.session import Session
from ..upstream.health import Health
from .hints import hints_of
from .requests import KEPT_METHODS, CacheableRequest, cacheable
from .result_cache import READ, ResultCache

_RESOURCES: Final = ("resources/list", "resources/templates/list")
_CHANGED: Final[Mapping[str, tuple[str, ...]]] = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": (*_RESOURCES, READ),
}
"""The methods whose results a notification makes stale. A resource that is gone must not be read."""
_UPDATED: Final = "notifications/resources/updated"
_OUTDATED: Final[Mapping[str, tuple[str, ...]]] = {
    "tools/call": ("tools/list",),
    "prompts/get": ("prompts/list",),
    READ: _RESOURCES,
    "tools/list": ("tools/list",),
    "prompts/list": ("prompts/list",),
    "resources/list": ("resources/list",),
    "resources/templates/list": ("resources/templates/list",),
}
"""The lists that an error of a method shows to be out of date."""
_SHOWS_OUTDATED: Final = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS})
"""The codes of such errors. A client that gets one reads the list again, or reads it from the beginning if a cursor is
not good any more (2026-07-28 server/utilities/caching, "Freshness Calculation" and "Interaction with Pagination")."""


class Caching(Interceptor):
    """The kept results of all servers.

    Args:
        health: of each server, by its id; it counts hits and misses.
    """

    name = "cache"

    def __init__(self, context: Context, health: Mapping[str, Health]) -> None:
        self._context = context
        self._health = health
        self._results = ResultCache(context.limits)
        self._requests: dict[tuple[str, ExchangeKey], CacheableRequest] = {}  # whose results may be kept

    def is_for(self, plan: ServerPlan) -> bool:
        return plan.caches

    def has_say(self, link: Link) -> bool:
        return False  # reads are no plain calls where results are kept: see `fast_path_eras`

    # --- Up -----------------------------------------------------------------------------------------------------

    def prepare(self, link: Link, exchange: Exchange) -> bool:
        if exchange.method not in KEPT_METHODS:
            return False
        place = exchange.sid, exchange.key
        self._requests.pop(place, None)
        request = cacheable(link, link.session_of(exchange), exchange)
        if request is None:
            return False
        since = float("-inf") if link.listening_since is None else link.listening_since
        result = self._results.find(request.key, request.contexts, self._context.now, since=since)
        if result is None:
            self._requests[place] = request
            return False
        self._health[link.plan.id].receive_cache_hit()
        exchange.step(ExchangeInput.SEND)
        link.router.receive_kept(link, exchange, Frame(result=result))
        return True

    def receive_sent(self, link: Link, exchange: Exchange) -> None:
        request = self._requests.get((exchange.sid, exchange.key))
        if request is not None:
            changes, now = self._results.changes(request.key), self._context.now
            self._requests[exchange.sid, exchange.key] = request._replace(sent_at=now, changes=changes)
            self._health[link.plan.id].receive_cache_miss()

    # --- Down ---------------------------------------------------------------------------------------------------

    def receive_response(self, link: Link, exchange: Exchange, frame: Frame) -> bool:
        request = self._requests.pop((exchange.sid, exchange.key), None)
        if frame.error is not None:
            if envelope.error_code(envelope.usable_error(frame.error)) in _SHOWS_OUTDATED:
                self._results.drop(link.plan.id, _OUTDATED.get(exchange.method, ()))
        elif request is not None and frame.result is not None:
            self._keep(request, frame.result)
        return False

    def _keep(self, request: CacheableRequest, result: bytes) -> None:
        if len(result) > self._context.limits.cached_result_max_bytes:
            return  # it need not even be read
        hints = hints_of(result)
        if hints is not None:
            key, contexts, sent_at, changes = request
            self._results.keep(key, contexts, result, hints, changes=changes, sent_at=sent_at, now=self._context.now)

    def receive_notification(self, link: Link, frame: Frame, related: Exchange | None) -> bool:
        method = frame.method or ""
        if method == _UPDATED:
            self._receive_updated(link.plan.id, frame.params)
        elif method in _CHANGED:
            self._results.drop(link.plan.id, _CHANGED[method])
        elif method == ACKNOWLEDGED:
            link.receive_listening(self._context.now)
        return False

    def _receive_updated(self, server: str, params: bytes | None) -> None:
        try:
            uri = envelope.text_of(envelope.member_of(params, "uri"))
        except RemoteProtocolError:
            uri = None
        if uri is None:
            self._results.drop(server, (READ,))
        else:
            self._results.drop_resource(server, uri)

    # --- Ends ---------------------------------------------------------------------------------------------------

    def forget(self, link: Link | None, session: Session, exchange: Exchange) -> None:
        self._requests.pop((exchange.sid, exchange.key), None)

    def receive_lost(self, link: Link, reason: str) -> None:
        """Drops all that a lost server has said: it may come back with other things."""
        self._results.drop(link.plan.id, KEPT_METHODS)
