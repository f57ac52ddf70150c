"""Carries out the engine's storage orders: records, blobs, and the folders that servers read and write.

Each session's workspace is a folder of its own below one root, which belongs to one process. A server is trusted with
its own workspace and nothing else. Files that it names are taken in only from there or from its `artifact_roots`, and
links that it puts into its folders are never followed out of them, hard links included.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import anyio
from anyio import to_thread

from ...core.base.ids import is_minted
from ...core.base.limits import Limits
from ...core.base.replica import is_tag
from ...core.base.storage import (
    Allocate,
    Allocated,
    Collect,
    Conflicted,
    Discard,
    Extend,
    Extended,
    Fetch,
    Fetched,
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
    StorageAnswer,
    StorageFailed,
    StorageOrder,
    Survey,
    Surveyed,
    Sweep,
)
from ...core.downstream import event_store
from ...storage.interface import Blobs, NotStored, Records, StorageError, StorageFull, VersionConflict
from .collect import Collector, remove_taken, too_large
from .lock import holding
from .openat import Placement, is_plain, open_folder, reason_of
from .permissions import Permissions
from .remove_tree import remove_tree
from .survey import stamp_of, survey

UNUSABLE: Final = "the storage cannot be used; try again later"
"""The reason that clients are given for the failure of a store on a server."""

_log = logging.getLogger(__name__)


class Folders(NamedTuple):
    """The folders of a workspace, as absolute paths.

    Attributes:
        ws: the server's working directory, unless another is configured.
        in_: uploads of clients, one folder for each.
        out: artifacts that the server is asked to write, one folder for each.
        tmp: the server's TMPDIR. Not below the root, since its path must be short: the path of a Unix socket has at
            most 107 bytes, and programs put sockets below their TMPDIR (Chromium adds 45 bytes, and exits if it
            cannot).
    """

    ws: str
    in_: str
    out: str
    tmp: str

    def place(self, text: str) -> str:
        """Returns `text` with the folders in place of `{ws}`, `{in}`, `{out}` and `{tmp}`."""
        text = text.replace("{ws}", self.ws).replace("{in}", self.in_)
        return text.replace("{out}", self.out).replace("{tmp}", self.tmp)

    def area(self, name: str) -> str:
        """Returns the folder that orders call `name`: "ws", "in" or "out"."""
        return {"ws": self.ws, "in": self.in_, "out": self.out}[name]


class Workspaces:
    """Carries out storage orders. Call `start_up` first.

    Args:
        root: the folder that holds the workspaces and nothing else; made if it is missing. Links in its path are
            resolved now, so that paths handed to servers are real ones.
        is_shared: records and blobs are on servers. If one of these fails, the log says why, and clients are told only
            that it did: the reason may name machines of a network.
        own_records: where records are kept that mean something to this process alone, which are events; None: among the
            others.
        artifact_roots: for each server, further folders whose files it may name.
        hard_linked_roots: for each server, those of its `artifact_roots` in which a file may have several names.
        working_directories: for each server, the folder that its relative paths start from, which may hold the
            placeholders of `Folders.place`; None: its workspace's `ws`.
        private_paths: files and folders, such as the state database and the blobs, that are never handed out, even
            if an artifact root contains them. The root is private too, except for the session's own workspace.
        tmp_root: the folder in which each workspace has its `tmp`; None: the system's.
        now_unix: returns wall time in seconds.
        announce: called with the key of each record that was saved or removed.
        note: called with each order that was carried out, the seconds that it took, and whether it failed: the storage
            had an error, or took too long.
    """

    def __init__(
        self,
        root: str,
        records: Records,
        blobs: Blobs,
        *,
        artifact_roots: Mapping[str, Sequence[str]],
        working_directories: Mapping[str, str | None],
        limits: Limits,
        is_shared: bool = False,
        own_records: Records | None = None,
        hard_linked_roots: Mapping[str, Sequence[str]] | None = None,
        private_paths: Sequence[str] = (),
        tmp_root: str | None = None,
        now_unix: Callable[[], float] = time.time,
        announce: Callable[[str], None] = lambda key: None,
        note: Callable[[StorageOrder, float, bool], None] = lambda order, duration_s, has_failed: None,
    ) -> None:
        self.root = os.path.realpath(root)
        self._tmp_root = os.path.realpath(tmp_root or tempfile.gettempdir())
        self._records = records
        self._own_records = records if own_records is None else own_records
        self._blobs = blobs
        self._is_shared = is_shared
        self._collector = Collector(blobs)
        self._artifact_roots = _resolved(artifact_roots)
        self._hard_linked_roots = _resolved(hard_linked_roots or {})
        self._private = (self.root, *(os.path.realpath(path) for path in private_paths))
        self._working_directories = dict(working_directories)
        self._limits = limits
        self._now_unix = now_unix
        self._announce = announce
        self._note = note

    async def start_up(self) -> None:
        """Removes the workspaces of earlier runs.

        The caller must hold the lock on the root (`holding`) and keep it: another process would lose its workspaces.

        Raises:
            OSError: the root cannot be used.
        """
        await to_thread.run_sync(functools.partial(os.makedirs, self.root, mode=0o700, exist_ok=True))
        for name in await to_thread.run_sync(os.listdir, self.root):
            if is_minted(name):
                await self.carry_out(Sweep(name))

    @property
    def tmp_prefix(self) -> str:
        """The beginning of the path of each workspace's `tmp`; the name of the workspace follows."""
        return tmp_folder(self._tmp_root, "")

    def folders(self, workspace: str) -> Folders:
        assert is_minted(workspace)
        ws, in_, out = (os.path.join(self.root, workspace, name) for name in ("ws", "in", "out"))
        return Folders(ws, in_, out, tmp_folder(self._tmp_root, workspace))

    async def prepare(self, workspace: str) -> Folders:
        """Makes the missing folders of a workspace.

        Raises:
            OSError: one of them cannot be made.
        """
        folders = self.folders(workspace)
        for folder in folders:
            await to_thread.run_sync(_make_folder, folder)
        return folders

    async def carry_out(self, order: StorageOrder) -> StorageAnswer | None:
        """Carries out an order. Returns its answer, or None for orders without one, whose failures are logged.

        Errors of records, blobs and files, and a timeout, become a `StorageFailed`. An order that failed has left no
        file behind, and a record in its old or its new state.
        """
        match order:
            case Forget() | ForgetAll() | Discard() | Remove() | Sweep():
                failed = await self._attempt(order, None)
                if isinstance(failed, StorageFailed) and failed.reason != UNUSABLE:  # that has its line
                    _log.warning("%s could not be carried out: %s", type(order).__name__, failed.reason)
                return None
            case _:
                return await self._attempt(order, self._limits.storage_timeout_s)

    async def _attempt(self, order: StorageOrder, timeout_s: float | None) -> StorageAnswer | None:
        begun_at, has_failed = time.monotonic(), True
        try:
            with anyio.move_on_after(timeout_s):
                answer = await self._dispatch(order)
                has_failed = False
                return answer
            return StorageFailed(f"the storage took longer than {timeout_s} s")
        except StorageFull as error:
            return StorageFailed(str(error), is_full=True)
        except NotStored as error:
            has_failed = False
            return StorageFailed(str(error), is_missing=True)
        except StorageError as error:
            if not self._is_shared:
                return StorageFailed(str(error))
            _log.warning("%s could not be carried out: %s", type(order).__name__, error)
            return StorageFailed(UNUSABLE)
        except OSError as error:
            return StorageFailed(reason_of(error), is_full=error.errno in (errno.ENOSPC, errno.EDQUOT))
        except Exception:  # a bug in one order must not end every other session
            _log.exception("%s failed", type(order).__name__)
            return StorageFailed("internal error")
        finally:
            self._note(order, time.monotonic() - begun_at, has_failed)

    async def _dispatch(self, order: StorageOrder) -> StorageAnswer | None:
        match order:
            case Load(key=key):
                record = await self._records_of(key).load(key)
                return Loaded() if record is None else Loaded(record.value, record.version)
            case Save(key=key, value=value, expires_at_unix=expires_at_unix, if_version=version):
                try:
                    records = self._records_of(key)
                    saved = await records.save(key, value, expires_at_unix=expires_at_unix, if_version=version)
                except VersionConflict:
                    return Conflicted()
                self._announce(key)
                return Saved(saved)
            case Forget(key=key):
                await self._records_of(key).delete(key)
                self._announce(key)
                return None
            case ForgetAll(prefix=prefix):
                await self._records_of(prefix).delete_all(prefix)
                return None
            case Allocate():
                return await self._allocate(order)
            case Collect(workspace=""):
                assert all(isinstance(source, InlineSource) for source in order.sources)
                return await self._collector.collect(order, None)
            case Collect(server=server, workspace=workspace):
                return await self._collector.collect(order, self._permissions(server, workspace))
            case Remove(server=server, workspace=workspace):
                await to_thread.run_sync(remove_taken, order, self._permissions(server, workspace))
                return None
            case Survey():
                return await self._survey(order)
            case Extend():
                return await self._extend(order)
            case Materialize():
                return await self._materialize(order)
            case Fetch():
                return await self._fetch(order)
            case Discard(blob=blob):
                await self._blobs.delete(blob)
                return None
            case Sweep(workspace=workspace):
                await self._sweep(workspace)
                return None

    def _records_of(self, key: str) -> Records:
        """Returns the store of the records with this key, or this beginning of one."""
        return self._own_records if key.startswith(event_store.PREFIX) else self._records

    # --- Files of servers -------------------------------------------------------------------------------------------

    def _permissions(self, server: str, workspace: str) -> Permissions:
        folders = self.folders(workspace)
        return Permissions(
            own=folders,
            start=folders.place(self._working_directories.get(server) or "{ws}"),
            roots=self._artifact_roots.get(server, ()),
            hard_linked_roots=self._hard_linked_roots.get(server, ()),
            private=self._private,
            private_prefix=self.tmp_prefix,
        )

    async def _survey(self, order: Survey) -> Surveyed:
        folders = self.folders(order.workspace)
        areas = [folders.area(name) for name in order.areas]
        look = functools.partial(survey, now_unix=self._now_unix())
        return await to_thread.run_sync(look, order, self._permissions(order.server, order.workspace), areas)

    async def _allocate(self, order: Allocate) -> StorageAnswer:
        for name in (*order.folders, *filter(None, [order.filename])):
            if not is_plain(name):
                return _unsafe(name)
        folder = os.path.join(self.folders(order.workspace).area(order.area), *order.folders)
        await to_thread.run_sync(_make_folder, folder)
        return Allocated(os.path.join(folder, order.filename) if order.filename else folder)

    async def _extend(self, order: Extend) -> StorageAnswer:
        size_bytes = order.offset + len(order.data)
        async with self._blobs.extend(order.blob, offset=order.offset, size_max_bytes=size_bytes) as writer:
            await writer.write(order.data)
            stat = await writer.commit() if order.is_last else None
        # Not earlier: what was gathered is written when the writer is left.
        if writer.size_bytes != size_bytes:
            raise StorageError("the draft could not be written")
        return Extended(size_bytes, "" if stat is None else stat.sha256)

    async def _materialize(self, order: Materialize) -> StorageAnswer:
        # The file is a copy, never a hard link: a server that edits it must not edit the blob.
        assert is_minted(order.upload)
        folder = os.path.join(self.folders(order.workspace).area(order.folder), order.upload)
        if not is_plain(order.filename):
            return _unsafe(order.filename)
        if await self._blobs.stat(order.blob) is None:
            raise NotStored(f"there is no blob {order.blob}")
        placement = await to_thread.run_sync(Placement, folder, order.filename)
        try:
            if not placement.is_there:
                path = self._blobs.path_for(order.blob)
                if path is not None:
                    try:
                        await to_thread.run_sync(placement.copy_from, path)
                    except FileNotFoundError as error:
                        raise NotStored(f"the file of blob {order.blob} is gone") from error
                else:
                    async for chunk in self._blobs.read(order.blob):
                        await to_thread.run_sync(placement.file.write, chunk)
                await to_thread.run_sync(placement.finish)
        finally:
            placement.close()
        assert placement.stat is not None
        return Materialized(os.path.join(folder, order.filename), stamp_of(placement.stat))

    async def _sweep(self, workspace: str) -> None:
        assert is_minted(workspace)
        # The order matters: the next start finds workspaces by the folder below the root, so that goes last.
        paths = (self.folders(workspace).tmp, os.path.join(self.root, workspace))
        for path in paths:
            await to_thread.run_sync(remove_tree, path)
        if any(os.path.lexists(path) for path in paths):
            raise StorageError(f"workspace {workspace} could not be removed whole; the next start tries again")

    async def _fetch(self, order: Fetch) -> StorageAnswer:
        stat = await self._blobs.stat(order.blob)
        if stat is None:
            raise NotStored(f"there is no blob {order.blob}")
        if stat.size_bytes > order.size_max_bytes:
            return StorageFailed(too_large(stat.size_bytes, order.size_max_bytes))
        return Fetched(b"".join([chunk async for chunk in self._blobs.read(order.blob, 0, order.size_max_bytes)]))


