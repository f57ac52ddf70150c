"""What one connection does that takes its time: tasks, which end with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final

from anyio import CancelScope

from ..base.wire import Wire

_log: Final = logging.getLogger("isthmus.http")


class Jobs:
    """Uploads, downloads, pages, WebSockets, and what is passed on. An ordinary request needs none.

    Args:
        then: called whenever one has ended, with whether it failed by our own fault, which is logged.
    """

    __slots__ = ("_scopes", "_then", "_wire")

    def __init__(self, wire: Wire, then: Callable[[bool], None]) -> None:
        self._wire = wire
        self._then = then
        self._scopes: list[CancelScope] = []

    def __bool__(self) -> bool:
        """Whether any is under way."""
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
        except Exception:  # whatever went wrong with one client must not disturb another
            _log.exception("a connection failed")
            has_failed = True
        finally:
            self._scopes.remove(scope)
            self._then(has_failed)
