"""Heads of HTTP/1.1 that are written once for many requests, and reason phrases."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from isthmus.core.base.effects import Post
from isthmus.core.wire.http import request
from isthmus.core.wire.http.request import RequestForms, request_for
from isthmus.core.wire.http1.events import REASONS
from isthmus.core.wire.http1.fields import NotPlain
from isthmus.core.wire.http1.heads import PostHead, encode_request_head

HOST = (b"host", b"h")

RENAMED = {
    413: "Content Too Large",
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    422: "Unprocessable Content",
}
"""RFC 9110, 15.5: phrases that are newer than those of the oldest Python."""


def test_reasons_are_those_of_the_standard_library() -> None:
    assert {status: reason.decode() for status, reason in REASONS.items()} == {
        int(status): RENAMED.get(int(status), status.phrase) for status in HTTPStatus
    }


# --- Heads of POSTs ---------------------------------------------------------------------------------------------------


def written(head: PostHead, target: bytes, size_bytes: int) -> bytes:
    start = head.start(target)
    assert start is not None
    return start + b"%d\r\n\r\n" % size_bytes


@pytest.mark.parametrize("more", [(), ((b"connection", b"close"),), ((b"connection", b"keep-alive"),)])
def test_a_shared_head_equals_one_written_alone(more: tuple[tuple[bytes, bytes], ...]) -> None:
    """The head is right for each target, after any other, and for any size."""
    head = PostHead((HOST, (b"x-a", b"1"), *more))
    for target in (b"/mcp", b"/mcp", b"/other?x=1", b"/mcp"):
        for size_bytes in (0, 7, 10**6):
            alone, is_closing = encode_request_head("POST", target, head.sized(size_bytes))
            assert (written(head, target, size_bytes), head.is_closing) == (alone, is_closing)
    assert head.is_closing == (more == ((b"connection", b"close"),))


@pytest.mark.parametrize(
    ("headers", "target"),
    [
        ((HOST,), b"mcp"),
        ((HOST,), b"/a b"),
        ((HOST,), b"/\xe9"),
        ((HOST,), b""),
        ((), b"/mcp"),
        ((HOST, HOST), b"/mcp"),
        ((HOST, (b"upgrade", b"websocket")), b"/mcp"),
        ((HOST, (b"x-a", b"1\n")), b"/mcp"),
        ((HOST, (b"X-A", b"1")), b"/mcp"),
        ((HOST, (b"transfer-encoding", b"chunked")), b"/mcp"),
    ],
)
def test_a_head_that_is_not_plain_is_left_to_the_encoder(
    headers: tuple[tuple[bytes, bytes], ...], target: bytes
) -> None:
    """A second attempt gives the same result."""
    head = PostHead(headers)
    assert [head.start(target), head.start(target)] == [None, None]


def test_a_plain_target_after_one_that_is_not_has_its_head() -> None:
    head = PostHead((HOST,))
    assert head.start(b"/a b") is None
    assert written(head, b"/ab", 1) == b"POST /ab HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\n"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
def test_usual_methods_are_written(method: str) -> None:
    raw, is_closing = encode_request_head(method, b"/", (HOST,))
    assert (raw, is_closing) == (method.encode() + b" / HTTP/1.1\r\nhost: h\r\n\r\n", False)


@pytest.mark.parametrize("method", ["TRACE", "get", "", "GET "])
def test_other_methods_are_not_written(method: str) -> None:
    with pytest.raises(NotPlain):
        encode_request_head(method, b"/", (HOST,))


# --- Posts that share a head ------------------------------------------------------------------------------------------


def test_heads_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests with equal session, revision and mirrored values share a head from the second one on, until there are
    too many heads."""
    monkeypatch.setattr(request, "FORMS_MAX", 3)
    own = [HOST]
    forms = RequestForms(own)
    posts = [Post("s", b"{}"), Post("s", b"{}", "S"), Post("s", b"{}", "S", "2025-11-25")]
    assert [forms.post_head(post) for post in posts] == [None] * 3
    heads = [forms.post_head(post) for post in posts]
    assert [head.headers for head in heads if head is not None] == [tuple(request_for(post, own)[1]) for post in posts]
    assert [forms.post_head(post) for post in posts] == heads, "all three are kept"
    forms.post_head(Post("s", b"{}", mirrored=(("Mcp-Method", "ping"),)))
    assert [forms.post_head(post) for post in posts] == [None] * 3, "there is room again"


def test_a_post_with_headers_of_its_own_has_no_shared_head() -> None:
    forms = RequestForms([HOST])
    assert forms.post_head(Post("s", b"{}", headers=(("x-a", "1"),))) is None
    assert forms.post_head(Post("s", b"{}", cookies=(("a", "1"),))) is None
