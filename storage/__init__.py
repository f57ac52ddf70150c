"""Storage of records and blobs: two protocols, the laws that they promise, and backends in memory, in files and in
SQLite."""

from .files import FileBlobs
from .interface import (
    CHUNK_SIZE_MAX,
    Blobs,
    BlobStat,
    BlobWriter,
    Chunk,
    NotStored,
    Record,
    Records,
    StorageError,
    StorageFull,
    VersionConflict,
)
from .keys import KEY_SIZE_MAX, check_key, check_prefix
from .memory import MemoryBlobs, MemoryRecords
from .sqlite import SqliteRecords

__all__ = [
    "CHUNK_SIZE_MAX",
    "KEY_SIZE_MAX",
    "BlobStat",
    "BlobWriter",
    "Blobs",
    "Chunk",
    "FileBlobs",
    "MemoryBlobs",
    "MemoryRecords",
    "NotStored",
    "Record",
    "Records",
    "SqliteRecords",
    "StorageError",
    "StorageFull",
    "VersionConflict",
    "check_key",
    "check_prefix",
]
