"""Storage of records and blobs: two protocols, the laws that they promise, and backends in memory, in files, in SQLite,
in PostgreSQL, in Redis and in S3."""

from .files import FileBlobs
from .interface import (
    CHUNK_SIZE_MAX,
    EVERYTHING,
    Blobs,
    BlobStat,
    BlobWriter,
    Chunk,
    Notices,
    NotStored,
    Record,
    Records,
    RecordsReport,
    StorageError,
    StorageFull,
    VersionConflict,
)
from .keys import KEY_SIZE_MAX, check_key, check_prefix
from .memory import MemoryBlobs, MemoryRecords
from .notices import MemoryNotices
from .postgres import PostgresRecords
from .postgres_notices import PostgresNotices
from .redis import RedisRecords
from .redis_notices import RedisNotices
from .s3 import S3Blobs
from .s3_location import S3Location, parse_location
from .s3_objects import S3Objects
from .s3_report import StoreReport, examine
from .sqlite import SqliteRecords

__all__ = [
    "CHUNK_SIZE_MAX",
    "EVERYTHING",
    "KEY_SIZE_MAX",
    "BlobStat",
    "BlobWriter",
    "Blobs",
    "Chunk",
    "FileBlobs",
    "MemoryBlobs",
    "MemoryNotices",
    "MemoryRecords",
    "NotStored",
    "Notices",
    "PostgresNotices",
    "PostgresRecords",
    "Record",
    "Records",
    "RecordsReport",
    "RedisNotices",
    "RedisRecords",
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
