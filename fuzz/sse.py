"""Any bytes arrive, cut in any way: the events are the same, within the limit, and can be sent on.

The first byte sets the limit, the rest is the stream. Accepted outcomes: `Event`, `Identified`, `Retry`, `Oversize`.
"""

from __future__ import annotations

from isthmus.core.wire.sse import (
    COMMENT,
    RETRY_MAX_MS,
    Event,
    EventReader,
    Identified,
    Oversize,
    Retry,
    SseEvent,
    encode_event,
)


def events(chunks: list[bytes], limit: int) -> list[SseEvent]:
    reader = EventReader(event_size_max_bytes=limit)
    arrived: list[SseEvent] = []
    for chunk in chunks:
        arrived += reader.receive_bytes(chunk)
    return [*arrived, *reader.receive_eof()]


def plain_first(chunks: list[bytes], limit: int) -> list[SseEvent]:
    """Returns the events, read by the fast path for plain events where it applies."""
    reader = EventReader(event_size_max_bytes=limit)
    arrived: list[SseEvent] = []
    for chunk in chunks:
        messages, rest = reader.take_plain(chunk)
        arrived += [Event("message", message, reader.last_event_id) for message in messages]
        arrived += reader.receive_bytes(rest)
    return [*arrived, *reader.receive_eof()]


def test_one_input(data: bytes) -> None:
    limit, stream = 1 + (data[0] if data else 0), data[1:]
    whole = events([stream], limit)
    middle = len(stream) // 2
    assert events([stream[:middle], stream[middle:]], limit) == whole
    assert events([stream[i : i + 1] for i in range(len(stream))], limit) == whole
    assert plain_first([stream], limit) == plain_first([stream[:middle], stream[middle:]], limit) == whole
    for event in whole:
        match event:
            case Event(type, text, id):
                assert type
                assert 0 < len(text) <= limit
                # A NUL is allowed in a name that is read, not in one that we write.
                if "\0" not in type:
                    sent = COMMENT + encode_event(text, event=type, id=id)
                    assert events([sent], len(sent)) == [Event(type, text.replace(b"\n", b" "), id)]
            case Identified(id):
                assert events([encode_event(b"", id=id)], limit + 100 + 3 * len(id)) == [event]
            case Retry(ms):
                assert 0 <= ms <= RETRY_MAX_MS
            case Oversize(size_bytes, _, type, head, tail):
                assert size_bytes > limit
                assert type
                assert len(head) <= limit
                assert bool(head) == bool(tail)
