"""Targets for the cost of a call: bounds that mean the same on every machine.

CPU time and throughput are judged as ratios to another subject or workload of the same run. The floors (`floor.py`,
`floor_h11.py`) are Python in the same interpreter. Byte proxies are not, so ratios of CPU time to them are shown but
not judged, except that of the relay of transparent servers, which does the same as they do. Limits are set only on
sizes of memory, and on the CPU time of a second in which nothing happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

Figures = dict[str, float]
Results = dict[str, dict[str, Figures]]
"""Figures by workload and subject."""


@dataclass(frozen=True)
class Gate:
    """A bound on our figure divided by that of `subject` in `workload` (None: the same workload)."""

    subject: str
    ratio: float
    workload: str | None = None


@dataclass(frozen=True)
class Target:
    """The bounds on one figure: either a limit or gates.

    Attributes:
        limit: the bound in the figure's own unit; None: there are gates.
        is_least: the bounds are minima; else they are maxima.
    """

    workload: str
    subject: str
    figure: str
    limit: float | None = None
    gates: tuple[Gate, ...] = ()
    is_least: bool = False


@dataclass(frozen=True)
class Verdict:
    """One bound of a target, with the value measured.

    Attributes:
        against: the subject that the figure is divided by; None: the bound is a limit.
        value: the figure or the ratio; None if one of the figures was not measured.
    """

    target: Target
    against: str | None
    bound: float
    value: float | None

    @property
    def is_held(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.bound if self.target.is_least else self.value <= self.bound


def _times_cheaper(factor: float, *subjects: str) -> tuple[Gate, ...]:
    return tuple(Gate(subject, 1 / factor) for subject in subjects)


OURS: Final = ("isthmus", "isthmus-anyio")
MIB_KB: Final = 1024.0

TARGETS: Final = (
    Target(
        "http_c16",
        "isthmus",
        "cpu_us",
        gates=(
            Gate("floor", 4.5),
            *_times_cheaper(2, "floor-h11"),
            *_times_cheaper(60, "fastmcp-reused"),
            *_times_cheaper(480, "fastmcp"),
        ),
    ),
    Target("http_c16", "isthmus-anyio", "cpu_us", gates=(Gate("floor-h11", 1),)),
    Target(
        "from_stdio_c16",
        "isthmus",
        "cpu_us",
        gates=(
            Gate("floor", 3.5),
            *_times_cheaper(30, "supergateway", "mcp-proxy-npm"),
            *_times_cheaper(6, "translate"),
        ),
    ),
    Target("from_stdio_c16", "isthmus-shared", "cpu_us", gates=(Gate("floor", 3.5),)),
    Target("to_stdio_c16", "isthmus", "cpu_us", gates=_times_cheaper(18, "supergateway")),
    *(
        Target(workload, subject, "cpu_us", gates=(Gate(subject, 1.4, "http_c16"),))
        for workload in ("modern_to_legacy_c16", "legacy_to_modern_c16")
        for subject in OURS
    ),
    Target("http_auth_c16", "isthmus-jwt", "cpu_us", gates=(Gate("isthmus-served", 1.1),)),
    Target("http_new_token_c16", "isthmus-new-jwt", "cpu_us", gates=(Gate("isthmus-served", 4),)),
    *(
        Target("http_profile_c16", f"isthmus-profile-{servers}", "cpu_us", gates=(Gate("isthmus-served", 1.15),))
        for servers in (5, 50, 500)
    ),
    Target(
        "http_profile_c16",
        "isthmus-prefix-5",
        "cpu_us",
        gates=(*_times_cheaper(20, "fastmcp-reused-5"), *_times_cheaper(150, "fastmcp-5")),
    ),
    Target(
        "http_profile_list_c16",
        "isthmus-lists",
        "cpu_us",
        gates=(
            Gate("isthmus-served", 4, "http_profile_c16"),
            *_times_cheaper(100, "fastmcp-reused-lists"),
            *_times_cheaper(1000, "fastmcp-lists"),
        ),
    ),
    Target("sse_profile_c16", "isthmus-prefix-5", "cpu_us", gates=_times_cheaper(5, "mcp-hub-5")),
    Target("sse_profile_list_c16", "isthmus-lists", "cpu_us", gates=_times_cheaper(2, "mcp-hub-lists")),
    Target("http_burst", "isthmus", "cpu_us", gates=(Gate("isthmus", 1 / 15, "http_c16"),)),
    Target("from_stdio_burst", "isthmus", "cpu_us", gates=(Gate("isthmus", 1 / 15, "from_stdio_c16"),)),
    Target("http_100k", "isthmus", "cpu_us", gates=(Gate("isthmus", 2, "http_c16"),)),
    Target("from_stdio_100k", "isthmus", "cpu_us", gates=(Gate("isthmus", 3, "from_stdio_c16"),)),
    Target("http_10m", "isthmus", "cpu_us", gates=(Gate("floor", 3),)),
    Target("http_10m", "isthmus", "growth_kb", 4 * MIB_KB),
    Target("from_stdio_10m", "isthmus", "growth_kb", 45 * MIB_KB),
    Target("http_churn", "isthmus", "cpu_us", gates=(Gate("isthmus", 8, "http_c16"),)),
    Target("from_stdio_churn_shared", "isthmus-shared", "cpu_us", gates=(Gate("isthmus-shared", 8, "from_stdio_c16"),)),
    Target("http_idle_1k", "isthmus", "idle_kb", 12),
    Target("http_idle_1k", "isthmus", "idle_cpu_us_per_s", 200),
    Target("http_idle_10k", "isthmus", "idle_kb", 12),
    Target("http_idle_10k", "isthmus", "idle_cpu_us_per_s", 200),
    Target("http_idle_10k", "isthmus", "cpu_us", gates=(Gate("isthmus", 1.2, "http_c16"),)),
    Target("relay_c16", "isthmus-relay", "cpu_us", gates=(*_times_cheaper(1.8, "isthmus"), Gate("nginx", 3))),
    Target("relay_64m", "isthmus-relay", "growth_kb", 4 * MIB_KB),
    *(
        Target("replicas_c16", f"isthmus-{two}{passed}", "cpu_us", gates=(Gate("isthmus-apart", ratio),))
        for two in ("workers", "replicas")
        for passed, ratio in (("", 1.05), ("-passed", 1.7))
    ),
    Target("file_upload", "isthmus", "mib_per_s", gates=(Gate("nginx", 0.5),), is_least=True),
    Target("file_upload", "isthmus", "growth_kb", 16 * MIB_KB),
    Target("file_download", "isthmus", "mib_per_s", gates=(Gate("nginx", 0.5),), is_least=True),
    Target("file_download", "isthmus", "growth_kb", 16 * MIB_KB),
    Target("start", "isthmus", "rss_kb", 45 * MIB_KB),
)
"""All targets. `idle_cpu_us_per_s` allows for a few wake-ups of the process: one for each of 10,000 sessions would take
more."""


def judge(results: Results) -> list[Verdict]:
    """Returns a verdict on every bound of every target, in order."""
    verdicts = []
    for target in TARGETS:
        ours = _figure(results, target.workload, target.subject, target.figure)
        if target.limit is not None:
            verdicts.append(Verdict(target, None, target.limit, ours))
        for gate in target.gates:
            theirs = _figure(results, gate.workload or target.workload, gate.subject, target.figure)
            ratio = ours / theirs if ours is not None and theirs else None
            name = gate.subject if gate.workload is None else f"{gate.subject} in {gate.workload}"
            verdicts.append(Verdict(target, name, gate.ratio, ratio))
    return verdicts


def _figure(results: Results, workload: str, subject: str, figure: str) -> float | None:
    return results.get(workload, {}).get(subject, {}).get(figure)
