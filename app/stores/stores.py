"""The stores of a gateway: records and files, in its storage folder or on servers that several replicas share.

The backends of shared stores are imported when the settings name them.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from anyio import to_thread

from ...storage.files import FileBlobs
from ...storage.interface import Blobs, Notices, Records, StorageError
from ...storage.remote import ANSWER_TIMEOUT_S, CALLS_MAX
from ...storage.sqlite import SqliteRecords
from ..base.errors import StartError
from ..config.settings import Storage
from ..config.storage_checks import client_url, is_postgres, shown_store

if TYPE_CHECKING:
    from ...storage.s3 import S3Blobs
    from ...storage.s3_objects import S3Objects

TRIAL_ATTEMPT_S: Final = 10.0
"""Seconds that the bucket may take for one attempt when it is tried at the start."""
TRIAL_RETRY_S: Final = 5.0
"""Seconds after which no further attempt begins then. Whoever starts a gateway waits for it, and can start it again."""


@dataclass(frozen=True)
class Stores:
    """Open stores.

    Attributes:
        records, blobs: shared by all replicas, if `shared`.
        own_records: records that mean something to this process alone. They are not shared.
        shared: other processes may use the stores at the same time.
        shared_blobs: `blobs`, if they are those of S3; else None.
        records_path: the file of `records`, if the workers of this machine share them; else "".
        clock_ahead_s: seconds by which the clock of the records was ahead of this machine's when they were opened.
            0.0 unless they are shared.
        private_paths: the folders of the stores on this machine, which no server may read.
    """

    records: Records
    blobs: Blobs
    own_records: Records
    shared: bool = False
    shared_blobs: S3Blobs | None = None
    records_path: str = ""
    clock_ahead_s: float = 0.0
    private_paths: tuple[str, ...] = ()

    async def now_unix(self) -> float:
        """Returns the time by which the expiry of records is judged. All replicas agree on it."""
        return await self.records.now_unix()

    def wall_time(self) -> float:
        """Returns that time as this machine reckons it, without asking."""
        return time.time() + self.clock_ahead_s


@asynccontextmanager
async def opened(storage: Storage, root: str, *, may_share: bool, worker: str = "") -> AsyncIterator[Stores]:
    """Opens the stores, and closes them when the context is left.

    Args:
        root: the storage folder, which is locked.
        may_share: use the shared stores of `storage`, if it has some; else those in the folder are used.
        worker: the tag of this process among the workers that use the folder; "": no other process uses it.

    Raises:
        StartError: a shared store cannot be used; the message says what was tried, why it failed and what to set.
        StorageError, OSError: the folder cannot be used.
    """
    async with AsyncExitStack() as stack:
        if may_share and storage.is_shared:
            yield await _open_shared(storage, root, worker, stack)
        else:
            state, blobs_path = os.path.join(root, "state"), os.path.join(root, "blobs")
            records_path = os.path.join(state, "records.sqlite")
            records = SqliteRecords(records_path)
            stack.push_async_callback(records.aclose)
            blobs = FileBlobs(blobs_path)
            stack.push_async_callback(blobs.aclose)
            if not worker:
                yield Stores(records, blobs, records, private_paths=(state, blobs_path))
                return
            own_records = SqliteRecords(os.path.join(own_folder(root, worker), "own.sqlite"))
            stack.push_async_callback(own_records.aclose)
            workspaces = os.path.join(root, "workspaces")  # those of other workers among them
            private = (state, blobs_path, workspaces)
            yield Stores(records, blobs, own_records, shared=True, records_path=records_path, private_paths=private)


def own_folder(root: str, worker: str = "") -> str:
    """Returns the folder for the state of one worker alone; without a worker, that of all such folders."""
    return os.path.join(root, "state", "workers", worker)


async def open_records(
    storage: Storage, *, calls_max: int = CALLS_MAX, answer_timeout_s: float = ANSWER_TIMEOUT_S
) -> Records:
    """Opens the shared records.

    Args:
        calls_max, answer_timeout_s: as in the backends.

    Raises:
        StorageError: they cannot be used.
    """
    url, make = client_url(storage), _postgres if is_postgres(storage) else _redis
    return await to_thread.run_sync(partial(make, url, calls_max=calls_max, answer_timeout_s=answer_timeout_s))


def open_notices(records: Records) -> Notices:
    """Returns the feed of changes among the openers of shared records, which `open_records` has opened."""
    from ...storage.postgres import PostgresRecords
    from ...storage.redis import RedisRecords

    if isinstance(records, PostgresRecords):
        from ...storage.postgres_notices import PostgresNotices

        return PostgresNotices(records)
    from ...storage.redis_notices import RedisNotices

    assert isinstance(records, RedisRecords)
    return RedisNotices(records)


def open_objects(storage: Storage, *, is_trial: bool = False) -> S3Objects:
    """Returns the location of the shared blobs. No request is made.

    Args:
        is_trial: requests are given up soon.

    Raises:
        StorageError: it cannot be used.
    """
    from ...storage.s3_location import parse_location
    from ...storage.s3_objects import S3Objects

    assert storage.blobs is not None
    location = parse_location(storage.blobs)
    if is_trial:
        return S3Objects(location, attempt_timeout_s=TRIAL_ATTEMPT_S, retry_timeout_s=TRIAL_RETRY_S)
    return S3Objects(location)


def failure(key: str, address: str, error: StorageError) -> str:
    """Returns why a shared store cannot be used, and what to do, for people.

    Args:
        key: the key of the settings that names it.
    """
    reason = str(error).rstrip(".")
    for beginning in ("the records cannot be used: ", "the object store cannot be used: "):
        reason = reason.removeprefix(beginning)
    # A message with a colon or a semicolon in it says what to do, such as the command that installs a package.
    advice = "" if "install" in reason or "; " in reason or ": set " in reason else f"; start it, or correct {key}"
    return f"{key}: {shown_store(address)}{_endpoint(address)} cannot be used: {reason}{advice}"


def _endpoint(address: str) -> str:
    """Returns where the server of a bucket is, if it is not that of AWS."""
    if not address.startswith("s3:"):
        return ""
    from ...storage.s3_location import parse_location

    endpoint = parse_location(address).effective_endpoint()
    return "" if endpoint is None else f" at {endpoint}"


async def _open_shared(storage: Storage, root: str, worker: str, stack: AsyncExitStack) -> Stores:
    assert storage.records is not None and storage.blobs is not None
    from ...storage.s3 import S3Blobs

    state = os.path.join(root, "state")
    own = own_folder(root, worker) if worker else state
    drafts = os.path.join(own if worker else root, "drafts")
    try:
        records = await open_records(storage)
        stack.push_async_callback(records.aclose)
        before = time.time()
        ahead_s = await records.now_unix() - (before + time.time()) / 2
    except StorageError as error:
        raise StartError(failure("storage.records", storage.records, error)) from error
    try:
        await S3Blobs(open_objects(storage, is_trial=True), drafts).stat("start")
        blobs = S3Blobs(open_objects(storage), drafts)
    except StorageError as error:
        raise StartError(failure("storage.blobs", storage.blobs, error)) from error
    stack.push_async_callback(blobs.aclose)
    own_records = SqliteRecords(os.path.join(own, "own.sqlite"))
    stack.push_async_callback(own_records.aclose)
    return Stores(
        records,
        blobs,
        own_records,
        shared=True,
        shared_blobs=blobs,
        clock_ahead_s=ahead_s,
        private_paths=(state, drafts, *([os.path.join(root, "workspaces")] if worker else [])),
    )


def _postgres(url: str, **options: Any) -> Records:
    from ...storage.postgres import PostgresRecords

    return PostgresRecords(url, **options)


def _redis(url: str, **options: Any) -> Records:
    from ...storage.redis import RedisRecords

    return RedisRecords(url, **options)
