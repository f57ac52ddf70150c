"""Tests that the planted bugs still apply. `make planted`, which takes an hour, shows that tests notice them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from each_row import each_row
from planting import ROOT, Bug, DoesNotApply, Hunk, read_bugs

BUGS = read_bugs()


def test_there_are_at_least_twenty_and_each_has_its_number() -> None:
    assert len(BUGS) >= 20
    assert [bug.number for bug in BUGS] == [f"{number:02}" for number in range(1, len(BUGS) + 1)]


@each_row("bug", BUGS)
def test_each_can_be_planted(bug: Bug) -> None:
    """The bug changes the product, which is valid Python then, and its patch says what it breaks and which tests ought
    to notice."""
    for path, text in bug.patched(ROOT).items():
        assert path.startswith(("core/", "transports/"))
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    assert "Breaks " in bug.prose
    assert bug.likely
    assert all((ROOT / path).is_file() for path in bug.likely)


def test_the_page_lists_each_bug() -> None:
    """The page also names a test that exists."""
    page = (ROOT / "docs/proof.md").read_text(encoding="utf-8")
    section = page.partition("## Planted bugs")[2].partition("## ")[0]
    rows = [line.split("`")[1::2] for line in section.splitlines() if line.startswith("| `")]
    assert [name for name, *_ in rows] == [bug.name for bug in BUGS]
    for _, path, test in rows:
        assert test.partition(".")[0] in (ROOT / "tests" / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["another = 2\n", "this = 1\nthat = 1\nthis = 1\n"])
def test_a_hunk_whose_text_is_not_there_once_does_not_apply(text: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(text)
    bug = Bug("01", "a", "", (), {"module.py": [Hunk("this = 1\n", "this = 2\n")]})
    with pytest.raises(DoesNotApply):
        bug.patched(tmp_path)
