"""The wire log: each message that an engine receives or sends, its telemetry events and its notes, in their order.

`WireLog.attach` puts the log before the inputs of an engine, and `detach` takes it away. Detached, it costs nothing.
What is logged waits, unread, until `take`: reading it (`Digest`) is no part of a call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ...core.base.effects import Dial, Effect, Emit, Note, Pass, Post, Send, SendEvents
from ...core.base.events import (
    Connected,
    EventPipeOpening,
    GetOpening,
    MessageOpening,
    PipeOpening,
    PostOpening,
)
from ...core.base.ids import ChannelId
from ...core.base.telemetry import AnyEvent
from ...core.bulk import BulkEngine
from ...core.status import ChannelStatus
from ...core.trace import INPUTS

WAITING_MAX: Final = 20_000
"""Entries that wait to be read: those of 2,500 calls. At it: inputs are counted only, until half of them are read."""
WAITING_MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of their messages. At it: inputs are counted only, until half of them are read."""
SHOWN_MAX_BYTES: Final = 64 * 1024
"""Bytes of a message that are kept, if it is passed on in parts. At it: the rest is counted only."""

SESSION_HEADER: Final = "Mcp-Session-Id"

About = PostOpening | MessageOpening | Post | Send | Connected | None
"""The head of the HTTP request or response that a message came with."""


class Message:
    """A message on one leg.

    Attributes:
        turn: the number of the input in whose course it was received or sent.
        at: the time, in seconds since 1970.
        is_received: it was received; else it was sent.
        body: its bytes, or its beginning if it is passed on in parts.
        size_bytes: the size of the whole message.
        kept_bytes: the bytes that `body` has, once all parts are there.
    """

    __slots__ = (
        "about",
        "at",
        "body",
        "channel",
        "event_id",
        "is_received",
        "kept_bytes",
        "peer",
        "size_bytes",
        "turn",
    )

    def __init__(
        self,
        turn: int,
        at: float,
        peer: ChannelStatus,
        channel: int,
        body: bytes,
        *,
        is_received: bool,
        about: About = None,
        event_id: str = "",
        size_bytes: int | None = None,
    ) -> None:
        self.turn = turn
        self.at = at
        self.peer = peer
        self.channel = channel
        self.body = body
        self.is_received = is_received
        self.about = about
        self.event_id = event_id
        self.size_bytes = len(body) if size_bytes is None else size_bytes
        self.kept_bytes = len(body) if size_bytes is None else min(size_bytes, SHOWN_MAX_BYTES)

    def add(self, pieces: tuple[bytes, ...]) -> None:
        """Adds a part, as far as it is kept."""
        for piece in pieces:
            if (left := SHOWN_MAX_BYTES - len(self.body)) > 0:
                self.body += piece[:left]


class Happened(NamedTuple):
    """A telemetry event."""

    turn: int
    at: float
    event: AnyEvent


class Noted(NamedTuple):
    """A line about a server: a note of the engine, or what a process wrote to stderr (`level` is "stderr")."""

    turn: int
    at: float
    level: str
    server: str
    text: str


Entry = Message | Happened | Noted
_NOBODY: Final = ChannelStatus(False, "", "")


