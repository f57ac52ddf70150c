"""Tests of the frame parser: frames of any origin and division become messages, and a violation or the limit ends
it."""

from __future__ import annotations

import itertools
import tracemalloc
import zlib
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.wire.websocket import Deflate
from isthmus.transports.websocket.frames import (
    DEFLATE_MIN_BYTES,
    Closed,
    Failed,
    FrameEvent,
    Frames,
    Part,
    Ping,
    Text,
)
from socket_fakes import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, closing, frame
from wsproto.extensions import Extension, PerMessageDeflate
from wsproto.frame_protocol import FrameProtocol, Opcode

LIMIT = 1000
KEEPING = Deflate(peer_keeps_window=True)


def server(limit: int = LIMIT, deflate: Deflate | None = None, *, takes_binary: bool = False) -> Frames:
    return Frames(is_client=False, message_size_max_bytes=limit, deflate=deflate, takes_binary=takes_binary)


def drained(frames: Frames) -> Iterator[FrameEvent]:
    while (event := frames.next_event()) is not None:
        if not isinstance(event, Part):
            yield event


def events(chunks: Sequence[bytes], frames: Frames | None = None) -> list[FrameEvent]:
    frames = frames or server()
    found = []
    for chunk in chunks:
        frames.receive_bytes(chunk)
        found += drained(frames)
    return found


def deflated(data: bytes) -> bytes:
    maker = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (maker.compress(data) + maker.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\0\0\xff\xff")


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[FrameEvent]]:
    """Messages in fragments, with pings between them, compressed or not; and the events that they make."""
    data, expected = b"", list[FrameEvent]()
    for text in draw(st.lists(st.text(max_size=300), max_size=5)):
        message = text.encode()
        is_compressed = draw(st.booleans())
        payload = deflated(message) if is_compressed else message
        cuts = sorted(draw(st.lists(st.integers(0, len(payload)), max_size=3)))
        pieces = [payload[start:end] for start, end in zip([0, *cuts], [*cuts, len(payload)], strict=True)]
        for at, piece in enumerate(pieces):
            if draw(st.booleans()):
                ping = draw(st.binary(max_size=5))
                data += frame(PING, ping)
                expected.append(Ping(ping))
            opcode = TEXT if at == 0 else CONTINUATION
            data += frame(opcode, piece, is_last=at == len(pieces) - 1, is_compressed=is_compressed and at == 0)
        expected.append(Text(message) if len(message) <= LIMIT else Failed(1009, ""))
        if len(message) > LIMIT:
            return data, expected
    data += closing(1001, "bye")
    return data, [*expected, Closed(1001, "bye")]


@given(stream=streams(), cuts=st.lists(st.integers(0, 4000), max_size=20))
def test_cutting_never_shows(stream: tuple[bytes, list[FrameEvent]], cuts: list[int]) -> None:
    """The events depend on the bytes, not on how they are divided."""
    data, expected = stream
    places = sorted({0, *(min(cut, len(data)) for cut in cuts), len(data)})
    chunks = [data[start:end] for start, end in itertools.pairwise(places)]
    for how in (chunks, [data], [data[i : i + 1] for i in range(len(data))]):
        seen = events(how, server(deflate=Deflate()))
        assert [Failed(1009, "") if isinstance(event, Failed) else event for event in seen] == expected


@given(messages=st.lists(st.text(max_size=3000), max_size=4), agreed=st.sampled_from([None, Deflate(), Deflate(9)]))
def test_what_one_side_writes_the_other_reads(messages: list[str], agreed: Deflate | None) -> None:
    client = Frames(is_client=True, message_size_max_bytes=1 << 20, deflate=agreed)
    for writer, reader in ((client, server(1 << 20, agreed)), (server(1 << 20, agreed), client)):
        sent = b"".join(writer.encode_text(message, is_last=True) for message in messages)
        sent += writer.encode_ping() + writer.encode_pong(b"x") + writer.encode_close(1000, "done")
        assert events([sent], reader) == [*(Text(m.encode()) for m in messages), Ping(b""), Closed(1000, "done")]


