"""Tests of the client's codec of HTTP/2, with h2 as the server."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import pytest
from each_row import each_row
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from http2_server import EVENTS, JSON, Http2Server, frame, goaway, reset
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    ExtensionFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.wire.http1.events import CLOSED, END, NEED_DATA, ClientEvent, Data, InformationalHead, ResponseHead
from isthmus.transports.http2.client import (
    ANSWERS_MAX_BYTES,
    FRAME_SIZE_MAX_BYTES,
    IDLE_FRAMES_MAX,
    TURN_FRAMES,
    WINDOW_BYTES,
    Http2Codec,
)

HOST = (b"host", b"a.example:81")
HEAD_MAX_BYTES = 4096
SETTINGS = frame(SettingsFrame(0, {}))
ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{}}'


def new_codec(scheme: str = "https") -> Http2Codec:
    return Http2Codec(scheme=scheme, head_size_max_bytes=HEAD_MAX_BYTES)


def ask(codec: Http2Codec, body: bytes = b"{}", method: str = "POST", *headers: tuple[bytes, bytes]) -> None:
    assert codec.begin_request(method, b"/mcp?a=b", (HOST, *headers), body)


def carry(codec: Http2Codec, server: Http2Server) -> None:
    """Hands over what both have to send, until neither has more."""
    while True:
        piece, reply = codec.next_piece(1 << 30), server.output()
        if piece is not None:
            server.receive(piece)
        if reply:
            codec.receive_data(reply)
        if piece is None and not reply:
            return


def take(codec: Http2Codec) -> list[ClientEvent | str]:
    """Returns all events there are, pieces of the body joined, and a failure as its text."""
    out: list[ClientEvent | str] = []
    while True:
        codec.begin_turn()
        try:
            event = codec.next_event()
        except RemoteProtocolError as error:
            return [*out, str(error)]
        if event is NEED_DATA:
            if not codec.has_frames:
                return out
            continue
        if isinstance(event, Data) and out and isinstance(out[-1], Data):
            out[-1] = Data(out[-1].data + event.data)
        else:
            out.append(event)
        if event is CLOSED or event is END:
            return out


def asked(body: bytes = b"{}", server: Http2Server | None = None) -> tuple[Http2Codec, Http2Server]:
    """A codec whose request has reached the server."""
    codec, server = new_codec(), server or Http2Server()
    ask(codec, body)
    carry(codec, server)
    assert take(codec) == []
    carry(codec, server)
    return codec, server


# --- Requests and responses -----------------------------------------------------------------------------------------


def test_requests_follow_one_another_on_a_connection() -> None:
    codec, server = new_codec(), Http2Server()
    for number in range(3):
        ask(codec, b"x" * number * 20_000, "POST" if number else "GET", (b"cookie", b"a=b"), (b"accept", b"text/plain"))
        carry(codec, server)
        stream = 1 + 2 * number
        request = server.request(stream)
        assert request.is_whole and codec.is_sent and request.body == b"x" * number * 20_000
        assert request.headers == {
            b":method": b"POST" if number else b"GET",
            b":scheme": b"https",
            b":authority": b"a.example:81",
            b":path": b"/mcp?a=b",
            b"cookie": b"a=b",
            b"accept": b"text/plain",
        }
        server.reply(stream, ANSWER)
        carry(codec, server)
        assert take(codec) == [ResponseHead(200, JSON, "2"), Data(ANSWER), END]
        assert codec.go_on()
        assert take(codec) == []


def test_headers_of_the_connection_are_not_sent() -> None:
    codec, server = new_codec("http"), Http2Server()
    dropped = (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"te")
    ask(codec, b"{}", "POST", *((name, b"x") for name in dropped), (b"content-length", b"2"))
    carry(codec, server)
    assert set(server.requests[0].headers) == {b":method", b":scheme", b":authority", b":path", b"content-length"}
    assert server.requests[0].headers[b":scheme"] == b"http"


@pytest.mark.parametrize(
    ("method", "status", "length", "is_bodiless"),
    [
        ("HEAD", b"200", b"12", True),
        ("GET", b"204", b"", True),
        ("GET", b"304", b"12", True),
        ("GET", b"200", b"0", False),
    ],
)
def test_responses_without_a_body(method: str, status: bytes, length: bytes, is_bodiless: bool) -> None:
    codec, server = new_codec(), Http2Server()
    ask(codec, b"", method)
    carry(codec, server)
    headers = [(b"content-length", length)] if length else []
    server.http.send_headers(1, [(b":status", status), *headers], end_stream=is_bodiless)
    if not is_bodiless:
        server.send(1, b"", is_last=True)
    carry(codec, server)
    assert take(codec) == [ResponseHead(int(status), tuple(headers), "2"), END]
    assert codec.go_on()


def test_interim_responses_and_trailers() -> None:
    codec, server = asked()
    server.http.send_headers(1, [(b":status", b"103"), (b"link", b"</a>")])
    server.begin(1, EVENTS)
    server.send(1, b"data: 1\n\n")
    server.http.send_headers(1, [(b"x-sum", b"1")], end_stream=True)
    carry(codec, server)
    interim = InformationalHead(103, ((b"link", b"</a>"),))
    assert take(codec) == [interim, ResponseHead(200, EVENTS, "2"), Data(b"data: 1\n\n"), END]


def long_reply() -> bytes:
    """A server's bytes of all that one may be made of: continued heads, padding, PING, SETTINGS, trailers."""
    _, server = asked()
    server.http.ping(b"12345678")
    server.http.send_headers(1, [(b":status", b"100")])
    head = server.http.encoder.encode([(b":status", b"200"), (b"x", b"y" * 300), *EVENTS])
    out = [SETTINGS, server.output(), frame(HeadersFrame(1, head[:5])), frame(ContinuationFrame(1, head[5:100]))]
    out.append(frame(ContinuationFrame(1, head[100:], flags=["END_HEADERS"])))
    out.append(b"\x00\x00\x02\xbb\x00\x00\x00\x00\x00zz")  # of no known type
    for number in range(5):
        out.append(frame(DataFrame(1, b"data: %d\n\n" % number, pad_length=number, flags=["PADDED"])))
        out.append(frame(SettingsFrame(0, {4: 70_000 + number})))
    trailers = server.http.encoder.encode([(b"x-sum", b"1")])
    out.append(frame(HeadersFrame(1, trailers, flags=["END_HEADERS", "END_STREAM"])))
    return b"".join((*out, goaway(1)))


