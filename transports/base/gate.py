"""A gate that stops reading from a peer: shut by `Outlet.pause`, opened by `Outlet.resume`."""

from __future__ import annotations

from collections.abc import Callable

import anyio


class Gate:
    """A switch that is open or shut, open at first. A task that calls `wait_open` while it is shut waits, and one that
    calls `wait_shut` while it is open.

    Attributes:
        watcher: called after each change.
    """

    def __init__(self) -> None:
        self._opening: anyio.Event | None = None
        self._shutting: anyio.Event | None = None  # somebody waits for it
        self.watcher: Callable[[], None] | None = None

    @property
    def is_open(self) -> bool:
        return self._opening is None

    def shut(self) -> None:
        if self._opening is None:
            self._opening = anyio.Event()
            if self._shutting is not None:
                self._shutting.set()
                self._shutting = None
            self._notify()

    def open(self) -> None:
        if self._opening is not None:
            self._opening.set()
            self._opening = None
            self._notify()

    def _notify(self) -> None:
        if self.watcher is not None:
            self.watcher()

    async def wait_shut(self) -> None:
        while self._opening is None:
            self._shutting = self._shutting or anyio.Event()
            await self._shutting.wait()

    async def wait_open(self) -> None:
        while self._opening is not None:
            await self._opening.wait()
