"""Differential tests of the client's HTTP/1.1 codec against h11, for odd servers and any division of the bytes."""

from __future__ import annotations

from http1_driving import Fields, chunks, clients, request_all
from http1_messages import CUTS, RESPONSES
from hypothesis import given, settings
from hypothesis import strategies as st

FIELDS: list[Fields] = [
    ((b"host", b"x"), (b"content-type", b"application/json")),
    ((b"host", b"x"), (b"content-length", b"5")),
    ((b"content-length", b"5"), (b"host", b"x")),
    ((b"host", b"x"), (b"content-length", b"5"), (b"connection", b"keep-alive")),
]
ODD_FIELDS: list[Fields] = [
    ((b"host", b"x"), (b"connection", b"close")),
    ((b"host", b"x"), (b"connection", b"keep-alive, upgrade"), (b"upgrade", b"x")),
    ((b"host", b"x"), (b"transfer-encoding", b"chunked")),
    ((b"host", b"x"), (b"content-length", b"x")),
    ((b"host", b"x"), (b"host", b"x")),
    ((b"host", b"x"), (b"x", b"a\r\nevil: 1")),
    ((b"host", b"x"), (b"bad name", b"1")),
    ((b"Host", b"x"), (b"expect", b"100-continue")),
    (),
]
METHODS = ["POST", "GET", "HEAD", "DELETE"]
TARGETS = [b"/mcp", b"/mcp?a=b"]
USUAL = st.tuples(st.sampled_from(METHODS), st.sampled_from(TARGETS), st.sampled_from(FIELDS), st.booleans())
ODD = st.one_of(
    st.tuples(st.just("POST"), st.just(b"/mcp"), st.sampled_from(ODD_FIELDS), st.booleans()),
    st.tuples(st.sampled_from(["CONNECT", "TRACE", "P ST"]), st.just(b"/mcp"), st.just(FIELDS[0]), st.booleans()),
    st.tuples(
        st.just("GET"), st.sampled_from([b"*", b"http://x/", b"/a b", b"/\xe9"]), st.just(FIELDS[0]), st.booleans()
    ),
)
ASKED = st.integers(0, 9).flatmap(lambda n: USUAL if n else ODD)


@settings(max_examples=80)
@given(stream=RESPONSES, cuts=CUTS, requests=st.lists(ASKED, min_size=1, max_size=3))
def test_it_is_like_h11(stream: bytes, cuts: list[int], requests: list[tuple[str, bytes, Fields, bool]]) -> None:
    """The codec gives the same responses, refusals, states and bytes."""
    ours, theirs = clients()
    arriving = chunks(stream, cuts)
    assert request_all(ours, arriving, requests) == request_all(theirs, arriving, requests)
