"""Feeds of changes: what the backends of `Notices` have in common, and the feed within one process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from anyio import CapacityLimiter, Event, create_task_group, sleep, to_thread

from .interface import EVERYTHING, StorageError
from .keys import check_key

TOPICS_MAX: Final = 1000
"""Topics that wait for a subscriber, at most, each once. One more becomes `EVERYTHING`: looking at everything is then
the cheaper way to catch up."""
STEP_S: Final = 0.5
"""Seconds that a worker thread listens at a time. A subscriber that leaves waits for the end of one step."""
RECONNECT_S: Final = 1.0
"""Seconds between two attempts to reach a store that was lost."""
SILENCE_MAX_S: Final = 30.0
"""Seconds without a notice after which a listener asks whether the store is still there."""


class Inbox:
    """The topics that one subscriber has not taken yet, in the order of their arrival."""

    def __init__(self) -> None:
        self._topics: dict[str, None] = {}
        self._has_more = Event()

    @property
    def is_empty(self) -> bool:
        return not self._topics

    def put(self, topic: str) -> None:
        if EVERYTHING in self._topics:
            return
        if topic == EVERYTHING or (topic not in self._topics and len(self._topics) >= TOPICS_MAX):
            self._topics = {EVERYTHING: None}
        else:
            self._topics[topic] = None
        self._has_more.set()

    async def take(self) -> str:
        while not self._topics:
            self._has_more = Event()
            await self._has_more.wait()
        topic = next(iter(self._topics))
        del self._topics[topic]
        return topic

    async def topics(self) -> AsyncIterator[str]:
        while True:
            yield await self.take()


class MemoryNotices:
    """Notices within one process, for stores with one opener. See `Notices`.

    With it a subscriber need not know whether its store is shared. It loses nothing while the subscriber keeps up.
    """

    def __init__(self) -> None:
        self._inboxes: set[Inbox] = set()

    async def publish(self, topic: str) -> None:
        check_key(topic)
        for inbox in self._inboxes:
            inbox.put(topic)

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator[AsyncIterator[str]]:
        inbox = Inbox()
        inbox.put(EVERYTHING)
        self._inboxes.add(inbox)
        try:
            yield inbox.topics()
        finally:
            self._inboxes.discard(inbox)


class Listener(Protocol):
    """A connection to a store that listens. All methods block, and are called one at a time."""

    def read(self, timeout_s: float) -> list[str]:
        """Returns the topics that have arrived; none after `timeout_s` seconds.

        Raises:
            StorageError: the connection is lost.
        """

    def ask(self) -> None:
        """Asks the store for a sign of life.

        Raises:
            StorageError: the connection is lost.
        """

    def close(self) -> None:
        """Closes the connection, whatever has become of it."""


@asynccontextmanager
async def listen(connect: Callable[[], Listener]) -> AsyncIterator[AsyncIterator[str]]:
    """Listens in a task of its own, so that a subscriber that takes its time does not hold up the store.

    Args:
        connect: returns a connection that listens already; blocks, and raises `StorageError`.
    """
    inbox, failure = Inbox(), None
    async with create_task_group() as tasks:
        tasks.start_soon(_keep_listening, connect, inbox)
        try:
            yield inbox.topics()
        except Exception as error:  # raised below, as the group would wrap it
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _keep_listening(connect: Callable[[], Listener], inbox: Inbox) -> None:
    thread = CapacityLimiter(1)
    while True:
        try:
            listener = await to_thread.run_sync(connect, limiter=thread)
            try:
                inbox.put(EVERYTHING)
                await _read(listener, inbox, thread)
            finally:
                listener.close()
        except StorageError:
            await sleep(RECONNECT_S)


async def _read(listener: Listener, inbox: Inbox, thread: CapacityLimiter) -> None:
    silent_s = 0.0
    while True:
        topics = await to_thread.run_sync(listener.read, STEP_S, limiter=thread)
        for topic in topics:
            inbox.put(topic)
        silent_s = 0.0 if topics else silent_s + STEP_S
        if silent_s >= SILENCE_MAX_S:
            await to_thread.run_sync(listener.ask, limiter=thread)
            silent_s = 0.0
