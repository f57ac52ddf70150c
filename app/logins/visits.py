"""The visits of browsers to `/connect` that are under way, in the records: any replica or worker goes on with them.

A visit is found by the hash of a cookie, is sealed, and expires. It is taken by compare-and-swap before anything of it
is used, so it goes on once, wherever its browser comes back to.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable
from typing import Final

import msgspec

from ...core.connect.connection import OpenVisit
from ...storage.interface import Records, StorageError, VersionConflict
from .leases import ENDED_UNIX
from .sealing import Cipher, StoreError, UnreadableRecord

VISITS_MAX: Final = 1000
"""Visits under way that this process has kept last. At it: the oldest is forgotten, and its person opens the link
again."""
VISIT_TTL_S: Final = 600.0
"""Seconds for a person to log in at both places. Providers forget a login after 5 to 15 minutes."""
KIND: Final = "visit"
_COOKIE_BYTES: Final = 32


class Visit(msgspec.Struct, frozen=True):
    """A visit under way. It has secrets in it.

    Attributes:
        scopes: those to ask for beside the ones of the settings, separated by spaces.
        present: the principal of its first request; "": the gate did not know it.
        ends_at_unix: on the clock of the records.
    """

    open: OpenVisit
    scopes: str
    present: str
    ends_at_unix: float

    def __repr__(self) -> str:
        return f"Visit({self.open!r}, …)"


class Visits:
    """The visits.

    Args:
        records: those of all replicas or workers.
        key: a secret of this gateway, the same in all its replicas.
    """

    def __init__(self, records: Records, key: bytes, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._records = records
        self._key = hmac.digest(key, b"isthmus visits", "sha256")
        self._entropy = entropy
        self._kept: dict[str, None] = {}  # the keys of those that were kept here, the oldest first

    def new_cookie(self) -> str:
        """Returns a new cookie."""
        return self._entropy(_COOKIE_BYTES).hex()

    async def end_of_new(self) -> float:
        """Returns when a visit ends that begins now.

        Raises:
            StoreError: the records cannot be used.
        """
        try:
            return await self._records.now_unix() + VISIT_TTL_S
        except StorageError as error:
            raise _unusable(error) from None

    async def keep(self, cookie: str, visit: Visit) -> None:
        """Keeps a visit until its browser comes back with the cookie.

        Raises:
            StoreError: the records cannot be used, or the package for sealing is not installed.
        """
        key = _key_of(cookie)
        sealed = Cipher(self._key, "core.link_keys").seal(msgspec.json.encode(visit), key)
        try:
            await self._make_room(key)
            await self._records.save(key, sealed, expires_at_unix=visit.ends_at_unix, if_version=0)
        except VersionConflict:
            raise StoreError("another visit has the same cookie") from None
        except StorageError as error:
            raise _unusable(error) from None

    async def take(self, cookie: str) -> Visit | None:
        """Takes a visit out of the records. Returns None if there is none with this cookie, or it was taken already.

        Raises:
            StoreError: the records cannot be used, or the package for sealing is not installed.
        """
        key = _key_of(cookie)
        try:
            found = await self._records.load(key)
            if found is None:
                return None
            await self._records.save(key, b"", expires_at_unix=ENDED_UNIX, if_version=found.version)
        except VersionConflict:
            return None
        except StorageError as error:
            raise _unusable(error) from None
        self._kept.pop(key, None)
        try:
            return msgspec.json.decode(Cipher(self._key, "core.link_keys").open(found.value, key), type=Visit)
        except (UnreadableRecord, msgspec.DecodeError):
            return None  # of another key or release

    async def _make_room(self, key: str) -> None:
        self._kept[key] = None
        if len(self._kept) > VISITS_MAX:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            await self._records.delete(oldest)


def _key_of(cookie: str) -> str:
    return f"{KIND}/{hashlib.sha256(cookie.encode()).hexdigest()}"


def _unusable(error: StorageError) -> StoreError:
    return StoreError(f"visits cannot be kept: {error}")