@given(
    messages=st.lists(st.sampled_from(["a", "b" * 2000, "é" * 700, "[1,2,3]" * 1000]), max_size=6),
    keeps=st.booleans(),
    split=st.booleans(),
)
def test_compression_agrees_with_wsproto(messages: list[str], keeps: bool, split: bool) -> None:
    """wsproto's own extension reads what ours compresses, and ours what that does, with windows kept or not."""
    extension = PerMessageDeflate()
    extension.finalize("permessage-deflate" + ("" if keeps else "; client_no_context_takeover"))
    extensions: list[Extension] = [extension]
    theirs = FrameProtocol(True, extensions)
    ours = server(1 << 20, Deflate(peer_keeps_window=keeps))
    for message in messages:
        half = len(message) // 2 if split else 0
        sent = bytes(theirs.send_data(message[:half], fin=False)) if split else b""
        sent += theirs.send_data(message[half:], fin=True)
        assert events([sent], ours) == [Text(message.encode())]
        back = ours.encode_text(message[:half], is_last=False) if split else b""
        theirs.receive_bytes(back + ours.encode_text(message[half:], is_last=True))
        assert "".join(str(part.payload) for part in theirs.received_frames()) == message


def test_a_peer_that_agreed_to_keep_no_window_keeps_none() -> None:
    maker = zlib.compressobj(9, zlib.DEFLATED, -15)
    sent = b""
    for _ in range(2):
        payload = maker.compress(b"{}" * 100) + maker.flush(zlib.Z_SYNC_FLUSH)
        sent += frame(TEXT, payload.removesuffix(b"\0\0\xff\xff"), is_compressed=True)
    assert events([sent], server(deflate=KEEPING)) == [Text(b"{}" * 100)] * 2
    first, second = events([sent], server(deflate=Deflate()))
    assert first == Text(b"{}" * 100) and isinstance(second, Failed) and second.code == 1007


def test_small_messages_are_not_compressed_and_large_ones_are() -> None:
    for size, is_compressed in ((DEFLATE_MIN_BYTES - 1, False), (DEFLATE_MIN_BYTES, True)):
        sent = server(deflate=Deflate()).encode_text("x" * size, is_last=True)
        assert (sent[0] == 0xC1) == is_compressed and (len(sent) < 100) == is_compressed
    assert server().encode_text("x" * 5000, is_last=True)[0] == 0x81, "compression was not negotiated"


