"""A stored file in memory: its record, the calls that use it, and its deadline."""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

from ...state.records import StoredArtifact, StoredUpload
from .owners import Account

R = TypeVar("R", StoredUpload, StoredArtifact)


class Entry(Generic[R]):
    """A stored file.

    Attributes:
        record: the record as it was last saved.
        account: the account that the file counts in.
        is_foreign: another replica stored the file and counts it, or an earlier run did.
        is_used_elsewhere: another replica has extended the upload.
        looked_at: when its record was last read, to see that.
        pins: number of calls that use the file. While there are any, it neither expires nor is evicted.
        expires_at: when the file goes, if no call uses it then.
        used: ordinal of the last use; the higher, the later.
        used_at_unix: wall time of the last use.
        added_at: when the file was added to the store; minus infinity if an earlier run stored it.
    """

    __slots__ = (
        "account",
        "added_at",
        "expires_at",
        "is_foreign",
        "is_used_elsewhere",
        "looked_at",
        "pins",
        "record",
        "used",
        "used_at_unix",
    )

    def __init__(
        self,
        record: R,
        account: Account,
        *,
        added_at: float,
        expires_at: float,
        used: int,
        used_at_unix: float,
        is_foreign: bool = False,
    ) -> None:
        self.record: R = record
        self.account = account
        self.is_foreign = is_foreign
        self.is_used_elsewhere = False
        self.looked_at = float("-inf")
        self.pins = 0
        self.added_at = added_at
        self.expires_at = expires_at
        self.used = used
        self.used_at_unix = used_at_unix

    @property
    def is_restored(self) -> bool:
        """True if an earlier run stored the file."""
        return self.added_at == float("-inf")

    def pin(self) -> None:
        """Records one more call that uses the file."""
        self.pins += 1

    def unpin(self) -> None:
        """Records the end of such a call."""
        assert self.pins > 0
        self.pins -= 1

    def use(self, ordinal: int, at_unix: float) -> None:
        """Records a use."""
        self.used, self.used_at_unix = ordinal, at_unix

    def extend(self, expires_at: float) -> None:
        """Moves the deadline; never to an earlier time."""
        self.expires_at = max(self.expires_at, expires_at)

    def look(self, now: float) -> None:
        """Notes that the record was read, to see whether another replica uses the upload."""
        self.looked_at = now

    def receive_use_elsewhere(self) -> None:
        """Notes that another replica has extended the upload."""
        self.is_used_elsewhere = True

    def replace_record(self, record: R) -> None:
        """Takes the record that is being saved in place of the last."""
        self.record = record

    def is_over(self, now: float) -> bool:
        """True if the file has expired and no call uses it."""
        return not self.pins and self.expires_at <= now


UploadEntry: TypeAlias = Entry[StoredUpload]
ArtifactEntry: TypeAlias = Entry[StoredArtifact]
StoredEntry: TypeAlias = UploadEntry | ArtifactEntry
