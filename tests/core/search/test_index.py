"""Tests of the index of tools: what is found, in which order, in how many steps, and what a removed tool leaves."""

from __future__ import annotations

import itertools
import pickle
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.search import index as search_index
from isthmus.core.search.documents import PARAMETER_MAX_CHARS, PARAMETERS_MAX, TERMS_MAX, TEXT_MAX_CHARS
from isthmus.core.search.index import (
    CONCEPTS_MAX,
    HITS_MAX,
    NEIGHBOURS_MAX,
    QUERY_MAX_CHARS,
    TOOLS_PER_SERVER_MAX,
    WORK_MAX,
    Index,
)
from tool_catalogue import entry, filled, found, with_parameters

TOOLS = (
    entry("git__create_branch", "Create a branch. Based on another one."),
    entry("git__list_branches", "List the branches of a repository."),
    entry("git__delete_branch", "Delete a branch."),
    entry("mail__send", "Send an e-mail message to somebody."),
    entry("mail__search_mail", "Search the mailbox."),
    entry("maps__geocode", "Turn an address into coordinates."),
    with_parameters("disk__read", path="Where the file is", encoding="Such as latin1"),
)
WORDS = st.text("abcdeé 中文_-ДЖ.A1", max_size=30)
NAMES = st.builds("{}__{}".format, st.sampled_from(["a", "b", "c-d"]), st.text("abAB_-é中🙂1", max_size=8))
ENTRIES = st.builds(
    lambda name, description, title, parameters: entry(
        name, description, title=title, inputSchema={"properties": {each: {} for each in parameters}}
    ),
    NAMES,
    WORDS,
    st.none() | WORDS,
    st.lists(WORDS, max_size=3),
)
CATALOGUES = st.lists(ENTRIES, max_size=8)


def state(index: Index) -> bytes:
    """All that an index holds, in its order."""
    return pickle.dumps({name: _plain(value) for name, value in vars(index).items()})


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return [(key, _plain(each)) for key, each in value.items()]
    return repr(value)


# --- What is found --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("create a branch", "git__create_branch"),
        ("git__list_branches", "git__list_branches"),
        ("list_branches", "git__list_branches"),
        ("listBranches", "git__list_branches"),
        ("remove branches", "git__delete_branch"),
        ("make a new branch", "git__create_branch"),
        ("what is the latitude of an address", "maps__geocode"),
        ("geo code", "maps__geocode"),
        ("mailbox", "mail__search_mail"),
        ("mail box", "mail__search_mail"),
        ("serach mail", "mail__search_mail"),
        ("repo", "git__list_branches"),
        ("encodings", "disk__read"),
        ("latin1", "disk__read"),
        ("maps", "maps__geocode"),
        ("I have sent", "mail__send"),
    ],
)
def test_words_find_their_tool(query: str, first: str) -> None:
    assert found(filled(TOOLS), query)[0] == first


def test_unknown_words_find_nothing() -> None:
    index = filled(TOOLS)
    assert found(index, "xylophone") == []
    assert found(index, "!?") == []
    assert found(index, "404") == []
    assert found(Index(), "branch") == []


@pytest.mark.parametrize(
    ("typo", "is_near"),
    [
        ("grpah", True),
        ("grap", True),
        ("graphh", True),
        ("grahp", True),
        ("grabh", False),  # with a letter changed, short words become others
        ("phraseologx", True),
        ("phraseolxgx", False),
        ("prhaseolgoy", False),
        ("pharse", False),
        ("xgraph", False),  # the first two letters are right
    ],
)
def test_misspelled_words_find_their_tool(typo: str, is_near: bool) -> None:
    index = filled([entry("a__graph"), entry("a__phraseology"), entry("a__other")])
    assert bool(found(index, typo)) == is_near


def test_stop_words_alone_are_searched_for_as_they_are() -> None:
    index = filled([entry("a__who_is", "Owner of a domain"), entry("a__other", "Who is it")])
    assert found(index, "who is") == ["a__who_is"]
    assert found(index, "who") == ["a__who_is"]
    assert found(index, "who is the owner") == ["a__who_is"]


