"""The operator page that revokes the credentials of a caller: `POST /auth/revoke?name=PRINCIPAL`.

Revocations are kept in the records, beside what they protect: each is saved in one step and durable before it is
answered, and the storage has one format less than with a file of its own.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from ...core.access.gate import Gate
from ...core.access.identity import Identity
from ...core.access.revocations import Revocation
from ...core.base.errors import LocalProtocolError
from ...core.base.timestamps import format_time
from ...core.wire.http.error_responses import page_answer, page_error
from ...core.wire.http.routes import Refused
from ...storage.interface import Records, StorageError

KIND: Final = "revoked"
"""The first segment of the key of each record."""
PREFIX: Final = f"{KIND}/"

_audit: Final = logging.getLogger("isthmus.audit")
_log: Final = logging.getLogger("isthmus.server")


class RevocationPages:
    """The page under `/auth`.

    Args:
        gate: None: nobody is asked who they are.
        check_callers: ends the streams of those that the gate would not let in any more.
        announce: called with the key of each record that was saved or removed.
    """

    def __init__(
        self,
        gate: Gate | None,
        records: Records,
        check_callers: Callable[[], int],
        announce: Callable[[str], None] = lambda key: None,
    ) -> None:
        self._gate = gate
        self._records = records
        self._check_callers = check_callers
        self._announce = announce

    async def revoke(self, query: Mapping[str, str], operator: Identity) -> Refused:
        """Revokes the credentials of a caller, at once, and keeps that."""
        name = query.get("name", "")
        if self._gate is None:
            return page_error(409, "nobody is asked who they are here, so there is nothing to revoke: set auth")
        if set(query) != {"name"}:
            return page_error(400, f"got {len(query)} parameters, expected name, a caller as the audit log shows it")
        now = time.time()
        try:
            changed = self._gate.revoke(name, now)
        except LocalProtocolError as error:
            return page_error(404, str(error))
        self._check_callers()
        by = operator.principal or "a program of this machine"
        _audit.warning("revoked: what %s had until %s, by %s", name, format_time(now), by)
        try:
            for each in changed.saved:
                await self._records.save(_key(each), msgspec.json.encode(each))
                self._announce(_key(each))
            for each in changed.forgotten:
                await self._records.delete(_key(each))
        except StorageError as error:
            _audit.error("not stored: that %s is revoked, which ends with this process: %s", name, error)
            return page_error(500, f"{name[:200]} is revoked until isthmus ends: it could not be stored ({error})")
        body = {"name": name, "action": "revoke", "status": "success", "at": format_time(now)}
        return page_answer(200, msgspec.json.encode(body))

    def receive_records(self, records: Iterable[tuple[str, bytes | None]]) -> None:
        """Takes in what other processes have revoked. Nobody is let in again because a record was removed."""
        found = []
        for key, value in records:
            try:
                if value is not None:
                    found.append(_decode(key, value))
            except StorageError as error:
                _log.error("a revocation of another process is not in force here: %s", error)
        if self._gate is not None and self._gate.receive_revoked(found):
            self._check_callers()


async def stored_revocations(records: Records) -> list[Revocation]:
    """Returns the revocations of earlier runs.

    Raises:
        StorageError: one cannot be read. Nobody knows then whom it keeps out.
    """
    found = []
    async for key, record in records.scan(PREFIX):
        found.append(_decode(key, record.value))
    return found


def _decode(key: str, value: bytes) -> Revocation:
    try:
        return msgspec.json.decode(value, type=Revocation)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageError(f"the revocation {key} cannot be read: {error}") from error


def _key(revocation: Revocation) -> str:
    return PREFIX + hashlib.sha256(revocation.name.encode()).hexdigest()
