"""Calls to a store on a server: blocking clients in worker threads, with every wait bounded.

A blocking client runs on both event loops. An answer of the server takes as long as the change of threads or longer, so
that costs little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeVar, TypeVarTuple

from anyio import CapacityLimiter, move_on_after, to_thread

from .interface import StorageError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CALLS_MAX: Final = 4
"""Calls to a store at the same time, and so connections to it. A PostgreSQL has 100 connections by default, to be
shared by all gateways. Four that save at once share a write to disk, and a gateway saves a few records a second."""
TURN_TIMEOUT_S: Final = 10.0
"""Seconds that a call waits while others use all connections. A client that waits for an upload or a task gets an error
that it can act on before its own time limit, usually 30 or 60 seconds."""
ANSWER_TIMEOUT_S: Final = 10.0
"""Seconds in which the server has to accept a connection, and to answer each request. A slow disk takes less than a
second, and a server that is busy with its own recovery refuses at once."""

_PATH: Final = re.compile(r"(?<![\w/])/[\w.-][\w./-]*")


class RemoteCalls:
    """The calls of one opener. At most `calls_max` run at the same time; others wait in the order of their arrival."""

    def __init__(self, *, calls_max: int = CALLS_MAX, turn_timeout_s: float = TURN_TIMEOUT_S) -> None:
        self._turns = CapacityLimiter(calls_max)
        self._threads = CapacityLimiter(calls_max)  # a call that has its turn never waits for a thread
        self._turn_timeout_s = turn_timeout_s
        self._is_closed = False

    async def run(self, work: Callable[[*Ts], T], *args: *Ts) -> T:
        """Runs `work` in a worker thread. Once begun, it is not cancelled.

        Raises:
            StorageError: the calls are closed, or others took all connections for too long.
        """
        has_turn = False
        with move_on_after(self._turn_timeout_s):
            await self._turns.acquire()
            has_turn = True
        if not has_turn:
            raise StorageError(
                f"the store is too busy: {self._turns.total_tokens} calls have had no answer for"
                f" {self._turn_timeout_s:g} seconds"
            )
        try:
            if self._is_closed:
                raise StorageError("the records are closed")
            return await to_thread.run_sync(work, *args, limiter=self._threads)
        finally:
            self._turns.release()

    def close(self) -> None:
        """Makes all further calls fail. Those that have begun go on."""
        self._is_closed = True


def shown(error: Exception, secrets: Iterable[str]) -> str:
    """Returns the first line of an error of a client, without `secrets` and without paths of this machine."""
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    for secret in secrets:
        text = text.replace(secret, "…")
    return _PATH.sub("…", text)
