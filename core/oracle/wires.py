"""The wires of an engine, one for each downstream session and each upstream one, read from its inputs and effects.

On wires to clients the proxy is the server; on wires to servers it is the client. `Wires` sorts inputs and effects by
wire, keeps an oracle for each wire and reports its violations. `read_trace` does so with a trace of `core.trace`.
`read_log` reads a log of one pipe, written by any program.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from ..base.effects import Close, Delete, Dial, Effect, Forward, Join, Listen, Pass, Post, Send, SendEvents, Spawn
from ..base.events import (
    Cause,
    Connected,
    DeleteOpening,
    End,
    EventPipeOpening,
    GetOpening,
    MessageOpening,
    Opening,
    PipeOpening,
    PostOpening,
)
from ..base.revisions import is_known_modern
from .observations import PIPE_CHANNEL, AnyObservation, Ended, Head, Opened, Role, Said, Transport, Verb, Violation
from .oracle import REMEMBERED_MAX, Oracle
from .seen import VERSION, Memory

Sink = Callable[["Wire", AnyObservation, list[Violation]], None]

_UNJUDGED_IF_MIXED: Final = frozenset({"id-reused", "progress-token-reused", "progress-stands", "progress-late"})
"""Rules that cannot be judged where several clients appear as one, since their ids and tokens may be equal."""


class Wire:
    """One connection or session of the proxy.

    Attributes:
        proxy: which end the proxy is.
        server: the id of the server that it leads to.
        oracle: the oracle that judges it.
        is_mixed: it may consist of several, whose ids may be equal.
    """

    def __init__(self, proxy: Role, server: str, transport: Transport, *, is_mixed: bool = False) -> None:
        self.proxy = proxy
        self.server = server
        self.oracle = Oracle(None, transport)
        self.transport = transport
        self.is_mixed = is_mixed


class _Channel:
    """A channel of the engine, as part of its wire. `is_accepted` if it is a POST without a request, whose right status
    is 202."""

    def __init__(self, wire: Wire, number: int, *, is_accepted: bool = False) -> None:
        self.wire = wire
        self.number = number
        self.is_accepted = is_accepted
        self.is_headed = False

    @property
    def is_pipe(self) -> bool:
        return self.number == PIPE_CHANNEL and self.wire.transport is Transport.PIPE


class _Parts:
    """The parts of an incomplete message."""

    def __init__(self, size_bytes: int) -> None:
        self._left_bytes = size_bytes
        self._pieces: list[bytes] = []

    def receive(self, pieces: tuple[bytes, ...]) -> bytes | None:
        """Adds parts and returns the message, if it is complete now."""
        self._pieces += pieces
        self._left_bytes -= sum(map(len, pieces))
        return None if self._left_bytes else b"".join(self._pieces)


def _next_part(parts: Memory[int, _Parts], channel: int, pieces: tuple[bytes, ...], size_bytes: int) -> bytes | None:
    """Adds a part to a channel's message and returns the message, if it is complete. The first part has the message's
    size."""
    if size_bytes:
        parts[channel] = _Parts(size_bytes)
    found = parts.get(channel)
    message = None if found is None else found.receive(pieces)
    if message is not None:
        del parts[channel]
    return message


class Wires:
    """Takes the inputs and effects of an engine, in their order, and has each wire judged.

    Args:
        tell: called with each observation and its violations.
        origin: names the session behind an upstream channel, where sessions with one server are kept apart by more than
            their session ids. None: unknown, and rules that need it are not judged on servers without sessions.
    """

    def __init__(self, tell: Sink, origin: Callable[[int], str] | None = None) -> None:
        self._tell = tell
        self._origin = origin
        self._channels: Memory[int, _Channel] = Memory(REMEMBERED_MAX)
        self._wires: Memory[tuple[str, ...], Wire] = Memory(REMEMBERED_MAX)
        self._waiting: Memory[int, Opening] = Memory(REMEMBERED_MAX)
        """Heads of requests whose wire is known only from their body."""
        self._new: Memory[int, tuple[str, ...]] = Memory(REMEMBERED_MAX)
        """Handshakes whose session is not known yet: the key of their wire, except for the session id."""
        self._endpoints: Memory[str, _Channel] = Memory(REMEMBERED_MAX)
        self._incoming: Memory[int, _Parts] = Memory(REMEMBERED_MAX)
        self._outgoing: Memory[int, _Parts] = Memory(REMEMBERED_MAX)
        """Incomplete messages that come (`_incoming`), or are passed on (`_outgoing`), in parts."""

    # --- Inputs of the engine ---------------------------------------------------------------------------------------

    def receive_open(self, channel: int, opening: Opening) -> None:
        """Takes the opening of a channel, or the success of a dial."""
        if isinstance(opening, PipeOpening):
            self._channels[channel] = _Channel(Wire(Role.SERVER, opening.server, Transport.PIPE), PIPE_CHANNEL)
        elif isinstance(opening, EventPipeOpening):
            wire = Wire(Role.SERVER, opening.server, Transport.EVENTS)
            self._open(channel, wire, Opened(channel, Verb.GET))
            self._observe(channel, Head(channel, 200))
        elif isinstance(opening, PostOpening | MessageOpening):
            self._waiting[channel] = opening
        elif isinstance(opening, GetOpening | DeleteOpening):
            key = ("down", opening.server, opening.principal, opening.session or f"none {channel}")
            verb = Verb.GET if isinstance(opening, GetOpening) else Verb.DELETE
            named = opening.last_event_id if isinstance(opening, GetOpening) else None
            seen = Opened(channel, verb, opening.session, opening.revision, None, named)
            self._open(channel, self._wire(key, Role.SERVER, opening.server), seen)
        elif isinstance(opening, Connected):
            self._receive_connected(channel, opening)

    def _receive_connected(self, channel: int, opening: Connected) -> None:
        """Takes the head of a success. A driver may not know its status: the right one is assumed, so that no server is
        accused on a guess."""
        found = self._channels.get(channel)
        if found is not None:
            self._head(channel, opening.status or (202 if found.is_accepted else 200), opening.session)

    def receive_message(self, channel: int, message: bytes) -> None:
        """Takes a message of a client, or of a server that was dialled."""
        opening = self._waiting.pop(channel, None)
        if isinstance(opening, PostOpening):
            self._open_post(channel, opening, message)
        elif isinstance(opening, MessageOpening):
            self._open_message(channel, opening)
        found = self._channels.get(channel)
        if found is not None:
            if (
                found.wire.proxy is Role.CLIENT and channel not in self._new
            ):  # its head, which names the session, is still to come
                self._head(channel, 200, None)
            self._observe(channel, Said(found.number, found.wire.proxy.other, message))

    def receive_part(self, channel: int, pieces: tuple[bytes, ...], size_bytes: int) -> None:
        """Takes a part of a server's message. The first part comes with the size of the whole."""
        message = _next_part(self._incoming, channel, pieces, size_bytes)
        if message is not None:
            self.receive_message(channel, message)

    def receive_close(self, channel: int, cause: Cause) -> None:
        """Takes the end of a channel."""
        self._incoming.pop(channel, None)
        self._waiting.pop(channel, None)
        found = self._channels.get(channel)
        if found is None:
            return
        peer = found.wire.proxy.other
        if found.wire.proxy is Role.CLIENT and cause.end is End.REFUSED:
            self._head(channel, cause.status, None)
            if cause.body:
                self._observe(channel, Said(found.number, peer, cause.body))
        elif found.wire.proxy is Role.CLIENT and cause.end is End.DONE:
            self._head(channel, 202, None)
        self._end(channel, peer if cause.end in (End.DONE, End.GONE, End.REFUSED) else None)

    # --- Effects of the engine --------------------------------------------------------------------------------------

    def receive_effects(self, effects: Iterable[Effect]) -> None:
        """Takes the effects of an input."""
        for effect in effects:
            if isinstance(effect, Send):
                self._send(effect)
            elif isinstance(effect, SendEvents):
                ids = effect.event_ids or (None,) * len(effect.messages)
                for message, event_id in zip(effect.messages, ids, strict=True):
                    self._send(Send(effect.channel, message, event_id=event_id))
            elif isinstance(effect, Pass):
                self._head(effect.channel, 200, None)
                whole = _next_part(self._outgoing, effect.channel, effect.pieces, effect.size_bytes)
                if whole is not None:
                    self._send(Send(effect.channel, whole, is_last=True))
            elif isinstance(effect, Close):
                is_cut = self._outgoing.pop(effect.channel, None) is not None
                if effect.channel in self._channels and self._channels[effect.channel].wire.proxy is Role.SERVER:
                    self._head(effect.channel, effect.status, None)
                self._end(effect.channel, None if is_cut else self._proxy(effect.channel))
                self._waiting.pop(effect.channel, None)
            elif isinstance(effect, Forward):  # the request is one on a wire of another proxy
                self._waiting.pop(effect.channel, None)
                self._end(effect.channel, Role.CLIENT)
            elif isinstance(effect, Dial):
                self._dial(effect)

    def _send(self, send: Send) -> None:
        channel = int(send.channel)
        if isinstance(self._waiting.get(channel), PostOpening):  # the request is refused before its body came
            del self._waiting[channel]
        found = self._channels.get(channel)
        if found is None:
            return
        if found.wire.proxy is Role.SERVER:
            self._head(channel, send.status, send.session)
        if send.event == "endpoint":
            self._endpoints[send.message.decode()] = found
        self._observe(channel, Said(found.number, found.wire.proxy, send.message, send.event, send.event_id))
        if send.is_last:
            self._end(channel, found.wire.proxy)

    def _dial(self, dial: Dial) -> None:
        channel, target = int(dial.channel), dial.target
        if isinstance(target, Spawn | Join):
            self._channels[channel] = _Channel(Wire(Role.CLIENT, target.server, Transport.PIPE), PIPE_CHANNEL)
        elif isinstance(target, Post):
            wire = self._wire_of_post(channel, target)
            mirrored = target.mirrored if target.revision is not None and is_known_modern(target.revision) else None
            opened = Opened(channel, Verb.POST, target.session, target.revision, None, None, mirrored)
            is_accepted = not {"method", "id"} <= _decoded(target.message).keys()
            self._open(channel, wire, opened, is_accepted=is_accepted)
            self._observe(channel, Said(channel, Role.CLIENT, target.message))
        else:
            assert isinstance(target, Listen | Delete)
            key = ("up", target.server, self._origin_of(channel), target.session or "")
            verb = Verb.GET if isinstance(target, Listen) else Verb.DELETE
            named = target.last_event_id if isinstance(target, Listen) else None
            seen = Opened(channel, verb, target.session, target.revision, None, named)
            self._open(channel, self._wire(key, Role.CLIENT, target.server), seen)

    # --- The wire of each channel -----------------------------------------------------------------------------------

    def _open_post(self, channel: int, opening: PostOpening, message: bytes) -> None:
        base = ("down", opening.server, opening.principal)
        if _is_stateless(opening.revision, message):
            wire = self._wire((*base, "", "stateless"), Role.SERVER, opening.server)
        elif opening.session is None:
            wire = Wire(Role.SERVER, opening.server, Transport.HTTP)
            self._new[channel] = base
        else:
            wire = self._wire((*base, opening.session), Role.SERVER, opening.server)
        opened = Opened(channel, Verb.POST, opening.session, opening.revision, None, None, opening.mirrored)
        self._open(channel, wire, opened)

    def _open_message(self, channel: int, opening: MessageOpening) -> None:
        for text, pipe in self._endpoints.items():
            if text.endswith(opening.token):
                self._open(channel, pipe.wire, Opened(channel, Verb.POST))

    def _wire_of_post(self, channel: int, post: Post) -> Wire:
        base = ("up", post.server, self._origin_of(channel))
        if _is_stateless(post.revision, post.message):
            key = (*base, "", "stateless")
            if key not in self._wires:
                mixed = Wire(Role.CLIENT, post.server, Transport.HTTP, is_mixed=self._origin is None)
                self._wires[key] = mixed
            return self._wires[key]
        if post.session is None and _method(post.message) == "initialize":
            self._new[channel] = base
            return Wire(Role.CLIENT, post.server, Transport.HTTP, is_mixed=self._origin is None)
        return self._wire((*base, post.session or ""), Role.CLIENT, post.server)

    def _origin_of(self, channel: int) -> str:
        return "" if self._origin is None else self._origin(channel)

    def _wire(self, key: tuple[str, ...], proxy: Role, server: str) -> Wire:
        if key not in self._wires:
            self._wires[key] = Wire(proxy, server, Transport.HTTP)
        return self._wires[key]

    # --- Observations -----------------------------------------------------------------------------------------------

    def _proxy(self, channel: int) -> Role | None:
        found = self._channels.get(channel)
        return None if found is None else found.wire.proxy

    def _open(self, channel: int, wire: Wire, opened: Opened, *, is_accepted: bool = False) -> None:
        self._channels[channel] = _Channel(wire, channel, is_accepted=is_accepted)
        self._observe(channel, opened)

    def _head(self, channel: int, status: int, session: str | None) -> None:
        """Observes the head of the response, once."""
        found = self._channels.get(channel)
        if found is None or found.is_pipe or found.is_headed:
            return
        found.is_headed = True
        base = self._new.pop(channel, None)
        if base is not None and status < 300:
            self._wires[*base, session or ""] = found.wire
        self._observe(channel, Head(found.number, status, None, session))

    def _end(self, channel: int, by: Role | None) -> None:
        found = self._channels.get(channel)
        if found is not None:
            self._observe(channel, Ended(found.number, by))
            del self._channels[channel]

    def _observe(self, channel: int, observation: AnyObservation) -> None:
        wire = self._channels[channel].wire
        found = wire.oracle.receive(observation)
        if wire.is_mixed:
            found = [violation for violation in found if violation.rule not in _UNJUDGED_IF_MIXED]
        self._tell(wire, observation, found)


