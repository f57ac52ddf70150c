"""Texts about files that a tool wrote where they may not be taken from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..store.filenames import safe_filename
from ..store.handles import NEW_FILE_PREFIX


class LeftFile(NamedTuple):
    """A file, or a folder that has changed.

    Attributes:
        was_asked: the path came in the arguments.
    """

    path: str
    is_folder: bool
    was_asked: bool

    def __str__(self) -> str:
        name = safe_filename(self.path, "file") + ("/" if self.is_folder else "")
        where = ", a folder on the server's machine" if self.is_folder else " on the server's machine"
        advice = "Only the operator of the server can get it, or have it written elsewhere"
        if self.was_asked:
            advice = f"To get it, call the tool again with {NEW_FILE_PREFIX}{name} in place of that path"
        return f"{name}: written to {self.path}{where}, outside of this session. {advice}"


def left_files(found: Iterable[LeftFile]) -> list[LeftFile]:
    """Returns what is to be told: of a folder and a file in it, the one that the client asked for, else the file."""
    told: list[LeftFile] = []
    for file in sorted(found, key=lambda one: (not one.was_asked, one.is_folder)):
        if not any(_are_related(file.path, other.path) for other in told):
            told.append(file)
    return told


def _are_related(path: str, other: str) -> bool:
    return path.startswith(other.rstrip("/") + "/") or other.startswith(path.rstrip("/") + "/")
