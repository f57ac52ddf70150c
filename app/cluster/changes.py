"""The changes of shared records, which replicas and workers tell each other.

A replica publishes the key of each record that it has changed, and the others load it. A notice may be lost in three
ways, and each has its cure, so nothing is looked at at intervals:

- The connection of a subscriber was lost, or it did not keep up: the feed says `EVERYTHING`.
- A notice could not be published: `EVERYTHING` is published instead, until that has worked.
- A replica ended between a change and its notice: its lease ends, and the others look at everything.

A topic is `SENDER/KEY`. So a process does not load what it has written itself, also if another one writes it as well.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import anyio
from anyio.abc import TaskStatus
from anyio.lowlevel import checkpoint

from ...storage.interface import EVERYTHING, Notices, Records, StorageError
from ...storage.keys import KEY_SIZE_MAX
from ...storage.local_notices import local_notices
from ...storage.notices import Inbox
from ...storage.sqlite import SqliteRecords
from ..config.settings import Storage
from ..stores.stores import open_notices, open_records

BATCH_RECORDS: Final = 100
"""Records that are reported at a time while everything is looked at. They take the engine about 1 ms, for which nothing
else is done."""
START_TIMEOUT_S: Final = 5.0
"""Seconds that a start waits until everything was looked at, which takes half a second for ten thousand records. Lists
are incomplete for a while if it takes longer."""
RETRY_S: Final = 1.0
"""Seconds after which something that the store has refused is tried again."""

_EVERYTHING: Final = "everything"  # as a topic, which is written like a key
_SENDER_BYTES: Final = 8

Change = tuple[str, bytes | None]
"""The key of a record, and its value; None: there is no such record."""

_log = logging.getLogger("isthmus.cluster")


class Interest(NamedTuple):
    """The records that a part of this process wants to be told of.

    Attributes:
        kinds: the first segments of their keys.
        receive: called with changes that others have made. Any may come more than once, and in any order.
        scanned: the kinds of which all records are reported when notices may have been lost. The others are looked for
            when they are named.
        known: returns the keys that are known, so that those whose records are gone are reported then.
    """

    kinds: frozenset[str]
    receive: Callable[[list[Change]], None]
    scanned: tuple[str, ...]
    known: Callable[[], set[str]] = set


class Changes:
    """The feed of one process. Each interest has a task of its own, so none waits until another has read everything.

    Args:
        records: an opener for the feed alone, so that no order waits for it.
    """

    def __init__(self, records: Records, notices: Notices) -> None:
        self._records = records
        self._notices = notices
        self._sender = secrets.token_hex(_SENDER_BYTES)
        self._outbox = Inbox()
        self._inboxes: list[tuple[Interest, Inbox]] = []
        self._problems: set[str] = set()  # what fails now, as far as it was logged

    def announce(self, key: str) -> None:
        """Tells the other replicas that a record was changed. Returns at once. To be called after the change."""
        if len(self._sender) + 1 + len(key) <= KEY_SIZE_MAX:
            self._outbox.put(key)

    def look(self) -> None:
        """Looks at everything, as notices may have been lost."""
        for _, inbox in self._inboxes:
            inbox.put(EVERYTHING)

    async def run(
        self, interests: Sequence[Interest], *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Publishes and listens until it is cancelled. Says that it has started when each interest was told of all that
        it wants, or after `START_TIMEOUT_S`."""
        self._inboxes = [(interest, Inbox()) for interest in interests]
        told = [anyio.Event() for _ in interests]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._publish)
            for (interest, inbox), event in zip(self._inboxes, told, strict=True):
                tasks.start_soon(self._keep_told, interest, inbox, event)
            tasks.start_soon(self._listen)
            with anyio.move_on_after(START_TIMEOUT_S) as limit:
                for event in told:
                    await event.wait()
            if limit.cancelled_caught:
                _log.warning("what other replicas have stored is still being read: lists are incomplete until then")
            task_status.started()

    async def _publish(self) -> None:
        while True:
            key = await self._outbox.take()
            topic = f"{self._sender}/{_EVERYTHING if key == EVERYTHING else key}"
            try:
                await self._notices.publish(topic)
            except StorageError as error:
                self._note("other replicas cannot be told what was changed", error)
                self._outbox.put(EVERYTHING)
                await anyio.sleep(RETRY_S)
            else:
                self._note("other replicas cannot be told what was changed", None)

    async def _listen(self) -> None:
        async with self._notices.subscribe() as topics:
            async for topic in topics:
                sender, _, key = topic.partition("/")
                if topic == EVERYTHING or (key == _EVERYTHING and sender != self._sender):
                    self.look()
                elif sender != self._sender:
                    kind = key.partition("/")[0]
                    for interest, inbox in self._inboxes:
                        if kind in interest.kinds:
                            inbox.put(key)

    async def _keep_told(self, interest: Interest, inbox: Inbox, told: anyio.Event) -> None:
        while True:
            key = await inbox.take()
            try:
                if key == EVERYTHING:
                    await self._read_all(interest)
                    told.set()
                else:
                    record = await self._records.load(key)
                    _report(interest, [(key, None if record is None else record.value)])
            except StorageError as error:
                self._note("what other replicas have changed cannot be read", error)
                inbox.put(key)
                await anyio.sleep(RETRY_S)
            else:
                self._note("what other replicas have changed cannot be read", None)

    async def _read_all(self, interest: Interest) -> None:
        gone = interest.known()
        found: list[Change] = []
        for kind in interest.scanned:
            async for key, record in self._records.scan(f"{kind}/"):
                gone.discard(key)
                found.append((key, record.value))
                if len(found) == BATCH_RECORDS:
                    await _report_and_yield(interest, found)
                    found = []
        for key in gone:
            found.append((key, None))
            if len(found) >= BATCH_RECORDS:
                await _report_and_yield(interest, found)
                found = []
        _report(interest, found)

    def _note(self, what: str, error: StorageError | None) -> None:
        """Logs the first failure of several, and its end."""
        if error is not None and what not in self._problems:
            self._problems.add(what)
            _log.warning("%s: %s", what, error)
        elif error is None and what in self._problems:
            self._problems.discard(what)
            _log.warning("no longer: %s", what)


