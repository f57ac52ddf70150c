"""One HTTP reply of the MCP endpoint, which stays undecided between JSON and an event stream as long as it can.

A reply that turns out to be one message travels as `application/json`, so that simple clients need no event parser and
the reply carries its own status. The first message that is not the last one, or a long silence, commits to
`text/event-stream`: from there on the status is 200, and only events, comments and the end can follow.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ...base.effects import Close, Pass, Send, SendEvents
from ...base.errors import LocalProtocolError
from ...base.state_machine import Symbol
from ..headers import EVENTS, JSON, Headers
from ..sse import COMMENT, encode_event, encode_events, without_line_ends


class State(Symbol):
    SILENT = "silent"  # nothing written, everything still possible
    STREAMING = "streaming"  # an event stream is open
    PASSING = "passing"  # the last message is on its way, in parts
    ENDED = "ended"


class Input(Symbol):
    OPENED = "opened"  # show the client an open stream before there is an event
    MESSAGE = "message"  # a message that others follow
    COMMENT = "comment"  # keep idle middle boxes from cutting the stream
    BEGUN = "begun"  # the first part of the last message
    PART = "part"  # a further part of it
    LAST_PART = "last part"  # the part of it that ends it, or all of it
    LAST = "last"  # the last message
    CLOSED = "closed"  # the end, without another message


# Source: 2025-11-25 basic/transports, "Sending Messages to the Server" 5 and 6, "Listening for Messages" 3.
# An input missing from a row is illegal in that state; an empty row is terminal.
TRANSITIONS: Final[dict[State, dict[Input, State]]] = {
    State.SILENT: {
        Input.OPENED: State.STREAMING,
        Input.MESSAGE: State.STREAMING,
        Input.COMMENT: State.STREAMING,
        Input.BEGUN: State.PASSING,
        Input.LAST_PART: State.ENDED,
        Input.LAST: State.ENDED,
        Input.CLOSED: State.ENDED,
    },
    State.STREAMING: {
        Input.MESSAGE: State.STREAMING,
        Input.COMMENT: State.STREAMING,
        Input.BEGUN: State.PASSING,
        Input.LAST_PART: State.ENDED,
        Input.LAST: State.ENDED,
        Input.CLOSED: State.ENDED,
    },
    State.PASSING: {
        Input.PART: State.PASSING,
        Input.LAST_PART: State.ENDED,
        Input.CLOSED: State.ENDED,
    },
    State.ENDED: {},
}


class ReplyHead(msgspec.Struct, frozen=True, tag=True):
    """Without a `content-length` among `headers` the length is open, and the framing is the driver's to choose."""

    status: int
    headers: Headers


class ReplyBody(msgspec.Struct, frozen=True, tag=True):
    data: bytes | bytearray


class ReplyEnd(msgspec.Struct, frozen=True, tag=True):
    pass


class ReplyCut(msgspec.Struct, frozen=True, tag=True):
    """There will be no more of it: the connection is to be closed, which tells the client that something is missing."""


