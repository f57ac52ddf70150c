"""What arrives and leaves on one client's connection, framed by a codec, and how long it may take.

What may be done next is the connection's `Phase`:

    IDLE -> HEAD -> BODY -> DONE -> IDLE …     an ordinary request
    HEAD -> SKIP -> DONE                       refused, its short body thrown away so that the connection can be kept
    HEAD -> UPLOAD -> DONE                     the body goes to the file service, at its pace
    HEAD -> BODY -> SWITCHED                   the stream is a WebSocket now, and another's to read and write
    HEAD -> FORWARD -> DONE [-> TUNNEL]        the body goes to a transparent server; after a switch, all goes there
    any  -> CLOSING                            no further request; what still arrives is thrown away, within bounds
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final

import anyio
from anyio import CancelScope
from anyio.lowlevel import checkpoint

from ...core.base.limits import KIB, Limits
from ...core.wire.http1.events import NEED_DATA, Data, RequestHead
from ..base.wire import Gone, Silent, Wire
from ..http1.server import ServerCodec

HELD_MAX_BYTES: Final = 64 * KIB
"""Pipelined requests kept while a reply is due; one read more may come on top."""
SKIP_MAX_BYTES: Final = 64 * KIB
"""A refused request's body up to this size is read, so that its connection can be used again."""
TURN_EVENTS: Final = 200
"""Pieces of a request that are parsed before others get their turn: some milliseconds of work."""
TURN_REQUESTS: Final = 16
"""Pipelined requests that are answered at once before others get their turn."""
EMPTY_LINES: Final = b"\r\n"
"""Bytes that may stand before a request line, where old clients end their bodies with one line end too many. Source:
RFC 9112, 2.2: "SHOULD ignore at least one empty line (CRLF) received prior to the request-line"."""
FOREVER: Final = float("inf")


class Phase(enum.Enum):
    IDLE = "idle"  # between requests
    HEAD = "head"  # within a request's head
    BODY = "body"  # within a body that is gathered
    SKIP = "skip"  # within a body that nobody wants
    UPLOAD = "upload"  # the body is read by the file service
    FORWARD = "forward"  # the body is read for a transparent server
    TUNNEL = "tunnel"  # bytes go both ways, and there will be no other request
    DONE = "done"  # the request is complete, its reply is due
    SWITCHED = "switched"  # what follows is not HTTP
    CLOSING = "closing"  # nothing that arrives is looked at


PARSED: Final = (Phase.BODY, Phase.HEAD, Phase.IDLE, Phase.SKIP)
"""Where what arrives is parsed at once."""
HANDED_ON: Final = (Phase.UPLOAD, Phase.FORWARD, Phase.TUNNEL)
"""Where a task asks for what arrives, and nothing is read before it does."""
NOT_READ: Final = (*HANDED_ON, Phase.SWITCHED)
"""Where it is not simply read on."""


