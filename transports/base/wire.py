"""The contract between one HTTP connection, to a client or to a server, and the driver that moves its bytes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Final, Protocol

from anyio.abc import ByteStream

from ...core.access.identity import Peer

LINGER_S: Final = 2.0
"""Seconds a refused client may take to finish sending. Closing a socket with unread bytes would discard the reply
too."""
FOREVER: Final = float("inf")


class Gone(Exception):
    """Raised when the client hung up."""


class Silent(Exception):
    """Raised when a peer sent or took nothing within its time limit."""


class WireUser(Protocol):
    """A connection, as its driver sees it: the inputs of the driver."""

    def receive_data(self, data: bytes) -> None:
        """Takes received bytes, at least one."""

    def receive_eof(self) -> None:
        """Handles the end of input, orderly or not. Nothing more arrives."""

    def receive_refused(self) -> None:
        """Handles a peer that takes no more. Something may still arrive from it."""

    def receive_lost(self) -> None:
        """Handles the loss of the connection: nothing can be written any more, and nothing more arrives."""

    def handle_timeout(self) -> None:
        """Handles the timeout that was set with `Wire.set_timeout`: nothing arrived in time."""

    def handle_written(self) -> None:
        """Records that everything written has left."""

    def handle_stalled(self) -> None:
        """Handles a peer that took nothing for `Limits.write_timeout_s`."""

    def handle_wake(self) -> None:
        """Carries on after a call of `Wire.wake`."""

    def stop(self) -> None:
        """Ends the connection because the driver failed or ends."""


class Wire(Protocol):
    """The driver's side. It calls the inputs of its connection, but never from within one of these methods."""

    def write(self, parts: list[bytes | bytearray]) -> bool:
        """Writes these bytes. Returns False if they are still buffered: `WireUser.handle_written` is called once they
        have left, and no other write comes before that."""

    def read(self, is_wanted: bool) -> None:
        """Starts or stops reading. At the beginning it reads."""

    def set_timeout(self, timeout_s: float) -> None:
        """Calls `WireUser.handle_timeout` after `timeout_s`. Replaces the timeout set before."""

    def rest(self) -> None:
        """Releases timers and buffers: the connection is idle until the next call. There may be thousands of such
        connections."""

    def wake(self, at_once: bool) -> None:
        """Calls `WireUser.handle_wake` soon, once. With `at_once` there is no reason to wait for further output."""

    def end_sending(self) -> None:
        """Shuts down the sending side, where the transport can."""

    def close(self) -> None:
        """Closes the transport. Unsent data is dropped, and the connection is called no more."""


class ClientWire(Wire, Protocol):
    """The wire of a client's connection."""

    def start(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Runs `work` as a task. It raises nothing but cancellation."""

    async def take_stream(self) -> ByteStream:
        """Returns the raw stream. From now on the connection receives no data, and neither reads nor writes."""

    def cut(self) -> None:
        """Makes the coming close a TCP reset."""

    @property
    def peer(self) -> Peer:
        """The client."""
