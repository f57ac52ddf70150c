"""Tests of requests to URLs that another party may have written."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from client_dialer import reply
from client_fakes import PATIENCE_S, Peer, Script, ScriptedServer, serving
from isthmus.transports.web_fetch import BODY_MAX_BYTES, RECEIVED_MAX_BYTES, FetchFailed, FetchSettings, fetch
from proxy_fakes import tunnel

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

LOCAL = FetchSettings(allows_loopback=True, proxy="none")
SECRET = "SECRET7391"


@pytest.fixture(autouse=True)
async def patience(anyio_backend: str) -> AsyncIterator[None]:
    with anyio.fail_after(PATIENCE_S):
        yield


@pytest.fixture
def secure(authority: Path) -> FetchSettings:
    return FetchSettings(allows_loopback=True, proxy="none", ca_file=str(authority / "ca.pem"))


class Resolver:
    """Answers look-ups of names: the first with the first list, each further one with the next; the last one stays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, host: str | bytes, port: int, *_: object, **__: object) -> list[tuple[Any, ...]]:
        name = host.decode() if isinstance(host, bytes) else host
        self.asked.append(name)
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [_row(one, port) for one in found]


def _row(address: str, port: int) -> tuple[Any, ...]:
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses outside this machine that a connection was asked for; each is refused."""
    connect, seen = anyio.connect_tcp, list[str]()

    async def connect_tcp(host: str, port: int) -> object:
        if host.startswith("127."):
            return await connect(host, port)
        seen.append(host)
        raise ConnectionRefusedError

    monkeypatch.setattr(anyio, "connect_tcp", connect_tcp)
    return seen


def saying(*pieces: bytes) -> Script:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(*pieces)

    return script


async def failure(url: str, settings: FetchSettings = LOCAL, **request: Any) -> FetchFailed:
    with pytest.raises(FetchFailed) as caught:
        await fetch(
            request.get("method", "GET"), url, request.get("headers", ()), request.get("body", b""), settings=settings
        )
    assert caught.value.__cause__ is None
    return caught.value


# --- Requests and responses -----------------------------------------------------------------------------------------


async def test_a_post_over_tls(server_tls: ssl.SSLContext, secure: FetchSettings) -> None:
    answer = reply(b'{"access_token":"x"}', b"201 Created", b"Cache-Control: no-store", b"Cache-Control: private")
    async with serving(saying(answer), server_tls) as server:
        url = f"https://localhost:{server.port}/token?a=b"
        headers = ((b"content-type", b"application/x-www-form-urlencoded"), (b"accept", b"application/json"))
        found = await fetch("POST", url, headers, b"grant_type=x", settings=secure)
    assert (found.status, found.body) == (201, b'{"access_token":"x"}')
    assert found.field(b"cache-control") == "no-store, private" and found.field(b"location") == ""
    (request,) = server.requests
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /token?a=b HTTP/1.1\r\n") and body == b"grant_type=x"
    lines = head.lower().split(b"\r\n")
    for line in (b"host: localhost:%d" % server.port, b"content-length: 12", b"accept: application/json"):
        assert lines.count(line) == 1


@pytest.mark.parametrize("status", [b"200 OK", b"401 Unauthorized", b"302 Found", b"500 Internal Server Error"])
async def test_each_status_is_an_answer_and_no_redirect_is_followed(status: bytes) -> None:
    async with serving(saying(reply(b"{}", status, b"Location: /elsewhere"))) as server:
        found = await fetch("GET", server.url, (), b"", settings=LOCAL)
    assert (found.status, found.field(b"location"), found.body) == (int(status[:3]), "/elsewhere", b"{}")
    assert server.connections == 1 and len(server.requests) == 1
    assert b"content-length" not in server.requests[0].lower()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" + reply(b"body"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbody",
        b"HTTP/1.0 200 OK\r\n\r\nbody",
    ],
)
async def test_bodies_however_they_are_framed_and_cut(answer: bytes) -> None:
    async with serving(saying(*(answer[at : at + 1] for at in range(len(answer))))) as server:
        assert (await fetch("GET", server.url, (), b"", settings=LOCAL)).body == b"body"


async def test_a_body_of_the_largest_size() -> None:
    async with serving(saying(reply(b"x" * BODY_MAX_BYTES))) as server:
        assert len((await fetch("GET", server.url, (), b"", settings=LOCAL)).body) == BODY_MAX_BYTES


def chunked(*sizes: int) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (size, b"S" * size) for size in sizes)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (reply(SECRET.encode() * 6554), f"the body of the response has more than {BODY_MAX_BYTES} bytes"),
        (chunked(*[BODY_MAX_BYTES // 2] * 3), f"the body of the response has more than {BODY_MAX_BYTES} bytes"),
        (chunked(*[1] * 60_000), f"the response has more than {RECEIVED_MAX_BYTES} bytes with its framing"),
        (b"HTTP/1.1 102 Processing\r\n\r\n" * 12_000, f"more than {RECEIVED_MAX_BYTES} bytes with its framing"),
        (b"HTTP/1.1 200 OK\r\nX-Y: " + b"S" * 70_000, "not well-formed HTTP/1.1"),
        (b"SSH-2.0-SECRET7391\r\n\r\n", "not well-formed HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nX SECRET7391\r\n\r\n", "not well-formed HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nSECRET7391", "broke off"),
        (b"HTTP/1.1 200 OK\r\nConte", "broke off"),
        (b"", "broke off"),
        (reply(b"SECRET7391", b"200 OK", b"Content-Encoding: gzip"), "a content coding"),
    ],
)
async def test_responses_that_are_refused(answer: bytes, words: str) -> None:
    async with serving(saying(answer)) as server:
        error = await failure(f"http://127.0.0.1:{server.port}/p?code={SECRET}")
    assert words in str(error) and str(error).startswith(f"http://127.0.0.1:{server.port}: ")
    assert SECRET not in str(error) and len(str(error)) < 200
    assert not error.is_unsent and not error.is_forbidden


async def test_a_server_that_is_silent_or_slow() -> None:
    async def drip(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
        while True:
            await peer.send(b"x")
            await anyio.sleep(0.01)

    async def silence(peer: Peer) -> None:
        await peer.request()
        await peer.wait_gone()

    settings = FetchSettings(allows_loopback=True, proxy="none", timeout_s=0.3)
    for script in (drip, silence):
        async with serving(script) as server:
            error = await failure(server.url, settings)
            assert str(error) == f"http://127.0.0.1:{server.port}: no whole response within 0.3 s"
            assert not error.is_unsent


async def test_cancellation_closes_the_connection() -> None:
    asked = anyio.Event()

    async def silence(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.wait_gone()

    async with serving(silence) as server:
        async with anyio.create_task_group() as tasks:

            async def request() -> None:
                await fetch("GET", server.url, (), b"", settings=LOCAL)

            tasks.start_soon(request)
            await asked.wait()
            tasks.cancel_scope.cancel()
        await server.wait_gone(0)


@pytest.mark.parametrize(
    "header", [(b"authorization", b"Bearer a\r\nx: SECRET7391"), (b"x\r\ny", b"SECRET7391"), (b"x", b"SECRET7391\x00")]
)
async def test_headers_that_cannot_be_sent(header: tuple[bytes, bytes]) -> None:
    async with serving(saying(reply())) as server:
        error = await failure(server.url, headers=(header,))
        assert error.is_unsent and SECRET not in str(error)
    assert server.requests == []


# --- TLS ------------------------------------------------------------------------------------------------------------


async def test_a_certificate_must_be_of_the_host_and_of_a_trusted_authority(
    server_tls: ssl.SSLContext, secure: FetchSettings
) -> None:
    async with serving(saying(reply()), server_tls) as server:
        untrusted = await failure(f"https://localhost:{server.port}/p?{SECRET}")
        assert "is not of an authority that this machine trusts" in str(untrusted)
        misnamed = await failure(f"https://127.0.0.1:{server.port}/", secure)
        assert "is for other names" in str(misnamed)
        assert untrusted.is_unsent and misnamed.is_unsent and not untrusted.is_forbidden
        assert SECRET not in str(untrusted)
    assert server.requests == []


@pytest.mark.parametrize("url", ["https://localhost:{}/", "http://localhost:{}/", "https://127.0.0.1:{}/"])
async def test_this_machine_is_refused_unless_it_is_allowed(url: str) -> None:
    async with serving(saying(reply())) as server:
        for settings in (FetchSettings(), FetchSettings(proxy="none", origins=frozenset({"https://other.example"}))):
            error = await failure(url.format(server.port), settings)
            assert "this is the machine itself" in str(error) and error.is_forbidden and error.is_unsent
    assert server.connections == 0


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://server.example/", "without TLS, expected https"),
        ("ws://localhost/", "scheme ws, expected https"),
        ("wss://localhost/", "scheme wss, expected https"),
        ("file:///etc/passwd", "another kind"),
        ("https://user:SECRET7391@server.example/", "user-info"),
        ("https://server.example/a b", "a space"),
        ("https://server.example/\r\nx: y", "another kind|a space"),
        ("https://", "expected HOST"),
    ],
)
async def test_urls_that_are_refused(url: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch, ["127.0.0.1"])
    error = await failure(url)
    assert any(word in str(error) for word in words.split("|")) and error.is_forbidden
    assert SECRET not in str(error) and resolver.asked == []


# --- Addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0", "::1", "fe80::1%lo", "::ffff:93.184.216.34"],
)
async def test_a_name_that_resolves_into_this_network(
    address: str, monkeypatch: pytest.MonkeyPatch, dialled: list[str]
) -> None:
    for found in ([address], ["93.184.216.34", address]):
        Resolver(monkeypatch, found)
        error = await failure(f"https://server.example/p?{SECRET}")
        assert str(error).startswith("https://server.example: the address ") and SECRET not in str(error)
        assert error.is_forbidden and error.is_unsent and dialled == []


@pytest.mark.parametrize("host", ["10.0.0.1", "[fd00::1]", "[::ffff:10.0.0.1]", "0.0.0.0", "169.254.169.254", "10.1"])
async def test_an_address_in_the_url(host: str, dialled: list[str]) -> None:
    error = await failure(f"https://{host}/")
    assert error.is_forbidden and "which this URL must not lead to" in str(error) and dialled == []


async def test_the_connection_goes_to_the_address_that_was_judged(
    monkeypatch: pytest.MonkeyPatch, dialled: list[str]
) -> None:
    """A name that answers with this machine from the second look-up on gains nothing: there is no second look-up."""
    async with serving(saying(reply())) as server:
        resolver = Resolver(monkeypatch, ["93.184.216.34"], ["127.0.0.1"])
        error = await failure(f"https://server.example:{server.port}/")
        assert dialled == ["93.184.216.34"] and resolver.asked == ["server.example"]
        assert "connection refused by server.example" in str(error) and not error.is_forbidden
        # The next request is judged anew.
        assert (await failure(f"https://server.example:{server.port}/")).is_forbidden
    assert server.connections == 0


async def test_localhost_must_be_this_machine(monkeypatch: pytest.MonkeyPatch, dialled: list[str]) -> None:
    Resolver(monkeypatch, ["93.184.216.34"])
    error = await failure("http://localhost:1/")
    assert "not a loopback address" in str(error) and error.is_forbidden and dialled == []


async def test_an_origin_that_the_configuration_names(
    server_tls: ssl.SSLContext, authority: Path, monkeypatch: pytest.MonkeyPatch, dialled: list[str]
) -> None:
    async with serving(saying(reply(b"{}"))) as server:
        listed = FetchSettings(origins=frozenset({f"http://server.example:{server.port}/mcp?a"}), proxy="none")
        Resolver(monkeypatch, ["127.0.0.1"])
        assert (await fetch("GET", f"http://SERVER.example:{server.port}/x", (), b"", settings=listed)).status == 200
        for other in (f"http://server.example:{server.port + 1}/", f"https://server.example:{server.port}/"):
            assert (await failure(other, listed)).is_forbidden
    assert dialled == []


async def test_the_next_address_is_tried(monkeypatch: pytest.MonkeyPatch, dialled: list[str]) -> None:
    async with serving(saying(reply(b"{}"))) as server:
        listed = FetchSettings(origins=frozenset({f"http://server.example:{server.port}"}), proxy="none")
        Resolver(monkeypatch, ["93.184.216.34", "93.184.216.35", "127.0.0.1"])
        url = f"http://server.example:{server.port}/"
        assert (await fetch("GET", url, (), b"", settings=listed)).status == 200
        assert dialled == ["93.184.216.34", "93.184.216.35"]
        Resolver(monkeypatch, ["93.184.216.34", "93.184.216.35", "93.184.216.36", "127.0.0.1"])
        assert "connection refused" in str(await failure(url, listed))


async def test_a_name_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    error = await failure(f"https://server.example/?{SECRET}")
    assert str(error) == "https://server.example: cannot resolve the name; is the host name right?"
    assert error.is_unsent and not error.is_forbidden


# --- Proxies --------------------------------------------------------------------------------------------------------


def behind(proxy: ScriptedServer, **more: Any) -> FetchSettings:
    return FetchSettings(proxy=f"http://user:{SECRET}@127.0.0.1:{proxy.port}", **more)


async def test_a_proxy_is_used_and_looks_the_name_up(
    server_tls: ssl.SSLContext, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(saying(reply()), server_tls) as server, serving(tunnel) as proxy:
        ca_file, url = str(authority / "ca.pem"), f"https://server.invalid:{server.port}/"
        error = await failure(url, behind(proxy, ca_file=ca_file))
        assert "is for other names" in str(error)  # the tunnel of the test leads to localhost
        assert proxy.requests[0].startswith(b"CONNECT server.invalid:")
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        assert "is for other names" in str(await failure(url, FetchSettings(ca_file=ca_file)))
        assert proxy.connections == 2


@pytest.mark.parametrize("host", ["10.0.0.1", "127.1", "2130706433", "0x7f.1", "[fd00::1]", "[::ffff:7f00:1]"])
async def test_an_address_is_judged_before_a_proxy_is_told(host: str) -> None:
    async with serving(tunnel) as proxy:
        error = await failure(f"https://{host}/", behind(proxy))
        assert error.is_forbidden and SECRET not in str(error)
    assert proxy.connections == 0


async def test_no_proxy_is_told_of_this_machine() -> None:
    async with serving(saying(reply(b"{}"))) as server, serving(tunnel) as proxy:
        found = await fetch("GET", server.url, (), b"", settings=behind(proxy, allows_loopback=True))
        assert found.status == 200 and proxy.connections == 0


async def test_a_proxy_without_a_tunnel() -> None:
    async with serving(saying(reply(b"{}"))) as proxy:
        settings = behind(proxy, origins=frozenset({"http://server.invalid:81"}))
        assert (await fetch("GET", "http://server.invalid:81/x?y", (), b"", settings=settings)).status == 200
        (request,) = proxy.requests
        assert request.startswith(b"GET http://server.invalid:81/x?y HTTP/1.1\r\n")
        assert b"proxy-authorization: basic " in request.lower()


async def test_the_refusal_of_a_proxy_is_no_answer() -> None:
    refusal = reply(b"no", b"407 Proxy Authentication Required")
    async with serving(saying(refusal)) as proxy:
        listed = behind(proxy, origins=frozenset({"http://server.invalid"}))
        for url in ("http://server.invalid/", "https://server.invalid/"):
            error = await failure(url, listed)
            assert "refused the user and password" in str(error) and SECRET not in str(error)
