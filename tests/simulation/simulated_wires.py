"""Channels as bytes: the proxy's side is its own codecs, the other one is h11, wsproto, or written here.

All bytes are cut into pieces at seeded places. A wire reports what has arrived in the terms of the engine, and reads
what the engine sends as a peer does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

import h11
import msgspec
from isthmus.core.base.effects import Close, Delete, Listen, Pass, Post, Send, SendEvents
from isthmus.core.base.events import (
    Cause,
    Connected,
    DeleteOpening,
    End,
    EventPipeOpening,
    GetOpening,
    MessageOpening,
    Opening,
    PostOpening,
    Primed,
)
from isthmus.core.base.limits import Limits
from isthmus.core.wire.http import response
from isthmus.core.wire.http.reply import HttpReply, HttpReplyState, Out, ReplyBody, ReplyDocument, ReplyEnd, ReplyHead
from isthmus.core.wire.http.request import RequestForms
from isthmus.core.wire.http.response import Arrived, Dropped, Ended, Opened, ResponseReader
from isthmus.core.wire.http.routes import Head, McpRoute, Surface
from isthmus.core.wire.http.server import judge, reply_to
from isthmus.core.wire.http1.events import Data, RequestHead, ResponseHead, Signal
from isthmus.core.wire.ndjson import Line, LineReader, Oversize, encode_lines
from isthmus.transports.http1.client import ClientCodec
from isthmus.transports.http1.server import ServerCodec
from isthmus.transports.websocket.frames import Frames, Text
from manners import acceptance
from simulated_network import Wrong
from wsproto.connection import Connection, ConnectionType
from wsproto.events import TextMessage

LIMITS: Final = Limits()
OWN: Final = ((b"host", b"there"),)
HTTP_OPENINGS: Final = (PostOpening, GetOpening, DeleteOpening, EventPipeOpening, MessageOpening)

Item = tuple[Any, ...]
"""An arrival at the engine: ("open", opening, body), ("say", message), ("many", messages, event id), ("prime", event
id), ("end", cause). In driven worlds also ("pieces", pieces), ("replied", opening, message), and ("part", pieces,
opening, size, whether it is the last)."""


def cut(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """Cuts the bytes into pieces: mostly few, sometimes one by one."""
    if rng.random() < 0.02:
        yield from (data[at : at + 1] for at in range(len(data)))
        return
    places = sorted(rng.randint(0, len(data)) for _ in range(rng.choice((0, 1, 1, 2, 5))))
    for start, end in zip((0, *places), (*places, len(data)), strict=True):
        if start < end:
            yield data[start:end]


def together(messages: list[bytes]) -> list[Item]:
    """Returns one item for messages that arrived together."""
    return [("many", messages, None)] if len(messages) > 1 else [("say", message) for message in messages]


class TwoWay(Protocol):
    """A wire of a two-way stream of messages."""

    def write(self, message: bytes) -> bytes:
        """Encodes a message of the peer."""

    def receive(self, piece: bytes) -> list[Item]:
        """Decodes a piece for the proxy."""

    def send(self, message: bytes) -> bytes:
        """Encodes a message of the proxy."""

    def read(self, piece: bytes) -> list[bytes]:
        """Decodes a piece for the peer."""


class LineWire:
    """A pipe, with one message a line."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._reader = LineReader(line_size_max_bytes=1 << 20, joined_size_max_bytes=rng.choice((None, 100)))
        self._held = b""

    def write(self, message: bytes) -> bytes:
        return message + self._rng.choice((b"\n", b"\n", b"\r\n", b"\n\n"))

    def receive(self, piece: bytes) -> list[Item]:
        return self._items_of(self._reader.receive_bytes(piece))

    def receive_eof(self) -> list[Item]:
        """Handles the end of the stream, for the proxy."""
        return self._items_of(self._reader.receive_eof())

    def _items_of(self, lines: list[Line | Oversize]) -> list[Item]:
        return together([b"".join((line.data, *line.rest)) for line in lines if isinstance(line, Line)])

    def send(self, message: bytes) -> bytes:
        return b"".join(encode_lines([message]))

    def read(self, piece: bytes) -> list[bytes]:
        *whole, self._held = (self._held + piece).split(b"\n")
        return whole


