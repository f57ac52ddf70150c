"""Tests of the regular expressions of configurations: no text makes one slow, and what cannot be used says why."""

from __future__ import annotations

import sys

import pytest
from isthmus.core.base import regex
from isthmus.core.base.name_filter import NAME_MAX_CHARS, NameFilter
from isthmus.core.base.regex import PATTERN_MAX_CHARS, PROGRAM_MAX, RegexError, compile_regex


def refusal(pattern: str) -> str:
    with pytest.raises(RegexError) as caught:
        compile_regex(pattern)
    return str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "text", "paths"),
    [
        (r"(\w+): (?P<path>\S+)", "one: /é/a two: b", ["/é/a", "b"]),
        (r"wrote (\S+) (\S+)", "wrote a b", ["a"]),
        (r"wrote (\S+)|read \S+", "read a wrote b", ["read a", "b"]),
        (r"b*", "éb日", ["", "b", "", ""]),  # an empty match is followed by a whole character
        (r"^a|\bb|c$", "a ab b c c", ["a", "b", "c"]),  # a later search sees what is before it
        (r".\.png", "\ud800.png", ["\ufffd.png"]),
    ],
)
def test_the_path_of_a_match(pattern: str, text: str, paths: list[str]) -> None:
    assert list(compile_regex(pattern).paths(text)) == paths


def test_the_steps_of_all_searches_of_a_text_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each match of this expression looks at the rest of the text first: together they would take a square of steps."""
    wanted = compile_regex("a.*b|a")
    size = wanted._compiled.programsize
    monkeypatch.setattr(regex, "STEPS_MAX", size * (100 + 99 + 98))
    assert list(wanted.paths("a" * 100)) == ["a"] * 3
    monkeypatch.setattr(regex, "STEPS_MAX", size * (100 + 99 + 98) + 1)
    assert list(wanted.paths("a" * 100)) == ["a"] * 4


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "(missing ): ()"),
        ("(?=a)b", "there is no look-around: "),
        ("(?<!a)b", "there is no look-around: "),
        (r"(a)\1", "there are no back-references: "),
        ("(?P<a>b)(?P=a)", "there are no back-references: "),
        ("(?(1)a|b)", "there are no back-references: "),
        ("(?>a)", "write it without: "),
        ("a*+", "write it without: "),
        ("(?x)a", "there are no comments "),
        (r"a\Z", r"write \z"),
        (r"\u00e9", r"write \x{…}"),
        ("a{1001}", "a count goes up to 1000"),
        ("\ud800", "half of a surrogate pair"),
        ("a" * (PATTERN_MAX_CHARS + 1), f"got one of {PATTERN_MAX_CHARS + 1} characters"),
        (r"(\pL{1,100}){1,10}", "(pattern too large - compile failed; write smaller counts"),  # the memory
        ("a{900}" * 5, "(pattern too large; write smaller counts"),  # the instructions
    ],
)
def test_a_refusal_says_what_to_write_instead(pattern: str, reason: str) -> None:
    assert reason in refusal(pattern)


def test_an_expression_of_the_largest_program_is_taken() -> None:
    size = compile_regex("a{900}")._compiled.programsize
    assert PROGRAM_MAX - size < compile_regex("a{900}" * 4)._compiled.programsize <= PROGRAM_MAX


def test_without_the_package_an_expression_is_refused_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    compile_regex.cache_clear()
    assert NameFilter(include=("a*",)).admits("ab")
    assert "pip install 'isthmus[regex]'" in refusal("a")


def test_a_name_too_long_to_be_compared_with_expressions_is_hidden() -> None:
    assert NameFilter(exclude_regexes=("b",)).admits("a" * NAME_MAX_CHARS)
    assert not NameFilter(exclude_regexes=("b",)).admits("a" * (NAME_MAX_CHARS + 1))
    assert NameFilter(exclude=("b",)).admits("a" * (NAME_MAX_CHARS + 1))


def test_half_of_a_surrogate_pair_takes_no_name_out_of_a_filter() -> None:
    assert not NameFilter(exclude_regexes=(".*secret",)).admits("\ud800secret")
