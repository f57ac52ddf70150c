"""Tests of dialogues: the example of CONTRIBUTING.md, and what fails."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from dialogue import Dialogue
from expected_values import Containing, Minted, matches, shown

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
SECTION = PAGE.read_text(encoding="utf-8").partition("## Write a dialogue")[2]
EXAMPLE, FAILURE = (re.search(f"```{kind}\n(.*?)```", SECTION, re.DOTALL)[1] for kind in ("python", "text"))  # type: ignore[index]


def run(source: str) -> None:
    """Runs the test of the page."""
    names: dict[str, Any] = {"Dialogue": Dialogue}
    exec(source, names)
    next(value for name, value in names.items() if name.startswith("test_"))()


def test_the_example_passes() -> None:
    run(EXAMPLE)


def test_the_example_fails_as_the_page_says() -> None:
    shortened = EXAMPLE.replace("    files.starts()\n", "")
    assert shortened != EXAMPLE
    with pytest.raises(AssertionError) as failed:
        run(shortened)
    assert str(failed.value) == FAILURE.rstrip()
    Dialogue.made.clear()


def test_nobody_speaks_before_all_that_came_was_expected() -> None:
    play = Dialogue()
    play.client("alice").greets()
    for act in (lambda: play.client("bob"), lambda: play.waits(1), play.stops, play.finish):
        with pytest.raises(AssertionError, match="expected: nothing more\nbut came: files is started"):
            act()
    play.server.is_started()
    with pytest.raises(AssertionError, match="expected: files is started\nbut nothing came"):
        play.server.is_started()


def test_messages_to_a_peer_come_in_order() -> None:
    play = Dialogue()
    (alice := play.client("alice")).meets(files := play.server)
    files.notifies("tools/list_changed")
    with pytest.raises(AssertionError, match="but came: alice is notified notifications/tools/list_changed"):
        alice.is_notified("prompts/list_changed")
    alice.is_notified("tools/list_changed", None)


@pytest.mark.parametrize(
    ("expected", "found", "is_equal"),
    [
        (1, 1.0, False),
        (1, True, False),
        ({"a": [1, ...]}, {"a": [1, None]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1], [1, 2], False),
        (Containing({"a": ...}), {"a": 1, "b": 2}, True),
        (Containing({"a": ...}), {"b": 2}, False),
        (Containing("b"), "abc", True),
        (Containing("b"), ["b"], False),
        (each := Minted(), 7, True),
        ([each, each], [7, 8], False),
        (None, None, True),
    ],
)
def test_values_are_compared_with_their_types(expected: Any, found: Any, is_equal: bool) -> None:
    assert matches(expected, found) is is_equal


def test_expected_values_are_shown_to_people() -> None:
    value = {"a": [..., Minted(), None], "b": Containing({"c": 1}), "d": Containing("é")}
    assert shown(value) == '{"a": […, …, null], "b": {… "c": 1 …}, "d": "…é…"}'
