"""Tests of cookies in the HTTP client: those that servers set, and those that requests carry."""

from __future__ import annotations

import pytest
from client_dialer import ANSWER, DONE, NOW, dialer, reply
from client_fakes import WITH_BOTH_DRIVERS, Peer, serving
from client_fakes import anyio_backend as anyio_backend
from isthmus.core.base.effects import Delete, Listen, Post
from isthmus.core.base.events import Cause, Connected, End
from isthmus.transports.base.endpoint import Endpoint

pytestmark = [pytest.mark.anyio, WITH_BOTH_DRIVERS]


def cookie_lines(request: bytes) -> list[bytes]:
    return [line for line in request.split(b"\r\n") if line.lower().startswith(b"cookie:")]


async def test_set_cookies_are_reported_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(reply(ANSWER, b"200 OK", b"Set-Cookie: a=1; Path=/", b"set-cookie: b=; Max-Age=0"))
        await peer.request()
        await peer.send(reply(b"", b"404 Not Found", b"Set-Cookie: c=3", b"Set-Cookie: d=4; Secure"))
        await peer.request()
        await peer.send(reply(b"", b"202 Accepted", b"Set-Cookie: e=5; Domain=elsewhere"))

    async with serving(script) as server, dialer() as dial:
        changes = (("a", "1"), ("b", None))
        assert await dial.exchange(server.endpoint) == [Connected(None, changes, 200), ANSWER, DONE]
        (cause,) = await dial.exchange(server.endpoint, Delete("s", "sid"))
        assert isinstance(cause, Cause) and cause.end is End.REFUSED and cause.cookies == (("c", "3"),)
        assert await dial.exchange(server.endpoint) == [Connected(status=202), DONE]


async def test_each_request_takes_its_own() -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(reply(b"", b"405 Not Allowed"))

    async with serving(script) as server, dialer() as dial:
        endpoint = Endpoint(server.url, (("Cookie", "own=0; a=2"),))
        await dial.exchange(server.endpoint, Post("s", b"{}", cookies=(("a", "1"), ("b", "2"))))
        await dial.exchange(server.endpoint, Listen("s"))
        await dial.exchange(endpoint, Listen("s", cookies=(("a", "1"), ("b", "2"))))
    assert [cookie_lines(request) for request in server.requests] == [
        [b"cookie: a=1; b=2"],
        [],
        [b"cookie: own=0; a=2; b=2"],
    ]


async def test_cookies_of_a_redirect_are_sent_to_its_target_and_reported() -> None:
    """Load balancers set cookies with a redirect, to bring a browser to the right server before its request."""

    async def script(peer: Peer) -> None:
        await peer.request()
        place = [b"Location: /mcp/", b"Set-Cookie: lb=2", b"Set-Cookie: old=; Max-Age=0"]
        await peer.send(reply(b"", b"307 Temporary Redirect", *place))
        await peer.request()
        await peer.send(reply(ANSWER, b"200 OK", b"Set-Cookie: s=3"))

    async with serving(script) as server, dialer() as dial:
        endpoint = Endpoint(server.url, (("Cookie", "own=0"),))
        reports = await dial.exchange(endpoint, Post("s", NOW.message, cookies=(("lb", "1"), ("old", "x"))))
    assert reports == [Connected(None, (("lb", "2"), ("old", None), ("s", "3")), 200), ANSWER, DONE]
    first, second = server.requests
    assert cookie_lines(first) == [b"cookie: own=0; lb=1; old=x"]
    assert cookie_lines(second) == [b"cookie: own=0; lb=2"]
    assert second.endswith(b"\r\n\r\n" + NOW.message)
