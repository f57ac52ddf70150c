"""The change notes of this isthmus: `docs/changes.d` in its repository, the package `isthmus.changes` where installed.

An item of a note that begins with `driver:` says what a program that drives the engine itself must do.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ... import core

_ROOT: Final = Path(core.__file__).resolve().parent.parent
_FOLDERS: Final = (_ROOT / "docs" / "changes.d", _ROOT / "changes")
_FOR_DRIVERS: Final = re.compile(r"^- `driver:` (.+(?:\n  .+)*)", re.MULTILINE)


def change_notes() -> dict[str, str]:
    """Returns the text of each note by its name without the suffix, the oldest first."""
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), None)
    paths = [] if folder is None else sorted(folder.glob("*.md"))
    return {path.stem: path.read_text(encoding="utf-8").strip() for path in paths}


def for_drivers(note: str) -> list[str]:
    """Returns what the note says to programs that drive the engine themselves, each item on one line."""
    return [" ".join(item.split()) for item in _FOR_DRIVERS.findall(note)]
