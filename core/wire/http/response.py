"""Streamable HTTP as its client sees it: what a response to a request means.

A response is read in three steps, whatever carries it: head, body in pieces, end. Only the head decides how the body is
taken: not at all (the server had nothing to say), gathered (one JSON document), event by event, or kept for the error
message. `TRANSITIONS` says so as data. Whether a request was *answered* is not judged here: a stream may end in order
without a reply, and what follows from that is the engine's business.

The end of an event stream says where it could be taken up again: its last event id, and how long its server wants to be
left alone before that.

A redirect is a refusal here. Which are followed is said in `redirects`; their responses do not come this far.

Source: 2025-03-26 to 2026-07-28, basic/transports, "Streamable HTTP", "Sending Messages to the Server", "Resumability
and Redelivery".
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from ...base.effects import Cause, Connected, Delete, End, Listen, Post
from ...base.errors import LocalProtocolError
from ...base.limits import Limits
from ...jsonrpc.envelope_edges import EDGE_BYTES, PARTS_MIN_BYTES
from ..chunks import Pieces
from ..oversize import NOBODYS, answer_for, refusal_of
from ..sse import Event, EventReader, Oversize, Retry
from .redirects import FOLLOWED, REFUSED, show_origin
from .request import can_be_named, is_value

REFUSAL_BODY_MAX_BYTES: Final = 64 * 1024
"""What is kept of a refusing response's body. Enough for a JSON-RPC error or an HTML page's beginning."""

CHALLENGE_MAX_BYTES: Final = 4 * 1024
"""A longer `WWW-Authenticate` is left out: a part of it would say something else."""

MESSAGES: Final = frozenset({"message"})

_HINTS: Final = {
    401: "; does it want credentials in a header?",
    403: "; does it want credentials in a header?",
    404: "; is the path of its URL right?",
    405: "; is the path of its URL right?",
    426: "; is it a ws:// server?",
    501: "; is the path of its URL right?",
}

ENDED_ORDERLY: Final = Cause(End.DONE)


class Opened(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The server took the request. `session` is its `Mcp-Session-Id`, if it sent one of visible ASCII characters."""

    session: str | None = None


class Primed(msgspec.Struct, frozen=True, tag=True):
    """The response to a `Post` is an event stream that has named an event id before any message: it can be resumed."""


class Arrived(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, gc=False):
    """One JSON-RPC message, or a batch of them as a JSON array; not yet looked at, so it may be malformed.

    `event` is the type of the event it came in; another than this only if `ReplyReader` was asked for it.
    """

    message: bytes
    event: str = "message"


