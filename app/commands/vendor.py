"""`isthmus vendor`: writes a copy of the engine into another program, or says what became of one."""

from __future__ import annotations

import keyword
import os
from pathlib import Path

from ..base.errors import ConfigError, Failed
from ..base.output import say
from .change_notes import change_notes, for_drivers
from .core_copy import LEAVABLE, RECORD, Edits, Record, contents, find_edits, read_record, record_of, write_copy


def vendor(name: str, *, without: str | None) -> None:
    """Writes a copy of the engine to the folder `name`, and says what it is.

    Args:
        without: the folders to leave out, with commas; None: those that the copy there leaves out, or none.

    Raises:
        ConfigError: the folder cannot be a package, or there is no such folder to leave out.
        Failed: something else stands there, or an edited copy, or the copy cannot be written.
    """
    folder = _folder(name)
    if not folder.name.isidentifier() or keyword.iskeyword(folder.name):
        raise ConfigError(f"got the folder name {folder.name!r}, expected one that Python can import, such as mcp_core")
    before = _replaceable(folder, name)
    left_out = _folders(without) if without is not None else before.without if before else ()
    try:
        record = write_copy(folder, left_out)
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        raise Failed(f"{name} cannot be written: {where}{error.strerror or error}") from error
    say(f"{name}: {_described(record)}")
    if before is not None:
        say(f"It replaces {before.origin}.")
        _say_notes(before, is_full=False)


def verify(name: str) -> bool:
    """Says whether a copy is as it was made, and what lies between it and this isthmus. True if nobody edited it.

    Raises:
        Failed: there is no copy, or it cannot be read.
    """
    folder = _folder(name)
    record = read_record(folder)
    if record is None:
        raise Failed(f"{name} is no copy that `isthmus vendor` made: it has no {RECORD}")
    edits = _edits(folder, name, record)
    say(f"{name}: {_described(record)}")
    say(f"{edits}\nEdited: these files are not as they were made." if any(edits) else "No file was edited.")
    files = contents(record.without)
    now = record_of(files, record.without)
    differing = sum(record.files.get(path) != now.files.get(path) for path in record.files.keys() | now.files.keys())
    if not differing:
        say("This isthmus would write the same files.")
        return not any(edits)
    say(f"This is {now.origin}: {_counted(differing, 'file')} of a new copy would differ.")
    _say_notes(record, is_full=True)
    return not any(edits)


def _folder(name: str) -> Path:
    """Returns the folder itself: a link to one is not replaced by a folder."""
    return Path(name).resolve()


def _folders(without: str) -> tuple[str, ...]:
    names = {part.strip() for part in without.split(",")} - {""}
    if unknown := sorted(names - set(LEAVABLE)):
        raise ConfigError(f"got --without {', '.join(unknown)}, expected some of {', '.join(LEAVABLE)}")
    return tuple(sorted(names))


def _replaceable(folder: Path, name: str) -> Record | None:
    """Returns the record of the copy that stands there; None if nothing does.

    Raises:
        Failed: what stands there must not be replaced.
    """
    if not os.path.lexists(folder):
        return None
    record = read_record(folder)
    if record is None:
        raise Failed(
            f"{name} is there, and is no copy that `isthmus vendor` made: name another folder, or move it away"
        )
    edits = _edits(folder, name, record)
    if any(edits):
        say(str(edits))
        raise Failed(f"{name} was edited since it was made, in the files above: undo that, or move the folder away")
    return record


def _edits(folder: Path, name: str, record: Record) -> Edits:
    try:
        return find_edits(folder, record)
    except OSError as error:
        raise Failed(f"{name} cannot be read: {error.strerror or error}") from error


def _described(record: Record) -> str:
    without = f", without {', '.join(record.without)}" if record.without else ""
    return f"{_counted(len(record.files), 'file')} of {record.origin}{without}"


def _say_notes(since: Record, *, is_full: bool) -> None:
    """Prints what the change notes newer than a copy say, what a driver must do first."""
    notes = change_notes()
    newer = {name: text for name, text in notes.items() if name not in since.notes}
    if lacking := sorted(set(since.notes) - notes.keys()):
        say(f"The copy is newer in part: this isthmus lacks the change notes {', '.join(lacking)}.")
    say(f"{_counted(len(newer), 'change note')} newer than that copy.")
    orders = [f"- {name}: {item}" for name, text in newer.items() for item in for_drivers(text)]
    if orders:
        say("\n".join(["A driver must act:", *orders]))
    if is_full:
        for name, text in newer.items():
            say(f"\n{name}\n{text}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
