"""The queue of messages to be written as lines."""

from __future__ import annotations

from collections.abc import Callable


class Outbox:
    """Messages that wait to be written. Those queued while a write is under way leave together in the next one.

    Attributes:
        is_ended: nothing more will be queued.
        watcher: called when a message was queued, and at the end.
    """

    def __init__(self) -> None:
        self._messages: list[bytes] = []
        self._unreported_bytes = 0
        self.is_ended = False
        self.watcher: Callable[[], None] | None = None

    @property
    def is_empty(self) -> bool:
        return not self._messages

    def put(self, message: bytes, *, is_reported: bool = True) -> None:
        """Queues a message; after `end` it is dropped. Bytes of messages with `is_reported` False are not reported as
        sent: those that the owner did not order."""
        if not self.is_ended:
            self._messages.append(message)
            if not is_reported:
                self._unreported_bytes += len(message)
            if self.watcher is not None:
                self.watcher()

    def end(self) -> None:
        """Ends the queue. Messages that are queued are still written."""
        self.is_ended = True
        if self.watcher is not None:
            self.watcher()

    def take(self) -> tuple[list[bytes], int]:
        """Removes and returns the queued messages, and how many of their bytes are to be reported once written."""
        messages, size_bytes = self._messages, sum(map(len, self._messages)) - self._unreported_bytes
        self._messages, self._unreported_bytes = [], 0
        return messages, size_bytes
