"""The filter of the tools, prompts or resources that clients may see of a server."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

import msgspec

from .regex import compile_regex

NAME_MAX_CHARS: Final = 4096
"""The longest name that is compared with regular expressions. Where there are any, a longer one is hidden: it could be
one that they are to hide. Names have tens of characters, and URIs hundreds."""


class NameFilter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A filter of names. Entries are whole names or patterns: `*` is any text, `?` one character, `[…]` one of a set
    (as `fnmatchcase` has it). Case counts.

    Args:
        include: only these are seen; empty: all are.
        exclude: these are hidden, whatever `include` says.
        exclude_regexes: names that one of these regular expressions (`compile_regex`) matches as a whole are hidden,
            too, and all over `NAME_MAX_CHARS`.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    exclude_regexes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """True if the filter may hide anything."""
        return bool(self.include or self.exclude or self.exclude_regexes)

    def admits(self, name: str) -> bool:
        """True if clients see `name`.

        Raises:
            RegexError: one of `exclude_regexes` cannot be used, which reading the configuration should have refused.
        """
        if self.include and not _matches(self.include, name):
            return False
        if _matches(self.exclude, name):
            return False
        if self.exclude_regexes and len(name) > NAME_MAX_CHARS:
            return False
        return not any(compile_regex(one).matches(name) for one in self.exclude_regexes)


def _matches(entries: tuple[str, ...], name: str) -> bool:
    """True if any entry matches. An entry with brackets also matches the name that is spelled exactly so."""
    return any(entry == name or fnmatchcase(name, entry) for entry in entries)