def _method(message: bytes) -> str:
    return str(_decoded(message).get("method", ""))


def _decoded(message: bytes) -> dict[str, Any]:
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_stateless(revision: str | None, message: bytes) -> bool:
    """True if a POST belongs to no session, by its header or its body."""
    if revision is not None and is_known_modern(revision):
        return True
    params = _decoded(message).get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and VERSION in meta


# --- Traces and logs --------------------------------------------------------------------------------------------------


class TraceLine(msgspec.Struct, frozen=True):
    """The members of a line of a trace that concern a wire."""

    input: str
    channel: int | None = None
    message: bytes | None = None
    messages: tuple[bytes, ...] | None = None
    pieces: tuple[bytes, ...] = ()
    size_bytes: int | None = None
    opening: Opening | None = None
    cause: Cause | None = None
    effects: tuple[msgspec.Raw, ...] = ()


_lines: Final = msgspec.json.Decoder(TraceLine)
_orders: Final[msgspec.json.Decoder[Send | SendEvents | Pass | Close | Forward | Dial]] = msgspec.json.Decoder(
    Send | SendEvents | Pass | Close | Forward | Dial
)
_tags: Final = msgspec.json.Decoder(dict[str, Any])
_ON_A_WIRE: Final = ("Send", "SendEvents", "Pass", "Close", "Forward", "Dial")


