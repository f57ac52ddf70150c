"""The framing of one client's connection: what arrives and leaves through a codec, and the time limits.

The connection's `Phase` decides what may happen next:

    IDLE -> HEAD -> BODY -> DONE -> IDLE …     an ordinary request
    HEAD -> HELD -> BODY                       nothing is read before it is known who the request is from
    HEAD -> SKIP -> DONE                       refused; a short body is read and dropped, to keep the connection
    HEAD -> UPLOAD -> DONE                     the file service reads the body, at its own pace
    HEAD -> BODY -> SWITCHED                   the stream is a WebSocket now, which reads and writes it itself
    HEAD -> FORWARD -> DONE [-> TUNNEL]        a transparent server gets the body; after a switch, all bytes
    any  -> CLOSING                            no further request; input is dropped, within bounds
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

import anyio
from anyio import CancelScope
from anyio.lowlevel import checkpoint

from ...core.base.budget import UNCOUNTED_MAX_BYTES, Budget, Share
from ...core.base.limits import KIB, Limits
from ...core.wire.http1.events import NEED_DATA, Data, RequestHead, Signal
from ..base.wire import FOREVER, ClientWire, Gone, Silent
from ..http1.server import ServerCodec

HELD_MAX_BYTES: Final = 64 * KIB
"""Bytes of pipelined requests kept while a reply is due. One more read may be added on top. At it: reading pauses until
the response has left. What is kept then counts towards `bodies_max_bytes`; without room the connection is closed."""
SKIP_MAX_BYTES: Final = 64 * KIB
"""Bytes of a refused request's body that are read so that its connection can be used again. At it: the connection is
closed after the response; 413 where no body is expected."""
TURN_EVENTS: Final = 200
"""Events of a request that are parsed before other connections get their turn: some milliseconds of work."""
TURN_REQUESTS: Final = 1
"""Pipelined requests that are answered at once before other connections get their turn. MCP clients send none, and a
client that does has no larger share than others."""
EMPTY_LINES: Final = b"\r\n"
"""Bytes that may come before a request line: old clients end a body with one line end too many. Source: RFC 9112, 2.2:
"SHOULD ignore at least one empty line (CRLF) received prior to the request-line"."""


class Phase(enum.Enum):
    """The state of a connection between input and replies. See the module's docstring for the transitions."""

    IDLE = "idle"  # between requests
    HEAD = "head"  # within a request's head
    BODY = "body"  # within a body that is collected
    HELD = "held"  # before a body, while an issuer is asked about the caller
    SKIP = "skip"  # within a body that is dropped
    UPLOAD = "upload"  # the body is read by the file service
    FORWARD = "forward"  # the body is read for a transparent server
    TUNNEL = "tunnel"  # bytes go both ways, and no other request follows
    DONE = "done"  # the request is complete, its reply is due
    SWITCHED = "switched"  # what follows is not HTTP
    CLOSING = "closing"  # input is ignored


PARSED: Final = (Phase.BODY, Phase.HEAD, Phase.IDLE, Phase.SKIP)
"""Phases in which input is parsed at once."""
ARRIVING: Final = (Phase.HEAD, Phase.HELD, Phase.BODY)
"""Phases of a request that is not known in full, and that nobody has begun to answer."""
HANDED_ON: Final = (Phase.UPLOAD, Phase.FORWARD, Phase.TUNNEL, Phase.HELD)
"""Phases of a task, in which nothing is read before the task asks for it."""
NOT_READ: Final = (*HANDED_ON, Phase.SWITCHED)
"""Phases in which input is not read continuously."""


class Gathered(enum.Enum):
    """The outcome of keeping a piece of a body."""

    KEPT = "kept"
    TOO_LARGE = "too large"
    NO_ROOM = "no room"  # other bodies that are arriving have it


