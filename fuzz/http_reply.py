"""A server responds with any bytes, cut in any way: the reader reports them in order, once, and within the limit.

The first byte says what was requested (bits 0 and 1: a POST, an event stream, a DELETE) and whether the body is
complete (bit 2); the second sets the limit; then come the status and the headers, a line each, an empty line, and the
body. Accepted outcomes: at most one `Opened`, first; at most one `Primed`, any number of `Arrived` and `Dropped`; one
`Ended`, last.
"""

from __future__ import annotations

from isthmus.core.base.effects import Delete, Listen, Post
from isthmus.core.base.events import End
from isthmus.core.base.limits import Limits
from isthmus.core.wire.http.response import Arrived, Dropped, Ended, Opened, Primed, ReplyEvent, ResponseReader

TARGETS = (Post("s", b"{}"), Listen("s"), Delete("s", session="x"), Post("s", b"[]", session="y"))
OVERHEAD_BYTES = 400
"""The bound on the bytes of an error around the id of the response that it replaces."""


def events(flags: int, limit: int, head: bytes, chunks: list[bytes]) -> list[ReplyEvent]:
    status, *lines = head.split(b"\n")
    digits = status[:3] if status[:3].isdigit() else b"200"
    pairs = (line.partition(b":") for line in lines)
    headers = [(name.strip().lower(), value.strip()) for name, _, value in pairs]
    reader = ResponseReader(TARGETS[flags & 3], Limits(reply_size_max_bytes=limit))
    found = reader.receive_head(max(200, int(digits)), headers)
    for chunk in chunks:
        if not reader.is_ended:
            found += reader.receive_body(chunk)
    if not reader.is_ended:
        found += reader.receive_eof(bool(flags & 4))
    assert reader.is_ended
    return found


def test_one_input(data: bytes) -> None:
    flags, limit, rest = data[0] if data else 0, 16 + (data[1] if len(data) > 1 else 0), data[2:]
    head, _, body = rest.partition(b"\n\n")
    whole = events(flags, limit, head, [body])
    middle = len(body) // 2
    for chunks in ([body[:middle], body[middle:]], [body[i : i + 1] for i in range(len(body))]):
        assert events(flags, limit, head, chunks) == whole
    *before, last = whole
    assert isinstance(last, Ended)
    assert last.cause.end in (End.DONE, End.BROKEN, End.REFUSED)
    assert len(last.cause.body) <= 64 * 1024
    kinds = [type(event) for event in before]
    assert kinds.count(Opened) <= 1 and kinds.count(Primed) <= 1
    assert Opened not in kinds[1:]
    for event in before:
        assert isinstance(event, Opened | Primed | Arrived | Dropped)
        if isinstance(event, Arrived):
            assert len(event.message) <= max(limit, OVERHEAD_BYTES + limit)
    if last.cause.last_event_id:
        last.cause.last_event_id.encode("utf-8")
        assert not set(last.cause.last_event_id) & {"\r", "\n", "\0"}
    assert last.cause.retry_ms is None or last.cause.retry_ms >= 0
