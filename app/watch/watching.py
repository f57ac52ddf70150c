"""Watches an engine while somebody looks: attaches the wire log, and makes records of what it holds."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import anyio
from anyio.abc import TaskStatus

from ...core.bulk import BulkEngine
from .digest import Digest
from .records import AnyRecord, MessageRecord, Records, SessionRecord
from .redaction import Redactor
from .wire_log import SESSION_HEADER, WireLog, head_of

PAUSE_S: Final = 0.05
"""Seconds that entries wait to be read together: people do not see the difference, and a burst costs less."""
AT_ONCE: Final = 200
"""Entries that are read before other work has its turn: some three milliseconds."""
OTHERS_SHARE: Final = 6
"""Times as long as entries are read, other work has its turn: at 3,000 calls a second, some entries are dropped rather
than calls slowed down."""
KEEP_S: Final = 60.0
"""Seconds after the last question of a page in which everything is still logged: the page may be loaded anew."""
WAIT_MAX_S: Final = 25.0
"""Seconds that a question for news waits at most: shorter than proxies and browsers wait."""


class Body(NamedTuple):
    """The bytes of a message, without its secrets.

    Attributes:
        headers: those of its HTTP request or response, as pairs.
        redacted: the names of the members whose values were replaced.
        sha256: of the whole message; empty if it was passed on in parts.
    """

    data: bytes
    headers: list[tuple[str, str]]
    status: int | None
    redacted: tuple[str, ...]
    sha256: bytes


class Watching:
    """The records of one engine.

    Args:
        keeps: log from the start, whether anybody looks or not.

    Attributes:
        run_id: differs after each start.
    """

    def __init__(self, engine: BulkEngine, redactor: Redactor, *, has_bodies: bool, keeps: bool):
        self.run_id = secrets.token_hex(6)
        self.records = Records()
        self.has_bodies = has_bodies
        self._redactor = redactor
        self._keeps = keeps
        self._log = WireLog(engine, _wall_clock(), self._wake)
        self._digest = self._new_digest()
        self._news = anyio.Event()  # entries wait to be read
        self._changed = anyio.Event()  # there are new records
        self._looked_at = anyio.current_time()
        if keeps:
            self._log.attach()

    def _new_digest(self) -> Digest:
        return Digest(self.records, self._redactor, has_bodies=self.has_bodies)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Reads what is logged, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stop_unseen)
            task_status.started()
            while True:
                await self._news.wait()
                self._news = anyio.Event()
                await anyio.sleep(PAUSE_S)
                has_more = True
                while has_more:
                    entries, dropped = self._log.take(AT_ONCE)
                    has_more = len(entries) >= AT_ONCE
                    begun = time.thread_time()  # which does not count what other processes take
                    self._digest.add(entries, dropped)
                    changed, self._changed = self._changed, anyio.Event()
                    changed.set()
                    await anyio.sleep((time.thread_time() - begun) * OTHERS_SHARE)

    async def _stop_unseen(self) -> None:
        while not self._keeps:
            await anyio.sleep(KEEP_S)
            if self._log.is_attached and anyio.current_time() - self._looked_at >= KEEP_S:
                self._log.detach()

    def look(self) -> None:
        """Logs from now on, as somebody looks."""
        self._looked_at = anyio.current_time()
        if not self._log.is_attached:
            self._digest.forget_open()
            self._digest = self._new_digest()
            self._log.attach()

    def note(self, level: str, server: str, text: str) -> None:
        """Adds a line about a server, if somebody looks."""
        self._log.note(level, server, text)

    async def after(self, number: int, count: int, wait_s: float) -> list[AnyRecord]:
        """Returns the records after a number, at most `count`; if there are none, waits for some."""
        self.look()
        with anyio.move_on_after(wait_s):
            while not (found := list(self.records.after(number, count))):
                await self._changed.wait()
            return found
        return []

    def message(self, number: int) -> tuple[MessageRecord, Body] | None:
        """Returns a message without its secrets; None if it is not kept."""
        found = self.records.message(number)
        if found is None:
            return None
        record, kept = found
        shown, (status, headers) = self._redactor.redact(kept.data), head_of(kept.about)
        sha256 = kept.sha256 or (b"" if record.is_cut else hashlib.sha256(kept.data).digest())
        safe = self._redactor.headers(headers)
        if record.leg == "client":  # with the tag that all records have
            safe = [(name, record.session if name == SESSION_HEADER else value) for name, value in safe]
        return record, Body(shown.body, safe, status, shown.members, sha256)

    def sessions(self) -> list[SessionRecord]:
        """Returns the sessions that are open, and those that ended last."""
        self.look()
        return self._digest.sessions()

    def _wake(self) -> None:
        self._news.set()


def _wall_clock() -> Callable[[], float]:
    """Returns a clock that begins with the wall time, and never runs backwards."""
    unix_at_zero = time.time() - time.monotonic()
    return lambda: unix_at_zero + time.monotonic()
