"""`isthmus tail`: follows what crosses a running isthmus.

The events are asked for, so a slow terminal only makes this process ask later: the gateway keeps a bounded number, and
says how many it has dropped.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from ..base import output
from ..commands.http_client import Unreachable
from .events import Event, Feed, News
from .filter import Test
from .lines import KNOWN_MAX, Known, line_of

WAIT_S: Final = 5.0
"""Seconds that a question for news waits. Shorter than the gateway allows: between two, a closed stdout is noticed."""
PAUSE_S: Final = 0.1
"""Seconds between two questions while there is news: people do not see the difference, and a burst costs less."""
RETRY_S: Final = 1.0
"""Seconds between two attempts to reach a gateway that is lost."""
UNSEEN_S: Final = 60.0
"""Seconds without a question after which a gateway that does not keep records for everybody stops."""


class Wanted(NamedTuple):
    """The events that are shown.

    Attributes:
        opens: requests also when they start.
        messages: each JSON-RPC message.
        stderr: lines of servers, and of the gateway about them.
    """

    test: Test
    opens: bool
    messages: bool
    stderr: bool
    as_json: bool


class Tail:
    """The lines of a feed.

    Args:
        say: prints the lines of a portion of news.
        complain: tells what is no line: a gap, a lost connection.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        feed: Feed,
        wanted: Wanted,
        *,
        say: Callable[[Event, msgspec.Raw, dict[str, object]], None],
        complain: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._feed = feed
        self._wanted = wanted
        self._say = say
        self._complain = complain
        self._sleep = sleep
        self._clock = clock
        self._known = Known()
        self._opened: dict[str, None] = {}  # requests whose start was shown

    def begin(self, count: int) -> None:
        """Shows the last lines, at most `count`.

        Raises:
            Failed: the isthmus does not answer, or has no live page.
        """
        self._feed.begin(*([] if count else [0]))
        self._known.learn(self._feed.sessions())
        last: deque[tuple[Event, msgspec.Raw, dict[str, object]]] = deque(maxlen=count)
        while count:
            news = self._feed.next()
            last.extend(self._shown(news))
            if news.is_last or news.is_new_run:
                break
        for each in last:
            self._say(*each)

    def follow(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Shows lines as they come, for as long as they are wanted.

        Raises:
            Failed: what answers is no isthmus any more, or does not take the token.
            OutputClosed: stdout cannot be written.
        """
        asked_at = self._clock()
        while is_wanted():
            if self._clock() - asked_at > UNSEEN_S:
                self._complain("nothing was asked for a minute, so the gateway may have stopped to record")
            news = self._next()
            asked_at = self._clock()
            if news.is_new_run:
                self._complain("the gateway has started anew")
                self._known = Known()
                continue
            if news.skipped:
                self._complain(f"{news.skipped} skipped: the gateway has dropped so many records before they were read")
            for each in self._shown(news):
                self._say(*each)
            if news.events and news.is_last:
                self._sleep(PAUSE_S)

    def _next(self) -> News:
        """Returns news, from a gateway that is reached again if it was lost."""
        is_lost = False
        while True:
            try:
                news = self._feed.next(0 if is_lost else WAIT_S)
            except Unreachable as error:
                if not is_lost:
                    self._complain(f"{error}; trying again every {RETRY_S:g} s")
                is_lost = True
                self._sleep(RETRY_S)
                self._feed.find_again()
                continue
            if is_lost:
                self._complain("connected again")
            return news

    def _shown(self, news: News) -> Iterator[tuple[Event, msgspec.Raw, dict[str, object]]]:
        self._known.learn(news.events)
        for event, raw in zip(news.events, news.raw, strict=True):
            row = self._known.row(event)
            if self._is_of_wanted_type(event) and self._wanted.test(row):
                yield event, raw, row

    def _is_of_wanted_type(self, event: Event) -> bool:
        match event.type:
            case "request" if event.state == "open":
                return self._wanted.opens and self._is_first(event.request)
            case "request":
                self._opened.pop(event.request, None)
                return True
            case "message":
                return self._wanted.messages
            case "stderr" | "note":
                return self._wanted.stderr
        return False

    def _is_first(self, request: str) -> bool:
        """True if the start of the request was not shown yet: it is sent anew when something about it changes."""
        if request in self._opened:
            return False
        self._opened[request] = None
        if len(self._opened) > KNOWN_MAX:
            del self._opened[next(iter(self._opened))]
        return True


def tail(feed: Feed, wanted: Wanted, lines: int, complain: Callable[[str], None]) -> None:
    """Follows a feed on stdout, until nobody reads that any more.

    Args:
        lines: the number of lines before the present ones that are shown first.

    Raises:
        Failed: as `Tail`.
        OutputClosed: stdout cannot be written, though somebody reads it.
    """
    following = Tail(feed, wanted, say=_say_json if wanted.as_json else _say, complain=complain)
    try:
        following.begin(lines)
        following.follow(output.has_reader)
    except output.OutputClosed as error:
        if not isinstance(error.__cause__, BrokenPipeError):
            raise


def _say(event: Event, raw: msgspec.Raw, row: dict[str, object]) -> None:
    line = line_of(event, row)
    output.say(line.text, lambda _: line.painted)


def _say_json(event: Event, raw: msgspec.Raw, row: dict[str, object]) -> None:
    output.say(output.plain_json(bytes(raw).decode(errors="replace")))
