"""Clients that hang up in the middle: what they sent goes with them, without the garbage collector."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import anyio
import pytest
from http_fakes import anyio_backend as anyio_backend
from http_fakes import post, world
from isthmus.transports.http_server.framing import HELD_MAX_BYTES

pytestmark = pytest.mark.anyio

SIZE_BYTES = 1 << 20
ROUNDS = 3
# Made before memory is traced. A test sends pieces of them, which are copies.
LARGE = post(b"x" * SIZE_BYTES)
HELD_BYTES = HELD_MAX_BYTES * 3 // 4
PIPELINED = post(b"x" * HELD_BYTES)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Traces memory, and collects nothing."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.enable()


async def test_the_body_of_a_client_that_hangs_up_is_dropped(uncollected: None) -> None:
    for _ in range(ROUNDS):
        async with world() as w:
            await w.client.send(LARGE[:-1], cut=SIZE_BYTES // 8)
            await anyio.wait_all_tasks_blocked()
            assert tracemalloc.get_traced_memory()[0] > SIZE_BYTES
            w.client.stream.hang_up()
            await anyio.wait_all_tasks_blocked()
            assert tracemalloc.get_traced_memory()[0] < SIZE_BYTES


async def test_the_pipelined_requests_of_a_client_that_hangs_up_are_dropped(uncollected: None) -> None:
    async with world() as w:
        await w.client.send(post(b"{}"))
        await w.port.wait_message()
        before_bytes = tracemalloc.get_traced_memory()[0]
        await w.client.send(PIPELINED, cut=HELD_BYTES // 8)
        await anyio.wait_all_tasks_blocked()
        assert tracemalloc.get_traced_memory()[0] > before_bytes + HELD_BYTES
        w.client.stream.hang_up()
        await anyio.wait_all_tasks_blocked()
        assert tracemalloc.get_traced_memory()[0] < before_bytes + HELD_BYTES
