"""Tests of rate limits: which calls pass, compared with buckets that are computed in fractions and never forgotten."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.governance import RateLimit
from isthmus.core.governance.rate_limits import RateLimits

TOOLS: Final = ("read", "write_a", "write_b")
PATTERNS: Final = (("*",), ("write_*",), ("read", "write_a"))
limits = st.lists(
    st.builds(
        RateLimit,
        calls=st.sampled_from((1, 2, 3, 7)),
        per_s=st.sampled_from((0.5, 1.0, 6.0, 60.0)),
        tools=st.sampled_from(PATTERNS),
        is_for_each_caller=st.booleans(),
    ),
    min_size=1,
    max_size=3,
)
pauses = st.sampled_from((0.0, 0.0, 0.0, 0.25, 1.0, 5.0, 100.0))
calls = st.lists(st.tuples(pauses, st.sampled_from(TOOLS), st.sampled_from("abc")), max_size=60)


class Model:
    """All buckets that there could be, each with its tokens."""

    def __init__(self, rules: list[RateLimit]) -> None:
        self.rules = rules
        self.tokens: dict[tuple[int, str], Fraction] = {}

    def wait(self, seconds: float) -> None:
        for place, rule in enumerate(self.rules):
            for key, tokens in self.tokens.items():
                if key[0] == place:
                    more = Fraction(seconds) * rule.calls / Fraction(rule.per_s)
                    self.tokens[key] = min(Fraction(rule.calls), tokens + more)

    def wanted(self, tool: str, caller: str) -> dict[tuple[int, str], RateLimit]:
        keys = [(place, caller if rule.is_for_each_caller else "") for place, rule in enumerate(self.rules)]
        return {key: self.rules[key[0]] for key in keys if self.rules[key[0]].covers(tool)}

    def wait_s(self, tool: str, caller: str) -> Fraction:
        """Returns the time until there is a token in each bucket that the call needs; 0 or less if there is now."""
        lacks = [
            (1 - self.tokens.setdefault(key, Fraction(rule.calls))) * Fraction(rule.per_s) / rule.calls
            for key, rule in self.wanted(tool, caller).items()
        ]
        return max(lacks, default=Fraction(0))

    def take(self, tool: str, caller: str) -> None:
        for key in self.wanted(tool, caller):
            self.tokens[key] -= 1

    def used(self) -> int:
        """Returns the number of buckets of callers that are not full."""
        return sum(bool(caller) and n < self.rules[place].calls for (place, caller), n in self.tokens.items())


@given(rules=limits, calls=calls, buckets_max=st.sampled_from((1, 2, 3, 100)), start=st.sampled_from((0.0, 1e6)))
def test_calls_pass_as_if_no_bucket_were_ever_forgotten(
    rules: list[RateLimit], calls: list[tuple[float, str, str]], buckets_max: int, start: float
) -> None:
    """No size of the table and no calls of others let a caller make one call more, and the time that it is
    told to wait is the shortest in whole seconds. A refusal takes nothing, and one for lack of room is true. However
    many calls are refused, those that are noted are bounded by those that passed."""
    table, model, now = RateLimits({"s": rules}, buckets_max=buckets_max), Model(rules), start
    passed = noted = 0
    for pause, tool, caller in calls:
        now += pause
        model.wait(pause)
        refused = table.take("s", tool, caller, now)
        wait_s = model.wait_s(tool, caller)
        noted += refused is not None and refused.is_first
        if refused is None:
            assert wait_s <= 0
            model.take(tool, caller)
            passed += 1
        elif refused.limit is not None:
            assert refused.wait_s - 1 < wait_s <= refused.wait_s
            assert refused.limit in rules
        else:
            assert wait_s <= 0
            new = sum(bool(key[1]) for key in model.wanted(tool, caller))
            assert model.used() <= buckets_max < model.used() + new
            assert refused.wait_s > 0
        assert len(table) <= buckets_max
        assert noted <= 1 + passed * (len(rules) + 1)


def test_a_bucket_that_is_full_makes_room_and_is_as_good_as_new() -> None:
    table = RateLimits({"s": [RateLimit(calls=2, per_s=10.0)]}, buckets_max=1)
    assert [table.take("s", "t", caller, 0.0) for caller in "aa"] == [None, None]
    assert [(r.limit is None, r.wait_s, r.is_first) for _ in range(2) if (r := table.take("s", "t", "b", 0.0))] == [
        (True, 10, True),
        (True, 10, False),
    ]
    assert table.take("s", "t", "a", 0.0) == (RateLimit(calls=2, per_s=10.0), 5, True)
    assert table.take("s", "t", "a", 4.0) == (RateLimit(calls=2, per_s=10.0), 1, False)
    assert [table.take("s", "t", caller, 10.0) for caller in "bb"] == [None, None]
    assert table.take("s", "t", "a", 10.0) == (None, 10, True)
    assert len(table) == 1


def test_what_one_limit_refuses_takes_nothing_of_the_others() -> None:
    rules = [RateLimit(calls=1, per_s=5.0, tools=("write",)), RateLimit(calls=2, per_s=5.0, is_for_each_caller=False)]
    table = RateLimits({"s": rules, "other": rules}, buckets_max=10)
    assert table.take("s", "write", "a", 1.0) is None
    assert all(table.take("s", "write", "a", 1.0) for _ in range(5))
    assert table.take("s", "read", "b", 1.0) is None
    assert table.take("s", "read", "c", 1.0) == (rules[1], 3, True)
    assert table.take("other", "write", "a", 1.0) is None


def test_a_call_that_several_limits_refuse_is_told_the_longest_time() -> None:
    rules = [RateLimit(calls=1, per_s=seconds) for seconds in (5.0, 60.0, 20.0)]
    table = RateLimits({"s": rules}, buckets_max=10)
    assert table.take("s", "t", "a", 1.0) is None
    assert table.take("s", "t", "a", 1.0) == (rules[1], 60, True)
