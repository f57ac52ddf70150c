"""Tests of a listener that speaks TLS, over real sockets and every driver."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSAttribute, TLSStream
from cryptography import x509
from event_loop_clock import EventLoopClock
from http_fakes import SURFACE, WAIT_S, FakeFiles, FakePort, get, pages, post, stream_pair
from issuing import Authority, client_context, server_context
from isthmus.core.access.gate import Gate, GateSettings
from isthmus.core.base.effects import Send
from isthmus.core.base.events import End, Opening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import MIB, Limits
from isthmus.core.base.storage import Receive
from isthmus.transports.base.port import Outlet
from isthmus.transports.http_server.reserve import Reserve
from isthmus.transports.http_server.server import TURNED_AWAY_MAX, HttpServer
from isthmus.transports.tls.asyncio_transport import ANSWERS_MAX_BYTES, TlsTransport
from isthmus.transports.tls.server import ServerTls
from isthmus.transports.tls.session import TlsSession
from isthmus.transports.tls.stream import TlsStream
from socket_fakes import connected

pytestmark = pytest.mark.anyio

DRIVERS = {"asyncio": (False, None), "uvloop": (True, None), "asyncio-streams": (False, False)}
"""The use of uvloop, and the choice of protocols. The fourth driver is trio's."""

_protocols: bool | None = None


