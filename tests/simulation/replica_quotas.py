"""The quotas that all replicas keep together, checked at the storage: what is granted, what is stored, what is left.

A replica may use its share until that ends on its own clock, whatever has happened to the record meanwhile. So the
record must name each share that may still be used, and all of those together are at most the limit. What a replica has
stored is at most its share, and is over no later than that.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from isthmus.core.base.effects import Effect
from isthmus.core.base.storage import Forget, Save
from simulated_network import Wrong

if TYPE_CHECKING:
    from isthmus.core.base.limits import Limits

PREFIX: Final = "quota/"
FILES: Final = "quota/files"
TASKS: Final = "quota/tasks"
PRINCIPALS: Final = ("", "ann", "bob")
BLOCKS: Final = 64
"""A replica may keep this part of a limit of all without using it."""
CANCELLED: Final = b'"status":"cancelled"'
ROUNDING_S: Final = 1.0

Amounts = tuple[int, ...]


class Granted(NamedTuple):
    """The amounts that a replica may use, and the end of that."""

    amounts: Amounts
    until_unix: float


class Entry(NamedTuple):
    """A stored file or task.

    Attributes:
        owner: the replica that has stored it, which counts it.
        uses: what it uses, by the key of each quota.
    """

    owner: str
    uses: dict[str, Amounts]
    until_unix: float


class Quotas:
    """The quotas of a world.

    Args:
        skew_s: the most by which the clock of a replica differs from that of the world.
    """

    def __init__(self, limits: Limits, skew_s: float) -> None:
        self._limits = limits
        self._skew_s = skew_s
        self._payers = {_hash(name.encode()) for name in PRINCIPALS}
        self._granted: dict[str, dict[str, Granted]] = {}
        self._entries: dict[str, Entry] = {}
        self._removed: set[str] = set()

    def receive_saved(self, order: Save, writer: str, now_unix: float) -> None:
        """Checks a record that the replica `writer` has written."""
        if order.key.startswith(PREFIX):
            self._grant(order.key, _shares(order.value), writer, now_unix)
        elif order.key.startswith(("upload/", "artifact/", "task/")) and order.key not in self._removed:
            owner = self._entries[order.key].owner if order.key in self._entries else writer
            entry = Entry(owner, _uses(order.key, json.loads(order.value)), order.expires_at_unix or 0.0)
            self._entries[order.key] = entry
            for quota in entry.uses:
                self._check_use(quota, owner, now_unix)
                share = self._granted[quota][owner]
                if share.until_unix < entry.until_unix - ROUNDING_S:
                    raise Wrong(f"{share}, of {owner} in {quota}, ends before {order.key} of {entry}")

    def receive_order(self, order: Effect) -> None:
        """Notes that a replica removes a record, or saves that a task is cancelled which was not saved before, so that
        nobody was told of it. What the record was for is not counted from now on, whenever the order takes effect."""
        if isinstance(order, Save):
            is_over = order.key.startswith("task/") and order.if_version == 0 and CANCELLED in order.value
        else:
            is_over = isinstance(order, Forget)
        if is_over:
            self._removed.add(order.key)
            self._entries.pop(order.key, None)

    def receive_failed(self, key: str) -> None:
        """Notes that a record could not be saved. Nobody counts a new one, even if it is saved late."""
        if key not in self._entries:
            self._removed.add(key)

    def check_returned(self, records: dict[str, bytes], owners: set[str], now_unix: float) -> None:
        """Checks that replicas keep nothing but a block of each limit of all, once nothing is used any more."""
        for key in [key for key in records if key.startswith(PREFIX)]:
            is_account = key.startswith(f"{FILES}/")
            spare = tuple(0 if is_account else max(1, limit // BLOCKS) for limit in self._limit(key))
            for owner, share in _shares(records[key]).items():
                is_used = owner in owners and share.until_unix > now_unix
                if is_used and any(amount > one for amount, one in zip(share.amounts, spare, strict=True)):
                    raise Wrong(f"{owner} keeps {share} in {key}, and uses nothing")

    # --- Checks -----------------------------------------------------------------------------------------------------

    def _grant(self, key: str, shares: dict[str, Granted], writer: str, now_unix: float) -> None:
        ended_unix = now_unix - self._skew_s
        for owner, before in self._granted.get(key, {}).items():
            now = shares.get(owner)
            is_less = now is None or now.amounts != before.amounts or now.until_unix < before.until_unix
            if owner != writer and is_less and before.until_unix >= ended_unix:
                raise Wrong(f"{writer} makes {now} of {before}, which {owner} has in {key}")
        self._granted[key] = shares
        used = [share.amounts for share in shares.values() if share.until_unix >= ended_unix]
        total, limit = tuple(map(sum, zip(*used, strict=True))), self._limit(key)
        if any(amount > most for amount, most in zip(total, limit, strict=False)):
            raise Wrong(f"{total} is granted in {key}, and the limit is {limit}: {shares}")
        self._check_use(key, writer, now_unix)

    def _check_use(self, key: str, owner: str, now_unix: float) -> None:
        share = self._granted.get(key, {}).get(owner)
        entries = [entry for entry in self._entries.values() if entry.owner == owner and key in entry.uses]
        used = [entry.uses[key] for entry in entries if entry.until_unix > now_unix + self._skew_s]
        total = tuple(map(sum, zip(*used, strict=True)))
        if used and (share is None or any(amount > most for amount, most in zip(total, share.amounts, strict=True))):
            raise Wrong(f"{owner} has stored {total}, and its share in {key} is {share}")

    def _limit(self, key: str) -> Amounts:
        limits, name = self._limits, key.rpartition("/")[2]
        if key == FILES:
            return limits.storage_max_bytes, limits.stored_files_max
        if key == TASKS:
            return (limits.tasks_max,)
        if key.startswith(FILES):
            files = limits.uploads_per_session_max, limits.artifacts_per_session_max
            return (limits.session_storage_max_bytes, *files)
        return (limits.tasks_per_principal_max if name in self._payers else limits.tasks_per_session_max,)


def _shares(value: bytes) -> dict[str, Granted]:
    return {owner: Granted(tuple(one["amounts"]), one["until_unix"]) for owner, one in json.loads(value).items()}


def _uses(key: str, record: dict[str, Any]) -> dict[str, Amounts]:
    if key.startswith("task/"):
        return {TASKS: (1,), f"{TASKS}/{record['payer']}": (1,)}
    principal, size_bytes, is_upload = record["principal"], record["size_bytes"], key.startswith("upload/")
    account = [principal, "" if principal else record["sid"]]
    of_account = f"{FILES}/{_hash(json.dumps(account, separators=(',', ':')).encode())}"
    return {FILES: (size_bytes, 1), of_account: (size_bytes, int(is_upload), int(not is_upload))}


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
