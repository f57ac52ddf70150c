"""Connections to upstreams on their way to being asyncio protocols: for addresses that need no look-up, no TLS and no
choice between several, without a stream in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from ...core.base.effects import Cause, End
from ..base.dialer import LOST, Dialler
from .connection import Connection

_log: Final = logging.getLogger("isthmus.http")


class ConnectingDriver(asyncio.Protocol):
    """Makes one connection, in a task of the event loop's own, and gives it away in the call that says that it is made.

    Args:
        take_over: takes the transport, and is the connection's driver from then on; or says that it does not.
        when_over: called once, with this, when it is another's, or there is none.
    """

    __slots__ = (
        "_connection",
        "_dialler",
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
        dialler: Dialler,
        take_over: Callable[[asyncio.Transport], bool],
        when_over: Callable[[ConnectingDriver], None],
    ) -> None:
        self._connection = connection
        self._dialler = dialler
        self._take_over = take_over
        self._when_over = when_over
        self._is_given_up = False
        self._is_taken = False
        self._is_settled = False
        self._task: asyncio.Task[None] | None = None
        self._limit: asyncio.Timeout | None = None  # of the task

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._end)  # one that is cancelled early never runs

    def wake(self) -> None:
        """Who takes over looks for the request."""

    def resume(self) -> None:
        """Nothing is read before."""

    def close(self) -> None:
        self._is_given_up = True
        if self._task is not None and not self._is_taken:
            self._task.cancel()

    def stop(self) -> None:
        """Close now, and tell whoever waits."""
        self.close()
        self._settle()

    def has_input(self) -> bool:
        return False

    def rest(self) -> None:
        """Nothing is kept."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """From here to the next turn the task waits for what has happened: who ends it now closes the transport below
        whoever took it, who on uvloop is never told."""
        made = cast(asyncio.Transport, transport)
        limit = self._limit
        is_late = self._is_given_up or (limit is not None and limit.expired())
        self._is_taken = not is_late and self._take_over(made)
        if not self._is_taken:
            made.abort()
        elif limit is not None:
            limit.reschedule(None)

    async def _run(self) -> None:
        dialler, address = self._dialler, self._dialler.address
        try:
            async with asyncio.timeout(dialler.timeout_s) as self._limit:
                await asyncio.get_running_loop().create_connection(lambda: self, address.host, address.port)
        except LOST as error:
            self._connection.fail(Cause(End.UNREACHABLE, dialler.describe(error), unsent=True))
        except Exception:  # whatever went wrong with one connection must not take the others with it
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