LONG_REPLY = long_reply()


def fed(pieces: Iterable[bytes]) -> list[ClientEvent | str]:
    codec = new_codec()
    ask(codec)
    codec.next_piece(100)
    out: list[ClientEvent | str] = []
    for piece in pieces:
        codec.receive_data(piece)
        for event in take(codec):
            if isinstance(event, Data) and out and isinstance(out[-1], Data):
                out[-1] = Data(out[-1].data + event.data)
            else:
                out.append(event)
    return out


@given(cuts=st.sets(st.integers(1, len(LONG_REPLY) - 1), max_size=30))
def test_cutting_never_shows(cuts: set[int]) -> None:
    """The events depend on the bytes, not on how they arrived."""
    at = [0, *sorted(cuts), len(LONG_REPLY)]
    body = b"".join(b"data: %d\n\n" % number for number in range(5))
    head = ResponseHead(200, ((b"x", b"y" * 300), *EVENTS), "2")
    cut = [LONG_REPLY[a:b] for a, b in itertools.pairwise(at)]
    assert fed(cut) == [InformationalHead(100, ()), head, Data(body), END]


def test_each_byte_alone_comes_to_the_same() -> None:
    assert fed(LONG_REPLY[i : i + 1] for i in range(len(LONG_REPLY))) == fed([LONG_REPLY])


# --- Flow control ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window_bytes", [0, 1, 1000, 65_535, 300_000])
def test_no_more_of_a_body_is_sent_than_the_server_allows(window_bytes: int) -> None:
    """The window of the connection, 65,535 bytes, is as far as one goes before the settings have arrived."""
    body = bytes(range(256)) * 2000
    server = Http2Server({SettingCodes.INITIAL_WINDOW_SIZE: window_bytes}, acknowledges=False)
    codec = new_codec()
    codec.receive_data(server.output())
    assert take(codec) == []
    ask(codec, body)
    carry(codec, server)
    request = server.requests[0]
    assert len(request.body) == min(window_bytes, 65_535) and not codec.is_sent and not codec.has_output
    for _ in range(20):
        for stream in (0, 1):
            codec.receive_data(frame(WindowUpdateFrame(stream, 40_000)))
            server.http.increment_flow_control_window(40_000, stream or None)
            server.output()
        assert take(codec) == []
        carry(codec, server)
    assert request.is_whole and request.body == body and codec.is_sent


