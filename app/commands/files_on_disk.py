"""The stored files of an isthmus that does not run, read from its storage folder."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping

import anyio
import msgspec

from ...core.files.store import handles
from ...core.state.records import FileStatus, StoredArtifact, StoredUpload
from ...storage.files import FileBlobs
from ...storage.interface import StorageError
from ...storage.sqlite import SqliteRecords
from ..admin.files import FILTERS, describe
from ..base.errors import Failed
from ..disk.lock import InUse, holding
from ..disk.restore import stored_artifacts, stored_uploads
from .http_client import CHUNK_BYTES, Json


@contextlib.contextmanager
def held(root: str) -> Iterator[FilesOnDisk]:
    """Locks the storage folder `root` and gives access to its files, until the context is left.

    Raises:
        Failed: another process uses the folder, or it is no storage folder.
    """
    if not os.path.isfile(os.path.join(root, "state", "records.sqlite")):
        raise Failed(f"{root} is no storage folder of isthmus: it has no state/records.sqlite")
    try:
        with holding(os.path.realpath(os.path.join(root, "workspaces"))):
            yield FilesOnDisk(root)
    except InUse:
        raise Failed(f"an isthmus runs on {root}: ask it, with --url instead of --root, or stop it") from None
    except StorageError as error:
        raise Failed(f"{root} cannot be used: {error}") from error
    except OSError as error:
        raise Failed(f"{root} cannot be used: {error.strerror or error}") from error


class FilesOnDisk:
    """A `commands.files.Files` over a storage folder that is locked."""

    def __init__(self, root: str) -> None:
        self.name = root
        self._records = os.path.join(root, "state", "records.sqlite")
        self._blobs = FileBlobs(os.path.join(root, "blobs"))

    def listed(self, filters: Mapping[str, str]) -> list[Json]:
        assert set(filters) <= set(FILTERS)
        now_unix = time.time()
        files = [describe(_status(record), now_unix) for record in self._stored()]
        return [one for one in files if all(one[name] == value for name, value in filters.items())]

    def content(self, id: str) -> Iterator[bytes]:
        path = self._blobs.path_for(self._find(id).blob)
        if path is None:
            raise Failed(f"the content of {id} is gone")
        with open(path, "rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    def delete(self, id: str) -> None:
        anyio.run(self._delete, self._find(id))

    async def _delete(self, record: StoredUpload | StoredArtifact) -> None:
        # The record goes first: the next start removes a blob that has none.
        records = SqliteRecords(self._records)
        try:
            await records.delete(record.key)
        finally:
            await records.aclose()
        await self._blobs.delete(record.blob)

    def _find(self, id: str) -> StoredUpload | StoredArtifact:
        found = next((record for record in self._stored() if record.id == id), None)
        if found is None:
            raise Failed(f"{self.name} has no file {id}")
        return found

    def _stored(self) -> list[StoredUpload | StoredArtifact]:
        return anyio.run(self._read)

    async def _read(self) -> list[StoredUpload | StoredArtifact]:
        records = SqliteRecords(self._records)
        try:
            uploads = await stored_uploads(records, now_unix=0.0, ttl_s=0.0)
            return sorted([*uploads, *await stored_artifacts(records)], key=lambda record: record.stored_at_unix)
        finally:
            await records.aclose()


def _status(record: StoredUpload | StoredArtifact) -> FileStatus:
    """Returns the status of a file that no call uses; the time of its last use is not stored, so it is 0."""
    if isinstance(record, StoredArtifact):
        uri, tool = handles.format_artifact(record.sid, record.aid, record.filename), record.tool
    else:
        uri, tool = handles.format_upload(record.sid, record.uid), ""
    stored = {name: getattr(record, name) for name in FileStatus.__struct_fields__ if hasattr(record, name)}
    more = {"session": record.sid, "uri": uri, "tool": tool, "used_at_unix": 0.0, "pins": 0, "is_live": False}
    return msgspec.convert(stored | more, FileStatus)