def test_a_query_is_about_all_of_its_words() -> None:
    """A tool that has both words is ahead of one that has the first more often."""
    index = filled([entry("a__cat", "Cat, cat and cat"), entry("a__x", "A cat on a mat"), entry("a__y", "A mat")])
    assert found(index, "cat mat")[0] == "a__x"


def test_a_tool_whose_own_name_is_the_query_comes_first() -> None:
    index = filled([entry("a__tag"), entry("tag__tags_all", "Tag, tag and tag", title="Tag, tag and tag")])
    assert found(index, "tag", limit=1) == ["a__tag"]
    assert found(index, "tag it", limit=1) == ["tag__tags_all"]


def test_a_tool_whose_name_is_covered_is_ahead() -> None:
    index = filled([entry("a__tag_branch"), entry("a__tag_branch_archive", "Tag a branch")])
    assert found(index, "tag the branches")[0] == "a__tag_branch"


def test_an_unknown_word_may_consist_of_two() -> None:
    index = filled([entry("a__page_title"), entry("a__page"), entry("a__title")])
    assert found(index, "the pagetitle") == ["a__page_title"]


def test_scripts_without_spaces_and_accents_are_found() -> None:
    index = filled(
        [
            entry("a__x", "查询城市的天气预报"),
            entry("a__y", "ค้นหาเอกสาร"),
            entry("a__z", "Отправить письмо"),
            entry("a__w", "Vérifie l'état du réseau"),
        ]
    )
    assert found(index, "天气") == ["a__x"]
    assert found(index, "เอกสาร") == ["a__y"]
    assert found(index, "ПИСЬМО") == ["a__z"]
    assert found(index, "reseau") == ["a__w"]


def test_other_groups_of_synonyms_may_be_given() -> None:
    definition = entry("a__feline")
    index = Index(groups=("cat feline", "animal: dog", "pet_tiger feline"))
    index.add("a", definition)
    index.add("a", entry("a__animal"))
    assert found(index, "cat") == ["a__feline"]
    assert found(index, "my pet tiger") == ["a__feline"]
    assert found(index, "dog") == ["a__animal"]
    assert found(filled([definition]), "cat") == []


def test_a_term_of_several_words_stands_for_tools_that_have_all() -> None:
    index = Index(groups=("pr pull_request",))
    for name in ("a__pull", "a__request", "a__pull_request"):
        index.add("a", entry(name))
    assert found(index, "pr") == ["a__pull_request"]


def test_an_empty_query_finds_all_by_name() -> None:
    index = filled(TOOLS)
    assert found(index, " ") == found(index, "*") == sorted(found(index, ""))
    assert len(found(index, "")) == len(TOOLS)
    assert found(index, "", server="mail") == ["mail__search_mail", "mail__send"]


def test_only_the_tools_of_a_server_are_found_if_it_is_named() -> None:
    index = filled([*TOOLS, entry("hub__create_branch", "Create a branch")])
    assert found(index, "branch", server="hub") == ["hub__create_branch"]
    assert found(index, "create_branch", server="git")[0] == "git__create_branch"
    assert found(index, "branch", server="nobody") == []


def test_the_name_of_a_server_leads_to_its_tools() -> None:
    index = filled([entry("git-hub__list", "List issues"), entry("jira__list", "List issues")])
    assert found(index, "jira issues")[0] == "jira__list"
    assert found(index, "issues on github")[0] == "git-hub__list"


# --- Properties -----------------------------------------------------------------------------------------------------


@given(CATALOGUES)
def test_every_tool_is_found_by_its_exact_name(definitions: list[bytes]) -> None:
    index = filled(definitions)
    for name in found(index, "", limit=HITS_MAX):
        if name.strip() == name:
            assert found(index, f" {name}\n")[0] == name


@given(CATALOGUES, WORDS, st.integers(1, 9), st.integers(0, 9))
def test_hits_are_a_part_of_what_is_allowed_and_pages_are_parts_of_the_whole(
    definitions: list[bytes], query: str, limit: int, offset: int
) -> None:
    index = filled(definitions)
    whole = found(index, query, limit=HITS_MAX)
    assert len(whole) == len(set(whole))

    def is_allowed(name: str) -> bool:
        return len(name) % 2 == 0

    allowed = [name for name in whole if is_allowed(name)]
    page = index.search(query, limit=limit, offset=offset, allowed=is_allowed)
    assert [hit.name for hit in page.hits] == allowed[offset : offset + limit]
    assert page.next_offset == (offset + limit if len(allowed) > offset + limit else None)


