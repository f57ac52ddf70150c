"""Tests of a client on stdin and stdout: lines in, lines out, and an unhurried end."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import socket
import subprocess
import sys
import tty
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec
import pytest
from isthmus.core.base.effects import Close, Send
from isthmus.core.base.events import End, PipeOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.wire.ndjson import Line, LineReader, Oversize
from isthmus.transports.base.descriptors import Descriptor
from isthmus.transports.base.gate import Gate
from isthmus.transports.stdio.asyncio_lines import TURN_LINES, Take
from isthmus.transports.stdio.client import serve_pipe
from isthmus.transports.stdio.lines import read_lines
from line_drivers import anyio_backend, driver, protocols  # noqa: F401
from ports import RecordingPort

pytestmark = pytest.mark.anyio
OPENING = PipeOpening(server="s")
LIMITS = Limits(drain_s=20.0)
PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def chosen(protocols: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setitem(HOW, "protocols", protocols)


HOW = {"protocols": True}


async def at_once(channel: ChannelId) -> None:
    """A drain condition that is true at once, as no call is open."""


class Client:
    """The far ends of the two descriptors, used without blocking."""

    tasks: anyio.abc.TaskGroup

    def __init__(self, stdin_fd: int, stdout_fd: int) -> None:
        self.port = RecordingPort()
        self.log: list[str] = []
        self._stdin_fd: int | None = stdin_fd
        self._stdout_fd: int | None = stdout_fd
        for fd in {stdin_fd, stdout_fd}:
            os.set_blocking(fd, False)

    async def write(self, data: bytes) -> None:
        assert self._stdin_fd is not None
        while data:
            await anyio.wait_writable(self._stdin_fd)
            data = data[os.write(self._stdin_fd, data) :]

    async def read(self, size: int) -> bytes:
        """Reads `size` bytes, or fewer at the end."""
        assert self._stdout_fd is not None
        data = b""
        while len(data) < size:
            await anyio.wait_readable(self._stdout_fd)
            try:
                piece = os.read(self._stdout_fd, size - len(data))
            except BlockingIOError:
                continue
            if not piece:
                break
            data += piece
        return data

    def hang_up(self) -> None:
        """Closes the server's stdin, from the far end."""
        if self._stdin_fd is not None:
            os.close(self._stdin_fd)
            self._stdin_fd = None

    def leave(self) -> None:
        self.hang_up()
        if self._stdout_fd is not None:
            os.close(self._stdout_fd)
            self._stdout_fd = None

    async def opened(self) -> ChannelId:
        return await self.port.wait_any_opened()

    def send(self, channel: ChannelId, message: bytes) -> None:
        self.port.outlets[channel].send(Send(channel, message))


