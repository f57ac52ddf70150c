"""What arrives and leaves on one client's connection, framed by h11, and how long it may take.

What the reader may do next is its `Phase`:

    IDLE -> HEAD -> BODY -> DONE -> IDLE …     an ordinary request
    HEAD -> SKIP -> DONE                       refused, its short body thrown away so that the connection can be kept
    HEAD -> UPLOAD -> DONE                     the body goes to the file service, at its pace
    HEAD -> BODY -> SWITCHED                   the stream is a WebSocket now, and another's to read and write
    HEAD -> FORWARD -> DONE [-> TUNNEL]        the body goes to a transparent server; after a switch, all goes there
    any  -> CLOSING                            no further request; what still arrives is thrown away, within bounds
"""

from __future__ import annotations

import enum
from http import HTTPStatus
from typing import Final

import anyio
import h11
from anyio import CancelScope
from anyio.abc import ByteStream
from anyio.lowlevel import checkpoint

from ..core.limits import KIB, Limits
from ..core.wire.http_headers import Headers, body_size
from ..core.wire.http_routes import Head
from .clock import loop_clock
from .http_cut import cut
from .http_outbox import Gone, Outbox, Silent

HELD_MAX_BYTES: Final = 64 * KIB
"""Pipelined requests kept while a reply is due."""
SKIP_MAX_BYTES: Final = 64 * KIB
"""A refused request's body up to this size is read, so that its connection can be used again."""
TURN_EVENTS: Final = 200
"""Pieces of a request that are parsed before others get their turn: some milliseconds of work."""
EMPTY_LINES: Final = b"\r\n"
"""Bytes that may stand before a request line, where old clients end their bodies with one line end too many. Source:
RFC 9112, 2.2: "SHOULD ignore at least one empty line (CRLF) received prior to the request-line"."""

_REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}


class Phase(enum.Enum):
    IDLE = "idle"  # between requests
    HEAD = "head"  # within a request's head
    BODY = "body"  # within a body that is gathered
    SKIP = "skip"  # within a body that nobody wants
    UPLOAD = "upload"  # the reader is busy with the file service
    FORWARD = "forward"  # the reader is busy with a transparent server
    TUNNEL = "tunnel"  # bytes go both ways, and there will be no other request
    DONE = "done"  # the request is complete, its reply is due
    SWITCHED = "switched"  # what follows is not HTTP
    CLOSING = "closing"  # nothing that arrives is looked at


