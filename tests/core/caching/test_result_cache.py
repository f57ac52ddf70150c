"""The table of kept results, compared with a list of all that servers ever said."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from isthmus.core import Limits
from isthmus.core.caching.hints import hints_of
from isthmus.core.caching.result_cache import PARENTS_MAX, READ, CacheKey, Contexts, ResultCache

URIS: Final = ("a://x", "a://x/y", "a://x/y/", "a://x/yz", "b", "")
KEYS: Final = (
    *(CacheKey("one", READ, uri, b"1") for uri in URIS),
    *(CacheKey("one", "tools/list", "", digest) for digest in (b"1", b"2")),
    CacheKey("two", "tools/list", "", b"1"),
)
CONTEXTS: Final = (
    Contexts(b"alice"),
    Contexts(b"bob"),
    Contexts(None),
    Contexts(b"carol", b"group"),
    Contexts(None, b"group"),
)
TTLS_MS: Final = (1, 500, 1000, 10_000)
sizes: Final = st.sampled_from([1, 200, 900])
keys: Final = st.sampled_from(KEYS)
callers: Final = st.sampled_from(CONTEXTS)


class Sent(NamedTuple):
    """A request that was sent, with all that was said and done until then."""

    key: CacheKey
    contexts: Contexts
    changes: int
    sent_at: float
    step: int


class Said(NamedTuple):
    """A result that has come."""

    sent: Sent
    came_at: float
    ttl_ms: int
    is_public: bool
    number: int


class Change(NamedTuple):
    """A change of lists or of a resource, as the server told it."""

    server: str
    method: str
    uri: str | None
    step: int

    def concerns(self, key: CacheKey) -> bool:
        if (key.server, key.method) != (self.server, self.method):
            return False
        above = self.uri is None or key.uri == self.uri
        return above or (self.uri is not None and self.uri.startswith(key.uri.rstrip("/") + "/") and bool(key.uri))


class Caches(RuleBasedStateMachine):
    """A result that is found was said to an equal request, in a context that may have it, lately, after each change."""

    @initialize(most=st.integers(1, 6), ttl_max_s=st.sampled_from([0.75, 100.0]))
    def begin(self, most: int, ttl_max_s: float) -> None:
        self.limits = Limits(
            cached_results_max=most,
            cached_results_max_bytes=5000,
            cached_result_max_bytes=1400,
            cache_ttl_max_s=ttl_max_s,
        )
        self.cache = ResultCache(self.limits)
        self.now, self.steps = 1e9, 0
        self.sent: list[Sent] = []
        self.said: list[Said] = []
        self.changed: list[Change] = []

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.4, 1.0, 9.5]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(key=keys, contexts=callers)
    def send(self, key: CacheKey, contexts: Contexts) -> None:
        self.steps += 1
        self.sent.append(Sent(key, contexts, self.cache.changes(key), self.now, self.steps))

    @rule(key=keys, contexts=callers, ttl_ms=st.sampled_from(TTLS_MS), is_public=st.booleans(), size=sizes)
    def ask(self, key: CacheKey, contexts: Contexts, ttl_ms: int, is_public: bool, size: int) -> None:
        self.send(key, contexts)
        self._answer(self.sent.pop(), ttl_ms, is_public, size)

    @precondition(lambda self: self.sent)
    @rule(ttl_ms=st.sampled_from(TTLS_MS), is_public=st.booleans(), size=sizes)
    def answer(self, ttl_ms: int, is_public: bool, size: int) -> None:
        self._answer(self.sent.pop(0), ttl_ms, is_public, size)

    def _answer(self, sent: Sent, ttl_ms: int, is_public: bool, size: int) -> None:
        said = Said(sent, self.now, ttl_ms, is_public, len(self.said))
        scope = "public" if is_public else "private"
        told = {
            "resultType": "complete",
            "ttlMs": ttl_ms,
            "cacheScope": scope,
            "number": said.number,
            "text": "x" * size,
        }
        result = json.dumps(told).encode()
        hints = hints_of(result)
        assert hints is not None
        is_kept = self.cache.keep(
            sent.key, sent.contexts, result, hints, changes=sent.changes, sent_at=sent.sent_at, now=self.now
        )
        assert not is_kept or size < 900
        if is_kept:
            self.said.append(said)
            found = self.cache.find(sent.key, sent.contexts, self.now)
            assert found is not None
            assert json.loads(found)["number"] == said.number

    @rule(server=st.sampled_from(["one", "two"]), method=st.sampled_from(["tools/list", READ]))
    def change(self, server: str, method: str) -> None:
        self.steps += 1
        self.cache.drop(server, (method,))
        self.changed.append(Change(server, method, None, self.steps))

    @rule(server=st.sampled_from(["one", "two"]), uri=st.sampled_from(URIS))
    def update(self, server: str, uri: str) -> None:
        self.steps += 1
        self.cache.drop_resource(server, uri)
        self.changed.append(Change(server, READ, uri, self.steps))

    @invariant()
    def all_is_as_it_was_said(self) -> None:
        for key in KEYS:
            for contexts in CONTEXTS:
                for since_s in (0.5, 1e9):
                    found = self.cache.find(key, contexts, self.now, since=self.now - since_s)
                    if found is not None:
                        self._check(json.loads(found), key, contexts, since_s)

    def _check(self, told: dict[str, Any], key: CacheKey, contexts: Contexts, since_s: float) -> None:
        said = self.said[told["number"]]
        assert said.sent.key == key
        if said.is_public:
            assert said.sent.contexts.public == contexts.public
        else:
            assert contexts.private is not None
            assert said.sent.contexts.private == contexts.private
        age_s = self.now - said.came_at
        ttl_s = min(said.ttl_ms / 1000, self.limits.cache_ttl_max_s)
        assert age_s < ttl_s
        assert 0 <= told["ttlMs"] <= (ttl_s - age_s) * 1000 + 0.001
        assert said.sent.sent_at >= self.now - since_s
        assert not any(each.concerns(key) and each.step > said.sent.step for each in self.changed)

    @invariant()
    def is_bounded(self) -> None:
        assert len(self.cache) <= self.limits.cached_results_max
        assert 0 <= self.cache.size_bytes <= self.limits.cached_results_max_bytes
        assert len(self.cache) or not self.cache.size_bytes


TestCaches = Caches.TestCase
TestCaches.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


ALICE: Final = Contexts(b"alice")
ANYONE: Final = Contexts(None)


def kept(cache: ResultCache, key: CacheKey, *, size: int = 1, scope: str = "public") -> bool:
    result = b'{"resultType":"complete","ttlMs":1000,"cacheScope":"%b","text":"%b"}' % (scope.encode(), b"x" * size)
    hints = hints_of(result)
    assert hints is not None
    return cache.keep(key, ALICE, result, hints, changes=cache.changes(key), sent_at=0.0, now=0.0)


def key(number: int, method: str = "tools/list", uri: str = "") -> CacheKey:
    return CacheKey("one", method, uri, b"%d" % number)


def test_the_result_that_was_used_least_lately_goes_first() -> None:
    cache = ResultCache(Limits(cached_results_max=3))
    assert all(kept(cache, key(each)) for each in range(3))
    assert cache.find(key(0), ANYONE, 0.5) is not None
    assert kept(cache, key(3))
    assert [cache.find(key(each), ANYONE, 0.5) is not None for each in range(4)] == [True, False, True, True]


def test_what_is_kept_is_bounded_in_bytes() -> None:
    cache = ResultCache(Limits(cached_results_max_bytes=10_000, cached_result_max_bytes=6000))
    assert not kept(cache, key(0), size=6000)
    assert not kept(cache, key(0, READ, "a" * 6000))
    assert kept(cache, key(1), size=3000)
    assert kept(cache, key(2), size=3000)
    assert kept(cache, key(3), size=3000)
    assert [cache.find(key(each), ANYONE, 0.5) is not None for each in range(4)] == [False, False, True, True]
    cache.drop("one", ("tools/list",))
    assert (len(cache), cache.size_bytes) == (0, 0)


def test_an_update_far_down_drops_all_reads_of_its_server() -> None:
    cache = ResultCache(Limits())
    other = CacheKey("two", READ, "b", b"")
    assert kept(cache, key(0, READ, "b"))
    assert kept(cache, key(1))
    assert kept(cache, other)
    cache.drop_resource("one", "a/" * (PARENTS_MAX + 1))
    found = [cache.find(each, ANYONE, 0.5) is not None for each in (key(0, READ, "b"), key(1), other)]
    assert found == [False, True, True]


def test_a_long_time_is_cut() -> None:
    cache = ResultCache(Limits(cache_ttl_max_s=0.25))
    assert kept(cache, key(0))
    found = cache.find(key(0), ANYONE, 0.125)
    assert found is not None
    assert json.loads(found)["ttlMs"] == 125
    assert cache.find(key(0), ANYONE, 0.25) is None


def test_the_latest_result_replaces_the_one_of_the_other_scope() -> None:
    cache = ResultCache(Limits())
    for scope in ("private", "public", "private"):
        assert kept(cache, key(0), scope=scope)
        found = cache.find(key(0), ALICE, 0.5)
        assert found is not None
        assert json.loads(found)["cacheScope"] == scope
        assert (cache.find(key(0), ANYONE, 0.5) is not None) == (scope == "public")