async def publish_once(notices: Notices, key: str) -> None:
    """Tells all replicas of a record that a process has changed which has no feed.

    Raises:
        StorageError: the store cannot be used.
    """
    await notices.publish(f"{secrets.token_hex(_SENDER_BYTES)}/{key}")


async def _report_and_yield(interest: Interest, changes: list[Change]) -> None:
    _report(interest, changes)
    await checkpoint()


def _report(interest: Interest, changes: Iterable[Change]) -> None:
    try:
        interest.receive(list(changes))
    except Exception:  # a defect met with one record must not end every session
        _log.exception("what other replicas have changed could not be taken in")


@asynccontextmanager
async def opened_changes(storage: Storage) -> AsyncIterator[Changes]:
    """Opens the feed of the shared records. It has two connections: one that listens, and one for all else.

    Raises:
        StorageError: the store cannot be used.
    """
    records = await open_records(storage, calls_max=1)
    try:
        yield Changes(records, open_notices(records))
    finally:
        with anyio.CancelScope(shield=True):
            await records.aclose()


@asynccontextmanager
async def changes_of_workers(records_path: str, folder: str, tag: str) -> AsyncIterator[Changes]:
    """Opens the feed of the records that the workers of one machine share.

    Args:
        records_path: the file of the records.
        folder: that of the sockets of all workers.
        tag: of this one.

    Raises:
        StorageError, OSError: the file or the folder cannot be used.
    """
    records = SqliteRecords(records_path)
    try:
        async with local_notices(folder, tag) as notices:
            yield Changes(records, notices)
    finally:
        with anyio.CancelScope(shield=True):
            await records.aclose()
