"""The names that a filter of names and patterns admits. Cases R05 to R14 are behaviours of another proxy, each by its
name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.name_filter import NameFilter

ALL = ("create_file", "delete_file", "list_files", "dangerous_reset")
CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {  # include, exclude, admitted of ALL
    "R05 include only admits just the listed": (("list_files", "create_file"), (), ("create_file", "list_files")),
    "R06 exclude only removes just the listed": (
        (),
        ("delete_file",),
        ("create_file", "list_files", "dangerous_reset"),
    ),
    "R07 exclude wins inside include": (("create_file", "delete_file"), ("delete_file",), ("create_file",)),
    "R08 an empty filter admits all": ((), (), ALL),
    "R09 no filter keeps the list": ((), (), ALL),
    "R10 include keeps the order of the list": (("list_files", "delete_file"), (), ("delete_file", "list_files")),
    "R11 exclude keeps the order of the list": ((), ("list_files", "create_file"), ("delete_file", "dangerous_reset")),
    "patterns include": (("*_file",), (), ("create_file", "delete_file")),
    "patterns exclude": ((), ("dangerous_*", "?ist_*"), ("create_file", "delete_file")),
    "patterns of both": (("*_file*",), ("[dl]*",), ("create_file",)),
    "a set may be negated": (("[!cd]*",), (), ("list_files",)),
    "case counts": (("Create_File",), ("DELETE_*",), ()),
    "a pattern is about the whole name": (("file", "create_"), (), ()),
    "everything may be hidden": ((), ("*",), ()),
}


@pytest.mark.parametrize("case", CASES)
def test_the_names_admitted_of_a_list(case: str) -> None:
    include, exclude, admitted = CASES[case]
    selection = NameFilter(include, exclude)
    assert tuple(name for name in ALL if selection.admits(name)) == admitted
    assert bool(selection) is bool(include or exclude)


@pytest.mark.parametrize(
    ("case", "include", "exclude", "name", "is_admitted"),
    [
        ("R12 none", (), (), "anything", True),
        ("R13 include", ("a", "b"), (), "a", True),
        ("R13 include", ("a", "b"), (), "c", False),
        ("R14 exclude", (), ("a", "b"), "a", False),
        ("R14 exclude", (), ("a", "b"), "c", True),
        ("brackets in a name", ("get[1]",), (), "get[1]", True),
        ("brackets as a pattern", ("get[1]",), (), "get1", True),
        ("brackets in an excluded name", (), ("db://x?y=[1]",), "db://x?y=[1]", False),
        ("a slash is a character like others", ("file:///a/*",), (), "file:///a/b/c", True),
        ("a line end is, too", ("a*b",), (), "a\n\nb", True),
        ("and it ends no pattern", (), ("a",), "a\n", True),
        ("the empty name", ("?*",), (), "", False),
    ],
)
def test_single_names(
    case: str, include: tuple[str, ...], exclude: tuple[str, ...], name: str, is_admitted: bool
) -> None:
    assert NameFilter(include, exclude).admits(name) is is_admitted, case


NAMES = st.text(alphabet="ab*?[]!-", max_size=6)
ENTRIES = st.lists(NAMES, max_size=4).map(tuple)


@given(include=ENTRIES, exclude=ENTRIES, name=NAMES)
def test_the_laws_of_a_filter(include: tuple[str, ...], exclude: tuple[str, ...], name: str) -> None:
    """An excluded name is never admitted, an included one is unless excluded, and a longer exclude list admits no
    more."""
    selection = NameFilter(include, exclude)
    if name in exclude:
        assert not selection.admits(name)
    elif name in include:
        assert selection.admits(name) is NameFilter((), exclude).admits(name)
    assert selection.admits(name) == (NameFilter(include).admits(name) and NameFilter((), exclude).admits(name))
    if NameFilter(include, (*exclude, "a*")).admits(name):
        assert selection.admits(name)


@given(parts=st.lists(st.sampled_from(["*", "?", "a", "b"]), max_size=5), name=st.text(alphabet="ab", max_size=6))
def test_patterns_agree_with_a_slow_matcher(parts: list[str], name: str) -> None:
    def matches(pattern: list[str], rest: str) -> bool:
        if not pattern:
            return not rest
        if pattern[0] == "*":
            return any(matches(pattern[1:], rest[i:]) for i in range(len(rest) + 1))
        return bool(rest) and pattern[0] in ("?", rest[0]) and matches(pattern[1:], rest[1:])

    entry = "".join(parts)
    if entry:
        assert NameFilter((entry,)).admits(name) is matches(parts, name)