STEPS = st.one_of(
    st.tuples(st.sampled_from(["connection", "stream"]), st.integers(1, 60_000)),
    st.tuples(st.just("settings"), st.integers(0, 70_000)),
    st.tuples(st.just("write"), st.integers(1, 50_000)),
)


@given(steps=st.lists(STEPS, max_size=30), size_bytes=st.integers(1, 200_000))
def test_whatever_a_server_allows_is_kept_to(steps: list[tuple[str, int]], size_bytes: int) -> None:
    """h2 refuses a body that passes one of the windows, which SETTINGS may make negative. In the end all has come."""
    body = bytes(range(251)) * (size_bytes // 251 + 1)
    server, codec = Http2Server(acknowledges=False), new_codec()
    ask(codec, body)
    for step, value in [*steps, ("settings", 60_000), ("connection", 1 << 20), ("stream", 1 << 20)]:
        match step:
            case "connection":
                server.http.increment_flow_control_window(value)
            case "stream" if server.requests and not server.requests[0].is_whole:
                server.http.increment_flow_control_window(value, 1)
            case "settings":
                server.http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: value})
        if reply := server.output():
            codec.receive_data(reply)
        assert take(codec) == []
        piece = codec.next_piece(value)
        if piece is not None:
            server.receive(piece)
    carry(codec, server)
    assert server.requests[0].is_whole and server.requests[0].body == body and codec.is_sent


def test_a_body_is_sent_in_frames_that_the_server_takes() -> None:
    for size_bytes in (16_384, 30_000):
        server = Http2Server({SettingCodes.MAX_FRAME_SIZE: size_bytes, SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20})
        codec, _ = new_codec(), server.http.increment_flow_control_window(1 << 20)
        codec.receive_data(server.output())
        assert take(codec) == []
        carry(codec, server)
        ask(codec, b"x" * 100_000)
        piece = codec.next_piece(1 << 20)
        assert piece is not None
        at = piece.index(b"x" * 10_000) - 9
        assert int.from_bytes(piece[at : at + 3]) == size_bytes
        server.receive(piece)
        assert server.requests[0].is_whole


def test_a_server_sends_no_more_than_a_window_ahead() -> None:
    """The windows are opened again as pieces of the response are taken."""
    codec, server = asked()
    body = b"x" * (3 * WINDOW_BYTES)
    server.begin(1)
    rest = server.send(1, body, is_last=True)
    assert len(body) - len(rest) == WINDOW_BYTES
    carry(codec, server)
    assert server.send(1, rest, is_last=True) == rest, "nothing was taken"
    codec.begin_turn()
    assert codec.next_event() == ResponseHead(200, JSON, "2")
    taken = 0
    while rest:
        codec.begin_turn()
        event = codec.next_event()
        if isinstance(event, Data):
            taken += len(event.data)
        piece = codec.next_piece(100)
        if piece is not None:
            server.receive(piece)
            left, rest = rest, server.send(1, rest, is_last=True)
            assert len(left) - len(rest) <= taken
        codec.receive_data(server.output() or frame(PingFrame(0, b"12345678")))
        assert len(body) - len(rest) - taken <= WINDOW_BYTES
    carry(codec, server)
    (left_over, end) = take(codec)
    assert isinstance(left_over, Data) and taken + len(left_over.data) == len(body) and end is END


def test_padding_is_given_back_too() -> None:
    codec, server = asked()
    server.begin(1)
    for _ in range(100):
        for _ in range(30):
            server.http.send_data(1, b"x", pad_length=255)
            server.http.send_data(1, b"", pad_length=255)
        carry(codec, server)
        take(codec)
        carry(codec, server)
    assert server.http.local_flow_control_window(1) >= WINDOW_BYTES // 2


# --- Limits ---------------------------------------------------------------------------------------------------------

