"""The filter of the tools, prompts or resources that clients may see of a server."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import msgspec


class NameFilter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A filter of names. Entries are whole names or patterns: `*` is any text, `?` one character, `[…]` one of a set
    (as `fnmatchcase` has it). Case counts.

    Args:
        include: only these are seen; empty: all are.
        exclude: these are hidden, whatever `include` says.
        exclude_regexes: names that one of these regular expressions matches as a whole are hidden, too.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    exclude_regexes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """True if the filter may hide anything."""
        return bool(self.include or self.exclude or self.exclude_regexes)

    def admits(self, name: str) -> bool:
        """True if clients see `name`."""
        if self.include and not _matches(self.include, name):
            return False
        return not _matches(self.exclude, name) and not any(re.fullmatch(one, name) for one in self.exclude_regexes)


def _matches(entries: tuple[str, ...], name: str) -> bool:
    """True if any entry matches. An entry with brackets also matches the name that is spelled exactly so."""
    return any(entry == name or fnmatchcase(name, entry) for entry in entries)