class ReplyDocument(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A whole reply with a body of known length, in one piece or several: head, body and end in one. Its `headers`
    leave the length to the framing; equal ones of two replies are the same object."""

    headers: Headers
    pieces: tuple[bytes, ...]
    status: int = 200

    @property
    def data(self) -> bytes:
        """The body."""
        return b"".join(self.pieces)


Out = ReplyHead | ReplyBody | ReplyEnd | ReplyCut | ReplyDocument


class Reply:
    """A reply moves along `TRANSITIONS` only.

    Args:
        accepts_json: the client takes `application/json`. Errors are sent as JSON whatever it takes.
        accepts_events: the client takes `text/event-stream`.
        is_stream: this answers a GET for an event stream, which ends as an empty one rather than with 202.
        may_commit: nothing that belongs into the head is still to come, so a reply that is long in coming may become
            an event stream before its first message, to be kept alive.

    Attributes:
        left_bytes: of the last message, so many are to come, while it is PASSING.
    """

    __slots__ = ("_accepts_events", "_accepts_json", "_is_event", "_is_stream", "_may_commit", "left_bytes", "state")

    def __init__(
        self,
        *,
        accepts_json: bool = True,
        accepts_events: bool = True,
        is_stream: bool = False,
        may_commit: bool = False,
    ) -> None:
        assert accepts_json or accepts_events
        assert accepts_events or not is_stream
        self._may_commit = may_commit and accepts_events
        self.state = State.SILENT
        self._accepts_json = accepts_json
        self._accepts_events = accepts_events
        self._is_stream = is_stream
        self._is_event = False  # in PASSING
        self.left_bytes = 0

    def open(self) -> list[Out]:
        """Begin the event stream before there is a message.

        Raises:
            LocalProtocolError: something was written already, or the client takes no events. Nothing has changed.
        """
        self._require_events()
        self._step(Input.OPENED)
        return [_stream_head(None)]

    def receive_send(self, order: Send) -> list[Out]:
        """One message for the client.

        Raises:
            LocalProtocolError: the reply has ended, or a message that is not the last one is meant for a client that
                takes only JSON. Nothing has changed.
        """
        before = self.state
        if not order.is_last:
            self._require_events()
        self._step(Input.LAST if order.is_last else Input.MESSAGE)
        if not order.is_last:
            head = [_stream_head(order.session)] if before is State.SILENT else []
            return [*head, ReplyBody(_event(order))]
        if before is State.STREAMING:
            return [ReplyBody(_event(order)), ReplyEnd()]
        # RFC 9110, 12.5.1 lets a server disregard Accept, and what reads errors reads JSON.
        if self._accepts_json or order.status >= 400:
            return _whole(order, JSON, order.message)
        return _whole(order, EVENTS, _event(order))

    def receive_events(self, order: SendEvents) -> list[Out]:
        """Several messages for the client, none of them the last.

        Raises:
            LocalProtocolError: as `receive_send`.
        """
        body = ReplyBody(encode_events(order.messages, order.event_ids))
        if self.state is State.STREAMING:  # which `MESSAGE` goes on with
            return [body]
        self._require_events()
        self._step(Input.MESSAGE)
        return [_stream_head(None), body]

    def receive_pass(self, order: Pass) -> list[Out]:
        """A part of the last message for the client. It is laid out as the whole would be, and not looked at.

        Raises:
            LocalProtocolError: it is not the time for such a part, or more than was announced. Nothing has changed.
        """
        before, part_bytes = self.state, sum(map(len, order.pieces))
        is_first = order.size_bytes > 0
        left_bytes = (order.size_bytes if is_first else self.left_bytes) - part_bytes
        if left_bytes < 0 or is_first is (before is State.PASSING):
            raise LocalProtocolError(f"got a part of {part_bytes} bytes while the reply is {before.value}")
        self._step(Input.LAST_PART if not left_bytes else Input.BEGUN if is_first else Input.PART)
        self.left_bytes = left_bytes
        if before is State.SILENT and not left_bytes and self._accepts_json:
            return [ReplyDocument(_TYPES[JSON], order.pieces)]
        out: list[Out] = []
        if is_first:
            self._is_event = before is State.STREAMING or not self._accepts_json
            if before is State.SILENT:
                size_bytes = order.size_bytes + self._is_event * (len(_EVENT_HEAD) + len(_EVENT_END))
                length = (b"content-length", b"%d" % size_bytes)
                out.append(ReplyHead(200, (*_TYPES[EVENTS if self._is_event else JSON], length)))
            if self._is_event:
                out.append(ReplyBody(_EVENT_HEAD))
        out += [ReplyBody(without_line_ends(piece) if self._is_event else piece) for piece in order.pieces]
        if not left_bytes:
            if self._is_event:
                out.append(ReplyBody(_EVENT_END))
            out.append(_END)
        return out

    def receive_close(self, order: Close) -> list[Out]:
        """The end, without another message.

        Raises:
            LocalProtocolError: the reply has ended already.
        """
        before = self.state
        self._step(Input.CLOSED)
        if before is State.PASSING:
            return [ReplyCut()]
        if before is State.STREAMING:
            return [ReplyEnd()]
        if self._is_stream and order.status < 300:
            return [_stream_head(None), ReplyEnd()]
        # RFC 9110, 8.6: "A server MUST NOT send a Content-Length header field in any response with a status code of
        # 1xx (Informational) or 204 (No Content)."
        length = () if order.status == 204 else ((b"content-length", b"0"),)
        return [ReplyHead(order.status, (*length, *_allow(order.status))), ReplyEnd()]

    def keep_alive(self) -> list[Out]:
        """A comment, on an event stream that is open or may be opened for it; nothing otherwise."""
        before = self.state
        if before in (State.ENDED, State.PASSING) or (before is State.SILENT and not self._may_commit):
            return []
        self._step(Input.COMMENT)
        head = [_stream_head(None)] if before is State.SILENT else []
        return [*head, ReplyBody(COMMENT)]

    def _require_events(self) -> None:
        if not self._accepts_events:
            raise LocalProtocolError("got a message before the last one for a client that accepts only JSON")

    def _step(self, taken: Input) -> None:
        following = TRANSITIONS[self.state].get(taken)
        if following is None:
            raise LocalProtocolError(f"got {taken.value} while the reply is {self.state.value}")
        self.state = following


def _event(order: Send) -> bytes:
    return encode_event(order.message, event=order.event, id=order.event_id, retry_ms=order.retry_ms)


def _stream_head(session: str | None) -> ReplyHead:
    return ReplyHead(
        200,
        (
            (b"content-type", EVENTS.encode()),
            (b"cache-control", b"no-cache, no-transform"),
            (b"x-accel-buffering", b"no"),  # nginx would collect the events otherwise
            *_session(session),
        ),
    )


_DESCRIBED: Final = (204, 401, 403, 405)
"""Statuses that have a header, or no body, of their own."""
_TYPES: Final[dict[str, Headers]] = {type: ((b"content-type", type.encode()),) for type in (JSON, EVENTS)}
_END: Final = ReplyEnd()
_EVENT_HEAD, _EVENT_END = encode_event(b"|").split(b"|")


def _whole(order: Send, content_type: str, body: bytes) -> list[Out]:
    type = _TYPES[content_type]
    if order.session is None and not order.headers and order.status not in _DESCRIBED:  # as most are
        return [ReplyDocument(type, (body,), order.status)]
    headers = (
        *((name.lower().encode(), value.encode()) for name, value in order.headers),
        *_session(order.session),
        *_allow(order.status),
        *_challenge(order.challenge),
    )
    if order.status == 204:
        return [ReplyHead(204, headers), ReplyEnd()]
    return [ReplyDocument((*type, *headers), (body,), order.status)]


def _session(session: str | None) -> Headers:
    return () if session is None else ((b"mcp-session-id", session.encode()),)


def _challenge(challenge: str) -> Headers:
    return ((b"www-authenticate", challenge.encode("latin-1")),) if challenge else ()


def _allow(status: int) -> Headers:
    """RFC 9110, 15.5.6: 405 MUST name the methods allowed. Only POST is never refused so by the engine."""
    return ((b"allow", b"POST"),) if status == 405 else ()
