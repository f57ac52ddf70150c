"""Differential tests of the server's HTTP/1.1 codec against h11, for odd clients and any division of the bytes."""

from __future__ import annotations

from itertools import product

from http1_driving import Answer, Fields, chunks, serve, servers
from http1_messages import CHUNKS, CUTS, ENDS, ODD_CHUNKS, ODD_LINES, PLAIN_LINES, REQUESTS
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.wire.http1.events import CLOSED, END, RequestHead

FIELDS: list[Fields] = [
    ((b"content-type", b"application/json"), (b"content-length", b"5")),
    ((b"content-length", b"5"), (b"mcp-session-id", b"x")),
    (),
    ((b"content-type", b"text/event-stream"),),
    ((b"content-length", b"5"), (b"connection", b"close")),
    ((b"connection", b"keep-alive"), (b"x", b"")),
]
ODD_FIELDS: list[Fields] = [
    ((b"connection", b"x, Keep-Alive"), (b"content-length", b"5")),
    ((b"transfer-encoding", b"chunked"), (b"content-length", b"5")),
    ((b"content-length", b"5"), (b"content-length", b"5")),
    ((b"content-length", b"5"), (b"content-length", b"6")),
    ((b"content-length", b"05"),),
    ((b"content-length", b"x"),),
    ((b"Content-Length", b"5"),),
    ((b"x", b"a\r\nevil: 1"),),
    ((b"x", b" blank"),),
    ((b"x", b"control\x01"),),
    ((b"bad name", b"1"),),
]
WHOLE = st.sampled_from([(b"01234",), (b"012", b"", b"34")])
FLAGS = {"early": st.booleans(), "interim": st.booleans()}
USUAL = st.builds(Answer, st.sampled_from([200, 202, 204, 304, 404]), st.sampled_from(FIELDS), WHOLE, **FLAGS)
ODD = st.one_of(
    st.builds(Answer, st.sampled_from([200, 204]), st.sampled_from(ODD_FIELDS), WHOLE, **FLAGS),
    st.builds(Answer, st.sampled_from([299, 999, 100, 1000]), st.sampled_from(FIELDS), WHOLE, **FLAGS),
    st.builds(
        Answer, st.just(200), st.sampled_from(FIELDS), st.sampled_from([(), (b"x" * 5000,), (b"0123",)]), **FLAGS
    ),
)
ANSWER = [Answer(200, FIELDS[0], (b"01234",))]
ANSWERS = st.integers(0, 9).flatmap(lambda n: USUAL if n else ODD)


@settings(max_examples=80)
@given(stream=REQUESTS, cuts=CUTS, answers=st.lists(ANSWERS, min_size=1, max_size=3))
def test_it_is_like_h11(stream: bytes, cuts: list[int], answers: list[Answer]) -> None:
    """The codec gives the same requests, refusals, states and bytes."""
    ours, theirs = servers()
    arriving = chunks(stream, cuts)
    assert serve(ours, arriving, answers) == serve(theirs, arriving, answers)


def test_each_line_beside_usual_ones_is_read_as_h11_reads_it() -> None:
    """An odd line is read as h11 reads it, before and behind the usual ones. Of two lines that contradict each other
    neither takes precedence."""
    for line, framing in product([*PLAIN_LINES, *ODD_LINES], (b"Content-Length: 5", b"Transfer-Encoding: chunked")):
        for lines in ([framing, line], [line, framing]):
            body = b"01234" if framing.startswith(b"C") else CHUNKS[0] + ENDS[0]
            stream = b"\r\n".join([b"POST /mcp HTTP/1.1", b"Host: x", *lines, b"", body])
            ours, theirs = servers()
            assert serve(ours, [stream], ANSWER) == serve(theirs, [stream], ANSWER), stream


def test_what_follows_a_chunk_is_read_as_h11_reads_it() -> None:
    """The bytes behind an ordinary chunk, where another chunk's line is searched first, are read as h11 reads them."""
    head = b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    for odd, end in product((b"", *ODD_CHUNKS), ENDS):
        stream = head + CHUNKS[0] + odd + CHUNKS[1] + end
        ours, theirs = servers()
        assert serve(ours, [stream], ANSWER) == serve(theirs, [stream], ANSWER), stream


def test_a_client_that_has_closed_its_side_is_answered_and_no_other_request_awaited() -> None:
    """A client that closed its sending side sends no other request."""
    for server in servers():
        server.receive_data(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        server.receive_data(b"")
        assert isinstance(server.next_event(), RequestHead)
        assert [server.next_event() for _ in range(3)] == [END, CLOSED, CLOSED]
        written = [server.encode_head(200, FIELDS[0]), *server.encode_data(b"01234"), server.encode_end()]
        assert b"".join(written).endswith(b"\r\n\r\n01234")
        assert not server.is_through
