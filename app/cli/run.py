"""Runs the work of a command until it is done or stopped, and says with which code it exits."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import anyio

from ..base import output
from ..base.errors import ConfigError, Failed, StartError
from ..runtime.event_loop import loop_of
from ..runtime.signals import Stop, stoppable

DONE, FAILED, USAGE = 0, 1, 2


def no_command(command: list[str], name: str) -> None:
    if command:
        raise ConfigError(f"got a command after --, which `isthmus {name}` does not take")


def run(work: Callable[[Stop], Awaitable[int]], if_stopped: int) -> int:
    try:
        return anyio.run(stoppable, work, if_stopped, **loop_of(os.environ))
    except* (ConfigError, StartError, Failed, output.OutputClosed) as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[Exception]) -> Exception:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def complain(text: str) -> None:
    output.complain(f"isthmus: {text}")
