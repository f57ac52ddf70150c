"""Tests of the edges of HTTP/1.1 and of CORS: the answers of the listener to odd clients and pages."""

from __future__ import annotations

import anyio
import pytest
from event_loop_clock import EventLoopClock
from http_fakes import LIMIT_S, SURFACE, World, get, post, world
from http_fakes import anyio_backend as anyio_backend
from isthmus.core.base.effects import Close, Send
from isthmus.core.base.events import End, GetOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.wire.http.routes import Surface
from isthmus.transports.base.port import Outlet

pytestmark = pytest.mark.anyio

ONE = ChannelId(1)
PAGE = "Origin: http://localhost:6274"
ALLOWED = b"http://localhost:6274"
LINES = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


def echo(channel: ChannelId, message: bytes, outlet: Outlet) -> None:
    outlet.send(Send(channel, message, is_last=True))


async def is_usable(w: World) -> bool:
    await w.client.send(get("/healthz"))
    return (await w.client.read("GET")).body == b"fine\n"


# --- CORS -----------------------------------------------------------------------------------------------------------


async def test_a_page_asks_then_calls_and_reads_the_answer() -> None:
    async with world() as w:
        w.port.on_message = echo
        asked = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type,mcp-session-id")
        await w.client.send(get("/mcp", PAGE, *asked, method="OPTIONS"))
        answer = await w.client.read("OPTIONS")
        assert (answer.status, answer.body) == (204, b"")
        assert answer.headers[b"access-control-allow-origin"] == ALLOWED
        assert answer.headers[b"access-control-allow-methods"] == b"GET, POST, DELETE"
        assert answer.headers[b"access-control-allow-headers"] == b"content-type, mcp-session-id"
        assert answer.headers[b"access-control-max-age"] == b"600"
        assert answer.headers[b"vary"] == b"Origin"
        assert b"content-length" not in answer.headers and b"connection" not in answer.headers
        assert not w.port.openings
        await w.client.send(post(b"1", PAGE))
        answer = await w.client.read()
        assert (answer.status, answer.body) == (200, b"1")
        assert answer.headers[b"access-control-allow-origin"] == ALLOWED
        assert answer.headers[b"vary"] == b"Origin"
        assert answer.headers[b"access-control-expose-headers"].startswith(b"Mcp-Session-Id, ")


async def test_pages_can_read_errors_and_event_streams() -> None:
    async with world(Limits(request_size_max_bytes=10)) as w:
        for request, method, status in (
            (get("/nothing", PAGE), "GET", 404),
            (get("/mcp", PAGE, method="PUT"), "PUT", 405),
            (get("/healthz", PAGE), "GET", 200),
            (post(b"x" * 11, PAGE), "POST", 413),
        ):
            await w.client.send(request)
            answer = await w.client.read(method)
            assert (answer.status, answer.headers[b"access-control-allow-origin"]) == (status, ALLOWED)
        await w.client.send(get("/mcp", PAGE))
        answer = await w.client.read_head("GET")
        assert answer.headers[b"content-type"] == b"text/event-stream"
        assert answer.headers[b"access-control-allow-origin"] == ALLOWED


async def test_foreign_pages_get_no_cors_headers() -> None:
    async with world() as w:
        w.port.on_message = echo
        await w.client.send(post(b"1", PAGE) + post(b"2"))
        await w.client.read()
        answer = await w.client.read()
        assert not [name for name in answer.headers if name.startswith(b"access-control") or name == b"vary"]
        for origin in ("null", "http://evil.example", "http://localhost:x", "*"):
            for method in ("GET", "OPTIONS"):
                lines = (f"Origin: {origin}", "Access-Control-Request-Method: POST")
                await w.client.send(get("/mcp", *lines, method=method))
                answer = await w.client.read(method)
                assert answer.status == 403
                assert not [name for name in answer.headers if name.startswith(b"access-control")]


# --- HTTP/1.1 -------------------------------------------------------------------------------------------------------


async def test_requests_behind_an_event_stream_wait_for_its_end() -> None:
    async with world() as w:
        w.port.on_message = echo
        await w.client.send(get() + get("/healthz") + post(b"2"))
        assert (await w.client.read_head("GET")).status == 200
        await anyio.wait_all_tasks_blocked()
        assert [type(opening) for opening in w.port.openings.values()] == [GetOpening]
        w.port.outlets[ONE].send(Send(ONE, b"event"))
        assert await w.client.read_piece() == b"event: message\ndata: event\n\n"
        w.port.outlets[ONE].close(Close(ONE))
        assert await w.client.read_piece() is None
        assert (await w.client.read("GET")).body == b"fine\n"
        assert (await w.client.read()).body == b"2"


