"""Whether a peer is to be read: what its owner ordered by `pause` and `resume`."""

from __future__ import annotations

from collections.abc import Callable

import anyio


class Gate:
    """Open or shut: whoever comes while it is shut waits.

    Attributes:
        watcher: called when it has been opened or shut.
    """

    def __init__(self) -> None:
        self._opening: anyio.Event | None = None
        self.watcher: Callable[[], None] | None = None

    @property
    def is_open(self) -> bool:
        return self._opening is None

    def shut(self) -> None:
        if self._opening is None:
            self._opening = anyio.Event()
            self._tell()

    def open(self) -> None:
        if self._opening is not None:
            self._opening.set()
            self._opening = None
            self._tell()

    def _tell(self) -> None:
        if self.watcher is not None:
            self.watcher()

    async def wait_open(self) -> None:
        while self._opening is not None:
            await self._opening.wait()
