"""Deadlines: which are due, and in which order, against a plain dict that is searched from end to end."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from isthmus.core.base.timers import Deadline, Timers

KEYS = st.integers(0, 7)
TIMES = st.integers(0, 20).map(float) | st.just(float("inf"))


class TimersModel(RuleBasedStateMachine):
    """Gives the same inputs to `Timers` and to a dict key -> (at, how recently set, why)."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: Timers[int] = Timers()
        self.model: dict[int, tuple[float, int, str]] = {}
        self.count = 0

    @rule(key=KEYS, at=TIMES)
    def set(self, key: int, at: float) -> None:
        self.count += 1
        self.timers.set(key, at, f"reason {self.count}")
        self.model[key] = (at, self.count, f"reason {self.count}")

    @rule(key=KEYS)
    def cancel(self, key: int) -> None:
        self.timers.cancel(key)
        self.model.pop(key, None)

    @rule(now=TIMES)
    def take_due(self, now: float) -> None:
        due = sorted((entry, key) for key, entry in self.model.items() if entry[0] <= now)
        for _, key in due:
            assert self.timers.take_due(now) == key
            del self.model[key]
        assert self.timers.take_due(now) is None
        following = self.timers.next_timeout()
        assert following is None or following.at > now

    @invariant()
    def the_next_is_the_earliest(self) -> None:
        first = min(self.model.values(), default=None)
        expected = None if first is None else Deadline(first[0], first[2])
        assert self.timers.earliest_at <= (float("inf") if expected is None else expected.at)
        assert self.timers.next_timeout() == expected
        assert self.timers.earliest_at == (float("inf") if expected is None else expected.at)
        assert self.timers.next_timeout() == expected  # asking changes nothing
        assert len(self.timers) == len(self.model)


TestAgainstADict = TimersModel.TestCase


class Incomparable:
    """A key that has no order, as tuples of mixed kinds have none."""


def test_equal_deadlines_go_in_the_order_they_were_set() -> None:
    """Keys are never compared: among equals, the one set earlier goes first, and setting again counts as later."""
    keys = [Incomparable() for _ in range(5)]
    timers: Timers[Incomparable] = Timers()
    for key in keys:
        timers.set(key, 1.0, "")
    timers.set(keys[0], 1.0, "")
    assert timers.take_due(0.5) is None
    assert [timers.take_due(1.0) for _ in range(6)] == [*keys[1:], keys[0], None]
    assert len(timers) == 0


@given(random=st.randoms(use_true_random=True), live=st.integers(1, 60))
def test_memory_follows_the_live_deadlines(random: Random, live: int) -> None:
    """Deadlines that are set anew again and again leave no more behind than a multiple of the live ones."""
    timers: Timers[int] = Timers()
    for _ in range(500):
        timers.set(random.randrange(live), random.random(), "")
        assert len(timers._heap) <= max(64, 2 * len(timers))


def test_memory_is_given_back_after_many_cancellations() -> None:
    """Ten thousand deadlines are cancelled, and the next one set cleans up behind them."""
    timers: Timers[int] = Timers()
    for key in range(10_000):
        timers.set(key, float(key), "")
    for key in range(1, 10_000):
        timers.cancel(key)
    timers.set(0, 5.0, "last")
    assert len(timers._heap) <= 64
    assert timers.next_timeout() == Deadline(5.0, "last")


def test_cancelling_alone_gives_memory_back_and_keeps_the_order() -> None:
    """The rebuilt heap is in order, however its deadlines were set."""
    timers: Timers[int] = Timers()
    for key in range(1000):
        timers.set(key, float(key * 377 % 1000), "")
    for key in range(900):
        timers.cancel(key)
        assert len(timers._heap) <= 2 * len(timers)
    taken = [timers.take_due(1000.0) for _ in range(100)]
    assert taken == sorted(range(900, 1000), key=lambda key: key * 377 % 1000)
    assert timers.take_due(1000.0) is None