@given(CATALOGUES, ENTRIES)
def test_a_tool_that_comes_and_goes_leaves_the_index_as_it_was(definitions: list[bytes], further: bytes) -> None:
    index = filled(definitions)
    names = found(index, "", limit=HITS_MAX)
    before = state(index)
    assert index.add("z", further)
    added = set(found(index, "", limit=HITS_MAX)).difference(names)
    if added:
        assert state(index) != before
        assert index.remove(added.pop())
        assert state(index) == before


@given(CATALOGUES, CATALOGUES, WORDS)
def test_the_way_to_a_catalogue_does_not_show(one: list[bytes], other: list[bytes], query: str) -> None:
    """Replacing tools, in whatever order, comes to the same as an index made anew."""
    index, anew = Index(), Index()
    index.replace("a", one)
    index.replace("a", other)
    for definition in {name_of(each): each for each in reversed(other)}.values():
        anew.add("a", definition)
    assert vars(index) == vars(anew)
    assert index.search(query) == anew.search(query)


def name_of(definition: bytes) -> str:
    index = Index()
    index.add("a", definition)
    return found(index, "")[0]


def test_replacing_touches_no_tool_that_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(TOOLS)
    touched: list[str] = []
    monkeypatch.setattr(index, "remove", lambda name: touched.append(name) or Index.remove(index, name))
    changed = entry("git__create_branch", "Create a branch, quickly")
    index.replace("git", [changed, *TOOLS[1:2], entry("git__tag", "Tag a commit"), b"{", b'{"name":1}'])
    assert touched == ["git__delete_branch", "git__create_branch", "git__tag"]
    assert sorted(found(index, "", server="git")) == ["git__create_branch", "git__list_branches", "git__tag"]
    assert found(index, "quickly") == ["git__create_branch"]


def test_what_cannot_be_read_is_not_added() -> None:
    index = Index()
    deep = b'{"name":"a","inputSchema":' + 100_000 * b"[" + 100_000 * b"]" + b"}"
    for definition in (b"", b"[]", b"{}", b'{"name":null}', b'{"name":"\xff"}', b'{"name":"a","icons":"\xff"}', deep):
        assert not index.add("a", definition)
    assert not index.remove("a")
    assert state(index) == state(Index())


def test_members_of_other_types_are_left_out() -> None:
    index = Index()
    for at, members in enumerate(
        ({"title": 1}, {"description": []}, {"inputSchema": 1}, {"inputSchema": {"properties": 1}})
    ):
        assert index.add("a", entry(f"a__tool{at}", **{"description": None, **members}))
    assert index.add("a", entry("a__tool9", inputSchema={"properties": {"size": 1, "mode": {"description": 2}}}))
    assert found(index, "mode") == ["a__tool9"]


# --- Bounds ---------------------------------------------------------------------------------------------------------


def test_a_server_has_so_many_tools_and_takes_none_of_others() -> None:
    index = Index()
    for at in range(TOOLS_PER_SERVER_MAX):
        assert index.add("a", entry(f"a__t{at}"))
    assert not index.add("a", entry("a__further"))
    assert index.add("a", entry("a__t1", "Another text"))
    assert index.add("b", entry("b__further"))
    assert found(index, "further") == ["b__further"]
    assert len(index) == TOOLS_PER_SERVER_MAX + 1


def test_a_query_is_read_to_its_limit() -> None:
    index = filled(TOOLS)
    assert found(index, "-" * (QUERY_MAX_CHARS - 6) + "branch")
    assert not found(index, "-" * (QUERY_MAX_CHARS - 2) + "branch")


def test_so_many_words_are_searched_for() -> None:
    index = filled(TOOLS)
    others = " ".join(f"zz{chr(97 + at)}" for at in range(CONCEPTS_MAX - 1))
    assert found(index, f"{others} branch")
    assert not found(index, f"{others} zzzz branch")