class Framing:
    """One request after the other, and their responses.

    Attributes:
        phase: what may be done next.
        codec: gives what has arrived next.
        head: of the request that is read or answered; None between requests.
        body_left: how much of its body has not been given out; None when it is chunked.
        intake: around whoever hands the body on, while somebody does.
        queued: what is to be written next.
        is_behind: more of what has arrived can be parsed than was.
        is_ending: nothing more is read.
        is_gone: nothing more will come.
    """

    __slots__ = (
        "_given",
        "_is_late",
        "_is_read",
        "_is_retimed",
        "_limits",
        "_make_codec",
        "_may_be_full",
        "_news",
        "_raw",
        "_thrown_away",
        "_timeout_s",
        "_wire",
        "body_left",
        "codec",
        "head",
        "intake",
        "is_behind",
        "is_ending",
        "is_gone",
        "phase",
        "queued",
    )

    def __init__(self, wire: Wire, limits: Limits, make_codec: Callable[[], ServerCodec]) -> None:
        self.phase = Phase.IDLE
        self.head: RequestHead | None = None
        self.body_left: int | None = 0
        self.intake: CancelScope | None = None
        self.queued: list[bytes | bytearray] = []
        self.is_behind = False
        self.is_ending = False
        self.is_gone = False
        self._wire = wire
        self._limits = limits
        self._make_codec = make_codec
        self.codec = make_codec()
        self._timeout_s = limits.idle_connection_timeout_s
        self._is_retimed = True
        self._is_read = True
        self._may_be_full = False
        self._is_late = False
        self._news: anyio.Event | None = None  # while a task waits for what arrives
        self._raw = b""  # of a tunnel; one read at most, and what came before that was noticed
        self._given = 0  # pieces of bodies that are handed on
        self._thrown_away = 0

    @property
    def head_only(self) -> bool:
        return self.head is not None and self.head.method == "HEAD"

    @property
    def is_1_0(self) -> bool:
        return self.codec.version == b"1.0"

    @property
    def held(self) -> bytes:
        """What has arrived and was not parsed."""
        return self.codec.trailing_data[0]

    def enter(self, phase: Phase, timeout_s: float = FOREVER) -> None:
        """From now on it is in `phase`, for so long at most unless something arrives."""
        self.phase = phase
        self._timeout_s = timeout_s
        self._is_retimed = True
        self._is_late = False

    def tell_wire(self) -> None:
        """Whether to read on, and for how long to wait."""
        is_read = self._wants_more() if self._may_be_full or self.is_ending or self.phase in NOT_READ else True
        if is_read is not self._is_read:
            self._is_read = is_read
            self._wire.read(is_read)
        if self._is_retimed:
            self._is_retimed = False
            self._wire.set_timeout(self._timeout_s)

    def _wants_more(self) -> bool:
        phase = self.phase
        if self.is_ending or phase is Phase.SWITCHED:
            return False
        if phase in HANDED_ON:
            return self._news is not None
        if self._may_be_full:
            self._may_be_full = len(self.held) > HELD_MAX_BYTES
            return not self._may_be_full
        return True

    # --- In ---------------------------------------------------------------------------------------------------------

    def take(self, data: bytes) -> None:
        """These bytes, which are not empty, have arrived."""
        phase = self.phase
        if phase is Phase.IDLE:
            if data[0] in EMPTY_LINES:
                data = data.lstrip(EMPTY_LINES)
                if not data:
                    return
            self.enter(Phase.HEAD, self._limits.head_timeout_s)
            self.codec.receive_data(data)
        elif phase in PARSED:
            if phase is not Phase.HEAD:
                self.enter(phase, self._limits.body_timeout_s)
            self.codec.receive_data(data)
            self._may_be_full = self.is_behind
        elif phase is Phase.CLOSING:
            self._thrown_away += len(data)
            if self._thrown_away > self._limits.request_size_max_bytes:
                self.is_ending = True
        elif phase is Phase.TUNNEL:
            self._raw += data
            self._tell_waiting()
        else:
            self.codec.receive_data(data)
            self._may_be_full = phase is Phase.DONE
            self._tell_waiting()

    def note_gone(self) -> bool:
        """The client hung up. Returns whether a task that waited for more is told."""
        self.is_gone = True
        return self._tell_waiting()

    def note_late(self) -> bool:
        """The time of this phase is over. Returns whether that is a task's to know."""
        self._is_late = True
        return self._tell_waiting() or self.phase in HANDED_ON

    def _tell_waiting(self) -> bool:
        if self._news is None:
            return False
        self._news.set()
        self._news = None
        return True

    def begin(self, head: RequestHead) -> None:
        """A head was parsed: its body follows."""
        self.head = head
        self.body_left = head.body_size
        self.phase = Phase.BODY
        self._timeout_s = self._limits.body_timeout_s
        self._is_retimed = True
        self._is_late = False

    def take_repeated(self, head: RequestHead) -> bytes | None:
        """The body of a request that begins as the last one did, with `head`, and is there in full: then the request is
        complete. None: nothing was done."""
        body = self.codec.take_repeated(head)
        if body is not None:
            self.head = head
            self.body_left = 0
            self.enter(Phase.DONE)
        return body

    def rest(self) -> None:
        """The request is through, and its response is a stream that may last."""
        self.head = None
        self._wire.rest()

    def take_rest(self) -> bytes | None:
        """The body, right behind the head, if it is there in full: then the request is complete. None: it is to be
        gathered, and its client told to go on if it waits with it."""
        body = self.codec.take_rest()
        if body is not None:
            self.phase = Phase.DONE
            self._timeout_s = FOREVER
            self.body_left = 0
        return body

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
            event = self.codec.next_event()
            if isinstance(event, Data):
                self.note_given(len(event.data))
                return event.data
            if event is not NEED_DATA:
                self.enter(Phase.DONE)
                return None
            self.enter(self.phase, self._limits.body_timeout_s)
            await self._wait()

    async def receive(self) -> bytes:
        """The next bytes, unparsed. The phase is TUNNEL.

        Raises:
            Gone: there are no more.
            Silent: the time of this phase is over.
        """
        if not self._raw:
            await self._wait()
        data, self._raw = self._raw, b""
        return data

    async def _wait(self) -> None:
        """Return when something has arrived."""
        before = self.phase
        if not (self.is_gone or self._is_late):
            self._news = news = anyio.Event()
            self.tell_wire()
            try:
                await news.wait()
            finally:
                self._news = None
            if self.phase is not before and self.phase is not Phase.TUNNEL:
                await anyio.sleep_forever()  # whoever leaves this phase for a task cancels it
            self.tell_wire()
        if self.is_gone and not self._raw:
            raise Gone
        if self._is_late:
            raise Silent

    def stop_intake(self) -> None:
        if self.intake is not None:
            self.intake.cancel()

    def leave_rest(self) -> None:
        """Nobody wants what is still to come of this request."""
        if self.phase is Phase.DONE:
            return
        is_short = self.body_left is not None and self.body_left <= SKIP_MAX_BYTES
        is_coming = not self.codec.is_awaiting_continue
        if is_short and is_coming and self.phase is not Phase.CLOSING:
            self.enter(Phase.SKIP, self._limits.body_timeout_s)
        else:
            self.enter(Phase.CLOSING)

    def start_next_cycle(self) -> bool:
        """Request and response are through. Returns whether there can be another request."""
        held = self.codec.go_on()
        if held is None:
            return False
        self.head = None
        if held and held[0] in EMPTY_LINES:  # which h11 would take for a malformed request line
            codec = self.codec = self._make_codec()
            held = held.lstrip(EMPTY_LINES)
            if held:
                codec.receive_data(held)
        if held:
            self.enter(Phase.HEAD, self._limits.head_timeout_s)
        else:
            self.enter(Phase.IDLE, self._limits.idle_connection_timeout_s)
        return True

    # --- Out --------------------------------------------------------------------------------------------------------

    def put_whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Queue a whole response."""
        self.queued.append(self.codec.encode_whole(status, headers, body))

    def put_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.queued.append(self.codec.encode_head(status, headers))

    def put_data(self, data: bytes | bytearray) -> None:
        self.queued += self.codec.encode_data(data)

    def put_end(self) -> None:
        if end := self.codec.encode_end():
            self.queued.append(end)

    def put_bytes(self, data: bytes) -> None:
        """Queue what is HTTP no more."""
        self.queued.append(data)

    def ask_body(self) -> None:
        """Tell a client that waits with its body to go on."""
        if self.codec.is_awaiting_continue:
            self.queued.append(self.codec.encode_informational(100, ()))

    def switch(self, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """The head of a 101 with these headers: what follows it, both ways, is bytes."""
        return self.codec.encode_informational(101, headers)
