"""Tests of the listener over real sockets with the asyncio driver, on asyncio's own loop and on uvloop."""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import json
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream, Listener, SocketAttribute, SocketListener, SocketStream
from http_fakes import SURFACE, WAIT_S, FakeFiles, FakePort, get, pages, post
from isthmus.core.base.effects import Close, Send
from isthmus.core.base.events import End, Opening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import MIB, Limits
from isthmus.core.base.storage import Receive
from isthmus.transports.base.driver import uses_protocols
from isthmus.transports.base.port import Outlet
from isthmus.transports.base.stream_socket import peer_host_of, socket_of
from isthmus.transports.http_server import server as http_server
from isthmus.transports.http_server.asyncio_driver import HttpProtocol
from isthmus.transports.http_server.framing import Framing
from isthmus.transports.http_server.server import HttpServer
from isthmus.transports.unix.listener import http_listener
from socket_fakes import connected

LOOPS = ["asyncio", *(["uvloop"] if importlib.util.find_spec("uvloop") else [])]
ONE = ChannelId(1)


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


pytestmark = pytest.mark.anyio


def echo(channel: ChannelId, message: bytes, outlet: Outlet) -> None:
    outlet.send(Send(channel, message, is_last=True))


class World:
    def __init__(
        self, server: HttpServer, port: FakePort, files: FakeFiles, listener: Listener[SocketStream], address: int
    ) -> None:
        self.server = server
        self.listener = listener
        self.port = port
        self.files = files
        self._address = address

    async def connect(self) -> ByteStream:
        return await anyio.connect_tcp("127.0.0.1", self._address)


@asynccontextmanager
async def listening(limits: Limits | None = None) -> AsyncIterator[World]:
    """A server that listens on a port. At the end it drains, and every channel must be closed."""
    port, files = FakePort(), FakeFiles()
    port.on_message = echo
    server = HttpServer(SURFACE, port, files, limits or Limits(), pages=pages)
    opened = await anyio.create_tcp_listener(local_host="127.0.0.1")
    address = opened.extra(SocketAttribute.local_port)
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            await tasks.start(server.serve, opened)
            yield World(server, port, files, opened, address)
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


async def read_eof(stream: ByteStream) -> bytes:
    data = b""
    try:
        while True:
            data += await stream.receive()
    except anyio.EndOfStream:
        return data


async def test_requests_are_answered_over_tcp_and_unix_sockets(tmp_path: Path) -> None:
    async with listening() as w, anyio.create_task_group() as tasks:
        await tasks.start(w.server.serve, await http_listener(str(tmp_path / "s")))
        async with await w.connect() as tcp, await anyio.connect_unix(tmp_path / "s") as unix:
            for n, stream in enumerate((tcp, unix, tcp, unix), 1):
                await stream.send(post(b"%d" % n))
                assert await answer(stream) == (200, b"%d" % n)
                assert await w.port.wait_closed(n) is End.DONE
        await w.server.drain()


async def test_an_ordinary_request_costs_no_task_and_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening() as w, await w.connect() as stream:
        await stream.send(post(b"1"))
        await answer(stream)
        made: list[str] = []
        before = len(asyncio.all_tasks())
        with monkeypatch.context() as patch:
            (connection,) = w.server._connections
            protocol = connection._wire
            patch.setattr(type(protocol), "_ring_by", lambda protocol, at: made.append("timer"))
            patch.setattr(type(protocol), "start", lambda protocol, work: made.append("task"))
            for n in range(2, 12):
                await stream.send(post(b"%d" % n))
                assert await answer(stream) == (200, b"%d" % n)
        assert made == []
        assert len(asyncio.all_tasks()) == before


async def test_a_connection_may_end_as_soon_as_a_large_reply_has_left() -> None:
    async with listening(Limits(request_size_max_bytes=16 * MIB)) as w, await w.connect() as stream:
        body = b"x" * (8 * MIB)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.send, post(body, "Connection: close"))
        assert (await read_eof(stream)).endswith(body)


