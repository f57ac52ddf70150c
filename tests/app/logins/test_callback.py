"""The redirect URI: what a browser gets there, and what the login gets of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest
from isthmus.app.logins.callback import HEAD_MAX_BYTES, WAITING_MAX, listening
from isthmus.core.logins.requests import LoginFailed

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
async def patience(anyio_backend: str) -> AsyncIterator[None]:
    with anyio.fail_after(PATIENCE_S):
        yield


async def visit(port: int, head: bytes) -> bytes:
    """Sends a request, and returns all that comes back."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(head)
        found = b""
        try:
            while True:
                found += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return found


async def test_the_query_of_a_visit_is_given_on_and_not_shown() -> None:
    async with listening(0) as callback:
        page = await visit(callback.port, b"GET /callback?code=x%20y&state=z HTTP/1.1\r\nhost: a\r\n\r\n")
        assert page.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"referrer-policy: no-referrer" in page
        assert b"code" not in page
        assert await callback.query() == "code=x%20y&state=z"
        await visit(callback.port, b"GET /callback HTTP/1.1\r\n\r\n")
        assert await callback.query() == ""


@pytest.mark.parametrize(
    "line",
    [b"GET / HTTP/1.1", b"GET /callbacks?a HTTP/1.1", b"POST /callback?a HTTP/1.1", b"GET /callback?\xff HTTP/1.1"],
)
async def test_another_visit_is_none(line: bytes) -> None:
    async with listening(0) as callback:
        assert (await visit(callback.port, line + b"\r\n\r\n")).startswith(b"HTTP/1.1 404 ")
        await visit(callback.port, b"GET /callback?this HTTP/1.1\r\n\r\n")
        assert await callback.query() == "this"


async def test_a_head_that_is_too_long_is_not_answered() -> None:
    async with listening(0) as callback:
        assert await visit(callback.port, b"GET /callback?" + b"a" * HEAD_MAX_BYTES) == b""


async def test_so_many_visits_wait_to_be_judged() -> None:
    async with listening(0) as callback:
        for number in range(WAITING_MAX + 1):
            page = await visit(callback.port, b"GET /callback?%d HTTP/1.1\r\n\r\n" % number)
            assert page.startswith(b"HTTP/1.1 200 ")
        assert [await callback.query() for _ in range(WAITING_MAX)] == [str(number) for number in range(WAITING_MAX)]
        await visit(callback.port, b"GET /callback?later HTTP/1.1\r\n\r\n")
        assert await callback.query() == "later"


async def test_a_head_may_come_in_pieces_beside_another() -> None:
    async with listening(0) as callback, await anyio.connect_tcp("127.0.0.1", callback.port) as stream:
        await stream.send(b"GET /callback?slow HTTP/1.1\r")
        await visit(callback.port, b"GET /callback?quick HTTP/1.1\r\n\r\n")
        await stream.send(b"\n\r\n")
        assert await callback.query() == "quick"
        assert await callback.query() == "slow"


async def test_a_port_that_is_taken_is_told() -> None:
    async with listening(0) as callback:
        with pytest.raises(OSError):
            async with listening(callback.port):
                pass


async def test_the_error_of_a_login_comes_through_as_it_is() -> None:
    with pytest.raises(LoginFailed, match="refused"):
        async with listening(0):
            raise LoginFailed("refused")
