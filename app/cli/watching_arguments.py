"""The parsers of `tail` and `top`, which show what crosses a running isthmus."""

from __future__ import annotations

import argparse
from typing import Final

from ..config.ui_settings import DEFAULT_UI_LISTEN
from .option_groups import PAGE_HELP, Add, add_running, as_help, typed_option

LINES: Final = 10
"""The lines that `tail` begins with, as tail(1) does."""


def add_watching(add: Add, shared: argparse.ArgumentParser) -> None:
    page = argparse.ArgumentParser(add_help=False)
    add_running(page, f"http://{DEFAULT_UI_LISTEN}", PAGE_HELP)
    about = "Follow the requests that cross a running isthmus with a live page (--ui)."
    tail = add(
        "tail",
        parents=[shared, page],
        help=as_help(about),
        usage="isthmus tail [options] [FILTER …]",
        description=f"{about} Each line is a request that is over. The words of FILTER are those of the live page: "
        'server:ID, client:, method:, target:, outcome:, session:, principal:, id:, code:, ms:>100, bytes:>1M, "text"; '
        "* stands for any text, a comma for or, and - before a word for not.",
        epilog="Example: isthmus tail method:tools/* outcome:error -client:inspector",
    )
    tail.add_argument("filter", nargs="*", metavar="FILTER", help="words that all must hold; default: every request")
    tail.add_argument("--open", action="store_true", help="also show requests that are open, when they start")
    tail.add_argument("--messages", action="store_true", help="also show each JSON-RPC message")
    tail.add_argument(
        "--stderr", action="store_true", help="also show what servers write to stderr, and the log about them"
    )
    tail.add_argument(
        "--lines",
        type=typed_option(_count),
        default=LINES,
        metavar="N",
        help=f"show the last N lines first; default {LINES}",
    )
    tail.add_argument("--json", action="store_true", help="print the events as JSON Lines")
    about = "Show the servers, the open requests and the sessions of a running isthmus with a live page (--ui), live."
    top = add(
        "top",
        parents=[shared, page],
        help=as_help(about),
        description=f"{about} Keys: q quits, s sorts by the next column, p pauses.",
    )
    top.add_argument("--once", action="store_true", help="print the table once")
    top.add_argument("--json", action="store_true", help="print it once, as JSON")


def take_filter(options: argparse.Namespace, unknown: list[str]) -> list[str]:
    """Adds words that argparse leaves over, such as `-client:cursor`, to the filter of `tail`. Returns the others."""
    if options.command != "tail":
        return unknown
    words = [word for word in unknown if not word.startswith("--") and not (word.startswith("-") and len(word) == 2)]
    options.filter += words
    return [word for word in unknown if word not in words]


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError(f"got {text[:20]!r}, expected a number of lines")
    return int(text)