class Framing:
    """The requests and responses of one connection, one after another.

    Args:
        bodies: the room for bodies that are arriving.

    Attributes:
        phase: what may happen next.
        codec: parses requests and encodes responses.
        head: of the request that is read or answered; None between requests.
        owner: the owner that the address of its caller stands for.
        body_left: bytes of its body that were not given out yet; None when it is chunked.
        intake: the cancel scope round the task that consumes the body, if there is one.
        queued: bytes to be written next.
        is_behind: more of the input can be parsed than was.
        is_ending: nothing more is read.
        is_asked: a forwarded request wants more of the client's bytes.
        is_crowded: there is no room for what has arrived behind an open request.
        is_gone: the client has hung up.
    """

    __slots__ = (
        "_arrival",
        "_bodies",
        "_body",
        "_drop_until",
        "_dropped_bytes",
        "_is_late",
        "_is_read",
        "_is_timeout_changed",
        "_limits",
        "_make_codec",
        "_may_be_full",
        "_pieces_given",
        "_share",
        "_timeout_s",
        "_tunnel_bytes",
        "_wire",
        "body_left",
        "codec",
        "head",
        "intake",
        "is_asked",
        "is_behind",
        "is_crowded",
        "is_ending",
        "is_gone",
        "owner",
        "phase",
        "queued",
    )

    def __init__(self, wire: ClientWire, limits: Limits, make_codec: Callable[[], ServerCodec], bodies: Budget) -> None:
        self.phase = Phase.IDLE
        self.head: RequestHead | None = None
        self.owner = ""
        self.body_left: int | None = 0
        self.intake: CancelScope | None = None
        self.queued: list[bytes | bytearray] = []
        self.is_behind = False
        self.is_ending = False
        self.is_asked = False
        self.is_crowded = False
        self.is_gone = False
        self._wire = wire
        self._limits = limits
        self._make_codec = make_codec
        self.codec = make_codec()
        self._timeout_s = limits.idle_connection_timeout_s
        self._is_timeout_changed = True
        self._is_read = True
        self._may_be_full = False
        self._is_late = False
        self._arrival: anyio.Event | None = None  # while a task waits for input
        self._tunnel_bytes = b""  # of a tunnel: one read, and what came before reading stopped
        self._pieces_given = 0  # pieces of bodies given to tasks
        self._drop_until = FOREVER
        self._dropped_bytes = 0
        self._body: bytes | bytearray = b""  # what has arrived of a body that is handled as a whole
        self._bodies = bodies
        self._share: Share | None = None  # of a body that is larger than most

    @property
    def head_only(self) -> bool:
        return self.head is not None and self.head.method == "HEAD"

    @property
    def is_1_0(self) -> bool:
        return self.codec.version == b"1.0"

    @property
    def held(self) -> bytes:
        """Bytes that have arrived and were not parsed."""
        return self.codec.trailing_data[0]

    def enter(self, phase: Phase, timeout_s: float = FOREVER) -> None:
        """Enters `phase`. It times out after `timeout_s` unless something arrives."""
        self.phase = phase
        self._timeout_s = timeout_s
        self._is_timeout_changed = True
        self._is_late = False

    def tell_wire(self) -> None:
        """Tells the wire whether to read, and how long to wait, where that has changed."""
        is_read = self._wants_more() if self._may_be_full or self.is_ending or self.phase in NOT_READ else True
        if is_read is not self._is_read:
            self._is_read = is_read
            self._wire.read(is_read)
        if self._is_timeout_changed:
            self._is_timeout_changed = False
            self._wire.set_timeout(self._timeout_s)

    def _wants_more(self) -> bool:
        phase = self.phase
        if self.is_ending or phase is Phase.SWITCHED:
            return False
        if phase in HANDED_ON:
            return self.is_asked or self._arrival is not None
        if self._may_be_full:
            held_bytes = len(self.held)
            self._may_be_full = held_bytes > HELD_MAX_BYTES
            self.is_crowded = self._may_be_full and not self._has_room(held_bytes)
            return not self._may_be_full
        return True

    def _has_room(self, size_bytes: int) -> bool:
        """True if this client may have so much of a body that is arriving, or held behind an open request: many
        connections can hold that as long as their requests take."""
        if size_bytes <= UNCOUNTED_MAX_BYTES:
            return True
        if self._share is None:
            self._share = Share(self._bodies, self.owner)
        return self._share.hold(size_bytes)

    # --- In ---------------------------------------------------------------------------------------------------------

    def take(self, data: bytes) -> None:
        """Takes received bytes, at least one."""
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
            self._count_unread(len(data))
        elif phase is Phase.TUNNEL:
            self.is_asked = False
            self._tunnel_bytes += data
        else:
            self.codec.receive_data(data)
            self._may_be_full = phase is Phase.DONE
            if phase is Phase.FORWARD:
                self.is_asked = False
                self.enter(phase)
            else:
                self._wake_waiting()

    def _count_unread(self, size_bytes: int) -> None:
        """Counts bytes that came after a refusal, and ends the connection at one of their limits."""
        now = monotonic()
        if not self._dropped_bytes:
            self._drop_until = now + self._limits.refused_body_timeout_s
        self._dropped_bytes += size_bytes
        if self._dropped_bytes > self._limits.refused_body_max_bytes or now > self._drop_until:
            self.is_ending = True

    def note_gone(self) -> bool:
        """Records that the client hung up. Returns True if a waiting task was woken to handle it."""
        self.is_gone = True
        return self._wake_waiting()

    def note_late(self) -> bool:
        """Records that the time of this phase is up. Returns True if a task handles it."""
        self._is_late = True
        return self._wake_waiting() or self.phase in HANDED_ON

    def _wake_waiting(self) -> bool:
        if self._arrival is None:
            return False
        self._arrival.set()
        self._arrival = None
        return True

    def begin(self, head: RequestHead) -> None:
        """Begins the request whose head was parsed."""
        self.head = head
        self.body_left = head.body_size
        self.phase = Phase.BODY
        self._timeout_s = self._limits.body_timeout_s
        self._is_timeout_changed = True
        self._is_late = False

    def take_repeated(self, head: RequestHead) -> bytes | None:
        """Takes a whole request whose head repeats the last one, `head`. Returns its body; None if that is not what has
        arrived, and nothing has changed."""
        body = self.codec.take_repeated(head)
        if body is not None:
            self.head = head
            self.body_left = 0
            self.enter(Phase.DONE)
        return body

    def rest(self) -> None:
        """Releases what is kept: the request is complete, and its response is an event stream that may last."""
        self.head = None
        self._wire.rest()

    def take_rest(self) -> bytes | None:
        """Takes the whole body right behind the head. Returns None if it has not arrived in full: then it has to be
        collected, and a client that waits for a 100 told to go on."""
        body = self.codec.take_rest()
        if body is not None:
            self.phase = Phase.DONE
            self._timeout_s = FOREVER
            self.body_left = 0
        return body

    def gather(self, data: bytes, size_max_bytes: int) -> Gathered:
        """Keeps a piece of the body. Drops what was kept if the body exceeds `size_max_bytes`, or if there is no room
        for it."""
        size_bytes = len(self._body) + len(data)
        if size_bytes > size_max_bytes:
            self._drop_body()
            return Gathered.TOO_LARGE
        if not self._has_room(size_bytes):
            self._drop_body()
            return Gathered.NO_ROOM
        if not self._body:
            self._body = data
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data
        return Gathered.KEPT

    def take_gathered(self) -> bytes:
        """Returns the pieces of the body that were kept, and keeps them no more."""
        body = bytes(self._body)
        self._drop_body()
        return body

    def _drop_body(self) -> None:
        self._body = b""
        if self._share is not None:
            self._share.give_all_back()
            self._share = None

    def drop(self) -> None:
        """Drops what is to be written and what has arrived, at the end of the connection. The objects of a connection
        refer to each other, so the collector frees them, late."""
        self.queued.clear()
        self._drop_body()
        self._tunnel_bytes = b""
        if self.held:
            self.codec = self._make_codec()

    def note_given(self, size_bytes: int) -> None:
        """Counts bytes of the body that were given out."""
        if self.body_left is not None:
            self.body_left -= size_bytes

    def next_of_body(self) -> Data | Signal:
        """Returns the next event of the body. The phase is UPLOAD or FORWARD, and has a time limit after NEED_DATA.

        Raises:
            h11.RemoteProtocolError: the body is malformed.
        """
        event = self.codec.next_event()
        if isinstance(event, Data):
            self.note_given(len(event.data))
        elif event is NEED_DATA:
            self.enter(self.phase, self._limits.body_timeout_s)
        else:
            assert isinstance(event, Signal)
            self.enter(Phase.DONE)
        return event

    async def receive_body(self) -> bytes | None:
        """Returns the next bytes of the body, see `BodySource`. The phase is UPLOAD."""
        self._pieces_given += 1
        if self._pieces_given % TURN_EVENTS == 0:  # else a client that sends tiny chunks would keep others waiting
            await checkpoint()
        while (event := self.next_of_body()) is NEED_DATA:
            await self._wait()
        return event.data if isinstance(event, Data) else None

    async def _wait(self) -> None:
        """Returns when something has arrived.

        Raises:
            Gone: the client has hung up.
            Silent: the time of this phase is up.
        """
        before = self.phase
        if not (self.is_gone or self._is_late):
            self._arrival = arrival = anyio.Event()
            self.tell_wire()
            try:
                await arrival.wait()
            finally:
                self._arrival = None
            if self.phase is not before:
                await anyio.sleep_forever()  # the code that left this phase cancels this task
            self.tell_wire()
        if self.is_gone:
            raise Gone
        if self._is_late:
            raise Silent

    def begin_tunnel(self, timeout_s: float) -> None:
        """Begins a tunnel, with the bytes that have arrived."""
        self._tunnel_bytes = self.held
        self.is_asked = True
        self.enter(Phase.TUNNEL, timeout_s)

    def take_tunnelled(self) -> bytes:
        """Returns the bytes of a tunnel that have arrived."""
        data, self._tunnel_bytes = self._tunnel_bytes, b""
        return data

    def stop_intake(self) -> None:
        if self.intake is not None:
            self.intake.cancel()

    def leave_rest(self) -> None:
        """Drops the rest of the request: it is skipped if short and coming, otherwise the connection closes after the
        reply."""
        if self.phase is Phase.DONE:
            return
        is_short = self.body_left is not None and self.body_left <= SKIP_MAX_BYTES
        is_coming = not self.codec.is_awaiting_continue
        if is_short and is_coming and self.phase is not Phase.CLOSING:
            self.enter(Phase.SKIP, self._limits.body_timeout_s)
        else:
            self.enter(Phase.CLOSING)

    def start_next_cycle(self) -> bool:
        """Goes on after a complete request and response. Returns True if there can be another request."""
        held = self.codec.go_on()
        if held is None:
            return False
        self.head = None
        if self._share is not None:
            self._drop_body()
        if held and held[0] in EMPTY_LINES:  # h11 would refuse an empty line as a malformed request line
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
        """Queues a whole response."""
        self.queued.append(self.codec.encode_whole(status, headers, body))

    def put_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.queued.append(self.codec.encode_head(status, headers))

    def put_data(self, data: bytes | bytearray) -> None:
        self.queued += self.codec.encode_data(data)

    def put_end(self) -> None:
        if end := self.codec.encode_end():
            self.queued.append(end)

    def put_bytes(self, data: bytes) -> None:
        """Queues bytes that are not HTTP."""
        self.queued.append(data)

    def ask_body(self) -> None:
        """Queues a 100 if the client waits for it before it sends the body."""
        if self.codec.is_awaiting_continue:
            self.queued.append(self.codec.encode_informational(100, ()))

    def switch(self, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Encodes a 101 with these headers. The bytes that follow it in both directions are not HTTP."""
        return self.codec.encode_informational(101, headers)