IDLE_FRAMES: dict[str, Frame] = {
    "ping": PingFrame(0, b"12345678"),
    "settings": SettingsFrame(0, {4: 65_536}),
    "settings ack": SettingsFrame(0, flags=["ACK"]),
    "window update": WindowUpdateFrame(0, 1),
    "window update of the stream": WindowUpdateFrame(1, 1),
    "priority": PriorityFrame(3, 0, 1),
    "reset of another stream": RstStreamFrame(7, 0),
    "unknown": ExtensionFrame(0xBB, 0),
    "no data": DataFrame(1, b""),
    "GOAWAY": GoAwayFrame(0, 2**31 - 1),
    "padding": DataFrame(1, b"", pad_length=0, flags=["PADDED"]),
}


@pytest.mark.parametrize("kind", IDLE_FRAMES)
def test_frames_that_bring_nothing_are_bounded(kind: str) -> None:
    codec, server = asked()
    server.begin(1)
    carry(codec, server)
    assert len(take(codec)) == 1
    flood = frame(IDLE_FRAMES[kind])
    for _ in range(2):  # a piece of the response between them makes a difference
        codec.receive_data(frame(DataFrame(1, b"x")))
        assert take(codec) == [Data(b"x")]
        for _ in range(IDLE_FRAMES_MAX):
            codec.receive_data(flood)
            assert take(codec) == []
            codec.next_piece(100)
    codec.receive_data(flood)
    assert take(codec) == [f"got {IDLE_FRAMES_MAX + 1} frames in a row with nothing of a response"]


def test_sending_a_body_allows_more_of_them() -> None:
    """A server may send WINDOW_UPDATE for each frame of it."""
    codec, _ = asked(b"x" * 65_535 + b"y" * IDLE_FRAMES_MAX + b"z", Http2Server(acknowledges=False))
    for _ in range(IDLE_FRAMES_MAX):
        codec.receive_data(frame(WindowUpdateFrame(0, 1)) + frame(WindowUpdateFrame(1, 1)))
        assert take(codec) == []
        codec.next_piece(100)
    assert not codec.is_sent


def test_interim_responses_are_bounded() -> None:
    codec, server = asked()
    for _ in range(IDLE_FRAMES_MAX + 1):
        server.http.send_headers(1, [(b":status", b"103")])
        codec.receive_data(server.output())
        events = take(codec)
    assert "in a row" in str(events[0])


@pytest.mark.parametrize("kind", ["ping", "settings"])
def test_answers_that_wait_are_bounded(kind: str) -> None:
    """A server that does not read the answers to its frames gets no more of them."""
    codec, _ = asked()
    one = IDLE_FRAMES[kind]
    answer_bytes = {"ping": 17, "settings": 9}[kind]
    most = ANSWERS_MAX_BYTES // answer_bytes
    codec.receive_data(frame(one) * most)
    assert take(codec) == []
    codec.receive_data(frame(one))
    assert "takes answers" in str(take(codec)[0])


def test_others_have_their_turn_between_many_frames() -> None:
    codec, server = asked()
    codec.receive_data(frame(PingFrame(0, b"12345678")) * (2 * TURN_FRAMES) + frame(DataFrame(1, b"")))
    for _ in range(2):
        codec.begin_turn()
        assert codec.next_event() is NEED_DATA and codec.has_frames
    assert len(codec.next_piece(100) or b"") == 2 * TURN_FRAMES * 17
    assert server.requests


@pytest.mark.parametrize("more", [0, 1])
def test_the_head_of_a_response_is_bounded(more: int) -> None:
    """HPACK counts 32 bytes for each header beside its name and value (RFC 7541, 4.1)."""
    codec, server = asked()
    size_bytes = HEAD_MAX_BYTES - (32 + 7 + 3) - (32 + 1) + more
    server.begin(1, [(b"x", b"y" * size_bytes)])
    carry(codec, server)
    (event,) = take(codec)
    assert isinstance(event, ResponseHead) if not more else "Oversized" in str(event)


def test_a_small_head_may_not_stand_for_a_large_one() -> None:
    """One header of the table repeated: some bytes each on the wire."""
    codec, server = asked()
    server.begin(1, [(b"x", b"y" * 500)] * 100)
    assert len(server.http._data_to_send) < 1500
    carry(codec, server)
    assert "Oversized" in str(take(codec)[0])


def test_a_frame_is_bounded() -> None:
    codec, server = asked()
    server.begin(1)
    carry(codec, server)
    codec.receive_data(frame(DataFrame(1, b"x" * FRAME_SIZE_MAX_BYTES)))
    codec.receive_data(frame(DataFrame(1, b"x" * (FRAME_SIZE_MAX_BYTES + 1)))[:9])
    head, data, failure = take(codec)
    assert isinstance(data, Data) and "got a frame of 16394 bytes" in str(failure), head


