"""Headers of clients: the forwarded ones, the required ones, and proof that no other header is sent on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.effects import Post
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.events import DeleteOpening, EventPipeOpening, GetOpening, Headers, MessageOpening, PostOpening
from isthmus.core.wire.http.header_forwarding import check_required, may_pass, passed_headers
from isthmus.core.wire.http.request import FRAMING_HEADERS, PROTOCOL_HEADERS, request_for
from isthmus.core.wire.http.routes import Head, McpRoute, Refused, Route, Surface
from isthmus.core.wire.http.server import judge

PASSES = (("authorization", "Authorization"), ("x-key", "X-Upstream-Key"), ("Cookie", "Cookie"))
SURFACE = Surface(
    ("a", "b"),
    frozenset({"localhost"}),
    frozenset(),
    passes={"a": PASSES},
    required={"a": ("X-Tenant",), "b": ("Authorization", "X-Tenant")},
)

ROUTES = {
    "POST": ("POST", "/mcp/{}", PostOpening),
    "GET": ("GET", "/mcp/{}", GetOpening),
    "DELETE": ("DELETE", "/mcp/{}", DeleteOpening),
    "event pipe": ("GET", "/sse/{}", EventPipeOpening),
    "message": ("POST", "/messages/{}?sessionId=x", MessageOpening),
}


def routed(kind: str, server: str, *extra: tuple[str, str]) -> Route:
    method, target, _ = ROUTES[kind]
    usual = (("host", "localhost"), ("content-type", "application/json"))
    headers = tuple((name.encode(), value.encode("latin-1")) for name, value in (*usual, *extra))
    return judge(Head(method, target.format(server), headers), SURFACE)


def passed(*headers: tuple[bytes, bytes]) -> Headers:
    return passed_headers(headers, PASSES)


@pytest.mark.parametrize("kind", ROUTES)
def test_listed_headers_are_forwarded_under_their_upstream_names(kind: str) -> None:
    route = routed(kind, "a", ("x-tenant", "t"), ("x-key", "4711"), ("authorization", "Bearer é"), ("x-other", "o"))
    assert isinstance(route, McpRoute) and isinstance(route.opening, ROUTES[kind][2])
    assert route.opening.headers == (("Authorization", "Bearer é"), ("X-Upstream-Key", "4711"))


@pytest.mark.parametrize("kind", ROUTES)
def test_no_header_is_forwarded_without_a_list(kind: str) -> None:
    route = routed(kind, "b", ("x-tenant", "t"), ("authorization", "Bearer x"), ("cookie", "a=b"))
    assert isinstance(route, McpRoute)
    assert route.opening.headers == ()


@pytest.mark.parametrize("kind", ROUTES)
@pytest.mark.parametrize(
    ("server", "sent", "missing"),
    [
        ("a", {}, "X-Tenant"),
        ("a", {"x-tenant": ""}, "X-Tenant"),
        ("b", {"x-tenant": "t"}, "Authorization"),
        ("b", {"authorization": "Bearer 4711"}, "X-Tenant"),
    ],
)
def test_a_request_without_a_header_it_must_have_is_refused(
    kind: str, server: str, sent: dict[str, str], missing: str
) -> None:
    refused = routed(kind, server, *sent.items())
    assert isinstance(refused, Refused)
    assert refused.status == 400
    assert f"got no {missing} header".encode() in refused.body
    assert b'"jsonrpc": "2.0"' in refused.body
    assert b"4711" not in refused.body


def test_lines_of_one_header_become_one() -> None:
    assert passed((b"x-key", b"1"), (b"x-a", b"?"), (b"x-key", b"2")) == (("X-Upstream-Key", "1, 2"),)
    assert passed((b"cookie", b"a=1"), (b"cookie", b"b=2")) == (("Cookie", "a=1; b=2"),)
    assert passed((b"x-key", b""), (b"cookie", b"")) == ()


def test_two_credentials_are_refused() -> None:
    """Two readers could believe different ones."""
    with pytest.raises(RemoteProtocolError, match="two Authorization headers") as refused:
        passed((b"authorization", b"Bearer 4711"), (b"authorization", b"Bearer 4712"))
    assert "471" not in refused.value.message


@pytest.mark.parametrize("value", [b"4711\r\nx: y", b"4711\0", b"\x7f4711", b" 4711", b"4711\t"])
def test_a_value_that_no_header_can_carry_is_refused_and_not_shown(value: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="X-Upstream-Key") as refused:
        passed((b"x-key", value))
    assert refused.value.http_status == 400
    assert "4711" not in refused.value.message


def test_required_headers_are_found_in_any_spelling() -> None:
    check_required(((b"x-tenant", b"t"),), ("X-TENANT",))
    check_required((), ())


OTHERS = (b"proxy-authorization", b"trailer", b"content-encoding", b"sec-websocket-key", b"range")


@pytest.mark.parametrize("name", sorted({*PROTOCOL_HEADERS, *FRAMING_HEADERS, *OTHERS}))
def test_headers_of_one_hop_or_of_the_protocol_are_never_forwarded(name: bytes) -> None:
    assert not may_pass(name.decode())
    assert not may_pass(name.decode().upper())


@pytest.mark.parametrize("name", ["Authorization", "cookie", "X-Api-Key", "traceparent", "Origin", "User-Agent"])
def test_other_headers_may_be_forwarded(name: str) -> None:
    assert may_pass(name)


NAMES = st.sampled_from(["authorization", "cookie", "x-key", "x-a", "x-b", "proxy-authorization", "forwarded"])
VALUES = st.binary(max_size=12)


@given(
    headers=st.lists(st.tuples(NAMES.map(str.encode), VALUES)),
    passes=st.lists(st.tuples(NAMES, st.sampled_from(["X-1", "x-2", "Authorization"])), max_size=3),
)
def test_forwarded_headers_hold_listed_values_only(
    headers: list[tuple[bytes, bytes]], passes: list[tuple[str, str]]
) -> None:
    """A model takes whatever a client sends; a request can always be made of the forwarded headers."""
    try:
        found = passed_headers(tuple(headers), tuple(passes))
    except RemoteProtocolError:
        return
    expected = []
    for name, sent in passes:
        values = [value for other, value in headers if other == name.encode() and value]
        if values:
            expected.append((sent, (b"; " if name == "cookie" else b", ").join(values).decode("latin-1")))
    assert list(found) == expected
    request_for(Post("s", b"{}", headers=found))
