"""Listeners to the telemetry events of the engine: the request log, and the counters behind the metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...core.base.telemetry import AnyEvent, Detail


class Listener(NamedTuple):
    """A listener to telemetry events.

    Attributes:
        detail: the events that it is given.
        receive: called with each event, in the turn that caused it: it does not block.
    """

    detail: Detail
    receive: Callable[[AnyEvent], None]


def detail_of(listeners: Sequence[Listener]) -> Detail:
    """Returns the events that are to be emitted for these listeners."""
    return max((listener.detail for listener in listeners), default=Detail.NONE)
