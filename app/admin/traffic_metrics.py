"""Metrics of file transfers over HTTP, uploads and downloads, and of HTTP responses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ...transports.base.traffic import Counts, Direction, Outcome, TransferKind


class TrafficMetrics(Collector):
    """Transfers and responses counted since the listener started.

    Args:
        servers: the configured servers; each has a sample of every metric from the start, beginning at 0.
    """

    def __init__(self, counts: Counts, servers: Sequence[str]) -> None:
        self._counts = counts
        self._ways = [TransferKind(server, direction) for server in servers for direction in Direction]

    def collect(self) -> Iterator[Metric]:
        going = GaugeMetricFamily(
            "isthmus_transfers_in_progress",
            "Uploads (direction in) and downloads (out) that go on now.",
            labels=["server", "direction"],
        )
        moved = CounterMetricFamily(
            "isthmus_transferred_bytes", "What they brought so far.", labels=["server", "direction"]
        )
        over = CounterMetricFamily(
            "isthmus_transfers", "Requests for them that have ended.", labels=["server", "direction", "outcome"]
        )
        for way in self._ways:
            labels = [way.server, way.direction.value]
            going.add_metric(labels, self._counts.under_way[way])
            moved.add_metric(labels, self._counts.size_bytes[way])
            for outcome in Outcome:
                over.add_metric([*labels, outcome.value], self._counts.over[way, outcome])
        yield from (going, moved, over)
        responses = CounterMetricFamily("isthmus_http_responses", "HTTP responses.", labels=["route", "status"])
        for (area, status), count in self._counts.responses.items():
            responses.add_metric([area, str(status)], count)
        yield responses
