"""The tasks of one connection, for work that takes time. They end with the connection."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final

from anyio import CancelScope

from ..base.wire import ClientWire

_log: Final = logging.getLogger("isthmus.http")


class Jobs:
    """The tasks of one connection: uploads, downloads, pages, WebSockets and forwarded requests. Ordinary requests need
    none.

    Args:
        then: called when a task has ended, with True if it failed by our own fault, which is logged.
    """

    __slots__ = ("_scopes", "_then", "_wire")

    def __init__(self, wire: ClientWire, then: Callable[[bool], None]) -> None:
        self._wire = wire
        self._then = then
        self._scopes: list[CancelScope] = []

    def __bool__(self) -> bool:
        """True if a task is under way."""
        return bool(self._scopes)

    def start(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        scope = CancelScope()
        self._scopes.append(scope)
        self._wire.start(partial(self._run, work, scope))

    def cancel(self) -> None:
        for scope in self._scopes:
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