def test_so_many_entries_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words behind the limit find nothing, and those before it are not lost."""
    index = filled([*(entry(f"a__t{at}", "alpha") for at in range(6)), entry("a__omega", "gamma")])
    monkeypatch.setattr(search_index, "WORK_MAX", 7)
    assert len(found(index, "alpha gamma")) == 7
    monkeypatch.setattr(search_index, "WORK_MAX", 6)
    assert len(found(index, "alpha gamma")) == 6
    assert len(found(index, "gamma alpha")) == 1


def test_so_many_known_words_are_compared_with_an_unknown_one() -> None:
    many = [entry(f"a__abb{at:05}") for at in range(NEIGHBOURS_MAX)]
    near = entry("a__abcdefg")
    assert found(filled([*many[1:], near]), "abcdefx") == ["a__abcdefg"]
    assert found(filled([*many, near]), "abcdefx") == []


def test_a_page_has_so_many_hits() -> None:
    index = filled(entry(f"a__t{at:03}", "branch") for at in range(HITS_MAX + 1))
    assert len(found(index, "branch", limit=1000)) == HITS_MAX
    assert index.search("branch", limit=1000).next_offset == HITS_MAX
    assert found(index, "branch", limit=1000, offset=HITS_MAX) == [f"a__t{HITS_MAX:03}"]
    assert len(found(index, "branch", limit=0, offset=-3)) == 1


def test_so_many_stems_of_a_tool_are_kept() -> None:
    """The words of the name and of the server are among them, as they weigh most."""
    words = [2 * one + 2 * other + one for one, other in itertools.permutations("abcdfghjklmn", 2)]
    index = filled([entry("server__name", " ".join(words[:TERMS_MAX]))])
    assert all(found(index, word) for word in ("name", "server", *words[: TERMS_MAX - 2]))
    assert not any(found(index, word) for word in words[TERMS_MAX - 2 : TERMS_MAX])


@pytest.mark.parametrize(
    ("limit", "make"),
    [
        (TEXT_MAX_CHARS, lambda text: entry("a__x", text)),
        (TEXT_MAX_CHARS, lambda text: entry("a__x", title=text)),
        (PARAMETER_MAX_CHARS, lambda text: with_parameters("a__x", p=text)),
        (PARAMETER_MAX_CHARS, lambda text: with_parameters("a__x", **{text: ""})),
    ],
)
def test_texts_are_indexed_to_their_limit(limit: int, make: Callable[[str], bytes]) -> None:
    assert found(filled([make("-" * (limit - 6) + "branch")]), "branch")
    assert not found(filled([make("-" * (limit - 2) + "branch")]), "branch")


def test_so_many_parameters_are_indexed() -> None:
    index = filled([with_parameters("a__x", **{f"p{at}": f"word{at}" for at in range(PARAMETERS_MAX)}, xlast="")])
    assert found(index, f"word{PARAMETERS_MAX - 1}") and not found(index, "xlast")


HOSTILE = (
    "a " * 5000,
    "ab" * 5000,
    " ".join(f"ab{at:x}" for at in range(3000)),
    "create get list " * 700,
    "天" * 10_000,
    "\ufdfa" * 10_000,
    "aB" * 5000,
    "é" * 10_000,
    "_" * 10_000,
)


@pytest.mark.parametrize("query", HOSTILE)
def test_the_steps_of_a_long_query_are_bounded(query: str) -> None:
    """A query of ten thousand characters executes fewer lines than looking at `WORK_MAX` entries may take."""
    index = filled(
        [*(entry(f"a__ab{at:x}", "create get list aB 天天 é") for at in range(1000)), entry("b__x", query[:4000])]
    )
    lines = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += 1
        return count

    sys.settrace(count)
    try:
        index.search(query, limit=HITS_MAX)
    finally:
        sys.settrace(None)
    assert lines < 2 * WORK_MAX


@given(st.text(max_size=60))
@settings(max_examples=200)
def test_any_text_is_a_query(query: str) -> None:
    index = filled(TOOLS)
    assert index.search(query) == index.search(query)
