"""The files of one session that are known: what was there, what was given to it, what was taken in.

A file is told by its real path and its stamp. One that the ledger does not have with that stamp is new, whichever call
wrote it: so what was unfinished when a call ended is taken when a later one finds it finished.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from ...base.effects import SeenFile

_SKIPPED_FOLDERS: Final = frozenset(("__pycache__", "node_modules"))
# Names of files that are not finished, or for the program alone that made them.
_SKIPPED_BEGINNINGS: Final = (".", "~$", ".~lock")
_SKIPPED_ENDINGS: Final = (
    ".tmp", ".part", ".partial", ".crdownload", ".download", ".swp", ".lock", "-journal", "-wal", "-shm",
)  # fmt: skip


class Entry(msgspec.Struct, frozen=True):
    """One file, as it was when it was noted.

    Attributes:
        aid: the artifact it became, if it did.
        uri: what clients know it by: that artifact, or the stored file that it is a copy of.
        number: entries are numbered in the order they are made.
    """

    stamp: str
    aid: str = ""
    uri: str = ""
    number: int = 0


class Ledger:
    """Args:
    limit: entries it keeps. Beyond it the one seen or noted longest ago is forgotten, and its file new again: it is to
        be well above what one survey lists.
    awaited_max: paths that were named before there was anything to take. Each is a look at the disk at every later
        call; above this the oldest is given up.

    Attributes:
        is_begun: it is known what was there before the first call.
        oldest_at_unix: what was changed before is older than the first call, where not all that was there then could
            be listed; else 0.
        last_number: that of the newest entry.
    """

    def __init__(self, limit: int, awaited_max: int = 64) -> None:
        assert min(limit, awaited_max) > 0
        self.is_begun = False
        self.oldest_at_unix = 0.0
        self.last_number = 0
        self._limit = limit
        self._awaited_max = awaited_max
        self._entries: dict[str, Entry] = {}
        self._awaited: dict[str, None] = {}
        self._placing: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    # --- Files ----------------------------------------------------------------------------------------------------

    def note(self, file: SeenFile, aid: str = "", uri: str = "") -> None:
        """The file is known as it is now; what was known of its path is replaced, and it is awaited no more."""
        self._entries.pop(file.path, None)
        self.last_number += 1
        self._entries[file.path] = Entry(file.stamp, aid, uri, self.last_number)
        if len(self._entries) > self._limit:
            del self._entries[next(iter(self._entries))]
        self.settle(file.path)

    def begin(self, listed: Iterable[SeenFile], oldest_at_unix: float = 0.0) -> None:
        """What is there before the first call is known, and nobody's output."""
        assert not self.is_begun
        self.is_begun = True
        self.oldest_at_unix = oldest_at_unix
        for file in listed:
            if not self.knows(file) and not self._is_being_placed(file.path):
                self.note(file)

    def begin_placing(self, folder: str) -> None:
        """A copy of a stored file is on its way into that folder: what is seen there is no news until `end_placing`."""
        self._placing[folder] = self._placing.get(folder, 0) + 1

    def end_placing(self, folder: str) -> None:
        """It is there, or will not be."""
        self._placing[folder] -= 1
        if not self._placing[folder]:
            del self._placing[folder]

    def _is_being_placed(self, path: str) -> bool:
        return bool(self._placing) and path.startswith(tuple(folder + "/" for folder in self._placing))

    def place(self, path: str, stamp: str, uri: str) -> None:
        """A copy of a stored file was laid there for the server, or lies there still. One that the server has changed
        since stays what it was known as: the change is news."""
        if path not in self._entries:
            self.note(SeenFile(path, 0, stamp), uri=uri)

    def entries(self) -> list[tuple[str, Entry]]:
        """All that is known, by path."""
        return list(self._entries.items())

    def knows(self, file: SeenFile) -> bool:
        """Whether it was noted with this stamp."""
        entry = self._entries.get(file.path)
        return entry is not None and entry.stamp == file.stamp

    def is_new(self, file: SeenFile) -> bool:
        """Whether it came, or was changed, after the first call began, and nobody noted it since."""
        is_news = not self.knows(file) and not self._is_being_placed(file.path)
        return is_news and file.changed_at_unix >= self.oldest_at_unix

    def find(self, path: str) -> Entry | None:
        """What was noted of a real path last."""
        return self._entries.get(path)

    def changed(self, listed: Sequence[SeenFile], roots: Sequence[str]) -> list[SeenFile]:
        """Those that are new and finished, in the order given.

        What is empty or busy is left out, and found by a later call; so is, for good, what by its name below the
        innermost of `roots` is nobody's output: hidden files and folders, caches, temporary and lock files.
        """
        self._see(listed)
        return [file for file in listed if self.is_new(file) and is_finished(file) and not _is_skipped(file, roots)]

    def _see(self, listed: Iterable[SeenFile]) -> None:
        """Keep what is there longer than what is not, where not all can be kept."""
        if 2 * len(self._entries) > self._limit:
            for file in listed:
                entry = self._entries.pop(file.path, None)
                if entry is not None:
                    self._entries[file.path] = entry

    # --- Awaited paths --------------------------------------------------------------------------------------------

    def awaits(self, path: str) -> None:
        """A file was named, and is missing, empty or unfinished: it is to be looked for again."""
        self._awaited.pop(path, None)
        self._awaited[path] = None
        if len(self._awaited) > self._awaited_max:
            del self._awaited[next(iter(self._awaited))]

    def awaited(self) -> list[str]:
        """At most `awaited_max` paths, the one named longest ago first."""
        return list(self._awaited)

    def settle(self, path: str) -> None:
        """It is awaited no more, if it was."""
        self._awaited.pop(path, None)


def is_finished(file: SeenFile) -> bool:
    """Whether it may be taken: it holds something, and nobody writes it."""
    return file.size_bytes > 0 and not file.is_busy


def _is_skipped(file: SeenFile, roots: Sequence[str]) -> bool:
    above = [root.rstrip("/") for root in roots if file.path.startswith(root.rstrip("/") + "/")]
    below = file.path[len(max(above, key=len)) + 1 :] if above else posixpath.basename(file.path)
    *folders, name = below.split("/")
    return (
        any(folder.startswith(".") or folder in _SKIPPED_FOLDERS for folder in folders)
        or name.startswith(_SKIPPED_BEGINNINGS)
        or name.lower().endswith(_SKIPPED_ENDINGS)
    )
