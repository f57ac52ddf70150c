"""Tests of output for people: each message is written in one piece."""

from __future__ import annotations

import io
import sys

import pytest
from isthmus.app.base import output


class Writes(io.RawIOBase):
    """Records each write to it."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self.writes.append(bytes(data))  # type: ignore[call-overload]
        return len(self.writes[-1])


def test_an_error_message_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer to stderr, such as the log, cannot come between a line and its end."""
    raw = Writes()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, encoding="utf-8", write_through=True))
    output.complain("isthmus: no")
    assert [write for write in raw.writes if write] == [b"isthmus: no\n"]