class Begun(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A document of so many bytes has begun to come, with `beginning`. Whoever wants the rest as it comes says so with
    `ReplyReader.pass_on`, before more is fed."""

    beginning: bytes
    size_bytes: int


class Piece(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, gc=False):
    """More of a document that was begun. With the last, which the end follows at once, it is complete."""

    data: bytes
    is_last: bool = False


class Dropped(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """An event over the limit was dropped: `detail` for people. If it can be told who waits for it, the error that they
    get for it has `Arrived` next."""

    detail: str
    event: str = "message"


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The exchange is over. Always there, once, last."""

    cause: Cause


ReplyEvent = Opened | Primed | Arrived | Begun | Piece | Dropped | Ended


class State(enum.Enum):
    __hash__ = object.__hash__  # members are what they are: their names need not be hashed at every step

    WAITING = "waiting"  # for the head
    GATHERING = "gathering"  # a JSON document
    PASSING = "passing"  # a JSON document that somebody wants as it comes
    STREAMING = "streaming"  # events
    REFUSED = "refused"  # an error's body
    ENDED = "ended"


class Input(enum.Enum):
    __hash__ = object.__hash__  # see `State`

    ACCEPTED = "accepted"  # a head: success, and no message will follow
    PROMISED_DOCUMENT = "promised document"  # a head: success, with JSON to follow
    PROMISED_EVENTS = "promised events"  # a head: success, with events to follow
    PROMISED_OTHER = "promised other"  # a head: success, with a body nobody can read
    DENIED = "denied"  # a head: no success
    FED = "fed"  # a piece of the body, within its limit
    WANTED = "wanted"  # what is gathered, as it comes
    OVERFED = "overfed"  # a piece of the body that passes the limit
    FINISHED = "finished"  # the framing's own end
    CUT = "cut"  # the connection ended before that


# An input missing from a row is illegal in that state; an empty row is terminal.
TRANSITIONS: Final[dict[State, dict[Input, State]]] = {
    State.WAITING: {
        Input.ACCEPTED: State.ENDED,
        Input.PROMISED_DOCUMENT: State.GATHERING,
        Input.PROMISED_EVENTS: State.STREAMING,
        Input.PROMISED_OTHER: State.ENDED,
        Input.DENIED: State.REFUSED,
        Input.CUT: State.ENDED,
    },
    State.GATHERING: {
        Input.FED: State.GATHERING,
        Input.WANTED: State.PASSING,
        Input.OVERFED: State.ENDED,
        Input.FINISHED: State.ENDED,
        Input.CUT: State.ENDED,
    },
    State.PASSING: {
        Input.FED: State.PASSING,
        Input.FINISHED: State.ENDED,
        Input.CUT: State.ENDED,
    },
    State.STREAMING: {
        Input.FED: State.STREAMING,
        Input.FINISHED: State.ENDED,
        Input.CUT: State.ENDED,
    },
    State.REFUSED: {
        Input.FED: State.REFUSED,
        Input.OVERFED: State.ENDED,
        Input.FINISHED: State.ENDED,
        Input.CUT: State.ENDED,
    },
    State.ENDED: {},
}


class ReplyReader:
    """One response to a `Post`, `Listen` or `Delete`. It moves along `TRANSITIONS` only.

    An answer over the limit is replaced by an error that says so, with the id null where the answer does not show its
    own: it is then that of the only request whose answer can come here. A document that is too long is not read on; an
    event that is too long is read to its end, and the stream goes on.

    A large document whose length is known is `Begun` once some of it is there. It is gathered nevertheless, unless
    somebody wants it as it comes.

    How the body was cut into pieces never shows in the events, but for such pieces. Once `is_ended`, the rest of the
    response means nothing and is not to be fed; at most `limits.reply_size_max_bytes` of one message are held at any
    time.

    Args:
        event_types: those whose data arrive; others are somebody's extension.
        has_messages: whether a success may hold any. If not, its body is not read.
    """

    def __init__(
        self,
        target: Post | Listen | Delete,
        limits: Limits,
        *,
        event_types: frozenset[str] = MESSAGES,
        has_messages: bool = True,
    ) -> None:
        self.state = State.WAITING
        self._target = target
        self._event_types = event_types
        self._has_messages = has_messages and not isinstance(target, Delete)
        self._size_max = limits.reply_size_max_bytes
        self._body = Pieces()  # gathered, or kept for the error message
        self._promised_bytes = 0  # in GATHERING: of the whole, if that is to be told of
        self._begun_bytes = 0  # in GATHERING: what was there when that was told of
        self._left_bytes = 0  # since then: what was to come; in PASSING: what is
        self._last_piece = b""  # in PASSING: to be told with the end
        self._status = 0  # in REFUSED
        self._detail = ""  # in REFUSED
        self._challenge = ""  # in REFUSED
        self._events: EventReader | None = None  # in STREAMING
        self._has_begun = False  # in STREAMING: a message came, or `Primed` was said
        self._last_event_id: str | None = None  # since STREAMING
        self._retry_ms: int | None = None  # since STREAMING
        self._loss = ""  # since STREAMING: what was dropped though it may have been the answer

    @property
    def is_ended(self) -> bool:
        return self.state is State.ENDED

    @property
    def is_gathering(self) -> bool:
        """Whether all that follows is one document: nothing is lost by waiting for that."""
        return self.state is State.GATHERING

    def receive_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> list[ReplyEvent]:
        """The final response's status and headers.

        Args:
            headers: names in lower case, values without edge blanks; the first of several equals counts.

        Raises:
            LocalProtocolError: this is not the first head, or an interim one (1xx). Nothing has changed.
        """
        if not 200 <= status <= 999:
            raise LocalProtocolError(f"got status {status}, expected a final one (200 to 999)")
        fields = dict(reversed(headers))
        if status == 204 and isinstance(self._target, Listen):
            # WHATWG HTML, "Server-sent events": "Clients will reconnect if the connection is closed; a client can be
            # told to stop reconnecting using the HTTP 204 No Content response code."
            self._step(Input.ACCEPTED)
            return [Ended(Cause(End.REFUSED, "got HTTP status 204, expected an event stream", 204))]
        if status >= 300:
            self._step(Input.DENIED)
            self._status = status
            self._detail = _describe_refusal(status, fields.get(b"location"))
            self._challenge = _challenge(headers) if status in (401, 403) else ""
            return []
        if not self._has_messages or status in (202, 204, 205) or fields.get(b"content-length") == b"0":
            # Any success will do for a DELETE. An empty 200 is how some servers accept a notification.
            self._step(Input.ACCEPTED)
            return [Opened(_session(fields)), Ended(ENDED_ORDERLY)]
        return [self._receive_promise(fields)]

    def receive_body(self, data: bytes | bytearray) -> list[ReplyEvent]:
        """A piece of the body, without transfer coding, cut anywhere.

        Raises:
            LocalProtocolError: before the head or after `Ended`. Nothing has changed.
        """
        if self._events is not None:  # streaming, which `FED` goes on with
            return self._receive_events(self._events, bytes(data))
        is_refused = self.state is State.REFUSED
        size_max = REFUSAL_BODY_MAX_BYTES if is_refused else self._size_max
        if self.state is State.PASSING:
            return self._receive_piece(bytes(data))
        if self._body.size_bytes + len(data) <= size_max:
            self._step(Input.FED)
            self._body.append(data)
            if self._promised_bytes and self._body.size_bytes >= EDGE_BYTES:
                return self._tell_begun()
            return []
        self._step(Input.OVERFED)
        if is_refused:
            self._body.append(data[: size_max - self._body.size_bytes])
            return [self._refusal()]
        assert isinstance(self._target, Post), "only its reply may be a document"
        self._body.take()
        answer = Arrived(refusal_of(NOBODYS, None, size_max))
        return [answer, self._broken(f"got a reply over the limit of {size_max} bytes")]

    def pass_on(self) -> tuple[bytes, ...]:
        """From now on what is fed is told as it comes. Returns what was gathered: its first piece holds all that
        `Begun` has shown, however it arrived.

        Raises:
            LocalProtocolError: no document was `Begun`, or more was fed since. Nothing has changed.
        """
        if not self._begun_bytes or self._begun_bytes != self._body.size_bytes:
            raise LocalProtocolError(f"got 'wanted' while {self.state.value}, expected it right after the beginning")
        self._step(Input.WANTED)
        return self._body.take_pieces(EDGE_BYTES)

    def _tell_begun(self) -> list[ReplyEvent]:
        """Once, unless all of it is there already."""
        size_bytes, self._promised_bytes = self._promised_bytes, 0
        gathered_bytes = self._body.size_bytes
        if gathered_bytes >= size_bytes:
            return []
        self._begun_bytes, self._left_bytes = gathered_bytes, size_bytes - gathered_bytes
        return [Begun(self._body.copy_beginning(EDGE_BYTES), size_bytes)]

    def _receive_piece(self, data: bytes) -> list[ReplyEvent]:
        if len(data) > self._left_bytes:
            raise LocalProtocolError(f"got {len(data)} bytes of a document of which {self._left_bytes} were to come")
        self._step(Input.FED)
        self._left_bytes -= len(data)
        if not self._left_bytes:
            self._last_piece = self._last_piece or data
            return []
        return [Piece(data)] if data else []

    def receive_eof(self, is_complete: bool, problem: str = "") -> list[ReplyEvent]:
        """The response is over: `is_complete` if its framing says so, not just because the connection ended.

        Args:
            problem: what cut it off, for people, if it was not the end of the connection.

        Raises:
            LocalProtocolError: after `Ended`, or complete before the head. Nothing has changed.
        """
        state = self.state
        is_complete = is_complete and not (state is State.PASSING and self._left_bytes)
        self._step(Input.FINISHED if is_complete else Input.CUT)
        out: list[ReplyEvent] = []
        dropped = self._events.receive_eof() if self._events is not None else []
        if state is State.REFUSED:  # the status was the news; what was cut off of its body matters little
            out.append(self._refusal())
        elif not is_complete:
            out.append(self._broken(problem or _CUT_DETAIL[state]))
        elif dropped:  # it was cut off, though the response was not
            out.append(self._broken(_over(dropped[0].size_bytes, self._size_max)))
        elif state is State.PASSING:
            out += (Piece(self._last_piece, is_last=True), Ended(ENDED_ORDERLY))
        else:
            if self._body.size_bytes:
                out.append(Arrived(self._body.take()))
            out.append(self._ended(Cause(End.DONE, self._loss) if self._loss else ENDED_ORDERLY))
        self._body.take()
        self._events = None
        return out

    def _receive_promise(self, fields: dict[bytes, bytes]) -> ReplyEvent:
        """A success with a body: take it for what it says it is."""
        content_type = fields.get(b"content-type", b"")
        given = _PROMISES.get(content_type) or _PROMISES.get(content_type.partition(b";")[0].strip().lower())
        is_listening = isinstance(self._target, Listen)
        coding = fields.get(b"content-encoding", b"identity").lower()
        if coding != b"identity":
            self._step(Input.PROMISED_OTHER)
            return self._broken(f"got Content-Encoding {_show(coding)}, expected none: none was offered")
        if given is None or (is_listening and given is not Input.PROMISED_EVENTS):
            self._step(Input.PROMISED_OTHER)
            seen = f"Content-Type {_show(content_type)}" if content_type else "no Content-Type"
            wanted = "text/event-stream" if is_listening else "application/json or text/event-stream"
            return self._broken(f"got {seen}, expected {wanted}; is this the MCP URL?")
        self._step(given)
        if given is Input.PROMISED_DOCUMENT:
            self._promised_bytes = self._promise_of(fields)
        else:
            self._events = EventReader(event_size_max_bytes=self._size_max)
        return Opened(_session(fields))

    def _promise_of(self, fields: dict[bytes, bytes]) -> int:
        """How large the document will be, if that is known, and worth telling of."""
        said = fields.get(b"content-length", b"")
        if not said.isdigit() or len(said) > 15 or b"transfer-encoding" in fields:
            return 0
        size_bytes = int(said)
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
        detail = _over(event.size_bytes, self._size_max)
        out.append(Dropped(detail, event.type))
        answer = answer_for(event.head, event.size_bytes, self._size_max, tail=event.tail, is_addressed=True)
        if answer is None:
            self._loss = detail
        else:
            out.append(Arrived(answer))

    def _refusal(self) -> Ended:
        return Ended(Cause(End.REFUSED, self._detail, self._status, self._body.take(), challenge=self._challenge))

    def _broken(self, detail: str) -> Ended:
        return self._ended(Cause(End.BROKEN, detail))

    def _ended(self, cause: Cause) -> Ended:
        """The end, with where an event stream can be taken up again."""
        if self._last_event_id is None and self._retry_ms is None:
            return Ended(cause)
        return Ended(msgspec.structs.replace(cause, last_event_id=self._last_event_id, retry_ms=self._retry_ms))

    def _step(self, given: Input) -> None:
        state = TRANSITIONS[self.state].get(given)
        if state is None:
            raise LocalProtocolError(f"got '{given.value}' while {self.state.value}")
        self.state = state


def promise_of(status: int, headers: Sequence[tuple[bytes, bytes]], *, size_max_bytes: int) -> Connected | None:
    """What the head of a response to a `Post` tells that promises one JSON document of a known and allowed length, or
    none because the message was taken, and nothing else that is to be looked at. None: a `ReplyReader` has to."""
    fields = dict(reversed(headers))
    length = fields.get(b"content-length", b"")
    if b"set-cookie" in fields or b"content-encoding" in fields or not length.isdigit():
        return None
    if length == b"0" and status in (200, 202):
        return Connected(_session(fields))
    if status != 200:
        return None
    if _PROMISES.get(fields.get(b"content-type", b"")) is not Input.PROMISED_DOCUMENT:
        return None
    return Connected(_session(fields)) if 0 < int(length) <= size_max_bytes else None


_VISIBLE: Final = re.compile(rb"[!-~]+")

_PROMISES: Final = {b"application/json": Input.PROMISED_DOCUMENT, b"text/event-stream": Input.PROMISED_EVENTS}

_CUT_DETAIL: Final = {
    State.WAITING: "the connection ended before a response",
    State.GATHERING: "the connection ended within the response",
    State.PASSING: "the connection ended within the response",
    State.STREAMING: "the connection ended within the event stream",
}


def _over(size_bytes: int, limit: int) -> str:
    return f"got an event of {size_bytes} bytes, over the limit of {limit} bytes"


def _session(fields: dict[bytes, bytes]) -> str | None:
    """Source: 2025-03-26 basic/transports, "Session Management": only 0x21 to 0x7E."""
    value = fields.get(b"mcp-session-id")
    return value.decode("ascii") if value is not None and _VISIBLE.fullmatch(value) else None


def _challenge(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """RFC 9110, 11.6.1: it may take several lines, which mean the same as one list."""
    lines = [value for name, value in headers if name == b"www-authenticate"]
    whole = b", ".join(lines)
    return whole.decode("latin-1") if len(whole) <= CHALLENGE_MAX_BYTES and is_value(whole) else ""


def _describe_refusal(status: int, location: bytes | None) -> str:
    if location is None or status not in FOLLOWED | REFUSED:
        return f"got HTTP status {status}, expected success{_HINTS.get(status, '')}"
    return f"got a redirect (HTTP status {status}) to {show_origin(location)}, not followed; expected the final URL"


def _show(value: bytes) -> str:
    """A peer's header value in a line for people: short, and no control character."""
    return "".join(chr(c) if 0x20 <= c <= 0x7E else "?" for c in value[:100])
