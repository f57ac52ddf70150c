"""Tests of aliases: what a configuration may give, and what is made of an id where it gives none."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.profiles.aliases import ALIAS, ALIAS_MAX_CHARS, Aliases, default_alias


@pytest.mark.parametrize(
    ("server", "alias"),
    [
        ("github", "github"),
        ("GitHub", "github"),
        ("a_b", "a-b"),
        ("a__b.C", "a-b-c"),
        ("7zip", "s7zip"),
        ("x-", "x"),
        ("filesystem-production-eu", "filesystem-produ"),
        ("fifteen-letters-and", "fifteen-letters"),
    ],
)
def test_an_alias_is_made_of_the_id(server: str, alias: str) -> None:
    assert default_alias(server) == alias
    assert Aliases({server: None}).of(server) == alias


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True) | st.text(max_size=20))
def test_every_id_has_an_alias(server: str) -> None:
    assert re.fullmatch(ALIAS, default_alias(server))


@pytest.mark.parametrize(
    "chosen",
    [
        {"a_b": None, "a-b": None},
        {"a_b": None, "other": "a-b"},
        {"Fs": None, "fs": None},
        {"github-production-eu": None, "github-production-us": None},
        {"one": "", "two": ""},
    ],
)
def test_two_servers_with_one_alias_are_an_error_that_names_both_and_the_key(chosen: dict[str, str | None]) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        Aliases(chosen)
    assert all(repr(server) in str(caught.value) for server in chosen)
    assert str(caught.value).startswith("alias: ")
    assert "set `alias`" in str(caught.value)


@pytest.mark.parametrize(
    "alias", ["A", "a_b", "a.b", "a+b", "1a", "-a", "a b", "\u00e4", "a\n", "a" * (ALIAS_MAX_CHARS + 1)]
)
def test_a_text_that_is_no_alias_is_refused(alias: str) -> None:
    with pytest.raises(LocalProtocolError, match=r"alias: got .* for server 'x', expected a lower-case letter"):
        Aliases({"x": alias})
    assert Aliases({"x": "a" * ALIAS_MAX_CHARS}).of("x") == "a" * ALIAS_MAX_CHARS


def test_each_problem_has_a_line() -> None:
    with pytest.raises(LocalProtocolError) as caught:
        Aliases({"x": "X", "y": "a", "z": "a"})
    assert len(str(caught.value).splitlines()) == 2


def test_servers_and_aliases_are_found_by_each_other() -> None:
    aliases = Aliases({"files": "", "github": "gh"})
    assert list(aliases) == ["files", "github"]
    assert aliases.bare == "files"
    assert aliases.server_of("gh") == "github"
    assert aliases.server_of("") is None
    assert aliases.server_of("github") is None
    assert Aliases({"github": None}).bare is None
