"""The client's side of the HTTP+SSE transport: one event stream from the server, and a POST for each message to it.

The event stream that the server sends in response to a GET is the session. An `SseSession` begins JOINING. The first
event of the stream must be `endpoint`, which names the URL to POST messages to. The client sends its messages and
credentials to that URL, so it must have the origin of the stream. Such an endpoint is NAMED, and the session is JOINED.
An endpoint with another origin, or an unusable one, is MISNAMED and ends the session, as no message can be sent. A
message before the endpoint ends the session too.

In a JOINED session each `message` event is a message of the server (TOLD). Further `endpoint` events are ignored:
messages already sent to the first endpoint belong to this session. The response to a POST says only whether the server
took the message; it carries no JSON-RPC response.

A POST that fails concerns its message alone. For a request, the client gets an error response in place of the server's;
the error says whether the request may have run. The exception is a POST refused because the session is unknown: the
session is FORGOTTEN, and ends. The end of the event stream (LOST) ends a session in any state. This transport has no
resumption, so an end that is orderly for an event stream is a broken connection here. ENDED is terminal.

Source: 2024-11-05 basic/transports, "HTTP with SSE".
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final
from urllib.parse import urljoin

import msgspec

from ...base.effects import Listen
from ...base.errors import OUTCOME_UNKNOWN, UPSTREAM_UNAVAILABLE, LocalProtocolError, RemoteProtocolError
from ...base.events import Cause, End
from ...base.limits import Limits
from ...jsonrpc import envelope
from ...jsonrpc.envelope import Frame
from .failure import describe, error_in, login_error_in, may_have_run
from .response import Arrived, Dropped, Ended, Opened, ReplyEvent, ResponseReader
from .retry import may_send_again
from .url import Address, parse_url

ENDPOINT: Final = "endpoint"
MESSAGE: Final = "message"

ENDPOINT_MAX_BYTES: Final = 8 * 1024
"""The longest endpoint that is accepted: no server takes a longer one in a request line. At it: the server is given up:
error -31004."""

GONE: Final = frozenset({404, 410})
"""The statuses of a message endpoint that does not know the session."""


class Undelivered(msgspec.Struct, frozen=True, tag=True):
    """A notification or a response did not reach the server: `reason` for people. No peer waits for a reply to it."""

    reason: str


class SendAgain(msgspec.Struct, frozen=True, tag=True):
    """The message is to be POSTed once more, on another connection: `may_send_again` allows it."""


class SseSessionState(enum.Enum):
    JOINING = "joining"  # the endpoint for messages is not known yet
    JOINED = "joined"
    ENDED = "ended"


class SseSessionInput(enum.Enum):
    NAMED = "named"  # an endpoint with the origin of the stream
    MISNAMED = "misnamed"  # an endpoint of another origin, or not a usable URL
    TOLD = "told"  # a message of the server
    FORGOTTEN = "forgotten"  # a POST was refused: the session is unknown
    LOST = "lost"  # the event stream is over


# An input missing from a row is illegal in that state; an empty row is terminal.
TRANSITIONS: Final[dict[SseSessionState, dict[SseSessionInput, SseSessionState]]] = {
    SseSessionState.JOINING: {
        SseSessionInput.NAMED: SseSessionState.JOINED,
        SseSessionInput.MISNAMED: SseSessionState.ENDED,
        SseSessionInput.TOLD: SseSessionState.ENDED,
        SseSessionInput.LOST: SseSessionState.ENDED,
    },
    SseSessionState.JOINED: {
        SseSessionInput.TOLD: SseSessionState.JOINED,
        SseSessionInput.FORGOTTEN: SseSessionState.ENDED,
        SseSessionInput.LOST: SseSessionState.ENDED,
    },
    SseSessionState.ENDED: {},
}


class SseSession:
    """One session with an HTTP+SSE server. It moves along `TRANSITIONS` only.

    The response to the GET is fed as to a `ResponseReader`. `Opened` means that the session is joined; `Arrived` is a
    message, `Dropped` one over the limit; `Ended` comes exactly once, last. The events do not depend on how the stream
    was cut into pieces.

    Args:
        url: the URL of the event stream.

    Raises:
        ValueError: `url` cannot be used.
    """

    def __init__(self, url: str, limits: Limits) -> None:
        self.state = SseSessionState.JOINING
        self.endpoint: bytes | None = None
        """Path and query to POST messages to, at the origin of the stream. None until the session is joined."""
        self._url = url
        self._address = parse_url(url)
        self._reader = ResponseReader(Listen(""), limits, event_types=frozenset({ENDPOINT, MESSAGE}))

    @property
    def is_ended(self) -> bool:
        return self.state is SseSessionState.ENDED

    @property
    def is_gathering(self) -> bool:
        """False: the response is a stream, never one document. See `ResponseReader.is_gathering`."""
        return False

    def receive_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> list[ReplyEvent]:
        """Takes the head of the response to the GET; see `ResponseReader.receive_head`."""
        self._check_open()
        return self._receive(self._reader.receive_head(status, headers))

    def receive_body(self, data: bytes | bytearray) -> list[ReplyEvent]:
        """Takes a piece of the event stream; see `ResponseReader.receive_body`."""
        self._check_open()
        return self._receive(self._reader.receive_body(data))

    def receive_eof(self, is_complete: bool, problem: str = "") -> list[ReplyEvent]:
        """Ends the event stream; see `ResponseReader.receive_eof`."""
        self._check_open()
        return self._receive(self._reader.receive_eof(is_complete, problem))

    def receive_untaken(
        self, message: bytes, cause: Cause, *, is_repeated: bool = False
    ) -> list[Arrived | SendAgain | Undelivered | Ended]:
        """Handles a POST of `message`, one JSON-RPC message, that ended with a `cause` other than success.

        Returns:
            Nothing once the session has ended, as its end settles everything. `Ended` if the refusal shows that the
            session is unknown. `SendAgain` if the message may be repeated, never for one that is (`is_repeated`).
            `Undelivered` for a notification or a response. `Arrived` for a request, with an error response: the
            server's own if its refusal holds one, else one that says whether the request may have run.
        """
        if self.state is SseSessionState.ENDED:
            return []
        if self.state is SseSessionState.JOINED and cause.end is End.REFUSED and cause.status in GONE:
            self._step(SseSessionInput.FORGOTTEN)
            return [_broken(f"the server forgot the session: a message got HTTP status {cause.status}")]
        if not is_repeated and may_send_again(cause, message):
            return [SendAgain()]
        try:
            frame = envelope.decode(message)
        except RemoteProtocolError:  # malformed: the server was to judge it
            frame = Frame()
        if not frame.is_request:
            return [Undelivered(f"a notification or answer did not arrive: {describe(cause)}")]
        return [Arrived(_error_response(frame, cause))]

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
            if self.state is SseSessionState.ENDED:
                break
        return out

    def _receive_endpoint(self, reference: bytes, out: list[ReplyEvent]) -> None:
        if self.state is SseSessionState.JOINED:
            return  # ignored: messages already sent belong to the first endpoint
        try:
            address = self._resolve(reference)
        except ValueError as error:
            self._receive_misnamed(str(error), out)
            return
        if address.origin != self._address.origin:
            self._step(SseSessionInput.MISNAMED)
            seen, expected = _show_origin(address), _show_origin(self._address)
            out.append(_broken(f"the server named an endpoint for messages at {seen}, expected one at {expected}"))
            return
        self._step(SseSessionInput.NAMED)
        self.endpoint = address.target
        out.append(Opened())

    def _receive_misnamed(self, reason: str, out: list[ReplyEvent]) -> None:
        if self.state is SseSessionState.JOINING:
            self._step(SseSessionInput.MISNAMED)
            out.append(_broken(f"the server named no usable endpoint for messages: {reason}"))

    def _resolve(self, reference: bytes) -> Address:
        if len(reference) > ENDPOINT_MAX_BYTES:
            raise ValueError(f"got {len(reference)} bytes, expected at most {ENDPOINT_MAX_BYTES}")
        text = reference.decode("latin-1").strip(" ")
        if not text.isascii() or not text.isprintable():  # `urljoin` would silently drop some of these
            raise ValueError("got a control or non-ASCII character in it, expected them percent-encoded")
        return parse_url(urljoin(self._url, text))

    def _receive_message(self, message: Arrived | Dropped, out: list[ReplyEvent]) -> None:
        was_joined = self.state is SseSessionState.JOINED
        self._step(SseSessionInput.TOLD)
        out.append(message if was_joined else _broken("got a message, expected the endpoint event before it"))

    def _receive_loss(self, cause: Cause, out: list[ReplyEvent]) -> None:
        """Ends the session. An orderly end of the stream counts as a broken connection."""
        was_joined = self.state is SseSessionState.JOINED
        self._step(SseSessionInput.LOST)
        if cause.end is End.DONE:
            detail = "the event stream ended" if was_joined else "the event stream ended before the endpoint event"
            cause = Cause(End.BROKEN, detail)
        out.append(Ended(msgspec.structs.replace(cause, last_event_id=None, retry_ms=None)))

    def _check_open(self) -> None:
        if self.state is SseSessionState.ENDED:
            raise LocalProtocolError(f"got more of an event stream while {self.state.value}")

    def _step(self, given: SseSessionInput) -> None:
        if given not in TRANSITIONS[self.state]:
            raise LocalProtocolError(f"got '{given.value}' while {self.state.value}")
        self.state = TRANSITIONS[self.state][given]


def _error_response(frame: Frame, cause: Cause) -> bytes:
    """Returns the error response to a request whose POST did not succeed."""
    if (error := login_error_in(cause) or error_in(cause)) is not None:
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
    """Returns an origin for people. The rest of the address is omitted, as it holds the secret of the session."""
    return f"{address.scheme}://{address.authority.decode()}"