@contextlib.asynccontextmanager
async def serving(
    limits: Limits = LIMITS, wait_answered: Callable[[ChannelId], Awaitable[None]] = at_once
) -> AsyncIterator[Client]:
    """Serves a client on two pipes. Serving must end by itself when the body has ended."""
    their_in, stdin_fd = os.pipe()
    stdout_fd, their_out = os.pipe()
    client = Client(stdin_fd, stdout_fd)

    async def serve() -> None:
        try:
            await serve_pipe(
                client.port,
                OPENING,
                limits,
                stdin_fd=their_in,
                stdout_fd=their_out,
                wait_answered=wait_answered,
                log=client.log.append,
                **HOW,
            )
        finally:
            os.close(their_in)
            os.close(their_out)

    try:
        with anyio.fail_after(2 * PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                client.tasks = tasks
                tasks.start_soon(serve)
                yield client
    finally:
        client.leave()


async def test_messages_go_there_and_back() -> None:
    async with serving() as client:
        channel = await client.opened()
        assert client.port.opened_channels[channel] == OPENING
        big = b'"' + b"x" * 1_000_000 + b'"'
        await client.write(b'{"a":1}\r\n\n' + big + b"\n{}\n")
        assert await client.port.wait_message(channel, 3) == [b'{"a":1}', big, b"{}"]
        client.send(channel, b"[1]")
        client.send(channel, big)
        assert await client.read(4 + len(big) + 1) == b"[1]\n" + big + b"\n"
        await client.port.wait_sent(channel, 3 + len(big))
        client.hang_up()
        assert (await client.port.wait_closed(channel)).end is End.GONE
        assert await client.read(1) == b""


async def test_the_end_of_input_leaves_open_calls_their_answers() -> None:
    is_idle = anyio.Event()
    async with serving(wait_answered=lambda channel: is_idle.wait()) as client:
        channel = await client.opened()
        await client.write(b"{}\n")
        client.hang_up()
        await client.port.wait_message(channel)
        client.send(channel, b"[1]")
        assert await client.read(4) == b"[1]\n"
        assert not client.port.closes
        client.send(channel, b"x" * 500_000)
        is_idle.set()
        assert len(await client.read(1_000_000)) == 500_001
        assert client.port.closes[channel].end is End.GONE


async def test_calls_that_never_end_are_given_up() -> None:
    async with serving(Limits(drain_s=0.1), lambda channel: anyio.sleep_forever()) as client:
        channel = await client.opened()
        client.hang_up()
        assert (await client.port.wait_closed(channel)).end is End.GONE


async def test_a_closed_channel_delivers_what_was_sent_before() -> None:
    async with serving() as client:
        channel = await client.opened()
        client.send(channel, b"x" * 500_000)
        client.port.outlets[channel].close(Close(channel))
        client.port.outlets[channel].close(Close(channel))
        client.send(channel, b"late")
        await client.write(b"{}\n")
        assert await client.read(1_000_000) == b"x" * 500_000 + b"\n"
        assert client.port.closes[channel].end is End.DONE
        assert not client.port.messages[channel]


async def test_a_client_that_does_not_read_is_let_go() -> None:
    async with serving(Limits(write_timeout_s=0.1)) as client:
        channel = await client.opened()
        client.send(channel, b"x" * 1_000_000)
        cause = await client.port.wait_closed(channel)
        assert cause.end is End.TIMED_OUT
        assert "0.1 s" in cause.detail


async def test_a_client_that_left_is_noticed_at_the_next_write() -> None:
    async with serving() as client:
        channel = await client.opened()
        client.leave()
        client.send(channel, b"{}")
        assert (await client.port.wait_closed(channel)).end is End.GONE


async def test_a_paused_client_is_not_read() -> None:
    async with serving() as client:
        channel = await client.opened()
        await client.write(b"{}\n")
        await client.port.wait_message(channel)
        client.port.outlets[channel].pause()
        await client.write(b"[]\n")
        for _ in range(20):
            await anyio.sleep(0.005)
            assert client.port.messages[channel] == [b"{}"]
        client.port.outlets[channel].resume()
        await client.port.wait_message(channel, 2)
        client.hang_up()


async def test_a_client_that_leaves_while_it_is_paused_is_let_go() -> None:
    """The end of its input comes after what is not read. Until it leaves, it may be paused for as long as its server
    likes."""
    async with serving(Limits(drain_s=0.05)) as client:
        channel = await client.opened()
        client.port.outlets[channel].pause()
        client.port.outlets[channel].resume()
        client.port.outlets[channel].pause()
        await client.write(b"[]\n")
        await anyio.sleep(0.2)
        assert channel not in client.port.closes
        client.hang_up()
        assert (await client.port.wait_closed(channel)).end is End.GONE
        assert not client.port.messages[channel]


async def test_an_oversize_request_is_refused_to_its_sender() -> None:
    """The engine did not order the refusal, so it is not reported as sent."""
    async with serving(msgspec.structs.replace(LIMITS, request_size_max_bytes=100_000)) as client:
        channel = await client.opened()
        request = {"jsonrpc": "2.0", "id": "a-1", "method": "tools/call", "params": "x" * 200_000}
        await client.write(json.dumps(request).encode() + b"\n" + b"y" * 200_000 + b"\n{}\n[2]")
        assert await client.port.wait_message(channel) == [b"{}"]
        client.send(channel, b"[1]")
        client.hang_up()
        assert await client.port.wait_message(channel, 2) == [b"{}", b"[2]"], "the end of input ends its last line"
        refusal, after = (await client.read(1_000_000)).splitlines()
        assert json.loads(refusal)["id"] == "a-1"
        assert json.loads(refusal)["error"]["code"] == -31007
        assert after == b"[1]"
        assert client.port.sent_bytes[channel] == 3
    assert sum("dropped a line" in line for line in client.log) == 2


async def test_cancellation_ends_the_channel() -> None:
    async with serving() as client:
        channel = await client.opened()
        client.tasks.cancel_scope.cancel()
    assert client.port.closes[channel].end is End.DONE


async def test_files_are_served_too(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"{}\n[1]\n")
    port = RecordingPort()
    with open(tmp_path / "in", "rb") as stdin, open(tmp_path / "out", "wb") as stdout:

        async def answer(channel: ChannelId) -> None:
            port.outlets[channel].send(Send(channel, b"[2]"))

        with anyio.fail_after(PATIENCE_S):
            await serve_pipe(
                port, OPENING, LIMITS, stdin_fd=stdin.fileno(), stdout_fd=stdout.fileno(), wait_answered=answer, **HOW
            )
    (channel,) = port.outlets
    assert port.messages[channel] == [b"{}", b"[1]"]
    assert (tmp_path / "out").read_bytes() == b"[2]\n"


async def test_a_terminal_is_served_and_keeps_its_mode() -> None:
    near, far = pty.openpty()
    tty.setraw(far)
    port = RecordingPort()
    try:
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:

                async def serve() -> None:
                    await serve_pipe(port, OPENING, LIMITS, stdin_fd=far, stdout_fd=far, **HOW)

                tasks.start_soon(serve)
                channel = await port.wait_any_opened()
                os.write(near, b"{}\n")
                await port.wait_message(channel)
                assert os.get_blocking(far)
                port.outlets[channel].send(Send(channel, b"[1]"))
                await port.wait_sent(channel, 3)
                assert os.read(near, 100) == b"[1]\n"
                port.outlets[channel].close(Close(channel))
    finally:
        os.close(near)
        os.close(far)


async def test_one_socket_serves_both_ways_and_keeps_its_mode() -> None:
    near, far = socket.socketpair()
    with near, far:
        client = Client(near.fileno(), near.fileno())

        async def serve() -> None:
            await serve_pipe(client.port, OPENING, LIMITS, stdin_fd=far.fileno(), stdout_fd=far.fileno(), **HOW)

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serve)
                channel = await client.opened()
                await client.write(b"{}\n")
                await client.port.wait_message(channel)
                client.send(channel, b"[1]")
                assert await client.read(4) == b"[1]\n"
                near.shutdown(socket.SHUT_WR)
                await client.port.wait_closed(channel)
        assert os.get_blocking(far.fileno())


