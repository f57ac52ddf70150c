"""One HTTP reply of the MCP endpoint, which becomes a JSON document or an event stream as late as possible.

A server may respond to a POST with `application/json` or with `text/event-stream`, and a client must support both. The
JSON form suits simple clients, which need no event parser, and it carries an HTTP status of its own. Only the event
stream can carry several messages. The proxy does not know in advance how many messages will come, so an `HttpReply`
writes nothing until it must.

A reply starts SILENT: no byte is written, and every form is possible. The inputs are orders of the engine, except for
OPENED and COMMENT, which the HTTP server gives by itself. Three of them commit a silent reply to an event stream
(STREAMING): MESSAGE, a message that others will follow; OPENED, given for a GET, whose client waits for the head; and
COMMENT, given after a long silence so that intermediaries do not close the connection. From there on the status is 200,
and only events, comments and the end can follow. LAST, the last message, ends the reply in either state: as the JSON
document if nothing was written (as one event if the client accepts only events), else as the last event.

A large last message need not be in memory as a whole. BEGUN gives its size and first part, and the reply is PASSING
until PART and LAST_PART have delivered exactly that many bytes. The form is chosen as for LAST. While the reply is
PASSING neither a comment nor another message may come between. A message that fits into one part takes LAST_PART alone.

CLOSED ends the reply without another message. What it writes depends on the state. SILENT: a head with a status and no
body, or an empty event stream for a GET or under the status 200. STREAMING: the end of the stream. PASSING: the
connection is cut, because the client must see that its message is incomplete. ENDED is terminal. A step that the table
does not have raises `LocalProtocolError` and changes nothing; only `keep_alive` ignores one, since it comes from a
timer.

The module writes no bytes of HTTP framing. Its methods return `ReplyHead`, `ReplyBody`, `ReplyEnd`, `ReplyCut` and
`ReplyDocument`, which the HTTP server encodes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ...base.effects import Close, Pass, Send, SendEvents
from ...base.errors import LocalProtocolError
from ...base.state_machine import Symbol
from ..headers import EVENTS, JSON, Headers
from ..sse import COMMENT, encode_event, encode_events, without_line_ends


class HttpReplyState(Symbol):
    SILENT = "silent"  # nothing is written, and every form is possible
    STREAMING = "streaming"  # an event stream is open
    PASSING = "passing"  # the last message is being written in parts
    ENDED = "ended"


class HttpReplyInput(Symbol):
    OPENED = "opened"  # open the event stream before there is a message
    MESSAGE = "message"  # a message that is not the last
    COMMENT = "comment"  # keep intermediaries from closing an idle stream
    BEGUN = "begun"  # the first part of the last message
    PART = "part"  # a further part of it
    LAST_PART = "last part"  # the part that completes it, or all of it at once
    LAST = "last"  # the last message, whole
    CLOSED = "closed"  # the end, without another message


# Source: 2025-11-25 basic/transports, "Sending Messages to the Server" 5 and 6, "Listening for Messages" 3.
# An input missing from a row is illegal in that state; an empty row is terminal.
TRANSITIONS: Final[dict[HttpReplyState, dict[HttpReplyInput, HttpReplyState]]] = {
    HttpReplyState.SILENT: {
        HttpReplyInput.OPENED: HttpReplyState.STREAMING,
        HttpReplyInput.MESSAGE: HttpReplyState.STREAMING,
        HttpReplyInput.COMMENT: HttpReplyState.STREAMING,
        HttpReplyInput.BEGUN: HttpReplyState.PASSING,
        HttpReplyInput.LAST_PART: HttpReplyState.ENDED,
        HttpReplyInput.LAST: HttpReplyState.ENDED,
        HttpReplyInput.CLOSED: HttpReplyState.ENDED,
    },
    HttpReplyState.STREAMING: {
        HttpReplyInput.MESSAGE: HttpReplyState.STREAMING,
        HttpReplyInput.COMMENT: HttpReplyState.STREAMING,
        HttpReplyInput.BEGUN: HttpReplyState.PASSING,
        HttpReplyInput.LAST_PART: HttpReplyState.ENDED,
        HttpReplyInput.LAST: HttpReplyState.ENDED,
        HttpReplyInput.CLOSED: HttpReplyState.ENDED,
    },
    HttpReplyState.PASSING: {
        HttpReplyInput.PART: HttpReplyState.PASSING,
        HttpReplyInput.LAST_PART: HttpReplyState.ENDED,
        HttpReplyInput.CLOSED: HttpReplyState.ENDED,
    },
    HttpReplyState.ENDED: {},
}


class ReplyHead(msgspec.Struct, frozen=True, tag=True):
    """The status and headers of a reply. Without `content-length` the length is open, and the driver chooses the
    framing."""

    status: int
    headers: Headers


class ReplyBody(msgspec.Struct, frozen=True, tag=True):
    """A piece of the body."""

    data: bytes | bytearray


class ReplyEnd(msgspec.Struct, frozen=True, tag=True):
    """The end of a complete reply."""


class ReplyCut(msgspec.Struct, frozen=True, tag=True):
    """The end of an incomplete reply. The driver closes the connection, which shows the client that bytes are
    missing."""


class ReplyDocument(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A whole reply with a body of known length: head, body and end in one. The body may be in several pieces.

    `headers` have no `content-length`: the framing adds it. The usual headers are the same object in every reply.
    """

    headers: Headers
    pieces: tuple[bytes, ...]
    status: int = 200

    @property
    def data(self) -> bytes:
        """The body in one piece."""
        return b"".join(self.pieces)


