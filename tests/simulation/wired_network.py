"""A network whose channels are bytes: all messages go through the codecs in both directions, cut at seeded places.

Bytes for the proxy arrive piece by piece, each in its time, so that channels also end within a message. Bytes from the
proxy are read by the peer at once, and must decode to what was ordered.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from isthmus.core.base.effects import Close, Delete, Dial, Join, Listen, Post, Send
from isthmus.core.base.events import Cause, Connected, End, PipeOpening
from isthmus.core.wire.http.routes import Surface
from lasting_network import LastingNetwork
from simulated_network import Channel, Peer, Wrong
from simulated_servers import Server
from simulated_wires import HTTP_OPENINGS, Item, LineWire, RequestWire, ResponseWire, SocketWire, TwoWay, cut


class WiredNetwork(LastingNetwork):
    """The network of a wired world.

    Attributes:
        surface: the endpoints that the proxy serves over HTTP.
    """

    surface: Surface
    overlapping = LastingNetwork.overlapping | {"leaves"}  # the last one may have pieces under way

    def __init__(self, rng: random.Random, faults: frozenset[str], dialled: Callable[[Channel, Dial], None]) -> None:
        super().__init__(rng, faults, dialled)
        self._streams: dict[Channel, TwoWay] = {}
        self._requests: dict[Channel, RequestWire] = {}
        self._responses: dict[Channel, ResponseWire] = {}
        self._outgoing: dict[Channel, list[Item]] = {}  # items of servers over HTTP in this moment
        self._begun: set[Channel] = set()  # channels whose response has begun
        self._idle: dict[Peer, list[RequestWire]] = {}

    def crash(self) -> None:
        for table in (self._streams, self._requests, self._responses, self._outgoing, self._begun, self._idle):
            table.clear()  # type: ignore[attr-defined]
        super().crash()

    # --- To the proxy -----------------------------------------------------------------------------------------------

    def _send_in(self, channel: Channel, item: Item) -> None:
        what = item[1] if len(item) > 1 else None  # "half" has no second element
        if channel in self._responses:
            if channel not in self._outgoing:
                self._outgoing[channel] = []
                self.later(0.0, self._answer_as_bytes, channel)
            self._outgoing[channel].append(item)
        elif item[0] == "open" and isinstance(what, HTTP_OPENINGS):
            wire = self._connection(channel)
            self._put(channel, wire.ask(what, item[2], channel.rng))
        elif item[0] in ("say", "many") and channel in self._streams:
            messages = [what] if item[0] == "say" else what
            data = b"".join(map(self._streams[channel].write, messages))
            if channel.drops_line_end and isinstance(self._streams[channel], LineWire):
                self.counts["manner unended"] += 1
                data = data.rstrip(b"\r\n")
            self._put(channel, data)
        else:
            if isinstance(what, PipeOpening):
                is_socket = channel.rng.random() < 0.5
                self._streams[channel] = SocketWire(is_client=False) if is_socket else LineWire(channel.rng)
            super()._send_in(channel, item)

    def _connection(self, channel: Channel) -> RequestWire:
        """Returns a new connection, or one that has carried requests before."""
        idle = self._idle.get(channel.peer, [])
        if idle and channel.rng.random() < 0.8:
            self.counts["connection used again"] += 1
            wire = idle.pop()
        else:
            wire = RequestWire(self.surface)
        self._requests[channel] = wire
        return wire

    def _put(self, channel: Channel, data: bytes) -> None:
        for number, piece in enumerate(self._cut(data, channel.rng)):
            if not number or channel.rng.random() < 0.2:
                super()._send_in(channel, ("bytes", piece))
            else:  # directly behind the piece before
                self.later(channel.last_in_at - self.now, self._arrive, channel, ("bytes", piece))

    def _cut(self, data: bytes, rng: random.Random) -> Iterator[bytes]:
        return cut(data, rng)

    def _arrive(self, channel: Channel, item: Item) -> None:
        if item[0] != "bytes" or channel.is_over or channel.is_cut:
            super()._arrive(channel, item)
        elif channel.is_paused:
            channel.held.append(item)
        else:
            wire = self._streams.get(channel) or self._requests.get(channel) or self._responses.get(channel)
            assert wire is not None
            self.counts["piece"] += 1
            for arrived in wire.receive(item[1]):
                self._arrive(channel, arrived)

    def _end_input(self, channel: Channel) -> None:
        """Handles the end of what a client writes: what it has not ended may be a message."""
        wire = self._streams.get(channel)
        for arrived in wire.receive_eof() if isinstance(wire, LineWire) else []:
            self._arrive(channel, arrived)

    # --- From the proxy ---------------------------------------------------------------------------------------------

    def _deliver(self, channel: Channel, *sends: Send) -> None:
        if not (channel.is_over or channel.is_cut or channel.is_left):
            if channel in self._streams:
                stream, messages = self._streams[channel], [send.message for send in sends]
                data = b"".join(map(stream.send, messages))
                found = [one for piece in cut(data, channel.rng) for one in stream.read(piece)]
                if found != messages:
                    raise Wrong(f"{sends} was read as {found}")
            elif channel in self._requests:
                self._reply(channel, self._requests[channel], sends)
        super()._deliver(channel, *sends)

    def _reply(self, channel: Channel, wire: RequestWire, sends: Sequence[Send]) -> None:
        """Checks that the client reads what was ordered."""
        found = [one for piece in cut(wire.send(sends, channel.rng), channel.rng) for one in wire.read(piece)]
        meant = [send for send in sends if send.message or send.event_id]
        if bool(wire.ended_with) is not sends[-1].is_last or len(found) != len(meant):
            raise Wrong(f"{sends} was read as {found}, and the end as {wire.ended_with}")
        for send, one in zip(meant, found, strict=True):
            is_right = (one.message, one.event) == (send.message, send.event if one.is_event else "message")
            is_right &= one.session == send.session or send.session is None
            is_right &= one.event_id == (send.event_id if one.is_event else None)
            is_right &= one.is_event or one.status == send.status
            if not is_right:
                raise Wrong(f"{send} was read as {one}")

    def _finish(self, channel: Channel, close: Close | None) -> None:
        wire = self._requests.get(channel)
        if wire is not None and not (channel.is_over or channel.is_cut or channel.is_left):
            if close is not None and not wire.ended_with:
                for piece in cut(wire.close(close), channel.rng):
                    if list(wire.read(piece)):
                        raise Wrong(f"{close} has brought a message")
                if wire.ended_with not in (close.status, 200):
                    raise Wrong(f"{close} was read as {wire.ended_with}")
            if wire.go_on():
                self._idle.setdefault(channel.peer, []).append(wire)
        super()._finish(channel, close)

    def _report_end(self, channel: Channel, cause: Cause) -> None:
        super()._report_end(channel, cause)
        for table in (self._streams, self._requests, self._responses, self._outgoing):
            table.pop(channel, None)  # type: ignore[attr-defined]
        self._begun.discard(channel)

    # --- To servers and back ----------------------------------------------------------------------------------------

    def _reach(self, channel: Channel, dial: Dial) -> None:
        target = dial.target
        if channel.is_over:
            return
        if isinstance(target, Post | Listen | Delete):
            wire = self._responses[channel] = self._response(channel, target)
            wire.check_asked(cut(wire.ask(), channel.rng))
        else:
            self._streams[channel] = self._stream(channel, dial)
        super()._reach(channel, dial)

    def _response(self, channel: Channel, target: Post | Listen | Delete) -> ResponseWire:
        return ResponseWire(target, channel.rng)

    def _stream(self, channel: Channel, dial: Dial) -> TwoWay:
        return SocketWire(is_client=True) if isinstance(dial.target, Join) else LineWire(channel.rng)

    def _answer_as_bytes(self, channel: Channel) -> None:
        """Encodes what a server sent in one moment."""
        items, wire = self._outgoing.pop(channel, []), self._responses.get(channel)
        if wire is None:
            return
        connected = next((what for kind, what, *_ in items if kind == "open"), None)
        messages = [one for item in items for one in _events_of(item)]
        cause: Any = next((what for kind, what, *_ in items if kind == "end"), None)
        is_whole = cause is not None and cause.end in (End.DONE, End.REFUSED)
        if channel in self._begun:
            self._put(channel, b"".join(wire.say(*one) for one in messages) + (wire.end() if is_whole else b""))
        elif cause is None or is_whole or messages or connected:
            self._begun.add(channel)
            assert connected is None or isinstance(connected, Connected)
            status = 0 if cause is None else cause.status
            is_wordy = isinstance(channel.peer, Server) and "wordy" in channel.peer.manners
            body = b"" if cause is None else cause.body
            whole = wire.accept() if is_wordy and is_whole and not (status or messages) else b""
            self.counts["manner wordy"] += bool(whole)
            self._put(channel, whole or wire.answer(connected, messages, is_whole=is_whole, status=status, body=body))
        if cause is None or is_whole:
            return
        if channel in self._begun:
            super()._send_in(channel, ("bytes", b""))
        else:
            super()._send_in(channel, ("end", cause))


def _events_of(item: Item) -> list[tuple[bytes, str | None]]:
    """Returns the messages with the ids of their events."""
    if item[0] == "prime":
        return [(b"", item[1])]
    if item[0] == "many":
        *before, last = item[1]
        return [*((message, None) for message in before), (last, item[2])]
    return [(item[1], None)] if item[0] == "say" else []
