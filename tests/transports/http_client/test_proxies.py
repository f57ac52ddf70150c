"""Tests of servers behind an HTTP proxy: absolute-form for http, a tunnel (CONNECT) for https and WebSocket."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from client_dialer import ANSWER, DONE, answer_all, anyio_backend, dialer, in_order, reply
from client_fakes import Peer, ScriptedServer, serving
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.limits import Limits
from isthmus.core.wire.http.egress import parse_proxy
from isthmus.transports.base.dialer import Dialer, Unreachable
from isthmus.transports.base.endpoint import Endpoint
from proxy_fakes import ESTABLISHED, tunnel

__all__ = ["anyio_backend", "in_order"]
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("anyio_backend", ["protocols", "asyncio", "trio"], indirect=True),
]

SECRET = "c2VjcmV0OnBhc3M="  # secret:pass
Script = Callable[[Peer], object]


def through(proxy: ScriptedServer, url: str, *, ca_file: str | None = None, user: str = "") -> Endpoint:
    named = parse_proxy(f"http://{user}127.0.0.1:{proxy.port}", "HTTPS_PROXY")
    return Endpoint(url, ca_file=ca_file, proxy=named)


@pytest.mark.parametrize("only_h11", [True, False])
async def test_a_proxy_of_plain_http_is_told_the_whole_url(only_h11: bool) -> None:
    async with serving(answer_all) as proxy, dialer(only_h11=only_h11) as dial:
        endpoint = through(proxy, "http://server.invalid:81/mcp?x=1", user="secret:pass@")
        for _ in range(3):  # the third repeats a head that is encoded already
            assert await dial.exchange(endpoint) == [Connected(status=200), b'{"on":0}', DONE]
    assert proxy.connections == 1
    for request in proxy.requests:
        assert request.startswith(b"POST http://server.invalid:81/mcp?x=1 HTTP/1.1\r\n")
        lines = request.lower().split(b"\r\n")
        assert b"host: server.invalid:81" in lines
        assert f"proxy-authorization: basic {SECRET}".lower().encode() in lines


async def test_a_server_behind_tls_is_reached_through_a_tunnel(authority: Path, server_tls: ssl.SSLContext) -> None:
    async with serving(answer_all, server_tls) as server, serving(tunnel) as proxy, dialer() as dial:
        ca_file, url = str(authority / "ca.pem"), f"https://localhost:{server.port}/mcp"
        endpoint = through(proxy, url, ca_file=ca_file, user="secret:pass@")
        for _ in range(2):
            assert await dial.exchange(endpoint) == [Connected(status=200), b'{"on":0}', DONE]
        assert (await dial.exchange(Endpoint(url, ca_file=ca_file)))[-1] == DONE  # no connection is shared with that
        assert (proxy.connections, server.connections) == (1, 2)
        (connect,) = proxy.requests
        assert connect.startswith(b"CONNECT localhost:%d HTTP/1.1\r\n" % server.port)
        assert SECRET.encode() in connect
        assert [request for request in server.requests if SECRET.encode() in request] == []
        misnamed = through(proxy, f"https://server.invalid:{server.port}/mcp", ca_file=ca_file)
        cause = (await dial.exchange(misnamed))[-1]
        assert isinstance(cause, Cause) and "is for other names" in cause.detail


async def test_a_proxy_that_is_reached_over_tls(
    authority: Path, server_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    async with serving(answer_all, server_tls) as server, serving(tunnel, server_tls) as proxy, dialer() as dial:
        named = parse_proxy(f"https://localhost:{proxy.port}", "HTTPS_PROXY")
        endpoint = Endpoint(f"https://localhost:{server.port}/mcp", proxy=named)
        assert await dial.exchange(endpoint) == [Connected(status=200), b'{"on":0}', DONE]


async def test_a_websocket_goes_through_a_tunnel_without_tls_as_well() -> None:
    async def greet(peer: Peer) -> None:
        await peer.send(b"hello")
        await peer.wait_gone()

    async def late(peer: Peer) -> None:
        await peer.stream.receive()
        await greet(peer)

    async with serving(late) as server, serving(tunnel) as proxy:
        endpoint = through(proxy, f"ws://localhost:{server.port}/ws")
        stream = await Dialer(endpoint, endpoint.address(), Limits()).connect()
        async with stream:
            await stream.send(b"GET")
            assert await stream.receive() == b"hello"


def refusing(status: bytes, *headers: bytes) -> Callable[[Peer], object]:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"\r\n".join([b"HTTP/1.1 " + status, *headers, b"Content-Length: 0", b"", b""]))

    return script


async def garbage(peer: Peer) -> None:
    await peer.request()
    await peer.send(b"SSH-2.0-x\r\n\r\n")


async def silence(peer: Peer) -> None:
    await peer.request()


async def endless(peer: Peer) -> None:
    await peer.request()
    while True:
        await peer.send(b"HTTP/1.1 102 Processing\r\n\r\n" * 100)


async def eager(peer: Peer) -> None:
    await peer.request()
    await peer.send(ESTABLISHED + b"\x15\x03\x01")


@pytest.mark.parametrize("url", ["http://server.invalid/mcp", "https://server.invalid/mcp"])
async def test_a_proxy_that_wants_credentials_is_named(url: str) -> None:
    script = refusing(b"407 Proxy Authentication Required", b'Proxy-Authenticate: Basic realm="x"')
    async with serving(script) as proxy, dialer() as dial:  # type: ignore[arg-type]
        for user, words in (("", "wants a user"), ("secret:pass@", "refused the user")):
            cause = (await dial.exchange(through(proxy, url, user=user)))[-1]
            assert isinstance(cause, Cause) and (cause.end, cause.unsent) == (End.UNREACHABLE, True)
            assert words in cause.detail and "HTTPS_PROXY" in cause.detail and "secret" not in cause.detail


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (refusing(b"403 Forbidden"), "HTTP status 403; have it allowed there, correct HTTPS_PROXY, or name"),
        (refusing(b"502 Bad Gateway"), "does not connect to server.invalid: HTTP status 502"),
        (garbage, "does not answer CONNECT as a proxy would"),
        (silence, "does not answer CONNECT as a proxy would"),
        (endless, "head over the limit of "),
        (eager, "bytes behind the response"),
    ],
)
async def test_a_proxy_that_makes_no_tunnel_is_named(script: Callable[[Peer], object], words: str) -> None:
    async with serving(script) as proxy:  # type: ignore[arg-type]
        endpoint = through(proxy, "https://server.invalid/mcp")
        with pytest.raises(Unreachable) as refusal:
            await Dialer(endpoint, endpoint.address(), Limits()).connect()
        assert words in str(refusal.value)
        assert f"the proxy 127.0.0.1:{proxy.port}, which HTTPS_PROXY names" in str(refusal.value)


@pytest.mark.parametrize("url", ["http://server.invalid/mcp", "https://server.invalid/mcp"])
@pytest.mark.parametrize(
    ("proxy", "words"),
    [
        ("http://127.0.0.1:1", "connection refused by 127.0.0.1:1; is the proxy running?"),
        ("http://localhost:1", "connection refused by localhost:1; is the proxy running?"),
        ("http://proxy.invalid:1", "cannot resolve proxy.invalid"),
    ],
)
async def test_a_proxy_that_cannot_be_reached_is_named(url: str, proxy: str, words: str) -> None:
    async with dialer() as dial:
        cause = (await dial.exchange(Endpoint(url, proxy=parse_proxy(proxy, "upstream.proxy"))))[-1]
    assert isinstance(cause, Cause) and cause.end is End.UNREACHABLE
    assert cause.detail.startswith("the proxy that upstream.proxy names: ") and words in cause.detail
    assert cause.detail.endswith("correct upstream.proxy, or write none there if no proxy is needed")


async def test_the_set_up_through_a_proxy_has_the_time_limit_of_any() -> None:
    async def hold(peer: Peer) -> None:
        await peer.request()
        await peer.wait_gone()

    async with serving(hold) as proxy:
        endpoint = through(proxy, "https://server.invalid/mcp")
        with pytest.raises(Unreachable) as refusal:
            await Dialer(endpoint, endpoint.address(), Limits(connect_timeout_s=0.05)).connect()
    assert refusal.value.is_timeout and f"through the proxy 127.0.0.1:{proxy.port} within 0.05 s" in str(refusal.value)


async def test_a_response_407_of_a_server_itself_is_its_refusal() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(reply(ANSWER, b"407 Proxy Authentication Required"))

    async with serving(script) as server, dialer() as dial:
        cause = (await dial.exchange(server.endpoint))[-1]
    assert isinstance(cause, Cause) and (cause.end, cause.status) == (End.REFUSED, 407)
