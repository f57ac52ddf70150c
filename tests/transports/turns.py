"""Whether others get their turn while one connection has much to parse."""

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
        """The most events that h11 gave while nobody else had a turn."""
        return max(map(len, self.seen.split(b"o")))

    @property
    def events(self) -> int:
        return self.seen.count(b"e")


@asynccontextmanager
async def watched(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Turns]:
    """Watch whoever parses HTTP, until the context is left."""
    turns = Turns()
    next_event = h11.Connection.next_event

    def spy(connection: h11.Connection) -> object:
        turns.seen += b"e"
        return next_event(connection)

    async def be_another() -> None:
        while True:
            turns.seen += b"o"
            await anyio.lowlevel.checkpoint()

    with monkeypatch.context() as patch:
        patch.setattr(h11.Connection, "next_event", spy)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(be_another)
            yield turns
            tasks.cancel_scope.cancel()
