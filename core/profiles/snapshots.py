"""The lists of servers that outlast the proxy, as records in its storage.

A record is for one server, one list and one kind of clients, and for the configuration as it is: with another one, what
was stored is not found. It is read once, when the list is needed for the first time, and written when the list differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ..base.plan import Profile
from ..base.storage import Load, Loaded, Save, StorageAnswer
from ..state.context import Context
from ..state.storage_orders import StorageOrders
from .client_kind import ClientKind

SNAPSHOTS_MAX: Final = 4_096
"""Lists whose records are read or written in one run: clients choose what tells kinds apart. At it: others are not
stored."""
SNAPSHOT_MAX_BYTES: Final = 1024 * 1024
"""Bytes of the entries in one record. At it: the list is not stored."""
LIFE_S: Final = 7 * 86_400.0
"""Seconds that a record is kept after it was written."""

Found = Callable[["StoredList | None"], None]


class StoredList(msgspec.Struct, frozen=True):
    """The record of one list. Its field names are those of the storage, and must not change.

    Attributes:
        entries: the entries as clients see them, by name.
        raws: the server's own names, by those that clients see.
    """

    entries: dict[str, msgspec.Raw]
    raws: dict[str, str]


class Snapshots:
    """The stored lists of one profile. Those of a profile that keeps none are never found."""

    def __init__(self, context: Context, storage_orders: StorageOrders, profile: Profile) -> None:
        self._context = context
        self._storage_orders = storage_orders
        self._profile = profile
        self._seen: set[str] = set()

    def is_untried(self, kind: ClientKind, server: str, method: str) -> bool:
        """True if a list was neither read nor written in this run, and may be stored."""
        if not self._profile.keeps_lists or len(self._seen) >= SNAPSHOTS_MAX:
            return False
        return self._key(kind, server, method) not in self._seen

    def load(self, kind: ClientKind, server: str, method: str, then: Found) -> None:
        """Reads a list. `then` gets it, or None if it is not there or cannot be read."""
        key = self._key(kind, server, method)
        self._seen.add(key)

        def loaded(answer: StorageAnswer) -> None:
            value = answer.value if isinstance(answer, Loaded) else None
            try:
                then(None if value is None else msgspec.json.decode(value, type=StoredList))
            except msgspec.MsgspecError:
                then(None)

        self._storage_orders.order(lambda ticket: Load(ticket=ticket, key=key), loaded)

    def save(
        self, kind: ClientKind, server: str, method: str, entries: Mapping[str, bytes], raws: Mapping[str, str]
    ) -> None:
        """Writes a list."""
        key = self._key(kind, server, method)
        if not self._profile.keeps_lists or (key not in self._seen and len(self._seen) >= SNAPSHOTS_MAX):
            return
        if sum(map(len, entries.values())) > SNAPSHOT_MAX_BYTES:
            return
        self._seen.add(key)
        stored = StoredList({name: msgspec.Raw(entry) for name, entry in entries.items()}, dict(raws))
        value, expires_at_unix = msgspec.json.encode(stored), self._context.now_unix + LIFE_S
        self._storage_orders.order(
            lambda ticket: Save(ticket=ticket, key=key, value=value, expires_at_unix=expires_at_unix), lambda _: None
        )

    def _key(self, kind: ClientKind, server: str, method: str) -> str:
        parts = (self._context.plan.version, self._profile, self._context.servers[server], kind, method)
        digest = hashlib.blake2b(msgspec.json.encode(parts, order="deterministic"), digest_size=16).hexdigest()
        return f"list/{digest}"
