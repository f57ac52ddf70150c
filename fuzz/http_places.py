"""Servers and clients name any URLs and paths: no request goes to another origin, or out of the configured URL.

The first byte says what the rest is: a configured URL, the Location of a redirect, a URI that a transparent server
names, a path that a client requests of it, a request target, or the event stream of a transparent server. Accepted
outcomes: a refusal; or a URL in visible ASCII that the standard library finds to be of the same origin.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urljoin, urlsplit

from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.wire.http.endpoint_rewrite import EndpointRewriter
from isthmus.core.wire.http.redirects import Redirect, judge_redirect
from isthmus.core.wire.http.request_target import decode_segment, parse_query, split_target
from isthmus.core.wire.http.reverse_proxy_target import ForwardTarget
from isthmus.core.wire.http.url import DEFAULT_PORTS, parse_url

BASE = "http://up.example:8080/base/mcp"
FORWARD_TARGETS = (
    ForwardTarget("raw", BASE, b"key of this target"),
    ForwardTarget("raw", f"{BASE}?own=1", b"key of this target", "/public"),
    ForwardTarget("raw", "http://up.example", b"key of this target"),
)
VISIBLE = re.compile(r"[!-~]+")


def check_url(text: str) -> None:
    try:
        address = parse_url(text)
    except ValueError as error:
        assert str(error).startswith("got ")
        return
    parts = urlsplit(text)
    assert address.scheme == parts.scheme
    assert address.host.lower() == (parts.hostname or "").lower()
    assert address.port == (parts.port or DEFAULT_PORTS[address.scheme])
    assert VISIBLE.fullmatch(address.target.decode())
    assert address.target.startswith(b"/")
    again = parse_url(f"{address.scheme}://{address.authority.decode()}{address.target.decode()}")
    assert again == address


def check_redirect(location: bytes) -> None:
    address = parse_url(BASE)
    for status in (200, 301, 307, 308):
        judged = judge_redirect(address, b"/base/mcp?a=b", status, [(b"Location", location)])
        if isinstance(judged, Redirect):
            assert status in (307, 308)
            there = urlsplit(urljoin(BASE + "?a=b", location.strip().decode("ascii")))
            assert (there.scheme, there.hostname, there.port) == ("http", "up.example", 8080)
            assert VISIBLE.fullmatch(judged.target.decode())
            assert judged.target.startswith(b"/")
        elif judged is not None:
            assert judged.isprintable()


def check_named(uri: str) -> None:
    """Checks that the public URL that a client gets for a URI which the server names leads to that URI."""
    for forward_target in FORWARD_TARGETS:
        requested = forward_target.to_upstream("/x", "")
        try:
            public = forward_target.to_client(uri, requested)
        except RemoteProtocolError:
            continue
        assert VISIBLE.fullmatch(public)
        path, _, query = public.removeprefix(forward_target.public_path).removeprefix("/mcp/raw").partition("?")
        meant = urlsplit(urljoin(urljoin(forward_target.base_url, requested.decode()), uri))
        target = forward_target.to_upstream(path, query).decode()
        assert target == (meant.path or "/") + (f"?{meant.query}" if meant.query else "")
        headers = ((b"location", uri.encode()), (b"content-location", uri.encode()))
        for _, value in forward_target.relocate(headers, requested):
            assert not re.search(rb"[\r\n]", value)


def check_asked(text: str) -> None:
    """Checks that a path without a signature stays below the configured URL."""
    rest, _, query = text.partition("?")
    for forward_target in FORWARD_TARGETS:
        target = forward_target.to_upstream(rest if rest.startswith("/") else "/" + rest, query).decode()
        base = urlsplit(forward_target.base_url).path
        assert target.startswith(base.rstrip("/"))
        decoded = unquote(unquote(target.partition("?")[0]))
        assert not {".", ".."} & set(re.split(r"[/\\]", decoded))


def check_target(text: str) -> None:
    _, path, query = split_target(text)
    assert path.startswith("/")
    for segment in path.split("/"):
        try:
            decoded = decode_segment(segment)
        except RemoteProtocolError:
            continue
        assert not re.search(r"[/\x00-\x1f\x7f]", decoded)
    assert len(parse_query(query)) <= 32


def check_stream(stream: bytes) -> None:
    """Checks that bytes are forwarded unchanged but for the endpoint URI, however they are cut."""

    def passed(chunks: list[bytes]) -> tuple[bytes, bool]:
        rewriter = EndpointRewriter(lambda uri: FORWARD_TARGETS[0].to_client(uri, b"/base/mcp"))
        out = b"".join(map(rewriter.receive_bytes, chunks))
        return out + rewriter.receive_eof(), rewriter.failure is not None

    whole = passed([stream])
    middle = len(stream) // 2
    assert passed([stream[:middle], stream[middle:]]) == whole
    assert passed([stream[i : i + 1] for i in range(len(stream))]) == whole
    assert b"endpoint" in stream or whole == (stream, False)


def test_one_input(data: bytes) -> None:
    kind, rest = data[0] % 6 if data else 0, data[1:]
    text = re.sub(r"[^!-~]", "", rest.decode("latin-1"))  # the characters that a request line allows
    try:
        if kind == 0:
            check_url(rest.decode("utf-8", "replace"))
        elif kind == 1:
            check_redirect(rest)
        elif kind == 2:
            check_named(rest.decode("latin-1"))
        elif kind == 3:
            check_asked(text)
        elif kind == 4:
            check_target(text)
        else:
            check_stream(rest)
    except RemoteProtocolError as error:
        assert error.http_status in (400, 404)