# --- The end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("last_stream", "is_unprocessed"), [(0, True), (1, False), (2**31 - 1, False)])
def test_goaway_says_whether_a_request_runs(last_stream: int, is_unprocessed: bool) -> None:
    codec, server = asked()
    codec.receive_data(goaway(last_stream))
    events = take(codec)
    assert codec.is_unprocessed is is_unprocessed
    if is_unprocessed:
        assert events == ["got GOAWAY, expected a response"]
        return
    assert events == []
    server.reply(1, ANSWER)
    carry(codec, server)
    assert take(codec) == [ResponseHead(200, JSON, "2"), Data(ANSWER), END], "the server goes on with it"
    assert not codec.go_on(), "no further one runs"


def test_a_second_goaway_may_name_fewer_streams() -> None:
    codec, _ = asked()
    codec.receive_data(goaway(2**31 - 1) + goaway(0))
    assert take(codec) == ["got GOAWAY, expected a response"] and codec.is_unprocessed


def test_goaway_says_why_the_connection_ends() -> None:
    codec, _ = asked()
    codec.receive_data(goaway(1, ErrorCodes.ENHANCE_YOUR_CALM, b"too_many\x07_pings"))
    codec.receive_data(b"")
    assert take(codec) == ["got GOAWAY (ENHANCE_YOUR_CALM: too_many?_pings)"] and not codec.is_unprocessed


@pytest.mark.parametrize(
    "ending", [goaway(1), goaway(0), b"", frame(PushPromiseFrame(1, 2, b"", flags=["END_HEADERS"]))]
)
def test_an_idle_connection_ends(ending: bytes) -> None:
    codec, server = asked()
    server.reply(1, ANSWER)
    carry(codec, server)
    take(codec)
    assert codec.go_on()
    codec.receive_data(server.output() + frame(PingFrame(0, b"12345678")))
    assert take(codec) == [] and codec.has_output
    codec.receive_data(ending)
    (event,) = take(codec)
    assert event is CLOSED or isinstance(event, str)
    assert not codec.begin_request("GET", b"/", (HOST,), b"")


@pytest.mark.parametrize("code", [*ErrorCodes, 0x99])
def test_a_reset_ends_the_request(code: int) -> None:
    codec, _ = asked()
    codec.receive_data(reset(1, code))
    (failure,) = take(codec)
    assert "got RST_STREAM (" in str(failure)
    assert codec.is_unprocessed is (code == ErrorCodes.REFUSED_STREAM)
    assert codec.wants_http1 is (code == ErrorCodes.HTTP_1_1_REQUIRED)
    assert not codec.go_on()


@pytest.mark.parametrize(
    "ending", [goaway(0), goaway(0, 13), reset(1, ErrorCodes.REFUSED_STREAM), reset(1, ErrorCodes.HTTP_1_1_REQUIRED)]
)
def test_what_was_answered_in_part_was_not_refused(ending: bytes) -> None:
    """A server that says both contradicts itself, and the response was reported already."""
    codec, server = asked()
    server.begin(1)
    codec.receive_data(server.output() + ending)
    head, failure = take(codec)
    assert isinstance(head, ResponseHead) and isinstance(failure, str)
    assert not codec.is_unprocessed and not codec.wants_http1


def test_a_response_may_come_before_the_whole_body_was_sent() -> None:
    """RFC 9113, 8.1: the server then resets the stream without an error."""
    codec, server = new_codec(), Http2Server(acknowledges=False)
    ask(codec, b"x" * 100_000)
    carry(codec, server)
    server.reply(1, ANSWER)
    codec.receive_data(server.output() + reset(1, ErrorCodes.NO_ERROR) + frame(WindowUpdateFrame(0, 100_000)))
    assert take(codec) == [ResponseHead(200, JSON, "2"), Data(ANSWER), END]
    codec.next_piece(1 << 20)
    assert not codec.has_output and not codec.is_sent and not codec.go_on()