async def test_head_of_a_page_and_of_the_endpoint() -> None:
    async with world() as w:
        await w.client.send(get("/healthz", method="HEAD") + get("/mcp", method="HEAD"))
        page, endpoint = await w.client.read("HEAD"), await w.client.read("HEAD")
        assert (page.status, page.body, page.headers[b"content-length"]) == (200, b"", b"5")
        assert (endpoint.status, endpoint.body) == (405, b"")
        assert endpoint.headers[b"allow"] == b"GET, POST, DELETE"
        assert await is_usable(w)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "BREW", "get", "CONNECT", "TRACE"])
async def test_methods_without_a_meaning_are_not_allowed(method: str) -> None:
    async with world() as w:
        for path, allowed in (("/mcp", b"GET, POST, DELETE"), ("/healthz", b"GET, HEAD")):
            await w.client.send(get(path, method=method))
            answer = await w.client.read("PUT")
            assert (answer.status, answer.headers[b"allow"]) == (405, allowed)
        assert await is_usable(w)


async def test_targets_in_other_forms() -> None:
    async with world() as w:
        for target, method, status in (
            ("http://localhost:8932/healthz", "GET", 200),
            ("http://evil.example/info", "GET", 403),
            ("*", "OPTIONS", 204),
            ("*", "GET", 400),
            ("localhost:8932", "CONNECT", 400),
            ("healthz", "GET", 400),
        ):
            await w.client.send(get(target, method=method))
            answer = await w.client.read("GET" if method == "CONNECT" else method)
            assert answer.status == status, target
        assert await is_usable(w)


async def test_an_unknown_expectation_is_not_met() -> None:
    async with world() as w:
        await w.client.send(post(b"1", "Expect: the-unexpected"))
        answer = await w.client.read()
        assert (answer.status, answer.informational) == (417, [])
        assert not w.port.openings
        assert await is_usable(w)


async def test_an_old_client_never_gets_100_continue() -> None:
    async with world() as w:
        w.port.on_message = echo
        await w.client.send(post(b"1", "Expect: 100-continue").replace(b"HTTP/1.1", b"HTTP/1.0"))
        answer = await w.client.read()
        assert (answer.status, answer.body, answer.informational) == (200, b"1", [])


async def test_an_old_client_gets_an_event_stream_without_chunks() -> None:
    async with world() as w:
        await w.client.send(get().replace(b"HTTP/1.1", b"HTTP/1.0"))
        await w.port.wait_open()
        w.port.outlets[ONE].send(Send(ONE, b"event"))
        w.port.outlets[ONE].close(Close(ONE))
        raw = (await w.client.read_eof()).lower()
        assert b"transfer-encoding" not in raw and b"connection: close" in raw
        assert raw.endswith(b"\r\n\r\nevent: message\ndata: event\n\n")


@pytest.mark.parametrize("cut", [None, 1])
async def test_trailers_are_read_and_mean_nothing(cut: int | None) -> None:
    request = post(b"12", chunked=True)[: -len(b"\r\n")] + b"Mcp-Session-Id: stolen\r\n\r\n"
    async with world() as w:
        w.port.on_message = echo
        await w.client.send(request + request, cut=cut)
        assert [(await w.client.read()).body for _ in range(2)] == [b"12", b"12"]
        assert {opening.session for opening in w.port.openings.values()} == {None}  # type: ignore[union-attr]


@pytest.mark.parametrize("part", [b"POST /mcp HT", post(b"{}")[:60], post(b"{}")[:-1], post(b"{}", chunked=True)[:-3]])
async def test_a_request_whose_client_leaves_within_it_is_dropped(part: bytes) -> None:
    async with world() as w:
        await w.client.send(part)
        await anyio.wait_all_tasks_blocked()
        await w.client.stream.send_eof()
        assert await w.client.read_eof() == b""
        assert not w.port.openings