@pytest.mark.parametrize("agreed", [None, Deflate()])
@pytest.mark.parametrize("size", [0, 1, 125, 126, LIMIT, LIMIT + 1, 100_000])
@pytest.mark.parametrize("parts", [1, 3])
def test_the_limit_is_the_size_of_the_whole_message(agreed: Deflate | None, size: int, parts: int) -> None:
    """The limit applies to the sum of all fragments. Once it is exceeded, only the peer's close is read."""
    message = b'{"jsonrpc":"2.0","id":1,"method":"x"' + b" " * size
    message = message[:size]
    payload = message if agreed is None else deflated(message)
    step = max(1, -(-len(payload) // parts))
    pieces = [payload[start : start + step] for start in range(0, len(payload), step)] or [b""]
    sent = b"".join(
        frame(
            TEXT if at == 0 else CONTINUATION,
            piece,
            is_last=at == len(pieces) - 1,
            is_compressed=agreed is not None and at == 0,
        )
        for at, piece in enumerate(pieces)
    )
    seen = events([sent + frame(TEXT, b"ignored") + closing(1000)], server(deflate=agreed))
    if size <= LIMIT:
        assert seen == [Text(message), Text(b"ignored"), Closed(1000, "")]
    else:
        assert seen == [
            Failed(1009, f"got a message over the limit of {LIMIT} bytes", message[:LIMIT]),
            Closed(1000, ""),
        ]


@pytest.mark.parametrize("cut", [1, 10_000, 1 << 30])
def test_a_bomb_does_not_go_off(cut: int) -> None:
    """A few bytes that decompress to ten thousand times the limit never hold more than about the limit."""
    limit = 100_000
    bomb = frame(TEXT, deflated(b" " * 200 * limit), is_compressed=True)
    assert len(bomb) < limit
    frames = server(limit, Deflate())
    tracemalloc.start()
    try:
        seen = events([bomb[start : start + cut] for start in range(0, len(bomb), cut)], frames)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    (failed,) = seen
    assert isinstance(failed, Failed) and (failed.code, failed.head) == (1009, b" " * 4096)
    assert peak < 10 * limit
    assert events([closing(1000)], frames) == [Closed(1000, "")]


def test_what_follows_the_end_of_a_compressed_stream_is_not_kept() -> None:
    final = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = final.compress(b"{}") + final.flush(zlib.Z_FINISH)
    for payload in (data, data + b"x" * 1000, b"\xff" * 20):
        (failed,) = events([frame(TEXT, payload, is_compressed=True)], server(deflate=KEEPING))
        assert isinstance(failed, Failed) and failed.code == 1007 and "inflated" in failed.reason


@pytest.mark.parametrize("data", [b"\xff", "é".encode()[:1], b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"{}\x80"])
def test_text_is_utf8(data: bytes) -> None:
    assert events([frame(TEXT, data)]) == [Failed(1007, "got text that is not UTF-8, expected UTF-8")]
    seen = events([frame(TEXT, "é".encode()[:1], is_last=False) + frame(CONTINUATION, "é".encode()[1:])])
    assert seen == [Text("é".encode())], "a character may be cut by a frame"


def test_binary_is_text_for_those_who_take_it() -> None:
    sent = frame(BINARY, "é".encode())
    assert events([sent]) == [Failed(1003, "got a binary message, expected text")]
    assert events([sent], server(takes_binary=True)) == [Text("é".encode())]
    (failed,) = events([frame(BINARY, b"\xff")], server(takes_binary=True))
    assert isinstance(failed, Failed) and failed.code == 1003


@pytest.mark.parametrize(
    "data, code",
    [
        (frame(TEXT, b"{}", is_masked=False), 1002),
        (frame(3, b""), 1002),
        (frame(CONTINUATION, b""), 1002),
        (frame(TEXT, b"a", is_last=False) + frame(TEXT, b"b"), 1002),
        (frame(PING, b"x" * 126), 1002),
        (frame(PING, b"", is_last=False), 1002),
        (frame(TEXT, b"x", is_compressed=True), 1002),
        (frame(CLOSE, b"x"), 1002),
        (closing(1005), 1002),
        (closing(1006), 1002),
        (frame(CLOSE, b"\x03\xe8\xff"), 1007),
        (b"\x81\xff" + b"\xff" * 12, 1002),
    ],
    ids=range(12),  # masks are different each time
)
def test_frames_that_break_the_rules_end_it(data: bytes, code: int) -> None:
    for chunks in ([data + closing(1000)], [data[i : i + 1] for i in range(len(data))]):
        (failed,) = events(chunks)
        assert isinstance(failed, Failed) and failed.code == code and failed.reason.startswith("got ")


@pytest.mark.parametrize("opcode", [CONTINUATION, PING, CLOSE])
def test_only_a_message_s_first_frame_says_that_it_is_compressed(opcode: int) -> None:
    begun = frame(TEXT, deflated(b"{}"), is_last=False, is_compressed=True)
    (failed,) = events([begun + frame(opcode, b"", is_compressed=True)], server(deflate=Deflate()))
    assert isinstance(failed, Failed) and failed.code == 1002


def test_pongs_say_nothing_and_nothing_follows_a_close() -> None:
    assert events([frame(PONG, b"x") + frame(CLOSE) + frame(TEXT, b"{}"), b"x" * 100]) == [Closed(None, "")]


def test_every_frame_is_an_event() -> None:
    """The reader of events can yield to other tasks between two frames."""
    frames = server()
    frames.receive_bytes(frame(PONG) * 50 + frame(TEXT, is_last=False) + frame(CONTINUATION, is_last=False) * 50)
    count = 0
    while frames.next_event() is not None:
        count += 1
    assert count == 101


def test_closing_without_a_code() -> None:
    assert server().encode_close(None, "") == b"\x88\x00"
    theirs = FrameProtocol(True, [])
    theirs.receive_bytes(server().encode_close(1008, "policy"))
    (seen,) = theirs.received_frames()
    assert (seen.opcode, seen.payload) == (Opcode.CLOSE, (1008, "policy"))
