"""The records that the live page and `isthmus tail` read, as JSON has them, and the bounded store that keeps them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from .wire_log import About

RECORDS_MAX: Final = 150_000
"""Records that are kept: 50,000 messages, and what is told of their requests. At it: the oldest are dropped."""
MESSAGES_MAX: Final = 50_000
"""Messages that are kept: some minutes of a busy proxy. At it: the oldest records are dropped."""
BODIES_MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the messages that are kept. At it: the oldest records are dropped."""


class Attempt(msgspec.Struct):
    """A request as it was sent to a server.

    Attributes:
        ms: milliseconds until the server answered; None if it has not.
        via: `pipe` or `http`.
    """

    server: str
    at: float
    ms: float | None
    channel: int | None
    number: int
    revision: str
    via: str


class Record(msgspec.Struct, kw_only=True):
    """A record. `n` is its number, which increases."""

    n: int = 0
    at: float = 0.0


class RequestRecord(Record, tag_field="type", tag="request", kw_only=True):
    """A request of a client, as it is now. It gets a new number each time it changes.

    Attributes:
        request: its name in all records.
        session: the tag of its session.
        id: the JSON of its JSON-RPC id.
        state: `open` or `over`.
        ms: milliseconds until its response.
        questions: the number of questions of servers in its course.
    """

    request: str
    session: str
    client: str
    principal: str
    server: str
    transport: str
    revision: str
    id: str
    method: str
    target: str
    state: str = "open"
    outcome: str = ""
    code: int | None = None
    ms: float | None = None
    request_bytes: int = 0
    response_bytes: int = 0
    attempts: list[Attempt] = []
    questions: int = 0


class MessageRecord(Record, tag_field="type", tag="message", kw_only=True):
    """A message on one leg.

    Attributes:
        leg: `client` or `server`.
        way: `in` if Isthmus received it, `out` if it sent it.
        kind: `request`, `response`, `notification` or `unreadable`.
        id: the JSON of its id; "" if it has none.
        request: the request of a client that it belongs to; "" if that is not known.
        bytes: its size.
        is_cut: only its beginning is kept.
    """

    leg: str
    way: str
    channel: int
    session: str
    server: str
    kind: str
    id: str
    method: str
    request: str = ""
    bytes: int
    is_cut: bool = False
    event_id: str = ""


class SessionRecord(Record, tag_field="type", tag="session", kw_only=True):
    """A session of a client, as it is now.

    Attributes:
        session: its tag.
        state: `open` or `over`, with the `reason`.
    """

    session: str
    client: str
    principal: str
    server: str
    transport: str
    revision: str
    state: str = "open"
    reason: str = ""
    requests: int = 0
    open_requests: int = 0
    ended_at: float | None = None


class StderrRecord(Record, tag_field="type", tag="stderr", kw_only=True):
    """A line that a process of a server wrote to stderr."""

    server: str
    text: str


class NoteRecord(Record, tag_field="type", tag="note", kw_only=True):
    """A line of the log about a server."""

    level: str
    server: str
    text: str


AnyRecord = RequestRecord | MessageRecord | SessionRecord | StderrRecord | NoteRecord


class Kept(NamedTuple):
    """A message as it crossed, with its secrets. Only `Watching.message` reads it.

    Attributes:
        data: its bytes, or its beginning.
        about: the head of the HTTP request or response that it came with.
        sha256: the digest of the whole message, if `data` is not that; empty if it is, or is not known.
    """

    data: bytes
    about: About
    sha256: bytes


class Records:
    """The records that are kept, by number.

    Attributes:
        last: the number of the newest record.
        message_count: the messages that are kept.
        body_bytes: their bytes.
    """

    def __init__(self) -> None:
        self.last = 0
        self.message_count = 0
        self.body_bytes = 0
        self._numbers: list[int] = []
        self._records: list[AnyRecord] = []
        self._start = 0  # places before it are empty
        self._bodies: dict[int, tuple[MessageRecord, Kept]] = {}

    def __len__(self) -> int:
        return len(self._numbers) - self._start

    def add(self, record: AnyRecord, kept: Kept | None = None) -> None:
        """Adds a record, or a changed one once more, under the next number."""
        self.last += 1
        record.n = self.last
        self._numbers.append(self.last)
        self._records.append(record)
        if isinstance(record, MessageRecord):
            self.message_count += 1
            if kept is not None:
                self._bodies[self.last] = record, kept
                self.body_bytes += len(kept.data)
        while len(self) > 1 and (
            len(self) > RECORDS_MAX or self.message_count > MESSAGES_MAX or self.body_bytes > BODIES_MAX_BYTES
        ):
            self._drop()

    def skip(self, count: int) -> None:
        """Leaves out numbers: so many records were lost."""
        self.last += count

    def after(self, number: int, count: int) -> Iterator[AnyRecord]:
        """Yields the records after a number, the oldest first, at most `count`. One that has changed since comes at its
        latest place only."""
        at = max(self._start, bisect_right(self._numbers, number, self._start))
        left = count
        while left and at < len(self._numbers):
            record = self._records[at]
            if record.n == self._numbers[at]:
                left -= 1
                yield record
            at += 1

    @property
    def first(self) -> int:
        """The number of the oldest record; one after the newest if there are none."""
        return self._numbers[self._start] if len(self) else self.last + 1

    def message(self, number: int) -> tuple[MessageRecord, Kept] | None:
        """Returns a message as it crossed; None if it is not kept."""
        return self._bodies.get(number)

    def _drop(self) -> None:
        number, record = self._numbers[self._start], self._records[self._start]
        self._records[self._start] = _GONE
        self._start += 1
        if isinstance(record, MessageRecord):
            self.message_count -= 1
        if (found := self._bodies.pop(number, None)) is not None:
            self.body_bytes -= len(found[1].data)
        if self._start * 2 > len(self._numbers) > 1000:
            del self._numbers[: self._start], self._records[: self._start]
            self._start = 0


_GONE: Final = NoteRecord(level="", server="", text="")