async def test_a_large_reply_goes_at_its_readers_pace() -> None:
    """The reply is reported as sent when all of it has left, and not before."""
    message = os.urandom(8 << 20)
    async with listening() as w, await w.connect() as stream:
        w.port.on_message = lambda channel, _, outlet: outlet.send(Send(channel, message, is_last=True))
        await stream.send(post())
        await w.port.wait_message()
        await anyio.sleep(0.01)
        assert ONE not in w.port.sent_bytes and ONE not in w.port.closes
        assert await answer(stream) == (200, message)
        assert await w.port.wait_closed(1) is End.DONE
        assert w.port.sent_bytes[ONE] == len(message)


async def test_a_client_that_is_gone_before_it_is_refused_is_no_defect(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal to a client that has left, and the end of that connection, raise nothing."""
    closes: list[HttpProtocol] = []
    close = HttpProtocol.close
    monkeypatch.setattr(HttpProtocol, "close", lambda protocol: [closes.append(protocol), close(protocol)])
    too_large = post(b"{").replace(b"Content-Length: 1\r", b"Content-Length: 999999999999\r")
    async with listening() as w:
        for count, request in enumerate((too_large, b"POST mcp HTTP/9\r\n\r\n"), 1):
            with socket.create_connection(("127.0.0.1", w._address)) as client:  # the handler awaits nothing meanwhile
                client.sendall(request)
            while len(closes) < count:  # noqa: ASYNC110
                await anyio.sleep(0.001)
    assert not [record for record in caplog.records if record.exc_info]


async def test_clients_that_wait_to_be_accepted_are_served_when_accepting_stops() -> None:
    """The system has connected them already, so a balancer may have sent a request. Closing the socket resets them."""
    async with listening() as w:
        await anyio.wait_all_tasks_blocked()
        waiting = [socket.create_connection(("127.0.0.1", w._address)) for _ in range(40)]  # and nothing is awaited
        await w.server.stop_accepting(w.listener)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", w._address))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.server.wait_arrived)
            await anyio.wait_all_tasks_blocked()
            for client in waiting:
                client.sendall(post(b"[1]"))
        await w.server.drain()
        assert len(w.port.messages) == len(waiting)
        for client in waiting:
            client.settimeout(WAIT_S)
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
            client.close()


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_closed_connection_has_no_peer_and_no_socket(is_known: bool) -> None:
    """Peer and socket of a client that has left are None, and asking for them raises nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "127.0.0.1", listener.getsockname()[1]
        async with await anyio.connect_tcp(*address) as stream:
            assert peer_host_of(stream) == "127.0.0.1"
        stream = await anyio.connect_tcp(*address)
        if is_known:
            stream._transport.get_extra_info("socket")  # type: ignore[attr-defined]
        await stream.aclose()
        await anyio.sleep(0.01)  # the event loop does it in a later turn
        assert peer_host_of(stream) == ""
        raw = socket_of(stream)
        assert raw is None or raw.fileno() < 0


async def test_a_connection_that_fails_by_our_own_fault_is_closed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that was counted down twice would leave room for more than the limit."""

    def fail(framing: Framing) -> None:
        raise ZeroDivisionError

    async with listening() as w, await w.connect() as stream:
        w.port.on_open = lambda channel, _, outlet: w.port.file_outlet(channel).receive(
            Receive(channel, ("b0",), file_size_max_bytes=1000, total_size_max_bytes=1000)
        )
        monkeypatch.setattr(Framing, "ask_body", fail)
        await stream.send(post(b"x" * 100, path="/upload/files?sig=1"))
        assert await w.port.wait_closed(1) is End.BROKEN


@pytest.mark.parametrize("how", ["refused, lost", "lost, refused", "left, refused"])
async def test_a_client_that_leaves_as_its_upload_is_refused_is_let_go_of(how: str) -> None:
    """The upload's reader learns that the client is gone, and is cancelled, before it has its turn."""
    async with listening() as w, await w.connect() as stream:
        w.port.on_open = lambda channel, _, outlet: w.port.file_outlet(channel).receive(
            Receive(channel, ("b0",), file_size_max_bytes=1000, total_size_max_bytes=1000)
        )
        await stream.send(post(b"x" * 100, path="/upload/files?sig=1")[:-50])
        with anyio.fail_after(WAIT_S):
            while not w.files.taken:  # noqa: ASYNC110
                await anyio.sleep(0.001)
        (connection,) = w.server._connections
        protocol = connection._wire
        refuse = partial(w.port.outlets[ONE].send, Send(ONE, b"{}", is_last=True, status=503))
        if how == "left, refused":
            protocol.eof_received()  # type: ignore[attr-defined]
        else:
            protocol._transport.abort()  # type: ignore[attr-defined]  # as a reset does: that is told in the next turn
        if how == "lost, refused":
            asyncio.get_running_loop().call_soon(refuse)
        else:
            refuse()
        with anyio.move_on_after(2) as waiting:
            while w.server._connections:  # noqa: ASYNC110
                await anyio.sleep(0.001)
        connection.stop()
        assert not waiting.cancelled_caught
        assert await w.port.wait_closed(1) is (End.DONE if how == "left, refused" else End.GONE)


async def test_a_reader_of_nothing_is_given_up() -> None:
    async with listening(Limits(write_timeout_s=0.1)) as w, await w.connect() as stream:
        w.port.on_message = lambda channel, _, outlet: outlet.send(Send(channel, b"x" * (8 << 20), is_last=True))
        await stream.send(post())
        assert await w.port.wait_closed(1) is End.TIMED_OUT


class Slow(asyncio.Transport):
    """A transport with `left` bytes that its peer has not taken; at once the peer takes none."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.left = 0
        self.is_gone = False
        self.protocol = protocol
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.left += len(data)
        self.protocol.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 0

    def get_write_buffer_size(self) -> int:
        return self.left

    def is_closing(self) -> bool:
        return self.is_gone

    def abort(self) -> None:
        self.is_gone = True


class Clock:
    """An event loop's time, which jumps to the next timer."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        self.calls.append((at, call))
        return asyncio.get_running_loop().call_later(1e6, call)

    def jump(self) -> None:
        self.now, call = self.calls.pop()
        call()


@pytest.mark.parametrize("takes", [True, False])
async def test_who_takes_little_but_steadily_is_kept(takes: bool) -> None:
    port = FakePort()
    port.on_message = lambda channel, _, outlet: outlet.send(Send(channel, b"x" * 1000, is_last=True))
    server = HttpServer(SURFACE, port, FakeFiles(), Limits(), pages=pages)
    clock = Clock()
    made: list[Slow] = []

    async def connect(protocol: asyncio.Protocol) -> None:
        protocol._loop = clock  # type: ignore[attr-defined]
        made.append(Slow(protocol))
        protocol.data_received(post())

    async with anyio.create_task_group() as tasks:
        server.handle_transport(connect, tasks, lambda connection: None)
        await port.wait_message()
        (transport,) = made
        for _ in range(20):
            transport.left -= 10 if takes else 0
            if not transport.is_gone:
                clock.jump()
        assert clock.now >= 20 * Limits().write_timeout_s or not takes
        assert transport.is_gone is not takes
        assert port.closes == ({} if takes else {ONE: port.closes[ONE]})
        for connection in list(server._connections):
            connection.stop()


async def test_an_upload_is_read_as_fast_as_it_is_taken() -> None:
    def permit(channel: ChannelId, opening: Opening, outlet: Outlet) -> None:
        outlet.receive(Receive(channel, ("b0",), file_size_max_bytes=1 << 30, total_size_max_bytes=1 << 30))  # type: ignore[attr-defined]

    body = os.urandom(4 << 20)
    async with listening() as w, await w.connect() as stream:
        w.port.on_open = permit
        for n in (1, 2):
            await stream.send(post(body, path="/upload/files?sig=1"))
            assert (await answer(stream))[0] == 200
            assert b"".join(w.files.taken) == body * n


async def test_events_leave_as_they_come_and_departure_is_seen() -> None:
    async with listening() as w, await w.connect() as stream:
        await stream.send(get())
        seen = await stream.receive()
        for event in (b"one", b"two"):
            w.port.outlets[ONE].send(Send(ONE, event))
            while event not in seen:
                seen += await stream.receive()
        assert ONE not in w.port.closes
        await stream.aclose()
        assert await w.port.wait_closed(1) is End.GONE


async def test_a_web_socket_takes_the_connection_over() -> None:
    async with listening() as w, await w.connect() as stream:
        peer = await connected(stream)
        for text in ("one", "x" * 200_000):
            await peer.send_text(text)
            assert await peer.read() == text
        await peer.close()
        await peer.wait_eof()
        assert await w.port.wait_closed(1) is End.GONE


async def test_many_requests_at_once_leave_others_their_turn() -> None:
    """Each request is answered, in order, and another client is not queued behind all of them."""
    count = 640
    async with listening() as w, await w.connect() as many, await w.connect() as other:
        await other.send(get("/healthz"))
        await answer(other)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(many.send, b"".join(post(b"%04d" % n) for n in range(count)))
            await w.port.wait_message()
            tasks.start_soon(other.send, post(b"other"))
            data = b""
            while data.count(b"HTTP/1.1 200 OK") < count or not data.endswith(b"%04d" % (count - 1)):
                data += await many.receive()
        bodies = [message for _, message in w.port.messages]
        assert [body for body in bodies if body != b"other"] == [b"%04d" % n for n in range(count)]
        assert bodies.index(b"other") < count
        assert await answer(other) == (200, b"other")


async def test_one_connection_too_many_gets_a_503() -> None:
    async with listening(Limits(connections_max=1)) as w, await w.connect() as first:
        await first.send(get("/healthz"))
        assert (await answer(first))[0] == 200
        async with await w.connect() as second:
            await second.send(get("/healthz"))
            data = await read_eof(second)
            assert data.startswith(b"HTTP/1.1 503 ") and json.loads(data.partition(b"\r\n\r\n")[2])
        await first.send(get("/healthz"))
        assert (await answer(first))[0] == 200


async def test_stopping_closes_every_channel_and_connection() -> None:
    port = FakePort()
    server = HttpServer(SURFACE, port, FakeFiles(), Limits(), pages=pages)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    address = listener.extra(SocketAttribute.local_port)
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            await tasks.start(server.serve, listener)
            async with await anyio.connect_tcp("127.0.0.1", address) as stream:
                await stream.send(post())
                await port.wait_message()
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    await stream.receive()
    assert port.closes[ONE].end is End.BROKEN
    assert not server._connections


async def test_draining_waits_for_what_is_due() -> None:
    async with listening() as w, await w.connect() as busy, await w.connect() as idle:
        w.port.on_message = lambda channel, message, outlet: None
        await idle.send(get("/healthz"))
        await answer(idle)
        await busy.send(post())
        await w.port.wait_message()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.server.drain)
            assert await read_eof(idle) == b""
            w.port.outlets[ONE].close(Close(ONE, status=202))
            assert (await read_eof(busy)).startswith(b"HTTP/1.1 202 ")