class SocketWire:
    """A WebSocket, after its handshake."""

    def __init__(self, *, is_client: bool) -> None:
        self._frames = Frames(is_client=is_client, message_size_max_bytes=1 << 20)
        self._peer = Connection(ConnectionType.SERVER if is_client else ConnectionType.CLIENT)
        self._held = ""

    def write(self, message: bytes) -> bytes:
        try:
            return self._peer.send(TextMessage(data=message.decode()))
        except UnicodeDecodeError:
            return b""  # binary data cannot stand in a text frame, so it is not sent

    def receive(self, piece: bytes) -> list[Item]:
        self._frames.receive_bytes(piece)
        found = []
        while (event := self._frames.next_event()) is not None:
            if isinstance(event, Text):
                found.append(event.data)
        return together(found)

    def send(self, message: bytes) -> bytes:
        return self._frames.encode_text(message.decode(), is_last=True)

    def read(self, piece: bytes) -> list[bytes]:
        self._peer.receive_data(piece)
        found = []
        for event in self._peer.events():
            if isinstance(event, TextMessage):
                self._held += event.data
                if event.message_finished:
                    found.append(self._held.encode())
                    self._held = ""
        return found


class EventText:
    """An event stream as clients read it, strictly by WHATWG HTML, "Server-sent events"."""

    def __init__(self) -> None:
        self._held = b""

    def read(self, data: bytes) -> Iterator[dict[str, str]]:
        """Yields the fields of each complete event."""
        *blocks, self._held = (self._held + data).split(b"\n\n")
        for block in blocks:
            fields: dict[str, str] = {}
            for line in block.decode().split("\n"):
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if name:
                    fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
            if fields:
                yield fields


class ReplyMessage(NamedTuple):
    """One message of a reply, as a client reads it."""

    message: bytes
    status: int
    session: str | None
    event: str
    event_id: str | None
    is_event: bool


