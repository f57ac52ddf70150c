"""The memory of a function of bytes: a bounded number of short inputs is remembered."""

from __future__ import annotations

import pytest
from isthmus.core.base.memoize import remembered


class CountedFunction:
    """A function of bytes that records its calls."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []

    def __call__(self, data: bytes) -> list[bytes]:
        """Returns a new list of the input, and records the call."""
        self.calls.append(data)
        if data == b"bad":
            raise ValueError("bad")
        return [data]


def test_a_remembered_result_is_shared() -> None:
    """Each call returns one object, under the name of the wrapped function."""

    def named(data: bytes) -> list[bytes]:
        return function(data)

    function = CountedFunction()
    known = remembered(named)
    assert known(b"a") is known(b"a")
    assert known(b"b") == [b"b"]
    assert function.calls == [b"a", b"b"]
    assert known.__name__ == "named"


def test_the_last_hundred_and_twenty_eight_are_remembered() -> None:
    function = CountedFunction()
    known = remembered(function)
    every = [b"%d" % number for number in range(128)]
    for data in every * 2:
        known(data)
    assert function.calls == every
    known(b"one more")
    known(every[-1])
    assert function.calls == [*every, b"one more"]
    known(every[0])
    assert function.calls == [*every, b"one more", every[0]]


def test_inputs_above_eight_kibibytes_are_not_remembered() -> None:
    function = CountedFunction()
    known = remembered(function)
    for data, times in ((b"x" * 8192, 1), (b"x" * 8193, 2)):
        assert known(data) == known(data) == [data]
        assert function.calls.count(data) == times


def test_an_exception_is_not_remembered() -> None:
    function = CountedFunction()
    known = remembered(function)
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            known(b"bad")
    assert function.calls == [b"bad", b"bad"]
