"""The judged definitions of the server of one link, and the reading of its lists for a use that comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..governance.pins import Finding
from .exchange import Exchange


class Reading:
    """The reading of the lists that a use goes by. Requests wait for its end.

    Attributes:
        kinds: the kinds of definitions that are still to be read, the present one first.
        pages: pages requested so far, in all.
        restarts: times that a list was begun anew, since it changed while it was read.
        cursor: the cursor of the page that was requested last, as JSON; None: the first page.
        number: the number of that request.
        found: what the pages of the present kind had.
        waiting: the requests that wait.
    """

    __slots__ = ("cursor", "found", "kinds", "number", "pages", "restarts", "waiting")

    def __init__(self, kinds: Sequence[str]) -> None:
        self.kinds = list(kinds)
        self.pages = self.restarts = self.number = 0
        self.cursor: bytes | None = None
        self.found: dict[str, Finding] = {}
        self.waiting: list[Exchange] = []

    def wait(self, exchange: Exchange) -> None:
        """Lets a request wait for the end."""
        self.waiting.append(exchange)

    def request(self, cursor: bytes | None, number: int) -> None:
        """Records the request of a page."""
        self.pages += 1
        self.cursor, self.number = cursor, number

    def receive_page(self, found: Mapping[str, Finding]) -> None:
        """Handles a page."""
        self.found |= found

    def restart(self) -> None:
        """Begins the present list anew."""
        self.restarts += 1
        self.found = {}

    def finish_kind(self) -> dict[str, Finding]:
        """Ends the present kind. Returns what was found of it."""
        found, self.found = self.found, {}
        self.kinds.pop(0)
        return found


class KnownDefinitions:
    """The knowledge of a server's definitions.

    Attributes:
        readings: the readings under way, by the kind of use: tools, prompts or resources.
    """

    __slots__ = ("_changed_at", "_failed_at", "_listed", "_whole_at", "readings")

    def __init__(self) -> None:
        self._listed: dict[str, dict[str, Finding]] = {}
        self._whole_at: dict[str, float] = {}
        self._failed_at: dict[str, float] = {}
        self._changed_at: dict[str, int] = {}
        self.readings: dict[str, Reading] = {}

    def find(self, kind: str, name: str) -> Finding | None:
        """Returns the judgment of a definition; None if the server has not listed it."""
        return self._listed.get(kind, {}).get(name)

    def listed(self, kind: str) -> Mapping[str, Finding]:
        """Returns all judgments of a kind, by name."""
        return self._listed.get(kind, {})

    def is_whole(self, kind: str, since: float) -> bool:
        """True if the whole list was read, not before `since`."""
        return kind in self._whole_at and self._whole_at[kind] >= since

    def has_failed(self, use: str, since: float) -> bool:
        """True if a reading for that kind of use failed, not before `since`."""
        return use in self._failed_at and self._failed_at[use] >= since

    def is_stale(self, kind: str, number: int) -> bool:
        """True if the list has changed since the request of that number was sent."""
        return number <= self._changed_at.get(kind, 0)

    def learn(
        self, kind: str, found: Mapping[str, Finding], *, is_whole: bool, number: int, now: float, count_max: int
    ) -> None:
        """Learns judgments. Those that came too late, or for which there is no room, are not learned."""
        known = self._listed.get(kind, {})
        if self.is_stale(kind, number) or len(found) + (0 if is_whole else len(known)) > count_max:
            return
        self._listed[kind] = dict(found) if is_whole else {**known, **found}
        if is_whole:
            self._whole_at[kind] = now

    def receive_change(self, kind: str, number: int) -> None:
        """Handles a change of a list: what was known of it holds no longer. `number` is that of the request that was
        sent last."""
        self._changed_at[kind] = number
        self._listed.pop(kind, None)
        self._whole_at.pop(kind, None)
        self._failed_at.clear()

    def begin(self, use: str, kinds: Sequence[str]) -> Reading:
        """Begins a reading."""
        self.readings[use] = reading = Reading(kinds)
        return reading

    def end(self, use: str, *, failed_at: float | None) -> Sequence[Exchange]:
        """Ends a reading. Returns the requests that waited."""
        if failed_at is not None:
            self._failed_at[use] = failed_at
        return self.readings.pop(use).waiting

    def receive_lost(self) -> Sequence[Exchange]:
        """Handles the loss of the server, whose next session may list anything. Returns the requests that waited."""
        waiting = [exchange for reading in self.readings.values() for exchange in reading.waiting]
        for table in (self._listed, self._whole_at, self._failed_at, self._changed_at, self.readings):
            table.clear()
        return waiting
