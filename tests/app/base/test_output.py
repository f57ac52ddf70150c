"""Tests of output for people: each message is written in one piece."""

from __future__ import annotations

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
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


ODD = st.text(st.characters() | st.sampled_from("\\'\"\n\t\r\x1b\x7f\x85\u2028\u202e\ud800\U000e0001"))


def shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


@given(text=ODD)
def test_what_cannot_be_seen_is_an_escape_and_all_else_is_shown_as_it_is(text: str) -> None:
    assert output.plain(text) == "".join(map(shown, text))
    assert output.laid_out(text) == "".join(one if one in "\n\t" else shown(one) for one in text)


@given(text=ODD)
def test_json_for_terminals_is_printable_and_means_the_same(text: str) -> None:
    encoded = json.dumps({text: text}, ensure_ascii=False, indent=2)
    printed = output.plain_json(encoded)
    assert all(line.isprintable() for line in printed.split("\n"))
    assert json.loads(printed) == json.loads(json.dumps({text: text}))
