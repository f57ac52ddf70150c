"""A disk in memory that carries out the storage orders of an engine.

The disk knows none of the engine's rules. It refuses what a real disk refuses: a path outside the session's folders and
`roots`, a missing file, and a file that has changed since the survey.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from driving import UNIX_AT_ZERO, Driver
from isthmus.core.base.effects import Effect
from isthmus.core.base.storage import (
    Allocate,
    Allocated,
    Collect,
    Collected,
    CollectedFile,
    Conflicted,
    Discard,
    Extend,
    Extended,
    Fetch,
    Fetched,
    FileSource,
    Forget,
    ForgetAll,
    InlineSource,
    Load,
    Loaded,
    Materialize,
    Materialized,
    Remove,
    Save,
    Saved,
    SeenFile,
    Sighting,
    StorageAnswer,
    StorageFailed,
    Survey,
    Surveyed,
    Sweep,
)

ROOT = "/w"
ORDERS = (Load, Save, Forget, ForgetAll, Allocate, Survey, Collect, Extend, Materialize, Fetch, Discard, Remove, Sweep)


@dataclass
class File:
    data: bytes
    stamp: str
    changed_at_unix: float
    is_busy: bool = False


@dataclass
class Disk:
    """Attributes:
    roots: further folders that files may be collected from.
    cwd: the base of relative paths, if that is not the session's own `ws`.
    """

    world: Driver
    roots: tuple[str, ...] = ()
    cwd: str = ""
    files: dict[str, File] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    drafts: dict[str, bytes] = field(default_factory=dict)
    records: dict[str, bytes] = field(default_factory=dict)
    orders: list[Effect] = field(default_factory=list)
    _stamps: int = 0
    _read: int = 0

    def __post_init__(self) -> None:
        self.world.has_disk = True

    # --- Files of servers ---------------------------------------------------------------------------------------------

    def write(self, path: str, data: bytes, *, is_busy: bool = False) -> str:
        self._stamps += 1
        self.files[path] = File(data, f"s{self._stamps}", UNIX_AT_ZERO + self.world.now, is_busy)
        return path

    def move(self, old: str, new: str) -> None:
        file = self.files[new] = self.files.pop(old)
        file.changed_at_unix = UNIX_AT_ZERO + self.world.now

    # --- Orders -------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Carries out every order, until no further one follows."""
        while self._read < len(self.world.log):
            effect = self.world.log[self._read]
            self._read += 1
            if isinstance(effect, ORDERS):
                self.orders.append(effect)
                answer = self._carry_out(effect)
                if answer is not None:
                    self.world.store(effect.ticket, answer)  # type: ignore[union-attr]

    def _carry_out(self, order: Effect) -> StorageAnswer | None:
        match order:
            case Load(key=key):
                return Loaded(self.records.get(key))
            case Save(key=key, if_version=0) if key in self.records:
                return Conflicted()
            case Save(key=key, value=value):
                self.records[key] = value
                return Saved()
            case Forget(key=key):
                self.records.pop(key, None)
            case ForgetAll(prefix=prefix):
                self.records = {key: value for key, value in self.records.items() if not key.startswith(prefix)}
            case Discard(blob=blob):
                self.blobs.pop(blob, None)
                self.drafts.pop(blob, None)
            case Extend(blob=blob, offset=offset, data=data):
                if len(self.drafts.get(blob, b"")) != offset:
                    return StorageFailed(reason="there is no such draft", is_missing=True)
                whole = self.drafts[blob] = self.drafts.get(blob, b"") + data
                if not order.is_last:
                    return Extended(len(whole))
                self.blobs[blob] = self.drafts.pop(blob)
                return Extended(len(whole), hashlib.sha256(whole).hexdigest())
            case Remove(path=path, stamp=stamp):
                if path in self.files and self.files[path].stamp == stamp:
                    del self.files[path]
            case Sweep(workspace=workspace):
                base = f"{ROOT}/{workspace}/"
                self.files = {path: file for path, file in self.files.items() if not path.startswith(base)}
            case Allocate(workspace=workspace, folders=folders, filename=filename, area=area):
                return Allocated("/".join((ROOT, workspace, area, *folders, *filter(None, [filename]))))
            case Materialize():
                return self._materialize(order)
            case Fetch(blob=blob, size_max_bytes=limit):
                data = self.blobs.get(blob)
                if data is None or len(data) > limit:
                    return StorageFailed(reason="it is not there" if data is None else "too large")
                return Fetched(data)
            case Survey():
                named = tuple(self._sight(order, spellings) for spellings in order.named)
                folders = [f"{ROOT}/{order.workspace}/{area}/" for area in order.areas]
                listed = [self._seen(path) for path in sorted(self.files) if path.startswith(tuple(folders))]
                cut = len(listed) > order.entries_max
                return Surveyed(named, tuple(listed[: order.entries_max]) if folders else (), cut)
            case Collect():
                left, files = order.total_size_max_bytes, []
                for source, blob in zip(order.sources, order.blobs, strict=True):
                    file = self._take(order, source, blob, min(left, order.size_max_bytes))
                    left -= file.size_bytes
                    files.append(file)
                return Collected(tuple(files))
        return None

    def _materialize(self, order: Materialize) -> StorageAnswer:
        if order.blob not in self.blobs:
            return StorageFailed(reason="it is gone", is_missing=True)
        path = f"{ROOT}/{order.workspace}/{order.folder}/{order.upload}/{order.filename}"
        if path not in self.files:
            self.write(path, self.blobs[order.blob])
        return Materialized(path, self.files[path].stamp)

    def _take(self, order: Collect, source: FileSource | InlineSource, blob: str, limit: int) -> CollectedFile:
        if isinstance(source, InlineSource):
            data, path, name = source.data, "", source.filename
        else:
            (path, *_) = [p for p in self._spelled(order, source.candidates) if p in self.files] or [""]
            if not path or not self._is_permitted(order.workspace, path):
                return CollectedFile(problem="missing" if not path else "not permitted")
            if source.stamp not in ("", self.files[path].stamp):
                return CollectedFile(problem="unfinished")
            data, name = self.files[path].data, posixpath.basename(path)
        if len(data) > limit:
            return CollectedFile(problem=f"too large: {len(data)} bytes, at most {limit}")
        self.blobs[blob] = data
        return CollectedFile(
            path=path, filename=name, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), head=data[:512]
        )

    def _sight(self, order: Survey, spellings: Iterable[str]) -> Sighting:
        problem, left = "missing", None
        for path in self._spelled(order, spellings):
            if not self._is_permitted(order.workspace, path):
                if problem == "missing":
                    problem, left = "not permitted", self._seen(path) if path in self.files else self._folder(path)
                continue
            if path in self.files:
                return Sighting(files=(self._seen(path),))
            below = sorted(name for name in self.files if name.startswith(path + "/"))
            if below:
                files = tuple(self._seen(name) for name in below[: order.folder_max])
                return Sighting(files=files, is_folder=True, is_cut=len(below) > order.folder_max)
        return Sighting(problem=problem, left=left, is_folder=left is not None and left.path not in self.files)

    def _folder(self, path: str) -> SeenFile | None:
        """Returns a folder, which is there if a file lies in it, and changes with its files."""
        below = [file for name, file in self.files.items() if name.startswith(path + "/")]
        stamp = " ".join(file.stamp for file in below)
        return SeenFile(path, 0, stamp, max(file.changed_at_unix for file in below)) if below else None

    def _spelled(self, order: Survey | Collect, spellings: Iterable[str]) -> Iterator[str]:
        start = self.cwd or f"{ROOT}/{order.workspace}/ws"
        return (posixpath.normpath(posixpath.join(start, path)) for path in spellings)

    def _is_permitted(self, workspace: str, path: str) -> bool:
        folders = [f"{ROOT}/{workspace}/{name}" for name in ("ws", "in", "out", "tmp")]
        return any(path == folder or path.startswith(folder + "/") for folder in (*folders, *self.roots))

    def _seen(self, path: str) -> SeenFile:
        file = self.files[path]
        return SeenFile(path, len(file.data), file.stamp, file.changed_at_unix, file.is_busy)