def read_trace(lines: Iterable[bytes]) -> Iterator[tuple[Wire, AnyObservation, list[Violation]]]:
    """Yields the observations of each wire in a trace of `core.trace`, and the violations of each.

    Raises:
        ValueError: a line is no line of a trace.
    """
    observed: list[tuple[Wire, AnyObservation, list[Violation]]] = []
    wires = Wires(lambda wire, observation, found: observed.append((wire, observation, found)))
    for number, text in enumerate(lines, 1):
        try:
            line = _lines.decode(text)
            effects = [_orders.decode(raw) for raw in line.effects if _tags.decode(raw).get("type") in _ON_A_WIRE]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"line {number} is no line of a trace: {error}") from None
        if line.channel is not None and line.input != "new_channel":
            if line.opening is not None:
                wires.receive_open(line.channel, line.opening)
            if line.message is not None:
                wires.receive_message(line.channel, line.message)
            for message in line.messages or ():
                wires.receive_message(line.channel, message)
            if line.input == "receive_pieces":
                wires.receive_message(line.channel, b"".join(line.pieces))
            elif line.pieces:
                wires.receive_part(line.channel, line.pieces, line.size_bytes or 0)
            if line.cause is not None:
                wires.receive_close(line.channel, line.cause)
        wires.receive_effects(effects)
        yield from observed
        observed.clear()


class LogLine(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    """A line of a pipe's log: `{"from": "client", "message": {…}}`, with `at` in seconds if that is known."""

    sender: Role
    message: msgspec.Raw
    at: float | None = None


_log: Final = msgspec.json.Decoder(LogLine)


def read_log(lines: Iterable[bytes]) -> Iterator[Said]:
    """Yields the messages in a log of one pipe, which has one line for each. Invalid JSON stands in the log as a
    string.

    Raises:
        ValueError: a line is no line of such a log.
    """
    for number, text in enumerate(lines, 1):
        try:
            line = _log.decode(text)
            raw = bytes(line.message)
            message = str(msgspec.json.decode(raw)).encode() if raw.startswith(b'"') else raw
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"line {number} is no line of a log: {error}") from None
        yield Said(PIPE_CHANNEL, line.sender, message, at=line.at)
