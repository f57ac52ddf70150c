"""What people are shown stays in one piece."""

from __future__ import annotations

import io
import sys

import pytest
from isthmus.app.base import output


class Heard(io.RawIOBase):
    """What is written to it, write by write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self.writes.append(bytes(data))  # type: ignore[call-overload]
        return len(self.writes[-1])


def test_a_complaint_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever else writes to stderr, the log above all, must not come between a line and its end."""
    heard = Heard()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(heard, encoding="utf-8", write_through=True))
    output.complain("isthmus: no")
    assert [write for write in heard.writes if write] == [b"isthmus: no\n"]
