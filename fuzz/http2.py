"""Any bytes of a server arrive, cut in any way: the HTTP/2 codec reports the same, and at most one failure.

The first byte says what was asked: bit 0 with a body larger than the windows; bit 1 HEAD; bit 2 that another request
follows a complete response; bit 3 that the stream ends behind the bytes. The rest is what the server sends. Accepted
outcomes: any number of heads and data, END, then more of the same for another request, or one failure, or CLOSED.
"""

from __future__ import annotations

from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.wire.http1.events import CLOSED, END, NEED_DATA, Data, InformationalHead, ResponseHead
from isthmus.transports.http2.client import Http2Codec

HOST = (b"host", b"x")
BODY = b"x" * 100_000
HEAD_MAX_BYTES = 1024


def ask(chunks: list[bytes], flags: int) -> list[object]:
    """Returns all that the codec reports."""
    codec = Http2Codec(scheme="http", head_size_max_bytes=HEAD_MAX_BYTES)
    body = BODY if flags & 1 else b""
    events: list[object] = []
    assert codec.begin_request("HEAD" if flags & 2 else "POST", b"/mcp", (HOST,), body)
    codec.next_piece(len(BODY))
    for chunk in chunks:
        codec.receive_data(chunk)
        while True:
            codec.begin_turn()
            try:
                event = codec.next_event()
            except RemoteProtocolError as error:
                return [*events, str(error), codec.is_unprocessed, codec.wants_http1]
            codec.next_piece(len(BODY))
            if isinstance(event, Data):
                assert event.data
                if not events or not isinstance(events[-1], bytearray):
                    events.append(bytearray())
                data = events[-1]
                assert isinstance(data, bytearray)
                data += event.data
            elif isinstance(event, ResponseHead | InformationalHead):
                assert sum(map(len, (part for field in event.headers for part in field))) <= HEAD_MAX_BYTES
                events.append(event)
            elif event is not NEED_DATA:
                events.append(event)
            if event is CLOSED or (event is NEED_DATA and not codec.has_frames):
                break
            if event is END and not (flags & 4 and codec.go_on() and codec.begin_request("GET", b"/", (HOST,), b"")):
                return [*events, codec.has_begun]
    return events


def test_one_input(data: bytes) -> None:
    flags, stream = data[0] if data else 0, data[1:]
    middle = len(stream) // 2
    ends = [b""] if flags & 8 else []
    whole = ask([*filter(None, [stream]), *ends], flags)
    for chunks in ([stream[:middle], stream[middle:]], [stream[i : i + 1] for i in range(len(stream))]):
        assert ask([*filter(None, chunks), *ends], flags) == whole