@pytest.mark.parametrize("ending", [reset(1, ErrorCodes.INTERNAL_ERROR), goaway(0), b"\x00\x00\x04\x06\0\0\0\0\0abcd"])
def test_the_rest_of_a_body_is_not_sent_behind_a_failure(ending: bytes) -> None:
    codec, server = new_codec(), Http2Server()
    ask(codec, b"x" * 1000)
    assert codec.next_piece(100)
    codec.receive_data(server.output() + ending)
    assert len(take(codec)) == 1
    assert b"x" not in (codec.next_piece(100) or b"") and not codec.has_output and not codec.is_sent


@pytest.mark.parametrize("is_begun", [False, True])
def test_the_connection_ends_within_a_response(is_begun: bool) -> None:
    codec, server = asked()
    if is_begun:
        server.begin(1)
        server.send(1, b"{")
    codec.receive_data(server.output())
    codec.receive_data(b"")
    events = take(codec)
    assert events[-1] == "" and len(events) == (3 if is_begun else 1) and codec.has_begun is is_begun


def test_what_was_complete_before_an_error_is_not_lost() -> None:
    codec, server = asked()
    server.reply(1, ANSWER)
    codec.receive_data(server.output() + frame(DataFrame(1, b"more")))
    assert take(codec) == [ResponseHead(200, JSON, "2"), Data(ANSWER), END]


# --- Malformed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        [(b":status", b"200"), (b"X", b"y")],
        [(b":status", b"200"), (b"x", b"a\nb")],
        [(b":status", b"200"), (b"x", b"a\x01b")],
        [(b":status", b"200"), (b"x", b"a\x7f")],
        [(b":status", b"200"), (b"x y", b"a")],
        [(b":status", b"200"), (b"x(", b"a")],
        [(b":status", b"200"), (b"", b"a")],
        [(b":status", b"200"), (b"x", b" a")],
        [(b":status", b"200"), (b"transfer-encoding", b"chunked")],
        [(b":status", b"200"), (b"connection", b"close")],
        [(b":status", b"200"), (b"content-length", b"x")],
        [(b":status", b"200"), (b":path", b"/")],
        [(b":status", b"200"), (b":status", b"200")],
        [(b"x", b"y"), (b":status", b"200")],
        [(b":status", b"2000")],
        [(b":status", b"ok")],
        [(b":status", b"")],
        [(b"x", b"y")],
        [],
    ],
)
def test_malformed_heads_are_refused(headers: list[tuple[bytes, bytes]]) -> None:
    codec, server = asked()
    block = server.http.encoder.encode(headers)
    codec.receive_data(server.output() + frame(HeadersFrame(1, block, flags=["END_HEADERS"])))
    (failure,) = take(codec)
    assert isinstance(failure, str)
    assert take(codec) == [failure], "nothing more can be read"


def test_an_error_shows_neither_controls_nor_addresses() -> None:
    codec, _ = asked()
    codec.receive_data(frame(HeadersFrame(1, b"\x88@\x81\xf3\x81\x1f\xff\xfd\x88\xff", flags=["END_HEADERS"])))
    (failure,) = take(codec)
    assert "Unable to decode HPACK" in str(failure) and "0x" not in str(failure)
    codec, server = asked()
    block = server.http.encoder.encode([(b":status", b"200"), (b"x\x1b[2J", b"y")])
    codec.receive_data(frame(HeadersFrame(1, block, flags=["END_HEADERS"])))
    (failure,) = take(codec)
    assert str(failure).isprintable() and "Illegal character" in str(failure)


@pytest.mark.parametrize("length", [b"1", b"3"])
def test_a_body_has_the_length_that_was_announced(length: bytes) -> None:
    codec, server = asked()
    server.http.send_headers(1, [(b":status", b"200"), (b"content-length", length)])
    server.send(1, b"{}", is_last=True)
    carry(codec, server)
    assert isinstance(take(codec)[-1], str)


