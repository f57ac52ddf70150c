"""A server streams any bytes, cut in any way: messages go to its own origin only, and the session ends once.

The first byte says how many bytes of the rest are the data of the endpoint event (none: there is no such event); the
bytes after them are the stream after that event. Accepted outcomes: `Opened`, then `Arrived` and `Dropped`, then one
`Ended`; or `Ended` alone.
"""

from __future__ import annotations

from isthmus.core.base.limits import Limits
from isthmus.core.wire.http.legacy_sse_client import SseSession
from isthmus.core.wire.http.response import Arrived, Dropped, Ended, Opened, ReplyEvent
from isthmus.core.wire.http.url import parse_url

URL = "http://host:81/a/sse"
LIMITS = Limits(reply_size_max_bytes=300)


def events(pieces: list[bytes]) -> tuple[list[ReplyEvent], bytes | None]:
    session = SseSession(URL, LIMITS)
    reported = session.receive_head(200, [(b"content-type", b"text/event-stream")])
    for piece in pieces:
        if not session.is_ended:
            reported += session.receive_body(piece)
    if not session.is_ended:
        reported += session.receive_eof(is_complete=True)
    return reported, session.endpoint


def test_one_input(data: bytes) -> None:
    size = data[0] if data else 0
    reference, stream = data[1 : 1 + size], data[1 + size :]
    if reference:
        stream = b"event: endpoint\ndata: " + reference + b"\n\n" + stream
    reported, endpoint = whole = events([stream])
    middle = len(stream) // 2
    assert events([stream[:middle], stream[middle:]]) == whole
    assert events([stream[i : i + 1] for i in range(len(stream))]) == whole
    *before, last = reported
    assert isinstance(last, Ended)
    assert (endpoint is not None) == bool(before)
    if endpoint is not None:
        assert before[0] == Opened()
        assert all(isinstance(event, Arrived | Dropped) and event.event == "message" for event in before[1:])
        assert parse_url(URL.removesuffix("/a/sse") + endpoint.decode()).target == endpoint
