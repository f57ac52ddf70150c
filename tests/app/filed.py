"""A storage folder in which an earlier run left files, and a gateway that serves it in a thread beside the tests."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio.from_thread import start_blocking_portal
from isthmus.app.config.settings import Core, Management, Server, Settings, Storage, Upstream
from isthmus.app.gateway import Gateway, running
from isthmus.core.state.records import StoredArtifact, StoredUpload
from isthmus.storage.files import FileBlobs
from isthmus.storage.sqlite import SqliteRecords

TOKEN = "s3cret-t0ken"
NOTE, PLOT, VIDEO = "aaaaaaaa11" + "0" * 22, "aaaaaaaa22" + "0" * 22, "bbbbbbbb33" + "0" * 22
SID, OTHER_SID = "5" * 32, "6" * 32
CONTENT = {NOTE: b"remember the milk", PLOT: b"<svg/>" * 500, VIDEO: bytes(200_000)}


def record_of(id: str, *, age_s: float, **more: Any) -> StoredUpload | StoredArtifact:
    now_unix, content = time.time(), CONTENT[id]
    members: dict[str, Any] = {
        "server": "a",
        "sid": SID,
        "principal": "",
        "blob": id,
        "mime_type": "text/plain",
        "size_bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "expires_at_unix": now_unix + 3000,
        "stored_at_unix": now_unix - age_s,
        **more,
    }
    return StoredUpload(uid=id, **members) if "tool" not in more else StoredArtifact(aid=id, is_exposed=True, **members)


def left(root: Path) -> None:
    """A store of three files: a fresh upload, an older artifact, and a large one of another server."""
    records = [
        record_of(NOTE, age_s=5, filename="note \x1b.txt", is_bearer=True),
        record_of(PLOT, age_s=4000, filename="plot.svg", mime_type="image/svg+xml", tool="draw", sid=OTHER_SID),
        record_of(VIDEO, age_s=90_000, filename="video.mp4", mime_type="video/mp4", tool="film", server="b"),
    ]

    async def write() -> None:
        (root / "state").mkdir(parents=True)
        store, blobs = SqliteRecords(str(root / "state" / "records.sqlite")), FileBlobs(str(root / "blobs"))
        for record in records:
            await store.save(record.key, msgspec.json.encode(record), expires_at_unix=record.expires_at_unix)
            async with blobs.create(record.blob, size_max_bytes=10**6) as writer:
                await writer.write(CONTENT[record.id])
                await writer.commit()
        await store.aclose()

    anyio.run(write)


@contextmanager
def served(root: Path) -> Iterator[Gateway]:
    servers = tuple(Server(id=id, upstream=Upstream(command=("/nonexistent",))) for id in ("a", "b"))
    core = Core(port=0, management=Management(token=TOKEN))
    settings = Settings(core=core, storage=Storage(root=str(root)), servers=servers)
    with start_blocking_portal() as portal:
        with portal.wrap_async_context_manager(running(settings, listen=True, is_lasting=True)) as gateway:
            yield gateway
