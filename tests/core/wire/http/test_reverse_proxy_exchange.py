"""Tests of the exchange with a transparent server: its states, what passes on, its time limits and its ends."""

from __future__ import annotations

import pytest
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.limits import Limits
from isthmus.core.wire.http.reply import ReplyBody, ReplyEnd
from isthmus.core.wire.http.reverse_proxy import HeaderRules, Sender, is_upgrade, request_headers
from isthmus.core.wire.http.reverse_proxy_exchange import (
    LINGER_S,
    TRANSITIONS,
    ForwardedExchange,
    ForwardFailed,
    ForwardInput,
    ForwardPlan,
    ForwardState,
)
from isthmus.core.wire.http.reverse_proxy_target import ForwardTarget
from isthmus.core.wire.http.routes import Head
from isthmus.core.wire.http1.events import ResponseHead

LIMITS = Limits(forward_idle_timeout_s=7)
HOST = (b"host", b"localhost")
EVENTS = ((b"content-type", b"text/event-stream"),)


def plan(method: str, *headers: tuple[bytes, bytes]) -> ForwardPlan:
    head = Head(method, "/mcp/far", (HOST, *headers), "1.1")
    passed = request_headers(head, HeaderRules(), authority=b"up.example", sender=Sender("", "localhost", "http"))
    return ForwardPlan(method, b"/base", passed, is_upgrade=is_upgrade(head))


def exchange(method: str = "POST", size_bytes: int | None = 0) -> ForwardedExchange:
    return ForwardedExchange(
        plan(method),
        size_bytes,
        name="up.example",
        rules=HeaderRules(),
        target=ForwardTarget("far", "http://up.example/base", b"key"),
        limits=LIMITS,
        reply_timeout_s=3,
        added=lambda name: None,
    )


def test_the_table_is_total_and_reaches_every_state() -> None:
    assert set(TRANSITIONS) == set(ForwardState)
    assert {taken for row in TRANSITIONS.values() for taken in row} == set(ForwardInput)
    reached = {state for row in TRANSITIONS.values() for state in row.values()}
    assert reached == set(ForwardState)


def test_the_time_limit_follows_the_exchange() -> None:
    """A server may wait for the whole request, then has to answer, and then must not fall silent."""
    one = exchange(size_bytes=5)
    one.receive_connected()
    assert one.timeout_s == float("inf")
    one.receive_sent()
    assert one.timeout_s == 3
    one.receive_head(ResponseHead(200, ()))
    assert one.timeout_s == 7
    assert (one.handle_timeout().status, one.state) == (504, ForwardState.FAILED)


def test_a_server_that_takes_no_more_of_a_request_has_a_moment_to_say_why() -> None:
    one = exchange(size_bytes=5)
    one.receive_connected()
    one.receive_refused()
    assert one.timeout_s == LINGER_S
    failure = one.handle_timeout()
    assert (failure.status, failure.code) == (502, "upstream_broken")
    assert "took no more" in failure.detail


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("size_bytes", [0, 1, None])
@pytest.mark.parametrize("is_stale", [False, True])
def test_only_what_may_run_twice_is_sent_again(method: str, size_bytes: int | None, is_stale: bool) -> None:
    one = exchange(method, size_bytes)
    one.receive_connected()
    one.receive_sent()
    if is_stale and size_bytes == 0 and method in ("GET", "HEAD", "OPTIONS"):
        one.receive_gone(is_stale=True)
        assert (one.state, one.timeout_s) == (ForwardState.CONNECTING, float("inf"))
    else:
        with pytest.raises(ForwardFailed) as raised:
            one.receive_gone(is_stale=is_stale)
        assert (raised.value.status, one.state) == (502, ForwardState.FAILED)


def test_bodies_pass_on_and_end() -> None:
    one = exchange()
    one.receive_connected()
    one.receive_head(ResponseHead(200, EVENTS))
    assert one.receive_body(b"event: endpoint\ndata: /x\n\n") == [ReplyBody(b"event: endpoint\ndata: /x\n\n")]
    assert one.receive_end() == [ReplyEnd()]
    assert one.state is ForwardState.COMPLETE
    with pytest.raises(LocalProtocolError):
        one.receive_end()


def test_what_came_before_an_endpoint_elsewhere_passes_on() -> None:
    one = exchange("GET")
    one.receive_connected()
    one.receive_head(ResponseHead(200, EVENTS))
    outs = one.receive_body(b"data: 1\n\nevent: endpoint\ndata: http://evil.example/\n\ndata: 2\n\n")
    assert outs == [ReplyBody(b"data: 1\n\n")]
    with pytest.raises(ForwardFailed, match=r"evil\.example"):
        one.check()


@pytest.mark.parametrize(
    ("method", "status", "headers", "is_document"),
    [
        ("POST", 200, ((b"content-type", b"application/json"), (b"content-length", b"2")), True),
        ("DELETE", 404, ((b"content-length", b"2"),), True),
        ("GET", 200, ((b"content-length", b"2"),), False),
        ("HEAD", 200, ((b"content-length", b"2"),), False),
        ("POST", 204, (), False),
        ("POST", 304, ((b"content-length", b"2"),), False),
        ("POST", 307, ((b"content-length", b"2"), (b"location", b"/base/")), False),
    ],
)
def test_a_response_in_one_piece_has_the_headers_of_one_in_several(
    method: str, status: int, headers: tuple[tuple[bytes, bytes], ...], is_document: bool
) -> None:
    one, other = exchange(method), exchange(method)
    head = ResponseHead(status, (*headers, (b"keep-alive", b"5"), (b"x-theirs", b"yes"), (b"set-cookie", b"a=b")))
    found = one.document_headers(head)
    assert (found is not None) is is_document
    if found is not None:
        other.receive_connected()
        passed = other.receive_head(head).headers
        assert sorted(found) == sorted(field for field in passed if field[0] != b"content-length")


def test_plans_differ_in_the_lengths_of_bodies_alone() -> None:
    sized = plan("POST", (b"content-length", b"5"), (b"x-mine", b"1"))
    assert sized.post is not None and not sized.is_chunked
    assert dict(sized.headers(7))[b"content-length"] == b"7"
    assert dict(sized.headers(7))[b"host"] == b"up.example"
    chunked = plan("POST", (b"transfer-encoding", b"chunked"))
    assert chunked.is_chunked and chunked.post is None
    assert b"content-length" not in dict(chunked.headers(0))
    assert b"content-length" not in dict(plan("GET").headers(0))
