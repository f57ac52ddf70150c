"""Tests of the write timeout: a peer that takes nothing is given up, one that takes little but steadily is not."""

from __future__ import annotations

import anyio
import pytest
import trio.testing
from anyio.abc import ByteStream
from http_fakes import stream_pair
from isthmus.transports.base.outbox import BRISK_S, PIECE_MAX_BYTES, PIECE_MIN_BYTES, Outbox
from isthmus.transports.base.wire import Silent

WRITE_TIMEOUT_S = 60.0


@pytest.mark.parametrize("size_bytes", [1, 4 * PIECE_MAX_BYTES])
@pytest.mark.parametrize("pause_s, is_cut", [(3.0, False), (2 * WRITE_TIMEOUT_S, True)])
def test_only_silence_is_cut(pause_s: float, is_cut: bool, size_bytes: int) -> None:
    """The clock jumps, so the test runs on trio only."""
    taken = bytearray()

    async def run() -> None:
        near, far = stream_pair(capacity=1024)
        near.outgoing.data += bytes(1024)  # full
        outbox = Outbox(near, write_timeout_s=WRITE_TIMEOUT_S)
        outbox.put(b"x" * size_bytes)

        async def read() -> None:
            while True:
                await anyio.sleep(pause_s)
                taken.extend(await far.receive(1024))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            try:
                await outbox.flush()
                assert not is_cut
            except Silent:
                assert is_cut
            tasks.cancel_scope.cancel()

    anyio.run(run, backend="trio", backend_options={"clock": trio.testing.MockClock(autojump_threshold=0)})
    assert len(taken) >= (0 if is_cut else size_bytes)


class Timed(ByteStream):
    """A stream that takes each write whole, in `takes_s` seconds of its own clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.takes_s = 0.0
        self.sizes: list[int] = []

    async def send(self, item: bytes) -> None:
        self.sizes.append(len(item))
        self.now += self.takes_s

    async def receive(self, max_bytes: int = 65536) -> bytes:
        raise AssertionError("nobody reads")

    async def send_eof(self) -> None:
        raise AssertionError("nobody ends it")

    async def aclose(self) -> None:
        """Closes nothing, as nothing is open."""


@pytest.mark.anyio
async def test_pieces_grow_for_brisk_readers_only() -> None:
    stream = Timed()
    outbox = Outbox(stream, write_timeout_s=float("inf"))
    outbox._now = lambda: stream.now
    for takes_s, least in ((0.0, PIECE_MAX_BYTES), (2 * BRISK_S, PIECE_MIN_BYTES)):
        stream.takes_s, stream.sizes = takes_s, []
        outbox.put(bytes(8 * PIECE_MAX_BYTES))
        await outbox.flush()
        assert sum(stream.sizes) == 8 * PIECE_MAX_BYTES
        assert stream.sizes[-2] == least
        assert max(stream.sizes) <= PIECE_MAX_BYTES
