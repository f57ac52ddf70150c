"""Prints the lines and branches of core/ that no test reaches, from the data of `make coverage`. Exits with 1 if there
are too many.

Lines and branches are judged separately: a line is easily reached, and says little about the branch out of it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

LEAST: Final = 98.0
"""The least per cent of the lines, and of the branches."""


def table(report: dict[str, Any]) -> str:
    """Formats coverage.py's JSON report: the modules with gaps, and a last row for all.

    A branch is shown as the lines that it goes from and to. A line below 0 is the end of the function.
    """
    rows = ["| Module | Lines | Branches | Lines missed | Branches missed |", "| --- | ---: | ---: | --- | --- |"]
    for module, found in sorted(report["files"].items()):
        lines = ", ".join(str(line) for line in found["missing_lines"])
        branches = ", ".join(
            f"{start}→{end}" for start, end in found["missing_branches"] if start not in found["missing_lines"]
        )
        if lines or branches:
            rows.append(f"| `{module}` | {' | '.join(shares(found['summary']))} | {lines} | {branches} |")
    totals = report["totals"]
    lines = f"{totals['missing_lines']} of {totals['num_statements']}"
    branches = f"{totals['missing_branches']} of {totals['num_branches']}"
    return "\n".join([*rows, f"| all | {' | '.join(shares(totals))} | {lines} | {branches} |"])


def shares(counts: dict[str, int]) -> tuple[str, str]:
    return f"{lines_reached(counts):.1f} %", f"{branches_reached(counts):.1f} %"


def lines_reached(counts: dict[str, int]) -> float:
    return 100 * counts["covered_lines"] / max(counts["num_statements"], 1)


def branches_reached(counts: dict[str, int]) -> float:
    return 100 * counts["covered_branches"] / max(counts["num_branches"], 1)


def is_enough(report: dict[str, Any]) -> bool:
    return min(lines_reached(report["totals"]), branches_reached(report["totals"])) >= LEAST


def main() -> int:
    import coverage

    data = coverage.Coverage()
    data.load()
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "report.json"
        data.json_report(outfile=str(kept))
        report = json.loads(kept.read_bytes())
    print(table(report))
    return 0 if is_enough(report) else 1


if __name__ == "__main__":
    sys.exit(main())
