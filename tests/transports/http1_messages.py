"""Strategies for requests and responses as bytes: plain, odd and broken ones, often several on one connection."""

from __future__ import annotations

from hypothesis import strategies as st

PLAIN_LINES = [
    b"Accept: application/json, text/event-stream",
    b"content-type:application/json",
    b"MCP-Session-Id: \t x-1 \t",
    b"X-Empty:",
    b"X-Latin: caf\xe9",
    b"Connection: keep-alive",
    b"Connection: Close",
]
ODD_LINES = [
    b"Expect: 100-continue",
    b"Expect: 100-Continue, x",
    b"Connection: keep-alive, x",
    b"Connection: x , close",
    b"Connection:",
    b"Upgrade: h2c",
    b"Upgrade:",
    b"Content-Length: 2",
    b"Content-Length: 2, 2",
    b"Content-Length: 02",
    b"Content-Length: +2",
    b"Content-Length: 2 3",
    b"Content-Length: 1234567890123456789012",
    b"Content-Length:",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: Chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding:",
    b"Host: y",
    b" folded",
    b"\tfolded",
    b"X-Control: a\x01b",
    b"X-Delete: \x7f",
    b"X-Null: a\0b",
    b"X-Feed: a\x0cb",
    b"X-Return: a\rb",
    b"X Y: space",
    b"X\xe9: name",
    b"X : blank",
    b": nameless",
    b"no colon",
    b"",
]
CHUNKS = [
    b"1\r\nx\r\n",
    b"a\r\n0123456789\r\n",
    b"0A\r\n0123456789\r\n",
    b"3\r\n\r\n\r\r\n",
    b"10\r\n" + b"y" * 16 + b"\r\n",
]
ODD_CHUNKS = [
    b"1;a=b\r\nx\r\n",
    b"1 \t\r\nx\r\n",
    b"1\nx\n",
    b"1\r\nxy\r\n",
    b"1\r\nx\n\n",
    b"+1\r\nx\r\n",
    b"0x1\r\nx\r\n",
    b"1_0\r\nx\r\n",
    b"\r\n",
    b"000000000000000000001\r\nx\r\n",
    b"fffffffffffffffff\r\nx",
    b"1" * 310,
]
ENDS = [
    b"0\r\n\r\n",
    b"000\r\n\r\n",
    b"0\r\nX-Trailer: 1\r\n\r\n",
    b"0;x\r\n\r\n",
    b"0\r\n\n",
    b"0\n\n",
    b"0\r\nbad\r\n\r\n",
    b"",
]


def mostly(usual: list[bytes], others: list[bytes]) -> st.SearchStrategy[bytes]:
    """One of the usual values nine times in ten."""
    return st.sampled_from([*usual * -(-9 * len(others) // len(usual)), *others])


LINES = st.lists(mostly(PLAIN_LINES, ODD_LINES), max_size=4)
USUAL_CHUNKS = st.lists(st.sampled_from(CHUNKS), max_size=4).map(b"".join)
ODDER_CHUNKS = st.lists(mostly(CHUNKS, ODD_CHUNKS), max_size=4).map(b"".join)
# The line that gives a body's length, and a body that mostly has that length.
BODIES = st.one_of(
    st.just((b"", b"")),
    st.just((b"content-length: 5", b"01234")),
    st.tuples(st.just(b"Transfer-Encoding: chunked"), USUAL_CHUNKS.map(lambda chunks: chunks + ENDS[0])),
    st.tuples(
        st.just(b"transfer-encoding: chunked"),
        st.tuples(ODDER_CHUNKS, mostly(ENDS[:1], ENDS)).map(b"".join),
    ),
    st.tuples(
        st.sampled_from([b"", b"Content-Length: 5", b"Content-Length:0"]), st.sampled_from([b"", b"012", b"01234567"])
    ),
)
LINE_ENDS = mostly([b"\r\n"], [b"\n"])


@st.composite
def messages(draw: st.DrawFn, first: st.SearchStrategy[bytes], *, with_host: bool) -> bytes:
    framing, body = draw(BODIES)
    host = [draw(mostly([b"Host: x", b"host:x:1"], [b"X-Host: x"]))] if with_host else []
    lines = [draw(first), *host, *draw(LINES), *([framing] if framing else [])]
    return draw(LINE_ENDS).join([*lines, b"", b""]) + body


REQUEST_LINES = mostly(
    [b"POST /mcp HTTP/1.1", b"GET /mcp HTTP/1.1", b"HEAD / HTTP/1.1", b"DELETE /mcp?a=%20b HTTP/1.1"],
    [
        b"POST /mcp HTTP/1.0",
        b"POST /mcp HTTP/1.2",
        b"POST /mcp HTTP/0.9",
        b"POST /mcp HTTP/1.10",
        b"POST /mcp http/1.1",
        b"POST /mcp",
        b"POST  /mcp HTTP/1.1",
        b"POST /mcp HTTP/1.1 ",
        b" POST /mcp HTTP/1.1",
        b"\r\nPOST /mcp HTTP/1.1",
        b"post /mcp HTTP/1.1",
        b"P@ST /mcp HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"CONNECT x:1 HTTP/1.1",
        b"GET http://x/ HTTP/1.1",
        b"GET /\xe9 HTTP/1.1",
        b"GET /\x7f HTTP/1.1",
        b"\x16\x03\x01",
    ],
)
STATUS_LINES = mostly(
    [b"HTTP/1.1 200 OK", b"HTTP/1.1 202 Accepted", b"HTTP/1.1 404 Not Found", b"HTTP/1.1 200", b"HTTP/1.1 200 "],
    [
        b"HTTP/1.1 100 Continue",
        b"HTTP/1.1 103 Early Hints",
        b"HTTP/1.1 101 Switching Protocols",
        b"HTTP/1.1 204 No Content",
        b"HTTP/1.1 304 Not Modified",
        b"HTTP/1.1 099 Low",
        b"HTTP/1.1 999 High",
        b"HTTP/1.1 20 Short",
        b"HTTP/1.1 2000 Long",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1 200 caf\xe9\tx",
        b"HTTP/1.1 200 a\x01b",
        b"HTTP/1.1 200OK",
        b"HTTP/1.0 200 OK",
        b"HTTP/2.0 200 OK",
        b"http/1.1 200 OK",
        b" HTTP/1.1 200 OK",
        b"<html>",
    ],
)


@st.composite
def streams(draw: st.DrawFn, first: st.SearchStrategy[bytes], *, with_host: bool) -> bytes:
    """The bytes that one side sends on one connection."""
    stream = bytearray(b"".join(draw(st.lists(messages(first, with_host=with_host), min_size=1, max_size=3))))
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(stream)))
        stream[at : at + draw(st.integers(0, 2))] = draw(
            st.sampled_from([b"", b"\r", b"\n", b"\r\n", b" ", b":", b"0"])
        )
    return bytes(stream)


REQUESTS = streams(REQUEST_LINES, with_host=True)
RESPONSES = streams(STATUS_LINES, with_host=False)
CUTS = st.one_of(st.just([]), st.lists(st.integers(0, 400), max_size=8), st.just(list(range(600))))
