"""Set-up of upstream connections as asyncio protocols, without a stream, for hosts that are IP addresses and without
TLS.

No look-up and no choice between several addresses is needed there, so the protocol can be the connection from the
start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from ...core.base.events import Cause, End
from ..base.dialer import LOST, Dialer
from ..base.keepalive import keep_alive
from .connection import Connection

_log: Final = logging.getLogger("isthmus.http")


class ConnectingDriver(asyncio.Protocol):
    """Makes one connection in a task of the event loop, and hands it over within `connection_made`.

    Args:
        take_over: makes the transport the connection's and becomes its driver. Returns False if it does not want it.
        when_over: called once, with this driver, when the connection was handed over or could not be made.
    """

    __slots__ = (
        "_connection",
        "_dialer",
        "_is_given_up",
        "_is_settled",
        "_is_taken",
        "_limit",
        "_take_over",
        "_task",
        "_when_over",
    )

    def __init__(
        self,
        connection: Connection,
        dialer: Dialer,
        take_over: Callable[[asyncio.Transport], bool],
        when_over: Callable[[ConnectingDriver], None],
    ) -> None:
        self._connection = connection
        self._dialer = dialer
        self._take_over = take_over
        self._when_over = when_over
        self._is_given_up = False
        self._is_taken = False
        self._is_settled = False
        self._task: asyncio.Task[None] | None = None
        self._limit: asyncio.Timeout | None = None  # the time limit of the task

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._end)  # a task that is cancelled before its first step never runs

    def wake(self) -> None:
        """Does nothing: the driver that takes over looks for the request."""

    def resume(self) -> None:
        """Does nothing: nothing is read before the connection is made."""

    def close(self) -> None:
        self._is_given_up = True
        if self._task is not None and not self._is_taken:
            self._task.cancel()

    def stop(self) -> None:
        """Closes now, and settles the connection."""
        self.close()
        self._settle()

    def has_input(self) -> bool:
        return False

    def rest(self) -> None:
        """Releases nothing: nothing is kept."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hands the transport over, or aborts it if the driver was closed or timed out.

        The task itself ends one turn of the event loop later. Cancelling it in between would close the transport below
        the driver that took it over, which on uvloop is never told. So `close` no longer cancels, and the timeout is
        lifted.
        """
        made = cast(asyncio.Transport, transport)
        limit = self._limit
        is_late = self._is_given_up or (limit is not None and limit.expired())
        self._is_taken = not is_late and self._take_over(made)
        if not self._is_taken:
            made.abort()
            return
        keep_alive(made.get_extra_info("socket"))
        if limit is not None:
            limit.reschedule(None)

    async def _run(self) -> None:
        dialer = self._dialer
        try:
            async with asyncio.timeout(dialer.timeout_s) as self._limit:
                await asyncio.get_running_loop().create_connection(lambda: self, *dialer.peer)
        except LOST as error:
            self._connection.fail(Cause(End.UNREACHABLE, dialer.describe(error), unsent=True))
        except Exception:  # a failure of one connection must not end the others
            _log.exception("a connection to a server failed")
            self._connection.fail(Cause(End.BROKEN, "internal error"))

    def _end(self, task: asyncio.Task[None]) -> None:
        try:
            self._settle()
        finally:
            self._when_over(self)

    def _settle(self) -> None:
        if not (self._is_taken or self._is_settled):
            self._is_settled = True
            self._connection.retire()
            self._connection.settle()
