"""A copy of `core/` in another program: what it consists of, its record, and what was edited in it.

The record stands in the copy. It names each file with its SHA-256, so that edits are found without the isthmus that
made the copy.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import msgspec

from ... import core
from ..base.errors import Failed
from ..base.version import VERSION
from .change_notes import change_notes

SOURCE: Final = Path(core.__file__).resolve().parent
RECORD: Final = "VENDORED.json"
LEAVABLE: Final = ("files", "input_required", "oracle", "tasks", "testing")
"""The folders that a copy may leave out."""
SPDX_LINE: Final = b"# SPDX-License-Identifier: MIT\n"
"""The first line of each module of a copy: scanners of licences look at files one by one."""

_GOES_WITH: Final = {
    f"endpoints/{name}.py": "input_required" for name in ("stateless", "stateless_responder", "undecided_requests")
}
"""Modules outside of a folder that are loaded with it only, and cannot be without it."""
_KEPT: Final = ("LICENSE", "py.typed")
"""The files of a copy beside its modules."""
_GIT_TIMEOUT_S: Final = 60


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a copy, and its files as they were made.

    Attributes:
        version: the version of isthmus.
        commit: the commit of its repository; None if it was installed without one.
        is_clean: true if `core/` was as in that commit; None without a commit.
        without: the folders that are left out, sorted.
        notes: the names of the change notes that there were, sorted.
        files: the SHA-256 of each file, in hexadecimal, by its path in the copy.
    """

    version: str
    commit: str | None = None
    is_clean: bool | None = None
    without: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: dict[str, str]

    @property
    def origin(self) -> str:
        """The version and the commit, for people."""
        commit = f", commit {self.commit}" if self.commit else ""
        return f"isthmus {self.version}{commit}{' with uncommitted changes' if self.is_clean is False else ''}"


class Edits(NamedTuple):
    """The paths of files that are not as a record has them."""

    changed: list[str]
    missing: list[str]
    extra: list[str]

    def __str__(self) -> str:
        return "\n".join(f"{kind}: {path}" for kind, paths in self._asdict().items() for path in paths)


def contents(without: Collection[str]) -> dict[str, bytes]:
    """Returns the files of a copy of this isthmus, by path, without the folders named in `without`."""
    found = {}
    for path in sorted(SOURCE.rglob("*")):
        name = path.relative_to(SOURCE)
        room = _GOES_WITH.get(name.as_posix(), name.parts[0])
        if room in without or "__pycache__" in name.parts:
            continue
        if path.suffix == ".py":
            content = path.read_bytes()
            found[name.as_posix()] = content if content.startswith(SPDX_LINE) else SPDX_LINE + content
        elif path.name in _KEPT:
            found[name.as_posix()] = path.read_bytes()
    return found


def record_of(files: dict[str, bytes], without: Collection[str]) -> Record:
    """Returns the record of a copy of this isthmus that has these files."""
    commit, is_clean = _commit()
    return Record(
        version=VERSION,
        commit=commit,
        is_clean=is_clean,
        without=tuple(sorted(without)),
        notes=tuple(change_notes()),
        files={name: _digest(content) for name, content in sorted(files.items())},
    )


def write_copy(folder: Path, without: Collection[str]) -> Record:
    """Writes a copy in place of `folder`, or where there is none.

    The copy is written beside `folder` and renamed. A failure leaves `folder` as it was. Folders above it are made.

    Raises:
        OSError: the copy cannot be written.
    """
    files = contents(without)
    record = record_of(files, without)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as room:
        new, old = Path(room, "new"), Path(room, "old")
        new.mkdir()  # a folder as others: the temporary one around it is for its owner only
        for name, content in files.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_bytes(content)
        (new / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(record, order="sorted"), indent=2) + b"\n")
        is_there = folder.exists()
        if is_there:
            folder.rename(old)
        try:
            new.rename(folder)
        except BaseException:
            if is_there:
                old.rename(folder)
            raise
    return record


def read_record(folder: Path) -> Record | None:
    """Returns the record of a copy; None if there is none.

    Raises:
        Failed: the record cannot be read.
    """
    try:
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=Record)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Failed(f"{folder / RECORD} cannot be read: {error}. Take it back from your repository") from error


def find_edits(folder: Path, record: Record) -> Edits:
    """Compares the files in a folder with a record. What Python compiled is no file of a copy.

    Raises:
        OSError: a file cannot be read.
    """
    found = {
        name.as_posix()
        for path in folder.rglob("*")
        if "__pycache__" not in (name := path.relative_to(folder)).parts and (path.is_symlink() or not path.is_dir())
    } - {RECORD}
    changed = [name for name in sorted(found & record.files.keys()) if not _is_as_in(folder / name, record.files[name])]
    return Edits(changed, sorted(record.files.keys() - found), sorted(found - record.files.keys()))


def _is_as_in(path: Path, digest: str) -> bool:
    return path.is_file() and _digest(path.read_bytes()) == digest


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _commit() -> tuple[str | None, bool | None]:
    """Returns the commit of this isthmus, and whether its `core/` is as in it. (None, None) outside its repository."""
    try:
        # An installed isthmus may lie in the repository of another program, whose commit says nothing about it.
        if Path(_git("rev-parse", "--show-toplevel")).resolve() != SOURCE.parent:
            return None, None
        return _git("rev-parse", "HEAD"), not _git("status", "--porcelain", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return None, None


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(SOURCE), *arguments], capture_output=True, text=True, check=True, timeout=_GIT_TIMEOUT_S
    )
    return done.stdout.strip()