FOREIGN: dict[str, tuple[bytes, Callable[[Http2Codec], bool]]] = {
    "HTTP/1.1": (b"HTTP/1.1 400 Bad Request\r\n\r\n", lambda codec: codec.wants_http1),
    "HTTP/1.0": (b"HTTP/1.0 505 No\r\n\r\n", lambda codec: codec.wants_http1),
    "another name": (b"HTTP/2.0 505 No\r\n\r\n", lambda codec: not codec.wants_http1),
    "TLS": (b"\x15\x03\x01\x00\x02\x02\x46\x00\x00\x00", lambda codec: not codec.wants_http1),
    "no settings": (frame(PingFrame(0, b"12345678")), lambda codec: True),
    "GOAWAY first": (goaway(0), lambda codec: True),
    "a pushed stream": (SETTINGS + frame(PushPromiseFrame(1, 2, b"\x88", flags=["END_HEADERS"])), lambda codec: True),
    "a stream of its own": (SETTINGS + frame(HeadersFrame(2, b"\x88", flags=["END_HEADERS"])), lambda codec: True),
    "a stream to come": (SETTINGS + frame(HeadersFrame(3, b"\x88", flags=["END_HEADERS"])), lambda codec: True),
    "data first": (SETTINGS + frame(DataFrame(1, b"x")), lambda codec: True),
    "no HPACK": (SETTINGS + frame(HeadersFrame(1, b"\xff\xff\xff", flags=["END_HEADERS"])), lambda codec: True),
    "a window too large": (SETTINGS + frame(WindowUpdateFrame(0, 2**31 - 1)), lambda codec: True),
    "a wrong setting": (SETTINGS + frame(SettingsFrame(0, {5: 1})), lambda codec: True),
    "a short PING": (SETTINGS + b"\x00\x00\x04\x06\x00\x00\x00\x00\x00abcd", lambda codec: True),
    "a short GOAWAY": (SETTINGS + b"\x00\x00\x04\x07\x00\x00\x00\x00\x00abcd", lambda codec: True),
    "GOAWAY on a stream": (SETTINGS + b"\x00\x00\x08\x07\x00\x00\x00\x00\x01abcdefgh", lambda codec: True),
    "a lone CONTINUATION": (SETTINGS + frame(ContinuationFrame(1, b"", flags=["END_HEADERS"])), lambda codec: True),
}


@each_row("kind", FOREIGN)
@each_row("is_cut", [False, True])
def test_what_is_no_http_2_is_refused(kind: str, is_cut: bool) -> None:
    data, is_right = FOREIGN[kind]
    codec = new_codec()
    ask(codec)
    codec.next_piece(100)
    events: list[ClientEvent | str] = []
    for at in range(0, len(data), 1 if is_cut else len(data)):
        codec.receive_data(data[at : at + (1 if is_cut else len(data))])
        events = events or take(codec)
    assert len(events) == 1 and isinstance(events[0], str) and is_right(codec)


def test_a_connection_may_allow_no_request() -> None:
    server = Http2Server({SettingCodes.MAX_CONCURRENT_STREAMS: 0})
    codec = new_codec()
    codec.receive_data(server.output())
    assert take(codec) == []
    assert not codec.begin_request("GET", b"/", (HOST,), b"")


def only_events_or_a_failure(codec: Http2Codec, data: bytes) -> None:
    codec.receive_data(data)
    codec.receive_data(b"")
    events = take(codec)
    while events and events[-1] is END and codec.go_on():
        events = take(codec)
    codec.next_piece(100)


@given(data=st.binary(max_size=200))
def test_any_bytes_are_events_or_one_failure(data: bytes) -> None:
    codec, _ = asked()
    only_events_or_a_failure(codec, data)


FRAMES = st.builds(
    lambda kind, flags, stream, body: len(body).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + body,
    st.integers(0, 12),
    st.sampled_from([0, 1, 4, 5, 8, 0x20, 0x2D, 0xFF]),
    st.sampled_from([0, 1, 2, 3, 2**31 - 1]),
    st.one_of(
        st.binary(max_size=20),
        st.sampled_from(
            [b"\x88", b"\x88\x5f\x10application/json", b"\x08\x03103", b"\x00" * 4, b"\x00" * 8, b"\x7f" * 4]
        ),
    ),
)


@given(frames=st.lists(st.one_of(FRAMES, st.sampled_from([SETTINGS, goaway(0), goaway(1), reset(1, 7)])), max_size=12))
def test_any_frames_are_events_or_one_failure(frames: list[bytes]) -> None:
    codec, _ = asked()
    only_events_or_a_failure(codec, b"".join(frames))


@given(data=st.data())
def test_any_change_of_a_reply_is_events_or_one_failure(data: st.DataObject) -> None:
    reply = bytearray(LONG_REPLY)
    for _ in range(data.draw(st.integers(1, 4))):
        reply[data.draw(st.integers(0, len(reply) - 1))] = data.draw(st.integers(0, 255))
    codec, _ = asked()
    only_events_or_a_failure(codec, bytes(reply))
