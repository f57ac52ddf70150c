"""The shares of this replica in the limits of stored files, which all replicas keep together (`base.shares`).

A replica counts the files that it has stored, until it learns that they are gone. Of a file of another replica it
counts nothing; if it extends one, it extends the share of the replica that counts it. So a file counts once, and for as
long as it exists, whichever replica is gone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

import msgspec

from ...base.shares import Limit
from ...state.context import Context
from ...state.shared_limits import SharedLimits
from ...state.storage_orders import StorageOrders
from .owners import ALL, Account

TIMER: Final = "file-share"
PREFIX: Final = "quota/files"
"""The record of all accounts together, and the beginning of the keys of the others."""
BLOCKS: Final = 64
"""Blocks of the limit for all: so a replica changes that record, which all replicas change, once for many files."""


class FileShares:
    """The shares in the limit of each account, and in that for all.

    Args:
        used: returns the bytes and the files of this replica, what is reserved included: those of an account as (bytes,
            uploads, artifacts), those of `ALL` as (bytes, files).
    """

    def __init__(
        self, context: Context, storage_orders: StorageOrders, used: Callable[[Account], tuple[int, ...]]
    ) -> None:
        self._context = context
        limits = context.limits
        all_limit = Limit((limits.storage_max_bytes, limits.stored_files_max), BLOCKS)
        own_limit = Limit(
            (limits.session_storage_max_bytes, limits.uploads_per_session_max, limits.artifacts_per_session_max)
        )

        def describe(account: Account) -> tuple[str, Limit]:
            return (PREFIX, all_limit) if account == ALL else (key_of(account), own_limit)

        self._limits: SharedLimits[Account] = SharedLimits(context, storage_orders, TIMER, describe, used)

    def __len__(self) -> int:
        return len(self._limits)

    def share(self, account: Account) -> tuple[int, ...]:
        """Returns how much this replica may store."""
        return self._limits.share(account)

    def claim(
        self, account: Account, size_bytes: int, uploads: int, artifacts: int, then: Callable[[str], None]
    ) -> None:
        """Gets shares with room for these files, as far as the limits allow. Calls `then` with the problem of the
        storage; "" if there is none."""
        until_unix = self._context.now_unix + life_s(self._context)
        own, of_all = (size_bytes, uploads, artifacts), (size_bytes, uploads + artifacts)
        self._limits.claim_each([(account, own), (ALL, of_all)], until_unix, then)

    def extend(self, account: Account, owner: str, until_unix: float, then: Callable[[str], None]) -> None:
        """Lets the shares of the replica `owner` last until then."""

        def extended(problem: str) -> None:
            if problem:
                then(problem)
            else:
                self._limits.extend(ALL, owner, until_unix, then)

        self._limits.extend(account, owner, until_unix, extended)

    def receive_less(self, account: Account) -> None:
        """Schedules giving back what is no longer used."""
        self._limits.receive_less(account)
        self._limits.receive_less(ALL)

    def handle_timeout(self, account: Account) -> None:
        self._limits.handle_timeout(account)


def life_s(context: Context) -> float:
    """Returns how long a file lives at least that is stored or used now."""
    limits = context.limits
    return max(limits.upload_ttl_s * (1 + SAVED_ANEW_AFTER), limits.artifact_ttl_s)


SAVED_ANEW_AFTER: Final = 0.25
"""Share of an upload's lifetime by which its saved deadline may lag behind. So much may be lost at a restart."""


def key_of(account: Account) -> str:
    """Returns the key of the record of an account."""
    return f"{PREFIX}/{hashlib.sha256(msgspec.json.encode(account)).hexdigest()[:32]}"
