"""The tasks of one connection, for work that takes time. They end with the connection."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, Protocol

from anyio import CancelScope

from ..base.wire import ClientWire

_log: Final = logging.getLogger("isthmus.http")


class Cancellable(Protocol):
    """Anything that ends with its connection."""

    def cancel(self) -> None: ...


class Jobs:
    """The tasks of one connection: uploads, downloads, pages, WebSockets, and connecting to transparent servers.
    Ordinary requests need none. Forwarded requests are jobs without a task.

    Args:
        then: called when a task has ended, with True if it failed by our own fault, which is logged.
    """

    __slots__ = ("_scopes", "_then", "_wire")

    def __init__(self, wire: ClientWire, then: Callable[[bool], None]) -> None:
        self._wire = wire
        self._then = then
        self._scopes: list[Cancellable] = []

    def __bool__(self) -> bool:
        """True if a task is under way."""
        return bool(self._scopes)

    def start(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        scope = CancelScope()
        self._scopes.append(scope)
        self._wire.start(partial(self._run, work, scope))

    def add(self, job: Cancellable) -> None:
        """Adds a job without a task. It is under way until it is removed."""
        self._scopes.append(job)

    def remove(self, job: Cancellable) -> None:
        if job in self._scopes:
            self._scopes.remove(job)

    def cancel(self) -> None:
        for scope in list(self._scopes):
            scope.cancel()

    async def _run(self, work: Callable[[], Coroutine[object, object, None]], scope: CancelScope) -> None:
        has_failed = False
        try:
            with scope:
                await work()
        except Exception:  # a failure with one client must not disturb others
            _log.exception("a connection failed")
            has_failed = True
        finally:
            self._scopes.remove(scope)
            self._then(has_failed)