@pytest.mark.parametrize("end", [b"X: a\n", b"X: a\r\n b\r\n", b"Content-Length: 0\r\n", b"Content-Length: 0, 0\r\n"])
async def test_a_request_behind_an_ambiguous_one_is_never_served(end: bytes) -> None:
    async with listening() as w, await w.connect() as stream:
        await stream.send(post(b"", chunked=True).replace(b"\r\n\r\n", b"\r\n" + end + b"\r\n", 1) + get("/healthz"))
        received = await read_eof(stream)
        assert received.startswith(b"HTTP/1.1 400 ") and received.count(b"HTTP/1.1 ") == 1
        assert not w.port.openings


class Flaky(socket.socket):
    """A listener that fails to accept a few times. It counts attempts, without those that found no connection."""

    def __init__(self, *errors: int) -> None:
        super().__init__()
        self.errors = list(errors)
        self.attempts = 0

    def accept(self) -> tuple[socket.socket, object]:
        if self.errors:
            self.attempts += 1
            raise OSError(self.errors.pop(0), "no room")
        accepted = super().accept()
        self.attempts += 1
        return accepted


class FlakyListener(SocketListener):
    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw

    @property
    def _raw_socket(self) -> socket.socket:
        return self._raw

    async def accept(self) -> anyio.abc.SocketStream:
        raise AssertionError("nobody asks for streams")

    async def aclose(self) -> None:
        self._raw.close()