class RequestWire:
    """The connection of a client, for one request after another."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._codec = ServerCodec(head_size_max_bytes=LIMITS.head_size_max_bytes)
        self._peer = h11.Connection(h11.CLIENT)
        self._intended: Opening
        self._route: McpRoute | None = None
        self._body = b""
        self._reply: HttpReply
        self._status = 0
        self._is_events = False
        self._fields: dict[bytes, bytes] = {}
        self._document = b""
        self._text = EventText()
        self._has_ended = False

    # --- Requests ---------------------------------------------------------------------------------------------------

    def ask(self, opening: Opening, body: bytes | None, rng: random.Random) -> bytes:
        """Encodes a request."""
        self._intended, self._body, self._route = opening, b"", None
        self._status, self._document, self._is_events, self._has_ended = 0, b"", False, False
        self._text = EventText()
        method, target, headers = _request_of(opening)
        is_chunked = body is not None and rng.random() < 0.2
        if is_chunked:
            headers.append(("transfer-encoding", "chunked"))
        elif body is not None:
            headers.append(("content-length", str(len(body))))
        rng.shuffle(headers)
        written = [self._peer.send(h11.Request(method=method, target=target, headers=headers))]
        for piece in cut(body or b"", rng) if is_chunked else [body or b""]:
            written.append(self._peer.send(h11.Data(data=piece)) if piece else b"")
        written.append(self._peer.send(h11.EndOfMessage()))
        return b"".join(found for found in written if found)

    def receive(self, piece: bytes) -> list[Item]:
        self._codec.receive_data(piece)
        found: list[Item] = []
        while True:
            event = self._codec.next_event()
            if isinstance(event, RequestHead):
                self._route = self._judged(event)
            elif isinstance(event, Data):
                self._body += event.data
            elif event is Signal.END:
                assert self._route is not None
                opening = self._route.opening
                self._reply = reply_to(opening)
                is_posted = self._route.is_posted
                intended = {
                    name: getattr(self._intended, name)
                    for name in ("principal", "grants")
                    if hasattr(self._intended, name)
                }
                whole = msgspec.structs.replace(opening, **intended)
                return [*found, ("open", whole, self._body if is_posted else None)]
            else:
                return found

    def _judged(self, head: RequestHead) -> McpRoute:
        route = judge(Head(head.method, head.target, head.headers, head.version), self._surface)
        if not isinstance(route, McpRoute):
            raise Wrong(f"{self._intended} was taken for {route}")
        routed = msgspec.structs.asdict(route.opening)
        for name, value in msgspec.structs.asdict(self._intended).items():
            if routed[name] != value and name not in ("principal", "grants", "base_url", "endpoint", "mirrored"):
                raise Wrong(f"{self._intended} has arrived as {route.opening}")
        return route

    # --- Responses --------------------------------------------------------------------------------------------------

    def send(self, sends: Sequence[Send], rng: random.Random) -> bytes:
        outs: list[Out] = []
        if self._reply.state is HttpReplyState.STREAMING and rng.random() < 0.1:
            outs += self._reply.keep_alive()
        if len(sends) > 1:
            ids = tuple(send.event_id for send in sends if send.event_id is not None)
            outs += self._reply.receive_events(SendEvents(sends[0].channel, tuple(s.message for s in sends), ids))
        else:
            outs += self._reply.receive_send(sends[0])
        return self._encoded(outs)

    def pass_on(self, order: Pass) -> bytes:
        return self._encoded(self._reply.receive_pass(order))

    def close(self, close: Close) -> bytes:
        return self._encoded(self._reply.receive_close(close))

    def _encoded(self, outs: list[Out]) -> bytes:
        codec, written = self._codec, []
        for out in outs:
            if isinstance(out, ReplyDocument):
                written += codec.encode_document(out.status, out.headers, out.pieces)
            elif isinstance(out, ReplyHead):
                written.append(codec.encode_head(out.status, out.headers))
            elif isinstance(out, ReplyBody):
                written += codec.encode_data(out.data)
            else:
                assert isinstance(out, ReplyEnd)
                written.append(codec.encode_end())
        return b"".join(written)

    def read(self, piece: bytes) -> Iterator[ReplyMessage]:
        """Yields the messages that the client reads in a piece."""
        self._peer.receive_data(piece)
        while True:
            event = self._peer.next_event()
            if isinstance(event, h11.Response):
                self._status, self._fields = event.status_code, dict(event.headers)
                self._is_events = self._fields.get(b"content-type") == b"text/event-stream"
            elif isinstance(event, h11.Data) and self._is_events:
                for fields in self._text.read(bytes(event.data)):
                    yield self._message_of(fields.get("data", ""), fields.get("event", "message"), fields.get("id"))
            elif isinstance(event, h11.Data):
                self._document += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._has_ended = True
                if self._document:
                    yield self._message_of(self._document.decode(), "message", None)
                return
            else:
                return

    def _message_of(self, text: str, event: str, id: str | None) -> ReplyMessage:
        session = self._fields.get(b"mcp-session-id")
        session_id = None if session is None else session.decode()
        return ReplyMessage(text.encode(), self._status, session_id, event, id, is_event=self._is_events)

    @property
    def ended_with(self) -> int:
        """The status of the response that has ended; 0 if none has."""
        return self._status if self._has_ended else 0

    def go_on(self) -> bool:
        """True if the connection can be used again, and then makes it ready."""
        if self._codec.go_on() is None or self._peer.our_state is not h11.DONE:
            return False
        if self._peer.their_state is not h11.DONE:
            return False
        self._peer.start_next_cycle()
        return True


class ResponseWire:
    """A connection to a server, for one request."""

    def __init__(self, target: Post | Listen | Delete, rng: random.Random) -> None:
        self._target, self._rng = target, rng
        self._codec = ClientCodec(head_size_max_bytes=LIMITS.head_size_max_bytes)
        self._reader = ResponseReader(target, LIMITS)
        self._peer = h11.Connection(h11.SERVER)

    def ask(self) -> bytes:
        forms = RequestForms(OWN)
        target, head = self._target, None
        if isinstance(target, Post):
            head = forms.post_head(target)
        if head is not None and isinstance(target, Post):
            written, body = self._codec.encode_post(head, b"/mcp", len(target.message)), target.message
        else:
            method, headers, body = forms.fill(target)
            if method == "POST":
                headers.append((b"content-length", b"%d" % len(body)))
            written = self._codec.encode_request(method, b"/mcp", headers)
        self._codec.note_sent()
        return written + body

    def check_asked(self, pieces: Iterator[bytes]) -> None:
        """Checks that the server reads the request that was ordered."""
        target, body, fields = self._target, b"", {}
        for piece in pieces:
            self._peer.receive_data(piece)
        while not isinstance(event := self._peer.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Request):
                fields = {**dict(event.headers), b"method": event.method}
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                raise Wrong(f"a request of which no more comes: {target}")
        expected = {b"mcp-session-id": target.session, b"mcp-protocol-version": target.revision}
        expected |= dict.fromkeys((b"method",), type(target).__name__.upper().replace("LISTEN", "GET"))
        for name, value in expected.items():
            if fields.get(name) != (None if value is None else value.encode()):
                raise Wrong(f"{target} has left with {fields}")
        if isinstance(target, Post) and body != target.message:
            raise Wrong(f"{target} has left with {body!r}")

    def answer(
        self,
        connected: Connected | None,
        messages: list[tuple[bytes, str | None]],
        *,
        is_whole: bool,
        status: int,
        body: bytes = b"",
    ) -> bytes:
        """Encodes the first part of a response, or all of it with `is_whole`.

        Args:
            messages: messages with the ids of their events.
            body: the body of a refusal.
        """
        headers = [("date", "Thu, 01 Jan 1970 00:00:00 GMT")]
        if connected is not None and connected.session is not None:
            headers.append(("Mcp-Session-Id", connected.session))
        if is_whole and (status or not messages):
            headers.append(("content-length", str(len(body))))
            head = h11.Response(status_code=status or 202, headers=headers)
            return self._written(head, *([h11.Data(data=body)] if body else []), h11.EndOfMessage())
        if is_whole and len(messages) == 1 and messages[0][1] is None and self._rng.random() < 0.5:
            body = messages[0][0]
            headers += [("content-type", "application/json"), ("content-length", str(len(body)))]
            return self._written(
                h11.Response(status_code=200, headers=headers), h11.Data(data=body), h11.EndOfMessage()
            )
        headers.append(("content-type", "text/event-stream"))
        written = self._written(h11.Response(status_code=200, headers=headers))
        written += b"".join(self.say(*one) for one in messages)
        return written + (self.end() if is_whole else b"")

    def accept(self) -> bytes:
        """Encodes a response that accepts a notification, with a body. Returns b"" for another request."""
        if not isinstance(self._target, Post):
            return b""
        status, headers, body = acceptance(self._rng)
        head = h11.Response(status_code=status, headers=headers)
        return self._written(head, h11.Data(data=body), h11.EndOfMessage())

    def say(self, message: bytes, event_id: str | None = None) -> bytes:
        """Encodes an event."""
        end = self._rng.choice((b"\n", b"\n", b"\r\n", b"\r"))
        lines = [b"data: " + line for line in message.split(b"\n")]
        if self._rng.random() < 0.1:
            lines.insert(0, b": well")
        if self._rng.random() < 0.2:
            lines.append(b"event: message")
        if event_id is not None:
            lines.append(b"id: " + event_id.encode())
        return self._written(h11.Data(data=end.join([*lines, b"", b""])))

    def end(self) -> bytes:
        return self._written(h11.EndOfMessage())

    def _written(self, *events: Any) -> bytes:
        return b"".join(self._peer.send(event) or b"" for event in events)

    def receive(self, piece: bytes) -> list[Item]:
        """Decodes a piece for the proxy. b"" is the end of the connection."""
        found: list[Item] = []
        self._codec.receive_data(piece)
        while not self._reader.is_ended:
            try:
                event = self._codec.next_event()
            except h11.RemoteProtocolError as error:
                return found + self._items_of(self._reader.receive_eof(False, str(error)))
            if isinstance(event, ResponseHead):
                found += self._items_of(self._reader.receive_head(event.status, event.headers))
            elif isinstance(event, Data):
                found += self._items_of(self._reader.receive_body(event.data))
            elif event is Signal.END:
                found += self._items_of(self._reader.receive_eof(True))
            elif event in (Signal.NEED_DATA, Signal.CLOSED) and not piece:
                found += self._items_of(self._reader.receive_eof(False, ""))
            elif event is Signal.NEED_DATA:
                break
        return found

    def _items_of(self, facts: list[response.ReplyEvent]) -> list[Item]:
        if len(facts) > 1 and all(isinstance(fact, Arrived) for fact in facts):
            return together([fact.message for fact in facts if isinstance(fact, Arrived)])
        found: list[Item] = []
        for fact in facts:
            if isinstance(fact, Opened):
                found.append(("open", Connected(fact.session), None))
            elif isinstance(fact, response.Primed):
                found.append(("open", Primed(), None))
            elif isinstance(fact, Arrived):
                found.append(("say", fact.message))
            elif isinstance(fact, Ended):
                found.append(("end", fact.cause))
            elif isinstance(fact, Dropped):
                raise Wrong(f"nothing here is so large: {fact}")
        return found


BROKEN: Final = Cause(End.BROKEN, "cut off")


def _request_of(opening: Opening) -> tuple[str, str, list[tuple[str, str]]]:
    """Returns method, target and headers as clients write them."""
    headers = [("Host", "here"), ("User-Agent", "a client")]
    place = quote(opening.server, safe="")
    if isinstance(opening, EventPipeOpening):
        return "GET", f"/sse/{place}", [*headers, ("Accept", "text/event-stream")]
    if isinstance(opening, MessageOpening):
        headers.append(("Content-Type", "application/json; charset=utf-8"))
        return "POST", f"/messages/{place}?sessionId={quote(opening.token, safe='')}", headers
    assert isinstance(opening, PostOpening | GetOpening | DeleteOpening)
    if opening.session is not None:
        headers.append(("Mcp-Session-Id", opening.session))
    if opening.revision is not None:
        headers.append(("MCP-Protocol-Version", opening.revision))
    target = f"/mcp/{place}"
    if isinstance(opening, DeleteOpening):
        return "DELETE", target, headers
    if isinstance(opening, GetOpening):
        if opening.last_event_id is not None:
            headers.append(("Last-Event-ID", opening.last_event_id))
        return "GET", target, [*headers, ("Accept", "text/event-stream")]
    headers += [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")]
    return "POST", target, [*headers, *((name, str(value)) for name, value in opening.mirrored)]
