"""The part of a plan about what servers list and how often it is used: which definitions were approved, how clients are
shown them, and how many calls callers may make."""

from __future__ import annotations

import enum
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec

Members = tuple[tuple[str, str], ...]


class Pinned(msgspec.Struct, frozen=True):
    """One approved definition.

    Attributes:
        kind: `tools`, `prompts`, `resources` or `templates`.
        name: the name, the URI or the URI template, as the server has it.
        members: the pinned members of the definition, each with its canonical JSON (`governance/canonical`).
    """

    kind: str
    name: str
    members: Members = ()


class PinRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for definitions of a server that differ from the approved ones.

    Attributes:
        blocks: a changed definition is left out of lists and refused when it is used; else it is noted only.
        hides_new: so is one that was never approved.
        entries: the approved definitions.
        ignore: members that are not compared.
    """

    blocks: bool = False
    hides_new: bool = False
    entries: tuple[Pinned, ...] = ()
    ignore: tuple[str, ...] = ()


class Cleaning(enum.Enum):
    """The treatment of invisible characters in what a server lists."""

    OFF = "off"
    CLEAN = "clean"  # they are dropped from texts, and long texts are cut
    BLOCK = "block"  # a definition that has any is left out of lists and refused when it is used


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """Another name or other texts for one tool.

    Attributes:
        tool: the name that the server gives it.
        rename: the name that clients see; empty: the server's. Every rule goes on speaking of the server's.
        title: the title that clients see; None: the server's.
        description: the description that clients see; None: the server's.
    """

    tool: Annotated[str, msgspec.Meta(min_length=1)]
    rename: str = ""
    title: str | None = None
    description: str | None = None


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The way in which clients are shown a server's tools.

    Attributes:
        overrides: other names and texts, for tools by their names.
        first_sentence: descriptions are cut to their first sentence.
        description_max_chars: longer descriptions are cut; None: they are not.
    """

    overrides: tuple[Override, ...] = ()
    first_sentence: bool = False
    description_max_chars: Annotated[int, msgspec.Meta(gt=0)] | None = None

    def __bool__(self) -> bool:
        """True if anything is shown in another way."""
        return bool(self.overrides or self.first_sentence or self.description_max_chars)


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The number of calls that may be made in a time.

    Attributes:
        calls: so many may be made at once, and so many more come in each `per_s`, evenly.
        per_s: seconds.
        tools: names of tools, or patterns with *, ? and [...]. Calls of all of them together count.
        is_for_each_caller: each caller may make so many; else all callers together.
    """

    calls: Annotated[int, msgspec.Meta(gt=0)]
    per_s: Annotated[float, msgspec.Meta(gt=0)]
    tools: tuple[str, ...] = ("*",)
    is_for_each_caller: bool = True

    def covers(self, tool: str) -> bool:
        """True if calls of the tool count."""
        return any(fnmatchcase(tool, pattern) for pattern in self.tools)

    def __str__(self) -> str:
        """Returns the limit for people: `10 calls per 60 s for write_*`."""
        calls = "1 call" if self.calls == 1 else f"{self.calls} calls"
        whose = "" if self.is_for_each_caller else " of all callers"
        tools = "all tools" if "*" in self.tools else ", ".join(self.tools)
        return f"{calls}{whose} per {self.per_s:g} s for {tools}"
