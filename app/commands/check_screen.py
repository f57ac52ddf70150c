"""The screen of `check`: a row for each server with its tools, what a user can mend, and the next command."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..config.settings import Server, Settings
from ..runtime.probe import ServerReport
from . import describe_eras
from .server_details import details, labelled, warned, warnings
from .server_table import painted as painted
from .server_table import rest_columns, row_of, table, tool_names


def lines_of(
    settings: Settings, servers: Sequence[Server], reports: Sequence[ServerReport], path: str = "", *, with_eras: bool
) -> list[str]:
    """Returns the table and the details of all servers.

    Args:
        path: the file that is checked, as the next command names it; "": it is found without.
        with_eras: say which revisions each server speaks, and what is translated for clients of others.
    """
    pairs = list(zip(servers, reports, strict=True))
    rows = [row_of(server, report) for server, report in pairs]
    columns = rest_columns(rows)
    rows = [
        row._replace(rest="" if row.tools == "-" else tool_names(server, report, columns))
        for row, (server, report) in zip(rows, pairs, strict=True)
    ]
    lines = table(rows, last="")
    if any(re.search(r" and \d+ more", row.rest) for row in rows):
        lines += ["", f"all tools of a server: isthmus tools{_argument(path)} SERVER"]
    for server, report in pairs:
        found = details(settings, server, report, is_only=len(pairs) == 1)
        if with_eras:
            eras = "; ".join(f"{era} era, revision {revision or 'unknown'}" for era, revision in report.eras.items())
            found += [*(labelled("eras", eras) if eras else ()), *describe_eras.describe(report)]
        lines += ["", f"  {server.id}", *found] if found else []
    return lines


def all_warnings(servers: Sequence[Server], reports: Sequence[ServerReport], problems: Sequence[str] = ()) -> list[str]:
    """Returns the warnings about all servers, after those about the `problems` of the whole."""
    of_servers = [line for pair in zip(servers, reports, strict=True) for line in warnings(*pair)]
    return [*(line for problem in problems for line in warned(problem)), *of_servers]


def ending(path: str, reports: Sequence[ServerReport], *, is_good: bool, with_eras: bool) -> list[str]:
    """Returns the verdict and the next commands.

    Args:
        path: the file that was checked, as the next command names it; "": it is found without.
    """
    file = _argument(path)
    lines = []
    if with_eras:
        lines.append("what becomes of each thing that is not carried as it is: docs/eras.md")
    elif any(report.eras for report in reports):
        lines.append("clients of every revision can use these servers (isthmus check --eras: how)")
    if is_good:
        return [*lines, "all checks passed", f"next: isthmus serve{file}"]
    return [*lines, "some checks failed: see above", f"after fixing them: isthmus check{file}"]


def _argument(path: str) -> str:
    return f" {path}" if path else ""
