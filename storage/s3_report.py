"""An examination of a location in S3: what `isthmus check` says about a store for blobs."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from .interface import StorageError
from .s3_objects import S3Objects
from .s3_sweep import CLOCK

_ENDS: Final = ("!", "-", "/a")
"""Ends of names, in the order in which they have to be listed."""


API_VERSION: Final = "2006-03-01"


@dataclass(frozen=True, slots=True)
class BlobsReport:
    """A store of blobs as its backend found it. See `RecordsReport` for that of records.

    Attributes:
        engine: the kind of server, and where it is.
        version: the version of the protocol, because servers do not say their own.
        durability: what is lost when it dies, in words.
        clock_skew_s: seconds by which the store's clock is ahead of this machine's, give or take 1.
        place: the bucket and the prefix.
    """

    engine: str
    version: str
    durability: str
    clock_skew_s: float
    place: str


async def examine_objects(objects: S3Objects) -> BlobsReport:
    """Writes objects, lists, reads and removes them. Takes 9 requests.

    Raises:
        StorageError: the store cannot be used, or lacks what the laws of blobs rest on.
    """
    before = time.time()
    skew_s = await objects.clock(CLOCK) - (before + time.time()) / 2
    folder = f"check/{secrets.token_hex(16)}"
    names = [folder + end for end in _ENDS]
    try:
        for name in names:
            await objects.put(name, name.encode())
        if [found.name async for found in objects.listing("check") if found.name.startswith(folder)] != names:
            raise StorageError("the object store does not list what was written just before, which Isthmus relies on")
        found = await objects.get(names[0], 1, 4)
        if found is None or bytes(found) != names[0][1:4].encode():
            raise StorageError("the object store does not return the range that it was asked for")
    finally:
        await objects.delete(names)
    if await objects.get(names[0], 0, 1) is not None:
        raise StorageError("the object store returns what was deleted just before")
    location = objects.location
    endpoint = location.effective_endpoint()
    return BlobsReport(
        engine=f"S3 at {'AWS' if endpoint is None else urlsplit(endpoint).netloc}",
        version=API_VERSION,
        durability="nothing that a commit returned, as far as the server keeps what it acknowledged",
        clock_skew_s=skew_s,
        place="/".join(filter(None, (location.bucket, location.prefix))),
    )
