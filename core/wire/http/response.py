"""The client's side of Streamable HTTP: reads the HTTP response to a POST, GET or DELETE.

A `ResponseReader` is fed in three steps, whatever transport carries the response: the head, the body in pieces, the
end. It is WAITING until the head has arrived. The head alone decides how the body is read:

- ACCEPTED: success without a body to read, such as 202 or 204. The response is over (ENDED) at its head.
- PROMISED_DOCUMENT: success with `application/json`. The reader is GATHERING the body, one JSON document.
- PROMISED_EVENTS: success with `text/event-stream`. The reader is STREAMING: it returns each message when it is
  complete.
- PROMISED_OTHER: success with a type that the request did not accept, or with a content coding. ENDED. `CodedReader`
  decodes a body before it comes here; what keeps its `Content-Encoding` cannot be decoded.
- DENIED: a status of 300 or more. The reader is REFUSED, and keeps the beginning of the body for the error message.

A piece of the body is FED if it is within the limit of its state, and OVERFED if it passes that limit. A document that
is too large is replaced by an error response and not read on. An event that is too large is replaced likewise, and the
stream goes on, which is why STREAMING has no OVERFED. The body of a refusal is cut at its limit.

A large document can be passed on while it arrives. Once its beginning is there and its length is known, the reader
returns `Begun`; a caller that wants the rest in pieces calls `pass_on` (WANTED). From there on the reader is PASSING
and returns each piece. Without that call it goes on GATHERING.

FINISHED is the end that the framing of HTTP marks; CUT is the end of the connection before it. Each leads to ENDED,
and `Ended` is the last event of every response. Its `Cause` tells them apart, and of an event stream it has what is
needed for resumption: the last event id, and the time the server wants a client to wait (`retry`).

Whether a request was *answered* is not decided here. A stream may end in order without a response to the request; the
engine handles that. A redirect counts as a refusal: `redirects` decides which are followed, and responses of followed
redirects do not reach this reader.

Source: 2025-03-26 to 2026-07-28, basic/transports, "Streamable HTTP", "Sending Messages to the Server", "Resumability
and Redelivery".
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from ...base.budget import Share
from ...base.effects import Delete, Listen, Post
from ...base.errors import LocalProtocolError
from ...base.events import Cause, Connected, End
from ...base.limits import Limits
from ...jsonrpc.envelope_edges import EDGE_BYTES, PARTS_MIN_BYTES, is_request
from ..chunks import Chunks
from ..oversize import NULL_ID, answer_for, refusal_of
from ..sse import Event, EventReader, Oversize, Retry
from .codings import describe_unread
from .redirects import FOLLOWED, REFUSED, show_origin
from .request import can_be_named, is_value

REFUSAL_BODY_MAX_BYTES: Final = 64 * 1024
"""The bytes kept of the body of a refusal. Enough for a JSON-RPC error or the beginning of an HTML page. At it: the
rest is not read."""

CHALLENGE_MAX_BYTES: Final = 4 * 1024
"""The longest `WWW-Authenticate`. A part of it would mean something else. At it: it is left out."""

MESSAGES: Final = frozenset({"message"})

_HINTS: Final = {
    401: "; does it want credentials in a header?",
    403: "; does it want credentials in a header?",
    404: "; is the path of its URL right?",
    405: "; is the path of its URL right?",
    426: "; is it a ws:// server?",
    500: "; see the log of the server",
    501: "; is the path of its URL right?",
    502: "; see the log of the server, or of the proxy before it",
    504: "; see the log of the server, or of the proxy before it",
}

ENDED_ORDERLY: Final = Cause(End.DONE)


class Opened(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The server accepted the request with `status`. `session` is the `Mcp-Session-Id` of the response, if it is
    visible ASCII."""

    session: str | None = None
    status: int = 200


class Primed(msgspec.Struct, frozen=True, tag=True):
    """The response to a `Post` is an event stream that named an event id before any message: it can be resumed."""


class Arrived(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, gc=False):
    """One JSON-RPC message, or a batch of them as a JSON array. It was not parsed, so it may be malformed.

    `event` is the type of the event that carried it: "message", or another type in `event_types` of the reader.
    """

    message: bytes
    event: str = "message"


