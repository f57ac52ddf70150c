"""The tables of a run: `python bench/report.py REPORT.json` prints them; with the path of a page it fills that instead.

A page holds them between `<!-- measured figures -->` and `<!-- end of measured figures -->`.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from targets import Figures, Verdict, judge

COST_COLUMNS: Final = (
    "workload",
    "through",
    "CPU µs",
    "in the kernel",
    "× floor",
    "× nginx",
    "p50 ms",
    "added p50 ms",
    "added p99 ms",
    "p50 × direct",
    "calls/s × direct",
    "calls/s",
    "RSS MiB",
    "+ MiB",
)
UNITS: Final[dict[str, tuple[float, str]]] = {
    "cpu_us": (1, "µs CPU"),
    "growth_kb": (1024, "MiB growth"),
    "rss_kb": (1024, "MiB RSS"),
    "idle_kb": (1, "KiB per session"),
    "idle_cpu_us_per_s": (1, "µs CPU per idle second"),
    "mib_per_s": (1, "MiB/s"),
}
"""The divisor of each figure for display, and its name then."""
UNSEEN: Final = "–"


def render(report: dict[str, Any]) -> str:
    """Returns all tables of a report of `run.py`, as Markdown."""
    results = report["workloads"]
    costs = [cost_row(name, s, rows) for name, rows in results.items() if name not in APART for s in rows]
    judged = [verdict_row(verdict) for verdict in judge(results) if verdict.target.workload in results]
    parts = [f"{interpreter_line(report['python'])} {report['rounds']} rounds, medians."]
    parts += [table(columns, rows) for columns, rows in ((COST_COLUMNS, costs), *_apart(results)) if rows]
    if judged:
        parts.append("Targets: a ratio is to another subject or workload of the same run.")
        parts.append(table(("workload", "through", "figure", "measured", "bound", "held"), judged))
    if report.get("peers"):
        parts.append("Compared with: " + ", ".join(report["peers"].values()) + ".")
    if report["absent"]:
        parts.append(
            "Left out:\n\n" + "\n".join(f"- {name}: {why}" for name, why in left_out(report["absent"]).items())
        )
    if judged:
        counted = Counter(row[-1] for row in judged)
        parts.append(
            f"Bounds held: {counted['yes']}; not held: {counted['no']}; not measured: {counted['not measured']}."
        )
    return "\n\n".join(parts) + "\n"


STORAGE: Final = ("record_save", "record_save_c16", "record_load", "record_scan", "blob_write", "blob_read")
PACED: Final = ("http_paced", "relay_paced")
IDLE: Final = ("http_idle_1k", "http_idle_10k")
REPLICAS: Final = ("replicas_c16",)
FILES: Final = ("file_upload", "file_download", "relay_64m")
APART: Final = (*PACED, *IDLE, *REPLICAS, *FILES, "start", *STORAGE)
"""Workloads with other figures than the cost of a call."""


def _apart(results: dict[str, dict[str, Figures]]) -> Iterable[tuple[tuple[str, ...], list[list[str]]]]:
    def rows(names: tuple[str, ...], *figures: tuple[str, float]) -> list[list[str]]:
        found = [(name, subject, row) for name in names for subject, row in results.get(name, {}).items()]
        return [[n, s, *(number(row.get(figure), unit) for figure, unit in figures)] for n, s, row in found]

    delays = rows(PACED, ("delay_p50_us", 1000), ("delay_p99_us", 1000), ("added_delay_p50_us", 1000), ("cpu_us", 1))
    yield ("workload", "through", "delay p50 ms", "delay p99 ms", "added p50 ms", "CPU µs per event"), delays
    idle = rows(IDLE, ("idle_kb", 1), ("idle_cpu_us_per_s", 1), ("cpu_us", 1), ("rss_kb", 1024))
    yield ("workload", "through", "KiB per session", "CPU µs per idle second", "CPU µs per call", "RSS MiB"), idle
    both = rows(REPLICAS, ("cpu_us", 1), ("calls_per_s", 1))
    yield ("workload", "through", "CPU µs per call", "calls/s"), both
    files = rows(FILES, ("mib_per_s", 1), ("cpu_us", 1), ("growth_kb", 1024))
    yield ("workload", "through", "MiB/s", "CPU µs per MiB", "+ MiB"), files
    start = rows(("start",), ("cpu_us", 1000), ("p50_us", 1000), ("rss_kb", 1024))
    yield ("workload", "through", "CPU ms", "ms", "RSS MiB"), start
    kept = rows(STORAGE, ("cpu_us", 1), ("each_us", 1))
    yield ("storage", "backend", "CPU µs each", "µs each"), kept


def interpreter_line(python: dict[str, Any]) -> str:
    built = "built with optimisation" if python["says_optimised"] else "which does not say whether it was optimised"
    return f"{python['version']} of {python['from']}, {built}; its calibration loop takes {python['loop_ms']:.1f} ms."


def cost_row(workload: str, subject: str, rows: dict[str, Figures]) -> list[str]:
    row, floor, nginx, direct = rows[subject], rows.get("floor", {}), rows.get("nginx", {}), rows.get("direct", {})
    return [
        workload,
        subject,
        number(row["cpu_us"] or None),
        number(row.get("kernel_us") or None),
        number(ratio(row, floor, "cpu_us")),
        number(ratio(row, nginx, "cpu_us")),
        number(row["p50_us"], 1000),
        number(row.get("added_p50_us"), 1000),
        number(row.get("added_p99_us"), 1000),
        number(ratio(row, direct, "p50_us")),
        number(ratio(row, direct, "calls_per_s")),
        number(row["calls_per_s"]),
        number(row["rss_kb"] or None, 1024),
        number(row["growth_kb"], 1024),
    ]


def verdict_row(verdict: Verdict) -> list[str]:
    target = verdict.target
    unit, name = UNITS[target.figure]
    sign = "≥" if target.is_least else "≤"
    if verdict.against is None:
        measured, bound = number(verdict.value, unit), f"{sign} {number(verdict.bound, unit)}"
    elif verdict.bound < 1 and not target.is_least:  # shown as a factor by which ours is cheaper
        cheaper = 1 / verdict.value if verdict.value else None
        measured, bound = number(cheaper), f"{number(1 / verdict.bound)} × cheaper than {verdict.against}"
    else:
        measured, bound = number(verdict.value), f"{sign} {number(verdict.bound)} × {verdict.against}"
    held = {True: "yes", False: "no", None: "not measured"}[verdict.is_held]
    return [target.workload, target.subject, name, measured, bound, held]


def ratio(ours: Figures, theirs: Figures, figure: str) -> float | None:
    one, other = ours.get(figure), theirs.get(figure)
    return one / other if one and other else None


def number(value: float | None, unit: float = 1) -> str:
    """Returns the value with three digits, or with all digits before the point."""
    if value is None:
        return UNSEEN
    value /= unit
    for below, digits in ((1, 2), (10, 2), (100, 1)):
        if abs(value) < below:
            return f"{value:.{digits}f}".rstrip("0").rstrip(".") or "0"
    return f"{value:,.0f}"


def left_out(absent: dict[str, str]) -> dict[str, str]:
    """Returns the reasons why subjects were left out, each cut to a line, with workloads of equal reason together.

    Args:
        absent: reasons by `WORKLOAD SUBJECT`.
    """
    by_reason: dict[tuple[str, str], list[str]] = {}
    for name, why in absent.items():
        workload, subject = name.split(" ")
        line = " ".join(why.split())
        by_reason.setdefault((subject, line if len(line) < 200 else "… " + line[-200:]), []).append(workload)
    return {f"{subject} ({', '.join(workloads)})": why for (subject, why), workloads in by_reason.items()}


def table(columns: tuple[str, ...], rows: Iterable[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    head = "| " + " | ".join(columns) + " |\n| " + " | ".join("---" for _ in columns) + " |"
    return "\n".join([head, *lines])


def fill(page: str, text: str, part: str = "measured figures") -> str:
    """Returns the page with `text` as its generated part of that name.

    Raises:
        ValueError: it has none.
    """
    begin, end = f"<!-- {part} -->", f"<!-- end of {part} -->"
    filled, count = re.subn(f"{begin}.*?{end}", lambda _: f"{begin}\n{text}{end}", page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"expected one part between {begin} and {end}, found {count}")
    return filled


def main(arguments: list[str]) -> None:
    text = render(json.loads(Path(arguments[0]).read_text()))
    if len(arguments) == 1:
        print(text)
    else:
        page = Path(arguments[1])
        page.write_text(fill(page.read_text(), text))


if __name__ == "__main__":
    main(sys.argv[1:])
