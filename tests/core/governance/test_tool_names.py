"""Tests of other names and texts for tools."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.governance import Override, Shown
from isthmus.core.governance.pins import matches_template
from isthmus.core.governance.tool_names import ToolNames, first_sentence, override, shorten

NAMES = st.sampled_from("abcdef")
RENAMES = st.dictionaries(NAMES, NAMES, max_size=5).map(
    lambda given: {raw: shown for raw, shown in given.items() if list(given.values()).count(shown) == 1}
)


@given(RENAMES, st.sets(NAMES))
def test_names_are_mapped_back_to_where_they_came_from(renames: dict[str, str], tools: set[str]) -> None:
    names = ToolNames(Override(tool=raw, rename=shown) for raw, shown in renames.items())
    seen = {raw: names.shown(raw) for raw in tools}
    listed = [shown for shown in seen.values() if shown is not None]
    assert len(set(listed)) == len(listed)
    for raw, shown in seen.items():
        assert shown is None or names.raw(shown) == raw
    # Whatever a client calls is a tool that it is shown, or does not exist.
    for name in "abcdef":
        raw = names.raw(name)
        assert raw is None or names.shown(raw) == name
    assert bool(names) == bool(renames)


def test_texts_are_put_in_the_place_of_the_servers() -> None:
    tool = {"name": "a", "title": "A", "description": "Old.", "annotations": {"title": "A", "readOnlyHint": True}}
    entry = json.dumps(tool).encode()
    texts = Override(tool="a", rename="b", title="B", description="New. Longer.")
    made = json.loads(override(entry, texts, Shown(first_sentence=True), "b"))
    assert made == {
        "name": "b",
        "title": "B",
        "description": "New. Longer.",  # what the operator writes is not shortened
        "annotations": {"title": "B", "readOnlyHint": True},
    }
    bare = json.loads(override(b'{"name":"a"}', texts, Shown()))
    assert bare == {"name": "a", "title": "B", "description": "New. Longer."}
    assert override(entry, None, Shown()) is entry


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Reads a file. Then more.", "Reads a file."),
        ("Reads v1.2 of a file! And?", "Reads v1.2 of a file!"),
        ("Reads e.g. a file. Then more.", "Reads e.g. a file."),
        ("Reads a file\n\nArgs: x", "Reads a file"),
        ("Reads\na file. More", "Reads\na file."),
        ("  no end", "no end"),
        ("読む。もっと", "読む。もっと"),
        ("", ""),
    ],
)
def test_the_first_sentence(text: str, first: str) -> None:
    assert first_sentence(text) == first
    assert shorten(text, Shown(first_sentence=True, description_max_chars=4)) == (
        first if len(first) <= 4 else first[:3].rstrip() + "…"
    )


@pytest.mark.parametrize(
    ("template", "uri", "fits"),
    [
        ("log:///{day}", "log:///monday", True),
        ("log:///{day}", "log:/monday", False),
        ("{+url}", "anything:at/all", True),
        ("{scheme}://x", "a://x", True),
        ("{scheme}://x", "a://y", False),
        ("a{x}b{y}c", "a1b2c", True),
        ("a{x}b{y}c", "a1c2c", False),
        ("ab{x}ba", "aba", False),
        ("file:///x", "file:///x", True),
        ("file:///x", "file:///xy", False),
        ("{a}.{b}.{c}", "1.2.3", True),
        ("{broken", "{broken", True),
    ],
)
def test_templates_fit_their_expansions(template: str, uri: str, fits: bool) -> None:
    assert matches_template(template, uri) == fits