@pytest.fixture(params=[*DRIVERS, "trio"])
def anyio_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, bool]]:
    if request.param == "trio":
        return "trio", {}
    use_uvloop, protocols = DRIVERS[request.param]
    monkeypatch.setattr(f"{__name__}._protocols", protocols)
    return "asyncio", {"use_uvloop": use_uvloop}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("issued"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Path:
    return authority.server()


def echo(channel: ChannelId, message: bytes, outlet: Outlet) -> None:
    outlet.send(Send(channel, message, is_last=True))


class World(NamedTuple):
    server: HttpServer
    port: FakePort
    files: FakeFiles
    port_number: int
    client: ssl.SSLContext

    async def plain(self) -> ByteStream:
        return await anyio.connect_tcp("127.0.0.1", self.port_number)

    async def connect(self, client: ssl.SSLContext | None = None) -> TLSStream:
        """A connection that takes nothing for its end but a `close_notify`."""
        context = client or self.client
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        return await TLSStream.wrap(
            await self.plain(), hostname="localhost", ssl_context=context, standard_compatible=True
        )


@asynccontextmanager
async def listening(
    authority: Authority,
    context: Callable[[], ssl.SSLContext],
    limits: Limits | None = None,
    gate: Gate | None = None,
    *,
    on_message: Callable[[ChannelId, bytes, Outlet], None] = echo,
) -> AsyncIterator[World]:
    """A server that listens on a port. At the end it drains, and every channel must be closed."""
    port, files, limits = FakePort(), FakeFiles(), limits or Limits()
    port.on_message = on_message
    server = HttpServer(SURFACE, port, files, limits, pages=pages, gate=gate, protocols=_protocols)
    opened = await anyio.create_tcp_listener(local_host="127.0.0.1")
    number = opened.extra(SocketAttribute.local_port)
    tls = ServerTls(context, handshake_timeout_s=limits.head_timeout_s)
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:

            async def serve(*, task_status: anyio.abc.TaskStatus[None]) -> None:
                await server.serve(opened, tls=tls, task_status=task_status)

            await tasks.start(serve)
            yield World(server, port, files, number, client_context(authority.path))
            await server.drain()
    assert set(port.closes) == set(port.openings)
    assert server._accepted == 0, "each was closed once"


async def answer(stream: ByteStream) -> tuple[int, bytes]:
    """The next response that has a length: its status and body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < size:
        body += await stream.receive()
    return int(head.split()[1]), body


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 (no event is set)
        await anyio.sleep(0.001)


async def read_eof(stream: ByteStream) -> bytes:
    """All that comes before the orderly end."""
    data = b""
    try:
        while True:
            data += await stream.receive()
    except anyio.EndOfStream:
        return data


async def test_requests_are_answered(authority: Authority, certificate: Path) -> None:
    """URLs for the client begin with https."""
    context = server_context(certificate)
    async with listening(authority, lambda: context) as w:
        async with await w.connect() as one, await w.connect() as two:
            for n, stream in enumerate((one, two, one, two, one), 1):
                await stream.send(post(b"%d" % n))
                assert await answer(stream) == (200, b"%d" % n)
                assert await w.port.wait_closed(n) is End.DONE
        opening = w.port.openings[ChannelId(1)]
        assert getattr(opening, "base_url", "") == "https://localhost:8932"


async def test_a_connection_ends_in_order(authority: Authority, certificate: Path) -> None:
    """Behind a last response, behind a refusal whose rest is not read, and when the listener drains."""
    context = server_context(certificate)
    async with listening(authority, lambda: context) as w:
        async with await w.connect() as stream:
            await stream.send(post(b"1", "Connection: close"))
            assert (await read_eof(stream)).endswith(b"\r\n\r\n1")
        async with await w.connect() as stream:
            await stream.send(post(b"1").replace(b"Content-Length: 1", b"Content-Length: x"))
            assert (await read_eof(stream)).startswith(b"HTTP/1.1 400 ")
        async with await w.connect() as stream:
            await stream.send(post(b"2"))
            await answer(stream)
            await w.server.drain()
            assert await read_eof(stream) == b""


async def test_a_connection_that_is_cut_does_not_end_in_order(authority: Authority, certificate: Path) -> None:
    context = server_context(certificate)
    async with listening(authority, lambda: context) as w:
        stream = await w.connect()
        await stream.send(post(b"1"))
        await answer(stream)
        (connection,) = w.server._connections
        connection._wire.cut()
        connection.stop()
        with pytest.raises((anyio.BrokenResourceError, ConnectionResetError)):
            await read_eof(stream)
        await anyio.aclose_forcefully(stream)


@pytest.mark.parametrize("is_orderly", [False, True])
async def test_a_client_that_leaves_is_gone(authority: Authority, certificate: Path, is_orderly: bool) -> None:
    context = server_context(certificate)
    async with listening(authority, lambda: context, on_message=lambda *_: None) as w:
        stream = await w.connect()
        await stream.send(post(b"1"))
        await w.port.wait_message()
        if is_orderly:
            await stream.aclose()
        else:
            await stream.transport_stream.aclose()
        assert await w.port.wait_closed(1) is End.GONE


async def test_large_messages_cross_at_the_clients_pace(authority: Authority, certificate: Path) -> None:
    """The reply is reported as sent when all of it has left, and not before."""
    context = server_context(certificate)
    async with listening(authority, lambda: context, Limits(request_size_max_bytes=16 * MIB)) as w:
        async with await w.connect() as stream:
            body = bytes(range(256)) * (8 * MIB // 256)
            request = post(body, "Connection: close")
            for start in range(0, len(request), 100_000):
                await stream.send(request[start : start + 100_000])
            await w.port.wait_message()
            first = await stream.receive(1000)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            assert not w.port.sent_bytes and not w.port.closes
            received = first + await read_eof(stream)
            assert received.endswith(body)
            assert await w.port.wait_closed(1) is End.DONE


async def test_an_upload_reaches_the_storage(authority: Authority, certificate: Path) -> None:
    context = server_context(certificate)
    body = bytes(range(256)) * (3 * MIB // 256)

    def let(channel: ChannelId, opening: Opening, outlet: Outlet) -> None:
        outlet.receive(Receive(channel, ("b0",), file_size_max_bytes=4 * MIB, total_size_max_bytes=4 * MIB))  # type: ignore[attr-defined]

    async with listening(authority, lambda: context) as w:
        w.port.on_open = let
        async with await w.connect() as stream, anyio.create_task_group() as tasks:
            tasks.start_soon(stream.send, post(body, path="/upload/files?sig=1"))
            assert await answer(stream) == (200, b'{"files":[]}')
        assert b"".join(w.files.taken) == body


async def test_a_web_socket_is_served_and_closed_in_order(authority: Authority, certificate: Path) -> None:
    context = server_context(certificate)

    def repeat(channel: ChannelId, message: bytes, outlet: Outlet) -> None:
        outlet.send(Send(channel, message))

    async with listening(authority, lambda: context, on_message=repeat) as w:
        async with await w.connect() as stream:
            peer = await connected(stream)
            text = f'"{"x" * 300_000}"'
            await peer.send_text(text)
            assert await peer.read() == text
            await peer.close()
            await peer.read()
            assert await read_eof(stream) == b""


# --- Handshakes -----------------------------------------------------------------------------------------------------


async def test_a_slow_handshake_is_broken_off(
    authority: Authority, certificate: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client sends nothing, another one a part of its first message."""
    clock = EventLoopClock(monkeypatch)
    context = server_context(certificate)
    with caplog.at_level(logging.INFO, "isthmus.tls"):
        async with listening(authority, lambda: context, Limits(head_timeout_s=2.0)) as w:
            async with await w.plain() as silent, await w.plain() as slow:
                await slow.send(b"\x16\x03\x01\x02\x00\x01")
                await until(lambda: w.server._accepted == 2)
                await clock.set_forward(2.0)
                for stream in (silent, slow):
                    with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                        await stream.receive()
    (line,) = caplog.messages
    assert line == "no TLS with 127.0.0.1: its handshake took more than 2 s"


async def test_handshakes_count_as_connections(authority: Authority, certificate: Path) -> None:
    """A client that is turned away is told why, in TLS."""
    context = server_context(certificate)
    async with listening(authority, lambda: context, Limits(connections_max=1)) as w:
        async with await w.plain():
            await until(lambda: w.server._connections)
            async with await w.connect() as stream:
                await stream.send(post(b"1"))
                status, body = await answer(stream)
                assert (status, b"more connections than this server takes" in body) == (503, True)
                assert await read_eof(stream) == b""
        await until(lambda: not w.server._connections)
        async with await w.connect() as stream:
            await stream.send(post(b"1"))
            assert await answer(stream) == (200, b"1")


async def test_who_is_turned_away_may_not_stay_by_being_slow(
    authority: Authority, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.transports.http_server.server.TURN_AWAY_S", 0.1)
    context = server_context(certificate)
    async with listening(authority, lambda: context, Limits(connections_max=1)) as w, await w.connect() as kept:
        for _ in range(3):
            async with await w.plain() as silent:
                with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    await silent.receive()
        await kept.send(post(b"1"))
        assert await answer(kept) == (200, b"1")


async def test_plain_http_is_closed_and_logged_quietly(
    authority: Authority, certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = server_context(certificate)
    with caplog.at_level(logging.DEBUG, "isthmus"):
        async with listening(authority, lambda: context) as w:
            for _ in range(20):
                async with await w.plain() as stream:
                    await stream.send(post(b"1"))
                    assert b"HTTP" not in await _rest(stream)
            async with await w.connect() as stream:
                await stream.send(post(b"1"))
                assert await answer(stream) == (200, b"1")
    lines = [record for record in caplog.records if record.name.startswith("isthmus")]
    assert [line.getMessage() for line in lines] == [
        "no TLS with 127.0.0.1: it spoke plain HTTP, expected https:// in its URL"
    ]
    assert lines[0].levelno == logging.INFO


async def _rest(stream: ByteStream) -> bytes:
    """All that comes before the connection ends in any way."""
    data = b""
    try:
        while True:
            data += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return data


async def test_failed_handshakes_that_were_not_logged_are_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("isthmus.transports.tls.server.time.monotonic", lambda: now)
    tls = ServerTls(lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), handshake_timeout_s=1.0)
    with caplog.at_level(logging.INFO, "isthmus.tls"):
        for now in (100.0, 101.0, 102.0, 111.0, 130.0):
            tls.note_failure("1.2.3.4", f"at {now:g}")
    assert caplog.messages == [
        "no TLS with 1.2.3.4: at 100",
        "no TLS with 1.2.3.4: at 111; 2 more failed before",
        "no TLS with 1.2.3.4: at 130",
    ]


async def test_a_listener_drains_while_handshakes_are_under_way(authority: Authority, certificate: Path) -> None:
    context = server_context(certificate)
    async with listening(authority, lambda: context, Limits(head_timeout_s=2.0)) as w:
        async with await w.plain() as slow:
            await until(lambda: w.server._connections)
            await slow.send(b"\x16\x03")
            await w.server.drain()
            assert not w.server._connections
            assert await _rest(slow) == b""


async def test_a_flood_of_strangers_does_not_disturb(authority: Authority, certificate: Path) -> None:
    """Connections that speak no TLS, hang up in the handshake, or reset come beside a client that is served."""
    context = server_context(certificate)

    async def disturb(w: World, number: int) -> None:
        stream = await w.plain()
        if number % 3 == 0:
            await stream.send(b"\x16\x03\x01\x00\xff" * number)
        elif number % 3 == 1:
            raw = stream.extra(SocketAttribute.raw_socket)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            await stream.send(b"\x16\x03\x01")
        await stream.aclose()

    async with listening(authority, lambda: context) as w, await w.connect() as stream:
        async with anyio.create_task_group() as tasks:
            for number in range(TURNED_AWAY_MAX):
                tasks.start_soon(disturb, w, number)
            for n in range(20):
                await stream.send(post(b"%d" % n))
                assert await answer(stream) == (200, b"%d" % n)
        await until(lambda: len(w.server._connections) == 1)


@pytest.mark.parametrize("is_told", [False, True])
def test_without_a_descriptor_a_client_that_speaks_tls_gets_no_plain_answer(is_told: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.closing(Reserve()) as reserve:
        listener.setblocking(False)
        with socket.create_connection(listener.getsockname(), timeout=WAIT_S) as client:
            reserve.turn_away(listener, 1, is_told=is_told)
            assert client.recv(100).startswith(b"HTTP/1.1 503 ") is is_told


# --- Certificates ---------------------------------------------------------------------------------------------------


async def test_a_certificate_is_renewed_under_load(authority: Authority, certificate: Path) -> None:
    """Open connections go on with the old one, and no request is lost. New ones get the new one."""
    contexts = [server_context(certificate)]
    second = authority.server("renewed")
    serials = [x509.load_pem_x509_certificate(path.read_bytes()).serial_number for path in (certificate, second)]
    seen: list[int] = []

    async def call(w: World, times: int) -> None:
        async with await w.connect() as stream:
            der = stream.extra(TLSAttribute.peer_certificate_binary)
            assert der is not None
            seen.append(x509.load_der_x509_certificate(der).serial_number)
            for n in range(times):
                await stream.send(post(b"%d" % n))
                assert await answer(stream) == (200, b"%d" % n)

    async with listening(authority, lambda: contexts[-1]) as w:
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(call, w, 50)
            await w.port.wait_message(20)
            contexts.append(server_context(second))
            tasks.start_soon(call, w, 20)
    assert seen == [serials[0]] * 4 + [serials[1]]


@pytest.mark.parametrize("has_certificate", [False, True])
async def test_a_certificate_names_the_caller(authority: Authority, certificate: Path, has_certificate: bool) -> None:
    context = server_context(certificate, authority.path)
    issued = authority.issue("alice", x509.RFC822Name("alice@example.com")) if has_certificate else None
    async with listening(authority, lambda: context, gate=Gate(GateSettings(certificates={}))) as w:
        async with await w.connect(client_context(authority.path, issued)) as stream:
            await stream.send(post(b"1"))
            status, body = await answer(stream)
        if has_certificate:
            assert (status, body) == (200, b"1")
            assert getattr(w.port.openings[ChannelId(1)], "principal", "") == "cert:alice@example.com"
        else:
            assert (status, b"expected a client certificate" in body) == (401, True)


async def test_a_client_without_a_certificate_is_not_let_in_where_one_is_required(
    authority: Authority, certificate: Path
) -> None:
    """The client learns that with its first read, in TLS 1.3."""
    context = server_context(certificate, authority.path, required=True)
    async with listening(authority, lambda: context) as w:
        stream = await w.connect()
        with pytest.raises((ssl.SSLError, anyio.BrokenResourceError)) as caught:
            await stream.send(post(b"1"))
            await stream.receive()
        assert "certificate required" in str(caught.value).lower() or isinstance(
            caught.value, anyio.BrokenResourceError
        )
        await anyio.aclose_forcefully(stream)
        assert not w.port.openings


async def test_a_certificate_that_ends_is_refused_on_a_connection_that_is_kept(
    authority: Authority, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests whose heads repeat are not routed again, but their caller is still asked about. A stream that is open
    ends."""
    context = server_context(certificate, authority.path)
    issued = authority.issue("brief", x509.DNSName("brief.example.com"))
    ends_at = x509.load_pem_x509_certificate(issued.read_bytes()).not_valid_after_utc.timestamp()
    gate = Gate(GateSettings(certificates={}))
    limits = Limits(keep_alive_s=0.1)
    async with listening(authority, lambda: context, limits, gate) as w:
        client = client_context(authority.path, issued)
        async with await w.connect(client) as calling, await w.connect(client) as reading:
            await reading.send(get())
            head = await reading.receive()
            assert head.startswith(b"HTTP/1.1 200 ")
            for n in (1, 2):
                await calling.send(post(b"%d" % n))
                assert await answer(calling) == (200, b"%d" % n)
            for module in ("connection", "shared"):
                monkeypatch.setattr(f"isthmus.transports.http_server.{module}.time.time", lambda: ends_at)
            await calling.send(post(b"3"))
            status, body = await answer(calling)
            assert (status, b"the client certificate has expired" in body) == (401, True)
            while b"0\r\n\r\n" not in head:
                head += await reading.receive()


# --- The transport of asyncio ---------------------------------------------------------------------------------------


class Socket(asyncio.Transport):
    """The transport of a socket whose client reads nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 0

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


class Answering(TlsSession):
    """A session that has something to say about each byte that comes, as about a request for new keys."""

    def __init__(self) -> None:
        super().__init__(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        self.is_open = True

    def receive(self, data: bytes) -> bytes:
        self._outgoing.write(b"x" * len(data))
        return b""


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_client_that_asks_for_answers_and_reads_none_is_closed() -> None:
    raw = Socket()
    transport = TlsTransport(Answering(), asyncio.Protocol(), asyncio.get_running_loop().create_future())
    transport.connection_made(raw)
    transport.data_received(b"x")
    for _ in range(3):
        transport.data_received(b"x" * ANSWERS_MAX_BYTES)
        assert not raw.is_closed, "what is written has left"
    transport.pause_writing()
    transport.data_received(b"x" * ANSWERS_MAX_BYTES)
    assert not raw.is_closed
    transport.resume_writing()
    transport.pause_writing()
    transport.data_received(b"x" * ANSWERS_MAX_BYTES)
    assert not raw.is_closed
    transport.data_received(b"x")
    assert raw.is_closed


class Told(asyncio.Protocol):
    """Records what a transport tells its protocol."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.told.append("made")

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def data_received(self, data: bytes) -> None:
        self.told.append(data.decode())


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_protocol_learns_that_the_end_of_the_handshake_has_not_left(
    authority: Authority, certificate: Path
) -> None:
    raw, told = Socket(), Told()
    shaken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    transport = TlsTransport(TlsSession(server_context(certificate)), told, shaken)
    transport.connection_made(raw)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(authority.path).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    transport.data_received(outgoing.read())
    incoming.write(bytes(raw.written))
    client.do_handshake()
    client.write(b"hello")
    transport.pause_writing()
    assert told.told == []
    transport.data_received(outgoing.read())
    assert shaken.done()
    assert told.told == ["made", "pause", "hello"]
    transport.resume_writing()
    assert told.told[3:] == ["resume"]


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_stream_is_not_read_while_its_client_takes_no_answers() -> None:
    class Endless(ServerTls):
        def session(self) -> TlsSession:
            return Answering()

    near, far = stream_pair(capacity=1000)
    stream = TlsStream(far, Endless(lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), handshake_timeout_s=1.0))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.receive, 100)
        tasks.start_soon(near.send, b"x" * 10_000)
        await anyio.wait_all_tasks_blocked()
        assert len(near.outgoing.data) == 1000, "the client is held back"
        assert len(near.incoming.data) == 1000
        tasks.cancel_scope.cancel()