async def test_what_keeps_a_connection_from_being_accepted_does_not_end_the_listener(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_server, "ACCEPT_PAUSE_S", 0.001)
    server = HttpServer(SURFACE, FakePort(), FakeFiles(), Limits(), pages=pages)
    raw = Flaky(errno.EMFILE, errno.ECONNABORTED, errno.ENFILE, errno.EAGAIN)
    raw.setblocking(False)
    raw.bind(("127.0.0.1", 0))
    raw.listen()
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            await tasks.start(server.serve, FlakyListener(raw))
            async with await anyio.connect_tcp("127.0.0.1", raw.getsockname()[1]) as stream:
                await stream.send(get("/healthz"))
                assert (await answer(stream))[0] == 200
            await server.drain()
    assert [record.getMessage() for record in caplog.records] == ["cannot accept connections for now: no room"]


async def test_clients_without_a_descriptor_for_them_get_a_503(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each failure to accept is followed by a pause and not by further attempts."""
    monkeypatch.setattr(http_server, "ACCEPT_PAUSE_S", 0.001)
    server = HttpServer(SURFACE, FakePort(), FakeFiles(), Limits(), pages=pages)
    raw = Flaky(errno.EMFILE)
    raw.setblocking(False)
    raw.bind(("127.0.0.1", 0))
    raw.listen()
    port = raw.getsockname()[1]
    clients = [await anyio.connect_tcp("127.0.0.1", port) for _ in range(3)]
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            await tasks.start(server.serve, FlakyListener(raw))
            for client in clients:
                status, body = await answer(client)
                assert status == 503 and b"no free file descriptor" in body
                await client.aclose()
            assert raw.attempts == 4, "one that failed, and three clients"
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await stream.send(get("/healthz"))
                assert (await answer(stream))[0] == 200
            assert raw.attempts == 5
            await server.drain()


class Counting(Flaky):
    """A listener that records in which turn of the event loop it has accepted each connection."""

    turn = 0
    next: asyncio.Handle

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[int] = []

    def accept(self) -> tuple[socket.socket, object]:
        accepted = super().accept()
        self.turns.append(self.turn)
        return accepted

    def count_turns(self) -> None:
        self.turn += 1
        self.next = asyncio.get_running_loop().call_soon(self.count_turns)


@pytest.mark.parametrize("most", [100, 4])
async def test_connections_that_wait_are_accepted_in_one_turn_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """No client waits for as many turns as connections came before its own, and those that are served get theirs."""
    monkeypatch.setattr(http_server, "TURN_ACCEPTS", most)
    server = HttpServer(SURFACE, FakePort(), FakeFiles(), Limits(), pages=pages)
    raw = Counting()
    raw.setblocking(False)
    raw.bind(("127.0.0.1", 0))
    raw.listen()
    clients = [socket.create_connection(raw.getsockname()) for _ in range(12)]
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            raw.count_turns()
            await tasks.start(server.serve, FlakyListener(raw))
            while len(raw.turns) < len(clients):
                await anyio.lowlevel.checkpoint()
            raw.next.cancel()
            for client in clients:
                client.close()
            await server.drain()
    counts = [raw.turns.count(turn) for turn in dict.fromkeys(raw.turns)]
    assert counts == [12] if most == 100 else len(counts) >= 3 and max(counts) <= most, counts


async def test_connections_that_cannot_even_get_a_503_are_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "TURNED_AWAY_MAX", 0)
    async with listening(Limits(connections_max=1)) as w:
        async with await w.connect() as first:
            await first.send(get("/healthz"))
            assert (await answer(first))[0] == 200
            second = await w.connect()  # it waits in the kernel's queue
            await second.send(get("/healthz"))
            with anyio.move_on_after(0.05) as scope:
                await second.receive()
            assert scope.cancelled_caught
        assert (await answer(second))[0] == 200
        await second.aclose()


def test_protocols_are_used_where_there_are_such_unless_chosen_otherwise() -> None:
    async def drivers() -> list[bool]:
        await anyio.lowlevel.checkpoint()
        return [uses_protocols(choice) for choice in (None, True, False)]

    assert anyio.run(drivers, backend="asyncio") == [True, True, False]
    assert anyio.run(drivers, backend="trio") == [False, False, False]
