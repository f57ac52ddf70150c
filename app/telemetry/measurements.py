"""The counters and measurements of a gateway, but for those of its HTTP listener."""

from __future__ import annotations

from typing import NamedTuple

from .counters import Counters
from .histogram import Histogram
from .store_times import StoreTimes


class Measurements(NamedTuple):
    """The counters and measurements of a gateway.

    Attributes:
        counters: of requests and sessions.
        stores: of the storage.
        lag: of the event loop.
    """

    counters: Counters
    stores: StoreTimes
    lag: Histogram
