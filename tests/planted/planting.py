"""Bugs kept as patches: reading them, and applying them to files.

A patch is some lines of prose (what breaks, for whom, and which clause or promise that is), a line `Likely: ` with the
tests that ought to notice, and a unified diff of one file or more. The place of a hunk is found by its text alone,
since other lines come and go: the removed lines, with those around them, must be there once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
LIKELY: Final = "Likely: "


class DoesNotApply(Exception):
    """Raised when the text that a patch changes is not there, or is there twice."""


class Hunk(NamedTuple):
    before: str
    after: str


class Bug(NamedTuple):
    """A planted bug.

    Attributes:
        number: two digits, its id on the command line.
        name: in words, as in its file's name.
        prose: what it breaks.
        likely: paths of tests, from the root.
        changes: by the path of a file, from the root, the hunks.
    """

    number: str
    name: str
    prose: str
    likely: tuple[str, ...]
    changes: dict[str, list[Hunk]]

    def patched(self, root: Path) -> dict[str, str]:
        """Returns the content of each of its files with the bug.

        Raises:
            DoesNotApply: the files are not what they were.
        """
        return {path: _apply(path, (root / path).read_text(), hunks) for path, hunks in self.changes.items()}


def read_bugs() -> list[Bug]:
    """Returns all bugs, in order."""
    return [read_bug(path) for path in sorted(HERE.glob("*.patch"))]


def read_bug(path: Path) -> Bug:
    number, _, name = path.stem.partition("-")
    head, _, diff = path.read_text(encoding="utf-8").partition("--- a/")
    prose, _, likely = head.partition(LIKELY)
    return Bug(number, name, " ".join(prose.split()), tuple(likely.split()), _read_diff("--- a/" + diff))


def _read_diff(diff: str) -> dict[str, list[Hunk]]:
    changes: dict[str, list[Hunk]] = {}
    hunks: list[Hunk] = []
    for line in diff.splitlines(keepends=True):
        kind, text = line[0], line[1:]
        if line.startswith("--- a/"):
            hunks = changes[line.removeprefix("--- a/").strip()] = []
        elif line.startswith("@@"):
            hunks.append(Hunk("", ""))
        elif not line.startswith("+++ b/"):
            before, after = hunks.pop()
            hunks.append(Hunk(before + text if kind in " -" else before, after + text if kind in " +" else after))
    return changes


def _apply(path: str, text: str, hunks: list[Hunk]) -> str:
    for before, after in hunks:
        if (count := text.count(before)) != 1:
            raise DoesNotApply(f"{path}: got these lines {count} times, expected once:\n{before}")
        text = text.replace(before, after)
    return text
