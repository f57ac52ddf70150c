"""The events of the live page's API, and the feed that asks for those that are new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

import msgspec

from ..commands.http_client import READ_TIMEOUT_S, Isthmus

LOOK_BACK: Final = 20_000
"""The last records that are looked through at the start: those of some thousand requests. The gateway sends them in
less than a second."""
_T = TypeVar("_T")
_END: Final = 2**53
"""A number after that of every record."""


class Attempt(msgspec.Struct):
    """A request as it was sent to a server."""

    server: str = ""


class Event(msgspec.Struct):
    """An event. Its fields are those of all types; what a type has not, or a later version has in addition, is left
    out."""

    n: int
    type: str
    at: float = 0.0
    request: str = ""
    session: str = ""
    client: str = ""
    principal: str = ""
    server: str = ""
    transport: str = ""
    revision: str = ""
    id: str = ""
    method: str = ""
    target: str = ""
    state: str = ""
    outcome: str = ""
    code: int | None = None
    ms: float | None = None
    request_bytes: int = 0
    response_bytes: int = 0
    attempts: list[Attempt] = []
    requests: int = 0
    open_requests: int = 0
    leg: str = ""
    way: str = ""
    kind: str = ""
    bytes: int = 0
    level: str = ""
    text: str = ""


class _Answer(msgspec.Struct):
    run: str
    last: int
    skipped: int
    events: list[msgspec.Raw]


class _Sessions(msgspec.Struct):
    sessions: list[Event]


_ANSWER: Final = msgspec.json.Decoder(_Answer)
_EVENT: Final = msgspec.json.Decoder(Event)
_SESSIONS: Final = msgspec.json.Decoder(_Sessions)


class News(NamedTuple):
    """New events.

    Attributes:
        raw: the events as they were sent, in the same order.
        skipped: the number of records before them that the gateway had dropped.
        is_new_run: the gateway has started anew. Its events begin with the next news.
        is_last: there were no more of them.
    """

    events: list[Event]
    raw: list[msgspec.Raw]
    skipped: int = 0
    is_new_run: bool = False
    is_last: bool = False


class Feed:
    """The events of a running isthmus.

    Args:
        find: returns the isthmus, with the token to present: another one if it was started anew.
        timeout_s: seconds to wait for a response beyond those that it may take.
    """

    def __init__(self, find: Callable[[], Isthmus], timeout_s: float = READ_TIMEOUT_S) -> None:
        self._find = find
        self._timeout_s = timeout_s
        self._run = ""
        self._after = 0
        self._first = 0  # what is skipped before it is none of ours
        self.isthmus = find()

    def begin(self, look_back: int = LOOK_BACK) -> None:
        """Goes to the end, and back by so many records.

        Raises:
            Failed: the isthmus does not answer, or has no live page.
        """
        answer = self._ask(_END, 0)
        self._run = answer.run
        self._first = answer.last
        self._after = max(0, answer.last - look_back)

    def find_again(self) -> None:
        """Finds the isthmus anew, after it was lost."""
        self.isthmus = self._find()

    def sessions(self) -> list[Event]:
        """Returns the sessions that are open, and those that ended last.

        Raises:
            Failed: as `next`.
        """
        return self._decoded(_SESSIONS, self.isthmus.body("GET", "/ui/api/sessions", self._timeout_s)).sessions

    def next(self, wait_s: float = 0) -> News:
        """Returns the next events; none if there are none within `wait_s`.

        Raises:
            Failed: the isthmus does not answer (`Unreachable`), or not as one.
        """
        answer = self._ask(self._after, wait_s)
        if answer.run != self._run:
            self._run, self._after, self._first = answer.run, 0, 0
            return News([], [], is_new_run=True)
        skipped = answer.skipped if self._after >= self._first else 0
        events = [self._decoded(_EVENT, raw) for raw in answer.events]
        if events:
            self._after = events[-1].n
        is_last = not events or self._after >= answer.last
        if is_last:
            self._first = 0
        return News(events, answer.events, skipped, is_last=is_last)

    def _ask(self, after: int, wait_s: float) -> _Answer:
        path = f"/ui/api/events?after={after}&wait={wait_s:g}"
        return self._decoded(_ANSWER, self.isthmus.body("GET", path, wait_s + self._timeout_s))

    def _decoded(self, decoder: msgspec.json.Decoder[_T], body: bytes | msgspec.Raw) -> _T:
        try:
            return decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise self.isthmus.no_isthmus("it sends no events") from None
