"""`isthmus tail` and `isthmus top`: from their options to what is shown of a running isthmus."""

from __future__ import annotations

import argparse
import signal
import sys
from functools import partial

from ..base.errors import ConfigError
from ..runtime.signals import end_by
from ..terminal.events import Feed
from ..terminal.filter import FilterError, compiled
from ..terminal.screen import Ended
from ..terminal.tail import Wanted, tail
from ..terminal.top import TIMEOUT_S, show_once, top
from .remote import isthmus_of
from .run import DONE, complain


def follow(options: argparse.Namespace, words: list[str]) -> int:
    """Carries out `tail`. It ends by the signal that ends it, as shells expect.

    Args:
        words: those of the filter that stand after `--`.

    Raises:
        ConfigError: the filter is none.
        Failed: there is no isthmus with a live page, or it is none any more.
        OutputClosed: stdout cannot be written.
    """
    try:
        test = compiled(" ".join([*options.filter, *words]))
    except FilterError as error:
        raise ConfigError(f"filter, {error}") from None
    feed = Feed(partial(isthmus_of, options, is_page=True))
    wanted = Wanted(test, options.open, options.messages, options.stderr, options.json)
    try:
        tail(feed, wanted, options.lines, complain)
    except KeyboardInterrupt:
        end_by(signal.SIGINT)
    end_by(signal.SIGPIPE)  # nobody reads stdout
    return DONE


def look(options: argparse.Namespace) -> int:
    """Carries out `top`.

    Raises:
        ConfigError: stdout is no terminal.
        Failed: as `follow`.
    """
    feed = Feed(partial(isthmus_of, options, is_page=True), TIMEOUT_S)
    if options.once or options.json:
        show_once(feed, as_json=options.json)
        return DONE
    if sys.stdout is None or not sys.stdout.isatty():
        raise ConfigError("got a stdout that is no terminal, expected one, or --once, or --json")
    try:
        top(feed)
    except KeyboardInterrupt:
        end_by(signal.SIGINT)
    except Ended as ended:
        end_by(ended.number)
    return DONE
