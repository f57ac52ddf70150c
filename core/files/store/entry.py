"""One stored file at hand: its record, who uses it, and when it goes."""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

from .records import StoredArtifact, StoredUpload

R = TypeVar("R", StoredUpload, StoredArtifact)


class Entry(Generic[R]):
    """Attributes:
    record: as it was saved last.
    path: where an upstream sees it, once it was placed there.
    pins: calls that use it; while there are any, it neither expires nor makes room for others.
    expires_at: when it goes, if nobody uses it then.
    used: the higher, the later it was used.
    used_at_unix: when that was.
    added_at: when it was put on the shelf; minus infinity if an earlier run did.
    """

    __slots__ = ("added_at", "expires_at", "path", "pins", "record", "used", "used_at_unix")

    def __init__(self, record: R, *, added_at: float, expires_at: float, used: int, used_at_unix: float) -> None:
        self.record: R = record
        self.path: str | None = None
        self.pins = 0
        self.added_at = added_at
        self.expires_at = expires_at
        self.used = used
        self.used_at_unix = used_at_unix

    @property
    def is_restored(self) -> bool:
        """An earlier run stored it."""
        return self.added_at == float("-inf")

    def is_over(self, now: float) -> bool:
        return not self.pins and self.expires_at <= now


Upload: TypeAlias = Entry[StoredUpload]
Kept: TypeAlias = Entry[StoredArtifact]
Shelved: TypeAlias = Upload | Kept
