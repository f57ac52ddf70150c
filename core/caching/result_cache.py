"""The table of kept results: for how long, for whom, and until which change each may be given again.

A result is found by what was requested (`CacheKey`) and by the callers that may have it (`Contexts`). It is fresh for
the time that its server named, at most `Limits.cache_ttl_max_s`.

A change makes what is kept stale at once, and what is on its way, too: the server may have made that before the change.
So each list, and the reads of each server, have a count of their changes. A request notes the count when it is sent,
and its result is kept only if the count is still the same.

Source: 2026-07-28 server/utilities/caching.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ..base.limits import Limits
from .hints import CacheHints

READ: Final = "resources/read"
ENTRY_BYTES: Final = 1024
"""The memory of a kept result besides its JSON and its URI."""
PARENTS_MAX: Final = 32
"""Resources above an updated one whose reads are dropped with it, as it may be a part of them: paths have ten steps.
At it: all reads of the server are dropped."""
EVERYBODY: Final = b""
"""The context of all callers together."""


class CacheKey(NamedTuple):
    """The identity of a request. Equal keys have equal results, for one caller.

    Attributes:
        uri: of `resources/read`; "" for lists.
        digest: of all else in the request that the result may depend on.
    """

    server: str
    method: str
    uri: str
    digest: bytes


class Contexts(NamedTuple):
    """The contexts in which a request is made.

    Attributes:
        private: that of results for its caller alone; None if it is not known.
        public: that of results for others, too.
    """

    private: bytes | None
    public: bytes = EVERYBODY


class _Kept(NamedTuple):
    """A kept result: its JSON before and after the value of `ttlMs`."""

    before: bytes
    after: bytes
    sent_at: float  # of its request
    expires_at: float
    size_bytes: int


_Place = tuple[CacheKey, bytes]


class ResultCache:
    """The kept results of all servers, at most `Limits.cached_results_max` and `Limits.cached_results_max_bytes`. The
    one that was used least lately goes first.

    Attributes:
        size_bytes: the memory of all.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._entries: dict[_Place, _Kept] = {}  # the latest use is the last
        self._places: dict[tuple[str, str], dict[str, set[_Place]]] = {}  # by server and method, then by URI
        self._changes: dict[tuple[str, str], int] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: CacheKey, contexts: Contexts, now: float, *, since: float = float("-inf")) -> bytes | None:
        """Returns a result that is fresh, with the rest of its time as `ttlMs`; None if there is none.

        Args:
            since: the result is not older than that.
        """
        for context in contexts:
            kept = None if context is None else self._entries.pop((key, context), None)
            if context is None or kept is None:
                continue
            self._entries[key, context] = kept
            if now >= kept.expires_at:
                self._remove((key, context))
            elif kept.sent_at >= since:
                left_ms = int((kept.expires_at - now) * 1000)
                return b"%b%d%b" % (kept.before, left_ms, kept.after)
        return None

    def changes(self, key: CacheKey) -> int:
        """Returns the number of changes so far of what a request is about. It is noted when the request is sent."""
        return self._changes.get((key.server, key.method), 0)

    def keep(
        self,
        key: CacheKey,
        contexts: Contexts,
        result: bytes,
        hints: CacheHints,
        *,
        changes: int,
        sent_at: float,
        now: float,
    ) -> bool:
        """Keeps a result that has come just now. False if it is too large, or may be stale already, or is private and
        its context is not known.

        Args:
            changes: their number when the request was sent.
            sent_at: that moment.
        """
        context = contexts.public if hints.is_public else contexts.private
        size_bytes = len(result) + len(key.uri) + ENTRY_BYTES
        if context is None or changes != self.changes(key) or size_bytes > self._limits.cached_result_max_bytes:
            return False
        for earlier in contexts:  # the server may have changed its mind about the scope
            if earlier is not None and (key, earlier) in self._entries:
                self._remove((key, earlier))
        expires_at = now + min(hints.ttl_ms / 1000, self._limits.cache_ttl_max_s)
        before, after = bytes(result[: hints.ttl_span.start]), bytes(result[hints.ttl_span.stop :])
        place = key, context
        self._entries[place] = _Kept(before, after, sent_at, expires_at, size_bytes)
        self._places.setdefault((key.server, key.method), {}).setdefault(key.uri, set()).add(place)
        self.size_bytes += size_bytes
        limits = self._limits
        while len(self._entries) > limits.cached_results_max or self.size_bytes > limits.cached_results_max_bytes:
            self._remove(next(iter(self._entries)))
        return place in self._entries

    def drop(self, server: str, methods: Iterable[str]) -> None:
        """Drops the results of these methods, for all callers: they have changed."""
        for method in methods:
            self._count_change(server, method)
            for places in list(self._places.get((server, method), {}).values()):
                for place in list(places):
                    self._remove(place)

    def drop_resource(self, server: str, uri: str) -> None:
        """Drops the reads of a resource, and of those that it may be a part of: it has changed.

        Source: 2026-07-28 schema, `ResourceUpdatedNotificationParams`: "This might be a sub-resource of the one that
        the client actually subscribed to."
        """
        if uri.count("/") > PARENTS_MAX:
            self.drop(server, (READ,))
            return
        self._count_change(server, READ)
        reads = self._places.get((server, READ), {})
        for each in _with_parents(uri):
            for place in list(reads.get(each, ())):
                self._remove(place)

    def _count_change(self, server: str, method: str) -> None:
        self._changes[server, method] = self._changes.get((server, method), 0) + 1

    def _remove(self, place: _Place) -> None:
        self.size_bytes -= self._entries.pop(place).size_bytes
        key = place[0]
        by_uri = self._places[key.server, key.method]
        by_uri[key.uri].remove(place)
        if not by_uri[key.uri]:
            del by_uri[key.uri]


def _with_parents(uri: str) -> Iterator[str]:
    """Yields a URI, and what is before each of its slashes, with the slash and without it."""
    yield uri
    at = uri.rfind("/")
    while at > 0:
        if at + 1 < len(uri):
            yield uri[: at + 1]
        yield uri[:at]
        at = uri.rfind("/", 0, at)
