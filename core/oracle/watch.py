"""What every watch is: a few rules that look at the same things, and what they keep for themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from .book import Book
from .observations import Role
from .seen import Breach, Frame, Stream

SchemaCheck = Callable[[str, Role, str, dict[str, object]], str | None]
"""`check(revision, sender, method, message)` says what is wrong with a message's shape, or None. For responses `method`
is that of the request, and "" where that is unknown."""


class Watch:
    """Looks on and reports. Each method yields what it found; `book` is as it was before what is looked at.

    A rule may be reported that the revision does not have: the oracle drops that.
    """

    def __init__(self, book: Book) -> None:
        self.book: Final = book

    def opened(self, stream: Stream) -> Iterator[Breach]:
        """A request's head came; a POST's body comes later."""
        return iter(())

    def headed(self, stream: Stream, index: int, session: str | None) -> Iterator[Breach]:
        """A response's head came: `stream.status` and `stream.content_type` are set."""
        return iter(())

    def frame(self, frame: Frame) -> Iterator[Breach]:
        """A message came."""
        return iter(())

    def ended(self, stream: Stream, index: int, by: Role | None) -> Iterator[Breach]:
        """A channel is over."""
        return iter(())

    def finish(self, index: int) -> Iterator[Breach]:
        """Both sides are at rest."""
        return iter(())


def breach(frame: Frame, rule: str, text: str, *earlier: int, who: Role | None = None) -> Breach:
    """A finding about a message, by default of its sender's doing."""
    return Breach(rule, who or frame.sender, text, frame.revision, (*earlier, frame.index))
