"""Any bytes arrive, cut in any way: the events are the same, within the limit, and can be sent on.

The first byte says what was negotiated: bit 0 compression, bit 1 that the peer keeps its window, bit 2 that binary
messages are taken as text, bit 3 that we are the client; the second sets the limit. The rest is the stream. Accepted
outcomes: any number of `Text` and `Ping`, then at most one `Failed`, then at most one `Closed`. The cut makes a
difference in one case only: a message that cannot be inflated and also exceeds the limit may fail for either reason.
"""

from __future__ import annotations

from isthmus.core.wire.websocket import Deflate, may_close_with
from isthmus.transports.websocket.frames import Closed, Failed, FrameEvent, Frames, Part, Ping, Text


def events(frames: Frames, chunks: list[bytes]) -> list[FrameEvent]:
    arrived = []
    for chunk in chunks:
        frames.receive_bytes(chunk)
        while (event := frames.next_event()) is not None:
            if not isinstance(event, Part):
                arrived.append(event)
    return arrived


def test_one_input(data: bytes) -> None:
    flags, limit, stream = data[0] if data else 0, 1 + (data[1] if len(data) > 1 else 0), data[2:]
    deflate = Deflate(peer_keeps_window=bool(flags & 2)) if flags & 1 else None

    def peer(*, is_other_side: bool = False) -> Frames:
        is_client = bool(flags & 8) is not is_other_side
        takes_binary = bool(flags & 4)
        return Frames(is_client=is_client, message_size_max_bytes=limit, deflate=deflate, takes_binary=takes_binary)

    def seen(chunks: list[bytes]) -> list[FrameEvent]:
        found = events(peer(), chunks)
        if deflate is None:
            return found
        return [Failed(0, "") if isinstance(event, Failed) and event.code in (1007, 1009) else event for event in found]

    whole = events(peer(), [stream])
    middle = len(stream) // 2
    pieces = [stream[i : i + 1] for i in range(len(stream))]
    messages = [event for event in seen([stream]) if not isinstance(event, Closed)]
    for cut in ([stream[:middle], stream[middle:]], pieces):
        assert [event for event in seen(cut) if not isinstance(event, Closed)] == messages
        assert deflate is not None or events(peer(), cut) == whole
    state = 0
    for event in whole:
        match event:
            case Text(text):
                assert state == 0 and len(text) <= limit
                sent = peer(is_other_side=True).encode_text(text.decode(), is_last=True)
                assert events(peer(), [sent]) == [event]
            case Ping(payload):
                assert state == 0 and len(payload) <= 125
            case Failed(code, reason, head):
                assert state == 0 and may_close_with(code) and reason.startswith("got ") and len(head) <= limit
                assert bool(head) == (code == 1009)
                state = 1
            case Closed(code, reason):
                assert state < 2 and (code is None or may_close_with(code)) and len(reason.encode()) <= 123
                state = 2
            case Part():
                raise AssertionError("filtered out above")
