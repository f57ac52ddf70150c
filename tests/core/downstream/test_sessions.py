"""Tests of clients with sessions: each request gets its own response, also among batches."""

from __future__ import annotations

import pytest
from driving import connect, driver, request

BATCHING = "2025-03-26"


@pytest.mark.parametrize("size", [2, 3])
def test_the_requests_of_a_batch_are_distinguished_from_those_before_and_after_it(size: int) -> None:
    """The requests are all open at once on one pipe. Each single request gets a single response, and the batch gets one
    array."""
    world = driver()
    client = connect(world, "pipe", "pipe", revision=BATCHING)
    assert client.pipe is not None
    before = [f'"before {n}"' for n in range(size)]
    batch = [f'"batch {n}"' for n in range(size)]
    for id_raw in before:
        client.request(id_raw, "tools/list")
    world.send(client.pipe, b"[" + b",".join(request(id_raw, "tools/list") for id_raw in batch) + b"]")
    client.request('"after"', "tools/list")
    assert world.engine.exchange_count == 2 * size + 1
    asked = [world.take_sent("tools/list") for _ in range(2 * size + 1)]
    for number, received in enumerate(asked):
        world.answer(received, f'{{"tools":[],"_meta":{{"asked":{number}}}}}')
    answered = {}
    arrays = []
    for frame in world.frames(client.pipe):
        arrays.append(len(frame) if isinstance(frame, list) else 1)
        for one in frame if isinstance(frame, list) else [frame]:
            answered[f'"{one["id"]}"'] = one["result"]["_meta"]["asked"]
    assert arrays == [*[1] * size, size, 1]
    assert answered == {id_raw: number for number, id_raw in enumerate([*before, *batch, '"after"'])}
    assert world.engine.exchange_count == 0
