"""The words of the tree: docstrings begin with their subject, and a thing has one name."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PARTS = ("core", "transports", "storage", "app", "tests", "fuzz", "bench", "docs", "examples")

STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)

NO_SUBJECT = re.compile(
    r"(It|Its|Who|Whose|Whom|Whoever|What|Whatever|Which|Where|When|Whenever|How|Why|Whether|They|Them|Their|This|That|"
    r"These|Those|Such|Likewise|Same|The same|Of|As|And|But|So|For|From|With|Without|In|On|At|To|By|If|Because|Nobody|"
    r"Nothing|Somebody|Everybody|Everything|Both|Either|Neither|Not|Also|There|Then|Until|While|Under|Among|Between|"
    r"Once|Unless|Else|Or|Here)\b"
)
"""Beginnings whose noun stands elsewhere, or nowhere."""

OLD_NAMES = ("courier", "ferry", "ferries", "legwork", "nursery", "schooling", "tombs", "shelf", "acquaintances?")
"""Names of parts that are called by the specification's words now. The change notes tell of them."""


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """The module, and its statements. Expressions, which are most of a tree, have no docstrings."""
    unread: list[ast.AST] = [tree]
    while unread:
        yield (node := unread.pop())
        unread += (each for each in ast.iter_child_nodes(node) if isinstance(each, STATEMENTS))


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings of a file: of the module, of classes and functions, and of names that are assigned."""
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield getattr(node, "lineno", 1), text
            for before, after in zip(node.body, node.body[1:], strict=False):
                if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
                    if isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
                        yield after.lineno, after.value.value


@pytest.mark.parametrize("part", PARTS)
def test_docstrings_begin_with_their_subject(part: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in sorted((ROOT / part).rglob("*.py"))
        for line, text in docstrings(path)
        if NO_SUBJECT.match(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_search_finds_both_kinds_of_docstrings(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text('"""One."""\nX = 1\n"""Two."""\nclass C:\n    """Three."""\n    y: int = 2\n    """Four."""\n')
    assert sorted(text for _, text in docstrings(file)) == ["Four.", "One.", "Three.", "Two."]
    assert NO_SUBJECT.match("It is sent.")
    assert NO_SUBJECT.match("Whether it may.")
    assert not NO_SUBJECT.match("Item of a list.")


def test_old_names_stand_in_the_change_notes_only() -> None:
    pattern = "|".join(OLD_NAMES)
    found = subprocess.run(
        ["git", "grep", "-nwiIE", pattern, "--", ":!docs/changes.d", ":!tests/test_words.py", ":!fuzz/corpus"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert found.returncode in (0, 1), found.stderr
    assert found.stdout == ""
