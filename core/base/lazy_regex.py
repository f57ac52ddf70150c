"""Regular expressions that are compiled at their first use.

Meant for expressions that search texts for files, and the like: they take longest to compile, and most proxies never
use them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property


class Pattern:
    """An expression over `str` with the methods of `re.Pattern`. Each method is cached on the instance, so that later
    calls skip this class."""

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
