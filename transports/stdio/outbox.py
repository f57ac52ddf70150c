"""What an owner ordered to be sent as lines, until it is written."""

from __future__ import annotations

from collections.abc import Callable


class Outbox:
    """Messages on their way out. Those that gather while a write is under way leave together in the next one.

    Attributes:
        is_ended: nothing more will come.
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
        """Queue a message; after `end` it is dropped. Only what the owner ordered is reported to it as sent."""
        if not self.is_ended:
            self._messages.append(message)
            if not is_reported:
                self._unreported_bytes += len(message)
            if self.watcher is not None:
                self.watcher()

    def end(self) -> None:
        """Nothing more will come; what is queued still leaves."""
        self.is_ended = True
        if self.watcher is not None:
            self.watcher()

    def take(self) -> tuple[list[bytes], int]:
        """What is queued, and how many bytes of it are to be reported once they have left. It is empty now."""
        messages, size_bytes = self._messages, sum(map(len, self._messages)) - self._unreported_bytes
        self._messages, self._unreported_bytes = [], 0
        return messages, size_bytes
