"""Tests of the words of texts and of their stems."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from isthmus.core.search.synonyms import GROUPS
from isthmus.core.search.words import STOP_WORDS, WORD_MAX_CHARS, split_words, stem


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("get_pull_request", ["get", "pull", "request"]),
        ("API-post-page", ["api", "post", "page"]),
        ("getHTTPHeaders", ["get", "http", "headers"]),
        ("pageId", ["page", "id"]),
        ("s3.put2", ["s3", "put2"]),
        ("step_1", ["step"]),
        ("", []),
        ("__🙂", []),
    ],
)
def test_the_words_of_names(name: str, words: list[str]) -> None:
    assert split_words(name, is_name=True) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("GitHub's issues, 404!", ["github", "s", "issues"]),
        ("getPullRequest", ["get", "pull", "request"]),
        ("Café ÜBER straße", ["cafe", "uber", "strasse"]),
        ("Поиск файлов", ["поиск", "фаилов"]),
        ("天气预报", ["天气", "气预", "预报"]),
        ("天", ["天"]),
        ("GitHub仓库", ["github", "仓库"]),
        ("한국어", ["한국", "국어"]),
    ],
)
def test_the_words_of_prose(text: str, words: list[str]) -> None:
    assert split_words(text) == words


def test_words_are_cut_off_at_their_limit() -> None:
    assert split_words("x" * (WORD_MAX_CHARS + 1)) == ["x" * WORD_MAX_CHARS]


@given(st.text())
@example("\ua8d0")
def test_there_are_no_more_words_than_characters(text: str) -> None:
    for is_name in (False, True):
        words = split_words(text, is_name=is_name)
        assert len(words) <= len(text)
        assert all(word and not word.isdigit() for word in words)


@pytest.mark.parametrize(
    "forms",
    [
        "create creates created creating creation",
        "query queries querying queried",
        "copy copies copied copying",
        "merge merges merged merging",
        "list lists listed listing",
        "plan plans planned planning",
        "move moves moved moving",
        "translate translated translation",
        "connect connected connection connections",
        "write writes wrote written writing",
        "box boxes",
        "search searches searched",
        "address addresses",
        "status",
        "feed feeds",
    ],
)
def test_forms_of_a_word_have_one_stem(forms: str) -> None:
    assert len({stem(form) for form in forms.split()}) == 1


@pytest.mark.parametrize("pair", ["status state", "string str", "bus bu", "thing th", "speed spe", "issue list"])
def test_other_words_have_others(pair: str) -> None:
    one, other = pair.split()
    assert stem(one) != stem(other)


def test_a_word_of_another_script_is_its_own_stem() -> None:
    assert stem("новости") == "новости"


def test_groups_of_synonyms_are_well_formed() -> None:
    """A group has two words or more, each once, and no stop word, which no query is searched for."""
    for group in GROUPS:
        words = group.replace(":", " ").split()
        assert len(words) > 1 and len(words) == len(set(words)), group
        assert STOP_WORDS.isdisjoint(words), group
        assert group.count(":") <= 1, group
