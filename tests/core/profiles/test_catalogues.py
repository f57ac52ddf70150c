"""Tests of the indexes of what clients of a profile may find."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.base.grants import NO_GRANTS
from isthmus.core.profiles import catalogues
from isthmus.core.profiles.catalogues import CATALOGUES_MAX, Catalogues, Entries
from isthmus.core.profiles.client_kind import ClientKind
from isthmus.core.search.index import HITS_MAX, Index

Listed = dict[str, Entries]


def kind(principal: str) -> ClientKind:
    return ClientKind(principal, (), False, "2025-11-25", "", NO_GRANTS)


def entries(server: str, texts: dict[str, str]) -> Entries:
    named = {f"{server}__{name}": text for name, text in texts.items()}
    return {name: json.dumps({"name": name, "description": text}).encode() for name, text in named.items()}


def found(index: Index, query: str = "") -> dict[str, bytes]:
    return {hit.name: hit.definition for hit in index.search(query, limit=HITS_MAX).hits}


LISTS = st.dictionaries(
    st.sampled_from(["a", "b"]), st.dictionaries(st.sampled_from("xyz"), st.sampled_from(["Files", "Mail"]), max_size=3)
)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("pqr"), LISTS), max_size=8))
def test_a_kind_finds_what_its_own_latest_lists_have(steps: list[tuple[str, dict[str, dict[str, str]]]]) -> None:
    """The indexes of other kinds, shared or not, stay as they were."""
    made = Catalogues()
    latest: dict[str, Listed] = {}
    for principal, texts in steps:
        latest[principal] = {server: entries(server, named) for server, named in texts.items()}
        made.index_of(kind(principal), latest[principal])
        for known, lists in latest.items():
            shown = {name: entry for one in lists.values() for name, entry in one.items()}
            index = made.index_of(kind(known), lists)
            assert found(index) == shown
            assert found(index, "files").items() <= shown.items()


def test_an_index_is_made_once_for_all_who_see_the_same() -> None:
    made, lists = Catalogues(), {"a": entries("a", {"x": "Files"})}
    first = made.index_of(kind("p"), lists)
    assert made.index_of(kind("q"), {"a": entries("a", {"x": "Files"})}) is first
    changed = {"a": entries("a", {"x": "Mail"})}
    assert made.index_of(kind("p"), changed) is not first, "q has it still"
    assert made.index_of(kind("q"), changed) is made.index_of(kind("p"), changed)


def test_indexes_are_bounded() -> None:
    made = Catalogues()
    indexes = [made.index_of(kind(str(at)), {"a": entries("a", {f"x{at}": ""})}) for at in range(CATALOGUES_MAX + 1)]
    last = CATALOGUES_MAX
    assert made.index_of(kind(str(last)), {"a": entries("a", {f"x{last}": ""})}) is indexes[last]
    assert made.index_of(kind("0"), {"a": entries("a", {"x0": ""})}) is not indexes[0]


def test_tools_of_an_index_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogues, "TOOLS_MAX", 3)
    lists = {server: entries(server, {"x": "", "y": ""}) for server in ("a", "b")}
    assert set(found(Catalogues().index_of(kind("p"), lists))) == {"a__x", "a__y", "b__x"}
