"""Pins: judges the definitions that a server lists by those that were approved.

A definition is known by its server, its kind and its name. So a definition under another name is a new one, whatever
it says. The same rules refuse definitions with invisible characters where the plan wants that.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from ..base.errors import RemoteProtocolError
from ..base.governance import Cleaning, Pinned, PinRules
from ..bridge.request_name import sole_member
from ..jsonrpc.envelope import text_of
from .canonical import KEYS, changed_members, pinned
from .clean import has_invisible

JUDGMENTS_KEPT: Final = 1024
"""Judgments that are kept for a server, so that a list which is sent again is not judged again: hundreds of tools are
many."""
KEPT_MAX_BYTES: Final = 16 * 1024
"""The largest definition whose judgment is kept. Real ones have about 1 KB."""


class Fault(enum.Enum):
    """The faults of definitions."""

    NONE = "none"
    CHANGED = "changed"  # it differs from the approved one
    NEW = "new"  # none of that name was approved
    INVISIBLE = "invisible"  # it has invisible characters
    UNREADABLE = "unreadable"  # it can be read in two ways, or its server's list cannot be read


class Finding(NamedTuple):
    """The judgment of one definition, with a text for people."""

    fault: Fault
    text: str = ""


FINE: Final = Finding(Fault.NONE)
NEW: Final = Finding(Fault.NEW, "it was never approved")
INVISIBLE: Final = Finding(Fault.INVISIBLE, "it has invisible characters")
UNREADABLE: Final = Finding(Fault.UNREADABLE, "its definition cannot be read")
UNLISTED: Final = Finding(Fault.UNREADABLE, "its server's list cannot be read")


class Judged(NamedTuple):
    """A definition's name, empty if it cannot be read, and its judgment."""

    name: str
    finding: Finding


class DefinitionRules:
    """The rules for the definitions of one server.

    Args:
        pins: None: none was approved.
    """

    def __init__(self, pins: PinRules | None, clean: Cleaning) -> None:
        self._pins = pins
        self._refuses_invisible = clean is Cleaning.BLOCK
        self._take(() if pins is None else pins.entries)

    def _take(self, entries: Iterable[Pinned]) -> None:
        self._approved: Mapping[tuple[str, str], Pinned] = {(one.kind, one.name): one for one in entries}
        self._kept: Callable[[str, bytes], Judged] = lru_cache(JUDGMENTS_KEPT)(self._judge)

    def receive_approved(self, entries: Iterable[Pinned]) -> bool:
        """Takes other approved definitions, if there are pins. Returns True if they are others than before."""
        if self._pins is None or {(one.kind, one.name): one for one in entries} == self._approved:
            return False
        self._take(entries)
        return True

    def judge(self, kind: str, entry: bytes) -> Judged:
        """Judges a definition as the server listed it."""
        return self._kept(kind, entry) if len(entry) <= KEPT_MAX_BYTES else self._judge(kind, entry)

    def blocks(self, finding: Finding) -> bool:
        """True if a definition with that judgment is left out of lists, and refused when it is used."""
        pins, fault = self._pins, finding.fault
        if fault is Fault.CHANGED:
            return pins is not None and pins.blocks
        if fault is Fault.NEW:
            return pins is not None and pins.hides_new
        if fault is Fault.UNREADABLE:
            return self.may_block
        return fault is Fault.INVISIBLE

    @property
    def may_block(self) -> bool:
        """True if any judgment leads to a refusal, so that a use has to wait for it."""
        return self._refuses_invisible or (self._pins is not None and (self._pins.blocks or self._pins.hides_new))

    def judge_unlisted(self, kind: str, name: str, *, is_whole: bool) -> Finding:
        """Judges a name that the server does not list, as far as its list is known.

        Args:
            is_whole: the whole list is known.
        """
        if not is_whole and (self._refuses_invisible or (kind, name) in self._approved):
            return UNLISTED
        return FINE if self._pins is None else NEW

    def _judge(self, kind: str, entry: bytes) -> Judged:
        name = text_of(sole_member(entry, KEYS[kind]))
        return Judged("", UNREADABLE) if name is None else Judged(name, self._find(kind, entry))

    def _find(self, kind: str, entry: bytes) -> Finding:
        if self._refuses_invisible and has_invisible(entry):
            return INVISIBLE
        if self._pins is None:
            return FINE
        try:
            now = pinned(kind, entry)
        except RemoteProtocolError as error:
            return Finding(Fault.UNREADABLE, f"{UNREADABLE.text}: {error.message}")
        before = self._approved.get((kind, now.name))
        if before is None:
            return NEW
        changed = changed_members(before, now, self._pins.ignore)
        return Finding(Fault.CHANGED, f"{', '.join(changed)} changed") if changed else FINE


def matches_template(template: str, uri: str) -> bool:
    """True if a URI may be an expansion of a template (RFC 6570). Each expression stands for any text."""
    literals = re.split(r"\{[^{}]*\}", template)
    at = 0
    for i, literal in enumerate(literals):
        if i == 0:
            if not uri.startswith(literal):
                return False
            at = len(literal)
        elif i == len(literals) - 1:
            return len(uri) - at >= len(literal) and uri.endswith(literal)
        else:
            found = uri.find(literal, at)
            if found < 0:
                return False
            at = found + len(literal)
    return at == len(uri)
