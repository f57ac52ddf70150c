"""Checks of `telemetry`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..base.problem import Problem
from .telemetry_settings import Telemetry
from .value_checks import check_headers, check_url


def check_telemetry(telemetry: Telemetry, is_sound: Callable[[str], bool]) -> Iterator[Problem]:
    """Checks `telemetry`."""
    if not is_sound("telemetry") or telemetry.traces is None or not is_sound("telemetry.traces"):
        return
    if telemetry.traces.endpoint is not None:
        yield from check_url("telemetry.traces.endpoint", telemetry.traces.endpoint, may_query=False)
    yield from check_headers("telemetry.traces.headers", telemetry.traces.headers)
