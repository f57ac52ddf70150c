"""Metrics of requests, tool calls, sessions, the storage and the event loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from ...core.base.telemetry import Outcome
from ..telemetry.counters import Counters
from ..telemetry.measurements import Measurements
from ..telemetry.store_times import StoreTimes

_OUTCOMES: Final = {outcome.value: outcome.value.replace(" ", "_") for outcome in Outcome}


def of_measurements(measurements: Measurements, lost: Mapping[str, int]) -> Iterator[Metric]:
    """Yields the metrics of what was counted and measured. `lost` counts the telemetry events that were lost."""
    measurements.counters.count()
    yield from _of_counters(measurements.counters)
    yield from _of_stores(measurements.stores)
    lag = HistogramMetricFamily("isthmus_event_loop_lag_seconds", "How late the event loop is, measured at intervals.")
    lag.add_metric([], measurements.lag.buckets(), measurements.lag.sum_s)
    yield lag
    events = CounterMetricFamily("isthmus_events_dropped", "Telemetry events that were lost.", labels=["reason"])
    for reason, count in lost.items():
        events.add_metric([reason], count)
    yield events


def of_spans(dropped: Mapping[str, int]) -> Metric:
    """Returns the metric of the spans that were dropped, by reason."""
    spans = CounterMetricFamily("isthmus_spans_dropped", "Spans that no collector got.", labels=["reason"])
    for reason, count in dropped.items():
        spans.add_metric([reason], count)
    return spans


def of_disk(free_bytes: int, size_bytes: int) -> Iterator[Metric]:
    """Yields the metrics of the file system of the storage."""
    yield GaugeMetricFamily("isthmus_storage_free_bytes", "Bytes that are free where the storage is.", free_bytes)
    yield GaugeMetricFamily("isthmus_storage_size_bytes", "Bytes of the file system where the storage is.", size_bytes)


def _of_counters(counters: Counters) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "isthmus_requests", "Requests of clients that have ended.", labels=["server", "method", "outcome"]
    )
    durations = HistogramMetricFamily(
        "isthmus_request_duration_seconds", "Time from a request to its response.", labels=["server", "method"]
    )
    for key, ended in counters.requests.items():
        for outcome, count in ended.outcomes.items():
            requests.add_metric([*key, _OUTCOMES[outcome]], count)
        durations.add_metric(key, ended.durations.buckets(), ended.durations.sum_s)
    yield from (requests, durations)
    upstream = HistogramMetricFamily(
        "isthmus_upstream_duration_seconds", "Time from a request to a server to its answer.", labels=["server"]
    )
    for server, answered in counters.upstream.items():
        upstream.add_metric([server], answered.buckets(), answered.sum_s)
    yield upstream
    tools = CounterMetricFamily(
        "isthmus_tool_calls", "Tool calls that have ended.", labels=["server", "tool", "outcome"]
    )
    for (server, tool), outcomes in counters.tools.items():
        # Of thousands that servers list, few are called, and each sample costs time here and room in Prometheus.
        for outcome, count in outcomes.items() if any(outcomes.values()) else ():
            tools.add_metric([server, tool, _OUTCOMES[outcome]], count)
    yield tools
    sessions = CounterMetricFamily("isthmus_sessions_started", "Sessions that have started.", labels=["server"])
    for server, count in counters.sessions.items():
        sessions.add_metric([server], count)
    yield sessions


def _of_stores(stores: StoreTimes) -> Iterator[Metric]:
    labels = ["store", "operation"]
    durations = HistogramMetricFamily("isthmus_store_duration_seconds", "Time of storage orders.", labels=labels)
    failures = CounterMetricFamily("isthmus_store_failures", "Storage orders that failed.", labels=labels)
    for key, histogram in stores.durations.items():
        durations.add_metric(key, histogram.buckets(), histogram.sum_s)
        failures.add_metric(key, stores.failures[key])
    yield from (durations, failures)
