"""The screen of `isthmus top`: the tables of servers, open requests and sessions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from ..base.output import plain, short
from ..commands.http_client import duration
from .figures import Look, server_figures

SORTS: Final = ("name", "requests_per_s", "errors_per_s", "p95_ms", "in_flight")
"""The columns by which servers are sorted, each after the one before: the largest first, but names."""
_NAMES: Final = {"requests_per_s": "REQ/S", "errors_per_s": "ERR/S", "p95_ms": "P95", "in_flight": "OPEN"}
_SERVERS: Final = ("SERVER", "STATE", "SESSIONS", "PROCESSES", "OPEN", "REQ/S", "ERR/S", "P50", "P95")
_OPEN: Final = ("OPEN FOR", "CLIENT", "SERVER", "METHOD", "TARGET")
_SESSIONS: Final = ("SESSION", "CLIENT", "SERVER", "CALLER", "REQUESTS", "OPEN", "AGE")
_NUMBERS: Final = frozenset({"SESSIONS", "PROCESSES", "OPEN", "REQ/S", "ERR/S", "P50", "P95", "REQUESTS", "OPEN FOR"})
ROWS_MIN: Final = 3
"""Rows that a table keeps, however low the terminal is."""
_BOLD, _RED, _YELLOW = "1", "31", "33"
_COLOURS: Final = {"failed": _RED, "stopped": _YELLOW, "starting": _YELLOW, "stopping": _YELLOW}


class _Table(NamedTuple):
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]


def screen(look: Look, sort: str = SORTS[0]) -> list[str]:
    """Returns all lines of a look."""
    return _lines(_tables(look, sort), None)


def fitted(look: Look, sort: str, title: str, rows: int) -> list[str]:
    """Returns the lines for a terminal of so many rows, which has a line with a title first.

    Args:
        title: what precedes the counts.
    """
    tables = _tables(look, sort)
    clock = datetime.fromtimestamp(look.at).strftime("%H:%M:%S")
    by = _NAMES.get(sort, "name")
    return [f"{title}  {clock}  sorted by {by}  (q quits, s sorts, p pauses)", "", *_lines(tables, rows - 2)][:rows]


def painted(line: str) -> str:
    """Returns a line with headings and states in colour."""
    first = line.split(maxsplit=1)[:1]
    if first and first[0] in ("SERVER", "SESSION", "OPEN"):
        return f"\x1b[{_BOLD}m{line}\x1b[0m"
    for state, colour in _COLOURS.items():
        before, found, after = line.partition(f"  {state}  ")
        if found:
            return f"{before}  \x1b[{colour}m{state}\x1b[0m  {after}"
    return line


def _tables(look: Look, sort: str) -> list[_Table]:
    servers = [server_figures(server, look.rates_of(server)) for server in look.servers]
    if sort != SORTS[0]:
        servers.sort(key=lambda one: -(one[sort] or 0))
    return [
        _Table(_SERVERS, [_server(one) for one in servers]),
        _Table(
            _OPEN,
            [
                (duration(max(0, look.at - one.at)), *map(_shown, (one.client, one.server, one.method, one.target)))
                for one in look.open
            ],
        ),
        _Table(
            _SESSIONS,
            [
                (
                    *map(_shown, (one.session, one.client, one.server, one.principal)),
                    str(one.requests),
                    str(one.open_requests),
                    duration(max(0, look.at - one.at)),
                )
                for one in look.sessions
            ],
        ),
    ]


def _server(one: dict[str, Any]) -> tuple[str, ...]:
    counts = [_shown(one[name]) for name in ("name", "state", "sessions", "processes", "in_flight")]
    rates = [f"{one[name]:.1f}" for name in ("requests_per_s", "errors_per_s")]
    return (*counts, *rates, *(_ms(one[name]) for name in ("p50_ms", "p95_ms")))


def _ms(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:.1f} ms" if ms < 9.95 else f"{ms:.0f} ms"


def _shown(cell: object) -> str:
    return "-" if cell in (None, "") else plain(short(str(cell)))


def _lines(tables: Sequence[_Table], room: int | None) -> list[str]:
    """Returns the lines of tables below each other. Each table gets the rows that fit; the first ones more."""
    shown = [table for table in tables if table.rows or table is tables[0]]
    lines: list[str] = []
    for at, table in enumerate(shown):
        count = len(table.rows)
        if room is not None:
            others = sum(min(len(one.rows), ROWS_MIN) + 2 for one in shown[at + 1 :])
            count = min(count, max(ROWS_MIN, room - len(lines) - others - 1))
        hidden = len(table.rows) - count
        rows = table.rows if not hidden else table.rows[: count - 1]
        lines += ["", *_aligned(table.heads, rows)] if lines else _aligned(table.heads, rows)
        if hidden:
            lines.append(f"… and {hidden + 1} more")
    return lines


def _aligned(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if head in _NUMBERS else cell.ljust(width)
            for head, cell, width in zip(heads, row, widths, strict=True)
        ).rstrip()
        for row in (heads, *rows)
    ]
