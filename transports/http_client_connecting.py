"""Connections to upstreams on their way to being asyncio protocols: for addresses that need no look-up, no TLS and no
choice between several, without a stream in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, cast

import anyio

from ..core.effects import Cause, End
from .dialling import Dialler, Unreachable
from .http_client_connection import Connection

_log: Final = logging.getLogger("isthmus.http")


class ConnectingDriver(asyncio.Protocol):
    """Makes one connection and gives it away in the call that says that it is made. Give it a task:
    `tasks.start_soon(driver.run)`.

    Args:
        take_over: takes the transport, and is the connection's driver from then on; or says that it does not.
    """

    __slots__ = ("_connection", "_dialler", "_is_taken", "_scope", "_take_over")

    def __init__(
        self, connection: Connection, dialler: Dialler, take_over: Callable[[asyncio.Transport], bool]
    ) -> None:
        self._connection = connection
        self._dialler = dialler
        self._take_over = take_over
        self._scope = anyio.CancelScope()
        self._is_taken = False

    def wake(self) -> None:
        """Who takes over looks for the request."""

    def resume(self) -> None:
        """Nothing is read before."""

    def close(self) -> None:
        self._scope.cancel()

    def has_input(self) -> bool:
        return False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast(asyncio.Transport, transport)
        self._is_taken = not self._scope.cancel_called and self._take_over(made)
        if not self._is_taken:
            made.abort()

    async def run(self) -> None:
        """Until the connection is another's, or there is none."""
        connection = self._connection
        try:
            with self._scope:
                await self._dialler.reach(partial(asyncio.get_running_loop().create_connection, lambda: self))
        except Unreachable as error:
            connection.fail(Cause(End.UNREACHABLE, str(error), unsent=True))
        except Exception:  # whatever went wrong with one connection must not take the others with it
            _log.exception("a connection to a server failed")
            connection.fail(Cause(End.BROKEN, "internal error"))
        finally:
            if not self._is_taken:
                connection.retire()
                connection.settle()
