"""Requests and their responses: ids, one answer each, and cancelling."""

from __future__ import annotations

from collections.abc import Iterator

from ..base.errors import RESOURCE_NOT_FOUND, URL_REQUIRED
from .methods import V5
from .observations import Role, Transport
from .seen import Ask, Breach, Frame, Kind, State, key_of, shown
from .watch import Watch, breach

_RESERVED = range(-32099, -32019)
_DEFINED = (-32020, -32021, -32022)


class Asking(Watch):
    """A request's id is its own, and it is answered once."""

    def frame(self, frame: Frame) -> Iterator[Breach]:
        if frame.kind is Kind.REQUEST:
            yield from self._request(frame)
        elif frame.method == "notifications/cancelled":
            yield from self._cancelled(frame)
        elif frame.kind in (Kind.RESULT, Kind.ERROR):
            yield from self._response(frame)

    def finish(self, index: int) -> Iterator[Breach]:
        for ask in self.book.open_asks():
            if ask.method != "subscriptions/listen":
                text = f"{ask.method} {shown(ask.id)} was neither answered nor cancelled"
                yield Breach("unanswered", ask.sender.other, text, ask.revision, (ask.index,))

    def _request(self, frame: Frame) -> Iterator[Breach]:
        earlier = self.book.asks[frame.sender].get(frame.id)
        if earlier is None or (frame.revision == V5 and earlier.state is not State.OPEN):
            return
        if earlier.revision != frame.revision and V5 in (earlier.revision, frame.revision):
            return  # a probe in the other era
        yield breach(
            frame, "id-reused", f"{frame.method} has the id {shown(frame.id)} of {earlier.method}", earlier.index
        )

    def _response(self, frame: Frame) -> Iterator[Breach]:
        if frame.kind is Kind.ERROR:
            yield from self._code(frame)
        if frame.message.get("id") is None:
            if frame.stream.verb is None and self.book.garbled[frame.sender.other] <= 0:
                yield breach(frame, "error-without-id", "got an error without id, though every message could be read")
            return
        ask = frame.ask
        if ask is None:
            if not self._may_be_forgotten(frame):
                yield breach(frame, "response-unknown", f"got a response to {shown(frame.id)}, which was not asked")
        elif ask.state is State.ANSWERED:
            yield breach(frame, "response-twice", f"{ask.method} {shown(ask.id)} was answered before", ask.index)

    def _may_be_forgotten(self, frame: Frame) -> bool:
        """The request may have been there; or this refuses a request whose body nobody has seen, or could read."""
        is_refusal = frame.stream.verb is not None and frame.kind is Kind.ERROR and not frame.stream.origin.asks
        return (
            self.book.asks[frame.sender.other].has_forgotten or is_refusal or self.book.garbled[frame.sender.other] > 0
        )

    def _code(self, frame: Frame) -> Iterator[Breach]:
        error = frame.message["error"]
        code = error.get("code") if isinstance(error, dict) else None
        if code in (RESOURCE_NOT_FOUND, URL_REQUIRED):
            yield breach(frame, "error-code-withdrawn", f"got the code {code}")
        elif code in _RESERVED and code not in _DEFINED:
            yield breach(frame, "error-code-reserved", f"got the code {code}, which is not defined")

    def _cancelled(self, frame: Frame) -> Iterator[Breach]:
        target = key_of(frame.params.get("requestId"))
        if frame.sender is Role.SERVER and frame.revision == V5:
            yield from self._cancelled_by_server(frame)
            return
        if frame.revision == V5 and self.book.transport is Transport.HTTP:
            yield breach(frame, "cancel-over-http", "got notifications/cancelled in a POST")
        ask = None if target is None else self.book.asks[frame.sender].get(target)
        if ask is None:
            is_for_task = "requestId" not in frame.params  # 2025-11-25 lets it be left out
            if not is_for_task and not self.book.asks[frame.sender].has_forgotten:
                text = f"got the request id {shown(frame.params.get('requestId'))}, which it did not use"
                yield breach(frame, "cancel-unknown", text)
        elif ask.method == "initialize" and frame.sender is Role.CLIENT:
            yield breach(frame, "cancel-initialize", "got notifications/cancelled for initialize", ask.index)
        elif ask.is_task:
            yield breach(frame, "cancel-of-task", f"{ask.method} {shown(ask.id)} is a task", ask.index)

    def _cancelled_by_server(self, frame: Frame) -> Iterator[Breach]:
        ask = self._target(frame)
        if ask is None or ask.method != "subscriptions/listen":
            text = f"got the request id {shown(frame.params.get('requestId'))}, which is no subscriptions/listen"
            yield breach(frame, "cancel-by-server", text)

    def _target(self, frame: Frame) -> Ask | None:
        target = key_of(frame.params.get("requestId"))
        return None if target is None else self.book.asks[Role.CLIENT].get(target)