def tmp_folder(tmp_root: str, workspace: str) -> str:
    return os.path.join(tmp_root, f"isthmus-{workspace}")


def remove_workers(root: str) -> None:
    """Removes the folders of workers below `root`, the folder of all workspaces, with the workspaces in them. Blocks.

    Raises:
        InUse: a worker is still there.
        OSError: the folder cannot be read.
    """
    os.makedirs(root, mode=0o700, exist_ok=True)
    for tag in filter(is_tag, os.listdir(root)):
        remove_worker(root, tag)


def remove_worker(root: str, tag: str) -> None:
    """Removes the folder of one worker, as `remove_workers` does."""
    folder = os.path.join(os.path.realpath(root), tag)
    if not os.path.isdir(folder) or os.path.islink(folder):
        return
    with holding(folder):
        for name in filter(is_minted, os.listdir(folder)):
            remove_tree(tmp_folder(os.path.realpath(tempfile.gettempdir()), name))
        remove_tree(folder)


def _resolved(roots: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {server: tuple(os.path.realpath(path) for path in paths) for server, paths in roots.items()}


def _make_folder(path: str) -> None:
    os.close(open_folder(path, make=True))


def _unsafe(filename: str) -> StorageFailed:
    return StorageFailed(f"got the file name {filename[:255]!r}, expected one without slashes that is not . or ..")
