"""Tests of the decision which requests have spans."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.telemetry import Tracing
from isthmus.core.tracing.context import TraceContext
from isthmus.core.tracing.sampling import DRAWN_BYTES, Sampler

SAMPLED = TraceContext("a" * 32, "b" * 16, 1, "k=v")


def sampler(seed: int = 1, **rules: Any) -> Sampler:
    return Sampler(Tracing(is_recorded=True, **rules), random.Random(seed).randbytes)


@pytest.mark.parametrize("ratio", [0.0, 0.01, 0.5, 1.0])
def test_a_share_of_the_requests_has_spans(ratio: float) -> None:
    one = sampler(ratio=ratio, spans_per_second_max=10**6)
    begun = [one.begin(None, float(now)) for now in range(20_000)]
    share = sum(context is not None for context in begun) / len(begun)
    assert abs(share - ratio) < 0.01
    assert all(context.is_sampled for context in begun if context is not None)


def test_the_trace_id_decides_as_other_samplers_do() -> None:
    """OpenTelemetry's samplers compare the lower half of the id with the share."""
    one = sampler(ratio=0.25, spans_per_second_max=10**6)
    begun = [context for now in range(1000) if (context := one.begin(None, float(now))) is not None]
    assert all(int(context.trace_id[16:], 16) < 2**64 // 4 for context in begun)
    assert len({context.trace_id for context in begun} | {context.span_id for context in begun}) == 2 * len(begun)


@settings(max_examples=50)
@given(st.lists(st.booleans(), max_size=60), st.floats(0, 1))
def test_what_is_said_of_the_next_request_is_what_becomes_of_it(asks: list[bool], ratio: float) -> None:
    one = sampler(ratio=ratio, spans_per_second_max=5)
    for now, is_asked in enumerate(asks):
        at = now / 10
        said = one.takes_next(at) if is_asked else None
        begun = one.begin(None, at)
        assert said is None or said is (begun is not None)


def test_the_client_decides_where_it_sends_a_context() -> None:
    one = sampler(ratio=0.0)
    span = one.begin(SAMPLED, 1.0)
    assert span is not None
    assert (span.trace_id, span.flags, span.state) == (SAMPLED.trace_id, 1, "k=v")
    assert span.span_id != SAMPLED.span_id
    assert sampler(ratio=1.0).begin(TraceContext("a" * 32, "b" * 16, 0), 1.0) is None
    assert Sampler(Tracing(), random.Random(1).randbytes).begin(SAMPLED, 1.0) is None


def test_no_more_spans_are_made_than_the_limit_whatever_clients_ask_for() -> None:
    one = sampler(ratio=1.0, spans_per_second_max=10)
    begun = [one.begin(SAMPLED, 1.0) for _ in range(25)]
    assert [context is not None for context in begun] == [True] * 10 + [False] * 15
    assert one.refused == 15
    assert not one.takes_next(1.05)
    assert one.takes_next(1.1)
    first = begun[0]
    assert first is not None
    for _ in range(3):  # attempts count, and are never refused
        one.child_of(first)
    assert one.begin(SAMPLED, 1.3) is None
    assert one.begin(SAMPLED, 1.5) is not None


def test_random_bytes_are_drawn_for_many_requests_at_once() -> None:
    drawn: list[int] = []

    def entropy(size: int) -> bytes:
        drawn.append(size)
        return random.Random(len(drawn)).randbytes(size)

    one = Sampler(Tracing(is_recorded=True, ratio=0.0), entropy)
    one.begin(None, 1.0)
    assert drawn == []
    one = Sampler(Tracing(is_recorded=True, ratio=1e-9), entropy)
    for now in range(DRAWN_BYTES // 8):
        one.begin(None, float(now))
    assert drawn == [DRAWN_BYTES]
    one.begin(None, 1000.0)
    assert drawn == [DRAWN_BYTES] * 2


def test_no_id_is_all_zeros() -> None:
    pools = [bytes(DRAWN_BYTES), bytes(DRAWN_BYTES), b"\x01" * DRAWN_BYTES]
    one = Sampler(Tracing(is_recorded=True, ratio=1.0), lambda size: pools.pop(0))
    context = one.begin(None, 1.0)
    assert context is not None
    assert (context.trace_id, context.span_id) == ("01" * 8 + "0" * 16, "01" * 8)


@settings(max_examples=50)
@given(st.lists(st.booleans(), max_size=300), st.sampled_from([0.0, 0.01, 0.5, 1.0]))
def test_a_request_that_is_passed_over_counts_as_one_that_begins(passes: list[bool], ratio: float) -> None:
    """The fast path passes over, and so decides as the other way does."""
    one, other = (sampler(ratio=ratio, spans_per_second_max=3) for _ in range(2))
    for now, may_pass in enumerate(passes):
        at = now / 10
        if may_pass and not one.takes_next(at):
            one.pass_over()
            assert other.begin(None, at) is None
        else:
            assert one.begin(None, at) == other.begin(None, at)
    assert one.refused == other.refused
