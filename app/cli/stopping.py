"""The reaction to the stop signal of a process that serves HTTP."""

from __future__ import annotations

import anyio

from ..gateway import Gateway
from ..runtime.signals import Stop


async def stop_in_order(stop: Stop, service: Gateway, scope: anyio.CancelScope) -> None:
    """Waits for the stop signal, lets balancers turn to other processes, and cancels `scope`."""
    is_stopping = anyio.Event()
    stop.order, stop.hurry = is_stopping.set, service.hurry
    await is_stopping.wait()
    await service.announce_stop()
    scope.cancel()
