"""Storage of records and blobs: two protocols, the laws that they promise, and backends in memory, in files, in
SQLite and in S3."""

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
from .s3 import S3Blobs
from .s3_location import S3Location, parse_location
from .s3_objects import S3Objects
from .s3_report import StoreReport, examine
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
    "S3Blobs",
    "S3Location",
    "S3Objects",
    "SqliteRecords",
    "StorageError",
    "StorageFull",
    "StoreReport",
    "VersionConflict",
    "check_key",
    "check_prefix",
    "examine",
    "parse_location",
]
