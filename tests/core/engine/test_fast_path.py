"""Tests of the fast path: a plain call has equal effects and deadlines with it and without it."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inside import Inside
from isthmus.core.base.events import PostOpening
from isthmus.core.base.plan import Kind
from isthmus.core.base.revisions import Era
from isthmus.core.base.telemetry import Tracing
from isthmus.core.bridge import plain
from isthmus.core.endpoints.known_clients import audience_of
from isthmus.core.jsonrpc.splice import compact_members
from pairs import (
    ANSWERS,
    COMBINATIONS,
    LIMITS,
    METHODS,
    ODD_HEADERS,
    OPERATIONS,
    PARAMS,
    SENDERS,
    Pair,
    play,
)


@pytest.mark.parametrize(("kind", "client", "server"), COMBINATIONS)
@settings(deadline=None, max_examples=20)
@given(operations=st.lists(OPERATIONS, max_size=14))
def test_the_fast_path_has_the_same_effects_as_the_slow_one(
    kind: Kind, client: Era, server: Era, operations: list[tuple[Any, ...]]
) -> None:
    pair = Pair(kind, client, server, emits=True)
    for name, *given_ in operations:
        play(pair, name, *given_)


@pytest.mark.parametrize(("kind", "client", "server"), COMBINATIONS)
@settings(deadline=None, max_examples=10)
@given(operations=st.lists(OPERATIONS, max_size=14), ratio=st.sampled_from([0.0, 0.3, 1.0]))
def test_the_fast_path_has_the_same_effects_where_some_calls_have_spans(
    kind: Kind, client: Era, server: Era, operations: list[tuple[Any, ...]], ratio: float
) -> None:
    tracing = Tracing(is_recorded=True, ratio=ratio, spans_per_second_max=1000)
    pair = Pair(kind, client, server, tracing=tracing)
    for name, *given_ in operations:
        play(pair, name, *given_)


CASES: Final = (
    # In one era, the level is sent with each request from then on.
    ("logging/setLevel", b'{"level":"info"}', {}, None, 0),
    *((method, PARAMS[0], {}, None, n) for method in ("tools/call", "resources/read") for n in range(len(ANSWERS))),
    *(("tools/call", PARAMS[0], sender, None, 0) for sender in SENDERS),
    *(("tools/call", PARAMS[0], {}, odd, 0) for odd in ODD_HEADERS),
    *((method, params, {}, None, 0) for method in METHODS[:5] for params in PARAMS),
    # Structured content is wrapped for one tool, once the tools are listed.
    *(("tools/call", params, {}, None, 6) for params in PARAMS),
)
"""Unusual calls and answers, each with one oddity."""


@pytest.mark.parametrize(("kind", "client", "server"), COMBINATIONS)
def test_unusual_calls_have_the_same_effects(kind: Kind, client: Era, server: Era) -> None:
    pair = Pair(kind, client, server)
    for method, params, sender, odd, answer in CASES:
        for template, is_streamed in ((ANSWERS[answer], False), (ANSWERS[answer], True), (ANSWERS[0], False)):
            if is_streamed and (answer == 0 or kind is Kind.PIPE):
                continue
            pair.call(method, params, 1, sender, odd)
            if not pair.is_at_rest(template, is_streamed=is_streamed):
                pair = Pair(kind, client, server)


@pytest.mark.parametrize(("kind", "client", "server"), COMBINATIONS)
def test_plain_calls_take_the_fast_path(kind: Kind, client: Era, server: Era) -> None:
    """The fast path is taken; without this, the test above would compare the slow path with itself."""
    pair = Pair(kind, client, server)
    before = pair.halves[0].taken
    pair.call("tools/call", PARAMS[0], 2, {}, None)
    pair.answer(0, ANSWERS[1 if server is Era.STATELESS else 0])
    pair.call("tools/call", PARAMS[0], 2, {}, None)
    pair.answer(0, ANSWERS[1 if server is Era.STATELESS else 0], is_streamed=True)
    assert [half.taken for half in pair.halves] == [before + 4, 0]


def test_members_are_cut_out_of_the_bytes() -> None:
    """Members are cut out of the bytes, also first, last or only ones."""
    assert plain.to_modern("prompts/get", b"{}", None) == b'{"resultType":"complete"}'
    for params, left in (
        (b'{"_meta":{}}', b"{}"),
        (b'{"_meta":{},"a":1}', b'{"a":1}'),
        (b'{"a":1,"_meta":{}}', b'{"a":1}'),
        (b'{"a":1,"_meta":{},"b":2}', b'{"a":1,"b":2}'),
    ):
        spans = compact_members(params)
        assert spans is not None
        assert plain.without_envelope(params, spans, b"") == left


def test_trace_headers_do_not_identify_a_client() -> None:
    headers = (("Traceparent", "1"), ("tracestate", "2"), ("baggage", "3"), ("x-tenant", "4"))
    assert audience_of(PostOpening("s", headers=headers)).headers == (("x-tenant", "4"),)


def test_only_so_many_clients_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more client takes the place of the first; both are answered."""
    monkeypatch.setattr("isthmus.core.endpoints.known_clients.KNOWN_CLIENTS_MAX", 1)
    pair = Pair(Kind.HTTP, Era.STATELESS, Era.STATELESS)
    known: Any = Inside(pair.halves[0].engine).fast_path
    (before,) = known._known._known
    pair.call("tools/call", PARAMS[0], 2, {"beside": {"com.example/trace": 1}}, None)
    assert pair.is_at_rest(ANSWERS[1], is_streamed=False)
    (after,) = known._known._known
    assert after != before


SLOW_PARAMS: Final = {
    Era.HANDSHAKE: (
        b'{"name":"echo","_meta":{"progressToken":7}}',
        b'{"name":"echo","task":{"ttl":1000}}',
        b'{"name":"\\u0065cho"}',
    ),
    Era.STATELESS: (
        b'{"name":"echo","x":"progressToken"}',
        b'{"name":"echo","requestState":"x"}',
        b'{"name":"echo","inputResponses":{}}',
        b'{"name":"echo","task":{"ttl":1000}}',
        b'{"name":"\\u0065cho"}',
    ),
}
"""Params that may hold a progress token, a `task` member or a state of `input_required`, also with escapes."""


@pytest.mark.parametrize("kind", [Kind.HTTP, Kind.PIPE])
@pytest.mark.parametrize(
    ("client", "params"), [(era, params) for era, every in SLOW_PARAMS.items() for params in every]
)
def test_calls_that_may_need_more_than_an_answer_take_the_slow_path(kind: Kind, client: Era, params: bytes) -> None:
    """The fast path takes none of these calls."""
    for server in Era:
        pair = Pair(kind, client, server)
        before = pair.halves[0].taken
        pair.call("tools/call", params, 1, {}, None)
        assert pair.halves[0].taken == before


@pytest.mark.parametrize(("kind", "client", "server"), COMBINATIONS)
def test_no_more_calls_are_taken_than_may_be_open(kind: Kind, client: Era, server: Era) -> None:
    pair = Pair(kind, client, server)
    before = pair.halves[0].taken
    for id in range(1, LIMITS.exchanges_per_session_max + 2):
        pair.call("tools/call", PARAMS[0], id, {}, None)
    assert pair.halves[0].taken == before + LIMITS.exchanges_per_session_max
    assert len(pair.dials) == LIMITS.exchanges_per_session_max
