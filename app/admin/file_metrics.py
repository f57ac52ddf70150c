"""The stored files as numbers: how many there are, how large, and what became of those that are gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ...core.files.store.records import FileEnds, FileStatus
from ...core.files.store.tombstones import Ending
from ...core.status import Status
from .files import KINDS


def of_files(servers: Sequence[Status], files: Iterable[FileStatus], ends: Iterable[FileEnds]) -> Iterator[Metric]:
    """A file may be of a server that the configuration has no more."""
    counts = {(server.id, kind): 0 for server in servers for kind in KINDS}
    sizes_bytes = counts.copy()
    for file in files:
        whose = (file.server, str(file.kind))
        counts[whose] = counts.get(whose, 0) + 1
        sizes_bytes[whose] = sizes_bytes.get(whose, 0) + file.size_bytes
    for name, about, numbers in (
        ("isthmus_files", "Files that are stored.", counts),
        ("isthmus_files_bytes", "Their sizes together.", sizes_bytes),
    ):
        gauge = GaugeMetricFamily(name, about, labels=["server", "kind"])
        for labels, number in numbers.items():
            gauge.add_metric(labels, number)
        yield gauge
    gone = {(server, kind, why.value): 0 for server, kind in counts for why in Ending}
    gone |= {(end.server, str(end.kind), end.why): end.count for end in ends}
    counter = CounterMetricFamily(
        "isthmus_files_gone",
        "Files that are stored no more: expired, evicted to make room, deleted by an operator, or closed with their "
        "session.",
        labels=["server", "kind", "reason"],
    )
    for reason, number in gone.items():
        counter.add_metric(reason, number)
    yield counter