class Begun(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A JSON document of `size_bytes` has begun to arrive; `beginning` are its first bytes. A caller that wants the
    rest in pieces calls `ResponseReader.pass_on` before it feeds more."""

    beginning: bytes
    size_bytes: int


class Piece(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, gc=False):
    """A piece of a document that is passed on. The last one completes the document, and `Ended` follows at once."""

    data: bytes
    is_last: bool = False


class Dropped(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """An event over the limit was dropped: `detail` for people. If its id is known, an error response with that id
    follows as `Arrived`."""

    detail: str
    event: str = "message"


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The end of the response. Every response has exactly one, as its last event."""

    cause: Cause


ReplyEvent = Opened | Primed | Arrived | Begun | Piece | Dropped | Ended


class ResponseState(enum.Enum):
    __hash__ = object.__hash__  # as for any object: `Enum` would hash the member's name at every step

    WAITING = "waiting"  # the head has not arrived
    GATHERING = "gathering"  # a JSON document is being buffered
    PASSING = "passing"  # a JSON document that is passed on in pieces
    STREAMING = "streaming"  # an event stream is being read
    REFUSED = "refused"  # the body of an error is being kept
    ENDED = "ended"


class ResponseInput(enum.Enum):
    __hash__ = object.__hash__  # see `ResponseState`

    ACCEPTED = "accepted"  # a head: success, no message follows
    PROMISED_DOCUMENT = "promised document"  # a head: success, a JSON document follows
    PROMISED_EVENTS = "promised events"  # a head: success, an event stream follows
    PROMISED_OTHER = "promised other"  # a head: success, a body that the request did not accept follows
    DENIED = "denied"  # a head: a status of 300 or more
    FED = "fed"  # a piece of the body, within its limit
    WANTED = "wanted"  # pass the document on in pieces from here on
    OVERFED = "overfed"  # a piece of the body that passes the limit
    FINISHED = "finished"  # the end, as the framing marks it
    CUT = "cut"  # the connection ended before it


# An input missing from a row is illegal in that state; an empty row is terminal.
TRANSITIONS: Final[dict[ResponseState, dict[ResponseInput, ResponseState]]] = {
    ResponseState.WAITING: {
        ResponseInput.ACCEPTED: ResponseState.ENDED,
        ResponseInput.PROMISED_DOCUMENT: ResponseState.GATHERING,
        ResponseInput.PROMISED_EVENTS: ResponseState.STREAMING,
        ResponseInput.PROMISED_OTHER: ResponseState.ENDED,
        ResponseInput.DENIED: ResponseState.REFUSED,
        ResponseInput.CUT: ResponseState.ENDED,
    },
    ResponseState.GATHERING: {
        ResponseInput.FED: ResponseState.GATHERING,
        ResponseInput.WANTED: ResponseState.PASSING,
        ResponseInput.OVERFED: ResponseState.ENDED,
        ResponseInput.FINISHED: ResponseState.ENDED,
        ResponseInput.CUT: ResponseState.ENDED,
    },
    ResponseState.PASSING: {
        ResponseInput.FED: ResponseState.PASSING,
        ResponseInput.FINISHED: ResponseState.ENDED,
        ResponseInput.CUT: ResponseState.ENDED,
    },
    ResponseState.STREAMING: {
        ResponseInput.FED: ResponseState.STREAMING,
        ResponseInput.FINISHED: ResponseState.ENDED,
        ResponseInput.CUT: ResponseState.ENDED,
    },
    ResponseState.REFUSED: {
        ResponseInput.FED: ResponseState.REFUSED,
        ResponseInput.OVERFED: ResponseState.ENDED,
        ResponseInput.FINISHED: ResponseState.ENDED,
        ResponseInput.CUT: ResponseState.ENDED,
    },
    ResponseState.ENDED: {},
}


class ResponseReader:
    """Reads one response to a `Post`, `Listen` or `Delete`. It moves along `TRANSITIONS` only.

    A JSON-RPC response over the limit is replaced by an error response that says so. Its id is null where the dropped
    response does not show one: it then belongs to the only request whose response can arrive here. A document that is
    too large is not read on; an event that is too large is read to its end, and the stream goes on.

    The reader reports a large document of known length with `Begun` once its first bytes are there. It buffers the
    document nevertheless, unless the caller calls `pass_on`.

    The events do not depend on how the body was cut into pieces, except for `Begun` and `Piece`. Once `is_ended`, the
    caller must not feed the rest of the response. At most `limits.reply_size_max_bytes` of one message are held.

    Args:
        event_types: the types of events whose data is returned. Others are extensions, and ignored.
        has_messages: a success may have messages. If False, its body is not read.
        share: takes the bytes of a message that is arriving and is larger than most. A message for which it has no room
            is treated like one over the limit.
    """

    def __init__(
        self,
        target: Post | Listen | Delete,
        limits: Limits,
        *,
        event_types: frozenset[str] = MESSAGES,
        has_messages: bool = True,
        share: Share | None = None,
    ) -> None:
        self.state = ResponseState.WAITING
        self._target = target
        self._event_types = event_types
        self._has_messages = has_messages and not isinstance(target, Delete)
        if isinstance(target, Post) and not is_request(target.message):
            self._has_messages = False  # the server has nothing to say; the official SDKs do not read it either
        self._size_max = limits.reply_size_max_bytes
        self._share = share
        self._body = Chunks()  # the document, or what is kept of a refusal
        self._announced_bytes = 0  # in GATHERING: length of the document, until `Begun` is due
        self._begun_bytes = 0  # in GATHERING: bytes that were there at `Begun`
        self._left_bytes = 0  # bytes missing at `Begun`; in PASSING: bytes missing now
        self._last_piece = b""  # in PASSING: held back until the end confirms it
        self._status = 0  # in REFUSED
        self._detail = ""  # in REFUSED
        self._refusal_size_max = REFUSAL_BODY_MAX_BYTES
        self._challenge = ""  # in REFUSED
        self._events: EventReader | None = None  # in STREAMING
        self._has_begun = False  # in STREAMING: a message or `Primed` was returned
        self._last_event_id: str | None = None  # since STREAMING
        self._retry_ms: int | None = None  # since STREAMING
        self._loss = ""  # since STREAMING: a dropped event that may have been the response

    @property
    def is_ended(self) -> bool:
        return self.state is ResponseState.ENDED

    @property
    def is_gathering(self) -> bool:
        """True if the rest of the body is one document: the caller may wait for all of it without delaying a
        message."""
        return self.state is ResponseState.GATHERING

    def receive_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> list[ReplyEvent]:
        """Takes the status and headers of the final response.

        Args:
            headers: names in lower case, values without leading or trailing blanks. Of several with one name the first
                counts.

        Raises:
            LocalProtocolError: a head was taken already, or this is an interim one (1xx). The state is unchanged.
        """
        if not 200 <= status <= 999:
            raise LocalProtocolError(f"got status {status}, expected a final one (200 to 999)")
        fields = dict(reversed(headers))
        if status == 204 and isinstance(self._target, Listen):
            # WHATWG HTML, "Server-sent events": "Clients will reconnect if the connection is closed; a client can be
            # told to stop reconnecting using the HTTP 204 No Content response code."
            self._step(ResponseInput.ACCEPTED)
            return [Ended(Cause(End.REFUSED, "got HTTP status 204, expected an event stream", 204))]
        if status >= 300:
            self._step(ResponseInput.DENIED)
            self._status = status
            self._detail = _describe_refusal(status, fields.get(b"location"))
            self._challenge = _challenge(headers) if status in (401, 403) else ""
            if b"content-encoding" in fields and (unread := describe_unread(headers)):
                self._detail += f"; of its body: {unread}"  # nobody could read the body in an error message
                self._refusal_size_max = 0
            return []
        if not self._has_messages or status in (202, 204, 205) or fields.get(b"content-length") == b"0":
            # Any success will do for a DELETE. An empty 200 is how some servers accept a notification.
            self._step(ResponseInput.ACCEPTED)
            return [Opened(_session(fields), status), Ended(ENDED_ORDERLY)]
        unread = describe_unread(headers) if b"content-encoding" in fields else ""
        return [self._receive_success(fields, status, unread)]

    def receive_body(self, data: bytes | bytearray) -> list[ReplyEvent]:
        """Takes a piece of the body, without transfer coding, cut anywhere.

        Raises:
            LocalProtocolError: called before the head or after `Ended`. The state is unchanged.
        """
        if self._events is not None:  # STREAMING: `FED` leads back to it, no step needed
            return self._receive_events(self._events, bytes(data))
        is_refused = self.state is ResponseState.REFUSED
        size_max = self._refusal_size_max if is_refused else self._size_max
        if self.state is ResponseState.PASSING:
            return self._receive_piece(bytes(data))
        size_bytes = self._body.size_bytes + len(data)
        if size_bytes <= size_max and (self._share is None or self._share.hold(size_bytes)):
            self._step(ResponseInput.FED)
            self._body.append(data)
            if self._announced_bytes and self._body.size_bytes >= EDGE_BYTES:
                return self._report_begun()
            return []
        self._step(ResponseInput.OVERFED)
        if is_refused:
            self._body.append(data[: size_max - self._body.size_bytes])
            return [self._refusal()]
        assert isinstance(self._target, Post), "only its reply may be a document"
        self._take_body()
        if size_bytes <= size_max:
            answer = Arrived(refusal_of(NULL_ID, size_bytes, size_max))
            return [answer, self._broken("got a reply for which others that are arriving leave no room")]
        answer = Arrived(refusal_of(NULL_ID, None, size_max))
        return [answer, self._broken(f"got a reply over the limit of {size_max} bytes")]

    def pass_on(self) -> tuple[bytes, ...]:
        """Passes the document on from here on: each further piece is returned when it arrives. Returns the bytes
        gathered so far, whose first piece holds at least what `Begun` has shown.

        Raises:
            LocalProtocolError: no `Begun` was returned, or more was fed since. The state is unchanged.
        """
        if not self._begun_bytes or self._begun_bytes != self._body.size_bytes:
            raise LocalProtocolError(f"got 'wanted' while {self.state.value}, expected it right after the beginning")
        self._step(ResponseInput.WANTED)
        if self._share is not None:
            self._share.give_all_back()
        return self._body.take_pieces(EDGE_BYTES)

    def _report_begun(self) -> list[ReplyEvent]:
        """Returns `Begun` once, and nothing if all of the document is there already."""
        size_bytes, self._announced_bytes = self._announced_bytes, 0
        gathered_bytes = self._body.size_bytes
        if gathered_bytes >= size_bytes:
            return []
        self._begun_bytes, self._left_bytes = gathered_bytes, size_bytes - gathered_bytes
        return [Begun(self._body.copy_beginning(EDGE_BYTES), size_bytes)]

    def _receive_piece(self, data: bytes) -> list[ReplyEvent]:
        if len(data) > self._left_bytes:
            raise LocalProtocolError(f"got {len(data)} bytes of a document of which {self._left_bytes} were to come")
        self._step(ResponseInput.FED)
        self._left_bytes -= len(data)
        if not self._left_bytes:
            # Held back until `receive_eof`, which may be a CUT: an empty piece may follow the last one.
            self._last_piece = self._last_piece or data
            return []
        return [Piece(data)] if data else []

    def receive_eof(self, is_complete: bool, problem: str = "") -> list[ReplyEvent]:
        """Ends the response.

        Args:
            is_complete: the framing marks the end; False if merely the connection ended.
            problem: the reason for people why the response was cut off, if not the end of the connection.

        Raises:
            LocalProtocolError: called after `Ended`, or complete before the head. The state is unchanged.
        """
        state = self.state
        is_complete = is_complete and not (state is ResponseState.PASSING and self._left_bytes)
        self._step(ResponseInput.FINISHED if is_complete else ResponseInput.CUT)
        out: list[ReplyEvent] = []
        dropped = self._events.receive_eof() if self._events is not None else []
        if state is ResponseState.REFUSED:  # the status is what matters, not whether its body is complete
            if problem:  # what came of a malformed body is not believed
                self._detail += f"; {problem}"
                self._take_body()
            out.append(self._refusal())
        elif not is_complete:
            out.append(self._broken(problem or _CUT_DETAIL[state]))
        elif dropped:  # an event over the limit was cut off, though the response was not
            out.append(self._broken(_oversize_detail(dropped[0].size_bytes, self._size_max)))
        elif state is ResponseState.PASSING:
            out += (Piece(self._last_piece, is_last=True), Ended(ENDED_ORDERLY))
        else:
            if self._body.size_bytes:
                out.append(Arrived(self._take_body()))
            out.append(self._ended(Cause(End.DONE, self._loss) if self._loss else ENDED_ORDERLY))
        if self._body.size_bytes:
            self._take_body()
        self._events = None
        return out

    def _take_body(self) -> bytes:
        if self._share is not None and self._share.amount:
            self._share.give_all_back()
        return self._body.take()

    def _receive_success(self, fields: dict[bytes, bytes], status: int, unread: str) -> ReplyEvent:
        """Chooses how to read the body of a success, by its `Content-Type`. `unread` says why it cannot be decoded."""
        content_type = fields.get(b"content-type", b"")
        given = _INPUT_BY_TYPE.get(content_type) or _INPUT_BY_TYPE.get(content_type.partition(b";")[0].strip().lower())
        is_listening = isinstance(self._target, Listen)
        if unread:
            self._step(ResponseInput.PROMISED_OTHER)
            return self._broken(unread)
        if given is None or (is_listening and given is not ResponseInput.PROMISED_EVENTS):
            self._step(ResponseInput.PROMISED_OTHER)
            seen = f"Content-Type {_show(content_type)}" if content_type else "no Content-Type"
            wanted = "text/event-stream" if is_listening else "application/json or text/event-stream"
            return self._broken(f"got {seen}, expected {wanted}; is this the MCP URL?")
        self._step(given)
        if given is ResponseInput.PROMISED_DOCUMENT:
            self._announced_bytes = self._announced_size(fields)
        else:
            self._events = EventReader(event_size_max_bytes=self._size_max, share=self._share)
        return Opened(_session(fields), status)

    def _announced_size(self, fields: dict[bytes, bytes]) -> int:
        """Returns the length of the document if it is known and large enough for `Begun`; otherwise 0."""
        length = fields.get(b"content-length", b"")
        if not length.isdigit() or len(length) > 15 or b"transfer-encoding" in fields:
            return 0
        size_bytes = int(length)
        return size_bytes if PARTS_MIN_BYTES <= size_bytes <= self._size_max else 0

    def _receive_events(self, reader: EventReader, data: bytes) -> list[ReplyEvent]:
        out: list[ReplyEvent] = []
        if self._event_types is MESSAGES:
            messages, data = reader.take_plain(data)
            if messages:
                self._has_begun = True
                out += map(Arrived, messages)
            if not data:
                return out
        for event in reader.receive_bytes(data):
            if isinstance(event, Retry):
                self._retry_ms = event.ms
                continue
            if event.id != self._last_event_id:
                self._last_event_id = event.id if can_be_named(event.id) else ""
            if isinstance(event, Event) and event.type in self._event_types:
                self._has_begun = True
                out.append(Arrived(event.data, event.type))
            elif isinstance(event, Oversize) and event.type in self._event_types:
                self._receive_oversize(event, out)
            elif self._last_event_id and not self._has_begun and isinstance(self._target, Post):
                self._has_begun = True
                out.append(Primed())
        return out

    def _receive_oversize(self, event: Oversize, out: list[ReplyEvent]) -> None:
        self._has_begun = True
        detail = _oversize_detail(event.size_bytes, self._size_max)
        out.append(Dropped(detail, event.type))
        answer = answer_for(event.head, event.size_bytes, self._size_max, tail=event.tail, is_addressed=True)
        if answer is None:
            self._loss = detail
        else:
            out.append(Arrived(answer))

    def _refusal(self) -> Ended:
        return Ended(Cause(End.REFUSED, self._detail, self._status, self._take_body(), challenge=self._challenge))

    def _broken(self, detail: str) -> Ended:
        return self._ended(Cause(End.BROKEN, detail))

    def _ended(self, cause: Cause) -> Ended:
        """Returns the end, with what is needed to resume an event stream."""
        if self._last_event_id is None and self._retry_ms is None:
            return Ended(cause)
        return Ended(msgspec.structs.replace(cause, last_event_id=self._last_event_id, retry_ms=self._retry_ms))

    def _step(self, given: ResponseInput) -> None:
        state = TRANSITIONS[self.state].get(given)
        if state is None:
            raise LocalProtocolError(f"got '{given.value}' while {self.state.value}")
        self.state = state


def promise_of(status: int, headers: Sequence[tuple[bytes, bytes]], *, size_max_bytes: int) -> Connected | None:
    """The fast path for the head of a response to a `Post`. Returns `Connected` if the response is accepted without a
    body, or announces one JSON document of a known and allowed length and sets no cookies; None if a `ResponseReader`
    is needed.

    The caller skips the reader and takes the body as one message. The reader would report the same: `Opened`, the
    document if there is one, and an orderly end. `test_where_nothing_is_promised_the_message_was_taken` in
    `tests/core/wire/http/test_response.py` compares both for accepted messages.
    """
    fields = dict(reversed(headers))
    length = fields.get(b"content-length", b"")
    if b"set-cookie" in fields or b"content-encoding" in fields or not length.isdigit():
        return None
    if length == b"0" and status in (200, 202):
        return Connected(_session(fields), status=status)
    if status != 200:
        return None
    if _INPUT_BY_TYPE.get(fields.get(b"content-type", b"")) is not ResponseInput.PROMISED_DOCUMENT:
        return None
    return Connected(_session(fields), status=status) if 0 < int(length) <= size_max_bytes else None


_VISIBLE: Final = re.compile(rb"[!-~]+")

_INPUT_BY_TYPE: Final = {
    b"application/json": ResponseInput.PROMISED_DOCUMENT,
    b"text/event-stream": ResponseInput.PROMISED_EVENTS,
}

_CUT_DETAIL: Final = {
    ResponseState.WAITING: "the connection ended before a response",
    ResponseState.GATHERING: "the connection ended within the response",
    ResponseState.PASSING: "the connection ended within the response",
    ResponseState.STREAMING: "the connection ended within the event stream",
}


def _oversize_detail(size_bytes: int, limit: int) -> str:
    if size_bytes <= limit:
        return f"got an event of {size_bytes} bytes, for which other messages that are arriving leave no room"
    return f"got an event of {size_bytes} bytes, over the limit of {limit} bytes"


def _session(fields: dict[bytes, bytes]) -> str | None:
    """Returns the session id, if it is of characters 0x21 to 0x7E only. Source: 2025-03-26 basic/transports, "Session
    Management"."""
    value = fields.get(b"mcp-session-id")
    return value.decode("ascii") if value is not None and _VISIBLE.fullmatch(value) else None


def _challenge(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """Returns `WWW-Authenticate`. Several lines of it mean the same as one list (RFC 9110, 11.6.1)."""
    lines = [value for name, value in headers if name == b"www-authenticate"]
    whole = b", ".join(lines)
    return whole.decode("latin-1") if len(whole) <= CHALLENGE_MAX_BYTES and is_value(whole) else ""


def _describe_refusal(status: int, location: bytes | None) -> str:
    if location is None or status not in FOLLOWED | REFUSED:
        return f"got HTTP status {status}, expected success{_HINTS.get(status, '')}"
    return f"got a redirect (HTTP status {status}) to {show_origin(location)}, not followed; expected the final URL"


def _show(value: bytes) -> str:
    """Returns a header value for an error message: at most 100 characters, printable ASCII only."""
    return "".join(chr(c) if 0x20 <= c <= 0x7E else "?" for c in value[:100])
