"""Tests of lines carried by asyncio's callbacks: few writes, patience with slow readers, and no swallowed error.

The tests of the modules that carry lines run over each driver, and show that all drivers do the same.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
from isthmus.core.wire.ndjson import LineReader
from isthmus.transports.base.descriptors import Descriptor
from isthmus.transports.base.gate import Gate
from isthmus.transports.stdio.asyncio_lines import LineReading, LineWriting
from isthmus.transports.stdio.outbox import Outbox

pytestmark = pytest.mark.anyio
TURNS = 20
PATIENCE_S = 20.0


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": False}  # one whose clock can be set


async def turns() -> None:
    """Lets the event loop go round until everything that is ready has run."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def ignore(_: object) -> None:
    pass


async def test_what_is_queued_in_one_turn_leaves_in_one_write() -> None:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # where each write can be observed
    reports: list[int] = []
    outbox = Outbox()
    outbox.put(b"{}")
    with near, far, Descriptor(near.fileno()) as sink:
        far.setblocking(False)
        writing = asyncio.create_task(LineWriting(outbox, sink, reports.append, stall_timeout_s=None).run())
        outbox.put(b"[1]")
        await turns()
        assert far.recv(100) == b"{}\n[1]\n"
        outbox.put(b"[2]")
        outbox.put(b"unreported", is_reported=False)
        outbox.put(b"[3]")
        outbox.end()
        outbox.put(b"too late")
        await asyncio.wait_for(writing, PATIENCE_S)
        assert far.recv(100) == b"[2]\nunreported\n[3]\n"
        with pytest.raises(BlockingIOError):
            far.recv(100)
    assert reports == [5, 6]


async def test_who_reads_slowly_is_waited_for_and_who_does_not_read_is_not() -> None:
    """The timeout counts from the last byte that was taken."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    loop.time = lambda: now  # type: ignore[method-assign]
    reading, writing_fd = os.pipe()
    outbox = Outbox()
    outbox.put(b"x" * 1_000_000)
    try:
        with Descriptor(writing_fd) as sink:
            writing = asyncio.create_task(LineWriting(outbox, sink, ignore, stall_timeout_s=10).run())
            await turns()
            for _ in range(3):
                now += 9
                assert os.read(reading, 100_000)
                await turns()
                assert not writing.done()
            now += 9
            await turns()
            assert not writing.done()
            now += 2
            await turns()
            assert writing.done()
            assert isinstance(writing.exception(), TimeoutError)
    finally:
        del loop.time  # type: ignore[method-assign]
        os.close(reading)
        os.close(writing_fd)


def mistake(_: object) -> None:
    raise ZeroDivisionError


async def read_one_line(take: Callable[[object], None]) -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, b"{}\n")
        os.close(writing)
        with Descriptor(reading) as source:
            lines = LineReader(line_size_max_bytes=100)
            await LineReading(source, lines, Gate(), take, read_size_bytes=100).run()
    finally:
        os.close(reading)


async def write_one_line(report: Callable[[object], None]) -> None:
    reading, writing = os.pipe()
    outbox = Outbox()
    outbox.put(b"{}")
    try:
        with Descriptor(writing) as sink:
            await LineWriting(outbox, sink, report, stall_timeout_s=None).run()
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("carry", [read_one_line, write_one_line])
async def test_an_error_of_the_callback_is_raised(carry: Callable[..., Any]) -> None:
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(carry(mistake), PATIENCE_S)
