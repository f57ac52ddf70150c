"""Metrics of the stored files: their number, their size, and why those that are gone were removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ...core.files.store.tombstones import Ending
from ...core.state.records import FileEnds, FileStatus
from ...core.status import Status
from .files import KINDS


def of_files(servers: Sequence[Status], files: Iterable[FileStatus], ends: Iterable[FileEnds]) -> Iterator[Metric]:
    """Builds the metrics of files, for each server and kind.

    Servers that the configuration no longer has are included while files of them are stored.
    """
    counts = {(server.id, kind): 0 for server in servers for kind in KINDS}
    sizes_bytes = counts.copy()
    for file in files:
        key = (file.server, str(file.kind))
        counts[key] = counts.get(key, 0) + 1
        sizes_bytes[key] = sizes_bytes.get(key, 0) + file.size_bytes
    for name, about, numbers in (
        ("isthmus_files", "Files that are stored.", counts),
        ("isthmus_files_bytes", "Their sizes together.", sizes_bytes),
    ):
        gauge = GaugeMetricFamily(name, about, labels=["server", "kind"])
        for labels, number in numbers.items():
            gauge.add_metric(labels, number)
        yield gauge
    gone = {(server, kind, reason.value): 0 for server, kind in counts for reason in Ending}
    gone |= {(end.server, str(end.kind), end.why): end.count for end in ends}
    counter = CounterMetricFamily(
        "isthmus_files_gone",
        "Files that are stored no more: expired, evicted to make room, deleted by an operator, or closed with their "
        "session.",
        labels=["server", "kind", "reason"],
    )
    for end_labels, number in gone.items():
        counter.add_metric(end_labels, number)
    yield counter
