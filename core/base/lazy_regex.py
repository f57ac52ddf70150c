"""Regular expressions that are compiled when they are first used.

For those that look for files in texts, and the like: they are the costliest, and most proxies never need them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property


class Pattern:
    """An expression over `str`, whose methods are those of `re.Pattern`."""

    def __init__(self, source: str, flags: int = 0) -> None:
        self._source = source
        self._flags = flags

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self._source, self._flags)

    @cached_property
    def search(self) -> Callable[..., re.Match[str] | None]:
        return self._compiled.search

    @cached_property
    def match(self) -> Callable[..., re.Match[str] | None]:
        return self._compiled.match

    @cached_property
    def fullmatch(self) -> Callable[..., re.Match[str] | None]:
        return self._compiled.fullmatch

    @cached_property
    def finditer(self) -> Callable[..., Iterator[re.Match[str]]]:
        return self._compiled.finditer

    @cached_property
    def sub(self) -> Callable[..., str]:
        return self._compiled.sub
