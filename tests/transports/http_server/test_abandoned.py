"""Clients that hang up in the middle of a body: what they sent goes with them, without the garbage collector."""

from __future__ import annotations

import gc
import tracemalloc

import anyio
import pytest
from http_fakes import anyio_backend as anyio_backend
from http_fakes import post, world

pytestmark = pytest.mark.anyio

SIZE_BYTES = 1 << 20
ROUNDS = 3


async def test_the_body_of_a_client_that_hangs_up_is_dropped() -> None:
    request = post(b"x" * SIZE_BYTES)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(ROUNDS):
            async with world() as w:
                await w.client.send(request[:-1], cut=SIZE_BYTES // 8)
                await anyio.wait_all_tasks_blocked()
                assert tracemalloc.get_traced_memory()[0] > SIZE_BYTES
                w.client.stream.hang_up()
                await anyio.wait_all_tasks_blocked()
                assert tracemalloc.get_traced_memory()[0] < SIZE_BYTES
    finally:
        tracemalloc.stop()
        gc.enable()