class Framing:
    """One request after the other, and their responses, on one stream.

    Attributes:
        phase: what the reader may do next.
        head: of the request that is read or answered; None between requests.
        body_left: how much of its body has not been given out; None when it is chunked.
        intake: around whoever hands the body on, while somebody does.
    """

    def __init__(self, stream: ByteStream, outbox: Outbox, limits: Limits) -> None:
        self.phase = Phase.IDLE
        self.head: Head | None = None
        self.body_left: int | None = 0
        self.intake: CancelScope | None = None
        self._stream = stream
        self._outbox = outbox
        self._limits = limits
        self._http = self._new_http()
        self._now = loop_clock()
        self._deadline = self._now() + limits.idle_connection_timeout_s
        self._receiving: CancelScope | None = None
        self._is_woken = False
        self._turn: anyio.Event | None = None  # set while the reader waits for it
        self._given = 0  # pieces of bodies that are handed on

    def _new_http(self) -> h11.Connection:
        return h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.head_size_max_bytes)

    @property
    def head_only(self) -> bool:
        return self.head is not None and self.head.method == "HEAD"

    @property
    def is_1_0(self) -> bool:
        return self._http.their_http_version == b"1.0"

    @property
    def held(self) -> bytes:
        """What has arrived and was not parsed."""
        return self._http.trailing_data[0]

    def enter(self, phase: Phase, timeout_s: float = float("inf")) -> None:
        """From now on it is in `phase`, for so long at most unless something arrives."""
        self.phase = phase
        self._deadline = self._now() + timeout_s
        if self._receiving is not None:
            self._receiving.deadline = self._deadline

    # --- In ---------------------------------------------------------------------------------------------------------

    async def receive(self) -> bytes:
        """The next bytes; none when woken for another reason.

        Raises:
            Gone: there are no more.
            Silent: the deadline of this phase has passed.
        """
        self._is_woken = False
        with CancelScope(deadline=self._deadline) as self._receiving:
            try:
                return await self._stream.receive(self._limits.read_size_bytes)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                raise Gone from None
            finally:
                self._receiving = None
        if self._is_woken:
            return b""
        raise Silent

    @property
    def is_full(self) -> bool:
        """Whether too much is held to read on."""
        return len(self._http.trailing_data[0]) > HELD_MAX_BYTES

    async def wait_turn(self) -> None:
        """Return when it is time to look at what is held."""
        self._turn = anyio.Event()
        await self._turn.wait()
        self._turn = None

    def wake(self) -> None:
        """Make the reader look again: bytes of the next request are held already, or no other is wanted."""
        if self._turn is not None:
            self._turn.set()
        elif self._receiving is not None:
            self._is_woken = True
            self._receiving.cancel()

    def take(self, data: bytes) -> None:
        """Parse these bytes next, which are not empty."""
        if self.phase is Phase.IDLE:
            data = data.lstrip(EMPTY_LINES)
            if not data:
                return
            self.enter(Phase.HEAD, self._limits.head_timeout_s)
        elif self.phase in (Phase.BODY, Phase.SKIP):
            self.enter(self.phase, self._limits.body_timeout_s)
        self._http.receive_data(data)

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """What has arrived next.

        Raises:
            h11.RemoteProtocolError: the client does not speak HTTP/1.1.
        """
        return self._http.next_event()

    def begin(self, request: h11.Request) -> Head:
        """A head was parsed: its body follows."""
        version = request.http_version.decode()
        self.head = head = Head(request.method.decode(), request.target.decode(), tuple(request.headers), version)
        self.body_left = body_size(head.headers)
        self.enter(Phase.BODY, self._limits.body_timeout_s)
        return head

    def note_given(self, size_bytes: int) -> None:
        """So much of the body was given out."""
        if self.body_left is not None:
            self.body_left -= size_bytes

    async def receive_body(self) -> bytes | None:
        """See `BodySource`. The phase is UPLOAD or FORWARD."""
        self._given += 1
        if self._given % TURN_EVENTS == 0:  # else who sends tiny chunks would be served until all are through
            await checkpoint()
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Data):
                data = bytes(event.data)
                self.note_given(len(data))
                return data
            if event is not h11.NEED_DATA:
                self.enter(Phase.DONE)
                return None
            self.enter(self.phase, self._limits.body_timeout_s)
            if data := await self.receive():
                self._http.receive_data(data)

    def stop_intake(self) -> None:
        if self.intake is not None:
            self.intake.cancel()

    def leave_rest(self) -> None:
        """Nobody wants what is still to come of this request."""
        if self.phase is Phase.DONE:
            return
        is_short = self.body_left is not None and self.body_left <= SKIP_MAX_BYTES
        is_coming = not self._http.they_are_waiting_for_100_continue
        if is_short and is_coming and self.phase is not Phase.CLOSING:
            self.enter(Phase.SKIP, self._limits.body_timeout_s)
        else:
            self.enter(Phase.CLOSING)

    def start_next_cycle(self) -> bool:
        """Request and response are through. Returns whether there can be another request."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        self.head = None
        if self._skip_empty_lines():
            self.enter(Phase.HEAD, self._limits.head_timeout_s)
            self.wake()
        else:
            self.enter(Phase.IDLE, self._limits.idle_connection_timeout_s)
        return True

    def _skip_empty_lines(self) -> bool:
        """Drop what h11 would take for a malformed request line. Returns whether anything else is held."""
        held = self.held
        if held.startswith((b"\r", b"\n")):
            self._http = self._new_http()
            held = held.lstrip(EMPTY_LINES)
            if held:
                self._http.receive_data(held)
        return bool(held)

    # --- Out --------------------------------------------------------------------------------------------------------

    def put_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.put(h11.Response(status_code=status, headers=headers, reason=_REASONS.get(status, b"")))

    def put(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        for part in self._http.send_with_data_passthrough(event) or ():
            self._outbox.put(part)

    def put_bytes(self, data: bytes) -> None:
        """Queue what is HTTP no more."""
        self._outbox.put(data)

    def ask_body(self) -> None:
        """Tell a client that waits with its body to go on."""
        if self._http.they_are_waiting_for_100_continue:
            informational = h11.InformationalResponse(status_code=100, headers=[], reason=_REASONS[100])
            self._outbox.put(self._http.send(informational) or b"")

    def switch(self, headers: Headers | list[tuple[bytes, bytes]]) -> bytes:
        """The head of a 101 with these headers: what follows it, both ways, is bytes."""
        switching = h11.InformationalResponse(status_code=101, headers=list(headers), reason=_REASONS[101])
        return self._http.send(switching) or b""

    def cut(self) -> None:
        """Make the closing of the connection a reset."""
        cut(self._stream)
