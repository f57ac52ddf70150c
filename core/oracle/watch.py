"""The base class of checkers: a checker has a few rules about the same things, and the state that these need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from .book import WireState
from .observations import Role
from .seen import Finding, Frame, Stream

SchemaCheck = Callable[[str, Role, str, dict[str, object]], str | None]
"""A function `check(revision, sender, method, message)` that returns what is wrong with a message's shape, or None. For
responses `method` is that of the request, and "" where that is unknown."""


class Checker:
    """A checker of one wire. Each method yields findings; `book` has the state before the observation that is judged.

    A checker may report a rule that the revision does not have: the oracle drops the finding.
    """

    def __init__(self, book: WireState) -> None:
        self.book: Final = book

    def opened(self, stream: Stream) -> Iterator[Finding]:
        """Judges the head of a request; a POST's body comes later."""
        return iter(())

    def headed(self, stream: Stream, index: int, session: str | None) -> Iterator[Finding]:
        """Judges the head of a response. `stream.status` and `stream.content_type` are set."""
        return iter(())

    def frame(self, frame: Frame) -> Iterator[Finding]:
        """Judges a message."""
        return iter(())

    def ended(self, stream: Stream, index: int, by: Role | None) -> Iterator[Finding]:
        """Judges the end of a channel."""
        return iter(())

    def finish(self, index: int) -> Iterator[Finding]:
        """Judges what is missing when both sides send nothing more."""
        return iter(())


def breach(frame: Frame, rule: str, text: str, *earlier: int, who: Role | None = None) -> Finding:
    """Returns a finding about a message, by default against its sender."""
    return Finding(rule, who or frame.sender, text, frame.revision, (*earlier, frame.index))