SERVER = """if True:
    import sys
    import anyio
    from isthmus.core.base.effects import Send
    from isthmus.core.base.events import PipeOpening
    from isthmus.core.base.limits import Limits
    from isthmus.transports.stdio.client import serve_pipe

    HOW = {"protocols": "portable" not in sys.argv}

    class Echo:
        def open(self, opening, outlet):
            self.outlet = outlet
            print("a stray print")
            return 1
        def message(self, channel, message):
            print("another")
            self.outlet.send(Send(channel, message))
        def sent(self, channel, size_bytes): pass
        def closed(self, channel, cause): print("and one more")

    anyio.run(lambda: serve_pipe(Echo(), PipeOpening(server="s"), Limits(), **HOW),
              backend=sys.argv[1], backend_options={"use_uvloop": True} if "uvloop" in sys.argv else {})"""


def test_stdout_carries_messages_only(driver: str) -> None:  # noqa: F811
    done = subprocess.run(
        [sys.executable, "-c", SERVER, "trio" if driver == "trio" else "asyncio", driver],
        input=b"{}\n[1]\n",
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout == b"{}\n[1]\n"
    assert done.stderr.split(b"\n") == [b"a stray print", b"another", b"another", b"and one more", b""]


# --- Many lines at once ---------------------------------------------------------------------------------------------

MANY = b"".join(b"%d\n" % number for number in range(5 * TURN_LINES + 7))


async def read_many(take: Take) -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, MANY)
        os.close(writing)
        with Descriptor(reading) as source:
            lines = LineReader(line_size_max_bytes=100)
            await read_lines(source, lines, Gate(), take, read_size_bytes=len(MANY), **HOW)
    finally:
        os.close(reading)


async def test_who_says_much_at_once_leaves_others_their_turn() -> None:
    seen = bytearray()

    async def be_another() -> None:
        while True:
            seen.extend(b"o")
            await anyio.lowlevel.checkpoint()

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(be_another)
            await anyio.lowlevel.checkpoint()
            await read_many(lambda lines: seen.extend(b"l" * len(lines)))
            tasks.cancel_scope.cancel()
    runs = [len(run) for run in seen.split(b"o") if run]
    assert sum(runs) == MANY.count(b"\n")
    assert max(runs) <= 2 * TURN_LINES, "in each round, one loop or the other may choose who comes first"


async def test_what_was_read_is_handed_over_also_when_reading_ends() -> None:
    taken: list[bytes] = []
    with anyio.fail_after(PATIENCE_S), anyio.CancelScope() as scope:

        def take(lines: Sequence[Line | Oversize]) -> None:
            for line in lines:
                assert isinstance(line, Line)
                taken.append(line.data)
            scope.cancel()

        await read_many(take)
    assert taken == MANY.split()
