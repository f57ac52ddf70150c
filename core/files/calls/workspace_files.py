"""Known files of one session: what was there before the first call, what was placed for the server, what was collected.

A file is identified by its real path and its stamp. One that is not known with that stamp is new, whichever call wrote
it. So a file that was unfinished when a call ended is collected when a later call finds it finished.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from ...base.storage import SeenFile
from ..store.handles import ARTIFACT_SCHEME

_SKIPPED_FOLDERS: Final = frozenset(("__pycache__", "node_modules"))
# Names of files that are unfinished, or private to the program that made them.
_SKIPPED_BEGINNINGS: Final = (".", "~$", ".~lock")
_SKIPPED_ENDINGS: Final = (
    ".tmp", ".part", ".partial", ".crdownload", ".download", ".swp", ".lock", "-journal", "-wal", "-shm",
)  # fmt: skip


class KnownFile(msgspec.Struct, frozen=True):
    """A file, as it was when it was noted.

    Attributes:
        aid: the artifact it became; "" if it did not.
        uri: the URI that clients know it by: of that artifact, or of the stored file that it is a copy of.
        number: entries are numbered in the order they are made.
        version: how many artifacts were made of its path.
        latest: the URI of the last of them; "" if there is none.
        replaces: the URI of the one before that.
    """

    stamp: str
    aid: str = ""
    uri: str = ""
    number: int = 0
    version: int = 0
    latest: str = ""
    replaces: str = ""


_UNKNOWN: Final = KnownFile("")


class KnownFiles:
    """A bounded table of known files, and of the paths that calls named before there was anything to collect.

    Args:
        limit: entries that are kept. Beyond it the one seen or noted longest ago is dropped, and its file is new again,
            so the limit should be well above what one survey lists.
        awaited_max: paths that are awaited. Each is a look at the disk at every later call; beyond this the oldest is
            dropped.

    Attributes:
        is_begun: the files that were there before the first call are known.
        begun_at_unix: wall time of the first call; infinity before it.
        oldest_at_unix: files changed before it are older than the first call, where not all that were there then could
            be listed; else 0.
        last_number: number of the newest entry.
    """

    def __init__(self, limit: int, awaited_max: int = 64) -> None:
        assert min(limit, awaited_max) > 0
        self.is_begun = False
        self.begun_at_unix = float("inf")
        self.oldest_at_unix = 0.0
        self.last_number = 0
        self._limit = limit
        self._awaited_max = awaited_max
        self._entries: dict[str, KnownFile] = {}
        self._awaited: dict[str, None] = {}
        self._placing: dict[str, int] = {}
        self._told: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._entries)

    # --- Files ----------------------------------------------------------------------------------------------------

    def note(self, file: SeenFile, aid: str = "", uri: str = "") -> None:
        """Records the file as it is now. Replaces what was known of its path, and awaits it no more."""
        before = self._entries.pop(file.path, _UNKNOWN)
        self.last_number += 1
        made = (before.version, before.latest, before.replaces)
        if aid:
            # A copy of an artifact, which a tool has written to since, goes on from that.
            copied = before.uri if not before.latest and before.uri.startswith(ARTIFACT_SCHEME) else ""
            made = (before.version + (2 if copied else 1), uri, before.latest or copied)
        self._entries[file.path] = KnownFile(file.stamp, aid, uri, self.last_number, *made)
        if len(self._entries) > self._limit:
            del self._entries[next(iter(self._entries))]
        self.settle(file.path)

    def begin(
        self, listed: Iterable[SeenFile], oldest_at_unix: float = 0.0, begun_at_unix: float = float("inf")
    ) -> None:
        """Records the files that are there before the first call: they are the output of no call."""
        assert not self.is_begun
        self.is_begun = True
        self.begun_at_unix = begun_at_unix
        self.oldest_at_unix = oldest_at_unix
        for file in listed:
            if not self.knows(file) and not self._is_being_placed(file.path):
                self.note(file)

    def begin_placing(self, folder: str) -> None:
        """Marks a folder into which a copy of a stored file is being placed: files in it are not new until
        `end_placing`."""
        self._placing[folder] = self._placing.get(folder, 0) + 1

    def end_placing(self, folder: str) -> None:
        """Marks one placing into the folder as over, done or failed."""
        self._placing[folder] -= 1
        if not self._placing[folder]:
            del self._placing[folder]

    def _is_being_placed(self, path: str) -> bool:
        return bool(self._placing) and path.startswith(tuple(folder + "/" for folder in self._placing))

    def place(self, path: str, stamp: str, uri: str) -> None:
        """Records a copy of a stored file that lies there for the server. One that the server has changed since keeps
        its entry, so that the change counts as new."""
        if path not in self._entries:
            self.note(SeenFile(path, 0, stamp), uri=uri)

    def entries(self) -> list[tuple[str, KnownFile]]:
        """Returns all entries, with their paths."""
        return list(self._entries.items())

    def knows(self, file: SeenFile) -> bool:
        """True if the file was noted with this stamp."""
        entry = self._entries.get(file.path)
        return entry is not None and entry.stamp == file.stamp

    def is_new(self, file: SeenFile) -> bool:
        """True if the file came or was changed after the first call began, and was not noted since."""
        is_unknown = not self.knows(file) and not self._is_being_placed(file.path)
        return is_unknown and file.changed_at_unix >= self.oldest_at_unix

    def find(self, path: str) -> KnownFile | None:
        """Returns the entry that was noted last for a real path."""
        return self._entries.get(path)

    def changed(self, listed: Sequence[SeenFile], roots: Sequence[str]) -> list[SeenFile]:
        """Returns those files that are new and finished, in the order given.

        An empty or busy file is left out, and found by a later call. Left out for good are files that by their name
        below the innermost of `roots` are not output: hidden files and folders, caches, temporary and lock files.
        """
        self._see(listed)
        return [file for file in listed if self.is_new(file) and is_finished(file) and not _is_skipped(file, roots)]

    def _see(self, listed: Iterable[SeenFile]) -> None:
        """Moves the entries of files that are there behind the others, which are dropped first, once space is short."""
        if 2 * len(self._entries) > self._limit:
            for file in listed:
                entry = self._entries.pop(file.path, None)
                if entry is not None:
                    self._entries[file.path] = entry

    # --- Awaited paths --------------------------------------------------------------------------------------------

    def awaits(self, path: str) -> None:
        """Awaits a file that was named, and is missing, empty or unfinished: later calls look for it again."""
        self._awaited.pop(path, None)
        self._awaited[path] = None
        if len(self._awaited) > self._awaited_max:
            del self._awaited[next(iter(self._awaited))]

    def awaited(self) -> list[str]:
        """Returns at most `awaited_max` paths, the one named longest ago first."""
        return list(self._awaited)

    def tell(self, file: SeenFile) -> bool:
        """Records that clients are told of a file that may not be taken. False if they were told of it as it is now.
        Beyond `awaited_max` files the one told of longest ago is forgotten."""
        is_told = self._told.pop(file.path, "") == file.stamp
        self._told[file.path] = file.stamp
        if len(self._told) > self._awaited_max:
            del self._told[next(iter(self._told))]
        return not is_told

    def settle(self, path: str) -> None:
        """Awaits the path no more, if it was awaited."""
        self._awaited.pop(path, None)


def is_finished(file: SeenFile) -> bool:
    """True if the file may be collected: it holds something, and no process writes it."""
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
