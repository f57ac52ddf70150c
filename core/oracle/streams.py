"""Checks of Streamable HTTP and HTTP+SSE: the messages of each stream, and how a stream begins and ends."""

from __future__ import annotations

from collections.abc import Iterator

from ..base.errors import HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CAPABILITY, UNSUPPORTED_VERSION
from .methods import V5
from .observations import Role, Transport, Verb
from .seen import CAPABILITIES, VERSION, Finding, Frame, MessageKind, Request, RequestState, Stream, key_of, shown
from .watch import Checker, breach

_JSON, _EVENTS = "application/json", "text/event-stream"
_STATUS = {METHOD_NOT_FOUND: 404, HEADER_MISMATCH: 400, MISSING_CAPABILITY: 400, UNSUPPORTED_VERSION: 400}
_OF_A_SUBSCRIPTION = (
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/tasks",
    "notifications/subscriptions/acknowledged",
)


class StreamChecker(Checker):
    """Checks Streamable HTTP: a POST's stream carries what belongs to its requests, a GET's stream the rest."""

    def headed(self, stream: Stream, index: int, session: str | None) -> Iterator[Finding]:
        status, kind = stream.status or 0, stream.content_type
        revision = stream.requests[0].revision if stream.requests else self.book.revision_of_head(stream)

        def found(rule: str, text: str) -> Finding:
            return Finding(rule, Role.SERVER, text, revision, (stream.index, index))

        if not 200 <= status < 300:
            return
        if stream.verb is Verb.POST and stream.requests:
            is_owed = any(
                request.state is not RequestState.CANCELLED and not request.is_doubled for request in stream.requests
            )
            if is_owed and (status != 200 or kind not in (_JSON, _EVENTS, None)):
                yield found(
                    "content-type", f"got {status} with {kind or 'no content type'} for {stream.requests[0].method}"
                )
        elif stream.verb is Verb.POST and stream.notifications and status != 202:
            yield found("accepted-status", f"got {status}, expected 202")
        elif stream.verb is Verb.GET and kind not in (_EVENTS, None):
            yield found("content-type", f"got {kind or 'no content type'} for a GET, expected {_EVENTS}")

    def frame(self, frame: Frame) -> Iterator[Finding]:
        if frame.sender is Role.CLIENT:
            return
        if frame.kind in (MessageKind.RESULT, MessageKind.ERROR):
            yield from self._response(frame)
            yield from self._status(frame)
        elif frame.stream.verb is Verb.POST:
            yield from self._unrelated(frame)

    def ended(self, stream: Stream, index: int, by: Role | None) -> Iterator[Finding]:
        if by is not Role.SERVER or stream.has_event_id or (stream.status or 200) >= 400:
            return
        for request in stream.origin.requests:
            # 2026-07-28 schema, SubscriptionsListenResult: "an abrupt transport close carries no response".
            if request.is_acknowledged:
                continue
            if request.state is RequestState.OPEN and request.channel == stream.number and not request.is_doubled:
                text = f"the stream ended without the answer to {request.method} {shown(request.id)}"
                yield Finding("stream-ended-early", Role.SERVER, text, request.revision, (request.index, index))

    def _response(self, frame: Frame) -> Iterator[Finding]:
        origin, request = frame.stream.origin, frame.request
        if (frame.stream.status or 0) >= 400:
            return  # the body of a refusal may be anything
        if origin.verb is Verb.GET:
            if origin.last_event_id is None:
                yield breach(frame, "response-on-get", f"got the answer to {shown(frame.message.get('id'))} on a GET")
        elif request is not None and request not in origin.requests:
            rule = "response-stream" if frame.stream is origin else "replay-stream"
            text = f"got the answer to {request.method} {shown(request.id)} on the stream of another request"
            yield breach(frame, rule, text, request.index)

    def _status(self, frame: Frame) -> Iterator[Finding]:
        stream, error = frame.stream, frame.message.get("error")
        if (
            frame.kind is MessageKind.RESULT
            or stream.messages
            or stream.content_type == _EVENTS
            or not isinstance(error, dict)
        ):
            return
        code = error.get("code")
        expected = _STATUS.get(code) if isinstance(code, int) else None
        if (
            code == INVALID_PARAMS
            and frame.request is not None
            and not {VERSION, CAPABILITIES} <= frame.request.meta.keys()
        ):
            expected = 400
        if expected is not None and stream.status not in (None, expected):
            yield breach(frame, "error-status", f"got {stream.status} with the code {code}, expected {expected}")

    def _unrelated(self, frame: Frame) -> Iterator[Finding]:
        requests = frame.stream.origin.requests
        if requests and all(request.state is RequestState.ANSWERED for request in requests):
            yield breach(frame, "stream-goes-on", f"got {frame.method} after the last response")
        token = key_of(frame.params.get("progressToken")) if frame.method == "notifications/progress" else None
        owner: Request | None = None if token is None else self.book.tokens[Role.CLIENT].get(token)
        if token is not None and (Role.CLIENT, token) in self.book.shared_tokens:
            owner = None
        if owner is not None and owner not in requests and not owner.is_task:
            text = f"got progress of {owner.method} {shown(owner.id)} on the stream of another request"
            yield breach(frame, "unrelated-on-stream", text, owner.index)
        listens = any(request.method == "subscriptions/listen" for request in requests)
        if frame.revision == V5 and frame.method in _OF_A_SUBSCRIPTION and not listens:
            yield breach(frame, "unrelated-on-stream", f"got {frame.method} on a stream that is no subscription's")


class LegacySseChecker(Checker):
    """Checks HTTP+SSE: the endpoint comes first, and everything else as `message` events on the one stream."""

    def frame(self, frame: Frame) -> Iterator[Finding]:
        if frame.sender is Role.CLIENT:
            return
        if frame.stream.verb is Verb.POST:
            if (frame.stream.status or 200) < 400:
                yield breach(frame, "message-on-post", f"got {frame.method or 'a response'} in the reply to a POST")
        elif not frame.stream.messages:
            yield breach(frame, "endpoint-first", "got a message before the endpoint")
        elif frame.said.event != "message":
            yield breach(frame, "endpoint-first", f"got a message in an event of type {shown(frame.said.event)}")


def watches(transport: Transport) -> tuple[type[Checker], ...]:
    """Returns the checkers that a transport needs."""
    if transport is Transport.HTTP:
        return (StreamChecker,)
    return (LegacySseChecker,) if transport is Transport.EVENTS else ()
