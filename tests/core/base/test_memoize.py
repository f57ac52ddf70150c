"""What the same bytes come to is found out once, as long as they are few and short."""

from __future__ import annotations

import pytest
from isthmus.core.base.memoize import remembered


class Finding:
    """A function of bytes that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def __call__(self, data: bytes) -> list[bytes]:
        """What was asked."""
        self.asked.append(data)
        if data == b"bad":
            raise ValueError("bad")
        return [data]


def test_what_was_found_is_shared() -> None:
    """The same object each time, under the name of the function that found it."""

    def named(data: bytes) -> list[bytes]:
        return finding(data)

    finding = Finding()
    known = remembered(named)
    assert known(b"a") is known(b"a")
    assert known(b"b") == [b"b"]
    assert finding.asked == [b"a", b"b"]
    assert known.__name__ == "named"


def test_the_last_hundred_and_twenty_eight_are_remembered() -> None:
    finding = Finding()
    known = remembered(finding)
    every = [b"%d" % number for number in range(128)]
    for data in every * 2:
        known(data)
    assert finding.asked == every
    known(b"one more")
    known(every[-1])
    assert finding.asked == [*every, b"one more"]
    known(every[0])
    assert finding.asked == [*every, b"one more", every[0]]


def test_what_is_longer_than_eight_kibibytes_is_found_out_anew() -> None:
    finding = Finding()
    known = remembered(finding)
    for data, times in ((b"x" * 8192, 1), (b"x" * 8193, 2)):
        assert known(data) == known(data) == [data]
        assert finding.asked.count(data) == times


def test_what_raised_is_asked_again() -> None:
    finding = Finding()
    known = remembered(finding)
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            known(b"bad")
    assert finding.asked == [b"bad", b"bad"]