Out = ReplyHead | ReplyBody | ReplyEnd | ReplyCut | ReplyDocument


class HttpReply:
    """The state of one reply. It moves along `TRANSITIONS` only.

    Args:
        accepts_json: the client accepts `application/json`. Errors are sent as JSON in any case.
        accepts_events: the client accepts `text/event-stream`.
        is_stream: the reply is to a GET for an event stream. Closed early, it is an empty event stream and not a 202.
        may_commit: the head is known already (no session id is to come), so a slow reply may become an event stream
            before its first message, to be kept alive.

    Attributes:
        left_bytes: the bytes of the last message that are still to come, while PASSING.
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
        self.state = HttpReplyState.SILENT
        self._accepts_json = accepts_json
        self._accepts_events = accepts_events
        self._is_stream = is_stream
        self._is_event = False  # in PASSING: the last message is written as an event
        self.left_bytes = 0

    def open(self) -> list[Out]:
        """Opens the event stream before there is a message.

        Raises:
            LocalProtocolError: something was written already, or the client accepts no events. The state is unchanged.
        """
        self._require_events()
        self._step(HttpReplyInput.OPENED)
        return [_stream_head(None)]

    def receive_send(self, order: Send) -> list[Out]:
        """Writes one message.

        Raises:
            LocalProtocolError: the reply has ended or is PASSING, or the message is not the last one and the client
                accepts only JSON. The state is unchanged.
        """
        before = self.state
        if not order.is_last:
            self._require_events()
        self._step(HttpReplyInput.LAST if order.is_last else HttpReplyInput.MESSAGE)
        if not order.is_last:
            head = [_stream_head(order.session)] if before is HttpReplyState.SILENT else []
            return [*head, ReplyBody(_event(order))]
        if before is HttpReplyState.STREAMING:
            return [ReplyBody(_event(order)), ReplyEnd()]
        # RFC 9110, 12.5.1 lets a server disregard Accept, and whatever reads the body of an error reads JSON.
        if self._accepts_json or order.status >= 400:
            return _complete_reply(order, JSON, order.message)
        return _complete_reply(order, EVENTS, _event(order))

    def receive_events(self, order: SendEvents) -> list[Out]:
        """Writes several messages, none of them the last.

        Raises:
            LocalProtocolError: see `receive_send`. The state is unchanged.
        """
        body = ReplyBody(encode_events(order.messages, order.event_ids))
        if self.state is HttpReplyState.STREAMING:  # `MESSAGE` leads back to it: no step needed
            return [body]
        self._require_events()
        self._step(HttpReplyInput.MESSAGE)
        return [_stream_head(None), body]

    def receive_pass(self, order: Pass) -> list[Out]:
        """Writes a part of the last message, in the form that the whole message would have. The bytes are not parsed.

        Raises:
            LocalProtocolError: a first part while PASSING, a further part otherwise, or more bytes than announced. The
                state is unchanged.
        """
        before, part_bytes = self.state, sum(map(len, order.pieces))
        is_first = order.size_bytes > 0
        left_bytes = (order.size_bytes if is_first else self.left_bytes) - part_bytes
        if left_bytes < 0 or is_first is (before is HttpReplyState.PASSING):
            raise LocalProtocolError(f"got a part of {part_bytes} bytes while the reply is {before.value}")
        self._step(
            HttpReplyInput.LAST_PART if not left_bytes else HttpReplyInput.BEGUN if is_first else HttpReplyInput.PART
        )
        self.left_bytes = left_bytes
        if before is HttpReplyState.SILENT and not left_bytes and self._accepts_json:
            return [ReplyDocument(_TYPES[JSON], order.pieces)]
        out: list[Out] = []
        if is_first:
            self._is_event = before is HttpReplyState.STREAMING or not self._accepts_json
            if before is HttpReplyState.SILENT:
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
        """Ends the reply without another message.

        Raises:
            LocalProtocolError: the reply has ended already. The state is unchanged.
        """
        before = self.state
        self._step(HttpReplyInput.CLOSED)
        if before is HttpReplyState.PASSING:
            return [ReplyCut()]
        if before is HttpReplyState.STREAMING:
            return [ReplyEnd()]
        if (self._is_stream and order.status < 300) or (order.status == 200 and self._accepts_events):
            return [_stream_head(None), ReplyEnd()]
        # RFC 9110, 8.6: "A server MUST NOT send a Content-Length header field in any response with a status code of
        # 1xx (Informational) or 204 (No Content)."
        length = () if order.status == 204 else ((b"content-length", b"0"),)
        return [ReplyHead(order.status, (*length, *_allow(order.status))), ReplyEnd()]

    def keep_alive(self) -> list[Out]:
        """Writes a comment if the event stream is open or may be opened for it (`may_commit`); otherwise does
        nothing."""
        before = self.state
        if before in (HttpReplyState.ENDED, HttpReplyState.PASSING) or (
            before is HttpReplyState.SILENT and not self._may_commit
        ):
            return []
        self._step(HttpReplyInput.COMMENT)
        head = [_stream_head(None)] if before is HttpReplyState.SILENT else []
        return [*head, ReplyBody(COMMENT)]

    def _require_events(self) -> None:
        if not self._accepts_events:
            raise LocalProtocolError("got a message before the last one for a client that accepts only JSON")

    def _step(self, taken: HttpReplyInput) -> None:
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
            (b"x-accel-buffering", b"no"),  # otherwise nginx would buffer the events
            *_session(session),
        ),
    )


_SPECIAL_STATUSES: Final = (204, 401, 403, 405)
"""Statuses with a header of their own or without a body: they take the general path in `_complete_reply`."""
_TYPES: Final[dict[str, Headers]] = {type: ((b"content-type", type.encode()),) for type in (JSON, EVENTS)}
_END: Final = ReplyEnd()
_EVENT_HEAD, _EVENT_END = encode_event(b"|").split(b"|")


def _complete_reply(order: Send, content_type: str, body: bytes) -> list[Out]:
    type = _TYPES[content_type]
    if order.session is None and not order.headers and order.status not in _SPECIAL_STATUSES:  # the usual case
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
    """Returns the `Allow` header, which a 405 MUST have (RFC 9110, 15.5.6). POST is the one method that the engine
    never refuses with a 405."""
    return ((b"allow", b"POST"),) if status == 405 else ()
