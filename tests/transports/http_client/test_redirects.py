"""Tests of redirects in the HTTP client."""

from __future__ import annotations

import anyio
import pytest
from client_dialer import ANSWER, DONE, LIMITS, NOW, dialer, reply
from client_fakes import WITH_BOTH_DRIVERS, Peer, serving, until
from client_fakes import anyio_backend as anyio_backend
from isthmus.core.base.effects import Close, Delete, Listen, Post
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.http_client.connection import WRITE_SIZE_BYTES

pytestmark = [pytest.mark.anyio, WITH_BOTH_DRIVERS]

ANSWERED = [Connected(status=200), ANSWER, DONE]


def moved(location: bytes, status: bytes = b"307 Temporary Redirect", *headers: bytes) -> bytes:
    return reply(b"", status, b"Location: " + location, *headers)


def asked(request: bytes) -> bytes:
    """Method and target."""
    return request.split(b" HTTP/1.1\r\n")[0]


@pytest.mark.parametrize("status", [b"307 Temporary Redirect", b"308 Permanent Redirect"])
@pytest.mark.parametrize("target", [NOW, Post("s", b"{}", "sid", "2025-06-18"), Delete("s", "sid")])
async def test_the_same_request_is_made_where_it_leads(status: bytes, target: Post | Delete) -> None:
    """Headers and body stay the same, and so does the connection where it can be used."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(moved(b"/mcp/?a=b", status))
        await peer.request()
        await peer.send(reply())

    async with serving(script) as server, dialer() as dial:
        reports = await dial.exchange(Endpoint(server.url, (("Authorization", "Bearer x"),)), target)
    assert reports == (ANSWERED if isinstance(target, Post) else [Connected(status=200), DONE])
    first, second = server.requests
    assert second == first.replace(b" /mcp?a=b ", b" /mcp/?a=b ") != first
    assert b"authorization: Bearer x" in second
    assert server.connections == 1


async def test_a_stream_is_opened_where_it_leads() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(moved(b"/mcp/"))
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n")

    async with serving(script) as server, dialer() as dial:
        assert (await dial.exchange(server.endpoint, Listen("s", "sid", last_event_id="7")))[:2] == [
            Connected(status=200),
            b"{}",
        ]
    assert asked(server.requests[1]) == b"GET /mcp/"
    assert b"last-event-id: 7\r\n" in server.requests[1]


@pytest.mark.parametrize(
    ("location", "status", "targets"),
    [
        (b"/mcp/?a=b", b"307 Temporary Redirect", [b"/mcp?a=b", b"/mcp/?a=b", b"/mcp/?a=b", b"/mcp/?a=b"]),
        (b"/v2", b"308 Permanent Redirect", [b"/mcp?a=b", b"/v2", b"/v2", b"/v2"]),
        (b"/v2", b"307 Temporary Redirect", [b"/mcp?a=b", b"/v2"] * 3),
    ],
)
async def test_what_is_meant_for_good_is_asked_for_directly(
    location: bytes, status: bytes, targets: list[bytes]
) -> None:
    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            await peer.send(moved(location, status) if asked(request) == b"POST /mcp?a=b" else reply())

    async with serving(script) as server, dialer() as dial:
        for _ in range(3):
            assert await dial.exchange(server.endpoint) == ANSWERED
        assert await dial.exchange(Endpoint(server.url + "&c=d")) == ANSWERED  # each endpoint has its own memory
    assert [asked(request).removeprefix(b"POST ") for request in server.requests] == [*targets, b"/mcp?a=b&c=d"]


@pytest.mark.parametrize(
    "personal",
    [Post("s", b"{}", "sid"), Post("s", b"{}", headers=(("X-Key", "mine"),)), Post("s", b"{}", cookies=(("a", "1"),))],
)
async def test_a_redirect_of_one_client_does_not_apply_to_others(personal: Post) -> None:
    """A redirect of a request with a session, headers or cookies of a client is not remembered for others: a server
    may have a path for each of its tenants."""

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            is_theirs = asked(request) == b"POST /mcp?a=b" and request.endswith(b"{}")
            await peer.send(moved(b"/tenant", b"308 Permanent Redirect") if is_theirs else reply())

    async with serving(script) as server, dialer() as dial:
        for target in (personal, NOW):
            assert await dial.exchange(server.endpoint, target) == ANSWERED
    assert [asked(request)[5:] for request in server.requests] == [b"/mcp?a=b", b"/tenant", b"/mcp?a=b"]


async def test_a_redirect_to_a_vanished_place_is_forgotten() -> None:
    gone: set[bytes] = set()

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if asked(request) == b"POST /mcp?a=b" and not gone:
                await peer.send(moved(b"/v2", b"308 Permanent Redirect"))
            else:
                await peer.send(reply(b"", b"404 Not Found") if asked(request) in gone else reply())

    async with serving(script) as server, dialer() as dial:
        assert await dial.exchange(server.endpoint) == ANSWERED
        gone.add(b"POST /v2")
        (cause,) = await dial.exchange(server.endpoint)
        assert isinstance(cause, Cause) and cause.status == 404
        assert await dial.exchange(server.endpoint) == ANSWERED
    assert [asked(request)[5:] for request in server.requests] == [b"/mcp?a=b", b"/v2", b"/v2", b"/mcp?a=b"]


@pytest.mark.parametrize("target", [Listen("s", "sid"), Delete("s", "sid")])
async def test_a_redirect_is_kept_after_a_405(target: Listen | Delete) -> None:
    async def script(peer: Peer) -> None:
        while True:
            verb, path = asked(await peer.request()).split()
            refusal = reply(b"", b"405 Method Not Allowed")
            await peer.send(moved(b"/mcp/?a=b") if path == b"/mcp?a=b" else reply() if verb == b"POST" else refusal)

    async with serving(script) as server, dialer() as dial:
        assert await dial.exchange(server.endpoint) == ANSWERED
        await dial.exchange(server.endpoint, target)
        assert await dial.exchange(server.endpoint) == ANSWERED
    assert [asked(request).split()[1] for request in server.requests] == [b"/mcp?a=b", *[b"/mcp/?a=b"] * 3]


async def test_a_circle_is_left() -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(moved(b"/mcp"))

    async with serving(script) as server, dialer(Limits(redirects_max=3)) as dial:
        (cause,) = await dial.exchange(server.endpoint)
    assert cause == Cause(End.REFUSED, "got more than 3 redirects in a row", 307)
    assert len(server.requests) == 4


async def test_nothing_is_sent_to_another_origin() -> None:
    async def elsewhere(peer: Peer) -> None:
        await peer.request()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(moved(b"http://127.0.0.1:%d/mcp?secret" % other.port))

    async with serving(elsewhere) as other, serving(script) as server, dialer() as dial:
        (cause,) = await dial.exchange(server.endpoint)
        assert isinstance(cause, Cause) and cause.end is End.REFUSED
        seen, right = f"http://127.0.0.1:{other.port}", f"http://127.0.0.1:{server.port}"
        assert cause.detail == (
            f"got a redirect (HTTP status 307) to {seen}, not followed: it leaves {right}, which alone credentials "
            "are for; expected the final URL"
        )
        assert other.connections == 0


async def test_a_server_that_closes_with_its_redirect_is_asked_on_a_new_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(reply() if peer.number else moved(b"/v2", b"307 T", b"Connection: close"))

    async with serving(script) as server, dialer() as dial:
        assert await dial.exchange(server.endpoint) == ANSWERED
    assert server.connections == 2


async def test_a_redirect_need_not_be_read_to_its_end() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        if peer.number == 0:
            await peer.send(b"HTTP/1.1 307 T\r\nLocation: /v2\r\nContent-Length: 10\r\n\r\nx")
            await peer.wait_gone()
        await peer.send(reply())

    async with serving(script) as server, dialer() as dial:
        assert await dial.exchange(server.endpoint) == ANSWERED
    assert server.connections == 2


async def test_a_body_of_which_nobody_took_the_rest_is_sent_whole() -> None:
    size = 64 * WRITE_SIZE_BYTES

    async def script(peer: Peer) -> None:
        if peer.number == 0:
            await peer.stream.receive()
            await peer.send(moved(b"/v2"))
            with anyio.CancelScope(shield=True):
                await until(lambda: server.connections == 2)
        else:
            await peer.request()
            await peer.send(reply())

    async with serving(script) as server, dialer() as dial:
        assert await dial.exchange(server.endpoint, Post("s", b"x" * size)) == ANSWERED
    (request,) = server.requests
    assert asked(request) == b"POST /v2" and request.endswith(b"\r\n\r\n" + b"x" * size)


@pytest.mark.parametrize("limit", [1, 2])
async def test_with_every_connection_busy_it_waits_for_its_own(limit: int) -> None:
    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            await peer.send(reply() if asked(request) == b"POST /v2" else moved(b"/v2"))

    limits = Limits(upstream_connections_max=limit)
    async with serving(script) as server, dialer(limits) as dial:
        dial(server.endpoint), dial(server.endpoint)
        assert [await dial.port.until_closed(channel) for channel in (1, 2)] == [ANSWERED, ANSWERED]
    assert server.connections <= limit


async def test_a_request_that_did_not_get_there_did_not_run() -> None:
    """The outcome of the redirected request counts, not the redirect."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(moved(b"/v2"))
        await peer.request()

    async with serving(script) as server, dialer() as dial:
        (cause,) = await dial.exchange(server.endpoint)
    assert cause == Cause(End.BROKEN, "the connection ended before a response", stale=True)


async def test_a_request_given_up_is_made_no_more() -> None:
    taken = anyio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(moved(b"/v2"))
        await peer.request()
        taken.set()
        await peer.wait_gone()

    async with serving(script) as server, dialer(LIMITS) as dial:
        outlet = dial(server.endpoint)
        await taken.wait()
        outlet.close(Close(ChannelId(1)))
        assert await dial.port.until_closed(1) == [DONE]
        await server.wait_gone(0)
