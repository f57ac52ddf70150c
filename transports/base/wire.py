"""The contract between one client's HTTP connection and the driver that moves its bytes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Final, Protocol

from anyio.abc import ByteStream

from ...core.access.identity import Peer

LINGER_S: Final = 2.0
"""Seconds a refused client may take to finish sending. Closing a socket with unread bytes would discard the reply
too."""


class Gone(Exception):
    """Raised when the client hung up."""


class Silent(Exception):
    """Raised when a peer sent or took nothing within its time limit."""


class Wire(Protocol):
    """The driver's side. It calls the inputs of its `Connection`, but never from within one of these methods."""

    def write(self, parts: list[bytes | bytearray]) -> bool:
        """Writes these bytes. Returns False if they are still buffered: `Connection.handle_written` is called once they
        have left, and no other write comes before that."""

    def read(self, is_wanted: bool) -> None:
        """Starts or stops reading. At the beginning it reads."""

    def set_timeout(self, timeout_s: float) -> None:
        """Calls `Connection.handle_timeout` after `timeout_s`. Replaces the timeout set before."""

    def rest(self) -> None:
        """Releases timers and buffers: the connection is idle until the next call. There may be thousands of such
        connections."""

    def wake(self, at_once: bool) -> None:
        """Calls `Connection.handle_wake` soon, once. With `at_once` there is no reason to wait for further output."""

    def start(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Runs `work` as a task. It raises nothing but cancellation."""

    async def take_stream(self) -> ByteStream:
        """Returns the raw stream. From now on the connection receives no data, and neither reads nor writes."""

    def end_sending(self) -> None:
        """Shuts down the sending side, where the transport can."""

    def close(self) -> None:
        """Closes the transport. Unsent data is dropped, and the connection is called no more."""

    def cut(self) -> None:
        """Makes the coming close a TCP reset."""

    @property
    def peer(self) -> Peer:
        """The client."""
