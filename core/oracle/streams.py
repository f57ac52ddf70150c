"""Streamable HTTP and HTTP+SSE: which message may come on which stream, and how a stream begins and ends."""

from __future__ import annotations

from collections.abc import Iterator

from ..base.errors import HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CAPABILITY, UNSUPPORTED_VERSION
from .methods import V5
from .observations import Role, Transport, Verb
from .seen import CAPABILITIES, VERSION, Ask, Breach, Frame, Kind, State, Stream, key_of, shown
from .watch import Watch, breach

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


class Streams(Watch):
    """Streamable HTTP: a POST's stream is about what was posted, a GET's about the rest."""

    def headed(self, stream: Stream, index: int, session: str | None) -> Iterator[Breach]:
        status, kind = stream.status or 0, stream.content_type
        revision = stream.asks[0].revision if stream.asks else self.book.revision_of_head(stream)

        def found(rule: str, text: str) -> Breach:
            return Breach(rule, Role.SERVER, text, revision, (stream.index, index))

        if not 200 <= status < 300:
            return
        if stream.verb is Verb.POST and stream.asks:
            is_owed = any(ask.state is not State.CANCELLED and not ask.is_doubled for ask in stream.asks)
            if is_owed and (status != 200 or kind not in (_JSON, _EVENTS, None)):
                yield found(
                    "content-type", f"got {status} with {kind or 'no content type'} for {stream.asks[0].method}"
                )
        elif stream.verb is Verb.POST and stream.notices and status != 202:
            yield found("accepted-status", f"got {status}, expected 202")
        elif stream.verb is Verb.GET and kind not in (_EVENTS, None):
            yield found("content-type", f"got {kind or 'no content type'} for a GET, expected {_EVENTS}")

    def frame(self, frame: Frame) -> Iterator[Breach]:
        if frame.sender is Role.CLIENT:
            return
        if frame.kind in (Kind.RESULT, Kind.ERROR):
            yield from self._response(frame)
            yield from self._status(frame)
        elif frame.stream.verb is Verb.POST:
            yield from self._beside(frame)

    def ended(self, stream: Stream, index: int, by: Role | None) -> Iterator[Breach]:
        if by is not Role.SERVER or stream.has_event_id or (stream.status or 200) >= 400:
            return
        for ask in stream.origin.asks:
            if ask.state is State.OPEN and ask.channel == stream.number and not ask.is_doubled:
                text = f"the stream ended without the answer to {ask.method} {shown(ask.id)}"
                yield Breach("stream-ended-early", Role.SERVER, text, ask.revision, (ask.index, index))

    def _response(self, frame: Frame) -> Iterator[Breach]:
        origin, ask = frame.stream.origin, frame.ask
        if (frame.stream.status or 0) >= 400:
            return  # a refusal's body
        if origin.verb is Verb.GET:
            if origin.last_event_id is None:
                yield breach(frame, "response-on-get", f"got the answer to {shown(frame.message.get('id'))} on a GET")
        elif ask is not None and ask not in origin.asks:
            rule = "response-stream" if frame.stream is origin else "replay-stream"
            text = f"got the answer to {ask.method} {shown(ask.id)} on the stream of another request"
            yield breach(frame, rule, text, ask.index)

    def _status(self, frame: Frame) -> Iterator[Breach]:
        stream, error = frame.stream, frame.message.get("error")
        if (
            frame.kind is Kind.RESULT
            or stream.messages
            or stream.content_type == _EVENTS
            or not isinstance(error, dict)
        ):
            return
        code = error.get("code")
        expected = _STATUS.get(code) if isinstance(code, int) else None
        if code == INVALID_PARAMS and frame.ask is not None and not {VERSION, CAPABILITIES} <= frame.ask.meta.keys():
            expected = 400
        if expected is not None and stream.status not in (None, expected):
            yield breach(frame, "error-status", f"got {stream.status} with the code {code}, expected {expected}")

    def _beside(self, frame: Frame) -> Iterator[Breach]:
        asks = frame.stream.origin.asks
        if asks and all(ask.state is State.ANSWERED for ask in asks):
            yield breach(frame, "stream-goes-on", f"got {frame.method} after the last response")
        token = key_of(frame.params.get("progressToken")) if frame.method == "notifications/progress" else None
        owner: Ask | None = None if token is None else self.book.tokens[Role.CLIENT].get(token)
        if token is not None and (Role.CLIENT, token) in self.book.shared_tokens:
            owner = None
        if owner is not None and owner not in asks and not owner.is_task:
            text = f"got progress of {owner.method} {shown(owner.id)} on the stream of another request"
            yield breach(frame, "unrelated-on-stream", text, owner.index)
        listens = any(ask.method == "subscriptions/listen" for ask in asks)
        if frame.revision == V5 and frame.method in _OF_A_SUBSCRIPTION and not listens:
            yield breach(frame, "unrelated-on-stream", f"got {frame.method} on a stream that is no subscription's")


class EventPipe(Watch):
    """HTTP+SSE: the address comes first, and everything else as `message` events on the one stream."""

    def frame(self, frame: Frame) -> Iterator[Breach]:
        if frame.sender is Role.CLIENT:
            return
        if frame.stream.verb is Verb.POST:
            if (frame.stream.status or 200) < 400:
                yield breach(frame, "message-on-post", f"got {frame.method or 'a response'} in the reply to a POST")
        elif not frame.stream.messages:
            yield breach(frame, "endpoint-first", "got a message before the endpoint")
        elif frame.said.event != "message":
            yield breach(frame, "endpoint-first", f"got a message in an event of type {shown(frame.said.event)}")


def watches(transport: Transport) -> tuple[type[Watch], ...]:
    """What a transport needs."""
    if transport is Transport.HTTP:
        return (Streams,)
    return (EventPipe,) if transport is Transport.EVENTS else ()
