"""Storage of records and blobs: two protocols, the laws that they promise, and backends in memory, in files, in SQLite,
in PostgreSQL, in Redis and in S3.

A name is loaded when it is first asked for, so a backend that is not used costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .files import FileBlobs as FileBlobs
    from .interface import *
    from .keys import *
    from .memory import MemoryBlobs as MemoryBlobs
    from .memory import MemoryRecords as MemoryRecords
    from .notices import MemoryNotices as MemoryNotices
    from .postgres import PostgresRecords as PostgresRecords
    from .postgres_notices import PostgresNotices as PostgresNotices
    from .redis import RedisRecords as RedisRecords
    from .redis_notices import RedisNotices as RedisNotices
    from .s3 import S3Blobs as S3Blobs
    from .s3_location import S3Location as S3Location
    from .s3_location import parse_location as parse_location
    from .s3_objects import S3Objects as S3Objects
    from .s3_report import BlobsReport as BlobsReport
    from .sqlite import SqliteRecords as SqliteRecords

_NAMES: Final = {
    "files": "FileBlobs",
    "interface": (
        "CHUNK_SIZE_MAX EVERYTHING BlobStat BlobWriter Blobs Chunk NotStored Notices Record Records RecordsReport "
        "StorageError StorageFull VersionConflict"
    ),
    "keys": "KEY_SIZE_MAX check_key check_prefix",
    "memory": "MemoryBlobs MemoryRecords",
    "notices": "MemoryNotices",
    "postgres": "PostgresRecords",
    "postgres_notices": "PostgresNotices",
    "redis": "RedisRecords",
    "redis_notices": "RedisNotices",
    "s3": "S3Blobs",
    "s3_location": "S3Location parse_location",
    "s3_objects": "S3Objects",
    "s3_report": "BlobsReport",
    "sqlite": "SqliteRecords",
}
_MODULE_OF: Final = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value  # asked for once
    return value


def __dir__() -> list[str]:
    return __all__
