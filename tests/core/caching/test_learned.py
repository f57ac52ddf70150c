"""Tests of the table of answers for clients that come while their server starts."""

from __future__ import annotations

import pytest
from isthmus.core.base.revisions import Era
from isthmus.core.caching.learned import EVERYBODY, Learned, LearnedAnswers
from isthmus.core.state.early_start import EarlyKey

FOREVER = float("inf")


def key(name: str, *, server: str = "files", method: str = "tools/list", audience: bytes = EVERYBODY) -> EarlyKey:
    return EarlyKey(server, method, Era.HANDSHAKE, name.encode(), audience)


def answer(size_bytes: int = 4, *, expires_at: float = FOREVER) -> Learned:
    return Learned(b"x" * size_bytes, expires_at)


def held(table: LearnedAnswers, *names: str) -> list[str]:
    return [name for name in names if table.find(key(name), 0.0) is not None]


def test_the_answer_that_was_used_least_lately_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.core.caching.learned.LEARNED_MAX", 2)
    table = LearnedAnswers()
    table.keep(key("a"), answer())
    table.keep(key("b"), answer())
    assert held(table, "a") == ["a"]
    table.keep(key("c"), answer())
    assert held(table, "a", "b", "c") == ["a", "c"]
    assert len(table) == 2


def test_all_answers_together_have_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.core.caching.learned.LEARNED_MAX_BYTES", 10)
    table = LearnedAnswers()
    for name in ("a", "a", "b"):
        table.keep(key(name), answer(5))
    assert held(table, "a", "b") == ["a", "b"]
    table.keep(key("c"), answer(1))
    assert held(table, "a", "b", "c") == ["b", "c"]


@pytest.mark.parametrize("size_bytes", [10, 11])
def test_an_answer_that_is_too_large_is_not_kept_and_replaces_the_earlier_one(
    size_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.core.caching.learned.ANSWER_MAX_BYTES", 10)
    table = LearnedAnswers()
    table.keep(key("a"), answer())
    table.keep(key("a"), answer(size_bytes))
    found = table.find(key("a"), 0.0)
    assert (None if found is None else len(found.result)) == (10 if size_bytes == 10 else None)


def test_an_answer_is_for_its_audience_or_for_everybody() -> None:
    table = LearnedAnswers()
    table.keep(key("a", audience=b"alice"), answer(1))
    table.keep(key("a"), answer(2))
    sizes = [table.find(key("a", audience=whose), 0.0) for whose in (b"alice", b"bob")]
    assert [None if each is None else len(each.result) for each in sizes] == [1, 2]
    table.drop(key("a"))
    assert table.find(key("a", audience=b"bob"), 0.0) is None


def test_a_stale_answer_is_dropped() -> None:
    table = LearnedAnswers()
    table.keep(key("a"), answer(expires_at=5.0))
    assert table.find(key("a"), 4.9) is not None
    assert table.find(key("a"), 5.0) is None
    assert len(table) == 0


def test_a_server_is_forgotten_in_part_or_altogether() -> None:
    table = LearnedAnswers()
    for server in ("files", "web"):
        for method in ("initialize", "tools/list", "prompts/list"):
            table.keep(key("a", server=server, method=method), answer())
    table.drop_methods("files", ["tools/list"])
    assert len(table) == 5
    table.forget("files")
    assert len(table) == 3
    assert table.find(key("a", server="web"), 0.0) is not None
