"""Checks of requests and their responses: ids, one response each, and cancellation."""

from __future__ import annotations

from collections.abc import Iterator

from ..base.errors import RESOURCE_NOT_FOUND, URL_REQUIRED
from .methods import V5
from .observations import Role, Transport
from .seen import Finding, Frame, MessageKind, Request, RequestState, key_of, shown
from .watch import Checker, breach

_RESERVED = range(-32099, -32019)
_DEFINED = (-32020, -32021, -32022)


class RequestChecker(Checker):
    """Checks that a request has an id of its own and gets one response."""

    def frame(self, frame: Frame) -> Iterator[Finding]:
        if frame.kind is MessageKind.REQUEST:
            yield from self._request(frame)
        elif frame.method == "notifications/cancelled":
            yield from self._cancelled(frame)
        elif frame.kind in (MessageKind.RESULT, MessageKind.ERROR):
            yield from self._response(frame)

    def finish(self, index: int) -> Iterator[Finding]:
        for request in self.book.open_requests():
            if request.method != "subscriptions/listen":
                text = f"{request.method} {shown(request.id)} was neither answered nor cancelled"
                yield Finding("unanswered", request.sender.other, text, request.revision, (request.index,))

    def _request(self, frame: Frame) -> Iterator[Finding]:
        earlier = self.book.requests[frame.sender].get(frame.id)
        if earlier is None or (frame.revision == V5 and earlier.state is not RequestState.OPEN):
            return
        if earlier.revision != frame.revision and V5 in (earlier.revision, frame.revision):
            return  # a probe in the other era may use the id again
        yield breach(
            frame, "id-reused", f"{frame.method} has the id {shown(frame.id)} of {earlier.method}", earlier.index
        )

    def _response(self, frame: Frame) -> Iterator[Finding]:
        if frame.kind is MessageKind.ERROR:
            yield from self._code(frame)
        if frame.message.get("id") is None:
            if frame.stream.verb is None and self.book.garbled[frame.sender.other] <= 0:
                yield breach(frame, "error-without-id", "got an error without id, though every message could be read")
            return
        request = frame.request
        if request is None:
            if not self._may_be_forgotten(frame):
                yield breach(frame, "response-unknown", f"got a response to {shown(frame.id)}, which was not asked")
        elif request.state is RequestState.ANSWERED:
            yield breach(
                frame, "response-twice", f"{request.method} {shown(request.id)} was answered before", request.index
            )

    def _may_be_forgotten(self, frame: Frame) -> bool:
        """True if the request may have existed without being known here.

        It was forgotten; or its body could not be read; or the response is an error to a POST whose body was not seen.
        """
        is_refusal = (
            frame.stream.verb is not None and frame.kind is MessageKind.ERROR and not frame.stream.origin.requests
        )
        return (
            self.book.requests[frame.sender.other].has_forgotten
            or is_refusal
            or self.book.garbled[frame.sender.other] > 0
        )

    def _code(self, frame: Frame) -> Iterator[Finding]:
        error = frame.message["error"]
        code = error.get("code") if isinstance(error, dict) else None
        if code in (RESOURCE_NOT_FOUND, URL_REQUIRED):
            yield breach(frame, "error-code-withdrawn", f"got the code {code}")
        elif code in _RESERVED and code not in _DEFINED:
            yield breach(frame, "error-code-reserved", f"got the code {code}, which is not defined")

    def _cancelled(self, frame: Frame) -> Iterator[Finding]:
        target = key_of(frame.params.get("requestId"))
        if frame.sender is Role.SERVER and frame.revision == V5:
            yield from self._cancelled_by_server(frame)
            return
        if frame.revision == V5 and self.book.transport is Transport.HTTP:
            yield breach(frame, "cancel-over-http", "got notifications/cancelled in a POST")
        request = None if target is None else self.book.requests[frame.sender].get(target)
        if request is None:
            is_for_task = "requestId" not in frame.params  # 2025-11-25 allows it to be left out
            if not is_for_task and not self.book.requests[frame.sender].has_forgotten:
                text = f"got the request id {shown(frame.params.get('requestId'))}, which it did not use"
                yield breach(frame, "cancel-unknown", text)
        elif request.method == "initialize" and frame.sender is Role.CLIENT:
            yield breach(frame, "cancel-initialize", "got notifications/cancelled for initialize", request.index)
        elif request.is_task:
            yield breach(frame, "cancel-of-task", f"{request.method} {shown(request.id)} is a task", request.index)

    def _cancelled_by_server(self, frame: Frame) -> Iterator[Finding]:
        request = self._target(frame)
        if request is None or request.method != "subscriptions/listen":
            text = f"got the request id {shown(frame.params.get('requestId'))}, which is no subscriptions/listen"
            yield breach(frame, "cancel-by-server", text)

    def _target(self, frame: Frame) -> Request | None:
        target = key_of(frame.params.get("requestId"))
        return None if target is None else self.book.requests[Role.CLIENT].get(target)
