"""What one client's connection asks of whoever moves its bytes: of one of the two drivers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Final, Protocol

from anyio.abc import ByteStream

LINGER_S: Final = 2.0
"""Closing with unread bytes makes the kernel discard the reply as well, so a refused client may finish for so long."""


class Gone(Exception):
    """The client hung up."""


class Silent(Exception):
    """The client did nothing for too long."""


class Wire(Protocol):
    """Calls the inputs of its `Connection`, none of them from within one of these."""

    def write(self, parts: list[bytes | bytearray]) -> bool:
        """Send these. False if they have not left yet: `Connection.handle_written` is called then, and no other write
        comes before it."""

    def read(self, is_wanted: bool) -> None:
        """Read on, or do not. At the beginning it reads."""

    def set_timeout(self, timeout_s: float) -> None:
        """Call `Connection.handle_timeout` when so much time has passed, instead of what was asked before."""

    def rest(self) -> None:
        """Nothing is due until somebody asks for it again: what is kept for it may go. There may be thousands."""

    def wake(self, at_once: bool) -> None:
        """Call `Connection.handle_wake` soon, once; `at_once`: there is no reason to wait."""

    def start(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run it as a task. It raises nothing but cancellation."""

    async def take_stream(self) -> ByteStream:
        """The bytes themselves: from now on none of them is told to the connection, which neither reads nor writes."""

    def end_sending(self) -> None:
        """Say that no more comes, where the transport can."""

    def close(self) -> None:
        """The connection is over: nothing more is told to it. Whatever was not sent is dropped."""

    def cut(self) -> None:
        """Make the closing a reset."""

    @property
    def peer_host(self) -> str:
        """The client's address, if it has one."""
