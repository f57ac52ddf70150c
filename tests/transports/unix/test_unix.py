"""Tests of Unix domain sockets: a server that is connected to, and a listener whose clients speak as on stdio."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from isthmus.core.base.effects import Close, Send
from isthmus.core.base.events import Connected, End, PipeOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.transports.stdio.client import at_once
from isthmus.transports.unix import listener as unix_listener
from isthmus.transports.unix.client import UnixAddress, UnixServer
from isthmus.transports.unix.listener import LineListener, PathInUse, make_room
from ports import RecordingPort

pytestmark = pytest.mark.anyio

ONE = ChannelId(1)
OPENING = PipeOpening(server="s")


class Peer:
    """The other end of a socket, in the test's hands."""

    def __init__(self, stream: anyio.abc.SocketStream) -> None:
        self.stream = stream
        self.received = b""

    async def read_line(self) -> bytes:
        with anyio.fail_after(20):
            while b"\n" not in self.received:
                self.received += await self.stream.receive()
        line, _, self.received = self.received.partition(b"\n")
        return line


@contextlib.asynccontextmanager
async def server(
    path: Path, port: RecordingPort, limits: Limits | None = None
) -> AsyncIterator[tuple[UnixServer, Peer]]:
    """The two ends of a connection to a server."""
    accepted: list[Peer] = []
    arrived = anyio.Event()
    done = anyio.Event()

    async def accept(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            accepted.append(Peer(stream))
            arrived.set()
            await done.wait()

    async with await anyio.create_unix_listener(path) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, accept)
        outlet = UnixServer(UnixAddress(str(path)), ONE, port, limits or Limits(), log=lambda line: None)
        tasks.start_soon(outlet.run)
        await arrived.wait()
        assert await port.wait_opened(ONE) == Connected()
        yield outlet, accepted[0]
        done.set()
        tasks.cancel_scope.cancel()


async def test_messages_travel_both_ways_a_line_each(tmp_path: Path) -> None:
    port = RecordingPort()
    async with server(tmp_path / "s", port) as (outlet, peer):
        outlet.send(Send(ONE, b'{"a":1}'))
        assert await peer.read_line() == b'{"a":1}'
        await peer.stream.send(b'{"b":2}\r\n{"c"')
        await peer.stream.send(b":3}\n")
        await port.wait_until(lambda: len(port.messages[ONE]) == 2)
        assert port.messages[ONE] == [b'{"b":2}', b'{"c":3}']
        await port.wait_until(lambda: port.sent_bytes[ONE] == 7)


async def test_a_server_that_hangs_up_is_lost(tmp_path: Path) -> None:
    port = RecordingPort()
    async with server(tmp_path / "s", port) as (_, peer):
        await peer.stream.aclose()
        await port.wait_until(lambda: ONE in port.closes)
    assert port.closes[ONE].end is End.BROKEN


async def test_what_was_sent_before_the_end_still_arrives(tmp_path: Path) -> None:
    port = RecordingPort()
    async with server(tmp_path / "s", port) as (outlet, peer):
        outlet.send(Send(ONE, b'"last"'))
        outlet.close(Close(ONE))
        assert await peer.read_line() == b'"last"'
        await port.wait_until(lambda: ONE in port.closes)
    assert port.closes[ONE].end is End.DONE


async def test_a_line_too_long_is_answered_for(tmp_path: Path) -> None:
    port = RecordingPort()
    async with server(tmp_path / "s", port, Limits(reply_size_max_bytes=100)) as (_, peer):
        await peer.stream.send(b'{"jsonrpc":"2.0","id":7,"result":"' + b"x" * 200 + b'"}\n"next"\n')
        await port.wait_until(lambda: len(port.messages[ONE]) == 2)
    assert b'"id":7,"error"' in port.messages[ONE][0]
    assert port.messages[ONE][1] == b'"next"'


