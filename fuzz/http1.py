"""Any bytes arrive, cut in any way: the HTTP/1.1 codecs report and write the same as h11.

The first byte says whose bytes they are: bit 0 a server's, else a client's; bit 1 that our requests are HEAD, or our
responses chunked; bit 2 that our requests close the connection, or that requests are answered once their heads are
read; bit 3 that the bodies of our requests are sent late. The second byte sets the limit of heads. The rest is the
stream. Accepted outcomes: any number of heads, data and signals, then at most one refusal, with h11's status hint.
"""

from __future__ import annotations

import h11
from isthmus.core.wire.http1.events import CLOSED, END, NEED_DATA, PAUSED, ClientEvent, Data, RequestHead, ServerEvent
from isthmus.transports.http1.client import ClientCodec
from isthmus.transports.http1.server import ServerCodec

REQUEST = ((b"host", b"x"), (b"content-length", b"2"))
CLOSING = (*REQUEST, (b"connection", b"close"))
ANSWER = ((b"content-type", b"application/json"), (b"content-length", b"2"))


def serve(codec: ServerCodec, chunks: list[bytes], flags: int) -> list[object]:
    """Returns all that a server codec reports and writes."""
    events: list[object] = []
    for chunk in chunks:
        codec.receive_data(chunk)
        while True:
            try:
                event = codec.next_event()
            except h11.RemoteProtocolError as error:
                return [*events, error.error_status_hint, codec.is_through, *error_response(codec)]
            if add_event(events, event):
                events += [codec.version, codec.is_awaiting_continue]
            if event in (NEED_DATA, PAUSED, CLOSED):
                break
            if isinstance(event, RequestHead) if flags & 4 else event is END:
                if flags & 2:
                    head = lines(codec.encode_head(200, ()))
                    body = b"".join((*codec.encode_data(b"{}"), codec.encode_end()))
                    events += [*head, body]
                else:
                    events += lines(codec.encode_whole(202, ANSWER, b"{}"))
            if event is END and codec.is_through:
                codec.start_next_cycle()
    return [*events, codec.is_through, codec.trailing_data]


def error_response(codec: ServerCodec) -> list[bytes]:
    """Returns the response to bytes that cannot be read, unless one was given before."""
    try:
        return lines(codec.encode_whole(400, ANSWER, b"{}"))
    except h11.LocalProtocolError:
        return []


def ask(codec: ClientCodec, chunks: list[bytes], flags: int) -> list[object]:
    """Returns all that a client codec reports and writes."""
    events: list[object] = []

    def request() -> None:
        head = codec.encode_request("HEAD" if flags & 2 else "POST", b"/mcp", CLOSING if flags & 4 else REQUEST)
        events.extend(lines(head))
        if not flags & 8:
            codec.note_sent()

    request()
    for chunk in chunks:
        codec.receive_data(chunk)
        while True:
            try:
                event = codec.next_event()
            except h11.RemoteProtocolError as error:
                return [*events, error.error_status_hint, codec.is_through]
            add_event(events, event)
            if event in (NEED_DATA, PAUSED, CLOSED):
                break
            if event is END:
                if flags & 8:
                    codec.note_sent()
                if codec.is_through:
                    codec.start_next_cycle()
                    request()
    return [*events, codec.is_through, codec.trailing_data]


def add_event(events: list[object], event: ServerEvent | ClientEvent) -> bool:
    """Adds an event, unless it is NEED_DATA; data is added to the data before it.

    Returns:
        True if an event other than data was added.
    """
    if isinstance(event, Data):
        assert event.data
        is_new = not events or not isinstance(events[-1], bytearray)
        if is_new:
            events.append(bytearray())
        data = events[-1]
        assert isinstance(data, bytearray)
        data += event.data
        return False
    if event is not NEED_DATA:
        events.append(event)
    return event is not NEED_DATA


def lines(written: bytes) -> list[bytes]:
    """Returns the first line of a message, its headers sorted and in lower case, and the body."""
    head, _, body = written.partition(b"\r\n\r\n")
    first, *others = head.split(b"\r\n")
    return [first, *sorted(line.lower() for line in others), body]


def test_one_input(data: bytes) -> None:
    flags, limit, stream = data[0] if data else 0, 64 + (data[1] if len(data) > 1 else 0), data[2:]
    middle = len(stream) // 2
    for chunks in (
        [stream],
        [stream[:middle], stream[middle:]],
        [stream[i : i + 1] for i in range(len(stream))],
    ):
        arriving = [*filter(None, chunks), b""]
        stories = [
            ask(ClientCodec(head_size_max_bytes=limit, only_h11=only_h11), arriving, flags)
            if flags & 1
            else serve(ServerCodec(head_size_max_bytes=limit, only_h11=only_h11), arriving, flags)
            for only_h11 in (False, True)
        ]
        assert stories[0] == stories[1]
