"""A server of the HTTP+SSE transport as its client sees it: one event stream down, a POST for each message up.

The GET's event stream is the session. Its first event, `endpoint`, names the address to POST messages to; from then on
each `message` event is a message of the server, and what a POST is answered with is only whether the message was taken.
The address is the server's word for where our messages and credentials go, so it must be of the stream's own origin.

A POST that is refused concerns its message alone: a request is answered with an error, as if by the server, and whether
it may have run is said in it. Only a POST to a session that is unknown says that the session is over, and so does the
end of the stream: nothing of this transport can be taken up again.

Source: 2024-11-05 basic/transports, "HTTP with SSE".
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final
from urllib.parse import urljoin

import msgspec

from ...base.effects import Cause, End, Listen
from ...base.errors import OUTCOME_UNKNOWN, UPSTREAM_UNAVAILABLE, LocalProtocolError, RemoteProtocolError
from ...base.limits import Limits
from ...jsonrpc import envelope
from ...jsonrpc.envelope import Frame
from .failure import describe, error_in, may_have_run
from .response import Arrived, Dropped, Ended, Opened, ReplyEvent, ReplyReader
from .retry import may_send_again
from .url import Address, parse_url

ENDPOINT: Final = "endpoint"
MESSAGE: Final = "message"

ENDPOINT_MAX_BYTES: Final = 8 * 1024
"""A longer address no server takes in a request line."""

GONE: Final = frozenset({404, 410})
"""What a message endpoint answers when it knows no such session."""


class Unheard(msgspec.Struct, frozen=True, tag=True):
    """A notification or an answer did not reach the server: `reason` for people. Nobody waits for it."""

    reason: str


class Again(msgspec.Struct, frozen=True, tag=True):
    """The message is to be POSTed once more: its connection was found closed, and it may be sent again."""


class State(enum.Enum):
    JOINING = "joining"  # the address for messages is not known yet
    JOINED = "joined"
    ENDED = "ended"


class Input(enum.Enum):
    NAMED = "named"  # an endpoint of the stream's own origin
    MISNAMED = "misnamed"  # an endpoint elsewhere, or none at all
    TOLD = "told"  # a message
    FORGOTTEN = "forgotten"  # a POST was told that there is no such session
    LOST = "lost"  # the stream is over


# An input missing from a row is illegal in that state; an empty row is terminal.
TRANSITIONS: Final[dict[State, dict[Input, State]]] = {
    State.JOINING: {
        Input.NAMED: State.JOINED,
        Input.MISNAMED: State.ENDED,
        Input.TOLD: State.ENDED,
        Input.LOST: State.ENDED,
    },
    State.JOINED: {
        Input.TOLD: State.JOINED,
        Input.FORGOTTEN: State.ENDED,
        Input.LOST: State.ENDED,
    },
    State.ENDED: {},
}


class SseSession:
    """One session with such a server. It moves along `TRANSITIONS` only.

    The response to its GET is fed as to a `ReplyReader`: `Opened` says that the session is joined, `Arrived` is a
    message, `Dropped` one over the limit, and `Ended` is always there, once, last. How the stream was cut up never
    shows.

    Args:
        url: of the event stream.

    Raises:
        ValueError: `url` cannot be used.
    """

    def __init__(self, url: str, limits: Limits) -> None:
        self.state = State.JOINING
        self.endpoint: bytes | None = None
        """Path and query to POST messages to, at the stream's own origin. Set on joining."""
        self._url = url
        self._address = parse_url(url)
        self._reader = ReplyReader(Listen(""), limits, event_types=frozenset({ENDPOINT, MESSAGE}))

    @property
    def is_ended(self) -> bool:
        return self.state is State.ENDED

    @property
    def is_gathering(self) -> bool:
        """It is a stream."""
        return False

    def receive_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> list[ReplyEvent]:
        """As `ReplyReader.receive_head`."""
        self._check_open()
        return self._receive(self._reader.receive_head(status, headers))

    def receive_body(self, data: bytes | bytearray) -> list[ReplyEvent]:
        """As `ReplyReader.receive_body`."""
        self._check_open()
        return self._receive(self._reader.receive_body(data))

    def receive_eof(self, is_complete: bool, problem: str = "") -> list[ReplyEvent]:
        """As `ReplyReader.receive_eof`."""
        self._check_open()
        return self._receive(self._reader.receive_eof(is_complete, problem))

    def receive_untaken(
        self, message: bytes, cause: Cause, *, is_repeated: bool = False
    ) -> list[Arrived | Again | Unheard | Ended]:
        """The POST of `message`, one JSON-RPC message, ended for another `cause` than success. `Again` is never said of
        one that is repeated.

        An error that the server put into its refusal is the answer to a request; else it is one of ours, which says
        whether the request may have run.
        """
        if self.state is State.ENDED:
            return []  # the end of the session has settled everything
        if self.state is State.JOINED and cause.end is End.REFUSED and cause.status in GONE:
            self._step(Input.FORGOTTEN)
            return [_broken(f"the server forgot the session: a message got HTTP status {cause.status}")]
        if not is_repeated and may_send_again(cause, message):
            return [Again()]
        try:
            frame = envelope.decode(message)
        except RemoteProtocolError:  # not ours to judge
            frame = Frame()
        if not frame.is_request:
            return [Unheard(f"a notification or answer did not arrive: {describe(cause)}")]
        return [Arrived(_answer(frame, cause))]

    def _receive(self, facts: list[ReplyEvent]) -> list[ReplyEvent]:
        out: list[ReplyEvent] = []
        for fact in facts:
            if isinstance(fact, Ended):
                self._receive_loss(fact.cause, out)
            elif isinstance(fact, Arrived) and fact.event == ENDPOINT:
                self._receive_endpoint(fact.message, out)
            elif isinstance(fact, Dropped) and fact.event == ENDPOINT:
                self._receive_misnamed(fact.detail, out)
            elif isinstance(fact, Arrived | Dropped):
                self._receive_message(fact, out)
            if self.state is State.ENDED:
                break
        return out

    def _receive_endpoint(self, reference: bytes, out: list[ReplyEvent]) -> None:
        if self.state is State.JOINED:
            return  # once is enough: messages on their way would miss the session
        try:
            address = self._resolve(reference)
        except ValueError as error:
            self._receive_misnamed(str(error), out)
            return
        if address.origin != self._address.origin:
            self._step(Input.MISNAMED)
            seen, right = _show_origin(address), _show_origin(self._address)
            out.append(_broken(f"the server named an endpoint for messages at {seen}, expected one at {right}"))
            return
        self._step(Input.NAMED)
        self.endpoint = address.target
        out.append(Opened())

    def _receive_misnamed(self, reason: str, out: list[ReplyEvent]) -> None:
        if self.state is State.JOINING:
            self._step(Input.MISNAMED)
            out.append(_broken(f"the server named no usable endpoint for messages: {reason}"))

    def _resolve(self, reference: bytes) -> Address:
        if len(reference) > ENDPOINT_MAX_BYTES:
            raise ValueError(f"got {len(reference)} bytes, expected at most {ENDPOINT_MAX_BYTES}")
        text = reference.decode("latin-1").strip(" ")
        if not text.isascii() or not text.isprintable():  # some would be dropped in silence by what resolves it
            raise ValueError("got a control or non-ASCII character in it, expected them percent-encoded")
        return parse_url(urljoin(self._url, text))

    def _receive_message(self, message: Arrived | Dropped, out: list[ReplyEvent]) -> None:
        was_joined = self.state is State.JOINED
        self._step(Input.TOLD)
        out.append(message if was_joined else _broken("got a message, expected the endpoint event before it"))

    def _receive_loss(self, cause: Cause, out: list[ReplyEvent]) -> None:
        """Whatever ended the stream in order has broken the session."""
        was_joined = self.state is State.JOINED
        self._step(Input.LOST)
        if cause.end is End.DONE:
            detail = "the event stream ended" if was_joined else "the event stream ended before the endpoint event"
            cause = Cause(End.BROKEN, detail)
        out.append(Ended(msgspec.structs.replace(cause, last_event_id=None, retry_ms=None)))

    def _check_open(self) -> None:
        if self.state is State.ENDED:
            raise LocalProtocolError(f"got more of an event stream while {self.state.value}")

    def _step(self, given: Input) -> None:
        if given not in TRANSITIONS[self.state]:
            raise LocalProtocolError(f"got '{given.value}' while {self.state.value}")
        self.state = TRANSITIONS[self.state][given]


def _answer(frame: Frame, cause: Cause) -> bytes:
    """What a request is answered whose POST did not succeed."""
    if (error := error_in(cause)) is not None:
        return envelope.encode_error_raw(frame.id_raw, error)
    is_refused = cause.end is End.REFUSED
    data: dict[str, object] = {"outcome": "not_executed"}
    if is_refused:
        data |= {"httpStatus": cause.status, "body": cause.body[:200].decode(errors="replace")}
    if cause.unsent or cause.end is End.UNREACHABLE or (is_refused and not may_have_run(cause.status)):
        text = f"the server could not be asked: {describe(cause)}"
        return envelope.encode_error(frame.id_raw, UPSTREAM_UNAVAILABLE, text, data)
    data["outcome"] = "unknown"
    how = "the server failed" if is_refused else "the server was lost before it took the request"
    text = f"{how}: {describe(cause)}. {frame.method} may have run; it is not repeated"
    return envelope.encode_error(frame.id_raw, OUTCOME_UNKNOWN, text, data)


def _broken(detail: str) -> Ended:
    return Ended(Cause(End.BROKEN, detail))


def _show_origin(address: Address) -> str:
    """An origin for people. The rest of the address is the session's secret."""
    return f"{address.scheme}://{address.authority.decode()}"
