"""`isthmus top`: the servers, open requests and sessions of a running isthmus, in place of each other every second."""

from __future__ import annotations

import time
from typing import Final

from ..base import output
from ..base.output import plain
from ..commands.http_client import Unreachable
from .events import LOOK_BACK, Feed
from .figures import Figures, Look
from .screen import Screen
from .table import SORTS, fitted, painted, screen

REFRESH_S: Final = 1.0
TIMEOUT_S: Final = 3.0
"""Seconds that a gateway has for an answer: keys wait for it."""
PORTIONS_MAX: Final = 20
"""Portions of events that are read before the table is drawn. At it: the others are read a second later."""


class Top:
    """The figures of a feed, read when they are asked for."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._figures = Figures()

    def begin(self) -> None:
        """Goes to the last records.

        Raises:
            Failed: the isthmus does not answer, or has no live page.
        """
        self._feed.begin(LOOK_BACK)

    def look(self, now: float) -> Look:
        """Reads what is new.

        Raises:
            Failed: the isthmus does not answer (`Unreachable`), or not as one.
        """
        for _ in range(PORTIONS_MAX):
            news = self._feed.next()
            if news.is_new_run:
                self._figures = Figures()
            if news.skipped:
                self._figures.forget_open()
            self._figures.add(news.events, now)
            if news.is_last:
                break
        return self._figures.look(self._feed.isthmus.servers(), self._feed.sessions(), now)


def show_once(feed: Feed, *, as_json: bool) -> None:
    """Prints one look.

    Raises:
        Failed: as `Top`.
        OutputClosed: stdout cannot be written.
    """
    top = Top(feed)
    top.begin()
    look = top.look(time.time())
    if as_json:
        output.say_json(look.as_json())
    else:
        output.say("\n".join(screen(look)), lambda shown: "\n".join(map(painted, shown.split("\n"))))


def top(feed: Feed) -> None:
    """Shows looks on the terminal until `q` is pressed.

    Raises:
        Failed: what answers is no isthmus any more, or does not take the token.
        Ended: a signal ends it. The terminal is as it was before.
    """
    figures = Top(feed)
    figures.begin()
    look = figures.look(time.time())
    next_at, sort, is_paused, problem = time.monotonic() + REFRESH_S, 0, False, ""
    paint = painted if output.has_colours() else plain
    with Screen() as terminal:
        while True:
            state = " (paused)" if is_paused else f": {plain(problem)}" if problem else ""
            lines = fitted(look, SORTS[sort], f"isthmus top{state}", terminal.rows)
            try:
                terminal.show(list(map(paint, lines)))
            except OSError:
                return
            for key in terminal.wait(next_at - time.monotonic()):
                match key:
                    case "q" | "\x04":
                        return
                    case "s":
                        sort = (sort + 1) % len(SORTS)
                    case "p":
                        is_paused = not is_paused
            if time.monotonic() < next_at:
                continue
            try:
                if problem:
                    feed.find_again()
                seen, problem = figures.look(time.time()), ""
                look = look if is_paused else seen
            except Unreachable as error:
                problem = str(error)
            next_at = time.monotonic() + REFRESH_S