@pytest.mark.parametrize(
    "request_bytes, status",
    [
        (LINES + b"X: a\r\n b\r\n\r\n", 400),
        (LINES + b"X: a\r\n\tb\r\n\r\n", 400),
        (LINES.replace(b"\r\n", b"\n") + b"\n", 400),
        (LINES + b"X: a\n\r\n", 400),
        (LINES + b"X: a\r\n\n", 400),
        (b"GET /healthz HTTP/1.1\r\n folded: first\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /heal\rthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (LINES + b"X: a\rb\r\n\r\n", 400),
        (LINES + b"X: a\x00b\r\n\r\n", 400),
        (LINES + b"X : a\r\n\r\n", 400),
        (LINES + b"Host: localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET  /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        (LINES.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (LINES + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (LINES + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
        (LINES + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (LINES + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (LINES + b"Content-Length: +1\r\n\r\na", 400),
        (LINES + b"Content-Length: 1, 1\r\n\r\na", 400),
    ],
)
async def test_odd_heads(request_bytes: bytes, status: int) -> None:
    """A head that can be read in two ways is refused, and the connection ends there. Nothing behind it is taken for
    a request."""
    async with world() as w:
        await w.client.send(request_bytes + get("/healthz"))
        assert_refused(await w.client.read_eof(), status)


def assert_refused(raw: bytes, status: int) -> None:
    assert raw.startswith(b"HTTP/1.1 %d " % status) and raw.count(b"HTTP/1.1 ") == 1
    assert b"\r\nconnection: close\r\n" in raw.lower()


@pytest.mark.parametrize("cut", [None, 1])
@pytest.mark.parametrize(
    "body",
    [
        b"1\n1\n0\n\n",
        b"1\r\n1\n0\r\n\r\n",
        b"1\r\n1\r\n0\r\n\n",
        b"1 \r\n1\r\n0\r\n\r\n",
        b"+1\r\n1\r\n0\r\n\r\n",
        b"1;\r\n1\r\n0\r\n\r\n",
        b"1;a=\0\r\n1\r\n0\r\n\r\n",
        b"1;a\nb\r\n1\r\n0\r\n\r\n",
        b"1;a\r\n1\r\n0\r\nX: a\n\r\n",
        b"1\r\n1\r\n0\r\nX: a\n\n",
        b"1\r\n1\r\n0\r\nX: a\r\n b\r\n\r\n",
        b"1\r\n1\r\n0\r\n a\r\n\r\n",
        b"1\r\n1\r\n0\r\nX : a\r\n\r\n",
    ],
)
async def test_odd_chunks(body: bytes, cut: int | None) -> None:
    """A chunked body that can be read in two ways is refused like such a head."""
    head = post(b"", chunked=True).removesuffix(b"0\r\n\r\n")
    async with world() as w:
        await w.client.send(head + body + get("/healthz"), cut=cut)
        assert_refused(await w.client.read_eof(), 400)
        assert not w.port.openings


async def test_extensions_and_trailers_are_passed_over() -> None:
    head = post(b"", chunked=True).removesuffix(b"0\r\n\r\n")
    async with world() as w:
        w.port.on_message = echo
        await w.client.send(head + b'1;a;b=c;d="\\"; x"\r\n1\r\n0;e\r\nX: a\r\nY:\r\n\r\n')
        assert (await w.client.read()).body == b"1"
        assert await is_usable(w)


@pytest.mark.parametrize("cut", [None, 1, 3])
@pytest.mark.parametrize("between", [b"\r\n", b"\r\n\r\n", b"\n"])
async def test_empty_lines_before_a_request_are_skipped(cut: int | None, between: bytes) -> None:
    async with world() as w:
        w.port.on_message = echo
        await w.client.send(between + post(b"1") + between + post(b"2") + between, cut=cut)
        assert [(await w.client.read()).body for _ in range(2)] == [b"1", b"2"]
        await w.client.send(between)
        assert await is_usable(w)


async def test_empty_lines_alone_keep_no_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = EventLoopClock(monkeypatch)
    async with world(Limits(idle_connection_timeout_s=LIMIT_S)) as w:
        await clock.set_forward(LIMIT_S / 2)
        await w.client.send(b"\r\n" * 5)
        await clock.set_forward(LIMIT_S / 2)
        assert await w.client.read_eof() == b""


@pytest.mark.parametrize("cut", [None, 900])
@pytest.mark.parametrize("is_in_target", [True, False])
async def test_a_long_target_is_distinguished_from_a_long_head(cut: int | None, is_in_target: bool) -> None:
    long = "x" * 3000
    request = get(f"/healthz?{long}", "X: y") if is_in_target else get("/healthz", f"X: {long}")
    async with world(Limits(head_size_max_bytes=2000)) as w:
        await w.client.send(request, cut=cut)
        answer = await w.client.read("GET")
        assert (answer.status, answer.headers[b"connection"]) == (414 if is_in_target else 431, b"close")


async def test_a_request_with_both_framings_is_refused_to_the_mcp_endpoint_as_well() -> None:
    async with world() as w:
        await w.client.send(post(b"1", "Transfer-Encoding: chunked"))
        raw = await w.client.read_eof()
        assert raw.startswith(b"HTTP/1.1 400 ") and not w.port.openings


async def test_a_page_of_a_foreign_host_is_refused_whatever_it_asks() -> None:
    """A foreign name that resolves to this machine (DNS rebinding) does not make its pages trusted."""
    surface = Surface(("files",), SURFACE.hosts, frozenset(), any_host=True)
    async with world(surface=surface) as w:
        request = get("/mcp", "Origin: http://evil.example").replace(b"localhost", b"evil.example")
        await w.client.send(request)
        assert (await w.client.read("GET")).status == 403


async def test_connection_close_ends_it_whatever_was_sent_behind() -> None:
    async with world() as w:
        w.port.on_message = echo
        await w.client.send(post(b"1", "Connection: close") + post(b"2"))
        raw = await w.client.read_eof()
        assert raw.count(b"HTTP/1.1 200") == 1 and raw.endswith(b"1")
        assert await w.port.wait_closed(1) is End.DONE
        assert len(w.port.openings) == 1