class WireLog:
    """The log of one engine.

    Args:
        clock: returns the time, in seconds since 1970. That of an engine is as coarse as its event loop's.
        wake: called when entries wait and none did before.

    Attributes:
        dropped: the number of inputs that were not logged since the last `take`.
    """

    def __init__(self, engine: BulkEngine, clock: Callable[[], float], wake: Callable[[], None] = lambda: None) -> None:
        self._engine = engine
        self._clock = clock
        self._wake = wake
        self._waiting: deque[Entry] = deque()
        self._waiting_bytes = 0
        self.dropped = 0
        self._turn = 0
        self._at = 0.0
        self._is_within = False
        self._is_full = False
        self._ended = 0  # the channel that is over with the present input
        self._peers: dict[int, ChannelStatus] = {}
        self._parts: dict[int, Message] = {}  # messages that are being passed on in parts
        self.is_attached = False
        self._receivers: dict[type[Effect], Callable[[Any], None]] = {
            Send: self._receive_send,
            SendEvents: self._receive_events,
            Pass: self._receive_pass,
            Dial: self._receive_dial,
            Emit: self._receive_emit,
            Note: self._receive_note,
        }

    def attach(self) -> None:
        """Logs from now on."""
        if self.is_attached:
            return
        self.is_attached = True
        for name in INPUTS:
            setattr(self._engine, name, self._logged(getattr(self._engine, name), getattr(self, f"_{name}", None)))

    def detach(self) -> None:
        """Logs no more."""
        if not self.is_attached:
            return
        self.is_attached = False
        for name in INPUTS:
            delattr(self._engine, name)
        self._peers.clear()
        self._parts.clear()

    def note(self, level: str, server: str, text: str) -> None:
        """Logs a line about a server."""
        if self.is_attached:
            self._add(Noted(self._turn, self._clock(), level, server, text))

    def take(self, count: int) -> tuple[list[Entry], int]:
        """Removes and returns the oldest entries, and the number of inputs that were not logged since the last call.

        Entries of one turn are returned together, so there may be some more than `count`.
        """
        waiting = self._waiting
        taken = [waiting.popleft() for _ in range(min(count, len(waiting)))]
        while taken and waiting and waiting[0].turn == taken[-1].turn:
            taken.append(waiting.popleft())
        self._waiting_bytes -= sum(entry.kept_bytes for entry in taken if isinstance(entry, Message))
        if self._is_full and len(waiting) < WAITING_MAX // 2 and self._waiting_bytes < WAITING_MAX_BYTES // 2:
            self._is_full = False
        dropped, self.dropped = self.dropped, 0
        return taken, dropped

    # --- Inputs -----------------------------------------------------------------------------------------------------

    def _logged(
        self, method: Callable[..., list[Effect]], note: Callable[..., None] | None
    ) -> Callable[..., list[Effect]]:
        receivers = self._receivers

        def logged(*given: Any, **named: Any) -> list[Effect]:
            if self._is_within:  # an input may be made of others
                return method(*given, **named)
            if self._is_full:
                self.dropped += 1
                return method(*given, **named)
            self._is_within = True
            self._turn += 1
            self._at = self._clock()
            try:
                if note is not None:
                    note(*given, **named)
                effects = method(*given, **named)
                for effect in effects:
                    if (receive := receivers.get(type(effect))) is not None:
                        receive(effect)
            finally:
                self._is_within = False
                if self._ended:
                    self._peers.pop(self._ended, None)
                    self._parts.pop(self._ended, None)
                    self._ended = 0
                if len(self._waiting) >= WAITING_MAX or self._waiting_bytes >= WAITING_MAX_BYTES:
                    self._is_full = True
                    self._peers.clear()  # they would not be told of the ends of their channels
                    self._parts.clear()
            return effects

        return logged

    def _receive_open(self, channel: ChannelId, opening: object, now: float) -> None:
        self._opened(channel, opening)

    def _receive_message(self, channel: ChannelId, message: bytes, now: float) -> None:
        self._received(channel, message)

    def _receive_messages(self, channel: ChannelId, messages: list[bytes], now: float) -> None:
        for message in messages:
            self._received(channel, message)

    def _receive_pieces(self, channel: ChannelId, pieces: tuple[bytes, ...], now: float) -> None:
        self._received(channel, b"".join(pieces))

    def _receive_part(
        self,
        channel: ChannelId,
        pieces: tuple[bytes, ...],
        now: float,
        *,
        opening: Connected | None = None,
        size_bytes: int = 0,
        cause: object = None,
    ) -> None:
        if size_bytes:
            self._begin_parts(channel, pieces, size_bytes, is_received=True, about=opening)
        elif (message := self._parts.get(channel)) is not None:
            message.add(pieces)
        if cause is not None:
            self._ended = channel

    def _receive_at_once(
        self,
        channel: ChannelId,
        now: float,
        *,
        opening: object = None,
        message: bytes | None = None,
        size_bytes: int = 0,
        cause: object = None,
    ) -> None:
        about = self._opened(channel, opening)
        if message is not None:
            self._received(channel, message, about)
        if cause is not None:
            self._ended = channel

    def _receive_close(self, channel: ChannelId, cause: object, now: float) -> None:
        self._ended = channel

    def _opened(self, channel: int, opening: object) -> About:
        match opening:
            case PostOpening() | GetOpening():
                name = "" if opening.session is None else self._engine.session_name(opening.session)
                self._peers[channel] = ChannelStatus(False, opening.server, name)
            case MessageOpening() | PipeOpening() | EventPipeOpening():
                is_own = isinstance(opening, PipeOpening) and opening.is_own
                self._peers[channel] = ChannelStatus(False, opening.server, "", is_own)
        return opening if isinstance(opening, PostOpening | MessageOpening | Connected) else None

    def _received(self, channel: int, body: bytes, about: About = None) -> None:
        self._add_message(
            Message(self._turn, self._at, self._peer(channel), channel, body, is_received=True, about=about)
        )

    # --- Effects ----------------------------------------------------------------------------------------------------

    def _receive_send(self, effect: Send) -> None:
        if effect.message and effect.event == "message":
            about = None if self._peer(effect.channel).is_upstream else effect  # a server on a pipe gets no head
            self._sent(effect.channel, effect.message, about, effect.event_id or "")

    def _receive_emit(self, effect: Emit) -> None:
        self._add(Happened(self._turn, self._at, effect.event))

    def _receive_dial(self, effect: Dial) -> None:
        target = effect.target
        if isinstance(target, Post):
            peer = self._of_engine(effect.channel) or ChannelStatus(True, target.server, "")
            self._peers[effect.channel] = peer
            self._sent(effect.channel, target.message, target, "")

    def _receive_events(self, effect: SendEvents) -> None:
        ids = effect.event_ids or ("",) * len(effect.messages)
        for message, event_id in zip(effect.messages, ids, strict=True):
            self._sent(effect.channel, message, None, event_id)

    def _receive_pass(self, effect: Pass) -> None:
        if effect.size_bytes:
            self._begin_parts(effect.channel, effect.pieces, effect.size_bytes, is_received=False)
        elif (passed := self._parts.get(effect.channel)) is not None:
            passed.add(effect.pieces)

    def _receive_note(self, effect: Note) -> None:
        self._add(Noted(self._turn, self._at, effect.level, effect.server, effect.text))

    def _sent(self, channel: int, body: bytes, about: About, event_id: str) -> None:
        peer = self._peer(channel)
        self._add_message(
            Message(self._turn, self._at, peer, channel, body, is_received=False, about=about, event_id=event_id)
        )

    def _begin_parts(
        self, channel: int, pieces: tuple[bytes, ...], size_bytes: int, *, is_received: bool, about: About = None
    ) -> None:
        peer = self._peer(channel)
        message = Message(
            self._turn, self._at, peer, channel, b"", is_received=is_received, about=about, size_bytes=size_bytes
        )
        message.add(pieces)
        self._parts[channel] = message
        self._add_message(message)

    # --- Entries ----------------------------------------------------------------------------------------------------

    def _peer(self, channel: int) -> ChannelStatus:
        found = self._peers.get(channel)
        if found is None or not (found.is_upstream or found.session or found.is_own):
            asked = self._of_engine(channel)
            if asked is not None and (found is None or asked.session):
                found = self._peers[channel] = asked
        return found or _NOBODY

    def _of_engine(self, channel: int) -> ChannelStatus | None:
        return self._engine.channel(ChannelId(channel))

    def _add_message(self, message: Message) -> None:
        if not message.peer.is_own:
            self._waiting_bytes += message.kept_bytes
            self._add(message)

    def _add(self, entry: Entry) -> None:
        waiting = self._waiting
        if not waiting:
            self._wake()
        waiting.append(entry)


def head_of(about: About) -> tuple[int | None, list[tuple[str, str]]]:
    """Returns the status and the headers that came with a message, as far as an engine knows them."""
    headers: list[tuple[str, str]] = []
    status = None
    if isinstance(about, PostOpening | Post):
        if about.session is not None:
            headers.append((SESSION_HEADER, about.session))
        if about.revision is not None:
            headers.append(("MCP-Protocol-Version", about.revision))
        headers += [*about.mirrored, *about.headers]
    elif isinstance(about, MessageOpening):
        headers += about.headers
    elif isinstance(about, Connected):
        status = about.status
        if about.session is not None:
            headers.append((SESSION_HEADER, about.session))
    elif isinstance(about, Send):
        status = about.status
        if about.session is not None:
            headers.append((SESSION_HEADER, about.session))
        headers += about.headers
    return status, headers
