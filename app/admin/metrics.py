"""Metrics of a running proxy, in the text format of Prometheus.

Each request builds them anew from what the engine reports and what was counted elsewhere: nothing is kept here. Labels
name servers, their tools, the hosts of their URLs and states only, because scraped metrics are stored for long and read
by many. So no label names a task, a file, a session or a person.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from ...core.state.records import FileEnds, FileStatus, TaskStatus
from ...core.status import Status
from ...transports.base.traffic import Counts, Forwarded
from ..telemetry.measurements import Measurements
from .file_metrics import of_files
from .tasks import OVER, STATUSES
from .telemetry_metrics import of_disk, of_measurements, of_spans
from .traffic_metrics import TrafficMetrics

KINDS: Final = ("proxied", "local")
AGES_S: Final = (1, 10, 60, 300, 1800, 3600, 4 * 3600, 24 * 3600)
"""Upper bounds of the buckets: the time of a call, of a session, the usual time to live, and the longest."""


def exposition(
    version: str,
    servers: Sequence[Status],
    tasks: Iterable[TaskStatus],
    now_unix: float,
    *,
    files: Iterable[FileStatus] = (),
    ends: Iterable[FileEnds] = (),
    traffic: Counts | None = None,
    replicas: int | None = None,
    measurements: Measurements | None = None,
    lost: Mapping[str, int] = MappingProxyType({}),
    spans_dropped: Mapping[str, int] = MappingProxyType({}),
    disk: tuple[int, int] | None = None,
    audit_failures: int | None = None,
) -> bytes:
    """Returns the body of `GET /metrics`.

    Args:
        now_unix: wall time in seconds; ages of tasks are relative to it.
        traffic: file transfers, and requests passed on to other replicas, that the listener has counted.
        replicas: the number of replicas, this one included; None: the stores are not shared.
        measurements: what was counted and measured besides; None: nothing.
        lost: the number of telemetry events that were lost, by reason.
        spans_dropped: the number of spans that were dropped, by reason; empty: there are no spans.
        disk: the free bytes and all bytes of the file system of the storage; None: not known.
        audit_failures: the number of records that the audit log has lost; None: there is no audit log.
    """
    registry = CollectorRegistry(auto_describe=False)
    if replicas is not None:
        seen = "Replicas that use the same stores, as this one sees them, itself included."
        forwards = CounterMetricFamily(
            "isthmus_replica_forwards", "Requests passed on to other replicas that have ended.", labels=["outcome"]
        )
        for outcome in Forwarded:
            forwards.add_metric([outcome.value], traffic.forwards[outcome] if traffic is not None else 0)
        registry.register(_Given([GaugeMetricFamily("isthmus_replicas", seen, replicas), forwards]))
    if audit_failures is not None:
        unwritten = "Records of the audit log that could not be written."
        registry.register(_Given([CounterMetricFamily("isthmus_audit_failures", unwritten, audit_failures)]))
    registry.register(_Counts(version, servers, tasks, now_unix))
    registry.register(_Given(list(of_files(servers, files, ends))))
    registry.register(TrafficMetrics(traffic or Counts(), [server.id for server in servers]))
    if measurements is not None:
        registry.register(_Given(list(of_measurements(measurements, lost))))
    if spans_dropped:
        registry.register(_Given([of_spans(spans_dropped)]))
    if disk is not None:
        registry.register(_Given(list(of_disk(*disk))))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Given(Collector):
    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)


class _Counts(Collector):
    """Counts of servers and tasks. One pass over the tasks makes all their metrics, so that they agree."""

    def __init__(self, version: str, servers: Sequence[Status], tasks: Iterable[TaskStatus], now_unix: float) -> None:
        self._version = version
        self._servers = servers
        self._numbers = {(server.id, status, kind): 0 for server in servers for status in STATUSES for kind in KINDS}
        self._oldest_s = {server.id: 0.0 for server in servers}
        self._stored_bytes = {server.id: 0 for server in servers}
        self._by_age = {status: [0] * (len(AGES_S) + 1) for status in STATUSES}
        self._age_sums_s = dict.fromkeys(STATUSES, 0.0)
        for task in tasks:
            self._count(task, max(0.0, now_unix - task.created_at_unix))

    def _count(self, task: TaskStatus, age_s: float) -> None:
        # With `get`: a task may belong to a server that the configuration no longer has.
        key = (task.server, task.status, task.kind)
        self._numbers[key] = self._numbers.get(key, 0) + 1
        if task.status not in OVER:
            self._oldest_s[task.server] = max(self._oldest_s.get(task.server, 0.0), age_s)
        self._stored_bytes[task.server] = self._stored_bytes.get(task.server, 0) + task.size_bytes
        self._by_age[task.status][bisect_left(AGES_S, age_s)] += 1
        self._age_sums_s[task.status] += age_s

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("isthmus", "The running isthmus.", {"version": self._version})
        yield from self._of_servers()
        yield from self._of_tasks()

    def _of_servers(self) -> Iterator[Metric]:
        for name, about, value in (
            ("isthmus_sessions", "Clients' sessions.", "sessions"),
            ("isthmus_requests_in_flight", "Requests sent to a server and not answered yet.", "in_flight"),
            ("isthmus_server_processes", "Processes, those that are ending included.", "processes"),
        ):
            gauge = GaugeMetricFamily(name, about, labels=["server"])
            for server in self._servers:
                gauge.add_metric([server.id], getattr(server, value))
            yield gauge
        for name, about, value in (
            ("isthmus_server_starts", "Processes or connections begun.", "starts"),
            ("isthmus_server_failures", "Those of them that failed.", "failures"),
            (
                "isthmus_server_differences",
                "Definitions found that differ from the approved ones, or are refused for invisible characters.",
                "differences_seen",
            ),
            ("isthmus_server_cache_hits", "Requests that were answered with a kept result.", "cache_hits"),
            (
                "isthmus_server_cache_misses",
                "Requests that were not, though a result for them could have been kept.",
                "cache_misses",
            ),
        ):
            counter = CounterMetricFamily(name, about, labels=["server"])
            for server in self._servers:
                counter.add_metric([server.id], getattr(server, value))
            yield counter
        up = GaugeMetricFamily(
            "isthmus_server_url_up", "1: new sessions may go to the URL; 0: it is left alone.", labels=["server", "url"]
        )
        sessions = GaugeMetricFamily(
            "isthmus_server_url_sessions", "Sessions with the server that are at the URL.", labels=["server", "url"]
        )
        for server in self._servers:
            for address in server.addresses:
                up.add_metric([server.id, address.name], address.state != "ill")
                sessions.add_metric([server.id, address.name], address.sessions)
        yield from (up, sessions)

        limited = CounterMetricFamily(
            "isthmus_calls_limited", "Calls that a rate limit has refused.", labels=["server", "tool"]
        )
        for server in self._servers:
            for tool, number in server.limited:
                limited.add_metric([server.id, tool], number)
        yield limited

    def _of_tasks(self) -> Iterator[Metric]:
        numbers = GaugeMetricFamily(
            "isthmus_tasks",
            "Tasks that are kept. Kind proxied: the server's own; local: a call that goes on here.",
            labels=["server", "status", "kind"],
        )
        for key, number in self._numbers.items():
            numbers.add_metric(key, number)
        yield numbers
        oldest = GaugeMetricFamily(
            "isthmus_task_age_seconds", "Age of the oldest task that is not over.", labels=["server"]
        )
        for server, age_s in self._oldest_s.items():
            oldest.add_metric([server], age_s)
        yield oldest
        ages = GaugeHistogramMetricFamily(
            "isthmus_tasks_by_age_seconds", "Tasks by the time since they began.", labels=["status"]
        )
        for status, counts in self._by_age.items():
            bounds = [*(f"{age_s}.0" for age_s in AGES_S), "+Inf"]
            sums = [float(sum(counts[: i + 1])) for i in range(len(counts))]
            ages.add_metric([status], list(zip(bounds, sums, strict=True)), self._age_sums_s[status])
        yield ages
        stored = GaugeMetricFamily(
            "isthmus_tasks_stored_bytes", "Results and errors kept for clients to fetch.", labels=["server"]
        )
        for server, size_bytes in self._stored_bytes.items():
            stored.add_metric([server], size_bytes)
        yield stored
