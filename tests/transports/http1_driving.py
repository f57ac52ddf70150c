"""Conversations driven twice: with a codec, and with h11 alone. Events and written bytes must be equal."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol

import h11
from isthmus.core.wire.http1.events import (
    CLOSED,
    END,
    NEED_DATA,
    PAUSED,
    ClientEvent,
    Data,
    InformationalHead,
    RequestHead,
    ResponseHead,
    ServerEvent,
    Signal,
)
from isthmus.transports.http1.client import ClientCodec
from isthmus.transports.http1.h11 import RequestLines
from isthmus.transports.http1.server import ServerCodec

LIMIT = 300
Fields = tuple[tuple[bytes, bytes], ...]
Entry = tuple[object, ...]


class Answer:
    """The response of a test's server to a request: sent at the request's head if `early`, else at its end."""

    def __init__(
        self,
        status: int = 200,
        headers: Fields = (),
        pieces: tuple[bytes, ...] = (),
        *,
        early: bool = False,
        interim: bool = False,
    ) -> None:
        self.status = status
        self.headers = headers
        self.pieces = pieces
        self.early = early
        self.interim = interim

    def __repr__(self) -> str:
        return f"Answer({self.status}, {self.headers}, {self.pieces}, early={self.early}, interim={self.interim})"


class Server(Protocol):
    """The interface of a codec for servers, which `PlainServer` has too."""

    def receive_data(self, data: bytes) -> None: ...
    def next_event(self) -> ServerEvent: ...
    @property
    def trailing_data(self) -> tuple[bytes, bool]: ...
    @property
    def version(self) -> bytes | None: ...
    @property
    def is_awaiting_continue(self) -> bool: ...
    @property
    def is_through(self) -> bool: ...
    def start_next_cycle(self) -> None: ...
    def encode_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes: ...
    def encode_data(self, data: bytes) -> list[bytes]: ...
    def encode_end(self) -> bytes: ...
    def encode_whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes: ...
    def encode_informational(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes: ...


class Client(Protocol):
    """The interface of a codec for clients, which `PlainClient` has too."""

    def encode_request(self, method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes: ...
    def note_sent(self) -> None: ...
    def receive_data(self, data: bytes) -> None: ...
    def next_event(self) -> ClientEvent: ...
    @property
    def trailing_data(self) -> tuple[bytes, bool]: ...
    @property
    def is_through(self) -> bool: ...
    def start_next_cycle(self) -> None: ...


class Plain:
    """An h11 connection with the interface of the codecs."""

    def __init__(self, role: type[h11.CLIENT] | type[h11.SERVER]) -> None:
        self.http = h11.Connection(role, max_incomplete_event_size=LIMIT)
        self.method = b""

    def receive_data(self, data: bytes) -> None:
        self.http.receive_data(data)

    def signal(self, event: object) -> Data | Signal:
        match event:
            case h11.Data():
                return Data(bytes(event.data))
            case h11.EndOfMessage():
                return END
            case h11.ConnectionClosed():
                return CLOSED
        assert event is h11.NEED_DATA or event is h11.PAUSED
        return NEED_DATA if event is h11.NEED_DATA else PAUSED

    @property
    def trailing_data(self) -> tuple[bytes, bool]:
        return self.http.trailing_data

    @property
    def version(self) -> bytes | None:
        return self.http.their_http_version

    @property
    def is_awaiting_continue(self) -> bool:
        return self.http.they_are_waiting_for_100_continue

    @property
    def is_through(self) -> bool:
        return self.http.our_state is h11.DONE and self.http.their_state is h11.DONE

    def start_next_cycle(self) -> None:
        self.http.start_next_cycle()
        self.method = b""


class PlainServer(Plain):
    """An h11 connection that refuses ambiguous lines, as both codecs do."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER)
        self.http._receive_buffer = RequestLines()
        self.has_body = True

    def next_event(self) -> ServerEvent:
        event = self.http.next_event()
        if not isinstance(event, h11.Request):
            return self.signal(event)
        self.method = event.method
        sizes = [int(value) for name, value in event.headers if name == b"content-length"]
        is_chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
        size = None if is_chunked else sum(sizes)
        version = event.http_version.decode()
        return RequestHead(event.method.decode(), event.target.decode(), tuple(event.headers), version, size)

    def encode_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        self.has_body = self.method != b"HEAD" and status not in (204, 304)
        return self.http.send(h11.Response(status_code=status, headers=list(headers)))

    def encode_data(self, data: bytes) -> list[bytes]:
        return [self.http.send(h11.Data(data=data))] if data and self.has_body else []

    def encode_end(self) -> bytes:
        return self.http.send(h11.EndOfMessage())

    def encode_whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
        return b"".join((self.encode_head(status, headers), *self.encode_data(body), self.encode_end()))

    def encode_informational(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        return self.http.send(h11.InformationalResponse(status_code=status, headers=list(headers)))


class PlainClient(Plain):
    def __init__(self) -> None:
        super().__init__(h11.CLIENT)
        self.size = 0

    def encode_request(self, method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        request = h11.Request(method=method, target=target, headers=list(headers))
        self.size = sum(int(value) for name, value in request.headers if name == b"content-length")
        return self.http.send(request)

    def note_sent(self) -> None:
        if self.size:
            self.http.send(h11.Data(data=bytes(self.size)))
        self.http.send(h11.EndOfMessage())

    def next_event(self) -> ClientEvent:
        event = self.http.next_event()
        if isinstance(event, h11.Response):
            return ResponseHead(event.status_code, tuple(event.headers), event.http_version.decode())
        if isinstance(event, h11.InformationalResponse):
            return InformationalHead(event.status_code, tuple(event.headers))
        return self.signal(event)


def servers() -> tuple[Server, Server]:
    """A codec, and the h11 connection that it must equal."""
    return ServerCodec(head_size_max_bytes=LIMIT), PlainServer()


def clients() -> tuple[Client, Client]:
    return ClientCodec(head_size_max_bytes=LIMIT), PlainClient()


def chunks(stream: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The pieces of `stream`, and its end."""
    edges = [0, *sorted({min(cut, len(stream)) for cut in cuts}), len(stream)]
    return [*[stream[a:b] for a, b in itertools.pairwise(edges) if a < b], b""]


def serve(server: Server, arriving: Sequence[bytes], answers: Sequence[Answer]) -> list[Entry]:
    """All events and responses of a server for these bytes, when it answers one request after the other."""
    story: list[Entry] = []
    due = itertools.cycle(answers)
    answer = next(due)
    for chunk in arriving:
        server.receive_data(chunk)
        while True:
            try:
                event = server.next_event()
            except h11.RemoteProtocolError as error:
                story.append(("refused", error.error_status_hint, server.is_through))
                story.append(("last words", *reply(server, Answer(400, ((b"content-length", b"2"),), (b"no",)))))
                return story
            note(story, event)
            if event is NEED_DATA or event is PAUSED or event is CLOSED:
                state = (server.version, server.is_awaiting_continue, server.is_through)
                story.append(("waits", event, *state))
                break
            if isinstance(event, RequestHead):
                answer = next(due)
                story.append(("awaits", server.is_awaiting_continue, server.version))
            if (isinstance(event, RequestHead) and answer.early) or (event is END and not answer.early):
                story.append(("answers", *reply(server, answer), server.is_awaiting_continue))
                if "refused" in story[-1]:
                    return story
            if event is END:
                story.append(("through", server.is_through, server.trailing_data))
                if not server.is_through:
                    continue
                server.start_next_cycle()
    return story


def reply(server: Server, answer: Answer) -> list[object]:
    """The written bytes, in any order of their headers; or the refusal."""
    written: list[object] = []
    try:
        if answer.interim:
            written.append(unordered(server.encode_informational(100, ())))
        if len(answer.pieces) == 1:
            written.append(unordered(server.encode_whole(answer.status, answer.headers, answer.pieces[0])))
        else:
            written.append(unordered(server.encode_head(answer.status, answer.headers)))
            written.append(b"".join(part for piece in answer.pieces for part in server.encode_data(piece)))
            written.append(server.encode_end())
    except h11.LocalProtocolError:
        written.append("refused")
    return written


def unordered(written: bytes) -> list[bytes]:
    """A message's lines: the first without its phrase, the others with their names in lower case, sorted; the body."""
    head, _, body = written.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    named = [line.partition(b":") for line in lines]
    return [first[:12], *sorted(name.lower() + colon + value for name, colon, value in named), body]


def request_all(
    client: Client, arriving: Sequence[bytes], requests: Sequence[tuple[str, bytes, Fields, bool]]
) -> list[Entry]:
    """All events of a client for these bytes as the responses to its requests. A request is a method, a target,
    headers, and whether the body has left by the time of the first response."""
    story: list[Entry] = []
    due = itertools.cycle(requests)
    is_sent = False

    def request() -> bool:
        nonlocal is_sent
        method, target, headers, is_sent = next(due)
        try:
            story.append(("asks", *unordered(client.encode_request(method, target, headers))))
            if is_sent:
                client.note_sent()
        except h11.LocalProtocolError:
            story.append(("asks", "refused"))
            return False
        return True

    if not request():
        return story
    for chunk in arriving:
        client.receive_data(chunk)
        while True:
            try:
                event = client.next_event()
            except h11.RemoteProtocolError:
                story.append(("refused", client.is_through))
                return story
            note(story, event)
            if event is NEED_DATA or event is PAUSED or event is CLOSED:
                story.append(("waits", event, client.is_through))
                break
            if event is END:
                story.append(("through", client.is_through, client.trailing_data))
                if not is_sent:
                    is_sent = True
                    client.note_sent()
                    story.append(("sent", client.is_through))
                if not client.is_through:
                    continue
                client.start_next_cycle()
                if not request():
                    return story
    return story


def note(story: list[Entry], event: ServerEvent | ClientEvent) -> None:
    """Adds the event to the story, and data to the data before it."""
    if isinstance(event, Data):
        assert event.data
        last = story[-1] if story else ()
        if last[:1] == ("data",):
            assert isinstance(last[1], bytes)
            story[-1] = ("data", last[1] + event.data)
        else:
            story.append(("data", event.data))
    else:
        story.append((type(event).__name__, event))
