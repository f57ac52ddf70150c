"""Checks of progress: its token belongs to a request that is still open, and its value increases."""

from __future__ import annotations

from collections.abc import Iterator

from .book import WireState
from .methods import senders
from .seen import Finding, Frame, Memory, MessageKind, Request, RequestState, key_of, shown
from .watch import Checker, breach


class ProgressChecker(Checker):
    """Checks the progress of each token."""

    def __init__(self, book: WireState) -> None:
        super().__init__(book)
        self._reached: Memory[Request, tuple[float, int]] = book.memory()

    def frame(self, frame: Frame) -> Iterator[Finding]:
        if frame.kind is MessageKind.REQUEST and "progressToken" in frame.meta:
            yield from self._token(frame, frame.meta["progressToken"])
        elif frame.method == "notifications/progress" and frame.sender in senders(frame.method, frame.revision):
            yield from self._reported(frame)

    def _token(self, frame: Frame, value: object) -> Iterator[Finding]:
        token = key_of(value)
        if token is None:
            yield breach(frame, "progress-token", f"got the token {shown(value)}")
            return
        earlier = self.book.tokens[frame.sender].get(token)
        if earlier is not None and earlier.state is RequestState.LOST:
            self.book.note_shared(frame.sender, token)
        if earlier is not None and earlier.state is RequestState.OPEN:
            text = f"{frame.method} has the token {shown(token)} of {earlier.method}, which is active"
            yield breach(frame, "progress-token-reused", text, earlier.index)
            self.book.note_shared(frame.sender, token)

    def _reported(self, frame: Frame) -> Iterator[Finding]:
        value = frame.params.get("progressToken")
        token = key_of(value)
        if token is None:
            yield breach(frame, "progress-token", f"got the token {shown(value)}")
            return
        request = self.book.tokens[frame.sender.other].get(token)
        if request is None:
            if not self.book.tokens[frame.sender.other].has_forgotten:
                yield breach(frame, "progress-unknown", f"got the token {shown(token)}, which was not given")
            return
        if (frame.sender.other, token) in self.book.shared_tokens:
            return
        if request.is_task_over or (request.state is RequestState.ANSWERED and not request.is_task):
            yield breach(
                frame, "progress-late", f"{request.method} {shown(request.id)} was answered before", request.index
            )
        progress = frame.params.get("progress")
        if not isinstance(progress, int | float):
            return  # the schema check reports it
        before = self._reached.get(request)
        if before is not None and progress <= before[0]:
            yield breach(frame, "progress-stands", f"got {progress} after {before[0]}", before[1])
        self._reached[request] = (progress, frame.index)
