"""Progress: its token is somebody's who still waits, and its value increases."""

from __future__ import annotations

from collections.abc import Iterator

from .book import Book
from .methods import senders
from .seen import Ask, Breach, Frame, Kind, Memory, State, key_of, shown
from .watch import Watch, breach


class Progress(Watch):
    """Of each token how far it is."""

    def __init__(self, book: Book) -> None:
        super().__init__(book)
        self._reached: Memory[Ask, tuple[float, int]] = book.memory()

    def frame(self, frame: Frame) -> Iterator[Breach]:
        if frame.kind is Kind.REQUEST and "progressToken" in frame.meta:
            yield from self._given(frame, frame.meta["progressToken"])
        elif frame.method == "notifications/progress" and frame.sender in senders(frame.method, frame.revision):
            yield from self._reported(frame)

    def _given(self, frame: Frame, value: object) -> Iterator[Breach]:
        token = key_of(value)
        if token is None:
            yield breach(frame, "progress-token", f"got the token {shown(value)}")
            return
        earlier = self.book.tokens[frame.sender].get(token)
        if earlier is not None and earlier.state is State.LOST:
            self.book.shared_tokens[frame.sender, token] = None
        if earlier is not None and earlier.state is State.OPEN:
            text = f"{frame.method} has the token {shown(token)} of {earlier.method}, which is active"
            yield breach(frame, "progress-token-reused", text, earlier.index)
            self.book.shared_tokens[frame.sender, token] = None

    def _reported(self, frame: Frame) -> Iterator[Breach]:
        value = frame.params.get("progressToken")
        token = key_of(value)
        if token is None:
            yield breach(frame, "progress-token", f"got the token {shown(value)}")
            return
        ask = self.book.tokens[frame.sender.other].get(token)
        if ask is None:
            if not self.book.tokens[frame.sender.other].has_forgotten:
                yield breach(frame, "progress-unknown", f"got the token {shown(token)}, which was not given")
            return
        if (frame.sender.other, token) in self.book.shared_tokens:
            return
        if ask.is_task_over or (ask.state is State.ANSWERED and not ask.is_task):
            yield breach(frame, "progress-late", f"{ask.method} {shown(ask.id)} was answered before", ask.index)
        progress = frame.params.get("progress")
        if not isinstance(progress, int | float):
            return  # the schema's affair
        before = self._reached.get(ask)
        if before is not None and progress <= before[0]:
            yield breach(frame, "progress-stands", f"got {progress} after {before[0]}", before[1])
        self._reached[ask] = (progress, frame.index)
