"""A measure of fairness: how long one connection that has much to parse keeps other tasks waiting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import h11
import pytest


class Turns:
    def __init__(self) -> None:
        self.seen = bytearray()

    @property
    def longest(self) -> int:
        """The most calls while no other task had a turn."""
        return max(map(len, self.seen.split(b"o")))

    @property
    def events(self) -> int:
        return self.seen.count(b"e")


@asynccontextmanager
async def watched(
    monkeypatch: pytest.MonkeyPatch, owner: type = h11.Connection, method: str = "next_event"
) -> AsyncIterator[Turns]:
    """Counts the calls of a method until the context is left."""
    turns = Turns()
    watched_method = getattr(owner, method)

    def spy(*args: object) -> object:
        turns.seen += b"e"
        return watched_method(*args)

    async def be_another() -> None:
        while True:
            turns.seen += b"o"
            await anyio.lowlevel.checkpoint()

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, spy)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(be_another)
            yield turns
            tasks.cancel_scope.cancel()
