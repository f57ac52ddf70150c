"""Which names clients may see of a server's tools, prompts or resources."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import msgspec


class Selection(msgspec.Struct, frozen=True, omit_defaults=True):
    """Entries are whole names, or patterns: `*` is any text, `?` one character, `[…]` one of a set (as `fnmatchcase`
    has it). Case counts.

    Args:
        include: only these are seen; empty: all are.
        exclude: these are not, whatever `include` says.
        exclude_regexes: nor are those whose whole name one of these regular expressions matches.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    exclude_regexes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything may be hidden."""
        return bool(self.include or self.exclude or self.exclude_regexes)

    def admits(self, name: str) -> bool:
        if self.include and not _matches(self.include, name):
            return False
        return not _matches(self.exclude, name) and not any(re.fullmatch(one, name) for one in self.exclude_regexes)


def _matches(entries: tuple[str, ...], name: str) -> bool:
    """A name with brackets in it is also matched by itself."""
    return any(entry == name or fnmatchcase(name, entry) for entry in entries)