@pytest.mark.parametrize("kind", ["missing", "left behind", "too long"])
async def test_a_server_that_cannot_be_reached_says_why(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("x" * 200 if kind == "too long" else "s")
    if kind == "left behind":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
    port = RecordingPort()
    await UnixServer(UnixAddress(str(path)), ONE, port, Limits(), log=lambda line: None).run()
    cause = port.closes[ONE]
    assert (cause.end, cause.unsent) == (End.UNREACHABLE, True)
    assert str(path) in cause.detail


@contextlib.asynccontextmanager
async def listening(
    path: Path,
    port: RecordingPort,
    limits: Limits | None = None,
    wait_answered: Callable[[ChannelId], Awaitable[None]] = at_once,
) -> AsyncIterator[None]:
    log: list[str] = []
    listener = LineListener(str(path), port, OPENING, limits or Limits(), wait_answered=wait_answered, log=log.append)
    async with anyio.create_task_group() as tasks:
        await tasks.start(listener.serve)
        yield
        tasks.cancel_scope.cancel()


class Failing(socket.socket):
    """A listener that finds no descriptor a few times."""

    def accept(self) -> tuple[socket.socket, object]:
        self.failures = getattr(self, "failures", 0) + 1
        if self.failures <= 3:
            raise OSError(errno.EMFILE, "no descriptor")
        return super().accept()


async def test_a_lack_of_descriptors_is_logged_once_and_the_client_is_served_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_listener, "ACCEPT_PAUSE_S", 0.001)
    port, path, log = RecordingPort(), tmp_path / "s", list[str]()
    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", Failing)
        listener = LineListener(str(path), port, OPENING, Limits(), log=log.append)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            await tasks.start(listener.serve)
            async with await anyio.connect_unix(path) as stream:
                await stream.send(b"{}\n")
                while not port.messages:
                    await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert log == ["cannot accept a connection for now: no descriptor"]


async def test_each_client_is_a_channel_of_its_own(tmp_path: Path) -> None:
    port, path = RecordingPort(), tmp_path / "s"
    async with listening(path, port):
        async with await anyio.connect_unix(path) as first, await anyio.connect_unix(path) as second:
            await first.send(b'"of first"\n')
            await second.send(b'"of second"\n')
            await port.wait_until(lambda: sum(map(len, port.messages.values())) == 2)
            assert sorted(map(tuple, port.messages.values())) == [(b'"of first"',), (b'"of second"',)]
            channel = next(channel for channel, messages in port.messages.items() if messages == [b'"of second"'])
            port.outlets[channel].send(Send(channel, b'"hello"'))
            assert await Peer(second).read_line() == b'"hello"'
        await port.wait_until(lambda: len(port.closes) == 2)
    assert set(port.opened_channels.values()) == {OPENING}
    assert not path.exists(), "the file goes with the listener"


async def test_a_client_that_closed_its_sending_side_is_still_answered(tmp_path: Path) -> None:
    """A client may close its sending side alone, as on stdio."""
    port, path, is_answered = RecordingPort(), tmp_path / "s", anyio.Event()
    async with listening(path, port, wait_answered=lambda channel: is_answered.wait()):
        async with await anyio.connect_unix(path) as client:
            await client.send(b'"ask"\n')
            await client.send_eof()
            channel = await port.wait_any_opened()
            assert await port.wait_message(channel) == [b'"ask"']
            await anyio.wait_all_tasks_blocked()
            assert not port.closes
            port.outlets[channel].send(Send(channel, b'"answer"'))
            assert await Peer(client).read_line() == b'"answer"'
            is_answered.set()
            assert (await port.wait_closed(channel)).end is End.GONE


async def test_who_has_left_is_not_waited_for(tmp_path: Path) -> None:
    port, path = RecordingPort(), tmp_path / "s"
    async with listening(path, port, wait_answered=lambda channel: anyio.sleep_forever()):
        async with await anyio.connect_unix(path) as client:
            await client.send(b'"ask"\n')
            channel = await port.wait_any_opened()
            await port.wait_message(channel)
        assert (await port.wait_closed(channel)).end is End.GONE


async def test_only_the_owner_may_connect(tmp_path: Path) -> None:
    async with listening(tmp_path / "s", RecordingPort()):
        assert stat.S_IMODE(os.stat(tmp_path / "s").st_mode) == 0o600


async def test_a_client_too_many_is_turned_away(tmp_path: Path) -> None:
    port, path = RecordingPort(), tmp_path / "s"
    async with listening(path, port, Limits(connections_max=1)), await anyio.connect_unix(path):
        await port.wait_any_opened()
        async with await anyio.connect_unix(path) as second:
            with pytest.raises(anyio.EndOfStream), anyio.fail_after(20):
                await second.receive()
    assert len(port.opened_channels) == 1


async def test_a_socket_left_behind_makes_room_and_others_do_not(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path)
        one.listen()
        with pytest.raises(PathInUse, match="another process"):
            make_room(path)
    make_room(path)
    assert not os.path.exists(path)
    (tmp_path / "s").write_text("precious")
    with pytest.raises(PathInUse, match="something else"):
        make_room(path)
    assert (tmp_path / "s").read_text() == "precious"
